"""Whatever stands in a stored history, what is loaded of it can be sent to any model, and is the same each time."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.disks import Picture
from support.strict_rules import violations_of

from astrion_nb.disk import RealFiles
from astrion_nb.envelope import Envelope, parse, render
from astrion_nb.errors import ConversationBroken
from astrion_nb.llm.wire import wire_messages
from astrion_nb.messages import Message, ToolCall
from astrion_nb.runtime.request import request_of
from astrion_nb.state import AgentState, Question, TeamState
from astrion_nb.store import documents as docs
from astrion_nb.store.json_form import dump
from astrion_nb.store.loading import load
from astrion_nb.store.mending import LOST, is_sound, mend, mended
from astrion_nb.testing.invariants import waits_form_no_circle

pytestmark = pytest.mark.faults


def history(turns: list[int], *, leads: bool = False, compacted: bool = False) -> list[Message]:
    """Return a lawful history: each number is a turn with so many tool calls in parallel."""
    out = [] if leads else [Message("system", "You are.")]
    tools = 0
    for turn, count in enumerate(turns):
        number = f"{turn + 1:03d}"
        metadata = {"message_source": "team_leader", "envelope_id": f"msg_tl_{number}"}
        out.append(Message("user", f"message {turn + 1}", f"msg_user_{number}", metadata=metadata))
        calls = tuple(ToolCall(f"call_{turn}_{n}", "list_agents", "{}") for n in range(count))
        out.append(Message("assistant", None if calls else "said", f"msg_assistant_{number}", calls))
        for call in calls:
            tools += 1
            out.append(Message("tool", f"result {tools}", f"msg_tool_{tools:03d}", tool_call_id=call.id))
        if compacted and turn == len(turns) // 2 and turn:
            said = {"from": len(out) - 1, "pinned": [1], "left_out": 1}
            out.append(Message("system", "Digest.", metadata={"compaction": said}))
    return out


TURNS = st.lists(st.integers(0, 3), min_size=1, max_size=6)
DEEDS = (
    *("delete", "double", "swap", "move", "result's call", "call's id", "message's id", "no id", "role", "cut"),
    "envelope's id",
)
HANDS = st.lists(st.tuples(st.sampled_from(DEEDS), st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=6)


def by_hand(messages: list[Message], deeds: list[tuple[str, int, int]]) -> list[Message]:
    """Return the history after a hand, another program or a broken disk has been at it."""
    out = list(messages)
    for deed, first, second in deeds:
        if not out:
            break
        a, b = first % len(out), second % len(out)
        message = out[a]
        if deed == "delete":
            del out[a]
        elif deed == "double":
            out.insert(b, message)
        elif deed == "swap":
            out[a], out[b] = out[b], out[a]
        elif deed == "move":
            out.insert(b, out.pop(a))
        elif deed == "result's call" and message.role == "tool":
            out[a] = replace(message, tool_call_id=out[b].tool_call_id if second % 3 else None)
        elif deed == "call's id" and message.tool_calls:
            other = [call.id for each in out for call in each.tool_calls]
            call = message.tool_calls[second % len(message.tool_calls)]
            given = other[first % len(other)] if second % 4 else ""
            out[a] = replace(message, tool_calls=(*message.tool_calls[1:], replace(call, id=given)))
        elif deed == "message's id":
            out[a] = replace(message, message_id=out[b].message_id)
        elif deed == "no id":
            out[a] = replace(message, message_id=None)
        elif deed == "envelope's id" and message.role == "user":
            metadata = {**message.metadata, **({} if out[b].role != "user" else out[b].metadata)}
            out[a] = replace(message, metadata=metadata)
        elif deed == "role":
            out[a] = replace(message, role=("system", "user", "assistant", "tool")[second % 4])
        elif deed == "cut" and message.role == "assistant":
            out[a] = replace(message, metadata={"truncated": True, "status": "stopped"})
    return out


def files_of(messages: list[Message], leads: bool) -> Picture:
    """Return a conversation of which the leader, or agent 1, has the history."""
    state = TeamState(conversation_id="conv_test", model_key="m")
    state.agents[0] = AgentState(0, "", "Team Leader", "Team Leader", 0, "tl", system="You lead.")
    state.agents[1] = AgentState(1, "r", "R", "R_1", 1, "r", messages=[Message("system", "You are.")])
    state.agents[0 if leads else 1].messages = messages
    return as_files(state)


def as_files(state: TeamState) -> Picture:
    folder = Path("/c/conv_test")
    files = {
        folder / "metadata.json": dump(docs.conversation_metadata(state)),
        folder / "runtime.json": dump(docs.runtime_document(state)),
    }
    for number, agent in state.agents.items():
        place = folder / "agents" / str(number) if number else folder
        if number:
            files[place / "metadata.json"] = dump(docs.agent_metadata(state, agent))
        before, after = docs.messages_document(state, agent)
        files[place / "messages.json"] = b"".join(docs.render_messages(before, agent.messages, after))
    return Picture(files, {path.parent for path in files} | {folder / "agents"})


def wire_faults(agent: AgentState) -> list[str]:
    """Return what a strict provider would refuse of an agent's next request, once its open calls are answered."""
    results = [Message("tool", "late", tool_call_id=call_id) for call_id in agent.open_calls]
    agent.messages = [*agent.messages, *results, Message("user", "Go on.")]
    wired = wire_messages(request_of(agent, 1, ()).messages)
    return violations_of({"model": "m", "stream": True, "messages": wired})


