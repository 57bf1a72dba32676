"""What still works on a disk without room: deleting, which makes some, and looking; and what gives up cleanly."""

from __future__ import annotations

import asyncio
import errno
import json
import threading
from pathlib import Path

import pytest
from support.histories import build

from astrion_nb.disk import RealFiles
from astrion_nb.errors import StorageError
from astrion_nb.home import Home
from astrion_nb.state import apply
from astrion_nb.store.conversations import ConversationStore


class Full(RealFiles):
    """A disk that gives names and takes no bytes."""

    def __init__(self, number: int) -> None:
        self.number = number

    def write(self, handle: int, data: bytes) -> int:
        raise OSError(self.number, "no room")


def stored(home: Home) -> str:
    """Store a conversation of a leader and one agent and close it; return its id."""
    store = ConversationStore(home)

    async def run() -> str:
        conversation = store.create()
        for stamped in build([("create", 0, "x", None)], conversation.id):
            apply(conversation.state, stamped.event, seq=stamped.seq, t=stamped.t)
            conversation.record(stamped)
        await conversation.close()
        return conversation.id

    return asyncio.run(asyncio.wait_for(run(), 10))


@pytest.fixture(params=[errno.ENOSPC, errno.EDQUOT])
def full(request: pytest.FixtureRequest) -> Full:
    return Full(request.param)


def test_a_conversation_is_deleted_where_there_is_no_room(tmp_path: Path, full: Full) -> None:
    home = Home(tmp_path)
    first, second = stored(home), stored(home)
    ConversationStore(home, files=full).delete(first)
    assert not (home.conversations / first).exists()
    assert [entry.id for entry in ConversationStore(home).list()] == [second]
    assert first not in json.loads((home.conversations / "index.json").read_bytes())


def test_what_cannot_be_filed_for_lack_of_room_is_given_up_and_can_be_deleted(tmp_path: Path, full: Full) -> None:
    home = Home(tmp_path)
    conversation_id = stored(home)
    store = ConversationStore(home, files=full)
    threads = set(threading.enumerate())
    for file in (store.archive(conversation_id), store.rename(conversation_id, "Other")):
        with pytest.raises(StorageError, match="no room"):
            asyncio.run(asyncio.wait_for(file, 10))
    for thread in set(threading.enumerate()) - threads:
        thread.join(5)
        assert not thread.is_alive()
    assert store.owner(conversation_id) is None
    state = ConversationStore(home).open(conversation_id, read_only=True).state
    assert not state.archived
    assert state.title != "Other"
    store.delete(conversation_id)
    assert not (home.conversations / conversation_id).exists()


def test_another_fault_of_the_disk_than_lack_of_room_still_refuses(tmp_path: Path) -> None:
    home = Home(tmp_path)
    conversation_id = stored(home)
    with pytest.raises(StorageError, match=r"owner\.json"):
        ConversationStore(home, files=Full(errno.EIO)).delete(conversation_id)
    assert ConversationStore(home).owner(conversation_id) is None
    assert (home.conversations / conversation_id / "messages.json").exists()


@pytest.mark.parametrize("content", [None, b"{}", b"{nonsense"])
def test_conversations_are_listed_where_there_is_no_room_for_the_index(
    tmp_path: Path, full: Full, content: bytes | None
) -> None:
    home = Home(tmp_path)
    ids = [stored(home), stored(home)]
    expected = ConversationStore(home).list()
    index = home.conversations / "index.json"
    index.unlink() if content is None else index.write_bytes(content)
    found = ConversationStore(home, files=full).list()
    assert found == expected
    assert [(entry.id, entry.status) for entry in found] == [(name, "active") for name in ids]
    assert (index.read_bytes() if index.exists() else None) == content
