"""Output of figures and tables: as files, as a gallery page, and as tables inside a Markdown file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from softmax_bottleneck.core.files import make_folder, write_bytes
from softmax_bottleneck.corpora.corpus import RawText
from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.results.plotting import find_style, markdown
from softmax_bottleneck.results.tables import escape_markdown

from . import REGISTRY, find
from .base import TableEntry
from .results import SavedResults

FORMATS = ("png", "pdf", "svg", "md", "tex", "csv")
END = "<!-- end of table -->"
BLOCK = re.compile(rf"(<!-- table (\S+) -->)(?:(?:(?!<!-- table ).)*?{END})?", re.DOTALL)
"""A table of the registry inside a Markdown file, with its comments; where there is none yet, the first of them."""
TITLE = "# Every figure and table"
"""First line of the gallery."""
INTRODUCTION = """\
Made from saved results by `bottleneck figures --gallery docs/gallery.md --results figures/results`. Published and
measured numbers stand in rows or columns of their own; [the end](#not-measured-yet) lists what is not measured yet."""


@dataclass(frozen=True)
class Drawn:
    """The result of `draw`."""

    files: tuple[Path, ...]
    missing: tuple[tuple[str, str], ...]
    """Names of figures and tables, each with a missing result."""


def draw(
    names: Sequence[str],
    results: SavedResults,
    out: Path,
    *,
    formats: Sequence[str] = FORMATS,
    style: str = "screen",
) -> Drawn:
    """Draw figures and write tables to ``out``; cells without a result stay empty and are listed.

    Raises:
        ConfigurationError: for an unknown name, format or style; the text lists the known ones.
    """
    entries = {name: find(name) for name in names}
    rc = find_style(style)
    if unknown := sorted(set(formats) - set(FORMATS)):
        raise ConfigurationError(f"unknown format {unknown[0]!r}; known formats are {', '.join(FORMATS)}")
    make_folder(out)
    files: list[Path] = []
    missing: list[tuple[str, str]] = []
    for name, entry in entries.items():
        data = entry.compute(results)
        missing += [(name, text) for text in entry.missing(data)]
        if len(data):
            files += entry.save(data, out / name, formats=formats, style=rc)
    return Drawn(tuple(files), tuple(missing))


def table_text(name: str, results: SavedResults) -> str:
    """Return one table as Markdown; `ConfigurationError` for the name of another thing."""
    entry = find(name)
    if not isinstance(entry, TableEntry):
        raise ConfigurationError(f"{name} is a figure, not a table; the tables are {', '.join(_tables())}")
    return markdown(*entry.rows(entry.compute(results)))


def _tables() -> list[str]:
    return [name for name, entry in REGISTRY.items() if isinstance(entry, TableEntry)]


def with_tables(text: str, results: SavedResults) -> str:
    """Return a Markdown text with every table after ``<!-- table NAME -->`` replaced."""
    return BLOCK.sub(lambda match: f"{match[1]}\n\n{table_text(match[2], results)}\n\n{END}", text)


def update_tables(file: Path, results: SavedResults) -> None:
    """Replace the tables in a Markdown file; `ConfigurationError` if it holds none."""
    text = RawText.read(file, remedy="give a Markdown file").decoded()
    if not BLOCK.search(text):
        raise ConfigurationError(f"{file} has no '<!-- table NAME -->' to fill; NAME is one of {', '.join(_tables())}")
    write_bytes(file, with_tables(text, results).encode())


def write_gallery(page: Path, results: SavedResults) -> Drawn:
    """Write a Markdown page ``NAME.md`` of all figures and tables, whose pictures go to the folder NAME beside it."""
    folder, style = make_folder(page.with_suffix("")), find_style("screen")
    parts: list[str] = []
    files: list[Path] = []
    gaps: list[tuple[str, str]] = []
    shown: dict[str, list[str]] = {"Figures": [], "Tables": []}
    for name, entry in REGISTRY.items():
        data = entry.compute(results)
        gaps += [(name, text) for text in entry.missing(data)]
        if not len(data):
            continue
        shown["Tables" if isinstance(entry, TableEntry) else "Figures"].append(f"[{name}](#{name})")
        if isinstance(entry, TableEntry):
            content = markdown(*entry.rows(data))
        else:
            files += entry.save(data, folder / name, formats=("png",), style=style)
            content = f"![{name}]({folder.name}/{name}.png)"
        parts += [f"## {name}", content, escape_markdown(entry.caption(data))]
    contents = [f"{kind}: {', '.join(links)}." for kind, links in shown.items()]
    parts = [TITLE, INTRODUCTION, *contents, *parts]
    parts += ["## Not measured yet", "\n".join(f"* {name}: {escape_markdown(text)}" for name, text in gaps)]
    write_bytes(page, ("\n\n".join(parts) + "\n").encode())
    return Drawn((page, *files), tuple(gaps))
