"""``bottleneck identify``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rich_click as click

from softmax_bottleneck.core.options import LAYER, OPENING

from .completion import files
from .measurements import format_option, show_all
from .options import example, json_option, options_of, progress
from .outputs import check_outputs

ROWS = {name: OPENING[name] for name in ("data", "split", "contexts", "kind", "head", "norm", "scale", "softcap")}


@click.command("identify", epilog=example("bottleneck identify demo/runs/softmax demo/runs/softmax demo/runs/moc"))
@click.argument("rows", shell_complete=files)
@click.argument("models", nargs=-1, required=True, metavar="MODEL…", shell_complete=files)
@options_of(ROWS)
@options_of(LAYER)
@json_option
@format_option
def command(
    rows: str,
    models: tuple[str, ...],
    json_to: Path | None,
    as_format: str | None,
    **options: Any,
) -> None:
    """Say which MODEL rows of log-probabilities come from, by exact algebra; nothing is trained.

    ROWS is a matrix file, a store or another SOURCE; MODEL is a run folder, a Hugging Face model, a GGUF file, or W
    as FILE or FILE:NAME. Row-centred rows of a model lie in the span of its W (Finlayson et al. 2024), and its states
    on the ellipse of its final norm (Finlayson et al. 2025).
    """
    from softmax_bottleneck.measure import identify

    check_outputs({"json_to": json_to}, sources=[rows, *models], data=options["data"])
    opening: Any = {name: options.pop(name) for name in ROWS}
    named: Any = list(models)
    layer: Any = options
    show_all(identify(rows, named, layer=layer, progress=progress(), **opening), as_format, json_to)
