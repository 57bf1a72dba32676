"""Stored messages, read fast.

Nearly every message of a file is of the plain form that this package writes itself: that form is
told, checked and read in one go. Whatever is not of it goes the long way, by
:meth:`Message.from_json` and :func:`~astrion_nb.store.forms.check_message`, which say what is wrong;
both ways give the same message. Knows no file.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ..messages import Message, ToolCall
from .forms import check_message

_ROLES = frozenset({"system", "user", "assistant", "tool"})
_FLAT = frozenset({str, int, bool, type(None)})
_NUMBER = frozenset({int})
_NONE: dict[str, Any] = {}
"""For all messages that have no metadata, or nothing unknown: nobody changes a message."""

# The generated __init__ of a frozen class looks up each field by name: a third of what reading takes.
_new = object.__new__
_role, _content, _message_id, _tool_calls, _tool_call_id, _metadata, _extra = (
    Message.__dict__[item.name].__set__ for item in fields(Message)
)
_id, _name, _arguments, _call_extra = (ToolCall.__dict__[item.name].__set__ for item in fields(ToolCall))


def read_message(item: Any) -> Message:
    """Read a stored message.

    Parameters
    ----------
    item : JSON value
        As a parser gives it.

    Raises
    ------
    TypeError, ValueError, AttributeError, OverflowError
        It is none, or could not be shown, counted or written.
    """
    if type(item) is dict:
        get = item.get
        role, content, message_id, call_id = get("role"), get("content"), get("message_id"), get("tool_call_id")
        calls, metadata = get("tool_calls"), get("metadata")
        known = 2  # keys that are there and known; but for a content, what holds nothing is looked at more closely
        if message_id is not None:
            known += 1
        if call_id is not None:
            known += 1
        if calls:
            known += 1
            calls = _calls(calls)
        else:
            calls = ()
        if metadata:
            known += 1
            if not _plain(metadata):
                known = 0
        else:
            metadata = _NONE
        if (
            known == len(item)
            and calls is not None
            and type(role) is str
            and role in _ROLES
            and (type(content) is str or (content is None and "content" in item))
            and (type(message_id) is str or message_id is None)
            and (type(call_id) is str or call_id is None)
        ):
            message = _new(Message)
            _role(message, role)
            _content(message, content)
            _message_id(message, message_id)
            _tool_calls(message, calls)
            _tool_call_id(message, call_id)
            _metadata(message, metadata)
            _extra(message, _NONE)
            return message
    message = Message.from_json(item)
    check_message(message)
    return message


def _calls(items: Any) -> tuple[ToolCall, ...] | None:
    """Return plain calls; ``None`` when one of them needs a closer look."""
    if type(items) is not list:
        return None
    made = []
    for item in items:
        function = item.get("function") if type(item) is dict and len(item) == 3 and "type" in item else None
        if type(function) is not dict or len(function) != 2:
            return None
        call_id, name, arguments = item.get("id"), function.get("name"), function.get("arguments")
        if type(call_id) is not str or type(name) is not str or type(arguments) is not str:
            return None
        call = _new(ToolCall)
        _id(call, call_id)
        _name(call, name)
        _arguments(call, arguments)
        _call_extra(call, None)
        made.append(call)
    return tuple(made)


def _plain(metadata: Any) -> bool:
    """Say whether metadata hold flat values, and token counts that are numbers, and nothing else."""
    if type(metadata) is not dict:
        return False
    for key, value in metadata.items():
        if type(value) not in _FLAT:
            if key != "usage" or type(value) is not dict or not _NUMBER.issuperset(map(type, value.values())):
                return False
        elif key == "usage":
            return False
    return True
