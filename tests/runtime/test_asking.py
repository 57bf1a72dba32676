"""Questions that block: who may ask whom, whose answer counts, where they go.

Decisions 4, 8, 15, 17, 18, 22, 23, 55, 56.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from support.held import Held
from support.teams import Rig, go, rig
from support.virtual import Watched

from astrion_nb.envelope import parse
from astrion_nb.errors import AgentTerminated, ModelRefused, NobodyToAnswer, QuestionError, TeamError, WouldDeadlock
from astrion_nb.events import MessageQueued, QuestionAsked, StatusChanged
from astrion_nb.ids import HUMAN_ID, LEADER_ID
from astrion_nb.llm.model import ModelRequest
from astrion_nb.llm.scripted import ScriptedModel, Step, call, fail, say, until_message
from astrion_nb.state import Question

LEADER, UI, FSE = "Team Leader", "UI Operator_1", "Full-Stack Engineer_1"
ONE = call("create_sub_agent", agent_id=1, role_id="ui-operator", task="Design.")
TWO = ONE + call("create_sub_agent", agent_id=1, role_id="full-stack-engineer", task="Build.")
OK = [say("Ok.")] * 9


def ask(question_id: str = "q-1", question: str = "Which branch?") -> Step:
    return call("ask_master", question=question, question_id=question_id)


def ask_peer(target: object, message_id: str = "p-1") -> Step:
    return call("ask_other_agent", target_agent_id=target, content="Which fields?", message_id=message_id)


def answer(question_id: str, text: str, agent_id: object = 1) -> Step:
    return call("answer_sub_agent_question", agent_id=agent_id, question_id=question_id, answer=text)


def playing(script: dict[str, list[Any]], **more: Any) -> tuple[Rig, Watched]:
    model = Watched(ScriptedModel(script, check_on_close=False))
    return rig(model, **more), model


def results(made: Rig, number: int) -> list[dict[str, Any]]:
    """Return the tool results of an agent as objects, in the order of its calls."""
    state = made.team.state.agents[number]
    by_id = {m.tool_call_id: m.content or "" for m in state.messages if m.role == "tool"}
    return [json.loads(by_id[call.id]) for m in state.messages for call in m.tool_calls if by_id[call.id][:1] == "{"]


async def open_question(made: Rig, question_id: str) -> Question:
    await made.until(lambda state: question_id in state.questions and state.questions[question_id].status == "open")
    return made.team.state.questions[question_id]


# -- the three kinds ------------------------------------------------------------------------


@pytest.mark.spec
def test_a_question_to_the_leader_is_answered_in_the_tool_result_and_never_inserted() -> None:
    async def main() -> None:
        team, model = playing({LEADER: [ONE, say("Started."), answer("q-1", "trunk"), *OK], UI: [ask(), say("Done.")]})
        state = await team.run("Go")
        question = model.of(LEADER)[2].envelopes()[-1]
        assert (question.kind, question.sender, question.id, question.content) == ("ask", UI, "q-1", "Which branch?")
        (result,) = results(team, 1)
        envelope = parse(result["answer"])
        assert (result["success"], result["question_id"]) == (True, "q-1")
        assert (envelope.kind, envelope.sender, envelope.question_id, envelope.content) == (
            "answer",
            LEADER,
            "q-1",
            "trunk",
        )
        assert envelope.id == "ans_tl_001"
        kinds = [parse(m.content or "").kind for m in state.agents[1].messages if m.role == "user"]
        assert kinds == ["task"], "an answer is no user message"
        assert [e.status for e in team.kinds(StatusChanged) if e.agent_id == 1] == [
            "running",
            "waiting",
            "running",
            "completed",
        ]

    go(main)


@pytest.mark.spec
def test_a_question_to_a_peer_is_answered_by_its_tool() -> None:
    async def main() -> None:
        reply = call("answer_other_agent", source_agent_id=UI, message_id="p-1", answer="See api.md")
        script = {
            LEADER: [TWO, say("Started."), *OK],
            UI: [ask_peer(FSE), say("Done.")],
            FSE: [until_message(say("Built.")), reply, say("Answered.")],
        }
        team, _ = playing(script)
        state = await team.run("Go")
        (result,) = results(team, 1)
        envelope = parse(result["answer"])
        assert (envelope.sender, envelope.id, envelope.question_id) == (FSE, "ans_fse_001", "p-1")
        assert envelope.content == "See api.md"
        told = [parse(m.content or "").sender for m in state.leader_state.messages if m.metadata.get("agent_id")]
        assert set(told) == {UI, FSE}, "what peers say to each other stays between them"
        assert all("api.md" not in (m.content or "") for m in state.leader_state.messages)

    go(main)


@pytest.mark.spec
def test_a_question_of_the_leader_is_answered_by_answer_master() -> None:
    async def main() -> None:
        asking = call("ask_sub_agent", agent_id=1, question="How long?", question_id="how-long")
        held = Held()
        script = {
            LEADER: [ONE, asking, *OK],
            UI: [call("hold"), call("answer_master", question_id="how-long", answer="an hour"), say("Done.")],
        }
        team, model = playing(script, tools=(held.tool,))
        working = asyncio.ensure_future(team.run("Go"))
        await open_question(team, "how-long")
        held.release()
        await working
        envelope = parse(results(team, 0)[-1]["answer"])
        assert (envelope.sender, envelope.content, envelope.question_id) == (UI, "an hour", "how-long")
        assert model.of(UI)[1].envelopes()[-1].kind == "ask"

    go(main)


@pytest.mark.parametrize("asked_by", ["leader", "peer"])
def test_the_final_text_answers_a_question_left_open_and_interim_text_never_does(asked_by: str) -> None:
    async def main() -> None:
        script: dict[str, list[Any]] = {
            LEADER: [TWO, say("Started."), *OK],
            UI: [until_message(say("Interim.") + call("list_active_sub_agents")), say("All fields are in api.md.")],
            FSE: [say("Built.")],
        }
        if asked_by == "leader":
            script[LEADER] = [TWO, call("ask_sub_agent", agent_id=UI, question="Which fields?", question_id="p-1"), *OK]
        else:
            script[FSE] = [ask_peer(1), say("Built.")]
        team, _ = playing(script)
        state = await team.run("Go")
        result = results(team, 0 if asked_by == "leader" else 2)[-1]
        assert parse(result["answer"]).content == "All fields are in api.md."
        reports = [
            parse(m.content or "").content
            for m in state.leader_state.messages
            if m.metadata.get("agent_id") == 1 and parse(m.content or "").kind == "completion"
        ]
        assert reports == ([] if asked_by == "leader" else ["All fields are in api.md."])

    go(main)


def test_a_question_to_an_agent_at_rest_starts_a_turn_that_begins_with_it() -> None:
    async def main() -> None:
        asking = call("ask_sub_agent", agent_id=1, question="How was it?", question_id="how")
        team, _ = playing({LEADER: [ONE, say("Started."), asking, *OK], UI: [say("Blue."), say("Fine.")]})
        state = await team.run("Go")
        message = state.agents[1].messages[-2]
        assert (parse(message.content or "").kind, message.metadata["starts_work"]) == ("ask", True)
        assert parse(results(team, 0)[-1]["answer"]).content == "Fine."

    go(main)


# -- ids ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("supplied", "counts"),
    [
        ("q-1", "q-1"),
        ("", "ask_uio_001"),
        ("a b", "ask_uio_001"),
        ("x" * 65, "ask_uio_001"),
        ("task_001", "ask_uio_001"),
    ],
)
def test_a_supplied_id_is_kept_when_it_can_be_and_the_result_says_which_counts(supplied: str, counts: str) -> None:
    async def main() -> None:
        def reply(request: ModelRequest) -> Step:
            return answer(counts, "yes")

        team, _ = playing({LEADER: [ONE, say("Started."), reply, *OK], UI: [ask(supplied), say("Done.")]})
        await team.run("Go")
        (result,) = results(team, 1)
        assert result["question_id"] == counts
        assert ("note" in result) == (supplied != counts)
        if supplied != counts:
            assert counts in result["note"]

    go(main)


# -- answers that come at the wrong time or from the wrong agent ----------------------------


@pytest.mark.faults
def test_an_early_answer_is_kept_for_its_question() -> None:
    async def main() -> None:
        held = Held()
        team, _ = playing(
            {LEADER: [ONE, answer("q-1", "trunk"), *OK], UI: [call("hold"), ask(), say("Done.")]}, tools=(held.tool,)
        )
        working = asyncio.ensure_future(team.run("Go"))
        await team.until(lambda state: "q-1" in state.kept)
        held.release()
        await working
        assert "kept" in results(team, 0)[-1]["note"]
        assert parse(results(team, 1)[-1]["answer"]).content == "trunk"
        assert team.team.state.kept == {}
        asks = [e for e in team.kinds(MessageQueued) if e.item.kind == "ask"]
        assert asks == [], "an answered question is put to nobody"

    go(main)


@pytest.mark.faults
@pytest.mark.parametrize("by", ["another agent", "for another asker"])
def test_an_early_answer_counts_only_for_its_asker_and_by_its_target(by: str) -> None:
    async def main() -> None:
        held = Held()
        wrong = answer("q-1", "wrong", FSE if by == "for another asker" else UI)
        early = call("answer_other_agent", source_agent_id=UI, message_id="q-1", answer="wrong")

        def right(request: ModelRequest) -> Step:
            asked = (request.messages[-1].content or "").startswith("来自 UI Operator_1 的提问")
            return answer("q-1", "right") if asked else say("Ok.")

        script = {
            LEADER: [TWO, wrong if by == "for another asker" else say("."), *[right] * 9],
            UI: [call("hold"), ask(), say("Done.")],
            FSE: [early if by == "another agent" else say("."), say("Built.")],
        }
        team, _ = playing(script, tools=(held.tool,))
        working = asyncio.ensure_future(team.run("Go"))
        await held.wait_begun()
        await team.until(lambda state: "q-1" in state.kept)
        held.release()
        await team.until(lambda state: "q-1" in state.questions)
        await working
        answered = parse(results(team, 1)[-1]["answer"])
        assert (answered.content, answered.sender) == ("right", LEADER)

    go(main)


@pytest.mark.faults
def test_kept_answers_are_bounded_and_one_per_question() -> None:
    async def main() -> None:
        team, _ = playing({LEADER: [ONE, say("."), *OK], UI: [say("Done.")]})
        await team.run("Go")
        port = team.team.port
        port.answer(LEADER_ID, 1, "early", "one")
        with pytest.raises(QuestionError, match="has an answer waiting already"):
            port.answer(LEADER_ID, 1, "early", "two")
        for number in range(200):
            try:
                port.answer(LEADER_ID, 1, f"early-{number}", "x")
            except QuestionError:
                break
        assert len(team.team.state.kept) == 64
        assert team.team.state.kept["early"].answer == "one"

    go(main)


@pytest.mark.faults
def test_a_second_a_late_and_a_foreign_answer_are_errors_that_change_nothing() -> None:
    async def main() -> None:
        script = {
            LEADER: [TWO, say("."), *OK],
            UI: [ask("q-1"), ask("q-2"), say("Done.")],
            FSE: [ask("q-3"), say("Built.")],
        }
        team, _ = playing(script)
        working = asyncio.ensure_future(team.run("Go"))
        await open_question(team, "q-1")
        await open_question(team, "q-3")
        await team.until(lambda state: state.questions["q-1"].passed)  # the leader has ended its turn
        port = team.team.port
        for by, asker, question_id, said in [
            (2, UI, "q-1", "put to Team Leader, not to you"),
            (LEADER_ID, FSE, "q-1", "is a question of UI Operator_1"),
            (LEADER_ID, UI, "task_001", "not a question"),
            (HUMAN_ID, None, "q-9", "there is no question 'q-9'; open are: "),
            (LEADER_ID, UI, "no such id!", "there is no question"),
        ]:
            with pytest.raises(QuestionError, match=said):
                port.answer(by, asker, question_id, "wrong")
        assert team.team.state.questions["q-1"].status == "open"
        port.answer(LEADER_ID, 1, "q-1", "first")
        with pytest.raises(QuestionError, match="already answered, by Team Leader"):
            port.answer(LEADER_ID, 1, "q-1", "second")
        await open_question(team, "q-2")
        port.stop_agent(HUMAN_ID, 1, "enough")
        with pytest.raises(QuestionError, match="has expired"):
            port.answer(LEADER_ID, 1, "q-2", "late")
        port.answer(LEADER_ID, FSE, "q-3", "third")
        await working
        assert parse(results(team, 1)[0]["answer"]).content == "first"
        assert team.team.state.questions["q-2"].answer == ""

    go(main)


@pytest.mark.faults
def test_two_questions_of_one_agent_answered_in_reverse_each_get_their_own() -> None:
    async def main() -> None:
        script = {
            LEADER: [ONE, say("Started."), answer("q-2", "two") + answer("q-1", "one"), *OK],
            UI: [ask("q-1") + ask("q-2"), say("Done.")],
        }
        team, _ = playing(script)
        await team.run("Go")
        assert [(r["question_id"], parse(r["answer"]).content) for r in results(team, 1)] == [
            ("q-1", "one"),
            ("q-2", "two"),
        ]
        waits = [e.status for e in team.kinds(StatusChanged) if e.agent_id == 1]
        assert waits == ["running", "waiting", "running", "completed"], "it waits until both are answered"

    go(main)


# -- who cannot be asked --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (UI, "you cannot ask yourself"),
        (1, "you cannot ask yourself"),
        (7, "there is no agent '7'; agents are: UI Operator_1 (agent_id 1)"),
        ("Nobody_1", "there is no agent 'Nobody_1'"),
        (0, "there is no agent '0'"),
        ("Team Leader", "ask the leader with ask_master"),
    ],
)
def test_an_ask_that_can_have_no_answer_is_an_error_at_once(target: object, said: str) -> None:
    async def main() -> None:
        team, _ = playing({LEADER: [ONE, say("Started."), *OK], UI: [ask_peer(target), say("Done.")]})
        await team.run("Go")
        (result,) = results(team, 1)
        assert result["success"] is False
        assert said in result["error"]
        assert team.kinds(QuestionAsked) == []

    go(main)


def test_a_terminated_agent_cannot_be_asked_and_who_asked_it_is_told() -> None:
    async def main() -> None:
        script = {
            LEADER: [TWO, say("."), *OK],
            UI: [ask_peer(2), ask_peer(2, "p-2"), say("Done.")],
            FSE: [until_message(say("Built.")), say("x")],
        }
        held = Held()
        script[FSE] = [call("hold"), say("Built.")]
        team, _ = playing(script, tools=(held.tool,))
        working = asyncio.ensure_future(team.run("Go"))
        await open_question(team, "p-1")
        team.team.port.terminate(LEADER_ID, FSE)
        await working
        assert [r["error"] for r in results(team, 1)] == [
            "Full-Stack Engineer_1 was terminated",
            "Full-Stack Engineer_1 is terminated and cannot be addressed any more",
        ]
        with pytest.raises(AgentTerminated):
            team.team.person.ask(2, "?")
        assert team.team.state.agents[2].status == "terminated"

    go(main)


# -- cycles ---------------------------------------------------------------------------------


def test_an_ask_that_would_close_a_cycle_of_two_is_refused_and_names_what_to_answer() -> None:
    async def main() -> None:
        script = {
            LEADER: [TWO, say("."), *OK],
            UI: [ask_peer(FSE, "p-1"), say("Done.")],
            FSE: [
                until_message(ask_peer(UI, "p-2")),
                call("answer_other_agent", source_agent_id=1, message_id="p-1", answer="a"),
                say("Built."),
            ],
        }
        team, _ = playing(script)
        await team.run("Go")
        refused = results(team, 2)[0]
        assert refused == {
            "success": False,
            "error": "this would wait for ever: Full-Stack Engineer_1 → UI Operator_1 → Full-Stack Engineer_1; "
            "answer the open question p-1 of UI Operator_1 first",
        }
        assert parse(results(team, 1)[0]["answer"]).content == "a"

    go(main)


def test_the_leader_is_part_of_the_graph() -> None:
    async def main() -> None:
        script = {
            LEADER: [
                TWO,
                say("."),
                call("ask_sub_agent", agent_id=FSE, question="?", question_id="l-1"),
                answer("q-1", "yes"),
                *OK,
            ],
            UI: [ask("q-1"), say("Done.")],
            FSE: [until_message(say("") + ask_peer(UI, "p-1")), say("Built.")],
        }
        team, _ = playing(script)
        await team.run("Go")
        refused = results(team, 2)[0]
        assert "Full-Stack Engineer_1 → UI Operator_1 → Team Leader → Full-Stack Engineer_1" in refused["error"]
        assert "answer the open question l-1 of Team Leader first" in refused["error"]

    go(main)


def test_a_long_chain_is_no_cycle_and_its_last_link_is() -> None:
    async def main() -> None:
        held = Held()
        create = [call("create_sub_agent", agent_id=n, role_id="ui-operator", task="t") for n in range(1, 6)]
        script: dict[str, list[Any]] = {
            LEADER: [sum(create[1:], create[0]), say("."), *OK],
            "UI Operator_5": [call("hold"), say("last")],
        }
        for number in range(1, 5):
            script[f"UI Operator_{number}"] = [ask_peer(number + 1, f"p-{number}"), say(f"after {number}")]
        team, _ = playing(script, tools=(held.tool,))
        working = asyncio.ensure_future(team.run("Go"))
        await open_question(team, "p-4")
        for target in range(1, 5):
            with pytest.raises(WouldDeadlock):
                team.team.waits.ask(5, target, "?", None, call_id="", tool="ask_other_agent")
        held.release()
        await working
        assert parse(results(team, 1)[0]["answer"]).content == "after 2"

    go(main)


def test_the_person_is_part_of_the_graph() -> None:
    async def main() -> None:
        team, _ = playing(
            {LEADER: [ONE, say("."), say("I do not know."), say("Still not."), *OK], UI: [ask("q-1"), say("Done.")]}
        )
        working = asyncio.ensure_future(team.run("Go"))
        await team.until(lambda state: bool(state.questions) and state.questions["q-1"].passed)
        with pytest.raises(WouldDeadlock, match=r"human → UI Operator_1 → human; answer q-1 first: %answer q-1"):
            team.team.person.ask(1, "what is it?")
        team.team.port.answer(HUMAN_ID, None, "q-1", "trunk")
        await working
        assert parse(results(team, 1)[0]["answer"]).content == "trunk"

    go(main)


def test_a_question_does_not_go_to_a_person_who_waits_for_the_asker() -> None:
    async def main() -> None:
        team, _ = playing({LEADER: [ONE, *OK], UI: [say("Blue."), ask("q-1"), say("It is blue.")]})
        await team.run("Go")
        asked = team.team.person.ask(1, "Which blue?")
        answered = await asyncio.wait_for(team.team.waits.answered(asked.id), 5)
        await team.team.rest()
        assert answered.answer == "It is blue."
        (refused,) = results(team, 1)
        why = "the person waits for UI Operator_1 (human → UI Operator_1)"
        assert refused["error"] == f"{why}; decide yourself or report"
        with pytest.raises(QuestionError) as late:
            team.team.port.answer(HUMAN_ID, None, "q-1", "Sky blue.")
        assert str(late.value) == f"q-1 has expired ({why}); UI Operator_1 does not wait for it any more"

    go(main)


# -- the leader leaves a question -----------------------------------------------------------


def test_a_question_left_by_the_leader_is_reminded_once_and_then_goes_to_the_person() -> None:
    async def main() -> None:
        team, model = playing(
            {LEADER: [ONE, say("Started."), say("Hm."), say("Hm again."), *OK], UI: [ask("q-1"), say("Done.")]}
        )
        working = asyncio.ensure_future(team.run("Go"))
        await team.until(lambda state: "q-1" in state.questions and state.questions["q-1"].passed)
        reminder = model.of(LEADER)[3].envelopes()[-1]
        assert (reminder.kind, reminder.sender) == ("message", UI)
        assert "q-1" in reminder.content
        assert team.team.state.agents[1].status == "waiting"
        assert not working.done(), "the team does not rest while one waits for the person"
        team.team.port.answer(HUMAN_ID, None, "q-1", "trunk")
        state = await working
        assert parse(results(team, 1)[0]["answer"]).content == "trunk"
        told = [
            i.item for i in team.kinds(MessageQueued) if i.agent_id == 0 and "answered my question" in i.item.content
        ]
        assert [(item.sender, item.wakes, item.source) for item in told] == [(UI, False, "runtime")]
        assert state.run_status == "completed"

    go(main)


def test_a_reminded_leader_that_answers_is_heard() -> None:
    async def main() -> None:
        team, _ = playing(
            {LEADER: [ONE, say("Started."), say("Hm."), answer("q-1", "trunk"), *OK], UI: [ask("q-1"), say("Done.")]}
        )
        state = await team.run("Go")
        assert parse(results(team, 1)[0]["answer"]).content == "trunk"
        assert (state.questions["q-1"].reminded, state.questions["q-1"].passed) == (True, False)

    go(main)


def test_where_nobody_can_act_a_question_left_by_the_leader_is_closed() -> None:
    async def main() -> None:
        team, _ = playing({LEADER: [ONE, *[say("Hm.")] * 9], UI: [ask("q-1"), say("Decided myself.")]}, human=False)
        state = await team.run("Go")
        assert results(team, 1)[0]["error"] == "no person can act here, so nobody can answer; decide yourself or report"
        assert (state.run_status, state.agents[1].status) == ("completed", "completed")
        with pytest.raises(QuestionError, match="no person can act here") as late:
            team.team.port.answer(HUMAN_ID, None, "q-1", "Sky blue.")
        assert "yourself" not in str(late.value), "that was for the agent"

    go(main)


@pytest.mark.faults
@pytest.mark.parametrize("human", [True, False])
def test_a_leader_that_breaks_leaves_nobody_waiting_for_ever(human: bool) -> None:
    """The question is asked before the leader breaks, and another one after it has."""

    async def main() -> None:
        script = {LEADER: [ONE, until_message(fail(ModelRefused("401")))], UI: [ask("q-1"), ask("q-2"), say("Done.")]}
        team, _ = playing(script, human=human)
        working = asyncio.ensure_future(team.run("Go"))
        if human:
            for question_id in ("q-1", "q-2"):
                await team.until(lambda state, q=question_id: q in state.questions and state.questions[q].passed)  # type: ignore[misc]
                team.team.port.answer(HUMAN_ID, None, question_id, "yes")
        state = await working
        assert [result["success"] for result in results(team, 1)] == [human, human]
        assert (state.run_status, state.agents[1].status, state.leader_state.detail) == (
            "failed",
            "completed",
            "failed",
        )
        assert "401" in state.run_error

    go(main)


# -- a person as leader, a person beside the leader -----------------------------------------


def test_where_a_person_leads_questions_go_to_the_person() -> None:
    async def main() -> None:
        team, _ = playing({UI: [ask("q-1"), say("Done.")]}, leader="human")
        role = team.team.port.load_role("ui-operator")
        team.team.begin_run("lead")
        team.team.port.create(role, None, "Design.", source="user")
        question = await open_question(team, "q-1")
        assert question.target == HUMAN_ID
        team.team.port.answer(HUMAN_ID, None, "q-1", "trunk")
        await team.team.rest()
        state = team.team.state
        assert parse(results(team, 1)[0]["answer"]).sender == LEADER
        report = state.leader_state.messages[-1]
        assert (parse(report.content or "").kind, report.message_id) == ("completion", "msg_auto_001")
        assert state.leader_state.pending == []
        with pytest.raises(TeamError, match="you are the leader"):
            team.team.person.say("hello")

    go(main)


def test_where_a_person_leads_and_none_can_act_an_ask_fails_at_once() -> None:
    async def main() -> None:
        team, _ = playing({UI: [ask("q-1"), say("Decided.")]}, leader="human", human=False)
        team.team.port.create(team.team.port.load_role("ui-operator"), None, "Design.", source="user")
        await team.team.rest()
        assert "needs a person" in results(team, 1)[0]["error"]
        with pytest.raises(NobodyToAnswer):
            team.team.waits.ask(1, HUMAN_ID, "?", None, call_id="", tool="ask_master")

    go(main)


def test_a_person_who_asks_speaks_as_team_leader_and_the_leader_is_told() -> None:
    async def main() -> None:
        team, model = playing(
            {
                LEADER: [ONE, *OK],
                UI: [say("Blue."), call("answer_master", question_id="ask_tl_001", answer="Navy."), say("Told.")],
            }
        )
        await team.run("Go")
        question = team.team.person.ask(1, "Which blue?")
        assert question.id == "ask_tl_001"
        answered = await asyncio.wait_for(team.team.waits.answered(question.id), 5)
        await team.team.rest()
        assert (answered.answer, answered.answered_by) == ("Navy.", 1)
        asked = model.of(UI)[1].envelopes()[-1]
        assert (asked.kind, asked.sender, asked.content) == ("ask", LEADER, "Which blue?")
        told = [e.item for e in team.kinds(MessageQueued) if e.agent_id == 0 and e.item.source == "runtime"]
        assert [(item.sender, item.wakes) for item in told] == [(UI, False)]

    go(main)


def test_the_leaders_final_text_of_the_turn_that_read_the_message_is_its_answer() -> None:
    async def main() -> None:
        team, _ = playing({LEADER: [until_message(say("First.")), say("Second."), *OK]})
        working = asyncio.ensure_future(team.run("Go"))
        await team.until(lambda state: len(state.leader_state.messages) == 1)
        future = team.team.person.ask_leader("And?")
        await working
        assert await asyncio.wait_for(future, 5) == "Second."

    go(main)


def test_who_waits_for_a_leader_that_breaks_is_told() -> None:
    async def main() -> None:
        team, _ = playing({LEADER: [fail(ModelRefused("no key"))]})
        future = team.team.person.ask_leader("Hello?")
        await team.team.rest()
        with pytest.raises(TeamError, match="no key"):
            await future

    go(main)


def test_an_agent_that_fails_closes_the_questions_put_to_it() -> None:
    async def main() -> None:
        script = {
            LEADER: [TWO, say("."), *OK],
            UI: [ask_peer(2), say("Done.")],
            FSE: [until_message(fail(ModelRefused("401")))],
        }
        team, _ = playing(script)
        state = await team.run("Go")
        assert results(team, 1)[0]["error"] == "Full-Stack Engineer_1: failed: 401"
        assert state.open_questions() == []

    go(main)
