"""The documents stand as the data model prints them, byte for byte and key for key."""

from __future__ import annotations

import asyncio
import json
import math
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.histories import build, facts, replay, steps, values

from astrion_nb.disk import RealFiles, replace_file
from astrion_nb.errors import ConversationBroken
from astrion_nb.events import (
    AgentCreated,
    ConversationStarted,
    MessageAppended,
    MessageQueued,
    PendingMessage,
    QuestionAsked,
    RunStarted,
    Stamped,
    StatusChanged,
    Warned,
)
from astrion_nb.home import Home
from astrion_nb.messages import Message, ToolCall
from astrion_nb.state import TeamState, apply
from astrion_nb.store import documents as docs
from astrion_nb.store.conversations import ConversationStore
from astrion_nb.store.forms import read_time
from astrion_nb.store.json_form import dump, parse
from astrion_nb.store.lines import dump_event, read_journal
from astrion_nb.store.loading import load
from astrion_nb.store.saving import Conversation, Loaded

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def recipe(data: Any) -> bytes:
    """The data model's own words (§8.2)."""
    return json.dumps(data, ensure_ascii=False, indent=2).encode("utf-8")


@pytest.mark.spec
@settings(deadline=None)
@given(json_values)
def test_a_document_has_exactly_the_bytes_of_the_data_models_recipe(data: Any) -> None:
    assert dump(data) == recipe(data)


@pytest.mark.spec
@pytest.mark.parametrize(
    "data",
    [
        {"created_at": 1752251700.0},
        [1e16, 1e15, 1e-4, 9e-5, 1.5e300, -1e16, 0.0, -0.0, math.inf, -math.inf],
        {"big": 2**70, "negative": -(2**64)},
        {"empty": [], "also": {}, "nested": [[], {}, [[]]]},
        {"text": '中文 \x00\x1f\x7f\u2028 "quoted" \\ \n\t😀'},
        {1: "a number as a key", None: "none as a key"},
        [{"deep": [{"deeper": (1, 2)}]}],
    ],
)
def test_values_that_serializers_print_differently_are_printed_as_the_recipe_prints_them(data: Any) -> None:
    assert dump(data) == recipe(data)


def test_a_nan_is_printed_as_the_recipe_prints_it_and_read_back() -> None:
    assert dump([math.nan]) == recipe([math.nan])
    assert math.isnan(parse(dump([math.nan]))[0])


def test_a_lone_surrogate_survives_documents_and_journal(tmp_path: Path) -> None:
    text = "half of an emoji: \ud83d and on"
    assert parse(dump({"text": text})) == {"text": text}
    event = Stamped(1, 1752251700.5, Warned(text))
    (tmp_path / "journal.jsonl").write_bytes(dump_event(event))
    assert read_journal(tmp_path / "journal.jsonl", RealFiles())[0] == [event]


messages = st.builds(
    Message,
    st.sampled_from(["user", "assistant", "tool"]),
    st.none() | st.text(max_size=20),
    st.none() | st.text(max_size=5),
    st.tuples() | st.tuples(st.builds(ToolCall, st.text(max_size=3), st.text(max_size=3), st.text(max_size=9))),
    st.none() | st.text(max_size=3),
    st.dictionaries(st.text(max_size=3), json_values, max_size=2),
    st.dictionaries(st.sampled_from(["未知", "name"]), json_values, max_size=2),
)


@pytest.mark.spec
@settings(deadline=None, max_examples=40)
@given(st.lists(messages, max_size=5), st.integers(0, 200))
def test_messages_rendered_in_pieces_are_the_recipe_of_the_whole(some: list[Message], repeat: int) -> None:
    many = some + [Message("user", str(number)) for number in range(repeat)]
    before, after = {"id": "conv_1", "title": "标题"}, {"metadata": {}, "seq": 3}
    whole = {**before, "messages": [message.to_json() for message in many], **after}
    assert b"".join(docs.render_messages(before, many, after)) == recipe(whole)


