"""What two texts differ in, in bounded time: a diff where it can be had, the sizes where it cannot.

Pure: knows no file.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from ..given import shown
from .texts import lines_in

MOST_DIFF = 8_000
"""Characters of a diff that are told."""
MOST_LINES = 10_000
"""Lines, of both texts, between the first and the last difference, for which there is a diff."""
MOST_PAIRS = 400_000
"""Pairs of equal lines that are looked at for a diff."""
AROUND = 3
"""Equal lines that a diff shows around what differs."""
_LOOKED_AT = 1_000
_LONGEST = 150


@dataclass(frozen=True, slots=True)
class Compared:
    """What differs.

    Parameters
    ----------
    diff : str
        In unified form, cut where it is long; empty where no line differs.
    added, removed : int
        Lines.
    """

    diff: str
    added: int
    removed: int


def unified(path: str, old: str, new: str) -> str:
    """Return the diff of :func:`compared`."""
    return compared(path, old, new).diff


def compared(path: str, old: str, new: str) -> Compared:
    """Compare two texts line by line.

    Parameters
    ----------
    path : str
        For the diff's head.
    old, new : str
    """
    before, after = lines_in(old), lines_in(new)
    first = 0
    while first < min(len(before), len(after)) and before[first] == after[first]:
        first += 1
    last = 0
    while last < min(len(before), len(after)) - first and before[-1 - last] == after[-1 - last]:
        last += 1
    removed, added = before[first : len(before) - last], after[first : len(after) - last]
    if not removed and not added:
        return Compared("", 0, 0)
    if len(removed) + len(added) > MOST_LINES or _pairs(removed, added) > MOST_PAIRS:
        text = (
            f"[too much differs to be compared line by line: lines {first + 1} to {first + len(removed)} were replaced]"
        )
        return Compared(text, len(added), len(removed))
    lead = max(0, first - AROUND)  # equal lines in front and behind are left out, and counted
    trail = last - min(last, AROUND)
    piece = before[lead : len(before) - trail], after[lead : len(after) - trail]
    lines, plus, minus = [f"--- a/{path}", f"+++ b/{path}"], 0, 0
    for group in difflib.SequenceMatcher(None, *piece, autojunk=False).get_grouped_opcodes(AROUND):
        (_, i, _, k, _), (_, _, j, _, m) = group[0], group[-1]
        lines.append(f"@@ -{_range(lead, i, j)} +{_range(lead, k, m)} @@")
        for kind, a, b, c, d in group:
            if kind == "equal":
                lines += [f" {line}" for line in piece[0][a:b]]
                continue
            lines += [f"-{line}" for line in piece[0][a:b]]
            lines += [f"+{line}" for line in piece[1][c:d]]
            minus += b - a
            plus += d - c
    made = "\n".join(lines)
    if len(made) > MOST_DIFF:
        made = f"{made[:MOST_DIFF]}\n[cut: {len(made) - MOST_DIFF} more characters]"
    return Compared(made, plus, minus)


def _range(lead: int, start: int, end: int) -> str:
    first, length = lead + start + 1, end - start
    if length == 1:
        return str(first)
    return f"{first - (not length)},{length}"


def _pairs(one: list[str], other: list[str]) -> int:
    """Return how many pairs of equal lines there are, which is what comparing costs for each match it finds."""
    counts: dict[str, int] = {}
    for line in other:
        counts[line] = counts.get(line, 0) + 1
    return sum(counts.get(line, 0) for line in one)


def nearest(wanted: str, text: str) -> str:
    """Say which line of a text is most like the first one that was looked for, and whether only spaces differ."""
    line = next((line for line in lines_in(wanted) if line.strip()), "")
    lines = lines_in(text)
    if not line or len(lines) > 10 * _LOOKED_AT:
        return ""
    bare = " ".join(line.split())
    for number, found in enumerate(lines, 1):
        if " ".join(found.split()) == bare:
            return f" (line {number} differs only in spaces or in the lines after it: {shown(found)})"
    if len(line) > _LONGEST:
        return ""
    near = difflib.get_close_matches(line, [one for one in lines[:_LOOKED_AT] if len(one) <= _LONGEST], 1, 0.7)
    return f" (line {lines.index(near[0]) + 1} is like it: {shown(near[0])})" if near else ""
