"""One colour, marker and line for each output layer."""

from __future__ import annotations

import pytest
from matplotlib.colors import to_rgb

from softmax_bottleneck import heads
from softmax_bottleneck.results.plotting import HEADS, head_of, looks


def test_every_registered_head_has_a_look_of_its_own() -> None:
    assert HEADS.keys() == heads.REGISTRY.keys()
    assert len({look.color for look in HEADS.values()}) == len(HEADS)
    assert len({look.marker for look in HEADS.values()}) == len(HEADS)


def test_colours_are_seen_on_white() -> None:
    """A contrast of at least 2 by the formula of WCAG 2, and 3 for the four most shown."""
    for name, look in HEADS.items():
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(look.color)]
        luminance = sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
        assert 1.05 / (luminance + 0.05) > (3 if name in ("softmax", "mos", "sigsoftmax", "lms-plif") else 2), name


def test_softmax_and_moc_are_both_seen_where_they_coincide() -> None:
    softmax, moc = HEADS["softmax"], HEADS["moc"]
    assert softmax.layer < moc.layer
    assert softmax.width > moc.width
    assert softmax.dashes[1] == 0 < moc.dashes[1]


@pytest.mark.parametrize(
    ("name", "head"),
    [("mos", "mos"), ("mos-k15", "mos"), ("mos-plif", "mos-plif"), ("demo/runs/lms-plif/", "lms-plif"),
     ("lms", "lms-net"), ("softmax-mos-settings", "softmax"), ("moses", None), ("", None)],
)  # fmt: skip
def test_names_of_runs_and_presets_tell_their_head(name: str, head: str | None) -> None:
    assert head_of(name) == head


def test_names_that_are_drawn_together_are_told_apart() -> None:
    names = ["gpt2", "a/mos", "mos", "mos-k5", "other", "softmax"]
    found = looks(names)
    assert list(found) == ["softmax", "a/mos", "mos", "mos-k5", "gpt2", "other"]
    assert len({(look.color, look.dashes) for look in found.values()}) == len(names)
    assert found["mos"].label == "MoS"
    assert found["a/mos"].label == "a/mos"
    assert {found[name].color for name in ("mos", "a/mos", "mos-k5")} == {HEADS["mos"].color}
    assert found["gpt2"].color != found["other"].color
    assert not {found["gpt2"].color, found["other"].color} & {HEADS["mos"].color, HEADS["softmax"].color}
