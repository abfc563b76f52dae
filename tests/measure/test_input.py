"""Every option of every measurement given a value of another type: one sentence, and no traceback of NumPy or torch."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import softmax_bottleneck as sb
from softmax_bottleneck.errors import BottleneckError

LOGITS = np.outer(np.arange(12.0), np.arange(6.0)) / 9
LOG_PROBS = LOGITS - np.log(np.exp(LOGITS).sum(1, keepdims=True))
HEAD = torch.nn.Linear(3, 6)
ON_STATES = {"hidden": torch.zeros(12, 3), "targets": torch.zeros(12, dtype=torch.long)}
CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "rank": ((LOG_PROBS,), {}),
    "kld": ((LOG_PROBS,), {}),
    "singular_values": ((LOG_PROBS,), {}),
    "pairwise_kld": ((LOG_PROBS,), {}),
    "dump": ((LOG_PROBS, "store.zarr"), {}),
    "compare": ((HEAD, HEAD), ON_STATES),
    "gradient": ((HEAD,), ON_STATES),
    "argmaxable": ((HEAD,), {}),
    "head": ((HEAD,), {}),
    "need": ((HEAD,), ON_STATES),
    "head_statistics": ((HEAD.weight,), {}),
    "numerical_rank": (([3.0, 2.0],), {"shape": (3, 2), "eps": "float32"}),
    "extended_logits": ((lambda ids: np.zeros((len(ids), 6)), [[1], [2]], [[1]]), {"vocab_size": 6}),
}
WRONG = ["x", b"y", 3.7, -3, object(), None, [1, 2.5], float("nan"), {"a": 1}, 10**30, np.arange(3), torch.ones(2, 2)]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore")
def test_a_wrong_value_is_one_sentence(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    measure, (arguments, options) = getattr(sb, name), CALLS[name]
    for place, option in enumerate(inspect.signature(measure).parameters):
        if option in ("progress", "hugging_face", "processes"):
            continue
        for number, value in enumerate(WRONG):
            given = [*arguments]
            if option == "path" or (name == "dump" and place):
                given[1] = f"{option}-{number}.zarr"
            named = dict(options)
            if place < len(given):
                given[place] = value
            else:
                named[option] = value
            sentence = ""
            try:
                measure(*given, **named)
            except BottleneckError as error:
                sentence = str(error)
            assert "\n" not in sentence


def test_numpy_may_raise_elsewhere() -> None:
    """Where a caller turned NumPy's warnings into errors, underflow is none here."""
    with np.errstate(all="ignore"):
        log_probs = 900 * LOGITS - np.logaddexp.reduce(900 * LOGITS, 1)[:, None]
    with np.errstate(all="raise"):
        for measure in (sb.rank, sb.kld, lambda rows: sb.compare(rows, rows), lambda rows: sb.identify(rows, HEAD)):
            measure(log_probs)
