"""The output layer from its weights alone: numbers of NumPy, planted rows, sources, and tokens it never predicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import softmax_bottleneck as sb
from softmax_bottleneck import argmaxable
from softmax_bottleneck.errors import BottleneckError, ConfigurationError, SourceError
from softmax_bottleneck.measure import head_rows
from softmax_bottleneck.sources import open_source
from softmax_bottleneck.theory import unargmaxable

M, d = 2000, 32
ROLES = {"never": slice(0, 12), "zero": slice(12, 14), "equal": slice(14, 17), "large": slice(17, 20)}


def planted(kind: str, *, mean: float = 0.0, decay: float = 0.0, seed: int = 0) -> tuple[torch.Tensor, dict[str, Any]]:
    """Return W with rows that stand out at random places, and these by their role."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    W = normal(M, d) * torch.arange(1, d + 1) ** -decay + mean * normal(d)
    size, order = float(W.norm(dim=1).median()), torch.randperm(M, generator=generator)
    place = {role: order[part] for role, part in ROLES.items()}
    direction = torch.nn.functional.normalize(normal(d), dim=0)
    W[place["never"]] = (
        size
        * {
            "initialization": 0.1 * normal(12, d) / d**0.5,
            "alike": direction + 0.05 * normal(12, d) / d**0.5,
            "drifted": 0.2 * direction + 0.02 * normal(12, d) / d**0.5,
        }[kind]
    )
    W[place["zero"]] = 0
    W[place["equal"]] = W[place["equal"][0]].clone()
    W[place["large"]] *= 5
    return W, {role: sorted(ids.tolist()) for role, ids in place.items()}


@pytest.mark.parametrize("known", [0, 6])
@pytest.mark.parametrize("kind", ["initialization", "alike", "drifted"])
@pytest.mark.parametrize(("mean", "decay"), [(0.0, 0.0), (0.3, 0.4), (1.5, 0.0)])
def test_planted_rows_are_found_and_no_others(kind: str, known: int, mean: float, decay: float) -> None:
    W, place = planted(kind, mean=mean, decay=decay)
    # One row that is known to be unused and was trained nevertheless does not hide the others.
    trained = next(row for row in range(M) if all(row not in ids for ids in place.values()))
    found = head_rows(
        W, None, known_unused=[*place["never"][:known], *([trained] if known and kind == "alike" else [])]
    )
    # Rows alike that have an ordinary norm are found only from rows that are known to be unused.
    assert found.alike + found.initial == (() if kind == "alike" and not known else tuple(place["never"]))
    assert found.equal == tuple(place["equal"])
    assert found.zero == tuple(place["zero"])
    assert found.duplicates == (tuple(place["equal"]),)
    assert found.outliers == tuple(place["large"])
    assert found.mean_norm == pytest.approx(float(W.double().mean(0).norm()))


@pytest.mark.usefixtures("repeatable")
@pytest.mark.parametrize("count", [0, 100, 400, 1000])
@pytest.mark.parametrize(("size", "role"), [(0.05, "never_trained"), (20.0, "outliers"), (0.3, "never_trained")])
def test_rows_of_another_size_are_found_if_there_are_any(count: int, size: float, role: str) -> None:
    """A tenth of a vocabulary or less can be unusual; what is more is how W is."""
    W = torch.randn(M, d) * torch.arange(1, d + 1) ** -0.4 + 0.3 * torch.randn(d)
    place = torch.randperm(M)[:count]
    W[place] = size * (W[place] if size == 0.3 else torch.randn(count, d))
    report = sb.head(W)
    found, expected = report.rows_found, {"never_trained": (), "zero": (), "duplicates": (), "outliers": ()}
    if count <= M / 10:
        expected[role] = tuple(sorted(place.tolist()))
        assert (found.groups, "a property of W" in str(report)) == ((), False)
    else:
        (group,) = found.groups
        assert group[0] == pytest.approx(count, rel=0.02)  # norms that may belong to either are few
        if count < M / 2:  # of two halves either is a group
            share = float(W[place].double().norm(dim=1).median()) / found.median_norm
            assert f" rows have norms about {share:.2g} times the median" in str(report)
    if size != 0.3 or count > M / 10:
        assert {name: getattr(found, name) for name in expected} == expected


