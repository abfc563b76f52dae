"""Every error the toolkit raises on purpose.

An error's text says what was received, what is allowed, and what to do. The command line prints it as one
sentence and exits with 1 (2 for wrong usage).
"""


class BottleneckError(Exception):
    """Base of all errors raised by this package."""


class ConfigurationError(BottleneckError):
    """A setting is unknown, missing or out of range."""


class CorpusError(BottleneckError):
    """A corpus is unknown, incomplete, damaged or does not fit a vocabulary."""


class RunError(BottleneckError):
    """A run folder is incomplete, changed, or was written by another tool."""


class StoreError(BottleneckError):
    """A log-probability store is incomplete, damaged, or does not match what is being written."""


class MatrixError(BottleneckError):
    """A matrix is empty, not two-dimensional, not finite, or not what it is said to be."""


class SourceError(BottleneckError):
    """A SOURCE is none of the things that can be measured."""


class TrainingError(BottleneckError):
    """Training cannot go on."""


class ParallelError(BottleneckError):
    """Another process of one computation is gone."""


class OutputError(BottleneckError):
    """A result could not be written."""
