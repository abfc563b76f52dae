"""Top-k log-probabilities in the forms that servers and distillation sets give them."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from transformers import AutoModelForCausalLM

import softmax_bottleneck as sb
from softmax_bottleneck import compare, rank
from softmax_bottleneck.errors import BottleneckError, SourceError
from softmax_bottleneck.language_models.text import Text
from softmax_bottleneck.measure import estimate_cost
from softmax_bottleneck.measure.dumping import dump
from softmax_bottleneck.sources import TopK, open_source

from .answers import FORMS, K, M, Matrix, Spelled, T, entries, models, top, write

LLAMA_CPP = Path(__file__).parents[1] / "fixtures" / "llama.cpp"
MODEL = str(LLAMA_CPP / "model.gguf")
PROMPT = [0, 97, 71, 1, 103, 70]
"""<s>the red"""
SAMPLED = {"max_tokens": 4, "ignore_eos": True}
CHAT = {"messages": [{"role": "user", "content": "the red"}], "logprobs": True, "top_logprobs": 6}
QUESTIONS = {
    "/completion": {"prompt": "the red", "n_probs": 6, "seed": 1, **SAMPLED},
    "/v1/completions": {"prompt": "the red", "logprobs": 6, "seed": 2, **SAMPLED},
    "/v1/chat/completions": {**CHAT, "seed": 3, **SAMPLED},
}
SERVER = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.port, params.n_ctx = sys.argv[1], 0, 64
params.cache_type_k = params.cache_type_v = params.flash_attn_type = 0  # float32, and off
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("form", FORMS)
def test_every_form_shows_the_same(form: str, tmp_path: Path) -> None:
    P, Q, targets = models()
    source = open_source(write(tmp_path / "answers.jsonl", FORMS[form](P, targets)))
    assert isinstance(source, TopK)
    text = Text(ids=np.zeros(1, np.int64), starts=np.zeros(1, np.int64), tokenizer=Spelled())  # type: ignore[arg-type]
    source = source.of_vocabulary(M, text)
    (part,) = source.parts()
    assert source.targets.tolist() == targets
    for row, target, values, seen in zip(P, targets, part.log_probs, part.seen, strict=True):
        shown = sorted({*top(row), target})
        assert np.flatnonzero(seen).tolist() == shown
        np.testing.assert_allclose(values[shown], row[shown], rtol=1e-12)
        likeliest, hidden = np.sort(row)[::-1], np.delete(np.arange(M), shown)
        is_last = target == np.argsort(-row)[K - 1]  # it may be there because it followed
        np.testing.assert_allclose(values[hidden], likeliest[K - 2 if is_last else K - 1])
    found = compare(source, Q).statistics
    kl = (np.exp(P) * (P - Q)).sum(1).mean()
    assert abs(found["kl"].value - kl) <= found["kl"].roundoff
    assert found["kl"].roundoff < 0.3
    same = compare(source, P).statistics["tokens_a_step"]
    assert same.value + same.roundoff == pytest.approx(5)
    at = np.arange(T), targets
    for name, truth in (("reference_perplexity", math.exp(-P[at].mean())), ("perplexity", math.exp(-Q[at].mean()))):
        assert found[name].value == pytest.approx(truth, rel=1e-4)
    covered = np.mean([np.exp(row[[*{*top(row), target}]]).sum() for row, target in zip(P, targets, strict=True)])
    assert found["coverage"].value == pytest.approx(covered, abs=1e-4)
    overlap = [
        len({*np.argsort(-p)[:5].tolist()} & {*np.argsort(-q)[:5].tolist()}) / 5 for p, q in zip(P, Q, strict=True)
    ]
    assert found["top_5"].value == pytest.approx(np.mean(overlap))


def test_a_server_that_sums_in_float32(tmp_path: Path) -> None:
    """The sum loses small terms one by one: 1 + 30,000 · 3·10⁻⁸ is 1."""
    logits = np.log([[1.0] + [3e-8] * 30_000])
    numbers = np.exp(logits[0]).astype(np.float32)
    total = np.add.accumulate(numbers)[-1]
    assert total == 1
    known = [{"id": token, "token": "x", "logprob": float(logits[0, token] - np.log(total))} for token in range(3)]
    path = write(tmp_path / "answers.jsonl", [{"completion_probabilities": [{**known[0], "top_logprobs": known}]}])
    found = compare(path, logits, kind="logits").statistics
    for name in ("kl", "tv", "jsd", "log_ratio"):
        assert abs(found[name].value) <= found[name].roundoff < 0.01


def test_a_distillation_set(tmp_path: Path) -> None:
    """A row a context or a row a sequence, under names that tell ids from values."""
    P, Q, _ = models()
    ids, values, path = [top(row) for row in P], [row[top(row)].tolist() for row in P], tmp_path / "set.parquet"

    def read(columns: dict[str, Any]) -> Any:
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
        (part,) = open_source(str(path)).parts()
        return part

    truth = read({"token_ids": ids, "log_probs": values})
    for columns in (
        {"top_ids": ids, "teacher_logprobs": values, "text": ["x"] * T},
        {"input_ids": [[1, 2], [3]], "top_ids": [ids[:20], ids[20:]], "top_logprobs": [values[:20], values[20:]]},
    ):
        assert np.array_equal(read(columns).log_probs, truth.log_probs)
        assert np.array_equal(read(columns).seen, truth.seen)
    lists = [[], *(row[top(row)].astype("float16") for row in P[1:])]  # of the first context nothing is known
    half = pyarrow.array(lists, pyarrow.large_list(pyarrow.float16()))
    part = read({"token_ids": [[], *ids[1:]], "log_probs": half})
    assert (np.abs(part.log_probs - P) <= part.error)[part.seen].all()
    assert part.error.max() < 0.01
    assert not part.seen[0].any()
    assert not part.log_probs[0].any()
    decimals = {"token_ids": ids, "log_probs": np.round(values, 3).tolist()}
    assert read(decimals).error == pytest.approx(5e-4, rel=0.1)  # they are an error of their own
    found = compare(str(path), Q).statistics
    kl = (np.exp(P) * (P - Q)).sum(1).mean()
    assert abs(found["kl"].value - kl) <= found["kl"].roundoff
    assert "perplexity" not in found
    for names, message in (
        (
            ["ids", "log_probs", "entropies"],
            "several list columns: ids may be ids, and .* log_probs or entropies",
        ),
        (["token_ids", "log_probs", "log_probs"], "does not hold a list of token_ids"),
    ):
        table = pyarrow.Table.from_arrays([pyarrow.array(each) for each in (ids, values, values)], names=names)
        pyarrow.parquet.write_table(table, path)
        with pytest.raises(SourceError, match=message):
            rank(str(path))


def test_a_distillation_set_with_padding_and_repeated_ids(tmp_path: Path) -> None:
    """Padding says nothing, and a token that has two numbers is unseen, as intervals say that hold the whole P."""
    P, Q, _ = models()
    path, counts = tmp_path / "set.parquet", np.random.default_rng(0).integers(2, K + 1, T)

    def read(ids: Any, values: Any, **more: Any) -> Any:
        pyarrow.parquet.write_table(pyarrow.table({"token_ids": ids, "log_probs": values, **more}), path)
        return open_source(str(path)).of_vocabulary(M)  # type: ignore[attr-defined]

    ids, values = [top(row) for row in P], [row[top(row)].tolist() for row in P]
    (ragged,) = read(*([row[:n] for row, n in zip(rows, counts, strict=True)] for rows in (ids, values))).parts()
    for pad, name in itertools.product((-math.inf, math.nan, None), (0, -1)):
        padded = [row[:n] + [name] * (K - n) for row, n in zip(ids, counts, strict=True)]
        (part,) = read(padded, [row[:n] + [pad] * (K - n) for row, n in zip(values, counts, strict=True)]).parts()
        assert np.array_equal(part.seen, ragged.seen)
        assert np.array_equal(part.log_probs, ragged.log_probs)
    with pytest.raises(SourceError, match=r"the probabilities of context \d+ sum to 1\.\d+, .*: leave out padding"):
        read(padded, [row[:n] + [0.0] * (K - n) for row, n in zip(values, counts, strict=True)])
    source = read([[*row[:-1], row[0]] for row in ids], values, target=[None, *range(T - 1)])
    assert source.targets.tolist() == [-1, *range(T - 1)]
    (part,) = source.parts()
    assert [np.flatnonzero(row).tolist() for row in part.seen] == [sorted(row[1:-1]) for row in ids]
    kl, found = (np.exp(P) * (P - Q)).sum(1).mean(), compare(str(path), Q).statistics["kl"]
    assert abs(found.value - kl) <= found.roundoff


@pytest.mark.parametrize("column", [True, False])
def test_the_likeliest_tokens_and_the_one_that_followed(column: bool, tmp_path: Path) -> None:
    """Its number, often the smallest, does not bound the others."""
    P, *_ = models()
    targets = [int(np.argsort(-row)[K + 9]) for row in P]
    ids = [[*top(row), target] for row, target in zip(P, targets, strict=True)]
    columns = {"token_ids": ids, "log_probs": [row[each].tolist() for row, each in zip(P, ids, strict=True)]}
    path = tmp_path / "set.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns | ({"target": targets} if column else {})), path)
    (part,) = open_source(str(path)).of_vocabulary(M).parts()  # type: ignore[attr-defined]
    assert part.seen.sum(1).tolist() == [K + 1] * T
    least, most = part.box()
    assert ((least <= np.exp(P)) & (np.exp(P) <= most)).all()


@pytest.mark.parametrize("order", ["descending", "sampled first", "by text"])
def test_a_text_of_several_tokens_in_a_dictionary(order: str, tmp_path: Path) -> None:
    """It has the number of one of them, and may hide likelier ones."""
    P, *_ = models()
    texts = [f"t{token % 9}" if token % 4 else f"word {token}" for token in range(M)]
    answers, targets = [], np.random.default_rng(0).integers(M, size=T)
    for row, target in zip(P, targets, strict=True):
        ids = [int(target), *top(row)] if order == "sampled first" else [*top(row), int(target)]
        answer = {texts[token]: float(row[token]) for token in ids}
        answers.append(dict(sorted(answer.items())) if order == "by text" else answer)
    record = {"tokens": [texts[each] for each in targets], "top_logprobs": answers}
    record["token_logprobs"] = P[np.arange(T), targets].tolist()
    path = write(tmp_path / "answers.jsonl", [{"choices": [{"logprobs": record}]}])
    spelled: Any = Spelled(lambda token: texts[token].encode())
    text = Text(ids=targets, starts=np.zeros(1, np.int64), tokenizer=spelled)
    (part,) = open_source(path).of_vocabulary(M, text).parts()  # type: ignore[attr-defined]
    assert part.seen.any()
    least, most = part.box()
    assert ((least <= np.exp(P)) & (np.exp(P) <= most)).all()


def test_a_rank_from_tokens_that_are_named_by_their_text(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    logits = rng.standard_normal((60, 4)) @ rng.standard_normal((4, 200)) + np.where(np.arange(200) < 20, 30.0, 0.0)
    P = logits - np.logaddexp.reduce(logits, 1)[:, None]
    likeliest = [np.argsort(-row)[:20].tolist() for row in P]
    answers = [{f"word {each}": row[each] for each in tokens} for row, tokens in zip(P, likeliest, strict=True)]
    record = {"tokens": [next(iter(each)) for each in answers], "top_logprobs": answers}
    record["token_logprobs"] = [next(iter(each.values())) for each in answers]
    path = write(tmp_path / "answers.jsonl", [{"choices": [{"logprobs": record}]}])
    report = rank(path)
    assert report.verdict.startswith("rank ≥ 4 if no two tokens have one text, proved from a block of 60 × 20; σ")
    assert report.columns()["rank"] == "≥ 4 if no two tokens have one text"
    assert report.to_dict()["rank"]["doubt"] == "if no two tokens have one text"
    with pytest.raises(SourceError, match="names tokens by their text, and a model's columns are ids: compare with"):
        compare(path, P)
    parts = [{"token": "\ufffd", "bytes": [byte], "logprob": -1 - byte / 10} for byte in (1, 2, 239)]
    lost = [{"token": "\ufffd", "bytes": None, "logprob": -5.0}]
    answer = {**parts[0], "top_logprobs": [*parts, *lost]}
    (part,) = open_source(write(tmp_path / "bytes.jsonl", [{"choices": [{"logprobs": {"content": [answer]}}]}])).parts()
    assert part.log_probs[part.seen].tolist() == [-1.1, -1.2, -24.9]


@pytest.fixture
def live(tmp_path: Path) -> Iterator[str]:
    """The answers of a server of llama.cpp, which runs in a process of its own for at most a minute."""
    pytest.importorskip("xllamacpp")
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen([sys.executable, "-c", SERVER, MODEL], stdin=pipe, stdout=pipe, stderr=null) as server:
        limit = threading.Timer(60, server.kill)
        limit.start()
        try:
            address = server.stdout.readline().decode().strip()
            records = []
            for path, question in QUESTIONS.items():
                asked = Request(address + path, json.dumps(question).encode(), {"Content-Type": "application/json"})
                with urlopen(asked, timeout=60) as answer:
                    records.append(json.load(answer))
            yield write(tmp_path / "answers.jsonl", records)
        finally:
            limit.cancel()
            server.kill()


@pytest.fixture
def recorded() -> str:
    """The answers of llama-server to the same questions."""
    return str(LLAMA_CPP / "answers.jsonl")


@pytest.mark.parametrize("answers", ["recorded", "live"])
def test_answers_of_a_server_are_what_transformers_computes(answers: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(answers)
    source = open_source(path)
    assert isinstance(source, TopK)
    (part,) = source.of_vocabulary(151).parts()
    texts = [[*PROMPT, *tokens] for tokens in source.targets.reshape(3, 4).tolist()]
    model = AutoModelForCausalLM.from_pretrained(LLAMA_CPP, gguf_file="model.gguf").double()
    with torch.no_grad():
        log_p = model(torch.tensor(texts)).logits[:, -5:-1].log_softmax(-1).reshape(12, 151).numpy()
    assert {*part.seen.sum(1).tolist()} <= {6, 7}
    assert (np.abs(part.log_probs - log_p) <= part.error + 2e-5)[part.seen].all()
    assert (log_p <= part.log_probs + part.error + 2e-5)[~part.seen].all()
    found = compare(path, log_p).statistics
    assert found["kl"].value - found["kl"].roundoff <= 1e-9
    assert found["perplexity"].value == pytest.approx(found["reference_perplexity"].value, rel=1e-4)


def model_log_probs(ids: list[int]) -> Matrix:
    model = AutoModelForCausalLM.from_pretrained(LLAMA_CPP, gguf_file="model.gguf").double()
    with torch.no_grad():
        return np.asarray(model(torch.tensor([ids])).logits[0].log_softmax(-1).numpy())


@pytest.mark.parametrize("form", ["prompt", "request_outputs", "sglang", "text_generation_inference", "chat"])
def test_a_model_reads_the_tokens_of_answers(form: str, tmp_path: Path) -> None:
    """Log-probabilities of each token after the first of one text; a chat names the likeliest ones by their text."""
    targets = [*PROMPT[1:], 71, 5, 9, 30]
    P = model_log_probs([0, *targets])[:-1]
    if form == "chat":
        text = open_source(MODEL, data=[0, *targets]).text
        spelled = text.tokenizer.spelled([*range(151)])
        tokens = entries(P, targets, spelling=lambda token: spelled[token].encode())
        choice = {"index": 0, "logprobs": {"content": tokens}, "token_ids": targets}
        records = [{"object": "chat.completion", "prompt_token_ids": [0], "choices": [choice]}]
    else:
        records = FORMS[form](P, targets)
    path = write(tmp_path / "answers.jsonl", records)
    comparison = compare(path, MODEL)
    assert comparison.contexts == len(targets)
    found = comparison.statistics
    assert found["kl"].value - found["kl"].roundoff <= 1e-9
    assert found["coverage"].value > 0.2
    assert found["perplexity"].value == pytest.approx(math.exp(-P[np.arange(len(P)), targets].mean()), rel=1e-4)


def test_a_model_cannot_read_tokens_that_are_not_there(recorded: str) -> None:
    with pytest.raises(SourceError, match="does not hold the ids of all tokens before its contexts, so a model cannot"):
        compare(recorded, MODEL)


@pytest.mark.parametrize("listed", ["kept", "all"])
@pytest.mark.parametrize("cut", ["top_p", "min_p"])
def test_a_truncated_distribution_is_refused(cut: str, listed: str, tmp_path: Path) -> None:
    P, Q, _ = models()
    p = np.exp(P)
    order = np.sort(p, 1)[:, ::-1]
    last = (np.cumsum(order, 1) < 0.7).sum(1) if cut == "top_p" else (order > 0.2 * order[:, :1]).sum(1) - 1
    kept = p >= order[np.arange(T), np.minimum(last, K - 1)][:, None]
    cut_off = np.where(kept, p, 0.0)
    with np.errstate(divide="ignore"):
        R = np.log(cut_off / cut_off.sum(1, keepdims=True))
    rows = [[i for i in top(row) if listed == "all" or row[i] > -math.inf] for row in R]
    records = [[[row[i], i, None] for i in ids] for row, ids in zip(R, rows, strict=True)]
    meta = {"output_top_logprobs": records, "output_token_logprobs": [each[0] for each in records]}
    path = write(tmp_path / "answers.jsonl", [{"meta_info": meta}])
    with pytest.raises(SourceError, match=r"holds truncated distributions: in \d+ of 30 contexts the"):
        compare(path, Q)


def test_a_dump_of_the_likeliest_tokens(tmp_path: Path) -> None:
    """The exact KL lies in every interval, which narrows with k; with all tokens it is the comparison itself."""
    log_p, log_q, targets = models()
    P, Q = (sb.open(each) for each in (log_p, log_q))
    P.targets = np.array(targets)
    exact = compare(P, Q).statistics
    widths = []
    for k in (1, 4, 16, M, 2 * M):
        path = dump(P, tmp_path / f"{k}.parquet", top=k)
        found = compare(path, Q).statistics
        assert abs(found["kl"].value - exact["kl"].value) <= found["kl"].roundoff
        assert found["perplexity"].value == pytest.approx(exact["perplexity"].value)
        widths.append(found["kl"].roundoff)
        table = pyarrow.parquet.read_table(path)
        assert table.column_names == ["token_ids", "log_probs", "target"]
        assert table["token_ids"][3].as_py() == np.argsort(-log_p[3])[:k].tolist()
        np.testing.assert_array_equal(table["log_probs"][3].as_py(), -np.sort(-log_p[3])[:k])
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 1e-5 < widths[2]
    P.targets[2] = -1
    np.testing.assert_array_equal(sb.open(dump(P, tmp_path / "t.parquet", top=3)).targets, P.targets)
    for path, how, told in (
        ("s.zarr", {"top": 3}, "go to a file that ends in .parquet"),
        ("s.parquet", {"top": 3, "states": True}, "give one of states and top"),
        ("s.parquet", {"top": 0}, "top must be at least 1"),
        ("s.parquet", {"top": 3, "kind": "matrix"}, "is a matrix of any kind"),
    ):
        with pytest.raises(BottleneckError, match=told):
            dump(log_p, tmp_path / path, **how)
        assert not (tmp_path / path).exists()
    for columns in ({"a": [1.0, 2.0]}, {"token_ids": [[1]], "log_probs": [[0.0]], "text": ["more"]}):
        pyarrow.parquet.write_table(pyarrow.table(columns), place := tmp_path / "u.parquet")
        with pytest.raises(
            BottleneckError, match=r"another file is there, not 3 likeliest tokens of .*; name another file"
        ):
            dump(log_p, place, top=3)
        assert pyarrow.parquet.read_schema(place).names == [*columns]
    written = (tmp_path / "t.parquet").read_bytes()
    for other, how in ((log_p, {"top": 3}), (P, {"top": 2})):
        with pytest.raises(BottleneckError, match="another file is there"):
            dump(other, tmp_path / "t.parquet", **how)
    dump(P, tmp_path / "t.parquet", top=3)
    assert (tmp_path / "t.parquet").read_bytes() == written
    with pytest.raises(SourceError, match="holds a part of each distribution"):
        dump(tmp_path / "t.parquet", tmp_path / "v.parquet", top=2)
    with pytest.raises(SourceError, match="the cost of its lower bound is not estimated"):
        estimate_cost(tmp_path / "t.parquet")
