"""Patterns of names as git reads them, each as one regular expression that cannot run away.

Every ``*`` takes as little as it can and gives nothing back, which finds a match wherever there is one; so a
pattern costs at most its length times the path's, whoever wrote it. ``?`` and ``[…]`` stand for a character,
where git takes bytes.

Pure: knows no file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \\t\\n\\r\\x0b\\x0c",
    "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}
_STAR = "*"
_MANY = "**"


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of a ``.gitignore``.

    Parameters
    ----------
    include : bool
        ``False`` for a line that begins with ``!``.
    folder : bool
        Whether only folders are meant.
    name : bool
        Whether it is about the last component, wherever that is.
    matcher : re.Pattern
    """

    include: bool
    folder: bool
    name: bool
    matcher: re.Pattern[str]

    def says(self, path: str, folder: bool) -> bool:
        """Say whether this very path is meant; what lies beneath a folder that is meant is not.

        Parameters
        ----------
        path : str
            Relative to where the rule stands, with ``/``.
        folder : bool
        """
        if self.folder and not folder:
            return False
        return self.matcher.fullmatch(path.rpartition("/")[2] if self.name else path) is not None


def rule(line: str) -> Rule | None:
    """Return a line's rule; ``None`` for a comment, an empty line, and one that can match nothing."""
    if line.startswith("#"):
        return None
    include = not line.startswith("!")
    return of(_trimmed(line)[not include :], include=include)


def of(glob: str, *, include: bool = True) -> Rule | None:
    """Return the rule of a pattern, in which no character in front is special."""
    folder = glob.endswith("/")
    glob = glob[: len(glob) - folder]
    name = "/" not in glob
    segments = _segments(glob.removeprefix("/")) if glob else None
    if segments is None:
        return None
    return Rule(include, folder, name, re.compile(_joined(segments), re.DOTALL))


def _trimmed(line: str) -> str:
    """Return a line without the spaces at its end, but for one that a backslash escapes."""
    end = at = 0
    while at < len(line):
        at += 2 if line[at] == "\\" else 1
        if line[at - 1 : at] != " " or line[at - 2 : at - 1] == "\\":
            end = at
    return line[:end]


def _segments(glob: str) -> list[list[str]] | None:
    """Return the pieces of every component, ``None`` if it can match nothing."""
    out: list[list[str]] = [[]]
    at = 0
    while at < len(glob):
        char = glob[at]
        at += 1
        if char == "\\":
            if at == len(glob):
                return None
            char = glob[at]
            at += 1
            if char != "/":
                out[-1].append(re.escape(char))
                continue
        if char == "/":
            out.append([])
        elif char == "*":
            first = at - 1
            while glob[at : at + 1] == "*":
                at += 1
            alone = not out[-1] and (at == len(glob) or glob[at] == "/" or glob.startswith("\\/", at))
            out[-1].append(_MANY if alone and at - first > 1 else _STAR)
        elif char == "?":
            out[-1].append("[^/]")
        elif char == "[":
            found = _set(glob, at)
            if found is None:
                return None
            out[-1].append(found[0])
            at = found[1]
        else:
            out[-1].append(re.escape(char))
    return out


def _set(glob: str, at: int) -> tuple[str, int] | None:
    """Return the expression of a set of characters and where it ends, ``None`` if it does not."""
    negated = glob[at : at + 1] in ("!", "^")
    at += negated
    items: list[str] = []
    last = ""  # what a range may begin with
    first = True
    while first or glob[at : at + 1] != "]":
        first = False
        char = glob[at : at + 1]
        if not char:
            return None
        if char == "-" and last and glob[at + 1 : at + 2] not in ("", "]"):
            at += 1 + (glob[at + 1] == "\\")
            if not (end := glob[at : at + 1]):
                return None
            if last <= end:
                items.append(f"{re.escape(last)}-{re.escape(end)}")
            last = ""
        elif glob.startswith("[:", at) and (close := glob.find("]", at + 2)) != -1 and glob[close - 1] == ":":
            if (said := _CLASSES.get(glob[at + 2 : close - 1])) is None or close < at + 3:
                return None
            items.append(said)
            at, last = close, ""
        else:
            if glob.startswith("[:", at) and close == -1:
                return None
            at += char == "\\"
            if not (last := glob[at : at + 1]):
                return None
            items.append(re.escape(last))
        at += 1
    every = "".join(items)
    if negated:
        return f"[^/{every}]", at + 1
    return (f"(?!/)[{every}]" if every else "(?!)"), at + 1


def _joined(segments: list[list[str]]) -> str:
    """Return the expression of a whole path."""
    groups: list[list[str]] = [[]]
    for segment in segments:
        if segment == [_MANY]:
            groups.append([])
        else:
            groups[-1].append(_component(segment))
    if len(groups) == 1:
        return "/".join(groups[0])
    head = "/".join(groups[0]) + "/" if groups[0] else ""
    middle = "".join(f"(?>(?:[^/]+/)*?{'/'.join(group)}/)" for group in groups[1:-1] if group)
    return head + middle + (f"(?:[^/]+/)*{'/'.join(groups[-1])}" if groups[-1] else ".+")


def _component(pieces: list[str]) -> str:
    parts: list[list[str]] = [[]]
    for piece in pieces:
        if piece in (_STAR, _MANY):
            parts.append([])
        else:
            parts[-1].append(piece)
    first, *rest = ("".join(part) for part in parts)
    if not rest:
        return first
    return first + "".join(f"(?>[^/]*?{part})" for part in rest[:-1] if part) + "[^/]*" + rest[-1]
