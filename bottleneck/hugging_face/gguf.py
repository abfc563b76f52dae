"""The header of a GGUF file (llama.cpp's format), checked before other readers map the file.

The packages gguf and transformers read and dequantize the weights. They make objects of all tokens, which takes
seconds, and do not end where a damaged list claims more entries than the file holds.
"""

from __future__ import annotations

import logging
import math
import mmap
import re
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..core.files import begins_with, open_file
from ..errors import ConfigurationError, SourceError
from .folder import AGAIN, CONFIG

logger = logging.getLogger(__name__)

SUFFIX, MAGIC, VERSIONS = ".gguf", b"GGUF", (2, 3)
FORMS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Form of a value in `struct` by its type's number, in the metadata; the types below are the other two."""
STRING, LIST = 8, 9
SHARD = re.compile(r"-\d{5}-of-\d{5}$")
ALIGNMENT, SHARDS = "general.alignment", "split.count"
TOKENS = "tokenizer.ggml.tokens"
OUTPUT, INPUT = "output.weight", "token_embd.weight"
"""Names of the output embeddings, and of the input embeddings, which are both if the former are missing."""
BEGINNING = "llama", "llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2", "tekken", "chameleon"
"""Tokenizers with which llama.cpp begins every text with a token where a file does not say it (llama-vocab.cpp)."""
ELSEWHERE = "measure the folder it was made of, or a file of llama-perplexity --kl-divergence-base"
LOST = re.compile(r"^rope_|(?<!exps)\.bias$")
"""Names of tensors without which a model is another one; experts are put together under names of their own."""
FREQUENCIES, OLD_FREQUENCIES = "rope_freqs.weight", "attn_rot_embd.weight"
"""Names of the divisors of the rotary frequencies, and of the plain frequencies in old files."""


@dataclass(frozen=True)
class Header:
    """What the header of a GGUF file says of the model."""

    types: dict[str, str]
    """The type of each tensor, such as ``"Q8_0"``."""
    places: dict[str, tuple[int, list[int]]]
    """The first byte of each tensor in the file, and its dimensions, the length of a row first."""
    elements: int
    """Number of elements of all tensors."""
    values: dict[str, Any]
    """The metadata; the length of a list stands for it."""

    @property
    def begins(self) -> bool:
        """Whether every text begins with a token."""
        kinds = (self.values.get(f"tokenizer.ggml.{key}") for key in ("model", "pre"))
        return bool(self.values.get("tokenizer.ggml.add_bos_token", any(kind in BEGINNING for kind in kinds)))

    @property
    def quantization(self) -> str:
        """The type of W, and the types of the body's tensors, the most frequent first."""
        output = OUTPUT if OUTPUT in self.types else INPUT
        body = Counter(kind for name, kind in self.types.items() if name != output)
        return f"W in {self.types.get(output)}, body in {', '.join(kind for kind, _ in body.most_common())}"


def is_gguf(path: Path) -> bool:
    """Return whether a path is that of a GGUF file; Ollama's have no suffix."""
    return path.suffix.lower() == SUFFIX or begins_with(path, MAGIC)


def find(path: Path) -> Path | None:
    """Return the GGUF file that a path names, itself or the only one in a folder of no other model; else ``None``.

    Raises:
        SourceError: for a folder with several.
    """
    if not path.is_dir() or (path / CONFIG).exists():
        return path if is_gguf(path) else None
    files = sorted(path.glob(f"*{SUFFIX}"))
    if len(files) > 1 and not all(SHARD.search(file.stem) for file in files):
        raise SourceError(f"{path} holds {len(files)} GGUF files: name one of them, such as {files[0]}")
    return next(iter(files), None)


