"""``bottleneck bench``: our algorithms beside the usual ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import rich_click as click

from .options import check_outputs, device_option, emit, example, json_option, progress


@click.group("bench", epilog=example("bottleneck bench hugging-face --size tiny --contexts 200"))
def command() -> None:
    """Measure this machine: our algorithms beside the usual ones, each in a process of its own."""


@command.command(epilog=example("bottleneck bench spectrum --shape 2000x500"))
@click.option("--shape", default="20000x5000", show_default=True, metavar="TxM", help="Of the full-rank matrix.")
@click.option("--store", is_flag=True, help="Also rank a matrix of Penn Treebank's size from a store (3.3 GB of disk).")
@device_option
@json_option
def spectrum(shape: str, store: bool, device: str, json_to: Path | None) -> None:
    """Time the spectrum methods against NumPy and torch on one random matrix: minutes and 6 GB at the default shape."""
    found = re.fullmatch(r"(\d+)x(\d+)", shape)
    if not found or min(int(found[1]) // 2, int(found[2])) < 1:
        raise click.BadParameter(f"{shape!r} is no shape; write it as 20000x5000", param_hint="--shape")
    from softmax_bottleneck.bench import bench_spectrum
    from softmax_bottleneck.machine import resolve_device

    check_outputs(json_to)
    rows, columns = int(found[1]), int(found[2])
    values = bench_spectrum(shape=(rows, columns), store=store, device=resolve_device(device), progress=progress())
    lines = [
        *(f"{name:>34}  {case['seconds']:8.2f} s {case['memory_bytes'] / 2**20:8,.0f} MiB"
          for name, case in values["cases"].items()),
        *(f"{name:>34}  {rate:8.1f} GFLOP/s" for name, rate in values["rates"].items()),
        *_judgements(values["asked"]),
    ]  # fmt: skip
    emit(values, "\n".join(lines), json_to)


@command.command(epilog=example("bottleneck bench heads --only mos --shrink 100"))
@click.option("--only", metavar="NAME,…", default="", help="Heads to time.  [default: all]")
@click.option("--shrink", default=1, show_default=True, type=click.IntRange(1, 100), metavar="N",
              help="Divide contexts and vocabulary, for a quick look; the goals are for 1.")  # fmt: skip
@device_option
@json_option
def heads(only: str, shrink: int, device: str, json_to: Path | None) -> None:
    """Time every output layer's training step against its plain formulation: minutes at full size."""
    from softmax_bottleneck.bench import bench_heads
    from softmax_bottleneck.machine import resolve_device

    check_outputs(json_to)
    names = [name.strip() for name in only.split(",") if name.strip()]
    values = bench_heads(only=names, device=resolve_device(device), shrink=shrink, progress=progress())
    lines = [
        f"{'':>26}  seconds      MiB  GFLOP/s  of the products' rate",
        *(f"{name:>26} {case['seconds']:8.3f} {case['memory_bytes'] / 2**20:8,.0f} {case['gflops']:8.1f} "
          f"{100 * case['share']:6.1f} %" for name, case in values["cases"].items()),
        *(f"slowdown over Softmax, {which}: " + ", ".join(f"{ratio:.1f} (K = {K})" for K, ratio in by_K.items())
          for which, by_K in values["slowdown"].items()),
        *_judgements(values["asked"]),
    ]  # fmt: skip
    emit(values, "\n".join(lines), json_to)


@command.command(epilog=example("bottleneck bench training --shrink 50"))
@click.option("--shrink", default=1, show_default=True, type=click.IntRange(1, 100), metavar="N",
              help="Divide layers, vocabulary and batch, for a quick look; the goals are for 1.")  # fmt: skip
@device_option
@json_option
def training(shrink: int, device: str, json_to: Path | None) -> None:
    """Time the training step of the papers' Softmax and MoS models against plain torch: minutes at full size."""
    from softmax_bottleneck.bench import bench_training
    from softmax_bottleneck.machine import resolve_device

    check_outputs(json_to)
    values = bench_training(device=resolve_device(device), shrink=shrink, progress=progress())
    lines = [
        f"{'':>16}  seconds a step  an epoch      MiB",
        *(f"{name:>16} {case['seconds']:15.3f} {case['epoch_seconds']:9.0f} {case['memory_bytes'] / 2**20:8,.0f}"
          for name, case in values["cases"].items()),
        *_judgements(values["asked"]),
    ]  # fmt: skip
    emit(values, "\n".join(lines), json_to)


