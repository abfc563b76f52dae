"""What this machine offers, and whether a run or store is whole."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import numpy as np
import psutil
import scipy
import torch
import zarr

from . import corpora
from ._version import __version__
from .checkpoint import check_tensors, is_run, load
from .corpora.ids import is_ids, read_ids
from .errors import SourceError
from .machine import free_memory
from .sources import StoreSource
from .sources.store_files import is_store


def environment() -> list[tuple[str, str]]:
    """Return versions, devices, threads, memory and corpora as labels and texts."""
    free = f"{free_memory() / 2**30:.1f} of {psutil.virtual_memory().total / 2**30:.1f} GiB free"
    devices = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    here = [info.name for info in corpora.catalogue() if info.available]
    return [
        ("softmax-bottleneck", __version__),
        ("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        ("torch", f"{torch.__version__}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}"),
        ("NumPy, SciPy, Zarr", f"{np.__version__}, {scipy.__version__}, {zarr.__version__}"),
        ("CUDA devices", ", ".join(devices) or "none"),
        (
            "processors, memory",
            f"{os.cpu_count()}, {free}",
        ),
        ("corpora", ", ".join(here)),
    ]


def check(path: Path) -> str:
    """Read every byte of a run, a store or a prepared corpus and check it against what was recorded; say what it is.

    Raises:
        RunError: a run that is not whole.
        StoreError: a store that is not whole.
        CorpusError: a corpus that is not whole.
        SourceError: something else.
    """
    if is_run(path):
        check_tensors(path)
        run = load(path)
        return f"a whole run: {run.model.config.head.name} head on {run.corpus}, every file as it was sealed"
    if is_store(path):
        source = StoreSource(path)
        chunks = sum(1 for _ in source.blocks())
        return f"a whole store: {source.shape[0]:,} × {source.shape[1]:,}, {chunks} chunks as they were written"
    if is_ids(path):
        corpus = read_ids(path.resolve())
        tokens = " / ".join(f"{len(corpus.split(split)):,}" for split in corpora.SPLITS)
        return f"a whole corpus: {tokens} tokens, every file as it was written"
    raise SourceError(f"{path} is neither a run folder, a log-probability store nor a prepared corpus")
