"""``bottleneck eval`` beyond the plain perplexity: dynamic evaluation, the cache, n-gram models."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

import softmax_bottleneck as sb
from softmax_bottleneck import corpora
from softmax_bottleneck.evaluation import Dynamic, dynamic_evaluate, gradient_statistics, tune_cache
from softmax_bottleneck.language_models import checkpoint

from .conftest import Bottleneck, values_of

RUN = "demo/runs/mos"


def test_dynamic(world: Path, bottleneck: Bottleneck, folder_corpus: Path) -> None:
    """The statistics are of the text that the run was trained on, whatever text is evaluated."""
    run, text = checkpoint.load(RUN), corpora.load(folder_corpus)
    statistics = gradient_statistics(run.model, text.split("train"))
    settings = Dynamic(learning_rate=0.01, decay=0.02, epsilon=0.001)
    expected = dynamic_evaluate(run.model, text.split("test"), statistics, settings)
    Path("other").mkdir()
    for split, source in {"train": "test", "valid": "valid", "test": "test"}.items():
        Path(f"other/{split}.txt").write_bytes((folder_corpus / f"{source}.txt").read_bytes())
    for data in ((), ("--data", "other")):
        values = values_of(bottleneck("eval", RUN, "--dynamic", "--learning-rate", "0.01", *data, "--json", "-"))
        assert values["loss"] == pytest.approx(expected.loss, rel=1e-6)
        assert (values["how"], values["settings"]) == ("dynamic", asdict(settings))
    assert Path(RUN, "gradient_statistics.safetensors").exists()
    assert bottleneck("doctor", RUN).exit_code == 0  # the file beside the run's own is not damage


def test_a_cache_is_not_tuned_on_the_text_it_scores(world: Path, bottleneck: Bottleneck, folder_corpus: Path) -> None:
    """But on the validation split of the run's own corpus, where the text has none."""
    run, text = checkpoint.load(RUN), corpora.load(folder_corpus)
    tuned = tune_cache(run.model, text.split("valid"))
    Path("text.txt").write_bytes((folder_corpus / "test.txt").read_bytes())
    for split in ("test", "valid"):
        done = bottleneck("eval", RUN, "--cache", "--data", "text.txt", "--split", split, "--json", "-")
        assert values_of(done)["settings"] == {**asdict(tuned), "chosen_on": f"valid of {text.name}"}


PUBLISHED = {
    ("mos", "ptb"): (0.075, 0.001),
    ("mos", "wikitext-2"): (0.02, 0.002),
    ("softmax", "ptb"): (0.02, 0.001),
    ("softmax", "wikitext-2"): (0.02, 0.001),
}
"""λ and ε: Yang et al. 2018, table 9; the commands in the code of Krause et al. 2018. η is 0.002."""


@pytest.mark.parametrize(("head", "corpus"), PUBLISHED)
def test_defaults_are_those_of_the_published_numbers(
    head: str, corpus: str, world: Path, bottleneck: Bottleneck, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the run's head and the name of the corpus."""
    decay, epsilon = PUBLISHED[head, corpus]
    settings = Dynamic(learning_rate=0.002, decay=decay, epsilon=epsilon)
    run = checkpoint.load(f"demo/runs/{head}")
    text = replace(checkpoint.corpus_of(run), name=corpus)
    monkeypatch.setattr("softmax_bottleneck.language_models.run.corpus_of", lambda *_, **__: text)
    assert values_of(bottleneck("eval", run.path, "--dynamic", "--json", "-"))["settings"] == asdict(settings)
    if head == "mos":
        window = sb.perplexity(run, how="cache").settings["window"]
        assert window == {"ptb": 500, "wikitext-2": 3785}[corpus]
