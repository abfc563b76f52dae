"""The numerical rank of a log-probability matrix: open the source, compute its spectrum, judge it, report."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any, Unpack

from ..core.clock import seconds_so_far
from ..core.devices import has_float64, resolve_device
from ..core.full_precision import precision_state
from ..core.machine import peak_memory_bytes
from ..core.options import RANK
from ..errors import ConfigurationError, Parameter
from ..hugging_face import HuggingFaceModel
from ..language_models import ModelOnText
from ..results.quantity import DETAIL, Quantity
from ..sources import FiniteColumns, PartialSource, Source
from ..sources.measurement import measurement, opened, prepared
from ..spectrum import Precision, RankEstimate, Spectrum, SpectrumSettings, counts_by_rule, judge, precision
from ..spectrum.choice import check_resolution
from ..spectrum.precision import EPS
from .computing import RankOptions, compute_spectrum
from .directions import ROWS, directions
from .hidden_size import hidden_size
from .partial_rank import partial_rank
from .report import RankReport, report_of
from .reports import RankReports, checkpoint_quantities, steps_of

INF = RANK["inf"].choices
"""The ways to treat entries of −∞."""


def _check(eps: Any = None, **_: Any) -> None:
    """Refuse a roundoff finer than float64's."""
    if eps is not None and (value := precision(eps).value) < EPS["float64"]:
        raise ConfigurationError(
            f"eps {value:.3g} is finer than float64's roundoff ({EPS['float64']:.3g}), in which everything is "
            "computed: no rank can be told apart below it"
        )


def _prepared(sources: Iterable[Any], options: Any) -> list[Source]:
    """Open and prepare sources, which are not read where the method does not resolve the roundoff that is given."""
    found, eps = opened(sources, options), options.get("eps")
    for source in found if eps is not None else ():
        check_resolution(options.get("method", "auto"), shape=source.shape, eps=precision(eps).value)
    return prepared(found, {"progress": options.get("progress", False)})


@measurement(
    RankOptions,
    opens=_prepared,
    check=_check,
    of_all=lambda sources: {"checkpoint": steps_of(sources) is not None},
    several=RankReports,
)
def rank(source: Source, **options: Unpack[RankOptions]) -> RankReport:
    """Measure the numerical rank of a T × M log-probability matrix, raw and row-centred.

    Args:
        source: a run folder, a Hugging Face model (its folder, its name or the loaded object), a store, a matrix file,
            a (T, M) array or tensor, an iterable of (n, M) blocks, a head with ``hidden=H``, or a function or torch
            module from token ids (B, L) to logits (B, L, M) with ``data=batches``. Several of them are a dictionary by
            label or a list, in which a name may be ``LABEL=SOURCE``; a list of arrays is one matrix in blocks.
        options: how the source is opened, how its spectrum is computed, and how it is judged, see `RankOptions`.

    Returns:
        A report, or of several sources one for each, as `RankReports`. If they are `checkpoints` of one training, the
        reports also have effective ranks of H and W, RankMe and αReQ of H, the gradient kept and the perplexity.

    Raises:
        BottleneckError: for a source that cannot be read, numbers that are not finite or not log-probabilities, or a
            tolerance that the method cannot resolve.

    Example:
        >>> import numpy as np
        >>> logits = np.outer(np.linspace(-1, 1, 50), np.arange(10.0))
        >>> report = rank(logits, kind="logits")
        >>> report.rank.value, report.rank_centered.value
        (2, 1)
    """
    state, how, eps = precision_state(), SpectrumSettings.of(options), options.get("eps")
    asked = None if eps is None else precision(eps)
    if isinstance(source, PartialSource):
        for name in ("inf", "estimate_hidden_size"):
            if options.get(name, default := RANK[name].default) != default:
                raise ConfigurationError(
                    Parameter(name), f" needs all log-probabilities, and {source.name} holds a part of them"
                )
        report = partial_rank(source, asked or precision("float32"), how)
    else:
        report = _whole_rank(source, asked, options, how)
        if options.get("checkpoint"):
            report = replace(report, more=(*report.more, *checkpoint_quantities(report, source, how.progress)))
    certificate: Any = {**report.certificate, "precision_found": dict(state)}
    memory = peak_memory_bytes()
    return replace(report, certificate=certificate, spent=seconds_so_far(), peak_memory_bytes=memory)


