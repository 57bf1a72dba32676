"""What an agent had said when its turn was ended stays to be read, is no answer, and replays to the byte."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from support.replays import record, replayed, told
from support.teams import BOUND, Rig, go

from astrion_nb.ids import HUMAN_ID
from astrion_nb.llm.model import Finished, ModelRequest, StreamEvent
from astrion_nb.llm.scripted import ScriptedModel, call, say
from astrion_nb.render.transcript import bundle, transcript_text
from astrion_nb.runtime.order import Live, Timer
from astrion_nb.runtime.request import request_of

MEMBER = "UI Operator_1"
ENDLESS = "Blue is calm, "
CREATE = call("create_sub_agent", agent_id=1, role_id="ui-operator", task="Which colour?")


class Unhurried:
    """A scripted model that streams slowly, and never ends an answer that ends in a comma."""

    key = endpoint = "scripted"

    def __init__(self, script: Any) -> None:
        self.inner = ScriptedModel(script, check_on_close=False)
        self.asked: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        self.asked.append(replace(request, messages=tuple(request.messages)))  # the list itself grows
        async for event in self.inner.stream(request):
            if isinstance(event, Finished) and event.text.endswith(", "):
                await asyncio.Event().wait()
            await asyncio.sleep(0)
            yield event

    async def close(self) -> None:
        await self.inner.close()


class Short(Live):
    """Live, but a second is a fifth: long enough for a busy machine to hear something first."""

    def at(self, actor: str, n: int, seconds: float, act: Callable[[], None]) -> Timer:
        return super().at(actor, n, seconds / 5, act)


async def ended_by(made: Rig, end: Callable[[Rig], object]) -> None:
    team = made.team
    await team.person.admit()
    team.begin_run("Go.")
    team.person.say("Go.")
    if not team.order.replaying:
        await made.until(lambda state: 1 in team.agents and len(team.agents[1].live) > 40)
    await team.person.admit()
    end(made)
    await asyncio.wait_for(team.rest(), BOUND)


async def all_stopped(made: Rig) -> None:
    await ended_by(made, lambda rig: rig.team.stop_all("stopped", "enough"))


async def one_stopped(made: Rig) -> None:
    await ended_by(made, lambda rig: rig.team.port.stop_agent(HUMAN_ID, 1, "enough"))


async def one_terminated(made: Rig) -> None:
    await ended_by(made, lambda rig: rig.team.port.terminate(HUMAN_ID, 1))


async def run(made: Rig) -> None:
    await made.run("Go.")


async def revived(made: Rig) -> None:
    await one_stopped(made)
    await made.team.person.admit()
    made.team.port.send(HUMAN_ID, 1, "Be brief.")
    await asyncio.wait_for(made.team.rest(), BOUND)


TIMED = call("create_sub_agent", agent_id=1, role_id="ui-operator", task="Which colour?", timeout_seconds=1)
LEADER = [say("Waiting."), say("So it ended."), say("Well.")]
CASES: dict[str, tuple[list[Any], Callable[[Rig], Awaitable[None]], str]] = {
    "all stopped": ([CREATE, say("Waiting.")], all_stopped, "Stopped: enough"),
    "one stopped": ([CREATE, *LEADER], one_stopped, "Stopped: enough"),
    "one terminated": ([CREATE, *LEADER], one_terminated, ""),
    "timed out": ([TIMED, *LEADER], run, "Timed out: no end after 1 second"),
    "stopped and revived": ([CREATE, *LEADER], revived, ""),
}


@pytest.mark.faults
@pytest.mark.parametrize("case", CASES)
def test_text_that_was_cut_off_is_in_the_transcript_and_replays_byte_equal(case: str) -> None:
    leader, act, reason = CASES[case]

    async def main() -> None:
        model = Unhurried({"Team Leader": leader, MEMBER: [say(ENDLESS * 100), say("Blue.")]})
        recorded = await record(model, act, inner=Short())
        state = recorded.rig.team.state
        (cut,) = [message for message in state.agents[1].messages if message.cut]
        assert (ENDLESS * 100).startswith(cut.content or "?")
        assert len(cut.content or "") > 40
        assert cut.metadata["truncated"]
        assert state.agents[1].last_text == ("Blue." if case == "stopped and revived" else "")
        assert recorded.rig.team.port.describe(1)["last_outputs"] == (["Blue."] if act is revived else [])
        for shown in bundle(state).values():
            assert "broke off" in shown
            assert ENDLESS in shown
            assert "Error" not in shown
        assert reason in transcript_text(state)
        assert "completion report" not in transcript_text(state) or act is revived
        for tempo in range(6):
            made, player = replayed(recorded.cassette, dice=random.Random(tempo) if tempo else None)
            await act(made)
            assert player.miss is None
            assert told(made) == recorded.told
            player.check()
            player.close()

    go(main)


@pytest.mark.faults
@pytest.mark.parametrize("end", ["stopped", "terminated", "everybody"])
def test_what_was_cut_off_is_in_a_recording_that_is_saved_in_the_same_moment(end: str) -> None:
    """What ended the turn returns before the model's task has come to its own end."""

    async def act(made: Rig) -> None:
        team = made.team
        team.begin_run("Go.")
        team.person.say("Go.")
        await made.until(lambda state: 1 in team.agents and len(team.agents[1].live) > 40)
        await team.person.admit()
        if end == "everybody":
            team.stop_all("stopped", "enough")
        elif end == "stopped":
            team.port.stop_agent(HUMAN_ID, 1, "enough")
        else:
            team.port.terminate(HUMAN_ID, 1)

    async def main() -> None:
        model = Unhurried({"Team Leader": [CREATE, *LEADER], MEMBER: [say(ENDLESS * 100)]})
        recorded = await record(model, act)
        (cut,) = [message for message in recorded.rig.team.state.agents[1].messages if message.cut]
        (response,) = [item for item in recorded.cassette.teams[0].responses if item.actor == MEMBER]
        assert "".join(chunk.text for chunk in response.stream) == cut.content
        assert response.finish == ""

    go(main)


@pytest.mark.faults
def test_no_model_gets_what_was_cut_off_and_the_request_of_a_turn_is_rebuilt_without_it() -> None:
    async def main() -> None:
        model = Unhurried({"Team Leader": [CREATE, *LEADER], MEMBER: [say(ENDLESS * 100), say("Blue.")]})
        made = (await record(model, revived, inner=Short())).rig
        requests = [request for request in model.asked if request.actor == MEMBER]
        assert [[message.role for message in asked.messages] for asked in requests] == [
            ["system", "user"],
            ["system", "user", "user"],
        ]
        assert not any(message.cut for request in model.asked for message in request.messages)
        agent = made.team.state.agents[1]
        answers = [place for place, message in enumerate(agent.messages) if message.role == "assistant"]
        for place, asked in zip(answers, requests, strict=True):
            assert list(request_of(agent, asked.turn, asked.tools, before=place).messages) == list(asked.messages)
        ids = [message.message_id for message in agent.messages if message.message_id]
        assert len(ids) == len(set(ids))

    go(main)