def test_a_rank_below_d_bounds_nothing_where_columns_differ_in_size() -> None:
    W = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
    for size, text in ((5e-4, "so that of log P is at most 9;"), (1e-9, "but its columns differ in size by 1e+09,")):
        W[:, 0] = size * W[:, 0] / np.linalg.norm(W[:, 0]) * np.linalg.norm(W[:, 1])
        assert text in sb.head(W).verdict


def test_all_equal_rows_but_one_of_a_group_are_never_trained() -> None:
    pairs = torch.randn(200, d, generator=torch.Generator().manual_seed(0)).repeat(2, 1)
    for W, copies in ((torch.ones(50, d), 0), (pairs, 200), (pairs.T.contiguous().T, 200)):
        found = head_rows(W)
        assert found.equal == tuple(range(len(W)))
        assert found.never_trained == found.copies == tuple(range(len(W) - copies, len(W)))
    assert head_rows(torch.tensor([[1.0], [2.0], [2.0], [3.0], [-1.0]])).equal == (1, 2)


def test_rows_that_differ_by_their_rounding_are_equal() -> None:
    """As in a quantized file: two copies of one row, and others that were rounded otherwise."""
    W, place = planted("alike")
    W[place["never"]] = W[place["never"][0]] * (1 + 4e-3 * (torch.rand(12, d) - 0.5))
    W[place["never"][1]] = W[place["never"][0]]
    assert set(place["never"]) <= set(head_rows(W, roundoff=2**-8).equal)
    assert set(head_rows(W).equal) == {*place["never"][:2], *place["equal"]}


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int8", "4 bits in groups"])
def test_equal_rows_of_a_quantized_layer_may_have_been_trained(kind: str) -> None:
    W, place = planted("drifted")
    W[place["equal"][1:], W[place["equal"][0]].abs().argmin()] *= 1.02  # close, and trained
    levels, groups = {"int8": (127, W), "4 bits in groups": (7, W.view(-1, 32))}.get(kind, (0, W))
    step = groups.abs().amax(1, keepdim=True).clamp(min=1e-9) / max(levels, 1)
    W = ((groups / step).round() * step).reshape(M, d) if levels else W.to(getattr(torch, kind)).float()
    report = sb.head(W)
    found = report.rows_found
    assert (found.quantized, "only W before it could show" in str(report)) == (levels > 0, levels > 0)
    assert set(found.equal) >= set(place["equal"] if levels else place["equal"][1:])
    assert {*place["equal"][1:]} - {*found.never_trained} <= {min(place["equal"][1:])} or levels
    assert not set(place["equal"]) & set(found.never_trained) or not levels


def test_tokens_proved_argmaxable_are_so() -> None:
    """All of a few tokens are tried; the programs decide the others, and equal rows are never the argmax."""
    generator = torch.Generator().manual_seed(1)
    W, b = torch.randn(60, 3, generator=generator), 0.1 * torch.randn(60, generator=generator)
    W[7] = W[9]
    for bias in (None, b):
        found, exact = head_rows(W, bias), unargmaxable(W, bias)
        centred = (W.double() - W.double().mean(0)) @ W.double().T + (0 if bias is None else bias.double())
        best = {int(row) for row in range(60) if int(centred[row].argmax()) == row} - {7, 9}
        assert (found.tried, found.argmaxable) == (60, len(best))
        assert not best & set(exact.unargmaxable.tolist())


