"""Singular values of matrices larger than memory, and numerical ranks.

Floor 1: this package takes arrays or blocks of rows and knows no language model.
"""

from .accelerator import Accelerator, arithmetic_for
from .arithmetic import Arithmetic
from .base import SpectrumMethod
from .choice import METHODS, Choice, build, choose
from .compute import measure, singular_values
from .dense import Dense
from .factored import Factored
from .files import SavedSpectrum, load_spectrum, save_spectrum
from .gram import Gram, WideGram
from .host import Host
from .inspection import Inspection
from .judge import Judgement, judge
from .measures import effective_rank, entropy_rank, stable_rank
from .noise import NoiseFloor, Rounding, noise_floor
from .precision import EPS, Precision, precision
from .rules import RULES, RankEstimate, entry_roundoff, numerical_rank, tolerance
from .sketch import RangeFinder
from .tsqr import TSQR
from .values import Limits, Spectrum

__all__ = [
    "EPS", "METHODS", "RULES", "TSQR", "Accelerator", "Arithmetic", "Choice", "Dense", "Factored", "Gram", "Host",
    "Inspection", "Judgement", "Limits", "NoiseFloor", "Precision", "RangeFinder", "RankEstimate", "Rounding",
    "SavedSpectrum", "Spectrum", "SpectrumMethod", "WideGram", "arithmetic_for", "build", "choose", "effective_rank",
    "entropy_rank", "entry_roundoff", "judge", "load_spectrum", "measure", "noise_floor", "numerical_rank",
    "precision", "save_spectrum", "singular_values", "stable_rank", "tolerance",
]  # fmt: skip
