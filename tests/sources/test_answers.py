"""Files that may hold a server's answers: one a line, over several lines or in a list; all else is named."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from softmax_bottleneck import rank
from softmax_bottleneck.errors import CorpusError, SourceError
from softmax_bottleneck.sources import open_source
from softmax_bottleneck.sources.top_k import ids_of

from .answers import write

MODEL = str(Path(__file__).parents[1] / "fixtures" / "llama.cpp" / "model.gguf")


def test_one_answer_over_several_lines_or_in_a_list(tmp_path: Path) -> None:
    record = {
        "prompt_logprobs": [None, *({str(t): {"logprob": -1.0 - t / 7}} for t in (5, 6))],
        "prompt_token_ids": [5, 6, 5],
    }
    line = write(tmp_path / "answers.jsonl", [record, record])
    for name, text in {
        "one.json": json.dumps(record, indent=1),
        "list.json": json.dumps([record, record]),
        "lines.json": Path(line).read_text(),
    }.items():
        (tmp_path / name).write_text(text)
        parts = [*open_source(str(tmp_path / name)).parts()]
        expected = [*open_source(line).parts()]
        assert np.array_equal(parts[0].log_probs, expected[0].log_probs[: 2 if name == "one.json" else 4])


def test_the_errors_of_failed_requests_are_left_out_and_counted(tmp_path: Path) -> None:
    record = {
        "prompt_logprobs": [None, *({str(t): {"logprob": -1.0 - t / 7}} for t in (5, 6))],
        "prompt_token_ids": [5, 6, 5],
    }
    source = open_source(write(tmp_path / "a.jsonl", [{"error": {"code": 500}}, record, {"error": {"code": 429}}]))
    assert source.shape[0] == 2
    assert source.description["note"] == "left out 2 of 3 answers, which show no token, as errors do"
    assert source.tokens()[0]["input_ids"].tolist() == [[5, 6, 5]]


@pytest.mark.parametrize("with_ids", [True, False])
def test_an_echoed_prompt_is_read_once(with_ids: bool, tmp_path: Path) -> None:
    """vLLM's completions with echo hold the prompt under prompt_logprobs, by id, and under top_logprobs, by text."""
    ids, words = [5, 6, 7, 5], [f" w{token}" for token in (5, 6, 7, 5)]
    likeliest = [None, *({words[(t + 1) % 4]: -1.5, words[t]: -0.5 - t / 7} for t in (1, 2, 3))]
    logprobs = {
        "tokens": words,
        "token_logprobs": [None, *(-0.5 - t / 7 for t in (1, 2, 3))],
        "top_logprobs": likeliest,
    }
    choice = {"logprobs": logprobs, "prompt_logprobs": [None, {"6": {"logprob": -0.5 - 1 / 7}}]}
    more = {"prompt_token_ids": ids[:2], "token_ids": ids[2:]} if with_ids else {}
    source = open_source(write(tmp_path / "echo.jsonl", [{"choices": [choice | more]}]))
    assert source.shape[0] == 3
    if with_ids:
        assert source.tokens()[0]["input_ids"].tolist() == [ids]


def test_a_token_of_spaces_does_not_tell_that_others_have_theirs() -> None:
    """A server that decodes each token alone leaves out the space before a word, not a token of spaces."""

    class Tokens:
        spelled = staticmethod(lambda ids: [[" the", "the", "  ", " cat"][token] for token in ids])
        names = staticmethod(lambda ids: [["the", "the", "  ", "cat"][token] for token in ids])

    tokenizer: Any = Tokens()
    assert ids_of(["the", "cat", "  "], tokenizer, 4) == {" the": 0, "  ": 2, " cat": 3, "cat": 3}
    assert ids_of([" the", "the"], tokenizer, 4) == {" the": 0, "the": 1, "  ": 2, " cat": 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[1.0, 2.0], [3.0, 4.0]]", "holds an array: load it in Python, and save it by numpy.save"),
        ('{\n"a": ', "does not hold a server's answers"),
        ("", "is a text, not a model"),
        ("[]", "is a text, not a model"),
        ('[{"text": "a"}]', "is a text, not a model"),
        ('"a text"\n"another"\n', "is a text, not a model"),
        ("5\n", "is a text, not a model"),
    ],
)
def test_other_json_is_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(SourceError, match=message):
        open_source(str(tmp_path / "a.json"))


