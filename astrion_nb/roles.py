"""Roles on disk: what kind of agent can be created, read from and written to ``agents/<role_id>.md``.

What a role is, :mod:`~astrion_nb.role` says; its file is YAML frontmatter and a Markdown body, the role's own prompt
(data model §2, decision 32). The folder is shared with other applications: nothing but
``<role_id>.md`` is ever written there, and never over a file that exists unless the caller says
so. Shipped roles are copied into it once. This module does not know models, agents or
conversations; whether a model key is configured is not its concern.
"""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from . import given
from .disk import write_atomic
from .errors import RoleError, RoleFileError
from .home import Home, Language, as_home, builtin_roles, language
from .lock import locked
from .role import FIELDS, MAX_NAME, Role, ThinkingMode, check_id, check_role, name_problems, validate

if TYPE_CHECKING:
    from .rolefile import Parts

__all__ = [
    "MAX_NAME",
    "Role",
    "RoleSet",
    "ThinkingMode",
    "builtin_ids",
    "check_id",
    "ensure_builtin",
    "in_language",
    "list",
    "list_roles",
    "load",
    "load_file",
    "save",
    "validate",
]

# What other writers of these files put for the two modes (decision 26).
_THINKING: Mapping[str, ThinkingMode] = {
    **dict.fromkeys(("thinking", "deep", "true", "yes", "on"), "thinking"),
    **dict.fromkeys(("fast", "false", "no", "off"), "fast"),
}
_NULL = frozenset({"", "~", "null"})


