"""``bottleneck figures``: what it writes, prints and refuses."""

from __future__ import annotations

from pathlib import Path

from .conftest import Bottleneck


def test_names_formats_and_what_is_missing(world: Path, bottleneck: Bottleneck) -> None:
    done = bottleneck(
        "figures",
        "spectra",
        "mos-table-7",
        "--results",
        "demo/reports",
        "--out",
        "new",
        "--format",
        "svg",
        "--format",
        "md",
    )
    assert done.exit_code == 0, done.stderr
    assert done.stdout.split() == ["new/spectra.svg", "new/mos-table-7.md"]
    assert sorted(path.name for path in Path("new").iterdir()) == ["mos-table-7.md", "spectra.svg"]
    assert "missing in mos-table-7: nothing measured of ptb/mos-k3, ptb/mos-k5" in done.stderr


def test_an_unknown_figure_lists_the_known_ones(world: Path, bottleneck: Bottleneck) -> None:
    for out in (("--out", "new"), ()):
        done = bottleneck("figures", "mos-figure-7", "--results", "demo/reports", *out)
        assert done.exit_code == 1
        assert "Error: unknown figure 'mos-figure-7'; known figures are mos-table-1, " in done.stderr
    assert not Path("new").exists()


def test_a_folder_without_results(world: Path, bottleneck: Bottleneck) -> None:
    Path("empty").mkdir()
    for folder, error in (
        ("nowhere", "there is no folder nowhere"),
        ("empty", "empty holds no results; 'bottleneck demo'"),
    ):
        done = bottleneck("figures", "--all", "--results", folder, "--out", "new")
        assert done.exit_code == 1
        assert error in done.stderr


def test_json_that_is_no_result_is_named(world: Path, bottleneck: Bottleneck) -> None:
    Path("demo/reports/notes.json").write_text("{}", encoding="utf-8")
    done = bottleneck("figures", "demo", "--results", "demo/reports", "--out", "new", "--format", "md")
    assert done.exit_code == 0
    assert "skipped demo/reports/notes.json: no figure or table is made of it" in done.stderr


def test_tables_of_a_readme_and_a_gallery(world: Path, bottleneck: Bottleneck) -> None:
    Path("R.md").write_text("<!-- table mos-table-6 -->\n<!-- end of table -->\n", encoding="utf-8")
    done = bottleneck("figures", "--results", "demo/reports", "--readme", "R.md", "--gallery", "page.md")
    assert done.exit_code == 0, done.stderr
    assert "9,981" in Path("R.md").read_text(encoding="utf-8")
    assert "![spectra](page/spectra.png)" in Path("page.md").read_text(encoding="utf-8")
    assert Path("page/spectra.png").exists()


def test_usage(world: Path, bottleneck: Bottleneck) -> None:
    for arguments in (["--all"], ["--out", "x"], [], ["spectra"]):
        assert bottleneck("figures", "--results", "demo/reports", *arguments).exit_code == 2
