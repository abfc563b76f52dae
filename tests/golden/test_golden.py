"""Every command on small fixed inputs gives the keys and values that it gave before.

``GOLDEN=write pytest tests/golden`` records them anew, and ``pytest tests/golden -k rank`` runs some of them.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

import softmax_bottleneck as sb
from softmax_bottleneck.training import as_toml

from .cases import CASES

HERE = Path(__file__).parent
ONE_TYPE = {
    "cores", "error", "frobenius_relative_error", "gap", "largest_gap", "largest_log_sum", "machine",
    "memory", "memory_bytes", "peak_memory_bytes", "precision_found", "residual", "roundoff", "seconds",
    "sha256", "sigma_next", "spectrum_seconds", "spent", "tokens_per_second", "version", "versions",
}  # fmt: skip
"""Values that depend on the machine, the time or the order of additions: only their types are recorded."""


def write_gpt2(folder: Path) -> None:
    """Write a GPT-2 of six dimensions with a tokenizer of words."""
    import transformers

    tokenizer = Tokenizer(WordLevel({f"w{number}": number for number in range(30)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    sizes = {"n_embd": 6, "n_layer": 1, "n_head": 2, "n_positions": 32, "initializer_range": 1.0}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=32, **sizes))
    transformers.utils.logging.disable_progress_bar()
    model.save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs, stores and corpus of tests/fixtures, and matrices made from a seed."""
    folder = tmp_path_factory.mktemp("golden") / "inputs"
    shutil.copytree(HERE.parent / "fixtures", folder)
    rng = np.random.default_rng(0)
    logits, places = rng.standard_normal((30, 6)) @ rng.standard_normal((6, 20)), np.arange(12)
    np.save(folder / "logits.npy", logits)
    np.save(folder / "hilbert.npy", 1.0 / (places[:, None] + places + 1))
    np.savetxt(folder / "matrix.csv", rng.standard_normal((9, 4)), delimiter=",")
    arrays = {"a": logits @ logits.T, "b": rng.standard_normal((5, 3)) @ rng.standard_normal((3, 8))}
    np.savez(folder / "arrays.npz", **arrays)
    safetensors.numpy.save_file(arrays, folder / "arrays.safetensors")
    (folder / "text.txt").write_text(" ".join(f"w{word}" for word in rng.integers(0, 30, 60)))
    np.save(folder / "of-151.npy", rng.standard_normal((12, 151)))
    (folder / "empty").mkdir()
    backbone = {"name": "lstm", "embedding_size": 4, "hidden_size": 6}
    model = {"backbone": backbone, "head": {"name": "mos", "components": 2}}
    tiny = {"corpus": "corpus", "model": model, "training": {"epochs": 1, "batch_size": 4}}
    (folder / "tiny.toml").write_text(as_toml(tiny))
    write_gpt2(folder / "gpt2")
    return folder


