"""Runs that fail, are stopped or run out of time replay like any other, to the byte."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.replays import load, record, replayed, told
from support.teams import BOUND, Rig, go

from astrion_nb.errors import ContentFiltered, ModelBroken, ModelBusy, ModelRefused, ScriptError
from astrion_nb.events import RunEnded, StatusChanged
from astrion_nb.ids import HUMAN_ID
from astrion_nb.llm.model import ModelRequest
from astrion_nb.llm.scripted import ScriptedModel, Step, call, fail, say, until_message
from astrion_nb.messages import Usage
from astrion_nb.replay.cassette import Ended
from astrion_nb.runtime.limits import Limits
from astrion_nb.runtime.order import Live, Timer
from astrion_nb.tools.registry import tool

Act = Callable[[Rig], Awaitable[None]]
CREATE = call("create_sub_agent", agent_id=1, role_id="ui-operator", task="Work.")
FOREVER = until_message(say("never said"))


class Quick(Live):
    """Live, but waiting costs nothing and a second is a hundredth."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)

    def at(self, actor: str, n: int, seconds: float, act: Callable[[], None]) -> Timer:
        return super().at(actor, n, seconds / 100, act)


async def plain(made: Rig) -> None:
    await made.run("Go.")


async def stop_when(made: Rig, ready: Callable[[Any], bool], end: Callable[[Rig], object]) -> None:
    team = made.team
    await team.person.admit()
    team.begin_run("Go.")
    team.person.say("Go.")
    if not team.order.replaying:
        await made.until(ready)
        for _ in range(30):  # everybody is in the middle of a response then
            await asyncio.sleep(0)
    await team.person.admit()
    end(made)
    await asyncio.wait_for(team.rest(), BOUND)


async def stop_everything(made: Rig) -> None:
    await stop_when(made, lambda state: len(state.agents) > 1, lambda rig: rig.team.stop_all("stopped", "enough"))


async def stop_one(made: Rig) -> None:
    await stop_when(
        made,
        lambda state: len(state.agents) > 1 and state.leader_state.requests == 2,
        lambda rig: rig.team.port.stop_agent(HUMAN_ID, 1, "enough"),
    )


async def terminate_one(made: Rig) -> None:
    await stop_when(
        made,
        lambda state: len(state.agents) > 1 and state.leader_state.requests == 2,
        lambda rig: rig.team.port.terminate(HUMAN_ID, 1),
    )


def busy(request: ModelRequest) -> Step:
    return fail(ModelBusy("slow down", retry_after=0.0, status=429))


