"""The benchmark of output layers of GPT-2, and the study of small transformers, at sizes of seconds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from softmax_bottleneck.bench import bench_transformers, study_transformers
from softmax_bottleneck.bench import transformer_study as study
from softmax_bottleneck.errors import ConfigurationError


def test_all_cases_have_one_loss_at_the_start(here: Callable[..., list[set[str]]]) -> None:
    seconds = {"own": 1.0, "softmax": 0.5, "mos": 4.0, "lms-plif": 1.0}
    here(lambda name, case: (seconds[case["head"]], 100 if case["head"] == "softmax" else 1000))
    report = bench_transformers(shrink=100)
    json.dumps(report, allow_nan=False)
    for part in ("output layer", "whole step"):
        losses = [case["loss"] for name, case in report["cases"].items() if name.endswith(part)]
        assert losses == pytest.approx([losses[0]] * 4, rel=1e-5)
    goals = {goal["what"]: goal["met"] for goal in report["goals"]}
    assert goals["Softmax, output layer: memory / own"]
    assert not goals["MoS, K = 4, output layer: seconds / four of Softmax"]
    assert goals["LMS-PLIF, whole step: seconds / own"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A study of one width and a text of 300 tokens, whose results go to this folder."""
    cells = [study.Cell(300, 16, head, regime, 0) for regime in ("parameters", "time") for head in ("softmax", "mos-2")]
    monkeypatch.setattr(study, "RATES", {16: 4e-3})
    monkeypatch.setattr(study, "cells", lambda: iter([*cells, study.Cell(300, 16, "softmax-untied", "parameters", 0)]))
    monkeypatch.setattr(study, "LENGTH", 16)
    monkeypatch.setattr(study, "CONTEXTS", 64)
    monkeypatch.setattr(study, "TEST_BYTES", 700)
    return tmp_path / "study"


def test_the_study_continues_and_its_models_have_equal_parameters(small: Path, corpus_folder: Path) -> None:
    assert study_transformers(small, data=str(corpus_folder), minutes=0, steps=2) == 5
    assert study_transformers(small, data=str(corpus_folder), steps=2) == 0
    found = {file.stem: json.loads(file.read_text()) for file in small.iterdir()}
    assert len(found) == 5
    softmax, mos = (found[f"M300-d16-{head}-parameters-seed0"] for head in ("softmax", "mos-2"))
    assert abs(mos["parameters"] - softmax["parameters"]) <= 3 * study.LAYERS * 16
    assert mos["feed_forward"] < softmax["feed_forward"] == 64
    assert found["M300-d16-softmax-untied-parameters-seed0"]["equal_parameters"]
    untied, equal = study._model(study.Cell(8192, 32, "softmax-untied", "parameters", 0))
    assert not equal
    assert untied.config.intermediate_size == 128
    assert softmax["rank"] <= 17
    assert mos["steps"] == 2
    ratio = softmax["seconds_a_step"] / mos["seconds_a_step"]
    assert found["M300-d16-mos-2-time-seed0"]["steps"] == max(1, round(2 * ratio))
    assert 1 < softmax["bits_per_byte"] < 8
    before = {file: file.stat().st_mtime_ns for file in small.iterdir()}
    assert study_transformers(small, data=str(corpus_folder), steps=2) == 0
    assert {file: file.stat().st_mtime_ns for file in small.iterdir()} == before


def test_bits_per_byte_count_every_token_but_the_first() -> None:
    model, _ = study._model(study.Cell(300, 16, "mos-2", "parameters", 0))
    for length in (2, study.LENGTH, study.LENGTH + 1, 2 * study.LENGTH + 1, 300):
        ids = torch.randint(300, (length,), generator=torch.Generator().manual_seed(0))
        log_probs, start = [], 0
        while start < length - 1:
            window = ids[start : start + study.LENGTH + 1]
            log_probs += [-F for F in model(window.unsqueeze(0)).logits[0, :-1].gather(1, window[1:, None]).flatten()]
            start += study.LENGTH
        assert len(log_probs) == length - 1
        assert study._nats(model, ids) == pytest.approx(sum(value.item() for value in log_probs), rel=1e-5)


def test_a_study_has_steps(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="steps must be at least 1, not 0"):
        study_transformers(tmp_path, steps=0)
