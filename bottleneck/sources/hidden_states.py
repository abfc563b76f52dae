"""Hidden states in files, as servers of language models save them, and the output layer that they belong to."""

from __future__ import annotations

import logging
import math
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.devices import exact
from ..core.full_precision import full_precision
from ..corpora.batches import whole_numbers
from ..errors import MatrixError, Parameter, Sentence, SourceError
from ..heads import Head, Softmax
from ..hugging_face import gguf
from ..hugging_face.final_norm import final_norm
from ..hugging_face.folder import is_hugging_face
from ..hugging_face.loading import config_and_class, is_same_name
from ..hugging_face.model import HuggingFaceModel, saved_model, unloaded_model
from ..hugging_face.pretrained import PRETRAINED
from ..language_models import ModelOnText, Names, Text, given_states
from ..results.base import by_numbers
from ..spectrum.blocks import as_array, check_dense
from .array_files import STATES, numbers_of, read_array, read_arrays

Ids = NDArray[np.int64]
logger = logging.getLogger(__name__)

IDS, TARGETS, MASK = "token_ids", "targets", "attention_mask"
"""Names of arrays beside `STATES`: each token, the one that follows it, and whether it is not padding."""
NOT_STATES = ".json", ".md", ".txt"
"""Suffixes of other files that a folder of states may have."""
SAMPLE, BETTER, ALIKE = 256, 0.5, 0.05
"""Contexts whose next tokens show whether the states fit the output layer, the nats by which another reading of the
states must be better to be named, and those by which two of them may differ that are named together."""
NORMED = 0.02
"""Relative change up to which the norm gives states again: those in bfloat16 change by 0.004."""
TWICE = "these states look as if they were taken after the final norm, which is applied again: leave it out"


def open_states(
    source: str,
    *,
    head: str,
    bias: str | None = None,
    norm: str | None = None,
    scale: float | None = None,
    softcap: float | None = None,
) -> ModelOnText:
    r"""Open hidden states in files, with the softmax layer :math:`c\tanh(s (W·h + b)/c)` that makes logits of them.

    Args:
        source: a file, FILE:NAME, or a folder whose files are read in the order of their names, by the numbers in them.
            The states are (T, d), and state t predicts token t + 1 where a file also holds ``token_ids``, (T,), or its
            entry of ``targets``, (T,); where ``attention_mask`` is 0, it is left out. Beside these, states (T, L, d)
            are those of L layers, of which the last is taken; beside ids (B, T), (B, T, d) are B texts. In a table the
            columns of these names hold a list for each state, or a list of them for each text.
        head: W, (M, d), as FILE or FILE:NAME; or a Hugging Face model, a folder or a GGUF file, that has this layer.
        bias: b, (M,), as FILE or FILE:NAME.
        norm: the Hugging Face model whose final norm it is, or its weight, (d,), as FILE or FILE:NAME, for states that
            were taken before it. In the folder of such a model it is the model's own norm. Elsewhere it is a LayerNorm
            if the file holds its bias, NAME.bias beside NAME.weight, otherwise an RMSNorm.
        scale: s, by default 1.
        softcap: c, by default infinite.

    Raises:
        SourceError: for a file that cannot be read, or an array of another shape.
    """
    layer, names = layer_of(head, bias, scale=scale, soft_cap=softcap)
    layer = layer.float()
    folder = Path(source)
    files = [source]
    if folder.is_dir():
        inside = [each for each in folder.iterdir() if each.is_file() and each.suffix not in NOT_STATES]
        inside.sort(key=lambda each: by_numbers(each.name))
        files = [str(each) for each in inside if not each.name.startswith(".")]
    texts = [text for file in files for text in _texts(file, layer.hidden_size)]
    if not texts:
        raise SourceError(f"{source} does not hold a file of hidden states")
    beside = {name: [each[name] for each in texts if name in each] for name in (IDS, TARGETS)}
    for name, arrays in beside.items():
        if len(arrays) not in (0, len(texts)):
            raise SourceError(f"{len(arrays)} of the {len(texts)} texts of {source} have {name}: give all files theirs")
    ids, targets = (torch.cat(arrays).numpy() if arrays else None for arrays in beside.values())
    states = [each[STATES] for each in texts]
    twice = False
    if norm is not None:
        normalize = _norm(norm, layer.hidden_size)
        twice = is_normed(normalize, states)
        states = [normalize(each.float()) for each in states]
    starts = [0, *np.cumsum([len(each) for each in states])[:-1].tolist()]
    hidden = torch.cat(states)
    given = states_of(
        layer, hidden, ids=ids, targets=targets, starts=starts, path=source, normed=norm is not None, tokenizer=names
    )
    given = doubted(given, TWICE) if twice else given
    if zeros := int((hidden == 0).all(1).sum()):
        said = f"{zeros:,} of {len(hidden):,} states are zero, as padding is: mark it with {MASK}, or leave it out"
        given = doubted(given, "", "; ".join([*filter(None, [given.description.get("note")]), said]))
    return given


