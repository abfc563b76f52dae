"""Codecs for the chunks of a Zarr array that unpack no more bytes than the shape of a chunk holds.

A chunk of a few bytes can unpack to gigabytes, and Zarr unpacks it as a whole before it looks at the size.
"""

from __future__ import annotations

import asyncio
import bz2
import lzma
import math
import zlib
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from zarr.abc.codec import BytesBytesCodec
from zarr.codecs import ShardingCodec
from zarr.registry import get_numcodec

STREAMS = {
    "gzip": lambda: zlib.decompressobj(31),
    "zlib": zlib.decompressobj,
    "bz2": bz2.BZ2Decompressor,
    "lzma": lambda: lzma.LZMADecompressor(memlimit=1 << 30),
}
"""Codec → what unpacks its data, piece by piece."""
SIZED = ("blosc", "lz4", "zstd")
"""Codecs whose data begin with their size when they are unpacked."""
HARMLESS = (
    *("crc32c", "crc32", "adler32", "fletcher32", "jenkins_lookup3", "shuffle", "delta", "bitround", "quantize"),
    *("fixedscaleoffset", "packbits", "astype", "bytes", "transpose"),
)
"""Codecs whose output has a fixed size. No other codec is run: that of pickles runs code."""


def limited(metadata: Any) -> Any:
    """Return the metadata of a Zarr array with codecs that unpack no more than a chunk holds."""
    if metadata.zarr_format == 3:
        return replace(metadata, codecs=tuple(map(_limited, metadata.codecs)))
    size = math.prod(metadata.chunks) * metadata.dtype.to_native_dtype().itemsize
    filters = tuple(_limited_numcodec(codec, size) for codec in metadata.filters or ())
    compressor = metadata.compressor and _limited_numcodec(metadata.compressor, size)
    return replace(metadata, compressor=compressor, filters=filters or None)


def unpacked(codec: str, data: bytes, size: int) -> bytes:
    """Return what a chunk unpacks to.

    Args:
        codec: one of `STREAMS` or `SIZED`.
        data: the packed chunk.
        size: bytes that the shape of the chunk holds; data that are packed twice may be a little larger.

    Raises:
        ValueError: it is damaged or unpacks to more.
    """
    most = 2 * size + (1 << 16)
    if codec in STREAMS:
        return _unpacked_stream(codec, data, most)
    declared = (
        _zstd_size(data) if codec == "zstd" else int.from_bytes(data[4:8] if codec == "blosc" else data[:4], "little")
    )
    _check(declared or 0, most)
    # Where zstd does not know the size, it fills an array of exactly that size.
    buffer = None if declared is not None else np.empty(size, np.uint8)
    return bytes(get_numcodec({"id": codec}).decode(data, out=buffer))


def _check(size: int, most: int) -> None:
    if size > most:
        raise ValueError(f"a chunk unpacks to more than the {most:,} bytes that its shape allows")


def _unpacked_stream(codec: str, data: bytes, most: int) -> bytes:
    result = b""
    while data:  # a file of gzip may have several parts
        engine: Any = STREAMS[codec]()
        try:
            result += engine.decompress(data, most + 1 - len(result))
        except (zlib.error, lzma.LZMAError) as error:
            raise ValueError(f"a chunk is damaged: {error}") from error
        _check(len(result), most)
        if not engine.eof:
            raise ValueError("a chunk ends early")
        data = engine.unused_data.lstrip(b"\0")
    return result


def _zstd_size(data: bytes) -> int | None:
    """Return the size in the header of a zstd frame, or ``None`` where it does not say it (RFC 8878, 3.1.1.1)."""
    descriptor = data[4] if len(data) > 4 else 0
    has_window, code = not descriptor >> 5 & 1, descriptor >> 6
    length = (0 if has_window else 1, 2, 4, 8)[code]
    start = 5 + has_window + (0, 1, 2, 4)[descriptor & 3]
    return int.from_bytes(data[start : start + length], "little") + 256 * (code == 1) if length else None


def _refused(name: str) -> ValueError:
    known = ", ".join([*STREAMS, *SIZED])
    return ValueError(f"its chunks are packed by {name!r}, which is not read: write it again by one of {known}")


def _limited(codec: Any) -> Any:
    """Return a codec of Zarr's version 3 whose output is limited."""
    if isinstance(codec, ShardingCodec):
        codecs, index_codecs = (tuple(map(_limited, each)) for each in (codec.codecs, codec.index_codecs))
        return replace(codec, codecs=codecs, index_codecs=index_codecs)
    name = str(codec.to_dict()["name"]).removeprefix("numcodecs.")
    if name in STREAMS or name in SIZED:
        return LimitedCodec(name)
    if name not in HARMLESS:
        raise _refused(name)
    return codec


@final
@dataclass(frozen=True)
class LimitedCodec(BytesBytesCodec):
    """A codec of Zarr's version 3 that only unpacks."""

    name: str
    is_fixed_size = False

    async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        size = math.prod(chunk_spec.shape) * chunk_spec.dtype.to_native_dtype().itemsize
        data = await asyncio.to_thread(unpacked, self.name, chunk_bytes.to_bytes(), size)
        return chunk_spec.prototype.buffer.from_bytes(data)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
        """Refuse: the size depends on the data."""
        raise NotImplementedError


def _limited_numcodec(codec: Any, size: int) -> Any:
    """Return a codec of Zarr's version 2 whose output is limited."""
    if codec.codec_id in STREAMS or codec.codec_id in SIZED:
        return LimitedNumcodec(codec.codec_id, size)
    if codec.codec_id not in HARMLESS:
        raise _refused(codec.codec_id)
    return codec


@final
@dataclass(frozen=True)
class LimitedNumcodec:
    """A codec of Zarr's version 2 that only unpacks; arrays are only read."""

    name: str
    size: int
    codec_id = "limited"

    def decode(self, buf: Any) -> bytes:
        """Return the unpacked bytes."""
        return unpacked(self.name, np.asarray(buf).tobytes(), self.size)

    encode = get_config = from_config = decode
