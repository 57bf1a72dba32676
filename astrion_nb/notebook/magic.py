"""What a magic is: one definition, from which all that knows magics by name derives.

A magic is a method of ``AstrionMagics`` under :func:`magic`. Its name, its flags, where it may stand,
whether text follows and what completes it are said there and nowhere else: help, Tab, the treatment
of its text and unloading read :data:`MAGICS`. Knows no particular magic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal

from IPython.core.magic import cell_magic, line_cell_magic, line_magic, no_var_expand

from ..errors import ConfigError, TeamError
from .args import Help, parse

if TYPE_CHECKING:
    from .commands import Command
    from .session import Session

Kind = Literal["line", "cell"]
Names = Callable[["Session"], list[str]]
_REGISTERED: Mapping[frozenset[str], Any] = {
    frozenset({"line"}): line_magic,
    frozenset({"cell"}): cell_magic,
    frozenset({"line", "cell"}): line_cell_magic,
}


def nothing(session: Session) -> list[str]:
    """Where nothing can be named."""
    return []


@dataclass(frozen=True)
class Magic:
    """A magic.

    Parameters
    ----------
    name : str
        Without percent signs.
    arguments : type or None
        The dataclass of its flags; ``None`` for one that consists of commands.
    kinds : frozenset of {"line", "cell"}
        Where it may stand: ``%name``, ``%%name`` with a body, or both.
    free : bool
        Whether free text follows on its line: then no question mark at its end asks for help.
    places : callable
        ``places(session)``: what may stand behind the flags.
    commands : mapping
        What its first word may be, with the flags of each.
    """

    name: str
    arguments: type[Any] | None
    kinds: frozenset[Kind]
    free: bool = False
    places: Names = nothing
    commands: Mapping[str, Command] | None = None

    @property
    def written(self) -> str:
        """Its name as a person writes it: ``%ask``, ``%%team``."""
        return ("%" if "line" in self.kinds else "%%") + self.name


MAGICS: dict[str, Magic] = {}
"""Every magic, by its name."""


def magic(
    arguments: type[Any] | None,
    *kinds: Kind,
    free: bool = False,
    places: Names = nothing,
    commands: Mapping[str, Command] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a method the magic of its name; see :class:`Magic`.

    The method gets its arguments, the rest of the line as it stands, and the body or ``None``; one
    without flags of its own gets the line. ``--help`` is answered here, and before anything else is
    done it is said what went wrong meanwhile.

    Raises
    ------
    ConfigError
        There is a magic of that name.
    """

    def define(method: Callable[..., Any]) -> Callable[..., Any]:
        made = Magic(method.__name__, arguments, frozenset(kinds), free, places, commands)
        if made.name in MAGICS:
            raise ConfigError(f"there are two magics {made.written}")
        MAGICS[made.name] = made

        def act(self: Any, line: str, cell: str | None) -> Any:
            if arguments is None:
                return method(self, line)
            try:
                said, rest = parse(arguments, line, magic=made.written)
            except Help as text:
                print(text)
                return None
            self.session.surface()
            return method(self, said, rest, cell)

        @wraps(method)
        def run(self: Any, line: str, cell: str | None = None) -> Any:
            try:
                return act(self, line, cell)
            except KeyboardInterrupt:  # what a wait makes of one is said where it waits
                raise TeamError(
                    f"{made.written}: interrupted before it was done; %astrion shows how things stand"
                ) from None

        if arguments is not None:  # what %name? shows
            run.__doc__ = f"{(method.__doc__ or '').strip()}\n\n{made.written} --help lists its flags."
        registered: Callable[..., Any] = no_var_expand(_REGISTERED[made.kinds](run))
        return registered

    return define
