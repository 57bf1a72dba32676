"""The ids of tool calls: one conversation gives none twice, whatever endpoints say and whenever it is opened again."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, SupportsIndex

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.strict_rules import violations_of
from support.teams import go, rig

from astrion_nb.events import ConversationStarted
from astrion_nb.home import Home
from astrion_nb.llm.model import Finished, ModelRequest, StreamEvent
from astrion_nb.llm.wire import wire_messages
from astrion_nb.messages import Message, ToolCall
from astrion_nb.runtime.calls import SHORT
from astrion_nb.runtime.stored import UsedIds, stored_response
from astrion_nb.state import AgentState
from astrion_nb.store.conversations import ConversationStore
from astrion_nb.testing import invariants

pytestmark = pytest.mark.faults

IDS = st.sampled_from(("same", "", "call_0", "call_1_1", "call_2_1", "call_3_2", "call_3_1_2", "call_5_1"))
"""What endpoints give: the same one for ever, none, and such as the runtime would make itself."""
TURNS = st.lists(st.lists(st.lists(IDS, min_size=1, max_size=4), max_size=3), max_size=3)
"""Of one opening: turns, each of responses, each of calls."""


class Repeating:
    """A model that gives its calls ids as it likes, then ends its turn."""

    key = endpoint = "repeating"

    def __init__(self) -> None:
        self.script: list[list[str]] = []
        self.violations: list[str] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        self.violations += violations_of({"model": "m", "stream": True, "messages": wire_messages(request.messages)})
        ids = self.script.pop(0) if self.script else []
        calls = tuple(ToolCall(identifier, "list_active_sub_agents", "{}") for identifier in ids)
        yield Finished("" if calls else "Done.", calls, "tool_calls" if calls else "stop", None)

    async def close(self) -> None: ...


@pytest.mark.parametrize("count", [40, pytest.param(500, marks=pytest.mark.slow)])
def test_no_id_is_given_twice_however_often_a_conversation_is_opened_again(count: int) -> None:
    @settings(max_examples=count, suppress_health_check=list(HealthCheck))
    @given(st.lists(TURNS, min_size=2, max_size=4))
    def check(openings: list[list[list[list[str]]]]) -> None:
        asyncio.run(asyncio.wait_for(lives(openings), 20))

    repeated: list[int] = []

    async def lives(openings: list[list[list[list[str]]]]) -> None:
        model, stored = Repeating(), 0
        with tempfile.TemporaryDirectory() as home:
            store = ConversationStore(Home(Path(home)), durability="relaxed")
            name = None
            for turns in openings:
                conversation = store.create() if name is None else store.open(name)
                made = rig(model, journal=conversation, state=conversation.state)
                if name is None:
                    name = conversation.id
                    made.team.bus.publish(
                        ConversationStarted(name, "", "", "repeating", "fast", "model", "en", "Lead.")
                    )
                else:
                    made.team.restore()
                for turn in turns:
                    model.script = [*turn]
                    await made.run("Go on.")
                    stored += sum(len(response) for response in turn)
                invariants.check(conversation.state, made.events, made.team)
                await asyncio.gather(*made.team.shut(), return_exceptions=True)
                await conversation.close()
            state = store.open(name or "", read_only=True).state
        ids = [call.id for message in state.leader_state.messages for call in message.tool_calls]
        assert len(ids) == len(set(ids)) == stored
        assert model.violations == []
        wanted = [identifier for turns in openings for turn in turns for response in turn for identifier in response]
        repeated.append(len(wanted) - len({*wanted} - {""}))

    check()
    assert sum(repeated) > count, "most of what was asked for was taken"


class Counted(list[Message]):
    """A history that counts which of its messages are looked at."""

    looked = 0

    def __iter__(self) -> Iterator[Message]:
        for message in super().__iter__():
            self.looked += 1
            yield message

    def __getitem__(self, place: SupportsIndex | slice) -> Any:
        found = super().__getitem__(place)
        self.looked += len(found) if isinstance(found, list) else 1
        return found


def test_each_message_is_looked_at_once_however_many_responses_have_calls() -> None:
    messages = Counted([Message("system", "You lead.")])
    state = AgentState(0, "", "", "Team Leader", 0, "", messages=messages)
    used = UsedIds()
    for _ in range(2_000):
        finished = Finished("", (ToolCall("same", "f", "{}"), ToolCall("", "f", "{}")), "tool_calls", None)
        message = stored_response(state, finished, used)
        messages.append(message)
        state.requests += 1
        messages.extend(Message("tool", "", tool_call_id=call.id) for call in message.tool_calls)
    assert len(used.of(messages)) == 4_000
    assert messages.looked == len(messages) == 6_001


def test_who_rests_after_little_remembers_no_ids_and_one_with_a_long_history_does() -> None:
    async def main() -> None:
        model = Repeating()
        made = rig(model)
        model.script = [["same", "same"]]
        state = await made.run("Go.")
        calls = made.team.agents[0].calls
        assert calls._used is None
        assert 2 < len(state.leader_state.messages) < SHORT
        model.script = [["same"] for _ in range(SHORT)]
        state = await made.run("And on.")
        assert calls._used is not None
        ids = [call.id for message in state.leader_state.messages for call in message.tool_calls]
        assert len(ids) == len(set(ids)) == SHORT + 2
        assert len(calls._used.of(state.leader_state.messages)) == SHORT + 2

    go(main)
