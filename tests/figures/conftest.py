"""A small folder of results of every kind."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from softmax_bottleneck import PairwiseKLD, Perplexity
from softmax_bottleneck.figures import SavedResults, read
from softmax_bottleneck.spectrum import SavedSpectrum, Spectrum, precision, write_spectra

SIZE = 40
TOLERANCE = 1e-3


def report(
    name: str, *, head: str = "", seed: int = 0, rank: int = 6, perplexity: float = 90.0, vocab: int = SIZE, **more: Any
) -> dict[str, Any]:
    """What ``bottleneck demo`` writes, in part."""
    sigmas = {"sigma_1": 10.0, "sigma_r": 1.0, "sigma_next": None, "gap": None}
    determinate = {"value": rank, "low": rank, "high": rank, "determinate": True, "tolerance": TOLERANCE, **sigmas}
    wide = {"value": 30, "low": 20, "high": 39, "determinate": False, "tolerance": TOLERANCE / 10, **sigmas}
    return {
        "kind": "demo", "name": name, "seed": seed, "parameters": 12_345, "valid_perplexity": perplexity + 5,
        "test_perplexity": perplexity, "kld": 4.5, "train_seconds": 9.6,
        "history": [{"epoch": epoch, "step": 10 * epoch, "valid_perplexity": 200 / epoch} for epoch in (1, 2)],
        "report": {
            "kind": "rank", "contexts": 50, "vocab": vocab, "embedding_size": 4,
            "bound": {"raw": 6, "centered": 5, "why": ""},
            "source": {"path": f"runs/{name}", "head": head or name.partition("-k")[0], "split": "test"},
            "eps": {"value": 1e-7, "dtype": "float32", "assumed": False}, "method": "gram",
            "rank": determinate, "rank_centered": wide, "rank_by_rule": {"press": rank}, "effective_rank": {"1e-3": 2},
            "entropy_rank": 3.0, "stable_rank": 2.0, "certificate": {"frobenius_relative_error": 1e-12},
            "seconds": 1.0, "peak_memory_bytes": 1, "version": "0.1.0",
        },
        **more,
    }  # fmt: skip


def cell(model: str, vocab: int, dim: int, seed: int, alpha: float, **measures: Any) -> dict[str, Any]:
    """A result of ``bottleneck synthetic``."""
    best = {"kl": 0.5, "fitted_kl": 0.6, "mode_match": 0.35, "fitted_mode_match": 0.3, "largest_gap": 1e-9 * (1 + seed)}
    return {
        "model": model, "alpha": alpha, "vocab": vocab, "dim": dim, "seed": seed, "contexts": 9,
        "mode_match": 0.1 * dim + 0.02 * seed, "kl": 1 / dim + 0.1 * seed, "diverged": False,
        "converged": model == "softmax" or dim == 2 or seed > 0,
        "seconds": 1.0, "reachable": best if model == "softmax" else None, **measures,
    }  # fmt: skip


def cells(alpha: float) -> list[dict[str, Any]]:
    """Two models, two vocabularies, two embedding sizes, three seeds."""
    return [
        cell(model, vocab, dim, seed, alpha)
        for model in ("softmax", "lms")
        for vocab in (100, 1000)
        for dim in (5, 2)
        for seed in (0, 1, 2)
    ]


def spectrum(values: NDArray[np.float64], *, error: float = 0.0, method: str = "dense") -> Spectrum:
    """The spectrum of a 50 × 40 matrix."""
    return Spectrum(values, values * (np.arange(SIZE) < SIZE - 1), (50, SIZE), method, 0.0, error=error)


LOW_RANK = np.where(np.arange(SIZE) < 6, np.geomspace(10, 1, SIZE), 0.0)
FULL = np.geomspace(10, 1e-8, SIZE)
ERROR = 1.2e-7 * 10
SPECTRA = {"softmax": (LOW_RANK, 0.0), "moc": (LOW_RANK, 0.0), "mos": (FULL, ERROR), "lms-plif": (FULL + 1, ERROR)}
"""Singular values and resolution of the demo's models."""
ALPHAS = (0.01, 0.1, 1.0)


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """``FAMILY/NAME.json`` of two families, spectra, cells, and one of every other kind."""
    slopes = {"mean": 1.5, "std": 0.5, "min": 0.25, "max": 3.5}
    log_probs = [[-1, -2, -9], [-0.5, -2, -8], [-0.1, -1, -7]]
    symbols = [{"head": "softmax", "size": 4, "vocab": vocab, "symbols": 10, "nats": 1.0, "chance": 2.0}
               for vocab in (10, 30)]  # fmt: skip
    curves = [{"alpha": alpha, "vocab": vocab, "ranks": [1, 3, vocab], "log_probs": log_probs}
              for vocab in (10, 30) for alpha in ALPHAS]  # fmt: skip
    files = {
        **{f"synthetic/alpha-{alpha:g}": {"kind": "synthetic", "cells": cells(alpha)} for alpha in ALPHAS},
        "synthetic/concentrations": {"kind": "concentrations", "curves": curves},
        **{f"demo/{name}": report(name) for name in ("softmax", "moc", "mos")},
        "demo/lms-plif": report(
            "lms-plif", function={"pieces": 9, "slopes": slopes, "knots": [-1, 0, 1], "values": [-2, 0, 1]}
        ),
        "ptb/mos": report("mos", vocab=10_000, rank=9_981, perplexity=56.0, adaptive={"dynamic": 48.0, "cache": 50.0}),
        **{
            f"ptb/mos-{seed}": report("mos", vocab=10_000, seed=seed, rank=9_981, perplexity=56.0 + seed)
            for seed in (1, 2)
        },
        "ptb/mos.valid": PairwiseKLD(
            5.25, 7, 10_000, 1e-6, None, precision("float32"), source={"path": "runs/mos", "split": "valid"}
        ).to_dict(),
        "ptb/kn5": Perplexity(math.log(128.0), 9, {"path": "kn5:ptb", "split": "test"}).to_dict(),
        **{f"ptb-small-mos/k{K}": report(f"k{K}", head="mos", rank=100 * K) for K in (3, 10)},
        "text8/mos7": report("mos7", vocab=27, perplexity=2.0**1.5),
        "compare": comparison(),
        "bench/training": {"kind": "bench", "cases": bench_cases()},
        **{f"transformer-study/{number}": {"kind": "transformer-study", **run} for number, run in enumerate(study())},
        **{f"frozen-body/{number}": {"kind": "frozen-body", **run} for number, run in enumerate(frozen())},
        "spam": {"cases": {str(number): case for number, case in enumerate(symbols)}, "kind": "spam"},
        "smollm2/valid": report("softmax")["report"],
    }
    for name, content in files.items():
        write(tmp_path / "results" / f"{name}.json", content)
    for name, (values, error) in SPECTRA.items():
        saved = spectrum(values, error=error, method="gram" if error else "dense")
        write_spectra(tmp_path / "results" / "demo" / f"{name}.npz", [SavedSpectrum(saved, {})])
    write_spectra(tmp_path / "results" / "smollm2" / "valid.npz", [SavedSpectrum(spectrum(LOW_RANK), {})])
    return tmp_path / "results"


