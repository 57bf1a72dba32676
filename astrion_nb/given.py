"""What a caller hands in: the checks that public functions begin with, and their one-line errors.

Each check takes the name under which the caller knows the value, such as ``Team: mode``, and says
what was given and what is to be given instead. A value may be anything, also one whose ``repr``
fails or is many lines long. Knows no particular function, and changes nothing.
"""

from __future__ import annotations

import math
import numbers
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .errors import AstrionError, ConfigError

LONGEST = 60
"""Characters of a value that an error shows."""
LONGEST_NAME = 255
"""Bytes of a file's name, on every file system in use."""
_CONTROL = re.compile("[\x00-\x1f\x7f]")
Refusal = Callable[[str], AstrionError]


def shown(value: object) -> str:
    """Return a value as one short line, whatever its ``repr`` does."""
    # Of a long text only the beginning is written out.
    piece = value[: 2 * LONGEST] if isinstance(value, (str, bytes)) else value
    try:
        text = " ".join(repr(piece).split())
    except Exception:
        text = f"a {type(value).__name__}"
    text = "".join(char if char.isprintable() else "\ufffd" for char in text)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def refused(what: str, value: object, todo: str, error: Refusal = ConfigError) -> AstrionError:
    """Return the error for a value that cannot be taken; the caller raises it."""
    return error(f"{what} is {shown(value)}; {todo}")


def text(
    what: str, value: object, *, empty: str | None = None, none: bool = False, error: Refusal = ConfigError
) -> None:
    """Refuse what is no text.

    Parameters
    ----------
    what : str
        The caller's name of the value.
    value : object
    empty : str, optional
        What to do about an empty or blank text; without it such a text is taken.
    none : bool
        Whether ``None`` is taken.
    error : callable
        The class of the error.

    Raises
    ------
    AstrionError
        Of the class ``error``, as by every check here.
    """
    if value is None and none:
        return
    if not isinstance(value, str):
        raise refused(what, value, "it must be a text" + (", or None" if none else ""), error)
    if empty is not None and not value.strip():
        raise error(f"{what} is empty; {empty}")


def seconds_text(number: float) -> str:
    """Return seconds in words: ``1 second``, ``2.5 seconds``."""
    return f"{number:g} second{'' if number == 1 else 's'}"


def one_of(
    what: str, value: object, allowed: Iterable[str], *, none: bool = False, error: Refusal = ConfigError
) -> None:
    """Refuse what is not one of a few words."""
    known = tuple(allowed)
    if not (isinstance(value, str) and value in known) and not (none and value is None):
        raise refused(what, value, f"use one of {', '.join(known)}" + (", or None" if none else ""), error)


def switch(what: str, value: object, *, none: bool = False, error: Refusal = ConfigError) -> None:
    """Refuse what is neither ``True`` nor ``False``."""
    if not isinstance(value, bool) and not (none and value is None):
        raise refused(what, value, "use True or False" + (", or None" if none else ""), error)


def number(
    what: str,
    value: object,
    *,
    whole: bool = False,
    least: int | None = None,
    none: str = "",
    error: Refusal = ConfigError,
) -> None:
    """Refuse what is no finite number in its bounds.

    Parameters
    ----------
    what : str
    value : object
    whole : bool
        Whether it has to be an integer.
    least : int, optional
        The smallest that is taken; without it every number above 0.
    none : str
        What ``None`` stands for, where it is taken; ``None`` is refused where this is empty.
    error : callable
    """
    if value is None and none:
        return
    if not isinstance(value, bool) and isinstance(value, numbers.Integral if whole else numbers.Real):
        size = _size(value)
        if math.isfinite(size) and (size > 0 if least is None else size >= least):
            return
    bound = "above 0" if least is None else f"from {least} on"
    ending = f", or None for {none}" if none else ""
    raise refused(what, value, f"use a {'whole ' if whole else ''}number {bound}{ending}", error)


def _size(value: Any) -> float:
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError):  # beyond any float
        return math.inf


def agent(what: str, value: object) -> None:
    """Refuse what can be nobody's name or number."""
    if isinstance(value, bool) or not isinstance(value, (str, numbers.Integral)) or not str(value).strip():
        raise refused(what, value, "use a display name, an agent_id, or 'leader'")


def seconds(what: str, value: object) -> None:
    """Refuse what is no time limit; ``None`` is none."""
    number(what, value, none="no limit")


def path(what: str, value: object, *, none: bool = True, error: Refusal = ConfigError) -> None:
    """Refuse what cannot name a file or a folder, or could not be shown in one line."""
    if value is None and none:
        return
    if isinstance(value, (str, os.PathLike)):
        try:
            name = os.fspath(value)
            if isinstance(name, str) and _nameable(name):
                return
        except Exception:
            raise refused(what, value, "its name cannot be read; use a text", error) from None
    raise refused(what, value, "it must be a path" + (", or None" if none else ""), error)


def _nameable(name: str) -> bool:
    if _CONTROL.search(name):
        return False
    try:
        return all(len(os.fsencode(part)) <= LONGEST_NAME for part in name.split(os.sep))
    except UnicodeEncodeError:  # half a surrogate pair
        return False


def items(what: str, value: object, todo: str, *, error: Refusal = ConfigError) -> tuple[Any, ...]:
    """Return the items of a list, tuple or other iterable; a text or a mapping is none.

    Parameters
    ----------
    what : str
    value : object
    todo : str
        What to give instead.
    error : callable
    """
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, bytearray, Mapping)):
        try:
            return tuple(value)
        except Exception:
            raise refused(what, value, todo, error) from None
    raise refused(what, value, todo, error)
