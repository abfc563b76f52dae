"""Measurements on a source: rank, divergence, comparison, gradient, hidden size, cost, output layer, identification."""

from ..core.options import MeasurementOptions
from .comparing import compare
from .comparison import Comparison, Comparisons
from .computing import RankOptions, SpectrumOptions, singular_values
from .cost import CostEstimate, estimate_cost
from .directions import Directions, HeadStatistics, directions, head_statistics
from .extended import ExtendedStructure, extended_structure
from .gradients import GradientReport, gradient
from .head_report import HeadReport, argmaxable, head
from .head_rows import HeadRows, head_rows
from .hidden_size import HiddenSizeEstimate, estimate_hidden_size, logits_from_top_k
from .identification import Identification, identify
from .lingen import LinearGeneration, linear_generation
from .needed import NeedReport, need
from .pairwise_kld import kld
from .ranks import rank
from .reduced_layers import Reduced
from .report import RankReport
from .reports import RankReports, checkpoints
from .verdict import Verdict, verdict

__all__ = [
    "Comparison", "Comparisons", "CostEstimate", "Directions", "ExtendedStructure", "GradientReport", "HeadReport",
    "HeadRows", "HeadStatistics", "HiddenSizeEstimate", "Identification", "LinearGeneration", "MeasurementOptions",
    "NeedReport", "RankOptions", "RankReport", "RankReports", "Reduced", "SpectrumOptions", "Verdict", "argmaxable",
    "checkpoints", "compare", "directions", "estimate_cost", "estimate_hidden_size", "extended_structure",
    "gradient", "head", "head_rows", "head_statistics", "identify", "kld", "linear_generation", "logits_from_top_k",
    "need", "rank", "singular_values", "verdict",
]  # fmt: skip
