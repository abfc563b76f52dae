"""The report of a rank measurement, measured or read back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Self

from pydantic import ConfigDict, GetPydanticSchema, with_config
from typing_extensions import TypedDict

from ..core.json_file import Count, Magnitude, Size, check_schema
from ..errors import MatrixError, OutputError, Parameter
from ..results.base import UNSAVED, Result, flat, short_names
from ..results.quantity import DETAIL, FRAME, NOWHERE, TABLE, Quantity, Shown
from ..spectrum import (
    Limits,
    Precision,
    RankEstimate,
    SavedSpectrum,
    Spectrum,
    entropy_rank,
    holds_spectra,
    stable_rank,
    write_spectra,
)
from ..spectrum.effective_ranks import effective_ranks
from ..spectrum.rules import NOISE_FACTOR
from .verdict import HIDDEN_SIZE, Verdict, verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@with_config(ConfigDict(extra="allow"))
class _Described(TypedDict):
    path: str
    kind: NotRequired[str | None]
    head: NotRequired[str | None]
    corpus: NotRequired[str | None]
    split: NotRequired[str | None]
    label: NotRequired[str | None]


class _Bound(TypedDict):
    raw: Count | None
    centered: Count | None
    why: str


@with_config(ConfigDict(extra="allow"))
class _Certificate(TypedDict):
    frobenius_relative_error: Magnitude
    driver: NotRequired[str | None]
    residual: NotRequired[Magnitude]
    error: NotRequired[Magnitude]


class Line(TypedDict):
    """How people see a quantity of `RankReport.more`."""

    key: NotRequired[str]
    label: str
    shown: Count
    text: str


def _as(schema: Any) -> GetPydanticSchema:
    return GetPydanticSchema(lambda _, handler: handler.generate_schema(schema))


Description = Annotated[Mapping[str, Any], _as(_Described)]
"""What was measured; some kinds say more, such as the number of columns that were dropped."""
Bound = Annotated[Mapping[str, Any], _as(_Bound)]
Certificate = Annotated[Mapping[str, Any], _as(_Certificate)]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RankReport(Result, kind="rank"):
    """The ranks of a log-probability matrix, their margins, the bound, and the source that was measured."""

    source: Description
    """What was measured: path, kind, head, corpus, split."""
    contexts: Size
    """T."""
    vocab: Size
    """M."""
    embedding_size: Size | None
    """Embedding size d of the output layer, if it is known."""
    bound: Bound
    """Upper bounds ``raw`` and ``centered`` (integers or ``None``) and the reason ``why``."""
    eps: Precision
    """The relative roundoff that the tolerances follow from."""
    method: str
    """Name of the spectrum method."""
    method_why: str = ""
    """Why this method was chosen."""
    rule: Literal["press"] = "press"
    """The tolerance that both ranks are counted by."""
    rank: RankEstimate
    """Rank of log P."""
    rank_centered: RankEstimate
    """Rank of the row-centred log P: the least rank of logits with these probabilities (Yang et al. 2018, prop. 1)."""
    rank_by_rule: Mapping[str, Count]
    """Rank of log P by Press's rule, and what NumPy's tolerance and the largest gap would count."""
    effective_rank: Mapping[str, Count | None]
    """For each ε the number of directions that hold all but a share ε of Σσ²; ``None`` if a sketch cannot tell."""
    entropy_rank: Magnitude | None
    stable_rank: Magnitude
    effective_rank_centered: Mapping[str, Count | None] | None = None
    """The same of the row-centred log P, without the direction that all contexts share; ``None`` for a sketch."""
    certificate: Certificate
    """What the method checked of the spectrum, and what it does not resolve."""
    verdict: str = ""
    """What the ranks say of the output layer."""
    next: str = ""
    """What to do next; empty where nothing follows."""
    seconds: Magnitude = 0.0
    """Wall-clock time of the measurement."""
    spent: Mapping[str, Magnitude] = field(default_factory=dict)
    """Seconds of it in which rows were ``read`` or computed, ``inspected``, and ``decomposed``."""
    peak_memory_bytes: Count = 0
    """Largest resident size of the process."""
    more: tuple[Quantity, ...] = field(default=(), metadata=UNSAVED)
    """Quantities of one kind of source, or on request; JSON has each by its key, and their lines under ``"more"``."""
    decomposition: Spectrum | None = field(default=None, metadata=UNSAVED)
    """The singular values, if they are there; JSON leaves them out."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the report that `to_dict` returned, without singular values."""
        known = {key for _, key in cls._saved()} | {"kind", "version", "more"}
        lines = [check_schema(line, Line) for line in values.get("more", ())]
        more = [Quantity(key, value, shown=NOWHERE) for key, value in values.items() if key not in known]
        by_key = {**flat(values), **values}
        for line in lines:
            key = line.get("key", "")
            more.append(Quantity(key, by_key.get(key), line["label"], Shown(line["shown"]), line["text"]))
        return replace(super().from_dict(values), more=tuple(more))

    def plain(self) -> dict[str, Any]:
        """Return the values, and the lines of `more`."""
        shown = [each for each in self.more if each.label]
        lines = [Line(key=str(each.key), label=each.label, shown=each.shown.value, text=str(each)) for each in shown]
        return super().plain() | ({"more": lines} if lines else {})

    def save(self, path: str | Path) -> None:
        """Write the report as JSON, for `load`, and its singular values to the ``.npz`` file of the same name."""
        with spectra_beside(path, [self]):
            super().save(path)

    @property
    def spectrum(self) -> Spectrum:
        """The singular values; `MatrixError` for a report that was read without them."""
        if self.decomposition is None:
            raise MatrixError(
                f"the report of {self.name} has no singular values: read it with the .npz file of ",
                Parameter("save_spectrum"),
                " beside it, or measure it again",
            )
        return self.decomposition

    @property
    def saved_spectrum(self) -> SavedSpectrum:
        """The singular values as a file holds them."""
        return SavedSpectrum(self.spectrum, self.source, self.limits)

    @property
    def indeterminate(self) -> tuple[str, ...]:
        """Names of the ranks that are indeterminate."""
        ranks = {"rank": self.rank, "row-centred rank": self.rank_centered}
        return tuple(name for name, rank in ranks.items() if not rank.determinate)

    @property
    def limits(self) -> Limits:
        """Return the tolerances and the bounds, which figures of the spectrum mark."""
        bound = (self.bound["raw"], self.bound["centered"])
        return Limits(self.rank.tolerance, self.rank_centered.tolerance, *bound)

    def quantities(self) -> Iterator[Quantity]:
        """Yield the verdict, both ranks with their evidence, related ranks, and how they were computed."""
        counts = {name: "an unknown number" if n is None else f"{n:,}" for name, n in self.effective_rank.items()}
        held = f"{', '.join(counts.values())} directions hold 99.9, 99.99, 99.999 % of Σσ²"
        if of_centered := self.effective_rank_centered:
            held += f"; row-centred {', '.join(f'{n:,}' for n in of_centered.values())}"
        entropy = "unknown" if self.entropy_rank is None else f"{self.entropy_rank:.1f}"
        by_rule = ", ".join(f"{rule} {count:,}" for rule, count in self.rank_by_rule.items())
        eps, certificate = self.eps, self.certificate
        outside = f" but for a residual of {certificate['residual']:.3g}" if certificate.get("residual") else ""
        resolved = (
            f"; the method's error in any σ is at most {certificate['error']:.2g}" if certificate.get("error") else ""
        )
        check = f"Σσ² within {certificate['frobenius_relative_error']:.1e} of ‖A‖²{outside}{resolved}"
        method = self.method + (f" ({self.method_why})" if self.method_why else "")
        of = eps.dtype or ("decimals" if eps.assumed else "given")
        kind = f"{eps.value:.3g} ({of}{', assumed' if eps.assumed else ''})"
        yield Quantity("verdict", self.verdict, "verdict")
        yield Quantity("contexts", self.contexts, shown=FRAME)
        yield Quantity("vocab", self.vocab, shown=FRAME)
        yield Quantity("embedding_size", self.embedding_size, "d", DETAIL | TABLE)
        yield Quantity("bound.raw", self.bound["raw"], "bound", TABLE)
        yield Quantity("", None, "bound", DETAIL, self._bounds())
        for key, rank, label in (
            ("rank", self.rank, "rank"),
            ("rank_centered", self.rank_centered, "row-centred rank"),
        ):
            yield Quantity(key, rank, label, TABLE)
            yield Quantity("", None, label, text=_answer(rank))
            yield Quantity("", None, f"evidence, {label}", DETAIL, _evidence(rank))
        yield Quantity("", None, "matrix", text=f"{self._named()}: {self._size()}")
        yield Quantity("effective_rank", self.effective_rank, "effective rank", text=held)
        yield Quantity("", None, "entropy, stable rank", DETAIL, f"{entropy}, {self.stable_rank:.2f}")
        yield Quantity("", None, "by rule", DETAIL, by_rule)
        yield from self.more
        yield Quantity("eps", eps, "eps", DETAIL, kind)
        if eps.noise and 0 < eps.noise.deviation < math.inf:
            yield Quantity("", None, "noise floor", DETAIL, self._noise_floor())
        yield Quantity("", None, "method", DETAIL, method)
        yield Quantity("", None, "check", DETAIL, check)
        parts = ", ".join(f"{part} {seconds:,.1f} s" for part, seconds in self.spent.items())
        cost = f"{self.seconds:,.1f} s{parts and f' ({parts})'}, {self.peak_memory_bytes / 2**30:.2f} GiB at most"
        yield Quantity("", None, "cost", DETAIL, cost)
        if self.next:
            yield Quantity("next", self.next, "next")

    def _bounds(self) -> str:
        raw, centered = self.bound["raw"], self.bound["centered"]
        limits = "none" if raw is None or centered is None else f"{raw:,} raw, {centered:,} row-centred"
        return f"{limits} ({self.bound['why']})"

    def _noise_floor(self) -> str:
        noise = self.eps.noise_norm((self.contexts, self.vocab))
        text = f"seen at σ = {noise:.3g}"
        if self.decomposition is None:
            return text
        above = int((self.decomposition.centered > NOISE_FACTOR * noise).sum())
        return f"{text}: {above:,} row-centred singular values stand above twice that"

    def _named(self) -> str:
        source = self.source
        model = ", ".join(str(source[key]) for key in ("head", "quantization") if source.get(key))
        text = " ".join(str(source[key]) for key in ("corpus", "split") if source.get(key))
        return f"{source['path']}{model and f' ({model})'}{text and f' on {text}'}"

    def _size(self) -> str:
        dropped = f", {n:,} columns with -inf dropped" if (n := self.source.get("dropped_columns")) is not None else ""
        named = {"matrix": ("rows", "columns"), "extended": ("pairs of future and next token", "histories")}
        rows, columns = named.get(self.source.get("kind") or "", ("contexts", "tokens"))
        return f"{self.contexts:,} {rows} × {self.vocab:,} {columns}{dropped}"

    def plot(
        self,
        ax: Axes | str | Path | None = None,
        *,
        label: str | None = None,
        part: str = "raw",
        log: bool = True,
        style: str = "screen",
    ) -> Axes:
        """Draw the singular values against their index, with the tolerance and the bound.

        Args:
            ax: a file to write, or axes to draw into; by default those of a new figure.
            label: name in the legend; by default the last part of the source's path.
            part: ``"raw"``, ``"row-centred"``, or ``"both"`` for a panel of each.
            log: whether to leave out the panel of the cumulative distribution; see `Spectrum.plot`.
            style: one of ``plotting.STYLES``, for a new figure.
        """
        label = short_names([self.name])[0] if label is None else label
        return self.spectrum.plot(ax, label=label, limits=self.limits, part=part, log=log, style=style)