@pytest.fixture(autouse=True)
def _told() -> Iterator[None]:
    """What is mended is told in the log, here a thousand times."""
    logging.getLogger("astrion_nb.store").disabled = True
    yield
    logging.getLogger("astrion_nb.store").disabled = False


@settings(max_examples=500)
@given(TURNS, st.booleans(), st.booleans(), HANDS)
def test_any_history_that_a_hand_has_changed_loads_to_one_that_is_valid_on_the_wire_and_always_the_same(
    turns: list[int], leads: bool, compacted: bool, deeds: list[tuple[str, int, int]]
) -> None:
    picture = files_of(by_hand(history(turns, leads=leads, compacted=compacted), deeds), leads)
    state, again = (load(Path("/c/conv_test"), picture).state for _ in range(2))
    written = as_files(state)
    assert written.files == as_files(again).files
    reloaded = load(Path("/c/conv_test"), written).state
    assert as_files(reloaded).files == written.files, "what was mended needs no mending"
    agent = state.agents[0 if leads else 1]
    assert is_sound(agent.messages)
    ids = Counter(message.message_id for message in agent.messages if message.message_id)
    assert [each for each, count in ids.items() if count > 1] == []
    following = {kind: agent.next_message_id(kind) for kind in ("user", "auto", "assistant", "tool")}
    assert not ids.keys() & set(following.values())
    assert wire_faults(agent) == []


@settings(max_examples=300)
@given(TURNS, st.booleans(), HANDS)
def test_whatever_was_mended_is_sound_and_needs_no_second_mending(
    turns: list[int], compacted: bool, deeds: list[tuple[str, int, int]]
) -> None:
    found, _ = mended(by_hand(history(turns, compacted=compacted), deeds))
    assert is_sound(found)
    assert mended(found) == (found, [])


def test_two_envelopes_of_one_id_have_two_and_one_that_is_there_twice_is_there_once() -> None:
    def told(text: str, number: int) -> Message:
        content = render(Envelope("message", "Team Leader", "msg_tl_001", text))
        metadata = {"message_source": "team_leader", "envelope_id": "msg_tl_001"}
        return Message("user", content, f"msg_user_{number:03d}", metadata=metadata)

    messages = [told("Blue.", 1), told("Red.", 2), told("Blue.", 3), told("Red.", 4), told("Green.", 5)]
    found, notes = mended(messages)
    assert [(parse(message.content or "").id, parse(message.content or "").content) for message in found] == [
        ("msg_tl_001", "Blue."),
        ("msg_tl_001_2", "Red."),
        ("msg_tl_001_3", "Green."),
    ]
    assert [message.metadata["envelope_id"] for message in found] == ["msg_tl_001", "msg_tl_001_2", "msg_tl_001_3"]
    assert [note.split(": ")[0] for note in notes] == ["messages[1]", "messages[2]", "messages[3]", "messages[4]"]
    assert is_sound(found)


@settings(max_examples=500)
@given(TURNS, st.booleans(), st.integers(0, 3))
def test_what_a_team_of_ours_wrote_passes_unchanged_whatever_results_its_last_calls_lack(
    turns: list[int], compacted: bool, lacking: int
) -> None:
    messages = history(turns, compacted=compacted)
    while lacking and messages[-1].role == "tool":
        messages.pop()
        lacking -= 1
    assert is_sound(messages)
    assert mended(messages) == (messages, [])


def contents(messages: list[Message]) -> list[tuple[str, str | None]]:
    return [(message.role, message.content) for message in messages]


def test_a_lost_result_is_said_to_be_lost_and_one_in_the_wrong_place_is_put_right() -> None:
    messages = history([2, 0])
    lost = [*messages[:3], *messages[4:]]
    found, notes = mended(lost)
    assert contents(found)[2:5] == [("assistant", None), ("tool", "result 2"), ("tool", LOST)]
    assert notes == ["messages[2]: the call call_0_0 has no result; it was not run again"]
    elsewhere = [*lost, messages[3]]
    assert sorted(contents(mended(elsewhere)[0]), key=str) == sorted(contents(messages), key=str)
    assert wire_messages(mended(elsewhere)[0])[3]["content"] == "result 2"


def test_calls_that_each_turn_numbers_anew_keep_their_own_results() -> None:
    messages = history([1, 1])
    again = [
        replace(message, tool_calls=tuple(replace(call, id="call_0") for call in message.tool_calls))
        if message.tool_calls
        else replace(message, tool_call_id="call_0" if message.role == "tool" else None)
        for message in messages
    ]
    found, _ = mended(again)
    assert contents(found) == contents(messages)
    pairs = [(found[2].tool_calls[0].id, found[3].tool_call_id), (found[5].tool_calls[0].id, found[6].tool_call_id)]
    assert pairs == [("call_0", "call_0"), ("call_5_1", "call_5_1")]


