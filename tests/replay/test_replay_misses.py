"""What a recording does not hold is a loud miss: who, when, what differs; never a live model, never a wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from support import teams
from support.replays import Recorded, record, replayed
from support.teams import BOUND, ROLES, Rig, go

from astrion_nb.errors import ReplayError, ReplayMiss
from astrion_nb.events import RunEnded
from astrion_nb.ids import HUMAN_ID
from astrion_nb.llm.scripted import ScriptedModel, call, say, until_message
from astrion_nb.replay.cassette import Cassette, Step
from astrion_nb.tools.registry import Tool, tool

SOON = 0.05


def count_tool(description: str = "Count the words.") -> Tool:
    @tool(side_effects=False, description=description)
    def count(text: str) -> int:
        return len(text.split())

    return count


def script() -> ScriptedModel:
    return ScriptedModel(
        {
            "Team Leader": [
                call("create_sub_agent", agent_id=1, role_id="ui-operator", task="Count."),
                say("Waiting."),
                say("Two words."),
            ],
            "UI Operator_1": [call("count", text="two words"), say("It is two.")],
        },
        check_on_close=False,
    )


async def lesson(made: Rig) -> None:
    await made.run("How many words?")


def recorded() -> Recorded:
    out: Recorded = go(lambda: record(script(), lesson, tools=(count_tool(),)))
    return out


def missed(cassette: Cassette, act: Callable[[Rig], object] = lesson, **options: object) -> str:
    """Replay, expect the run to end in failure by a miss, and return the miss."""

    async def main() -> str:
        options.setdefault("tools", (count_tool(),))
        made, player = replayed(cassette, **options)  # type: ignore[arg-type]
        try:
            await asyncio.wait_for(act(made), BOUND)  # type: ignore[arg-type]
        except ReplayMiss:
            pass  # the person acted when it was over
        await asyncio.wait_for(made.team.rest(), BOUND)
        ends = made.kinds(RunEnded)
        assert [end.status for end in ends] in ([], ["failed"])
        assert player.miss is not None
        with pytest.raises(ReplayMiss):
            player.check()
        player.close()
        return str(player.miss)

    out: str = go(main)
    return out


def test_a_whole_replay_leaves_nothing_and_says_so() -> None:
    tape = recorded()

    async def main() -> None:
        made, player = replayed(tape.cassette, tools=(count_tool(),))
        with pytest.raises(ReplayError, match=r"15 of 15 recorded steps were not replayed; next is human human 1$"):
            player.check()
        await lesson(made)
        player.check()
        assert player.next is None

    go(main)


def test_another_prompt_is_named_with_agent_request_and_both_texts() -> None:
    told = missed(recorded().cassette, lambda made: made.run("How many letters?"))
    assert "Team Leader, request 1 is not the recorded one" in told
    assert "message 2 differs (recorded: user, 15 characters: 'How many words?'; now: user, 17 characters" in told
    assert "'How many letters?'" in told
    assert "record again with --record" in told


def test_another_role_prompt_is_a_miss_of_that_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    tape = recorded()
    monkeypatch.setitem(ROLES, "ui-operator", replace(ROLES["ui-operator"], prompt="Be brief."))
    assert "UI Operator_1, request 1 is not the recorded one: message 1 differs" in missed(tape.cassette)


def test_another_tool_schema_is_a_miss_that_names_the_tool() -> None:
    told = missed(recorded().cassette, tools=(count_tool("Count all words."),))
    assert "Team Leader, request 1 is not the recorded one: tools changed: count;" in told


def test_a_missing_tool_and_a_new_one_are_named() -> None:
    @tool(side_effects=False, description="Look.")
    def look() -> str:
        return "seen"

    assert "tools missing: count; tools new: look" in missed(recorded().cassette, tools=(look,))


def test_a_tool_that_computes_something_else_is_a_miss_of_the_next_request() -> None:
    @tool(name="count", side_effects=False, description="Count the words.")
    def miscount(text: str) -> int:
        return 3

    told = missed(recorded().cassette, tools=(miscount,))
    assert "UI Operator_1, request 2" in told
    assert "recorded: tool, 1 characters: '2'; now: tool, 1 characters: '3'" in told


def test_a_step_that_the_recording_never_comes_to_is_a_miss_at_once() -> None:
    cassette = recorded().cassette
    tape = cassette.teams[0]
    tape.order = [row for row in tape.order if row[:3] != ("UI Operator_1", "tool", 1)]
    begin = time.monotonic()
    told = missed(cassette)
    assert time.monotonic() - begin < 2  # the stall is thirty seconds
    assert "UI Operator_1 comes to tool 1, which it does not hold; the recording goes on with" in told


def test_an_extra_request_is_a_miss_at_once() -> None:
    cassette = recorded().cassette
    tape = cassette.teams[0]
    last = max(row.n for row in tape.order if row[:2] == ("Team Leader", "request"))
    tape.order = [
        row for row in tape.order if not (row.actor == "Team Leader" and row.n == last and row.kind[:3] == "req")
    ]
    assert f"Team Leader comes to request {last}, which it does not hold" in missed(cassette)


def test_a_request_without_a_recorded_response_is_a_miss() -> None:
    cassette = recorded().cassette
    tape = cassette.teams[0]
    tape.responses = [item for item in tape.responses if (item.actor, item.n) != ("UI Operator_1", 2)]
    assert "UI Operator_1, request 2: it holds no response to it" in missed(cassette)


def test_a_person_s_step_beyond_the_recording_is_a_miss_of_that_person() -> None:
    async def main() -> None:
        made, _ = replayed(recorded_tape.cassette, tools=(count_tool(),))
        await lesson(made)
        with pytest.raises(
            ReplayMiss, match=r"human comes to human 2, which it does not hold; the recording is at its end"
        ):
            await made.team.person.admit()

    recorded_tape = recorded()
    go(main)


def test_another_order_of_steps_ends_in_a_miss_after_the_stall() -> None:
    cassette = recorded().cassette
    order = cassette.teams[0].order
    place = next(i for i, row in enumerate(order) if row[:3] == ("UI Operator_1", "request", 1))
    order.insert(1, order.pop(place))  # before the leader has created it
    told = missed(cassette, stall=SOON)
    assert f"nothing has happened for {SOON:g} seconds; waiting are Team Leader request 1" in told
    assert "goes on with UI Operator_1 request 1" in told


def test_a_person_s_step_that_nobody_brings_is_a_miss_after_its_stall() -> None:
    """The recording sends something while the team works; the replaying notebook lacks that cell."""

    async def act(made: Rig) -> None:
        team = made.team
        await team.person.admit()
        team.begin_run("Go.")
        team.person.say("Go.")
        if not team.order.replaying:
            await made.until(lambda state: 1 in state.agents and len(state.agents[1].messages) > 1)  # it read its task
            await team.person.admit()
            team.port.send(HUMAN_ID, 1, "Hurry.")
        await team.rest()

    model = ScriptedModel(
        {
            "Team Leader": [
                call("create_sub_agent", agent_id=1, role_id="ui-operator", task="Wait."),
                say("Waiting."),
                say("Done."),
            ],
            "UI Operator_1": [until_message(call("list_active_sub_agents")), say("Hurried.")],
        },
        check_on_close=False,
    )
    tape = go(lambda: record(model, act))
    told = missed(tape.cassette, act, human_stall=SOON, stall=SOON, tools=())
    assert "waiting are" in told
    assert "goes on with human human 2" in told


def test_a_person_s_step_is_waited_for_while_nothing_says_otherwise() -> None:
    async def main() -> None:
        _, player = replayed(tape.cassette, tools=(count_tool(),), stall=0.01)
        order = tape.cassette.teams[0].order
        assert order[0][:2] == ("human", "human")
        waiting = asyncio.ensure_future(player.admit("Team Leader", "request", 1))
        done, _ = await asyncio.wait({waiting}, timeout=0.1)
        assert not done
        assert player.miss is None
        waiting.cancel()
        player.close()

    tape = recorded()
    go(main)


def test_a_miss_ends_everybody_also_who_waits_for_an_answer() -> None:
    """The asker waits for a person; the miss is somebody else's."""
    model = ScriptedModel(
        {
            "Team Leader": [
                call("create_sub_agent", agent_id=1, role_id="ui-operator", task="Ask.")
                + call("create_sub_agent", agent_id=2, role_id="ui-operator", task="Count."),
                say("Waiting."),
                say("I do not know."),
                say("I still do not know."),
                say("Well."),
                say("Well, well."),
            ],
            "UI Operator_1": [call("ask_master", question="Blue?", question_id="q"), say("Blue.")],
            "UI Operator_2": [until_message(call("count", text="a b")), say("Two.")],
        },
        check_on_close=False,
    )

    async def act(made: Rig) -> None:
        team = made.team
        await team.person.admit()
        team.begin_run("Go.")
        team.person.say("Go.")
        if not team.order.replaying:
            await made.until(lambda state: any(item.passed for item in state.questions.values()))
        await team.person.admit()
        team.port.send(HUMAN_ID, 2, "Now.")
        if not team.order.replaying:
            await made.until(lambda state: state.agents[2].status == "completed")
        await team.person.admit()
        team.port.answer(HUMAN_ID, 1, next(iter(team.state.questions)), "Blue.")
        await team.rest()

    @tool(name="count", side_effects=False, description="Count the words.")
    def miscount(text: str) -> int:
        return 3

    tape = go(lambda: record(model, act, tools=(count_tool(),)))
    assert "UI Operator_2, request 2 is not the recorded one" in missed(tape.cassette, act, tools=(miscount,))


def test_the_rig_of_these_tests_is_bounded() -> None:
    assert teams.BOUND <= 5


def test_a_step_is_printed_as_actor_kind_and_number() -> None:
    assert str(Step("UI Operator_1", "tool", 2, 7)) == "UI Operator_1 tool 2"