@contextmanager
def spectra_beside(path: str | Path, reports: Iterable[RankReport]) -> Iterator[None]:
    """Write the reports' singular values to the ``.npz`` file of the same name, after the file that is written inside.

    `OutputError`, before anything is written, if another file has that name.
    """
    beside = Path(path).with_suffix(".npz")
    spectra = [each.saved_spectrum for each in reports if each.decomposition is not None]
    if spectra and beside.exists() and not holds_spectra(beside):
        raise OutputError(
            f"cannot write {beside}: another file is there, and the singular values go there; name another file"
        )
    yield
    if spectra:
        write_spectra(beside, spectra)


def _answer(rank: RankEstimate) -> str:
    if rank.determinate:
        return f"{rank}, determinate"
    return str(rank) if rank.at_least else f"{rank}, indeterminate"


def _evidence(rank: RankEstimate) -> str:
    gap = "" if rank.gap is None else f", gap {rank.gap:.3g}"
    place = "" if rank.determinate or rank.at_least else f"{rank.value:,} at the tolerance; "
    doubt = f"; {rank.doubt}" if rank.doubt else ""
    return f"{place}tolerance {rank.tolerance:.3g}, σ_1 {rank.sigma_1:.4g}{gap}{doubt}"


def report_of(
    spectrum: Spectrum, rank: RankEstimate, rank_centered: RankEstimate, *, said: Verdict | None = None, **known: Any
) -> RankReport:
    """Return the report of a spectrum and of the ranks that were judged of it.

    Args:
        spectrum: the singular values.
        rank: rank of log P.
        rank_centered: rank of the row-centred log P.
        said: the verdict in place of that of the ranks.
        known: the fields of `RankReport` that do not follow from these.
    """
    values, residual = spectrum.values, spectrum.residual
    errors = ("frobenius_relative_error", "driver", "residual", "error", "centered_error")
    report = RankReport(
        contexts=spectrum.shape[0],
        vocab=spectrum.shape[1],
        method=spectrum.method,
        rank=rank,
        rank_centered=rank_centered,
        effective_rank=effective_ranks(values, residual=residual),
        effective_rank_centered=None if residual else effective_ranks(spectrum.centered),
        entropy_rank=None if residual else entropy_rank(values),
        stable_rank=stable_rank(values, residual=residual),
        certificate={"finite": True, **{name: getattr(spectrum, name) for name in errors}},
        decomposition=spectrum,
        **known,
    )
    is_rounded = report.eps.coarse is not None and not report.eps.coarse.may_be_signal
    said = said or verdict(
        rank,
        rank_centered,
        shape=spectrum.shape,
        bound=report.bound,
        embedding_size=report.embedding_size,
        kind=report.source.get("kind"),
        distinct=report.eps.distinct,
        assumed=report.eps.dtype if report.eps.assumed and not is_rounded else None,
    )
    is_done = said.next is HIDDEN_SIZE and any(each.label == "hidden size" for each in report.more)
    return replace(report, verdict=said.sentence, next="" if is_done else said.next)
