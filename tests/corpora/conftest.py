"""A small downloadable corpus with its own pins, and a web server on the loopback address."""

from __future__ import annotations

import hashlib
import io
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from softmax_bottleneck.corpora import PINNED, PinnedCorpus, PinnedFile

Write = Callable[[str, bytes], Path]
Serve = Callable[..., str]

TEXTS: Mapping[str, bytes] = {
    "train": b" a rose is a rose \n\n is <unk> a rose ?\n",
    "valid": b" a rose is\n",
    "test": b" is a rose a rose ?\n ?\n",
}
"""The corpus ``tiny``, by split."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of the corpora of the cache, which is empty."""
    monkeypatch.setenv("SOFTMAX_BOTTLENECK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache" / "corpora"


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Put a body on the loopback server and return its address; ``length`` is what the header claims."""
    answers: dict[str, tuple[bytes, int | None]] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body, length = answers.get(self.path, (b"", None))
            self.send_response(200 if self.path in answers else 404)
            if length is not None:
                self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    def put(path: str, body: bytes, *, length: int | None = -1) -> str:
        answers[path] = body, len(body) if length == -1 else length
        return f"http://127.0.0.1:{server.server_port}{path}"

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield put
        server.shutdown()
        thread.join()


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> PinnedCorpus:
    """A downloadable corpus whose addresses lead nowhere."""
    return _register(monkeypatch, dict.fromkeys(TEXTS, "http://127.0.0.1:9/nothing"))


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, serve: Serve) -> PinnedCorpus:
    """The same corpus with its files on the loopback server."""
    return _register(monkeypatch, {split: serve(f"/tiny.{split}.txt", text) for split, text in TEXTS.items()})


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file below the test's folder and return its path."""

    def write(name: str, data: bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    return write


def zipped(members: Mapping[str, bytes | str]) -> bytes:
    """Return a compressed archive."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def _register(monkeypatch: pytest.MonkeyPatch, urls: Mapping[str, str]) -> PinnedCorpus:
    files = tuple(
        PinnedFile(split, f"tiny.{split}.txt", len(text), hashlib.sha256(text).hexdigest(), urls[split])
        for split, text in TEXTS.items()
    )
    corpus = PinnedCorpus(
        name="tiny",
        description="three short texts",
        licence="none needed",
        files=files,
        tokens={"train": 13, "valid": 4, "test": 9},
        vocabulary_size=6,
    )
    monkeypatch.setitem(PINNED, "tiny", corpus)
    return corpus