@pytest.mark.parametrize("name", CASES)
def test_a_command_gives_what_it_gave(
    name: str, inputs: Path, bottleneck: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    case = CASES[name]
    monkeypatch.setenv("SOFTMAX_BOTTLENECK_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(shutil.copytree(inputs, tmp_path / "work"))
    before = set(Path().rglob("*"))
    for line in case.command.splitlines():
        done = bottleneck(*shlex.split(line))
    clean = types if case.keys_only else kept
    record: dict[str, Any] = {"exit_code": done.exit_code, "stdout": clean(parsed(done.stdout))}
    if done.exit_code not in (0, 3):
        record["errors"] = done.stderr.count("Error: ")
    files = [path for path in sorted(Path().glob(case.out)) if path not in before] if case.out else []
    record |= {"files": {str(path): clean(content(path)) for path in files if path.is_file()}}
    compare(name, record, case.rtol, case.atol)


def test_public_names() -> None:
    """The names of the package, and the names of their arguments."""
    record: dict[str, list[str]] = {}
    for name in sb.__all__:
        value = getattr(sb, name)
        has_arguments = inspect.isfunction(value) or is_dataclass(value)
        record[name] = sorted(inspect.signature(value).parameters) if has_arguments else []
    record |= {name: sorted(getattr(sb, name).__all__) for name in ("heads", "integrations", "theory")}
    compare("public-names", record)


def parsed(text: str) -> Any:
    """Return JSON as values, other text as lines, without the working directory and the lines about the machine."""
    text = text.replace(str(Path.cwd()), ".")
    text = re.sub(r"softmax-bottleneck  [\s\S]*(?=integrity  )", "", text)
    text = re.sub(r"\n {15,}", " ", text)  # a line that is continued
    text = re.sub(r"trained for \d+ s", "trained for # s", text)
    try:
        return json.loads(text)
    except ValueError:
        return text.splitlines()


def content(path: Path) -> Any:
    """Return what is recorded of a file: JSON values, the header and length of a CSV file, the keys in a page."""
    text = path.read_text(errors="replace") if path.suffix in (".json", ".jsonl", ".csv", ".html") else ""
    if path.suffix == ".jsonl":
        return [*map(parsed, text.splitlines())]
    if path.suffix == ".csv":
        return [text.partition("\n")[0], len(text.splitlines())]
    if path.suffix == ".html":
        return [types(json.loads(data)) for data in re.findall('<script type="application/json"[^>]*>(.*?)<', text)]
    return parsed(text) if path.suffix == ".json" else "a file"


def types(value: Any) -> Any:
    """Return the keys of nested dictionaries with the types of their values; of a list, those that differ."""
    if isinstance(value, Mapping):
        return {key: types(each) for key, each in value.items()}
    if isinstance(value, list):
        return [each for place, each in enumerate(map(types, value)) if each not in [*map(types, value[:place])]]
    if isinstance(value, str) and re.search(r"\s", value):  # a line of text
        return re.sub(r" +|-+", " ", re.sub(r"\d[\d.,]*(e[-+]\d+)?", "#", value))
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def kept(value: Any, key: str = "") -> Any:
    """Return values as they are recorded: rounded, and of some keys only the type."""
    if key == "driver":  # one routine or several
        return type(value).__name__
    if key in ONE_TYPE:
        return types(value) if not isinstance(value, Mapping) else "dict"
    if key == "config":  # of a preset
        return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
    if isinstance(value, Mapping):
        return {name: kept(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [kept(each) for each in value]
    if isinstance(value, str):  # the roundoff in a sentence
        return re.sub(r"\b\d(\.\d+)?e-\d\d\b", "#", value)
    return float(f"{value:.9g}") if isinstance(value, float) else value


def compare(name: str, record: Any, rtol: float = 0, atol: float = 0) -> None:
    """Compare a record with the golden one, or write it."""
    path = HERE / f"{name}.json"
    if os.environ.get("GOLDEN") == "write":
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    golden = json.loads(path.read_text(encoding="utf-8"))
    assert not [*differences(golden, json.loads(json.dumps(record)), rtol, atol)]


def differences(golden: Any, found: Any, rtol: float, atol: float, where: str = "") -> Any:
    """Yield each place where two records differ."""
    if isinstance(golden, dict) and isinstance(found, dict):
        for key in {*golden, *found}:
            yield from differences(golden.get(key, "absent"), found.get(key, "absent"), rtol, atol, f"{where}.{key}")
    elif isinstance(golden, list) and isinstance(found, list) and len(golden) == len(found):
        for place, (first, second) in enumerate(zip(golden, found, strict=True)):
            yield from differences(first, second, rtol, atol, f"{where}[{place}]")
    elif isinstance(golden, float) and isinstance(found, int | float):
        if found != pytest.approx(golden, rel=rtol, abs=atol):
            yield f"{where}: {golden} was recorded, {found} found"
    elif golden != found:
        yield f"{where}: {golden!r} was recorded, {found!r} found"
