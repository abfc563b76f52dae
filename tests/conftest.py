"""A tiny corpus, one trained run for each head, and matrices of log-probabilities."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from numpy.typing import NDArray

from softmax_bottleneck.cli import main
from softmax_bottleneck.training import fit
from softmax_bottleneck.training.config import parse

with suppress(ImportError):  # torch before 2.10
    import accelerator  # noqa: F401 (torch counts the kinds of devices once, before its first backward pass)

TOKENS = 40
HEADS: Mapping[str, dict[str, Any]] = {
    "softmax": {},
    "moc": {"components": 3},
    "mos": {"components": 3},
    "sigsoftmax": {},
    "lms-plif": {"knots": 60, "interval": 4.0},
}


signal.signal(signal.SIGINT, signal.default_int_handler)
"""A shell starts background jobs with SIGINT ignored, and the commands that tests interrupt would inherit that."""


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiny products gain nothing from threads, and on a busy machine they wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def repeatable() -> Iterator[None]:
    """Random numbers of torch from seed 0; the generator's state is restored."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.fixture
def bottleneck() -> Callable[..., Result]:
    """Run the command in this process and return what it printed."""

    def run(*arguments: str | Path, **how: Any) -> Result:
        return CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="bottleneck", **how)

    return run


def _write_corpus(folder: Path) -> None:
    """Write a Markov chain: each token has three successors, so that a model has something to learn."""
    rng = np.random.default_rng(5)
    followers = rng.integers(0, TOKENS, (TOKENS, 3))
    folder.mkdir()
    word = 0
    for split, lines in (("train", 120), ("valid", 8), ("test", 42)):
        text = ""
        for _ in range(lines * 9):
            word = followers[word, rng.integers(3)]
            text += f"w{word} "
        words = text.split()
        (folder / f"{split}.txt").write_text("".join(" ".join(words[9 * n : 9 * n + 9]) + "\n" for n in range(lines)))


@pytest.fixture(scope="session")
def corpus_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``train.txt``, ``valid.txt`` and ``test.txt`` of a Markov chain's tokens."""
    folder = tmp_path_factory.mktemp("text") / "corpus"
    _write_corpus(folder)
    return folder


@pytest.fixture(scope="session")
def train(corpus_folder: Path) -> Callable[..., Path]:
    """Train a tiny LSTM under a head: d = 5 against forty tokens."""

    def train(head: str, out: Path, *, corpus: Path = corpus_folder, tie: bool = True, **settings: Any) -> Path:
        config = {
            "corpus": str(corpus),
            "model": {
                "backbone": {"name": "lstm", "embedding_size": 5, "hidden_size": 7, "layers": 2, "dropout": 0.0},
                "head": {"name": head, "embedding_size": 5, **HEADS[head], **settings},
                "tie_embeddings": tie,
            },
            "training": {
                "epochs": 3,
                "batch_size": 4,
                "bptt": 12,
                "optimizer": {"learning_rate": 0.03, "schedule": "constant", "warmup_steps": 2},
            },
        }
        return fit(parse(config, where="test"), out, device="cpu").path

    return train


@pytest.fixture(scope="session")
def runs(train: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A finished run for each head, which is trained when a test first asks for it; read only."""
    folder = tmp_path_factory.mktemp("runs")

    class Runs(dict[str, Path]):
        def __missing__(self, head: str) -> Path:
            self[head] = train(head, folder / head)
            return self[head]

    return Runs()


@pytest.fixture(scope="session")
def log_probs() -> Callable[..., NDArray[np.float64]]:
    """Make a T × M matrix of random log-probabilities."""

    def make(T: int = 20, M: int = 8, *, seed: int = 0) -> NDArray[np.float64]:
        logits = np.random.default_rng(seed).standard_normal((T, M))
        return np.asarray(logits - np.log(np.exp(logits).sum(1, keepdims=True)))

    return make


def _talk(rng: np.random.Generator) -> list[tuple[str, str]]:
    """Return a conversation: its speakers count up in turn, so that a line is predicted from the one before it."""
    word, lines = int(rng.integers(10)), []
    for _ in range(rng.integers(4, 9)):
        words = [f"w{(word + step) % 10}" for step in range(rng.integers(1, 5))]
        lines.append(("AB"[int(rng.integers(2))] if len(lines) > 1 else "AB"[len(lines)], " ".join(words)))
        word += len(words)
    return lines


@pytest.fixture(scope="session")
def talks() -> Mapping[str, list[list[tuple[str, str]]]]:
    """Conversations of the three splits, each a list of speakers and words."""
    rng = np.random.default_rng(1)
    return {split: [_talk(rng) for _ in range(count)] for split, count in (("train", 20), ("valid", 4), ("test", 5))}


@pytest.fixture(scope="session")
def talk_folder(talks: Mapping[str, list[list[tuple[str, str]]]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The conversations as a corpus folder: the speaker is a line's first token, a blank line ends a conversation."""
    folder = tmp_path_factory.mktemp("talk")
    for split, conversations in talks.items():
        lines = [f"<{who.lower()}> {words}\n" for talk in conversations for who, words in (*talk, ("", ""))]
        (folder / f"{split}.txt").write_text("".join("\n" if line.startswith("<>") else line for line in lines))
    return folder


@pytest.fixture
def write_kld(tmp_path: Path) -> Callable[..., Path]:
    """Write logits as llama.cpp's tools/perplexity/perplexity.cpp does, its loop in Python: a row for each context."""

    def write(logits: NDArray[Any], tokens: NDArray[Any], name: str = "reference.kld") -> Path:
        chunks, n_ctx = tokens.shape
        vocab, one = logits.shape[1], np.float32(1)
        path = tmp_path / name
        with path.open("wb") as file:
            file.write(b"_logits_")
            file.write(np.array([n_ctx, vocab, chunks, *tokens.ravel()], "<i4").tobytes())
            for row in logits.astype(np.float32):
                largest = row.max()
                least = max(row.min(), largest - np.float32(16))
                log_sum = np.float32(np.log(float(sum(np.exp(row - largest).astype(float)))))
                scale = np.float32(largest - least) / np.float32(65535)
                words = np.zeros(4 + 2 * ((vocab + 1) // 2), "<u2")
                words[:4] = np.array([scale, least - largest - log_sum], "<f4").view("<u2")
                if scale:
                    grid = np.rint(one / scale * (row - least))
                    words[4 : 4 + vocab] = np.where(row > least, grid, 0)
                file.write(words.tobytes())
        return path

    return write
