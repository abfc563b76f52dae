"""``bottleneck eval``."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from .options import check_outputs, device_option, emit, example, json_option, progress


@click.command("eval", epilog=example("bottleneck eval demo/runs/mos --split valid"))
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--data", metavar="CORPUS", help="Another corpus than the run's own.")
@click.option("--split", type=click.Choice(["train", "valid", "test"]), default="test", show_default=True)
@device_option
@json_option
def command(run: Path, data: str | None, split: str, device: str, json_to: str | None) -> None:
    """Compute the exact perplexity of a run: every token but the first, in one sequence."""
    from softmax_bottleneck.checkpoint import corpus_of, load
    from softmax_bottleneck.training import evaluate
    from softmax_bottleneck.training.fit import resolve_device

    check_outputs(json_to)
    loaded = load(run)
    corpus = corpus_of(loaded, data)
    model = loaded.model.to(resolve_device(device))
    scores = evaluate(model, corpus.split(split), progress=progress())
    values = {
        "source": {"path": str(run), "kind": "run", "corpus": corpus.name, "split": split},
        "tokens": scores.tokens,
        "loss": scores.loss,
        "perplexity": scores.perplexity,
    }
    text = f"{split} perplexity {scores.perplexity:.3f} (loss {scores.loss:.5f} nats, {scores.tokens:,} tokens)"
    emit(values, text, json_to)
