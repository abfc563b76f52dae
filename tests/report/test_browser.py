"""The page in a real browser: nothing is loaded, ranks follow the tolerance, and every reader can use it."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from softmax_bottleneck.core.files import write_json
from softmax_bottleneck.report import read_saved, write_page
from softmax_bottleneck.results.plotting import HEADS
from softmax_bottleneck.spectrum import load_spectra

from .conftest import DECAYING, LOW_RANK, NAMES, STEPS, M, Open, comparison, drawn, save

PHONE = {"viewport": {"width": 375, "height": 700}, "is_mobile": True, "has_touch": True}
SHOWN = """[...document.querySelectorAll("#ranks tbody tr")].map(row => ["th", ".above", ".reported"].map(
    name => row.querySelector(name).textContent.trim()))"""
TRACES = "id => document.getElementById(id).data.map(trace => trace.name).filter(name => name)"
CONTRASTS = """() => {
  const background = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const color = getComputedStyle(each).backgroundColor;
      if (!/, 0\\)$|transparent/.test(color)) return color;
    }
    return getComputedStyle(document.body).backgroundColor;
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement, text = walker.currentNode.textContent.trim();
    if (!text || !element.getClientRects().length || /SCRIPT|NOSCRIPT/.test(element.tagName)) continue;
    const color = element.closest("svg") ? getComputedStyle(element).fill : getComputedStyle(element).color;
    found.push([text, color, background(element.closest(".chart") ?? element)]);
  }
  return found;
}"""


def ranks(page: Page) -> dict[str, tuple[str, str]]:
    return {label: (above, reported) for label, above, reported in page.evaluate(SHOWN)}


def expected(file: Path, factor: float, *, centered: bool = False) -> tuple[str, str]:
    """The number of singular values above a multiple of the reported tolerance, and the reported rank."""
    found = read_saved([file]).models[0]
    spectrum = load_spectra(file.with_suffix(".npz"))[0].spectrum
    reported = found.report.rank_centered if centered else found.report.rank
    limit = factor * reported.tolerance
    above = np.count_nonzero((spectrum.centered if centered else spectrum.values) > limit)
    return f"{'≥ ' if spectrum.residual > limit else ''}{above:,}", str(reported)


def page_of(folder: Path, *files: Path) -> Path:
    write_page(read_saved(list(files)), folder / "page.html")
    return folder / "page.html"


def test_the_reported_rank_is_shown_first(page: Page, family: Path) -> None:
    assert ranks(page) == {HEADS[name].label: expected(family / f"{name}.json", 1.0) for name in NAMES}
    for model in read_saved([family]).models:
        shown = ranks(page)[HEADS[str(model.head)].label]
        assert shown == (f"{model.report.rank.value:,}", str(model.report.rank))
    assert page.locator("#verdicts + ul li").count() == 4
    assert "at its bound: the output layer allows" in page.locator("#verdicts + ul li").first.inner_text()


def test_the_slider_counts_singular_values_and_leaves_the_reported_rank(page: Page, family: Path) -> None:
    for matrix in ("raw", "centered"):
        page.get_by_label("Matrix").select_option(matrix)
        for position in (-6.0, -0.4, 3.0):
            page.locator("#slider").fill(str(position))
            found = ranks(page)
            for name in NAMES:
                wanted = expected(family / f"{name}.json", 10**position, centered=matrix == "centered")
                assert found[HEADS[name].label] == wanted


def test_a_typed_tolerance_moves_the_rank_unless_it_is_wrong(page: Page, family: Path) -> None:
    page.get_by_role("button", name="Ten times the tolerance").click()
    rank = read_saved([family]).models[0].report.rank
    page.wait_for_timeout(200)
    lines = page.evaluate("['spectrum', 'cdf'].map(id => document.getElementById(id).layout.shapes.at(-1))")
    assert lines[0]["y0"] == lines[1]["x0"] == pytest.approx(10 * rank.tolerance / rank.sigma_1, rel=1e-2)
    typed = page.get_by_label("Typed")
    for text in ("1e-3", "0,5", "542"):
        typed.fill(text)
        factor = float(text.replace(",", "."))
        assert ranks(page)["MoS"] == expected(family / "mos.json", factor)
        position = float(page.locator("#slider").input_value())
        assert position == pytest.approx(np.clip(np.log10(factor), -6, 6), abs=0.011)
    before = ranks(page)
    for text in ("", "lots", "-3", "1e999"):
        typed.fill(text)
        assert typed.get_attribute("aria-invalid") == "true"
        assert ranks(page) == before
    typed.blur()
    assert typed.input_value() == "542"


def test_checkpoints_of_one_model(tmp_path: Path, visit: Open) -> None:
    """Their colours are a ramp from dark to light, their divergences are told apart, and roundoff is not drawn."""
    names = [f"step-{step}" for step in (0, 100, 300)]
    rounded = np.where(np.arange(M) < 26, LOW_RANK, np.geomspace(1e-7, 1e-9, M))
    for name, largest in zip(names, (1e-5, 1.0, 16.0), strict=True):
        save(tmp_path / "ck" / name, rounded, head="softmax", bound=26)
        write_json(tmp_path / "ck" / f"{name}.pairs.json", drawn({"path": f"runs/{name}", "split": "test"}, largest))
    for scheme, page_color in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(22, 25, 31)")):
        page = visit(page_of(tmp_path, tmp_path / "ck"), color_scheme=scheme)
        colors = page.evaluate("document.getElementById('spectrum').data.map(trace => trace.line.color)")
        luminance = [_luminance(color) for color in colors]
        assert luminance == sorted(set(luminance))
        assert min(_contrast(color, page_color) for color in colors) > 2.9
    assert page.evaluate("document.getElementById('histogram').layout.xaxis.type") == "log"
    edges = page.evaluate("document.getElementById('histogram').data.map(trace => [trace.x.at(-1), trace.y.at(-1)])")
    assert [*map(tuple, edges)] == [(largest, pytest.approx(100)) for largest in (1e-5, 1.0, 16.0)]
    assert page.evaluate("document.getElementById('spectrum').data.map(trace => trace.x.at(-1))") == [26, 26, 26]
    assert page.evaluate("document.getElementById('spectrum').layout.shapes[0].x0") == 26
    assert page.evaluate("document.getElementById('spectrum').layout.annotations.map(note => note.text)") == [
        "bound 26"
    ]
    assert page.locator("h1").inner_text() == "Softmax bottleneck: step-0, step-100 and step-300" == page.title()
    about = page.locator("header p").first.inner_text()
    assert re.fullmatch(r"text \(test\): 600 contexts × 400 tokens · \d+ \w+ 20\d\d", about)
    headings = page.locator("h2").all_inner_texts()
    assert headings == ["Verdict", "Comparison", "Singular values and rank", "Pairwise KL divergence",
                        "Provenance and checks"]  # fmt: skip


def test_spectra_without_whole_curves(tmp_path: Path, visit: Open) -> None:
    """Steps, a sketch, a zero matrix, one value, a report without its spectrum, and values that are not resolved."""
    zero, one = save(tmp_path / "zero", np.zeros(M)), save(tmp_path / "one", np.array([2.5]), shape=(9, 1))
    bare, coarse = save(tmp_path / "bare", LOW_RANK), save(tmp_path / "mos", DECAYING, error=1e-3)
    bare.with_suffix(".npz").unlink()
    cut = np.append(DECAYING[:40], np.zeros(M - 40))
    whole = {"steps": save(tmp_path / "steps", STEPS), "cut": save(tmp_path / "cut", cut)}
    whole["sketch"] = save(tmp_path / "sketch", DECAYING[:90], residual=0.5)
    page = visit(page_of(tmp_path, *whole.values(), zero, one, bare, coarse))
    found = ranks(page)
    assert (found["zero"], found["one"], found["bare"]) == (("0", "0"), ("1", "1"), ("–", "–"))
    for factor in (1e-3, 1.0, 7.0, 1e4):
        page.get_by_label("Typed").fill(str(factor))
        assert {name: ranks(page)[name] for name in whole} == {n: expected(file, factor) for n, file in whole.items()}
    known = int((DECAYING > 1e-3).sum())
    said = page.locator("#unresolved").inner_text()
    for sentence in (
        "zero: all singular values are zero",
        "bare: no singular values are saved with its report",
        f"MoS: {M - known} of 400 singular values lie below 0.001",
        "sketch computed 90 of 400 singular values",
    ):
        assert sentence in said
    assert "bare" in page.locator("#missing + ul").inner_text()
    assert max(page.evaluate("document.getElementById('spectrum').data.at(-2).x")) == known
    assert page.evaluate("document.getElementById('spectrum').data.at(-1).mode") == "markers"


def test_toggle_hover_and_zoom(page: Page) -> None:
    shown = {"Softmax", "MoS", "LMS-PLIF", "Sigsoftmax"}
    for change, names in ((page.get_by_label("LMS-PLIF").uncheck, shown - {"LMS-PLIF"}),
                          (page.get_by_label("LMS-PLIF").check, shown)):  # fmt: skip
        change()
        for chart in ("spectrum", "cdf", "histogram"):
            assert set(page.evaluate(TRACES, chart)) == names
    range_of = "() => document.getElementById('spectrum')._fullLayout.xaxis.range"
    page.locator("#spectrum").scroll_into_view_if_needed()
    box = page.locator("#spectrum .nsewdrag").bounding_box()
    assert box is not None
    for share in np.linspace(0.1, 0.9, 9):
        page.mouse.move(box["x"] + box["width"] * share, box["y"] + box["height"] * share)
        if page.locator("#spectrum .hovertext").count():
            break
    assert "σ / σ₁" in str(page.locator("#spectrum .hovertext").first.text_content())
    before = page.evaluate(range_of)
    page.mouse.move(box["x"] + 40, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 200, steps=5)
    page.mouse.up()
    page.wait_for_timeout(300)
    after = page.evaluate(range_of)
    assert after[1] - after[0] < 0.8 * (before[1] - before[0])
    page.get_by_role("group", name="Zoom of Singular values").get_by_role("button", name="Show everything").click()
    assert page.evaluate(range_of) == pytest.approx(before)


def test_everything_works_by_keyboard(page_file: Path, visit: Open) -> None:
    page = visit(page_file)
    reached: list[str] = []
    unseen: list[str] = []
    for _ in range(60):
        page.keyboard.press("Tab")
        name = page.evaluate("(e => e.id || e.dataset.toggle || e.tagName)(document.activeElement)")
        if name == "BODY":  # after the last control
            break
        unseen += [name] * page.evaluate("getComputedStyle(document.activeElement).outlineStyle === 'none'")
        reached.append(name)
        if name == "slider":
            for _ in range(50):
                page.keyboard.press("ArrowRight")
        if name == "1":
            page.keyboard.press("Space")
        if name == "spectrum":
            page.keyboard.press("+")
        if name == "SUMMARY":
            page.keyboard.press("Enter")
    assert unseen == []
    assert {"slider", "typed", "matrix", "0", "1", "2", "3", "spectrum", "cdf", "histogram", "SUMMARY"} <= set(reached)
    assert page.get_by_label("Typed").input_value() == "10"
    assert page.locator("[data-toggle='1']").is_checked() is False
    low, high = page.evaluate("document.getElementById('spectrum')._fullLayout.xaxis.range")
    assert high - low < 1.5
    assert page.locator("#provenance ~ details[open]").count() == 4


def test_a_phone_scrolls_in_one_direction(page_file: Path, visit: Open) -> None:
    page = visit(page_file, **PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    assert page.evaluate("innerWidth") == 375
    cut = page.evaluate(
        "[...document.querySelectorAll('.scroll')].map(each => [each.scrollWidth > each.clientWidth,"
        " getComputedStyle(each, '::before').content.includes('scroll it sideways')])"
    )
    assert [True, True] in cut
    assert all(wide == hint for wide, hint in cut)
    for chart in ("spectrum", "cdf", "histogram"):
        assert (
            page.evaluate("id => document.querySelector(`#${id} .main-svg`).getBoundingClientRect().right", chart)
            <= 375
        )
    small = page.evaluate(
        "[...document.querySelectorAll('button, select, summary, input:not([type=checkbox])')]"
        ".map(each => each.getBoundingClientRect()).filter(box => box.height && box.height < 30).length"
    )
    assert small == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_contrast(scheme: Any, page_file: Path, visit: Open) -> None:
    page = visit(page_file, color_scheme=scheme)
    page.locator("#provenance ~ details").first.locator("summary").click()
    texts = page.evaluate(CONTRASTS)
    assert len(texts) > 100
    body = _luminance(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert (body < 0.05) == (scheme == "dark")
    assert [each for each in texts if _contrast(each[1], each[2]) < 4.5] == []
    if scheme == "dark":
        colors = page.evaluate("document.getElementById('spectrum').data.map(trace => trace.line?.color)")
        found = [_contrast(f"#{color[1:]}", "rgb(22, 25, 31)") for color in colors if color]
        assert min(found) > 3


def _luminance(color: str) -> float:
    if color.startswith("#"):
        parts = [int(color[place : place + 2], 16) for place in (1, 3, 5)]
    else:
        parts = [float(part) for part in re.findall(r"[\d.]+", color)[:3]]
    linear = [np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) for c in np.array(parts) / 255]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


ATTACK = """<img src=x onerror=window.attacked=1></script><script>window.attacked=1</script>
<a href='javascript:window.attacked=1'>x</a> {{ 7 * 7 }} \u2028 & <b>bold</b> "' ${7 * 7}"""


