"""The singular values of any source."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

from .. import spectrum
from ..core.checks import typed
from ..core.devices import resolve_device
from ..core.machine import parse_size
from ..core.options import Opening, takes
from ..core.progress import Progress, reporting
from ..sources import KINDS, find, open_source
from ..sources.matrix import ARRAY, BLOCKS
from ..spectrum import Spectrum
from .computing import SpectrumSettings, compute_spectrum


@takes(Opening)
@typed
def singular_values(
    source: Any,
    *,
    method: str = "auto",
    max_memory: int | str | None = None,
    progress: Progress | bool = False,
    **options: Unpack[Opening],
) -> Spectrum:
    """Return the singular values of a source's matrix, raw and row-centred.

    Without ``kind``, an array, a tensor or blocks of rows are measured as they are. An iterator of blocks is read once
    and not kept.

    Args:
        source: as for `rank`.
        method: name of a spectrum method; ``"auto"`` chooses one, which ``Spectrum.method`` names.
        max_memory: bytes for the decomposition, or ``"1GiB"``; by default 8 GiB, or an accelerator's free memory.
        progress: where to report; ``True`` means standard error.
        options: how the source is opened, see `Opening`.

    Raises:
        BottleneckError: for a source that cannot be read, or numbers that are not finite.

    Example:
        >>> import numpy as np
        >>> singular_values(np.diag([3.0, 2.0, 1.0])).values.round(6).tolist()
        [3.0, 2.0, 1.0]
    """
    device = options.get("device", "auto")
    as_it_is = not options.keys() - {"device"} and not isinstance(source, str | Path)
    source_kind = find(source) if as_it_is else None
    if source_kind in (ARRAY, BLOCKS):
        return spectrum.singular_values(
            source, method=method, max_memory=parse_size(max_memory), device=resolve_device(device)
        )
    if source_kind is KINDS["zarr"] and hasattr(source, "shape"):
        options["kind"] = "matrix"
    opened, report = open_source(source, **options), reporting(progress)
    opened.prepare(report)
    how = SpectrumSettings(method=method, max_memory=max_memory, device=device, progress=report)
    return compute_spectrum(opened, opened.precision.value, how).spectrum
