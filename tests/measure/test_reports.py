"""Several sources measured at once: labels, table, figure; and the checkpoints of a training, against NumPy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import nn

import softmax_bottleneck as sb
from softmax_bottleneck import RankReports
from softmax_bottleneck.errors import ConfigurationError, SourceError

CONTEXTS, VOCAB = 60, 12


def log_probs(dimensions: int) -> NDArray[np.float64]:
    """Return log-probabilities of rank dimensions + 1."""
    generator = np.random.default_rng(dimensions)
    logits = generator.standard_normal((CONTEXTS, dimensions)) @ generator.standard_normal((dimensions, VOCAB))
    return logits - np.logaddexp.reduce(logits, 1)[:, None]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Save matrices of ranks 3, 5 and 7."""
    monkeypatch.chdir(tmp_path)
    names = ("step-20.npy", "step-100.npy", "step-3.npy")
    for name, dimensions in zip(names, (2, 4, 6), strict=True):
        np.save(name, log_probs(dimensions))
    return names


def test_a_list_is_labelled_as_the_command_takes_it(files: tuple[str, ...]) -> None:
    reports = sb.rank([files[0], f"My own={files[1]}", Path(files[2])])
    assert isinstance(reports, RankReports)
    assert [(report.name, report.rank.value) for report in reports] == [("step-20", 3), ("My own", 5), ("step-3", 7)]
    assert reports["My own"] is reports[1]
    assert [report.rank.value for report in reports[1:]] == [5, 7]
    assert reports.to_dict() == {"kind": "results", "results": [report.to_dict() for report in reports]}
    assert reports.to_frame()["rank"].tolist() == [3, 5, 7]
    with pytest.raises(ConfigurationError, match="the label 'a' stands for 2 sources; give each its own"):
        sb.rank([f"a={files[0]}", f"a={files[1]}"])


def test_a_dictionary_names_arrays_and_models_and_a_list_of_arrays_is_one_matrix() -> None:
    layer, hidden = nn.Linear(3, VOCAB, bias=False), np.random.default_rng(0).standard_normal((CONTEXTS, 3))
    reports = sb.rank({"array": log_probs(2), "layer": layer}, hidden=hidden)
    assert [(report.name, report.rank.value) for report in reports] == [("array", 3), ("layer", 4)]
    assert [report.name for report in sb.rank([layer, layer], hidden=hidden)] == ["Linear", "Linear (2)"]
    whole = log_probs(4)
    assert sb.rank([whole[:20], whole[20:]]).spectrum.shape == (CONTEXTS, VOCAB)
    for several in (["a.npy", "b.npy"], {"a": whole}):
        with pytest.raises(SourceError, match="this takes one source, not several"):
            sb.open(several)


def test_the_table_is_compact_and_its_columns_can_be_chosen(files: tuple[str, ...]) -> None:
    reports = sb.rank(files)
    assert reports.table().header == ["model", "rank", "row-centred rank"]
    assert reports.table().rows == [["step-20", "3", "2"], ["step-100", "5", "4"], ["step-3", "7", "6"]]
    assert repr(reports.table()) == reports.to_markdown()
    assert "<td style='text-align: left'>7</td>" in reports.table()._repr_html_() == reports._repr_html_()
    latex = reports.to_latex(columns=["contexts", "rank_low"], caption="Ranks")
    assert all(
        part in latex for part in (r"model & contexts & rank\_low \\", r"step-100 & 60 & 5 \\", r"\caption{Ranks}")
    )
    assert reports.table(columns=["rank", "vocab"], format="csv").splitlines()[1] == "step-20,3,12"
    with pytest.raises(ConfigurationError, match="no result has a column 'rang'; the columns are contexts, vocab"):
        reports.table(columns=["rang"])


def test_results_of_several_kinds_share_the_row_of_a_model() -> None:
    results: list[Any] = [
        measure(log_probs(dimensions)).named(f"d = {dimensions}")
        for measure in (sb.rank, sb.kld)
        for dimensions in (2, 4)
    ]
    header, rows = sb.table(results).header, sb.table(results).rows
    assert header == ["model", "rank", "row-centred rank", "pairwise KL"]
    assert [row[:2] for row in rows] == [["d = 2", "3"], ["d = 4", "5"]]
    assert [float(row[3]) for row in rows] == pytest.approx([float(each) for each in results[2:]], rel=1e-3)


ADDED = ["effective rank", "effective rank of H", "effective rank of W", "RankMe of H", "αReQ of H"]


@pytest.fixture
def run(runs: dict[str, Path], tmp_path: Path) -> Path:
    """A run with two checkpoints, which are models with different heads."""
    for step, head in ((100, "softmax"), (20, "mos")):
        shutil.copytree(runs[head], tmp_path / "run" / "checkpoints" / f"step-{step:09d}")
    return tmp_path / "run"


