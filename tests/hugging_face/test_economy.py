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


def counted(kind: type, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Count how often a model of a class is built and run."""
    calls = {"__init__": 0, "forward": 0}

    def counting(name: str) -> Any:
        method = getattr(kind, name)

        def count(self: Any, *args: Any, **given: Any) -> Any:
            calls[name] += 1
            return method(self, *args, **given)

        return count

    for name in calls:
        monkeypatch.setattr(kind, name, counting(name))
    return calls


def test_several_measurements_of_one_model(save: Save, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They run the body once, also where the tokenizer's tokens are measured alone as well."""
    source = sb.open(save("gpt-neox"), data=str(text), contexts=100, context_length=64, stride=32)
    calls = counted(transformers.GPTNeoXForCausalLM, monkeypatch)
    alone = source.without_padding()
    for measure in (sb.rank, sb.kld, sb.gradient, sb.need, sb.perplexity):
        measure(source)
    sb.rank(alone)
    assert calls["forward"] == 2


def test_one_rank_of_a_folder(save: Save, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is built without weights, for its output layer, and with them; one of the two forward passes checks it."""
    folder, calls = save("gpt2"), counted(transformers.GPT2LMHeadModel, monkeypatch)
    (folder / "generation_config.json").write_text("damaged")  # it is not needed
    _OPENED.clear()
    sb.rank(folder, data=str(text), contexts=100, context_length=64, stride=32)
    opened = [Path(each).name for each in _OPENED if each.startswith(str(folder))]
    assert opened.count("config.json") <= 2
    assert calls == {"__init__": 2, "forward": 2}
