"""The documents of the data model: what a conversation's state looks like in each file.

Pure: from a state to JSON values and bytes. The keys stand as the data model prints them (§4–§7),
ours after them, keys that this package does not know last. Each document says in ``seq`` up to
which event it speaks. Reading them back is ``store.loading``. Knows no file and no journal.

Source: data model §4–§7, decisions 5, 26, 28, 30, 31.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from ..errors import ConversationBroken
from ..events import AnswerKept, PendingMessage
from ..given import shown
from ..ids import LEADER_ID
from ..messages import Message, Usage
from ..state import AgentState, Question, TeamState
from .forms import EARLIEST, LATEST, check
from .json_form import awkward, dump

SCHEMA_VERSION = 1
"""Version of the layout; a greater one is refused."""

METADATA = "metadata.json"
MESSAGES = "messages.json"
RUNTIME = "runtime.json"
JOURNAL = "journal.jsonl"
INDEX = "index.json"
AGENTS = "agents"

_CHUNK = 64
"""Messages rendered at once: some 100 µs, so that no other thread waits long for the interpreter."""


_VERSION = re.compile(r"[0-9]{1,9}(\.[^\n]{0,40})?")


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
RUNTIME_KEYS = _keys("schema_version seq run questions kept_answers warnings")
RUN_KEYS = _keys("number status text error")
CALL_KEYS = _keys("tool_call_id tool_name question_id created_at")
STATISTICS_KEYS = _keys("input output total by_model")
USAGE_KEYS = _keys("input output total cached reasoning")


def agent_folder(number: int) -> str:
    """Return where a sub-agent's documents lie, as seen from the conversation's folder (§1)."""
    return f"{AGENTS}/{number}"


def local_time(t: float) -> str:
    """Return a time as the data model prints it: local, without zone, whole seconds (decision 26)."""
    return datetime.fromtimestamp(int(t)).isoformat()


def zoned_time(t: float) -> str:
    """Return a time as our own files print it: with zone, microseconds (decision 26)."""
    return datetime.fromtimestamp(t, UTC).isoformat()


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


def _pending(agent: AgentState) -> list[dict[str, Any]]:
    return [item.to_json() for item in agent.pending]


def _calls(state: TeamState, agent: AgentState) -> list[dict[str, Any]]:
    if not agent.open_calls:
        return []
    waiting = {
        question.call_id: question.id
        for question in state.questions.values()
        if question.status == "open" and question.asker == agent.agent_id
    }
    unknown = agent.extra.get("pending_tool_calls") or {}
    out = []
    for call, t in agent.open_calls.values():
        item: dict[str, Any] = {"tool_call_id": call.id, "tool_name": call.name}
        if call.id in waiting:
            item["question_id"] = waiting[call.id]
        item["created_at"] = t
        item.update(unknown.get(call.id, {}))
        out.append(item)
    return out


def conversation_metadata(state: TeamState) -> dict[str, Any]:
    """Return the conversation's ``metadata.json`` (§4): its own part and the leader's."""
    current = [agent.agent_id for agent in state.members() if agent.status != "terminated"]
    leader = state.agents[LEADER_ID]
    return {
        "id": state.conversation_id,
        "title": state.title,
        "created_at": local_time(state.created_at),
        "updated_at": local_time(state.updated_at),
        "project_path": state.project_path,
        "model_key": state.model_key,
        "thinking_mode": state.run_mode != "fast",
        "run_mode": state.run_mode,
        "status": "archived" if state.archived else "active",
        "agent_count": len(current),
        "agent_ids": current,
        "schema_version": SCHEMA_VERSION,
        "seq": state.own_seq,
        "leader": state.leader,
        "language": state.language,
        **({"title_given": True} if state.title_given else {}),
        "pending_messages": _pending(leader),
        "pending_tool_calls": _calls(state, leader),
        "leader_state": {
            "status": leader.status,
            "status_detail": leader.detail,
            "last_error": leader.error,
            "task_summary": leader.task_summary,
            "updated_at": local_time(leader.updated_at),
            "seq": leader.seq,
            **leader.extra.get("leader_state", {}),
        },
        **state.extra.get(METADATA, {}),
    }


def index_entry(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``index.json`` holds of a conversation (§8.3): our ``status`` after the printed keys."""
    return {key: metadata.get(key) for key in ("title", "created_at", "updated_at", "agent_count", "status")}