# ---------------------------------------------------------------------- the printed examples


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def example() -> TeamState:
    """The conversation that the data model prints (§4–§7)."""
    state = TeamState()

    def publish(when: str, event: Any) -> None:
        apply(state, event, seq=state.seq + 1, t=at(when))

    conversation_id = "conv_20260711_210000_001"
    publish(
        "2026-07-11T21:00:00",
        ConversationStarted(
            conversation_id, "", "/Users/jojo/project", "qwen3-max", "thinking", "model", "zh", "你是 Team Leader"
        ),
    )
    publish("2026-07-11T21:00:00", RunStarted(1, "多智能体任务：设计前端"))
    metadata = {"message_source": "user", "visibility": "chat", "starts_work": True}
    publish(
        "2026-07-11T21:00:00",
        MessageAppended(0, Message("user", "帮我设计一个前端页面", "msg_user_001", metadata=metadata)),
    )
    for number in (1, 2, 3):
        publish(
            "2026-07-11T21:05:00",
            AgentCreated(
                number,
                "ui-operator",
                "UI Operator",
                f"UI Operator_{number}",
                number,
                "uio",
                "qwen3-max",
                "fast",
                "你是智能体集群团队的一员...",
                600.0,
                False,
                "设计前端配色方案",
            ),
        )
    publish("2026-07-11T21:10:00", StatusChanged(1, "running"))
    call = ToolCall("tc_ask_001", "ask_master", "{}")
    publish("1970-01-02T00:00:00", MessageAppended(1, Message("assistant", None, "msg_assistant_001", (call,))))
    state.agents[1].open_calls["tc_ask_001"] = (call, 1752251800.0)
    publish("2026-07-11T21:12:00", QuestionAsked("ask_uio_001", 1, 0, "?", "tc_ask_001", "ask_master"))
    publish(
        "2026-07-11T21:15:00",
        MessageQueued(
            1,
            PendingMessage(
                "msg_tl_001", "message", "Team Leader", None, "先不要创建 API...", 1752251700.0, "team_leader"
            ),
        ),
    )
    publish("2026-07-11T21:30:00", Warned("nothing"))
    return state


def opens_with(document: dict[str, Any], printed: dict[str, Any]) -> bool:
    """Say whether a document has the printed keys first, in their order, with the printed values."""
    return list(document.items())[: len(printed)] == list(printed.items())


@pytest.mark.spec
def test_the_conversations_metadata_is_the_printed_one() -> None:
    printed = {
        "id": "conv_20260711_210000_001",
        "title": "多智能体任务：设计前端",
        "created_at": "2026-07-11T21:00:00",
        "updated_at": "2026-07-11T21:30:00",
        "project_path": "/Users/jojo/project",
        "model_key": "qwen3-max",
        "thinking_mode": True,
        "run_mode": "thinking",
        "status": "active",
        "agent_count": 3,
        "agent_ids": [1, 2, 3],
    }
    document = docs.conversation_metadata(example())
    assert opens_with(document, printed)
    assert {"pending_messages", "pending_tool_calls", "schema_version"} <= document.keys()


@pytest.mark.spec
def test_an_agents_metadata_is_the_printed_one() -> None:
    state = example()
    printed = {
        "agent_id": 1,
        "role_id": "ui-operator",
        "display_name": "UI Operator_1",
        "status": "running",
        "created_at": "2026-07-11T21:05:00",
        "updated_at": "2026-07-11T21:15:00",
        "task_summary": "设计前端配色方案",
        "model_key": "qwen3-max",
        "thinking_mode": "fast",
    }
    document = docs.agent_metadata(state, state.agents[1])
    assert opens_with(document, printed)
    assert list(document)[9:11] == ["pending_messages", "pending_tool_calls"]
    (item,) = document["pending_messages"]
    assert opens_with(
        item,
        {
            "id": "msg_tl_001",
            "source_display_name": "Team Leader",
            "source_agent_id": None,
            "message_type": "message",
            "content": "先不要创建 API...",
            "created_at": 1752251700.0,
        },
    )
    assert [list(call.items()) for call in document["pending_tool_calls"]] == [
        [
            ("tool_call_id", "tc_ask_001"),
            ("tool_name", "ask_master"),
            ("question_id", "ask_uio_001"),
            ("created_at", 1752251800.0),
        ]
    ]


@pytest.mark.spec
def test_the_leaders_messages_have_the_printed_shape_and_hold_the_system_prompt_beside_them() -> None:
    state = example()
    document = json.loads(b"".join(docs.render_messages(*_split(state, 0))))
    assert list(document)[:7] == [
        "id",
        "title",
        "created_at",
        "updated_at",
        "messages",
        "metadata",
        "token_statistics",
    ]
    assert list(document["messages"][0].items()) == [
        ("role", "user"),
        ("content", "帮我设计一个前端页面"),
        ("message_id", "msg_user_001"),
        ("metadata", {"message_source": "user", "visibility": "chat", "starts_work": True}),
    ]
    assert document["metadata"] == {"system_prompt": "你是 Team Leader"}
    assert document["token_statistics"] == {"input": 0, "output": 0, "total": 0, "by_model": {}}