def study() -> list[dict[str, Any]]:
    """Runs of ``notebooks/studies/transformer.py`` with two seeds: PLIF better than Softmax by seed / 4 bits."""
    common = {"vocab": 1024, "size": 32, "effective_rank": {"1e-3": 7}, "gradient_kept": 0.25, "seconds_a_step": 0.5}
    return [
        common
        | {"head": head, "regime": regime, "seed": seed, "steps": 100, "rank_interval": [33 + seed, 40]}
        | {"bits_per_byte": 2.0 + seed + change * seed / 4, "equal_parameters": head != "softmax-untied"}
        for head, regime, change in (
            ("lms-plif", "parameters", -1), ("softmax", "parameters", 0), ("lms-plif", "time", 1),
            ("softmax-untied", "parameters", 0),
        )
        for seed in (1, 2)
    ]  # fmt: skip


def frozen() -> Iterator[dict[str, Any]]:
    """Runs of ``notebooks/studies/frozen_body.py`` with two seeds and, for the first, two learning rates."""
    best = {"start_perplexity": 9.0, "rank_interval": [9, 12], "effective_rank": {"1e-3": 5}}
    for head, seconds, last in (("softmax", 1.0, 2.0), ("mos-4", 4.0, 1.9), ("lms-plif", 0.5, 2.1)):
        for seed, rate, loss in ((0, 0.1, last), (0, 0.2, last + 1), (1, 0.1, last - 0.1)):
            course = [[4, loss + 0.4], [8, loss + 0.2], [16, loss]]
            yield {
                "head": head, "seed": seed, "rate": rate, "added_parameters": 7, "steps": 16, "course": course,
                "seconds_a_step": seconds, "perplexity": math.exp(loss), **(best if seed else {}),
            }  # fmt: skip


def bench_cases() -> dict[str, Any]:
    """Three cases of ``bottleneck bench training``, whose epochs take 10, 25 and 20 seconds."""
    presets = {"softmax": ("ptb-softmax", 10.0), "mos": ("ptb-mos", 25.0), "mos, batch 20": ("ptb-mos", 20.0)}
    common = {"seconds": 1.5, "memory_bytes": 3 * 2**20}
    return {
        name: common | {"case": {"preset": preset, "batch_size": 20, "plain": False}, "epoch_seconds": seconds}
        for name, (preset, seconds) in presets.items()
    }


def comparison() -> dict[str, Any]:
    """A comparison with MoC named first, so that MoS's cases are those of the second model."""
    top = [[{"token": "a|b", "probability": 0.5}], [{"token": "<script>", "probability": 0.25}]]
    case = {"row": 3, "context": "x " * 90, "target": "t", "reference": "", "nll": [1.0, 2.0], "top": top}
    return {
        "kind": "comparison", "contexts": 9, "nll": [4.5, 4.4], "sources": [{"path": "runs/moc"}, {"path": "runs/mos"}],
        "first_better": [{**case, "target": "wrong"}], "second_better": [case],
    }  # fmt: skip


@pytest.fixture
def results(folder: Path) -> SavedResults:
    return read(folder)