def agent_metadata(state: TeamState, agent: AgentState) -> dict[str, Any]:
    """Return a sub-agent's ``metadata.json`` (§6)."""
    return {
        "agent_id": agent.agent_id,
        "role_id": agent.role_id,
        "display_name": agent.display_name,
        "status": agent.status,
        "created_at": local_time(agent.created_at),
        "updated_at": local_time(agent.updated_at),
        "task_summary": agent.task_summary,
        "model_key": agent.model_key,
        "thinking_mode": agent.thinking_mode,
        "pending_messages": _pending(agent),
        "pending_tool_calls": _calls(state, agent),
        "role_name": agent.role_name,
        "instance": agent.instance,
        "abbreviation": agent.abbreviation,
        "timeout_seconds": agent.timeout,
        "run_in_background": agent.background,
        "status_detail": agent.detail,
        "last_error": agent.error,
        "seq": agent.seq,
        **agent.extra.get(METADATA, {}),
    }


def token_statistics(agent: AgentState) -> dict[str, Any]:
    """Return ``token_statistics`` (decision 5): tokens of all models, and by model."""
    total, unknown = agent.tokens, agent.extra.get("by_model", {})
    return {
        "input": total.input,
        "output": total.output,
        "total": total.total,
        "by_model": {key: {**usage.to_json(), **unknown.get(key, {})} for key, usage in agent.usage.items()},
        **agent.extra.get("token_statistics", {}),
    }


def read_statistics(data: Mapping[str, Any]) -> dict[str, Usage]:
    """Read ``token_statistics``; what no model is named for counts under the empty key."""
    by_model = data.get("by_model")
    if by_model:
        return {str(key): Usage.from_json(value) or Usage() for key, value in by_model.items()}
    total = Usage.from_json(data)
    return {"": total} if total is not None and total.total else {}


def messages_document(state: TeamState, agent: AgentState) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what stands before and after ``messages`` in an agent's or the leader's ``messages.json`` (§5, §7)."""
    times = {"created_at": local_time(agent.created_at), "updated_at": local_time(agent.updated_at)}
    unknown = agent.extra.get(MESSAGES, {})
    after: dict[str, Any] = {"token_statistics": token_statistics(agent), "seq": agent.seq, **unknown}
    if agent.agent_id == LEADER_ID:
        prompt = {"system_prompt": agent.system} if agent.system else {}
        metadata = {**prompt, **agent.extra.get("messages.metadata", {})}
        return {"id": state.conversation_id, "title": state.title, **times}, {"metadata": metadata, **after}
    names = {"agent_id": agent.agent_id, "role_id": agent.role_id, "display_name": agent.display_name}
    return {**names, **times}, after


def render_messages(before: dict[str, Any], messages: list[Message], after: dict[str, Any]) -> Iterator[bytes]:
    """Render a ``messages.json`` piece by piece; joined, the pieces are ``dump`` of the whole.

    Parameters
    ----------
    before, after : dict
        Keys around ``messages``; neither is empty.
    messages : list of Message
        Not changed meanwhile.
    """
    head = dump(before)[:-2] + b',\n  "messages": ['
    for start in range(0, len(messages), _CHUNK):
        chunk = messages[start : start + _CHUNK]
        exact = any(
            awkward(message.metadata)
            or (message.extra and awkward(message.extra))
            or any(call.extra and awkward(call.extra) for call in message.tool_calls)
            for message in chunk
        )
        # Raw line breaks stand only between values, so deeper indentation is a plain replacement.
        body = dump([message.to_json() for message in chunk], exact=exact)[1:-2].replace(b"\n", b"\n  ")
        yield head + body
        head = b","
    yield (b"\n  ]," if messages else head + b"],") + dump(after)[1:]


def runtime_document(state: TeamState) -> dict[str, Any]:
    """Return ``runtime.json``: what the data model's documents do not hold."""
    run = {"number": state.run, "status": state.run_status, "text": state.run_text, "error": state.run_error}
    asked, early = state.extra.get("questions", {}), state.extra.get("kept_answers", {})
    return {
        "schema_version": SCHEMA_VERSION,
        "seq": state.own_seq,
        "run": {**run, **state.extra.get("run", {})},
        "questions": [{**_question(question), **asked.get(question.id, {})} for question in state.questions.values()],
        "kept_answers": [
            {
                "question_id": kept.question_id,
                "asker": kept.asker,
                "by": kept.by,
                "answer": kept.answer,
                **early.get(kept.question_id, {}),
            }
            for kept in state.kept.values()
        ],
        "warnings": list(state.warnings),
        **state.extra.get(RUNTIME, {}),
    }


