"""Perplexity per byte: the loss of a whole text over its bytes, which compares models of different vocabularies."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE, Unigram, WordLevel, WordPiece
from tokenizers.trainers import BpeTrainer, UnigramTrainer, WordLevelTrainer, WordPieceTrainer

import softmax_bottleneck as sb
from softmax_bottleneck.errors import SourceError
from softmax_bottleneck.hugging_face.text import read_text
from softmax_bottleneck.measure.dumping import dump

TEXT = "Zwölf Boxkämpfer jagen Viktor über den großen Sylter Deich – 漢字 🙂.\n" * 8


@pytest.fixture
def models(save: Any) -> tuple[Path, Path]:
    """Two models: one token a byte, and one whose tokens are pairs of bytes as well."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    folders = []
    for merges in ([], [("e", "n"), ("Ã", "¼"), ("r", "Ġ")]):
        words = [*alphabet, *("".join(pair) for pair in merges)]
        tokenizer = Tokenizer(BPE(vocab={word: n for n, word in enumerate(words)}, merges=merges))
        tokenizer.pre_tokenizer, tokenizer.decoder = (
            pre_tokenizers.ByteLevel(add_prefix_space=False),
            decoders.ByteLevel(),
        )
        folder = save("gpt2", vocab_size=len(words), n_positions=256)
        transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
        folders.append(folder)
    return folders[0], folders[1]


def test_bytes_of_any_characters(models: Any, tmp_path: Path) -> None:
    """Those of all tokens but the first of each window; where each token is a byte it is the perplexity itself."""
    (tmp_path / "t.txt").write_text(TEXT, encoding="utf-8")
    for folder in models:
        source = sb.open(folder, data=str(tmp_path / "t.txt"), context_length=64)
        scores = sb.perplexity(source)
        spelled = b"".join(
            each.encode(errors="surrogateescape") for each in source.text.tokenizer.spelled(source.targets.tolist())
        )
        assert TEXT.encode().endswith(spelled)
        assert scores.bytes == len(spelled)
        assert scores.per_byte == pytest.approx(math.exp(scores.loss * scores.tokens / len(spelled)))
        assert scores.to_dict()["perplexity_per_byte"] == scores.per_byte
        assert f"{scores.per_byte:.4f}, {math.log2(scores.per_byte):.4f} bits; {len(spelled):,} bytes" in str(scores)
        stored = sb.perplexity(dump(source, tmp_path / folder.name, states=True))
        assert (stored.bytes, stored.per_byte) == (scores.bytes, pytest.approx(scores.per_byte))
    begun = f"{models[0]}-begun"
    shutil.copytree(models[0], begun)
    tokenizer = transformers.AutoTokenizer.from_pretrained(begun, bos_token="!")
    tokenizer.add_bos_token = True
    tokenizer.save_pretrained(begun)
    told = (
        sb.perplexity(begun, data=TEXT, bos="on"),
        sb.perplexity(begun, data="!" + TEXT.replace("\n", "\n!"), bos="on"),
    )
    assert told[0].bytes == told[1].bytes == told[0].tokens  # without the token that begins each line
    first = sb.perplexity(models[0], data=str(tmp_path / "t.txt"), context_length=64)
    assert first.per_byte == pytest.approx(first.perplexity)


def test_the_end_of_a_document_in_given_ids_has_no_bytes(models: Any, tmp_path: Path) -> None:
    """In a text that is written with it, as in a file, it has the bytes that are written."""
    folder = tmp_path / "ended"
    shutil.copytree(models[1], folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"eos_token": AddedToken("e", special=True)})
    tokenizer.save_pretrained(folder)
    text = "one document e another e and the last e end"
    ids = np.array(tokenizer.encode(text, add_special_tokens=False))
    ends = int((ids == tokenizer.eos_token_id).sum())
    assert ends > 3
    plain, ended = (sb.perplexity(each, data=ids) for each in (models[1], folder))
    assert plain.bytes is not None
    assert (ended.bytes, ended.tokens) == (plain.bytes - ends, plain.tokens)
    assert sb.perplexity(folder, data=text, context_length=8, stride=8).bytes == len(text) - 1


WORDS = "running of the unwinnable race, singing and the understandable rules"


