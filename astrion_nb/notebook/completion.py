"""Tab completion in the lines of our magics: commands, flags and their values, agents, questions.

A matcher that answers only on our lines and then suppresses the others, so that Python names do not
mix in. Knows the session's names and nothing of how magics work.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

from .args import choices, cursor, options
from .session import Session

_LINE = re.compile(r"^\s*(?:\w+\s*=\s*)?%%?(team|ask|send|answer|astrion)\s(.*)$", re.DOTALL)
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
        if found is None or "\n" in context.full_text[: context.full_text.find(line)].strip():
            return {"completions": [], "suppress": False}
        piece, texts = candidates(session, *found.groups())
        return {
            "completions": [SimpleCompletion(text=text, type="astrion") for text in texts],
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


def candidates(session: Session, magic: str, rest: str) -> tuple[str, list[str]]:
    """Return what may stand at the end of a magic's line.

    Parameters
    ----------
    session : Session
    magic : str
        Without percent signs.
    rest : str
        The line after it, up to the cursor.

    Returns
    -------
    tuple
        The piece written so far, and the texts that may stand in its place.
    """
    from .commands import COMMANDS
    from .magics import ARGUMENTS

    if magic != "astrion":
        return _of(session, ARGUMENTS[magic], rest, _PLACES[magic])
    name, blank, after = rest.lstrip().partition(" ")
    if not blank:
        return name, _beginning([*COMMANDS], name)
    command = COMMANDS.get(name)
    return ("", []) if command is None else _of(session, command.arguments, after, command.candidates)


def _of(session: Session, cls: type[Any], rest: str, places: Callable[[Session], list[str]]) -> tuple[str, list[str]]:
    field, piece = cursor(cls, rest)
    if not field:
        if piece.startswith("--") or (not piece and places is _nothing):
            return piece, _beginning(options(cls), piece)
        return piece, _beginning(places(session), piece)
    values = choices(cls, field) or _VALUES.get(field, _nothing)(session)
    before, comma, last = piece.rpartition(",")
    return piece, [before + comma + text for text in _beginning(list(values), last)]


def _beginning(texts: list[str], piece: str) -> list[str]:
    """Return the texts that begin with a piece, in quotes if it begins with one."""
    quote = piece[:1] if piece[:1] in ("'", '"') else ""
    folded = piece[len(quote) :].casefold()
    return [f"{quote}{text}{quote}" for text in texts if text.casefold().startswith(folded)]


def _nothing(session: Session) -> list[str]:
    return []


def _targets(session: Session) -> list[str]:
    return [*session.names(), "leader"]


def _functions(session: Session) -> list[str]:
    space = session.shell.user_ns
    return sorted(name for name, value in space.items() if not name.startswith("_") and inspect.isfunction(value))


_PLACES: dict[str, Callable[[Session], list[str]]] = {
    "team": _nothing,
    "ask": _targets,
    "send": _targets,
    "answer": Session.question_ids,
}
_VALUES: dict[str, Callable[[Session], list[str]]] = {
    "model": Session.model_keys,
    "all_models": Session.model_keys,
    "roles": Session.role_ids,
    "continue_": Session.conversation_ids,
    "with_": _functions,
}
