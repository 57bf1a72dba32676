"""The greatest number of an event: what is beyond it is refused where it is read, and not saved as a float."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from support.histories import build

from astrion_nb.errors import ConversationBroken
from astrion_nb.home import Home
from astrion_nb.state import apply
from astrion_nb.store.conversations import ConversationStore

LARGEST = 2**63 - 1
PLACES = ["metadata.json", "runtime.json", "messages.json", "agents/1/metadata.json", "agents/1/messages.json"]


def stored(store: ConversationStore) -> Path:
    """Store a conversation of a leader and one agent and close it; return its folder."""
    conversation = store.create()
    for stamped in build([("create", 0, "x", None)], conversation.id):
        apply(conversation.state, stamped.event, seq=stamped.seq, t=stamped.t)
        conversation.record(stamped)
    asyncio.run(asyncio.wait_for(conversation.close(), 10))
    return conversation.folder


def edit(path: Path, seq: int, part: str | None = None) -> None:
    document: dict[str, Any] = json.loads(path.read_bytes())
    (document if part is None else document[part])["seq"] = seq
    path.write_text(json.dumps(document), encoding="utf-8")


def refused(store: ConversationStore, folder: Path, fault: str) -> None:
    for read_only in (False, True):
        with pytest.raises(ConversationBroken, match=fault) as caught:
            store.open(folder.name, read_only=read_only)
        assert "\n" not in str(caught.value)
    assert store.owner(folder.name) is None


@pytest.mark.parametrize("place", [*PLACES, "leader_state"])
@pytest.mark.parametrize("seq", [2**63, 2**64 - 1, 2**64, 10**40])
def test_a_document_that_speaks_up_to_an_event_beyond_the_greatest_number_is_refused_in_a_line(
    tmp_path: Path, place: str, seq: int
) -> None:
    store = ConversationStore(Home(tmp_path))
    folder = stored(store)
    part = place if place == "leader_state" else None
    path = folder / (place if part is None else "metadata.json")
    edit(path, seq, part)
    before = path.read_bytes()
    refused(store, folder, rf"{path.name}: 'seq' must be")
    assert path.read_bytes() == before


@pytest.mark.parametrize("place", PLACES)
def test_the_greatest_number_itself_is_read(tmp_path: Path, place: str) -> None:
    store = ConversationStore(Home(tmp_path))
    folder = stored(store)
    edit(folder / place, LARGEST)
    assert store.open(folder.name, read_only=True).state.seq == LARGEST


@pytest.mark.parametrize("seq", [2**63, 2**64 - 1, 2**64])
def test_an_event_beyond_the_greatest_number_is_refused_with_its_line(tmp_path: Path, seq: int) -> None:
    store = ConversationStore(Home(tmp_path))
    folder = stored(store)
    line = {"seq": seq, "v": 1, "t": "2026-07-11T21:00:00+00:00", "event": {"type": "warned", "text": "x"}}
    (folder / "journal.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    refused(store, folder, r"journal\.jsonl, line 1: number")
