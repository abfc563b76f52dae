"""The base class of all results: plain values for JSON, one row of a table, or lines for people."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


class Result(ABC):
    """A measurement. It prints as aligned lines and displays as a table in a notebook."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""

    @abstractmethod
    def rows(self) -> list[tuple[str, str]]:
        """Return the result as pairs of label and text, for people."""

    def to_frame(self) -> pd.DataFrame:
        """Return a table of one row, with nested keys joined by dots; see `frame` for several results."""
        import pandas as pd

        return pd.json_normalize(self.to_dict())

    def __str__(self) -> str:
        """Return the result as aligned lines."""
        rows = self.rows()
        width = max(len(label) for label, _ in rows)
        return "\n".join(f"{label:>{width}}  {text}" for label, text in rows)

    def _repr_html_(self) -> str:
        body = "".join(
            f"<tr><th>{html.escape(label)}</th><td>{html.escape(text)}</td></tr>" for label, text in self.rows()
        )
        return f"<table>{body}</table>"


def frame(results: Iterable[Result]) -> pd.DataFrame:
    """Return several results as one table, with one row for each."""
    import pandas as pd

    return pd.concat([result.to_frame() for result in results], ignore_index=True)