@pytest.mark.spec
def test_an_agents_messages_have_the_printed_shape_and_begin_with_the_system_message() -> None:
    document = json.loads(b"".join(docs.render_messages(*_split(example(), 1))))
    assert list(document)[:6] == ["agent_id", "role_id", "display_name", "created_at", "updated_at", "messages"]
    assert document["messages"][0] == {"role": "system", "content": "你是智能体集群团队的一员..."}


def _split(state: TeamState, number: int) -> tuple[dict[str, Any], list[Message], dict[str, Any]]:
    before, after = docs.messages_document(state, state.agents[number])
    return before, state.agents[number].messages, after


@pytest.mark.spec
def test_a_terminated_agent_leaves_the_list_and_deep_means_thinking() -> None:
    state = example()
    apply(state, StatusChanged(2, "terminated"), seq=state.seq + 1, t=state.updated_at)
    state.run_mode = "deep"
    document = docs.conversation_metadata(state)
    assert (document["agent_count"], document["agent_ids"], document["thinking_mode"]) == (2, [1, 3], True)


@pytest.mark.spec
def test_folders_files_index_and_global_state_lie_where_the_data_model_says(tmp_path: Path) -> None:
    store = ConversationStore(Home(tmp_path), clock=lambda: at("2026-07-11T21:00:00"))

    async def run() -> str:
        conversation = store.create()
        second = store.create()
        assert second.id == "conv_20260711_210000_002"
        for stamped in _stamp(conversation.id):
            apply(conversation.state, stamped.event, seq=stamped.seq, t=stamped.t)
            conversation.record(stamped)
        await conversation.close()
        return conversation.id

    conversation_id = asyncio.run(run())
    assert conversation_id == "conv_20260711_210000_001"
    base = tmp_path / "mutiagents"
    folder = base / "conversations" / conversation_id
    for name in ("metadata.json", "messages.json", "agents/5/metadata.json", "agents/5/messages.json"):
        assert (folder / name).is_file(), name
    index = json.loads((base / "conversations" / "index.json").read_text(encoding="utf-8"))
    assert list(index[conversation_id].items())[:4] == [
        ("title", "多智能体任务：设计前端"),
        ("created_at", "2026-07-11T21:00:00"),
        ("updated_at", "2026-07-11T21:30:00"),
        ("agent_count", 1),
    ]
    state = json.loads((base / "state.json").read_text(encoding="utf-8"))
    assert list(state.items()) == [
        ("version", "1.0"),
        ("last_conversation_id", "conv_20260711_210000_002"),
        ("agent_id_counter", 5),
        ("created_at", "2026-07-11T21:00:00"),
        ("updated_at", "2026-07-11T21:00:00"),
    ]
    assert not (base / "agents").exists()


def _stamp(conversation_id: str) -> list[Stamped]:
    events = [
        ConversationStarted(conversation_id, "多智能体任务：设计前端", "/p", "m", "fast", "model", "zh", "s"),
        AgentCreated(5, "r", "R", "R_1", 1, "r", "m", "fast", "s", 0.0, False, ""),
    ]
    times = ("2026-07-11T21:00:00", "2026-07-11T21:30:00")
    return [Stamped(n, at(when), event) for n, (when, event) in enumerate(zip(times, events, strict=True), 1)]


@pytest.mark.spec
def test_a_line_of_the_journal_has_number_version_zoned_time_and_event() -> None:
    line = dump_event(Stamped(7, 1752251700.5, StatusChanged(1, "idle", "failed", "坏")))
    assert line.decode() == (
        '{"seq":7,"v":1,"t":"2025-07-11T16:35:00.500000+00:00","event":{"type":"status_changed","v":1,'
        '"agent_id":1,"status":"idle","detail":"failed","error":"坏"}}\n'
    )


@pytest.mark.spec
@pytest.mark.parametrize(
    "text",
    ["2026-07-11T21:00:00", "2026-07-11T13:00:00Z", "2026-07-11T21:00:00+08:00", 1783774800, 1783774800.0],
)
def test_times_are_read_in_every_form(text: Any) -> None:
    expected = at("2026-07-11T21:00:00") if text == "2026-07-11T21:00:00" else 1783774800.0
    assert read_time(text) == expected


