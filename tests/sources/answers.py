"""Answers of a model in every form in which servers give top-k log-probabilities."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

K, M, T = 8, 40, 30
Matrix = NDArray[np.float64]
Spelling = Callable[[int], bytes]
SPLIT = 3
"""A token that is a part of a character."""


def spelling(token: int) -> bytes:
    return b"\xe2" if token == SPLIT else f" w{token}".encode()


def models() -> tuple[Matrix, Matrix, list[int]]:
    """Return log P and log Q, (T, M), and a token that follows each context, some not among P's likeliest."""
    rng = np.random.default_rng(0)
    logits = 3 * rng.standard_normal((T, M))
    both = [each - np.logaddexp.reduce(each, 1)[:, None] for each in (logits, logits + 0.3 * rng.random((T, M)))]
    return both[0], both[1], rng.integers(M, size=T).tolist()


def top(row: Matrix) -> list[int]:
    return np.argsort(-row)[:K].tolist()


def completions(P: Matrix, targets: list[int]) -> list[Any]:
    logprobs = {
        "tokens": [f"token_id:{each}" for each in targets],
        "token_logprobs": [row[each] for row, each in zip(P, targets, strict=True)],
        "top_logprobs": [{f"token_id:{each}": row[each] for each in top(row)} for row in P],
    }
    return [{"choices": [{"logprobs": logprobs}]}]


def prompt(P: Matrix, targets: list[int]) -> list[Any]:
    listed: list[Any] = [None]
    for row, target in zip(P, targets, strict=True):
        ranks = {token: number for number, token in enumerate(np.argsort(-row).tolist(), 1)}
        shown = {target, *top(row)}
        listed.append({str(each): {"logprob": row[each], "rank": ranks[each], "decoded_token": "x"} for each in shown})
    return [{"choices": [{"prompt_logprobs": listed, "prompt_token_ids": [0, *targets]}]}]


def prompt_without_ranks(P: Matrix, targets: list[int]) -> list[Any]:
    """As prompt, of which each dictionary has the token that followed, likely or not."""
    (choice,) = prompt(P, targets)[0]["choices"]
    for number, row in enumerate(choice["prompt_logprobs"][1:]):
        for each in row.values():
            del each["rank"]
        if number % 2:
            choice["prompt_logprobs"][number + 1] = {name: each["logprob"] for name, each in row.items()}
    return [{"choices": [choice]}]


def request_outputs(P: Matrix, targets: list[int]) -> list[Any]:
    """vLLM's own objects, as ``dataclasses.asdict`` gives them."""
    (choice,) = prompt(P, targets)[0]["choices"]
    output = {"index": 0, "text": "x", "token_ids": targets, "logprobs": choice["prompt_logprobs"][1:]}
    return [{"request_id": "0", "prompt_token_ids": [0], "prompt_logprobs": None, "outputs": [output]}]


def sglang(P: Matrix, targets: list[int]) -> list[Any]:
    half = len(targets) // 2
    followed = [[row[each], each, None] for row, each in zip(P, targets, strict=True)]
    tops = [[[row[each], each, None] for each in top(row)] for row in P]
    meta = {
        "id": "1",
        "prompt_tokens": half + 1,
        "completion_tokens": len(targets) - half,
        "input_token_logprobs": [[None, 0, None], *followed[:half]],
        "input_top_logprobs": [None, *tops[:half]],
        "output_token_logprobs": followed[half:],
        "output_top_logprobs": tops[half:],
    }
    return [{"text": "x", "meta_info": meta}]


def text_generation_inference(P: Matrix, targets: list[int]) -> list[Any]:
    def token(row: Matrix, each: int) -> Any:
        return {"id": each, "text": "x", "logprob": row[each], "special": False}

    details = {
        "finish_reason": "length",
        "generated_tokens": len(targets),
        "prefill": [{"id": 0, "text": "<s>", "logprob": None}],
        "tokens": [token(row, each) for row, each in zip(P, targets, strict=True)],
        "top_tokens": [[token(row, each) for each in top(row)] for row in P],
    }
    return [[{"generated_text": "x", "details": details}]]


def gemini(P: Matrix, targets: list[int]) -> list[Any]:
    def token(row: Matrix, each: int) -> Any:
        return {"token": "x", "tokenId": each, "logProbability": row[each]}

    result = {
        "topCandidates": [{"candidates": [token(row, each) for each in top(row)]} for row in P],
        "chosenCandidates": [token(row, each) for row, each in zip(P, targets, strict=True)],
    }
    return [{"candidates": [{"content": {"parts": [{"text": "x"}]}, "logprobsResult": result}]}]


def entries(P: Matrix, targets: list[int], *, replaces: bool = False, spelling: Spelling = spelling) -> list[Any]:
    """Return the tokens of a chat, named by text and bytes; the one that followed may stand among the likeliest."""

    def token(row: Matrix, each: int) -> Any:
        return {"token": spelling(each).decode(errors="replace"), "bytes": [*spelling(each)], "logprob": row[each]}

    return [
        {**token(row, each), "top_logprobs": [token(row, i) for i in dict.fromkeys([each] * replaces + top(row))]}
        for row, each in zip(P, targets, strict=True)
    ]


def batch(P: Matrix, targets: list[int]) -> list[Any]:
    """A line of OpenAI's Batch API, and of ``vllm run-batch``."""
    message = {"role": "assistant", "content": "x", "refusal": None}
    logprobs = {"content": entries(P, targets, replaces=True), "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": "length"}
    body = {"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice], "usage": {"prompt_tokens": 3}}
    response = {"status_code": 200, "request_id": "1", "body": body}
    failed = {"status_code": 400, "request_id": "2", "body": {"error": {"message": "too long"}}}
    return [
        {"id": "1", "custom_id": "a", "response": response, "error": None},
        {"id": "2", "custom_id": "b", "response": failed, "error": None},
    ]


def responses(P: Matrix, targets: list[int]) -> list[Any]:
    part = {"type": "output_text", "annotations": [], "text": "x", "logprobs": entries(P, targets)}
    output = [{"type": "reasoning", "summary": []}, {"type": "message", "role": "assistant", "content": [part]}]
    return [{"id": "resp_1", "object": "response", "incomplete_details": None, "output": output}]


def ollama(P: Matrix, targets: list[int]) -> list[Any]:
    return [{"model": "x", "response": "x", "done": True, "eval_count": len(P), "logprobs": entries(P, targets)}]


FORMS: dict[str, Callable[[Matrix, list[int]], list[Any]]] = {
    each.__name__: each
    for each in (
        *(completions, prompt, prompt_without_ranks, request_outputs, sglang, text_generation_inference, gemini),
        *(batch, responses, ollama),
    )
}


class Spelled:
    """What knows a model's tokens."""

    unknown = None
    special = ()

    def __init__(self, spell: Spelling = spelling) -> None:
        self.spell = spell

    def __len__(self) -> int:
        return M

    def names(self, ids: list[int]) -> list[str]:
        return [self.spell(each).decode(errors="replace") for each in ids]

    def spelled(self, ids: list[int]) -> list[str]:
        return [self.spell(each).decode(errors="surrogateescape") for each in ids]


def write(path: Path, records: list[Any]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)
