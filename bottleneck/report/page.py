"""Write the page: one HTML file that holds its data, its styles and its scripts, and loads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from datetime import date
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ..core.files import write_bytes
from ..core.version import __version__
from .contents import Contents
from .curves import curves
from .sections import comparison_table, distance_table, provenance, published_table

UNSAFE = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
"""Characters that could end a script or a line of one, as JSON escapes."""


def write_page(contents: Contents, path: Path) -> None:
    """Write the page, whole or not at all.

    Names and texts are escaped, and a content security policy allows the page's own scripts alone, by their hashes.

    Raises:
        OutputError: the file cannot be written.
    """
    write_bytes(path, render(contents).encode(errors="backslashreplace"))


def render(contents: Contents) -> str:
    """Return the page as HTML."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["visible"] = visible
    scripts = [_plotly(), _part("page.js")]
    return environment.from_string(_part("page.html")).render(
        models=[
            {"label": label, "look": look, "verdict": model.verdict, "provenance": provenance(model), "model": model}
            for label, look, model in zip(contents.labels, contents.looks, contents.models, strict=True)
        ],
        contents=contents,
        comparison=comparison_table(contents),
        distance=distance_table(contents),
        published=published_table(contents),
        data=safe_json(curves(contents)),
        style=Markup(_part("page.css")),
        scripts=[Markup(script) for script in scripts],
        policy="; ".join(["default-src 'none'", f"script-src {' '.join(map(_hash, scripts))}", *POLICY]),
        version=__version__,
        today=f"{date.today():%-d %B %Y}",
    )


POLICY = ["style-src 'unsafe-inline'", "img-src data: blob:", "base-uri 'none'", "form-action 'none'"]


def safe_json(value: Any) -> Markup:
    """Return JSON that may stand inside a script element.

    Example:
        >>> print(safe_json("</script>"))
        "\\u003c/script\\u003e"
    """
    return Markup(json.dumps(value, allow_nan=False, separators=(",", ":")).translate(UNSAFE))


def visible(text: str) -> str:
    """Return a token whose line breaks, tabs and outer spaces are seen.

    Example:
        >>> visible(" the end\\n")
        '␣the end␤'
    """
    outer = re.sub("^ +| +$", lambda spaces: "␣" * len(spaces[0]), text)
    return outer.translate({ord("\n"): "␤", ord("\r"): "␍", ord("\t"): "␉"})


@cache
def _plotly() -> str:
    script = files("plotly").joinpath("package_data/plotly.min.js").read_text(encoding="utf-8")
    return script.replace("\r\n", "\n").replace("</script", "<\\/script")


def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
