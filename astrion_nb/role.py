"""What a role is: a frozen value, and the rules that its fields have to keep.

Data model §2; decision 32. Knows no file and no folder: reading and writing is
:mod:`~astrion_nb.roles`'s matter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from . import given
from .errors import RoleError

ThinkingMode = Literal["fast", "thinking"]

ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
MAX_NAME = 100
FIELDS = ("id", "name", "description", "model", "thinking_mode")
"""The keys of a role file that are fields of a role."""
# Line ends of any kind and control characters: a name stands alone in an envelope's first line.
# Among them those that turn the direction of what follows: a name would read as another one.
_UNNAMEABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Role:
    """A kind of agent.

    Parameters
    ----------
    id : str
        ``[a-z0-9][a-z0-9_-]{0,63}``; also the name of its file.
    name : str
        Display name; its agents are shown as ``{name}_{n}``.
    description : str
        One or two sentences by which a leader chooses it.
    prompt : str
        The role's own part of the system prompt, Markdown.
    model : str, optional
        Model key that its agents use unless the creator says otherwise.
    thinking_mode : {"fast", "thinking"}, optional
        Mode that its agents use unless the creator says otherwise.
    extra : mapping
        Keys of the file that this package does not know, in their order; they survive a save.
    path : Path, optional
        Where it was read from.
    preset : bool
        It bears the id of a role that comes with the package.
    warnings : tuple of str
        What was assumed when it was read, each naming file and line.
    keys : tuple of str
        Order of the keys in its file, kept by a save.

    Raises
    ------
    RoleError
        A field is not of its type. What its text may be, :func:`validate` says.

    Notes
    -----
    Data model §2; decision 32.
    """

    id: str
    name: str
    description: str
    prompt: str = ""
    model: str | None = None
    thinking_mode: ThinkingMode | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    path: Path | None = field(default=None, compare=False)
    preset: bool = field(default=False, compare=False)
    warnings: tuple[str, ...] = field(default=(), compare=False)
    keys: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("id", "name", "description", "prompt", "model", "thinking_mode"):
            none = name in ("model", "thinking_mode")
            given.text(f"Role: {name}", getattr(self, name), none=none, error=RoleError)
        if not isinstance(self.extra, Mapping) or not all(isinstance(key, str) for key in self.extra):
            raise given.refused("Role: extra", self.extra, "use a mapping of texts to values", RoleError)
        if self.path is not None and not isinstance(self.path, Path):
            raise given.refused("Role: path", self.path, "use a Path, or None", RoleError)
        given.switch("Role: preset", self.preset, error=RoleError)
        for name in ("warnings", "keys"):
            value = getattr(self, name)
            if not isinstance(value, tuple) or not all(isinstance(item, str) for item in value):
                raise given.refused(f"Role: {name}", value, "use a tuple of texts", RoleError)

    def system_prompt(self, base: str) -> str:
        """Return the system prompt that is frozen into an agent when it is created.

        Parameters
        ----------
        base : str
            The base prompt for members.

        Returns
        -------
        str
            Base prompt, an empty line, the role's prompt as it stands (data model §2).
        """
        return f"{base.rstrip()}\n\n{self.prompt}" if self.prompt.strip() else base.rstrip()


def validate(role: Role) -> tuple[str, ...]:
    """Return what keeps a role from being written, one line each; empty when it is well formed.

    Reading is more tolerant than this (see :func:`load_file`).
    """
    problems = _problems(role)
    if not role.description.strip():
        problems.append("the role has no description: say in one sentence what it is for")
    return tuple(problems)


def check_role(what: str, role: object) -> None:
    """Refuse what is neither the id of a role nor a role that agents can be created from.

    Raises
    ------
    RoleError
    """
    if isinstance(role, str):
        check_id(role)
    elif problems := _problems(role):
        raise RoleError(f"{what}: {problems[0]}")


def _problems(role: object) -> list[str]:
    """Return what keeps a role from being used."""
    if not isinstance(role, Role):
        raise RoleError(f"{given.shown(role)} is not a role; use Role(id, name, description, prompt) or a role's id")
    problems: list[str] = []
    try:
        check_id(role.id)
    except RoleError as error:
        problems.append(str(error))
    problems += name_problems(role.name)
    if role.thinking_mode not in (None, "fast", "thinking"):
        problems.append(f"thinking_mode is {role.thinking_mode!r}; it can be 'fast' or 'thinking'")
    if role.model is not None and (not role.model.strip() or _UNNAMEABLE.search(role.model)):
        problems.append(f"the model key {role.model!r} is empty or holds a line break")
    if clash := [key for key in role.extra if key in FIELDS and key != "thinking_mode"]:
        problems.append(f"the extra key {clash[0]!r} is a field of its own")
    problems += [
        f"the {name} holds a lone surrogate character, which no file can hold"
        for name in ("description", "prompt")
        if any("\ud800" <= char <= "\udfff" for char in getattr(role, name))
    ]
    return problems


def check_id(role_id: str) -> None:
    """Refuse what cannot be a role id, and so cannot become a path.

    Raises
    ------
    RoleError
        It is not 1 to 64 lower-case letters, digits, ``-`` and ``_`` beginning with a letter or digit.
    """
    if not isinstance(role_id, str) or not ID.fullmatch(role_id):
        raise RoleError(
            f"{given.shown(role_id)} is not a role id: use 1 to 64 lower-case letters, digits, '-' and '_', "
            "beginning with a letter or a digit"
        )


def name_problems(name: str) -> list[str]:
    """Return what keeps a text from being a role's name."""
    if not name.strip():
        return ["the role has no name"]
    if len(name) > MAX_NAME:
        return [f"the name is {len(name)} characters long; {MAX_NAME} is the limit"]
    if _UNNAMEABLE.search(name) or name != name.strip():
        return [f"the name {name!r} holds a line break, a control character or outer spaces"]
    return []
