"""What links in the place of folders do: a conversation may lie elsewhere, and nothing is removed through a link."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.histories import build

from astrion_nb.errors import StorageError
from astrion_nb.home import Home
from astrion_nb.state import apply
from astrion_nb.store.conversations import ConversationStore


@pytest.fixture
def store(tmp_path: Path) -> ConversationStore:
    return ConversationStore(Home(tmp_path / "home"))


def stored(store: ConversationStore) -> Path:
    """Store a conversation of a leader and one agent and close it; return its folder."""

    async def run() -> Path:
        conversation = store.create()
        for stamped in build([("create", 0, "x", None)], conversation.id):
            apply(conversation.state, stamped.event, seq=stamped.seq, t=stamped.t)
            conversation.record(stamped)
        await conversation.close()
        return conversation.folder

    return asyncio.run(asyncio.wait_for(run(), 10))


def contents(folder: Path) -> dict[str, bytes | None]:
    """Return everything below a folder, links not followed."""
    found = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in found}


def test_a_linked_folder_is_not_deleted_and_what_it_leads_to_is_untouched(
    store: ConversationStore, tmp_path: Path
) -> None:
    folder = stored(store)
    outside = tmp_path / "outside"
    (outside / "thesis").mkdir(parents=True)
    (outside / "thesis" / "chapter.txt").write_text("years of work", encoding="utf-8")
    (folder.parent / "work").symlink_to(outside)
    (folder.parent / "alias").symlink_to(folder.name)
    before = contents(outside), contents(folder)
    for name in ("work", "alias"):
        with pytest.raises(StorageError, match=rf"{name} is a link.*remove the link itself"):
            store.delete(name)
        assert (folder.parent / name).is_symlink()
        assert (contents(outside), contents(folder)) == before
    store.delete(folder.name)
    assert not folder.exists()
    assert contents(outside) == before[0]


def test_of_a_deleted_conversation_the_links_go_and_not_what_they_lead_to(
    store: ConversationStore, tmp_path: Path
) -> None:
    folder = stored(store)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep.txt").write_text("x", encoding="utf-8")
    (folder / "agents" / "7").symlink_to(outside)
    (folder / "keep.txt").symlink_to(outside / "keep.txt")
    store.delete(folder.name)
    assert not folder.exists()
    assert contents(outside) == {"keep.txt": b"x"}


@pytest.mark.parametrize("place", ["", "agents", "agents/1"])
def test_opening_sweeps_nothing_out_of_a_folder_that_a_link_leads_to(
    store: ConversationStore, tmp_path: Path, place: str
) -> None:
    folder = stored(store)
    elsewhere = tmp_path / "elsewhere"
    (folder / place).rename(elsewhere)
    (folder / place).symlink_to(elsewhere)
    left = elsewhere / ("1" if place == "agents" else "") / ".x.tmp"
    left.write_text("another's", encoding="utf-8")
    conversation = store.open(folder.name)
    assert set(conversation.state.agents) == {0, 1}
    asyncio.run(conversation.close())
    assert left.read_text(encoding="utf-8") == "another's"


def test_opening_sweeps_what_a_crash_has_left_in_folders_of_its_own(store: ConversationStore) -> None:
    folder = stored(store)
    left = [folder / ".messages.json.1-a.tmp", folder / "agents" / "1" / ".metadata.json.1-a.tmp"]
    for path in left:
        path.write_text("", encoding="utf-8")
    asyncio.run(store.open(folder.name).close())
    assert not any(path.exists() for path in left)