def test_an_open_call_keeps_its_id_and_an_earlier_one_gives_way() -> None:
    call = ToolCall("same", "ask_master", "{}")
    messages = [
        Message("assistant", None, "msg_assistant_001", (call,)),
        Message("tool", "done", "msg_tool_001", tool_call_id="same"),
        Message("assistant", None, "msg_assistant_002", (call,)),
    ]
    found, _ = mended(messages)
    assert [each.id for message in found for each in message.tool_calls] == ["call_0_1", "same"]


def test_a_compaction_still_means_the_same_messages_when_others_come_or_go() -> None:
    messages = history([1, 1, 1, 1], compacted=True)
    at = next(index for index, message in enumerate(messages) if message.compaction is not None)
    first = messages[messages[at].compaction["from"]]  # type: ignore[index]
    stray = Message("tool", "stray", "msg_tool_099", tool_call_id="nobody's")
    where = {**(messages[at].compaction or {}), "from": messages.index(first) + 1}
    doubled = [*messages[:2], stray, *messages[2:]]
    doubled[at + 1] = replace(messages[at], metadata={"compaction": where})
    for each in (mended(messages)[0], mended(doubled)[0]):
        said = next(message.compaction for message in each if message.compaction is not None)
        assert each[said["from"]].message_id == first.message_id


def test_a_question_whose_call_is_gone_is_closed_with_the_reason_and_that_is_told_with_its_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from support.histories import build, replay

    state = replay(build([("create", 0, "x", None), ("call", 1, "{}", None), ("ask", 1, "?", None)]))
    picture = as_files(state)
    path = Path("/c/conv_test/agents/1/messages.json")
    document = json.loads(picture.files[path])
    del document["messages"][-1]
    picture.files[path] = dump(document)
    logging.getLogger("astrion_nb.store").disabled = False
    with caplog.at_level(logging.WARNING):
        loaded = load(Path("/c/conv_test"), picture).state
    (question,) = loaded.questions.values()
    assert (question.status, question.reason) == ("closed", "the call that asked is not in the conversation")
    assert "/c/conv_test, agent 1, was mended while it was read: ask_uio_001 is closed" in caplog.text


@pytest.mark.parametrize("content", [["parts"], 5, {"text": "x"}])
def test_a_message_that_cannot_be_understood_is_refused_with_file_and_place(content: Any, tmp_path: Path) -> None:
    messages = history([0, 0])
    picture = files_of(messages, leads=False)
    path = Path("/c/conv_test/agents/1/messages.json")
    document = json.loads(picture.files[path])
    document["messages"][3]["content"] = content
    picture.files[path] = dump(document)
    with pytest.raises(ConversationBroken, match=r"agents/1/messages\.json: messages\[3\]: 'content'"):
        load(Path("/c/conv_test"), picture)


def test_the_store_reads_real_files_too(tmp_path: Path) -> None:
    picture = files_of(by_hand(history([2, 1]), [("delete", 3, 0)]), leads=False)
    for path, data in picture.files.items():
        place = tmp_path / path.relative_to("/c")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    assert is_sound(load(tmp_path / "conv_test", RealFiles()).state.agents[1].messages)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 3)), max_size=8), st.booleans())
@settings(max_examples=150, deadline=None)
def test_of_questions_that_wait_in_a_circle_the_latest_is_closed_and_no_other(
    asks: list[tuple[int, int]], numbered: bool
) -> None:
    state = TeamState()
    for number in range(4):
        state.agents[number] = AgentState(number, "role", "Role", f"Role_{number}", 1, f"r{number}")
    for n, (asker, target) in enumerate(asks):
        agent = state.agents[asker]
        call = ToolCall(f"call_{n}", "ask_other_agent", "{}")
        agent.messages.append(Message("assistant", "", f"msg_assistant_{n + 1:03d}", (call,)))
        agent.messages.append(Message("tool", "x", f"msg_tool_{n + 1:03d}", tool_call_id=call.id))
        agent.open_calls[call.id] = (call, float(n))
        question = Question(f"q_{n}", asker, target, "?", call.id, call.name, n if numbered else 0, float(n))
        state.questions[question.id] = state.waits[question.id] = question
    notes = list(mend(state, {}))
    assert waits_form_no_circle(state) == []
    closed = [question for question in state.questions.values() if question.status == "closed"]
    assert notes == [(question.asker, f"{question.id} is closed: {question.reason}") for question in closed]
    assert list(mend(state, {})) == []
    for question in closed:  # with what was open before it, it is a circle
        assert "circle" in question.reason
        before = [one for one in state.open_questions() if one.created_at < question.created_at]
        state.waits = {one.id: one for one in (*before, question)}
        assert waits_form_no_circle(state) != []
        state.waits = {one.id: one for one in state.questions.values() if one.status == "open"}