@dataclass(frozen=True, slots=True)
class RoleSet:
    """What the agents directory holds.

    Parameters
    ----------
    roles : tuple of Role
        Sorted by id.
    errors : tuple of RoleFileError
        The files that cannot be used, each with what is wrong and where.
    """

    roles: tuple[Role, ...]
    errors: tuple[RoleFileError, ...] = ()

    def __iter__(self) -> Iterator[Role]:
        return iter(self.roles)

    def __len__(self) -> int:
        return len(self.roles)

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the roles that can be used."""
        return tuple(role.id for role in self.roles)

    def get(self, role_id: str) -> Role | None:
        """Return the role of that id, or ``None``."""
        return next((role for role in self.roles if role.id == role_id), None)


def load(role_id: str, home: Home | Path | str | None = None) -> Role:
    """Read one role from the agents directory.

    Parameters
    ----------
    role_id : str
        Its id.
    home : Home or path, optional
        Default: the home of the environment.

    Raises
    ------
    RoleError
        The id is not well formed, or there is no such role (known ones are named).
    RoleFileError
        Its file cannot be used.
    """
    check_id(role_id)
    home = as_home("roles.load: home", home)
    ensure_builtin(home)
    path = home.agents / f"{role_id}.md"
    if not path.is_file():
        known = [role.id for role in list_roles(home).roles]
        close = difflib.get_close_matches(role_id, known, 1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise RoleError(f"there is no role {role_id!r}; {hint}known roles: {', '.join(known) or 'none'}")
    return load_file(path)


def load_file(path: Path | str) -> Role:
    """Read one role file, wherever it lies.

    The file's name, without ``.md``, has to be the role's id. A missing id is taken from it, and a
    missing description is left empty, each with a warning.

    Raises
    ------
    RoleFileError
        The file cannot be read or used; file and line are named.
    """
    from . import rolefile

    given.path("roles.load_file: path", path, none=False, error=RoleError)
    path = Path(path)
    try:
        # Opening a pipe would wait until somebody writes to it.
        if path.exists() and not path.is_file():
            raise RoleFileError("is not a file", file=path.name)
        data = path.read_bytes()
    except OSError as error:
        raise RoleFileError(f"cannot be read ({error.strerror or error})", file=path.name) from error
    return _build(rolefile.parse(data, path.name), path)


def list_roles(home: Home | Path | str | None = None) -> RoleSet:
    """Read all roles of the agents directory; files that cannot be used are reported, not raised.

    Parameters
    ----------
    home : Home or path, optional
        Default: the home of the environment.
    """
    home = as_home("roles.list: home", home)
    ensure_builtin(home)
    roles: dict[str, Role] = {}
    errors: dict[str, RoleFileError] = {}
    for path in sorted(home.agents.glob("*.md")):
        if path.name.startswith(".") or path.is_dir():
            continue
        try:
            role = load_file(path)
        except RoleFileError as error:
            errors[path.name] = error
        else:
            roles[role.id] = role
    return RoleSet(tuple(roles[role_id] for role_id in sorted(roles)), tuple(errors[name] for name in sorted(errors)))


def save(role: Role, *, overwrite: bool = False, home: Home | Path | str | None = None) -> Role:
    """Write a role to the agents directory.

    Parameters
    ----------
    role : Role
        What to write. Line ends in the prompt become LF.
    overwrite : bool
        Replace an existing file of that id; without it an existing file is never touched.
    home : Home or path, optional
        Default: the home of the environment.

    Returns
    -------
    Role
        The role as it is now on disk.

    Raises
    ------
    RoleError
        A field is not well formed, or the role exists and ``overwrite`` is false.
    StorageError
        The file cannot be written.
    """
    from . import rolefile

    given.switch("roles.save: overwrite", overwrite, error=RoleError)
    if problems := validate(role):
        raise RoleError("; ".join(problems))
    home = as_home("roles.save: home", home)
    # A shipped role that has not been copied yet exists too, and must not be shadowed by accident.
    ensure_builtin(home)
    path = home.agents / f"{role.id}.md"
    data = rolefile.render(_frontmatter(role), role.prompt)
    try:
        write_atomic(path, data, exclusive=not overwrite)
    except FileExistsError:
        raise RoleError(f"the role {role.id!r} exists already: choose another id, or overwrite it") from None
    return load_file(path)


def ensure_builtin(home: Home | Path | str | None = None, lang: Language | None = None) -> tuple[str, ...]:
    """Copy the shipped roles that were never offered to this home into its agents directory.

    A file that exists is left as it is, and a role that a person deleted does not come back: which
    roles were offered is remembered in ``astrion_nb/offered-roles.json`` (delete that file to get
    them again). Safe to call from several processes at once.

    Parameters
    ----------
    home : Home or path, optional
        Default: the home of the environment.
    lang : {"zh", "en"}, optional
        Language of the prompts; default by :func:`astrion_nb.home.language`.

    Returns
    -------
    tuple of str
        Ids of the roles that were copied now.

    Raises
    ------
    StorageError
        A file cannot be written.
    """
    given.one_of("roles.ensure_builtin: lang", lang, get_args(Language), none=True, error=RoleError)
    home = as_home("roles.ensure_builtin: home", home)
    shipped = builtin_ids()
    if shipped <= _offered(home):
        return ()
    source = builtin_roles() / (lang or language())
    copied = []
    with locked(home.lock_file("roles")):
        offered = _offered(home)
        for role_id in sorted(shipped - offered):
            try:
                write_atomic(home.agents / f"{role_id}.md", (source / f"{role_id}.md").read_bytes(), exclusive=True)
            except FileExistsError:
                continue
            copied.append(role_id)
        memory = json.dumps({"offered": sorted(offered | shipped)}, ensure_ascii=False, indent=2)
        # A lone surrogate, which has no UTF-8 form, stays the escape that it was read from.
        write_atomic(home.offered_file, memory.encode("utf-8", "backslashreplace"))
    return tuple(copied)


@functools.cache
def builtin_ids() -> frozenset[str]:
    """Return the ids of the roles that come with the package."""
    return frozenset(path.stem for path in (builtin_roles() / "en").glob("*.md"))


def in_language(role: Role, lang: Language) -> Role:
    """Return a role as it is shipped in a language; one that is not shipped, or was changed, as it is.

    Parameters
    ----------
    role : Role
    lang : {"zh", "en"}
    """
    check_role("roles.in_language", role)
    given.one_of("roles.in_language: lang", lang, get_args(Language), error=RoleError)
    if role.id not in builtin_ids():
        return role
    shipped = _shipped(role.id)
    return shipped[lang] if role in shipped.values() else role


@functools.cache
def _shipped(role_id: str) -> Mapping[Language, Role]:
    return {name: load_file(builtin_roles() / name / f"{role_id}.md") for name in get_args(Language)}


def _offered(home: Home) -> frozenset[str]:
    """Read which shipped roles were offered; a missing or broken memory means none."""
    try:
        offered = json.loads(home.offered_file.read_bytes())["offered"]
        return frozenset(role_id for role_id in offered if isinstance(role_id, str))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return frozenset()


def _frontmatter(role: Role) -> dict[str, Any]:
    """Return keys and values to write: the order of the file it came from, then the data model's."""
    values: dict[str, Any] = {"id": role.id, "name": role.name, "description": role.description}
    if role.model is not None:
        values["model"] = role.model
    if role.thinking_mode is not None:
        values["thinking_mode"] = role.thinking_mode
    for key, value in role.extra.items():
        values.setdefault(key, value)
    order = [key for key in role.keys if key in values]
    return {key: values[key] for key in [*order, *(key for key in values if key not in order)]}


