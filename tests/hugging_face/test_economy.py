"""How often a measurement reads the configuration, builds the model and runs it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import transformers

import softmax_bottleneck as sb

from .conftest import Save

_OPENED: list[str] = []
sys.addaudithook(lambda event, values: _OPENED.append(str(values[0])) if event == "open" else None)


def test_one_rank_of_a_folder(save: Save, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is built without weights, for its output layer, and with them; one of the two forward passes checks it."""
    folder, kind, calls = save("gpt2"), transformers.GPT2LMHeadModel, {"__init__": 0, "forward": 0}
    (folder / "generation_config.json").write_text("damaged")  # it is not needed

    def counted(name: str) -> Any:
        method = getattr(kind, name)

        def count(self: Any, *args: Any, **given: Any) -> Any:
            calls[name] += 1
            return method(self, *args, **given)

        return count

    monkeypatch.setattr(kind, "__init__", counted("__init__"))
    monkeypatch.setattr(kind, "forward", counted("forward"))
    _OPENED.clear()
    sb.rank(folder, data=str(text), contexts=100, context_length=64, stride=32)
    opened = [Path(each).name for each in _OPENED if each.startswith(str(folder))]
    assert opened.count("config.json") <= 2
    assert calls == {"__init__": 2, "forward": 2}
