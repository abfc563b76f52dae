"""MoS paper, figure 1: cumulative percentage of normalized singular values."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from softmax_bottleneck.files import write_bytes
from softmax_bottleneck.plotting import PAPER, draw_spectrum_cdf, save_figure
from softmax_bottleneck.spectrum import Spectrum


def draw(ax: Axes, result: Mapping[str, Spectrum]) -> None:
    """Draw the spectra, one curve a label."""
    draw_spectrum_cdf(ax, result)


def save(result: Mapping[str, Spectrum], *paths: Path) -> None:
    """Write the figure to every path, and the numbers in it as a CSV file beside the first."""
    with mpl.rc_context(PAPER):
        figure, ax = plt.subplots()
        try:
            draw(ax, result)
            for path in paths:
                save_figure(figure, path)
        finally:
            plt.close(figure)
    write_bytes(paths[0].with_suffix(".csv"), table(result).encode())


def table(result: Mapping[str, Spectrum]) -> str:
    """Return the curves as CSV: label, normalized singular value (ascending), percentage of values up to it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["label", "normalized_singular_value", "percent_at_or_below"])
    for label, spectrum in result.items():
        for value, percent in zip(*spectrum.cdf(), strict=True):
            writer.writerow([label, repr(float(value)), f"{percent:.6g}"])
    return text.getvalue()