def _question(question: Question) -> dict[str, Any]:
    return {
        "id": question.id,
        "asker": question.asker,
        "target": question.target,
        "content": question.content,
        "call_id": question.call_id,
        "tool": question.tool,
        "seq": question.seq,
        "created_at": question.created_at,
        "status": question.status,
        "answer": question.answer,
        "answer_id": question.answer_id,
        "answered_by": question.answered_by,
        "reason": question.reason,
        "reminded": question.reminded,
        "passed": question.passed,
    }


_QUESTION: dict[str, tuple[type, ...]] = {
    "id": (str,),
    "asker": (int,),
    "target": (int,),
    "content": (str,),
    "call_id": (str,),
    "tool": (str,),
    "seq": (int,),
    "created_at": (float, int),
    "status": (str,),
    "answer": (str,),
    "answer_id": (str,),
    "answered_by": (int, type(None)),
    "reason": (str,),
    "reminded": (bool,),
    "passed": (bool,),
}
_KEPT: dict[str, tuple[type, ...]] = {"question_id": (str,), "asker": (int,), "by": (int,), "answer": (str,)}
QUESTION_KEYS = frozenset(_QUESTION)
KEPT_KEYS = frozenset(_KEPT)


def _checked(data: Mapping[str, Any], types: Mapping[str, tuple[type, ...]]) -> list[Any]:
    for key, allowed in types.items():
        if type(data[key]) not in allowed:
            raise ValueError(f"{key!r} must be of type {allowed[0].__name__}, not {shown(data[key])}")
    return [data[key] for key in types]


def read_question(data: Mapping[str, Any]) -> Question:
    """Read a question of ``runtime.json``."""
    question = Question(*_checked(data, _QUESTION))
    if question.status not in ("open", "answered", "closed"):
        raise ValueError(f"question {shown(question.id)} has the status {shown(question.status)}")
    read_time(question.created_at)
    return question


def read_kept(data: Mapping[str, Any]) -> AnswerKept:
    """Read a kept answer of ``runtime.json``."""
    return AnswerKept(*_checked(data, _KEPT))


def read_pending(data: list[dict[str, Any]]) -> list[PendingMessage]:
    """Read ``pending_messages``."""
    items = [PendingMessage.from_json(item) for item in data]
    for item in items:
        check(item, free="source")
    return items


def unknown_by(data: list[dict[str, Any]], key: str, known: frozenset[str]) -> dict[str, dict[str, Any]]:
    """Return the unknown keys of each item of a list, by the value of ``key``; items without any are left out."""
    found = {str(item[key]): unknown(item, known) for item in data if not item.keys() <= known}
    return {name: extra for name, extra in found.items() if extra}


def unknown(data: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """Return the keys that this package does not know (decision 30)."""
    return {key: value for key, value in data.items() if key not in known}


def is_version(found: object) -> bool:
    """Say whether a value is the number of a version: ``1`` or ``"1.0"``."""
    return _VERSION.fullmatch(str(found)) is not None


def check_version(found: object, where: object) -> None:
    """Refuse a layout of a later release (decision 30).

    Raises
    ------
    ConversationBroken
        The version is greater than this release's, or no version at all.
    """
    text = str(found)
    if not is_version(found):
        raise ConversationBroken(f"{where}: {shown(found)} is not a version; mend the file or put a copy back")
    if int(text.split(".")[0]) > SCHEMA_VERSION:
        raise ConversationBroken(
            f"{where}: written by a later release (version {text}, this one reads {SCHEMA_VERSION}): "
            "update astrion-nb to open it"
        )
