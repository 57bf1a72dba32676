"""The stored form of every event; a release must read what an earlier one wrote."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astrion_nb.events import FLEETING, TYPES, MessageQueued, PendingMessage, from_json, scope, to_json

GOLDEN = Path(__file__).parents[1] / "golden" / "events"
FILES = sorted(GOLDEN.glob("*.json"))
STORED = {path.stem: json.loads(path.read_bytes()) for path in FILES}

pytestmark = pytest.mark.spec


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_golden_event_is_read_and_written_byte_for_byte(path: Path) -> None:
    event = from_json(json.loads(path.read_bytes()))
    assert (json.dumps(to_json(event), ensure_ascii=False, indent=2) + "\n").encode() == path.read_bytes()


def test_every_event_has_a_golden_file() -> None:
    assert {data["type"] for data in STORED.values()} == set(TYPES)


@pytest.mark.parametrize("tag", sorted(TYPES))
def test_the_golden_files_of_an_event_show_every_field_with_a_value_of_its_own(tag: str) -> None:
    events = [from_json(data) for data in STORED.values() if data["type"] == tag]
    for field in fields(TYPES[tag]):
        if field.default is not MISSING:
            assert any(getattr(event, field.name) != field.default for event in events), field.name


@pytest.mark.parametrize("tag", sorted(TYPES))
def test_a_missing_field_without_default_is_an_error_that_names_the_event(tag: str) -> None:
    data = next(data for data in STORED.values() if data["type"] == tag)
    for field in fields(TYPES[tag]):
        less = {key: value for key, value in data.items() if key != field.name}
        if field.default is MISSING:
            with pytest.raises(ValueError, match=tag):
                from_json(less)
        else:
            assert getattr(from_json(less), field.name) == field.default


def test_an_unknown_event_and_a_newer_version_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown event 'agent_painted'"):
        from_json({"type": "agent_painted", "v": 1})
    with pytest.raises(ValueError, match="version 2"):
        from_json({"type": "warned", "v": 2, "text": "x"})
    with pytest.raises(ValueError, match="unknown event None"):
        from_json({})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(st.sampled_from(sorted(STORED)), st.data())
def test_a_broken_event_is_refused_with_a_value_error_or_read(name: str, data: st.DataObject) -> None:
    broken: dict[str, Any] = json.loads(json.dumps(STORED[name]))
    place = broken
    while True:
        key = data.draw(st.sampled_from(sorted(place)))
        if isinstance(place[key], dict) and place[key] and data.draw(st.booleans()):
            place = place[key]
            continue
        place[key] = data.draw(json_values)
        break
    try:
        from_json(broken)
    except ValueError:
        pass


def test_fleeting_events_are_the_four_live_ones() -> None:
    assert {cls.tag for cls in FLEETING} == {"text_streamed", "request_started", "model_loading", "tool_output"}


def test_each_event_touches_one_agent_or_the_conversation() -> None:
    scopes = {name: scope(from_json(data)) for name, data in STORED.items()}
    assert scopes["message_queued"] == 0
    assert scopes["agent_created"] == 2
    assert scopes["question_asked"] is None
    assert scopes["run_started"] is None


def test_a_mailbox_item_begins_with_the_data_models_six_keys() -> None:
    item = STORED["message_queued"]["item"]
    six = ["id", "source_display_name", "source_agent_id", "message_type", "content", "created_at"]
    assert list(item)[:6] == six


@pytest.mark.parametrize(
    ("word", "kind"),
    [("task", "task"), ("output", "progress"), ("ask", "ask"), ("message", "message"), ("answer", "answer")],
)
def test_a_mailbox_item_that_the_parent_application_wrote_is_understood(word: str, kind: str) -> None:
    written = {
        "id": "msg_tl_001",
        "source_display_name": "Team Leader",
        "source_agent_id": None,
        "message_type": word,
        "content": "先不要创建 API...",
        "created_at": 1752251700.0,
    }
    item = PendingMessage.from_json(written)
    assert (item.kind, item.sender, item.source, item.wakes) == (kind, "Team Leader", "team_leader", True)
    assert {key: item.to_json()[key] for key in written} == written


def test_keys_of_other_programs_in_a_pending_message_survive_also_its_way_through_the_journal() -> None:
    data = {
        "id": "ask_r_001",
        "source_display_name": "Researcher_1",
        "source_agent_id": 1,
        "message_type": "ask",
        "content": "Which?",
        "created_at": 5.0,
        "priority": {"level": 2},
    }
    item = PendingMessage.from_json(data)
    assert item.to_json().items() >= data.items()
    stored = from_json(to_json(MessageQueued(2, item)))
    assert isinstance(stored, MessageQueued)
    assert stored.item == item
