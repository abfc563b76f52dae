"""A method of another module, entered in the registry in one line, is measured, chosen, estimated and named."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from softmax_bottleneck import rank
from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.measure import estimate_cost
from softmax_bottleneck.sources import open_source
from softmax_bottleneck.spectrum import REGISTRY, Dense, Factored, Options, choose, singular_values

from .methods import EPS

MODULE = '''
"""The singular values of the R of one QR at the end."""

from typing import final

import torch

from softmax_bottleneck.spectrum import SpectrumMethod
from softmax_bottleneck.spectrum.arithmetic import triangle_of, reflect_rows
from softmax_bottleneck.spectrum.base import Totals


@final
class New(SpectrumMethod):
    name = "new"
    fields = ("_rows", "_totals")

    @classmethod
    def memory(cls, shape, options):
        return 8 * shape[0] * shape[1]

    @classmethod
    def operations(cls, shape, options):
        return 2.0 * shape[0] * shape[1] ** 2

    @classmethod
    def largest_array(cls, shape, options):
        return shape[0] * shape[1]

    def __init__(self, columns, *, arithmetic=None):
        super().__init__(columns, arithmetic=arithmetic)
        self._rows = self.arithmetic.zeros(0, columns)

    def _add(self, rows):
        self._rows = torch.cat([self._rows, reflect_rows(rows)])
        self._totals = self._totals + Totals.of(rows)

    def merge(self, state):
        self._rows = torch.cat([self._rows, state["_rows"]])
        self._totals = self._totals + state["_totals"]

    def _decompose(self, arithmetic, *, careful):
        triangle = triangle_of(self._rows)
        return arithmetic.pair(triangle, triangle[:, 1:], careful=careful)
'''


@pytest.fixture
def _new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "new_method.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import new_method

    monkeypatch.delitem(sys.modules, "new_method")
    monkeypatch.setitem(REGISTRY, "new", new_method.New)


@pytest.mark.usefixtures("_new")
def test_a_new_method_is_one_file_and_one_line() -> None:
    matrix = np.random.default_rng(0).standard_normal((60, 4)) @ np.random.default_rng(1).standard_normal((4, 30))
    report = rank(matrix, kind="matrix", method="new")
    assert (report.spectrum.method, report.rank.value, report.rank_centered.value) == ("new", 4, 4)
    for blocks in (matrix, iter([matrix[:20], matrix[20:]])):
        found = singular_values(blocks, method="new").values
        np.testing.assert_allclose(found, np.linalg.svd(matrix, compute_uv=False), atol=60 * EPS * found[0])
    cost = estimate_cost(open_source(matrix, kind="matrix"), method="new")
    assert cost.method == "new"
    choice = choose("new", shape=(60, 30), eps=EPS)
    assert (choice.memory_bytes, choice.operations) == (8 * 60 * 30, 2.0 * 60 * 30**2)
    with pytest.raises(ConfigurationError, match=r"known methods are auto, .*new"):
        rank(matrix, kind="matrix", method="newer")


def test_thin_factors_come_first_and_are_the_models_own_memory() -> None:
    choice = choose("auto", shape=(1_000, 500), eps=EPS, factor_columns=7, max_memory=1)
    assert (choice.method, choice.why) == (Factored, "the head's factors have 7 columns")
    assert choice.start(np.ones((500, 7))).columns == 7
    assert choose("dense", shape=(1_000, 500), eps=EPS, factor_columns=7).method is Dense


@pytest.mark.parametrize("name", REGISTRY)
def test_more_rows_and_columns_never_cost_less(name: str) -> None:
    method, options = REGISTRY[name], Options(width=50, factor_columns=20)
    small, large = (300, 200), (3_000, 2_000)
    for shape, larger in ((small, large), (small[::-1], large[::-1])):
        for describe in (method.memory, method.operations, method.largest_array):
            assert 0 < describe(shape, options) <= describe(larger, options)
    assert method.name == name
    assert method.passes >= 1
    assert 0 < method.resolution < 1e-6
