"""What every measurement does with its source: open it, prepare it, take the time, and name the result."""

import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from torch import nn

from ..core.checks import typed
from ..core.clock import counting
from ..core.options import LAYER, OPENING, MeasurementOptions, check_options, table, takes
from ..core.progress import reporting
from ..language_models import Source
from ..language_models.layer import OutputWeights
from ..results.base import Result, Results, short_names
from .kinds import is_several, labelled, open_sources
from .output_weights import check_bias, output_weights

P = ParamSpec("P")
R = TypeVar("R", bound=Result)
S = TypeVar("S")


class Measurement(Generic[P, R, S]):
    """The type of a measurement: of one source it returns a result, of a list or a dictionary by label several."""

    @overload
    def __call__(
        self,
        source: list[str] | list[Path] | list[nn.Module] | tuple[str, ...] | dict[str, Any],
        *arguments: P.args,
        **options: P.kwargs,
    ) -> S: ...
    @overload
    def __call__(self, source: Any, *arguments: P.args, **options: P.kwargs) -> R: ...
    def __call__(self, source: Any, *arguments: P.args, **options: P.kwargs) -> Any:
        """Measure; a measurement is a plain function, and this class is for type checkers alone."""
        raise NotImplementedError


def opened(sources: Iterable[Any], options: Any) -> list[Source]:
    """Open sources whose entries are not read one by one."""
    return open_sources(sources, _chosen(options, OPENING))


def prepared(sources: Iterable[Any], options: Any) -> list[Source]:
    """Open sources, and prepare all of them: each is what it is said to be, before one is measured."""
    found, progress = opened(sources, options), reporting(options.get("progress", False))
    for source in found:
        source.prepare(progress)
    return found


def layers(sources: Iterable[Any], options: Any) -> list[OutputWeights]:
    """Open output layers, without the text that other options of `Opening` are about."""
    check_bias(sources := [*sources], options.get("bias"))
    return [output_weights(source, **_chosen(options, LAYER)) for source in sources]


def _chosen(options: Any, names: Iterable[str]) -> Any:
    return {name: options[name] for name in names if name in options}


@overload
def measurement(
    options: type = MeasurementOptions, *, several: Callable[[Iterable[R]], S], **more: Any
) -> Callable[[Callable[Concatenate[Any, P], R]], Measurement[P, R, S]]: ...
@overload
def measurement(
    options: type = MeasurementOptions, **more: Any
) -> Callable[[Callable[Concatenate[Any, P], R]], Measurement[P, R, Results[R]]]: ...
def measurement(  # type: ignore[misc]
    options: type = MeasurementOptions,
    *,
    opens: Callable[[Iterable[Any], Any], Iterable[Any]] = prepared,
    check: Callable[..., object] = lambda **_: None,
    of_all: Callable[[Iterable[Any]], Mapping[str, Any]] = lambda _: {},
    several: Any = Results,
) -> Any:
    """Return a decorator that makes a measurement of a function of an opened source.

    The measurement takes what the function takes, and in place of the opened source any source, or several as a list or
    a dictionary by label. A result that has ``seconds`` gets the time, of one source with that of opening it.

    Args:
        options: class of the function's ``**options``; those of `Opening` open the source.
        opens: opens sources with such options.
        check: called with the keyword arguments, to refuse wrong ones before a source is opened.
        of_all: returns keyword arguments for each of several sources that follow from all of them.
        several: makes one object of the results of several sources.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        own = inspect.signature(function)
        first, *others = own.parameters.values()
        known = table(options)
        defaults = {name: option.default for name, option in known.items()}
        added = {name: option for name, option in known.items() if name not in OPENING}

        @wraps(function)
        def measured(*arguments: Any, **named: Any) -> Any:
            given, started = own.bind(*arguments, **named), time.monotonic()
            given.apply_defaults()
            (source, *more), own_settings = given.args, given.kwargs
            settings = {**defaults, **own_settings}
            check_options(added, settings)
            check(**settings)

            def measure(source: Any, started: float) -> Any:
                result = function(source, *more, **settings)
                seconds = round(time.monotonic() - started, 3)
                return replace(result, seconds=seconds) if hasattr(result, "seconds") else result

            if not is_several(source):
                (one,) = opens([source], settings)
                return measure(one, started)
            by_label = labelled(source)
            settings |= {**of_all(by_label.values()), **own_settings}
            sources = dict(zip(by_label, opens(by_label.values(), settings), strict=True))
            return several(results_of(sources, lambda each: counting()(measure)(each, time.monotonic())))

        shown = [first.replace(annotation="Any"), *others]
        measured.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
        measured.__annotations__ = {**function.__annotations__, first.name: Any}
        return takes(options)(typed(counting()(measured)))

    return decorate


def results_of(sources: dict[str, Any], measure: Callable[[Any], Any]) -> Iterator[Any]:
    """Yield the result of each source, and of its tokenizer's tokens alone if its output layer has more, by its label.

    A single source has a label only where that is not the end of its path. Sources are removed as they are measured, so
    that what each keeps in memory is gone with it.
    """
    many = len(sources) > 1
    while sources:
        label = next(iter(sources))
        source = sources.pop(label)
        is_padded = isinstance(source, Source) and source.without_padding() is not None
        many = many or is_padded
        for name in (label, f"{label}, no padding")[: 1 + is_padded]:
            each = source if name == label else source.without_padding()  # with what the first measurement computed
            result = measure(each)
            yield result.named(name) if many or label not in short_names([result.name]) else result
