"""No code that comes with a model, a tokenizer or a data set runs, whatever stands on standard input."""

from __future__ import annotations

import ast
import json
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from softmax_bottleneck import rank
from softmax_bottleneck.errors import SourceError
from softmax_bottleneck.hugging_face.loading import quiet

ROOT = Path(__file__).parents[2]
LOADERS = ("from_pretrained", "from_config", "load_dataset", "load_dataset_builder", "pipeline")
"""Functions of transformers and datasets that can run code of what they load."""


def _loading(tree: ast.AST) -> list[ast.Call]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if ast.unparse(call.func).rpartition(".")[2] in LOADERS]


def _refuses_code(call: ast.Call) -> bool:
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    value = given.get("trust_remote_code")
    return isinstance(value, ast.Constant) and value.value is False


def test_every_call_that_can_run_code_refuses_it() -> None:
    files = [file for folder in ("bottleneck", "cli", "figures") for file in (ROOT / folder).rglob("*.py")]
    calls = {file: _loading(ast.parse(file.read_text(encoding="utf-8"))) for file in files}
    assert sum(map(len, calls.values())) >= 3, "the walk sees the calls there are"
    allowing = [f"{file.name}:{call.lineno}" for file in files for call in calls[file] if not _refuses_code(call)]
    assert not allowing, f"pass trust_remote_code=False at {', '.join(allowing)}"


SPY = """
from pathlib import Path
from transformers import PreTrainedTokenizer
Path({file!r}).touch()
class Spy(PreTrainedTokenizer):
    pass
"""


@pytest.mark.parametrize("names", [["tokenization_spy.Spy", None], {"AutoTokenizer": ["tokenization_spy.Spy", None]}])
def test_a_tokenizer_that_is_code_is_refused(names: Any, text: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Its model's type has no tokenizer of its own, for which transformers would ask."""
    monkeypatch.setattr(sys, "stdin", StringIO("y\n" * 9))
    sizes = {"vocab_size": 60, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1}
    sizes |= {"num_attention_heads": 2, "num_key_value_heads": 1, "mamba_d_ssm": 16, "mamba_n_heads": 2}
    with quiet() as transformers:
        config = transformers.FalconH1Config(**sizes, mamba_d_head=8)
        transformers.FalconH1ForCausalLM(config).save_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"auto_map": names, "tokenizer_class": "Spy"}))
    (tmp_path / "tokenization_spy.py").write_text(SPY.format(file=str(tmp_path / "ran")))
    (tmp_path / "vocab.txt").write_text("w0\nw1\n")
    with pytest.raises(SourceError, match=r"has no tokenizer that can be read .* no code that comes with a model"):
        rank(tmp_path, data=str(text))
    assert not (tmp_path / "ran").exists()
