"""Configurations: every key and value is checked, and the text of an error names the one that is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from softmax_bottleneck import heads
from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.training import PRESETS, RunConfig, complete, override, read
from softmax_bottleneck.training.config import difference, parse


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"corpu": "ptb"}, "unknown key 'corpu'; known keys there are corpus, seed, model, training"),
        ({"training": {"epoch": 3}}, r"unknown key 'training\.epoch'; known keys there are epochs, batch_size"),
        (
            {"training": {"optimizer": {"lr": 3}}},
            r"unknown key 'training\.optimizer\.lr'; known keys there are name, learning_rate",
        ),
        ({"model": {"tied": True}}, r"unknown key 'model\.tied'; known keys there are backbone, head, tie_embeddings"),
        ({"model": {"head": {"name": "mos", "k": 3}}}, "unknown key 'k' for head 'mos'; known keys are .*components"),
        ({"model": {"backbone": {"name": "lstm", "depth": 3}}}, "unknown key 'depth' for backbone 'lstm'"),
        ({"model": {"head": {"name": "sofmax"}}}, "unknown head 'sofmax'; known heads are"),
        ({"model": {"backbone": {"name": "gru"}}}, "unknown backbone 'gru'"),
        ({"model": {"head": {"name": "mos", "components": "x"}}}, "components of head 'mos'.*integer.*'x'"),
        ({"model": {"head": {"name": "mos", "components": 0}}}, "components must be at least 1, not 0"),
        ({"model": {"head": "mos"}}, r"model\.head: it must be an object of JSON, not 'mos'"),
        ({"model": {"head": {}}}, r"model\.head\.name is missing"),
        ({"seed": -1}, "seed: .*greater than or equal to 0, not -1"),
        ({"seed": 2**64}, "seed: .*less than"),
        ({"seed": "zero"}, "seed: it must be a valid integer, not 'zero'"),
        ({"corpus": 5}, "corpus: .*string, not 5"),
        ({"training": {"epochs": 0}}, r"training\.epochs: .*greater than or equal to 1"),
        ({"training": {"bptt": 1.5}}, r"training\.bptt: .*integer"),
        ({"training": {"batch_size": 0}}, r"training\.batch_size"),
        ({"training": {"save_every": 0}}, r"training\.save_every"),
        ({"training": {"optimizer": {"name": "adam"}}}, r"training\.optimizer\.name: .*'adamw' or 'sgd'.*'adam'"),
        ({"training": {"optimizer": {"learning_rate": 0}}}, r"learning_rate: .*greater than 0"),
        ({"training": {"optimizer": {"learning_rate": float("nan")}}}, "learning_rate: .*finite number"),
        ({"training": {"optimizer": {"clip": float("inf")}}}, "clip: .*finite number"),
        ({"training": {"optimizer": {"weight_decay": -1}}}, r"weight_decay: .*greater than or equal to 0"),
        ({"training": {"optimizer": {"schedule": "linear"}}}, r"schedule: .*'cosine' or 'constant'"),
        ({"training": []}, r"training: it must be an object of JSON, not \[\]"),
    ],
)
def test_the_first_wrong_key_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^here: .*{message}"):
        parse(values, where="here")


def test_another_optimizer_keeps_its_settings_and_another_head_does_not() -> None:
    config = PRESETS["ptb-small-mos"].config
    changes: dict[str, Any] = {"optimizer": {"name": "sgd"}}
    changed = config.replace(training=changes, model={"head": {"name": "moc"}})
    assert changed.training.optimizer == config.training.optimizer.model_copy(update={"name": "sgd"})
    assert changed.model == override(config, ["head.name=moc"]).model
    assert changed == override(config, ["head.name=moc", "training.optimizer.name=sgd"])


def test_nothing_given_is_the_default() -> None:
    assert parse({}, where="here") == RunConfig()


def test_a_configuration_survives_json() -> None:
    values = {"model": {"head": {"name": "mos", "components": 3}}, "training": {"optimizer": {"learning_rate": 1 / 3}}}
    config = parse(values, where="here")
    assert parse(json.loads(json.dumps(config.model_dump(mode="json"))), where="here") == config


def test_overrides() -> None:
    config = override(
        RunConfig(),
        [
            "corpus=ptb",
            "seed=7",
            "training.unigram_bias=false",
            "training.optimizer.learning_rate=1e-3",
            "model.backbone.hidden_size=64",
        ],
    )
    assert (config.corpus, config.seed, config.training.unigram_bias) == ("ptb", 7, False)
    assert config.training.optimizer.learning_rate == 1e-3
    assert config.model.backbone.settings == {"hidden_size": 64}
    assert config.training.epochs == RunConfig().training.epochs


def test_a_heads_name_counts_first_whatever_the_order() -> None:
    settings = ["model.head.components=5", "model.head.name=mos"]
    for given in (settings, settings[::-1]):
        assert override(RunConfig(), given).model.head.settings == {"components": 5}


def test_head_and_backbone_are_short_for_the_models() -> None:
    short = ["head.components=5", "head.name=mos", "backbone.hidden_size=7"]
    assert override(RunConfig(), short) == override(RunConfig(), [f"model.{setting}" for setting in short])


def test_another_head_drops_the_old_ones_settings_and_the_same_keeps_them() -> None:
    config = parse({"model": {"head": {"name": "mos", "components": 5, "bias": False}}}, where="here")
    assert override(config, ["model.head.name=lms-plif"]).model.head.settings == {}
    assert override(config, ["model.head.name=mos"]) == config


def test_the_last_of_two_counts() -> None:
    assert override(RunConfig(), ["seed=1", "seed=2"]).seed == 2
    assert override(RunConfig(), ["model.head.name=moc", "model.head.name=mos"]).model.head.name == "mos"


def test_a_value_may_hold_an_equals_sign() -> None:
    assert override(RunConfig(), ["corpus=/data/a=b"]).corpus == "/data/a=b"


def test_a_mapping_changes_the_keys_it_names() -> None:
    """As in `RunConfig.replace`; those of another head belong to the old one."""
    start = RunConfig().replace(training={"averaging": {"start": "epoch", "epoch": 3}}, model={"head": {"name": "mos"}})
    changed = override(start, ['training.averaging={"interval": 7}', 'model.head={"components": 4}'])
    assert changed == start.replace(training={"averaging": {"interval": 7}}, model={"head": {"components": 4}})
    assert (changed.training.averaging.start, changed.model.head.name) == ("epoch", "mos")
    assert override(start, ['model.head={"name": "softmax"}']) == start.replace(model={"head": {"name": "softmax"}})


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("training.epoch=3", r"--set: unknown key 'training\.epoch'; known keys there are epochs"),
        ("trainings.epochs=3", r"unknown section 'trainings'; try corpus, seed, .*training\.epochs"),
        ("training.epochs.last=3", "unknown section 'epochs'"),
        ("name=mos", "--set: unknown key 'name'; known keys there are corpus"),
        ("model.name=mos", r"--set: unknown key 'model\.name'; known keys there are backbone"),
        ("model.head.name=sofmax", "--set: unknown head 'sofmax'"),
        ("model.head.knots=4", "--set: model: unknown key 'knots' for head 'softmax'"),
        ("training.epochs", "--set takes key=value, as in training.epochs=3; 'training.epochs' has no '='"),
        ("=3", "--set takes key=value"),
        ("training.epochs=true", r"--set: training\.epochs: it must be a valid integer, not True"),
        ("training.stop_interval=false", r"training\.stop_interval: it must be a valid integer, not False"),
        ('training.optimizer.learning_rate="1e-3"', r"learning_rate: it must be a valid number, not '1e-3'"),
        ("training.epochs=three", r"--set: training\.epochs: .*'three'"),
        ("seed=", "--set: seed: .*''"),
        ("training.optimizer.clip=NaN", "clip: .*finite"),
        (".=3", "unknown section ''"),
    ],
)
def test_wrong_overrides(setting: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        override(RunConfig(), [setting])


def test_reading_a_file(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"seed": 5}', encoding="utf-8")
    assert read(file) == RunConfig(seed=5)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "it is not JSON at line 1"),
        (b'{"name": "\xff"}', "the byte 10 is not UTF-8"),
        (b"[1]", "must hold settings by name, not"),
        (b'{"seeds": 5}', r"config\.json: unknown key 'seeds'"),
        (b'{"model": {"head": {"name": "sofmax"}}}', r"config\.json: unknown head 'sofmax'"),
    ],
)
def test_a_file_that_is_no_configuration(data: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(data)
    with pytest.raises(ConfigurationError, match=message):
        read(file)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read .*: No such file"):
        read(tmp_path / "config.json")
    with pytest.raises(ConfigurationError, match=r"cannot read .*: Is a directory"):
        read(tmp_path)


def test_differences() -> None:
    old = {"a": 1, "b": {"c": [1, 2], "d": None}, "e": {"f": 1}}
    assert difference(old, json.loads(json.dumps(old))) == []
    assert difference(old, {"a": 2, "b": {"c": [1, 3], "d": None}, "g": True}) == [
        "a (was 1, now 2)",
        "b.c (was [1, 2], now [1, 3])",
        "e.f (was 1, now None)",
        "g (was None, now True)",
    ]


TOML_TEXT = """
corpus = "ptb"
[model.head]
name = "lms-plif"
slope_learning_rate = 1e-3
[training.optimizer]
learning_rate = 2e-3
"""
YAML_TEXT = """
corpus: ptb
model:
  head: {name: lms-plif, slope_learning_rate: 1e-3}
