"""Files: everything at once, the README's tables, the gallery, and names that are markup."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from matplotlib.figure import Figure as Canvas

from softmax_bottleneck.errors import ConfigurationError, CorpusError
from softmax_bottleneck.figures import REGISTRY, Figure, SavedResults, find, output, read

from .conftest import report, write

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "figures" / "results"


def test_everything_is_written_and_what_is_missing_is_listed(results: SavedResults, tmp_path: Path) -> None:
    drawn = output.draw(list(REGISTRY), results, tmp_path / "new" / "out", formats=("md", "tex", "csv"))
    names = {path.name for path in drawn.files}
    assert {path.name for path in (tmp_path / "new" / "out").iterdir()} == names
    empty = {"ptb-afternoon", "ptb-fast", "ptb-small", "ptb-small-nt-asgd", "wt2-fast", "bench-heads",
             "training-course-table", "smollm2"}  # fmt: skip
    for name, entry in REGISTRY.items():
        kinds = {"tex", "csv"} if isinstance(entry, Figure) else {"md", "tex", "csv"}
        assert {suffix for suffix in ("md", "csv", "tex") if f"{name}.{suffix}" in names} == (
            set() if name in empty else kinds
        )
    assert empty <= {name for name, _ in drawn.missing}


def test_a_models_name_is_no_markup_anywhere(folder: Path, tmp_path: Path) -> None:
    """In Markdown, in LaTeX and in pictures, where $ would begin mathematics."""
    evil = r"<script>alert(1)</script> | $\input{x}$ & 100% _*"
    write(folder / "ptb-small" / "evil.json", report(evil))
    write(folder / "demo" / "evil.json", {**report(evil), "report": report("mos")["report"]})
    for suffix in ("json", "npz"):
        shutil.copy(folder / "demo" / f"mos.{suffix}", folder / "demo" / f"_$x^{{_$ <b>.{suffix}")
    results = read(folder)
    output.draw(["mos-table-6", "demo", "training-course", "spectra"], results, tmp_path, formats=("md", "tex", "svg"))
    text = "".join(path.read_text(encoding="utf-8") for path in tmp_path.glob("*.*"))
    assert "<script" not in text
    assert "&lt;script&gt;" in (tmp_path / "demo.md").read_text(encoding="utf-8")
    for path in tmp_path.glob("*.tex"):
        rows = [line for line in path.read_text(encoding="utf-8").splitlines() if "alert" in line]
        assert not any(re.search(r"(?<!\\)[$%_]|\\input", row) for row in rows)


def test_what_cannot_be_drawn_or_filled(results: SavedResults, tmp_path: Path) -> None:
    file = tmp_path / "r.md"
    for options, error in (
        ({"formats": ["jpg"]}, "unknown format 'jpg'; known formats are png, pdf, svg, md, tex, csv"),
        ({"style": "acl"}, "unknown style 'acl'; known styles are screen, iclr, icml, icml-wide"),
    ):
        with pytest.raises(ConfigurationError, match=error):
            output.draw(["lms-figure-1", "spectra"], results, tmp_path / "out", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()
    file.write_text("nothing")
    with pytest.raises(ConfigurationError, match=r"has no '<!-- table NAME -->' to fill; NAME is one of mos-table-1"):
        output.update_tables(file, results)
    os.mkfifo(tmp_path / "pipe.md")
    with pytest.raises(CorpusError, match=r"pipe\.md: it is a pipe, not a file; give a Markdown file"):
        output.update_tables(tmp_path / "pipe.md", results)
    file.write_text("<!-- table spectra -->\n<!-- end of table -->")
    with pytest.raises(ConfigurationError, match="spectra is a figure, not a table; the tables are mos-table-1"):
        output.update_tables(file, results)


TABLES = {
    "README.md": {"ptb-small"},
    "docs/results.md": {"demo", "ptb-small", "ptb-small-mos", "ptb-small-nt-asgd", "ptb-fast", "ptb-afternoon"},
    "docs/benchmarks.md": {"bench-heads", "bench-training"},
    "docs/presets.md": {"presets", "mos-table-4"},
    "docs/transformers.md": {"transformer-study", "frozen-body"},
    "docs/pretrained.md": {"smollm2"},
}
"""Pages with tables of the registry, and which."""


@pytest.fixture(scope="module")
def committed() -> SavedResults:
    return read(COMMITTED)


@pytest.mark.parametrize("page", TABLES)
def test_the_tables_of_a_page_are_current(page: str, committed: SavedResults) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert set(re.findall(r"^<!-- table (\S+) -->", text, re.MULTILINE)) == TABLES[page]
    assert output.with_tables(text, committed) == text


def test_the_text_about_the_frozen_body_is_current(committed: SavedResults) -> None:
    runs = find("frozen-body-figure").compute(committed).set_index(["head", "regime", "seed"])
    data = runs["difference"].sort_index()
    gain = -data.groupby(["head", "regime"]).mean()
    text = " ".join((ROOT / "docs" / "transformers.md").read_text(encoding="utf-8").split())
    assert f"lowers the loss by {gain['mos-4', 'parameters']:.3f} nats" in text
    assert f"the linear map by {gain['softmax-linear', 'parameters']:.3f}, at rank 577" in text
    assert f"An MLP gains {gain['softmax-mlp', 'parameters']:.3f}." in text
    assert f"is {-gain['sigsoftmax', 'parameters']:.3f} nats worse" in text
    lost = {head: data[head, "time"] - data["softmax-linear", "time"] for head in ("mos-4", "mos-2")}
    assert f"MoS with K = 4 by {lost['mos-4'].min():.3f} to {lost['mos-4'].max():.3f} nats" in text
    assert f"K = 2 by {lost['mos-2'].min():.3f} to {lost['mos-2'].max():.3f}, for every seed" in text


def test_what_numpy_would_count_is_current(committed: SavedResults) -> None:
    (report,) = (saved.content for saved in committed.of("rank", "smollm2/valid"))
    assert f"NumPy's tolerance would count {report['rank_by_rule']['numpy']}." in (ROOT / "README.md").read_text()


def test_committed_results_name_no_folder_of_the_machine() -> None:
    found = [path.name for path in COMMITTED.rglob("*.json") if '": "/' in path.read_text(encoding="utf-8")]
    assert found == []


def test_the_pages_name_every_figure_and_table() -> None:
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in [*TABLES, "docs/reproduce.md"])
    for name in REGISTRY:
        start, end = name.rsplit("-", 1) if "-" in name else (name, "")
        assert f"`{name}`" in text or f"table {name}" in text or (f"`{start}" in text and f"`-{end}`" in text), name


def test_the_gallery_is_current(tmp_path: Path, committed: SavedResults, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text must be equal; pictures must only exist, because the bytes depend on matplotlib's version."""
    monkeypatch.setattr(Figure, "picture", lambda self, data: Canvas())
    drawn = output.write_gallery(tmp_path / "gallery.md", committed)
    page = ROOT / "docs" / "gallery.md"
    assert (tmp_path / "gallery.md").read_text(encoding="utf-8") == page.read_text(encoding="utf-8")
    pictures = {path.name for path in (ROOT / "docs" / "gallery").iterdir()}
    assert pictures == {path.name for path in drawn.files} - {"gallery.md"}
    assert {f"{name}.png" for name, entry in REGISTRY.items() if isinstance(entry, Figure)} == pictures
    for path in (ROOT / "docs" / "gallery").iterdir():
        assert path.stat().st_size < 200_000


def test_every_entry_says_what_it_shows_and_needs(results: SavedResults) -> None:
    for name in REGISTRY:
        entry = find(name)
        assert entry.title.endswith(".")
        assert len(entry.title) > 30
        nothing = SavedResults(results.folder / "none", ())
        missing = entry.missing(entry.compute(nothing))
        assert missing or name in ("lms-figure-1", "parthiban-figure", *(f"mos-table-{n}" for n in (3, 5, 8, 9, 10)))
        assert all(re.search("bottleneck|measure|notebooks/studies", text) for text in missing)
