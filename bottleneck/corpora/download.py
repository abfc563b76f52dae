"""Download of one file into memory, with limits on time and size."""

from __future__ import annotations

import time
from collections.abc import Callable
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

from ..core.version import __version__
from ..errors import CorpusError

ByteCallback = Callable[[str, int, int], None]
"""Function that is called with the file's name, the bytes received, and the bytes in all (0 if unknown)."""

_TIMEOUT = 30.0  # seconds without a byte
_BLOCK_BYTES = 1 << 16
_SLOWEST, _GRACE = 1000, 60.0  # bytes a second on average, after so many seconds
_BY_HAND = "or get the file in another way and give it with --from PATH"


def download(url: str, *, limit: int, progress: ByteCallback | None = None) -> bytes:
    """Return the bytes at ``url`` (http or https), at most ``limit`` of them.

    `CorpusError` for a wrong address, a server that cannot be reached or refuses, an answer longer than ``limit``, or a
    connection that breaks.
    """
    if not url.lower().startswith(("http://", "https://")):
        raise CorpusError(f"{url!r} is not a web address: it must begin with https:// or http://, {_BY_HAND}")
    data, started = bytearray(), time.monotonic()
    try:
        name = unquote(urlsplit(url).path).rsplit("/", 1)[-1] or url
        request = Request(url, headers={"User-Agent": f"softmax-bottleneck/{__version__}"})
        with urlopen(request, timeout=_TIMEOUT) as response:
            total = response.length or 0
            while block := response.read1(_BLOCK_BYTES):  # what has arrived; read() waits for a whole block
                data += block
                seconds = time.monotonic() - started
                if seconds > _GRACE and len(data) < _SLOWEST * seconds:
                    raise CorpusError(f"{url} sent only {len(data):,} bytes in {seconds:.0f} s: try later, {_BY_HAND}")
                if max(len(data), total) > limit:
                    raise CorpusError(
                        f"{url} sends more than {limit:,} bytes: it is not this corpus; check the address"
                    )
                if progress is not None:
                    progress(name, len(data), total)
    except HTTPError as error:
        error.close()
        raise CorpusError(f"{url} answered {error.code} {error.reason}: check the address, {_BY_HAND}") from error
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise CorpusError(f"{url} could not be downloaded ({reason}): check the network, {_BY_HAND}") from error
    if len(data) < total:  # http.client reports a broken connection only for a read() without a size
        raise CorpusError(f"{url} ended after {len(data):,} of {total:,} bytes: run the same command again")
    return bytes(data)
