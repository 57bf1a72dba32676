"""The stored conversations of a home: list, rename, archive, delete; what ``astrion_nb.conversations`` is.

Works on conversations that nobody has open, from a script, a cell or a coroutine alike. One that is
open is its team's: :meth:`Team.rename <astrion_nb.app.lifetime.Lived.rename>` and
:meth:`Team.archive <astrion_nb.app.lifetime.Lived.archive>`. Knows no Jupyter.

Source: data model §4, §8.3; decision 31.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .. import given
from ..errors import ConversationNotFound
from ..home import Home, as_home
from ..state import title_line
from ..store.conversations import ConversationStore, Entry
from .shelf import conversations

__all__ = ["Entry", "archive", "delete", "list", "rename"]

TITLE = "say the new title"


def list(*, archived: bool = False, home: str | Path | Home | None = None) -> builtins.list[Entry]:
    """Return the stored conversations, newest first.

    Parameters
    ----------
    archived : bool
        Whether archived ones are among them.
    home : path or Home, optional
        Default: ``ASTRION_HOME``.

    Returns
    -------
    list of Entry
        A conversation that cannot be read is there too, as ``broken`` and with its fault.
    """
    given.switch("conversations.list: archived", archived)
    return conversations(as_home("conversations.list: home", home), archived=archived)


def rename(conversation_id: str, title: str, *, home: str | Path | Home | None = None) -> None:
    """Give a conversation another title, of one line; no later task changes it any more.

    Parameters
    ----------
    conversation_id : str
    title : str
    home : path or Home, optional

    Raises
    ------
    ConversationNotFound, ConversationBroken, StorageError
    ConversationLocked
        It is open, here or elsewhere.
    """
    given.text("conversations.rename: the id", conversation_id)
    given.text("conversations.rename: the title", title, empty=TITLE)
    store = ConversationStore(as_home("conversations.rename: home", home))
    _check(store, conversation_id)
    _through(lambda: store.rename(conversation_id, title_line(title)))


def archive(conversation_id: str, archived: bool = True, *, home: str | Path | Home | None = None) -> None:
    """Archive a conversation, or bring it back; it keeps everything and can be gone on with either way.

    Parameters
    ----------
    conversation_id : str
    archived : bool
        ``False`` brings it back.
    home : path or Home, optional

    Raises
    ------
    ConversationNotFound, ConversationBroken, StorageError
    ConversationLocked
        It is open, here or elsewhere.
    """
    given.text("conversations.archive: the id", conversation_id)
    given.switch("conversations.archive: archived", archived)
    store = ConversationStore(as_home("conversations.archive: home", home))
    _check(store, conversation_id)
    _through(lambda: store.archive(conversation_id, archived))


def delete(conversation_id: str, *, home: str | Path | Home | None = None) -> Entry:
    """Remove a conversation for good, without asking; also one that cannot be read.

    Parameters
    ----------
    conversation_id : str
    home : path or Home, optional

    Returns
    -------
    Entry
        What was removed.

    Raises
    ------
    ConversationNotFound, StorageError
    ConversationLocked
        It is open, here or elsewhere. Nothing is removed then.
    """
    given.text("conversations.delete: the id", conversation_id)
    store = ConversationStore(as_home("conversations.delete: home", home))
    entry = next((each for each in store.list() if each.id == conversation_id), None)
    store.delete(conversation_id)
    return entry or Entry(conversation_id, "", "", "", 0, "active")


def _check(store: ConversationStore, conversation_id: str) -> None:
    """Refuse what there is not, and a folder in which nothing has been said: nothing of it would be kept."""
    if all(each.id != conversation_id for each in store.list()):
        raise ConversationNotFound(f"there is no conversation {conversation_id!r} in {store.home.conversations}")


def _through(begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run something of the store's to its end, also where a loop runs already."""

    async def run() -> None:
        await begin()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(run())).result()
