"""All conversations of a home: create, open, list, archive, rename, delete.

A conversation is open in at most one process, which holds a lock that the system drops when the
process ends in whatever way. ``index.json`` is a cache and ``state.json`` a small memory; both are
written under a lock between processes, and neither is ever needed to open a conversation. Knows no
team and no agent.

Source: data model §1, §3, §4, §8.3; decisions 25, 30, 31.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ..disk import NO_ROOM, Files, RealFiles, is_link, is_temporary, make_folder, reason
from ..errors import ConversationError, ConversationLocked, ConversationNotFound, StorageError
from ..events import ConversationFiled, Stamped
from ..home import Home
from ..state import TeamState, apply
from . import documents as docs
from . import removal
from .index import Index
from .journal import Durability
from .json_form import read_document
from .lines import read_journal
from .locks import Ownership, acquire, owner, take_over
from .saving import Conversation, Loaded, settle_due
from .version import SCHEMA_VERSION, check_version

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_NOT_TO_BE_WRITTEN = frozenset({errno.EROFS, errno.EACCES, errno.EPERM, *NO_ROOM})

_log = logging.getLogger("astrion_nb.store")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the list of conversations.

    Parameters
    ----------
    id, title : str
    created_at, updated_at : str
        As the data model prints them.
    agent_count : int
    status : str
        ``active``, ``archived``, or ``broken``.
    error : str
        For a broken one: file, place and fault.
    """

    id: str
    title: str
    created_at: str
    updated_at: str
    agent_count: int
    status: str
    error: str = ""


Names = list[str]
Entries = list[Entry]