# ---------------------------------------------------------------------- round trips


@settings(deadline=None)
@given(steps)
def test_what_was_settled_loads_to_the_same_state(choices: list[Any]) -> None:
    history = build(choices)
    state = replay(history)
    files = _as_files(state)
    assert facts(load(Path("/c/conv_test"), files).state) == facts(state)


def _as_files(state: TeamState) -> Any:
    from support.disks import Picture

    folder = Path("/c/conv_test")
    files = {
        folder / "metadata.json": dump(docs.conversation_metadata(state)),
        folder / "runtime.json": dump(docs.runtime_document(state)),
    }
    for number, agent in state.agents.items():
        place = folder if number == 0 else folder / "agents" / str(number)
        if number:
            files[place / "metadata.json"] = dump(docs.agent_metadata(state, agent))
        files[place / "messages.json"] = b"".join(docs.render_messages(*_split(state, number)))
    return Picture(files, {path.parent for path in files} | {folder / "agents"})


@settings(deadline=None)
@given(values, values)
def test_keys_that_nobody_here_knows_survive_wherever_they_stand(first: Any, second: Any) -> None:
    state = replay(
        build(
            [
                ("create", 0, "x", None),
                ("queue", 1, "q", None),
                ("queue", 2, "q", None),
                ("call", 1, "c", None),
                ("call", 4, "c", None),
                ("usage", 1, "", None),
                ("usage", 0, "", None),
            ]
        )
    )
    picture = _as_files(state)
    marked: dict[Path, Any] = {}
    for path, data in picture.files.items():
        document = json.loads(data)
        _mark(document, first, second)
        marked[path] = document
        picture.files[path] = recipe(document)
    again = _as_files(load(Path("/c/conv_test"), picture).state)
    for path, document in marked.items():
        assert json.loads(again.files[path]) == document, path


def _mark(document: dict[str, Any], first: Any, second: Any) -> None:
    """Put an unknown key into every object that the data model lets another application write."""
    document["x_first"], document["第二"] = first, second
    for key in ("leader_state", "metadata", "token_statistics"):
        if key in document:
            document[key]["x_first"] = first
    for key in ("pending_messages", "pending_tool_calls", "messages"):
        for item in document.get(key, []):
            item["x_first"] = second
    for call in (call for message in document.get("messages", []) for call in message.get("tool_calls", [])):
        call["x_first"] = call["function"]["x_first"] = first
    for usage in document.get("token_statistics", {}).get("by_model", {}).values():
        usage["x_first"] = second


def test_a_conversation_of_another_application_loads_with_what_it_has() -> None:
    """Only what the data model prints, nothing of ours."""
    from support.disks import Picture

    folder = Path("/c/conv_20260711_210000_001")
    agent = folder / "agents" / "1"
    documents: dict[Path, dict[str, Any]] = {
        folder / "metadata.json": {
            "id": "conv_20260711_210000_001",
            "title": "t",
            "created_at": "2026-07-11T21:00:00",
            "updated_at": "2026-07-11T21:30:00",
            "project_path": "/p",
            "model_key": "qwen3-max",
            "thinking_mode": True,
            "status": "archived",
            "agent_count": 1,
            "agent_ids": [1],
        },
        folder / "messages.json": {"id": "conv", "messages": [{"role": "user", "content": "x"}], "metadata": {}},
        agent / "metadata.json": {
            "agent_id": 1,
            "role_id": "ui-operator",
            "display_name": "UI Operator_2",
            "status": "sleeping",
            "thinking_mode": True,
            "pending_messages": [
                {
                    "id": "msg_tl_001",
                    "source_display_name": "Team Leader",
                    "source_agent_id": None,
                    "message_type": "message",
                    "content": "c",
                    "created_at": 1752251700.0,
                },
                {
                    "id": "task_001",
                    "source_display_name": "Team Leader",
                    "source_agent_id": None,
                    "message_type": "task",
                    "content": "already delivered",
                    "created_at": 1752251700.0,
                },
            ],
            "pending_tool_calls": [{"tool_call_id": "tc", "tool_name": "ask_master", "created_at": 1752251800.0}],
        },
        agent / "messages.json": {
            "messages": [
                {"role": "system", "content": "你是"},
                {"role": "user", "content": "x", "message_id": "m", "metadata": {"envelope_id": "task_001"}},
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [{"id": "tc", "function": {"name": "ask_master", "arguments": "{}"}}],
                },
            ]
        },
    }
    picture = Picture({path: recipe(data) for path, data in documents.items()}, {folder, folder / "agents", agent})
    state = load(folder, picture).state
    found = state.agents[1]
    assert (state.run_mode, state.archived, state.seq) == ("thinking", True, 0)
    assert (found.status, found.role_name, found.instance, found.abbreviation) == ("idle", "UI Operator", 2, "uio")
    assert (found.thinking_mode, found.system) == ("thinking", "你是")
    assert [item.id for item in found.pending] == ["msg_tl_001"]
    assert found.open_calls == {"tc": (ToolCall("tc", "ask_master", "{}"), 1752251800.0)}
    assert "task_001" in state.ids
    assert "msg_tl_001" in state.ids


