"""A journal of another conversation is refused, not mixed in; one copied along with its folder is its own."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from support.histories import build, facts, replay

from astrion_nb.errors import ConversationBroken
from astrion_nb.home import Home
from astrion_nb.state import apply
from astrion_nb.store.conversations import Conversation, ConversationStore

HISTORY = [("create", 0, "x", None), ("run", 0, "Title", None)]


@pytest.fixture
def store(tmp_path: Path) -> ConversationStore:
    return ConversationStore(Home(tmp_path))


async def begun(store: ConversationStore) -> Conversation:
    """Begin a conversation of which all is in the journal so far."""
    conversation = store.create()
    for stamped in build(HISTORY, conversation.id):
        apply(conversation.state, stamped.event, seq=stamped.seq, t=stamped.t)
        conversation.record(stamped)
    await conversation.durable(conversation.state.seq)
    return conversation


async def journal_of_one_and_folder_of_another(store: ConversationStore) -> tuple[str, bytes, Path]:
    one, other = await begun(store), await begun(store)
    journal = (one.folder / "journal.jsonl").read_bytes()
    await one.close()
    await other.close()
    return one.id, journal, other.folder


def test_a_journal_of_another_conversation_is_refused_with_both_names(store: ConversationStore) -> None:
    name, journal, folder = asyncio.run(asyncio.wait_for(journal_of_one_and_folder_of_another(store), 10))
    path = folder / "journal.jsonl"
    assert journal
    path.write_bytes(journal)
    for read_only in (False, True):
        with pytest.raises(ConversationBroken, match=rf"journal\.jsonl: .*{name}.*{folder.name}") as caught:
            store.open(folder.name, read_only=read_only)
        assert "\n" not in str(caught.value)
    assert path.read_bytes() == journal
    assert store.owner(folder.name) is None
    path.write_bytes(b"")
    assert facts(store.open(folder.name, read_only=True).state) == facts(replay(build(HISTORY, folder.name)))


def test_a_folder_that_was_copied_under_another_name_is_read_with_its_own_journal(store: ConversationStore) -> None:
    async def run() -> None:
        conversation = await begun(store)
        early = store.home.conversations / "early"
        shutil.copytree(conversation.folder, early)
        journal = (early / "journal.jsonl").read_bytes()
        (early / "metadata.json").unlink(missing_ok=True)
        await conversation.close()
        late = store.home.conversations / "late"
        shutil.copytree(conversation.folder, late)
        (late / "journal.jsonl").write_bytes(journal)
        for name in ("early", "late"):
            assert facts(store.open(name, read_only=True).state) == facts(conversation.state)

    asyncio.run(asyncio.wait_for(run(), 10))
