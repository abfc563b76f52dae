"""One colour, marker and line for each output layer, in all figures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

from .statistical import PALETTE

BLUE, ORANGE, GREEN, RED, PINK, BROWN, _, GRAY, _, SKY = PALETTE
BLACK, OLIVE = "#222222", "#8a8500"
DASHES: tuple[tuple[float, ...], ...] = ((1, 0), (4, 1.5), (1, 1), (4, 1, 1, 1))


@dataclass(frozen=True)
class Look:
    """How one output layer is drawn."""

    label: str
    """As the papers write its name."""
    color: str
    marker: str
    dashes: tuple[float, ...] = DASHES[0]
    width: float = 1.0
    """Of the line, in multiples of the style's."""
    layer: float = 2.0
    """Matplotlib's zorder."""

    def line(self, **more: Any) -> dict[str, Any]:
        """Return what `Axes.plot` takes."""
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
    # Softmax and MoC have the same bound and often the same curve: a wide line under a thin broken one shows both.
    "softmax": Look("Softmax", BLACK, "o", width=1.9, layer=2.1),
    "moc": Look("MoC", ORANGE, "s", DASHES[1], width=1.2, layer=2.2),
    "mos": Look("MoS", BLUE, "D"),
    "sigsoftmax": Look("Sigsoftmax", GREEN, "^"),
    "gss": Look("GSS", PINK, "v", DASHES[3]),
    "lms-plif": Look("LMS-PLIF", RED, "P"),
    "lms-net": Look("LMS", BROWN, "h"),
    "mos-plif": Look("MoS + PLIF", SKY, "*"),
    "doc": Look("DOC", GRAY, "<"),
    "mixtape": Look("Mixtape", OLIVE, ">"),
}
"""By registered name."""
OTHER_NAMES = {"lms": "lms-net"}
"""What the synthetic experiments call a head."""


def head_of(name: str) -> str | None:
    """Return the registered head that a preset, a run's folder or a report is named after.

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
    r"""Return text that matplotlib shows as it is: $ begins no mathematics, and a first _ hides no label.

    Example:
        >>> plain("_a $x$")
        ' _a \\$x\\$'
    """
    shown = text.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Return a look for every name, heads first, in the order of ``HEADS``.

    A head has its own look, another of the same head the next of its dashes, and any other name a free colour.
    """
    found: dict[str, Look] = {}
    free = cycle(PALETTE)
    for name in sorted(names, key=lambda name: [*HEADS, None].index(head_of(name))):
        head = head_of(name)
        base = HEADS[head] if head else Look(name, next(free), "o")
        same = [look for look in found.values() if look.color == base.color]
        label = base.label if head in (name, OTHER_NAMES.get(name)) else plain(name)
        dashes = DASHES[(DASHES.index(base.dashes) + len(same)) % len(DASHES)]
        found[name] = replace(base, label=label, dashes=dashes)
    return found
