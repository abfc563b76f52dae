"""Formulas as MathML, which browsers show by themselves: no script and no font is loaded."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert


def _write(writer: Any, node: nodes.Element, display: str) -> None:
    writer.body.append(convert(node.astext(), display=display))
    raise nodes.SkipNode


def visit_math(writer: Any, node: nodes.math) -> None:
    """Write a formula within a line."""
    _write(writer, node, "inline")


def visit_math_block(writer: Any, node: nodes.math_block) -> None:
    """Write a formula of its own."""
    writer.body.append('<div class="math">')
    writer.body.append(convert(node.astext(), display="block"))
    writer.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
