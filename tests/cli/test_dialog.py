"""A dialog model from archive to table: every command on an encoder-decoder, and one sentence for what it cannot do."""

from __future__ import annotations

import contextlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from softmax_bottleneck import corpora
from softmax_bottleneck.cli import main
from softmax_bottleneck.figures import find, read
from softmax_bottleneck.language_models import open_run
from softmax_bottleneck.language_models.reading import Pairs
from softmax_bottleneck.training import PRESETS

from .conftest import Bottleneck, values_of

SMALLER = (
    "training.batch_size=4", "training.epochs=3", "backbone.line_size=4", "backbone.context_size=6",
    "backbone.hidden_size=8", "backbone.embedding_size=5", "head.embedding_size=5", "training.optimizer.warmup_steps=2",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(talks: Mapping[str, list[list[tuple[str, str]]]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``swda.zip``, and runs of the small presets on it."""
    folder = tmp_path_factory.mktemp("dialog")
    with zipfile.ZipFile(folder / "swda.zip", "w") as archive:
        for name, split in (("train", "train"), ("val", "valid"), ("test", "test")):
            for number, talk in enumerate(talks[split]):
                lines = "".join(f"{who}|{words.replace(' ', ' , ')}|sd\n" for who, words in talk)
                archive.writestr(f"swda_data/{name}/{number}.txt", lines)
    settings = [word for setting in SMALLER for word in ("--set", setting)]
    with contextlib.chdir(folder):
        commands = [["data", "get", "switchboard", "--from", "swda.zip"]]
        commands += [
            ["train", "--preset", f"switchboard-small-{head}", *settings, "--out", head] for head in ("softmax", "mos")
        ]
        for command in commands:
            done = CliRunner(env={"SOFTMAX_BOTTLENECK_CACHE": str(folder / "cache")}).invoke(main, command)
            assert done.exit_code == 0, done.output
    return folder


@pytest.fixture
def bottleneck(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Bottleneck:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SOFTMAX_BOTTLENECK_CACHE", str(folder / "cache"))
    return lambda *words: CliRunner().invoke(main, [*map(str, words)])


def test_from_the_archive_to_the_table(bottleneck: Bottleneck, folder: Path) -> None:
    corpus = corpora.load("switchboard")
    rows = len(Pairs(corpus, "test", lines=10, at_once=64).places)

    scores = values_of(bottleneck("eval", "mos", "--bleu", "--json", "-"))
    assert (scores["tokens"], scores["head"], scores["seed"], scores["embedding_size"]) == (rows, "mos", 0, 5)
    assert "BLEU-1 precision" in bottleneck("eval", "softmax", "--bleu", "--answers", 3).output
    # The rows of the matrix are the tokens that the perplexity is of.
    bottleneck("dump", "mos", "--out", "mos.zarr")
    compared = values_of(bottleneck("compare", "mos", "softmax", "--json", "-"))
    assert compared["contexts"] == rows
    assert compared["nll"][0] == pytest.approx(scores["loss"], rel=1e-5)
    assert bottleneck("kld", "mos.zarr", "--json", "-").stdout.count(f'"contexts": {rows}') == 1
    for name, bound in (("softmax", {"raw": 7, "centered": 6}), ("mos", {"raw": None, "centered": None})):
        report = values_of(bottleneck("rank", name, "--json", "-"))
        assert report["contexts"] == rows
        assert {key: report["bound"][key] for key in bound} == bound
        assert report["rank"]["value"] <= (bound["raw"] or rows)
        assert values_of(bottleneck("gradient", name, "--sample", 4, "--json", "-"))["contexts"] == rows

    results = folder / "results" / "switchboard-small"
    results.mkdir(parents=True)
    for seed in (0, 1):
        (results / f"mos{f'-{seed}' if seed else ''}.json").write_text(json.dumps({**scores, "seed": seed}))
    table = find("mos-table-4").compute(read(folder / "results"))
    measured = table[(table["kind"] == "measured") & (table["row"] == "MoS, d = 5 (switchboard-small)")]
    found = dict(zip(measured["column"], measured["text"], strict=True))
    assert found["perplexity"] == f"{scores['perplexity']:.2f} ± 0.00"
    mean = scores["bleu"]["scores"]["BLEU-3 recall"]["mean"]
    assert found["BLEU-3 recall"] == f"{mean:.3f} ± 0.000"


def test_rows_asked_for_in_any_way_have_the_same_bits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTMAX_BOTTLENECK_CACHE", str(folder / "cache"))
    source = open_run(folder / "mos", split="train")
    (whole,) = source.hidden([range(source.contexts)])
    half, end = source.contexts // 2, source.contexts
    places = [range(half, end - 5), range(end - 3, end - 2), range(0, 3), range(2, end)]
    for rows, hidden in zip(places, source.hidden(places), strict=True):
        assert np.array_equal(hidden.detach().numpy(), whole[rows.start : rows.stop].detach().numpy())
    first = open_run(folder / "mos", split="train").first(40)
    assert np.array_equal(first.targets, source.targets[:40])


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("eval", "mos", "--dynamic"), 1, "dynamic evaluation scores one stream"),
        (("eval", "mos", "--cache"), 1, "cache evaluation scores one stream"),
        (("eval", "mos", "--bleu", "--cache"), 2, "--bleu goes with neither --dynamic nor --cache"),
        (("eval", "mos", "--answers", "3"), 2, "--answers goes with --bleu"),
        (("eval", "kn2:switchboard", "--bleu"), 1, "bleu is for runs, and kn2:switchboard is not one"),
        (("rank", "mos", "--extended", "20,5"), 1, "needs a model that continues any tokens: give one"),
        (("rank", "mos", "--contexts", "100000"), 1, "contexts must be between 1 and"),
        (("rank", "mos", "--split", "dev"), 2, "'dev'"),
    ],
)  # fmt: skip
def test_one_sentence_for_what_it_cannot_do(
    words: tuple[str, ...], code: int, said: str, bottleneck: Bottleneck
) -> None:
    result = bottleneck(*words)
    assert result.exit_code == code, result.output
    assert said in " ".join(result.output.replace("│", " ").split())


def test_within_a_family_the_numbers_of_parameters_are_equal() -> None:
    for family in ("switchboard", "switchboard-small"):
        sizes = {name: PRESETS[f"{family}-{name}"].parameters(10_000) for name in ("softmax", "moc", "mos")}
        assert sizes["moc"] == sizes["mos"]
        assert sizes["softmax"] == pytest.approx(sizes["mos"], rel=2e-3)
