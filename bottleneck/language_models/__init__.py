"""Language models on a text: hidden states for its contexts, and the head on top of them."""

from .on_text import Model, ModelOnText
from .run import RunModel, open_run
from .source import UNKNOWN, Block, Cost, FactorRows, JoinedFactor, RightFactor, Source
from .states import given_states
from .text import Names, Text

__all__ = [
    "UNKNOWN", "Block", "Cost", "FactorRows", "JoinedFactor", "Model", "ModelOnText", "Names",
    "RightFactor", "RunModel", "Source", "Text", "given_states", "open_run",
]  # fmt: skip
