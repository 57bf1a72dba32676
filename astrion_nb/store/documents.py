"""The documents of the data model: what a conversation's state looks like in each file.

Pure: from a state to JSON values and bytes. The keys stand as the data model prints them (§4–§7),
ours after them, keys that this package does not know last. Each document says in ``seq`` up to
which event it speaks. Reading them back is the matter of ``store.reading`` and ``store.loading``.
Knows no file and no journal.

Source: data model §4–§7, decisions 5, 26, 28, 30, 31.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from ..ids import LEADER_ID
from ..messages import Message
from ..state import AgentState, Question, TeamState
from .json_form import awkward, dump
from .version import SCHEMA_VERSION

METADATA = "metadata.json"
MESSAGES = "messages.json"
RUNTIME = "runtime.json"
JOURNAL = "journal.jsonl"
INDEX = "index.json"
AGENTS = "agents"

QUESTION = (
    *("id", "asker", "target", "content", "call_id", "tool", "seq", "created_at", "status"),
    *("answer", "answer_id", "answered_by", "reason", "reminded", "passed"),
)
"""What ``runtime.json`` holds of a question, in this order."""
KEPT = ("question_id", "asker", "by", "answer")
"""What it holds of an answer that is kept for its question."""

_CHUNK = 64
"""Messages rendered at once: some 100 µs, so that no other thread waits long for the interpreter."""


def agent_folder(number: int) -> str:
    """Return where a sub-agent's documents lie, as seen from the conversation's folder (§1)."""
    return f"{AGENTS}/{number}"


def local_time(t: float) -> str:
    """Return a time as the data model prints it: local, without zone, whole seconds (decision 26)."""
    return datetime.fromtimestamp(int(t)).isoformat()


def _pending(agent: AgentState) -> list[dict[str, Any]]:
    return [item.to_json() for item in agent.pending]


def _calls(state: TeamState, agent: AgentState) -> list[dict[str, Any]]:
    if not agent.open_calls:
        return []
    asker = agent.agent_id
    waiting = {question.call_id: question.id for question in state.open_questions() if question.asker == asker}
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


def _question(question: Question) -> dict[str, Any]:
    out = {key: getattr(question, key) for key in QUESTION}
    if question.approval is not None:
        out |= {"approval": question.approval.to_json(), "allowed": question.allowed}
    return out


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
            {**{key: getattr(kept, key) for key in KEPT}, **early.get(kept.question_id, {})}
            for kept in state.kept.values()
        ],
        "warnings": list(state.warnings),
        **({"grants": {str(number): list(kinds) for number, kinds in state.grants.items()}} if state.grants else {}),
        **state.extra.get(RUNTIME, {}),
    }
