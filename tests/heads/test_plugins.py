"""Heads of other packages: files as pip installs them, in a folder on the path (see tests/house/test_extending.py)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from softmax_bottleneck import heads
from softmax_bottleneck.errors import ConfigurationError
from softmax_bottleneck.language_models.model import LanguageModel, ModelConfig

SOFTPLUS = """
from softmax_bottleneck.heads import Combination
from torch import nn

class SoftplusHead(Combination):
    def __init__(
        self, hidden_size: int, vocab_size: int, *, embedding_size: int | None = None, beta: float = 1.0
    ) -> None:
        super().__init__(hidden_size, vocab_size, embedding_size=embedding_size)
        self.beta, self.function = beta, nn.Softplus(beta)
"""
ANY = """
from softmax_bottleneck.heads import Softmax

class Anything(Softmax.__base__):
    def __init__(self, **settings) -> None:
        super().__init__(**settings)
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(name: str, code: str, *, head: str, attribute: str) -> None:
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
        metadata = tmp_path / f"{name}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
        entry = f"[softmax_bottleneck.heads]\n{head} = {name}:{attribute}\n"
        (metadata / "entry_points.txt").write_text(entry, encoding="utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()

    return install


def test_an_installed_head_is_found_and_built(install: Callable[..., None]) -> None:
    install("softplus_head", SOFTPLUS, head="softplus", attribute="SoftplusHead")
    head = heads.build("softplus", hidden_size=5, vocab_size=7, beta=2.0)
    assert tuple(heads.parameters("softplus")) == ("embedding_size", "beta")
    assert head.settings == {"hidden_size": 5, "vocab_size": 7, "embedding_size": 5, "beta": 2.0}
    assert "softplus" not in heads.REGISTRY
    with pytest.raises(ConfigurationError, match=r"unknown head 'cosh'; known heads are .*, mixtape, softplus"):
        heads.find("cosh")
    config = ModelConfig.model_validate({"head": {"name": "softplus"}})
    assert type(LanguageModel(config, vocab_size=11).head).__name__ == "SoftplusHead"
    with pytest.raises(ValidationError, match=r"beta of head 'softplus': .*valid number .*'x'"):
        ModelConfig.model_validate({"head": {"name": "softplus", "beta": "x"}})


@pytest.mark.parametrize(
    ("code", "attribute", "reason"),
    [
        ("import no_such_module", "Head",
         r"does not load \(ModuleNotFoundError: No module named 'no_such_module'\); repair or"),
        ("", "Missing", r"does not load \(AttributeError: .*Missing.*; repair or"),
        (ANY, "Anything", r"\(Anything\) takes arbitrary keyword arguments; name each setting"),
        ("Thing = dict", "Thing",
         r"is broken_head:Thing, which is not a subclass of softmax_bottleneck\.heads\.Head; repair or"),
    ],
)  # fmt: skip
def test_a_broken_one_is_one_sentence(install: Callable[..., None], code: str, attribute: str, reason: str) -> None:
    install("broken_head", code, head="broken", attribute=attribute)
    with pytest.raises(ConfigurationError, match=f"'broken'.* {reason}"):
        heads.build("broken", hidden_size=5, vocab_size=7)


def test_one_name_of_two_packages_is_refused_and_a_built_in_name_is_never_looked_up(
    install: Callable[..., None],
) -> None:
    for name in ("one_head", "other_head"):
        install(name, SOFTPLUS, head="twice", attribute="SoftplusHead")
    with pytest.raises(ConfigurationError, match=r"'twice' of softmax_bottleneck.heads is registered by several"):
        heads.find("twice")
    install("mos_thief", "import no_such_module", head="mos", attribute="Head")
    assert heads.find("mos") is heads.MoS
