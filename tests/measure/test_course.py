"""What the checkpoints of a training show, against NumPy's formulas on the same arrays."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from matplotlib.figure import Figure
from numpy.typing import NDArray

import softmax_bottleneck as sb
from softmax_bottleneck.cli import main
from softmax_bottleneck.errors import SourceError

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
            H = (source.head.context(hidden) if log_linear else hidden).double().numpy()
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


def test_the_table_and_the_figure_follow_the_step(run: Path) -> None:
    reports = sb.rank(sb.checkpoints(run)[::-1])
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
    assert drawn["perplexity"].get_ydata().tolist() == frame["perplexity"].tolist()[::-1]
    for label, column in (("RankMe of H", "rankme"), ("rank", "rank"), ("row-centred rank", "rank_centered")):
        assert drawn[label].get_ydata().tolist() == frame[column].tolist()[::-1]
    assert reports.plot(Figure().add_subplot()).get_xlabel() == "step"


def test_the_command_measures_a_folder(run: Path, tmp_path: Path) -> None:
    out, figure = tmp_path / "ranks.json", tmp_path / "course.png"
    done = CliRunner().invoke(main, ["rank", str(run), "--checkpoints", "--json", str(out), "--plot", str(figure)])
    assert done.exit_code == 0, done.output
    results = json.loads(out.read_text(encoding="utf-8"))["results"]
    expected = [report.to_dict()["checkpoint"] for report in sb.rank(sb.checkpoints(run))]
    assert [result["checkpoint"] for result in results] == expected
    assert figure.read_bytes().startswith(b"\x89PNG")
    done = CliRunner().invoke(main, ["rank", str(run / "checkpoints" / "step-000000020"), "--plot", str(figure)])
    assert "--plot draws --checkpoints" in done.output
    with pytest.raises(SourceError, match="holds no checkpoints: train a run with --set"):
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
    assert all(np.isfinite(report.summary()["alpha_req"]) for report in reports)
