"""Spectra to draw, without a screen."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from matplotlib import pyplot as plt

from softmax_bottleneck.spectrum import Spectrum


@pytest.fixture
def result() -> Mapping[str, Spectrum]:
    """Two spectra: one of rank 3 of 5, one full."""
    plt.switch_backend("agg")
    return {
        label: Spectrum(np.array(values), np.array(values), (9, 5), "dense", 0.0)
        for label, values in {
            "soft, max": [8.0, 4.0, 0.1, 0.0, 0.0],
            "mos": [2.0, 1.5, 1.0, 0.3, 1e-9],
        }.items()
    }
