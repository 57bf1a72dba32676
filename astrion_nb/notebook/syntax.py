"""Makes ``%ask bob is it done?`` reach the magic instead of IPython's help.

A token transformer, so that the same text inside a string literal stays as it is; ``%ask?`` still
shows help. It looks only at lines that begin with one of the magics that carry free text.
"""

from __future__ import annotations

from typing import Any

from IPython.core.inputtransformer2 import TokenTransformBase

MAGICS = frozenset({"ask", "send", "answer"})


class QuestionMark(TokenTransformBase):
    """Rewrites ``%ask … ?`` and ``name = %ask … ?`` as a call, verbatim."""

    priority = 4  # before IPython's own help transformer (5), which would take the line

    @classmethod
    def find(cls, tokens_by_line: list[list[Any]]) -> QuestionMark | None:
        """Return a transformer for the first such line, or ``None``."""
        for line in tokens_by_line:
            tokens = [token for token in line if token.string.strip()]
            place = 0
            if len(tokens) > 2 and tokens[1].string == "=" and tokens[0].string.isidentifier():
                place = 2
            if len(tokens) <= place + 2 or tokens[place].string != "%" or tokens[place + 1].string not in MAGICS:
                continue
            text = tokens[place].line.rstrip("\n")
            after = text[tokens[place + 1].end[1] :]
            if text.rstrip().endswith("?") and after.strip(" ?"):
                return cls(tokens[place].start)
        return None

    def transform(self, lines: list[str]) -> list[str]:
        """Return the lines with the call in place of the magic."""
        line = lines[self.start_line]
        indent, rest = line[: self.start_col], line[self.start_col :].rstrip("\n")
        name, _, text = rest[1:].partition(" ")
        call = f"{indent}get_ipython().run_line_magic({name!r}, {text.strip()!r})\n"
        return [*lines[: self.start_line], call, *lines[self.start_line + 1 :]]


def install(shell: Any) -> None:
    """Add the transformer to a shell, once."""
    transformers = shell.input_transformer_manager.token_transformers
    remove(shell)
    transformers.append(QuestionMark)


def remove(shell: Any) -> None:
    """Take the transformer out, also one of an earlier import of this module."""
    transformers = shell.input_transformer_manager.token_transformers
    transformers[:] = [item for item in transformers if item.__qualname__ != "QuestionMark"]


def without_directives(body: str) -> str:
    """Return a cell's body without leading ``# NBVAL_…`` lines, which are for nbval and not for a model."""
    lines = body.split("\n")
    while lines and lines[0].strip().startswith("# NBVAL_"):
        lines.pop(0)
    return "\n".join(lines)