def energy_rank(values: NDArray[np.float64]) -> int:
    """The fewest singular values with 99.9 % of Σσ²."""
    return int(np.argmax(np.cumsum(values**2) >= 0.999 * (values**2).sum())) + 1


def test_values_are_those_of_plain_formulas(run: Path) -> None:
    paths = sb.checkpoints(run)
    assert [path.name for path in paths] == ["step-000000020", "step-000000100"]
    mos, softmax = sb.rank(paths, dtype="float64")
    for report, path, log_linear in ((mos, paths[0], False), (softmax, paths[1], True)):
        source, found = sb.open(path, dtype="float64"), report.to_dict()["checkpoint"]
        A = np.concatenate([block.log_probs for block in source.blocks()])
        with torch.no_grad():
            hidden = torch.cat(list(source.hidden(source.ranges())))
            H = (source.head.scores(hidden).linear.contexts if log_linear else hidden).double().numpy()
        W = source.head.weight.detach().double().numpy()
        sigma = np.linalg.svd(H, compute_uv=False)
        p = sigma / sigma.sum()
        assert found["rankme"] == pytest.approx(np.exp(-(p * np.log(p)).sum()), rel=1e-6)
        assert found["effective_rank_hidden"] == energy_rank(sigma)
        assert found["effective_rank_weight"] == energy_rank(np.linalg.svd(W, compute_uv=False))
        last = max(3, np.linalg.matrix_rank(H - H.mean(0)) // 2)
        eigenvalues = np.linalg.eigvalsh(np.cov(H.T))[::-1][:last]
        slope, _ = np.polyfit(np.log(np.arange(1, last + 1)), np.log(eigenvalues), 1)
        assert (found["alpha_req"], found["alpha_req_last"]) == (pytest.approx(-slope, rel=1e-6), last)
        losses = A[np.arange(len(A)), source.targets]
        assert found["perplexity"] == pytest.approx(np.exp(-losses.mean()), rel=1e-9)
        assert found["gradient_kept"] == sb.gradient(path, dtype="float64").kept


def test_the_command_measures_a_folder_and_its_table_and_figure_follow_the_step(
    run: Path, bottleneck: Any, tmp_path: Path
) -> None:
    out, figure = tmp_path / "ranks.json", tmp_path / "course.png"
    done = bottleneck("rank", str(run), "--checkpoints", "--json", str(out), "--plot", str(figure))
    assert done.exit_code == 0, done.output
    assert figure.read_bytes().startswith(b"\x89PNG")
    reports = sb.rank(sb.checkpoints(run)[::-1])
    expected = [report.to_dict()["checkpoint"] for report in reports[::-1]]
    assert [each["checkpoint"] for each in json.loads(out.read_text(encoding="utf-8"))["results"]] == expected
    header, _, *rows = str(reports.table()).split("\n")
    assert all(f" {name} " in header for name in ("row-centred rank", *ADDED, "gradient kept", "perplexity"))
    assert rows[0].startswith("| step-000000100 ")
    frame = reports.to_frame()
    panels = reports._panels("raw", log=True)
    drawn = {}
    for panel in panels:
        panel.draw(ax := Figure().add_subplot())
        drawn |= {line.get_label() if panel is panels[0] else ax.get_ylabel(): line for line in ax.lines}
    assert len(panels) == 4
    assert {*ADDED, "rank", "row-centred rank", "gradient kept", "perplexity"} == drawn.keys()
    assert drawn["perplexity"].get_xdata().tolist() == [20, 100]
    columns = {"perplexity": "checkpoint.perplexity", "RankMe of H": "checkpoint.rankme", "rank": "rank"}
    for label, column in (columns | {"row-centred rank": "rank_centered"}).items():
        assert drawn[label].get_ydata().tolist() == frame[column].tolist()[::-1]
    done = bottleneck("rank", str(run / "checkpoints" / "step-000000020"), "--plot", str(figure))
    assert "--plot draws --checkpoints" in done.output
    with pytest.raises(SourceError, match="holds no checkpoints: train a run with"):
        sb.checkpoints(tmp_path)


def test_a_folder_of_a_trainer(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": 40, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 32}
    for step in (100, 1000, 20):
        folder = tmp_path / f"checkpoint-{step}"
        GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=None, eos_token_id=None)).save_pretrained(folder)
        (folder / "optimizer.pt").touch()
    (tmp_path / "runs-2026").mkdir()
    reports = sb.rank(sb.checkpoints(tmp_path), data=torch.randint(40, (4, 32)))
    assert [report.name for report in reports] == ["checkpoint-20", "checkpoint-100", "checkpoint-1000"]
    assert all(np.isfinite(report.to_dict()["checkpoint"]["alpha_req"]) for report in reports)
    (tmp_path / "epoch-20").mkdir()
    assert [path.name for path in sb.checkpoints(tmp_path)][:2] == ["checkpoint-20", "epoch-20"]
