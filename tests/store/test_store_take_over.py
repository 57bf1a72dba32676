"""Two processes and one conversation: the second reads it, or takes it over, and the first one's writes are refused."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.histories import build, facts, replay

from astrion_nb.errors import ConversationLocked, StorageError
from astrion_nb.events import Stamped
from astrion_nb.home import Home
from astrion_nb.lock import locked
from astrion_nb.state import TeamState, apply
from astrion_nb.store import locks
from astrion_nb.store.conversations import ConversationStore
from astrion_nb.store.saving import Conversation

pytestmark = pytest.mark.faults
CHOICES = [("create", 0, "x", None), *(("say", 0, f"word {number}", None) for number in range(60))]

WRITER = """
import asyncio, sys
from test_store_take_over import CHOICES, record
from support.histories import build
from astrion_nb.errors import StorageError
from astrion_nb.home import Home
from astrion_nb.store.conversations import ConversationStore

async def main():
    store = ConversationStore(Home(sys.argv[1]))
    conversation = store.create()
    history = build(CHOICES, conversation.id)
    record(conversation, history[:9])
    await conversation.durable(9)
    print(conversation.id, flush=True)
    try:
        for stamped in history[9:]:
            await asyncio.to_thread(sys.stdin.readline)
            record(conversation, [stamped])
            await conversation.durable(stamped.seq)
            if stamped.seq % 3 == 0:
                await conversation.settle()
            print(stamped.seq, flush=True)
    except StorageError as error:
        print(error, flush=True)
    try:
        await conversation.close()
    except StorageError as error:
        print(error, flush=True)

asyncio.run(main())
"""


def record(conversation: Conversation, history: list[Stamped]) -> None:
    for stamped in history:
        apply(conversation.state, stamped.event, seq=stamped.seq, t=stamped.t)
        conversation.record(stamped)


class Writer:
    """Another process that has a conversation open, and writes one event whenever it is told to."""

    def __init__(self, home: Path) -> None:
        here = Path(__file__).parent
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (here, here.parent, here.parent.parent)))},
            encoding="utf-8",
        )
        self.conversation_id = self.read()

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def write(self) -> str:
        """Let it write an event; returns the event's number, or why it was refused."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.read()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    writer = Writer(tmp_path)
    try:
        yield writer
    finally:
        writer.process.kill()
        writer.process.communicate()


def history_of(conversation_id: str) -> list[Stamped]:
    return build(CHOICES, conversation_id)


def test_a_conversation_that_is_open_elsewhere_can_be_read_while_it_grows(tmp_path: Path, writer: Writer) -> None:
    store = ConversationStore(Home(tmp_path))
    with pytest.raises(ConversationLocked, match=f"process {writer.process.pid} on .*--read-only or --take-over"):
        store.open(writer.conversation_id)
    history = history_of(writer.conversation_id)
    for seq in range(10, 20):
        assert writer.write() == str(seq)
        assert facts(store.open(writer.conversation_id, read_only=True).state) == facts(replay(history[:seq]))


@pytest.mark.parametrize("written", [9, 11, 14])
def test_what_the_former_owner_writes_after_a_taking_over_is_refused_and_nothing_is_torn(
    tmp_path: Path, writer: Writer, written: int
) -> None:
    for seq in range(10, written + 1):
        assert writer.write() == str(seq)
    store = ConversationStore(Home(tmp_path))
    history = history_of(writer.conversation_id)

    async def take() -> TeamState:
        conversation = store.open(writer.conversation_id, taking_over=True)
        assert facts(conversation.state) == facts(replay(history[:written]))
        record(conversation, history[written : written + 5])
        await conversation.durable(written + 5)
        assert store.owner(writer.conversation_id) == f"this process ({os.getpid()})"
        refused = writer.write()
        assert f"{writer.conversation_id} was taken over by process {os.getpid()} on " in refused
        assert "is not saved" in refused
        assert writer.read() == refused  # closing says so too, and comes to its end
        assert await asyncio.to_thread(writer.process.wait, 5) == 0
        assert json.loads((conversation.folder / "owner.json").read_bytes())["pid"] == os.getpid()
        record(conversation, history[written + 5 :])
        await conversation.close()
        return conversation.state

    assert facts(asyncio.run(take())) == facts(replay(history))
    assert facts(store.open(writer.conversation_id, read_only=True).state) == facts(replay(history))
    assert store.owner(writer.conversation_id) is None


def test_a_former_owner_that_has_not_noticed_yet_can_write_nothing_after_the_new_one_has_closed(
    tmp_path: Path, writer: Writer
) -> None:
    store = ConversationStore(Home(tmp_path))
    history = history_of(writer.conversation_id)

    async def take() -> None:
        conversation = store.open(writer.conversation_id, taking_over=True)
        record(conversation, history[9:])
        await conversation.close()

    asyncio.run(take())
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json*")}
    assert "was taken over" in writer.write()
    writer.process.wait(5)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json*")} == before


def test_a_taking_over_waits_for_who_writes_just_now(
    tmp_path: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ConversationStore(Home(tmp_path))
    monkeypatch.setattr(locks, "TURN_LIMIT", 0.05)
    writing = Home(tmp_path).conversations / writer.conversation_id / locks.TURN
    with locked(writing), pytest.raises(StorageError, match=r"holds turn\.lock"):
        store.open(writer.conversation_id, taking_over=True)
    assert writer.write() == "10"


def test_a_process_that_stands_still_is_taken_over_and_finds_out_when_it_goes_on(
    tmp_path: Path, writer: Writer
) -> None:
    store = ConversationStore(Home(tmp_path))
    writer.process.send_signal(signal.SIGSTOP)
    conversation = store.open(writer.conversation_id, taking_over=True)
    writer.process.send_signal(signal.SIGCONT)
    assert "was taken over" in writer.write()
    conversation.close_now()


def test_of_many_that_take_over_at_once_one_has_it_in_the_end(tmp_path: Path, writer: Writer) -> None:
    store = ConversationStore(Home(tmp_path))
    history = history_of(writer.conversation_id)

    async def take_all() -> None:
        takers: list[Conversation] = []
        for _ in range(4):
            takers.append(store.open(writer.conversation_id, taking_over=True))
        for conversation in takers:
            record(conversation, history[9:12])
        for conversation in takers[:-1]:
            with pytest.raises(StorageError, match="was taken over"):
                await conversation.durable(12)
            with pytest.raises(StorageError, match="was taken over"):
                await conversation.close()
            assert conversation.closed
        await takers[-1].durable(12)
        await takers[-1].close()

    asyncio.run(take_all())
    assert facts(store.open(writer.conversation_id, read_only=True).state) == facts(replay(history[:12]))
