"""Output of figures and tables: as files, as a gallery page, and as tables inside a Markdown file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from softmax_bottleneck.core.files import is_drawn, make_folder, write_bytes
from softmax_bottleneck.corpora.corpus import RawText
from softmax_bottleneck.errors import ConfigurationError, OutputError
from softmax_bottleneck.results.plotting import find_style, markdown
from softmax_bottleneck.results.tables import csv_text, escape_markdown

from . import REGISTRY, find
from .base import Entry, TableEntry
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
        OutputError: for a file of the user where one is to be written, before any is.
    """
    entries = {name: find(name) for name in names}
    rc = find_style(style)
    if unknown := sorted(set(formats) - set(FORMATS)):
        raise ConfigurationError(f"unknown format {unknown[0]!r}; known formats are {', '.join(FORMATS)}")
    computed = {name: entry.compute(results) for name, entry in entries.items()}
    found = {name: data for name, data in computed.items() if len(data)}
    for name, data in found.items():
        _keep_others(entries[name], data, out / name, formats)
    make_folder(out)
    files: list[Path] = []
    for name, data in found.items():
        files += entries[name].save(data, out / name, formats=formats, style=rc)
    missing = [(name, text) for name, data in computed.items() for text in entries[name].missing(data)]
    return Drawn(tuple(files), tuple(missing))


def _keep_others(entry: Entry, data: pd.DataFrame, stem: Path, formats: Sequence[str]) -> None:
    """Refuse to replace a picture that does not name its maker, or a text that begins with another word."""
    texts = {**entry.texts(data, stem.name), "csv": csv_text(data)}
    for path in (stem.with_name(f"{stem.name}.{suffix}") for suffix in formats):
        if not path.is_file() or not path.stat().st_size:
            continue
        text = texts.get(path.suffix[1:])
        if not (is_drawn(path) if text is None else _first_word(path.read_bytes()) == _first_word(text.encode())):
            raise OutputError(
                f"cannot write {path}: another file is there, not a file of the entry {stem.name}; name another folder"
            )


def _first_word(text: bytes) -> bytes:
    return text[:1000].replace(b"|", b" ").partition(b"\n")[0].strip().partition(b" ")[0]


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
    folder, style = page.with_suffix(""), find_style("screen")
    computed = {name: entry.compute(results) for name, entry in REGISTRY.items()}
    for name, data in computed.items() if not page.exists() else ():
        if len(data) and not isinstance(REGISTRY[name], TableEntry):
            _keep_others(REGISTRY[name], data, folder / name, ("png",))
    make_folder(folder)
    parts: list[str] = []
    files: list[Path] = []
    gaps: list[tuple[str, str]] = []
    shown: dict[str, list[str]] = {"Figures": [], "Tables": []}
    for name, entry in REGISTRY.items():
        data = computed[name]
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
