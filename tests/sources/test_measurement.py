"""All measurements take a source, a list or a dictionary by label, and refuse wrong arguments before they open any."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import softmax_bottleneck as sb
from softmax_bottleneck.errors import ConfigurationError, SourceError
from softmax_bottleneck.measure import RankReports, estimate_cost
from softmax_bottleneck.results.base import Results

MEASUREMENTS: dict[str, Callable[..., Any]] = {
    "rank": sb.rank,
    "kld": sb.kld,
    "gradient": sb.gradient,
    "need": sb.need,
    "perplexity": sb.perplexity,
    "head": sb.head,
    "argmaxable": sb.argmaxable,
    "estimate_cost": estimate_cost,
}


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_one_and_several(name: str, runs: dict[str, Path]) -> None:
    measure = MEASUREMENTS[name]
    options: dict[str, Any] = {} if name == "head" else {"contexts": 40}
    run = runs["softmax"]
    one = measure(run, **options)
    assert one.name == str(run)
    assert getattr(one, "seconds", 1.0) > 0
    several = measure({"first": run, "second": run}, **options)
    assert isinstance(several, RankReports if name == "rank" else Results)
    assert [result.name for result in several] == ["first", "second"]
    assert [result.name for result in measure([f"mine={run}", str(run)], **options)] == ["mine", run.name]
    assert all(getattr(result, "seconds", 1.0) > 0 for result in several)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("rank", {"eps": 1e-30}, "finer than float64's roundoff"),
        ("rank", {"inf": "drop"}, "unknown inf 'drop'"),
        ("kld", {"pairs": 1}, "must be 'all' or a number of at least 2"),
        ("gradient", {"sample": 0}, "sample must be at least 1"),
        ("perplexity", {"how": "quickly"}, "how must be one of"),
        ("argmaxable", {"limit": 0.0}, "limit must be above 0"),
    ],
)
def test_wrong_arguments_are_refused_first(name: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        MEASUREMENTS[name]("no/such/source", **options)


def test_the_cost_takes_what_the_rank_takes() -> None:
    matrix = np.zeros((30, 6))
    options: dict[str, Any] = {
        "kind": "matrix",
        "contexts": 20,
        "method": "dense",
        "max_memory": "1MiB",
        "inf": "refuse",
    }
    assert (estimate_cost(matrix, **options).contexts, sb.rank(matrix, **options).contexts) == (20, 20)


def test_options_are_given_by_name() -> None:
    with pytest.raises(
        TypeError, match=r"rank\(\) takes source by place, several sources or models as a list, and all else by name"
    ):
        sb.rank(np.zeros((3, 4)), np.zeros((3, 2)))


def test_a_file_of_hidden_states_asks_for_its_output_layer(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", hidden_states=np.ones((5, 3)), token_ids=np.arange(5))
    with pytest.raises(SourceError, match=r"s.npz holds hidden_states: give the output layer that they belong to, "):
        sb.rank(tmp_path / "s.npz")
    assert sb.rank(f"{tmp_path / 's.npz'}:hidden_states", kind="matrix").rank.value == 1
