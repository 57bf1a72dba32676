"""What stands in documents, read back piece by piece: messages fast, and the rest of which there is little.

Nearly every message of a file is of the plain form that this package writes itself: that form is
told, checked and read in one go. Whatever is not of it goes the long way, by
:meth:`Message.from_json` and :func:`~astrion_nb.store.forms.check_message`, which say what is wrong;
both ways give the same message. The keys that are known are those of :mod:`~astrion_nb.store.documents`;
any other is kept as it is. Knows no file, and not which pieces make up a conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ..approval import Approval
from ..events import AnswerKept, PendingMessage
from ..messages import Message, ToolCall, Usage
from ..state import Question
from .documents import KEPT, QUESTION
from .forms import check, check_message, read_time

_ROLES = frozenset({"system", "user", "assistant", "tool"})
_FLAT = frozenset({str, int, bool, type(None)})
_NUMBER = frozenset({int})
_NONE: dict[str, Any] = {}
"""For all messages that have no metadata, or nothing unknown: nobody changes a message."""


def _keys(names: str) -> frozenset[str]:
    return frozenset(names.split())


LEADER_KEYS = _keys("status status_detail last_error task_summary updated_at seq")
CONVERSATION_KEYS = _keys(
    "id title created_at updated_at project_path model_key thinking_mode run_mode status agent_count agent_ids "
    "schema_version seq leader language title_given pending_messages pending_tool_calls leader_state"
)
AGENT_KEYS = _keys(
    "agent_id role_id display_name status created_at updated_at task_summary model_key thinking_mode "
    "pending_messages pending_tool_calls role_name instance abbreviation timeout_seconds run_in_background "
    "status_detail last_error seq"
)
LEADER_MESSAGES_KEYS = _keys("id title created_at updated_at messages metadata token_statistics seq")
AGENT_MESSAGES_KEYS = _keys("agent_id role_id display_name created_at updated_at messages token_statistics seq")
RUNTIME_KEYS = _keys("schema_version seq run questions kept_answers warnings grants")
RUN_KEYS = _keys("number status text error")
CALL_KEYS = _keys("tool_call_id tool_name question_id created_at")
STATISTICS_KEYS = _keys("input output total by_model")
USAGE_KEYS = _keys("input output total cached reasoning")
QUESTION_KEYS, KEPT_KEYS = frozenset((*QUESTION, "approval", "allowed")), frozenset(KEPT)

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


def read_statistics(data: Mapping[str, Any]) -> dict[str, Usage]:
    """Read ``token_statistics``; what no model is named for counts under the empty key."""
    by_model = data.get("by_model")
    if by_model:
        return {str(key): Usage.from_json(value) or Usage() for key, value in by_model.items()}
    total = Usage.from_json(data)
    return {"": total} if total is not None and total.total else {}


def read_question(data: Mapping[str, Any]) -> Question:
    """Read a question of ``runtime.json``."""
    question = Question(**{key: data[key] for key in QUESTION})
    check(question)
    if data.get("approval") is not None:
        question.approval, question.allowed = Approval.from_json(data["approval"]), data.get("allowed") is True
        check(question.approval)
    read_time(question.created_at)
    return question


def read_grants(data: Mapping[str, Any]) -> dict[int, tuple[str, ...]]:
    """Read what the person has allowed each agent."""
    return {int(number): tuple(str(kind) for kind in kinds) for number, kinds in data.items()}


def read_kept(data: Mapping[str, Any]) -> AnswerKept:
    """Read a kept answer of ``runtime.json``."""
    kept = AnswerKept(**{key: data[key] for key in KEPT})
    check(kept)
    return kept


def read_pending(data: list[dict[str, Any]]) -> list[PendingMessage]:
    """Read ``pending_messages``."""
    items = [PendingMessage.from_json(item) for item in data]
    for item in items:
        check(item, free="source")
    return items
