"""Makes the text of our magics reach them as it stands, where IPython would take it for something else.

``%ask bob is it done?`` is a question and not a request for help: a token transformer, so that the
same text inside a string literal stays as it is; ``%ask?`` still shows help. A cell magic without a
body reaches our magic, which says what is missing in an error that fails the cell; IPython's own
complaint is printed and fails nothing. Which magics those are, their definitions say.
"""

from __future__ import annotations

import re
import tokenize
from typing import Any

from IPython.core.inputtransformer2 import (
    TokenTransformBase,
    assemble_continued_line,
    find_end_of_continued_line,
)

from .magic import MAGICS

_CELL = re.compile(r"%%(\w+)(?![\w?])")
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


class FreeText(TokenTransformBase):
    """Rewrites ``%ask …`` and ``x = %ask …`` as calls, whatever stands in the text."""

    priority = 4  # before IPython's own help transformer (5), which begins at the same place

    def __init__(self, start: Any, magic: Any) -> None:
        super().__init__(start)  # type: ignore[no-untyped-call]
        self.magic_line, self.magic_col = magic[0] - 1, magic[1]

    @classmethod
    def find(cls, tokens_by_line: list[list[Any]]) -> FreeText | None:
        """Return a transformer for the first such line, or ``None``."""
        for line in tokens_by_line:
            first = 0
            while first < len(line) and line[first].type in (tokenize.INDENT, tokenize.DEDENT):
                first += 1
            for place in (first, _behind_assignment(line, first)):
                if place is None or place + 1 >= len(line):
                    continue
                if line[place].string == "%" and _takes_text(line[place + 1].string):
                    return cls(line[first].start, line[place].start)
        return None

    def transform(self, lines: list[str]) -> list[str]:
        """Return the lines with the call in place of the magic.

        Raises
        ------
        SyntaxError
            The line asks for help: left to IPython.
        """
        end = find_end_of_continued_line(lines, self.magic_line)
        whole = assemble_continued_line(lines, (self.magic_line, self.magic_col), end)
        found = re.match(r"%(\w+)(.*)", whole, re.DOTALL)
        if found is None or found.group(2).strip() in ("?", "??"):
            raise SyntaxError(whole)
        before = lines[self.magic_line][: self.magic_col]
        call = f"{before}get_ipython().run_line_magic({found.group(1)!r}, {found.group(2).strip()!r})\n"
        return [*lines[: self.magic_line], call, *lines[end + 1 :]]


def _takes_text(name: str) -> bool:
    found = MAGICS.get(name)
    return found is not None and found.free and "line" in found.kinds


def _behind_assignment(line: list[Any], first: int) -> int | None:
    """Return the place after a line's first ``=`` outside brackets."""
    depth = 0
    for place in range(first, len(line)):
        text = line[place].string
        if text == "=" and depth == 0:
            return place + 1
        depth += (text in _OPENING) - (text in _CLOSING)
    return None


def keep_body(lines: list[str]) -> list[str]:
    """Give a cell magic of ours that stands alone an empty line for its body."""
    named = _CELL.match(lines[0]) if len(lines) == 1 else None
    found = MAGICS.get(named[1]) if named is not None else None
    if found is not None and "cell" in found.kinds:
        return [lines[0] if lines[0].endswith("\n") else lines[0] + "\n", "\n"]
    return lines


def install(shell: Any) -> None:
    """Add the transformers to a shell, once."""
    remove(shell)
    shell.input_transformer_manager.token_transformers.append(FreeText)
    shell.input_transformers_cleanup.append(keep_body)


def remove(shell: Any) -> None:
    """Take the transformers out, also those of an earlier import of this module."""
    for transformers in (shell.input_transformer_manager.token_transformers, shell.input_transformers_cleanup):
        transformers[:] = [item for item in transformers if not _ours(item)]


def _ours(item: Any) -> bool:
    return (getattr(item, "__module__", ""), getattr(item, "__qualname__", "")) in (
        (__name__, FreeText.__qualname__),
        (__name__, keep_body.__qualname__),
    )


def without_directives(body: str) -> str:
    """Return a cell's body without leading ``# NBVAL_…`` lines, which are for nbval and not for a model."""
    lines = body.split("\n")
    while lines and lines[0].strip().startswith("# NBVAL_"):
        lines.pop(0)
    return "\n".join(lines)
