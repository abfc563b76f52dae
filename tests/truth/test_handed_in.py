"""What people hand in: forms that are measured as one matrix, and others that are refused with what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pipelines import low_rank
from softmax_bottleneck import compare, heads, kld, pairwise_kld, perplexity, rank, singular_values
from softmax_bottleneck.errors import MatrixError, SourceError, StoreError
from softmax_bottleneck.heads import Softmax
from softmax_bottleneck.language_models.checkpoint import load
from softmax_bottleneck.measure.dumping import dump
from softmax_bottleneck.sources import extended_logits
from softmax_bottleneck.spectrum.blocks import as_array

Matrix = NDArray[np.float64]
LOG_P = torch.from_numpy(low_rank(50, 30, 5)).log_softmax(-1)
NUMBERS = torch.randn(30, 20, generator=torch.Generator().manual_seed(0))
BOTH = ("log-probs", "logits")
REFUSED: list[tuple[Any, str, str]] = [
    *((LOG_P / np.log(2), kind, "base-2 logarithms: multiply by math.log\\(2\\)") for kind in BOTH),
    *((LOG_P / np.log(10), kind, "base-10 logarithms: multiply by math.log\\(10\\)") for kind in BOTH),
    *((-LOG_P, kind, "negative logarithms: multiply by -1") for kind in BOTH),
    (LOG_P.T, "log-probs", "columns of array hold log-probabilities, not its rows: give its transpose"),
    (LOG_P.exp(), "logits", "holds probabilities: use kind='probabilities'"),
    (torch.complex(LOG_P, LOG_P).conj(), "logits", "must hold real numbers, not complex128"),
    (NUMBERS.to_sparse(), "logits", r"give a dense one, tensor\.to_dense\(\)"),
    (NUMBERS.to("meta"), "logits", r"give a dense one, tensor\.to_dense\(\)"),
    ({"logits": NUMBERS}, "log-probs", "a dict cannot be measured: give its logits, with kind='logits'"),
]


@pytest.mark.parametrize(("given", "kind", "sentence"), REFUSED)
def test_what_is_not_a_matrix_of_its_kind_is_named(given: Any, kind: str, sentence: str) -> None:
    with pytest.raises((MatrixError, SourceError), match=sentence):
        rank(given, kind=kind)
    if "probabilities'" in sentence:
        with pytest.raises(MatrixError, match=sentence):
            rank(lambda ids: given[ids], data=[np.arange(50)[None]])


def test_an_index_is_no_token(tmp_path: Path) -> None:
    table = pd.DataFrame(low_rank(300, 100, 10)).rename(columns=str)
    kept, with_targets = table[table["0"] > 0], table.assign(target=np.arange(300) % 7)
    kept.to_parquet(tmp_path / "own.parquet")  # with the index, as a column that its metadata names
    for source in (table, tmp_path / "own.parquet"):
        assert rank(source, kind="matrix").rank.value == 10
    kept.reset_index().to_parquet(tmp_path / "m.parquet")
    kept.rename_axis("document").to_csv(tmp_path / "m.csv")
    with_targets.to_csv(tmp_path / "t.csv", index=False)
    for source, column in (
        (tmp_path / "m.parquet", "0, index"),
        (tmp_path / "m.csv", "0, document"),
        (tmp_path / "t.csv", "100, target"),
        (with_targets, "100, target"),
    ):
        with pytest.raises(SourceError, match=f"column {column}, holds whole numbers and others do not, as an index"):
            rank(source, kind="matrix")


def test_columns_named_by_token_ids_are_taken_in_their_order(tmp_path: Path) -> None:
    matrix = low_rank(30, 25, 4)
    table = pd.DataFrame(matrix, columns=[*map(str, range(25))])
    table[sorted(table)].to_parquet(tmp_path / "sorted.parquet")
    for given in (str(tmp_path / "sorted.parquet"), table[sorted(table)], table[table.columns[::-1]]):
        assert compare(matrix, given, kind="logits").statistics["kl"].value < 1e-20
    table.assign(loss=matrix[:, 0]).to_parquet(tmp_path / "loss.parquet")
    with pytest.raises(SourceError, match="the column loss stands beside columns that are named by token ids"):
        rank(tmp_path / "loss.parquet", kind="logits")


def test_a_layer_that_is_no_product_is_refused() -> None:
    class Capped(nn.Linear):
        def forward(self, states: Tensor) -> Tensor:
            return 2 * torch.tanh(super().forward(states) / 2)

    hooked = nn.Linear(10, 300)
    hooked.register_forward_hook(lambda module, args, output: output**2)
    hidden = torch.randn(400, 10)
    for layer in (Capped(10, 300), Capped(10, 300).bfloat16(), hooked):
        with pytest.raises(SourceError, match=r"does not compute .* measure it through a function"):
            rank(layer, hidden=hidden)
    clamped = nn.Linear(10, 300)
    clamped.register_forward_hook(lambda module, args, output: output.clamp(-3, 3))
    with pytest.raises(SourceError, match="does not compute"):
        rank(clamped, hidden=torch.cat([hidden / 10, 10 * hidden[:1]]))
    for scale in (1e-5, 1e5):  # beyond float16
        assert rank(nn.Linear(10, 300, bias=False).half(), hidden=scale * hidden).rank.high >= 11
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(10, 300))
    assert rank(normed, hidden=hidden).rank.value == 12


def test_a_text_files_first_line_is_a_header_or_a_row(tmp_path: Path) -> None:
    """Whatever it begins with: a byte order mark, quotes, a blank line, a comment, a title, ids, a missing number."""
    matrix, path = low_rank(60, 40, 5), tmp_path / "m.csv"
    lines = [",".join(map(repr, row)) for row in matrix.tolist()]
    quoted = [",".join(f'"{number!r}"' for number in row) for row in matrix.tolist()]
    for text in (
        "\ufeff" + "\n".join(lines),
        "\n".join(quoted),
        "\n" + "\n".join(lines),
        "# title\n" + "\n".join(lines),
        "\n".join([",".join(["##ing", "a#b", *["c"] * 38]), *lines]),
    ):
        path.write_text(text, encoding="utf-8")
        report = rank(path, kind="matrix")
        assert (report.spectrum.shape, report.rank.value) == ((60, 40), 5)
    for first, complaint in (
        ("logits of my model", "its first line has 1 fields and its second 40"),
        ("logits, my model", "its first line has 2 fields and its second 40"),
        (",".join(map(str, range(1000, 1040))), "the first line holds another whole number in every column"),
        ("NA" + ",1.5" * 39, "field 1 of row 1 of its numbers is 'NA', which is not a number"),
        ("-Infinity" + ",1.5" * 39, "holds -inf at row 0, column 0"),
    ):
        path.write_text("\n".join([first, *lines]), encoding="utf-8")
        with pytest.raises((SourceError, MatrixError), match=complaint):
            rank(path, kind="matrix")


class Given:
    """An array of another library: it has a shape and gives its numbers, and cannot be sliced."""

    def __init__(self, numbers: Matrix) -> None:
        self.numbers, self.shape = numbers, numbers.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Matrix:
        return self.numbers


def test_what_people_hand_in() -> None:
    logits, layer = low_rank(60, 40, 8), nn.Linear(16, 50)
    assert (
        rank(Given(logits), kind="logits").rank.low
        == rank(logits, kind="logits", device=torch.device("cpu")).rank.low
        == 9
    )
    hidden = np.random.default_rng(0).standard_normal((100, 16)).astype(np.float32)
    expected = rank(layer, hidden=hidden).rank
    for given in (pd.DataFrame(hidden), hidden.tolist(), [hidden[:50], torch.from_numpy(hidden[50:])]):
        assert rank(layer, hidden=given).rank == expected
    for refused, why in (
        (5, "not iterable"),
        (np.ma.masked_array(hidden), "a masked array"),
        (["a"], "blocks of such rows"),
    ):
        with pytest.raises(SourceError, match=why):
            rank(layer, hidden=refused)


@pytest.mark.parametrize("ids", [[1, 2, 40], [1, -2, 3]])
def test_ids_that_a_module_does_not_know(ids: list[int]) -> None:
    module = nn.Sequential(nn.Embedding(30, 8), nn.Linear(8, 30))
    with pytest.raises(SourceError, match=rf"batch 0 of the data, with ids from {min(ids)} to {max(ids)}: index"):
        rank(module, data=[[ids]])


def test_logits_that_resemble_logarithms_are_measured() -> None:
    """Natural logarithms, and logits of which one is 0 and all others are far below."""
    log_probs = torch.from_numpy(low_rank(50, 30, 5)).log_softmax(-1)
    peaked = log_probs - 20
    peaked[:, 3] = 0.0
    for given in (log_probs, peaked, peaked / np.log(10)):
        assert rank(given, kind="logits").to_dict()["contexts"] == len(given)


def test_a_target_of_probability_zero_is_named() -> None:
    layer, hidden = nn.Linear(8, 30), torch.randn(50, 8)
    with torch.no_grad():
        layer.bias[3] = -torch.inf  # type: ignore[index]
    targets = torch.full((50,), 4)
    targets[7] = 3
    sentence = "gives token 3, which follows context 7, probability 0: the loss is infinite"
    with pytest.raises(SourceError, match=sentence):
        perplexity(layer, hidden=hidden, targets=targets)
    with pytest.raises(SourceError, match=sentence):
        compare(layer, nn.Linear(8, 30), hidden=hidden, targets=targets)


def test_tokens_masked_in_blocks_are_left_out() -> None:
    """As the scores of ``generate`` are, one block a step, where some tokens are suppressed."""
    logits = low_rank(300, 100, 16)
    logits[:, [5, 6]] = -np.inf
    for blocks in ([logits[:150], logits[150:]], iter([logits[:150], logits[150:]])):
        assert rank(blocks, kind="logits", inf="drop-columns").rank.low == 17
    with pytest.raises(MatrixError, match="holds -inf at row 0, column 5: only finite numbers can be measured"):
        rank([logits[:150], logits[150:]], kind="logits")
    assert kld([logits[:150], logits[150:]], kind="logits").kld == kld(logits, kind="logits").kld


@pytest.mark.parametrize("name", ["gss", "lms-plif", "mixtape"])
def test_heads_with_parameters_of_every_shape_are_dumped(name: str, tmp_path: Path) -> None:
    head = heads.build(name, hidden_size=4, vocab_size=9)
    dump(head, tmp_path / "s.zarr", hidden=torch.randn(5, 4))
    assert rank(tmp_path / "s.zarr").spectrum.shape == (5, 9)


def test_a_function_may_reuse_its_memory() -> None:
    logits = np.random.default_rng(0).standard_normal((50, 50))
    memory = np.empty((1, 25, 50))

    def answer(ids: Any) -> Any:
        memory[:] = logits[ids]
        return memory

    assert rank(answer, data=list(np.arange(50).reshape(2, 1, 25))).rank.value == 50


def test_another_model_is_not_taken_for_the_one_in_a_store(runs: dict[str, Path], tmp_path: Path) -> None:
    rng = torch.Generator().manual_seed(0)
    weight, hidden = torch.randn(100, 8, generator=rng), torch.randn(50, 8, generator=rng)
    dump(Softmax.of(weight, scale=1.0), tmp_path / "head.zarr", hidden=hidden)
    with pytest.raises(StoreError, match="another model"):
        dump(Softmax.of(weight, scale=3.0), tmp_path / "head.zarr", hidden=hidden)
    logits = low_rank(200, 200, 6)
    once, twice = (
        extended_logits(lambda ids, by=factor: by * logits[ids], [[1], [2]], [[]], vocab_size=200) for factor in (1, 2)
    )
    dump(once, tmp_path / "function.zarr")
    with pytest.raises(StoreError, match="another logits"):
        dump(twice, tmp_path / "function.zarr")
    run = load(runs["softmax"])
    dump(run, tmp_path / "run.zarr", contexts=20)
    with torch.no_grad():
        run.model.head.weight.mul_(3)
    with pytest.raises(StoreError, match="another model"):
        dump(run, tmp_path / "run.zarr", contexts=20)


def test_tensors_that_numpy_cannot_read() -> None:
    matrix = NUMBERS
    nested = torch.nested.nested_tensor([matrix[:10], matrix[10:]], layout=torch.jagged)
    for measure in (rank, kld, pairwise_kld, singular_values):
        with pytest.raises(MatrixError, match=r"is a nested tensor: join its rows by torch\.cat\(tensor\.unbind"):
            measure(nested)
    negative = torch.view_as_complex(torch.stack([matrix, -matrix], -1)).conj().imag
    assert np.array_equal(as_array(negative), matrix.numpy())


def test_a_row_of_minus_infinity_alone_is_named() -> None:
    logits = low_rank(300, 100, 16)
    logits[250] = -np.inf
    for measure in (rank, kld):
        with pytest.raises(MatrixError, match=r"row 250 of .* holds -inf alone, as padding does: leave out such rows"):
            measure(logits, kind="logits")


def test_the_first_contexts_are_inspected_alone() -> None:
    """A row that hides all others in float32, and as large ones after the first hundred."""
    both = low_rank(300, 100, 10)
    both[0] *= 1e8
    both[100:] *= 1e8
    with_others, alone = (rank(part, kind="matrix", eps="float32", **more) for part, more in (
        (both, {"contexts": 100}), (both[:100], {})))  # fmt: skip
    assert with_others.rank == alone.rank
    assert not alone.rank.determinate
    logits = (3 * low_rank(300, 100, 10)).astype(np.float32)
    logits[200:, 7] = -1e9
    assert rank(logits, kind="logits", contexts=200).rank == rank(logits[:200], kind="logits").rank
    blocks = [torch.from_numpy(logits[start : start + 100]).bfloat16() for start in (0, 100, 200)]
    assert rank(iter(blocks), kind="logits", contexts=200).eps.dtype == "bfloat16"
