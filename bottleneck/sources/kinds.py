"""The registry of the kinds of SOURCE, and `open_source`, which opens any of them."""

from __future__ import annotations

import logging
import os
import re
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import singledispatch
from inspect import signature
from pathlib import Path
from typing import Any, NoReturn, Unpack

from torch import nn

from ..core import plugins
from ..core.devices import has_float64, resolve_device
from ..core.files import kind_of, meant_path
from ..core.options import HUGGING_FACE, OPENING, Opening, check_options, takes
from ..core.options import STATES as OF_STATES
from ..errors import FEW, ConfigurationError, Parameter, RunError, SourceError
from ..heads import Head
from ..hugging_face import gguf, open_loaded, open_saved
from ..hugging_face.folder import check_merged, is_hub_id, is_hugging_face
from ..language_models import Source, given_states, open_run
from ..language_models.checkpoint import CONFIG, Run, is_run, read_config
from ..language_models.llama_cpp import is_kld
from ..results.base import short_names
from ..spectrum.blocks import is_array
from . import arrays, ngram, top_k
from .array_files import NOT_READ, READERS
from .function import Adapter, from_function
from .hidden_states import open_states
from .opening import Kind, is_url
from .partial import KldSource, PartialSource
from .states_folder import is_states_folder, open_folder

logger = logging.getLogger(__name__)

_FILE = re.compile(r".+?(?P<suffix>\.\w+)(:[^:]+)?", re.DOTALL)
"""FILE or FILE:NAME."""
_LABELLED = re.compile(r"(?P<label>[^=/]+)=(?P<source>.+)", re.DOTALL)


def _open_zarr(source: Any, *, kind: str = "log-probs") -> Source:
    from .store import open_zarr  # Zarr is loaded only where it is needed

    return open_zarr(source, kind=kind)


KINDS: dict[str, Kind] = {
    "source": Kind(what="an opened source", open=lambda source: source),
    "zarr": Kind(what="a Zarr array or store", open=_open_zarr),
    "ngram": Kind(what="an n-gram model", open=ngram.NGramSource),
    "kld": Kind(what="llama.cpp's file of log-probabilities", open=KldSource),
    "json lines": Kind(what="a file of a server's answers", open=top_k.open_answers),
    "distillation set": Kind(what="a distillation set", open=top_k.open_parquet),
    "array file": Kind(what="a file of a matrix", open=arrays.open_matrix),
    "states": Kind(what="a folder of hidden states", open=open_folder),
    "run": Kind(what="a run", open=open_run),
    "hugging-face": Kind(what="a Hugging Face model", open=open_saved),
    "loaded model": Kind(what="a loaded Hugging Face model", open=open_loaded),
    "head": Kind(what="an output layer", open=given_states),
    "array": Kind(what="an array", open=arrays.of_array),
    "function": Kind(what="a function", open=from_function),
    "blocks": Kind(what="blocks of rows", open=arrays.from_blocks),
}
"""The kinds of this package. Other packages register further ones as entry points."""
STATES = Kind(what="hidden states in files", open=open_states)
SUFFIXES = {
    **dict.fromkeys((*READERS, *NOT_READ), "array file"),
    ".zarr": "zarr",
    ".kld": "kld",
    ".jsonl": "json lines",
    ".ndjson": "json lines",
    ".json": "json lines",
    gguf.SUFFIX: "hugging-face",
}
"""Suffix → kind of a file or folder."""


@singledispatch
def _kind(source: Any) -> str | None:
    """Return the key in `KINDS` of an object, or of a path or name as a string; ``None`` for any other."""
    if type(source).__module__.startswith("zarr."):
        return "zarr"
    if is_array(source):
        return "array"
    if callable(source) or isinstance(source, Adapter):
        return "function"
    return "blocks" if isinstance(source, Iterable) and not isinstance(source, bytes | Mapping) else None


for _type, _key in {Source: "source", Run: "run", Head: "head", nn.Linear: "head"}.items():
    _kind.register(_type, lambda source, key=_key: key)


@_kind.register
def _(source: nn.Module) -> str:
    return "loaded model" if hasattr(source, "get_output_embeddings") else "function"


@_kind.register
def _(source: str) -> str | None:
    if ngram.NAME.fullmatch(source):
        return "ngram"
    match = _FILE.fullmatch(source)
    key = match and SUFFIXES.get(match["suffix"].lower())
    if is_url(source):
        if key not in (None, "zarr"):
            raise SourceError(f"{source} is not a Zarr array or store, all that is read at a URL: download the file")
        return "zarr"
    if key == "array file" and top_k.has_columns(source):
        return "distillation set"
    path = Path(source)
    if path.name == CONFIG and path.is_file():
        raise SourceError(f"{path} is the configuration of a model: give its folder, {path.parent}")
    inside = sniff(path)  # a folder of any name
    return inside or key or ("hugging-face" if not path.exists() and is_hub_id(source) else None)


