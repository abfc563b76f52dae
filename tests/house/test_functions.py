"""Functions are short, and take few parameters."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINES, PARAMETERS = 50, 8


def test_functions_are_short_and_take_few_parameters() -> None:
    """Constructors of heads take every setting by name; a docstring is not code."""
    found = []
    for path in (file for folder in ("bottleneck", "cli", "figures") for file in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                code = ast.unparse(node.body[ast.get_docstring(node) is not None :]).splitlines()
                names = {each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
                many = len(names - {"self", "cls"}) > PARAMETERS and "heads" not in path.parts
                found += [f"{path.parent.name}/{path.name}: {node.name}"] if len(code) > LINES or many else []
    assert found == []
