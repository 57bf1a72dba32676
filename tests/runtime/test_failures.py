"""Failures are reported as failures, tried again only when that is harmless, and counted once.

Decisions 9, 19, 20, 54, 58.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.held import Held
from support.teams import Rig, go, rig
from support.virtual import VirtualOrder, Watched

from astrion_nb.envelope import parse
from astrion_nb.errors import (
    ContentFiltered,
    ContextOverflow,
    ModelBroken,
    ModelBusy,
    ModelError,
    ModelRefused,
    ModelUnreachable,
    StorageError,
    TeamError,
)
from astrion_nb.events import MessageQueued, RunEnded, Stamped, StatusChanged, UsageCounted
from astrion_nb.ids import LEADER_ID
from astrion_nb.llm.model import Finished, ModelRequest, StreamEvent, TextDelta
from astrion_nb.llm.scripted import ScriptedModel, call, fail, say
from astrion_nb.messages import ToolCall, Usage
from astrion_nb.runtime.limits import BROKEN_TRIES, BUSY_TRIES, Limits
from astrion_nb.tools.registry import ToolContext, tool

LEADER, UI, FSE = "Team Leader", "UI Operator_1", "Full-Stack Engineer_1"
ONE = call("create_sub_agent", agent_id=1, role_id="ui-operator", task="Design.")
TWO = ONE + call("create_sub_agent", agent_id=1, role_id="full-stack-engineer", task="Build.")
OK = [say("Ok.")] * 9


def playing(script: dict[str, list[Any]], **more: Any) -> tuple[Rig, Watched]:
    order = more.setdefault("order", VirtualOrder())
    model = Watched(ScriptedModel(script, check_on_close=False), order)
    return rig(model, **more), model


def failure_report(made: Rig, number: int = 1) -> tuple[str, str]:
    """Return content and status of the one report of an agent that is no progress; it must be no completion."""
    items = [e.item for e in made.kinds(MessageQueued) if e.agent_id == LEADER_ID and e.item.sender_id == number]
    (item,) = [item for item in items if item.kind != "progress" and item.source == "sub_agent"]
    assert item.kind == "message"
    assert item.wakes
    return item.content, item.status


# -- the model fails ------------------------------------------------------------------------


@pytest.mark.faults
@pytest.mark.parametrize(
    ("error", "tries"),
    [
        (ModelBroken("500"), BROKEN_TRIES),
        (ModelUnreachable("no route"), BROKEN_TRIES),
        (ModelBusy("429", retry_after=1.0), BUSY_TRIES),
        (ModelRefused("401 bad key"), 1),
        (ContextOverflow("too long"), 1),
        (ContentFiltered("withheld"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, ModelError) else str(value),
)
def test_a_failing_model_is_asked_as_often_as_it_may_mend_and_then_reported(error: ModelError, tries: int) -> None:
    async def main() -> None:
        team, model = playing({LEADER: [ONE, say("."), *OK], UI: [fail(error)] * 20})
        state = await team.run("Go")
        assert len(model.of(UI)) == tries
        content, status = failure_report(team)
        assert (content.startswith(f"My turn failed: {error}"), status) == (True, "failed")
        agent = state.agents[1]
        assert (agent.status, agent.detail) == ("idle", "failed")
        assert agent.error.startswith(str(error))
        assert state.run_status == "completed", "the leader's turn goes on"
        assert model.of(LEADER)[-1].envelopes()[-1].content == content

    go(main)


@pytest.mark.faults
def test_a_request_that_fails_for_a_while_succeeds_and_nobody_hears_of_it() -> None:
    async def main() -> None:
        steps = [fail(ModelBroken("500")), fail(ModelUnreachable("reset")), say("Blue.")]
        team, model = playing({LEADER: [ONE, say("."), *OK], UI: steps})
        state = await team.run("Go")
        assert state.agents[1].status == "completed"
        times = [asked.time for asked in model.of(UI)]
        assert 0.3 < times[1] - times[0] < 1
        assert 0.7 < times[2] - times[1] < 2, "each try waits longer"

    go(main)


@pytest.mark.faults
def test_nothing_is_tried_again_once_text_was_shown() -> None:
    async def main() -> None:
        team, model = playing({LEADER: [ONE, say("."), *OK], UI: [say("Half an ans") + fail(ModelBroken("reset"))] * 3})
        await team.run("Go")
        assert len(model.of(UI)) == 1

    go(main)


@pytest.mark.faults
@pytest.mark.parametrize(
    "step",
    [
        say("Half an ans", finish="content_filter"),
        pytest.param("partial", id="attribute"),
    ],
)
def test_the_text_that_came_before_the_failure_is_in_the_report(step: Any) -> None:
    async def main() -> None:
        nonlocal step
        if step == "partial":
            error = ModelBroken("reset")
            error.partial = "Half an ans"
            step = say("Half an ans") + fail(error)
        team, _ = playing({LEADER: [ONE, say("."), *OK], UI: [say("Looking.") + call("list_active_sub_agents"), step]})
        await team.run("Go")
        content, status = failure_report(team)
        assert content.endswith("\n\nLast output before that:\nHalf an ans")
        assert status == "failed"

    go(main)


def test_the_text_of_an_earlier_turn_is_not_passed_off_as_this_ones() -> None:
    async def main() -> None:
        team, _ = playing({LEADER: [ONE, say("."), *OK], UI: [say("Blue."), fail(ModelRefused("401"))]})
        await team.run("Go")
        team.team.port.send(LEADER_ID, 1, "Again.")
        await team.team.rest()
        items = [e.item for e in team.kinds(MessageQueued) if e.item.status == "failed"]
        assert [item.content for item in items] == ["My turn failed: 401"]

    go(main)


@pytest.mark.faults
def test_a_broken_off_answer_is_kept_flagged_and_failed() -> None:
    class Cut:
        key, endpoint = "cut", "cut"

        async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
            await asyncio.sleep(0)
            yield TextDelta("It is bl")
            yield Finished("It is bl", (), "length", Usage(5, 2), truncated=True)

        async def close(self) -> None: ...

    async def main() -> None:
        create = call("create_sub_agent", agent_id=1, role_id="ui-operator", task="t", model_key="cut")
        team = rig({"scripted": ScriptedModel({LEADER: [create, say("."), *OK]}, check_on_close=False), "cut": Cut()})
        state = await team.run("Go")
        answer = state.agents[1].messages[-1]
        assert (answer.content, answer.metadata["truncated"]) == ("It is bl", True)
        content, _ = failure_report(team)
        assert "broke off" in content
        assert "It is bl" in content
        assert state.agents[1].tokens == Usage(5, 2)

    go(main)


@pytest.mark.faults
@pytest.mark.parametrize("blank", ["", "  ", "\n"])
def test_an_empty_answer_is_nudged_once(blank: str) -> None:
    async def main() -> None:
        team, model = playing({LEADER: [ONE, say("."), *OK], UI: [say(blank, reasoning="hm"), say("Blue.")]})
        state = await team.run("Go")
        nudge = model.of(UI)[1].envelopes()[-1]
        assert (nudge.kind, nudge.sender, nudge.id) == ("message", LEADER, "msg_tl_001")
        stored = state.agents[1].messages[-2].metadata
        assert (stored["message_source"], stored["starts_work"]) == ("runtime", False)
        assert state.agents[1].status == "completed"
        assert all(m.content != blank for m in state.agents[1].messages)
        assert [e.item.content for e in team.kinds(MessageQueued) if e.item.kind == "completion"] == ["Blue."]

    go(main)


@pytest.mark.faults
def test_a_second_empty_answer_fails_and_no_empty_envelope_is_made() -> None:
    async def main() -> None:
        team, model = playing({LEADER: [ONE, say("."), *OK], UI: [say(""), say(" "), say("never")]})
        state = await team.run("Go")
        assert len(model.of(UI)) == 2
        assert failure_report(team) == ("My turn failed: the model gave an empty answer twice", "failed")
        assert state.agents[1].detail == "failed"
        assert all(e.item.content.strip() for e in team.kinds(MessageQueued))

    go(main)


def test_the_leaders_own_empty_answer_is_nudged_too() -> None:
    async def main() -> None:
        team, model = playing({LEADER: [say(""), say("Hello.")]})
        state = await team.run("Go")
        assert (state.run_status, state.run_text) == ("completed", "Hello.")
        assert model.of(LEADER)[1].envelopes()[-1].sender == LEADER

    go(main)


@pytest.mark.faults
def test_a_leader_that_fails_ends_the_run_as_failed_when_everybody_rests() -> None:
    async def main() -> None:
        held = Held()
        team, model = playing(
            {LEADER: [ONE, fail(ModelRefused("401"))], UI: [call("hold"), say("Blue.")]}, tools=(held.tool,)
        )
        working = asyncio.ensure_future(team.run("Go"))
        await team.until(lambda state: state.leader_state.detail == "failed")
        assert not working.done()
        held.release()
        state = await working
        assert [(e.status, e.error) for e in team.kinds(RunEnded)] == [("failed", "401")]
        assert state.agents[1].status == "completed"
        assert [item.kind for item in state.leader_state.pending] == ["completion"], "kept for when it is revived"
        model.inner.extend({LEADER: [say("Back.")]})  # type: ignore[attr-defined]
        state = await team.run("Again")
        assert (state.run_status, state.run_error, state.run_text) == ("completed", "", "Back.")

    go(main)


@pytest.mark.faults
def test_a_revived_agent_goes_on_with_the_new_message_and_does_not_run_the_old_prompt_again() -> None:
    async def main() -> None:
        team, model = playing({LEADER: [ONE, say("."), *OK], UI: [fail(ModelRefused("401")), say("Red.")]})
        await team.run("Go")
        team.team.port.send(LEADER_ID, 1, "Make it red.")
        state = team.team.state
        await team.team.rest()
        assert len(model.of(UI)) == 2
        assert [e.content for e in model.of(UI)[1].envelopes()] == ["Design.", "Make it red."]
        assert [e.item.content for e in team.kinds(MessageQueued) if e.item.kind == "completion"] == ["Red."]
        assert (state.agents[1].status, state.agents[1].detail, state.agents[1].error) == ("completed", "", "")

    go(main)


class Odd:
    """A model that breaks its own protocol."""

    key = endpoint = "odd"

    def __init__(self, how: str) -> None:
        self.how = how

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        await asyncio.sleep(0)
        if self.how == "raises":
            raise ZeroDivisionError("x")
        if self.how == "cancels":
            raise asyncio.CancelledError
        if self.how == "says nothing":
            return
        yield TextDelta("a")

    async def close(self) -> None: ...


@pytest.mark.parametrize("how", ["raises", "cancels", "says nothing", "does not finish"])
def test_a_model_that_breaks_its_protocol_fails_its_agent_and_nobody_else(how: str) -> None:
    async def main() -> None:
        create = call("create_sub_agent", agent_id=1, role_id="ui-operator", task="t", model_key="odd")
        scripted = ScriptedModel({LEADER: [create, say("."), *OK]}, check_on_close=False)
        team = rig({"scripted": scripted, "odd": Odd(how)}, order=VirtualOrder())
        state = await team.run("Go")
        assert state.agents[1].detail == "failed"
        assert failure_report(team)[1] == "failed"
        assert state.run_status == "completed"

    go(main)


# -- tools fail -----------------------------------------------------------------------------


@tool(side_effects=False)
async def leaving(how: str, context: ToolContext) -> str:
    """Leave in an unusual way."""
    if how == "exit":
        raise SystemExit(1)
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "cancel":
        raise asyncio.CancelledError
    if how == "surrogate":
        raise ValueError("a\udcff")
    raise KeyError(how)


@pytest.mark.faults
@pytest.mark.parametrize("how", ["exit", "interrupt", "cancel", "surrogate", "key"])
def test_whatever_a_tool_raises_becomes_its_result(how: str) -> None:
    async def main() -> None:
        both = call("leaving", how=how) + call("list_active_sub_agents")
        team, model = playing({LEADER: [ONE, say("."), *OK], UI: [both, say("Done.")]}, tools=(leaving,))
        state = await team.run("Go")
        result = json.loads(next(iter(model.of(UI)[1].results().values())))
        assert result["success"] is False
        assert result["error"]
        assert state.agents[1].status == "completed"

    go(main)


def test_a_result_that_is_too_long_is_cut_with_a_marker() -> None:
    @tool(side_effects=False)
    def much() -> str:
        """Say much."""
        return "x" * 500_000

    async def main() -> None:
        team, model = playing({LEADER: [call("much"), *OK]}, tools=(much,), order=VirtualOrder(auto=False))
        await team.run("Go")
        (text,) = model.of(LEADER)[1].results().values()
        assert len(text) < 400_100
        assert text.endswith("\n[cut: 100000 of 500000 characters left out]")

    go(main)


class SameIds:
    """A model that gives every call the same id."""

    key = endpoint = "same"

    def __init__(self) -> None:
        self.requests: list[tuple[str, ...]] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        await asyncio.sleep(0)
        self.requests.append(tuple(m.role for m in request.messages))
        if len(self.requests) < 4:
            yield Finished("", (ToolCall("c", "list_agents", "{}"), ToolCall("c", "list_agents", "{}")), "tool_calls")
        else:
            yield TextDelta("x")
            yield Finished("x")

    async def close(self) -> None: ...


@pytest.mark.faults
def test_call_ids_are_unique_in_a_conversation_whatever_the_model_sends() -> None:
    async def main() -> None:
        team = rig(SameIds())
        state = await team.run("Go")
        ids = [c.id for m in state.leader_state.messages for c in m.tool_calls]
        answered = [m.tool_call_id for m in state.leader_state.messages if m.role == "tool"]
        assert len(ids) == len(set(ids)) == 6
        assert sorted(answered) == sorted(ids)

    go(main)


# -- what it cost ---------------------------------------------------------------------------


@pytest.mark.faults
def test_usage_is_counted_once_per_request_also_of_tries_that_failed() -> None:
    async def main() -> None:
        def waste(error: ModelError, *tokens: int) -> Any:
            error.usage = Usage(*tokens)
            return fail(error)

        steps = [
            waste(ModelBroken("500"), 100, 1),
            waste(ModelUnreachable("reset"), 200, 2),
            say("", usage=(1000, 10)),
            say("a", usage=(2000, 20)) + call("list_active_sub_agents"),
            waste(ModelRefused("401"), 4000, 40),
        ]
        team, _ = playing({LEADER: [ONE, say(".", usage=(0, 0)), say(".", usage=(7, 7))], UI: steps})
        state = await team.run("Go")
        assert state.agents[1].tokens == Usage(7300, 73)
        assert [e.usage for e in team.kinds(UsageCounted)] == [Usage(300, 3), Usage(1000, 10), Usage(4000, 40)]
        assert state.usage() == state.agents[1].tokens + state.leader_state.tokens
        assert team.team.port.describe(1)["statistics"]["tokens"] == {"input": 7300, "output": 73, "total": 7373}

    go(main)


def test_two_models_are_priced_separately_and_an_unknown_price_is_no_price() -> None:
    async def main() -> None:
        prices = {"a": 1.0, "b": 10.0}
        create = call("create_sub_agent", agent_id=1, role_id="ui-operator", task="t", model_key="b")
        models = {
            "a": ScriptedModel({LEADER: [create, *[say(".", usage=(1, 1))] * 3]}, key="a", check_on_close=False),
            "b": ScriptedModel({UI: [say(".", usage=(5, 5))]}, key="b"),
        }
        team = rig(models, prices=lambda key, usage: prices[key] * usage.total if key in prices else None)
        state = await team.run("Go")
        leader = state.leader_state.usage["a"].total
        assert state.agents[1].usage == {"b": Usage(5, 5)}
        assert team.team.cost() == leader * 1.0 + 10 * 10.0
        del prices["b"]
        assert team.team.cost() is None

    go(main)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(max_turns=2), "max_turns: 2 model requests of one agent in this run are used up"),
        (Limits(max_tokens=30), "max_tokens: 30 of 30 tokens are used up"),
        (Limits(max_cost=3.0), "max_cost: 3.0000 of 3.0000 is used up"),
        (Limits(max_team_turns=2), "max_team_turns: 2 model requests in this run are used up"),
        (Limits(max_agent_tokens=30), "max_agent_tokens: 30 of 30 tokens are used up"),
        (Limits(max_agent_cost=3.0), "max_agent_cost: 3.0000 of 3.0000 is used up"),
    ],
)
def test_a_used_up_budget_stops_the_leader_before_its_next_request(limits: Limits, said: str) -> None:
    async def main() -> None:
        steps = [say(".", usage=(10, 5)) + call("list_agents")] * 9
        team, model = playing({LEADER: steps}, limits=limits, prices=lambda key, usage: usage.total / 10)
        state = await team.run("Go")
        assert len(model.asked) == 2
        assert [(e.status, e.error) for e in team.kinds(RunEnded)] == [("stopped", said)]
        assert (state.leader_state.detail, state.leader_state.error) == ("stopped", said)

    go(main)


def test_an_agents_own_budget_stops_it_alone_and_the_leader_is_told() -> None:
    async def main() -> None:
        steps = [say("part", usage=(20, 20)) + call("list_active_sub_agents")] * 2
        leader = [ONE, say(".", usage=(1, 1)), say("seen", usage=(1, 1))]
        team, _ = playing({LEADER: leader, UI: [*steps, say("never")]}, limits=Limits(max_agent_tokens=80))
        state = await team.run("Go")
        content, status = failure_report(team)
        assert status == "stopped"
        assert "max_agent_tokens: 80 of 80" in content
        assert (state.run_status, state.run_text) == ("completed", "seen")

    go(main)


def test_turns_are_counted_anew_in_each_run_and_per_agent() -> None:
    async def main() -> None:
        steps = [call("list_active_sub_agents")] * 3
        team, _ = playing({LEADER: [ONE, say("."), say(".")], UI: [*steps, say("never")]}, limits=Limits(max_turns=3))
        state = await team.run("Go")
        content, status = failure_report(team)
        assert status == "stopped"
        assert "max_turns: 3" in content
        assert state.run_status == "completed"
        assert team.team.agents[0].requests_in_run == 3
        team.team.begin_run("")
        assert team.team.agents[0].requests_in_run == 0

    go(main)


def test_no_more_agents_than_allowed_are_alive() -> None:
    async def main() -> None:
        team, model = playing({LEADER: [TWO, *OK], UI: [say("A.")], FSE: [say("B.")]}, limits=Limits(max_agents=1))
        state = await team.run("Go")
        first, second = (json.loads(text) for text in model.of(LEADER)[1].results().values())
        assert first["success"] is True
        assert "max_agents: 1 agents exist already" in second["error"]
        team.team.port.terminate(LEADER_ID, 1)
        team.team.port.create(team.team.port.load_role("full-stack-engineer"), 1, "Build.")
        await team.team.rest()
        assert len(state.members()) == 2

    go(main)


# -- views and files fail -------------------------------------------------------------------


def test_a_subscriber_that_raises_is_logged_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        team, _ = playing({LEADER: [say("Hello.")]})
        seen: list[Stamped] = []

        def broken(stamped: Stamped) -> None:
            raise ValueError("view")

        team.team.bus.subscribe(broken)
        team.team.bus.subscribe(seen.append)
        state = await team.run("Go")
        assert state.run_status == "completed"
        assert seen == team.events[-len(seen) :]
        assert isinstance(seen[-1].event, RunEnded)

    with caplog.at_level(logging.ERROR):
        go(main)
    assert any("a subscriber failed on" in record.message for record in caplog.records)


def test_a_subscriber_can_leave_while_it_is_called() -> None:
    async def main() -> None:
        team, _ = playing({LEADER: [say("Hello.")]})
        seen: list[Stamped] = []
        cancel = team.team.bus.subscribe(lambda stamped: (seen.append(stamped), cancel()))  # type: ignore[func-returns-value]
        await team.run("Go")
        assert len(seen) == 1

    go(main)


class Journal:
    """A journal in memory whose flush takes a turn of the loop, and may break."""

    def __init__(self, breaks_at: int | None = None) -> None:
        self.recorded: list[Stamped] = []
        self.safe = 0
        self.breaks_at = breaks_at

    def record(self, stamped: Stamped) -> None:
        self.recorded.append(stamped)

    async def durable(self, seq: int) -> None:
        await asyncio.sleep(0)
        if self.breaks_at is not None and seq >= self.breaks_at:
            raise StorageError("the disk is full")
        self.safe = max(self.safe, seq)


def test_no_model_is_asked_and_no_side_effect_begins_before_what_precedes_it_is_safe() -> None:
    async def main() -> None:
        journal = Journal()

        class Checked(Watched):
            async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
                own = made.team.state.leader_state if request.actor == LEADER else made.team.state.agents[1]
                assert journal.safe >= own.seq
                async for event in super().stream(request):
                    yield event

        @tool
        async def touch(context: ToolContext) -> str:
            """Touch the world."""
            assert journal.safe >= made.team.state.agents[context.agent_id].seq
            touched.append(context.call_id)
            return "touched"

        touched: list[str] = []
        model = Checked(
            ScriptedModel({LEADER: [ONE, say("."), *OK], UI: [call("touch"), say("Done.")]}, check_on_close=False)
        )
        made = rig(model, tools=(touch,), journal=journal)
        state = await made.run("Go")
        assert len(touched) == 1
        assert [m.content for m in state.agents[1].messages if m.role == "tool"] == ["touched"]
        assert journal.safe == state.seq, "rest is told when everything is safe"
        assert [s.seq for s in journal.recorded] == list(range(1, state.seq + 1))

    go(main)


@pytest.mark.faults
@pytest.mark.parametrize("breaks_at", [2, 6, 12, 18])
def test_a_save_that_fails_ends_the_run_with_a_report_and_loses_nothing_in_memory(breaks_at: int) -> None:
    async def main() -> None:
        journal = Journal(breaks_at)
        team, _ = playing({LEADER: [TWO, say("."), *OK], UI: [say("A.")], FSE: [say("B.")]}, journal=journal)
        with pytest.raises(StorageError, match="the disk is full"):
            await team.run("Go")
        state = team.team.state
        assert state.run_status == "failed"
        assert "the disk is full" in state.run_error
        assert state.leader_state.messages[0].content == "Go"
        assert [s.event for s in journal.recorded] == [s.event for s in team.events if s.t]
        assert not team.team.running
        for agent in state.agents.values():
            assert agent.status not in ("running", "waiting")
        with pytest.raises(TeamError, match="the disk is full"):
            team.team.begin_run("Again")

    go(main)


def test_failures_speak_the_language_of_the_conversation() -> None:
    async def main() -> None:
        team, _ = playing({LEADER: [ONE, say("."), *OK], UI: [fail(ModelRefused("401"))]}, language="zh")
        await team.run("Go")
        assert failure_report(team)[0] == "我的本轮工作失败了：401"
        stored = team.team.state.leader_state.messages[-2]
        assert parse(stored.content or "").kind == "message"
        assert stored.metadata["status"] == "failed"
        assert [e.status for e in team.kinds(StatusChanged) if e.agent_id == 1] == ["running", "idle"]

    go(main)
