"""The exact request of any turn, rebuilt from the conversation.

A turn's request is the history up to the response it brought, and the same bytes went out then:
system prompt and tools never change during a conversation. Knows no vendor: a model that can say
its body does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import TeamError
from ..ids import LEADER_ID
from ..runtime.names import find
from ..runtime.request import request_of

if TYPE_CHECKING:
    from .opening import Opened


def request(opened: Opened, agent: int | str, turn: int | None) -> dict[str, Any]:
    """Return the request that an agent's ``turn``-th response answered.

    Parameters
    ----------
    opened : Opened
    agent : int or str
        Number, display name, or ``leader``.
    turn : int or None
        Counted from 1; ``None`` for the last one.

    Returns
    -------
    dict
        The body as it went out, where the model can say it; else messages and tools.

    Raises
    ------
    AgentNotFound
    TeamError
        There is no such turn; the number of turns is named.
    """
    state, _ = find(opened.runtime.state, agent)
    if state.agent_id == LEADER_ID and opened.runtime.state.leader == "human":
        raise TeamError("a person leads this team: no request was made for the leader")
    places = [place for place, message in enumerate(state.messages) if message.role == "assistant"]
    number = len(places) if turn is None else turn
    if not 1 <= number <= len(places):
        raise TeamError(f"{state.display_name} has {len(places)} turns; there is no turn {number}")
    running = opened.runtime.agent(state.agent_id)
    asked = request_of(
        state, number, running.tools.definitions, before=places[number - 1], scrub=opened.runtime.ports.scrub
    )
    body = getattr(running.model, "body", None)
    if callable(body):
        made: dict[str, Any] = body(asked)
        return made
    from ..llm.wire import wire_messages

    return {"messages": list(wire_messages(asked.messages, reasoning="strip")), "tools": list(asked.tools)}