def test_the_numbers_are_those_of_numpy() -> None:
    W = (np.random.default_rng(0).standard_normal((300, 12)) + 1) * np.arange(1, 13) ** -0.7
    report = sb.head(W)
    values = report.to_dict()
    for name, matrix in {"raw": W, "centered": W - W.mean(0)}.items():
        sigma = np.linalg.svd(matrix, compute_uv=False)
        p = sigma / sigma.sum()
        assert values[name]["entropy_rank"] == pytest.approx(np.exp(-(p * np.log(p)).sum()))
        assert values[name]["stable_rank"] == pytest.approx((sigma**2).sum() / sigma[0] ** 2)
        slope, _ = np.polyfit(np.log(np.arange(1, 7)), np.log(sigma[:6]), 1)
        law = values[name]["power_law"]
        assert law["exponent"] == pytest.approx(-slope)
        assert law["low"] < -slope < law["high"]
    assert values["weight"]["frobenius_relative_error"] < 1e-12
    assert (values["vocab"], values["embedding_size"], values["bound"]["raw"]) == (300, 12, 13)
    assert report.weight.rank.value == report.weight.rank_centered.value == 12
    zeros = sb.head(np.vstack([W, np.zeros((90, 12))]))
    assert zeros.weight.mean_cosine == pytest.approx(report.weight.mean_cosine)
    assert " without 90 of zeros" in str(zeros)
    assert zeros.verdict.endswith("0 of 390 rows look never trained, and 90 are zero")
    nothing = sb.head(np.zeros((10, 4))).weight
    assert (nothing.mean_cosine, nothing.energy(0.9), nothing.cosine) == (None, 0, "unknown without 10 of zeros")
    assert report.to_frame()["weight.rank"].item() == 12
    assert "never trained  none" in str(report)


@pytest.mark.parametrize(("rank", "bias", "most"), [(4, False, 5), (4, True, 6), (16, False, 17), (16, True, 18)])
def test_the_rank_of_W_bounds_that_of_log_P(rank: int, bias: bool, most: int, repeatable: None) -> None:
    layer = torch.nn.Linear(16, 60, bias=bias)
    layer.weight.data = torch.randn(60, rank) @ torch.randn(rank, 16)
    assert f"so that of log P is at most {most};" in sb.head(layer).verdict
    assert sb.rank(layer, hidden=torch.randn(50, 16)).rank.value == most


def test_files_and_objects_give_the_same_layer(tmp_path: Path) -> None:
    W, b = torch.randn(50, 4, generator=torch.Generator().manual_seed(0)).bfloat16(), torch.arange(50.0)
    save_file({"lm_head.weight": W, "other": W[:3].clone(), "b": b}, tmp_path / "model.safetensors")
    layer = torch.nn.Linear(4, 50, dtype=torch.bfloat16)
    layer.weight.data, layer.bias.data = W, b.bfloat16()
    place = f"{tmp_path / 'model.safetensors'}"
    of_file = sb.head(f"{place}:lm_head.weight", bias=f"{place}:b").to_dict()
    of_layer, of_array = sb.head(layer).to_dict(), sb.head(W.float().numpy()).to_dict()
    assert of_file["stored"] == of_layer["stored"] == "bfloat16"
    assert of_file["bound"] == of_layer["bound"]
    assert of_file["bias"]
    for each in (of_layer, of_array):
        assert each["weight"]["singular_values"] == of_file["weight"]["singular_values"]
    assert sb.argmaxable(f"{place}:lm_head.weight").vocab == 50
    with pytest.raises(SourceError, match="name a matrix"):
        sb.head(place)


def test_a_run_names_its_tokens(runs: dict[str, Path]) -> None:
    assert sb.head(runs["softmax"]).tied
    assert (sb.head(runs["softmax"]).bound.raw, sb.head(runs["mos"]).bound.raw) == (5 + 2, None)
    run = sb.checkpoint.load(runs["softmax"])
    run.model.head.weight.data[3] = 0
    assert sb.head(run).names[3] == run.vocabulary.tokens[3]


