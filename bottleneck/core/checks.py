"""Checks of settings that many classes and functions have."""

from __future__ import annotations

import math
import reprlib
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from inspect import signature
from numbers import Integral
from operator import index
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, Unpack, get_args, get_origin, get_type_hints, is_typeddict

from ..errors import ConfigurationError, Parameter

Function = TypeVar("Function", bound=Callable[..., Any])


LARGEST = 1 << 48
"""No count or size reaches this: that many bytes are 256 TiB."""
MOST_PAIRS = 1 << 30
"""Most pairs that are drawn: their results take 32 GiB."""


def shown(value: Any) -> str:
    """Return the beginning of a value's representation, on one line, for an error."""
    return " ".join(reprlib.repr(value).split())


def check_positive(*, at_most: int = LARGEST, **counts: Any) -> None:
    """Refuse counts and sizes that are not whole numbers from one to ``at_most``; ``None`` stands for a default."""
    for name, count in counts.items():
        if count is not None and (isinstance(count, bool) or not isinstance(count, Integral)):
            raise ConfigurationError(f"{name} must be a whole number of at least 1, not {shown(count)}")
        if count is not None and not 1 <= int(count) <= at_most:
            limit = "at least 1" if count < 1 else f"at most {'2⁴⁸' if at_most == LARGEST else f'{at_most:,}'}"
            raise ConfigurationError(f"{name} must be {limit}, not {shown(count)}")


def check_dropout(**probabilities: float) -> None:
    """Refuse probabilities of dropping something outside [0, 1)."""
    for name, probability in probabilities.items():
        if not 0 <= probability < 1:
            raise ConfigurationError(f"{name} must be in [0, 1), not {probability}")


def check_within(least: float, most: float = math.inf, **numbers: Any) -> None:
    """Refuse numbers that are not finite, or outside ``least`` to ``most``; ``None`` stands for a default."""
    for name, number in numbers.items():
        if number is not None and not (least <= number <= most and number < math.inf):
            limit = f"at most {most:g}" if most < math.inf else "finite"
            limit = "" if isinstance(number, Integral) and most == math.inf else f" and {limit}"
            raise ConfigurationError(Parameter(name), f" must be at least {least:g}{limit}, not {number}")


def check_seed(seed: int) -> None:
    """Refuse the seed of a random generator below 0."""
    check_within(0, seed=seed)


def check_pairs(pairs: Any) -> None:
    """Refuse what is neither ``"all"`` nor a number of pairs of at least 2."""
    count = int(pairs) if isinstance(pairs, Integral) else 0
    if not (isinstance(pairs, str) and pairs == "all") and not 2 <= count <= MOST_PAIRS:
        least = "at least 2" if count < 2 else f"at most {MOST_PAIRS:,}"
        raise ConfigurationError(Parameter("pairs"), f" must be 'all' or a number of {least}, not {shown(pairs)}")


def check_above_zero(**numbers: Any) -> None:
    """Refuse numbers that are not finite and above 0; ``None`` stands for a default."""
    for name, number in numbers.items():
        if number is not None and not 0 < number < math.inf:
            raise ConfigurationError(Parameter(name), f" must be above 0 and finite, not {number}")


def typed(function: Function) -> Function:
    """Return a function that refuses an argument of another type than the annotated one by a `ConfigurationError`.

    Arguments whose annotation is not made of classes and pairs of classes, such as arrays and sources, are left to the
    function. The ``**options`` of a class of options are checked like the named arguments. It runs under NumPy's own
    treatment of overflow and underflow, whatever `numpy.seterr` made of it.
    """
    places = tuple(signature(function).parameters)
    kinds: dict[str, tuple[Any, ...]] = {}

    @wraps(function)
    def checked(*arguments: Any, **named: Any) -> Any:
        if not kinds:
            kinds.update({name: _kinds(hint) for name, hint in _hints(function).items()})
        for name, value in (*zip(places, arguments, strict=False), *named.items()):
            allowed = kinds.get(name, ())
            if allowed and not any(_is_a(value, each) for each in allowed):
                words = " or ".join(WORDS.get(each, f"a {getattr(each, '__name__', each)}") for each in allowed)
                raise ConfigurationError(Parameter(name), f" must be {words}, not {shown(value)}")
        from numpy import errstate

        with errstate(divide="warn", over="warn", under="ignore", invalid="warn"):
            return function(*arguments, **named)

    return checked  # type: ignore[return-value]


WORDS: dict[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    NoneType: "None",
    Callable: "a function",
    Iterable: "a list",
    tuple[int, int]: "a pair of whole numbers",
}
GENERIC = {Callable: Callable, Iterable: Iterable, Sequence: Iterable}
"""Kinds of annotations whose parts are not checked."""


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function and of its class of options, none if they name what is not imported."""
    try:
        hints = get_type_hints(function)
    except NameError:  # a class that only type checkers import
        return {}
    names = {"torch": sys.modules.get("torch")}  # classes of options name it without importing it
    for hint in [each for each in hints.values() if get_origin(each) is Unpack]:
        hints |= get_type_hints(get_args(hint)[0], localns=names)
    return hints


def _kinds(hint: Any) -> tuple[Any, ...]:
    """Return the classes of an annotation, none where it is not checked."""
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kinds = tuple(GENERIC.get(get_origin(part), part) for part in parts)
    return kinds if all(each in WORDS or _is_class(each) for each in kinds) else ()


def _is_class(hint: Any) -> bool:
    return isinstance(hint, type) and hint is not Any and get_origin(hint) is None and not is_typeddict(hint)


def _is_a(value: Any, kind: Any) -> bool:
    """Return whether a value is of a kind; whole numbers are numbers, a truth value is neither."""
    if kind is Callable or kind is bool:
        return callable(value) if kind is Callable else type(value).__name__ in ("bool", "bool_")
    if kind is Iterable:
        return isinstance(value, Iterable) and not isinstance(value, str | bytes)
    if get_origin(kind) is tuple:
        parts = get_args(kind)
        return isinstance(value, tuple | list) and len(value) == len(parts) and all(map(_is_a, value, parts))
    if kind not in (int, float):
        return isinstance(value, kind)
    try:
        return not isinstance(value, bool) and (index if kind is int else type(value).__float__)(value) is not None
    except (AttributeError, TypeError, ValueError):
        return False