class ConversationStore:
    """The conversations of one home.

    Parameters
    ----------
    home : Home
    clock : callable, optional
        Returns seconds since the epoch.
    files : Files, optional
        The door to the disk.
    durability : {"sync", "relaxed"}
        ``sync``: a barrier waits for the disk. ``relaxed``: it does not; a crash may cost the last
        moments.
    """

    def __init__(
        self,
        home: Home,
        *,
        clock: Callable[[], float] = time.time,
        files: Files | None = None,
        durability: Durability = "sync",
    ) -> None:
        self.home = home
        self.durability = durability
        self._clock = clock
        self._files: Files = files if files is not None else RealFiles()
        self._index = Index(home, self._files, clock)

    # ------------------------------------------------------------------ one conversation

    def create(self) -> Conversation:
        """Begin a conversation: its folder, its lock, an empty state that has its id.

        The caller publishes ``ConversationStarted`` with this id as the first event.

        Raises
        ------
        StorageError
            A folder or file cannot be written.
        ConversationBroken
            ``state.json`` was written by a later release.
        """
        make_folder(self.home.conversations)
        now = self._clock()
        stem = datetime.fromtimestamp(int(now)).strftime("conv_%Y%m%d_%H%M%S_")
        for number in range(1, 100_000):
            folder = self.home.conversations / f"{stem}{number:03d}"
            try:
                self._files.mkdir(folder)
                self._files.fsync_dir(folder.parent)
            except FileExistsError:
                continue
            except OSError as error:
                raise StorageError(f"the folder {folder} cannot be created ({reason(error)})") from error
            break
        lock = acquire(folder, self._files)
        try:
            self._remember(folder.name, 0)
        except BaseException:
            lock.close()
            raise
        loaded = Loaded(TeamState(conversation_id=folder.name), 0, {}, {})
        return self._conversation(folder, loaded, lock)

    def open(self, conversation_id: str, *, read_only: bool = False, taking_over: bool = False) -> Conversation:
        """Open a stored conversation.

        Parameters
        ----------
        conversation_id : str
        read_only : bool
            Take no lock and write nothing, also while another process works on it.
        taking_over : bool
            Take it from whoever has it open: what happens there from now on is refused, and not saved.

        Raises
        ------
        ConversationNotFound
            There is none of that id.
        ConversationLocked
            It is open elsewhere; the owner is named.
        ConversationBroken
            A file cannot be read; file and place are named.
        StorageError
            The system refuses.
        """
        folder = self._folder(conversation_id)
        if read_only:
            return self._conversation(folder, _load_beside(folder, self._files), None)
        lock = take_over(folder, self._files) if taking_over else acquire(folder, self._files)
        try:
            self._sweep(folder)
            self._tidy()
            loaded = _load(folder, self._files)
            self._remember(folder.name, max(loaded.state.agents))
        except BaseException:
            lock.close()
            raise
        return self._conversation(folder, loaded, lock)

    def owner(self, conversation_id: str) -> str | None:
        """Say who has a conversation open, in words; ``None`` when nobody does."""
        folder = self._folder(conversation_id)
        try:
            acquire(folder, self._files).close()
        except ConversationLocked:
            return owner(folder, self._files)
        return None

    def delete(self, conversation_id: str) -> None:
        """Remove a conversation for good. Asking first is the caller's part.

        Raises
        ------
        ConversationNotFound, StorageError
        ConversationLocked
            It is open, here or elsewhere.
        """
        folder = self._folder(conversation_id)
        removal.remove(folder, self._files)
        try:
            with self._index.entries() as index:
                index.pop(conversation_id, None)
        except StorageError as error:
            _log.warning("%s is removed, and the list learns of it later: %s", conversation_id, error)
        self._tidy()

    async def rename(self, conversation_id: str, title: str) -> None:
        """Give a conversation that nobody has open another title; of an open one its team publishes the event."""
        await self._file(conversation_id, ConversationFiled(title=title))

    async def archive(self, conversation_id: str, archived: bool = True) -> None:
        """Archive a conversation that nobody has open, or bring it back; see :meth:`rename`."""
        await self._file(conversation_id, ConversationFiled(archived=archived))

    async def _file(self, conversation_id: str, event: ConversationFiled) -> None:
        conversation = self.open(conversation_id)
        try:
            state = conversation.state
            stamped = Stamped(state.seq + 1, round(self._clock(), 6), event)
            apply(state, event, seq=stamped.seq, t=stamped.t)
            conversation.record(stamped)
        finally:
            try:
                await conversation.close()
            except StorageError:
                await conversation.abandon()  # nobody can close it again, and it would be open until the process ends
                raise

    # ------------------------------------------------------------------ all of them

    def list(self) -> Entries:
        """Return every conversation, oldest first; a broken one with its fault.

        Read from ``index.json`` as far as that goes; what is missing there is read from the folders
        and put into it. Where nothing can be written, everything is read from the folders.
        """
        self._tidy()
        names = self._names()
        try:
            with self._index.entries() as index:
                broken = self._complete(index, names)
                for gone in index.keys() - set(names):
                    if isinstance(index[gone], dict):  # else it is no conversation's, but another program's
                        del index[gone]
                found = dict(index)
        except StorageError as error:
            cause = error.__cause__
            if not isinstance(cause, OSError):
                raise
            if cause.errno not in _NOT_TO_BE_WRITTEN:
                _log.warning("%s; the conversations are read one by one", error)
            found = {}
            broken = self._complete(found, names)
        out = []
        for name in names:
            if name in broken:
                out.append(Entry(name, "", "", "", 0, "broken", broken[name]))
            elif name in found:
                out.append(_entry(name, found[name]))
        return out

    def _complete(self, index: dict[str, Any], names: Names) -> dict[str, str]:
        """Read what an index lacks from the folders; returns the faults of those that cannot be read."""
        broken: dict[str, str] = {}
        for name in names:
            if not isinstance(index.get(name), dict):
                index.pop(name, None)
                try:
                    entry = self._look(name)
                except (ConversationError, StorageError) as error:
                    broken[name] = str(error)
                else:
                    if entry is not None:
                        index[name] = entry
        return broken

    def last(self) -> str | None:
        """Return the id of the conversation that was created or opened last, if it still exists."""
        name = self._index.last()
        if name and _NAME.fullmatch(name) and _is_folder(self.home.conversations / name):
            return name
        return None

    # ------------------------------------------------------------------ inside

    def _conversation(self, folder: Path, loaded: Loaded, lock: Ownership | None) -> Conversation:
        def settled(entry: dict[str, Any], highest: int) -> None:
            self._index.put(folder.name, entry)
            self._index.remember(None, highest)

        return Conversation(
            folder,
            self._files,
            loaded,
            durability=self.durability,
            read_only=lock is None,
            settled=settled,
            ownership=lock,
        )

    def _remember(self, conversation_id: str, highest: int) -> None:
        """Note the last conversation; no fault of that small memory keeps one from being opened."""
        try:
            self._index.remember(conversation_id, highest)
        except StorageError as error:
            _log.warning("%s is open, and not remembered as the last one: %s", conversation_id, error)

    def _folder(self, conversation_id: str) -> Path:
        folder = self.home.conversations / conversation_id
        if not _NAME.fullmatch(conversation_id) or not _is_folder(folder):
            raise ConversationNotFound(f"there is no conversation {conversation_id!r} in {self.home.conversations}")
        return folder

    def _names(self) -> Names:
        folder = self.home.conversations
        try:
            names = self._files.listdir(folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageError(f"{folder} cannot be read ({reason(error)})") from error
        return [name for name in names if _NAME.fullmatch(name) and _is_folder(folder / name)]

    def _look(self, name: str) -> dict[str, Any] | None:
        """Read one conversation's line of the index from its folder; ``None`` for an empty one."""
        folder = self.home.conversations / name
        metadata = read_document(self._files, folder / docs.METADATA)
        if metadata is None:
            # Only a journal so far: a crash came early.
            if not read_journal(folder / docs.JOURNAL, self._files)[0]:
                return None
            metadata = docs.conversation_metadata(_load_beside(folder, self._files).state)
        check_version(metadata.get("schema_version", SCHEMA_VERSION), folder / docs.METADATA)
        return docs.index_entry(metadata)

    def _sweep(self, folder: Path) -> None:
        """Remove unfinished files that a crash has left; not what a link leads to, which others may write too."""
        agents = folder / docs.AGENTS
        numbered = [] if is_link(agents) else self._listed(agents)
        for place in (folder, *(agents / name for name in numbered)):
            if is_link(place):
                continue
            for name in self._listed(place):
                if is_temporary(name):
                    with contextlib.suppress(OSError):
                        self._files.unlink(place / name)

    def _tidy(self) -> None:
        """Finish what crashes have left beside the conversations: removals, and copies that never got their name."""
        self._index.sweep()
        removal.sweep(self.home.conversations, self._listed(self.home.conversations), self._files)

    def _listed(self, folder: Path) -> Names:
        try:
            return self._files.listdir(folder)
        except OSError:
            return []


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError as error:  # what it lies in may not be looked into
        raise StorageError(f"{path} cannot be read ({reason(error)})") from error


def _load(folder: Path, files: Files) -> Loaded:
    """Read a conversation; what reads one is imported for the first of them, and a new one needs none of it."""
    from .loading import load

    return load(folder, files)


def _load_beside(folder: Path, files: Files) -> Loaded:
    """Read a conversation that somebody else may be writing."""
    from .moment import of_one_moment

    return _load(folder, of_one_moment(folder, files))


def _entry(name: str, data: dict[str, Any]) -> Entry:
    count = data.get("agent_count")
    return Entry(
        name,
        str(data.get("title") or ""),
        str(data.get("created_at") or ""),
        str(data.get("updated_at") or ""),
        count if isinstance(count, int) else 0,
        str(data.get("status") or "active"),
    )


__all__ = ["Conversation", "ConversationStore", "Entry", "settle_due"]
