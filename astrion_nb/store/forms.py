"""Whether values that were read from a file are of the form that everybody relies on.

JSON says nothing about types, and a file may have been edited by hand: what is wrong is to be found
where file and place are known, not where somebody shows or runs it later. The rules are the fields'
own annotations. Also which of the keys that were read nobody here knows. Knows no file.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import datetime
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ..events import AgentCreated, ApprovalAsked, Event, MessageAppended, MessageQueued
from ..given import shown
from ..messages import Message, Usage

DEEPEST = 64
"""Levels of JSON that are read; what writes it goes some hundred levels deep."""
EARLIEST, LATEST = -62_000_000_000, 253_000_000_000
"""Seconds since the epoch that have a date in every zone: the years 5 to 9987."""
LAST_SEQ = 2**63 - 1
"""The greatest number of an event: beyond it numbers are read back as floats, by us and by others."""

_LINE = 240
"""Characters of a fault that are told."""

_Rule = tuple[str, frozenset[type], frozenset[str]]


def too_deep(value: object, left: int = DEEPEST) -> bool:
    """Say whether a JSON value is nested deeper than :data:`DEEPEST`."""
    if isinstance(value, dict):
        items = list(value.values())
    elif isinstance(value, list):
        items = value
    else:
        return False
    return not left or any(too_deep(item, left - 1) for item in items if type(item) in (dict, list))


def check(value: Any, *, free: str = "") -> None:
    """Refuse a value of a dataclass whose fields are not what their annotations say.

    Parameters
    ----------
    value : dataclass instance
    free : str
        A field that may hold other texts than those that its ``Literal`` lists.

    Raises
    ------
    ValueError
        The field is named.
    """
    cls: Any = type(value)
    for name, kinds, listed in _rules(cls):
        found = getattr(value, name)
        kind = type(found)
        if kind not in kinds:
            raise ValueError(f"{name!r} is {shown(found)}; it must be {_named(kinds)}")
        if kind is float and not math.isfinite(found):
            raise ValueError(f"{name!r} is {found!r}; it must be a finite number")
        if listed and kind is str and name != free and found not in listed:
            raise ValueError(f"{name!r} is {shown(found)}; it can be {', '.join(map(repr, sorted(listed)))}")


def check_event(event: Event) -> None:
    """Refuse an event that the reducer, a view or a document would stumble over.

    Raises
    ------
    ValueError
        The field is named.
    """
    check(event)
    number = getattr(event, "agent_id", 0)
    if number < (1 if isinstance(event, AgentCreated) else 0):
        raise ValueError(f"'agent_id' is {number}; no agent has it")
    if isinstance(event, MessageAppended):
        check_message(event.message)
    elif isinstance(event, MessageQueued):
        check(event.item, free="source")
        if too_deep(event.item.extra):
            raise ValueError("the message is nested too deeply")
    elif isinstance(event, ApprovalAsked):
        check(event.approval)


def check_message(message: Message) -> None:
    """Refuse a stored message that could not be shown, counted or written.

    Raises
    ------
    ValueError
        The field is named.
    """
    check(message)
    for call in message.tool_calls:
        if call.extra and too_deep(call.extra):
            raise ValueError(f"the tool call {shown(call.id)} is nested too deeply")
    if message.metadata:
        if too_deep(message.metadata):
            raise ValueError("'metadata' is nested too deeply")
        if isinstance(envelope_id := message.metadata.get("envelope_id"), dict | list):
            raise ValueError(f"'envelope_id' is {shown(envelope_id)}; it must be a text")
        check_usage(message.metadata.get("usage"))
    if message.extra and too_deep(message.extra):
        raise ValueError("the message is nested too deeply")


def check_usage(data: object) -> None:
    """Refuse what tokens cannot be counted from.

    Raises
    ------
    ValueError
        It is neither nothing nor an object of numbers.
    """
    if not data:
        return
    if not isinstance(data, Mapping):
        raise ValueError(f"'usage' is {shown(data)}; it must be an object")
    try:
        Usage.from_json(data)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"'usage': {error}") from None


def read_time(value: object) -> float:
    """Read a time in any of the forms that occur: ISO 8601 with or without zone, epoch seconds.

    Returns
    -------
    float
        Seconds since the epoch; 0 when there is none.

    Raises
    ------
    ValueError
        It is no time.
    """
    if value is None or value == "":
        return 0.0
    t: float | None = None
    if isinstance(value, str):
        with contextlib.suppress(ValueError, OverflowError, OSError):
            t = datetime.fromisoformat(value).timestamp()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        t = value
    if t is None or not EARLIEST < t < LATEST:
        raise ValueError(f"{shown(value)} is not a time")
    return float(t)


def unknown_by(data: list[dict[str, Any]], key: str, known: frozenset[str]) -> dict[str, dict[str, Any]]:
    """Return the unknown keys of each item of a list, by the value of ``key``; items without any are left out."""
    found = {str(item[key]): unknown(item, known) for item in data if not item.keys() <= known}
    return {name: extra for name, extra in found.items() if extra}


def unknown(data: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """Return the keys that this package does not know (decision 30)."""
    return {key: value for key, value in data.items() if key not in known}


def fault(error: Exception) -> str:
    """Return what an error says, cut to what a line holds."""
    text = str(error)
    return text if len(text) <= _LINE else text[: _LINE - 1] + "…"


@cache
def _rules(kind: Any) -> tuple[_Rule, ...]:
    hints = get_type_hints(kind)
    rules = []
    for field in fields(kind):
        parts = [*_parts(hints[field.name])]
        kinds = frozenset(part for part in parts if isinstance(part, type))
        rules.append((field.name, kinds, frozenset(part for part in parts if isinstance(part, str))))
    return tuple(rules)


def _parts(hint: Any) -> Iterator[type | str]:
    """Give the types, and the words, that an annotation allows."""
    origin = get_origin(hint)
    if origin is Literal:
        yield str
        yield from get_args(hint)
    elif origin in (Union, UnionType):
        for part in get_args(hint):
            yield from _parts(part)
    elif hint is float:
        yield from (float, int)
    elif origin is None:
        yield hint
    else:
        yield dict if issubclass(origin, Mapping) else origin


def _named(kinds: frozenset[type]) -> str:
    names = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", dict: "an object"}
    return " or ".join(sorted({names.get(kind, "a list" if kind is tuple else "null") for kind in kinds}))
