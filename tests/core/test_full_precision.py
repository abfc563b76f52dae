"""Settings of the process during measurements in several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import torch
from torch import nn

from softmax_bottleneck import rank
from softmax_bottleneck.core.full_precision import full_precision, precision_state
from softmax_bottleneck.errors import ConfigurationError


def test_the_last_of_several_threads_restores_the_settings() -> None:
    before = precision_state()
    first_is_in, second_is_in = threading.Event(), threading.Event()

    def second() -> None:
        first_is_in.wait()
        with full_precision():
            second_is_in.set()
            done.wait()
            assert precision_state() == before

    done = threading.Event()
    with ThreadPoolExecutor() as pool:
        other = pool.submit(second)
        with full_precision():
            first_is_in.set()
            second_is_in.wait()
            inside = torch.backends.mkldnn.matmul.fp32_precision
        assert inside == torch.backends.mkldnn.matmul.fp32_precision == "ieee"
        done.set()
        other.result()
    assert precision_state() == before


def test_a_default_device_without_numbers() -> None:
    torch.set_default_device("meta")
    try:
        for source in (torch.eye(4, device="cpu"), nn.Linear(3, 4, device="cpu")):
            with pytest.raises(ConfigurationError, match="tensors without numbers"):
                rank(source, kind="matrix") if isinstance(source, torch.Tensor) else rank(
                    source, hidden=torch.ones(5, 3, device="cpu")
                )
    finally:
        torch.set_default_device(None)


OPERATORS = [getattr(getattr(torch.backends, backend), name) for backend, name in (
    ("cuda", "matmul"), ("cudnn", "conv"), ("cudnn", "rnn"), ("mkldnn", "matmul"), ("mkldnn", "conv"), ("mkldnn", "rnn")
)]  # fmt: skip


def _state() -> list[object]:
    return [*(each.fp32_precision for each in OPERATORS), torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")]


@pytest.mark.parametrize(
    "switch_on",
    [
        lambda: None,
        lambda: torch.set_float32_matmul_precision("medium"),
        lambda: setattr(torch.backends.cudnn, "allow_tf32", False),
        # The settings that replace both since torch 2.9: their use makes torch refuse the older names.
        lambda: setattr(torch.backends.mkldnn.matmul, "fp32_precision", "bf16"),
        lambda: setattr(torch.backends, "fp32_precision", "tf32"),
    ],
)
def test_products_are_in_full_precision_inside_and_as_before_after(switch_on: Callable[[], None]) -> None:
    fresh = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    try:
        switch_on()
        with torch.autocast("cpu", torch.bfloat16):
            before = _state()
            for error in (None, KeyboardInterrupt):
                with suppress(KeyboardInterrupt), full_precision():
                    assert _state() == [*["ieee"] * 6, False, False]
                    assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
                    if error:
                        raise error
                assert _state() == before
    finally:
        for each in (torch.backends, *OPERATORS):
            each.fp32_precision = "none"
        torch.set_float32_matmul_precision(fresh[0])
        torch.backends.cudnn.allow_tf32 = fresh[1]
