"""From what arrives to what is stored: mailbox items and responses as messages of a conversation.

Reads a state, changes nothing. Knows no team and no model.

Source: data model §5 and §7, decisions 5, 8, 9.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..envelope import Envelope, render
from ..events import PendingMessage
from ..ids import LEADER_ID
from ..llm.model import Finished
from ..messages import Message, ToolCall, unique_call_ids
from ..state import AgentState


class UsedIds:
    """The ids of the calls in one history that only grows; each of its messages is looked at once."""

    __slots__ = ("_ids", "_looked")

    def __init__(self) -> None:
        self._ids: set[str] | None = None
        self._looked = 0

    def of(self, messages: Sequence[Message]) -> set[str]:
        """Return the ids of all calls in the history, as it is by now; not to be changed."""
        if self._ids is None:
            self._ids = set()
        if self._looked < len(messages):
            self._ids.update(call.id for message in messages[self._looked :] for call in message.tool_calls)
            self._looked = len(messages)
        return self._ids


def stored_item(state: AgentState, item: PendingMessage, *, begins: bool) -> Message:
    """Return the stored form of a mailbox item.

    Parameters
    ----------
    state : AgentState
        The receiver.
    item : PendingMessage
    begins : bool
        Whether the item is what started the receiver's turn.
    """
    if item.kind == "human":
        metadata: dict[str, Any] = {"message_source": "user", "visibility": "chat", "starts_work": True}
        return Message("user", item.content, state.next_message_id("user"), metadata=metadata)
    leader = state.agent_id == LEADER_ID
    content = render(Envelope(item.kind, item.sender, item.id, item.content))
    starts = not leader and (
        item.kind == "task" or (begins and item.kind in ("message", "ask") and item.source != "runtime")
    )
    metadata = {"message_source": item.source, "visibility": "compact", "starts_work": starts}
    if item.sender_id is not None:
        metadata["agent_id"] = item.sender_id
    metadata["envelope_id"] = item.id
    if item.status:
        metadata["status"] = item.status
    return Message("user", content, state.next_message_id("auto" if leader else "user"), metadata=metadata)


def stored_response(state: AgentState, finished: Finished, used: UsedIds) -> Message:
    """Return the stored form of a response; its calls have ids that the conversation has not used.

    Parameters
    ----------
    state : AgentState
    finished : Finished
    used : UsedIds
        Those of this state's messages.
    """
    metadata: dict[str, Any] = {}
    if finished.usage is not None:
        metadata["usage"] = finished.usage.to_json()
    if finished.reasoning:
        metadata["reasoning_content"] = finished.reasoning
    if finished.truncated:
        metadata["truncated"] = True
    elif finished.finish == "length":
        metadata["finish"] = "length"
    content = finished.text if finished.text or not finished.tool_calls else None
    calls = _unique(state, finished.tool_calls, used) if finished.tool_calls else ()
    return Message("assistant", content, state.next_message_id("assistant"), calls, metadata=metadata)


def stored_cut(state: AgentState, text: str, status: str) -> Message:
    """Return the stored form of what there was of an answer when its turn was ended."""
    metadata = {"truncated": True, "status": status}
    return Message("assistant", text, state.next_message_id("assistant"), metadata=metadata)


def _unique(state: AgentState, calls: tuple[ToolCall, ...], used: UsedIds) -> tuple[ToolCall, ...]:
    """Give a call whose id this conversation has used a new one; results must stay paired."""
    prefix, taken = f"call_{state.requests + 1}_", used.of(state.messages)
    ids = unique_call_ids([call.id for call in calls], prefix=prefix, taken=taken)
    return tuple(
        call if call.id == call_id else ToolCall(call_id, call.name, call.arguments)
        for call_id, call in zip(ids, calls, strict=True)
    )
