"""Axes to draw into, without a screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from softmax_bottleneck.spectrum import Spectrum


@pytest.fixture
def ax() -> Iterator[Axes]:
    """Empty axes of a figure that is closed afterwards."""
    plt.switch_backend("agg")
    figure, axes = plt.subplots()
    yield axes
    plt.close(figure)


@pytest.fixture(scope="session")
def spectrum() -> Callable[[ArrayLike], Spectrum]:
    """Make the spectrum of a square matrix with these singular values, largest first."""

    def make(values: ArrayLike) -> Spectrum:
        array = np.asarray(values, dtype=np.float64)
        return Spectrum(array, array, (array.size, array.size), "dense", 0.0)

    return make
