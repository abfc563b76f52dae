"""A folder of hidden states with its output layer gives every measurement the numbers of the model it is from."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from scipy.special import log_softmax

import softmax_bottleneck as sb
from attacks.damage import flip, inside, remove, with_value, write
from softmax_bottleneck.cli.doctor import check
from softmax_bottleneck.cli.drawing import is_saved
from softmax_bottleneck.errors import BottleneckError
from softmax_bottleneck.measure.dumping import dump


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("llama", "bfloat16"),
        ("llama", "float64"),
        *((name, "float32") for name in ("gpt2", "gemma2", "phi", "gpt-neox")),
    ],
)
def test_the_folder_is_the_model(name: str, dtype: str, save: Any, open_model: Any, tmp_path: Path) -> None:
    """With an RMSNorm or a LayerNorm before it, a bias, a soft cap, and rows for more tokens than the tokenizer has."""
    model = open_model(save(name), dtype=dtype)
    folder = dump(model, tmp_path / "states", states=True)
    found = sb.open(folder)
    assert (found.shape, found.model.hidden.dtype) == (model.shape, getattr(torch, dtype))
    assert json.loads((folder / "states.json").read_text())["dtype"] == dtype
    for ours, theirs in zip(found.blocks(), model.blocks(), strict=True):
        np.testing.assert_array_equal(ours.log_probs, theirs.log_probs)
    np.testing.assert_array_equal(found.targets, model.targets)
    assert found.description["corpus"] == model.description["corpus"]
    assert found.text.before(20, 4) == model.text.before(20, 4)
    keys = {
        sb.rank: ("rank", "rank_centered", "bound", "eps"),
        sb.need: ("other_text", "same_text", "perplexity"),
        sb.gradient: ("kept",),
        sb.kld: ("kld",),
        sb.head: ("bound", "vocab"),
        sb.perplexity: ("loss", "tokens"),
    }
    for measure, names in keys.items():
        ours, theirs = (measure(each).to_dict() for each in (str(folder), model))
        for key in names:
            expected = pytest.approx(theirs[key]) if isinstance(theirs[key], float) else theirs[key]
            assert ours[key] == expected, key
    assert sb.compare(model, str(folder)).statistics["kl"].value == 0


def test_a_run_whose_layer_takes_other_vectors(runs: dict[str, Path], tmp_path: Path) -> None:
    """A mixture of contexts is a softmax of its mixed context vector."""
    model = sb.open(runs["moc"])
    folder = dump(model, tmp_path / "s", states=True)
    np.testing.assert_allclose(next(sb.open(folder).blocks()).log_probs, next(model.blocks()).log_probs, atol=1e-5)
    assert sb.perplexity(folder).perplexity == pytest.approx(sb.perplexity(model).perplexity)
    with pytest.raises(BottleneckError, match="does not show hidden states under a softmax"):
        dump(sb.open(runs["mos"]), tmp_path / "mos", states=True)


def change(name: str, **arrays: Any) -> Any:
    """Write other arrays, as another program does, whose files have no checksum."""

    def changed(folder: Path) -> None:
        save_file({**load_file(folder / name), **arrays}, folder / name)
        file = folder / "states.json"
        about = {key: value for key, value in json.loads(file.read_text()).items() if key != "identity"}
        file.write_text(json.dumps(about))

    return changed


HIDDEN_CHANGED = inside("hidden/00000.safetensors", flip(-5))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (inside("states.json", remove), "states.json: No such file .*; run what wrote this folder again"),
        (lambda folder: (folder / "states.json").rename(folder / "unfinished.json"), "states.json: No such file"),
        (inside("states.json", write(b"{}")), "states.json is damaged or of another kind"),
        (inside("head.safetensors", remove), "head.safetensors cannot be read"),
        (inside("hidden/00000.safetensors", remove), "holds 0 states, and states.json says 50"),
        (HIDDEN_CHANGED, "its checksum does not hold"),
        (change("hidden/00000.safetensors", targets=np.zeros(3, np.int64)), "must have targets, one for each state"),
        (change("hidden/00000.safetensors", hidden_states=np.zeros((3, 5), np.float32)), "holds 3 states, and"),
        (change("hidden/00000.safetensors", hidden_states=np.zeros((50, 3), np.float32)), "states of 3 numbers, and W"),
        (change("hidden/00000.safetensors", hidden_states=np.zeros((50, 5, 1), np.float32)), "must be real numbers in"),
        (change("head.safetensors", bias=np.zeros(3, np.float32)), "the bias has 3 entries, and W has"),
        (change("head.safetensors", weight=np.zeros((9, 5), np.int8)), "must be real numbers in this shape, not"),
        (change("head.safetensors", **{"norm.weight": np.ones(5, np.float32)}), "norm in states.json is None, and"),
        (
            inside("states.json", with_value("norm", "rms")),
            "the norm in states.json is rms, and head.safetensors holds none",
        ),
        (
            inside("states.json", with_value("softcap", 30.0)),
            "holds 'softcap', which is not read; did you mean 'soft_cap'",
        ),
    ],
)
def test_half_written_and_damaged_folders(damage: Any, told: str, runs: dict[str, Path], tmp_path: Path) -> None:
    folder = dump(runs["softmax"], tmp_path / "s", states=True, contexts=50)
    assert check(folder).startswith("complete hidden states: 50 contexts")
    assert not is_saved(str(folder))  # what a report measures
    damage(folder)
    for reads in (sb.rank, check):
        with pytest.raises(BottleneckError, match=told):
            reads(folder)
    with pytest.raises(BottleneckError, match=r"dump: contexts 50, not 30;|does not hold hidden states"):
        dump(runs["softmax"], folder, states=True, contexts=30)


def test_the_same_dump_again_repairs_what_is_damaged(save: Any, open_model: Any, tmp_path: Path) -> None:
    model = open_model(save("llama"))
    folder = dump(model, tmp_path / "s", states=True)
    shutil.copytree(folder, before := tmp_path / "before")
    HIDDEN_CHANGED(folder)
    dump(model, folder, states=True)
    for file in ("states.json", "head.safetensors", "hidden/00000.safetensors", "tokenizer.json"):
        assert (folder / file).read_bytes() == (before / file).read_bytes()


def test_the_command(runs: dict[str, Path], bottleneck: Any, tmp_path: Path) -> None:
    done = bottleneck("dump", str(runs["softmax"]), "--states", "--out", str(tmp_path / "teacher"))
    assert (done.exit_code, "419 contexts × " in done.output) == (0, True), done.output
    done = bottleneck("rank", str(tmp_path / "teacher"), "--norm", "w.npy")
    assert "norm does not apply to a folder of hidden states" in done.output


def test_the_script_for_transformers(save: Any, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/states.md prints it, on a model of another name."""
    monkeypatch.chdir(tmp_path)
    words, model = text.read_text().split(), save("llama")
    Path("texts.txt").write_text("\n".join(" ".join(part) for part in (words[:40], words[40:100])))
    page = (Path(__file__).parents[2] / "docs/states.md").read_text(encoding="utf-8")
    ours, theirs = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[:2]
    assert len(ours[ours.index("def write") :].splitlines()) <= 10
    exec(ours + re.sub(r'name = ".*"', f"name = {str(model)!r}", theirs), {"__name__": "script"})
    found = sb.open("teacher")
    assert found.text.beginnings(100).tolist() == [0, 40]
    rows = {"input_ids": [[int(word[1:]) for word in part] for part in (words[:40], words[40:100])]}
    expected = sb.open(model, data=[{"input_ids": [row]} for row in rows["input_ids"]])
    assert sb.perplexity(found).perplexity == pytest.approx(sb.perplexity(expected).perplexity, rel=1e-5)
    assert found.scored().text.before(1, 2) == " ".join(words[:2])
    compared = sb.compare(dump(found, tmp_path / "t.parquet", top=5), expected)  # where a text ends nothing follows
    assert (compared.contexts, compared.statistics["same_top"].value) == (98, 1)
    for contexts in (39, 40, 60):  # the first text has 39 tokens to predict
        same = sb.compare(str(tmp_path / "teacher"), expected, contexts=contexts)
        assert (same.contexts, same.statistics["kl"].value) == (contexts, pytest.approx(0, abs=1e-6))
    whole = log_softmax(np.random.default_rng(0).standard_normal((100, found.shape[1])), 1)
    with pytest.raises(BottleneckError, match="98; of these 2 texts, leave out the rows that predict"):
        sb.compare(whole, expected)


