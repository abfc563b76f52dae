"""Write the page: one HTML file that holds its data, its styles and its scripts, and loads nothing.

The script draws and counts singular values, tolerances and histograms, which `curves` gives it as plain values.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from datetime import date
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup
from numpy.typing import NDArray

from ..core.files import write_bytes
from ..core.version import __version__
from ..errors import for_command
from ..results.plotting import Look
from .contents import Contents, Model
from .sections import comparison_table, distance_table, provenance, published_table


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
    environment.filters |= {"visible": visible, "for_command": for_command}
    scripts = [_plotly(), _part("page.js")]
    return environment.from_string(_part("page.html")).render(
        models=[
            {
                "label": label,
                "look": look,
                "verdict": model.report.verdict,
                "provenance": provenance(model),
                "model": model,
            }
            for label, look, model in zip(contents.labels, contents.looks, contents.models, strict=True)
        ],
        contents=contents,
        comparison=comparison_table(contents),
        distance=distance_table(contents),
        published=published_table(contents),
        data=htmlsafe_json_dumps(curves(contents), allow_nan=False, separators=(",", ":")),
        style=Markup(_part("page.css")),
        scripts=[Markup(script) for script in scripts],
        policy="; ".join(["default-src 'none'", f"script-src {' '.join(map(_hash, scripts))}", *POLICY]),
        version=__version__,
        today=f"{date.today():%-d %B %Y}",
    )


POLICY = ["style-src 'unsafe-inline'", "img-src data: blob:", "base-uri 'none'", "form-action 'none'"]


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


def curves(contents: Contents) -> list[dict[str, Any]]:
    """Return for each model its label, look, both matrices and its histogram; ``None`` for what is not known."""
    return [
        {
            "label": label,
            **_look(look, contents.on_dark),
            "raw": _matrix(model, centered=False),
            "centered": _matrix(model, centered=True),
            "histogram": _histogram(model),
        }
        for label, look, model in zip(contents.labels, contents.looks, contents.models, strict=True)
    ]


def _look(look: Look, on_dark: Mapping[str, str]) -> dict[str, Any]:
    width = 2 * look.width
    dash = "solid" if look.dashes[1:] == (0,) else ",".join(f"{width * length:g}px" for length in look.dashes)
    return {"color": look.color, "dark": on_dark.get(look.color, look.color), "dash": dash, "width": width}


def _matrix(model: Model, *, centered: bool) -> dict[str, Any] | None:
    """Return the spectrum of the raw or the row-centred matrix with the rank that the report gives it."""
    report, (T, M) = model.report, model.shape
    spectrum = report.decomposition
    if spectrum is None:
        return None
    values, error = (spectrum.centered, spectrum.centered_error) if centered else (spectrum.values, spectrum.error)
    rank = report.rank_centered if centered else report.rank
    return {
        "values": _bytes(values[values > 0]),
        "size": min(T, M),
        "known": len(values),
        "error": error,
        "residual": spectrum.residual,
        "tolerance": rank.tolerance,
        "bound": report.bound["centered" if centered else "raw"],
        "reported": str(rank),
    }


def _bytes(values: NDArray[np.float64]) -> str:
    """Return numbers in base64, exactly."""
    return base64.b64encode(values.astype("<f8").tobytes()).decode()


def _histogram(model: Model) -> dict[str, Any] | None:
    """Return the percentage of drawn pairs whose divergence is at most each edge of the histogram."""
    if model.drawn is None:
        return None
    edges, counts = (np.asarray(model.drawn["histogram"][key], dtype=float) for key in ("edges", "counts"))
    share = 100 * np.append(0.0, counts.cumsum()) / counts.sum()
    mean = model.numbers.get(f"{model.split} pairwise KL", model.drawn["kld"])
    drawn = edges > 0  # the axis is logarithmic
    return {"edges": [*edges[drawn]], "share": [*share[drawn]], "mean": mean, "pairs": model.drawn["pairs"]}
