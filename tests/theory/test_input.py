"""Every function refuses what it cannot take by one sentence, and says when a linear program was stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from softmax_bottleneck import theory
from softmax_bottleneck.errors import BottleneckError
from softmax_bottleneck.theory import hulls, maximum_entropy, support

W = np.arange(6.0).reshape(3, 2) ** 2
P = np.array([0.2, 0.3, 0.5])
A = np.log(np.eye(4) + 0.1)
CALLS: dict[str, tuple[dict[str, Any], dict[str, list[Any]]]] = {
    "frobenius_lower_bound": ({"sigma": [2.0, 1.0], "d": 1}, {"sigma": [[-1.0], [np.nan], [[1.0]]], "d": [0]}),
    "recommended_embedding_size": ({"sigma": [2.0, 1.0], "error": 1.0}, {"sigma": [[-1.0]], "error": [-1, np.inf]}),
    "unargmaxable": ({"W": W}, {"b": [[1.0], [0.0, 0.0, np.inf]], "seconds": [0], "workers": [0], "seed": [-1]}),
    "attainable": (
        {"log_targets": np.log(P), "weight": W},
        {
            "log_targets": [P, np.log(P) - 1e-3, [0.0, np.nan, 0.0], [-np.inf] * 3, torch.zeros(1, 3)],
            "weight": [torch.ones(4, 2), torch.ones(3)],
            "bias": [torch.ones(2)],
            "tolerance": [0, np.nan],
        },
    ),
    "exact_rank": ({"matrix": [[1, 2], [3, 4]]}, {"matrix": [[[np.inf]], [[1, 2], [3]], [["a"]]]}),
    "row_shift": ({"A": A, "shifts": [0.0] * 4}, {"shifts": [[1.0], [0.0, np.nan, 0.0, 0.0]]}),
    "is_member": ({"B": A, "A": A}, {"B": [A[:2]], "eps": [0, np.nan]}),
    "minimal_rank": ({"A": A}, {"eps": [-1]}),
    "expressible": ({"A": A, "d": 2}, {"A": [[[0.0, -np.inf]]], "d": [0], "eps": [0]}),
    "best_context_vector": ({"P": P, "W": W}, {"P": [P[:2], 2 * P, np.log(P)], "tolerance": [0], "seconds": [-1]}),
    "parallelograms": ({"W": W}, {"tolerance": [-1, np.nan], "limit": [0]}),
    "separation": ({"W": W, "above": [0]}, {"above": [[3], [], [-1]], "below": [[0, 1]], "seconds": [0]}),
    "power_rank_bound": ({"N": 3, "M": 3, "d": 1, "p": 2}, {"N": [0], "M": [-1], "d": [0], "p": [0]}),
    "power_rank_example": ({"N": 3, "M": 9, "d": 2, "p": 2}, {"d": [4]}),
    "power_law": ({"sigma": np.arange(9.0, 0, -1)}, {"sigma": [[3, 0, 0]], "first": [0, 8], "last": [2, 10]}),
    "provably_supported": ({"p": P, "W": W}, {"p": [[0.5, 0.6, 0.0]], "seconds": [0]}),
}
"""Function → arguments that it takes, and for each argument values of its type that it does not take."""
MATRICES = {"A", "B", "W", "P", "p", "sigma", "shifts", "matrix", "b", "bias", "log_targets", "weight", "start"}
NOT_A_MATRIX = ["12", object(), {1: 2}, [[1.0, np.nan, 3.0]] * 3, [1 + 2j], 3.0]
NOT_AN_OPTION = ["x", object(), [1, 2.5], 1 + 2j]


def _cases() -> list[Any]:
    cases = []
    for name, (arguments, refused) in CALLS.items():
        options = [key for key in getattr(theory, name).__annotations__ if key not in ("return", "progress")]
        for key in options:
            wrong = NOT_A_MATRIX if key in MATRICES else NOT_AN_OPTION
            wrong = [*wrong, *([True] if key in ("d", "N", "M", "seed", "workers", "eps", "T") else [])]
            for value in [*wrong, *refused.get(key, [])]:
                cases.append(pytest.param(name, {**arguments, key: value}, id=f"{name}-{key}-{str(value)[:12]}"))
    return cases


def test_every_function_is_here() -> None:
    assert set(CALLS) == {name for name in theory.__all__ if name.islower()}
    for name, (arguments, _) in CALLS.items():
        getattr(theory, name)(**arguments)


@pytest.mark.parametrize(("name", "arguments"), _cases())
def test_what_cannot_be_taken_is_one_sentence(name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(BottleneckError) as raised, np.errstate(all="ignore"):
        getattr(theory, name)(**arguments)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("module", "answer", "unknown"),
    [
        (hulls, lambda: theory.separation([[0.0], [1.0]], [0]).possible, None),
        (maximum_entropy, lambda: theory.best_context_vector([1, 0, 0], [[0.0], [1.0], [2.0]]).attained, (None,)),
        (support, lambda: theory.provably_supported([0.5, 0.5], np.eye(2)).unknown.tolist(), [0, 1]),
        (hulls, lambda: theory.unargmaxable([[1.0], [-1.0], [0.0]]).unknown.tolist(), [2]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_stopped_program_is_unknown(module: Any, answer: Callable[[], Any], unknown: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "minimize", lambda *_, **__: None)
    assert answer() == unknown
