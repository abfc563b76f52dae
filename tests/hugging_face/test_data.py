"""The texts and ids that people give a model: every form of one text or batch gives the same number."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from softmax_bottleneck import perplexity
from softmax_bottleneck.errors import BottleneckError

LINES = [" ".join(f"w{7 * word % 30}" for word in range(start, start + 80)) for start in (0, 11)]


@pytest.fixture
def model(save: Callable[..., Path]) -> tuple[Path, Any, Any]:
    """A folder, the model in it, and its tokenizer."""
    folder = save("gpt2")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder)
    return folder, loaded, transformers.AutoTokenizer.from_pretrained(folder)


def test_texts(model: tuple[Path, Any, Any], tmp_path: Path) -> None:
    folder, loaded, tokenizer = model
    (tmp_path / "d.txt").write_text("\n".join(LINES))
    for field in ("text", "content"):
        rows = "".join(json.dumps({"id": 1, field: line}) + "\n" for line in LINES)
        (tmp_path / f"{field}.jsonl").write_text(rows)

    class Dataset:
        column_names = ("text",)

        def __getitem__(self, column: str) -> list[str]:
            return {"text": LINES}[column]

    names = ("d.txt", "text.jsonl", "text.jsonl:text", "content.jsonl:content")
    expected = perplexity(folder, data=str(tmp_path / "d.txt")).perplexity
    for data in (*(str(tmp_path / name) for name in names), LINES, Dataset(), "\n".join(LINES)):
        assert perplexity(folder, data=data).perplexity == expected
        assert perplexity(loaded, data=data, tokenizer=tokenizer).perplexity == expected


def test_ids(model: tuple[Path, Any, Any]) -> None:
    folder, loaded, _ = model
    ids = torch.randint(0, 30, (6, 20), generator=torch.Generator().manual_seed(0))
    rows = [{"input_ids": row, "attention_mask": torch.ones(20)} for row in ids]
    expected = perplexity(loaded, data=ids).perplexity
    batches = ([ids[:4], ids[4:]], list(ids), ids.tolist(), rows, torch.utils.data.DataLoader(rows, batch_size=4))
    for data in (*batches, (row for row in ids.numpy())):
        assert perplexity(loaded, data=data).perplexity == expected
    assert perplexity(folder, data=ids).perplexity == expected


def test_a_text_in_place_of_a_model() -> None:
    with pytest.raises(BottleneckError, match=r"^'xxx.{70,90} cannot be opened: File name too long$"):
        perplexity("x" * 5000)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ("content.jsonl", "record 1 has no text in the field 'text' .its fields are content.; name one as FILE.jsonl:"),
        ("broken.jsonl", "record 1 is not JSON"),
        ("x" * 5000, "x' is not a corpus: choose one of"),
        ([torch.zeros(5, dtype=torch.int64), torch.zeros(9, dtype=torch.int64)], "the rows of ids have 5 to 9 tokens"),
        ([{"input_ids": torch.ones(2, 9), "attention_mask": torch.eye(2, 9)}], "the ids are padded"),
        ([], "token ids must be integers"),
        ([None], "data must be a text or token ids"),
    ],
)
def test_what_is_not_a_text(
    data: Any, complaint: str, model: tuple[Path, Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("content.jsonl").write_text(json.dumps({"content": LINES[0]}))
    Path("broken.jsonl").write_text(LINES[0])
    with pytest.raises(BottleneckError, match=complaint):
        perplexity(model[0], data=data)
