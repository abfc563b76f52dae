"""Every saved result is read back as what it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import softmax_bottleneck as sb
from softmax_bottleneck.errors import ConfigurationError, OutputError
from softmax_bottleneck.measure import estimate_cost
from softmax_bottleneck.spectrum import save_spectrum

W = np.random.default_rng(0).standard_normal((40, 5))
MEASURED: dict[str, Callable[[Path, Path], Any]] = {
    "rank": lambda mos, _: sb.rank(mos, contexts=40, estimate_hidden_size=True),
    "kld": lambda mos, _: sb.kld(mos, contexts=40, pairs=30),
    "compare": lambda mos, softmax: sb.compare(mos, softmax, examples=1),
    "gradient": lambda _, softmax: sb.gradient(softmax, contexts=40),
    "need": lambda _, softmax: sb.need(softmax, contexts=60),
    "head": lambda *_: sb.head(W),
    "argmaxable": lambda *_: sb.argmaxable(np.vstack([W, np.zeros(5)])),
    "identify": lambda mos, softmax: sb.identify(softmax, softmax)[0],
    "perplexity": lambda mos, _: sb.perplexity(mos),
    "cost": lambda mos, _: estimate_cost(sb.open(mos)),
    "statistics": lambda *_: sb.head_statistics(W, hidden=W),
}


@pytest.mark.parametrize("name", MEASURED)
def test_it_is_what_it_was(name: str, runs: dict[str, Path], tmp_path: Path) -> None:
    result = MEASURED[name](runs["mos"], runs["softmax"])
    result.save(tmp_path / "x.json")
    again = sb.load(tmp_path / "x.json")
    assert type(again) is type(result)
    assert json.loads(json.dumps(again.to_dict())) == json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))
    assert again.rows() == result.rows()


def test_singular_values_stand_beside(runs: dict[str, Path], tmp_path: Path) -> None:
    report = sb.rank(runs["mos"], contexts=40)
    report.save(tmp_path / "x.json")
    alone = sb.load(tmp_path / "x.json")
    with pytest.raises(sb.BottleneckError, match=r"has no singular values: read it with the \.npz file"):
        alone.plot()
    save_spectrum(tmp_path / "x.npz", report.spectrum, report.source, report.limits)
    np.testing.assert_array_equal(sb.load(tmp_path / "x.json").spectrum.values, report.spectrum.values)
    other = sb.rank(runs["mos"], contexts=30)
    other.save(tmp_path / "x.json")
    with pytest.raises(ConfigurationError, match="its matrix has 30 × "):
        sb.load(tmp_path / "x.json")


def test_several_and_none(runs: dict[str, Path], tmp_path: Path) -> None:
    reports = sb.rank(runs, contexts=30)
    reports.save(tmp_path / "many.json")
    again = sb.load(tmp_path / "many.json")
    assert (type(again), [each.name for each in again]) == (sb.RankReports, [*runs])
    with pytest.raises(OutputError, match=r"a result is saved as JSON, in a file that ends in \.json"):
        reports[0].save(tmp_path / "x.png")
    cases = (
        ("{}", "it has no kind"), ('{"kind": "rank"}', "missing"), ("[", "damaged or of another kind"),
        ('{"kind": "rang"}', "unknown kind of result 'rang'"), ('{"kind": []}', r"unknown kind of result \[\]"),
        ('{"results": 5}', "it has no kind"), ('{"results": [5]}', "it has no kind"),
    )  # fmt: skip
    for content, why in cases:
        (tmp_path / "bad.json").write_text(content)
        with pytest.raises(ConfigurationError, match=why):
            sb.load(tmp_path / "bad.json")
    with pytest.raises(ConfigurationError, match="cannot read"):
        sb.load(tmp_path / "none.json")
