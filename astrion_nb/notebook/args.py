"""The lines of magics: typed arguments, leading flags, the rest verbatim.

A magic's arguments are a dataclass; each field made by :func:`flag` is a flag. Flags stand first,
``--name value``, ``--name=value`` or ``--name`` for switches; values may be quoted. Everything after
them is the caller's text and is not touched: apostrophes, braces, dollars and question marks stay.
``--help`` is generated from the same fields. Knows no shell and no team.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from .. import given
from ..errors import ConfigError
from ..render.columns import aligned

A = TypeVar("A")
_TOKEN = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|(\S+))""")


class Help(Exception):
    """``--help`` was asked for; carries the text."""


def flag(
    default: Any = None,
    help: str = "",
    *,
    value: str = "",
    choices: tuple[str, ...] = (),
    bare: str | None = None,
    no: str = "",
    names: Callable[[Any], Sequence[str]] | None = None,
) -> Any:
    """Make a dataclass field a flag.

    Parameters
    ----------
    default : object
        ``None``, ``False`` for a switch.
    help : str
        One line.
    value : str
        What the help calls the value; empty for a switch.
    choices : tuple of str
        Allowed values.
    bare : str, optional
        The value of a flag that is written without one.
    no : str
        What ``--no-NAME`` of a switch does; without it there is no such form.
    names : callable, optional
        What its value may name, for completion; called with whatever knows that.
    """
    metadata = {"help": help, "value": value, "choices": choices, "bare": bare, "no": no, "names": names}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class _Spec:
    name: str
    kind: Any
    help: str
    value: str
    choices: tuple[str, ...]
    bare: str | None
    no: str
    names: Callable[[Any], Sequence[str]] | None

    @property
    def option(self) -> str:
        return "--" + self._plain

    @property
    def negative(self) -> str:
        """The form that says no, or nothing where there is none."""
        return f"--no-{self._plain}" if self.no else ""

    @property
    def _plain(self) -> str:
        return self.name.rstrip("_").replace("_", "-")


def specs(cls: type[Any]) -> list[_Spec]:
    """Return the flags of an arguments class."""
    hints = get_type_hints(cls)
    out = []
    for item in dataclasses.fields(cls):
        if "help" in item.metadata:
            out.append(_Spec(item.name, _plain(hints[item.name]), **item.metadata))
    return out


def options(cls: type[Any]) -> list[str]:
    """Return the flags as they are written, ``--no-…`` forms included."""
    out = []
    for spec in specs(cls):
        out.append(spec.option)
        if spec.negative:
            out.append(spec.negative)
    return [*out, "--help"]


def _plain(hint: Any) -> Any:
    """Return the type behind ``T | None``."""
    if get_origin(hint) is not None:
        inner = [item for item in get_args(hint) if item is not type(None)]
        if get_origin(hint) not in (list, tuple) and len(inner) == 1:
            return inner[0]
    return hint


def parse(cls: type[A], line: str, *, magic: str) -> tuple[A, str]:
    """Read the flags of a line.

    Parameters
    ----------
    cls : type
        A dataclass whose flags were made by :func:`flag`.
    line : str
    magic : str
        For messages, such as ``%%team``.

    Returns
    -------
    tuple
        The arguments, and the rest of the line as it stands.

    Raises
    ------
    Help
        ``--help`` stands among the flags.
    ConfigError
        An unknown flag, a missing or a wrong value; the flag is named.
    """
    known = {spec.option: spec for spec in specs(cls)}
    negative = {spec.negative: spec for spec in specs(cls) if spec.negative}
    values: dict[str, Any] = {}
    rest = line.lstrip(" \t")
    while rest.startswith("--"):
        word = re.match(r"--[^\s=]*", rest)
        assert word is not None
        name, rest = word.group(), rest[word.end() :]
        if name == "--help":
            raise Help(usage(cls, magic))
        if name == "--":
            rest = rest.lstrip(" \t")
            break
        spec = known.get(name) or negative.get(name)
        if spec is None:
            close = difflib.get_close_matches(name, options(cls), 1)
            hint = f"; did you mean {close[0]}?" if close else f"; {magic} --help lists the flags"
            raise ConfigError(f"{magic}: there is no flag {name}{hint}")
        if spec.kind is bool:
            if rest.startswith("="):
                raise ConfigError(f"{magic}: {name} takes no value")
            values[spec.name] = name not in negative
        else:
            text, rest = _value(rest, magic, spec)
            values[spec.name] = text
        rest = rest.lstrip(" \t")
    return cls(**values), rest


