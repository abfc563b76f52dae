"""Saved results: singular values beside a rank, several in one file, and what is refused."""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

import softmax_bottleneck as sb
from softmax_bottleneck.errors import ConfigurationError, OutputError
from softmax_bottleneck.spectrum import write_spectra


def test_singular_values_stand_beside(runs: dict[str, Path], tmp_path: Path) -> None:
    report = sb.rank(runs["mos"], contexts=40)
    report.save(tmp_path / "x.json")
    np.testing.assert_array_equal(sb.load(tmp_path / "x.json").spectrum.values, report.spectrum.values)
    (tmp_path / "y.json").write_bytes((tmp_path / "x.json").read_bytes())
    with pytest.raises(sb.BottleneckError, match=r"has no singular values: read it with the \.npz file"):
        sb.load(tmp_path / "y.json").plot()
    write_spectra(tmp_path / "y.npz", [(other := sb.rank(runs["mos"], contexts=30)).saved_spectrum])
    with pytest.raises(ConfigurationError, match="its matrix has 40 × "):
        sb.load(tmp_path / "y.json")
    other.save(tmp_path / "y.json")
    assert sb.load(tmp_path / "y.json").contexts == 30
    np.savez(tmp_path / "y.npz", mine=np.arange(3))
    with pytest.raises(OutputError, match=r"y\.npz: another file is there, and the singular values go there"):
        report.save(tmp_path / "y.json")
    assert np.load(tmp_path / "y.npz")["mine"].tolist() == [0, 1, 2]


def test_singular_values_of_a_part_and_of_one_of_several(tmp_path: Path) -> None:
    """Also a user's own archive of the same name is left alone."""
    rng = np.random.default_rng(0)
    P, logits = rng.integers(1, 99, (20, 12)), rng.standard_normal((20, 12))
    part = sb.rank((P / P.sum(1, keepdims=True)).round(4), kind="probabilities")
    part.save(tmp_path / "part.json")
    read = sb.load(tmp_path / "part.json")
    np.testing.assert_array_equal(read.decomposition.centered, part.decomposition.centered)
    sb.rank({"one": logits, "other": logits[:15]}, kind="logits").save(tmp_path / "both.json")
    other = sb.rank({"other": logits[:15]}, kind="logits")[0]
    write_spectra(tmp_path / "both.npz", [other.saved_spectrum])
    assert [each.decomposition is not None for each in sb.load(tmp_path / "both.json")] == [False, True]
    np.savez(tmp_path / "mine.npz", logits=logits)
    mine = sb.rank(str(tmp_path / "mine.npz"), kind="logits")
    (tmp_path / "mine.json").write_text(json.dumps(mine.to_dict()))
    (tmp_path / "mine.json").rename(tmp_path / "other.json")
    np.savez(tmp_path / "other.npz", logits=logits + 1)  # another archive than the source
    assert sb.load(tmp_path / "other.json").rank == mine.rank


def test_several_and_none(runs: dict[str, Path], tmp_path: Path) -> None:
    reports = sb.rank(OrderedDict((head, runs[head]) for head in ("softmax", "mos")), contexts=30)
    reports.save(tmp_path / "many.json")
    again = sb.load(tmp_path / "many.json")
    assert (type(again), [each.name for each in again]) == (sb.RankReports, ["softmax", "mos"])
    assert (again.to_dict(), repr(again)) == (reports.to_dict(), repr(reports))
    for one, other in zip(reports, again, strict=True):
        np.testing.assert_array_equal(one.spectrum.values, other.spectrum.values)
    again.plot(tmp_path / "many.png")
    demo = {"kind": "demo", "name": "mos", "report": reports[1].to_dict()}
    (tmp_path / "demo.json").write_text(json.dumps(demo))
    assert sb.load(tmp_path / "demo.json").to_dict() == demo["report"]
    compared = sb.compare([runs["mos"], runs["softmax"]], contexts=30)
    compared.save(tmp_path / "compared.json")
    assert sb.load(tmp_path / "compared.json").verdict == compared.verdict != ""
    with pytest.raises(OutputError, match=r"a result is saved as JSON, in a file that ends in \.json"):
        reports[0].save(tmp_path / "x.png")
    cases = (
        ("{}", "it has no kind"), ('{"kind": "rank"}', "missing"), ("[", "damaged or of another kind"),
        ('{"kind": "rang"}', "unknown kind 'rang'; known kinds are"), ('{"kind": []}', r"unknown kind \[\]"),
        ('{"kind": "corpora"}', "plain values of 'bottleneck data list': json.load reads them, and 'bottleneck fig"),
        ('{"kind": "synthetic"}', "plain values of 'bottleneck synthetic'"), ('{"kind": "demo"}', "no kind"),
        ('{"results": 5}', "it has no kind"), ('{"results": [5]}', "it has no kind"),
    )  # fmt: skip
    for content, why in cases:
        (tmp_path / "bad.json").write_text(content)
        with pytest.raises(ConfigurationError, match=why):
            sb.load(tmp_path / "bad.json")
    with pytest.raises(ConfigurationError, match="cannot read"):
        sb.load(tmp_path / "none.json")
