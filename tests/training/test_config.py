"""Configurations: every key and value is checked, and the text of an error names the one that is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.training import PRESETS, RunConfig, as_toml, complete, override, read
from softmax_bottleneck.training.config import parse

START = {"model": {"head": {"name": "mos", "components": 5, "bias": False}}}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"corpu": "ptb"}, "unknown key 'corpu'; known keys there are corpus, seed, model, training"),
        ({"training": {"optimizer": {"lr": 3}}}, r"unknown key 'training\.optimizer\.lr'; known keys there are name"),
        ({"model": {"head": {"name": "mos", "k": 3}}}, "unknown key 'k' for head 'mos'; known keys are .*components"),
        ({"model": {"head": {"name": "sofmax"}}}, "unknown head 'sofmax'; known heads are"),
        ({"model": {"backbone": {"name": "gru"}}}, "unknown backbone 'gru'"),
        ({"model": {"head": {"name": "mos", "components": 4.5}}}, "components of head 'mos': .*valid integer .*4.5"),
        ({"model": {"backbone": {"name": "lstm", "layers": True}}}, "layers of backbone 'lstm': .*integer .*True"),
        ({"model": {"backbone": {"name": "lstm", "size": 4}}}, "unknown key 'size' for backbone 'lstm'"),
        ({"model": {"head": {"name": "lms-plif", "interval": float("inf")}}}, "interval of head 'lms-plif': .*finite"),
        ({"model": {"head": {"name": "mos", "components": 0}}}, "components must be at least 1, not 0"),
        ({"model": {"head": "mos"}}, r"model\.head: it must be an object of JSON, not 'mos'"),
        ({"seed": 2**64}, "seed: .*less than"),
        ({"training": {"optimizer": {"name": "adam"}}}, r"training\.optimizer\.name: .*'adamw' or 'sgd'.*'adam'"),
        ({"training": {"optimizer": {"learning_rate": float("nan")}}}, "learning_rate: .*finite number"),
    ],
)
def test_the_first_wrong_key_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^here: .*{message}"):
        parse(values, where="here")


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        (["seed=1", "seed=2", "corpus=a=b"], {"seed": 2, "corpus": "a=b"}),
        (["training.unigram_bias=false"], {"training": {"unigram_bias": False}}),
        (["model.head.knots=5", "model.head.name=lms-plif"], {"model": {"head": {"name": "lms-plif", "knots": 5}}}),
        (["head.knots=5", "head.name=lms-plif"], {"model": {"head": {"name": "lms-plif", "knots": 5}}}),
        (["model.head.name=mos", "backbone.hidden_size=7"], {"model": {"backbone": {"hidden_size": 7}}}),
        (['model.head={"name": "softmax"}'], {"model": {"head": {"name": "softmax"}}}),
        (['training.averaging={"interval": 7}'], {"training": {"averaging": {"interval": 7}}}),
    ],
)
def test_overrides(settings: list[str], changes: dict[str, Any]) -> None:
    """A component's name counts first, whatever the order; another head drops the old one's settings."""
    start = parse(START, where="here")
    of_sgd = override(start, ["training.optimizer.name=sgd"]).training.optimizer  # another optimizer keeps them
    assert of_sgd == start.training.optimizer.model_copy(update={"name": "sgd"})
    assert override(start, settings) == start.replace(**changes)
    assert override(start, ["model.head.name=lms-plif"]).model.head.settings == {}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("training.epoch=3", r"--set: unknown key 'training\.epoch'; known keys there are epochs"),
        ("trainings.epochs=3", r"unknown key 'trainings'; known keys there are corpus, seed, model, training"),
        ("epochs=3", r"unknown key 'epochs'; .*; did you mean 'training\.epochs'\?"),
        ("training.epochs", "--set takes key=value, as in training.epochs=3; 'training.epochs' has no '='"),
        ("training.epochs=true", r"--set: training\.epochs: it must be a valid integer, not True"),
        (".=3", "unknown key ''"),
        ("seed.x=3", r"seed: it must be a valid integer, not \{'x': 3\}"),
    ],
)
def test_wrong_overrides(setting: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        override(RunConfig(), [setting])


@pytest.mark.parametrize("name", ["demo-lms-plif", "ptb-mos", "switchboard-small-mos"])
def test_what_is_printed_is_read(name: str, tmp_path: Path) -> None:
    settings = complete(PRESETS[name].config)
    (tmp_path / "c.toml").write_text(as_toml(settings), encoding="utf-8")
    assert complete(read(tmp_path / "c.toml")) == settings


def test_a_configuration_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('[model.head]\nname = "mos"\n[training.optimizer]\nlearning_rate = 2e-3\n')
    values = {"model": {"head": {"name": "mos"}}, "training": {"optimizer": {"learning_rate": 0.002}}}
    assert read(tmp_path / "c.toml") == parse(values, where="here")


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("c.json", b'{"name": "\xff"}', r"c\.json is not valid JSON: .* can't decode byte 0xff in position 10"),
        ("c.json", b'{"seed": 1}', r"c\.json is not the config\.json of a run: write a configuration as TOML"),
        ("c.toml", None, r"cannot read .*: No such file"),
        ("c.toml", b"corpus = ptb", r"c\.toml is not valid TOML: Invalid value"),
        ("c.yaml", b"corpus: ptb", r"c\.yaml is not valid TOML: Expected '='"),
    ],
)
def test_a_file_without_a_configuration(name: str, data: bytes | None, message: str, tmp_path: Path) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(ConfigurationError, match=message):
        read(tmp_path / name)