def _value(rest: str, magic: str, spec: _Spec) -> tuple[Any, str]:
    if rest.startswith("="):
        rest = rest[1:]
    found = _TOKEN.match(rest)
    quoted = found is not None and found.group(3) is None
    if found is None or (found.group(3) or "").startswith("--"):
        if spec.bare is not None:
            return spec.bare, rest
        raise ConfigError(f"{magic}: {spec.option} needs a value: {spec.option} {spec.value or 'VALUE'}")
    text = next(group for group in found.groups() if group is not None)
    if not quoted and text[0] in "\"'":
        raise ConfigError(f"{magic}: {spec.option} begins with {text[0]} and has no second one; close the quote")
    rest = rest[found.end() :]
    if spec.choices and text not in spec.choices:
        raise given.refused(f"{magic}: {spec.option}", text, f"use one of {', '.join(spec.choices)}")
    if spec.kind in (int, float):
        try:
            number = spec.kind(text)
        except ValueError:
            raise given.refused(f"{magic}: {spec.option}", text, "it must be a number") from None
        given.number(f"{magic}: {spec.option}", number, whole=spec.kind is int)
        return number, rest
    if get_origin(spec.kind) in (list, tuple):
        return tuple(part.strip() for part in text.split(",") if part.strip()), rest
    if not text and not quoted:
        raise ConfigError(f"{magic}: {spec.option} is empty")
    return text, rest


def cursor(cls: type[Any], line: str) -> tuple[str, str]:
    """Say what is being written at the end of a line.

    Parameters
    ----------
    cls : type
        A dataclass whose flags were made by :func:`flag`.
    line : str
        Up to the cursor.

    Returns
    -------
    tuple of str
        The name of the field whose value is being written (empty: none), and the piece written so
        far: of that value, of a flag, or all that stands behind the flags.
    """
    known = {spec.option: spec for spec in specs(cls)}
    rest = line.lstrip(" \t")
    while (word := re.match(r"--[^\s=]*", rest)) and word.end() < len(rest):
        spec, after = known.get(word.group()), rest[word.end() :]
        value = after[1:] if after.startswith("=") else after.lstrip(" \t")
        if spec is None or spec.kind is bool or (spec.bare is not None and value.startswith("--")):
            rest = after.lstrip(" \t")
            continue
        found = _TOKEN.match(value)
        if found is None or found.end() == len(value):
            return spec.name, value
        rest = value[found.end() :].lstrip(" \t")
    return "", rest


def named(cls: type[Any], name: str, knows: Any) -> Sequence[str]:
    """Return what the value of a field may be, as far as that is known.

    Parameters
    ----------
    cls : type
    name : str
        Of the field.
    knows : object
        Handed to the field's ``names``.
    """
    spec = next(item for item in specs(cls) if item.name == name)
    return spec.choices or (spec.names(knows) if spec.names is not None else ())


def usage(cls: type[Any], magic: str) -> str:
    """Return the help of a magic, from its arguments class."""
    doc = (cls.__doc__ or "").strip().splitlines()
    lines = [line[4:] if line.startswith("    ") else line for line in doc]
    head = f"{magic} — {lines[0]}" if lines else magic
    out = [head, *lines[1:]]
    rows = []
    for spec in specs(cls):
        name = spec.option + (f" {spec.value}" if spec.value else "")
        choice = f" ({' | '.join(spec.choices)})" if spec.choices else ""
        negative = f" ({spec.negative}: {spec.no})" if spec.negative else ""
        rows.append((name, spec.help + choice + negative))
    rows.append(("--help", "show this"))
    return "\n".join([*out, "", *(f"  {line}" for line in aligned(rows))])


_QUOTES = (('"', '"'), ("'", "'"), ("“", "”"))


def _begins(text: str, whole: str) -> int:
    """Return how many letters of a text are another one in whatever case; 0 where it begins otherwise.

    Letter by letter: folding changes a text's length (ß and ss, İ and i̇).
    """
    wanted, folded = whole.casefold(), ""
    for number, letter in enumerate(text, 1):
        folded += letter.casefold()
        if len(folded) >= len(wanted):
            return number if folded == wanted else 0
    return 0


def target(text: str, names: list[str]) -> tuple[str, str]:
    """Split ``TARGET text``: the longest known name, quoted or not, another quoted name, or the first word.

    Parameters
    ----------
    text : str
    names : list of str
        Display names that are known now.

    Returns
    -------
    tuple of str
        Target (may be empty) and the rest, verbatim but for the blank between.
    """
    stripped = text.lstrip()
    for name in sorted({*names, "Team Leader", "leader"}, key=len, reverse=True):
        for opening, closing in (("", ""), *_QUOTES):
            length = _begins(stripped, opening + name + closing)
            after = stripped[length:]
            if length and (not after or after[0].isspace()):
                return stripped[len(opening) : length - len(closing)], after.lstrip(" \t").removeprefix("\n")
    for opening, closing in _QUOTES:
        if stripped.startswith(opening):
            end = stripped.find(closing, 1)
            if end > 0:
                return stripped[1:end], stripped[end + 1 :].lstrip(" \t")
    head = re.match(r"\S+", stripped)
    if head is None:
        return "", ""
    return head.group(), stripped[head.end() :].lstrip(" \t").removeprefix("\n")
