"""``bottleneck bench``: our algorithms beside the usual ones."""

from __future__ import annotations

import re

import rich_click as click

from .options import check_outputs, emit, example, json_option, progress


@click.group("bench", epilog=example("bottleneck bench spectrum --shape 2000x500"))
def command() -> None:
    """Measure this machine: our algorithms beside the usual ones, each in a process of its own."""


@command.command(epilog=example("bottleneck bench spectrum --shape 2000x500"))
@click.option("--shape", default="20000x5000", show_default=True, metavar="TxM", help="Of the full-rank matrix.")
@json_option
def spectrum(shape: str, json_to: str | None) -> None:
    """Time the spectrum methods against NumPy and torch on one random matrix: minutes at the default shape."""
    found = re.fullmatch(r"(\d+)x(\d+)", shape)
    if not found or min(int(found[1]) // 2, int(found[2])) < 1:
        raise click.BadParameter(f"{shape!r} is no shape; write it as 20000x5000", param_hint="--shape")
    from softmax_bottleneck.bench import bench_spectrum

    check_outputs(json_to)
    values = bench_spectrum(shape=(int(found[1]), int(found[2])), progress=progress())
    lines = [
        *(f"{name:>34}  {case['seconds']:8.2f} s {case['memory_bytes'] / 2**20:8,.0f} MiB"
          for name, case in values["cases"].items()),
        *(f"{name:>34}  {rate:8.1f} GFLOP/s" for name, rate in values["rates"].items()),
        *(f"{name:>34}  {ratio:8.3f}" for name, ratio in values["ratios"].items()),
    ]  # fmt: skip
    emit(values, "\n".join(lines), json_to)
