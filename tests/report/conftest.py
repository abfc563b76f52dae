"""Saved rank reports of prescribed spectra, pages made of them, and a real Chromium that opens pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import Browser, Page, sync_playwright

from browser import MISSING, find
from softmax_bottleneck.core.files import write_json
from softmax_bottleneck.measure.report import report_of
from softmax_bottleneck.report import read_saved, write_page
from softmax_bottleneck.spectrum import SavedSpectrum, Spectrum, judge, precision, write_spectra

Values = NDArray[np.float64]
Open = Callable[..., Page]

T, M = 600, 400
LOW_RANK = np.where(np.arange(M) < 26, np.geomspace(1000, 1, M), 0.0)
DECAYING = np.geomspace(1000, 1e-7, M)
STEPS = np.repeat(np.geomspace(1000, 1e-5, 8), M // 8)
NAMES = {"softmax": LOW_RANK, "mos": DECAYING, "lms-plif": DECAYING**0.75, "sigsoftmax": STEPS}


KLD: dict[str, Any] = {
    "kind": "kld", "contexts": T, "vocab": M, "roundoff": 1e-6, "largest_log_sum": 1e-6, "version": "0.1.0",
    "eps": {"value": 2.0**-23, "dtype": "float32", "assumed": False},
}  # fmt: skip


def save(
    stem: Path,
    values: Values,
    *,
    shape: tuple[int, int] = (T, M),
    head: str | None = None,
    path: str | None = None,
    bound: int | None = None,
    error: float = 0.0,
    residual: float = 0.0,
    **source: Any,
) -> Path:
    """Write what ``rank --json STEM.json --save-spectrum STEM.npz`` writes of a spectrum; return STEM.json."""
    centered = np.append(values[1:], 0.0) if len(values) == min(shape) else values
    spectrum = Spectrum(values, centered, shape, "gram", 1e-13, residual=residual, error=error, centered_error=error)
    about = {"path": path or f"runs/{stem.name}", "kind": "run", "head": head, "corpus": "text", "split": "test"}
    eps = precision("float32")
    ranks = judge(spectrum, eps)
    report = report_of(
        spectrum,
        *ranks,
        source={**about, **source},
        eps=eps,
        rank_by_rule={"press": int(ranks.raw)},
        bound={"raw": bound, "centered": bound and bound - 1, "why": "algebra"},
        embedding_size=24,
        seconds=1.5,
        peak_memory_bytes=1 << 30,
    )
    stem.parent.mkdir(parents=True, exist_ok=True)
    write_spectra(stem.with_name(f"{stem.name}.npz"), [SavedSpectrum(spectrum, report.source)])
    write_json(stem.with_name(f"{stem.name}.json"), report.to_dict())
    return stem.with_name(f"{stem.name}.json")


def comparison(first: str, second: str, *, token: str = "cat", context: str = "the black") -> dict[str, Any]:
    """What ``compare --json`` writes of two runs."""
    top = [[{"token": token, "probability": 0.5}, {"token": "dog", "probability": 0.1}]] * 2
    case = {"row": 3, "context": context, "target": token, "reference": "", "nll": [0.5, 3.25], "top": top}
    sources = [
        {"path": f"elsewhere/{name}", "kind": "run", "head": name, "corpus": "text", "split": "test"}
        for name in (first, second)
    ]
    return {
        "kind": "comparison", "sources": sources, "contexts": T, "nll": [4.0, 4.1], "first_better": [case],
        "second_better": [], "version": "0.1.0",
    }  # fmt: skip


def drawn(source: Mapping[str, Any], largest: float = 9.0) -> dict[str, Any]:
    """What ``kld --pairs 900 --json`` writes."""
    counts = np.random.default_rng(0).integers(1, 50, 12).tolist()
    histogram = {"edges": np.linspace(0, largest, 13).tolist(), "counts": counts}
    return {**KLD, "source": dict(source), "pairs": 900, "kld": 3.5, "histogram": histogram}


@pytest.fixture(scope="session")
def family(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of four models, a comparison and a histogram."""
    folder = tmp_path_factory.mktemp("saved") / "family"
    for name, values in NAMES.items():
        save(folder / name, values, head=name, bound=26 if name == "softmax" else None, error=2e-5)
        write_json(folder / f"{name}.pairs.json", drawn({"path": f"runs/{name}", "split": "test"}))
    write_json(folder / "compared.json", comparison("mos", "softmax"))
    return folder


@pytest.fixture(scope="session")
def page_file(family: Path) -> Path:
    """The page of that folder."""
    path = family.parent / "page.html"
    write_page(read_saved([family]), path)
    return path


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium, which `make test` installs where there is none."""
    program = find()
    assert program, MISSING
    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@contextmanager
def visiting(browser: Browser) -> Iterator[Open]:
    """Open page files; afterwards they must have logged nothing and requested nothing but themselves."""
    contexts, noticed = [], []

    def visit(file: Path, **options: Any) -> Page:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("console", lambda message: noticed.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: noticed.append(f"error: {error}"))
        page.on("request", lambda request: noticed.append(request.url) if request.url != file.as_uri() else None)
        page.goto(file.as_uri())
        page.wait_for_function("document.querySelectorAll('.chart .main-svg').length > 0")
        return page

    yield visit
    for context in contexts:
        context.close()
    assert noticed == []


@pytest.fixture
def visit(browser: Browser) -> Iterator[Open]:
    """Open page files for one test."""
    with visiting(browser) as visit:
        yield visit


@pytest.fixture(scope="session")
def opened(browser: Browser, page_file: Path) -> Iterator[Page]:
    """The page of the four models, opened once."""
    with visiting(browser) as visit:
        yield visit(page_file)


@pytest.fixture
def page(opened: Page) -> Page:
    """The page of the four models as it opens: the reported tolerance of the raw matrix, and every model."""
    opened.get_by_role("button", name="The reported tolerance").click()
    opened.get_by_label("Matrix").select_option("raw")
    for box in opened.locator("[data-toggle]").all():
        box.check()
    return opened
