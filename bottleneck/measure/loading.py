"""Saved results, as what they were."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..core.json_file import explain_read_errors, read_json
from ..errors import ConfigurationError, look_up
from ..results.base import KINDS, Result, Results
from ..spectrum import load_spectra
from .comparison import Comparison, Comparisons
from .report import RankReport
from .reports import RankReports

REMEDY = "'--json FILE.json' of a command or 'save' of a result writes one"

PLAIN = {
    "synthetic": "the cells of 'bottleneck synthetic', of which 'bottleneck figures' draws figures",
    "synthetic-plan": "the list of 'bottleneck synthetic --dry-run'",
    "synthetic-jobs": "the list of 'bottleneck synthetic --launcher slurm'",
    "bench": "the times of 'bottleneck bench', of which 'bottleneck figures' makes tables",
    "corpora": "the list of 'bottleneck data list'",
    "presets": "the list of 'bottleneck presets'",
}
"""Kinds of files that have no class of results, and what they hold."""


def load(path: str | Path) -> Any:
    """Return the result in a JSON file that a command or `Result.save` wrote, as what it was.

    Singular values of a `RankReport` are those of the ``.npz`` file of the same name, if there is one. Of several
    results the return value is a `Results`, of ranks `RankReports`, of comparisons `Comparisons`; of a report of
    ``bottleneck demo`` it is the `RankReport` inside.

    Args:
        path: a file that ends in .json.

    Raises:
        ConfigurationError: the file is missing, damaged, or not a result of this package, or holds plain values.
    """
    from .. import evaluation  # noqa: F401 (its results are registered when it is imported)

    path = Path(path)
    values = read_json(path, dict[str, Any], error=ConfigurationError, remedy=REMEDY, finite=True)
    if not isinstance(values.get("results"), list):
        return _loaded(values, path)
    results: list[Any] = [_loaded(each, path, alone=len(values["results"]) < 2) for each in values["results"]]
    several: dict[Any, Any] = {RankReport: RankReports, Comparison: Comparisons}
    kinds = {*map(type, results)}
    return (several.get(kinds.pop(), Results) if len(kinds) == 1 else Results)(results)


def _loaded(values: Any, path: Path, *, alone: bool = True) -> Result:
    if not isinstance(values, dict) or "kind" not in values:
        raise ConfigurationError(f"{path} is not a result of this package: it has no kind; {REMEDY}")
    if values["kind"] == "demo":
        return _loaded(values.get("report"), path)
    if held := PLAIN.get(str(values["kind"])):
        raise ConfigurationError(f"{path} holds {held}: plain values, which json.load reads")
    kind = look_up("kind", values["kind"], KINDS)
    result: Result = explain_read_errors(path, ConfigurationError, REMEDY, lambda: kind.from_dict(values))
    return with_spectrum(result, path, alone=alone) if isinstance(result, RankReport) else result


def with_spectrum(report: RankReport, path: Path, *, alone: bool = True) -> RankReport:
    """Return a report with its singular values in the ``.npz`` file beside its JSON file, if there is one.

    Values of another matrix are left out where the file holds several results, of which they may belong to another one.

    Raises:
        ConfigurationError: a file of one result has those of another matrix beside it.
    """
    beside = path.with_suffix(".npz")
    measured = Path(str(report.source.get("path"))).name.partition(":")[0]
    if not beside.exists() or measured == beside.name:
        return report
    saved = load_spectra(beside)
    spectrum = next((each for each in saved if each.source == report.source), saved[0]).spectrum
    shape, largest = (report.contexts, report.vocab), float(spectrum.values[0])
    sigmas = np.array([spectrum.values[0], spectrum.centered[0]])  # of a part the latter is judged
    if spectrum.shape != shape or min(abs(sigmas - report.rank.sigma_1)) > 1e-9 * largest:
        if not alone:
            return report
        raise ConfigurationError(
            f"{path}: its matrix has {' × '.join(map(str, shape))} entries and σ_1 = {report.rank.sigma_1:.6g}, that "
            f"of the .npz file beside it {' × '.join(map(str, spectrum.shape))} and σ_1 = {largest:.6g}; "
            "'bottleneck rank --json FILE.json --save-spectrum FILE.npz' writes both"
        )
    return replace(report, decomposition=spectrum)