def layer_of(head: str, bias: Any, **given: float | None) -> tuple[Softmax, Names | None]:
    """Return the output layer in a file or of a Hugging Face model, and what names its tokens, if there is something.

    Args:
        head: see `open_states`.
        bias: (M,), as FILE, FILE:NAME or an array.
        given: ``scale`` and ``soft_cap`` of the logits, in place of the model's own.
    """
    settings = {name: value for name, value in given.items() if value is not None}
    if not (model := _model(head)):
        return softmax_of(read_array(head), bias, **settings), None
    own = model.layer()
    if not isinstance(own.head, Softmax):
        raise SourceError(f"the output layer of {head} is not a softmax layer: measure the model itself")
    loaded: Any = own.head if own.head.scale == 1 else model.head(torch.arange(2))  # whether it multiplies or divides
    settings = {"scale": loaded.scale, "soft_cap": loaded.soft_cap} | settings
    return softmax_of(own.weight, own.bias if bias is None else bias, **settings), own.tokenizer


def _model(place: str) -> HuggingFaceModel | None:
    """Return the Hugging Face model at a place, if there is one."""
    is_model = place in PRETRAINED or is_hugging_face(Path(place)) or gguf.find(Path(place))
    return saved_model(place) if is_model else None


def states_of(
    layer: Softmax, hidden: Tensor, *, ids: Ids | None, targets: Ids | None = None, starts: list[int], path: str,
    normed: bool | None, tokenizer: Names | None = None,
) -> ModelOnText:  # fmt: skip
    """Return states with their text, after a look at whether they belong to the layer.

    Args:
        layer: the output layer.
        hidden: (T, d).
        ids: (T,), the token of each state, if it is known.
        targets: (T,), the token that follows each; by default the next one of the same text.
        starts: rows at which a text begins.
        path: name of the source.
        normed: whether a final norm was applied to the states after they were saved; ``None`` if the states are known
            to belong to the layer.
        tokenizer: what names the tokens.
    """
    if ids is None:
        return given_states(layer, hidden=hidden, targets=targets, path=path)
    is_first = np.isin(np.arange(len(ids)), starts)
    following = _next(ids, is_first) if targets is None else targets
    given = given_states(layer, hidden=hidden, targets=following, path=path)
    is_first[1:] |= following[:-1] != ids[1:]  # contexts between two rows were left out
    number, row = np.cumsum(is_first) - 1, np.arange(len(ids))
    is_last = np.append(is_first[1:], True)
    running = np.insert(ids, row[is_last] + 1, following[is_last].clip(0))
    begins = np.array([start + number[start] for start in starts])
    given.text = Text(ids=running, starts=begins, scored=row + number + 1, tokenizer=tokenizer, name=None)
    if normed is None:
        return given
    readings = {by: torch.from_numpy(each) for by, each in enumerate((ids, following, _next(following, is_first)))}
    return doubted(given, *_mismatch(layer, hidden, readings, normed=normed))


