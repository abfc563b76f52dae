"""The built pages: every link leads somewhere, nothing is loaded from a network, and they work in a browser."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser, Page, Request, Response, sync_playwright

from browser import find

SITE = Path(__file__).parents[2] / "build" / "docs"
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src"}


class Links(HTMLParser):
    """What a page links to, what it loads, and which anchors it has."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed((SITE / page).read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors.add(given.get("id") or "")
        if tag == "a" and given.get("href"):
            self.targets.append(given["href"] or "")
        if tag in LOADED and given.get(LOADED[tag]):
            self.loaded.append(given[LOADED[tag]] or "")
        if tag == "link" and "stylesheet" in (given.get("rel") or ""):
            self.loaded.append(given.get("href") or "")


@pytest.fixture(scope="module")
def links() -> dict[str, Links]:
    return {page: Links(page) for page in PAGES}


def test_there_are_pages() -> None:
    wanted = {"index", "tour", "results", "gallery", "commands", "trust", "api/index", "notebooks/06_theory", "search"}
    assert wanted <= {page.removesuffix(".html") for page in PAGES}


def test_no_link_is_dead(links: dict[str, Links]) -> None:
    dead = []
    for page, found in links.items():
        for target in [*found.targets, *found.loaded]:
            parts = urlsplit(target)
            if parts.scheme:
                continue
            file = (SITE / page).parent / unquote(parts.path) if parts.path else SITE / page
            anchors = links.get(file.resolve().relative_to(SITE).as_posix())
            if not file.is_file() or (parts.fragment and anchors and unquote(parts.fragment) not in anchors.anchors):
                dead.append(f"{page}: {target}")
    assert dead == []


def test_nothing_comes_from_a_network(links: dict[str, Links]) -> None:
    outside = [(page, each) for page, found in links.items() for each in found.loaded if urlsplit(each).netloc]
    assert outside == []


class Quiet(SimpleHTTPRequestHandler):
    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Print nothing for a request that worked."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find(), args=["--no-sandbox"])
        yield browser
        browser.close()


def _add_failure(request: Request, problems: list[str]) -> None:
    """Note a request that failed; one that the next page cut short did not."""
    if request.failure != "net::ERR_ABORTED":
        problems.append(f"failed: {request.url}")


def _add_refusal(response: Response, problems: list[str]) -> None:
    """Note an answer that is an error; 304 says that the browser's copy is current."""
    if response.status >= 400:
        problems.append(f"{response.status} {response.url}")


def _watched(browser: Browser) -> tuple[Page, list[str]]:
    page, problems = browser.new_page(), list[str]()
    page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("requestfailed", lambda request: _add_failure(request, problems))
    page.on("response", lambda response: _add_refusal(response, problems))
    return page, problems


def test_every_page_opens_without_an_error(browser: Browser, address: str) -> None:
    page, problems = _watched(browser)
    for name in PAGES:
        page.goto(f"{address}/{name}")
        assert page.title(), name
        assert problems == [], f"{name}: {problems}"


@pytest.mark.parametrize("where", ["server", "disk"])
def test_search_finds_pages(browser: Browser, address: str, where: str) -> None:
    page, problems = _watched(browser)
    root = address if where == "server" else SITE.as_uri()
    for query, expected in (("sigsoftmax", "api/heads.html"), ("torchrun", "larger-than-memory.html")):
        page.goto(f"{root}/search.html?q={query}")
        page.wait_for_selector("#search-results li a", timeout=20_000)
        found = page.locator("#search-results li a").evaluate_all("links => links.map(link => link.href)")
        assert any(expected in link for link in found)
    assert problems == []
