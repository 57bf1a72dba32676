"""Ids of envelopes and stored messages, and the names that agents are shown by.

Everything comes from counters: no clock, no random. An id counts as taken once it has been
published; a book of taken ids is all the state that minting needs, so nothing else is stored.

Source: message protocol §5, data model §5 and §7, decisions 1, 3, 4, 5.
"""

from __future__ import annotations

import re

LEADER_NAME = "Team Leader"
LEADER_ABBREVIATION = "tl"
LEADER_ID = 0
"""The leader's number inside the runtime; files never print it."""
HUMAN_ID = -1
"""The person's number inside the runtime; files never print it."""

_WELL_FORMED = re.compile(r"[A-Za-z0-9_-]{1,64}")
_WORDS = re.compile(r"[A-Za-z0-9]+")


def well_formed(supplied: object) -> bool:
    """Say whether an id that a model supplied can be kept (decision 4)."""
    return isinstance(supplied, str) and _WELL_FORMED.fullmatch(supplied) is not None


def display_name(role_name: str, instance: int) -> str:
    """Return ``{Role Name}_{instance}`` (message protocol §1, decision 1)."""
    return f"{role_name}_{instance}"


def initials(name: str) -> str:
    """Return the initials of a role's name in lower case; an all-capital word counts whole.

    Parameters
    ----------
    name : str
        ``UI Operator`` gives ``uio``, ``Full-Stack Engineer`` gives ``fse``.

    Returns
    -------
    str
        Empty when the name has no ASCII letter.
    """
    words = _WORDS.findall(name)
    if not any(character.isascii() and character.isalpha() for character in name):
        return ""
    return "".join(word if word.isupper() else word[0] for word in words).lower()


def abbreviation(role_name: str, role_id: str, held: dict[str, str]) -> str:
    """Return the abbreviation under which a role's ids count (decision 3).

    Parameters
    ----------
    role_name, role_id : str
    held : dict
        Abbreviation → role id, for the roles of this conversation so far.

    Returns
    -------
    str
        The initials, or the role id cut to 32 characters when the name has no ASCII letters or
        another role holds the initials; of a role id that another program has chosen, what can stand in an id.
    """
    short = initials(role_name)[:32]
    if short and short != LEADER_ABBREVIATION and held.get(short, role_id) == role_id:
        return short
    return "".join(re.findall(r"[A-Za-z0-9_-]", role_id))[:32] or "agent"


class IdBook:
    """The ids that a conversation has used; mints the next one.

    The counters are a cache: the lowest free number is always the next, and every number below
    it is taken, so a book rebuilt from stored ids mints what the old one would have minted.
    """

    __slots__ = ("_next", "_taken")

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def __contains__(self, message_id: object) -> bool:
        return message_id in self._taken

    def take(self, message_id: str) -> None:
        """Record that an id is used. Taking one twice is harmless."""
        self._taken.add(message_id)

    def free(self, prefix: str, abbreviation: str = "") -> str:
        """Return the next free ``{prefix}_{abbreviation}_{nnn}``, without taking it.

        Parameters
        ----------
        prefix : str
            ``task``, ``out``, ``ask``, ``ans`` or ``msg``.
        abbreviation : str
            Empty for tasks.
        """
        stem = f"{prefix}_{abbreviation}_" if abbreviation else f"{prefix}_"
        number = self._next.get(stem, 1)
        while f"{stem}{number:03d}" in self._taken:
            number += 1
        self._next[stem] = number
        return f"{stem}{number:03d}"
