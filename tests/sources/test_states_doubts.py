"""States that do not belong to their output layer: taken elsewhere, of another size, normalized twice, or padding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

import softmax_bottleneck as sb
from softmax_bottleneck import rank

from .states import D, M, save


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda states: 0.01 * states, "taken before the final norm: give it, norm='MODEL|FILE:NAME'"),
        (lambda states: states.roll(1, 0), "one token too late"),
        (lambda states: states.roll(-1, 0), "one token too early"),
    ],
)
def test_states_of_another_place_are_told(text: Any, change: Any, told: str, tmp_path: Path, caplog: Any) -> None:
    weight, ids, states = text
    how = save(tmp_path, weight, ids, change(states))
    report = rank(str(tmp_path / "text"), **how)
    assert told in report.rank.doubt
    assert not report.rank.determinate
    assert caplog.text.count(told) == 1
    assert told in sb.need(str(tmp_path / "text"), **how).to_dict()["source"]["mismatch"]
    for measure in (sb.need, sb.gradient, sb.perplexity, sb.kld, rank):
        assert " ".join(str(measure(str(tmp_path / "text"), **how)).split()).count(told) == 1
    compared = sb.compare([sb.open(str(tmp_path / "text"), **how)] * 2, max_kl=1.0)[0]
    assert not compared.passed
    assert compared.notes[-1] == "no limit passes: the states of one may not be those that its output layer takes"
    if "norm" in told:
        norm = f"{tmp_path / 'model.safetensors'}:norm.weight"
        assert rank(str(tmp_path / "text"), norm=norm, **how).rank.doubt == ""


def test_states_of_another_size_may_lack_a_norm_or_a_scale(text: Any, tmp_path: Path) -> None:
    weight, ids, states = text
    sizes = torch.rand(200, 1, generator=torch.Generator().manual_seed(0)).exp2()
    for folder, factor, scale in (("one", 0.01, True), ("other", 0.01 * sizes**4, False)):
        (tmp_path / folder).mkdir()
        how = save(tmp_path / folder, weight, ids, factor * states)
        doubt = rank(str(tmp_path / folder / "text"), **how).rank.doubt
        assert "taken before the final norm: give it" in doubt
        assert ("or have another scale than the output layer takes: give scale" in doubt) is scale


@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("with_ids", [True, False])
def test_a_norm_is_not_applied_twice_unsaid(kind: str, dtype: torch.dtype, with_ids: bool, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    gamma, beta = (torch.rand(D, generator=generator) + 0.5 for _ in range(2))
    weight, states = (torch.randn(size, D, generator=generator) for size in (M, 200))
    norms = {"norm.weight": gamma, **({"norm.bias": beta} if kind == "layer" else {})}
    after = F.layer_norm(states, (D,), gamma, beta) if kind == "layer" else F.rms_norm(states, (D,), gamma)
    save_file({"weight": weight, **norms}, tmp_path / "head.safetensors")
    head, norm = (f"{tmp_path / 'head.safetensors'}:{name}" for name in ("weight", "norm.weight"))
    for given, is_wrong in ((states, False), (0.5 + states, False), (after, True)):
        ids = {"token_ids": torch.arange(200) % M} if with_ids else {}
        save_file({"hidden_states": given.to(dtype), **ids}, tmp_path / "states.safetensors")
        doubt = sb.open(str(tmp_path / "states.safetensors"), head=head, norm=norm).entry_warning()
        assert ("taken after the final norm, which is applied again" in doubt) is is_wrong


def test_a_norm_that_changes_nothing_is_not_applied_twice(tmp_path: Path) -> None:
    """A random state of many dimensions has nearly the norm of a normalized one."""
    generator = torch.Generator().manual_seed(0)
    weight, states = (torch.randn(size, 2048, generator=generator) for size in (M, 50))
    states[3] = 0
    for gamma, is_wrong in ((torch.ones(2048), False), (torch.rand(2048, generator=generator) + 0.5, True)):
        save_file({"weight": weight, "norm.weight": gamma}, tmp_path / "head.safetensors")
        save_file({"hidden_states": F.rms_norm(states, (2048,), gamma)}, tmp_path / "states.safetensors")
        head, norm = (f"{tmp_path / 'head.safetensors'}:{name}" for name in ("weight", "norm.weight"))
        doubt = sb.open(str(tmp_path / "states.safetensors"), head=head, norm=norm).entry_warning()
        assert ("taken after the final norm" in doubt) is is_wrong


def test_zero_states_are_noted_as_padding(text: Any, tmp_path: Path) -> None:
    weight, ids, states = text
    states = states.clone()
    states[-3:] = 0
    assert "3 of 200 states are zero, as padding is" in str(
        rank(str(tmp_path / "text"), **save(tmp_path, weight, ids, states))
    )


@pytest.mark.parametrize("scale", [1e-3, 1.0, 20.0])
def test_states_of_a_random_text_are_not_called_wrong(text: Any, scale: float, tmp_path: Path, caplog: Any) -> None:
    """Nor those of an untrained model, whose logits are all near zero: each result notes what can be the cause."""
    weight, ids, states = text
    how = save(tmp_path, weight, ids, scale * states[torch.randperm(200, generator=torch.Generator().manual_seed(1))])
    source = sb.open(str(tmp_path / "text"), **how)
    assert (source.entry_warning(), "mismatch" in source.description) == ("", False)
    for result in (sb.kld(source, pairs=9), sb.compare([source, source])):
        assert "note  " in str(result)
        reasons = (
            "the model is untrained, the text is random, the states were taken before the final norm, or states and"
        )
        assert reasons in str(result.to_dict())
    assert not caplog.text