def doubted(given: ModelOnText, mismatch: str, note: str = "") -> ModelOnText:
    """Return states with why they do not belong to their layer, and why they may not, if either is known."""
    if mismatch and given.model.mismatch:
        mismatch = Sentence(given.model.mismatch, "; ", mismatch)
    if mismatch:
        given.model.mismatch = mismatch
        logger.warning("%s: %s", given.description["path"], mismatch)
    doubts = {"mismatch": mismatch, "note": note}
    given.description = {**given.description, **{name: said for name, said in doubts.items() if said}}
    return given


def _next(ids: Ids, is_first: NDArray[np.bool_]) -> Ids:
    """Return the entry after each of the same text, −1 for its last."""
    return np.append(np.where(is_first[1:], -1, ids[1:]), -1)


def softmax_of(weight: Any, bias: Any, **settings: Any) -> Softmax:
    """Return the softmax layer of an array W, (M, d), and a bias, an array or one in a file, in the type of W."""
    W = floats(weight, "W, (M, d)", 2)
    b = None if bias is None else floats(read_array(bias) if isinstance(bias, str) else bias, "the bias, (M,)", 1)
    if b is not None and len(b) != len(W):
        raise SourceError(f"the bias has {len(b):,} entries, and W has {len(W):,} rows")
    return Softmax.of(W, b, **settings)


def floats(array: Any, what: str, *dimensions: int) -> Tensor:
    """Return a whole array of real numbers as a tensor, in a wider type where torch does not compute in its own."""
    whole = _whole(array, what)
    if isinstance(whole, Tensor):
        tensor = whole.float() if whole.is_floating_point() and whole.itemsize == 1 else whole
    else:
        try:
            numbers = as_array(whole)
        except MatrixError as error:
            raise SourceError(f"{what}: {error}") from error
        tensor = torch.from_numpy(np.require(numbers if whole.dtype.kind == "f" else whole, requirements=["C", "W"]))
    if not tensor.is_floating_point() or tensor.ndim not in dimensions or not len(tensor):
        raise SourceError(
            f"{what}, must be real numbers in this shape, not {tensor.dtype} of shape {tuple(tensor.shape)}"
        )
    return tensor


def _whole(array: Any, what: str) -> Any:
    """Return all rows of an array as a tensor or an array of NumPy; lists in the cells of a table are its last axes."""
    if isinstance(array, SourceError):
        raise array
    check_dense(array, what)
    numbers = numbers_of(array, what)
    if not tuple(numbers.shape):
        raise SourceError(f"{what}, must be an array, not one number")
    rows = numbers[0 : numbers.shape[0]]
    return rows if isinstance(rows, Tensor) else _stacked(np.asarray(rows), what)


def _stacked(cells: NDArray[Any], what: str) -> NDArray[Any]:
    if cells.dtype != object or not cells.ndim:
        return cells
    try:
        return np.stack([_stacked(np.asarray(cell), what) for cell in cells.ravel()])
    except ValueError as error:
        raise SourceError(
            f"{what}: the lists of a column must have one length, and the columns of a table be {STATES} and {IDS}"
        ) from error


def _texts(place: str, size: int) -> list[dict[str, Tensor]]:
    """Return the texts of a file; see `_texts_of`."""
    arrays = read_arrays(Path(place)) if Path(place).exists() else {}
    table: Any = arrays.get("table")
    parts: list[Mapping[str, Any]] = [arrays]
    if hasattr(table, "columns") and STATES in table.columns:
        names = [name for name in (STATES, IDS, TARGETS, MASK) if name in table.columns]
        columns = {name: np.asarray(table[name]) for name in names}
        is_nested = any(np.asarray(cell).dtype == object and np.ndim(cell) for cell in columns[STATES][:1])
        parts = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        parts = parts if is_nested else [columns]
    return [text for part in parts for text in _texts_of(part, place, size)]


