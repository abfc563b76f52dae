"""Language models on a text: hidden states for its contexts, and the head on top of them."""

from .on_text import ModelOnText
from .run import RunOnText
from .source import UNKNOWN, Block, Cost, FactorRows, JoinedFactor, RightFactor, Source
from .states import GivenStates
from .text import Text, Words

__all__ = [
    "UNKNOWN", "Block", "Cost", "FactorRows", "GivenStates", "JoinedFactor", "ModelOnText", "RightFactor",
    "RunOnText", "Source", "Text", "Words",
]  # fmt: skip
