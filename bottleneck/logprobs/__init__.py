"""From a model or a file to the matrix of log-probabilities, and the measurements on it."""

from .base import Block, Bound, FactorRows, Source
from .measure import kld, rank
from .sources import open_source
from .store import dump

__all__ = ["Block", "Bound", "FactorRows", "Source", "dump", "kld", "open_source", "rank"]
