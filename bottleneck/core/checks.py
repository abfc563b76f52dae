"""Checks of settings that many classes and functions have."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable
from functools import wraps
from numbers import Integral
from operator import index
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ..errors import ConfigurationError

Function = TypeVar("Function", bound=Callable[..., Any])


def check_positive(**counts: Any) -> None:
    """Refuse counts and sizes that are not whole numbers of at least one; ``None`` stands for a default."""
    for name, count in counts.items():
        if count is not None and (isinstance(count, bool) or not isinstance(count, Integral)):
            raise ConfigurationError(f"{name} must be a whole number of at least 1, not {count!r}")
        if count is not None and count < 1:
            raise ConfigurationError(f"{name} must be at least 1, not {count}")


def check_dropout(**probabilities: float) -> None:
    """Refuse probabilities of dropping something outside [0, 1)."""
    for name, probability in probabilities.items():
        if not 0 <= probability < 1:
            raise ConfigurationError(f"{name} must be in [0, 1), not {probability}")


def check_seed(seed: int) -> None:
    """Refuse the seed of a random generator below 0."""
    if seed < 0:
        raise ConfigurationError(f"seed must be at least 0, not {seed}")


def check_above_zero(**numbers: Any) -> None:
    """Refuse numbers that are not finite and above 0; ``None`` stands for a default."""
    for name, number in numbers.items():
        if number is not None and not 0 < number < math.inf:
            raise ConfigurationError(f"{name} must be above 0 and finite, not {number}")


def typed(function: Function) -> Function:
    """Return a function that refuses an argument of another type than the annotated one by a `ConfigurationError`.

    Arguments whose annotation is not a class or a union of classes, such as arrays and sources, are left to the
    function.
    """
    types = {name: _classes(hint) for name, hint in get_type_hints(function).items()}

    @wraps(function)
    def checked(*arguments: Any, **named: Any) -> Any:
        for name, value in (*zip(types, arguments, strict=False), *named.items()):
            classes = types.get(name, ())
            if classes and not any(_is_a(value, each) for each in classes):
                words = " or ".join(WORDS.get(each, f"a {each.__name__}") for each in classes)
                received = " ".join(reprlib.repr(value).split())
                raise ConfigurationError(f"{name} must be {words}, not {received}")
        return function(*arguments, **named)

    return checked  # type: ignore[return-value]


WORDS = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    NoneType: "None",
    Callable: "a function",
}


def _classes(hint: Any) -> tuple[Any, ...]:
    """Return the classes of an annotation, none where it is not checked."""
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    classes = tuple(Callable if get_origin(part) is Callable else part for part in parts)
    checked = all(each is Callable or (isinstance(each, type) and each is not Any) for each in classes)
    return classes if checked and not any(map(get_origin, classes)) else ()


def _is_a(value: Any, kind: Any) -> bool:
    """Return whether a value is of a class; whole numbers are numbers, a truth value is neither."""
    if kind is Callable or kind is bool:
        return callable(value) if kind is Callable else type(value).__name__ in ("bool", "bool_")
    if kind not in (int, float):
        return isinstance(value, kind)
    try:
        return not isinstance(value, bool) and (index if kind is int else type(value).__float__)(value) is not None
    except (AttributeError, TypeError, ValueError):
        return False
