"""A team whose program ended at any moment goes on from what had been stored (decisions 22, 28, 29; fault 11)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.held import Held
from support.strict_rules import violations_of
from support.teams import Rig, go, rig
from support.virtual import VirtualOrder, Watched

from astrion_nb.envelope import parse
from astrion_nb.errors import ModelRefused, QuestionError
from astrion_nb.events import AgentCreated, RunEnded, from_json, to_json
from astrion_nb.ids import HUMAN_ID
from astrion_nb.llm.scripted import ScriptedModel, call, fail, say, until_message
from astrion_nb.llm.wire import wire_messages
from astrion_nb.state import TeamState, apply
from astrion_nb.testing import invariants
from astrion_nb.tools.registry import tool

pytestmark = pytest.mark.faults

LEADER, UI, FSE = "Team Leader", "UI Operator_1", "Full-Stack Engineer_1"
TWO = call("create_sub_agent", agent_id=1, role_id="ui-operator", task="Design.") + call(
    "create_sub_agent", agent_id=1, role_id="full-stack-engineer", task="Build."
)
OK = [say("Ok.")] * 12


def loaded(made: Rig, upto: int | None = None) -> TeamState:
    """Return the state that the stored events of a team give, up to a number of events."""
    stored = [stamped for stamped in made.events if stamped.t][:upto]
    state = TeamState()
    for stamped in stored:
        apply(state, from_json(json.loads(json.dumps(to_json(stamped.event)))), seq=stamped.seq, t=stamped.t)
    return state


def again(state: TeamState, script: dict[str, list[Any]], **more: Any) -> tuple[Rig, Watched]:
    model = Watched(ScriptedModel(script, check_on_close=False))
    made = rig(model, state=state, **more)
    made.team.restore()
    return made, model


def tool_texts(state: TeamState, number: int) -> list[str]:
    return [message.content or "" for message in state.agents[number].messages if message.role == "tool"]


async def torn(script: dict[str, list[Any]], condition: Any, **more: Any) -> Rig:
    """Run a team until a condition holds and leave it at that."""
    made = rig(ScriptedModel(script, check_on_close=False), **more)
    made.team.begin_run("Go")
    made.team.person.say("Go")
    await made.until(condition)
    return made


def test_who_worked_is_interrupted_and_the_leader_is_told_and_no_model_is_asked() -> None:
    async def main() -> None:
        held = Held()
        script = {LEADER: [TWO, say("."), *OK], UI: [say("Half.") + call("hold")], FSE: [say("Built.")]}
        first = await torn(script, lambda s: len(s.agents) == 3 and s.agents[1].open_calls, tools=(held.tool,))
        made, model = again(loaded(first), {LEADER: OK, UI: [say("Done.")]}, tools=(held.tool,))
        state = made.team.state
        agent = state.agents[1]
        assert (agent.status, agent.detail) == ("idle", "interrupted")
        assert tool_texts(state, 1) == [
            '{"success":false,"error":"interrupted: the program ended while it ran or before it started; '
            'it was not run again"}'
        ]
        notes = [item for item in state.leader_state.pending if item.source == "runtime"]
        assert (UI, False) in [(item.sender, item.wakes) for item in notes]
        assert state.run_status == "interrupted"
        assert not made.team.running
        assert model.asked == []
        made.team.port.send(HUMAN_ID, 1, "Go on.")
        await made.team.rest()
        assert model.of(UI)[0].roles == ["system", "user", "assistant", "tool", "user"]
        assert held.begun == 1

    go(main)


def test_restoring_twice_changes_nothing() -> None:
    async def main() -> None:
        held = Held()
        script = {LEADER: [TWO, say("."), *OK], UI: [call("hold")], FSE: [say("Built.")]}
        first = await torn(script, lambda s: len(s.agents) == 3 and s.agents[1].open_calls, tools=(held.tool,))
        made, _ = again(loaded(first), {}, tools=(held.tool,))
        count = len(made.events)
        made.team.restore()
        assert len(made.events) == count
        second, _ = again(made.team.state, {}, tools=(held.tool,))
        assert second.events == []

    go(main)


def test_who_waited_waits_again_under_the_same_id_and_its_answer_finds_it() -> None:
    async def main() -> None:
        ask = call("ask_master", question="Which?", question_id="q-1")
        script = {LEADER: [TWO, until_message(say("."))], UI: [ask], FSE: [say("Built.")]}
        first = await torn(script, lambda s: "q-1" in s.questions)
        made, model = again(loaded(first), {LEADER: OK, UI: [say("Done.")]})
        assert made.team.state.agents[1].status == "waiting"
        assert made.team.running
        made.team.port.answer(HUMAN_ID, None, "q-1", "this one")
        await made.team.rest()
        state = made.team.state
        assert parse(json.loads(tool_texts(state, 1)[0])["answer"]).content == "this one"
        assert state.agents[1].status == "completed"
        assert model.of(UI)[0].roles == ["system", "user", "assistant", "tool"]

    go(main)


def test_an_answer_that_was_stored_and_not_handed_over_is_handed_over() -> None:
    async def main() -> None:
        ask = call("ask_master", question="Which?", question_id="q-1")
        reply = call("answer_sub_agent_question", agent_id=1, question_id="q-1", answer="this one")
        script = {LEADER: [TWO, say("."), reply, *OK], UI: [ask, say("Done.")], FSE: [until_message(say("."))]}
        first = await torn(script, lambda s: bool(s.questions) and s.questions["q-1"].status == "answered")
        stored = [stamped for stamped in first.events if stamped.t]
        cut = next(n for n, s in enumerate(stored, 1) if type(s.event).__name__ == "QuestionAnswered")
        made, _ = again(loaded(first, cut), {})
        (text,) = tool_texts(made.team.state, 1)
        assert parse(json.loads(text)["answer"]).content == "this one"

    go(main)


def test_a_question_lost_on_its_way_is_put_again_and_who_is_waited_for_goes_on_with_the_next_run() -> None:
    async def main() -> None:
        ask = call("ask_sub_agent", agent_id=1, question="How long?", question_id="q-1")
        script = {LEADER: [TWO, ask], UI: [say("Blue."), say("x")], FSE: [say("Built.")]}
        first = await torn(script, lambda s: "q-1" in s.questions)
        stored = [stamped for stamped in first.events if stamped.t]
        cut = next(n for n, s in enumerate(stored, 1) if type(s.event).__name__ == "QuestionAsked")
        made, model = again(loaded(first, cut), {LEADER: OK, UI: [say("An hour.")], FSE: OK})
        state = made.team.state
        assert [item.id for item in state.agents[1].pending if item.kind == "ask"] == ["q-1"]
        await asyncio.sleep(0)
        assert model.asked == [], "a conversation may be opened to be read"
        assert state.leader_state.status == "waiting"
        made.team.begin_run("Go on")
        made.team.person.say("Go on")
        await made.team.rest()
        answers = [t for t in tool_texts(state, 0) if "q-1" in t]
        assert parse(json.loads(answers[0])["answer"]).content == "An hour."

    go(main)


@pytest.mark.parametrize("to", [UI, FSE])
def test_a_message_whose_turn_had_not_begun_when_the_program_ended_begins_it_with_the_next_run(to: str) -> None:
    async def main() -> None:
        script = {LEADER: [TWO, *OK], UI: [say("Blue.")], FSE: [say("Built.")]}
        first = rig(ScriptedModel(script, check_on_close=False))
        await first.run("Go")
        stored = [stamped for stamped in first.events if stamped.t]
        number = next(one.agent_id for one in first.team.state.members() if one.display_name == to)
        cut = next(n for n, s in enumerate(stored, 1) if getattr(s.event, "item", None) and s.event.agent_id == number)
        made, model = again(loaded(first, cut), {LEADER: OK, UI: [say("Red.")], FSE: [say("Rebuilt.")]})
        state = made.team.state
        assert [item.kind for item in state.agents[number].pending] == ["task"]
        await asyncio.sleep(0)
        assert model.asked == [], "a conversation may be opened to be read"
        made.team.begin_run("Go on")
        made.team.person.say("Go on")
        await made.team.rest()
        assert (state.agents[number].status, state.agents[number].pending) == ("completed", [])
        assert len(model.of(to)) == 1

    go(main)


def test_a_led_team_cut_off_after_any_event_goes_on_and_its_person_has_read_what_came() -> None:
    def script(*ends: Any) -> dict[str, list[Any]]:
        ask = call("ask_master", question="Which?", question_id="q-1")
        working = [say("On it.") + call("list_active_sub_agents"), ask]
        return {UI: [*working, *ends, *OK], FSE: [say("Built."), *OK]}

    async def work(made: Rig, *roles: str) -> None:
        team = made.team
        team.begin_run("Go")
        for role in roles:
            team.port.create(team.port.load_role(role), None, "Do your part.", source="user")
        for agent in team.state.members() if not roles else ():
            team.port.send(HUMAN_ID, agent.agent_id, "Go on.")
        while team.running:
            await settle()
            for question in team.state.open_questions():
                team.port.answer(HUMAN_ID, None, question.id, "this one")
        await team.rest()

    async def main() -> None:
        refused = fail(ModelRefused("no such model", status=404))  # told by one who is at rest already
        first = rig(ScriptedModel(script(refused), check_on_close=False), leader="human")
        await work(first, "ui-operator", "full-stack-engineer")
        stored = [stamped.event for stamped in first.events if stamped.t]
        begun = next(n for n, event in enumerate(stored, 1) if isinstance(event, AgentCreated))
        between = 0
        for cut in range(begun, len(stored) + 1):
            state = loaded(first, cut)
            between += bool(state.leader_state.pending)
            made, model = again(state, script(), leader="human")
            assert state.leader_state.pending == [], cut
            await settle()
            assert model.asked == []
            await work(made)
            assert (state.run_status, state.run_error) == ("completed", ""), cut
            assert state.leader_state.status == "idle"
            invariants.check(state, made.events, made.team)
        assert between > 2, "a report was stored, and that it was read was not"

    asyncio.run(asyncio.wait_for(main(), 20))


@pytest.mark.parametrize("ended", [False, True])
def test_only_what_was_unread_when_the_program_ended_is_taken_up(ended: bool) -> None:
    """A report of who is stopped wakes nobody, neither then nor when somebody else gets work."""

    async def main() -> None:
        held = Held()
        script = {LEADER: [TWO, say("."), *OK], UI: [call("hold")], FSE: [say("Built."), call("hold")]}
        made = await torn(script, lambda s: len(s.agents) == 3 and bool(s.agents[1].open_calls), tools=(held.tool,))
        await made.until(lambda s: s.leader_state.status == s.agents[2].status == "completed" and s.agents[1].requests)
        await asyncio.gather(*made.team.stop_all("stopped"), return_exceptions=True)
        if ended:
            made, _ = again(loaded(made), {**script, FSE: [call("hold")], LEADER: OK}, tools=(held.tool,))
        state = made.team.state
        assert [item.status for item in state.leader_state.pending if item.wakes] == ["stopped"]
        before = state.leader_state.requests
        made.team.port.send(HUMAN_ID, 2, "One thing more.")
        await made.until(lambda s: bool(s.agents[2].open_calls))
        await settle()
        assert (state.leader_state.requests > before) == ended
        assert bool(state.leader_state.pending) != ended
        await asyncio.gather(*made.team.stop_all("stopped"), return_exceptions=True)

    go(main)


def test_a_person_who_left_does_not_wait_any_more() -> None:
    async def main() -> None:
        script = {LEADER: [TWO, *OK], UI: [say("Blue."), until_message(say("Navy."))], FSE: [say("Built.")]}
        first = rig(ScriptedModel(script, check_on_close=False))
        await first.run("Go")
        question = first.team.person.ask(1, "Which blue?")
        await first.until(lambda state: state.agents[1].pending == [])
        made, _ = again(loaded(first), {LEADER: OK})
        assert made.team.state.open_questions() == []
        with pytest.raises(QuestionError, match="has expired"):
            made.team.port.answer(1, None, question.id, "late")

    go(main)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 400), st.booleans())
def test_a_team_cut_off_after_any_event_goes_on_whole(cut: int, human: bool) -> None:
    """The one rule: envelopes once, side effects at most once, every call one result, and it comes to rest."""
    touched: list[str] = []

    @tool
    async def touch(what: str) -> str:
        """Touch the world."""
        touched.append(what)
        return "touched"

    def script(touching: bool) -> dict[str, list[Any]]:
        notice = call("ask_other_agent", target_agent_id=1, content="ready", message_id="n-1", expects_answer=False)
        work = call("touch", what="once") if touching else call("list_active_sub_agents")
        ask = call("ask_master", question="Which?", question_id="q-1")
        reply = call("answer_sub_agent_question", agent_id=1, question_id="q-1", answer="this")
        peer = call("ask_other_agent", target_agent_id=UI, content="Fields?", message_id="p-1")
        wide = call("ask_sub_agent", agent_id=2, question="Done?", question_id="l-1")
        return {
            LEADER: [TWO, say("."), reply, wide, *OK],
            UI: [say("On it.") + work, ask, say("Blue."), say("All fields."), *OK],
            FSE: [notice, peer, say("Built."), say("Yes."), *OK],
        }

    async def main() -> None:
        order = VirtualOrder(auto=False)
        first = rig(ScriptedModel(script(True), check_on_close=False), tools=(touch,), order=order, human=human)
        await drive(first, order)
        events = len([stamped for stamped in first.events if stamped.t])
        assert events > 60
        before = list(touched)
        state = loaded(first, 1 + cut % events)
        made, model = again(state, script(False), tools=(touch,), order=order, human=human)
        await settle()
        assert model.asked == []
        await drive(made, order)
        assert touched == before == ["once"], "what touched the world is not done again"
        check(made)

    asyncio.run(asyncio.wait_for(main(), 20))


async def settle() -> None:
    for _ in range(40):
        await asyncio.sleep(0)


async def drive(made: Rig, order: VirtualOrder) -> None:
    """Say something, answer what goes to the person, until everybody rests."""
    made.team.begin_run("Go")
    made.team.person.say("Go")
    for _ in range(60):
        await settle()
        if not made.team.running and not made.team.state.open_questions():
            return
        for question in made.team.state.open_questions():
            if question.answerer == HUMAN_ID:
                made.team.port.answer(HUMAN_ID, None, question.id, "the person says")
        order.advance(0.6)
    raise AssertionError(f"no rest: {made.team.state.open_questions()}")


def check(made: Rig) -> None:
    state = made.team.state
    assert state.run_status == "completed"
    read: set[tuple[int, str]] = set()
    for number, agent in state.agents.items():
        assert agent.status in ("completed", "idle")
        assert not agent.open_calls
        body = {"model": "m", "stream": True, "messages": wire_messages(agent.messages)}
        assert violations_of(body) == []
        ids = [m.message_id for m in agent.messages if m.message_id]
        assert len(ids) == len(set(ids)), "no stored id occurs twice"
        for message in agent.messages:
            envelope_id = message.metadata.get("envelope_id")
            if envelope_id is not None:
                assert (number, envelope_id) not in read, "each envelope is read once"
                read.add((number, envelope_id))
        assert not any((number, item.id) in read for item in agent.pending)
    last = [event.status for event in made.kinds(RunEnded)]
    assert last[-1] == "completed"
