"""Saved results as contents of a page: what belongs together, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import softmax_bottleneck as sb
from softmax_bottleneck import Perplexity
from softmax_bottleneck.core.files import write_json
from softmax_bottleneck.errors import BottleneckError
from softmax_bottleneck.report import measure_sources, read_saved
from softmax_bottleneck.report.page import render
from softmax_bottleneck.report.sections import comparison_table, provenance, published_table

from .conftest import DECAYING, KLD, LOW_RANK, STEPS, comparison, drawn, save

ROOT = Path(__file__).parents[2]


def test_what_was_saved_of_one_source_comes_together(tmp_path: Path) -> None:
    file = save(tmp_path / "a", LOW_RANK, head="softmax", bound=26)
    source = json.loads(file.read_text())["source"]
    write_json(tmp_path / "b.json", drawn(source))
    exact = {**KLD, "source": source, "pairs": "all", "kld": 3.75}
    write_json(tmp_path / "c.json", {**exact, "kld": 0.000375})
    assert ("pairwise KL, nats", "0.000375") in comparison_table(read_saved([tmp_path])).rows
    write_json(tmp_path / "c.json", exact)
    write_json(tmp_path / "d.json", Perplexity(math.log(64.0), 9, source).to_dict())
    files = [tmp_path / f"{name}.json" for name in "abcd"]
    for given in (files, [tmp_path], [file.with_suffix(".npz"), *files]):
        (model,) = read_saved(given).models
        assert model.numbers == {"test pairwise KL": 3.75, "test perplexity": pytest.approx(64.0)}
        assert model.drawn is not None
        assert model.report.decomposition is not None
        assert model.report.rank.value == 26


def test_a_matrix_keeps_its_divergence(tmp_path: Path) -> None:
    """The results of a matrix have no split."""
    np.save(tmp_path / "m.npy", np.random.default_rng(0).standard_normal((30, 20)))
    report = sb.rank(tmp_path / "m.npy", kind="logits")
    write_json(tmp_path / "rank.json", report.to_dict())
    write_json(tmp_path / "kld.json", sb.kld(tmp_path / "m.npy", kind="logits").to_dict())
    (model,) = read_saved([tmp_path / "rank.json", tmp_path / "kld.json"]).models
    assert list(model.numbers) == ["test pairwise KL"]
    (tmp_path / ".copied.json").write_text("{}")  # by a file manager
    assert len(read_saved([tmp_path]).models) == 1


def test_sources_of_one_path_keep_their_own_perplexity() -> None:
    torch.manual_seed(0)
    hidden, targets = torch.randn(50, 4), torch.randint(9, (50,))
    layers = {name: torch.nn.Linear(4, 9) for name in ("base", "tuned", "other")}
    contents = measure_sources(
        {name: sb.open(layer, hidden=hidden, targets=targets) for name, layer in layers.items()}, pairs=10
    )
    expected = [torch.nn.functional.cross_entropy(layer(hidden), targets).exp().item() for layer in layers.values()]
    assert [model.numbers["test perplexity"] for model in contents.models] == pytest.approx(expected, rel=1e-5)
    far = sb.open(layers["base"], hidden=1000 * hidden, targets=layers["base"](1000 * hidden).argmin(1))
    beyond = measure_sources({"far": far}, pairs=10)  # the loss is beyond the exponential
    assert "test perplexity" not in beyond.models[0].numbers
    assert beyond.missing[0].startswith("no perplexity: the mean loss is ")
    pairs = [[contents.label_of(source) for source in each["sources"]] for each in contents.comparisons]
    assert pairs == [["base", "tuned"], ["base", "other"]]


def test_labels_are_names_and_tell_models_apart(tmp_path: Path) -> None:
    files = [
        save(tmp_path / "one" / "mos", DECAYING, path="x/runs/mos", head="mos", dropped_columns=3),
        save(tmp_path / "two" / "mos", DECAYING, path="y/runs/mos", head="mos"),
        save(tmp_path / "two" / "net.valid", DECAYING, path="a/b/network", split="valid"),
        save(tmp_path / "two" / "net", DECAYING, path="a/b/network"),
        save(tmp_path / "two" / "m", STEPS, path="m.npy"),
        save(tmp_path / "two" / "n", STEPS, path="m.npy"),
    ]
    contents = read_saved(files)
    expected = ("MoS (one)", "MoS (two)", "network (valid)", "network (test)", "m.npy (1)", "m.npy (2)")
    assert contents.labels == expected
    assert len({(look.color, look.dashes) for look in contents.looks}) == 6
    assert contents.looks[0].color == contents.looks[1].color  # that of their head
    assert "dropped_columns 3" in dict(provenance(contents.models[0]))["source"]
    header, rows = comparison_table(contents)
    assert [header[:2], rows[5][:2]] == [["model", "d"], ["m.npy (2)", "24"]]
    few = read_saved(files[:5])  # stand beside each other in columns
    header, rows = comparison_table(few)
    assert [header, [*rows[0]]] == [["", *few.labels], ["d", *["24"] * 5]]
    assert [read_saved(files[4:5] + files[2:3]).title, contents.title] == ["m.npy and network", "6 models"]


def test_committed_results_make_a_page() -> None:
    contents = read_saved([ROOT / "figures" / "results" / "demo", ROOT / "figures" / "results" / "ptb-small-nt-asgd"])
    assert contents.labels[:4] == ("Softmax (demo)", "MoC (demo)", "MoS (demo)", "LMS-PLIF (demo)")
    header, rows = comparison_table(contents)
    assert dict(zip(header, rows[0], strict=True))["test perplexity"] == "52.98"
    assert any("seed 0 is shown, of 3 seeds" in text for text in contents.missing)
    html = render(contents)
    assert "MoS (demo) predicts better than MoC (demo)" in html
    published = published_table(contents).rows
    assert all(row[5] == "–" for row in published)  # the papers' models are larger


def test_published_numbers_stand_beside_those_of_the_preset(tmp_path: Path) -> None:
    file = save(tmp_path / "ptb" / "mos", DECAYING, head="mos", corpus="ptb")
    score = Perplexity(math.log(57.0), 9, {"path": "runs/mos", "split": "test"})
    score.save(tmp_path / "ptb" / "mos.score.json")
    rows = published_table(read_saved([file.parent])).rows
    assert [
        "MoS",
        "test perplexity",
        "55.97",
        "AWD-LSTM-MoS, not finetuned",
        "Yang et al. 2018, table 1",
        "57.00",
    ] in rows
    ranks = [row for row in rows if row[1] == "test rank"]
    assert ranks
    assert ranks[0][2] == "9,981"
    assert all(row[5] == "–" for row in rows if "finetuned" in row[3].split(", "))


CHANGES: dict[str, tuple[Any, str]] = {
    "another shape": (lambda c: c.update(contexts=601), "its matrix has 601 × 400 entries .* 600 × 400"),
    "another spectrum": (lambda c: c["rank"].update(sigma_1=3.0), "σ_1 = 3, that of the .npz file .* σ_1 = 1000"),
    "another result": (lambda c: c.pop("kind"), "a.json is not a result, and a report is made of ranks"),
}


def test_files_that_are_not_reports(tmp_path: Path) -> None:
    with pytest.raises(BottleneckError, match=r"the file .*a\.json does not exist; 'bottleneck rank --json"):
        read_saved([tmp_path / "a.npz"])
    write_json(tmp_path / "compared.json", comparison("mos", "moc"))
    with pytest.raises(BottleneckError, match=r"compared\.json: without a rank report; 'bottleneck rank --json"):
        read_saved([tmp_path / "compared.json"])
    for change, error in CHANGES.values():
        file = save(tmp_path / "a", DECAYING)
        content = json.loads(file.read_text())
        change(content)
        write_json(file, content)
        with pytest.raises(BottleneckError, match=error):
            read_saved([file])
    save(tmp_path / "a", DECAYING).with_suffix(".npz").write_bytes(b"PK")
    with pytest.raises(BottleneckError, match=r"a\.npz is not a spectrum of"):
        read_saved([tmp_path / "a.json"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(BottleneckError, match="empty holds no results"):
        read_saved([tmp_path / "empty"])
