"""``bottleneck presets``: the configurations that ``--preset`` names."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from .options import emit, example, json_option


@click.command("presets", epilog=example("bottleneck presets"))
@json_option
def command(json_to: Path | None) -> None:
    """List the named configurations with their parameters, expected cost, expected result and its source."""
    from softmax_bottleneck.corpora import catalogue
    from softmax_bottleneck.training.presets import PRESETS

    vocab_size = {info.name: info.vocabulary_size for info in catalogue()}
    rows, values = [], []
    for preset in PRESETS.values():
        parameters = preset.parameters(vocab_size.get(preset.config.corpus))
        values.append(
            {
                "name": preset.name,
                "summary": preset.summary,
                "command": preset.command,
                "parameters": parameters,
                "corpus": preset.config.corpus,
                "cost": preset.cost,
                "expected": preset.expected,
                "config": preset.config.model_dump(mode="json"),
            }
        )
        size = "size depends on the corpus" if parameters is None else f"{parameters / 1e6:.2f}M parameters"
        rows.append(f"{preset.name:<24} {preset.summary}; {size}; {preset.cost}\n{'':<24} expected: {preset.expected}")
    rows.append("bottleneck train --preset NAME --out RUN trains one")
    emit({"presets": values}, "\n".join(rows), json_to)
