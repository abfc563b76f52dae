"""Saved results, as what they were."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..core.json_file import explain_read_errors, read_json
from ..errors import ConfigurationError, look_up
from ..results.base import KINDS, Result, Results
from ..spectrum import OtherArchiveError, SavedSpectrum, load_spectra
from .comparison import Comparison, Comparisons
from .report import RankReport
from .reports import RankReports

REMEDY = "'--json FILE.json' of a command or 'save' of a result writes one"

PLAIN = {"synthetic": "synthetic", "bench": "bench", "corpora": "data list", "presets": "presets"}
"""Kinds of files that have no class of results, with the commands that write them."""
OTHERS = ("demo", "results", "synthetic-jobs", "synthetic-plan")
"""Kinds of files around results, and of plans."""


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
    results: list[Any] = [_loaded(each, path) for each in values["results"]]
    several: dict[Any, Any] = {RankReport: RankReports, Comparison: Comparisons}
    kinds = {*map(type, results)}
    return (several.get(kinds.pop(), Results) if len(kinds) == 1 else Results)(results)


def is_result(content: Any) -> bool:
    """Return whether what a JSON file holds is something that a command wrote."""
    from .. import evaluation, training  # noqa: F401 (their results are registered when they are imported)

    return isinstance(content, dict) and content.get("kind") in {*KINDS, *PLAIN, *OTHERS}


def _loaded(values: Any, path: Path) -> Result:
    if not isinstance(values, dict) or "kind" not in values:
        raise ConfigurationError(f"{path} is not a result of this package: it has no kind; {REMEDY}")
    if values["kind"] == "demo":
        return _loaded(values.get("report"), path)
    if command := PLAIN.get(str(values["kind"])):
        raise ConfigurationError(
            f"{path} holds plain values of 'bottleneck {command}': json.load reads them, and 'bottleneck figures' "
            "draws those of synthetic and bench"
        )
    kind = look_up("kind", values["kind"], KINDS)
    result: Result = explain_read_errors(path, ConfigurationError, REMEDY, lambda: kind.from_dict(values))
    return with_spectrum(result, path) if isinstance(result, RankReport) else result


def with_spectrum(report: RankReport, path: Path) -> RankReport:
    """Return a report with its source's singular values in the ``.npz`` file beside its JSON file, if they are there.

    Raises:
        ConfigurationError: those of its source are of another matrix.
        MatrixError: the file beside it is damaged.
    """
    beside = path.with_suffix(".npz")
    spectra: list[SavedSpectrum] = []
    if beside.exists():
        with suppress(OtherArchiveError):  # the archive is the user's
            spectra = load_spectra(beside)
    spectrum = next((each.spectrum for each in spectra if each.source == report.source), None)
    if spectrum is None:
        return report
    shape, largest = (report.contexts, report.vocab), float(spectrum.values[0])
    sigmas = np.array([spectrum.values[0], spectrum.centered[0]])  # of a part the latter is judged
    if spectrum.shape != shape or min(abs(sigmas - report.rank.sigma_1)) > 1e-9 * largest:
        raise ConfigurationError(
            f"{path}: its matrix has {' × '.join(map(str, shape))} entries and σ_1 = {report.rank.sigma_1:.6g}, that "
            f"of the .npz file beside it {' × '.join(map(str, spectrum.shape))} and σ_1 = {largest:.6g}; "
            "'bottleneck rank --json FILE.json --save-spectrum FILE.npz' writes both"
        )
    return replace(report, decomposition=spectrum)
