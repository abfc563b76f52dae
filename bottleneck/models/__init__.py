"""Language models on a text: hidden states for its contexts, and the head on top of them."""

from .on_text import Cost, ModelOnText
from .run import RunOnText
from .states import GivenStates
from .text import Text, Words

__all__ = ["Cost", "GivenStates", "ModelOnText", "RunOnText", "Text", "Words"]
