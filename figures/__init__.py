"""All figures and tables, those of the papers and others. They read saved results; none of them trains.

To add one: write a final subclass of `Figure` or `Table` in a file of its own, or a `PublishedTable` in
published_tables.py, and enter an instance in ``REGISTRY``.
"""

from __future__ import annotations

from softmax_bottleneck.errors import look_up

from .attainable_kl import AttainableKL
from .base import Entry, Figure, Table
from .bench_heads import BenchHeads
from .bench_training import BenchTraining
from .effective_ranks import EffectiveRanks
from .family import FAMILIES
from .lms_figure_1 import LMSFigure1
from .lms_figure_4 import LMSFigure4
from .lms_figure_5 import LMSFigure5
from .lms_synthetic import FIGURES as LMS_SYNTHETIC
from .lms_table_2 import LMSTable2
from .mos_figure_1 import MoSFigure1
from .mos_settings import MoSTable8, MoSTable9, MoSTable10
from .mos_table_7_plot import MoSTable7Plot
from .mos_table_13 import MOS_TABLE_13
from .mos_table_14 import MoSTable14
from .parthiban_figure import ParthibanFigure
from .presets import Presets
from .published_table import PublishedTable
from .published_tables import (
    LMS_TABLE_1,
    MOS_TABLE_1,
    MOS_TABLE_2,
    MOS_TABLE_3,
    MOS_TABLE_4,
    MOS_TABLE_5,
    MOS_TABLE_6,
    MOS_TABLE_7,
    MOS_TABLE_11,
    MOS_TABLE_12,
    PARTHIBAN_ET_ASGD,
    PARTHIBAN_NT_ASGD,
)
from .rank_by_tolerance import RankByTolerance
from .results import Results, read
from .row_centring import RowCentring
from .spectra import Spectra
from .training_course import TrainingCourse
from .training_course_table import TrainingCourseTable
from .transformer_study import TransformerStudy
from .transformer_study_figure import TransformerStudyFigure

REGISTRY: dict[str, Entry] = {
    "mos-table-1": MOS_TABLE_1,
    "mos-table-2": MOS_TABLE_2,
    "mos-table-3": MOS_TABLE_3,
    "mos-table-4": MOS_TABLE_4,
    "mos-table-5": MOS_TABLE_5,
    "mos-table-6": MOS_TABLE_6,
    "mos-table-7": MOS_TABLE_7,
    "mos-table-7-plot": MoSTable7Plot(),
    "mos-table-8": MoSTable8(),
    "mos-table-9": MoSTable9(),
    "mos-table-10": MoSTable10(),
    "mos-table-11": MOS_TABLE_11,
    "mos-table-12": MOS_TABLE_12,
    "mos-table-13": MOS_TABLE_13,
    "mos-table-14": MoSTable14(),
    "mos-figure-1": MoSFigure1(),
    "lms-table-1": LMS_TABLE_1,
    "lms-table-2": LMSTable2(),
    "lms-figure-1": LMSFigure1(),
    "lms-figure-2": LMS_SYNTHETIC["lms-figure-2"],
    "lms-figure-3": LMS_SYNTHETIC["lms-figure-3"],
    "lms-figure-4": LMSFigure4(),
    "lms-figure-5": LMSFigure5(),
    "lms-figure-6": LMS_SYNTHETIC["lms-figure-6"],
    "lms-figure-7": LMS_SYNTHETIC["lms-figure-7"],
    "lms-figure-8": LMS_SYNTHETIC["lms-figure-8"],
    "parthiban-nt-asgd": PARTHIBAN_NT_ASGD,
    "parthiban-et-asgd": PARTHIBAN_ET_ASGD,
    "parthiban-figure": ParthibanFigure(),
    "spectra": Spectra(),
    "rank-by-tolerance": RankByTolerance(),
    "effective-ranks": EffectiveRanks(),
    "row-centring": RowCentring(),
    "attainable-kl": AttainableKL(),
    "training-course": TrainingCourse(),
    "training-course-table": TrainingCourseTable(),
    "transformer-study": TransformerStudy(),
    "transformer-study-figure": TransformerStudyFigure(),
    **FAMILIES,
    "presets": Presets(),
    "bench-heads": BenchHeads(),
    "bench-training": BenchTraining(),
}


def find(name: str) -> Entry:
    """Return the figure or table registered under ``name``; `ConfigurationError` lists the known ones."""
    return look_up("figure", name, REGISTRY)


__all__ = ["REGISTRY", "Entry", "Figure", "PublishedTable", "Results", "Table", "find", "read"]