def _texts_of(arrays: Mapping[str, Any], place: str, size: int) -> list[dict[str, Tensor]]:
    """Return texts by name of an array: states (T, d), and what is known of each, (T,); (B, T, d) are B texts."""
    states = floats(arrays[STATES] if STATES in arrays else read_array(place), f"hidden states, (T, {size})", 2, 3)
    if states.shape[-1] != size:
        raise SourceError(f"the states in {place} have {states.shape[-1]:,} dimensions, and W has {size:,} columns")
    beside = {name: f"{name} in {place}" for name in (IDS, TARGETS, MASK) if name in arrays}
    numbers = {
        name: torch.from_numpy(whole_numbers(_whole(arrays[name], about), about)) for name, about in beside.items()
    }
    if states.ndim == 3 and len(states) == 1:
        states, numbers = states[0], {name: each.flatten() for name, each in numbers.items()}
    elif states.ndim == 3 and not numbers:
        raise SourceError(
            f"states of shape {tuple(states.shape)} in {place} may be those of layers, (T, L, d), or of texts, "
            f"(B, T, d): save {IDS}, (T,) or (B, T), beside them, or states (T, d)"
        )
    elif states.ndim == 3 and all(each.ndim == 1 for each in numbers.values()):
        states = states[:, -1]
    for name, each in numbers.items():
        if each.shape != states.shape[:-1] or (name == IDS and each.shape[-1] < 2):
            raise SourceError(
                f"{beside[name]} must be {math.prod(states.shape[:-1]):,} whole numbers, one for each state, and two "
                "or more for each text"
            )
    parts = {STATES: states, **numbers}
    texts = zip(*parts.values(), strict=True) if states.ndim == 3 else [parts.values()]
    rows = [dict(zip(parts, text, strict=True)) for text in texts]
    masked = [(row, row.pop(MASK, None)) for row in rows]
    return [row if mask is None else {name: each[mask != 0] for name, each in row.items()} for row, mask in masked]


def _norm(place: str, size: int) -> Callable[[Tensor], Tensor]:
    """Return the final norm whose weight, or whose model, is at a place."""
    if model := _model(place):
        own, hidden = final_norm(model)
        if own is None or hidden.shape[-1] != size:
            raise SourceError(f"{place} has no final norm of {size:,} dimensions")
        return torch.no_grad()(lambda states: own(states.to(hidden.dtype)).float())
    weight = floats(read_array(place), f"the weight of a norm, ({size},)", 1).float()
    if len(weight) != size:
        raise SourceError(f"the norm {place} has {len(weight):,} weights, and W has {size:,} columns")
    file, _, name = place.rpartition(":")
    state, module = {"weight": weight}, None
    if file and not Path(place).exists():
        path, prefix = Path(file), name.removesuffix("weight")
        module = _module(path.parent, prefix.removesuffix("."))
        files = [path] if module is None else sorted(path.parent.glob(f"*{path.suffix}"))
        arrays = ChainMap(*(dict(read_arrays(each)) for each in files))  # a bias may be in another shard
        if (bias := arrays.get(f"{prefix}bias")) is not None:
            state["bias"] = floats(bias, f"the bias of a norm, ({size},)", 1).float()
    if module is not None and {*state} == {key for key, _ in module.named_parameters()}:
        module.load_state_dict(state)
        return torch.no_grad()(module)
    return norm_of(weight, state.get("bias"), "layer" if "bias" in state else "rms", None)


def norm_of(weight: Tensor, bias: Tensor | None, kind: str, eps: float | None) -> Callable[[Tensor], Tensor]:
    """Return a LayerNorm (``"layer"``) or an RMSNorm (``"rms"``), by default with the usual ε."""
    eps = {"layer": 1e-5, "rms": 1e-6}[kind] if eps is None else eps
    if kind == "layer":
        return lambda states: F.layer_norm(
            states, weight.shape, weight.to(states), None if bias is None else bias.to(states), eps
        )
    return lambda states: F.rms_norm(states, weight.shape, weight.to(states), eps)