def sniff(path: Path) -> str | None:
    """Return the key in `KINDS` of a folder, or of a file of llama.cpp, by what is in it; ``None`` for any other."""
    if is_kld(path):
        return "kld"
    if any((path / name).exists() for name in ("zarr.json", ".zarray")):
        return "zarr"
    if is_states_folder(path):
        return "states"
    if is_run(path):
        return "run"
    return "hugging-face" if is_hugging_face(path) or gguf.find(path) else None


def find(source: Any) -> Kind:
    """Return the kind of a source.

    Args:
        source: an object, or a path or name as a string.

    Raises:
        SourceError: when ``source`` is of no kind.
        RunError: for a folder that is not a run of this tool.
    """
    if is_several(source):
        raise SourceError("this takes one source, not several: give one of them")
    try:
        if key := _kind(source):
            return KINDS[key]
    except OSError as error:  # such as a text in place of a name
        raise SourceError(f"{str(source)[:80]!r} cannot be opened: {error.strerror}") from error
    for name in plugins.names("sources"):
        kind = plugins.find("sources", name)
        if kind.matches(source):
            return kind
    raise _unknown(source)


def find_with(source: Any, head: str | None) -> Kind:
    """Return the kind of a source; beside ``head`` files of arrays, and folders of files, hold hidden states."""
    if head is None:
        return find(source)
    try:
        kind = find(source)
    except (SourceError, RunError):
        if not isinstance(source, str) or kind_of(Path(source)) != "a folder":
            raise
        return STATES
    return STATES if kind is KINDS["array file"] else kind


@takes(Opening)
def open_source(source: Any, **options: Unpack[Opening]) -> Source:
    """Open a model, a store, a matrix or a function as a `Source`.

    Args:
        source: a path, the name of a model on the Hugging Face hub, a loaded `Run` or model of transformers, a (T, M)
            array or tensor, an iterable of (n, M) blocks, a `Head` or ``nn.Linear`` with ``hidden=H``, a function or
            torch module from ids to logits with ``data=batches``, or a `Source`.
        options: see `Opening`.

    Raises:
        SourceError: when ``source`` is none of these, or has fewer than ``contexts`` rows.
        RunError: for a run that is unfinished, changed or from another tool.
        StoreError: for a store that is incomplete or damaged.
        CorpusError: for a corpus that is missing or does not fit the run's vocabulary.
        ConfigurationError: for an option that is out of range or that this kind of source does not take.
    """
    return open_sources([source], options)[0]


def open_sources(sources: Iterable[Any], options: Opening, own: Sequence[Opening] = ()) -> list[Source]:
    """Open each source with the options that it takes; refuse an option that none of them takes.

    ``own`` are options of each source alone, which replace the common ones; each source must take its own. Without
    ``data``, a Hugging Face model beside a ``.kld`` file or a server's answers reads the tokens in them.
    """
    names = [str(each) if isinstance(each, Path) else each for each in sources]
    alone = own or [Opening() for _ in names]
    defaults = {name: option.default for name, option in OPENING.items()}
    values: list[dict[str, Any]] = [{**defaults, **options, **each} for each in alone]
    kinds = [find_with(name, each["head"]) for name, each in zip(names, values, strict=True)]
    taken = {"contexts", "device"}.union(*(kind.takes for kind in kinds))
    for name, kind, each, more in zip(names, kinds, values, alone, strict=True):
        check_options(HUGGING_FACE, each)
        each["device"] = device = resolve_device(each["device"])
        if not has_float64(device) and (each["dtype"] == "float64" or each["precise"]):
            raise ConfigurationError(f"{device} has no float64: use ", Parameter("device", "cpu"))
        for option, value in each.items():
            is_default = value is None or (isinstance(value, str | bool) and value == OPENING[option].default)
            if not is_default and option not in (taken if option not in more else {*kind.takes, "contexts", "device"}):
                _refuse(option, name, kind, each)
    hugging_face = KINDS["hugging-face"], KINDS["loaded model"]
    together = [*zip(names, kinds, values, strict=True)]
    opened = [None if kind in hugging_face else _opened(name, kind, each) for name, kind, each in together]
    text = next((each for each in opened if isinstance(each, PartialSource)), None)
    for place, (name, kind, each) in enumerate(together):
        if opened[place] is None:
            if text is not None and each["data"] is None and each["dataset"] is None:
                each["data"] = text.tokens()
            opened[place] = _opened(name, kind, each)
    return [each for each in opened if each is not None]


def _refuse(option: str, name: Any, kind: Kind, values: Mapping[str, Any]) -> NoReturn:
    """Refuse an option that a source does not take."""
    listed = [part for each in dict.fromkeys((*kind.takes, "contexts")) for part in (", ", Parameter(each))][1:]
    more: list[str | Parameter] = ["; give W as the weight of a torch.nn.Linear"] if option == "hidden" else []
    if OPENING[option].panel == OF_STATES and values["head"] is None:
        more = ["; for hidden states, give ", Parameter("head")]
    what = f" does not apply to {kind.what} ({_name(name)}), which takes "
    raise ConfigurationError(Parameter(option), what, *listed, *more)


