"""The barrier: what it promises, what a failed flush does, and what it costs in flushes."""

from __future__ import annotations

import asyncio
import errno
import json
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astrion_nb.disk import RealFiles
from astrion_nb.errors import ConversationBroken, StorageError
from astrion_nb.events import MessageAppended, MessageQueued, PendingMessage, Stamped, Warned, from_json
from astrion_nb.messages import Message, ToolCall
from astrion_nb.store.journal import Journal
from astrion_nb.store.lines import dump_event, read_journal


def event(seq: int, text: str = "text") -> Stamped:
    return Stamped(seq, 1752251700.0 + seq, Warned(text))


def bounded(coroutine: Callable[[], object]) -> None:
    asyncio.run(asyncio.wait_for(coroutine(), 5))  # type: ignore[arg-type]


class Slow(RealFiles):
    """The real files, counting flushes; each one waits until it is let through."""

    __slots__ = ("flushes", "gate")

    def __init__(self) -> None:
        self.flushes = 0
        self.gate = threading.Event()
        self.gate.set()

    def fsync(self, handle: int) -> None:
        assert self.gate.wait(5)
        self.flushes += 1
        super().fsync(handle)


class Failing(RealFiles):
    """The real files behind a disk that fails when told to, after taking half of a write."""

    __slots__ = ("broken", "failures")

    def __init__(self, broken: str) -> None:
        self.broken = broken
        self.failures = 0

    def write(self, handle: int, data: bytes) -> int:
        if self.broken == "write":
            self.failures += 1
            super().write(handle, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(handle, data)

    def fsync(self, handle: int) -> None:
        if self.broken == "fsync":
            self.failures += 1
            raise OSError(errno.EIO, "Input/output error")
        super().fsync(handle)


def end(journal: Journal) -> None:
    journal.submit(iter(()), last=True).result(5)


def test_what_is_durable_is_in_the_file(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl", RealFiles())

    async def run() -> None:
        for seq in range(1, 4):
            journal.append(event(seq))
        await journal.durable(2)
        found, size = read_journal(journal.path, RealFiles())
        assert [stamped.seq for stamped in found][:2] == [1, 2]
        assert size == journal.path.stat().st_size
        await journal.durable(99)  # beyond the last: the last
        assert journal.safe == 3

    bounded(run)
    end(journal)


def test_many_waiters_share_flushes(tmp_path: Path) -> None:
    files = Slow()
    journal = Journal(tmp_path / "journal.jsonl", files)

    async def one(seq: int) -> None:
        journal.append(event(seq))
        await journal.durable(seq)

    async def run() -> None:
        files.gate.clear()
        first = asyncio.create_task(one(1))
        await asyncio.sleep(0)
        rest = [asyncio.create_task(one(seq)) for seq in range(2, 101)]
        await asyncio.sleep(0)
        files.gate.set()
        await asyncio.gather(first, *rest)

    bounded(run)
    assert files.flushes <= 2
    assert len(read_journal(journal.path, files)[0]) == 100
    end(journal)


def test_waiting_does_not_hold_up_the_loop(tmp_path: Path) -> None:
    files = Slow()
    journal = Journal(tmp_path / "journal.jsonl", files)

    async def run() -> None:
        files.gate.clear()
        journal.append(event(1))
        waiting = asyncio.create_task(journal.durable(1))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not waiting.done()
        files.gate.set()
        await waiting

    bounded(run)
    end(journal)


def test_waiters_may_stand_on_any_loop_and_leave_it(tmp_path: Path) -> None:
    files = Slow()
    journal = Journal(tmp_path / "journal.jsonl", files)
    files.gate.clear()
    journal.append(event(1))

    async def leave() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(journal.durable(1), 0.01)

    asyncio.run(leave())  # its loop is closed while its flush is under way
    results: list[str] = []

    def elsewhere() -> None:
        asyncio.run(asyncio.wait_for(journal.durable(1), 5))
        results.append("durable")

    threads = [threading.Thread(target=elsewhere) for _ in range(3)]
    for thread in threads:
        thread.start()
    files.gate.set()
    for thread in threads:
        thread.join(5)
    assert results == ["durable"] * 3
    end(journal)


@pytest.mark.faults
@pytest.mark.parametrize("broken", ["write", "fsync"])
def test_a_failed_flush_tells_every_waiter_and_loses_nothing(tmp_path: Path, broken: str) -> None:
    files = Failing(broken)
    journal = Journal(tmp_path / "journal.jsonl", files)

    async def run() -> None:
        for seq in range(1, 6):
            journal.append(event(seq))
        outcomes = await asyncio.gather(*(journal.durable(seq) for seq in range(1, 6)), return_exceptions=True)
        assert all(isinstance(outcome, StorageError) for outcome in outcomes)
        assert "journal.jsonl cannot be written" in str(outcomes[0])
        journal.append(event(6))
        with pytest.raises(StorageError):
            await journal.durable(1)  # still: until a flush succeeds
        tries = files.failures
        assert tries >= 2
        files.broken = ""
        await journal.durable(6)

    bounded(run)
    assert [stamped.seq for stamped in read_journal(journal.path, files)[0]] == [1, 2, 3, 4, 5, 6]
    end(journal)


@pytest.mark.faults
def test_a_failed_flush_fails_closing_which_can_be_tried_again(tmp_path: Path) -> None:
    files = Failing("fsync")
    journal = Journal(tmp_path / "journal.jsonl", files)
    journal.append(event(1))
    with pytest.raises(StorageError):
        journal.submit(iter(()), last=True).result(5)
    journal.append(event(2))
    files.broken = ""
    end(journal)
    assert [stamped.seq for stamped in read_journal(journal.path, files)[0]] == [1, 2]
    with pytest.raises(StorageError, match="is closed"):
        journal.append(event(3))


def test_relaxed_waits_for_nothing_but_tells_of_a_failure(tmp_path: Path) -> None:
    files = Slow()
    journal = Journal(tmp_path / "journal.jsonl", files, durability="relaxed")

    async def run() -> None:
        files.gate.clear()
        journal.append(event(1))
        await journal.durable(1)
        files.gate.set()

    bounded(run)
    end(journal)
    assert len(read_journal(journal.path, files)[0]) == 1

    failing = Failing("write")
    journal = Journal(tmp_path / "other.jsonl", failing, durability="relaxed")

    async def fail() -> None:
        journal.append(event(1))
        while True:
            await journal.durable(1)
            await asyncio.sleep(0)

    with pytest.raises(StorageError):
        bounded(fail)
    failing.broken = ""
    end(journal)


def test_events_that_come_during_a_job_stay_when_it_cuts_the_journal(tmp_path: Path) -> None:
    files = RealFiles()
    journal = Journal(tmp_path / "journal.jsonl", files)
    inside = threading.Event()
    go_on = threading.Event()

    def steps() -> Iterator[None]:
        inside.set()
        assert go_on.wait(5)
        yield

    async def run() -> None:
        journal.append(event(1))
        job = journal.submit(steps(), truncate=True)
        assert inside.wait(5)
        journal.append(event(2))
        waiting = asyncio.create_task(journal.durable(2))
        await asyncio.sleep(0)
        go_on.set()
        await waiting
        await asyncio.wrap_future(job)
        assert [stamped.seq for stamped in read_journal(journal.path, files)[0]] == [2]
        assert journal.size == journal.path.stat().st_size
        journal.append(event(3))
        await journal.durable(3)

    bounded(run)
    assert [stamped.seq for stamped in read_journal(journal.path, files)[0]] == [2, 3]
    end(journal)


class Held(RealFiles):
    """Holds every write until it is let go."""

    def __init__(self) -> None:
        self.inside, self.go_on = threading.Event(), threading.Event()

    def write(self, handle: int, data: bytes) -> int:
        self.inside.set()
        assert self.go_on.wait(5)
        return super().write(handle, data)


def test_who_waits_for_what_came_before_the_end_gets_it_though_the_end_was_asked_for_first(tmp_path: Path) -> None:
    files = Held()
    journal = Journal(tmp_path / "journal.jsonl", files)

    async def run() -> None:
        journal.append(event(1))
        last = journal.submit(iter(()), last=True)
        assert await asyncio.to_thread(files.inside.wait, 5)
        waiting = asyncio.create_task(journal.durable(1))
        await asyncio.sleep(0)
        files.go_on.set()
        await waiting
        await asyncio.wrap_future(last)
        await journal.durable(1)
        with pytest.raises(StorageError, match="is closed"):
            journal.append(event(2))

    bounded(run)
    assert [stamped.seq for stamped in read_journal(journal.path, files)[0]] == [1]


def test_nothing_is_written_after_the_last_job_though_a_document_stayed_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is given up with the last job: the folder may be another process's."""
    monkeypatch.setattr("astrion_nb.store.journal.COALESCE", 0.0)  # what is due is tried in every round
    refused = threading.Event()

    class Refusing(RealFiles):
        __slots__ = ("broken",)

        def replace(self, source: Path, target: Path) -> None:
            if self.broken:
                refused.set()
                raise OSError(errno.ENOSPC, "No space left on device")
            super().replace(source, target)

    files = Refusing()
    files.broken = True

    def given_up() -> None:
        files.broken = False

    journal = Journal(tmp_path / "journal.jsonl", files)
    journal.append(event(1))
    journal.document(tmp_path / "metadata.json", 1, lambda: [b"{}"])
    assert refused.wait(5)
    journal.submit(iter(()), last=True, done=given_up).result(5)
    assert journal._thread is not None
    journal._thread.join(5)
    assert not journal._thread.is_alive()
    assert [path.name for path in tmp_path.iterdir()] == ["journal.jsonl"]


def test_the_writing_thread_never_holds_up_the_end_of_the_process(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from astrion_nb.store.journal import Journal\n"
        "from astrion_nb.disk import RealFiles\n"
        "from astrion_nb.events import Stamped, Warned\n"
        f"journal = Journal(Path({str(tmp_path / 'journal.jsonl')!r}), RealFiles())\n"
        "journal.append(Stamped(1, 1.0, Warned('x')))\n"
        "asyncio.run(journal.durable(1))\n"
    )
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert time.monotonic() - started < 10


@settings(deadline=None)
@given(st.lists(st.text(), min_size=1, max_size=6), st.data())
def test_a_file_cut_anywhere_gives_the_whole_lines_before_the_cut(texts: list[str], data: st.DataObject) -> None:
    import tempfile

    lines = [dump_event(event(seq, text)) for seq, text in enumerate(texts, 1)]
    whole = b"".join(lines)
    cut = data.draw(st.integers(0, len(whole)))
    junk = data.draw(st.sampled_from([b"", b"\0" * 9, b"\0\0\n\0\0\n"]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        path.write_bytes(whole[:cut] + junk)
        found, size = read_journal(path, RealFiles())
        kept = len(found)
        assert found == [event(seq, text) for seq, text in enumerate(texts[:kept], 1)]
        assert size == len(b"".join(lines[:kept]))
        # Only the line in which the cut lies is lost, and only when the cut is inside.
        assert size <= cut < size + len(lines[kept]) if kept < len(lines) else size <= cut


def test_a_torn_end_is_cut_off_before_anything_is_written_after_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    good = dump_event(event(1))
    path.write_bytes(good + b'{"seq":2,"v":1')
    _, size = read_journal(path, RealFiles())
    journal = Journal(path, RealFiles(), keep=size, seq=1)
    journal.append(event(2))
    bounded(lambda: journal.durable(2))
    end(journal)
    assert path.read_bytes() == good + dump_event(event(2))


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"nonsense\n", "line 2"),
        (b"[]\n", "line 2"),
        (b'{"seq":2,"v":1,"t":"yesterday","event":{"type":"warned","v":1,"text":"x"}}\n', "line 2.*yesterday"),
        (b'{"seq":2,"v":1,"t":"2026-07-11T21:00:00Z","event":{"type":"flew","v":1}}\n', "line 2.*flew"),
        (b'{"seq":1,"v":1,"t":"2026-07-11T21:00:00Z","event":{"type":"warned","v":1,"text":"x"}}\n', "line 2"),
        (b'{"seq":2,"v":9,"t":"2026-07-11T21:00:00Z","event":{"type":"warned"}}\n', "line 2.*later release"),
    ],
)
def test_a_broken_line_in_the_middle_is_named(tmp_path: Path, line: bytes, fault: str) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(dump_event(event(1)) + line + dump_event(event(3)))
    with pytest.raises(ConversationBroken, match=rf"journal\.jsonl, {fault}"):
        read_journal(path, RealFiles())


def test_numbers_that_json_does_not_know_are_kept_wherever_an_event_holds_values_of_a_free_form() -> None:
    odd = {"a": [math.inf, -math.inf, 1.5e300], "b": None}
    call = ToolCall("c", "f", "{}", extra={"odd": odd, "function": {"odd": odd}})
    item = PendingMessage("id", "task", "L", None, "x", 1.0, "user", extra={"odd": odd})
    for happened in (
        MessageAppended(0, Message("assistant", None, "msg_assistant_001", (call,))),
        MessageAppended(0, Message("user", "x", "msg_user_001", metadata={"odd": odd})),
        MessageAppended(0, Message("user", "x", "msg_user_001", extra={"odd": odd})),
        MessageQueued(0, item),
    ):
        line = dump_event(Stamped(1, 2.0, happened))
        assert line.endswith(b"}\n")
        assert line.count(b"\n") == 1
        assert from_json(json.loads(line)["event"]) == happened
