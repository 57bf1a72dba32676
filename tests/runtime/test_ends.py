"""How turns end other than by completion: stopped, terminated, out of time, cut off (decisions 13, 19, 20, 22, 55)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from support.held import Held
from support.teams import Rig, go, rig
from support.virtual import VirtualOrder, Watched

from astrion_nb.envelope import parse
from astrion_nb.errors import AgentTerminated, TeamError
from astrion_nb.events import MessageAppended, MessageQueued, RunEnded, RunStarted, StatusChanged
from astrion_nb.ids import HUMAN_ID, LEADER_ID
from astrion_nb.llm.scripted import ScriptedModel, call, say, until_message
from astrion_nb.state import TeamState

LEADER, UI, FSE = "Team Leader", "UI Operator_1", "Full-Stack Engineer_1"
ONE = call("create_sub_agent", agent_id=1, role_id="ui-operator", task="Design.")
TWO = ONE + call("create_sub_agent", agent_id=1, role_id="full-stack-engineer", task="Build.")
OK = [say("Ok.")] * 9


def timed(seconds: int) -> Any:
    return call("create_sub_agent", agent_id=1, role_id="ui-operator", task="Design.", timeout_seconds=seconds)


def playing(script: dict[str, list[Any]], **more: Any) -> tuple[Rig, Watched]:
    model = Watched(ScriptedModel(script, check_on_close=False))
    return rig(model, **more), model


def tool_texts(state: TeamState, number: int) -> list[str]:
    return [m.content or "" for m in state.agents[number].messages if m.role == "tool"]


def reports(made: Rig) -> list[tuple[str, str, str]]:
    """Return sender, kind and status of what agents sent to the leader."""
    items = [e.item for e in made.kinds(MessageQueued) if e.agent_id == LEADER_ID and e.item.source == "sub_agent"]
    return [(item.sender, item.kind, item.status) for item in items]


def at_rest(made: Rig) -> None:
    """Nothing is open, nobody works, and nobody is shown at work."""
    state = made.team.state
    for number, agent in state.agents.items():
        assert not agent.open_calls
        assert agent.status not in ("running", "waiting")
        assert number not in made.team.agents or made.team.agents[number].task is None
    assert state.run_status not in ("", "running")


# -- stopping -------------------------------------------------------------------------------


def test_a_person_stops_an_agent_its_calls_are_closed_the_leader_is_told() -> None:
    async def main() -> None:
        held = Held()
        calls = call("list_active_sub_agents") + call("hold", tag="a") + call("hold", tag="b")
        team, model = playing(
            {LEADER: [ONE, say("."), *OK], UI: [say("Half way.") + calls, say("Again.")]}, tools=(held.tool,)
        )
        working = asyncio.ensure_future(team.run("Go"))
        await held.wait_begun(2)
        task = team.team.agents[1].task
        assert task is not None
        stopped = team.team.port.stop_agent(HUMAN_ID, 1, "wrong page")
        assert stopped == {"success": True, "agent_id": 1, "status": "idle"}
        await asyncio.wait({task})
        assert held.cancelled == 2, "the calls are over when the task is"
        state = await working
        agent = state.agents[1]
        assert (agent.status, agent.detail, agent.error) == ("idle", "stopped", "wrong page")
        finished, one, two = tool_texts(state, 1)
        assert json.loads(finished)["success"] is True
        assert one == two == '{"success":false,"error":"cancelled while it ran; what it had done stays"}'
        assert reports(team) == [(UI, "progress", ""), (UI, "message", "stopped")]
        told = model.of(LEADER)[-1].envelopes()[-1]
        assert told.content == "My turn was stopped: wrong page.\n\nLast output before that:\nHalf way."
        at_rest(team)
        held.release()
        team.team.port.send(LEADER_ID, 1, "Other page.")
        await team.team.rest()
        assert model.of(UI)[-1].roles == ["system", "user", "assistant", "tool", "tool", "tool", "user"]
        assert model.of(UI)[-1].envelopes()[-1].content == "Other page."

    go(main)


def test_a_call_that_had_not_started_is_closed_as_not_started() -> None:
    async def main() -> None:
        order = VirtualOrder()
        first = asyncio.Event()

        async def admit(actor: str, kind: str, n: int) -> None:
            if (actor, kind, n) == (UI, "tool", 2):
                first.set()
                await asyncio.Event().wait()

        order.admit = admit  # type: ignore[method-assign]
        held = Held()
        calls = call("hold") + call("hold")
        team, _ = playing({LEADER: [ONE, say("."), *OK], UI: [calls]}, tools=(held.tool,), order=order)
        working = asyncio.ensure_future(team.run("Go"))
        await held.wait_begun(1)
        await asyncio.wait_for(first.wait(), 5)
        team.team.port.stop_agent(HUMAN_ID, 1, "")
        state = await working
        assert [json.loads(text)["error"] for text in tool_texts(state, 1)] == [
            "cancelled while it ran; what it had done stays",
            "not started: cancelled",
        ]

    go(main)


def test_the_leader_that_stops_an_agent_by_its_tool_is_not_told_again() -> None:
    async def main() -> None:
        held = Held()
        stop = until_message(call("stop_sub_agent", agent_id=UI, reason="enough"))
        script = {LEADER: [ONE, stop, *OK], UI: [say("Working.") + call("hold")]}
        team, _ = playing(script, tools=(held.tool,))
        state = await team.run("Go")
        assert json.loads(tool_texts(state, 0)[-1]) == {"success": True, "agent_id": 1, "status": "idle"}
        assert reports(team) == [(UI, "progress", "")]
        at_rest(team)

    go(main)


def test_a_late_result_of_a_stopped_call_is_dropped() -> None:
    async def main() -> None:
        order, let = VirtualOrder(), asyncio.Event()

        async def admit(actor: str, kind: str, n: int) -> None:
            if (actor, kind, n) == (UI, "result", 1):
                held.release()
                reached.set()
                await asyncio.shield(let.wait())

        reached, held = asyncio.Event(), Held()
        order.admit = admit  # type: ignore[method-assign]
        script = {LEADER: [ONE, say("."), *OK], UI: [call("list_active_sub_agents"), say("Again.")]}
        team, _ = playing(script, tools=(held.tool,), order=order)
        working = asyncio.ensure_future(team.run("Go"))
        await asyncio.wait_for(reached.wait(), 5)
        team.team.port.stop_agent(HUMAN_ID, 1, "")
        let.set()
        state = await working
        assert len(tool_texts(state, 1)) == 1
        assert "success" in json.loads(tool_texts(state, 1)[0])
        at_rest(team)

    go(main)


def test_stopping_an_agent_that_rests_changes_nothing() -> None:
    async def main() -> None:
        team, _ = playing({LEADER: [ONE, *OK], UI: [say("Blue.")]})
        await team.run("Go")
        before = len(team.events)
        assert team.team.port.stop_agent(HUMAN_ID, 1, "x")["status"] == "completed"
        assert len(team.events) == before

    go(main)


@pytest.mark.faults
@pytest.mark.parametrize("leader_rests", [True, False])
def test_stopping_the_whole_team_wakes_nobody(leader_rests: bool) -> None:
    async def main() -> None:
        held = Held()
        second = [say(".")] if leader_rests else [call("hold")]
        script = {LEADER: [TWO, *second, *OK], UI: [call("hold")], FSE: [call("hold")]}
        team, model = playing(script, tools=(held.tool,))
        working = asyncio.ensure_future(team.run("Go"))
        await held.wait_begun(2 if leader_rests else 3)
        if leader_rests:
            await team.until(lambda state: state.leader_state.status == "completed")
        tasks = team.team.stop_all("stopped", "lunch")
        assert not team.team.running
        await asyncio.wait(tasks)
        state = await working
        assert held.cancelled == held.begun
        assert len(model.of(LEADER)) == 2
        assert [(e.status, e.error) for e in team.kinds(RunEnded)] == [("stopped", "lunch")]
        at_rest(team)
        waiting = [(item.kind, item.status) for item in state.leader_state.pending]
        assert waiting == [("message", "stopped"), ("message", "stopped")]
        await team.run("Go on")
        assert [e.kind for e in model.of(LEADER)[-1].envelopes()] == ["message", "message"]
        assert model.of(LEADER)[-1].last == "Go on"

    go(main)


def test_a_cancelled_caller_does_not_end_the_team() -> None:
    async def main() -> None:
        held = Held()
        team, _ = playing({LEADER: [call("hold"), *OK]}, tools=(held.tool,))
        working = asyncio.ensure_future(team.run("Go"))
        await held.wait_begun()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        held.release()
        await team.team.rest()
        assert team.team.state.run_status == "completed"

    go(main)


# -- terminating ----------------------------------------------------------------------------


@pytest.mark.faults
@pytest.mark.parametrize("by", [LEADER_ID, HUMAN_ID])
def test_a_terminated_agent_is_ended_for_good_and_sends_nothing_more(by: int) -> None:
    async def main() -> None:
        held = Held()
        script = {LEADER: [ONE, say("."), *OK], UI: [say("Working.") + call("hold"), say("never")]}
        team, _ = playing(script, tools=(held.tool,))
        working = asyncio.ensure_future(team.run("Go"))
        await held.wait_begun()
        await team.until(lambda state: state.leader_state.status == "completed")
        made = team.team.port.terminate(by, UI)
        assert made == {"success": True, "agent_id": 1, "status": "terminated"}
        held.release()
        state = await working
        assert state.agents[1].status == "terminated"
        told = [] if by == LEADER_ID else [(UI, "message", "terminated")]
        assert reports(team) == [(UI, "progress", ""), *told]
        assert len(team.kinds(RunStarted)) == len(team.kinds(RunEnded)) == 1
        for use in (
            lambda: team.team.port.send(LEADER_ID, 1, "x"),
            lambda: team.team.port.notify(2, UI, "x", None),
            lambda: team.team.port.stop_agent(HUMAN_ID, 1, ""),
            lambda: team.team.person.ask(1, "x"),
        ):
            with pytest.raises(AgentTerminated):
                use()
        assert team.team.port.terminate(by, 1)["status"] == "terminated", "twice is harmless"
        assert team.team.port.active(LEADER_ID) == []
        assert team.team.port.describe(1)["status"] == "terminated"
        last = [e for e in team.kinds(MessageAppended, StatusChanged) if e.agent_id == 1][-1]
        assert last == StatusChanged(1, "terminated")
        at_rest(team)

    go(main)


def test_its_own_questions_are_withdrawn_and_an_answer_to_them_is_late() -> None:
    async def main() -> None:
        asking = call("ask_master", question="?", question_id="q-1")
        team, _ = playing({LEADER: [ONE, until_message(say(".")), *OK], UI: [asking]})
        working = asyncio.ensure_future(team.run("Go"))
        await team.until(lambda state: "q-1" in state.questions)
        team.team.port.terminate(HUMAN_ID, 1)
        with pytest.raises(TeamError, match="has expired"):
            team.team.port.answer(LEADER_ID, 1, "q-1", "yes")
        await working
        assert team.team.state.open_questions() == []
        at_rest(team)

    go(main)


@pytest.mark.parametrize(
    ("caller", "target", "said"), [(1, 1, "terminate yourself"), (1, "leader", "cannot be terminated")]
)
def test_who_cannot_be_terminated(caller: int, target: object, said: str) -> None:
    async def main() -> None:
        team, _ = playing({LEADER: [ONE, *OK], UI: [say("Blue.")]})
        await team.run("Go")
        with pytest.raises(TeamError, match=said):
            team.team.port.terminate(caller, target)  # type: ignore[arg-type]

    go(main)


@pytest.mark.parametrize("deed", ["send", "stop_agent", "terminate"])
def test_what_the_leader_cannot_be_is_told_to_a_person_in_other_words_than_to_an_agent(deed: str) -> None:
    async def main() -> None:
        team, _ = playing({LEADER: [ONE, *OK], UI: [say("Blue.")]})
        await team.run("Go")
        told = {}
        for caller in (HUMAN_ID, LEADER_ID, 1):
            more = () if deed == "terminate" else ("x",)
            with pytest.raises(TeamError) as refused:
                getattr(team.team.port, deed)(caller, "leader", *more)
            told[caller] = str(refused.value)
        assert told[HUMAN_ID] != told[1]
        assert "your" not in told[HUMAN_ID]
        assert told[LEADER_ID] == told[1]
        assert "%" not in told[1]

    go(main)


# -- time -----------------------------------------------------------------------------------


@pytest.mark.faults
def test_a_turn_past_its_time_is_ended_and_reported_and_the_agent_can_go_on() -> None:
    async def main() -> None:
        order, held = VirtualOrder(auto=False), Held()
        script = {LEADER: [timed(60), say("."), *OK], UI: [say("Half.") + call("hold"), say("Done.")]}
        team, model = playing(script, tools=(held.tool,), order=order)
        working = asyncio.ensure_future(team.run("Go"))
        await held.wait_begun()
        await team.until(lambda state: state.leader_state.status == "completed")
        order.advance(59.9)
        assert team.team.state.agents[1].status == "running"
        order.advance(0.2)
        state = team.team.state
        assert (state.agents[1].status, state.agents[1].detail) == ("idle", "timed_out")
        await working
        assert tool_texts(state, 1) == ['{"success":false,"error":"timed out while it ran; what it had done stays"}']
        assert reports(team)[-1] == (UI, "message", "timed_out")
        assert "60 seconds" in model.of(LEADER)[-1].last
        assert "Half." in model.of(LEADER)[-1].last
        held.release()
        team.team.port.send(LEADER_ID, 1, "Once more.")
        await team.team.rest()
        assert state.agents[1].status == "completed"
        assert order.next_deadline is None, "no timer is left behind"
        at_rest(team)

    go(main)


def test_the_clock_stands_still_while_the_agent_waits_for_an_answer() -> None:
    async def main() -> None:
        order, held = VirtualOrder(auto=False), Held()
        script = {
            LEADER: [timed(60), say("."), until_message(say(".")), *OK],
            UI: [call("ask_master", question="?", question_id="q-1"), call("hold"), say("Done.")],
        }
        team, _ = playing(script, tools=(held.tool,), order=order)
        working = asyncio.ensure_future(team.run("Go"))
        await team.until(lambda state: state.agents.get(1) is not None and state.agents[1].status == "waiting")
        order.advance(3600)
        assert team.team.state.agents[1].status == "waiting"
        team.team.port.answer(LEADER_ID, 1, "q-1", "yes")
        await held.wait_begun()
        order.advance(59)
        assert team.team.state.agents[1].status == "running"
        order.advance(2)
        assert team.team.state.agents[1].detail == "timed_out"
        await working

    go(main)


def test_time_that_ran_out_just_before_a_wait_counts_after_it() -> None:
    async def main() -> None:
        order, held = VirtualOrder(auto=False), Held()

        def late(_: object) -> Any:
            order._time += 60.5  # the loop is late: the deadline has passed and its callback has not run yet
            return call("ask_master", question="?", question_id="q-1")

        script = {
            LEADER: [timed(60), say("."), until_message(say(".")), *OK],
            UI: [late, call("hold"), say("Done.")],
        }
        team, _ = playing(script, tools=(held.tool,), order=order)
        working = asyncio.ensure_future(team.run("Go"))
        await team.until(lambda state: 1 in state.agents and state.agents[1].status == "waiting")
        team.team.port.answer(LEADER_ID, 1, "q-1", "yes")
        await held.wait_begun()
        order.advance(0)
        assert team.team.state.agents[1].detail == "timed_out"
        await working

    go(main)


def test_each_task_has_the_whole_time() -> None:
    async def main() -> None:
        order, held = VirtualOrder(auto=False), Held()
        script = {LEADER: [timed(60), *OK], UI: [call("hold"), say("A."), call("again"), say("B.")]}
        again = Held("again")
        team, _ = playing(script, tools=(held.tool, again.tool), order=order)
        working = asyncio.ensure_future(team.run("Go"))
        await held.wait_begun()
        order.advance(50)
        held.release()
        await working
        team.team.port.send(LEADER_ID, 1, "More.")
        await again.wait_begun()
        order.advance(50)
        assert team.team.state.agents[1].status == "running"
        again.release()
        await team.team.rest()
        assert team.team.state.agents[1].status == "completed"

    go(main)


@pytest.mark.parametrize(("seconds", "limit"), [(None, 600.0), (0, 0.0)])
def test_the_default_is_ten_minutes_and_zero_is_none(seconds: int | None, limit: float) -> None:
    async def main() -> None:
        order, held = VirtualOrder(auto=False), Held()
        create = ONE if seconds is None else timed(seconds)
        team, _ = playing({LEADER: [create, *OK], UI: [call("hold"), say("A.")]}, tools=(held.tool,), order=order)
        working = asyncio.ensure_future(team.run("Go"))
        await held.wait_begun()
        assert team.team.state.agents[1].timeout == limit
        assert order.next_deadline == (limit or None)
        order.advance(599)
        held.release()
        await working

    go(main)


# -- from outside ---------------------------------------------------------------------------


def test_a_task_that_is_cancelled_from_outside_is_interrupted_and_never_completed() -> None:
    async def main() -> None:
        held = Held()
        team, model = playing({LEADER: [ONE, say("."), *OK], UI: [call("hold")]}, tools=(held.tool,))
        working = asyncio.ensure_future(team.run("Go"))
        await held.wait_begun()
        await team.until(lambda state: state.leader_state.status == "completed")
        task = team.team.agents[1].task
        assert task is not None
        task.cancel()
        state = await working
        assert (state.agents[1].status, state.agents[1].detail) == ("idle", "interrupted")
        assert [e.status for e in team.kinds(RunEnded)] == ["interrupted"]
        assert len(model.of(LEADER)) == 2, "what ends with the loop wakes nobody"
        assert [item.status for item in state.leader_state.pending] == ["interrupted"]
        at_rest(team)

    go(main)


def test_the_end_of_the_loop_claims_nothing() -> None:
    made: list[Rig] = []

    async def main() -> None:
        held = Held()
        asking = call("ask_master", question="?", question_id="q-1")
        script = {LEADER: [TWO, until_message(say("."))], UI: [asking], FSE: [call("hold")]}
        team, _ = playing(script, tools=(held.tool,))
        made.append(team)
        await team.team.person.admit()
        team.team.begin_run("Go")
        team.team.person.say("Go")
        await held.wait_begun()
        await team.until(lambda state: state.agents[1].status == "waiting")

    go(main)
    state = made[0].team.state
    assert [e.status for e in made[0].kinds(RunEnded)] == ["interrupted"]
    assert (state.agents[2].status, state.agents[2].detail) == ("idle", "interrupted")
    assert state.agents[1].status == "waiting", "an answer can still come, in another process"
    assert [parse(m.content or "").kind for m in state.agents[2].messages if m.role == "user"] == ["task"]
