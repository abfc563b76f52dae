"""``bottleneck figures``: what it writes, prints and refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from softmax_bottleneck.figures import REGISTRY, output

from .conftest import Bottleneck


def test_names_formats_and_what_is_missing(world: Path, bottleneck: Bottleneck) -> None:
    Path("demo/reports/notes.json").write_text("{}", encoding="utf-8")
    line = "figures spectra mos-table-7 --results demo/reports --out new --format svg --format md"
    done = bottleneck(*line.split())
    assert done.exit_code == 0, done.stderr
    assert done.stdout.split() == ["new/spectra.svg", "new/mos-table-7.md"]
    assert sorted(path.name for path in Path("new").iterdir()) == ["mos-table-7.md", "spectra.svg"]
    assert "missing in mos-table-7: nothing measured of ptb/mos-k3, ptb/mos-k5" in done.stderr
    assert "skipped demo/reports/notes.json: no figure or table is made of it" in done.stderr


def test_everything_ends_with_three_lines(world: Path, bottleneck: Bottleneck) -> None:
    done = bottleneck("figures", "--all", "--out", "new", "--format", "md")
    assert done.exit_code == 0, done.stderr
    files = sorted(path.stem for path in Path("new").iterdir())
    drawn, absent, place = done.stdout.splitlines()
    assert drawn == f"drawn: {len(files)} figures and tables, as {len(files)} files"
    assert absent.startswith(f"not drawn: {len(REGISTRY) - len(files)}, ")
    assert place == "in new"
    missing = done.stderr.splitlines()
    assert len([line for line in missing if line.startswith("missing of ptb,")]) == 1
    assert max(map(len, [absent, *missing])) <= 80


def test_tables_of_a_readme_and_a_gallery(world: Path, bottleneck: Bottleneck, monkeypatch: pytest.MonkeyPatch) -> None:
    old = "a\n<!-- table mos-table-6 -->\nold\n<!-- end of table -->\nb\n"
    Path("R.md").write_text(old, encoding="utf-8")
    monkeypatch.setattr(output, "REGISTRY", {name: output.REGISTRY[name] for name in ("spectra", "mos-table-6")})
    drawn = "figures", "spectra", "mos-table-1", "--results", "demo/reports", "--out", "drawn"
    for _ in range(2):  # the second time nothing changes
        assert bottleneck(*drawn).exit_code == 0
        done = bottleneck("figures", "--results", "demo/reports", "--readme", "R.md", "--gallery", "page.md")
        assert done.exit_code == 0, done.stderr
        start, table, end = re.split(r"<!-- .* -->\n", Path("R.md").read_text(encoding="utf-8"))
        assert (start, "9,981" in table, "old" in table, end) == ("a\n", True, False, "b\n")
    filled = Path("R.md").read_text(encoding="utf-8").splitlines()
    Path("R.md").write_text("a\n<!-- table mos-table-6 -->\nkept\n" + old, encoding="utf-8")  # none is there yet
    assert bottleneck("figures", "--results", "demo/reports", "--readme", "R.md").exit_code == 0
    assert Path("R.md").read_text(encoding="utf-8").splitlines() == [*filled[:-1], "kept", *filled]
    assert "![spectra](page/spectra.png)" in Path("page.md").read_text(encoding="utf-8")
    assert Path("page/spectra.png").exists()
    refused = bottleneck("figures", "--results", "demo/reports", "--gallery", "R.md").stderr
    assert "cannot write R.md: another file is there, not a gallery" in " ".join(refused.split())
