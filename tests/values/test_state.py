"""The one reducer: every event has its effect, any history is taken, a stored history gives the same state."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.journals import NoJournal

from astrion_nb.approval import Approval
from astrion_nb.events import (
    FLEETING,
    TYPES,
    AgentCreated,
    AnswerKept,
    ApprovalAsked,
    ApprovalGiven,
    ConversationFiled,
    ConversationStarted,
    Event,
    MessageAppended,
    MessageQueued,
    ModelLoading,
    PendingMessage,
    QuestionAnswered,
    QuestionAsked,
    QuestionClosed,
    QuestionPassed,
    QuestionReminded,
    RequestStarted,
    RunEnded,
    RunStarted,
    StatusChanged,
    TextStreamed,
    ToolOutput,
    UsageCounted,
    Warned,
    from_json,
    to_json,
)
from astrion_nb.ids import HUMAN_ID
from astrion_nb.messages import Message, ToolCall, Usage
from astrion_nb.runtime.bus import Bus
from astrion_nb.runtime.waits import Waits
from astrion_nb.state import Question, TeamState, apply, summary
from astrion_nb.store.documents import agent_metadata

START = ConversationStarted("conv_1", "t", "/work", "key", "thinking", "model", "en", "You lead.")


def created(number: int, short: str = "uio") -> AgentCreated:
    return AgentCreated(
        number,
        "ui-operator",
        "UI Operator",
        f"UI Operator_{number}",
        number,
        short,
        "key",
        "fast",
        "sys",
        60.0,
        False,
        "t",
    )


def history(*events: Event) -> TeamState:
    state = TeamState()
    for event in (START, *events):
        seq = state.seq if isinstance(event, FLEETING) else state.seq + 1
        apply(state, event, seq=seq, t=1000.0 + seq)
    return state


def plain(value: Any) -> Any:
    """Return a state as comparable values; an id book is what it would mint."""
    if isinstance(value, TeamState):
        out = {field.name: plain(getattr(value, field.name)) for field in fields(value) if field.name != "ids"}
        out["ids"] = [value.ids.free(p, s) for p in ("task", "out", "ask", "ans", "msg") for s in ("", "uio", "tl")]
        return out
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def item(message_id: str, kind: str = "message", **more: Any) -> PendingMessage:
    return PendingMessage(message_id, kind, "Team Leader", None, "text\nsecond line", 1.0, "team_leader", **more)  # type: ignore[arg-type]


def test_a_conversation_starts_with_its_leader_at_rest() -> None:
    state = history()
    leader = state.leader_state
    assert (leader.agent_id, leader.display_name, leader.abbreviation, leader.status) == (
        0,
        "Team Leader",
        "tl",
        "idle",
    )
    assert (leader.model_key, leader.thinking_mode) == ("key", "thinking")
    assert (state.conversation_id, state.created_at, state.seq, state.members()) == ("conv_1", 1001.0, 1, [])


@pytest.mark.parametrize(("mode", "thinking"), [("fast", "fast"), ("thinking", "thinking"), ("deep", "thinking")])
def test_deep_and_thinking_conversations_have_a_thinking_leader(mode: str, thinking: str) -> None:
    state = TeamState()
    apply(state, ConversationStarted("c", "", "", "key", mode, "model", "en", ""), seq=1, t=0.0)
    assert state.leader_state.thinking_mode == thinking


def test_an_agents_conversation_begins_with_its_frozen_system_message() -> None:
    state = history(created(1))
    assert [message.to_json() for message in state.agents[1].messages] == [{"role": "system", "content": "sys"}]
    assert state.agents[1].created_at == 1002.0


def test_a_drained_message_leaves_the_mailbox_and_no_other_does() -> None:
    state = history(created(1), MessageQueued(1, item("task_001", "task")), MessageQueued(1, item("msg_tl_001")))
    apply(state, MessageAppended(1, Message("user", "x", "msg_user_001"), "msg_tl_001"), seq=9, t=1.0)
    assert [pending.id for pending in state.agents[1].pending] == ["task_001"]
    assert "msg_tl_001" in state.ids


def test_a_new_task_refreshes_the_summary_and_a_message_does_not() -> None:
    state = history(created(1), MessageQueued(1, item("task_001", "task")))
    assert state.agents[1].task_summary == "text"
    apply(state, MessageQueued(1, PendingMessage("m", "message", "A", 2, "other", 0.0, "sub_agent")), seq=9, t=1.0)
    assert state.agents[1].task_summary == "text"


@pytest.mark.parametrize(
    ("text", "short"),
    [("a\nb", "a"), ("\n\n  a  \nb", "a  "), ("", ""), (" \n ", ""), ("x" * 61, "x" * 60), ("é\u2028y", "é")],
)
def test_a_summary_is_the_first_line_cut_to_60(text: str, short: str) -> None:
    assert summary(text) == short


def test_calls_are_open_until_their_result_comes() -> None:
    calls = (ToolCall("a", "f", "{}"), ToolCall("b", "f", "{}"))
    state = history(created(1), MessageAppended(1, Message("assistant", None, "m1", calls)))
    agent = state.agents[1]
    assert list(agent.open_calls) == ["a", "b"]
    apply(state, MessageAppended(1, Message("tool", "ok", "m2", tool_call_id="a")), seq=9, t=1.0)
    assert list(agent.open_calls) == ["b"]
    assert agent.tool_counts() == {"f": 2}
    assert agent.next_message_id("tool") == "msg_tool_002"
    assert agent.next_message_id("assistant") == "msg_assistant_002"


def test_stored_ids_count_per_kind_and_conversation() -> None:
    state = history(created(1))
    for text, kind, number in [("a", "user", 0), ("b", "auto", 0), ("c", "auto", 0), ("d", "user", 1)]:
        agent = state.agents[number]
        message = Message("user", text, agent.next_message_id(kind))  # type: ignore[arg-type]
        apply(state, MessageAppended(number, message), seq=state.seq + 1, t=1.0)
    assert [m.message_id for m in state.leader_state.messages] == ["msg_user_001", "msg_auto_001", "msg_auto_002"]
    assert state.agents[1].next_message_id("user") == "msg_user_002"


def test_usage_is_counted_by_model_once_per_message_and_per_failed_try() -> None:
    told = {"usage": {"input": 10, "output": 5}}
    state = history(
        created(1),
        MessageAppended(1, Message("assistant", "a", "m1", metadata=told)),
        MessageAppended(1, Message("assistant", "b", "m2", metadata={**told, "model_key": "other"})),
        MessageAppended(1, Message("assistant", "c", "m3")),
        UsageCounted(1, Usage(7, 0)),
    )
    assert state.agents[1].usage == {"key": Usage(17, 5), "other": Usage(10, 5)}
    assert state.usage() == state.agents[1].tokens == Usage(27, 10)


def test_a_question_is_open_until_it_is_answered_or_closed() -> None:
    state = history(
        created(1), QuestionAsked("q1", 1, 0, "?", "c", "ask_master"), QuestionAsked("q2", 1, 0, "?", "d", "x")
    )
    assert [question.id for question in state.open_questions()] == ["q1", "q2"]
    apply(state, QuestionAnswered("q1", 0, "ans_tl_001", "yes"), seq=9, t=1.0)
    apply(state, QuestionClosed("q2", "gone"), seq=10, t=1.0)
    assert state.open_questions() == []
    assert (state.questions["q1"].answer, state.questions["q1"].answered_by) == ("yes", 0)
    assert state.questions["q2"].reason == "gone"
    assert all(used in state.ids for used in ("q1", "q2", "ans_tl_001"))


def test_a_question_that_was_passed_on_waits_for_the_person() -> None:
    state = history(created(1), QuestionAsked("q1", 1, 0, "?", "c", "ask_master"), QuestionReminded("q1"))
    assert (state.questions["q1"].answerer, state.questions["q1"].reminded) == (0, True)
    apply(state, QuestionPassed("q1"), seq=9, t=1.0)
    assert (state.questions["q1"].answerer, state.questions["q1"].target) == (HUMAN_ID, 0)


def test_a_kept_answer_goes_when_its_question_is_asked() -> None:
    state = history(created(1), AnswerKept("q1", 1, 0, "early"))
    assert state.kept["q1"].answer == "early"
    apply(state, QuestionAsked("q1", 1, 0, "?", "c", "ask_master"), seq=9, t=1.0)
    assert state.kept == {}


def test_a_new_run_forgets_the_last_ones_end() -> None:
    state = TeamState()
    events = (replace(START, title=""), RunStarted(1, "one"), RunEnded(1, "failed", "text", "why"), RunStarted(2, ""))
    for seq, event in enumerate(events, 1):
        apply(state, event, seq=seq, t=1.0)
    assert (state.run, state.run_status, state.run_text, state.run_error, state.title) == (2, "running", "", "", "one")


def test_filing_changes_what_it_names_and_neither_the_rest_nor_the_date_of_the_last_work() -> None:
    state = history(created(1), RunStarted(1, "one"))
    worked = state.updated_at
    apply(state, ConversationFiled(archived=True), seq=9, t=9000.0)
    assert (state.title, state.title_given, state.archived) == (START.title, True, True)
    apply(state, ConversationFiled(title="Other"), seq=10, t=9001.0)
    assert (state.title, state.title_given, state.archived) == ("Other", True, True)
    apply(state, ConversationFiled(title="", archived=False), seq=11, t=9002.0)
    assert (state.title, state.title_given, state.archived) == ("", False, False)
    assert (state.own_seq, state.seq, state.updated_at) == (11, 11, worked)
    apply(state, RunStarted(2, "two"), seq=12, t=9003.0)
    assert state.title == "two", "a title that was taken away makes room for the next task's"


class Unlooked(dict[str, Question]):
    """Questions that nobody may walk through."""

    def __iter__(self) -> Any:
        raise AssertionError("who looks at what is open walks through everything that was ever asked")

    values = keys = items = __iter__


def test_a_look_at_what_is_open_costs_nothing_for_what_was_ever_asked() -> None:
    asked = [QuestionAsked(f"q{number}", 1, 0, "?", "c", "ask_master") for number in range(50)]
    state = history(created(1), *asked, *[QuestionClosed(f"q{number}", "no") for number in range(1, 50)])
    state.questions = Unlooked(state.questions)
    assert [question.id for question in state.open_questions()] == ["q0"]
    state.agents[1].open_calls["c"] = (ToolCall("c", "ask_master", "{}"), 1.0)
    assert agent_metadata(state, state.agents[1])["pending_tool_calls"][0]["question_id"] == "q0"
    bus = Bus(state, NoJournal(), lambda: 1.0)
    waits = Waits(bus, lambda target, item: None, lambda: 1.0, lambda: True, lambda number: None)
    assert [question.id for question in waits.waits_for(1)] == ["q0"]
    assert waits.path(1, 0) is not None
    assert [question.id for question in waits.unanswered(0)] == ["q0"]


def test_an_event_is_dated_in_its_own_scope_only() -> None:
    state = history(created(1), created(2), StatusChanged(1, "running"), RunStarted(1, ""))
    assert (state.agents[1].seq, state.agents[2].seq, state.own_seq, state.seq) == (4, 3, 5, 5)
    assert (state.agents[1].updated_at, state.agents[2].updated_at) == (1004.0, 1003.0)


def test_live_events_leave_no_trace() -> None:
    before = plain(history(created(1)))
    assert plain(history(created(1), TextStreamed(1, "x"), RequestStarted(1, 1))) == before


def test_an_event_about_an_unknown_agent_is_an_error_and_not_a_new_agent() -> None:
    state = history()
    for event in (StatusChanged(5, "idle"), MessageQueued(5, item("m")), UsageCounted(5, Usage(1, 1))):
        with pytest.raises(KeyError):
            apply(state, event, seq=2, t=1.0)
    assert list(state.agents) == [0]


def test_every_golden_event_can_be_applied() -> None:
    files = sorted((Path(__file__).parents[1] / "golden" / "events").glob("*.json"))
    events = [from_json(json.loads(path.read_bytes())) for path in files]
    order = {tag: place for place, tag in enumerate(TYPES)}
    events.sort(key=lambda event: (order[event.tag], str(event)))
    state = TeamState()
    first, *rest = events
    for number, event in enumerate((first, created(1), *rest), 1):
        apply(state, event, seq=number, t=float(number))
    assert state.warnings
    assert state.questions["ask_fse_001"].passed


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Any order of events about agents and questions that exist; not only what a runtime would do."""
    events: list[Event] = [created(1), created(2)]
    agents, questions = [0, 1, 2], ["q0"]
    events.append(QuestionAsked("q0", 1, 0, "?", "c0", "ask_master"))
    for count in range(1, 1 + draw(st.integers(0, 30))):
        who = draw(st.sampled_from(agents))
        which = draw(st.sampled_from(questions))
        text = draw(st.sampled_from(["", "x", "a\nb", "\u2028", "</Task>"]))
        kind = draw(st.sampled_from(sorted(TYPES.keys() - {"conversation_started"})))
        match kind:
            case "agent_created":
                agents.append(len(agents))
                events.append(created(agents[-1]))
            case "status_changed":
                events.append(StatusChanged(who, draw(st.sampled_from(["running", "waiting", "idle", "terminated"]))))
            case "message_queued":
                events.append(
                    MessageQueued(
                        who, item(f"i{draw(st.integers(0, 5))}", draw(st.sampled_from(["task", "ask", "human"])))
                    )
                )
            case "message_appended":
                role = draw(st.sampled_from(["user", "assistant", "tool"]))
                calls = (ToolCall(f"c{draw(st.integers(0, 3))}", "f", "{"),) if role == "assistant" else ()
                told = {"usage": {"input": 1, "output": 2}} if draw(st.booleans()) else {}
                message_id = draw(st.sampled_from(["msg_auto_1", "msg_user_1", None]))
                call_id = f"c{draw(st.integers(0, 3))}" if role == "tool" else None
                message = Message(role, text, message_id, calls, call_id, told)  # type: ignore[arg-type]
                events.append(MessageAppended(who, message, draw(st.sampled_from(["", "i0", "i1", "nobody"]))))
            case "usage_counted":
                events.append(UsageCounted(who, Usage(draw(st.integers(0, 9)), 1)))
            case "question_asked":
                questions.append(f"q{count}")
                events.append(QuestionAsked(questions[-1], who, draw(st.sampled_from([-1, *agents])), text, "", "t"))
            case "question_answered":
                events.append(QuestionAnswered(which, who, f"ans_{count}", text))
            case "question_closed":
                events.append(QuestionClosed(which, text))
            case "question_reminded":
                events.append(QuestionReminded(which))
            case "question_passed":
                events.append(QuestionPassed(which))
            case "approval_asked":
                questions.append(f"q{count}")
                approval = Approval(f"c{count}", "run_command", "{}", text, f"kind {draw(st.integers(0, 2))}", "d", 0.0)
                events.append(ApprovalAsked(questions[-1], who, approval))
            case "approval_given":
                events.append(ApprovalGiven(which, draw(st.booleans()), text, draw(st.booleans())))
            case "tool_output":
                events.append(ToolOutput(who, f"c{count}", text))
            case "answer_kept":
                events.append(AnswerKept(f"q{count + 1}", who, who, text))
            case "conversation_filed":
                title, archived = draw(st.sampled_from([None, text])), draw(st.sampled_from([None, True, False]))
                events.append(ConversationFiled(title, archived))
            case "run_started":
                events.append(RunStarted(count, text))
            case "run_ended":
                events.append(RunEnded(count, "completed", text))
            case "warned":
                events.append(Warned(text))
            case "text_streamed":
                events.append(TextStreamed(who, text))
            case "request_started":
                events.append(RequestStarted(who, count))
            case "model_loading":
                events.append(ModelLoading(text, float(count)))
            case _:
                raise AssertionError(f"write a branch for {kind}")
    return events


@settings(deadline=None)
@given(histories())
def test_any_history_is_taken_and_gives_the_same_state_from_its_stored_form(events: list[Event]) -> None:
    state = history(*events)
    stored = [from_json(json.loads(json.dumps(to_json(event)))) for event in events]
    assert stored == events
    assert plain(history(*stored)) == plain(state)
    assert state.open_questions() == [each for each in state.questions.values() if each.status == "open"]
    assert state.seq == 1 + sum(1 for event in events if not isinstance(event, FLEETING))
    total = sum(agent.tokens.total for agent in state.agents.values())
    assert total == state.usage().total
    for agent in state.agents.values():
        assert agent.seq <= state.seq
        assert agent.requests == sum(1 for message in agent.messages if message.role == "assistant")
