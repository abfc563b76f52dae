"""Singular values of matrices larger than memory, and numerical ranks.

Floor 1: this package takes arrays or blocks of rows and knows no language model.
"""

from .accelerator import Accelerator, arithmetic_for
from .arithmetic import Arithmetic
from .base import SpectrumMethod
from .choice import METHODS, Choice, build, choose
from .compute import decompose, matrix_spectrum
from .dense import Dense
from .effective_ranks import effective_rank, entropy_rank, stable_rank
from .factored import Factored
from .files import OtherArchiveError, SavedSpectrum, holds_spectra, load_spectra, write_spectra
from .gram import Gram, WideGram
from .host import Host
from .inspection import Inspection
from .judge import Judgement, judge
from .noise import find_noise
from .precision import EPS, Noise, Precision, precision
from .rules import RankEstimate, counts_by_rule, entry_roundoff, numerical_rank, tolerance
from .settings import SpectrumSettings
from .sketch import RangeFinder
from .tsqr import TSQR
from .values import Limits, Spectrum

__all__ = [
    "EPS", "METHODS", "TSQR", "Accelerator", "Arithmetic", "Choice", "Dense", "Factored", "Gram", "Host",
    "Inspection", "Judgement", "Limits", "Noise", "OtherArchiveError", "Precision", "RangeFinder",
    "RankEstimate", "SavedSpectrum", "Spectrum", "SpectrumMethod", "SpectrumSettings", "WideGram",
    "arithmetic_for", "build", "choose", "counts_by_rule", "decompose", "effective_rank", "entropy_rank",
    "entry_roundoff", "find_noise", "holds_spectra", "judge", "load_spectra", "matrix_spectrum",
    "numerical_rank", "precision", "stable_rank", "tolerance", "write_spectra",
]  # fmt: skip