@command.command(epilog=example("bottleneck bench corpora --text text.txt --steps 10"))
@click.option("--text", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="A large text, a sentence a line.")  # fmt: skip
@click.option("--steps", type=click.IntRange(min=1), default=300, show_default=True, metavar="N")
@json_option
def corpora(text: Path, steps: int, json_to: Path | None) -> None:
    """Train small models on a cut of a text through the loaders of text8 and one-billion, and watch loss and memory."""
    from softmax_bottleneck.bench import bench_corpora

    check_outputs(json_to)
    values = bench_corpora(text, steps=steps, progress=progress())
    lines = []
    for name, case in values["cases"].items():
        tokens = case["tokens"]["train"]
        lines.append(f"{name}: {tokens:,} tokens of {case['vocab']:,} types, {case['seconds']:.0f} s")
        lines += [
            f"{one['step']:>8} steps: loss {one['train_loss']:.3f}, valid {one['valid_loss']:.3f}, "
            f"{one['memory_bytes'] / 2**20:,.0f} MiB"
            for one in case["rounds"]
        ]
    emit(values, "\n".join(lines), json_to)


@command.command(epilog=example("bottleneck bench gpu --only device --device cpu --out gpu"))
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Where all results go.")
@click.option("--hours", type=click.FloatRange(min=0, min_open=True), default=0.4, show_default=True,
              help="Of work in all, over all calls.")  # fmt: skip
@click.option("--archive", type=click.Path(exists=True, path_type=Path), metavar="FILE",
              help="Penn Treebank, where it is not in the cache yet.")  # fmt: skip
@click.option("--family", default="ptb-fast", show_default=True, help="Of the presets that are trained.")
@click.option("--only", metavar="STAGE,…", default="device,heads,spectrum,training,models", show_default=True)
@click.option("--shrink", default=1, show_default=True, type=click.IntRange(1, 100), metavar="N",
              help="Divide what the benches time and the models' layers: a dry run.")  # fmt: skip
@click.option("--contexts", type=click.IntRange(min=1), metavar="N", help="Rows of the ranks.  [default: all]")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change one setting of every training.")
@device_option
def gpu(
    out: Path,
    hours: float,
    archive: Path | None,
    family: str,
    only: str,
    shrink: int,
    contexts: int | None,
    settings: tuple[str, ...],
    device: str,
) -> None:
    """Check a GPU, run all benches there, train the presets for the hours left and rank them.

    The same command goes on where it was stopped.
    """
    from softmax_bottleneck.bench.gpu import Lent, bench_gpu
    from softmax_bottleneck.machine import resolve_device

    stages = tuple(name.strip() for name in only.split(",") if name.strip())
    lent = Lent(
        hours=hours,
        device=resolve_device(device),
        family=family,
        only=stages,
        shrink=shrink,
        contexts=contexts,
        settings=settings,
    )
    click.echo(bench_gpu(out, lent, archive=archive, progress=progress()) or f"{out}: done")


@command.command("hugging-face", epilog=example("bottleneck bench hugging-face --size tiny --contexts 200"))
@click.option("--size", type=click.Choice(["gpt2", "tiny"]), default="gpt2", show_default=True, help="Of the model.")
@click.option("--contexts", type=click.IntRange(min=1), default=4096, show_default=True, metavar="N")
@json_option
def hugging_face(size: str, contexts: int, json_to: Path | None) -> None:
    """Time the rank of a random model's outputs against the model's own forward pass: minutes for GPT-2's size."""
    from softmax_bottleneck.bench import bench_hugging_face

    check_outputs(json_to)
    values = bench_hugging_face(size=size, contexts=contexts, progress=progress())
    lines = [
        *(f"{name:>34}  {case['results'][-1]['seconds']:8.2f} s "
          f"{case['memory_bytes'] / 2**20:8,.0f} MiB above the model"
          for name, case in values["cases"].items()),
        *(f"{name:>34}  {ratio:8.3f}" for name, ratio in values["ratios"].items()),
    ]  # fmt: skip
    emit(values, "\n".join(lines), json_to)


def _judgements(goals: Iterable[Mapping[str, Any]]) -> list[str]:
    return [
        f"{'met' if goal['met'] else 'NOT MET':>8}  {goal['what']}: {goal['measured']:.3g} (asked {goal['asked']})"
        for goal in goals
    ]
