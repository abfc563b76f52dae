"""Text from files and names as it may be shown: without characters that steer a terminal or are not Unicode."""

from __future__ import annotations

import re

_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, *, lines: bool = False) -> str:
    r"""Return a text with control characters as escape sequences, on one line unless it may have several ``lines``.

    In JSON, where they stand only inside of texts, the escape sequences mean the same characters.

    Example:
        >>> printable("red \x1b[31m")
        'red \\u001b[31m'
    """
    text = text if lines else " ".join(text.split())
    return _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