def is_several(source: Any) -> bool:
    """Return whether an argument is several sources: a dictionary of them by label, or a list with a name or a model.

    A list of arrays is one matrix in blocks of rows.
    """
    if type(source) in (dict, OrderedDict, defaultdict):
        return bool(source) and "logits" not in source
    is_list = isinstance(source, list | tuple)
    return is_list and any(isinstance(each, str | Path | Run | Source) or callable(each) for each in source)


def labelled(sources: Mapping[str, Any] | Iterable[Any]) -> dict[str, Any]:
    """Return sources by label: that of LABEL=SOURCE, otherwise the source's name without folder and suffix.

    A name that several sources would share begins with their folders. An existing file or folder whose name holds an
    equals sign is a source without a label.

    Raises:
        ConfigurationError: for a label that is given to several sources.

    Example:
        >>> labelled(["runs/mos", "Softmax=runs/a", "x/spectrum.npz", "y/spectrum.npz"])
        {'mos': 'runs/mos', 'Softmax': 'runs/a', 'x/spectrum': 'x/spectrum.npz', 'y/spectrum': 'y/spectrum.npz'}
    """
    if isinstance(sources, Mapping):
        return dict(sources)
    pairs = [_label_of(source) for source in sources]
    shorts = short_names(_name(source) for _, source in pairs)
    given = [label for label, _ in pairs]
    labels = [label or short for label, short in zip(given, shorts, strict=True)]
    for place, label in enumerate(labels):
        if labels.count(label) > 1 and label in given:
            raise ConfigurationError(f"the label {label!r} stands for {labels.count(label)} sources; give each its own")
        if label in labels[:place]:  # the same source again
            labels[place] = f"{label} ({place + 1})"
    return dict(zip(labels, (source for _, source in pairs), strict=True))


def _label_of(source: Any) -> tuple[str, Any]:
    """Return the label, or an empty text, and the source itself; FILE:NAME is an array in a file."""
    match = _LABELLED.match(source) if isinstance(source, str) else None
    if match is None:
        return "", source
    with suppress(OSError):  # of a label that is too long for a file's name
        if Path(source).exists() or Path(source.rpartition(":")[0] or source).exists():
            return "", source
    return match["label"], match["source"]


def _name(source: Any) -> str:
    """Return the path or name of a source, or that of its class."""
    if isinstance(source, str | Path):
        return str(source)
    if isinstance(source, Source):
        return source.name
    names = (getattr(source, attribute, None) for attribute in ("path", "name_or_path", "__name__"))
    return str(next(filter(None, names), "array" if is_array(source) else type(source).__name__))


def _opened(source: Any, kind: Kind, values: Mapping[str, Any]) -> Source:
    parameters = signature(kind.open).parameters
    opened = kind.open(source, **{option: value for option, value in values.items() if option in parameters})
    if opened is not source:
        logger.info("opened %s: %r", kind.what, opened)
    return opened if values["contexts"] in (None, opened.shape[0]) else opened.first(values["contexts"])


def _unknown(source: Any) -> Exception:
    """Return the error for a source of no kind."""
    if not isinstance(source, str):
        if hasattr(source, "logits") or (isinstance(source, Mapping) and "logits" in source):
            return SourceError(f"a {type(source).__name__} cannot be measured: give its logits, with kind='logits'")
        return SourceError(
            f"a value of type {type(source).__name__} cannot be measured; give a path, a Run, a model, a (T, M) array "
            "or tensor, blocks of rows, or a function from ids to logits"
        )
    path = Path(source)
    if os.path.lexists(path / CONFIG):
        try:
            read_config(path)
        except RunError as error:
            return error
    if path.is_dir():
        check_merged(path)
        inside = sorted(path.glob(f"*/{CONFIG}")) or sorted(path.glob(f"*/*/{CONFIG}"))
        remedy = (
            f"one of {', '.join(str(each.parent) for each in inside[:FEW])}"
            if inside
            else ("a folder that 'bottleneck train' wrote, or that of a Hugging Face model")
        )
        return RunError(f"{path} does not hold a run: it has no {CONFIG}; give {remedy}")
    if path.suffix in (".txt", ".md") and path.is_file():
        return SourceError(f"{path} is a text, not a model: name a model, and give the text with ", Parameter("data"))
    what = "a run folder, a .zarr store, a matrix file such as .npy, or a Hugging Face model's folder or name"
    if not path.exists():
        return SourceError(f"{path} does not exist; SOURCE is {what}{meant_path(path)}")
    return SourceError(f"{path}{(kind := kind_of(path)) and f' is {kind} and'} cannot be measured: give {what}")
