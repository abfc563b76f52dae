"""The message that PyTorch is being loaded, which takes seconds."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import final

TEXT = "loading PyTorch …"


@final
class Announcement(MetaPathFinder):
    """Shows a text on a terminal from the first look for ``torch`` until it is loaded; it finds nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the usual place of ``torch``, with a loader that erases the text in the end."""
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def loading(module: ModuleType) -> None:
            print(TEXT, end="\r", file=sys.stderr, flush=True)  # noqa: T201
            try:
                load(module)
            finally:
                print(" " * len(TEXT), end="\r", file=sys.stderr, flush=True)  # noqa: T201

        spec.loader.exec_module = loading  # type: ignore[method-assign]
        return spec


def announce() -> None:
    """Announce the loading of PyTorch where standard error is a terminal and it is not loaded yet."""
    if sys.stderr.isatty() and "torch" not in sys.modules:
        sys.meta_path.insert(0, Announcement())
