"""The journal of one conversation: what has happened, line by line, and when it is safe.

``append`` is cheap and synchronous; ``await durable(seq)`` is the barrier. One daemon thread per
journal does all writing: flushes are grouped (one in flight, the next takes everything), and jobs
(whole documents to be written at a point of the event order) run between them. Waiters may stand
on any running loop.

A flush that fails fails every waiter; nothing is lost: the bytes stay in memory, and each later
``durable`` (or job) tries again from the last byte known to be safe, until one succeeds. A file whose
path leads elsewhere, or nowhere, is such a failure too: what is written to it is on no disk that
anybody will find. Then the last job is the last all the same, and nothing is tried afterwards; so it
is when another process has taken the conversation over.

Knows no document and no state; the form of a line is ``store.lines``.

Source: decision 27.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ..disk import Files, reason, replace_file, write_all
from ..errors import StorageError
from ..events import Stamped
from .lines import dump_event
from .locks import Refusal

Durability = Literal["sync", "relaxed"]

COALESCE = 0.1
"""Seconds for which changes of a small document are gathered before it is written."""
PAUSE = 0.0002
"""Seconds between two pieces of a job, in which another thread gets the interpreter."""
_KICK_BYTES = 1 << 18
"""Buffered bytes that start a flush although nobody waits."""

Turn = Callable[[], AbstractContextManager[Refusal | None]]

_log = logging.getLogger("astrion_nb.store")


@dataclass(slots=True)
class Job:
    """Work for the writing thread, at its place in the order of events.

    Parameters
    ----------
    steps : iterator
        Advanced to its end; between two steps the journal is flushed for whoever waits.
    truncate : bool
        Afterwards the events before the job leave the journal.
    last : bool
        The thread ends after it.
    done : callable, optional
        Called on the thread when all has gone well, before anybody who waits is told.
    """

    steps: Iterator[None]
    truncate: bool = False
    last: bool = False
    done: Callable[[], None] | None = None
    result: concurrent.futures.Future[None] = field(default_factory=concurrent.futures.Future)


class Journal:
    """The append-only file of a conversation and the thread that writes it.

    Parameters
    ----------
    path : Path
        ``journal.jsonl``; created at the first flush.
    files : Files
    durability : {"sync", "relaxed"}
        ``relaxed``: ``durable`` waits for nothing, and the file is synced only before documents.
    keep : int
        Bytes of the file that hold whole lines; what follows is cut off before the first write.
    seq : int
        Number of the last event already stored.
    turn : callable, optional
        ``with turn() as refusal`` stands around all that is written; a refusal says why nothing may be.
    """

    def __init__(
        self,
        path: Path,
        files: Files,
        *,
        durability: Durability = "sync",
        keep: int = 0,
        seq: int = 0,
        turn: Turn = nullcontext,
    ) -> None:
        self.path = path
        self.durability = durability
        self._files = files
        # Shared with the thread; each of these operations is atomic in itself.
        self._inbox: deque[tuple[int, bytes] | Job] = deque()
        self._waiters: deque[tuple[int, asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()
        self._due: dict[Path, tuple[int, Callable[[], Iterable[bytes]]]] = {}
        self._armed = False
        self._kicks: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._kicked = False
        self._thread: threading.Thread | None = None
        self._ended = False
        self._last: Job | None = None
        # Written by the side of the caller only.
        self._appended = self._asked = seq
        self._bytes_in = keep
        self._bytes_kicked = keep
        # Written by the thread only.
        self._handle: int | None = None
        self._clean = False
        self._good = keep
        self._unsafe: list[bytes] = []
        self._unsafe_seq = seq
        self._unsynced = False
        self._durable = seq
        self._bytes_cut = 0
        self._error: str | None = None
        self._turn = turn
        self._refusal: Refusal | None = None
        self._abandoned: Refusal | None = None
        self._gone = False
        self._backlog: deque[Job] = deque()
        self._written: dict[Path, int] = {}

    @property
    def size(self) -> int:
        """Bytes in the file and on their way into it."""
        return self._bytes_in - self._bytes_cut

    @property
    def safe(self) -> int:
        """Number of the last event that is on the disk (``relaxed``: handed to the system)."""
        return self._durable

    @property
    def error(self) -> str | None:
        """Why the last flush failed; ``None`` once one has succeeded."""
        return self._error

    def append(self, stamped: Stamped) -> None:
        """Add an event to the buffer. Fleeting events are the caller's to leave out.

        Raises
        ------
        StorageError
            The journal is closed.
        TypeError
            The event holds a value without a JSON form; nothing was added.
        """
        if self._ended:
            raise self._closed()
        line = dump_event(stamped)
        self._inbox.append((stamped.seq, line))
        self._appended = stamped.seq
        self._bytes_in += len(line)
        if self._bytes_in - self._bytes_kicked > _KICK_BYTES:
            self._bytes_kicked = self._bytes_in
            self._kick()

    async def durable(self, seq: int) -> None:
        """Wait until the event ``seq`` and all before it are on the disk.

        Parameters
        ----------
        seq : int
            Numbers beyond the last appended event count as that one's.

        Raises
        ------
        StorageError
            The flush failed. Nothing is lost; waiting again tries again.
        """
        seq = min(seq, self._appended)
        if seq <= self._durable:
            return
        if self._ended:
            if self._last is not None:  # what was appended before it is written with it
                await asyncio.wrap_future(self._last.result)
            if seq > self._durable:
                raise self._closed()
            return
        if self.durability == "relaxed" and self._error is None:
            self._kick()
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiters.append((seq, loop, future))
        self._kick()
        await future

    def document(self, path: Path, seq: int, make: Callable[[], Iterable[bytes]]) -> None:
        """Have a small document replaced soon; of several versions only the last is written.

        Parameters
        ----------
        path : Path
        seq : int
            Number of the last event when the document was made up.
        make : callable
            Called on the thread; returns the bytes. Must not look at anything that changes.
        """
        self._due[path] = (seq, make)
        if not self._armed:
            self._armed = True
            self._kick()

    def submit(
        self,
        steps: Iterator[None],
        *,
        truncate: bool = False,
        last: bool = False,
        done: Callable[[], None] | None = None,
    ) -> concurrent.futures.Future[None]:
        """Hand the thread a job; see :class:`Job`.

        Returns
        -------
        concurrent.futures.Future
            Fails with :class:`StorageError` when a write failed.
        """
        if self._ended:
            raise self._closed()
        job = Job(steps, truncate, last, done)
        job.result.set_running_or_notify_cancel()  # who stops waiting does not stop the job
        if last:
            self._last = job
        self._ended = last
        self._inbox.append(job)
        self._kick()
        return job.result

    def abandon(self) -> None:
        """Write nothing any more: the next job, submitted as the last one, ends the thread."""
        self._abandoned = Refusal(f"{self.path} was given up, and what was not saved by then is lost", for_good=True)

    def _closed(self) -> StorageError:
        return StorageError(f"{self.path} is closed; open the conversation again to go on")

    # ------------------------------------------------------------------ the thread

    def _kick(self) -> None:
        if not self._kicked:
            self._kicked = True
            self._kicks.put(None)
            if self._thread is None:
                # A daemon of its own, not an executor's thread: it never holds up the end of the process.
                self._thread = threading.Thread(target=self._work, name=f"journal {self.path.parent.name}", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        deadline: float | None = None
        running = True
        while running:
            try:
                self._kicks.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                pass
            self._kicked = False
            try:
                with self._turn() as self._refusal:
                    running = self._round()
                    if not running or not self._due:
                        deadline = None  # after the last job the folder may be another's
                    elif deadline is None:
                        deadline = time.monotonic() + COALESCE
                    elif time.monotonic() >= deadline:
                        deadline = None if self._write_due() else time.monotonic() + 10 * COALESCE
            except BaseException as error:  # a fault of our own: nobody may wait for ever
                _log.exception("the journal %s met an unexpected error", self.path)
                self._error = f"{self.path}: unexpected {type(error).__name__}: {error}"
                self._release()
        if self._handle is not None:
            self._files.close(self._handle)
            self._handle = None

    def _round(self) -> bool:
        """Flush what there is and do the jobs; return whether there may be more to come."""
        self._absorb()
        self._release()
        while self._backlog:
            job = self._backlog.popleft()
            if self._perform(job):
                return False
            self._absorb()
            self._release()
        return True

    def _absorb(self) -> None:
        """Flush the inbox up to the next job; once a job waits, only what stands before it."""
        if not self._backlog:
            while self._inbox:
                item = self._inbox.popleft()
                if isinstance(item, Job):
                    self._backlog.append(item)
                    break
                self._unsafe_seq = item[0]
                self._unsafe.append(item[1])
        self._flush(sync=self.durability == "sync")

    def _flush(self, *, sync: bool) -> bool:
        """Write what is not yet safe; return whether all of it is safe now."""
        if refusal := self._abandoned or self._refusal:
            self._error, self._gone = refusal
            return False
        try:
            if self._handle is not None and not self._files.leads_to(self.path, self._handle):
                return self._lost()
            self._gone = False
            if not self._unsafe and not (sync and self._unsynced):
                self._error = None
                return True
            handle = self._open()
            data = b"".join(self._unsafe)
            self._clean = False
            write_all(self._files, handle, data)
            if sync:
                self._files.fsync(handle)
            self._clean = True
        except (FileNotFoundError, NotADirectoryError):
            return self._lost()
        except OSError as error:
            # What was not synced may be half there or not at all: cut it off before the next try.
            self._error = f"{self.path} cannot be written ({reason(error)}); nothing is lost, free the disk and go on"
            return False
        self._unsynced = not sync
        self._good += len(data)
        self._unsafe.clear()
        self._durable = self._unsafe_seq
        self._error = None
        return True

    def _lost(self) -> bool:
        self._gone = True
        self._error = (
            f"{self.path} was removed or replaced while it was in use, and what has happened since is not saved; "
            "put it back, or start a new team"
        )
        return False

    def _open(self) -> int:
        """Return a handle on a file that ends at the last safe byte."""
        files = self._files
        if self._handle is not None and self._clean:
            return self._handle
        if self._handle is not None:
            # After a failed sync the system may call lost pages clean: a fresh handle, the bytes again.
            handle, self._handle = self._handle, None
            files.close(handle)
        self._handle = files.open_append(self.path)
        files.truncate(self._handle, self._good)
        files.fsync_dir(self.path.parent)
        return self._handle

    def _release(self) -> None:
        """Wake the waiters whose events are safe, or all of them with the error."""
        error = self._error
        by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
        for _ in range(len(self._waiters)):
            waiter = self._waiters.popleft()
            if error is None and waiter[0] > self._durable:
                self._waiters.append(waiter)
                continue
            by_loop.setdefault(waiter[1], []).append(waiter[2])
        for loop, futures in by_loop.items():
            try:
                loop.call_soon_threadsafe(_wake, futures, error)
            except RuntimeError:
                pass  # that loop is closed: nobody waits there any more

    def write_document(self, path: Path, seq: int, chunks: Iterable[bytes]) -> int | None:
        """Replace a document, unless a later version of it is in place; only for steps of a job.

        Returns
        -------
        int or None
            Bytes written; ``None`` when there was nothing to do.

        Raises
        ------
        StorageError
            The write failed; the old document stands.
        """
        if seq < self._written.get(path, 0):
            return None
        size = replace_file(self._files, path, chunks)
        self._written[path] = seq
        return size

    def _perform(self, job: Job) -> bool:
        """Do a job; return whether the thread is to end."""
        try:
            if job.last:
                self._write_due()
            if not self._flush(sync=True):
                raise StorageError(self._error or f"{self.path} cannot be written")
            boundary = self._good
            for _ in job.steps:
                if self._waiters and not self._backlog:
                    self._absorb()
                    self._release()
                time.sleep(PAUSE)
            if job.truncate:
                self._cut(boundary)
            for path in tuple(self._written):
                if path not in self._due:  # what is due for it from now on is later than what is in place
                    del self._written[path]
            if job.done is not None:
                job.done()
        except BaseException as error:
            over = job.last and self._gone
            if over and job.done is not None:
                job.done()
            if job.last:
                self._ended = over  # else nothing is lost: closing can be tried again
            job.result.set_exception(error)
            return over
        job.result.set_result(None)
        return job.last

    def _cut(self, boundary: int) -> None:
        """Take the first ``boundary`` bytes out of the file; documents hold what they say."""
        if not boundary:
            return
        files = self._files
        try:
            if self._good == boundary:
                handle = self._open()
                self._clean = False
                files.truncate(handle, 0)
                self._cut_off(boundary)
                files.fsync(handle)
                self._clean = True
            else:
                tail = files.read(self.path)[boundary : self._good]
                if self._handle is not None:
                    handle, self._handle = self._handle, None
                    files.close(handle)
                replace_file(files, self.path, (tail,))
                self._cut_off(boundary)
                files.fsync_dir(self.path.parent)
        except OSError as error:
            raise StorageError(f"{self.path} cannot be cut ({reason(error)}); nothing is lost") from error

    def _cut_off(self, size: int) -> None:
        self._bytes_cut += size
        self._good -= size

    def _write_due(self) -> bool:
        """Replace the small documents that have changed; never ahead of the journal."""
        self._armed = False  # before looking: what comes later wakes the thread again
        while self._due:
            path, (seq, make) = self._due.popitem()
            if seq <= self._written.get(path, 0):
                continue  # settled meanwhile
            self._absorb()
            self._release()
            written = False
            if not self._backlog and self._flush(sync=True):
                try:
                    self.write_document(path, seq, make())
                    written = True
                except StorageError as error:
                    _log.warning("%s", error)
            if not written:
                # A newer version may have come meanwhile; an older one than that in place is passed over.
                self._due.setdefault(path, (seq, make))
                return bool(self._backlog)
        return True


def _wake(futures: list[asyncio.Future[None]], error: str | None) -> None:
    for future in futures:
        if not future.done():
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(StorageError(error))