def test_a_saved_result_and_a_configuration_are_named(tmp_path: Path) -> None:
    rank(np.log(np.full((3, 4), 0.25))).save(tmp_path / "r.json")
    with pytest.raises(SourceError, match="is a saved result, not a model or a matrix"):
        open_source(str(tmp_path / "r.json"))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(SourceError, match="is the configuration of a model: give its folder"):
        open_source(str(tmp_path / "config.json"))


def _answer(token: str, value: Any) -> str:
    return json.dumps({"prompt_logprobs": [None, {token: {"logprob": value, "rank": 1}}]})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a line"}', "is a text, not a model: name a model, and give the text with data"),
        (
            '{"choices": [{"message": {"content": "x"}, "logprobs": null}]}',
            r"choices.0.logprobs is null\): ask with logprobs",
        ),
        (
            '{"choices": [{"logprobs": {"content": [{"token": "a", "logprob": -1.0, "top_logprobs": []}]}}]}',
            r"choices.0.logprobs.content.0.top_logprobs is empty\): ask with logprobs=true and top_logprobs=20",
        ),
        (
            '{"choices": [{"text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": [-1], "top_logprobs": null}}]}',
            r"choices.0.logprobs.top_logprobs is null\): ask with .* logprobs=5 of completions",
        ),
        ('{"text": "a", "meta_info": {"id": "1"}}', "ask with return_logprob=true and top_logprobs_num=20 of SGLang"),
        ('{"generated_text": "a", "details": null}', r"\(details is null\): ask with details=true and top_n_tokens=5"),
        ('{"generated_text": "a"}', "ask with details=true and top_n_tokens=5 of text-generation-inference"),
        ('{"content": "a", "generation_settings": {"n_probs": 0}}', "ask with n_probs=20 of llama.cpp"),
        ('{"output": [], "incomplete_details": null}', r"message.output_text.logprobs'\] and top_logprobs=20"),
        ('{"candidates": [{"content": {}}]}', "ask with responseLogprobs=true and logprobs=20 of Gemini"),
        ('{"response": "a", "eval_count": 3}', "ask with logprobs=true and top_logprobs=20 of Ollama"),
        ('{"prompt": "a", "prompt_logprobs": null, "outputs": [{"logprobs": null}]}', "ask with logprobs=20 or prompt"),
        ('{"custom_id": "a", "method": "POST", "body": {"top_logprobs": 20}}', "holds the requests or the errors of a"),
        ('{"question": "a", "choices": ["b", "c"]}', "is a text, not a model"),
        ('{"instruction": "a", "output": "b"}', "is a text, not a model"),
        ("not JSON", "does not hold a server's answers with log-probabilities, one JSON object in a line"),
        (_answer("-3", -1.0), "names token -3: ids are from 0"),
        (_answer("1000000000000", -1.0), "names token 1,000,000,000,000: ids are from 0 to 16,777,215"),
        (_answer("9" * 30, -1.0), "names token 999,999"),
        (_answer("5", "x"), "could not convert string to float"),
        (_answer("5", 0.5), "holds 0.5, and the logarithm of a probability is at most 0"),
        (_answer("5", math.inf), "holds inf"),
        (_answer("5", math.nan), "holds no log-probability"),
        ("[" * 100_000, "line 1: its lists and objects are nested too deeply"),
        ('{"completion_probabilities": [{"id": 5, "top_probs": []}]}', "ask with post_sampling_probs false"),
    ],
)
def test_other_lines_are_named(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(SourceError, match=message):
        open_source(str(path))


def test_a_line_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softmax_bottleneck.core.json_file.LARGEST", 1000)
    path = write(tmp_path / "answers.jsonl", [{"text": "a" * 2000}])
    with pytest.raises(SourceError, match="line 1: it has more than 1,000 bytes"):
        rank(path)
    with pytest.raises(CorpusError, match="it has more than 1,000 bytes"):
        rank(MODEL, data=path)