def _trained(form: str) -> Tokenizer:
    unknown: Any = {"unk_token": "[UNK]"}
    special: Any = {"special_tokens": ["[UNK]"], "vocab_size": 60, "show_progress": False}
    if form == "##":
        made, trainer = Tokenizer(WordPiece(**unknown)), WordPieceTrainer(**special)
        made.pre_tokenizer, made.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    elif form == "</w>":
        made, trainer = Tokenizer(BPE(**unknown)), BpeTrainer(end_of_word_suffix="</w>", **special)
        made.pre_tokenizer, made.decoder = pre_tokenizers.BertPreTokenizer(), decoders.BPEDecoder()
    elif form == "▁":
        made = Tokenizer(Unigram())
        trainer = UnigramTrainer(unk_token="[UNK]", **special)
        made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    else:  # words whose spaces are lost
        made, trainer = Tokenizer(WordLevel(**unknown)), WordLevelTrainer(**special)
        made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.train_from_iterator([f"{WORDS}\n{WORDS}\n"], trainer)
    return made


@pytest.mark.parametrize("form", ["##", "</w>", "▁", "words"])
def test_tokens_that_do_not_spell_the_text(form: str, save: Any, tmp_path: Path) -> None:
    """Marks in the names of tokens do not count, spaces that no token holds do, and unknown words are not counted."""
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=_trained(form), unk_token="[UNK]")
    folder = save("gpt2", vocab_size=len(tokenizer), n_positions=64)
    tokenizer.save_pretrained(folder)
    text = "\n".join([WORDS] * 20) + "\n"
    (tmp_path / "t.txt").write_text(text, encoding="utf-8")
    source = sb.open(folder, data=str(tmp_path / "t.txt"))
    scores = sb.perplexity(source)
    assert scores.bytes is not None
    assert source.text is not None
    share = scores.tokens / len(source.text.ids)  # the same words in each line
    assert scores.bytes / len(text) == pytest.approx(share, rel=0.03)
    (tmp_path / "u.txt").write_text(f"{text} 漢字漢字漢字漢字漢字 {text}", encoding="utf-8")
    assert sb.perplexity(folder, data=str(tmp_path / "u.txt")).bytes is None


def test_models_of_different_vocabularies(models: Any, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text(TEXT, encoding="utf-8")
    how: Any = {"data": str(tmp_path / "t.txt"), "context_length": 64}
    scores = [sb.perplexity(folder, **how) for folder in models]
    with pytest.raises(SourceError, match="different vocabularies") as refusal:
        sb.compare(*map(str, models), **how)
    for score, folder in zip(scores, models, strict=True):
        assert f"{folder} {score.per_byte:.4f} ({score.bytes:,} bytes)" in str(refusal.value)
    (tmp_path / "other.txt").write_text(TEXT[:200], encoding="utf-8")
    other = sb.open(models[1], data=str(tmp_path / "other.txt"), context_length=64)
    with pytest.raises(SourceError, match=r"does not compare them on different texts, .*t\.txt and .*other\.txt: give"):
        sb.compare(sb.open(models[0], **how), other)
    alike = sb.compare(str(models[0]), str(models[0]), **how)
    assert alike.bytes == scores[0].bytes
    assert f"perplexity per byte  P {scores[0].per_byte:.4f} and Q {scores[0].per_byte:.4f}" in alike.details()


@pytest.mark.parametrize("form", ["corpus", "words", "lines"])
def test_a_run_counts_the_bytes_of_its_text(form: str, runs: dict[str, Path], tmp_path: Path) -> None:
    """A space stands between two words of a line alone; the first token is not predicted."""
    corpus = str(sb.open(runs["softmax"]).description["corpus"])
    known = [word for word in sb.corpora.load(corpus).vocabulary.tokens if not word.startswith("<")]
    words = [known[number % len(known)] for number in range(300)]
    lines = [" ".join(words[start : start + 12]) for start in range(0, 300, 12)] if form == "words" else words
    (tmp_path / "t.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    data = corpus if form == "corpus" else str(tmp_path / "t.txt")
    text, count = sb.open(runs["softmax"], data=data).text, sb.perplexity(runs["softmax"], data=data).bytes
    written, first = read_text(data, "test").data, text.names([int(text.ids[0])])[0]
    assert count == len(written) + (form == "corpus") - len(first)  # a corpus is read without its last newline
    assert sb.perplexity(f"kn2:{corpus}", data=data).bytes == count


def test_a_matrix_and_bare_ids_have_no_bytes(runs: dict[str, Path], tmp_path: Path) -> None:
    folder = dump(runs["softmax"], tmp_path / "s", states=True)
    for source in (folder, dump(runs["softmax"], tmp_path / "s.zarr")):
        scores = sb.perplexity(source)
        assert scores.bytes is scores.per_byte is None
        assert "per byte" not in str(scores)
