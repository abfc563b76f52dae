"""Settings of Sphinx. `make docs` writes the pages to build/docs; reading them needs no network."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from softmax_bottleneck import __version__

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "softmax-bottleneck"
author = "The softmax-bottleneck developers"
version = release = __version__
extensions = [
    "mathml",
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
]
exclude_patterns = ["checks", "extensions", "gallery"]
default_role = "py:obj"
smartquotes_action = "qe"  # "--" begins the name of an option

html_theme = "furo"
html_title = f"softmax-bottleneck {version}"
html_favicon = "favicon.svg"
html_math_renderer = "mathml"
html_show_search_summary = False  # it would fetch pages, which a browser refuses for files on disk
html_copy_source = False
html_show_sourcelink = False

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # `make notebooks` executed them
nb_output_stderr = "remove"

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_typehints = "signature"
python_use_unqualified_type_names = True
python_display_short_literal_types = True
python_maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"
napoleon_use_ivar = True

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

suppress_warnings = ["ref.python"]  # names such as `hidden_size` are attributes of several classes

NOT_PROSE = re.compile(
    r"^( *)\.\. math::.*?(?=^\1\S|\Z)|^ *>>>.*(?:\n *\S.*)*|:math:`[^`]*`|``.*?``|`[^`]*`", re.MULTILINE | re.DOTALL
)


def keep_bars(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Let ``|x|`` in a docstring stay an absolute value; reStructuredText takes it for a substitution."""
    text, prose, start = "\n".join(lines), [], 0
    for found in NOT_PROSE.finditer(text):
        prose += [text[start : found.start()].replace("|", r"\|"), found[0]]
        start = found.end()
    lines[:] = "".join([*prose, text[start:].replace("|", r"\|")]).split("\n")


def keep_stars(app: Any, context: Any, lines: list[str]) -> None:
    """Let ``ptb-*`` in a help text stay a pattern; reStructuredText takes the star for emphasis."""
    lines[:] = [line.replace("*", r"\*") for line in lines]


def to_executed_notebooks(app: Any, page: str, source: list[str]) -> None:
    """Turn links to notebooks in the checkout into links to the pages made of them, which lie in docs/notebooks."""
    source[0] = source[0].replace("](../notebooks/", "](notebooks/")


def setup(app: Any) -> None:
    """Register what this file adds."""
    app.connect("source-read", to_executed_notebooks)
    app.connect("autodoc-process-docstring", keep_bars, priority=400)  # before napoleon's
    for part in ("description", "usage", "options", "arguments", "envvars", "epilog"):
        app.connect(f"sphinx-click-process-{part}", keep_stars)