def test_names_and_tokens_are_text(tmp_path: Path, visit: Open) -> None:
    file = save(tmp_path / "model", DECAYING, path=ATTACK.replace("/", "\u2215"), corpus=ATTACK, head="mos")
    other = save(tmp_path / "other", STEPS, path=ATTACK)
    write_json(tmp_path / "compared.json", comparison(ATTACK, "softmax", token=ATTACK, context=ATTACK))
    write_json(tmp_path / "pairs.json", drawn(read_saved([other]).models[0].source))
    page = visit(page_of(tmp_path, file, other, tmp_path / "compared.json", tmp_path / "pairs.json"), bypass_csp=True)
    for chart in ("spectrum", "histogram"):
        page.locator(f"#{chart}").scroll_into_view_if_needed()
        page.locator(f"#{chart}").hover()
    assert page.evaluate("window.attacked") is None
    assert page.locator("img, b, body a[href]").count() == 0
    assert ATTACK.replace("\n", "␤") in page.locator("mark").first.evaluate("mark => mark.textContent")
    assert ATTACK.replace("/", "\u2215") in page.locator("#ranks").evaluate("each => each.textContent")


def test_it_prints_in_light_colours_with_all_details(page_file: Path, tmp_path: Path, visit: Open) -> None:
    page = visit(page_file, color_scheme="dark")
    page.evaluate("""addEventListener("beforeprint", () => {
      window.opened = document.querySelectorAll("details[open]").length;
      window.ink = document.getElementById("spectrum").layout.font.color;
    })""")
    written = page.pdf(path=tmp_path / "page.pdf", format="A4")
    assert written.startswith(b"%PDF")
    assert 1 < len(re.findall(rb"/Type /Page\b", written)) < 8
    assert page.evaluate("window.opened") == page.locator("details").count() == 5
    assert page.evaluate("window.ink") == "#1b1f24"
    assert page.locator("details[open]").count() == 1
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") in (
        "rgb(255, 255, 255)",
        "rgba(0, 0, 0, 0)",
    )


def test_four_models_of_ten_thousand_values_do_not_lag(tmp_path: Path, visit: Open) -> None:
    for number, name in enumerate(NAMES):
        noise = np.random.default_rng(number).normal(0, 0.01, 10_000)
        values = np.sort(np.geomspace(1e5, 1e-3, 10_000) * np.exp(noise))[::-1]
        save(tmp_path / "ptb" / name, values, shape=(82_430, 10_000), head=name, error=1.2e-2)
    before = time.process_time()
    path = page_of(tmp_path, tmp_path / "ptb")
    assert time.process_time() - before < 5
    assert path.stat().st_size < 8e6
    page = visit(path)
    milliseconds = page.evaluate("""async () => {
      const slider = document.getElementById("slider"), times = [];
      for (let step = -10; step <= 10; step += 1) {
        slider.value = step / 5;
        const start = performance.now();
        slider.dispatchEvent(new Event("input"));
        await new Promise(requestAnimationFrame);
        await new Promise(requestAnimationFrame);
        times.push(performance.now() - start);
      }
      return times.sort((one, other) => one - other)[10];
    }""")
    assert milliseconds < 250
