"""``bottleneck synthetic``: what it prints, keeps, refuses and lists."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from softmax_bottleneck.cli import main
from softmax_bottleneck.synthetic import PRESETS

SMALL = "--vocab 12 --dim 2,3 --contexts 20 --models softmax,lms --seeds 2 --cycles 1 --rounds 1"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _run(line: str, *more: str) -> Result:
    return CliRunner().invoke(main, ["synthetic", "--processes", "1", *line.split(), *more], prog_name="bottleneck")


def test_table_figures_cells_and_json(place: Path) -> None:
    """The keys of the JSON are in the golden records."""
    done = _run(f"--preset paper-fig8 {SMALL} --json result.json")
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert " ".join(lines[0].split()) == "cell mode match % KL best KL for W"
    assert " ".join(lines[7].split()) == "cell duality gap converged seconds"
    rows = [f"{model}, α 1, M 12, D {dim}" for dim in (2, 3) for model in ("softmax", "lms")]
    for part in (lines[2:6], lines[9:13]):
        assert [re.split("  +", line)[0] for line in part] == rows
    assert all(0 <= float(line.split()[-3]) <= 1e-7 for line in lines[9:13:2])
    assert lines[13:] == [
        f"synthetic/{name}-alpha-1.{suffix}"
        for name in ("mode-matching", "kl")
        for suffix in ("png", "pdf", "svg", "csv")
    ]
    assert all(Path(line).stat().st_size > 100 for line in lines[13:])
    values = json.loads((place / "result.json").read_text(encoding="utf-8"))
    assert (values["alpha"], values["contexts"], len(values["cells"])) == (1.0, 20, 8)
    again = _run(f"--preset paper-fig8 {SMALL} --json -")
    assert json.loads(again.stdout) == values  # from the files, seconds included
    assert "8 of 8 cells already have results in synthetic/cells" in again.stderr
    listed = _run(f"--preset paper-fig8 {SMALL} --dry-run").stdout.splitlines()
    assert listed[-1] == "8 cells, 0 to do"
    assert all(line.startswith("done") for line in listed[:-1])
    Path(listed[0].split()[-1]).unlink()
    assert _run(f"--preset paper-fig8 {SMALL} --dry-run").stdout.splitlines()[-1] == "8 cells, 1 to do"


def test_presets_are_the_papers_grids(place: Path) -> None:
    for name, preset in PRESETS.items():
        cells = json.loads(_run(f"--preset {name} --dry-run --json -").stdout)["cells"]
        assert len(cells) == 3 * 3 * 6 * 3
        assert all(f"-alpha{preset['alphas'][0]:g}-" in cell["file"] and "-T100000-" in cell["file"] for cell in cells)
        assert not any(cell["done"] for cell in cells)
    # Lists are given with commas or one by one, and all concentrations are fitted.
    sizes = "--vocab 5 --vocab 7,9 --dim 2 --dim 3 --models mos --models lms --seeds 1 --dry-run --json -"
    one, two = (json.loads(_run(f"{sizes} {alphas}").stdout) for alphas in ("--alpha 0.1,1,", "--alpha 0.1 --alpha 1"))
    assert one == two
    assert len(one["cells"]) == 2 * 3 * 2 * 2
