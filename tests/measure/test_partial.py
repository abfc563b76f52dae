"""References of which a part is unseen: intervals against their vertices and the truth."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import linprog, minimize
from scipy.special import rel_entr

from softmax_bottleneck import compare, kld, rank
from softmax_bottleneck.errors import BottleneckError, MatrixError, SourceError
from softmax_bottleneck.measure import intervals
from softmax_bottleneck.measure.divergences import ByContext, Distributions, statistics
from softmax_bottleneck.measure.intervals import interval_divergences
from softmax_bottleneck.sources import Part, open_source

Matrix = NDArray[np.float64]
Write = Callable[..., Path]


def normalized(logits: Matrix) -> Matrix:
    return np.asarray(logits - np.logaddexp.reduce(logits, 1, keepdims=True))


def divergence(name: str, p: Matrix, q: Matrix) -> Any:
    middle = (p + q) / 2
    return {
        "kl": rel_entr(p, q).sum(-1),
        "jsd": (rel_entr(p, middle) + rel_entr(q, middle)).sum(-1) / 2,
        "tv": np.abs(p - q).sum(-1) / 2,
    }[name]


@pytest.mark.parametrize("case", ["spread", "heavy", "ties", "infinite", "all", "none"])
def test_the_last_full_token_is_that_of_a_sort(case: str) -> None:
    rng = np.random.default_rng(5)
    for count in (3, 511, 512, 5000):
        slope, width = rng.standard_normal(count), rng.random(count) ** (40 if case == "heavy" else 1)
        if case == "ties":
            slope = slope.round(1)
        if case == "infinite":
            slope[: count // 3] = np.inf
        for share in {"all": (2.0,), "none": (0.0,)}.get(case, (1e-6, 0.3, 0.7, 1 - 1e-6)):
            total = share * width.sum()
            order = np.argsort(-slope, kind="stable")
            expected = slope[order][min(int((np.cumsum(width[order]) < total).sum()), count - 1)]
            assert intervals._last(slope, width, total) == expected


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["kl", "jsd", "tv"])
def test_an_interval_ends_at_its_extremes(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.ones(7), 2)
    log_p = np.log(p)
    seen = np.arange(7) < 4
    ceiling = np.log(p[4:].max() * 1.3)
    log_p[4:] = ceiling
    error = 0.05
    zeros = np.zeros((1, 7))
    part = Part(0, log_p[None], seen[None], np.full((1, 1), error))
    rows = Distributions(np.log(q)[None], q[None], zeros)
    middle, half = interval_divergences(part, rows, None, is_llama_cpp=False)[name][:, 0]
    low, high = np.where(seen, np.exp(log_p - error), 0.0), np.exp(log_p + error)
    ends = [divergence(name, np.diag(each) + q - np.diag(q), q) for each in (low, high)]  # one token's own terms
    slopes = (ends[1] - ends[0]) / (high - low)
    chords = linprog(-slopes, A_eq=np.ones((1, 7)), b_eq=[1], bounds=list(zip(low, high, strict=True)))
    assert middle + half == pytest.approx((ends[0] - slopes * low).sum() - chords.fun, rel=1e-9)
    to_sum = {"type": "eq", "fun": lambda x: x.sum() - 1}
    how: dict[str, Any] = {"method": "SLSQP", "constraints": to_sum, "options": {"ftol": 1e-14, "maxiter": 500}}
    least = minimize(lambda x: divergence(name, x, q), p, bounds=[*zip(low, high, strict=True)], **how).fun
    assert middle - half <= least + 1e-9
    assert middle - half == pytest.approx(least, abs=2e-4 if name == "tv" else 1e-6)  # SLSQP stops at TV's edges
    assert least < divergence(name, p, q) <= middle + half


def test_a_root_mean_square_of_intervals_is_that_of_their_nearest_and_farthest_ends() -> None:
    low, high = np.array([-3.0, -1.0, 2.0]), np.array([1.0, -0.5, 4.0])
    found = ByContext((low + high) / 2, (high - low) / 2, is_interval=True).root_mean_square()
    nearest, farthest = (np.sqrt(np.square(each).mean()) for each in ([0, 0.5, 2], [3, 1, 4]))
    ends = found.value - found.roundoff, found.value + found.roundoff
    assert ends == pytest.approx((nearest, farthest))


@pytest.mark.parametrize("name", ["mean", "quantile", "root_mean_square", "perplexity_ratio"])
def test_both_ends_of_an_interval_have_a_sampling_error(name: str) -> None:
    """Intervals from 0 to a random number: how often one end of the 95 % interval leaves the true upper end out."""
    rng, above = np.random.default_rng(7), []
    draws = rng.gamma(1.0, 0.5, (400, 200))
    for highs in draws:
        each = ByContext(highs / 2, highs / 2, is_interval=True)
        if name == "perplexity_ratio":
            found = statistics({"log_ratio": each, "kl": each, "tv": each}, like_llama_cpp=False)[name]
        else:
            found = each.quantile(0.9) if name == "quantile" else getattr(each, name)()
        above.append(found.end(1, 200))
    truth = {
        "mean": 0.5,
        "quantile": 0.5 * math.log(10),
        "root_mean_square": math.sqrt(0.5),
        "perplexity_ratio": math.exp(0.5),
    }[name]
    assert np.mean(np.array(above) >= truth) > (0.9 if name == "quantile" else 0.94)


def test_an_unseen_token_that_may_be_among_the_likeliest_leaves_them_open() -> None:
    log_p = np.log(np.array([[0.3, 0.25, 0.2, 0.1, 0.06, 0.05, 0.04]]))
    at_most = log_p.copy()
    at_most[0, 6] = np.log(0.15)  # the last token is unseen, and counts as the fourth
    q = np.exp(log_p)
    part = Part(0, at_most, np.arange(7)[None] < 6, np.full((1, 1), 1e-9))
    found = interval_divergences(part, Distributions(log_p, q, np.zeros((1, 7))), None, is_llama_cpp=False)
    assert found["same_top"].tolist() == [[1.0], [0.0]]
    (middle,), (half,) = found["top_5"]
    assert middle + half == 1.0  # the five are the same


@pytest.fixture
def models() -> tuple[Matrix, Matrix, NDArray[np.int64]]:
    """Logits of two models on the second halves of chunks, of which a few percent lie below the floor, and tokens."""
    rng = np.random.default_rng(0)
    logits = 4 * rng.standard_normal((12 * 3, 301))
    return logits, logits + 0.1 * rng.standard_normal(logits.shape), rng.integers(301, size=(12, 8))


def test_intervals_of_a_kld_file_hold_the_truth(models: Any, write_kld: Write) -> None:
    P, Q, tokens = models
    tokens[0, 5] = P[0].argmin()
    file = write_kld(P, tokens)
    p, q = np.exp(normalized(P)), np.exp(normalized(Q))
    comparison = compare(str(file), Q, kind="logits")
    assert "does not show the probability of 1 of 36 tokens that follow" in " ".join(comparison.notes)
    found = comparison.statistics
    targets = tokens[:, 5:].ravel()
    truth = {name: divergence(name, p, q).mean() for name in ("kl", "jsd", "tv")}
    truth |= {f"kl_{share}": np.percentile(divergence("kl", p, q), share) for share in (50, 99)}
    alpha = truth["acceptance"] = 1 - truth["tv"]
    truth["tokens_a_step"] = (1 - alpha**5) / (1 - alpha)
    truth["delta_p"] = (q - p)[np.arange(36), targets].mean()
    truth["perplexity"] = math.exp(-np.log(q[np.arange(36), targets]).mean())
    for name, value in truth.items():
        assert abs(found[name].value - value) <= found[name].roundoff + 1e-12, name
    assert found["kl"].roundoff < 1e-4 < found["kl"].value
    is_seen = P.max(1, keepdims=True) - 16 <= P
    assert 0.01 < 1 - is_seen.mean() < 0.5
    assert abs(found["coverage"].value - (p * is_seen).sum(1).mean()) <= found["coverage"].roundoff
    assert found["same_top"].value == (p.argmax(1) == q.argmax(1)).mean()
    assert "reference_perplexity" not in found
    assert "reverse_kl" not in found
    shown = dict(comparison.rows(details=True))
    low, high = (found["kl"].value + sign * found["kl"].roundoff for sign in (-1, 1))
    assert shown["KL(P‖Q), nats"].startswith(f"{low:.4g} to {high:.4g} ± ")
    far = np.where(P < 0, -900.0, P)  # whose probabilities are 0 in float64, and not their logarithms
    assert compare(str(file), far, kind="logits").statistics["kl_max"].value > 0.7
    same = compare(str(file), P, kind="logits")
    assert dict(same.rows(details=True))["KL(P‖Q), nats"].startswith("0 to ")
    like = compare(str(file), Q, kind="logits", like_llama_cpp=True)
    assert dict(like.rows(details=True))["total variation"] == shown["total variation"]
    assert " to " in shown["total variation"]


@pytest.mark.parametrize("name", ["P", "Q", "flat", "rounded"])
def test_the_ends_of_intervals_are_possible(name: str, models: Any, write_kld: Write) -> None:
    """Shares lie between 0 and 1, divergences are not negative, and a maximum is not below the mean."""
    P, Q, tokens = models
    P = P.round() if name == "rounded" else 0.1 * P if name == "flat" else P
    other = {"P": P, "Q": Q}.get(name, P + 0.01 * Q)
    for like_llama_cpp in (False, True):
        found = compare(str(write_kld(P, tokens)), other, kind="logits", like_llama_cpp=like_llama_cpp)
        ends = {
            key: (each.value - (each.roundoff or 0), math.inf if each.roundoff is None else each.value + each.roundoff)
            for key, each in found.statistics.items()
        }
        for key in ("tv", "acceptance", "same_top", "top_5", "coverage"):
            assert -1e-12 <= ends[key][0] <= ends[key][1] <= 1 + 1e-12, key
        assert ends["jsd"][0] > -1e-12
        assert all(ends["kl_max"][end] >= ends["kl"][end] - 1e-12 for end in (0, 1))
        percentages = [text for _, text in found.rows(details=True) if re.match(r"[\d.]+ to .* %$", text)]
        assert all(0 <= float(end) <= 100 for text in percentages for end in text.split(" ± ")[0].split(" to "))


def test_a_model_with_a_token_of_probability_zero(models: Any, write_kld: Write) -> None:
    """Its intervals are those of a probability below the smallest float64."""
    P, Q, ids = models
    file, masked = write_kld(P, ids), Q.copy()
    masked[:, np.setdiff1d(np.arange(301), ids)[0]] = -np.inf
    found, expected = (
        compare(file, each, kind="logits") for each in (masked, np.where(np.isinf(masked), -900, masked))
    )
    for name in ("tv", "jsd", "same_top", "coverage"):
        assert found.statistics[name].value == pytest.approx(expected.statistics[name].value, rel=1e-9)


def test_what_a_part_cannot_give(models: Any, write_kld: Write) -> None:
    P, Q, tokens = models
    file = str(write_kld(P, tokens))
    nan = str(write_kld(np.where(np.arange(36)[:, None] == 1, np.nan, P), tokens, "nan.kld"))
    refused: list[tuple[Any, Any, dict[str, Any], str]] = [
        (Q, file, {}, "has no upper bound with it as Q: give it as the first source"),
        (file, Q[:, :300], {}, r"has 300 tokens, and .* has 301: give a model with as many"),
        (nan, Q, {}, r"row 1 of .* is not finite"),
        (file, Q, {"temperature": 0.7}, "cannot be normalized again: leave out temperature"),
        (file, Q, {"floor": True}, "cannot be normalized again: leave out floor"),
    ]
    for one, other, options, sentence in refused:
        with pytest.raises(BottleneckError, match=sentence):
            compare(one, other, kind="logits", **options)
    with pytest.raises(SourceError, match="holds a part of each distribution: give it as the reference of compare"):
        kld(file)
    for options in ({"inf": "drop-columns"}, {"estimate_hidden_size": True}):
        with pytest.raises(BottleneckError, match="needs all log-probabilities"):
            rank(file, **options)
    wider = np.concatenate([Q, np.full((36, 2), -50.0)], 1)
    assert "cut to the first 301 tokens" in " ".join(compare(file, wider, kind="logits").notes)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-2], "has 22,434 bytes, and 12 chunks of 8 tokens need 22,436"),
        (lambda data: data[:17], "is truncated or damaged"),
        (lambda data: b"GGUF" + data, "does not begin with _logits_"),
        (lambda data: data[:8] + b"\xff" * 4 + data[12:], "is truncated or damaged"),
        (lambda data: data[:391], "has 391 bytes, and 12 chunks of 8 tokens need 22,436"),  # within a token
        (lambda data: data[:12] + b"\xfe\xff\xff\x7f" + data[16:], "is truncated or damaged"),
        (lambda data: data[:20] + b"\xfd\xff\xff\xff" + data[24:], "it holds token -3, and has"),
        (lambda data: data[:20] + b"\xff\xff\xff\x00" + data[24:], "it holds token 16,777,215, and has"),
    ],
)
def test_a_damaged_file_is_named(damage: Any, message: str, models: Any, write_kld: Write) -> None:
    P, Q, tokens = models
    file = write_kld(P, tokens)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(SourceError, match=message):
        compare(str(file), Q, kind="logits")


@pytest.mark.parametrize(("scale", "q"), [(0.0, None), (1e30, None), (None, 65535)])
def test_a_damaged_row_does_not_sum_to_1(scale: float | None, q: int | None, models: Any, write_kld: Write) -> None:
    P, Q, tokens = models
    file = write_kld(P, tokens)
    data, start = bytearray(file.read_bytes()), 20 + 4 * tokens.size + 2 * (8 + 2 * 302)
    if scale is not None:
        data[start : start + 4] = np.float32(scale).tobytes()
    else:
        data[start + 8 : start + 8 + 2 * 302] = np.full(302, q, "<u2").tobytes()
    file.write_bytes(data)
    for measure in (rank, lambda name: compare(name, Q, kind="logits")):
        with pytest.raises(MatrixError, match="the probabilities of row 2 sum to"):
            measure(str(file))


def test_a_file_that_becomes_shorter(models: Any, write_kld: Write) -> None:
    P, _, tokens = models
    file = write_kld(P, tokens)
    source = open_source(str(file))
    file.write_bytes(file.read_bytes()[:-700])
    for _ in range(2):
        with pytest.raises(SourceError, match="became shorter while it was read"):
            rank(source)
        file.unlink(missing_ok=True)


def of_rank(d: int, contexts: int, spread: float, *, vocab: int = 301) -> Matrix:
    """Return logits of row-centred rank d, of which some lie below the floor."""
    rng = np.random.default_rng(3)
    return np.asarray(spread * rng.standard_normal((contexts, d)) @ rng.standard_normal((d, vocab)) / math.sqrt(d))


def written(logits: Matrix, write_kld: Write, name: str = "reference.kld") -> str:
    return str(write_kld(logits, np.zeros((1, 2 * len(logits) + 2), np.int64), name))


@pytest.mark.parametrize(("contexts", "spread"), [(40, 1.0), (120, 4.5)])
def test_a_rank_proved_from_a_block(contexts: int, spread: float, write_kld: Write) -> None:
    logits = of_rank(20, contexts, spread)
    report = rank(written(logits, write_kld))
    block = report.to_dict()["block"]
    rank_centered = report.rank_centered
    assert (rank_centered.value, rank_centered.at_least, rank_centered.determinate) == (20, True, False)
    seen = logits > logits.max(1, keepdims=True) - 16
    whole = (block["contexts"], block["tokens"]) == (contexts, 301)
    assert whole if spread == 1 else seen.mean() < 0.9 and 20 < block["contexts"] < contexts and block["tokens"] > 21
    assert not block["is_too_small"]
    assert f"rank ≥ 20, proved from a block of {block['contexts']} × {block['tokens']}; σ falls" in str(report)
    grid = 16 / 65535 if spread > 1 else np.ptp(logits, 1).max() / 65535
    entries = block["contexts"] * block["tokens"]
    assert 0.3 < block["error_norm"] / (grid / 2 * math.sqrt(entries)) < 1.2


def test_a_block_that_is_too_small(write_kld: Write) -> None:
    assert rank(written(np.zeros((20, 31)), write_kld)).rank_centered.value == 0
    report = rank(written(of_rank(20, 15, 1.0), write_kld))
    assert report.rank_centered.value == 15
    assert "≥ 15, proved from a block of 15 × 301; the block is too small to show" in report.verdict
    peaked = np.where(np.eye(301)[:30] > 0, 40.0, of_rank(20, 30, 1.0))  # nothing but one token is seen
    with pytest.raises(MatrixError, match="share three tokens whose probabilities are seen"):
        rank(written(peaked, write_kld, "peaked.kld"))


def test_logits_that_were_rounded_before(write_kld: Write) -> None:
    logits = torch.from_numpy(of_rank(20, 120, 1.0)).bfloat16().double().numpy()
    report = rank(written(logits, write_kld))
    block = report.to_dict()["block"]
    assert report.rank_centered.value <= 20
    assert block["rank_if_exact"] > 100
    assert "that may hold noise" in report.verdict
    assert f"rank ≥ {block['rank_if_exact']} if the logits were never rounded" in report.verdict
    assert report.columns()["rank"] == f"≥ {report.rank.value}"


@pytest.mark.parametrize("seed", range(25))
def test_what_replaced_a_log_probability_proves_no_rank(seed: int, tmp_path: Path) -> None:
    """Masks and floors, texts of two tokens, and roundings, before or after the likeliest are chosen."""
    rng = np.random.default_rng(seed)
    d, vocab, contexts = (int(rng.integers(*ends)) for ends in ((2, 21), (26, 200), (26, 150)))
    k = int(min(vocab, rng.integers(2, 201)))
    hidden = rng.standard_normal((contexts, d)) * np.arange(1, d + 1.0) ** -rng.choice([0, 0.7, 1.4])
    logits = hidden @ rng.standard_normal((d, vocab)) * rng.choice([0.5, 1, 3]) / math.sqrt(d)
    rounding = rng.choice(["no", "bfloat16", "float16", "decimals", "stored"])
    if rounding in ("bfloat16", "float16"):
        logits = torch.from_numpy(logits).to(getattr(torch, rounding)).double().numpy()
    P = normalized(logits)
    P = P.round(3) if rounding == "decimals" else P.astype("f2").astype(float) if rounding == "stored" else P
    mask = rng.choice([-100, -9999, -50, -23.02585, -np.inf])
    shown = np.where(rng.random(P.shape) < rng.choice([0, 0.005, 0.02, 0.2]), mask, P)
    order = np.argsort(-(shown if rng.random() < 0.5 else P), 1, kind="stable")[:, :k]
    groups = int(rng.choice([0, 0, 1, 4])) if k == vocab else 0  # so that both tokens of a text are shown together
    names = [f"g{each % groups}" if each < 2 * groups else f"t{each}" for each in range(vocab)]
    by_id = not groups and rng.random() < 0.5
    lines = []
    for row, tokens in zip(shown, order.tolist(), strict=True):
        top = [{"token": names[each], "logprob": row[each], **({"id": each} if by_id else {})} for each in tokens]
        lines.append(json.dumps({"logprobs": {"content": [{**top[0], "top_logprobs": top}]}}) + "\n")
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(lines), encoding="utf-8")
    try:
        report = rank(str(path))
    except MatrixError:
        return  # no block
    assert report.rank.value <= d
    assert report.rank_centered.value <= d
    assert ("if no two tokens have one text" in str(report.rank)) == (not by_id)
