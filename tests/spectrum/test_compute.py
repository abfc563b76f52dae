"""Which method, what goes in, and how blocks of rows are checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from softmax_bottleneck.core.parallel import Processes
from softmax_bottleneck.errors import ConfigurationError, MatrixError
from softmax_bottleneck.spectrum import (
    TSQR,
    Accelerator,
    Choice,
    Dense,
    Gram,
    Host,
    SpectrumSettings,
    WideGram,
    choose,
    decompose,
    matrix_spectrum,
    settings,
)
from softmax_bottleneck.spectrum.blocks import checked

FLOAT32 = 2.0**-23
HUGE = {"max_memory": 1 << 50}
NO_INDEX = "numbers; LAPACK has no index for them .*:"


def _chosen(method: str, *, eps: float, shape: tuple[int, int], factor_columns: int = 0, **settings: Any) -> Choice:
    how = SpectrumSettings(**{"method": method, "max_memory": 8 << 30, "device": "cpu", **settings})
    return choose(how, shape=shape, eps=eps, factor_columns=factor_columns)


@pytest.mark.parametrize(
    ("method", "shape", "eps", "expected"),
    [
        ("gram", (10, 5), 2.0**-52, Gram),
        ("gram", (5, 10), FLOAT32, WideGram),
        ("tsqr", (10, 5), FLOAT32, TSQR),
        ("auto", (82_429, 10_000), FLOAT32, Gram),
        ("auto", (82_429, 10_000), 1e-8, Gram),
        ("auto", (20_000, 1_000), 1e-9, TSQR),
        ("auto", (20_000, 1_000), 2.0**-52, TSQR),
        ("auto", (2_000, 1_000), 2.0**-52, Dense),
        ("auto", (1_000, 20_000), FLOAT32, WideGram),
        ("auto", (1_000, 20_000), 2.0**-52, Dense),
        ("auto", (4_096, 4_096), FLOAT32, Dense),
        ("auto", (4_097, 4_096), FLOAT32, Gram),
    ],
)
def test_choose(method: str, shape: tuple[int, int], eps: float, expected: type) -> None:
    choice = _chosen(method, shape=shape, eps=eps)
    assert type(choice.start()) is expected
    assert (choice.why == "asked for") == (method != "auto")


@pytest.mark.parametrize(
    ("method", "shape", "eps", "more", "expected"),
    [
        ("dense", (10_000, 10_000), FLOAT32, {"max_memory": 3 << 30}, "dense"),
        ("dense", (10_000, 10_000), FLOAT32, {"max_memory": 2 << 30},
         r"dense would need 3\.0 GiB; 2\.0 GiB are allowed \(for a 10,000 × 10,000 matrix\): raise max_memory"),
        ("gram", (10**9, 10_000), FLOAT32, {"max_memory": 3 << 30}, "gram"),  # rows cost it nothing
        ("tsqr", (10**9, 10_000), FLOAT32, {"max_memory": 2 << 30}, r"tsqr would need 3\.0 GiB"),
        ("auto", (10**6, 200_000), FLOAT32, {}, "sketch"),  # where no exact method fits
        ("auto", (10**6, 40_000), FLOAT32, {"max_memory": 1 << 30}, "sketch would need .* or use a smaller width"),
        ("sketch", (1000, 500), FLOAT32, {"max_memory": 8 << 20}, "sketch"),  # not of more columns than there are
        ("auto", (400, 2649), FLOAT32, {"max_memory": 20 << 20}, "gram"),  # small enough for LAPACK, but not here
        ("auto", (2649, 400), 2.0**-52, {"max_memory": 20 << 20}, "tsqr"),
        # Fewer contexts are advised where they help: gram's sum has M columns however many there are.
        ("gram", (30_000, 40_000), FLOAT32, {"max_memory": 1 << 30},
         "raise max_memory, measure fewer contexts, or use method='sketch'"),
        ("gram", (10**6, 40_000), FLOAT32, {"max_memory": 1 << 30}, "raise max_memory, or use method='sketch'"),
        ("gram", (10**6, 46_341), FLOAT32, HUGE, f"{NO_INDEX} use method='sketch'"),
        ("tsqr", (10**6, 46_341), FLOAT32, HUGE, f"{NO_INDEX} use method='sketch'"),
        ("dense", (10**6, 2_148), FLOAT32, HUGE, f"{NO_INDEX} use method='sketch'"),
        ("sketch", (10**6, 1 << 18), FLOAT32, {"width": 1 << 13, **HUGE}, f"{NO_INDEX} use a smaller width"),
        ("auto", (10**6, 46_341), FLOAT32, HUGE, "sketch"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_or_not_chosen(
    method: str, shape: tuple[int, int], eps: float, more: dict[str, Any], expected: str
) -> None:
    """Neither memory nor LAPACK's indices of 32 bits are exceeded."""
    if " " not in expected:
        assert _chosen(method, shape=shape, eps=eps, **more).name == expected
        return
    with pytest.raises(MatrixError, match=expected):
        _chosen(method, shape=shape, eps=eps, **more)


