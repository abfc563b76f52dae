"""Intervals of means over neighbouring contexts hold the truth as often as they say."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from scipy.signal import lfilter
from scipy.special import log_softmax
from scipy.stats import beta, binomtest, norm, ttest_rel
from scipy.stats import t as student

from softmax_bottleneck import compare, kld
from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.measure.comparison import Comparison
from softmax_bottleneck.measure.divergences import ByContext
from softmax_bottleneck.measure.standard_errors import (
    Sampling,
    autocorrelation_time,
    block_starts,
    half_width,
    standard_error,
)
from softmax_bottleneck.measure.statistic_texts import table_cells

ADVANTAGE = 0.2
"""Share of the variance that a text's own level has."""


def correlated(rng: np.random.Generator, n: int, rho: float) -> np.ndarray:
    """Return exp of a Gaussian AR(1) process: skewed, as losses are, with mean e^½."""
    steps = math.sqrt(1 - rho**2) * rng.standard_normal(n)
    start = rng.standard_normal()
    return np.exp(lfilter([1], [1, -rho], steps, zi=[rho * start])[0])


def share_held(draws: list[tuple[np.ndarray, np.ndarray | None]], truth: float) -> tuple[float, float]:
    """Return how often the 95 % intervals hold the truth: those over blocks, and those of independent contexts."""
    held = naive = 0
    for values, texts in draws:
        starts, off = block_starts([values], texts), abs(values.mean() - truth)
        held += off <= half_width(len(starts)) * standard_error(values, starts)
        naive += off <= 1.96 * values.std(ddof=1) / math.sqrt(len(values))
    return held / len(draws), naive / len(draws)


@pytest.mark.parametrize(("rho", "worst"), [(0.0, 0.97), (0.5, 0.85), (0.8, 0.6)])
def test_neighbouring_contexts(rho: float, worst: float) -> None:
    rng = np.random.default_rng(3)
    held, naive = share_held([(correlated(rng, 2000, rho), None) for _ in range(400)], math.exp(0.5))
    assert 0.92 <= held <= 0.98
    assert naive < worst


def test_long_parts_of_one_text_differ() -> None:
    """Articles of about 2,000 tokens, whose means differ by a fifteenth of one token's deviation: no lag shows that."""
    rng, draws = np.random.default_rng(5), []
    for _ in range(200):
        ends = np.cumsum(rng.exponential(2000, 60) + 100).astype(int)
        article = np.searchsorted(ends, np.arange(31_000), side="right")
        draws.append((0.01 * rng.standard_normal(60)[article] + 0.15 * rng.exponential(size=31_000), None))
    held, naive = share_held(draws, 0.15)
    assert held >= 0.7
    assert naive < 0.5


def test_texts_of_their_own_level() -> None:
    rng, draws = np.random.default_rng(4), []
    for _ in range(400):
        lengths = rng.integers(5, 60, 40)
        levels = np.repeat(math.sqrt(ADVANTAGE) * rng.standard_normal(40), lengths)
        values = np.exp(levels + math.sqrt(1 - ADVANTAGE) * rng.standard_normal(lengths.sum()))
        draws.append((values, np.append(0, np.cumsum(lengths)[:-1])))
    held, naive = share_held(draws, math.exp(0.5))
    assert 0.92 <= held <= 0.98
    assert naive < 0.8


@pytest.mark.parametrize("lengths", [[3000, *[10] * 12], [*[10] * 10, 3000], [1000, 1000, *[20] * 20]])
def test_a_text_of_most_contexts(lengths: list[int]) -> None:
    """Its deviation from the mean is nearly minus that of the others: whole texts would give too small an error."""
    starts, held = np.append(0, np.cumsum(lengths)[:-1]), 0
    for seed in range(300):
        values = np.random.default_rng(seed).exponential(size=sum(lengths))
        sampling = Sampling.of([values], starts)
        error = standard_error(values[sampling.order], sampling.starts)
        held += abs(values.mean() - 1) <= half_width(sampling.blocks) * error
    assert 0.92 <= held / 300 <= 0.98


