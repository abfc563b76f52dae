"""Every preset trains, has the size that its paper prints, and siblings are about equal in size."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from softmax_bottleneck import heads
from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.language_models import checkpoint
from softmax_bottleneck.language_models.model import LanguageModel
from softmax_bottleneck.training import PRESETS, RunConfig, fit, override
from softmax_bottleneck.training.config import parse
from softmax_bottleneck.training.optimizer import build
from softmax_bottleneck.training.presets import Preset, find

POINTWISE = ("softmax", "sigsoftmax", "gss", "lms-plif")
"""The heads that take hidden states of the embeddings' size as they are."""


def _small(preset: Preset, corpus: Path) -> RunConfig:
    """The same model with small layers, on a small text, for one epoch."""
    values = preset.config.model_dump(mode="json")
    backbone, head = values["model"]["backbone"], values["model"]["head"]
    backbone["embedding_size"] = head["embedding_size"] = 4
    if "hidden_sizes" in backbone:
        backbone["hidden_sizes"] = [size // 100 for size in backbone["hidden_sizes"]]
        backbone["hidden_sizes"][-1] = 4 if head["name"] in POINTWISE else 6
    else:
        backbone["hidden_size"] = 8
    head |= {"knots": 50} if "knots" in head else {}
    values["training"] |= {"epochs": 1, "batch_size": 4, "bptt": 35}
    values["corpus"] = str(corpus)
    return parse(values, where="the test")


FAMILIES = {preset.family: preset for preset in PRESETS.values() if preset.head != "softmax"}


@pytest.mark.parametrize("preset", FAMILIES.values(), ids=FAMILIES)
def test_one_of_each_family_trains(preset: Preset, corpus: Path, tmp_path: Path) -> None:
    done = fit(_small(preset, corpus), tmp_path, device="cpu")
    assert type(checkpoint.load(done.path).model.head) is heads.REGISTRY[preset.head]
    assert done.steps >= 2
    assert done.valid_perplexity < 100


PUBLISHED = {
    "ptb-softmax": 24.2, "ptb-mos": 21.5, "ptb-moc": 21.5, "ptb-sigsoftmax": 24.22, "ptb-gss": 24.22,
    "ptb-lms-plif": 24.32, "text8-softmax": 8.42, "text8-mos7": 8.45, "text8-mos10": 8.43, "1b-softmax": 119,
    "1b-mos7": 113, "wt2-mos": 35,
}  # fmt: skip
"""Millions of parameters, to the printed digits: Yang et al. 2018, tables 1 to 3 and 12; Parthiban et al. 2021."""

PAGE = (Path(__file__).parents[2] / "docs" / "presets.md").read_text(encoding="utf-8")
SIZES = {"ptb": 10_000, "wikitext-2": 33_278, "text8": 27, "one-billion": 100_000}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_papers_sizes(name: str) -> None:
    preset = find(name)
    digits = len(str(PUBLISHED[name]).partition(".")[2])
    parameters = preset.parameters(SIZES[preset.config.corpus])
    assert parameters is not None
    assert round(parameters / 1e6, digits) == PUBLISHED[name]


def test_the_size_of_wikitexts_softmax() -> None:
    """33M in both papers, which is 33.56 million without its fraction."""
    assert find("wt2-softmax").parameters(33_278) == 33_556_078


def test_what_there_is() -> None:
    assert all(name == preset.name and preset.summary and preset.cost for name, preset in PRESETS.items())
    models: dict[str, set[str]] = {}
    for preset in PRESETS.values():
        models.setdefault(preset.family, set()).add(preset.model)
    every = {"softmax", "moc", "mos", "sigsoftmax", "gss", "lms-plif", "mos-plif"}
    by_components = {f"k{k}" for k in (1, 3, 5, 10, 15, 20)}
    assert models == {
        "demo": {"softmax", "moc", "mos", "lms-plif"},
        **dict.fromkeys(("ptb-small", "ptb-small-awd", "ptb-small-nt-asgd"), every),
        "ptb-small-mos": by_components,
        "ptb": every | {"softmax-mos-settings"} | {f"mos-{k}" for k in by_components},
        "wt2": every | {"softmax-mos-settings"},
        "ptb-fast": {"softmax", "moc", "mos", "sigsoftmax", "lms-plif"},
        "wt2-fast": {"softmax", "mos"},
        "text8": {"softmax", "mos7", "mos10"},
        "1b": {"softmax", "mos7"},
        "switchboard": {"softmax", "moc", "mos"},
        "switchboard-small": {"softmax", "moc", "mos"},
    }


@pytest.mark.parametrize("family", ["ptb", "ptb-small"])
def test_mixtures_by_their_softmaxes_differ_in_nothing_else(family: str) -> None:
    configs = {k: find(f"{family}-mos-k{k}").config for k in (1, 3, 5, 10, 15, 20)}
    settings = {k: dict(config.model.head.settings) for k, config in configs.items()}
    assert {k: one.pop("components") for k, one in settings.items()} == {k: k for k in configs}
    others = {k: (settings[k], config.model.backbone, config.training, config.corpus) for k, config in configs.items()}
    assert all(one == others[1] for one in others.values())


@pytest.mark.parametrize("name", [name for name, preset in PRESETS.items() if preset.initial])
def test_what_starts_from_another_has_its_model(name: str) -> None:
    preset = find(name)
    shapes = []
    for config in (preset.config, find(preset.initial).config):
        model = LanguageModel(config.model, vocab_size=20)
        shapes.append({key: weight.shape for key, weight in model.named_parameters()})
        assert config.corpus == "ptb"
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("name", ["ptb-softmax", "ptb-mos", "wt2-lms-plif"])
def test_the_papers_decay_is_of_all_weights_but_a_functions(name: str) -> None:
    config = find(name).config
    model = LanguageModel(config.model, vocab_size=20)
    optimizer = build(config.training.optimizer, model.parameters(), model.head.parameter_settings())
    decay = {id(weight): group["weight_decay"] for group in optimizer.param_groups for weight in group["params"]}
    decays = {key: decay[id(weight)] for key, weight in model.named_parameters()}
    assert decays["head.bias"] == 1.2e-6
    assert {key for key, value in decays.items() if value != 1.2e-6} == {key for key in decays if "function." in key}


STUDY = {
    ("ptb", "softmax"): ("58.07", "57.08, rank 402"),
    ("ptb", "sigsoftmax"): ("57.75, rank 4,906", "57.05, rank 5,113"),
    ("ptb", "gss"): ("57.60, rank 8,276", "57.00, rank 8,904"),
    ("ptb", "lms-plif"): ("58.45", "56.80, rank 496"),
    ("wt2", "softmax"): ("65.28", "64.63, rank 402"),
    ("wt2", "sigsoftmax"): ("65.08, rank 5,879", "64.35, rank 6,634"),
    ("wt2", "gss"): ("65.07, rank 9,130", "64.50, rank 10,122"),
    ("wt2", "lms-plif"): ("65.59", "64.16, rank 524"),
}
"""Test perplexity and rank under NT-ASGD and under ET-ASGD: Parthiban et al. 2021, their supplement's tables 10, 11."""


@pytest.mark.parametrize(("corpus", "head"), STUDY)
def test_the_studys_settings_and_numbers(corpus: str, head: str) -> None:
    """Table 6 of the supplement; the number that comes first is that of the trigger that the preset trains with."""
    preset = find(f"{corpus}-{head}")
    backbone, training = preset.config.model.backbone.settings, preset.config.training
    rate, dropout, k = {"ptb": (20.0, 0.3, 2.5), "wt2": (30.0, 0.2, 3.0)}[corpus]
    assert (training.optimizer.learning_rate, backbone["dropout_hidden"]) == (rate, dropout)
    assert (training.averaging.start, training.averaging.interval) == ("non-monotone", 5)
    by_epoch = override(preset.config, ["training.averaging.start=epoch"]).training.averaging
    assert (by_epoch.start, by_epoch.epoch) == ("epoch", 200)
    model = LanguageModel(preset.config.model, vocab_size=20)
    if head == "gss":
        assert (model.head.settings["c"], model.head.settings["k"]) == (-1.5, k)
    if head == "lms-plif":
        (slopes,) = model.head.parameter_settings()
        assert rate * slopes.learning_rate_factor == pytest.approx(0.02)
    by_trigger, by_epoch_200 = STUDY[corpus, head]
    assert preset.expected.startswith(f"published: test {by_trigger}")
    perplexity, rank = by_epoch_200.split(", ")
    assert re.search(rf"start=epoch\) test {perplexity}( ± \S+)?, {rank}\b", preset.expected)
    assert ("33,320 contexts" in preset.expected) == (corpus == "wt2")


def test_wikitexts_mixtures_work_in_parts_of_five_columns() -> None:
    """As ``small_batch_size`` of the MoS authors' command for WikiText-2 has it; theirs for Penn Treebank has none."""
    parts = {name: preset.config.training.micro_batch_size for name, preset in PRESETS.items()}
    mixtures = {"wt2-moc", "wt2-mos", "wt2-mos-plif", "wt2-softmax-mos-settings"}
    assert {name: size for name, size in parts.items() if size is not None} == dict.fromkeys(mixtures, 5)


def test_all_of_a_family_have_one_trigger() -> None:
    for family in ("ptb", "wt2"):
        averaging = [preset.config.training.averaging for preset in PRESETS.values() if preset.family == family]
        assert len(set(averaging)) == 1


def test_the_readme_has_what_every_preset_of_the_papers_expects() -> None:
    rows = dict(re.findall(r"^\| ((?:ptb|wt2|text8|1b)-\S+) +\|[^|]*\| ([^|]*?) +\|", PAGE, re.MULTILINE))
    of_papers = {name: preset for name, preset in PRESETS.items() if preset.family in ("ptb", "wt2", "text8", "1b")}
    assert rows.keys() == of_papers.keys()
    for name, preset in of_papers.items():
        assert preset.expected.removeprefix("published: ") == rows[name]


SIBLINGS = [("demo", 2650), ("ptb-small", 10_000), ("ptb-small-awd", 10_000), ("ptb-small-nt-asgd", 10_000)]


@pytest.mark.parametrize(("family", "vocab_size"), SIBLINGS)
def test_siblings_are_about_equal_in_size(family: str, vocab_size: int) -> None:
    """Within a tenth of the plain softmax, apart from PLIF's own knots; nothing else differs between them."""
    sizes = {}
    for preset in PRESETS.values():
        if preset.family == family:
            parameters = preset.parameters(vocab_size)
            assert parameters is not None
            sizes[preset.head] = parameters - preset.config.model.head.settings.get("knots", 0)
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
    with pytest.raises(ConfigurationError, match="unknown preset 'ptb-mo'; known presets are demo-softmax"):
        find("ptb-mo")
