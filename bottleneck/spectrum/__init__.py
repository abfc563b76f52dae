"""Singular values of matrices too large to hold, numerical ranks, and the report that carries both.

Floor 1: this package takes arrays or blocks of rows and knows no language model.
"""

from .base import Spectrum, SpectrumMethod
from .compute import choose, measure, singular_values
from .dense import Dense
from .factored import Factored
from .files import load_spectrum, save_spectrum
from .gram import Gram
from .measures import effective_rank, entropy_rank, stable_rank
from .precision import EPS, Precision, Provenance, precision
from .processes import ALONE, Processes, launched
from .report import RankReport
from .rules import RULES, RankEstimate, entry_roundoff, numerical_rank, tolerance
from .sketch import Sketch
from .tsqr import TSQR

__all__ = [
    "ALONE",
    "EPS",
    "RULES",
    "TSQR",
    "Dense",
    "Factored",
    "Gram",
    "Precision",
    "Processes",
    "Provenance",
    "RankEstimate",
    "RankReport",
    "Sketch",
    "Spectrum",
    "SpectrumMethod",
    "choose",
    "effective_rank",
    "entropy_rank",
    "entry_roundoff",
    "launched",
    "load_spectrum",
    "measure",
    "numerical_rank",
    "precision",
    "save_spectrum",
    "singular_values",
    "stable_rank",
    "tolerance",
]
