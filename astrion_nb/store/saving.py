"""One open conversation: its state, and how what happens to it reaches the disk.

``record`` is called by the bus for every event, after the state has changed; ``await durable(seq)``
is the barrier; ``await settle()`` writes all documents that have changed and empties the journal.
When to settle is :func:`settle_due`, a plain function of sizes; the timer (two seconds of rest)
belongs to the caller. Everything slow happens on the journal's thread. Knows no agent at work.

Source: data model §8, decisions 27–31.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..disk import NO_ROOM, Files
from ..errors import ConversationBroken, StorageError
from ..events import FLEETING, AgentCreated, Event, QuestionAsked, RunEnded, RunStarted, Stamped, StatusChanged
from ..ids import LEADER_ID
from ..state import TeamState
from . import documents as docs
from .journal import PAUSE, Durability, Journal
from .json_form import dump
from .locks import Ownership

_log = logging.getLogger("astrion_nb.store")

_SHOWN = frozenset({AgentCreated, QuestionAsked, RunEnded, RunStarted, StatusChanged})
_SMALL = 1 << 16
_LARGE = 1 << 23


def settle_due(journal_bytes: int, document_bytes: int, *, resting: bool) -> bool:
    """Say whether the documents are to be written before two seconds of rest have passed.

    Each settling writes the documents anew, so they must have grown by a share of themselves in
    between: then all writing together stays a small multiple of their final size, however many
    turns there are. While a turn runs, only a long journal is a reason.

    Parameters
    ----------
    journal_bytes : int
        Size of the journal: about what the documents will grow by.
    document_bytes : int
        Size of the documents as they are on disk.
    resting : bool
        Whether the team is between two turns.
    """
    if resting:
        return journal_bytes >= max(_SMALL, document_bytes // 2)
    return journal_bytes >= max(_LARGE, 2 * document_bytes)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was found in a conversation's folder.

    Parameters
    ----------
    state : TeamState
    journal_size : int
        Bytes of whole lines in the journal.
    written : dict
        Per scope, up to which event all of its documents speak; scopes that lack one are left out.
    sizes : dict
        Bytes of each document, by its name as seen from the folder.
    """

    state: TeamState
    journal_size: int
    written: dict[int | None, int]
    sizes: dict[str, int]


