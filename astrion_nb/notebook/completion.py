"""Tab completion in the lines of our magics: commands, flags, agents, roles, models, questions.

A matcher that answers only on our lines and then suppresses the others, so that Python names do not
mix in. Knows the session's names and nothing of how magics work.
"""

from __future__ import annotations

import re
from typing import Any

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
        magic, rest = found.groups()
        word = re.search(r"\S*$", rest)
        prefix = word.group() if word else ""
        options = [text for text in candidates(session, magic, rest) if text.startswith(prefix)]
        return {
            "completions": [SimpleCompletion(text=text, type="astrion") for text in options],
            "matched_fragment": prefix,
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


def candidates(session: Session, magic: str, rest: str) -> list[str]:
    """Return what may stand at the end of a magic's line.

    Parameters
    ----------
    session : Session
    magic : str
        Without percent signs.
    rest : str
        The line after it, up to the cursor.
    """
    from .args import options
    from .commands import COMMANDS
    from .magics import ARGUMENTS

    words = rest.split()
    before = words if rest.endswith((" ", "\t")) or not words else words[:-1]
    current = "" if before == words else words[-1]
    if magic == "astrion":
        if not before:
            return [*COMMANDS]
        command = COMMANDS.get(before[0])
        if command is None:
            return []
        return options(command.arguments) if current.startswith("--") else command.candidates(session)
    if current.startswith("--"):
        return options(ARGUMENTS[magic])
    last = before[-1] if before else ""
    if magic == "team":
        if last in ("--model", "--all-models"):
            return list(session.config().keys)
        if last == "--roles":
            return session.role_ids()
        return options(ARGUMENTS[magic])
    if [word for word in before if not word.startswith("--")]:
        return []
    if magic == "answer":
        return session.question_ids()
    return [f'"{name}"' if " " in name else name for name in [*session.names(), "leader"]]
