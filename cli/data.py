"""``bottleneck data``: corpora."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from .options import emit, example, json_option, progress


@click.group("data", epilog=example("bottleneck data list"))
def command() -> None:
    """List, fetch or locate the corpora that --data and presets name."""


@command.command("list", epilog=example("bottleneck data list"))
@json_option
def list_corpora(json_to: Path | None) -> None:
    """List the known corpora and say which are on this machine."""
    from softmax_bottleneck import corpora

    infos = corpora.catalogue()
    rows = []
    for info in infos:
        size = (
            " / ".join(f"{count:,}" for count in info.tokens.values())
            if info.tokens
            else "depends on the Python version"
            if info.path is None
            else "known once it is fetched"
        )
        place = str(info.path) if info.path else "built in"
        rows.append(f"{info.name:<12} {place if info.available else 'not fetched yet'}")
        rows.append(f"{'':<12} {info.description}")
        rows.append(f"{'':<12} tokens (train / valid / test): {size}")
    values = [
        {
            "name": info.name,
            "available": info.available,
            "path": str(info.path) if info.path else None,
            "description": info.description,
            "tokens": dict(info.tokens) if info.tokens else None,
            "vocab": info.vocabulary_size,
        }
        for info in infos
    ]
    emit({"corpora": values}, "\n".join(rows), json_to)


@command.command(epilog=example("bottleneck data get ptb --from ptb.zip"))
@click.argument("name")
@click.option(
    "--from",
    "sources",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Import from a folder, archive or text file instead of downloading; may be given several times.",
)
@click.option("--url", "urls", multiple=True, help="Download from this address instead of the default one.")
def get(name: str, sources: tuple[Path, ...], urls: tuple[str, ...]) -> None:
    """Download or import a corpus into the cache; its files are checked against known sizes and checksums."""
    from softmax_bottleneck import corpora

    report = progress()

    def arrived(file: str, done: int, total: int) -> None:
        if done == total:
            report.line(f"{file}: {total:,} bytes")

    click.echo(corpora.get(name, sources=sources, urls=urls, progress=arrived))


@command.command(epilog=example("bottleneck data path ptb"))
@click.argument("name")
def path(name: str) -> None:
    """Print the folder that holds a corpus."""
    from softmax_bottleneck import corpora

    click.echo(corpora.path(name))