training:
  optimizer: {learning_rate: 2e-3}
"""


@pytest.mark.parametrize(("name", "text"), [("c.toml", TOML_TEXT), ("c.yaml", YAML_TEXT), ("c.YML", YAML_TEXT)])
def test_a_configuration_in_toml_or_yaml(name: str, text: str, tmp_path: Path) -> None:
    """Numbers without a point are numbers, which YAML 1.1 takes for text."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    head = {"name": "lms-plif", "slope_learning_rate": 0.001}
    expected = {"corpus": "ptb", "model": {"head": head}, "training": {"optimizer": {"learning_rate": 0.002}}}
    assert read(tmp_path / name) == parse(expected, where="here")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.toml", "corpus = ptb", "c.toml is not valid TOML: Invalid value"),
        ("c.yaml", "corpus: [", "c.yaml is not valid YAML: while parsing a flow node"),
        ("c.yaml", "- corpus", "c.yaml must hold settings by name, not a list"),
        ("c.yaml", "corpu: ptb", "c.yaml: unknown key 'corpu'; known keys there are corpus"),
    ],
)
def test_what_is_wrong_in_toml_and_yaml_is_said(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=message):
        read(tmp_path / name)


@pytest.mark.parametrize("name", ["demo-lms-plif", "ptb-mos", "ptb-lms-plif"])
def test_a_complete_configuration_is_the_same_configuration(name: str) -> None:
    config = PRESETS[name].config
    values = complete(config)
    again = parse(values, where="here")
    assert complete(again) == values
    assert set(values["model"]["head"]) == {"name", *heads.parameters(config.model.head.name)}
    assert again.training == config.training