class Conversation:
    """A conversation that this process has open.

    Made by :class:`~astrion_nb.store.conversations.ConversationStore`.

    Parameters
    ----------
    folder : Path
    files : Files
    loaded : Loaded
        Its state, and how far its documents speak.
    durability : {"sync", "relaxed"}
    read_only : bool
        Nothing is written and no lock is held.
    settled : callable, optional
        Called on the journal's thread after all documents are in place, with what the index holds
        of the conversation and the highest agent number.
    ownership : Ownership, optional
        Asked before anything is written, and given up when the conversation has been closed.
    """

    def __init__(
        self,
        folder: Path,
        files: Files,
        loaded: Loaded,
        *,
        durability: Durability = "sync",
        read_only: bool = False,
        settled: Callable[[dict[str, Any], int], None] | None = None,
        ownership: Ownership | None = None,
    ) -> None:
        self.id = folder.name
        self.folder = folder
        self.state: TeamState = loaded.state
        self.read_only = read_only
        self.closed = False
        self._files = files
        self._settled = settled
        self._ownership = ownership
        self._written = dict(loaded.written)
        self._sizes = dict(loaded.sizes)
        self._size = sum(self._sizes.values())
        self._behind = False  # the index
        self._folders: set[str] = {""}  # those that exist, as seen from the conversation's
        self._settling: concurrent.futures.Future[None] | None = None
        self._journal = Journal(
            folder / docs.JOURNAL,
            files,
            durability=durability,
            keep=loaded.journal_size,
            seq=loaded.state.seq,
            turn=nullcontext if ownership is None else ownership.turn,
        )

    @property
    def journal_size(self) -> int:
        """Bytes in the journal, those on their way included."""
        return self._journal.size

    @property
    def document_size(self) -> int:
        """Bytes of all documents as they are on disk."""
        return self._size

    def record(self, stamped: Stamped) -> None:
        """Take note of an event that the state already shows; the bus calls this for each.

        Cheap: nothing is on disk yet. Fleeting events are passed over.

        Raises
        ------
        StorageError
            The conversation is closed or open for reading only.
        """
        event = stamped.event
        kind = type(event)
        if kind in FLEETING:
            return
        if self.closed or self.read_only:
            self._check_writable()
        self._journal.append(stamped)
        if kind in _SHOWN:
            self._show(event)

    async def durable(self, seq: int) -> None:
        """Wait until the event ``seq`` and all before it are on disk.

        Raises
        ------
        StorageError
            A flush failed. Nothing is lost: waiting again tries again.
        """
        if not self.read_only:
            await self._journal.durable(seq)

    def settle_due(self, *, resting: bool) -> bool:
        """Say whether to settle now; see :func:`settle_due`. Never while one is under way."""
        if self.read_only or self.closed or (self._settling is not None and not self._settling.done()):
            return False
        return settle_due(self.journal_size, self.document_size, resting=resting)

    def settle_soon(self, *, resting: bool) -> bool:
        """Begin to settle, without waiting, if it is due; return whether it was.

        A failure shows at the next barrier or at ``settle``; the documents stay as they were.
        """
        if not self.settle_due(resting=resting):
            return False
        self._settle()
        return True

    async def settle(self) -> None:
        """Write every document that has changed, then empty the journal.

        Raises
        ------
        StorageError
            A write failed; the journal holds what the documents lack.
        """
        self._check_writable()
        await self._settled_before()
        await asyncio.wrap_future(self._settle())

    async def close(self) -> None:
        """Settle, end the thread, give up the lock. Closing twice is harmless.

        Raises
        ------
        StorageError
            A write failed: the conversation stays open, and nothing is lost. Where its folder is gone, it is closed.
        """
        if self._begin_close():
            await self._settled_before()
            if not self.closed:  # by a call before this one, which was cancelled
                await asyncio.wrap_future(self._settle(last=True))

    async def abandon(self) -> None:
        """Give up the lock and end the thread after :meth:`close` has failed; what is not on disk yet is lost."""
        if self._begin_close():
            self._journal.abandon()
            with contextlib.suppress(StorageError):
                await asyncio.wrap_future(self._settle(last=True))

    def close_now(self, timeout: float | None = 10.0) -> None:
        """Close from where no event loop runs; see :meth:`close`.

        Parameters
        ----------
        timeout : float or None
            Seconds to wait for the disk.
        """
        if self._begin_close():
            try:
                self._settle(last=True).result(timeout)
            except TimeoutError:
                raise StorageError(f"{self.folder} was not saved within {timeout:g} s: close it again") from None

    # ------------------------------------------------------------------ inside

    def _check_writable(self) -> None:
        if self.read_only:
            raise StorageError(f"{self.id} is open for reading only")
        if self.closed:
            raise StorageError(f"{self.id} is closed; open it again to go on")

    async def _settled_before(self) -> None:
        """Wait for a settling that is under way, so that what it writes is not written again."""
        if self._settling is not None and not self._settling.done():
            with contextlib.suppress(StorageError):  # told to whoever began it; the next one tries again
                await asyncio.wrap_future(self._settling)

    def _begin_close(self) -> bool:
        if self.closed:
            return False
        if self.read_only:
            self._end_close()
            return False
        return True

    def _end_close(self) -> None:
        self.closed = True
        if self._ownership is not None:
            ownership, self._ownership = self._ownership, None
            ownership.close()

    def _show(self, event: Event) -> None:
        """Have the small documents replaced that an event changes visibly."""
        if isinstance(event, QuestionAsked):
            number, everywhere = event.asker, False
        elif isinstance(event, StatusChanged):
            number, everywhere = event.agent_id, event.status == "terminated"
        elif isinstance(event, AgentCreated):
            number, everywhere = event.agent_id, True
        else:
            number, everywhere = LEADER_ID, True
        if number > LEADER_ID:
            self._show_agent(number)
        if everywhere or number == LEADER_ID:
            self._show_conversation()

    def _show_conversation(self) -> None:
        data = docs.conversation_metadata(self.state)
        self._journal.document(self.folder / docs.METADATA, self.state.seq, partial(_small, data))

    def _show_agent(self, number: int) -> None:
        data = docs.agent_metadata(self.state, self.state.agents[number])
        folder = docs.agent_folder(number)
        path = self.folder / folder / docs.METADATA
        self._journal.document(path, self.state.seq, partial(self._in_folder, folder, data))

    def _in_folder(self, folder: str, data: dict[str, Any]) -> Iterable[bytes]:
        self._make_folder(folder)
        return _small(data)

    def _make_folder(self, name: str) -> None:
        """Create an agent's folder, its parent included; only on the journal's thread."""
        if name in self._folders:
            return
        self._make_folder(name.rpartition("/")[0])
        folder = self.folder / name
        try:
            self._files.mkdir(folder)
            self._files.fsync_dir(folder.parent)
        except FileExistsError:
            pass
        except OSError as error:
            raise StorageError(f"the folder {folder} cannot be created ({error.strerror})") from error
        self._folders.add(name)

    def _settle(self, *, last: bool = False) -> concurrent.futures.Future[None]:
        state = self.state
        seq = state.seq
        pieces: list[tuple[str, str, Iterable[bytes]]] = []
        scopes: dict[int | None, int] = {}
        renamed = self._written.get(None, -1) < state.own_seq
        for number, agent in state.agents.items():
            if self._written.get(number, -1) >= agent.seq and not (renamed and number == LEADER_ID):
                continue
            scopes[number] = agent.seq
            folder = ""
            if number != LEADER_ID:
                folder = docs.agent_folder(number)
                pieces.append((folder, docs.METADATA, _small(docs.agent_metadata(state, agent))))
            before, after = docs.messages_document(state, agent)
            chunks = docs.render_messages(before, list(agent.messages), after)
            pieces.append((folder, docs.MESSAGES, _paced(chunks)))
        if LEADER_ID not in state.agents:
            entry = None  # nothing has been said yet
        elif renamed or scopes or self._behind:
            scopes[None] = state.own_seq
            if renamed:
                pieces.append(("", docs.RUNTIME, _small(docs.runtime_document(state))))
            metadata = docs.conversation_metadata(state)
            pieces.append(("", docs.METADATA, _small(metadata)))
            entry = docs.index_entry(metadata)
        else:
            entry = None
        highest = max(state.agents, default=0)
        steps = self._write(pieces, seq, scopes, entry, highest)
        self._settling = self._journal.submit(steps, truncate=True, last=last, done=self._end_close if last else None)
        return self._settling

    def _write(
        self,
        pieces: list[tuple[str, str, Iterable[bytes]]],
        seq: int,
        scopes: dict[int | None, int],
        entry: dict[str, Any] | None,
        highest: int,
    ) -> Iterator[None]:
        """Write documents on the journal's thread; the journal is flushed between them."""
        for folder, name, chunks in pieces:
            self._make_folder(folder)
            size = self._journal.write_document(self.folder / folder / name, seq, chunks)
            if size is not None:
                place = f"{folder}/{name}" if folder else name
                self._size += size - self._sizes.get(place, 0)
                self._sizes[place] = size
            yield
        try:
            for folder in {folder for folder, _, _ in pieces}:
                self._files.fsync_dir(self.folder / folder)
        except OSError as error:
            raise StorageError(f"{self.folder} cannot be synced ({error.strerror})") from error
        if entry is not None and self._settled is not None:
            try:
                self._settled(entry, highest)
                self._behind = False
            except (StorageError, ConversationBroken) as error:
                if isinstance(error.__cause__, OSError) and error.__cause__.errno in NO_ROOM:
                    raise  # there will be some again, and then nothing is behind
                # A cache and a small memory: neither is a reason not to close, and the next settling tries again.
                self._behind = True
                _log.warning("%s is saved, and the list of conversations is behind: %s", self.id, error)
        self._written.update(scopes)  # last: what failed before is tried again
        yield


def _small(data: dict[str, Any]) -> Iterator[bytes]:
    """Render a small document at the time it is written, on the thread that writes it."""
    yield dump(data)


def _paced(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Give the interpreter to other threads between two pieces of a long document."""
    for chunk in chunks:
        yield chunk
        time.sleep(PAUSE)