@pytest.mark.parametrize(("kind", "eps"), [("rms", 0.3), ("layer", 0.3), ("rms", 0.0)])
def test_states_from_before_the_final_norm(kind: str, eps: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    H, W, gamma = (rng.standard_normal(shape, dtype=np.float32) for shape in ((20, 6), (11, 6), 6))
    H *= eps or 1e-3
    (tmp_path / "hidden").mkdir()
    save_file({"hidden_states": H}, tmp_path / "hidden/0.safetensors")
    save_file({"weight": W, "norm.weight": gamma}, tmp_path / "head.safetensors")
    about = {"format": "softmax-bottleneck states 1", "contexts": 20, "norm": kind, "norm_eps": eps}
    (tmp_path / "states.json").write_text(json.dumps(about))
    centered = H - H.mean(1, keepdims=True) * (kind == "layer")
    normed = centered / np.sqrt((centered**2).mean(1, keepdims=True) + eps) * gamma
    (block,) = sb.open(tmp_path).blocks()
    np.testing.assert_allclose(block.log_probs, log_softmax(normed @ W.T, 1), atol=1e-5)


def test_rank_of_a_model_says_once_how_to_keep_its_states(
    save: Any, text: Path, bottleneck: Any, tmp_path: Path
) -> None:
    model = str(save("llama"))
    (Path(model) / "hidden").mkdir()  # a folder of the user's
    done = bottleneck("rank", model, "--data", str(text), "--context-length", "16", "--contexts", "50")
    given = ["--data", str(text), "--contexts", "50", "--context-length", "16"]
    told = f"{shlex.join(['bottleneck', 'dump', model, *given, '--states', '--out', 'FOLDER'])} keeps the hidden states"
    assert (done.stderr.count(told), done.stdout.count(told)) == (1, 0), done.output
    np.save(tmp_path / "m.npy", np.eye(3))
    done = bottleneck("rank", str(tmp_path / "m.npy"), "--kind", "matrix")
    assert "keeps the hidden states" not in done.output


@pytest.mark.parametrize("states", ["s", "s/hidden"])
def test_a_folder_beside_its_states_under_another_layer(
    states: str, save: Any, open_model: Any, bottleneck: Any, tmp_path: Path
) -> None:
    """As a trained layer is compared; of ``s/hidden`` tokens have no names, and the last target is not known."""
    folder = dump(open_model(save("llama")), tmp_path / "s", states=True)
    W = load_file(folder / "head.safetensors")["weight"]
    np.save(tmp_path / "w.npy", W + 0.1)
    np.save(tmp_path / "other.npy", W + np.eye(*W.shape, dtype=W.dtype))
    arguments = [str(folder), *(f"{name}={tmp_path}/{states} --head {tmp_path}/{name}.npy" for name in ("w", "other"))]
    done = bottleneck("compare", *arguments, "--format", "json")
    results = json.loads(done.stdout)["results"]
    assert results[0]["statistics"]["kl"]["value"] == pytest.approx(0, abs=1e-6)
    assert results[1]["statistics"]["kl"]["value"] > 0.01


def test_the_bias_stays_under_another_layer(runs: dict[str, Path], tmp_path: Path) -> None:
    """Unless another one is given: trained layers keep that of the model."""
    folder = dump(runs["softmax"], tmp_path / "s", states=True, contexts=50)
    bias = load_file(folder / "head.safetensors")["bias"]
    np.save(tmp_path / "other.npy", bias + np.eye(1, len(bias), dtype=bias.dtype)[0])
    head = f"{folder}/head.safetensors:weight"
    for other, least in ((None, 0.0), (f"{tmp_path}/other.npy", 1e-3)):
        kl = sb.compare(folder, sb.open(folder, head=head, bias=other)).statistics["kl"].value
        assert least <= kl <= least * 1e3