def read_header(file: Path) -> Header:
    """Return what a file's header says, after a check that everything it names lies within the file.

    Raises:
        ConfigurationError: without the package gguf.
        SourceError: for a file that is missing, truncated, damaged, a shard of a model, or of another format.
    """
    try:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
    except ImportError as error:
        raise ConfigurationError("GGUF files need the package gguf: pip install 'softmax-bottleneck[gguf]'") from error
    sizes = {int(kind): GGML_QUANT_SIZES[kind] for kind in GGMLQuantizationType}
    names = {int(kind): kind.name for kind in GGMLQuantizationType}
    try:
        with open_file(file) as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            reader = _Reader(data)
            values = reader.values()
            if values.get(SHARDS, 1) > 1:
                raise SourceError(
                    f"{file} is one of {values[SHARDS]} shards of a model, and only whole files are read: merge them "
                    "with llama.cpp's llama-gguf-split --merge FIRST_SHARD WHOLE.gguf"
                )
            tensors = reader.tensors()
            step = values.get(ALIGNMENT, 32)
            start = -(-reader.place // step) * step
            types, places, elements = {}, {}, 0
            for name, dimensions, kind, offset in tensors:
                block, block_bytes = sizes[kind]
                count = math.prod(dimensions)
                if start + offset + count // block * block_bytes > len(data):
                    raise ValueError(f"the tensor {name} ends after the file, which may be truncated")
                types[name], places[name], elements = names[kind], (start + offset, dimensions), elements + count
            return Header(types, places, elements, values)
    except OSError as error:
        raise SourceError(f"cannot read {file}: {error.strerror}") from error
    except KeyError as error:
        raise SourceError(f"{file} is damaged or newer than the package gguf ({error} is unknown); {AGAIN}") from error
    except (ValueError, TypeError, ZeroDivisionError) as error:
        raise SourceError(f"{file} is not a whole GGUF file ({error}); {AGAIN}") from error


def complete(model: Any, file: Path) -> None:
    """Scale a model's rotary frequencies as its file says, which transformers does not, and refuse what it left out.

    llama.cpp turns pair i of n dimensions by base^(−2i/n) / (factor · divisor_i) at each position.

    Raises:
        SourceError: for other rotary positions, or tensors that the model does not take; it names them.
    """
    from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor, get_gguf_hf_weights_map

    header = read_header(file)
    architecture = header.values["general.architecture"]
    processor = TENSOR_PROCESSORS.get(architecture, TensorProcessor)(config={})
    taken = {name.removesuffix(".weight") for name in get_gguf_hf_weights_map(model, processor)}  # experts have none
    unused = {name for name in header.types if name.removesuffix(".weight") not in taken}
    about = {key.removeprefix(f"{architecture}."): value for key, value in header.values.items()}
    if frequencies := [each for name, each in model.named_buffers() if name.endswith("inv_freq")]:
        size = about.get("rope.dimension_count") or about.get("attention.key_length")
        size = size or about["embedding_length"] // about["attention.head_count"]
        plain = about.get("rope.freq_base", 1e4) ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        scaling, factor = about.get("rope.scaling.type", "linear"), about.get("rope.scaling.factor", 1.0)
        divisors = torch.full_like(plain, factor if scaling == "linear" else 1.0)
        if header.types.get(FREQUENCIES) == "F32":
            divisors *= torch.from_numpy(np.fromfile(file, "<f4", size // 2, offset=header.places[FREQUENCIES][0]))
            unused.discard(FREQUENCIES)
        same_size = [each for each in frequencies if each.shape == plain.shape]
        for each in same_size:
            if torch.allclose(each.double(), plain, 1e-4):  # other layers may have another base
                each /= divisors
        is_scaled = any(torch.allclose(each.double(), plain / divisors, 1e-4) for each in same_size)
        is_other = (scaling not in ("linear", "none") and factor != 1) or about.get("rope.scaling.attn_factor", 1) != 1
        if is_other or not is_scaled:
            said = ", ".join(f"{key} {value}" for key, value in about.items() if key.startswith("rope."))
            raise SourceError(
                f"transformers does not give the model the rotary positions of {file} ({said or 'base 10000'}): "
                f"{ELSEWHERE}"
            )
    if lost := [name for name in sorted(unused) if LOST.search(name)]:
        raise SourceError(
            f"{file} holds {len(lost)} tensors that transformers does not give the model, first {lost[0]}: {ELSEWHERE}"
        )
    if unused := {name for name in unused if not name.endswith(OLD_FREQUENCIES)}:
        logger.warning("%s: %d tensors have no place in the model, first %s", file, len(unused), min(unused))


@contextmanager
def read_quickly() -> Iterator[None]:
    """Let transformers read a GGUF file in less than half the time.

    It asks the package gguf by name for a reader, three times for a model, and for the table of names of tensors, once
    for every layer. The reader slices a plain array, because slices of a memory map cost three times as much, and the
    table is made once.
    """
    try:
        import gguf
    except ImportError:  # which reading a GGUF file says
        yield
        return

    class Reader(gguf.GGUFReader):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, np.asarray(value) if name == "data" else value)

    before = gguf.GGUFReader, gguf.get_tensor_name_map
    names: Any = cache(gguf.get_tensor_name_map)
    try:
        gguf.GGUFReader, gguf.get_tensor_name_map = Reader, names  # type: ignore[misc]
        yield
    finally:
        gguf.GGUFReader, gguf.get_tensor_name_map = before  # type: ignore[misc]


class _Reader:
    """The bytes of a header in their order; `ValueError` beyond the file's end."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.place = data, 0
        if self._take(4) != MAGIC:
            raise ValueError("it does not begin with GGUF")
        version = self._number("I")
        if version not in VERSIONS:
            raise ValueError(f"its version is {version}, and {VERSIONS[0]} and {VERSIONS[1]} are read")
        self.tensor_count, self.value_count = self._number("Q"), self._number("Q")

    def values(self) -> dict[str, Any]:
        """Return the metadata; lists, which may be long, are skipped and stand as their lengths."""
        return {self._text(): self._value(self._number("I")) for _ in range(self.value_count)}

    def tensors(self) -> list[tuple[str, list[int], int, int]]:
        """Return name, dimensions, type and offset of each tensor."""
        found = []
        for _ in range(self.tensor_count):
            name, shape = self._text(), [self._number("Q") for _ in range(self._number("I"))]
            found.append((name, shape, self._number("I"), self._number("Q")))
        return found

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._text()
        if kind != LIST:
            return self._number(FORMS[kind])
        kind, count = self._number("I"), self._number("Q")
        if kind == STRING:
            for _ in range(count):
                self._move(self._number("Q"))
        else:
            self._move(struct.calcsize(FORMS[kind]) * count)
        return count

    def _move(self, size: int) -> None:
        self.place += size
        if self.place > len(self.data):
            raise ValueError("it ends within its header")

    def _take(self, size: int) -> bytes:
        self._move(size)
        return self.data[self.place - size : self.place]

    def _number(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self._take(struct.calcsize(form)))[0]

    def _text(self) -> str:
        return self._take(self._number("Q")).decode(errors="replace")