def test_pieces_of_a_real_text() -> None:
    """Divergences of two n-gram models on Python's documentation: forty pieces of 32 tokens, drawn from all."""
    kl = compare("kn3:python-docs", "kn2:python-docs", contexts=960, examples=0).by_context["kl"]
    pieces = kl[: len(kl) // 32 * 32].reshape(-1, 32)
    rng, texts = np.random.default_rng(0), np.arange(0, 40 * 32, 32)
    chosen = [pieces[rng.choice(len(pieces), 40)].ravel() for _ in range(400)]
    held, naive = share_held([(values, texts) for values in chosen], pieces.mean())
    assert 0.92 <= held <= 0.98
    assert naive < 0.85


def test_a_standard_error_is_that_of_block_means() -> None:
    """Blocks of one length: the standard error of the mean of their means."""
    values = np.random.default_rng(1).standard_normal(120)
    means = values.reshape(12, 10).mean(1)
    assert standard_error(values, np.arange(0, 120, 10)) == pytest.approx(means.std(ddof=1) / math.sqrt(12))
    assert standard_error(values, np.arange(120)) == pytest.approx(values.std(ddof=1) / math.sqrt(120))
    assert math.isnan(standard_error(values, np.zeros(1, dtype=np.int64)))
    assert half_width(12) == pytest.approx(student.ppf(0.975, 11))


def test_the_time_of_an_autoregression() -> None:
    values = np.log(correlated(np.random.default_rng(0), 200_000, 0.8))
    assert autocorrelation_time(values, 20_000) == pytest.approx((1 + 0.8) / (1 - 0.8), rel=0.1)
    assert autocorrelation_time(np.ones(50), 5) == 1


def models(size: dict[str, float]) -> dict[str, Any]:
    """Return logits of a reference and models that are off by so much, and by the same errors."""
    rng = np.random.default_rng(0)
    logits, errors = rng.standard_normal((400, 8)) @ rng.standard_normal((8, 60)), rng.standard_normal((400, 60))
    return {"base": logits, **{name: logits + each * errors for name, each in size.items()}}


def test_models_are_told_apart_by_their_differences() -> None:
    """Where all errors are 1 % larger every context is farther, though the intervals of both models overlap."""
    found = compare(models({"far": 0.5, "near": 0.1, "nearly": 0.101}), kind="logits", examples=0)
    assert [each.name for each in found.ordered()] == ["near", "nearly", "far"]
    near, nearly, far = (found[name] for name in ("near", "nearly", "far"))
    assert near.farther is None
    assert nearly.farther.than == "near"
    assert far.farther.than == "nearly"
    assert nearly.farther.is_sure
    assert nearly.statistics["kl"].end(-1, nearly.blocks) < near.statistics["kl"].end(1, near.blocks)
    difference = nearly.by_context["kl"] - near.by_context["kl"]
    assert nearly.farther.kl.value == pytest.approx(difference.mean())
    assert found.verdict.startswith("near is closest to base: the same token is the likeliest in 9")
    rng, logits = np.random.default_rng(1), models({})["base"]
    alike = {name: logits + 0.1 * rng.standard_normal(logits.shape) for name in ("a", "b")}
    found = compare({"base": logits, **alike}, kind="logits", examples=0)
    assert str(found.ordered()[1].farther) == f"as close as {found.ordered()[0].name}"
    assert "whose KL(P‖Q) cannot be told apart, are closest to base" in found.verdict


def test_the_verdict_gives_the_agreement_of_all_models_that_it_names() -> None:
    """Their intervals of KL(P‖Q) may overlap where a reference shows a part of each distribution."""
    every = compare(models({"far": 0.5, "near": 0.1}), kind="logits", examples=0).ordered()
    near, far = (table_cells(each.statistics)["same top token"] for each in every)
    apart = replace(every[1], farther=replace(every[1].farther, is_closest=True))
    verdict = type(every)([every[0], apart]).verdict
    assert verdict.startswith("near and far, whose KL(P‖Q) cannot be told apart, are closest to base: ")
    assert f"is the likeliest in {far} to {near} of 400 contexts" in verdict


def test_models_are_as_close_as_the_closest_one_and_not_as_their_neighbours() -> None:
    """Each of ten models cannot be told from the next one, and a test in pairs tells the last from the first."""
    rng, logits = np.random.default_rng(0), np.random.default_rng(1).standard_normal((400, 30))
    some = {f"m{n}": logits + (0.3 + 0.004 * n) * rng.standard_normal(logits.shape) for n in range(10)}
    found = compare(logits, some, kind="logits", examples=0)
    order = found.ordered()
    tests = [ttest_rel(each.by_context["kl"], order[0].by_context["kl"]).pvalue for each in order[1:]]
    said = found.verdict.partition(", whose KL(P‖Q) cannot be told apart, are")[0]
    expected = [each.name for each, p in zip(order[1:], tests, strict=True) if p > 0.05 / 45]  # of all pairs
    assert said.replace(" and ", ", ").split(", ") == [order[0].name, *expected]


def test_one_context_that_holds_a_tenth_is_named() -> None:
    rng = np.random.default_rng(0)
    logits = 0.1 * rng.standard_normal((200, 20))
    far, near = logits.copy(), logits + 0.01 * rng.standard_normal(logits.shape)
    far[7, 3] += 5
    assert "one context holds 100 % of KL" in " ".join(compare(logits, far, kind="logits").notes)
    assert not compare(logits, near, kind="logits").notes[1:]
    drawn = [str(kld(each, kind="logits", pairs=300)) for each in (far, logits)]
    assert ["of the sum: the standard error may be too small" in each for each in drawn] == [True, False]


def test_of_ten_equal_models_none_is_farther() -> None:
    """In pairs some would be told from the one that happens to be closest in six of ten draws."""
    apart = 0
    for seed in range(30):
        rng, logits = np.random.default_rng(seed), np.random.default_rng(1).standard_normal((300, 12))
        some = {f"m{n}": logits + 0.3 * rng.standard_normal(logits.shape) for n in range(10)}
        apart += any(each.farther and not each.farther.is_closest for each in compare(logits, some, kind="logits"))
    assert apart <= 3


def test_the_difference_of_two_models_counts_whole_texts(tmp_path: Path) -> None:
    """Each model has an error of its own in each of sixteen texts: the standard error is that of means of two texts."""
    rng, tokens = np.random.default_rng(0), np.random.default_rng(1).integers(10, size=1024)
    hidden, head = rng.standard_normal((1024, 6)), {"weight": rng.standard_normal((10, 6)).astype(np.float32)}
    about = {"format": "softmax-bottleneck states 1", "model": "m", "text": "t", "dtype": "float32", "norm": None}
    about |= {"starts": list(range(0, 1024, 64)), "contexts": 1024}
    for name in ("P", "A", "B"):
        if name != "P":
            rows = hidden + np.repeat(rng.random((16, 1)) + 0.1, 64, 0) * rng.standard_normal(hidden.shape)
        else:
            rows = hidden
        (tmp_path / name / "hidden").mkdir(parents=True)
        states = {"hidden_states": rows.astype(np.float32), "token_ids": tokens, "targets": np.roll(tokens, -1)}
        save_file(states, tmp_path / name / "hidden" / "00000.safetensors")
        save_file(head, tmp_path / name / "head.safetensors")
        (tmp_path / name / "states.json").write_text(json.dumps(about))
    closer, farther = compare([str(tmp_path / name) for name in "PAB"], examples=0).ordered()
    means = (farther.by_context["kl"] - closer.by_context["kl"]).reshape(8, 128).mean(1)
    assert farther.farther.kl.standard_error == pytest.approx(means.std(ddof=1) / math.sqrt(8), rel=1e-3)


def test_one_context_tells_no_models_apart() -> None:
    found = compare({name: each[:1] for name, each in models({"near": 0.1, "far": 0.5}).items()}, kind="logits")
    assert "whose KL(P‖Q) cannot be told apart" in found.verdict
    assert (
        json.loads(json.dumps(found.to_dict(), allow_nan=False))["results"][1]["farther"]["kl"]["standard_error"]
        is None
    )


@pytest.mark.parametrize("names", ["AB", "BA"])
def test_no_model_of_infinite_divergence_is_closest(names: str, tmp_path: Path) -> None:
    """Each misses a token of the reference in each context, and all the same the curves are drawn."""
    P = models({})["base"]
    masked = {name: np.where(np.arange(60) == number, -np.inf, P) for number, name in enumerate(names)}
    found = compare(P, masked, kind="logits", examples=0)
    assert found.verdict == "no model is closest to array, because KL(P‖Q) is infinite for all of them"
    found.plot(tmp_path / "kl.png")
    assert found[0].plot().get_xlim() == (1, 10)


def test_models_of_other_vocabularies_are_ranked_on_their_own_tokens() -> None:
    P = models({})["base"]
    found = compare(P, {"short": P[:, :50] + 0.01, "long": P + np.arange(60) % 2}, kind="logits", examples=0)
    assert "short is closest to array, over the tokens that each shares with it (50 to 60):" in found.verdict


def test_several_models_may_stand_beside_the_reference() -> None:
    rng = np.random.default_rng(0)
    P = rng.standard_normal((30, 20))
    models = {"near": P + 0.1 * rng.standard_normal(P.shape), "far": P + rng.standard_normal(P.shape)}
    found = compare(P, models, kind="logits")
    assert [each.name for each in found.ordered()] == ["near", "far"]
    assert found["near"].verdict == compare(P, models["near"], kind="logits").verdict != ""
    with pytest.raises(ConfigurationError, match="a model has the label of the reference"):
        compare(P, {"array": P}, kind="logits")


def test_a_limit_is_kept_by_the_end_of_the_interval() -> None:
    few = {name: each[:40] for name, each in models({"near": 0.1, "far": 0.5}).items()}
    kl = compare(few["base"], few["near"], kind="logits").statistics["kl"]
    found = compare(few, kind="logits", max_kl=kl.value + 1e-5, min_agreement=0.5)
    assert [limit.passed for limit in found["near"].limits] == [False, True]  # the interval ends above the limit
    assert found.verdict.startswith("none passes; near is closest")
    found = compare(few, kind="logits", max_kl=2 * kl.value)
    assert found["near"].passed
    assert not found["far"].passed
    assert found.verdict.startswith("near passes and is closest")
    assert str(found["far"]).lstrip().startswith("verdict  failed: KL(P‖Q)")
    assert found.to_dict()["results"][1]["limits"][0]["passed"] is False


def nearly_alike(contexts: int) -> np.ndarray:
    """Return contexts with one likeliest token of two, all of them different."""
    p = 0.6 + 1e-6 * np.arange(contexts)
    return np.log(np.stack([p, 1 - p], 1))


@pytest.mark.parametrize(("contexts", "passed"), [(1, False), (20, False), (180, False), (200, True)])
def test_a_few_contexts_that_all_agree_do_not_prove_much(contexts: int, passed: bool) -> None:
    P = nearly_alike(contexts)
    (limit,) = compare(P, P, min_agreement=0.98).limits
    assert limit.passed is passed
    assert limit.end is None or limit.end == pytest.approx(1 / (1 + student.ppf(0.975, contexts - 1) ** 2 / contexts))


def test_the_interval_of_an_agreement_is_wilsons() -> None:
    """Its end L solves (p − L)² = z² L(1 − L)/n: the share differs from L by z standard errors at L."""
    P = nearly_alike(50)
    Q = np.where((np.arange(50) % 17 == 3)[:, None], P[:, ::-1], P)
    (limit,) = (found := compare(P, Q, min_agreement=0.8)).limits
    share, error = found.statistics["same_top"].value, found.statistics["same_top"].standard_error
    z = student.ppf(0.975, found.blocks - 1)
    n = share * (1 - share) / error**2
    assert (share - limit.end) ** 2 == pytest.approx(z**2 * limit.end * (1 - limit.end) / n)
    assert (share, limit.end, limit.passed) == (0.94, pytest.approx(0.8316, abs=2e-3), True)


def agreed(same: np.ndarray, error: float = 0.0, blocks: int = 16) -> tuple[float, float]:
    """Return the share of contexts that surely agree, of texts of one length, and the end of its interval."""
    found = ByContext(same, np.full(len(same), error), starts=np.arange(0, len(same), len(same) // blocks)).mean()
    paths = ({"path": "P", "kind": "matrix"}, {"path": "Q", "kind": "matrix"})
    comparison = Comparison(paths, len(same), None, (), (), statistics={"same_top": found}, blocks=blocks)
    (limit,) = comparison.judged({"same_top": 0.5}).limits
    return found.value - found.roundoff, limit.end or 0.0


def test_the_end_of_an_agreement_grows_with_it() -> None:
    """All of n contexts of sixteen texts prove as much as n independent draws (Clopper 1934)."""
    ends = []
    for count in range(0, 40):
        same = np.ones(1024)
        same[np.arange(count) * 67 % 1024] = 0.0
        ends.append(agreed(same)[1])
    assert np.all(np.diff(ends) < 0)
    assert 1 - 5 / 1024 < ends[0] < beta.ppf(0.025, 1024, 1)
    assert ends[16] < beta.ppf(0.025, 1024 - 16, 17)  # one in each text


@pytest.mark.parametrize("rho", [0.0, 0.8])
@pytest.mark.parametrize("rate", [0.001, 0.004, 0.02])
def test_an_agreement_of_dependent_contexts(rate: float, rho: float) -> None:
    """They agree where an autoregression exceeds a threshold: the end is below the truth as often as it says."""
    rng = np.random.default_rng(5)
    draws = (np.log(correlated(rng, 1024, rho)) > norm.ppf(rate) for _ in range(300))
    assert np.mean([agreed(same.astype(float))[1] <= 1 - rate for same in draws]) > 0.93


def test_a_tie_is_not_sampling_noise() -> None:
    """Likeliest tokens too close to call are taken as other ones: what is left is a share of its own (Wilson 1927)."""
    rng = np.random.default_rng(0)
    same, is_open = np.ones(1000), rng.random(1000) < 0.086
    logits = np.stack([np.full(1000, 4.0), 4.0 * is_open, -np.arange(1000) / 1e3], 1).astype(np.float32)
    (limit,) = compare(logits, logits, kind="logits", min_agreement=0.5).limits
    sure = binomtest(int((same - is_open).sum()), 1000).proportion_ci(0.95, method="wilson").low
    assert limit.end == pytest.approx(sure, abs=1e-3)


def test_a_temperature_divides_the_logits_of_both_and_the_floor_is_the_next_narrower_type() -> None:
    both = models({"near": 0.1})
    base, near = both.values()
    warm = compare(base, near, kind="logits", temperature=2.0, examples=0)
    by_hand = compare(base / 2, near / 2, kind="logits", examples=0)
    assert warm.statistics["kl"].value == pytest.approx(by_hand.statistics["kl"].value, rel=1e-12)
    assert "both at temperature 2" in warm.notes
    single = [log_softmax(each, axis=1).astype("float32") for each in (base, near)]
    found = compare(*single, floor=True, examples=0)
    rounded = compare(single[0], single[0].astype("float16"), examples=0)
    assert found.statistics["kl_floor"].value == pytest.approx(rounded.statistics["kl"].value, rel=1e-3)
    refused: dict[str, dict[str, Any]] = {
        "max_kl must be at least 0 and finite, not -1.0": {"max_kl": -1.0},
        "min_agreement must be at least 0 and at most 1, not 98.0": {"min_agreement": 98.0},
        "which tokens follow is unknown, so leave out max_ppl_ratio": {"max_ppl_ratio": 1.01},
        "temperature must be at least 0.001 and at most 1000, not 1e-05": {"temperature": 1e-5},
    }
    for said, options in refused.items():
        with pytest.raises(ConfigurationError, match=said):
            compare(base, near, kind="logits", **options)


@pytest.mark.parametrize("temperature", [0.01, 10.0, 100.0])
def test_the_rank_of_a_difference_is_that_of_every_temperature(temperature: float) -> None:
    """Log-probabilities over a number have the rank that the matrix was made with, and are no truncation."""
    rng = np.random.default_rng(0)
    P, change = 40 * rng.standard_normal((200, 100)), rng.standard_normal((200, 3)) @ rng.standard_normal((3, 100))
    both = [log_softmax(each, axis=1).astype("float32") for each in (P, P + 0.01 * change)]
    found = compare(*both, temperature=temperature, examples=0)
    assert found.difference == compare(*both, examples=0).difference
    assert found.difference.rank.low <= 3 <= found.difference.rank.high
    assert not any("leaves out" in note for note in found.notes)


def test_the_size_on_disk_names_the_smallest_that_passes(runs: dict[str, Path], tmp_path: Path) -> None:
    """Other formats and the state of a training beside the weights do not count."""
    copy = shutil.copytree(runs["softmax"], tmp_path / "copy")
    for name in ("pytorch_model.bin", "training_args.bin"):
        (copy / name).write_bytes(bytes(10**6))
    found = compare([str(runs["softmax"]), str(runs["mos"]), str(copy)], max_kl=50.0, contexts=50)
    sizes = [each.sources[1]["bytes"] for each in found]
    assert sizes == [(runs[name] / "model.safetensors").stat().st_size for name in ("mos", "softmax")]
    assert found.verdict.startswith(
        f"{found[1].name} is the smallest of 2 models that pass ({found[1].name}, {found[0].name}); "
    )
    moved = shutil.copytree(runs["softmax"], tmp_path / "moved")
    found = compare([str(runs["softmax"]), str(moved), str(copy)], max_kl=50.0, contexts=50)
    assert " pass; " in found.verdict.partition(", whose KL(P‖Q) cannot be told apart, are closest")[0]
    assert "smallest" not in found.verdict  # of equal size
