"""``bottleneck presets``: what ``--preset`` takes."""

from __future__ import annotations

import rich_click as click

from .options import emit, example, json_option


@click.command("presets", epilog=example("bottleneck presets"))
@json_option
def command(json_to: str | None) -> None:
    """List the named configurations: parameters, corpus, expected cost."""
    from softmax_bottleneck.training.presets import PRESETS

    rows, values = [], []
    for preset in PRESETS.values():
        values.append(
            {
                "name": preset.name,
                "summary": preset.summary,
                "corpus": preset.config.corpus,
                "cost": preset.cost,
                "expected": preset.expected,
                "config": preset.config.model_dump(mode="json"),
            }
        )
        rows.append(f"{preset.name:<22} {preset.summary}; {preset.cost}")
    emit({"presets": values}, "\n".join(rows), json_to)