@pytest.mark.parametrize("head", ["softmax", "moc", "sigsoftmax", "lms-plif"])
def test_heads_with_one_softmax(runs: dict[str, Path], head: str) -> None:
    """Each witness makes the head itself predict the token, through its own function of the logits."""
    source = open_source(runs[head], dtype="float64")
    report = argmaxable(source)
    layer = source.head
    assert (report.vocab, report.embedding_size) == tuple(layer.weight.shape)
    np.testing.assert_array_equal(report.unargmaxable, unargmaxable(layer.weight, layer.bias).unargmaxable)
    tokens = np.flatnonzero(np.isfinite(report.margins))
    contexts = torch.from_numpy(report.contexts[tokens])
    logits = contexts @ layer.weight.double().T + layer.bias.double()
    function = getattr(layer, "function", None)
    with torch.no_grad():
        logits = logits if function is None else function(logits)
    assert torch.equal(logits.argmax(1), torch.from_numpy(tokens))


@pytest.mark.parametrize("head", ["softmax", "sigsoftmax", "mos", "mixtape"])
def test_the_next_command_is_one_that_the_layer_has(head: str) -> None:
    rows = dict(sb.head(sb.heads.build(head, hidden_size=4, vocab_size=9)).rows(details=True))
    follows = head in ("softmax", "sigsoftmax")
    assert ("argmax" in rows, "argmaxable" in rows["next"]) == (follows, follows)


@pytest.mark.parametrize("scale", [-2.0, 0.5])
def test_a_negative_scale_turns_the_order_around(scale: float) -> None:
    head = sb.heads.Softmax(2, 12, scale=scale).double()
    W, b = (torch.randn(*shape, generator=torch.Generator().manual_seed(0)).double() for shape in ((12, 2), (12,)))
    head.load_state_dict({"weight": W, "bias": 2 * b})
    report = argmaxable(head)
    assert 0 < len(report.unargmaxable) < 12
    tokens = np.flatnonzero(np.isfinite(report.margins))
    assert sorted([*tokens, *report.unargmaxable]) == [*range(12)]
    assert head.log_prob(torch.from_numpy(report.contexts[tokens])).argmax(1).tolist() == tokens.tolist()
    centred = head.log_prob((W - W.mean(0)) * (1 if scale > 0 else -1)).argmax(1)
    assert sb.head(head).rows_found.argmaxable == int((centred == torch.arange(12)).sum())


@pytest.mark.parametrize(
    ("measure", "source", "sentence"),
    [
        (sb.head, "kn3:ptb", "is not an output layer: give an nn.Linear"),
        (sb.head, np.arange(6).reshape(2, 3), "real numbers"),
        (sb.head, np.full((3, 2), np.nan), "NaN or infinity"),
        (argmaxable, "mos", "has a mos head: the argmax of a mixture"),
        (argmaxable, open_source(np.log(np.full((3, 4), 0.25))), "array is not an output layer: give an nn.Linear"),
    ],
)
def test_what_is_refused(measure: Any, source: Any, sentence: str, runs: dict[str, Path]) -> None:
    with pytest.raises(BottleneckError, match=sentence):
        measure(runs["mos"] if isinstance(source, str) and source == "mos" else source)


@pytest.mark.parametrize("measure", [sb.head, argmaxable])
def test_a_bias_is_that_of_W_alone(measure: Any, runs: dict[str, Path]) -> None:
    layer = torch.nn.Linear(3, 9, bias=False)
    for source in (runs["softmax"], layer, open_source(layer.weight.detach().numpy(), kind="matrix")):
        with pytest.raises(ConfigurationError, match=r"bias does not apply to .*, but to W as an array or in a file"):
            measure(source, bias="b.npy")


def test_a_transposed_layer_is_asked_about() -> None:
    W = np.random.default_rng(0).standard_normal((40, 6))
    for measure in (sb.head, argmaxable):
        assert "give its transpose if M is 40, not 6" in str(measure(W.T))
        assert "transpose" not in str(measure(W))
