"""Rows as columns of a terminal: one aligner for every table printed to people.

Chinese characters take two columns, combining ones none; counting characters makes a table crooked.
Pure; knows no conversation.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence

from ..printable import one_field


def width(text: str) -> int:
    """Return the columns of a terminal that a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


def aligned(rows: Sequence[Sequence[str]], *, ruled: bool = False, right: Collection[int] = ()) -> list[str]:
    """Return a line for each row, cells below each other.

    Parameters
    ----------
    rows : sequence of sequence of str
        At least one, all of the same length. White space around a cell is left out; inside one
        that would break its line it is one blank. What cannot be printed is U+FFFD.
    ruled : bool
        Whether a line of dashes parts the first row from the others.
    right : collection of int
        Columns of numbers, which end below each other.
    """
    rows = [[cell.strip() if cell.isprintable() else " ".join(one_field(cell).split()) for cell in row] for row in rows]
    widths = [max(width(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = []
        for column, (cell, wide) in enumerate(zip(row, widths, strict=True)):
            gap = " " * (wide - width(cell))
            cells.append(gap + cell if column in right else cell + gap)
        lines.append("  ".join(cells).rstrip())
    if ruled:
        lines.insert(1, "  ".join("-" * wide for wide in widths))
    return lines
