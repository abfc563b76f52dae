"""The Gram matrix of the smaller side: exact for data of float32 precision, and streamed where T ≥ M."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import final

import numpy as np
import torch
from torch import Tensor

from .arithmetic import Arithmetic, Spectra
from .base import Cost, Options, SpectrumMethod
from .rules import MARGIN, tolerance

RESOLUTION = 8 * math.sqrt(np.finfo(np.float64).eps)
"""Smallest σ/σ_1 that is resolved: eigenvalues of AᵀA have an error of a few eps · σ_1², so σ has one of √eps · σ_1."""

WIDE_COPIES = 3
"""Number of T × T float64 matrices that `WideGram` holds at its peak, beside the rows."""

COLUMNS = 8192
"""Tokens in one block of columns, which is held in float64 beside the rows."""


@final
class Gram(SpectrumMethod):
    r"""Square roots of the eigenvalues of :math:`A^⊤A`, summed over blocks of rows in float64.

    The sum is over the row-centred Gram matrix :math:`C^⊤C` with C = A − m1ᵀ (m the rows' means), because it is far
    better conditioned: A's largest singular value has a direction near all-ones. The raw Gram matrix follows from the
    same pass, :math:`A^⊤A = C^⊤C + v1^⊤ + 1v^⊤ + (m^⊤m) 11^⊤` with v = Cᵀm.

    The cost is T·M² operations (BLAS ``syrk``, half a matrix product) plus 4/3 M³ for both spectra, and one M × M
    matrix of float64.
    """

    name = "gram"
    fields = ("_gram", "_mixed")
    resolution = RESOLUTION
    summed = True

    @classmethod
    def cost(cls, shape: tuple[int, int], options: Options) -> Cost:
        """Return the cost of the sum and of both spectra."""
        T, M = shape
        return Cost(options.arithmetic.gram_copies * 8 * M**2, 1.0 * T * M**2 + 2.0 * M**3, M**2)

    @classmethod
    def suits(cls, shape: tuple[int, int], eps: float, options: Options) -> str:
        """Suit matrices whose tolerance it resolves."""
        if tolerance(1.0, shape, eps, "press") / MARGIN < RESOLUTION:
            return ""
        return f"fast, and accurate enough for entries with a roundoff of {eps:.3g}"

    @classmethod
    def variant(cls, shape: tuple[int, int]) -> type[SpectrumMethod]:
        """Return the Gram matrix of the smaller side."""
        return WideGram if shape[0] < shape[1] else cls

    def __init__(self, columns: int, *, arithmetic: Arithmetic | None = None) -> None:
        super().__init__(columns, arithmetic=arithmetic)
        self.rows_at_once = 2048  # every update reads and writes the whole Gram matrix
        self._gram = self.arithmetic.zeros(columns, columns)
        self._mixed = self.arithmetic.zeros(columns)

    def _add(self, rows: Tensor) -> None:
        means = rows.mean(1)
        centered = rows - means[:, None]
        mixed = self._mixed + means @ centered
        self.arithmetic.add_square(self._gram, centered)
        self._mixed = mixed

    def _merge(self, state: Mapping[str, Tensor]) -> None:
        self._gram += state["_gram"]
        self._mixed = self._mixed + state["_mixed"]

    def _decompose(self, arithmetic: Arithmetic, *, careful: bool) -> Spectra:
        squares = arithmetic.gram_spectra(self._gram, self._mixed, float(self._totals[2]), careful=careful)
        # Roundoff may make an eigenvalue of zero negative.
        raw, centered = (np.sqrt(np.maximum(values, 0.0)) for values in (squares.raw, squares.centered))
        return Spectra(raw, centered, squares.driver)


@final
class WideGram(SpectrumMethod):
    r"""Square roots of the eigenvalues of :math:`A A^⊤`, T × T.

    The rows are kept, in float32 if that represents them exactly; the products are formed in float64 over blocks of
    columns at the end. The sum is :math:`C C^⊤` of the row-centred C; because C1 = 0,
    :math:`A A^⊤ = C C^⊤ + M\,m m^⊤` with m the rows' means.

    The cost is T²·M operations (BLAS ``syrk``) plus 4/3 T³ for each spectrum, and the memory of the rows and three
    T × T matrices of float64.
    """

    name = "gram"
    resolution = RESOLUTION
    fields = ("_rows",)

    @classmethod
    def cost(cls, shape: tuple[int, int], options: Options) -> Cost:
        """Return the cost of the rows, of `WIDE_COPIES` T × T matrices, and of both spectra."""
        T, M = shape
        return Cost(8 * (T * M + WIDE_COPIES * T**2), 1.0 * T**2 * M + 2.0 * T**3, T**2)

    def __init__(self, columns: int, *, arithmetic: Arithmetic | None = None) -> None:
        super().__init__(columns, arithmetic=arithmetic)
        self._kept: list[Tensor] = []

    def _add(self, rows: Tensor) -> None:
        self._kept.append(_narrowest(rows))

    @property
    def _rows(self) -> Tensor:
        """All rows so far, in the narrowest type that represents them exactly."""
        return torch.cat(self._kept) if self._kept else self.arithmetic.zeros(0, self.columns)

    @_rows.setter
    def _rows(self, rows: Tensor) -> None:
        self._kept = [_narrowest(rows)]

    def _merge(self, state: Mapping[str, Tensor]) -> None:
        self._kept.append(state["_rows"])  # the order of rows changes no singular value

    def _decompose(self, arithmetic: Arithmetic, *, careful: bool) -> Spectra:
        rows = self._rows
        self._kept = [rows]  # one copy of them, not two
        rows = rows.to(arithmetic.device)
        means = rows.mean(1, dtype=torch.float64)
        gram = arithmetic.zeros(len(rows), len(rows))
        for start in range(0, self.columns, COLUMNS):
            block = rows[:, start : start + COLUMNS].double() - means[:, None]
            arithmetic.add_square(gram, block.T.contiguous())
        centered, driver = arithmetic.eigenvalues(gram, careful=careful)
        raw, _ = arithmetic.eigenvalues(gram.addr_(means, means, alpha=self.columns), careful=careful)
        return Spectra(np.sqrt(np.maximum(raw, 0.0)), np.sqrt(np.maximum(centered, 0.0)), driver)


def _narrowest(rows: Tensor) -> Tensor:
    """Return a copy in float32 if that represents every number exactly, otherwise in float64."""
    narrow = rows.float()
    return narrow if torch.equal(narrow.double(), rows) else rows.clone()
