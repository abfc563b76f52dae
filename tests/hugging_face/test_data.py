"""The texts and ids that people give a model: every form of one text or batch gives the same number."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch
import transformers
from torch import Tensor
from torch.nn import functional as F

import softmax_bottleneck as sb
from softmax_bottleneck import perplexity
from softmax_bottleneck.corpora.own import check_named
from softmax_bottleneck.errors import BottleneckError
from softmax_bottleneck.integrations import model_statistics
from softmax_bottleneck.integrations.transformers import with_head

LENGTHS = (5, 12, 2, 9, 1, 12)
LINES = [" ".join(f"w{7 * word % 30}" for word in range(start, start + 80)) for start in (0, 11)]


@pytest.fixture
def model(save: Callable[..., Path]) -> tuple[Path, Any, Any]:
    """A folder, the model in it, and its tokenizer."""
    folder = save("gpt2")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder)
    return folder, loaded, transformers.AutoTokenizer.from_pretrained(folder)


def test_texts(model: tuple[Path, Any, Any], tmp_path: Path) -> None:
    folder, loaded, tokenizer = model
    (tmp_path / "d.txt").write_text("\n".join(LINES))
    for field in ("text", "content"):
        rows = "".join(json.dumps({"id": 1, field: line}) + "\n" for line in (LINES[0], None, LINES[1]))
        (tmp_path / f"{field}.jsonl").write_text(rows)
        (tmp_path / f"{field}.JSONL").write_text(rows)
    (tmp_path / "array.json").write_text(json.dumps([{"body": line} for line in LINES], indent=1))
    (tmp_path / "strings.json").write_text(json.dumps(LINES))
    names = ("d.txt", "text.jsonl", "text.jsonl:text", "content.jsonl:content", "content.JSONL:content")
    names += ("array.json:body", "strings.json")
    expected = perplexity(folder, data=str(tmp_path / "d.txt")).perplexity
    rows = datasets.Dataset.from_dict({"id": [1, 2], "text": LINES})
    held = [LINES, rows, rows["text"], rows.to_iterable_dataset(), rows.with_format("pandas"), rows[:], [*rows]]
    for data in (*(str(tmp_path / name) for name in names), *held, np.array(LINES), "\n".join(LINES)):
        assert perplexity(folder, data=data).perplexity == expected
        assert perplexity(loaded, data=data, tokenizer=tokenizer).perplexity == expected
    ids = tokenizer("\n".join(LINES))["input_ids"]
    np.save(tmp_path / "ids.npy", np.array(ids, np.uint16))
    (tmp_path / "ids.jsonl").write_text(json.dumps({"input_ids": ids}) + "\n")
    assert sb.open(str(folder), data=str(tmp_path / "ids.npy")).description["corpus"] == str(tmp_path / "ids.npy")
    for data in (
        str(tmp_path / "ids.npy"),
        str(tmp_path / "ids.jsonl:input_ids"),
        ids,
        np.array(ids),
        torch.tensor([ids]),
        tokenizer("\n".join(LINES), return_tensors="pt"),
    ):
        assert perplexity(loaded, data=data).perplexity == expected


def test_a_folder_of_any_name(model: tuple[Path, Any, Any]) -> None:
    named = model[0].rename(model[0].with_name("student.pt"))
    assert sb.open(named, data=LINES).shape[1] == 60
    with pytest.raises(BottleneckError, match="a Table is not read as numbers: give its to_pandas"):
        sb.rank(pyarrow.table({"a": [1.0, 2.0]}))


def test_errors_count_the_texts_of_json_lines(model: tuple[Path, Any, Any], tmp_path: Path) -> None:
    """Where they begin is known to a few tokens; the text is read as one."""
    folder, _, tokenizer = model
    words = np.random.default_rng(0).integers(0, 30, 2000)
    texts = [" ".join(f"w{word}" for word in part) for part in np.split(words, np.arange(80, 2000, 160))]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    for data in (str(tmp_path / "t.jsonl"), texts):
        text = sb.open(folder, data=data).text
        begin = [len(tokenizer("\n".join(texts[:count]) + "\n")["input_ids"]) for count in range(1, len(texts))]
        assert (text.starts.tolist(), len(text.joined)) == ([0], len(texts))
        np.testing.assert_allclose(text.joined, [0, *begin], atol=5)
        np.testing.assert_array_equal(text.places[text.beginnings(1000, joined=True)[1:6]], text.joined[1:6])
    (tmp_path / "half.jsonl").write_text('{"text": "a \\ud83d"}')
    with pytest.raises(BottleneckError, match=r"half.jsonl holds '.ud83d', half of a surrogate pair"):
        perplexity(folder, data=str(tmp_path / "half.jsonl"))


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("./my texts/w1 w2.tokens", "cannot read my texts/w1 w2.tokens"),
        ("table.csv", "table.csv is a table: write its column of texts to JSON Lines, or give it in Python"),
        ("missing.txt", "cannot read missing.txt"),
        ("latin.txt", "line 1: the byte 0xe9 is not UTF-8"),
        ("empty.jsonl", "empty.jsonl is empty"),
        ("empty.jsonl:body", "empty.jsonl is empty"),
        ("nowhere", "'nowhere' is not a corpus"),
        ("text8", "text8 is not on this machine yet"),
        ("missing.npy", "cannot read missing.npy: No such file"),
        ("broken.npy", r"broken.npy does not hold token ids, \(N,\) or \(B, L\)"),
        ("folder", "cannot read folder/train.txt"),
    ],
)
def test_a_text_is_looked_at_before_a_model(data: str, sentence: str, tmp_path: Path, monkeypatch: Any) -> None:
    """And on the command line, for all but folders, before PyTorch is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOFTMAX_BOTTLENECK_CACHE", str(tmp_path))
    Path("latin.txt").write_bytes(b"caf\xe9")
    Path("empty.jsonl").write_bytes(b" \n")
    Path("table.csv").write_text("text\nw1 w2 w3\n")
    Path("broken.npy").write_bytes(b"ids")
    Path("folder").mkdir()
    with pytest.raises(BottleneckError, match=sentence):
        sb.rank("nobody/no-model", data=data)  # which would have to be fetched
    if data != "folder":
        with pytest.raises(BottleneckError, match=sentence):
            check_named(data)


