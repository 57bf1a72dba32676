"""When the leader is woken, when a run ends, who goes first (decisions 13, 14, 24, 57)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.held import Held
from support.teams import Rig, go, rig
from support.virtual import VirtualOrder, Watched

from astrion_nb.events import RunEnded, RunStarted
from astrion_nb.ids import HUMAN_ID
from astrion_nb.llm.model import ModelRequest, StreamEvent
from astrion_nb.llm.scripted import ScriptedModel, Step, call, say
from astrion_nb.runtime.limits import Limits

LEADER = "Team Leader"
OK = [say("Ok.")] * 30


async def settle() -> None:
    """Let everything happen that can happen without time passing."""
    for _ in range(60):
        await asyncio.sleep(0)


def create(count: int) -> Step:
    steps = [call("create_sub_agent", agent_id=n, role_id="ui-operator", task="t") for n in range(1, count + 1)]
    return sum(steps[1:], steps[0])


class Crew:
    """A leader at rest and agents that each end when told to."""

    def __init__(self, count: int, *, progress: bool = False) -> None:
        self.order = VirtualOrder(auto=False)
        self.holds = {n: Held(f"hold_{n}") for n in range(1, count + 1)}
        script: dict[str, list[Any]] = {LEADER: [create(count), say("Started."), *OK]}
        for number in self.holds:
            work = [call(f"hold_{number}")]
            if progress:
                work.append(say("Going on.") + call("list_active_sub_agents") + call("wait"))
            script[f"UI Operator_{number}"] = [*work, say(f"Done {number}.")]
        self.wait = Held("wait")
        self.model = Watched(ScriptedModel(script, check_on_close=False), self.order)
        tools = (self.wait.tool, *(held.tool for held in self.holds.values()))
        self.team: Rig = rig(self.model, tools=tools, order=self.order)
        self.working: asyncio.Future[Any] | None = None

    async def start(self) -> None:
        self.working = asyncio.ensure_future(self.team.run("Go"))
        await settle()
        assert all(held.begun == 1 for held in self.holds.values())
        assert self.team.team.state.leader_state.status == "completed"
        assert len(self.leader) == 2

    @property
    def leader(self) -> list[Any]:
        return self.model.of(LEADER)

    async def end(self, number: int) -> None:
        self.holds[number].release()
        await settle()

    async def pass_time(self, seconds: float) -> None:
        self.order.advance(seconds)
        await settle()

    async def finish(self) -> None:
        self.wait.release()
        for number in self.holds:
            await self.end(number)
        assert self.working is not None
        while not self.working.done():
            await self.pass_time(0.01)
        await self.working


def read(asked: Any) -> list[str]:
    """Return what the agents said in the last request of the leader."""
    return [envelope.content for envelope in asked.envelopes()]


def test_completions_within_the_wake_delay_join_one_request() -> None:
    async def main() -> None:
        crew = Crew(3)
        await crew.start()
        await crew.end(1)
        await crew.pass_time(0.04)
        assert len(crew.leader) == 2
        await crew.end(2)
        await crew.pass_time(0.04)
        assert len(crew.leader) == 2, "the delay began again with the second"
        await crew.pass_time(0.02)
        assert read(crew.leader[2]) == ["Done 1.", "Done 2."]
        await crew.finish()
        assert read(crew.leader[-1]) == ["Done 1.", "Done 2.", "Done 3."]

    go(main)


def test_the_wake_is_put_off_half_a_second_at_most() -> None:
    async def main() -> None:
        crew = Crew(16)
        await crew.start()
        began = crew.order.monotonic()
        for number in range(1, 16):
            await crew.end(number)
            if len(crew.leader) > 2:
                break
            await crew.pass_time(0.045)
        assert 0.5 <= crew.leader[2].time - began <= 0.55
        assert 10 < len(read(crew.leader[2])) < 15
        await crew.finish()

    go(main)


def test_the_leader_is_woken_at_once_when_everybody_else_rests() -> None:
    async def main() -> None:
        crew = Crew(2)
        await crew.start()
        await crew.end(1)
        await crew.end(2)
        assert crew.order.monotonic() == 0.0
        assert read(crew.leader[2]) == ["Done 1.", "Done 2."]
        await crew.finish()

    go(main)


def test_an_agent_that_ends_without_a_report_ends_the_waiting_too() -> None:
    async def main() -> None:
        crew = Crew(2)
        await crew.start()
        await crew.end(1)
        assert len(crew.leader) == 2
        crew.team.team.port.terminate(0, 2)
        await settle()
        assert crew.order.monotonic() == 0.0
        assert read(crew.leader[2]) == ["Done 1."]
        await crew.finish()

    go(main)


def test_progress_wakes_nobody_and_does_not_put_the_wake_off() -> None:
    async def main() -> None:
        crew = Crew(3, progress=True)
        crew.wait.release()
        await crew.start()
        crew.wait = Held("wait")
        await crew.end(1)  # its progress and its completion
        await crew.pass_time(0.03)
        crew.team.team.post.report(crew.team.team.agents[2], "progress", "On my way.")
        await settle()
        await crew.pass_time(0.021)
        assert read(crew.leader[2]) == ["Going on.", "Done 1.", "On my way."]
        await crew.finish()

    go(main)


@pytest.mark.parametrize("what", ["question", "person", "both rest"])
def test_what_is_urgent_does_not_wait(what: str) -> None:
    async def main() -> None:
        crew = Crew(3)
        await crew.start()
        await crew.end(1)
        assert len(crew.leader) == 2
        if what == "question":
            crew.team.team.waits.ask(2, 0, "which?", "q-1", call_id="", tool="ask_master")
        elif what == "person":
            crew.team.team.person.say("How far are you?")
        else:
            crew.team.team.port.stop_agent(HUMAN_ID, 2, "")
            crew.team.team.port.stop_agent(HUMAN_ID, 3, "")
        await settle()
        assert crew.order.monotonic() == 0.0
        assert len(crew.leader) >= 3
        assert "Done 1." in read(crew.leader[2])
        if what == "question":
            crew.team.team.port.answer(0, 2, "q-1", "this")
        await crew.finish()

    go(main)


def test_a_run_ends_once_when_the_leader_has_ended_and_everybody_rests() -> None:
    async def main() -> None:
        crew = Crew(2)
        await crew.start()
        assert crew.team.kinds(RunEnded) == []
        await crew.finish()
        assert [event.status for event in crew.team.kinds(RunEnded)] == ["completed"]
        assert crew.team.kinds(RunEnded)[0].text == "Ok."
        state = crew.team.team.state
        assert not any(item.wakes for agent in state.agents.values() for item in agent.pending)
        crew.team.team.port.send(HUMAN_ID, 1, "Once more.")
        crew.model.inner.extend({"UI Operator_1": [say("Done again.")]})  # type: ignore[attr-defined]
        await crew.team.team.rest()
        assert [event.run for event in crew.team.kinds(RunStarted)] == [1, 2]
        assert [event.run for event in crew.team.kinds(RunEnded)] == [1, 2]

    go(main)


# -- slots ----------------------------------------------------------------------------------


class Stepwise(Watched):
    """A model whose requests each stay in flight until the test lets the oldest one through."""

    def __init__(self, inner: ScriptedModel) -> None:
        super().__init__(inner)
        self.waiting: list[tuple[str, asyncio.Event]] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        event = asyncio.Event()
        self.waiting.append((request.actor, event))
        self.most_in_flight = max(self.most_in_flight, len(self.waiting))
        try:
            await event.wait()
        finally:
            self.waiting.remove((request.actor, event))
        async for item in super().stream(request):
            yield item

    async def let_one_through(self) -> str:
        actor, event = self.waiting[0]
        event.set()
        await settle()
        return actor


def test_no_more_requests_than_slots_are_in_flight_and_the_leader_goes_first() -> None:
    async def main() -> None:
        script: dict[str, list[Any]] = {LEADER: [create(5), say("Started."), *OK], "UI Operator_*": [say("Done.")] * 5}
        model = Stepwise(ScriptedModel(script, check_on_close=False))
        clock = VirtualOrder(auto=False)
        team = rig(model, limits=Limits(max_active_agents=1), order=clock)
        working = asyncio.ensure_future(team.run("Go"))
        await settle()
        assert await model.let_one_through() == LEADER
        served = []
        while len(set(served)) < 2:  # until the leader rests and an agent has been served
            served.append(await model.let_one_through())
        team.team.person.say("And now?")
        await settle()
        while not working.done():
            assert len(model.waiting) <= 1
            if model.waiting:
                served.append(await model.let_one_through())
            else:
                clock.advance(0.05)
                await settle()
        await working
        assert model.most_in_flight == 1
        assert set(served) == {LEADER, *(f"UI Operator_{n}" for n in range(1, 6))}
        first = next(place for place, actor in enumerate(served) if actor != LEADER)
        assert LEADER in served[first + 1 : first + 3], "the leader is served before agents that waited longer"

    go(main)


def test_without_a_bound_everybody_asks_at_once() -> None:
    async def main() -> None:
        script: dict[str, list[Any]] = {
            LEADER: [create(30), say("Started."), *OK],
            "UI Operator_*": [say("Done.")] * 30,
        }
        model = Stepwise(ScriptedModel(script, check_on_close=False))
        team = rig(model, limits=Limits(max_active_agents=None))
        working = asyncio.ensure_future(team.run("Go"))
        await settle()
        await model.let_one_through()
        assert model.most_in_flight == 31
        while not working.done():
            if model.waiting:
                await model.let_one_through()
            else:
                await asyncio.sleep(0)
        await working

    go(main)


def test_an_agent_that_waits_for_an_answer_holds_no_slot() -> None:
    async def main() -> None:
        steps = {
            LEADER: [create(2), say("Started."), *OK],
            "UI Operator_1": [
                call("ask_other_agent", target_agent_id=2, content="?", message_id="p-1"),
                say("Done 1."),
            ],
            "UI Operator_2": [say("Done 2."), say("Done 2 again.")],
        }
        team = rig(ScriptedModel(steps, check_on_close=False), limits=Limits(max_active_agents=1))
        state = await team.run("Go")
        assert state.questions["p-1"].status == "answered"
        assert team.team.slots.used == 0

    go(main)


def test_a_turn_ended_while_it_waits_for_a_slot_gives_none_away() -> None:
    async def main() -> None:
        script: dict[str, list[Any]] = {LEADER: [create(3), say("Started."), *OK], "UI Operator_*": [say("Done.")] * 3}
        model = Stepwise(ScriptedModel(script, check_on_close=False))
        clock = VirtualOrder(auto=False)
        team = rig(model, limits=Limits(max_active_agents=1), order=clock)
        working = asyncio.ensure_future(team.run("Go"))
        await settle()
        while model.waiting[0][0] == LEADER:
            await model.let_one_through()
        current = team.team.port.find(model.waiting[0][0])[0].agent_id
        for number in {1, 2, 3} - {current}:
            team.team.port.stop_agent(0, number, "")
        team.team.port.stop_agent(0, current, "")
        await settle()
        while not working.done():
            assert [actor for actor, _ in model.waiting] in ([], [LEADER])
            if model.waiting:
                await model.let_one_through()
            else:
                clock.advance(0.05)
                await settle()
        await working
        assert team.team.slots.used == 0
        assert model.waiting == []

    go(main)
