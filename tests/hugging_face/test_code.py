"""No code that comes with a model, a tokenizer or a data set runs, whatever stands on standard input."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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


@pytest.mark.parametrize("legacy", [False, True])
def test_a_tokenizer_that_is_code_is_refused(legacy: bool, text: Path, tmp_path: Path) -> None:
    """Its model's type has no tokenizer of its own, for which transformers would ask."""
    folder, spy = tmp_path / "model", tmp_path / "ran"
    sizes = {"vocab_size": 60, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1}
    with quiet() as transformers:
        config = transformers.FalconH1Config(
            **sizes, num_attention_heads=2, num_key_value_heads=1, mamba_d_ssm=16, mamba_n_heads=2, mamba_d_head=8
        )
        transformers.FalconH1ForCausalLM(config).save_pretrained(folder)
    names: Any = ["tokenization_spy.Spy", None]
    settings = {"auto_map": names if legacy else {"AutoTokenizer": names}, "tokenizer_class": "Spy"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "tokenization_spy.py").write_text(SPY.format(file=str(spy)))
    (folder / "vocab.txt").write_text("w0\nw1\n")
    code = f"from softmax_bottleneck.cli import main; main(['rank', {str(folder)!r}, '--data', {str(text)!r}])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        input="y\n" * 9,
        env={**os.environ, "HF_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert not spy.exists()
    assert done.returncode == 1
    assert "[y/N]" not in done.stdout + done.stderr
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert "the tokenizer of" in sentence
    assert "is code of its own (auto_map names Spy), and no code that comes with a model is run here" in sentence
