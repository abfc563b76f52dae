"""Web servers that refuse, break off, redirect in circles or answer nonsense."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from attacks import promise

FAULTS: dict[str, str] = {
    "403": "403",
    "404": "404|No group found|has no chunk|holds nan",
    "500": "500",
    "cut": "not completed|IncompleteRead",
    "loop": "redirect",
    "nonsense": "400 Bad status line|nonsense",
    "closed": "disconnected|closed",
    "page": "Expecting value|checksum do not match|divisor of the total size|does not hold ptb",
}
"""What the server does → what the sentence says."""
ONLY_HEADERS = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")


@pytest.fixture
def address(place: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve the working directory: ``/FAULT/all/FILE`` with a fault, ``/FAULT/rows/FILE`` only rows with it."""
    folder = place("plain.zarr", "store.zarr")
    monkeypatch.setenv("no_proxy", "*")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _, fault, which, *names = self.path.split("/")
            file = folder.joinpath(*names)
            body = file.read_bytes() if file.is_file() else None
            if which == "rows" and file.name in ONLY_HEADERS:
                fault = "none"
            self.close_connection = True
            if fault == "nonsense":
                self.wfile.write(b"\x1b[2Jnonsense\r\n\r\n")
            elif fault != "closed":
                self._answer(fault, body)

        def _answer(self, fault: str, body: bytes | None) -> None:
            missing = 404 if body is None and fault == "none" else 200
            self.send_response(int(fault) if fault.isdigit() else 302 if fault == "loop" else missing)
            if fault == "loop":
                self.send_header("Location", self.path)
            content = b"<html>" if fault == "page" else body or b"0" * 600
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2 if fault == "cut" else None])

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:
                return  # the reader left

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


PATHS = ["all/plain.zarr", "rows/plain.zarr", "all/store.zarr", "rows/store.zarr"]
CASES = [*((fault, PATHS[number % 2]) for number, fault in enumerate(FAULTS)), *(("cut", path) for path in PATHS)]


@pytest.mark.parametrize(("fault", "path"), CASES)
def test_a_zarr_array_behind_a_server(fault: str, path: str, address: str) -> None:
    sentence = promise.check(promise.run(["rank", f"{address}/{fault}/{path}"]))
    assert any(part in sentence for part in FAULTS[fault].split("|")), sentence


@pytest.mark.parametrize("path", ["plain.zarr", "store.zarr"])
def test_a_server_that_answers(path: str, address: str) -> None:
    assert promise.run(["rank", f"{address}/none/all/{path}"]).code == 0


@pytest.mark.parametrize("fault", FAULTS)
def test_a_corpus_behind_a_server(fault: str, address: str) -> None:
    folder = Path.cwd()
    before = promise.snapshot(folder)
    sentence = promise.check(promise.run(["data", "get", "ptb", "--url", f"{address}/{fault}/all/ptb.zip"]))
    assert any(part in sentence for part in FAULTS[fault].split("|")), sentence
    promise.check_kept(before, folder)