def _build(parts: Parts, path: Path) -> Role:
    """Give the parts of a file their meaning, and say what had to be assumed."""
    file, stem = path.name, path.stem
    warnings = list(parts.warnings)

    def place(key: str) -> str:
        return f"{file}, line {parts.lines[key]}" if key in parts.lines else file

    def text(key: str) -> str | None:
        value = parts.values.get(key)
        if value is None or _is_null(value):
            return None
        if not isinstance(value, str):
            raise RoleFileError(f"{key!r} has to be text", file=file, line=parts.lines.get(key))
        return str(value)

    role_id = text("id")
    if role_id is None:
        role_id = stem
        warnings.append(f"{file}: has no id; {stem!r} is taken from the file's name")
    try:
        check_id(role_id)
    except RoleError as error:
        raise RoleFileError(str(error), file=file, line=parts.lines.get("id")) from None
    if role_id != stem:
        raise RoleFileError(
            f"the id is {role_id!r} and the file's name says {stem!r}: rename one of them",
            file=file,
            line=parts.lines.get("id"),
        )
    name = text("name")
    if name is None:
        raise RoleFileError("has no name: add a line 'name: …' to the frontmatter", file=file, line=1)
    name = name.strip()
    if problems := name_problems(name):
        raise RoleFileError(problems[0], file=file, line=parts.lines.get("name"))
    description = text("description")
    if description is None:
        warnings.append(f"{place('description')}: has no description; a leader will not know what the role is for")
    model = text("model")
    extra = {key: value for key, value in parts.values.items() if key not in FIELDS}
    mode = text("thinking_mode")
    thinking_mode = None if mode is None else _THINKING.get(mode.strip().lower())
    if mode is not None and thinking_mode is None:
        extra["thinking_mode"] = mode
        warnings.append(
            f"{place('thinking_mode')}: thinking_mode {mode!r} is neither 'fast' nor 'thinking' and is not used"
        )
    return Role(
        id=role_id,
        name=name,
        description=description or "",
        prompt=parts.body,
        model=model.strip() or None if model is not None else None,
        thinking_mode=thinking_mode,
        extra=extra,
        path=path,
        preset=role_id in builtin_ids(),
        warnings=tuple(warnings),
        keys=tuple(parts.values),
    )


def _is_null(value: Any) -> bool:
    from .rolefile import Bare

    return value == "" or (isinstance(value, Bare) and value.lower() in _NULL)


def __getattr__(name: str) -> Callable[..., RoleSet]:
    # `roles.list` is the public name; a global of that name would hide the builtin in this module.
    if name == "list":
        return list_roles
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
