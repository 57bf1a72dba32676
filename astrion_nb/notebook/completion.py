"""Tab completion in the lines of our magics: commands, flags and their values, agents, questions.

A matcher that answers only on our lines and then suppresses the others, so that Python names do not
mix in. What completes what, the definitions of magics, commands and flags say.
"""

from __future__ import annotations

import re
from typing import Any

from .args import cursor, named, options
from .magic import MAGICS, Magic, Names
from .session import Session

_LINE = re.compile(r"^\s*(?:\w+\s*=\s*)?%%?(\w+)\s(.*)$", re.DOTALL)
_NAME = "_astrion_matcher"


def install(shell: Any, session: Session) -> None:
    """Add the matcher to a shell's completer, once."""
    from IPython.core.completer import SimpleCompletion, context_matcher

    remove(shell)
    if getattr(shell, "Completer", None) is None:
        return

    @context_matcher(identifier=_NAME)  # type: ignore[untyped-decorator]
    def matcher(context: Any) -> Any:
        # Only the cell's first line can be ours, and only up to the cursor.
        line = context.text_until_cursor.split("\n")[-1]
        found = _LINE.match(line)
        magic = MAGICS.get(found[1]) if found is not None else None
        if magic is None or "\n" in context.full_text[: context.full_text.find(line)].strip():
            return {"completions": [], "suppress": False}
        assert found is not None
        piece, texts = candidates(session, magic, found[2])
        return {
            # Where nothing can be named, what is written stays: of an empty list IPython suppresses nobody.
            "completions": [SimpleCompletion(text=text, type="astrion") for text in texts or [piece]],
            "matched_fragment": piece,
            "suppress": True,
        }

    shell.Completer.custom_matchers.append(matcher)


def remove(shell: Any) -> None:
    """Take the matcher out."""
    completer = getattr(shell, "Completer", None)
    if completer is not None:
        completer.custom_matchers[:] = [
            item for item in completer.custom_matchers if getattr(item, "matcher_identifier", "") != _NAME
        ]


def candidates(session: Session, magic: Magic, rest: str) -> tuple[str, list[str]]:
    """Return what may stand at the end of a magic's line.

    Parameters
    ----------
    session : Session
    magic : Magic
    rest : str
        The line after its name, up to the cursor.

    Returns
    -------
    tuple
        The piece written so far, and the texts that may stand in its place.
    """
    if magic.commands is None:
        return _of(session, magic.arguments, rest, magic.places)
    name, blank, after = rest.lstrip().partition(" ")
    if not blank:
        return name, _beginning([*magic.commands], name)
    command = magic.commands.get(name)
    return (after, []) if command is None else _of(session, command.arguments, after, command.candidates)


def _of(session: Session, cls: Any, rest: str, places: Names) -> tuple[str, list[str]]:
    field, piece = cursor(cls, rest)
    if not field:
        behind = _beginning(places(session), piece)
        if piece.startswith("--") or (not piece and not behind):
            return piece, _beginning(options(cls), piece)
        return piece, behind
    before, comma, last = piece.rpartition(",")
    return piece, [before + comma + text for text in _beginning(list(named(cls, field, session)), last)]


def _beginning(texts: list[str], piece: str) -> list[str]:
    """Return the texts that begin with a piece, in quotes if it begins with one."""
    quote = piece[:1] if piece[:1] in ("'", '"') else ""
    folded = piece[len(quote) :].casefold()
    return [f"{quote}{text}{quote}" for text in texts if text.casefold().startswith(folded)]
