"""From what arrives to what is stored: mailbox items and responses as messages of a conversation.

Pure: reads a state, changes nothing. Knows no team and no model.

Source: data model §5 and §7, decisions 5, 8, 9.
"""

from __future__ import annotations

from typing import Any

from ..envelope import Envelope, render
from ..events import PendingMessage
from ..ids import LEADER_ID
from ..llm.model import Finished
from ..messages import Message, ToolCall, unique_call_ids
from ..state import AgentState


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


def stored_response(state: AgentState, finished: Finished) -> Message:
    """Return the stored form of a response; its calls have ids that the conversation has not used."""
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
    calls = _unique(state, finished.tool_calls) if finished.tool_calls else ()
    return Message("assistant", content, state.next_message_id("assistant"), calls, metadata=metadata)


def stored_cut(state: AgentState, text: str, status: str) -> Message:
    """Return the stored form of what there was of an answer when its turn was ended."""
    metadata = {"truncated": True, "status": status}
    return Message("assistant", text, state.next_message_id("assistant"), metadata=metadata)


def _unique(state: AgentState, calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """Give a call whose id this conversation has used a new one; results must stay paired."""
    taken = {call.id for message in state.messages for call in message.tool_calls}
    ids = unique_call_ids([call.id for call in calls], prefix=f"call_{state.requests + 1}_", taken=taken)
    return tuple(
        call if call.id == call_id else ToolCall(call_id, call.name, call.arguments)
        for call_id, call in zip(ids, calls, strict=True)
    )
