"""All figures and tables, those of the papers and others. They read saved results; none of them trains.

To add one: write a final subclass of `Figure` or `Table` in a file of its own, or of `PublishedTable` in
published_tables.py, and enter it in ``REGISTRY``.
"""

from __future__ import annotations

import sys

if sys.argv[:1] == ["-m"] and any(word.startswith(__name__) for word in sys.orig_argv):
    # Python imports this package to run it, or a file of it, as a program.
    raise SystemExit(
        "Error: a figure is no program: draw it with 'bottleneck figures NAME --results DIR --out DIR', where NAME is "
        "a name such as lms-figure-3"
    )

from softmax_bottleneck.errors import ConfigurationError, unknown

from .attainable_kl import AttainableKL
from .base import Entry, Figure, Table
from .bench_heads import BenchHeads
from .bench_training import BenchTraining
from .effective_ranks import EffectiveRanks
from .family import DemoFamily, PTBFast, PTBSmall, PTBSmallMoS, PTBSmallNTASGD, WT2Fast
from .lms_figure_1 import LMSFigure1
from .lms_figure_4 import LMSFigure4
from .lms_figure_5 import LMSFigure5
from .lms_synthetic import LMSFigure2, LMSFigure3, LMSFigure6, LMSFigure7, LMSFigure8
from .lms_table_2 import LMSTable2
from .mos_figure_1 import MoSFigure1
from .mos_settings import MoSTable8, MoSTable9, MoSTable10
from .mos_table_7_plot import MoSTable7Plot
from .mos_table_13 import MoSTable13
from .mos_table_14 import MoSTable14
from .parthiban_figure import ParthibanFigure
from .presets import Presets
from .published_table import PublishedTable
from .published_tables import (
    LMSTable1,
    MoSTable1,
    MoSTable2,
    MoSTable3,
    MoSTable4,
    MoSTable5,
    MoSTable6,
    MoSTable7,
    MoSTable11,
    MoSTable12,
    ParthibanETASGD,
    ParthibanNTASGD,
)
from .rank_by_tolerance import RankByTolerance
from .results import Results, read
from .row_centring import RowCentring
from .spectra import Spectra
from .training_course import TrainingCourse
from .training_course_table import TrainingCourseTable
from .transformer_study import TransformerStudy
from .transformer_study_figure import TransformerStudyFigure

REGISTRY: dict[str, type[Entry]] = {
    "mos-table-1": MoSTable1,
    "mos-table-2": MoSTable2,
    "mos-table-3": MoSTable3,
    "mos-table-4": MoSTable4,
    "mos-table-5": MoSTable5,
    "mos-table-6": MoSTable6,
    "mos-table-7": MoSTable7,
    "mos-table-7-plot": MoSTable7Plot,
    "mos-table-8": MoSTable8,
    "mos-table-9": MoSTable9,
    "mos-table-10": MoSTable10,
    "mos-table-11": MoSTable11,
    "mos-table-12": MoSTable12,
    "mos-table-13": MoSTable13,
    "mos-table-14": MoSTable14,
    "mos-figure-1": MoSFigure1,
    "lms-table-1": LMSTable1,
    "lms-table-2": LMSTable2,
    "lms-figure-1": LMSFigure1,
    "lms-figure-2": LMSFigure2,
    "lms-figure-3": LMSFigure3,
    "lms-figure-4": LMSFigure4,
    "lms-figure-5": LMSFigure5,
    "lms-figure-6": LMSFigure6,
    "lms-figure-7": LMSFigure7,
    "lms-figure-8": LMSFigure8,
    "parthiban-nt-asgd": ParthibanNTASGD,
    "parthiban-et-asgd": ParthibanETASGD,
    "parthiban-figure": ParthibanFigure,
    "spectra": Spectra,
    "rank-by-tolerance": RankByTolerance,
    "effective-ranks": EffectiveRanks,
    "row-centring": RowCentring,
    "attainable-kl": AttainableKL,
    "training-course": TrainingCourse,
    "training-course-table": TrainingCourseTable,
    "transformer-study": TransformerStudy,
    "transformer-study-figure": TransformerStudyFigure,
    "demo": DemoFamily,
    "ptb-fast": PTBFast,
    "ptb-small": PTBSmall,
    "ptb-small-mos": PTBSmallMoS,
    "ptb-small-nt-asgd": PTBSmallNTASGD,
    "wt2-fast": WT2Fast,
    "presets": Presets,
    "bench-heads": BenchHeads,
    "bench-training": BenchTraining,
}


def find(name: str) -> Entry:
    """Return the figure or table registered under ``name``; `ConfigurationError` lists the known ones."""
    if name not in REGISTRY:
        raise ConfigurationError(unknown("figure", name, REGISTRY))
    return REGISTRY[name]()


__all__ = ["REGISTRY", "Entry", "Figure", "PublishedTable", "Results", "Table", "find", "read"]