def test_a_command_looks_at_a_text_before_it_imports_pytorch(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from softmax_bottleneck.cli import main\n"
        "try: main(['rank', 'nobody/no-model', '--data', 'missing.txt'])\n"
        "except SystemExit as stop: assert stop.code == 1\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "cannot read missing.txt" in done.stderr


def test_ids_need_no_tokenizer(model: tuple[Path, Any, Any]) -> None:
    folder, loaded, _ = model
    ids = torch.randint(0, 30, (6, 20), generator=torch.Generator().manual_seed(0))
    expected = perplexity(loaded, data=ids).perplexity
    assert sb.open(loaded, data=ids[:1]).shape == (19, 60)
    assert perplexity(loaded, data=[ids[:4], ids[4:]]).perplexity == expected
    assert perplexity(folder, data=ids).perplexity == expected
    for file in folder.glob("tokenizer*"):
        file.unlink()
    assert perplexity(folder, data=ids).perplexity == expected


@pytest.mark.parametrize("lengths", [(20, 20, 20), (20, 7, 1, 0, 13)])
def test_a_data_set_of_ids(lengths: tuple[int, ...], model: tuple[Path, Any, Any]) -> None:
    """One meaning whatever holds the ids, for a measurement, a function and the callback; texts beside ids are unread.

    The numbers are those of the texts, one by one.
    """
    _, loaded, tokenizer = model
    texts = [torch.randint(0, 60, (n,), generator=torch.Generator().manual_seed(n)).tolist() for n in lengths]
    with torch.no_grad():
        rows = [loaded.eval()(torch.tensor([text])).logits[0, :-1].log_softmax(-1) for text in texts if len(text) > 1]
    expected = torch.cat(rows)
    ids = datasets.Dataset.from_dict({"input_ids": texts, "attention_mask": [[1] * n for n in lengths]})
    both = ids.add_column("text", ["w1 w2 w3 " * 9] * len(texts))

    class Rows(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return len(texts)

        def __getitem__(self, row: int) -> Any:
            return torch.tensor(texts[row]), row

    forms: dict[str, Any] = {"lists": texts, "torch's own": Rows(), "frame": both.to_pandas(), "arrow": ids.data.table}
    forms |= {"tensors": [*map(torch.tensor, texts)], "a generator": (np.array(text) for text in texts)}
    if len({*lengths}) == 1:
        rows = [{"input_ids": torch.tensor(text), "attention_mask": torch.ones(20)} for text in texts]
        forms |= {
            "rows": rows,
            "loader": torch.utils.data.DataLoader(rows, batch_size=2),
            "one tensor": torch.tensor(texts),
        }
    for name, each in (("ids", ids), ("both", both)):
        streamed = each.to_iterable_dataset()
        forms |= {name: each, f"{name} streamed": streamed, f"{name}, columns": each[:], f"{name}, rows": [*streamed]}
        forms |= {f"{name} {kind}": each.with_format(kind) for kind in ("torch", "numpy", "pandas", "arrow")}
        forms[f"{name} streamed torch"] = streamed.with_format("torch")
    measured = {name: sb.open(loaded, data=data, tokenizer=tokenizer) for name, data in forms.items()}
    for name, source in measured.items():
        found = np.concatenate([block.log_probs for block in source.blocks()])
        np.testing.assert_allclose(found, expected, atol=2e-5, err_msg=name)
    through = [sb.open(lambda ids: loaded(torch.as_tensor(ids)).logits.detach(), data=data) for data in (ids, both)]
    assert {source.shape[0] for source in through} == {sum(lengths)}
    statistics = [model_statistics(loaded, data, tokenizer=tokenizer) for data in (ids, both.to_iterable_dataset())]
    assert statistics[0] == statistics[1]
    assert statistics[0]["pairwise_kl"] == pytest.approx(sb.pairwise_kld(expected).kld, rel=1e-4)
    with pytest.raises(BottleneckError, match="batch 0 of the data has neither input_ids nor text, but train, test: "):
        sb.open(loaded, data=datasets.DatasetDict({"train": ids, "test": ids}))
    with pytest.raises(BottleneckError, match="some texts of the data are strings and others are token ids"):
        sb.open(loaded, data=[texts[0], "w1 w2"])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_padding_and_ignored_labels_are_left_out(name: str, side: str, save: Callable[..., Path]) -> None:
    """The numbers are those of the texts read one by one; the first third of each is a prompt with the label −100."""
    folder = save(name)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    texts = [torch.randint(0, 59, (length,), generator=torch.Generator().manual_seed(length)) for length in LENGTHS]
    rows: list[dict[str, Tensor]] = []
    log_probs, targets = [], []
    for text in texts:
        prompt, gap = max(1, len(text) // 3), max(LENGTHS) - len(text)
        labels = text.clone()
        labels[:prompt] = -100
        padding = (gap, 0) if side == "left" else (0, gap)
        parts = {"input_ids": (text, 59), "attention_mask": (torch.ones_like(text), 0), "labels": (labels, -100)}
        rows.append({key: F.pad(part, padding, value=value) for key, (part, value) in parts.items()})
        with torch.no_grad():
            log_probs.append(model(text[None]).logits[0].log_softmax(-1)[prompt - 1 : -1])
        targets.append(text[prompt:])
    expected, wanted = torch.cat(log_probs), torch.cat(targets)
    loader = torch.utils.data.DataLoader(rows, batch_size=4)  # type: ignore[arg-type,var-annotated]
    for given in (model, with_head(model, "mos", components=2)):
        source = sb.open(given, data=loader)
        found = np.concatenate([block.log_probs for block in source.blocks(source.ranges(5))])
        np.testing.assert_allclose(found, expected, atol=2e-5)
        np.testing.assert_array_equal(source.targets, wanted)
        nll = F.nll_loss(expected.double(), wanted)
        assert perplexity(given, data=loader).perplexity == pytest.approx(float(nll.exp()), rel=1e-5)
        statistics = model_statistics(given, loader)
        assert statistics["pairwise_kl"] == pytest.approx(sb.pairwise_kld(expected).kld, rel=1e-4)
        assert statistics["rank_centered"] == sb.rank(expected).rank_centered.value
    several_ids = torch.stack([row["input_ids"] for row in rows])
    whole, alone = (several_ids, torch.stack([row["attention_mask"] for row in rows])), [*map(len, texts)]
    assert sb.open(model, data=whole).shape == sb.open(model, data=[whole]).shape == (sum(alone) - len(alone), 60)
    words = [f"w{token}" for token in texts[-1]]
    text = sb.open(model, data=loader, tokenizer=transformers.AutoTokenizer.from_pretrained(folder)).text
    assert (text.before(len(wanted) - 1, 50), text.sentence(len(wanted) - 2, 50)) == (
        " ".join(words[:-1]), " ".join(words),
    )  # fmt: skip
    without_labels = [{key: row[key] for key in ("input_ids", "attention_mask")} for row in rows]
    several = [each.tolist() for each in texts]
    for data in (without_labels, texts, several):
        assert sb.open(model, data=data).shape == (sum(LENGTHS) - len(LENGTHS), 60)


def test_texts_of_which_some_are_missing(model: tuple[Path, Any, Any]) -> None:
    expected = sb.open(model[0], data=[LINES[0], LINES[0]]).shape
    for gap in (None, np.nan, pd.NA):
        for data in ([LINES[0], gap, LINES[0]], [gap, LINES[0], LINES[0]]):
            for form in (pd.Series(data), pd.DataFrame({"text": data}), pd.Series(data, dtype="string")):
                assert sb.open(model[0], data=form).shape == expected


def test_a_text_of_any_form_is_that_text(model: tuple[Path, Any, Any]) -> None:
    """Bytes are text, and so is a sentence that names a file."""
    for text in (LINES[0], f"w1 package.json: {LINES[0]}", f"w1 package.json:\n{LINES[0]}"):
        assert sb.open(model[0], data=text).shape[0] > 5
    assert sb.open(model[0], data=LINES[0].encode()).shape == sb.open(model[0], data=LINES[0]).shape


def test_a_text_in_place_of_a_model() -> None:
    with pytest.raises(BottleneckError, match=r"^'xxx.{70,90} cannot be opened: File name too long$"):
        perplexity("x" * 5000)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ("content.jsonl", "record 1 has no text in the field 'text' .its fields are content.; name one as FILE.jsonl:"),
        ("broken.jsonl", "record 1 is not JSON"),
        ([{"input_ids": torch.ones(2, 9, dtype=torch.int64), "labels": torch.ones(9)}], "a mask or labels of another"),
        (
            [{"input_ids": [[1, 2, 3, 4]], "attention_mask": [[1, 1, 2, 2]]}],
            "other numbers than 0 and 1: give each text",
        ),
        (np.ma.masked_equal([[5, 6, 0], [5, 6, 7]], 0), "the data are a masked array: leave the masked ones out"),
        ("words.jsonl:tokens", "the field 'tokens' holds lists of words: join each to one text, or give token ids"),
        (
            [{"input_ids": torch.ones(1, 9, dtype=torch.int64), "attention_mask": torch.zeros(1, 9)}],
            "no token is predi",
        ),
        (
            {"input_ids": [[*range(1, 59)] * 4], "labels": [[-100] * 3 + [*range(4, 12)] + [-100] * 221]},
            "no token after the first .* of the text is a target: give a larger stride",
        ),
        ("", "the text is empty: give one, or its name"),
        ("w1 \ud800 w2", "the text holds .*, half of a surrogate pair"),
        (Path("my notes of the project.md"), "'my notes of the project.md' is not a corpus"),
        (Path("my own notes"), "'my own notes' is not a corpus"),
    ],
)
def test_what_is_not_a_text(
    data: Any, complaint: str, model: tuple[Path, Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("content.jsonl").write_text(json.dumps({"content": LINES[0]}))
    Path("broken.jsonl").write_text(LINES[0])
    Path("words.jsonl").write_text('{"tokens": ["w1", "w2", "w3"]}')
    with pytest.raises(BottleneckError, match=complaint):
        perplexity(model[0], data=data)
