"""Rows that show little: few tokens more than d, or a coarse type. No changed W is the same, and no layer another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax

from softmax_bottleneck import heads, identify
from softmax_bottleneck.measure.identification import EDITED, LAYER, NOT, UNKNOWN

Case = tuple[int, int, int, float]
FEW: list[Case] = [(64, 9, 87, 4e-3), (128, 4, 209, 1e-4), (32, 5, 68, 4e-4), (16, 4, 30, 1e-2), (64, 4, 217, 4e-3)]
"""d, tokens beyond it, rows, and the relative change of W."""


def rows_of(case: Case, seed: int, *, changed: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    """Logits of contexts whose directions decay, and the W that is asked for."""
    d, more, T, change = case
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((d + more, d))
    H = rng.standard_normal((T, d)) * 10.0 ** -np.linspace(0, 1, d)
    V = W + changed * change * rng.standard_normal(W.shape)
    return (H @ V.T).astype(np.float32), W.astype(np.float32)


@pytest.mark.parametrize("case", FEW)
def test_a_changed_layer_is_never_the_same(case: Case) -> None:
    verdicts = set()
    for seed in range(12):
        rows, W = rows_of(case, seed, changed=True)
        verdicts.add(identify(rows, W, kind="logits")[0].verdict)
        rows[seed] += 3 * np.random.default_rng(seed).standard_normal(len(W)).astype(np.float32)
        verdicts.add(identify(rows, W, kind="logits")[0].verdict)
    assert verdicts <= {NOT, UNKNOWN}


@pytest.mark.parametrize("case", FEW)
def test_the_layer_itself_is_found(case: Case) -> None:
    for seed in range(3):
        rows, W = rows_of(case, seed, changed=False)
        assert identify(rows, W, kind="logits")[0].verdict == LAYER


STEPS = "look rounded in steps of about 0.002"


@pytest.mark.parametrize(
    ("T", "bias", "verdict", "why"),
    [(60, 0.0, LAYER, STEPS), (300, 0.0, LAYER, STEPS), (60, 1.0, EDITED, "with a bias of rank 1 on most tokens")],
)
def test_rounded_logits_of_more_tokens_still_are_those_of_the_layer(
    T: int, bias: float, verdict: str, why: str
) -> None:
    """Also with a bias that W lacks, where the differences of the rows are fitted, whose noise is larger."""
    rows, W = rows_of((32, 40, T, 0.0), 0, changed=False)
    rows = rows + bias * np.random.default_rng(1).standard_normal(len(W)).astype(np.float32)
    (found,) = identify(log_softmax(rows.astype(np.float16).astype(np.float32), 1), W)
    assert found.verdict == verdict
    assert why in found.why


def drawn(seed: int, T: int = 40) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], np.random.Generator]:
    """W, (300, 16), T context vectors, and a bias."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((300, 16)), rng.standard_normal((T, 16)), rng.standard_normal(300), rng


