"""Imports point down the floors of docs/architecture.md, nothing goes round in circles, and functions are short."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "softmax_bottleneck"
LINES, PARAMETERS = 50, 8
"""The most that a function has."""

FLOORS = {
    "errors": 0,
    "core": 0,
    "results": 0,
    "results.plotting.spectra": 1,
    "spectrum": 1,
    "theory": 1,
    "heads": 2,
    "corpora": 2,
    "language_models": 3,
    "hugging_face": 4,
    "sources": 5,
    "training": 5,
    "evaluation": 6,
    "synthetic": 6,
    "measure": 6,
    "integrations": 7,
    "figures": 7,
    "bench": 7,
    "report": 7,
    "cli": 8,
    "__main__": 9,
}


def _modules() -> dict[str, Path]:
    """Dotted name → file of every module, under the import name."""
    found = {}
    for folder, prefix in (("bottleneck", ""), ("cli", ".cli"), ("figures", ".figures")):
        for file in sorted((ROOT / folder).rglob("*.py")):
            parts = file.relative_to(ROOT / folder).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            found[".".join([PACKAGE + prefix, *parts])] = file
    return found


MODULES = _modules()


def _floor(module: str) -> int:
    _, *names = module.split(".")
    return next(FLOORS[key] for size in (3, 2, 1) if (key := ".".join(names[:size])) in FLOORS)


def _imports(module: str, file: Path) -> set[str]:
    """Every module of the package that ``module`` imports, inside functions and for type checking too."""
    is_package = file.name == "__init__.py"
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")[: len(module.split(".")) - node.level + is_package]
                base = ".".join([*parents, base] if base else parents)
            names = {f"{base}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else base for name in names}
    return {name for name in found if name in MODULES and name != PACKAGE}


def test_every_module_has_a_floor() -> None:
    unknown = {name.split(".")[1] for name in MODULES if "." in name} - set(FLOORS)
    assert not unknown, f"say in FLOORS and in docs/architecture.md on which floor {unknown} live"
    assert {name.split(".")[1] for name in MODULES if "." in name} == {name.split(".")[0] for name in FLOORS}


def test_imports_point_down() -> None:
    upward = [
        f"{module} (floor {_floor(module)}) imports {other} (floor {_floor(other)})"
        for module, file in MODULES.items()
        if module != PACKAGE
        for other in _imports(module, file)
        if _floor(other) > _floor(module)
    ]
    assert not upward


def test_no_circles() -> None:
    graph = {module: _imports(module, file) for module, file in MODULES.items() if module != PACKAGE}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, f"circle: {' → '.join([*path[path.index(module) :], module])}"
        if module not in done:
            for other in graph[module]:
                visit(other, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_the_walk_sees_relative_and_nested_imports() -> None:
    seen = _imports(f"{PACKAGE}.language_models.run", MODULES[f"{PACKAGE}.language_models.run"])
    assert {f"{PACKAGE}.language_models.on_text", f"{PACKAGE}.core.files"} <= seen
    assert f"{PACKAGE}.core.parallel" in _imports(f"{PACKAGE}.cli.sources", MODULES[f"{PACKAGE}.cli.sources"])


def test_functions_are_short_and_take_few_parameters() -> None:
    """Constructors of heads take every setting by name; a docstring is not code."""
    found = []
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                code = ast.unparse(node.body[ast.get_docstring(node) is not None :]).splitlines()
                names = {each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
                many = len(names - {"self", "cls"}) > PARAMETERS and "heads" not in path.parts
                found += [f"{module}: {node.name}"] if len(code) > LINES or many else []
    assert found == []