CASES: dict[str, tuple[dict[str, list[Any]], Act]] = {
    "leader refused": ({"Team Leader": [fail(ModelRefused("no such model", status=404))]}, plain),
    "member breaks off after text": (
        {
            "Team Leader": [CREATE, say("Waiting."), say("It failed.")],
            "UI Operator_1": [say("Half of") + fail(ModelBroken("gone", status=502))],
        },
        plain,
    ),
    "tried again after 429 and 503": (
        {
            "Team Leader": [
                busy,
                fail(ModelBroken("overloaded", status=503)),
                say("At last.", reasoning="hm"),
            ]
        },
        plain,
    ),
    "given up after three tries": ({"Team Leader": [fail(ModelBroken("overloaded", status=503))] * 3}, plain),
    "given up on 429": ({"Team Leader": [busy] * 12}, plain),
    "filtered": ({"Team Leader": [say("bad", finish="content_filter")]}, plain),
    "empty twice": ({"Team Leader": [say(""), say("")]}, plain),
    "length": ({"Team Leader": [say("Too lo", finish="length", usage=Usage(5, 6, 3, 2))]}, plain),
    "invalid arguments": ({"Team Leader": [call("create_sub_agent", '{"agent_id": '), say("Sorry.")]}, plain),
    "stopped by the person in the middle of responses": (
        {"Team Leader": [CREATE, FOREVER], "UI Operator_1": [FOREVER]},
        stop_everything,
    ),
    "one stopped by the person": (
        {"Team Leader": [CREATE, say("Waiting."), say("Stopped.")], "UI Operator_1": [FOREVER]},
        stop_one,
    ),
    "one terminated by the person": (
        {"Team Leader": [CREATE, say("Waiting."), say("Gone.")], "UI Operator_1": [FOREVER]},
        terminate_one,
    ),
    "stopped by the leader, then revived": (
        {
            "Team Leader": [
                CREATE,
                call("stop_sub_agent", agent_id=1, reason="wrong way"),
                call("send_message_to_sub_agent", agent_id=1, message="Try again."),
                say("Waiting."),
                say("Good."),
            ],
            "UI Operator_1": [FOREVER, say("Done after all.")],
        },
        plain,
    ),
    "timed out": (
        {
            "Team Leader": [
                call("create_sub_agent", agent_id=1, role_id="ui-operator", task="Work.", timeout_seconds=1),
                say("Waiting."),
                say("Too late."),
            ],
            "UI Operator_1": [say("First.") + call("list_active_sub_agents"), FOREVER],
        },
        plain,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_that_does_not_end_well_replays_byte_equal(case: str) -> None:
    script, act = CASES[case]

    async def main() -> None:
        model = ScriptedModel(script, check_on_close=False)
        recorded = await record(model, act, inner=Quick())
        for again in range(10):
            made, player = replayed(recorded.cassette, dice=random.Random(again) if again else None)
            await act(made)
            assert player.miss is None
            assert told(made) == recorded.told
            player.check()
            player.close()

    go(main)


def test_the_cases_above_end_as_they_say() -> None:
    async def main() -> None:
        ended = {}
        for case, (script, act) in CASES.items():
            made = (await record(ScriptedModel(script, check_on_close=False), act, inner=Quick())).rig
            details = [event.detail for event in made.kinds(StatusChanged) if event.detail]
            ended[case] = (made.kinds(RunEnded)[-1].status, *details)
        assert ended == {
            "leader refused": ("failed", "failed"),
            "member breaks off after text": ("completed", "failed"),
            "tried again after 429 and 503": ("completed",),
            "given up after three tries": ("failed", "failed"),
            "given up on 429": ("failed", "failed"),
            "filtered": ("failed", "failed"),
            "empty twice": ("failed", "failed"),
            "length": ("completed",),
            "invalid arguments": ("completed",),
            "stopped by the person in the middle of responses": ("stopped", "stopped", "stopped"),
            "one stopped by the person": ("completed", "stopped"),
            "one terminated by the person": ("completed", "stopped"),
            "stopped by the leader, then revived": ("completed", "stopped"),
            "timed out": ("completed", "timed_out"),
        }

    go(main)


def test_a_failure_keeps_its_class_status_usage_and_partial_text() -> None:
    async def main() -> None:
        filtered = {"Team Leader": [say("bad words", finish="content_filter")]}
        recorded = await record(ScriptedModel(filtered), plain)
        made, player = replayed(recorded.cassette)
        request = ModelRequest("Team Leader", 1, [])
        player.digester.of = lambda _: recorded.cassette.teams[0].responses[0].asked  # type: ignore[method-assign]
        with pytest.raises(ContentFiltered) as caught:
            async for _ in player.model("scripted").stream(request):
                pass
        assert caught.value.partial == "bad words"
        assert not caught.value.retryable
        del made

    go(main)


def test_a_bug_of_a_model_replays_as_the_internal_fault_it_was() -> None:
    def broken(request: ModelRequest) -> Step:
        raise TypeError("not a step")

    async def main() -> None:
        recorded = await record(ScriptedModel({"Team Leader": [broken]}), plain)
        assert "internal fault: TypeError: not a step" in recorded.told
        made, _ = replayed(recorded.cassette)
        await plain(made)
        assert told(made) == recorded.told

    go(main)


def test_a_script_error_replays_as_one() -> None:
    async def main() -> None:
        model = ScriptedModel({}, check_on_close=False)
        recorded = await record(model, plain)
        assert recorded.cassette.teams[0].responses[0].failure.kind == ScriptError.__name__  # type: ignore[union-attr]
        made, _ = replayed(recorded.cassette)
        await plain(made)
        assert told(made) == recorded.told

    go(main)


def test_an_agent_stopped_inside_a_tool_hangs_there_until_it_is_stopped_again() -> None:
    """The tool has no side effects, so it runs in the replay too and comes back: too early to count."""
    inside = threading.Event()
    leave = threading.Event()

    @tool(side_effects=False, description="Look.")
    def look() -> str:
        inside.set()
        leave.wait(BOUND)
        return "seen"

    async def act(made: Rig) -> None:
        team = made.team
        await team.person.admit()
        team.begin_run("Go.")
        team.person.say("Go.")
        if not team.order.replaying:
            await asyncio.to_thread(inside.wait, BOUND)
        await team.person.admit()
        team.stop_all("stopped", "enough")
        leave.set()
        await team.rest()

    async def main() -> None:
        recorded = await record(ScriptedModel({"Team Leader": [call("look")]}), act, tools=(look,))
        assert leave.is_set()
        assert recorded.cassette.teams[0].order[-1] == Ended("Team Leader", "stopped")
        for again in range(5):
            made, player = replayed(recorded.cassette, tools=(look,), dice=random.Random(again))
            await act(made)
            assert told(made) == recorded.told
            player.check()

    go(main)


def test_a_recording_that_was_cut_off_replays_as_far_as_it_goes_and_then_misses() -> None:
    async def main() -> None:
        script, act = CASES["member breaks off after text"]
        recorded = await record(ScriptedModel(script), act, inner=Quick())
        cassette = load(recorded.data)
        del cassette.teams[0].order[-4:]
        made, player = replayed(cassette)
        await act(made)
        assert player.miss is not None
        assert "which it does not hold; the recording is at its end" in str(player.miss)

    go(main)


def test_an_agent_that_was_stopped_while_it_waited_for_a_slot_replays_without_slots() -> None:
    """A response that never came would hold its slot for ever, so a replay has none: the order is known."""
    create = CREATE + call("create_sub_agent", agent_id=2, role_id="ui-operator", task="Work too.")
    script = {
        "Team Leader": [create, say("Waiting."), say("One is stopped."), say("Done.")],
        "UI Operator_1": [until_message(say("Here.")), say("And done.")],
        "UI Operator_2": [say("never asked for")],
    }

    async def act(made: Rig) -> None:
        team = made.team
        await stop_when(
            made,
            lambda state: len(state.agents) > 2,
            lambda rig: (rig.team.port.stop_agent(HUMAN_ID, 2, "enough"), rig.team.port.send(HUMAN_ID, 1, "Now.")),
        )
        assert not team.running

    async def main() -> None:
        model = ScriptedModel(script, check_on_close=False)
        recorded = await record(model, act, limits=Limits(max_active_agents=1))
        assert [item.actor for item in recorded.cassette.teams[0].responses].count("UI Operator_2") == 0
        for again in range(10):
            made, player = replayed(recorded.cassette, dice=random.Random(again), limits=Limits(max_active_agents=None))
            await act(made)
            assert told(made) == recorded.told
            player.check()

    go(main)


def test_agents_that_were_put_away_at_work_hang_in_the_replay_until_they_are_again() -> None:
    """Putting a team away is no step: it may come at any time after the last one."""
    script = {
        "Team Leader": [CREATE, FOREVER],
        "UI Operator_1": [call("list_active_sub_agents"), FOREVER],
    }

    async def act(made: Rig) -> None:
        team = made.team
        await team.person.admit()
        team.begin_run("Go.")
        team.person.say("Go.")
        await made.until(lambda state: len(state.agents) > 1 and len(state.agents[1].messages) == 3)
        for _ in range(50):
            await asyncio.sleep(0)
        for task in team.shut():
            await asyncio.wait({task})

    async def main() -> None:
        recorded = await record(ScriptedModel(script, check_on_close=False), act)
        order = recorded.cassette.teams[0].order
        assert {row for row in order if isinstance(row, Ended)} == {
            Ended("Team Leader", "interrupted"),
            Ended("UI Operator_1", "interrupted"),
        }
        for again in range(5):
            made, player = replayed(recorded.cassette, dice=random.Random(again) if again else None)
            await act(made)
            assert player.miss is None
            assert told(made) == recorded.told
            player.check()

    go(main)
