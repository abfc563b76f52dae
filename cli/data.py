"""``bottleneck data``: corpora and pretrained models."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from .options import CORPORA, PRETRAINED, completing, example, json_option, progress
from .outputs import echo, emit
from .paths import Input


def _known(context: click.Context, parameter: click.Parameter, name: str) -> str:
    """Refuse a name of neither a corpus nor a model."""
    from softmax_bottleneck import corpora
    from softmax_bottleneck.errors import CorpusError, meant
    from softmax_bottleneck.hugging_face.pretrained import PRETRAINED

    names = [*(info.name for info in corpora.catalogue()), *PRETRAINED]
    if name not in names:
        raise CorpusError(
            f"{name!r} is neither a corpus nor a model: choose one of {', '.join(names)}, or use a folder of your own "
            f"by its path{meant(name, names)}"
        )
    return name


name_argument = click.argument("name", callback=_known, shell_complete=completing(CORPORA, PRETRAINED))


@click.group("data", epilog=example("bottleneck data list"))
def command() -> None:
    """List, fetch, locate or remove the corpora that --data and presets name, and pretrained models."""


@command.command("list", epilog=example("bottleneck data list"))
@json_option
def list_corpora(json_to: Path | None) -> None:
    """List the known corpora and pretrained models, and say which are on this machine."""
    from softmax_bottleneck import corpora
    from softmax_bottleneck.hugging_face.pretrained import PRETRAINED

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
        here = f"{info.bytes / 2**20:,.1f} MiB in {info.path}" if info.bytes is not None else "built in"
        rows.append(f"{info.name:<12} {here if info.available else 'not fetched yet'}")
        rows.append(f"{'':<12} {info.description}")
        rows.append(f"{'':<12} tokens (train / valid / test): {size}")
    values = [
        {
            "name": info.name,
            "available": info.available,
            "path": str(info.path) if info.path else None,
            "bytes": info.bytes,
            "description": info.description,
            "tokens": dict(info.tokens) if info.tokens else None,
            "vocab": info.vocabulary_size,
        }
        for info in infos
    ]
    models = [
        {"name": each.name, "available": each.place.is_file(), "description": each.description}
        for each in PRETRAINED.values()
    ]
    for model in models:
        rows += [f"{model['name']:<12} {'here' if model['available'] else 'not fetched yet'}"]
        rows += [f"{'':<12} a pretrained model: {model['description']}"]
    emit({"kind": "corpora", "corpora": values, "models": models}, "\n".join(rows), json_to)


@command.command(epilog=example("bottleneck data get ptb --from ptb.zip"))
@name_argument
@click.option(
    "--from",
    "sources",
    multiple=True,
    type=Input(Path),
    help="Import from a folder, archive or text file instead of downloading; may be given several times.",
)
@click.option("--url", "urls", multiple=True, help="Download from this address instead of the default one.")
def get(name: str, sources: tuple[Path, ...], urls: tuple[str, ...]) -> None:
    """Download or import a corpus or a pretrained model into the cache.

    Files are checked against known sizes and checksums.
    """
    from softmax_bottleneck import corpora
    from softmax_bottleneck.hugging_face.pretrained import PRETRAINED

    if model := PRETRAINED.get(name):
        if urls or len(sources) > 1:
            raise click.UsageError(f"{name} is a model, which is read from one --from PATH, and from no --url")
        echo(model.get(next(iter(sources), None)))
        return
    report = progress()
    if (sources or urls) and any(info.name == name and info.available for info in corpora.catalogue()):
        report.line(f"{name} is here already; 'bottleneck data rm {name}' removes it, to read it again")

    echo(corpora.get(name, sources=sources, urls=urls, progress=report))


@command.command(epilog=example("bottleneck data path ptb"))
@name_argument
def path(name: str) -> None:
    """Print the folder that holds a corpus, or the file that holds a model."""
    from softmax_bottleneck import corpora
    from softmax_bottleneck.hugging_face.pretrained import PRETRAINED

    echo(PRETRAINED[name].path() if name in PRETRAINED else corpora.path(name))


@command.command("rm", epilog=example("bottleneck data rm ptb"))
@name_argument
def remove(name: str) -> None:
    """Remove a corpus or a model from the cache; 'bottleneck data get' brings it back."""
    from softmax_bottleneck import corpora
    from softmax_bottleneck.hugging_face.pretrained import PRETRAINED

    freed = PRETRAINED[name].remove() if name in PRETRAINED else corpora.remove(name)
    echo(f"removed {name}: {freed / 2**20:,.1f} MiB freed")
