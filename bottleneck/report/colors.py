"""Colours of curves on a dark page."""

from __future__ import annotations

DARK = "#16191f"
"""The dark page's background, as in ``page.css``."""
LEAST_CONTRAST = 4.5
"""WCAG 2.2, success criterion 1.4.3: contrast of text, which is more than the 3 that curves need."""

INVISIBLE = 1.5
"""Contrast below which a colour is taken for that of the background."""


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, 1 to 21 (WCAG 2.2).

    Example:
        >>> contrast("#000000", "#ffffff")
        21.0
    """
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def on_dark(color: str) -> str:
    """Return a colour mixed with as much white as a dark page needs; one that is nearly black is inverted.

    Example:
        >>> on_dark("#56b4e9"), on_dark("#0173b2"), on_dark("#222222")
        ('#56b4e9', '#2a89be', '#dddddd')
    """
    if contrast(color, DARK) < INVISIBLE:
        color = "#" + "".join(f"{255 - part:02x}" for part in _parts(color))
    for white in range(101):
        mixed = "#" + "".join(f"{round(part + (255 - part) * white / 100):02x}" for part in _parts(color))
        if contrast(mixed, DARK) >= LEAST_CONTRAST:
            break
    return mixed


def _parts(color: str) -> list[int]:
    return [int(color[place : place + 2], 16) for place in (1, 3, 5)]


def _luminance(color: str) -> float:
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (part / 255 for part in _parts(color))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
