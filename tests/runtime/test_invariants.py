"""Each invariant holds of a sound conversation, and finds the fault that it is there for, with its name and place."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.improvised import settle
from support.teams import go, rig
from support.virtual import VirtualOrder

from astrion_nb import events as ev
from astrion_nb.events import PendingMessage, Stamped
from astrion_nb.ids import HUMAN_ID, LEADER_ID
from astrion_nb.llm.scripted import ScriptedModel, call, say, until_message
from astrion_nb.messages import Message, Usage
from astrion_nb.state import TeamState
from astrion_nb.testing import invariants

LEADER, ONE, TWO = "Team Leader", "UI Operator_1", "UI Operator_2"


class Case:
    """A sound conversation with everything in it, to be broken: its state, its events, its team."""

    def __init__(self, state: TeamState, events: list[Stamped], team: Any) -> None:
        self.state = state
        self.events = events
        self.team = team

    def faults(self, *, runtime: bool = False) -> list[str]:
        return invariants.faults_of(self.state, self.events, self.team if runtime else None)

    def last(self, kind: type[Any]) -> int:
        return max(place for place, stamped in enumerate(self.events) if isinstance(stamped.event, kind))

    def add(self, event: Any) -> None:
        self.events.append(Stamped(self.events[-1].seq + 1, 1.0, event))

    def item(self, **more: Any) -> PendingMessage:
        return replace(PendingMessage("msg_new_001", "message", ONE, 1, "x", 1.0, "sub_agent"), **more)


def with_sound_team(look: Callable[[Case], None]) -> None:
    """Let one agent wait for the person, one that reported be at rest, one be terminated; then look."""

    async def main() -> None:
        script = {
            LEADER: [
                call("create_sub_agent", agent_id=1, role_id="ui-operator", task="One.")
                + call("create_sub_agent", agent_id=2, role_id="ui-operator", task="Two.")
                + call("create_sub_agent", agent_id=3, role_id="ui-operator", task="Three."),
                *[say("Ok.")] * 9,
            ],
            ONE: [call("ask_master", question="Which?", question_id="q-1"), say("Done.")],
            TWO: [say("Finished.", usage=(5, 2))],
            "UI Operator_3": [until_message(say("Never."))],
        }
        made = rig(ScriptedModel(script, check_on_close=False), order=VirtualOrder())
        made.team.begin_run("Go")
        made.team.person.say("Go")
        await made.until(lambda state: any(q.answerer == HUMAN_ID for q in state.open_questions()))
        made.team.port.terminate(HUMAN_ID, 3)
        for _ in range(9):
            await settle()
        stored = [stamped for stamped in made.events if stamped.t]
        case = Case(copy.deepcopy(made.team.state), stored, made.team)
        assert case.faults(runtime=True) == []
        invariants.check(made.team.state, made.events, made.team)
        look(case)
        await asyncio.gather(*made.team.shut(), return_exceptions=True)

    go(main)


def _doubled_message(case: Case) -> None:
    case.state.agents[2].messages[-1] = replace(case.state.agents[2].messages[-1], message_id="msg_user_001")


def _doubled_name(case: Case) -> None:
    case.state.agents[2].display_name = "ui operator_1"


def _read_and_waiting(case: Case) -> None:
    case.state.agents[1].pending.append(case.item(id="task_001"))


def _read_by_two(case: Case) -> None:
    case.state.agents[2].messages.append(case.state.agents[1].messages[1])


def _no_result(case: Case) -> None:
    messages = case.state.leader_state.messages
    messages[:] = [message for message in messages if message.role != "tool"]


def _result_of_nothing(case: Case) -> None:
    case.state.agents[2].messages.append(Message("tool", "x", "msg_tool_009", (), "c9"))


def _call_forgotten(case: Case) -> None:
    case.state.agents[1].open_calls.clear()


def _forged(case: Case) -> None:
    messages = case.state.agents[1].messages
    messages[1] = replace(messages[1], content="no envelope")


def _unknown_word(case: Case) -> None:
    case.state.agents[2].detail = "failed"


def _circle(case: Case) -> None:
    case.state.questions["q-1"].passed = False
    case.state.questions["q-1"].target = 1


def _lost_question(case: Case) -> None:
    leader = case.state.leader_state
    leader.messages[:] = [m for m in leader.messages if m.metadata.get("envelope_id") != "q-1"]


def _closed(case: Case) -> None:
    case.state.waits.pop("q-1").status = "closed"


def _closed_by_half(case: Case) -> None:
    case.state.questions["q-1"].status = "closed"


def _waits_for_the_dead(case: Case) -> None:
    question = case.state.questions["q-1"]
    question.passed, question.target = False, 3


def _idle_run(case: Case) -> None:
    _closed(case)
    for agent in case.state.agents.values():
        agent.status = "completed"


def _tokens_twice(case: Case) -> None:
    case.state.agents[2].usage["scripted"] = case.state.agents[2].usage["scripted"] + Usage(5, 2)


def _tokens_forgotten(case: Case) -> None:
    case.state.agents[2].usage.clear()


def _other_state(case: Case) -> None:
    case.state.agents[2].task_summary = "something else"


BROKEN: dict[str, tuple[Callable[[Case], None], str]] = {
    "two messages with one id": (_doubled_message, "ids_unique: UI Operator_2"),
    "two agents with one name": (_doubled_name, "ids_unique: two agents"),
    "an envelope read and still waiting": (_read_and_waiting, "nothing_lost_or_doubled: task_001"),
    "an envelope read by two": (_read_by_two, "nothing_lost_or_doubled: task_001"),
    "a call whose result is missing": (_no_result, "calls_and_results_pair: Team Leader"),
    "a result without a call": (_result_of_nothing, "calls_and_results_pair: UI Operator_2"),
    "an open call that is forgotten": (_call_forgotten, "open_calls_are_those_without_a_result: UI Operator_1"),
    "an envelope that is none": (_forged, "envelopes_say_what_is_known_of_them: UI Operator_1"),
    "a completion with a failure": (_unknown_word, "standings_are_known: UI Operator_2"),
    "an agent that waits for itself": (_circle, "waits_form_no_circle: UI Operator_1"),
    "a question that is closed and waited for": (_closed_by_half, "what_waits_is_what_is_open: q-1"),
    "a question that reached nobody": (_lost_question, "open_questions_reach_their_target: q-1"),
    "an agent that waits for nothing": (_closed, "waiting_means_an_open_question: UI Operator_1"),
    "a question to a terminated agent": (_waits_for_the_dead, "nobody_waits_for_who_cannot_answer: q-1"),
    "a run in which everybody rests": (_idle_run, "work_means_a_run: run 1"),
    "tokens counted twice": (_tokens_twice, "usage_is_the_sum_of_requests: UI Operator_2"),
    "tokens that are forgotten": (_tokens_forgotten, "usage_is_the_sum_of_requests: UI Operator_2"),
    "a state that nothing led to": (_other_state, "the_state_is_what_happened: UI Operator_2"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_state_that_is_broken_is_found_by_the_invariant_of_that_name(what: str) -> None:
    def look(case: Case) -> None:
        breaks, told = BROKEN[what]
        breaks(case)
        assert any(fault.startswith(told) for fault in case.faults()), case.faults()
        with pytest.raises(AssertionError, match=told.split(":")[0]):
            invariants.check(case.state, case.events)

    with_sound_team(look)


def _gap(case: Case) -> None:
    del case.events[-3]


def _back_to_idle(case: Case) -> None:
    case.add(ev.StatusChanged(2, "idle", "failed", "late"))


def _out_of_order(case: Case) -> None:
    case.add(ev.MessageQueued(2, case.item(id="msg_a_001")))
    case.add(ev.MessageQueued(2, case.item(id="msg_a_002")))
    case.add(ev.MessageAppended(2, Message("user", "", "msg_user_008"), "msg_a_002"))


def _read_twice(case: Case) -> None:
    case.add(ev.MessageAppended(1, Message("user", "", "msg_user_008"), "task_001"))


def _read_by_another(case: Case) -> None:
    case.add(ev.MessageQueued(2, case.item()))
    case.add(ev.MessageAppended(1, Message("user", "", "msg_user_008"), "msg_new_001"))


def _queued_twice(case: Case) -> None:
    case.add(ev.MessageQueued(2, case.item(id="task_001")))


def _to_the_dead(case: Case) -> None:
    case.add(ev.MessageQueued(3, case.item()))


def _of_the_dead(case: Case) -> None:
    case.add(ev.MessageQueued(LEADER_ID, case.item(sender_id=3)))


def _dead_twice_told(case: Case) -> None:
    case.add(ev.MessageQueued(LEADER_ID, case.item(sender_id=3, status="terminated")))


def _false_completion(case: Case) -> None:
    case.add(ev.MessageQueued(LEADER_ID, case.item(id="out_new_001", kind="completion")))


def _completion_then_failure(case: Case) -> None:
    case.add(ev.StatusChanged(2, "running"))
    case.add(ev.MessageQueued(LEADER_ID, case.item(id="out_new_001", kind="completion", sender_id=2)))
    case.add(ev.StatusChanged(2, "idle", "failed", "401"))


def _false_failure(case: Case) -> None:
    case.add(ev.MessageQueued(LEADER_ID, case.item(sender_id=2, status="failed")))


def _ends_twice(case: Case) -> None:
    case.add(ev.QuestionClosed("q-1", "no"))
    case.add(ev.QuestionAnswered("q-1", LEADER_ID, "ans_9", "yes"))


def _run_in_run(case: Case) -> None:
    case.add(ev.RunStarted(2, ""))


MISTOLD: dict[str, tuple[Callable[[Case], None], str]] = {
    "a number left out": (_gap, "numbers_have_no_gaps: event"),
    "a completed agent that fails": (_back_to_idle, "statuses_follow_the_machine: event"),
    "messages read out of order": (_out_of_order, "order_per_pair_kept: event"),
    "an envelope read twice": (_read_twice, "delivered_exactly_once: event"),
    "an envelope read by another": (_read_by_another, "delivered_exactly_once: event"),
    "an envelope sent twice": (_queued_twice, "delivered_exactly_once: event"),
    "a message to a terminated agent": (_to_the_dead, "no_envelope_after_terminate: event"),
    "a message of a terminated agent": (_of_the_dead, "no_envelope_after_terminate: event"),
    "an end that is told twice": (_dead_twice_told, "no_envelope_after_terminate: event"),
    "a completion of one that waits": (_false_completion, "no_failure_is_told_as_a_completion: event"),
    "a completion of one that then fails": (_completion_then_failure, "no_failure_is_told_as_a_completion: event"),
    "a failure of one that completed": (_false_failure, "no_failure_is_told_as_a_completion: event"),
    "a question that ends twice": (_ends_twice, "questions_end_once: event"),
    "a run within a run": (_run_in_run, "runs_begin_and_end_in_turn: event"),
}


@pytest.mark.parametrize("what", MISTOLD)
def test_a_history_that_cannot_be_is_found_by_the_invariant_of_that_name(what: str) -> None:
    def look(case: Case) -> None:
        tells, told = MISTOLD[what]
        tells(case)
        assert any(fault.startswith(told) for fault in case.faults()), case.faults()

    with_sound_team(look)


def test_an_agent_shown_running_without_a_task_and_one_with_a_task_at_rest_are_found() -> None:
    def look(case: Case) -> None:
        case.state.agents[2].status = "running"
        case.state.agents[1].status = "completed"
        case.state.agents[1].open_calls.clear()
        faults = case.faults(runtime=True)
        assert "no_running_without_a_task: UI Operator_2 is running without a task" in faults
        assert "no_running_without_a_task: UI Operator_1 has a task and is completed" in faults

    with_sound_team(look)


def test_what_every_invariant_promises_is_written_and_each_is_tried_here() -> None:
    rules = [
        *invariants.ALWAYS,
        *invariants.SETTLED,
        *invariants.OF_EVENTS,
        invariants.usage_is_the_sum_of_requests,
        invariants.the_state_is_what_happened,
        invariants.no_running_without_a_task,
    ]
    assert all(rule.__doc__ and len(rule.__doc__) > 40 for rule in rules)
    assert {rule.__name__ for rule in rules} | {"ALWAYS", "SETTLED", "check", "faults_of"} == set(invariants.__all__)
    tried = {told.split(":")[0] for _, told in (*BROKEN.values(), *MISTOLD.values())} | {"no_running_without_a_task"}
    assert tried == {rule.__name__ for rule in rules}