def _whole_rank(source: Source, asked: Precision | None, options: RankOptions, how: SpectrumSettings) -> RankReport:
    """Return the report of a source of which all entries are known."""
    matrix = FiniteColumns(source, progress=how.progress) if options.get("inf") == "drop-columns" else source
    spectrum, why = compute_spectrum(matrix, (asked or matrix.expected_precision).value, how)
    recorded = matrix.rows_precision  # known of all rows after a pass over them
    eps = recorded if asked is None else replace(asked, size=recorded.size, distinct=recorded.distinct)
    if spectrum.method == "factored":  # no logits were rounded
        recorded, eps = matrix.precision, replace(eps, size=matrix.precision.size)
    warning = matrix.rank_warning(max(eps.value, recorded.value))
    raw, centered = judge(spectrum, eps, recorded=recorded, rank_warning=warning)
    more = _rounding(matrix.precision, asked, spectrum)
    if how.processes.count == 1:
        more += _head_analysis(source)
    if not has_float64(device := resolve_device(how.device)):
        text = f"on the CPU, because {device} has no float64"
        more.append(Quantity("decomposed_on", {"device": "cpu", "asked": device}, "decomposed", text=text))
    if options.get("estimate_hidden_size"):
        more.append(hidden_size(spectrum, eps, warning, matrix.embedding_size))
    return report_of(
        spectrum,
        _within_bound(raw, matrix.bound.raw),
        _within_bound(centered, matrix.bound.centered),
        source=matrix.description,
        eps=eps,
        rank_by_rule=counts_by_rule(spectrum.values, spectrum.shape, eps.value, raw),
        bound=asdict(matrix.bound),
        embedding_size=matrix.embedding_size,
        method_why=why,
        more=tuple(more),
    )


def _within_bound(rank: RankEstimate, bound: int | None) -> RankEstimate:
    """Return a rank that is open if it exceeds what algebra allows."""
    if bound is None or rank.value <= bound or not rank.determinate:
        return rank
    doubt = f"algebra allows {bound:,} at most, so the numbers are less precise than eps says"
    return replace(rank, low=min(rank.low, bound), doubt=doubt)


def _rounding(found: Precision, asked: Precision | None, spectrum: Spectrum) -> list[Quantity]:
    """Return the rounding that the entries show, whether or not the ranks are judged by it."""
    if found.coarse is None:
        return []
    size = math.hypot(*spectrum.centered, spectrum.residual) / math.sqrt(math.prod(spectrum.shape))
    text = found.coarse.sentence(size)
    if asked is None:
        return [Quantity("", None, "rounding", DETAIL, text)]
    return [
        Quantity(
            "noise_seen",
            found.to_dict()["noise"],
            "rounding",
            DETAIL,
            f"{text}; the ranks are not judged by it, because eps was given",
        )
    ]


def _head_analysis(source: Source) -> list[Quantity]:
    r"""Return an analysis of the output embeddings W and the hidden states H of a Hugging Face model, if it is one.

    Row-centring A subtracts the mean from the rows of W: :math:`A (I - 11^⊤/M) = H (W - 1\bar w^⊤)^⊤`.
    """
    if not isinstance(source, ModelOnText) or not isinstance(source.model, HuggingFaceModel):
        return []
    head, tied, checked = source.full_head, source.model.tied, source.model.checked
    tokens = None if source.text is None or source.text.tokenizer is None else len(source.text.tokenizer)
    norm, vocabularies = checked.norm, {"model": head.vocab_size, "tokenizer": tokens}
    scale, soft_cap = getattr(head, "scale", 1.0), getattr(head, "soft_cap", None)
    weight = directions(head.weight[: source.shape[1]].split(ROWS))
    hidden = directions(source.hidden(source.ranges(ROWS)))
    has = [
        "tied embeddings" if tied else "embeddings of its own",
        "a bias" if head.bias is not None else "no bias",
        *([f"logits scaled by {scale:g}"] if scale != 1 else []),
        *([f"soft-capped at {soft_cap:g}"] if soft_cap is not None else []),
        *(["a LayerNorm before it"] if norm is not None else []),
    ]
    sizes = f"{vocabularies['model']:,} rows"
    if tokens is not None:
        sizes += f", {tokens:,} tokens in the tokenizer"
    by = f"by at most {checked.difference:.2g}" if checked.difference else "nowhere"
    values = {
        "tied": tied,
        "bias": head.bias is not None,
        "scale": scale,
        "soft_cap": soft_cap,
        "final_layer_norm": None if norm is None else {"name": norm.name, "offset": norm.offset},
        "vocabularies": vocabularies,
        "logit_difference": checked.difference,
        "weight": weight,
        "hidden": hidden,
    }
    sample = f"they differ {by} from the model's own on a sample of its contexts"
    return [
        Quantity("head_analysis", values, "output layer", DETAIL, f"{', '.join(has)}; {sizes}"),
        Quantity("", None, "logits checked", DETAIL, sample),
        Quantity("", None, "W", DETAIL, weight.one_line()),
        Quantity("", None, "H", DETAIL, hidden.one_line()),
    ]
