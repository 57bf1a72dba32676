"""What of a text can be put before people: one place for everything that is printed.

A model's text may hold the control sequences of a terminal, which move its cursor or set its title, and
marks that turn the direction of whatever is written behind them. Knows no form of output.
"""

from __future__ import annotations

import re

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_DIRECTIONS = re.compile("[\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """Return the text with one kind of line break and without characters that cannot be shown.

    Each of these becomes U+FFFD. Marks of direction stay: a text needs them, and a line's end ends them.
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _UNPRINTABLE.sub("\ufffd", text)


def one_field(text: str) -> str:
    """Return a name, or another text that shares its line with others, :func:`clean` and without marks of direction.

    They would turn what the line holds besides.
    """
    return text if text.isascii() and text.isprintable() else _DIRECTIONS.sub("\ufffd", clean(text))