def _module(folder: Path, name: str) -> nn.Module | None:
    """Return the norm of this name in a Hugging Face model's folder, without its weights; ``None`` for other places."""
    if is_hugging_face(folder):
        with suppress(SourceError):  # a model that transformers does not know
            config, kind = config_and_class(folder)
            model: nn.Module = unloaded_model(kind, config, folder, [], dtype="float32").module
            for key, part in model.named_modules():
                if key and is_same_name(key, name):
                    return part.to_empty(device="cpu")
    return None


def is_normed(normalize: Callable[[Tensor], Tensor], blocks: Sequence[Tensor]) -> bool:
    """Return whether states look as if a norm had made them, which changes them: it gives them from what it scales.

    Args:
        normalize: x ↦ γ n + β, where n is x with a mean square of 1, or with a variance of 1 and a mean of 0.
        blocks: consecutive states, (n, d) each, of which some are taken.
    """
    starts = np.cumsum([0, *map(len, blocks)]).tolist()
    step = max(1, starts[-1] // SAMPLE)
    sample = torch.cat([block[-start % step :: step] for start, block in zip(starts, blocks, strict=False)]).float()
    signs = torch.ones(1, sample.shape[1])
    signs[:, 1::2] = -1  # n itself, for an even d
    more, less = normalize(signs), normalize(-signs)
    beta, gamma = (more + less) / 2, (more - less) / 2 * signs
    scaled = (sample - beta) / gamma.where(gamma != 0, 1.0)
    changes = (normalize(each) - sample for each in (scaled, sample))
    again, twice = (torch.linalg.vector_norm(each, dim=1) / torch.linalg.vector_norm(sample, dim=1) for each in changes)
    return bool(again.nanmedian() < NORMED < twice.nanmedian())


def _mismatch(layer: Head, states: Tensor, readings: Mapping[int, Tensor], *, normed: bool) -> tuple[str, str]:
    """Return why states and output layer do not belong together, and why they may not, or '' for either.

    ``readings`` are the tokens 0 to 2 later.
    """
    some = torch.linspace(0, len(states) - 1, min(SAMPLE, len(states))).long()

    def loss(chosen: Tensor, by: int) -> float:
        targets = readings[by][some]
        with torch.no_grad(), full_precision():
            losses = layer.nll(chosen[targets >= 0], targets[targets >= 0], reduction="none")
        return float(exact(losses).mean()) if losses.numel() else math.inf

    sample = states[some].to(layer.weight)
    as_given = loss(sample, 1)
    size = sample.square().mean(1).sqrt().median().clamp_min(torch.finfo(sample.dtype).tiny)
    resized, unnormed = loss(sample / size, 1), loss(F.rms_norm(sample, sample.shape[1:]), 1)
    how: list[Any] = ["they were taken before the final norm: give it, ", Parameter("norm", "MODEL|FILE:NAME")]
    if resized <= unnormed + ALIKE:
        how += [", or have another scale than the output layer takes: give ", Parameter("scale")]
    losses = {
        Sentence(*how): math.inf if normed else unnormed,
        "each state stands one token too late: shift the states or the ids by one, unless the model is untrained, "
        "which repeats its input": loss(sample, 0),
        "each state stands one token too early: shift the states or the ids by one": loss(sample, 2),
    }
    likeliest = min(losses, key=losses.__getitem__)
    perplexity = f"the perplexity of the tokens that follow is {math.exp(min(as_given, 700.0)):,.4g}"
    chance = math.log(layer.vocab_size)
    if losses[likeliest] < min(as_given, chance) - BETTER:
        return Sentence(f"{perplexity}, and these states look as if ", likeliest), ""
    if as_given <= chance - BETTER:
        return "", ""
    earlier = "" if normed else "the states were taken before the final norm, "
    doubt = f"the model is untrained, the text is random, {earlier}or states and head do not belong together"
    better = "no" if as_given >= chance else "hardly"
    return "", f"{perplexity}, {better} better than {layer.vocab_size:,} equally likely tokens: {doubt}"
