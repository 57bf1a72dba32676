"""What keeping a conversation costs: one fresh process that measures it and prints JSON.

    python keeping.py grow|barriers|block|open --home DIR [--swapped] [--core 0]

One agent works through the bus and the store as in a team: requests, messages with one call, its results; the end of
a turn begins to settle. The same work on a journal that keeps nothing is taken off: what is left is saving. CPU time
is that of all threads, less what the writing thread spends inside ``fsync``: that is the disk's and the system's.

``grow`` does without barriers, as peers are measured, in a long conversation and in short ones, and counts what is
written. ``barriers`` waits for the disk and then for a model before each message of the agent, against a bare thread
that writes and syncs as often. ``block`` looks for gaps of the event loop while 5,000 messages are written out,
``open`` takes up a conversation of as many. Knows no budget.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from astrion_nb.disk import RealFiles
from astrion_nb.events import (
    ConversationStarted,
    MessageAppended,
    MessageQueued,
    PendingMessage,
    RunEnded,
    RunStarted,
    Stamped,
    StatusChanged,
)
from astrion_nb.home import Home
from astrion_nb.ids import LEADER_ID
from astrion_nb.messages import Message, ToolCall
from astrion_nb.runtime.bus import Bus
from astrion_nb.state import TeamState
from astrion_nb.store.conversations import Conversation, ConversationStore

T = TypeVar("T")
U = TypeVar("U")

LONG, SHORT = 5000, 100
SIZE = 600
"""Bytes of a message as it stands in a request: JSON without spaces."""
TURNS = 50
MARKS = (100, 1100, LONG - 1100, LONG - 100)
"""Lengths of a long conversation between which the costs at its beginning and at its end are measured."""
REQUEST = 0.0005
"""Seconds for which a model's answer is waited for: no loop comes from a wait with warm caches."""
SETTLINGS = 9
OPENINGS = 5
TICK = 0.001
"""Seconds between two looks at the clock by who watches the event loop."""


class Metered(RealFiles):
    """The real files; counts what is written, and the CPU time of the calling thread inside the syncs."""

    __slots__ = ("sync_cpu", "syncs", "written")

    def __init__(self) -> None:
        self.written = self.syncs = 0
        self.sync_cpu = 0.0

    def write(self, handle: int, data: bytes) -> int:
        taken = super().write(handle, data)
        self.written += taken
        return taken

    def fsync(self, handle: int) -> None:
        before = time.thread_time()
        super().fsync(handle)
        self.sync_cpu += time.thread_time() - before
        self.syncs += 1

    def fsync_dir(self, path: Path) -> None:
        before = time.thread_time()
        super().fsync_dir(path)
        self.sync_cpu += time.thread_time() - before
        self.syncs += 1


@dataclass(slots=True)
class Kept:
    """What it took: CPU seconds without and in syncs, their number, bytes written, bytes of the files at the end."""

    cpu: float
    sync_cpu: float
    syncs: int
    written: int
    size: int = 0


class Nothing:
    """A journal that keeps nothing: what is left is the work itself."""

    def record(self, stamped: Stamped) -> None:
        """Drop the event."""

    async def durable(self, seq: int) -> None:
        """Return at once."""


