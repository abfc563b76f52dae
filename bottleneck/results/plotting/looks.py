"""One colour, marker and line for each output layer, in all figures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import seaborn

from ...core.printable import printable

PALETTE: tuple[str, ...] = tuple(seaborn.color_palette("colorblind").as_hex())
"""Ten colours that colour-blind people can distinguish."""
BLUE, ORANGE, GREEN, RED, PINK, BROWN, _, GRAY, _, SKY = PALETTE
BLACK, OLIVE = "#222222", "#8a8500"
DASHES: tuple[tuple[float, ...], ...] = ((1, 0), (4, 1.5), (1, 1), (4, 1, 1, 1))


@dataclass(frozen=True)
class Look:
    """Colour, marker and line of one output layer."""

    label: str
    """Name in legends."""
    color: str
    marker: str
    dashes: tuple[float, ...] = DASHES[0]
    width: float = 1.0
    """Width of the line, as a multiple of the style's."""
    layer: float = 2.0
    """Matplotlib's zorder."""

    def line(self, **more: Any) -> dict[str, Any]:
        """Return keyword arguments of `Axes.plot`."""
        from matplotlib import rcParams

        return {
            "label": self.label,
            "color": self.color,
            "linestyle": (0, self.dashes),
            "linewidth": self.width * rcParams["lines.linewidth"],
            "zorder": self.layer,
            **more,
        }


HEADS = {
    # Curves often coincide: a wide line lies under thin ones, and broken lines lie over whole ones, so all are seen.
    "softmax": Look("Softmax", BLACK, "o", width=1.9, layer=1.9),
    "moc": Look("MoC", ORANGE, "s", DASHES[1], width=1.2, layer=2.2),
    "mos": Look("MoS", BLUE, "D"),
    "sigsoftmax": Look("Sigsoftmax", GREEN, "^", DASHES[2], layer=2.2),
    "gss": Look("GSS", PINK, "v", DASHES[3], layer=2.2),
    "lms-plif": Look("LMS-PLIF", RED, "P"),
    "lms-net": Look("LMS", BROWN, "h", DASHES[1], layer=2.2),
    "mos-plif": Look("MoS + PLIF", SKY, "*"),
    "doc": Look("DOC", GRAY, "<"),
    "mixtape": Look("Mixtape", OLIVE, ">"),
}
"""Look of each head, by its registered name."""
LINES: tuple[dict[str, Any], ...] = (
    {"width": 1.9, "layer": 1.9}, *({"dashes": dashes, "layer": 2.2} for dashes in DASHES[1:])
)  # fmt: skip
"""Lines of names without a head."""
OTHER_NAMES = {"lms": "lms-net"}
"""Registered names of heads that have another name in the synthetic experiments."""


def head_of(name: str) -> str | None:
    """Return the registered head in the name of a preset, a run's folder or a report, or ``None``.

    Example:
        >>> head_of("demo/runs/mos-k5"), head_of("ptb-small/lms-plif"), head_of("gpt2")
        ('mos', 'lms-plif', None)
    """
    words = name.rstrip("/").rpartition("/")[2].split("-")
    for size in range(len(words), 0, -1):
        short = "-".join(words[:size])
        if short in HEADS or short in OTHER_NAMES:
            return OTHER_NAMES.get(short, short)
    return None


def plain(text: str) -> str:
    r"""Return text that matplotlib shows unchanged: $ starts no mathematics, and a leading _ does not hide a label.

    Example:
        >>> plain("_a $x$")
        ' _a \\$x\\$'
    """
    shown = printable(text.encode(errors="backslashreplace").decode()).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Return a look for every name, heads first, in the order of ``HEADS``.

    Names of one head differ in their dashes. Names without a head take the colours that no head among them has, and of
    several the first a wide line under broken ones, so that equal curves are all seen.
    """
    chosen: dict[str, Look] = {}
    ordered = sorted(names, key=lambda name: [*HEADS, None].index(head_of(name)))
    taken = {HEADS[head].color for name in ordered if (head := head_of(name))}
    free = cycle([color for color in PALETTE if color not in taken] or PALETTE)
    lines = cycle(LINES if sum(head_of(name) is None for name in ordered) > 1 else [{}])
    for name in ordered:
        head = head_of(name)
        base = HEADS[head] if head else Look(name, next(free), "o", **next(lines))
        same = [look for look in chosen.values() if look.color == base.color]
        label = base.label if head and head in (name, OTHER_NAMES.get(name)) else plain(name)
        dashes = DASHES[(DASHES.index(base.dashes) + len(same)) % len(DASHES)]
        chosen[name] = replace(base, label=label, dashes=dashes)
    return chosen
