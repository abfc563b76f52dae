"""Every preset is a valid configuration of a model that can be built; siblings are about equal in size."""

from __future__ import annotations

import pytest
import torch

from softmax_bottleneck import heads
from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.language_model import LanguageModel
from softmax_bottleneck.training import PRESETS
from softmax_bottleneck.training.presets import DEMO_HEADS, Preset, find


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_it_builds_a_model_that_learns(preset: Preset) -> None:
    model = LanguageModel(preset.config.model, vocab_size=50)
    assert type(model.head) is heads.REGISTRY[preset.head]
    ids = torch.randint(50, (5, 2))
    model.head.nll(model.hidden(ids[:-1])[0], ids[1:]).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("name", PRESETS)
def test_its_name_finds_it(name: str) -> None:
    preset = find(name)
    assert preset.name == name
    assert preset.summary
    assert preset.cost
    assert preset.expected


def test_what_there_is() -> None:
    assert {name for name in PRESETS if name.startswith("demo-")} == {f"demo-{head}" for head in DEMO_HEADS}
    ptb = {"softmax", "moc", "mos", "lms-plif", "sigsoftmax"}
    assert {name for name in PRESETS if name.startswith("ptb-small-")} == {f"ptb-small-{head}" for head in ptb}


@pytest.mark.parametrize(("family", "vocab_size"), [("demo", 2650), ("ptb-small", 10_000)])
def test_siblings_are_about_equal_in_size(family: str, vocab_size: int) -> None:
    """Within a tenth of the plain softmax, apart from PLIF's own knots; nothing else differs between them."""
    sizes = {}
    for preset in PRESETS.values():
        if preset.family == family:
            with torch.device("meta"):
                model = LanguageModel(preset.config.model, vocab_size=vocab_size)
            sizes[preset.head] = model.parameter_count() - preset.config.model.head.settings.get("knots", 0)
    assert max(sizes.values()) <= 1.1 * sizes["softmax"], sizes
    assert min(sizes.values()) >= sizes["softmax"], sizes
    siblings = [preset for preset in PRESETS.values() if preset.family == family]
    assert len({preset.config.training.model_dump_json() for preset in siblings}) == 1
    assert len({preset.config.model.head.settings["embedding_size"] for preset in siblings}) == 1


def test_parameters_are_counted_at_the_corpuss_vocabulary() -> None:
    preset = find("ptb-small-mos")
    expected = LanguageModel(preset.config.model, vocab_size=10_000).parameter_count()
    assert preset.parameters() == expected


def test_an_unknown_name() -> None:
    with pytest.raises(ConfigurationError, match="unknown preset 'ptb-mos'; known presets are demo-softmax"):
        find("ptb-mos")
