"""Every architecture's rank is the algebra's, in every precision, and does not depend on how the text is cut."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from softmax_bottleneck import rank

from .conftest import ARCHITECTURES, Open, Save

LOG_LINEAR = ["gpt2", "llama", "qwen2", "qwen3", "mistral", "phi", "opt", "gpt-neox", "mamba", "rwkv"]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, DTYPES[number % 3]) for number, name in enumerate(LOG_LINEAR)] + [("llama", each) for each in DTYPES],
    ids=str,
)
def test_log_linear_models_have_the_rank_of_the_algebra(
    save: Save, open_model: Open, name: str, dtype: torch.dtype
) -> None:
    expected = ARCHITECTURES[name]
    report = rank(open_model(save(name, dtype=dtype, seed=DTYPES.index(dtype)), vocab="model"))
    assert report.spectrum.method == "factored"
    assert (report.bound["raw"], report.bound["centered"]) == expected.rank
    assert (report.rank.value, report.rank_centered.value) == expected.rank
    assert report.verdict.startswith("at its bound")
    assert report.rank.determinate
    assert report.rank_centered.determinate
    assert ("LayerNorm" in report.bound["why"]) == (expected.norm == "layer")
    json.dumps(report.to_dict(), allow_nan=False)
    head = report.to_dict()["head_analysis"]
    assert (head["bias"], head["soft_cap"], head["scale"]) == (expected.bias, None, 1.0)
    assert head["tied"] == (name in ("gpt2", "opt", "mamba"))
    assert head["logit_difference"] < 1e-5 or dtype != torch.float32


@pytest.mark.parametrize("name", ["gpt2", "llama", "phi"])
def test_factors_are_the_materialized_matrix(save: Save, open_model: Open, name: str) -> None:
    """To 1e-10 relative each, and of σ_1 where they are roundoff; another decomposition of another form of it."""
    source = open_model(save(name, seed=3), dtype="float64")
    report, tsqr = rank(source), rank(source, method="tsqr").spectrum
    for one, other, r in (
        (report.spectrum.values, tsqr.values, report.rank.value),
        (report.spectrum.centered, tsqr.centered, report.rank_centered.value),
    ):
        np.testing.assert_allclose(one[:r], other[:r], rtol=1e-10)
        np.testing.assert_allclose(one[r:], other[r:], rtol=0, atol=1e-10 * other[0])


def test_soft_capping_has_no_bound(save: Save, open_model: Open) -> None:
    report = rank(open_model(save("gemma2", dtype=torch.bfloat16)))
    assert (report.bound["raw"], report.bound["centered"]) == (None, None)
    assert "soft-capping at 3 is a pointwise nonlinearity" in report.bound["why"]
    assert report.to_dict()["head_analysis"]["soft_cap"] == 3
    assert report.rank_centered.value == 59
    assert report.spectrum.method == "dense"


@pytest.mark.parametrize("offset", [True, False])
@pytest.mark.parametrize("name", ["gpt2", "phi"])
def test_a_layer_norm_without_offset_takes_a_dimension(save: Save, open_model: Open, name: str, offset: bool) -> None:
    """β = 0 as in a model fresh from its constructor: H has rank d − 1, and the report says what that makes of it."""
    folder = save(name, spread=0.5 if offset else 0.0, seed=1, initializer_range=0.5)
    report = rank(open_model(folder))
    hidden = report.to_dict()["head_analysis"]["hidden"]["rank"]["value"]
    assert hidden == (8 if offset else 7)
    # Without offset Phi's output bias is zero too, and counts as none.
    raw, centered = (9, 8) if offset else (8, 7)
    assert (report.rank.value, report.rank_centered.value) == (raw, centered)
    assert ("off the origin" in report.bound["why"]) == offset
    assert (report.bound["raw"], report.bound["centered"]) == (raw, centered)


@pytest.mark.parametrize("options", [{"dtype": "bfloat16"}, {"precise": True}], ids=str)
def test_a_body_coarser_than_the_measurement_breaks_the_condition_of_its_norm(
    save: Save, open_model: Open, options: dict[str, Any]
) -> None:
    """Rounded hidden states leave the affine space: the bias then counts, and the report says why."""
    report = rank(open_model(save("phi"), **options))
    assert (report.rank.value, report.rank_centered.value) == (10, 9)
    assert "the body's rounding breaks" in report.bound["why"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64", "auto"])
def test_any_body_reaches_the_same_rank_without_bias(save: Save, open_model: Open, dtype: str) -> None:
    source = open_model(save("llama", dtype=torch.bfloat16), dtype=dtype)
    report = rank(source)
    assert (report.rank.value, report.rank_centered.value) == (9, 8)
    assert source.description["body_dtype"] == ("bfloat16" if dtype == "auto" else dtype)
    assert report.eps.dtype == ("float64" if dtype == "float64" else "float32")
