"""Index and global state are caches: whatever has their names, or their locks', keeps no conversation from anybody."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from support.histories import build

from astrion_nb.disk import RealFiles
from astrion_nb.events import ConversationFiled, Stamped
from astrion_nb.home import Home
from astrion_nb.state import apply
from astrion_nb.store.conversations import Conversation, ConversationStore


def record(conversation: Conversation, history: list[Stamped]) -> None:
    for stamped in history:
        apply(conversation.state, stamped.event, seq=stamped.seq, t=stamped.t)
        conversation.record(stamped)


def close(conversation: Conversation) -> None:
    asyncio.run(asyncio.wait_for(conversation.close(), 10))


def stored(store: ConversationStore) -> str:
    conversation = store.create()
    record(conversation, build([("create", 0, "x", None)], conversation.id))
    close(conversation)
    return conversation.id


def titled(conversation: Conversation, title: str) -> None:
    state = conversation.state
    record(conversation, [Stamped(state.seq + 1, state.updated_at, ConversationFiled(title=title))])


def in_the_way(home: Home, name: str) -> Path:
    path = {"index.json": home.conversations / name, "state.json": home.state_file}.get(name)
    path = path or home.lock_file(name.removesuffix(".lock"))
    path.unlink()
    path.mkdir()
    (path / "x").touch()
    return path


@pytest.mark.parametrize("name", ["index.json", "state.json", "index.lock", "state.lock"])
def test_a_folder_in_the_place_of_a_cache_stops_nobody_from_opening_and_closing(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = ConversationStore(Home(tmp_path))
    first = stored(store)
    path = in_the_way(store.home, name)
    second = stored(store)
    for conversation_id in (first, second):
        conversation = store.open(conversation_id)
        titled(conversation, f"of {conversation_id}")
        close(conversation)
        assert conversation.closed
        assert store.owner(conversation_id) is None
    assert any(path.name in note.getMessage() for note in caplog.records if note.levelno == logging.WARNING)
    path.joinpath("x").unlink()
    path.rmdir()
    assert [(entry.id, entry.status) for entry in store.list()] == [(first, "active"), (second, "active")]
    for conversation_id in (first, second):
        assert store.open(conversation_id, read_only=True).state.title == f"of {conversation_id}"
        store.delete(conversation_id)


@pytest.mark.parametrize("name", ["index.json", "index.lock"])
def test_conversations_are_listed_and_deleted_where_a_folder_is_in_the_place_of_the_index(
    tmp_path: Path, name: str
) -> None:
    store = ConversationStore(Home(tmp_path))
    first, second = stored(store), stored(store)
    before = store.list()
    in_the_way(store.home, name)
    assert store.list() == before
    store.delete(first)
    assert [entry.id for entry in store.list()] == [second]


class NoNewNames(RealFiles):
    """A folder in which nothing can be created, as one of mode 0555 is to all but root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.refuses = True

    def create(self, path: Path, mode: int | None = None) -> int:
        if self.refuses and path.parent == self.folder:
            raise PermissionError(13, "Permission denied")
        return super().create(path, mode)


def test_what_the_index_has_missed_is_put_into_it_when_it_can_be_written_again(tmp_path: Path) -> None:
    home = Home(tmp_path)
    conversation_id = stored(ConversationStore(home))
    files = NoNewNames(home.conversations)
    store = ConversationStore(home, files=files)
    conversation = store.open(conversation_id)
    titled(conversation, "Later")

    async def settle_twice() -> None:
        await conversation.settle()
        assert store.list()[0].title != "Later"
        files.refuses = False
        await conversation.close()

    asyncio.run(asyncio.wait_for(settle_twice(), 10))
    assert store.list()[0].title == "Later"
