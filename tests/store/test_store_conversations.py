"""Creating, listing, renaming, archiving and removing conversations, and what hand-edited files do."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import re
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from support.histories import build, facts, replay

from astrion_nb.disk import RealFiles
from astrion_nb.errors import (
    ConversationBroken,
    ConversationLocked,
    ConversationNotFound,
    StorageError,
)
from astrion_nb.events import ConversationFiled, Stamped, Warned
from astrion_nb.home import Home
from astrion_nb.state import apply
from astrion_nb.store.conversations import Conversation, ConversationStore, settle_due

NOW = 1_783_774_800.0
HISTORY = [
    ("create", 0, "设计前端", None),
    ("run", 0, "标题", None),
    ("queue", 1, "做", None),
    ("drain", 1, "", None),
    ("call", 1, "{}", None),
    ("ask", 1, "?", None),
    ("queue", 3, "later", None),
    ("keep", 3, "early", None),
]


@pytest.fixture
def store(tmp_path: Path) -> ConversationStore:
    return ConversationStore(Home(tmp_path), clock=lambda: NOW)


def bounded(make: Callable[[], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        return await asyncio.wait_for(make(), 10)

    return asyncio.run(run())


def record(conversation: Conversation, history: list[Stamped]) -> None:
    for stamped in history:
        apply(conversation.state, stamped.event, seq=stamped.seq, t=stamped.t)
        conversation.record(stamped)


async def stored(store: ConversationStore, choices: list[Any] = HISTORY) -> str:
    """Store a conversation and close it; return its id."""
    conversation = store.create()
    record(conversation, build(choices, conversation.id))
    await conversation.close()
    return conversation.id


def test_a_closed_conversation_opens_to_the_state_it_had(store: ConversationStore) -> None:
    async def run() -> None:
        conversation_id = await stored(store)
        again = store.open(conversation_id)
        assert facts(again.state) == facts(replay(build(HISTORY, conversation_id)))
        record(again, [Stamped(again.state.seq + 1, NOW, Warned("more"))])
        await again.close()
        assert store.open(conversation_id, read_only=True).state.warnings == ["more"]

    bounded(run)


def test_small_documents_follow_the_status_while_the_team_runs(store: ConversationStore) -> None:
    async def run() -> None:
        conversation = store.create()
        record(conversation, build([("create", 0, "x", None), ("status", 0, "", None)], conversation.id))
        path = conversation.folder / "agents" / "1" / "metadata.json"
        record(conversation, [])
        history = build([("create", 0, "x", None), ("status", 0, "", None), ("status", 1, "", None)], conversation.id)
        record(conversation, history[3:])
        expected = conversation.state.agents[1].status
        for _ in range(500):
            if path.exists() and json.loads(path.read_bytes())["status"] == expected:
                break
            await asyncio.sleep(0.01)
        else:
            raise AssertionError(f"{path.name} did not follow")
        assert not (conversation.folder / "agents" / "1" / "messages.json").exists()
        await conversation.close()

    bounded(run)


def test_an_index_that_could_not_be_written_is_written_with_the_next_settling_or_the_end(tmp_path: Path) -> None:
    class NoIndex(RealFiles):
        __slots__ = ("broken",)

        def replace(self, source: Path, target: Path) -> None:
            if self.broken and target.name == "index.json":
                raise OSError(errno.ENOSPC, "No space left on device")
            super().replace(source, target)

    files = NoIndex()
    store = ConversationStore(Home(tmp_path), clock=lambda: NOW, files=files)
    index = store.home.conversations / "index.json"

    def titles() -> list[str]:
        return [entry["title"] for entry in json.loads(index.read_bytes()).values()] if index.exists() else []

    async def run() -> None:
        for ends in (False, True):
            files.broken = True
            conversation = store.create()
            record(conversation, build(HISTORY, conversation.id))
            with pytest.raises(StorageError, match=r"index\.json"):
                await (conversation.close() if ends else conversation.settle())
            assert len(titles()) == ends
            files.broken = False
            await (conversation.close() if ends else conversation.settle())
            assert titles() == ["标题"] * (1 + ends)
            await conversation.close()

    bounded(run)


def test_the_size_of_the_documents_is_known_without_looking_at_each(store: ConversationStore) -> None:
    async def run() -> None:
        conversation = store.create()
        record(conversation, build(HISTORY, conversation.id))

        def measured() -> int:
            return sum(path.stat().st_size for path in conversation.folder.rglob("*.json") if path.name[0] != ".")

        owner = (conversation.folder / "owner.json").stat().st_size
        assert conversation.document_size == 0
        await conversation.settle()
        assert conversation.document_size == measured() - owner > 1000
        seq = conversation.state.seq
        record(conversation, [Stamped(seq + 1, NOW, Warned("x" * 500)), Stamped(seq + 2, NOW, ConversationFiled("y"))])
        await conversation.settle()
        assert conversation.document_size == measured() - owner
        await conversation.close()
        again = store.open(conversation.id)
        assert again.document_size == measured() - owner
        await again.close()

    bounded(run)


def test_an_open_conversation_is_locked_renamed_by_itself_and_not_removed(store: ConversationStore) -> None:
    async def run() -> None:
        conversation = store.create()
        record(conversation, build(HISTORY, conversation.id))
        for refused in (store.open, store.delete):
            with pytest.raises(ConversationLocked, match=r"is open in this process \(\d+\)"):
                refused(conversation.id)
        with pytest.raises(ConversationLocked):
            await store.rename(conversation.id, "x")
        assert "this process" in str(store.owner(conversation.id))
        seq = conversation.state.seq + 1
        record(conversation, [Stamped(seq, NOW, ConversationFiled("另一个名字"))])
        await conversation.settle()
        watcher = store.open(conversation.id, read_only=True)
        assert watcher.state.title == "另一个名字"
        with pytest.raises(StorageError, match="reading only"):
            watcher.record(Stamped(99, NOW, Warned("x")))
        await watcher.close()
        await conversation.close()
        assert store.owner(conversation.id) is None
        with pytest.raises(StorageError, match="closed"):
            conversation.record(Stamped(99, NOW, Warned("x")))

    bounded(run)


def test_renaming_archiving_and_removing_a_stored_conversation_shows_in_documents_and_list(
    store: ConversationStore,
) -> None:
    async def run() -> None:
        first, second = await stored(store), await stored(store)
        await store.rename(first, "新")
        await store.archive(first)
        entries = {entry.id: entry for entry in store.list()}
        assert (entries[first].title, entries[first].status) == ("新", "archived")
        assert entries[second].status == "active"
        folder = store.home.conversations / first
        for name in ("metadata.json", "messages.json"):
            assert json.loads((folder / name).read_bytes())["title"] == "新"
        await store.archive(first, False)
        assert {entry.status for entry in store.list()} == {"active"}
        store.delete(first)
        assert [entry.id for entry in store.list()] == [second]
        assert sorted(path.name for path in store.home.conversations.iterdir()) == [second, "index.json"]
        with pytest.raises(ConversationNotFound, match=first):
            store.open(first)

    bounded(run)


@pytest.mark.parametrize("name", ["", "..", "../conversations", "a/b", "conv_missing", ".deleted-x"])
def test_an_id_that_names_no_conversation_is_not_found(store: ConversationStore, name: str) -> None:
    store.home.conversations.mkdir(parents=True)
    with pytest.raises(ConversationNotFound):
        store.open(name)


@pytest.mark.parametrize("content", [None, b"", b"{", b"[1]", b'{"conv_gone_001": {"title": "gone"}}', b"\xff"])
def test_the_index_is_a_cache_that_is_rebuilt_when_missing_or_broken(
    store: ConversationStore, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    conversation_id = bounded(lambda: stored(store))
    before = store.list()
    path = store.home.conversations / "index.json"
    good = path.read_bytes()
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with caplog.at_level(logging.ERROR):
        assert store.list() == before
    assert [entry.id for entry in before] == [conversation_id]
    assert path.read_bytes() == good


def test_unknown_keys_of_index_and_global_state_stay(store: ConversationStore) -> None:
    conversation_id = bounded(lambda: stored(store))
    index_path, state_path = store.home.conversations / "index.json", store.home.state_file
    index, state = json.loads(index_path.read_bytes()), json.loads(state_path.read_bytes())
    index[conversation_id]["pinned"] = True
    state["theme"] = {"dark": 2**70}
    index_path.write_text(json.dumps(index), encoding="utf-8")
    state_path.write_text(json.dumps(state), encoding="utf-8")
    bounded(lambda: store.rename(conversation_id, "x"))
    bounded(lambda: stored(store))
    assert json.loads(index_path.read_bytes())[conversation_id]["pinned"] is True
    assert json.loads(state_path.read_bytes())["theme"] == {"dark": 2**70}


def test_the_global_state_remembers_the_last_conversation_and_never_counts_down(store: ConversationStore) -> None:
    first = bounded(lambda: stored(store, [("create", 1, "x", None)] * 3))
    second = bounded(lambda: stored(store, [("create", 0, "x", None)]))
    assert store.last() == second
    assert json.loads(store.home.state_file.read_bytes())["agent_id_counter"] == 6
    bounded(store.open(first).close)
    assert store.last() == first
    store.delete(first)
    assert store.last() is None


def test_a_global_state_of_a_later_release_is_refused_and_a_broken_one_set_aside(store: ConversationStore) -> None:
    conversation_id = bounded(lambda: stored(store))
    path = store.home.state_file
    path.write_text('{"version": "2.0"}', encoding="utf-8")
    for refused in (store.create, lambda: store.open(conversation_id)):
        with pytest.raises(ConversationBroken, match=r"state\.json: written by a later release"):
            refused()
    assert path.read_text(encoding="utf-8") == '{"version": "2.0"}'
    assert store.owner(conversation_id) is None
    path.write_text("{nonsense", encoding="utf-8")
    bounded(store.open(conversation_id).close)
    assert json.loads(path.read_bytes())["last_conversation_id"] == conversation_id
    assert path.with_name("state.json.broken").read_text(encoding="utf-8") == "{nonsense"


DAMAGE: list[tuple[str, str | tuple[str, Any], str]] = [
    ("metadata.json", "{nonsense", r"metadata\.json, line 1, column 2"),
    ("metadata.json", "[]", r"metadata\.json: holds a list where an object belongs"),
    ("metadata.json", ("created_at", "yesterday"), r"metadata\.json: .*yesterday"),
    ("metadata.json", ("title", 7), r"metadata\.json: 'title' must be a text"),
    ("metadata.json", ("seq", "many"), r"metadata\.json: 'seq' must be a number"),
    ("metadata.json", ("leader_state", []), r"metadata\.json: 'leader_state' must be an object"),
    ("metadata.json", ("pending_messages", [{"kind": "task"}]), r"metadata\.json: 'id' is missing"),
    ("messages.json", '{\n  "messages": [\n    {"role": "user",}\n  ]\n}', r"messages\.json, line 3, column \d+"),
    ("messages.json", ("messages", {}), r"messages\.json: 'messages' must be a list"),
    ("messages.json", ("messages", [{"role": "user"}, {"role": "wizard"}]), r"messages\.json: messages\[1\]: .*wizard"),
    ("messages.json", ("messages", ["text"]), r"messages\.json: messages\[0\]"),
    ("messages.json", None, r"messages\.json: missing"),  # type: ignore[list-item]
    ("agents/1/metadata.json", "", r"agents/1/metadata\.json, line 1"),
    ("agents/1/metadata.json", ("pending_messages", "none"), r"agents/1/metadata\.json"),
    ("agents/1/metadata.json", ("instance", "one"), r"agents/1/metadata\.json"),
    ("agents/1/metadata.json", None, r"agents/1/metadata\.json: missing"),  # type: ignore[list-item]
    ("agents/1/messages.json", ("messages", [None]), r"agents/1/messages\.json: messages\[0\]"),
    ("runtime.json", ("questions", [{}]), r"runtime\.json: 'id' is missing"),
    ("journal.jsonl", "{nonsense\n{}\n", r"journal\.jsonl, line 1"),
    (
        "journal.jsonl",
        '{"seq":999,"v":1,"t":"2026-07-11T21:00:00Z","event":{"type":"question_closed","question_id":"q","reason":""}}\n',
        r"journal\.jsonl: event 999 \(question_closed\) names 'q'",
    ),
]


@pytest.mark.faults
@pytest.mark.parametrize(
    ("name", "damage", "fault"), DAMAGE, ids=[f"{name}-{n}" for n, (name, *_) in enumerate(DAMAGE)]
)
def test_hand_edited_nonsense_names_file_and_place_and_leaves_the_other_conversations_usable(
    store: ConversationStore, name: str, damage: Any, fault: str
) -> None:
    broken, sound = bounded(lambda: stored(store)), bounded(lambda: stored(store))
    path = store.home.conversations / broken / name
    if damage is None:
        path.unlink()
    elif isinstance(damage, str):
        path.write_text(damage, encoding="utf-8")
    else:
        document = json.loads(path.read_bytes())
        document[damage[0]] = damage[1]
        path.write_text(json.dumps(document), encoding="utf-8")
    before = path.read_bytes() if damage is not None else None
    with pytest.raises(ConversationBroken, match=fault) as caught:
        store.open(broken)
    assert "\n" not in str(caught.value)
    assert (path.read_bytes() if damage is not None else None) == before
    assert store.owner(broken) is None
    (store.home.conversations / "index.json").unlink()
    assert {entry.id for entry in store.list()} == {broken, sound}
    again = store.open(sound)
    record(again, [Stamped(again.state.seq + 1, NOW, Warned("usable"))])
    bounded(again.close)
    store.delete(broken)  # what cannot be read can still be removed


def test_a_broken_conversation_is_listed_with_its_fault(store: ConversationStore) -> None:
    conversation_id = bounded(lambda: stored(store))
    (store.home.conversations / conversation_id / "metadata.json").write_text("{", encoding="utf-8")
    (store.home.conversations / "index.json").unlink()
    (entry,) = store.list()
    assert entry.status == "broken"
    assert "metadata.json, line 1" in entry.error


def test_unfinished_files_of_a_crash_are_swept_up_on_opening(store: ConversationStore) -> None:
    conversation_id = bounded(lambda: stored(store))
    folder = store.home.conversations / conversation_id
    left = [folder / ".metadata.json.0123.tmp", folder / "agents" / "1" / ".messages.json.4567.tmp"]
    for path in left:
        path.write_bytes(b"half")
    bounded(store.open(conversation_id).close)
    assert not any(path.exists() for path in left)


def test_a_conversation_whose_creation_was_cut_short_is_not_listed(store: ConversationStore) -> None:
    store.home.conversations.mkdir(parents=True)
    (store.home.conversations / "conv_20260711_210000_001").mkdir()
    assert store.list() == []
    with pytest.raises(ConversationNotFound):
        store.open("conv_20260711_210000_001")
    conversation = store.create()
    assert [entry.id for entry in store.list()] == []  # nothing has been said in it yet
    conversation.close_now()


def test_fifty_conversations_saved_at_once_are_all_there(store: ConversationStore) -> None:
    async def run() -> list[str]:
        conversations = [store.create() for _ in range(50)]
        for conversation in conversations:
            record(conversation, build(HISTORY, conversation.id))
        await asyncio.gather(*(conversation.settle() for conversation in conversations))
        await asyncio.gather(*(conversation.close() for conversation in conversations))
        return [conversation.id for conversation in conversations]

    names = asyncio.run(asyncio.wait_for(run(), 60))
    assert [entry.id for entry in store.list()] == names
    assert len(json.loads((store.home.conversations / "index.json").read_bytes())) == 50
    for name in names:
        state = store.open(name, read_only=True).state
        assert facts(state) == facts(replay(build(HISTORY, name)))


def test_fifty_savings_of_one_conversation_at_once_leave_one_whole(store: ConversationStore) -> None:
    async def run() -> str:
        conversation = store.create()
        history = build(HISTORY * 6, conversation.id)
        tasks = []
        for stamped in history:
            record(conversation, [stamped])
            tasks.append(asyncio.create_task(conversation.settle()))
        await asyncio.gather(*tasks)
        await asyncio.gather(*(conversation.durable(seq) for seq in range(50)))
        assert (conversation.folder / "journal.jsonl").read_bytes() == b""
        await conversation.close()
        assert facts(store.open(conversation.id, read_only=True).state) == facts(replay(history))
        return conversation.id

    asyncio.run(asyncio.wait_for(run(), 60))


def test_closing_from_where_no_loop_runs_saves_too(store: ConversationStore) -> None:
    conversation = store.create()
    history = build(HISTORY, conversation.id)
    record(conversation, history)
    conversation.close_now()
    conversation.close_now()
    assert facts(store.open(conversation.id, read_only=True).state) == facts(replay(history))


def test_who_stops_waiting_for_the_disk_does_not_stop_the_saving(store: ConversationStore) -> None:
    async def run() -> None:
        conversation = store.create()
        record(conversation, build(HISTORY, conversation.id))
        closing = asyncio.create_task(conversation.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        for _ in range(500):
            if store.owner(conversation.id) is None:
                break
            await asyncio.sleep(0.01)
        assert facts(store.open(conversation.id, read_only=True).state) == facts(conversation.state)

    bounded(run)


class Counting(RealFiles):
    __slots__ = ("written",)

    def __init__(self) -> None:
        self.written = 0

    def write(self, handle: int, data: bytes) -> int:
        size = super().write(handle, data)
        self.written += size
        return size


@pytest.mark.parametrize(("turns", "most"), [(1, 3.0), (50, 6.0)])
def test_five_thousand_messages_write_a_small_multiple_of_their_size(tmp_path: Path, turns: int, most: float) -> None:
    files = Counting()
    store = ConversationStore(Home(tmp_path), files=files, durability="relaxed")
    choice = [("say", 0, "中文 and more. " * 32, None)]

    async def run() -> float:
        conversation = store.create()
        history = build(choice * 5000, conversation.id)
        for number, stamped in enumerate(history, 1):
            record(conversation, [stamped])
            if number % 3 == 0:
                await conversation.durable(stamped.seq)
                conversation.settle_soon(resting=False)
            if number % (len(history) // turns) == 0:
                await conversation.durable(stamped.seq)
                conversation.settle_soon(resting=True)
                await asyncio.sleep(0)
        await conversation.close()
        return files.written / conversation.document_size

    ratio = asyncio.run(asyncio.wait_for(run(), 60))
    assert 1.0 < ratio <= most


def test_a_settling_is_due_by_growth_only() -> None:
    assert not settle_due(0, 0, resting=True)
    assert not settle_due(10_000, 0, resting=True)
    assert settle_due(100_000, 0, resting=True)
    assert not settle_due(100_000, 1_000_000, resting=True)
    assert settle_due(500_000, 1_000_000, resting=True)
    assert not settle_due(500_000, 0, resting=False)
    assert settle_due(20_000_000, 1_000_000, resting=False)


def _removed(store: ConversationStore, folder: Path) -> None:
    shutil.rmtree(folder)


def _home_removed(store: ConversationStore, folder: Path) -> None:
    shutil.rmtree(store.home.root)


def _moved(store: ConversationStore, folder: Path) -> None:
    folder.rename(folder.with_name("moved"))


def _another(store: ConversationStore, folder: Path) -> None:
    _moved(store, folder)
    shutil.copytree(folder.with_name("moved"), folder)


def _a_file(store: ConversationStore, folder: Path) -> None:
    _moved(store, folder)
    folder.write_text("x")


@pytest.mark.faults
@pytest.mark.parametrize(
    ("lose", "at"),
    [
        *((lose, at) for lose in (_removed, _home_removed, _moved, _a_file) for at in ("begun", "opened")),
        (_another, "begun"),
    ],
)
def test_a_folder_that_is_lost_while_open_is_told_at_the_next_barrier_and_ends_with_the_close(
    store: ConversationStore, caplog: pytest.LogCaptureFixture, lose: Callable[[ConversationStore, Path], None], at: str
) -> None:
    async def run() -> None:
        conversation = store.create()
        history = build(HISTORY, conversation.id)
        if at == "begun":
            record(conversation, history[:-1])
            await conversation.durable(len(history) - 1)
        lose(store, conversation.folder)
        record(conversation, history[-1:] if at == "begun" else history)
        for _ in range(2):
            with pytest.raises(StorageError, match=re.escape(str(conversation.folder)) + ".* was removed or replaced"):
                await conversation.durable(len(history))
        with pytest.raises(StorageError, match="was removed or replaced"):
            await conversation.settle()
        with pytest.raises(StorageError, match="was removed or replaced"):
            await conversation.close()
        assert conversation.closed
        await conversation.close()
        thread = conversation._journal._thread
        assert thread is not None
        thread.join(5)
        assert not thread.is_alive()

    bounded(run)
    assert caplog.text == ""


@pytest.mark.faults
def test_a_folder_that_is_put_back_is_gone_on_with(store: ConversationStore) -> None:
    async def run() -> None:
        conversation = store.create()
        history = build(HISTORY, conversation.id)
        record(conversation, history[:-1])
        await conversation.durable(len(history) - 1)
        _moved(store, conversation.folder)
        record(conversation, history[-1:])
        with pytest.raises(StorageError):
            await conversation.durable(len(history))
        conversation.folder.with_name("moved").rename(conversation.folder)
        await conversation.durable(len(history))
        await conversation.close()
        assert facts(store.open(conversation.id, read_only=True).state) == facts(replay(history))

    bounded(run)