def in_bfloat16(logits: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(torch.from_numpy(logits).bfloat16().float().log_softmax(1).numpy())


def likeliest(rows: NDArray[Any], k: int = 200) -> NDArray[Any]:
    return np.where(rows < np.sort(rows, 1)[:, -k][:, None], -np.inf, rows)


def run_in_bfloat16(W: NDArray[Any], H: NDArray[Any]) -> NDArray[Any]:
    both = (torch.from_numpy(each).bfloat16() for each in (H, W.T))
    return np.asarray(torch.matmul(*both).float().log_softmax(1).numpy())


ROWS: dict[str, tuple[int, Callable[..., NDArray[Any]], str]] = {
    "run in bfloat16": (10, lambda W, H, b, rng: run_in_bfloat16(W, H), UNKNOWN),
    "run in bfloat16, the likeliest": (60, lambda W, H, b, rng: likeliest(run_in_bfloat16(W, H)), UNKNOWN),
    "a lacking bias, in bfloat16": (40, lambda W, H, b, rng: likeliest(in_bfloat16(H @ W.T + b)), UNKNOWN),
    "a small lacking bias, in bfloat16": (10, lambda W, H, b, rng: in_bfloat16(H @ W.T + 0.05 * b), UNKNOWN),
    "pruned columns and a lacking bias": (40, lambda W, H, b, rng: H[:, 5:] @ W[:, 5:].T + b, UNKNOWN),
    "a lacking bias, few rows": (10, lambda W, H, b, rng: H @ W.T + b, EDITED),
    "a lacking bias at several temperatures": (
        40, lambda W, H, b, rng: (0.3 * H @ W.T + 3 * b) / rng.uniform(0.4, 2, (40, 1)), UNKNOWN,
    ),
    "probabilities in bfloat16": (10, lambda W, H, b, rng: np.log(softmax_in_bfloat16(0.1 * H @ W.T)), UNKNOWN),
    "another layer": (40, lambda W, H, b, rng: likeliest(in_bfloat16(H @ rng.standard_normal((300, 16)).T + b)), NOT),
}  # fmt: skip


def softmax_in_bfloat16(logits: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(torch.from_numpy(logits).bfloat16().softmax(1).double().numpy())


@pytest.mark.parametrize("name", ROWS)
def test_rows_that_few_tokens_and_a_coarse_type_hide(name: str) -> None:
    """What neither shows its type nor fits is never called another model, and a pruned W never the same."""
    T, make, verdict = ROWS[name]
    for seed in range(4):
        W, H, b, rng = drawn(seed, T)
        rows = make(W, H, b, rng).astype(np.float32)
        assert identify(rows, W.astype(np.float32), kind="logits")[0].verdict == verdict


def test_the_model_s_own_bias_at_a_temperature_in_bfloat16() -> None:
    for seed in range(4):
        W, H, b, _ = drawn(seed)
        head = heads.Softmax.of(*(torch.from_numpy(each).float() for each in (W, b)))
        assert identify(likeliest(in_bfloat16((H @ W.T + b) / 0.7)), head, kind="logits")[0].verdict == UNKNOWN


def test_rows_of_w_that_differ_are_no_masks() -> None:
    """Below all others, they move with the state, which a mask does not."""
    W, H, _, rng = drawn(0)
    W[:, 0], H[:, 0] = 0, 5
    changed = W.copy()
    changed[:3, 0], changed[:3, 1:] = -6 - np.arange(3), rng.standard_normal((3, 15))
    assert identify((H @ changed.T).astype(np.float32), W, kind="logits")[0].verdict == UNKNOWN


def test_coarse_logits_are_off_by_their_own_roundoff() -> None:
    """That of logits of size 1, not of the log-probabilities of size 6 that they are normalized to."""
    for seed in range(4):
        W, H, _, rng = drawn(seed)
        for change, verdicts in ((0.0, {LAYER}), (0.01, {NOT, UNKNOWN})):
            logits = 0.3 * H @ (W + change * rng.standard_normal(W.shape)).T
            assert identify(torch.from_numpy(logits).bfloat16(), W, kind="logits")[0].verdict in verdicts


def test_a_temperature_does_not_hide_rows_of_w_that_differ() -> None:
    for seed in range(4):
        W, H, b, rng = drawn(seed)
        head = heads.Softmax.of(*(torch.from_numpy(each).float() for each in (W, b)))
        changed = W.copy()
        changed[:10] = rng.permuted(W[:10], axis=0)
        for rows, verdict in ((W, EDITED), (changed, UNKNOWN)):
            found = identify(((H @ rows.T + b) / 0.7).astype(np.float32), head, kind="logits")[0]
            assert found.verdict == verdict
            assert ("but for tokens 0, 1, 2, 3, 4, 5, 6, 7 and 2 more" in found.why) == (verdict == UNKNOWN)


@pytest.mark.parametrize(("d", "size", "M"), [(8, 0.3, 8000), (24, 0.1, 4000)])
def test_small_logits_are_not_rounded_again(d: int, size: float, M: int) -> None:
    """Their log-probabilities are about 9, whose roundoff in float32 is larger than theirs."""
    rng = np.random.default_rng(0)
    W, H = rng.standard_normal((M, d)).astype(np.float32), rng.standard_normal((40, d)).astype(np.float32)
    logits = (size / d**0.5 * H @ W.T).astype(np.float32)
    assert identify(logits, W, kind="logits")[0].verdict == LAYER


@pytest.mark.parametrize("masked", [-np.inf, -1e9])
def test_a_mask_does_not_make_masks_of_edited_logits(masked: float) -> None:
    W, H, _, rng = drawn(0)
    logits = H @ W.T
    logits[:, [5, 9]] = logits.min(1, keepdims=True) - rng.uniform(3, 5, (40, 2))
    logits[::2, 20] = masked
    assert identify(log_softmax(logits, 1).astype(np.float32), W)[0].verdict == UNKNOWN
