"""How often a measurement reads the configuration, builds the model and runs it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import transformers

import softmax_bottleneck as sb
from softmax_bottleneck.errors import BottleneckError
from softmax_bottleneck.report.measured import measure_sources
from softmax_bottleneck.sources.measurement import results_of

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


def test_one_rank_of_a_folder(save: Save, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is built without weights, for its output layer, and with them; one of the two forward passes checks it."""
    folder, calls = save("gpt2"), counted(transformers.GPT2LMHeadModel, monkeypatch)
    (folder / "generation_config.json").write_text("damaged")  # it is not needed
    _OPENED.clear()
    sb.rank(folder, data=str(text), contexts=100, context_length=64, stride=32)
    opened = [Path(each).name for each in _OPENED if each.startswith(str(folder))]
    assert opened.count("config.json") <= 2
    assert calls == {"__init__": 2, "forward": 2}


@pytest.mark.parametrize("how", ["report", "commands", "no padding"])
def test_measurements_of_one_source_run_the_body_once(how: str, save: Save, open_model: Any, monkeypatch: Any) -> None:
    """Those of a page, several of one source, and one of a model whose layer has rows beyond the tokenizer's."""
    calls = counted(transformers.GPTNeoXModel, monkeypatch)
    sb.rank(open_model(save("gpt-neox")))
    once, calls["forward"] = calls["forward"], 0
    source = open_model(save("gpt-neox"))
    if how == "report":
        measure_sources({"m": source}, pairs=10)
    elif how == "commands":
        for measure in (sb.rank, sb.kld, sb.need, sb.gradient, sb.perplexity):
            measure(source)
    else:
        assert len([*results_of({"m": source}, sb.rank)]) == 2
    assert calls["forward"] == once > 0


def test_a_file_that_cannot_be_read_is_refused_before_the_model(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, calls = save("gpt2"), counted(transformers.GPT2LMHeadModel, monkeypatch)
    for data in ("gone.kld", "gone.txt"):
        with pytest.raises(BottleneckError, match=f"cannot read {data}"):
            sb.rank(folder, data=data)
    assert calls["__init__"] == 0