class Bare:
    """The least that keeping can be: a thread writes ready bytes and syncs them, at the same barriers.

    What it costs is the price of two threads that wake each other and of the system, and nobody's who waits for a
    disk without holding up the loop can be less.
    """

    def __init__(self, path: Path) -> None:
        self.sync_cpu = 0.0
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._line = b"x" * (SIZE + 135) + b"\n"
        self._lines = 0
        self._asked: queue.SimpleQueue[tuple[int, asyncio.Future[None]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def record(self, stamped: Stamped) -> None:
        """Count a line."""
        self._lines += 1

    async def durable(self, seq: int) -> None:
        """Have the lines written and synced."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lines, self._lines = self._lines, 0
        self._asked.put((lines, future))
        await future

    def close(self) -> None:
        """End the thread."""
        self._asked.put(None)
        self._thread.join()
        os.close(self._handle)

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            lines, future = asked
            os.write(self._handle, self._line * lines)
            before = time.thread_time()
            os.fsync(self._handle)
            self.sync_cpu += time.thread_time() - before
            future.get_loop().call_soon_threadsafe(future.set_result, None)


def sized(message: Message) -> Message:
    """Return a message whose JSON has ``SIZE`` bytes, by more text."""
    lacking = SIZE - len(json.dumps(message.to_json(), separators=(",", ":")))
    return replace(message, content=(message.content or "") + ("lorem ipsum dolor " * 40)[:lacking])


@dataclass
class Work:
    """How a conversation grows.

    Parameters
    ----------
    messages, turns : int
    barriers : bool
        Whether each request waits for the disk, and then for a model.
    settle : callable
        Called at the end of a turn.
    clock : callable
        CPU seconds; read at the lengths of ``MARKS``.
    """

    messages: int
    turns: int = 1
    barriers: bool = False
    settle: Callable[[], object] = lambda: None
    clock: Callable[[], float] = time.process_time
    seen: list[tuple[int, float]] = field(default_factory=list)

    async def grow(self, bus: Bus) -> None:
        """Let a leader's conversation grow."""
        state = bus.state
        bus.publish(ConversationStarted(state.conversation_id, "", "/work", "openai", "fast", "model", "en", "Lead."))
        agent = state.agents[LEADER_ID]
        usage = {"input": 120_000, "output": 130, "total": 120_130, "cached": 100_000}
        for turn in range(self.turns):
            until = (turn + 1) * self.messages // self.turns
            bus.publish(RunStarted(turn + 1, "Go on"))
            item = PendingMessage(f"person{turn}", "human", "", None, "x", 1.0, "user", True, True)
            bus.publish(MessageQueued(LEADER_ID, item))
            bus.publish(StatusChanged(LEADER_ID, "running"))
            origin = {"message_source": "user", "visibility": "chat", "starts_work": True}
            asked = Message("user", "", agent.next_message_id("user"), metadata=origin)
            bus.publish(MessageAppended(LEADER_ID, sized(asked), item.id))
            while len(agent.messages) < until - 1:
                await self._ask(bus)
                call = ToolCall(
                    f"call_{len(agent.messages)}", "read_file", '{"path": "notes/plan.md", "lines": [1, 9]}'
                )
                said = Message("assistant", "", agent.next_message_id("assistant"), (call,), metadata={"usage": usage})
                bus.publish(MessageAppended(LEADER_ID, sized(said)))
                result = Message("tool", "", agent.next_message_id("tool"), tool_call_id=call.id)
                bus.publish(MessageAppended(LEADER_ID, sized(result)))
                if len(self.seen) < len(MARKS) and len(agent.messages) >= MARKS[len(self.seen)]:
                    self.seen.append((len(agent.messages), self.clock()))
            await self._ask(bus)
            answer = Message("assistant", "", agent.next_message_id("assistant"), metadata={"usage": usage})
            bus.publish(MessageAppended(LEADER_ID, sized(answer)))
            bus.publish(StatusChanged(LEADER_ID, "completed"))
            bus.publish(RunEnded(turn + 1, "completed", "done"))
            self.settle()
            await bus.durable()

    async def _ask(self, bus: Bus) -> None:
        if self.barriers:
            await bus.durable()
        await asyncio.sleep(REQUEST if self.barriers else 0)

    def windows(self) -> tuple[float, float]:
        """Return CPU seconds a message at the beginning and at the end."""
        (a, t), (b, u), (c, v), (d, w) = self.seen
        return (u - t) / (b - a), (w - v) / (d - c)


async def lost(work: Work) -> float:
    """Do the work and keep nothing; return its CPU seconds."""
    before = time.process_time()
    await work.grow(Bus(TeamState(conversation_id="conv"), Nothing(), time.time))
    return time.process_time() - before


async def bare(work: Work, home: Path) -> float:
    """Do the work with the least that keeps its bytes; return its CPU seconds without the syncs."""
    journal = Bare(home / "bare")
    before = time.process_time()
    await work.grow(Bus(TeamState(conversation_id="conv"), journal, time.time))
    taken = time.process_time() - before - journal.sync_cpu
    journal.close()
    (home / "bare").unlink()
    return taken


async def kept(work: Work, home: Path) -> Kept:
    """Do the work with everything saved, the documents at its end included."""
    files = Metered()
    conversation = ConversationStore(Home(home), files=files).create()
    work.settle = lambda: conversation.settle_soon(resting=True)
    work.clock = lambda: time.process_time() - files.sync_cpu
    files.written, files.syncs, files.sync_cpu = 0, 0, 0.0
    before = time.process_time()
    await work.grow(Bus(conversation.state, conversation, time.time))
    await conversation.settle()
    out = Kept(time.process_time() - before - files.sync_cpu, files.sync_cpu, files.syncs, files.written)
    await conversation.close()
    out.size = sum(path.stat().st_size for path in conversation.folder.rglob("*.json"))
    found = ConversationStore(Home(home)).open(conversation.id, read_only=True).state.agents[LEADER_ID].messages
    if found != conversation.state.agents[LEADER_ID].messages or abs(len(found) - work.messages) > work.turns:
        raise RuntimeError(f"{len(found)} messages are on the disk, not {work.messages}, or other ones")
    return out


def measured(side: Coroutine[Any, Any, T]) -> T:
    """Run one side with no garbage of others."""
    gc.collect()
    return asyncio.run(side)


def in_turn(swapped: bool, first: Callable[[], T], second: Callable[[], U]) -> tuple[T, U]:
    """Call both, the second one before the first if ``swapped``; return what they give, the first's first."""
    if swapped:
        later = second()
        return first(), later
    return first(), second()


def measure_growth(home: Path, swapped: bool) -> dict[str, Any]:
    """Without barriers: long, in one turn and in many; short, as often as it takes to be much work."""
    times = LONG // SHORT // 2
    measured(kept(Work(SHORT), home)), measured(lost(Work(SHORT)))  # warm
    keeping, losing = Work(LONG), Work(LONG)
    long, without = in_turn(swapped, lambda: measured(kept(keeping, home)), lambda: measured(lost(losing)))
    shorts = [
        in_turn(swapped, lambda: measured(kept(Work(SHORT), home)), lambda: measured(lost(Work(SHORT))))
        for _ in range(times)
    ]
    many = measured(kept(Work(LONG, TURNS), home))
    first, last = (a - b for a, b in zip(keeping.windows(), losing.windows(), strict=True))
    return {
        "long": (long.cpu - without) / LONG,
        "short": sum(side.cpu - other for side, other in shorts) / times / SHORT,
        "first": first,
        "last": last,
        "work": without / LONG,
        "one": [long.written, long.size],
        "many": [many.written, many.size],
    }


def measure_barriers(home: Path, swapped: bool) -> dict[str, Any]:
    """With a barrier before each message of the agent; half as long, for most of it is waiting."""
    messages = LONG // 2

    def work(length: int = messages) -> Work:
        return Work(length, barriers=True)

    measured(kept(work(SHORT), home)), measured(bare(work(SHORT), home))
    ours, theirs = in_turn(swapped, lambda: measured(kept(work(), home)), lambda: measured(bare(work(), home)))
    return {
        "kept": ours.cpu / messages,
        "bare": theirs / messages,
        "syncing": ours.sync_cpu / messages,
        "syncs": ours.syncs,
        "messages": messages,
    }


class Watch:
    """Looks at the clock every millisecond, and keeps how much too late it came to look."""

    def __init__(self) -> None:
        self.late: list[float] = []
        self._due = 0.0
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to look."""
        self.late = []
        self._due = self._loop.time() + TICK
        self._timer = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        self.late.append(now - self._due)
        self._due = now + TICK
        self._timer = self._loop.call_at(self._due, self._look)

    def stop(self) -> list[float]:
        """End looking; return the delays in seconds, the one that is just being had included."""
        if self._timer is not None:
            self._timer.cancel()
        return [*self.late, max(0.0, self._loop.time() - self._due)]


def fill(home: Path) -> str:
    """Make a conversation of ``LONG`` messages at rest; return its id."""

    async def run() -> str:
        conversation = ConversationStore(Home(home)).create()
        await Work(LONG, TURNS).grow(Bus(conversation.state, conversation, time.time))
        await conversation.close()
        return conversation.id

    return asyncio.run(run())


async def _blocks(home: Path, name: str) -> dict[str, Any]:
    conversation: Conversation = ConversationStore(Home(home)).open(name)
    bus = Bus(conversation.state, conversation, time.time)
    agent = conversation.state.agents[LEADER_ID]
    gc.collect()
    watch = Watch()
    idle: list[float] = []
    longest: list[float] = []
    taken: list[float] = []
    for n in range(SETTLINGS):
        watch.start()
        await asyncio.sleep(1.0)  # nothing happens: what is late now is the machine's
        idle += watch.stop()
        watch.start()
        began = time.perf_counter()
        # everything that saving does, at this length: events, barriers, all messages anew, the journal emptied
        settling = None
        for step in range(20):
            said = Message("assistant", f"{n} {step}", agent.next_message_id("assistant"))
            bus.publish(MessageAppended(LEADER_ID, sized(said)))
            await bus.durable()
            if step == 5:
                settling = asyncio.ensure_future(conversation.settle())
                await asyncio.sleep(0)
        if settling is not None:
            await settling
        taken.append(time.perf_counter() - began)
        longest.append(max(watch.stop()))
    await conversation.close()
    idle.sort()
    return {"idle": idle[int(len(idle) * 0.999)], "longest": longest, "taken": taken}


def measure_blocks(home: Path, swapped: bool) -> dict[str, Any]:
    """How long the loop is held up while so long a conversation is written out."""
    return asyncio.run(_blocks(home, fill(home)))


async def _opened(home: Path, name: str) -> tuple[float, int]:
    from astrion_nb.app.team import Team

    team = Team(conversation=name, home=home, model="openai")
    gc.collect()
    before = time.process_time()
    await team.open()
    taken = time.process_time() - before
    found = len(team.state.agents[LEADER_ID].messages)
    await team.close()
    return taken, found


def parsed(folder: Path) -> float:
    """Return the CPU seconds that parsing a conversation's files takes, and nothing else."""
    import orjson

    gc.collect()
    before = time.process_time()
    kept = [orjson.loads(path.read_bytes()) for path in sorted(folder.rglob("*.json"))]
    taken = time.process_time() - before
    del kept
    return taken


def measure_opening(home: Path, swapped: bool) -> dict[str, Any]:
    """Taking up a conversation at rest: lock, load, de-duplicate, repair, index; once before, for the imports."""
    name = fill(home)
    folder = Home(home).conversations / name
    asyncio.run(_opened(home, name)), parsed(folder)
    pairs = []
    for turn in range(OPENINGS):
        swap = swapped ^ bool(turn % 2)
        (taken, found), least = in_turn(swap, lambda: asyncio.run(_opened(home, name)), lambda: parsed(folder))
        if abs(found - LONG) > TURNS:
            raise RuntimeError(f"{found} messages were found, not {LONG}")
        pairs.append((taken, least))
    return {"pairs": pairs, "bytes": sum(path.stat().st_size for path in folder.rglob("*.json"))}


MEASURES = {"grow": measure_growth, "barriers": measure_barriers, "block": measure_blocks, "open": measure_opening}


def main() -> None:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=MEASURES)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--swapped", action="store_true", help="the other side first")
    parser.add_argument("--core", type=int, help="the one core to run on")
    arguments = parser.parse_args()
    if arguments.core is not None:
        os.sched_setaffinity(0, {arguments.core})
    try:
        out = MEASURES[arguments.what](arguments.home, arguments.swapped)
    except Exception as error:
        import traceback

        traceback.print_exc()
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
        sys.exit(1)
    print(json.dumps(out), flush=True)


if __name__ == "__main__":
    main()
