"""What is written, and how much: only what has changed, in proportion, and nothing that a reader could meet torn."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from astrion_nb.disk import RealFiles
from astrion_nb.events import (
    AgentCreated,
    ConversationFiled,
    ConversationStarted,
    Event,
    MessageAppended,
    RunEnded,
    RunStarted,
    StatusChanged,
    Warned,
)
from astrion_nb.home import Home
from astrion_nb.ids import LEADER_ID
from astrion_nb.messages import Message
from astrion_nb.runtime.bus import Bus
from astrion_nb.store.conversations import Conversation, ConversationStore

AGENTS = 3


class Counted(RealFiles):
    """The real files; counts the bytes that are written, and which documents are put in place."""

    __slots__ = ("replaced", "written")

    def __init__(self) -> None:
        self.written = 0
        self.replaced: Counter[str] = Counter()

    def write(self, handle: int, data: bytes) -> int:
        taken = super().write(handle, data)
        self.written += taken
        return taken

    def replace(self, source: Path, target: Path) -> None:
        super().replace(source, target)
        parts = target.parts
        self.replaced["/".join(parts[parts.index("agents", -4) :] if "agents" in parts[-4:] else parts[-1:])] += 1


def begun(home: Path, files: RealFiles) -> tuple[Conversation, Bus]:
    """A conversation of a leader and some agents that have said something."""
    conversation = ConversationStore(Home(home), files=files).create()
    bus = Bus(conversation.state, conversation, time.time)
    bus.publish(ConversationStarted(conversation.id, "T", "/work", "m", "fast", "model", "zh", "你是 Leader"))
    for number in range(1, AGENTS + 1):
        name = f"Writer_{number}"
        created = AgentCreated(number, "w", "Writer", name, number, "w", "m", "fast", "x", 60.0, False, "y")
        bus.publish(created)
        bus.publish(said(bus, number, 50))
    bus.publish(said(bus, LEADER_ID, 50))
    return conversation, bus


def said(bus: Bus, number: int, size: int) -> Event:
    agent = bus.state.agents[number]
    return MessageAppended(number, Message("assistant", "文" * (size // 3), agent.next_message_id("assistant")))


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.json"))


def test_settling_writes_the_documents_of_who_has_changed_and_no_other(tmp_path: Path) -> None:
    async def run() -> None:
        files = Counted()
        conversation, bus = begun(tmp_path, files)
        await conversation.settle()
        files.replaced.clear()
        await conversation.settle()
        assert not files.replaced, "nothing has happened"

        bus.publish(said(bus, 2, 90))
        await conversation.settle()
        # the index says the second of the last change: it may be the same one
        files.replaced.pop("index.json", None)
        assert set(files.replaced) == {"agents/2/messages.json", "agents/2/metadata.json", "metadata.json"}
        assert set(files.replaced.values()) == {1}

        files.replaced.clear()
        bus.publish(said(bus, LEADER_ID, 90))
        await conversation.settle()
        assert set(files.replaced) <= {"messages.json", "metadata.json", "index.json"}
        assert files.replaced["messages.json"] == 1

        files.replaced.clear()
        bus.publish(Warned("of the conversation's own"))
        await conversation.settle()
        assert not any(name.startswith("agents/") for name in files.replaced)
        await conversation.close()

    asyncio.run(asyncio.wait_for(run(), 5))


@pytest.mark.parametrize(("turns", "most"), [(1, 3), (50, 6)])
def test_all_that_is_written_for_a_conversation_is_a_small_multiple_of_its_size(
    tmp_path: Path, turns: int, most: int
) -> None:
    async def run() -> None:
        files = Counted()
        conversation, bus = begun(tmp_path, files)
        for turn in range(turns):
            bus.publish(RunStarted(turn + 1, "on"))
            for n in range(2000 // turns):
                bus.publish(said(bus, n % (AGENTS + 1), 500))
                if n % 20 == 0:
                    await bus.durable()
            bus.publish(RunEnded(turn + 1, "completed", ""))
            conversation.settle_soon(resting=True)
            await bus.durable()
        await conversation.close()
        size = size_of(conversation.folder)
        assert size > 2000 * 500
        assert files.written <= most * size

    asyncio.run(asyncio.wait_for(run(), 20))


def test_what_is_written_for_a_message_does_not_grow_with_the_conversation(tmp_path: Path) -> None:
    async def run() -> None:
        files = Counted()
        conversation, bus = begun(tmp_path, files)
        await conversation.settle()
        cost = []
        for _ in range(20):
            before = files.written
            for _ in range(100):
                bus.publish(said(bus, LEADER_ID, 600))
            await bus.durable()
            cost.append(files.written - before)
        await conversation.close()
        assert max(cost) - min(cost) < 1000, "ids and numbers grow by a digit, nothing else does"

    asyncio.run(asyncio.wait_for(run(), 10))


WATCHER = """
import json, pathlib, select, sys
folder, seen, looks = pathlib.Path(sys.argv[1]), {}, 0
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for path in folder.rglob("*.json"):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            if str(path) in seen:
                sys.exit(f"{path} was gone")
            continue
        try:
            value = json.loads(data)
        except ValueError as error:
            sys.exit(f"{path} was torn: {error}; {data[-80:]!r}")
        if not isinstance(value, dict) or not data.endswith(b"}"):
            sys.exit(f"{path} was no whole document: {data[-80:]!r}")
        if value.get("seq", 0) < seen.get(str(path), 0):
            sys.exit(f"{path} went back from event {seen[str(path)]} to {value['seq']}")
        seen[str(path)] = value.get("seq", 0)
        looks += 1
    for path in folder.rglob("journal.jsonl"):
        for line in path.read_bytes().split(b"\\n")[:-1]:
            json.loads(line)
print(json.dumps({"looks": looks, "files": len(seen)}))
"""


def test_whoever_reads_the_files_at_any_moment_finds_whole_documents_that_never_go_back(tmp_path: Path) -> None:
    conversation, bus = begun(tmp_path, RealFiles())
    watcher = subprocess.Popen(
        [sys.executable, "-c", WATCHER, str(conversation.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watcher.stdin is not None
    assert watcher.stdout is not None
    assert watcher.stdout.readline() == "ready\n"

    async def run() -> None:
        for turn in range(40):
            bus.publish(RunStarted(turn + 1, "on"))
            for number in range(AGENTS + 1):
                bus.publish(StatusChanged(number, "running"))
                bus.publish(said(bus, number, 4000))
                await bus.durable()
                bus.publish(StatusChanged(number, "completed"))
            bus.publish(RunEnded(turn + 1, "completed", ""))
            if turn % 3 == 0:
                bus.publish(ConversationFiled(f"第 {turn} 版"))
            await conversation.settle()
            assert watcher.poll() is None, watcher.communicate()[1]
        await conversation.close()

    asyncio.run(asyncio.wait_for(run(), 30))
    out, err = watcher.communicate("stop", timeout=10)
    assert watcher.returncode == 0, err
    found = json.loads(out)
    assert found["files"] == 4 + 2 * AGENTS  # owner.json among them
    assert found["looks"] > 50, "it looked while it was written"
