"""One self-contained, interactive HTML page about several models."""

from .contents import Contents, Model
from .measured import measure_sources
from .page import write_page
from .saved import read_saved

__all__ = ["Contents", "Model", "measure_sources", "read_saved", "write_page"]
