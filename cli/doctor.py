"""``bottleneck doctor``: this machine's environment, and checks of runs, stores and corpora."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from .options import example
from .outputs import aligned, echo_text
from .paths import Input

CROWDED = 1.5
"""Running threads for each processor above which work slows down."""


@click.command("doctor", epilog=example("bottleneck doctor demo/runs/softmax"))
@click.argument("path", required=False, type=Input(Path))
def command(path: Path | None) -> None:
    """Show versions, devices and threads; with PATH, also verify every byte of a run, store, states or corpus."""
    integrity = [] if path is None else [("integrity", check(path))]
    echo_text(aligned([*environment(), *integrity]))


def environment() -> list[tuple[str, str]]:
    """Return versions, devices, threads, memory and corpora as labels and texts."""
    import os
    import platform

    import numpy
    import psutil
    import scipy
    import torch
    import zarr

    from softmax_bottleneck import corpora
    from softmax_bottleneck.core.devices import ask
    from softmax_bottleneck.core.files import cache_folder
    from softmax_bottleneck.core.machine import free_memory
    from softmax_bottleneck.core.version import __version__

    free = f"{free_memory() / 2**30:.1f} of {psutil.virtual_memory().total / 2**30:.1f} GiB free"
    kind = torch.accelerator.current_accelerator(check_available=True)
    names = [] if kind is None else [f"{kind.type}:{index}" for index in range(torch.accelerator.device_count())]
    devices = [f"{name} {ask(name, 'get_device_name', name) or ''}".rstrip() for name in names]
    here = [info.name for info in corpora.catalogue() if info.available]
    cache = cache_folder()
    unfinished = len([*(cache / "unfinished").glob("*.npz")])
    return [
        ("softmax-bottleneck", __version__),
        ("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        ("torch", f"{torch.__version__}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}"),
        ("NumPy, SciPy, Zarr", f"{numpy.__version__}, {scipy.__version__}, {zarr.__version__}"),
        ("accelerators", ", ".join(devices) or "none"),
        ("processors, memory", f"{os.cpu_count()}, {free}"),
        ("load", _load()),
        ("corpora", ", ".join(here)),
        ("cache", f"{cache}, {corpora.size_of(cache) / 2**20:,.1f} MiB, {unfinished} unfinished computations"),
    ]


def _load() -> str:
    """Return the number of processes that want a processor, and advice when there are more than processors.

    Threads that wait for each other spin, so two measurements with a thread for each processor take far more than twice
    the time of one.
    """
    import psutil
    import torch

    from softmax_bottleneck.core.machine import cores

    wanting, processors = psutil.getloadavg()[0], cores()
    text = f"{wanting:.1f} running processes or threads on {processors} processors, averaged over a minute"
    share = max(1, processors // 2)
    if wanting < CROWDED * processors or torch.get_num_threads() <= share:
        return text
    return f"{text}; parallel measurements slow each other down: limit the threads of each with OMP_NUM_THREADS={share}"


def check(path: Path) -> str:
    """Check every byte of a run, a store, states or a corpus against its recorded hashes; return a description.

    Raises:
        RunError: for an incomplete or damaged run.
        StoreError: for an incomplete or damaged store.
        CorpusError: for an incomplete or damaged corpus.
        SourceError: for incomplete or damaged states, or another file or folder.
    """
    from softmax_bottleneck import corpora
    from softmax_bottleneck.corpora.ids import is_ids, read_ids
    from softmax_bottleneck.errors import SourceError
    from softmax_bottleneck.language_models.checkpoint import (
        CHECKPOINTS,
        CONFIG,
        check_hashes,
        is_run,
        load,
        read_config,
        read_state,
        state_files,
    )
    from softmax_bottleneck.sources.kinds import sniff
    from softmax_bottleneck.sources.states_folder import open_folder
    from softmax_bottleneck.sources.store import StoreSource, open_zarr

    if is_run(path):
        for file in state_files(path):
            read_state(file)
        for kept in filter(Path.is_dir, sorted((path / CHECKPOINTS).glob("step-*"))):
            check_hashes(kept)
        run = load(path)
        return f"a complete run: {run.model.config.head.name} head on {run.corpus}; every file matches its checksum"
    kind = sniff(path)
    if kind == "states":
        T, M = open_folder(str(path)).shape
        return f"complete hidden states: {T:,} contexts × {M:,} tokens; every checksum in the files holds"
    is_zarr = path.suffix == ".zarr" or kind == "zarr"
    if is_zarr and isinstance(source := open_zarr(str(path)), StoreSource):
        chunks = sum(1 for _ in source.blocks())
        return f"a complete store: {source.shape[0]:,} × {source.shape[1]:,}; {chunks} chunks match their checksums"
    if is_ids(path):
        corpus = read_ids(path.resolve())
        tokens = " / ".join(f"{len(corpus.split(split)):,}" for split in corpora.SPLITS)
        return f"a complete corpus: {tokens} tokens; every file matches its checksum"
    for known in corpora.catalogue():
        if known.path is not None and known.path.resolve() == path.resolve():
            corpora.load(known.name)
            return f"the corpus {known.name}; every file matches its checksum"
    if (path / f"{corpora.SPLITS[0]}.txt").exists():
        raise SourceError(f"{path} is a corpus of your own, of whose files no checksum is known")
    if (path / CONFIG).exists() or not path.exists():
        read_config(path)  # which says what is wrong with it
    raise SourceError(f"{path} is neither a run folder, a log-probability store, hidden states nor a corpus")