@pytest.mark.parametrize(("name", "key"), [("metadata.json", "schema_version"), ("runtime.json", "schema_version")])
def test_a_layout_of_a_later_release_is_refused_by_name(name: str, key: str) -> None:
    picture = _as_files(replay(build([("create", 0, "x", None)])))
    path = Path("/c/conv_test") / name
    document = json.loads(picture.files[path])
    document[key] = 2
    picture.files[path] = recipe(document)
    with pytest.raises(ConversationBroken, match=rf"{name}: written by a later release .*update astrion-nb"):
        load(Path("/c/conv_test"), picture)


def test_only_documents_that_changed_are_written_again(tmp_path: Path) -> None:
    history = build([("create", 0, "a", None), ("create", 0, "b", None)])
    conversation = Conversation(tmp_path, RealFiles(), Loaded(TeamState(), 0, {}, {}))

    def times() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}

    async def run() -> tuple[dict[Path, int], dict[Path, int]]:
        for stamped in history:
            apply(conversation.state, stamped.event, seq=stamped.seq, t=stamped.t)
            conversation.record(stamped)
        await conversation.settle()
        before = times()
        last = Stamped(conversation.state.seq + 1, 1.0, StatusChanged(1, "running"))
        apply(conversation.state, last.event, seq=last.seq, t=last.t)
        conversation.record(last)
        await conversation.close()
        return before, times()

    before, after = asyncio.run(asyncio.wait_for(run(), 5))
    changed = {str(path.relative_to(tmp_path)) for path in before if before[path] != after[path]}
    assert "agents/1/metadata.json" in changed
    assert not {"agents/2/metadata.json", "agents/2/messages.json", "messages.json", "runtime.json"} & changed


def test_a_failed_write_leaves_the_old_document_and_no_unfinished_file(tmp_path: Path) -> None:
    path = tmp_path / "metadata.json"
    path.write_text("old", encoding="utf-8")

    def chunks() -> Any:
        yield b"new"
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        replace_file(RealFiles(), path, chunks())
    assert [child.name for child in tmp_path.iterdir()] == ["metadata.json"]
    assert path.read_text(encoding="utf-8") == "old"


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every place in a document, as container and key."""
    if isinstance(value, dict):
        return [(value, key) for key in value] + [place for inner in value.values() for place in _places(inner)]
    if isinstance(value, list):
        return [(value, n) for n in range(len(value))] + [place for inner in value for place in _places(inner)]
    return []


@pytest.mark.faults
@settings(deadline=None, max_examples=150)
@given(st.data(), values)
def test_any_value_in_any_place_either_loads_and_is_written_again_or_is_an_error_that_names_the_file(
    data: st.DataObject, value: Any
) -> None:
    history = build(
        [
            ("create", 0, "x", None),
            ("queue", 1, "q", None),
            ("drain", 1, "", 1),
            ("queue", 1, "q", None),
            ("call", 1, "c", None),
            ("ask", 1, "?", None),
            ("say", 1, "c", None),
            ("keep", 1, "k", None),
        ]
    )
    picture = _as_files(replay(history))
    path = data.draw(st.sampled_from(sorted(picture.files)))
    document = json.loads(picture.files[path])
    container, key = data.draw(st.sampled_from(_places(document)))
    container[key] = value
    picture.files[path] = recipe(document)
    try:
        state = load(Path("/c/conv_test"), picture).state
    except ConversationBroken as error:
        assert str(path.relative_to("/c/conv_test")) in str(error)  # noqa: PT017 - both ways are right
    else:
        _as_files(state)
