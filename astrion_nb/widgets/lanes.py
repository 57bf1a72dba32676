"""What a page knows of each agent, and what it must be told when the agent has changed.

An agent's conversation only grows, so a cursor says what the page has. The page holds a window of each
agent's latest bubbles; what falls out of it is counted. A text that the page has is not sent again:
an answer that was streamed goes on from what was shown, a report repeats the bubble it comes from.

Knows no events and no sequence numbers (see :mod:`~astrion_nb.widgets.feed`), no widget, no page.
"""

from __future__ import annotations

from typing import Any

from ..envelope import Kind
from ..ids import LEADER_ID
from ..messages import Message
from ..printable import clean, one_field
from ..render.reading import opens
from ..state import AgentState, TeamState
from .bubbles import LONGEST, against, body, bubble, is_bubble, result_of

WINDOW = 40
"""Bubbles of one agent that a page holds, at most."""
ALL = 600
"""Bubbles of a whole team that a page holds, unless every agent is down to :data:`LEAST`."""
LEAST = 6
_REMEMBERED = 4

Json = dict[str, Any]


def window_of(agents: int) -> int:
    """Return how many bubbles of each agent a page holds: the fewer the larger the team."""
    return max(LEAST, min(WINDOW, ALL // max(1, agents)))


class Lane:
    """What the page knows of one agent."""

    __slots__ = (
        "calls",
        "count",
        "cursor",
        "ended",
        "mark",
        "opened_by",
        "pieces",
        "said",
        "sent",
        "shown",
        "stream",
        "thoughts",
    )

    def __init__(self) -> None:
        self.cursor = 0
        """Messages of the agent that the page has."""
        self.count = 0
        """Bubbles among them, those out of its window included."""
        self.opened_by: Kind | None = None
        """What began the agent's present piece of work."""
        self.calls: dict[str, tuple[int, int]] = {}
        """Call without a result → index of its bubble, place in it."""
        self.said: dict[str, tuple[int, int]] = {}
        """The agent's latest texts → index of the bubble, its number among the bubbles."""
        self.mark: Json = {}
        """The agent's fields as they were sent last."""
        self.stream = 0
        """Number of the answer that is being streamed."""
        self.pieces: list[str] = []
        self.thoughts: list[str] = []
        self.sent: list[str] = []
        """What the page has of the answer that is being streamed."""
        self.shown = False
        """Whether the page shows something of it."""
        self.ended: dict[str, str] = {}
        """Messages stored since the last look → what the page was shown of them."""

    def restart(self) -> None:
        """What was being streamed is stored, or will not come."""
        self.stream += 1
        self.pieces, self.thoughts, self.sent, self.shown = [], [], [], False

    def end(self, message_id: str) -> None:
        """What was being streamed is stored as a message."""
        if self.sent:
            self.ended[message_id] = "".join(self.sent)
        self.restart()

    def items(self, number: int) -> list[list[Any]]:
        """Return the streamed text that the page does not have, as items of a delta.

        An item ``[agent, answer, text]`` goes on with the answer of that number; another number begins
        anew. A fourth element 1 says that the text is reasoning.
        """
        out: list[list[Any]] = []
        if self.thoughts:
            out.append([number, self.stream, clean("".join(self.thoughts)), 1])
            self.thoughts = []
        if self.pieces:
            text = "".join(self.pieces)
            out.append([number, self.stream, clean(text)])
            self.sent.append(text)
            self.pieces = []
        elif not out and not self.shown:
            out.append([number, self.stream, ""])
        self.shown = self.shown or bool(out)
        return out


class Lanes:
    """All agents of a conversation."""

    def __init__(self) -> None:
        self.window = WINDOW
        self._lanes: dict[int, Lane] = {}

    def __getitem__(self, number: int) -> Lane:
        lane = self._lanes.get(number)
        if lane is None:
            lane = self._lanes[number] = Lane()
        return lane

    def begin_anew(self) -> None:
        """Forget what a page knows of conversations that are another one's now."""
        self._lanes = {number: lane for number, lane in self._lanes.items() if not lane.cursor}
        self.window = WINDOW

    # -- the difference -----------------------------------------------------------------

    def changes(self, state: TeamState, agent: AgentState, waits: list[int]) -> list[Json]:
        """Return what the page must be told of an agent.

        Parameters
        ----------
        state : TeamState
        agent : AgentState
        waits : list of int
            Numbers of those whose answers it waits for.
        """
        number, lane, messages = agent.agent_id, self[agent.agent_id], agent.messages
        events: list[Json] = []
        said: list[int] = []
        for index in range(lane.cursor, len(messages)):
            message = messages[index]
            if message.role == "tool":
                place = lane.calls.pop(message.tool_call_id or "", None)
                if place is not None:
                    out = result_of(state, message)
                    events.append({"t": "result", "a": number, "n": place[0], "k": place[1], **out})
            elif is_bubble(agent, message):
                events.append({"t": "say", "a": number, **self._say(state, agent, lane, index)})
                said.append(index)
        lane.cursor = len(messages)
        lane.ended.clear()
        if len(said) > self.window:
            # A long history at once: the page would drop the beginning in the same breath.
            gone = set(said[: -self.window])
            kept = [event for event in events if event["n"] not in gone]
            events = [{"t": "skip", "a": number, "count": len(gone)}, *kept]
        fields = _fields(agent, waits)
        changed = {key: value for key, value in fields.items() if lane.mark.get(key) != value}
        if changed:
            lane.mark = fields
            events.insert(0, {"t": "agent", "id": number, **changed})
        return events

    def _say(self, state: TeamState, agent: AgentState, lane: Lane, index: int) -> Json:
        message = agent.messages[index]
        out, text = bubble(state, agent, index, lane.opened_by)
        _pass(agent, lane, index)
        shown = body(text)
        if message.role == "assistant":
            sent = lane.ended.get(message.message_id or "")
            if text:
                lane.said[text] = (index, lane.count)
                if len(lane.said) > _REMEMBERED:
                    del lane.said[next(iter(lane.said))]
            if sent and text.startswith(sent) and _repeatable(text):
                # The page has read it already: only the rest is new.
                out["live"] = text[len(sent) :]
                if shown != text:
                    out["tree"] = against(shown, text)
                return out
        elif out["by"] >= LEADER_ID and "role" not in out:
            source = self[out["by"]]
            place = source.said.get(text)
            if place is not None and source.count - place[1] < self.window:
                out["copy"] = [out["by"], place[0]]
                return out
        if shown:
            out["body"] = shown
        return out

    # -- everything ---------------------------------------------------------------------

    def whole(self, state: TeamState, agent: AgentState, waits: list[int]) -> Json:
        """Return an agent with its latest bubbles; the page is taken to know it all from here on."""
        lane = self[agent.agent_id]
        for index in range(lane.cursor, len(agent.messages)):
            message = agent.messages[index]
            if is_bubble(agent, message):
                _pass(agent, lane, index)
            elif message.role == "tool":
                lane.calls.pop(message.tool_call_id or "", None)
        lane.cursor = len(agent.messages)
        lane.ended.clear()
        lane.mark = _fields(agent, waits)
        if lane.pieces or lane.thoughts:
            lane.items(agent.agent_id)
        out: Json = {"id": agent.agent_id, **lane.mark, "count": lane.count, "bubbles": self._latest(state, agent)}
        if lane.shown:
            out["live"] = [lane.stream, clean("".join(lane.sent))]
        return out

    def _latest(self, state: TeamState, agent: AgentState) -> list[Json]:
        """Return the bubbles of the window, with the results of their calls."""
        messages = agent.messages
        first, found = len(messages), 0
        while first > 0 and found < self.window:
            first -= 1
            found += is_bubble(agent, messages[first])
        before = (opens(agent, messages[index]) for index in range(first - 1, -1, -1))
        opened_by = next((kind for kind in before if kind is not None), None)
        out: list[Json] = []
        open_calls: dict[str, Json] = {}
        for index in range(first, len(messages)):
            message = messages[index]
            if message.role == "tool":
                shown_call = open_calls.pop(message.tool_call_id or "", None)
                if shown_call is not None:
                    shown_call.update(result_of(state, message))
            elif is_bubble(agent, message):
                made, text = bubble(state, agent, index, opened_by)
                opened_by = opens(agent, message) or opened_by
                for shown_call, call in zip(made.get("calls", ()), message.tool_calls, strict=False):
                    open_calls[call.id] = shown_call
                shown = body(text)
                if shown:
                    made["body"] = shown
                out.append(made)
        return out


def _repeatable(text: str) -> bool:
    """Say whether a page that was shown the text as it came has it character for character."""
    return len(text) <= LONGEST and max(text) <= "\uffff" and clean(text) == text


def _pass(agent: AgentState, lane: Lane, index: int) -> None:
    """Remember of a bubble what later ones need."""
    message: Message = agent.messages[index]
    lane.count += 1
    lane.opened_by = opens(agent, message) or lane.opened_by
    for place, call in enumerate(message.tool_calls):
        lane.calls[call.id] = (index, place)


def _fields(agent: AgentState, waits: list[int]) -> Json:
    return {
        "name": one_field(agent.display_name),
        "status": agent.status,
        "detail": agent.detail,
        "error": clean(agent.error),
        "waits": waits,
        "task": one_field(agent.task_summary),
        "tokens": agent.tokens.total,
        "inbox": len(agent.pending),
        "model": clean(agent.model_key),
    }
