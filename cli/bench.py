"""``bottleneck bench``: this package's algorithms beside NumPy's and torch's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import rich_click as click

from .options import HEADS, NAMES, Command, Count, completing, device_option, example, json_option, listed, progress
from .outputs import echo, emit, terminal_table
from .paths import Folder

COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "seconds": ("seconds", "{:.3f}".format),
    "epoch_seconds": ("seconds an epoch", "{:.0f}".format),
    "memory_bytes": ("MiB", lambda size: "unknown" if size is None else f"{size / 2**20:,.0f}"),
    "gflops": ("GFLOP/s", "{:.1f}".format),
    "share": ("of the products' speed", "{:.1%}".format),
}
"""Heading and format of the values of a case that are printed."""
SHAPE = "20000x5000"


@click.group("bench", epilog=example("bottleneck bench heads --only mos --shrink 100"))
def command() -> None:
    """Time this package's algorithms beside NumPy's and torch's on this machine, each in its own process."""


def shrink_option(sizes: str) -> Callable[[Command], Command]:
    """Return the option ``--shrink``, a divisor of the sizes that are named."""
    return click.option(
        "--shrink", default=1, type=Count(1, 100), metavar="N",
        help=f"Divide {sizes} by N for a quick look; our goals are for N = 1.",
    )  # fmt: skip


@command.command(epilog=example("bottleneck bench spectrum --shape 2000x500"))
@click.option("--shape", default=SHAPE, metavar="TxM", help="Shape of the matrix.")
@click.option("--store", is_flag=True, help="Also rank a stored matrix of Penn Treebank's size (6.6 GB on disk).")
@device_option
@json_option
def spectrum(shape: str, **options: Any) -> None:
    """Time the spectrum methods beside NumPy and torch on one random matrix.

    The default shape takes minutes and 6 GB of memory.
    """
    match = re.fullmatch(r"([0-9]{1,9})x([0-9]{1,9})", shape)
    if not match or min(int(match[1]) // 2, int(match[2])) < 1:
        raise click.BadParameter(f"{shape!r} is not a shape; write it as 20000x5000", param_hint="--shape")
    _run("bench_spectrum", at_size=shape == SHAPE, shape=(int(match[1]), int(match[2])), **options)


@command.command(epilog=example("bottleneck bench heads --only mos --shrink 100"))
@listed("--only", "only", NAMES, metavar="NAME,…", shell_complete=completing(HEADS, "heads"),
        help="Heads to time.  [default: all]")  # fmt: skip
@shrink_option("contexts and vocabulary")
@device_option
@json_option
def heads(only: tuple[str, ...] | None, **options: Any) -> None:
    """Time the training step of every output layer beside its plain formulation; full size takes minutes."""
    _run("bench_heads", only=only or (), **options)


@command.command(epilog=example("bottleneck bench training --shrink 50"))
@shrink_option("layers, vocabulary and batch")
@device_option
@json_option
def training(**options: Any) -> None:
    """Time the training step of the Softmax and mixture-of-softmaxes (MoS) models of Yang et al. (2018) beside torch.

    With transformers, also that of GPT-2 with three output layers beside its own loss. Full size takes minutes and 6 GB
    of memory.
    """
    _run("bench_training", **options)


@command.command(epilog=example("bottleneck bench gpu --only device --device cpu --out gpu"))
@click.option("--out", required=True, type=Folder(), metavar="DIR", help="Folder of all results.")
@listed("--only", "only", NAMES, metavar="STAGE,…", default=["device,heads,spectrum,training"],
        help="Stages to run.")  # fmt: skip
@shrink_option("the sizes of the benchmarks")
@device_option
def gpu(out: Path, device: str, **options: Any) -> None:
    """Check a GPU against float64 on the CPU, and run all benchmarks on it.

    The same command continues after an interruption. 'bottleneck demo --family ptb-fast --device cuda' trains there.
    """
    from softmax_bottleneck.bench.gpu import bench_gpu
    from softmax_bottleneck.core.devices import resolve_device

    bench_gpu(out, device=resolve_device(device), progress=progress(), **options)
    echo(f"the results are in {out}")


def _run(name: str, *, json_to: Path | None, at_size: bool | None = None, **options: Any) -> None:
    """Run the benchmark of a name in the library with some options, and print or save its result.

    ``at_size`` says whether the sizes are those of the goals; by default, whether ``--shrink`` is 1.
    """
    from softmax_bottleneck import bench
    from softmax_bottleneck.core.devices import resolve_device

    if "device" in options:
        options["device"] = resolve_device(options["device"])
    values = getattr(bench, name)(progress=progress(), **options)
    at_size = options.get("shrink", 1) == 1 if at_size is None else at_size
    emit(values, "\n".join(_lines(values, at_size=at_size)), json_to)


def _lines(values: Mapping[str, Any], *, at_size: bool) -> Iterator[str]:
    """Yield a table of the cases, and lines of what follows from them."""
    cases = values["cases"]
    shown = [key for key in COLUMNS if any(key in row for row in cases.values())]
    rows = [[name, *(COLUMNS[key][1](row[key]) if key in row else "" for key in shown)] for name, row in cases.items()]
    yield terminal_table(["case", *(COLUMNS[key][0] for key in shown)], rows)
    for which, by_components in values.get("slowdown", {}).items():
        yield f"slowdown over Softmax, {which}: " + ", ".join(f"{x:.1f} (K = {K})" for K, x in by_components.items())
    for name, rate in values.get("rates", {}).items():
        yield f"{name}: {rate:.1f} GFLOP/s"
    for name, ratio in values.get("ratios", {}).items():
        yield f"{name}: {ratio:.3f}"
    if at_size:
        goals = [
            [goal["what"], f"{goal['measured']:.3g}", goal["bound"], "yes" if goal["met"] else "NO"]
            for goal in values["goals"]
        ]
        if goals:
            yield terminal_table(["goal", "measured", "bound", "met"], goals)
    else:
        yield "the project's goals are for the default size"
