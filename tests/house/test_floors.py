"""Imports point down the floors of the README's architecture, and nothing goes round in circles."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "softmax_bottleneck"

FLOORS = {
    "checks": 0,
    "errors": 0,
    "published": 0,
    "_version": 0,
    "files": 0,
    "interruption": 0,
    "json_file": 0,
    "printable": 0,
    "progress": 0,
    "machine": 0,
    "options": 0,
    "parallel": 0,
    "plugins": 0,
    "allocator": 0,
    "eager": 0,
    "result": 0,
    "result_schemas": 0,
    "tables": 0,
    "workers": 0,
    "spectrum": 1,
    "divergence": 1,
    "embeddings": 1,
    "full_precision": 1,
    "plotting": 1,
    "tensor_file": 1,
    "theory": 1,
    "unchanged": 1,
    "heads": 2,
    "backbones": 2,
    "corpora": 2,
    "ngram": 2,
    "reading": 3,
    "language_model": 3,
    "checkpoint": 3,
    "models": 4,
    "sources": 5,
    "training": 5,
    "synthetic": 5,
    "evaluation": 6,
    "measure": 6,
    "integrations": 7,
    "figures": 7,
    "demo": 7,
    "demo_table": 7,
    "bench": 7,
    "doctor": 7,
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
    return FLOORS[module.split(".")[1]]


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
    assert not unknown, f"say in FLOORS and in the README on which floor {unknown} live"
    assert {name.split(".")[1] for name in MODULES if "." in name} == set(FLOORS)


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
    seen = _imports(f"{PACKAGE}.models.run", MODULES[f"{PACKAGE}.models.run"])
    assert {f"{PACKAGE}.checkpoint", f"{PACKAGE}.models.on_text", f"{PACKAGE}.files"} <= seen
    assert f"{PACKAGE}.parallel" in _imports(f"{PACKAGE}.cli.sources", MODULES[f"{PACKAGE}.cli.sources"])
