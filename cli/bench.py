"""``bottleneck bench``: this package's algorithms beside NumPy's and torch's."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import rich_click as click

from .completion import completing, head_names
from .options import NAMES, Command, device_option, emit, example, json_option, listed, progress
from .streams import echo


@click.group("bench", epilog=example("bottleneck bench hugging-face --size tiny --contexts 200"))
def command() -> None:
    """Time this package's algorithms beside NumPy's and torch's on this machine, each in its own process."""


SHAPE = "20000x5000"


def shrink_option(sizes: str) -> Callable[[Command], Command]:
    """Return the option ``--shrink``, a divisor of the sizes that are named."""
    return click.option(
        "--shrink", default=1, show_default=True, type=click.IntRange(1, 100), metavar="N",
        help=f"Divide {sizes} by N for a quick look; our goals are for N = 1.",
    )  # fmt: skip


@command.command(epilog=example("bottleneck bench spectrum --shape 2000x500"))
@click.option("--shape", default=SHAPE, show_default=True, metavar="TxM", help="Shape of the matrix.")
@click.option("--store", is_flag=True, help="Also rank a stored matrix of Penn Treebank's size (3.3 GB on disk).")
@device_option
@json_option
def spectrum(shape: str, store: bool, device: str, json_to: Path | None) -> None:
    """Time the spectrum methods beside NumPy and torch on one random matrix.

    The default shape takes minutes and 6 GB of memory.
    """
    match = re.fullmatch(r"(\d+)x(\d+)", shape)
    if not match or min(int(match[1]) // 2, int(match[2])) < 1:
        raise click.BadParameter(f"{shape!r} is not a shape; write it as 20000x5000", param_hint="--shape")
    from softmax_bottleneck.bench import bench_spectrum
    from softmax_bottleneck.core.machine import resolve_device

    rows, columns = int(match[1]), int(match[2])
    values = bench_spectrum(shape=(rows, columns), store=store, device=resolve_device(device), progress=progress())
    rates = [f"{name:>34}  {rate:8.1f} GFLOP/s" for name, rate in values["rates"].items()]
    case = "{name:>34}  {seconds:8.2f} s {mebibytes:8,.0f} MiB"
    _show(values, case, json_to, after=rates, at_size=shape == SHAPE)


@command.command(epilog=example("bottleneck bench heads --only mos --shrink 100"))
@listed("--only", "only", NAMES, metavar="NAME,…", shell_complete=completing(head_names),
        help="Heads to time.  [default: all]")  # fmt: skip
@shrink_option("contexts and vocabulary")
@device_option
@json_option
def heads(only: tuple[str, ...] | None, shrink: int, device: str, json_to: Path | None) -> None:
    """Time the training step of every output layer beside its plain formulation; full size takes minutes."""
    from softmax_bottleneck.bench import bench_heads
    from softmax_bottleneck.core.machine import resolve_device

    values = bench_heads(only=only or (), device=resolve_device(device), shrink=shrink, progress=progress())
    header = f"{'':>26}  seconds      MiB  GFLOP/s  of the products' speed"
    case = "{name:>26} {seconds:8.3f} {mebibytes:8,.0f} {gflops:8.1f} {percent:6.1f} %"
    slowdown = [
        f"slowdown over Softmax, {which}: " + ", ".join(f"{ratio:.1f} (K = {K})" for K, ratio in by_K.items())
        for which, by_K in values["slowdown"].items()
    ]
    _show(values, case, json_to, header=header, after=slowdown, at_size=shrink == 1)


@command.command(epilog=example("bottleneck bench training --shrink 50"))
@shrink_option("layers, vocabulary and batch")
@device_option
@json_option
def training(shrink: int, device: str, json_to: Path | None) -> None:
    """Time the training step of the Softmax and mixture-of-softmaxes (MoS) models of Yang et al. (2018) beside torch.

    Full size takes minutes.
    """
    from softmax_bottleneck.bench import bench_training
    from softmax_bottleneck.core.machine import resolve_device

    values = bench_training(device=resolve_device(device), shrink=shrink, progress=progress())
    header = f"{'':>16}  seconds a step  an epoch      MiB"
    case = "{name:>16} {seconds:15.3f} {epoch_seconds:9.0f} {mebibytes:8,.0f}"
    _show(values, case, json_to, header=header, at_size=shrink == 1)


@command.command(epilog=example("bottleneck bench corpora --text text.txt --steps 10"))
@click.option("--text", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="Large text with one sentence per line.")  # fmt: skip
@click.option("--steps", type=click.IntRange(min=1), default=300, show_default=True, metavar="N",
              help="Training steps of each model.")  # fmt: skip
@json_option
def corpora(text: Path, steps: int, json_to: Path | None) -> None:
    """Train small models on the start of a text with the loaders of text8 and one-billion; report loss and memory."""
    from softmax_bottleneck.bench import bench_corpora

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
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Folder of all results.")
@click.option("--hours", type=click.FloatRange(min=0, min_open=True), default=0.4, show_default=True,
              help="Total hours of work, over all calls.")  # fmt: skip
@click.option("--archive", type=click.Path(exists=True, path_type=Path), metavar="FILE",
              help="Archive of Penn Treebank, if it is not in the cache yet.")  # fmt: skip
@click.option("--family", default="ptb-fast", show_default=True, help="Family of the presets to train.")
@listed("--only", "only", NAMES, metavar="STAGE,…", default=["device,heads,spectrum,training,models"],
        show_default=True, help="Stages to run.")  # fmt: skip
@click.option("--shrink", default=1, show_default=True, type=click.IntRange(1, 100), metavar="N",
              help="Divide the sizes of the benchmarks and of the models' layers by N, for a dry run.")  # fmt: skip
@click.option("--contexts", type=click.IntRange(min=1), metavar="N", help="Contexts to rank.  [default: all]")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change one setting of every preset.")
@device_option
def gpu(out: Path, archive: Path | None, device: str, **options: Any) -> None:
    """Check a GPU, run all benchmarks on it, then train presets in the hours left and measure their ranks.

    The same command continues after an interruption.
    """
    from softmax_bottleneck.bench.gpu import GPUStudy, bench_gpu
    from softmax_bottleneck.core.machine import resolve_device

    study = GPUStudy(device=resolve_device(device), **options)
    echo(bench_gpu(out, study, archive=archive, progress=progress()) or f"the results are in {out}")


@command.command("hugging-face", epilog=example("bottleneck bench hugging-face --size tiny --contexts 200"))
@click.option("--size", type=click.Choice(["gpt2", "tiny"]), default="gpt2", show_default=True, help="Model size.")
@click.option("--contexts", type=click.IntRange(min=1), default=4096, show_default=True, metavar="N",
              help="Number of contexts.")  # fmt: skip
@json_option
def hugging_face(size: str, contexts: int, json_to: Path | None) -> None:
    """Time the rank measurement of a random model beside the model's forward pass; the size of GPT-2 takes minutes."""
    from softmax_bottleneck.bench import bench_hugging_face

    values = bench_hugging_face(size=size, contexts=contexts, progress=progress())
    ratios = [f"{name:>34}  {ratio:8.3f}" for name, ratio in values["ratios"].items()]
    case = "{name:>34}  {results[0][seconds]:8.2f} s {mebibytes:8,.0f} MiB above the model"
    _show(values, case, json_to, after=ratios)


@command.command(epilog=example("bottleneck bench transformers --shrink 100"))
@click.option("--runs", default=3, show_default=True, type=click.IntRange(1, 20), metavar="N",
              help="Timed runs of each case at most.")  # fmt: skip
@shrink_option("width, vocabulary and tokens")
@device_option
@json_option
def transformers(runs: int, shrink: int, device: str, json_to: Path | None) -> None:
    """Time a training step of GPT-2 with Softmax, a mixture of softmaxes (MoS) and LMS-PLIF beside its own loss.

    Full size takes minutes and 6 GB of memory.
    """
    from softmax_bottleneck.bench import bench_transformers
    from softmax_bottleneck.core.machine import resolve_device

    values = bench_transformers(device=resolve_device(device), runs=runs, shrink=shrink, progress=progress())
    _show(values, "{name:>24}  {seconds:8.3f} s {mebibytes:8,.0f} MiB", json_to, at_size=shrink == 1)


@command.command("transformer-study", epilog=example("bottleneck bench transformer-study --out study --minutes 0"))
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Folder of all results.")
@click.option("--data", default="wikitext-2", show_default=True, metavar="CORPUS",
              help="Corpus or .txt file with the text.")  # fmt: skip
@click.option("--minutes", type=click.FloatRange(min=0), default=math.inf, metavar="N",
              help="Begin no run after N minutes.  [default: no limit]")  # fmt: skip
@click.option("--steps", type=click.IntRange(min=1), default=500, show_default=True, metavar="N",
              help="Training steps of a run.")  # fmt: skip
def transformer_study(out: Path, data: str, minutes: float, steps: int) -> None:
    """Train a small transformer with seven output layers, and measure what each head can express.

    Every run is a file of its own: the same command trains the runs that are missing.
    """
    from softmax_bottleneck.bench import study_transformers

    missing = study_transformers(out, data=data, minutes=minutes, steps=steps, progress=progress())
    echo(f"{out}: {f'{missing} runs are missing' if missing else 'done'}")


def _show(
    values: Mapping[str, Any],
    case: str,
    json_to: Path | None,
    *,
    header: str = "",
    after: Iterable[str] = (),
    at_size: bool = True,
) -> None:
    """Print or save a benchmark: a line in the format ``case`` for each case, the lines ``after`` them, and its goals.

    At another size than the default one line says that the goals are not for it.
    """
    lines = [header] if header else []
    for name, row in values["cases"].items():
        percent, mebibytes = 100 * row.get("share", 0.0), row["memory_bytes"] / 2**20
        lines.append(case.format(**row, name=name, percent=percent, mebibytes=mebibytes))
    lines += after
    if at_size:
        lines += [
            f"{'met' if goal['met'] else 'NOT MET':>8}  {goal['what']}: {goal['measured']:.3g} (asked {goal['asked']})"
            for goal in values.get("asked", ())
        ]
    else:
        lines.append("the project's goals are for the default size")
    emit(values, "\n".join(lines), json_to)