@pytest.mark.parametrize("blocks", [np.eye(3), [np.eye(3)]], ids=["whole", "blocks"])
def test_unknown_methods(blocks: Any) -> None:
    with pytest.raises(
        ConfigurationError, match="unknown method 'qr'; known methods are auto, factored, gram, tsqr, dense, sketch"
    ):
        matrix_spectrum(blocks, SpectrumSettings(method="qr"))
    with pytest.raises(ConfigurationError, match="factored method needs a model with a log-linear head"):
        matrix_spectrum(blocks, SpectrumSettings(method="factored"))


def _blocks(matrix: NDArray[np.floating], rows: int) -> Iterator[NDArray[np.floating]]:
    for start in range(0, len(matrix), rows):
        yield matrix[start : start + rows]


@pytest.mark.parametrize("method", ["auto", "dense", "gram"])
def test_arrays_tensors_lists_and_blocks_are_one_matrix(method: str) -> None:
    matrix = np.random.default_rng(0).integers(-8, 8, (20, 6)) / 8.0
    expected = np.linalg.svd(matrix, compute_uv=False)
    forms = [
        matrix,
        matrix.astype(">f8"),
        matrix.astype(">f4"),
        matrix.astype(np.longdouble),
        np.asfortranarray(matrix.astype(np.float16)),
        torch.tensor(matrix, requires_grad=True),
        torch.tensor(matrix, dtype=torch.bfloat16),
        (8 * matrix).astype(np.int8),
        _blocks(matrix, 3),
        (torch.from_numpy(block) for block in _blocks(matrix, 7)),
        [matrix[:4], matrix[4:].astype(np.float32)],
    ]
    for form in forms:
        scale = 8 if getattr(form, "dtype", None) == np.int8 else 1
        found = matrix_spectrum(form, SpectrumSettings(method=method))
        assert found.shape == (20, 6)
        assert found.method == ("gram" if method == "gram" else "dense")
        np.testing.assert_allclose(found.values, scale * expected, rtol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_first_bad_number_is_named_across_blocks(bad: float) -> None:
    matrix = np.ones((9, 4), np.float32)
    matrix[7, 3] = matrix[7, 2] = matrix[8, 0] = bad
    for blocks in (matrix, _blocks(matrix, 2), [torch.from_numpy(matrix)]):
        with pytest.raises(MatrixError, match=f"holds {bad} at row 7, column 2: "):
            matrix_spectrum(blocks)
    with pytest.raises(MatrixError, match=f"A holds {bad} at row 17, column 2"):
        list(checked([matrix], what="A", start=10))


@pytest.mark.parametrize(
    ("blocks", "sentence"),
    [
        (np.ones(3), r"must have two dimensions \(contexts × tokens\), not shape \(3,\)"),
        (np.ones((2, 2, 2)), r"not shape \(2, 2, 2\)"),
        (np.ones((0, 3)), r"the matrix is empty: its shape is \(0, 3\)"),
        (np.ones((3, 0)), r"the matrix is empty: its shape is \(3, 0\)"),
        ([], "the matrix is empty: there are no rows"),
        ([np.ones((2, 3)), np.ones((0, 3))], r"a block of rows is empty: its shape is \(0, 3\)"),
        ([np.ones((2, 3)), np.ones((1, 4))], "the block at row 2 has 4 columns, the ones before it 3"),
        ([1.0, 2.0], r"a block of rows must have two dimensions .*, not shape \(\)"),
        ([[1.0, 2.0], [3.0, 4.0]], r"a block of rows must have two dimensions .*, not shape \(2,\)"),
        (np.ones((2, 2), complex), "real numbers, not complex128"),
        (np.array([["a"]]), "real numbers, not <U1"),
        (np.array([[None]]), "real numbers, not object"),
        (np.ma.masked_equal(np.eye(2), 0), "a masked array has no rank"),
        (np.full((2, 2), np.longdouble("1e-400")), "too small for float64"),
    ],
)
def test_what_is_no_matrix(blocks: Any, sentence: str) -> None:
    with pytest.raises(MatrixError, match=sentence):
        matrix_spectrum(blocks)


class Scarce(Accelerator):
    """An accelerator whose memory holds five rows of eight numbers, wherever they are needed."""

    def take(self, rows: Any) -> torch.Tensor:
        return super().take(rows).clone()

    def add_square(self, total: torch.Tensor, rows: torch.Tensor) -> None:
        self._need(rows)
        super().add_square(total, rows)

    def eliminate(self, triangle: torch.Tensor, rows: torch.Tensor, *, triangular: bool = False) -> torch.Tensor:
        self._need(rows)
        return super().eliminate(triangle, rows, triangular=triangular)

    def _need(self, rows: torch.Tensor) -> None:
        if len(rows) > 5:
            raise torch.OutOfMemoryError("CUDA out of memory")


def full(*_: Any) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize("method", [Gram, TSQR])
def test_out_of_memory_halves_the_block(method: type[Gram | TSQR], monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = np.random.default_rng(0).standard_normal((64, 8))
    scarce = method(8, arithmetic=Scarce(torch.device("cpu")))
    found = decompose([matrix[:40], matrix[40:]], scarce)
    np.testing.assert_allclose(found.values, np.linalg.svd(matrix, compute_uv=False), rtol=1e-12)
    assert found.shape == (64, 8)
    monkeypatch.setattr(Scarce, "_need", full)
    with pytest.raises(MatrixError, match=r"cpu has no memory left for one row beside the \w+ method's matrices: use"):
        decompose([np.ones((16, 8))], method(8, arithmetic=Scarce(torch.device("cpu"))))
    monkeypatch.setattr(Host, "zeros", full)
    with pytest.raises(MatrixError, match="cpu has no memory for the gram method's matrices: use device='cpu'"):
        decompose([np.eye(3)], Gram(3))


def test_thin_factors_come_first_and_are_the_models_own_memory() -> None:
    choice = _chosen("auto", shape=(1_000, 500), eps=2.0**-52, factor_columns=7, max_memory=1)
    assert (choice.name, choice.why) == ("factored", "the head's factors have 7 columns")
    assert choice.start(np.ones((500, 7))).columns == 7
    assert _chosen("dense", shape=(1_000, 500), eps=2.0**-52, factor_columns=7).name == "dense"


def test_half_of_the_free_memory_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes share that half, and all of them take the least that any of them has."""
    monkeypatch.setattr(settings, "free_memory", lambda: 6 << 30)
    assert SpectrumSettings(device="cpu").memory() == 3 << 30
    assert SpectrumSettings(device="cpu", max_memory="1GiB").memory() == 1 << 30
    both = Processes(count=2)
    monkeypatch.setattr(both, "gather", lambda value: [value, 1 << 30])
    assert SpectrumSettings(device="cpu", processes=both).memory() == 1 << 30
    assert _chosen("auto", shape=(10**6, 12_000), eps=FLOAT32, max_memory=None).name == "gram"
    monkeypatch.setattr(settings, "free_memory", lambda: 2 << 30)
    assert _chosen("auto", shape=(10**6, 12_000), eps=FLOAT32, max_memory=None).name == "sketch"
