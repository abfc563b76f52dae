"""``bottleneck head``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rich_click as click

from .measurements import show
from .options import example, json_option
from .sources import with_layer


@click.command("head", epilog=example("bottleneck head demo/runs/softmax"))
@with_layer
@json_option
def command(source: str, json_to: Path | None, **options: Any) -> None:
    """Describe an output layer from its weights alone: spectrum, bound, mean row, and rows that stand out.

    SOURCE is a run folder, a Hugging Face model, a GGUF file, or W as FILE or FILE:NAME. A text is not needed. Rows
    that were never trained are found by their cosine to rows known to be unused (Land and Bartolo 2024).
    """
    from softmax_bottleneck.measure import head

    show(head(source, **options), json_to)
