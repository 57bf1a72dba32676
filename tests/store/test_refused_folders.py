"""What the system refuses to look into, and what stands where an id belongs: one line each, and nothing raw."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.histories import build

from astrion_nb.errors import ConversationBroken, StorageError
from astrion_nb.home import Home
from astrion_nb.state import apply
from astrion_nb.store.conversations import ConversationStore


def stored(store: ConversationStore) -> Path:
    """Store a conversation in which an agent has read an envelope, and close it; return its folder."""
    conversation = store.create()
    history = build([("create", 0, "x", None), ("queue", 1, "Do.", None), ("drain", 1, "", None)], conversation.id)
    for stamped in history:
        apply(conversation.state, stamped.event, seq=stamped.seq, t=stamped.t)
        conversation.record(stamped)
    asyncio.run(asyncio.wait_for(conversation.close(), 10))
    return conversation.folder


@pytest.fixture
def closed_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ConversationStore, str]]:
    """A store whose conversations may not be looked into, by mode; to root, whom no mode stops, the system's word."""
    store = ConversationStore(Home(tmp_path))
    folder = stored(store)
    folder.parent.chmod(0)
    if os.access(folder, os.F_OK):
        stat = os.stat

        def refuse(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
            if isinstance(path, str | os.PathLike) and Path(os.fspath(path)).parent == folder.parent:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return stat(path, *args, **kwargs)

        monkeypatch.setattr(os, "stat", refuse)
    yield store, folder.name
    folder.parent.chmod(0o755)


@pytest.mark.parametrize(
    "use",
    [
        lambda store, name: store.open(name),
        lambda store, name: store.open(name, read_only=True),
        lambda store, name: store.delete(name),
        lambda store, name: store.owner(name),
        lambda store, name: store.list(),
        lambda store, name: store.last(),
    ],
)
def test_conversations_that_may_not_be_looked_into_are_refused_in_a_line(
    closed_home: tuple[ConversationStore, str], use: Callable[[ConversationStore, str], object]
) -> None:
    with pytest.raises(StorageError, match="cannot be read") as caught:
        use(*closed_home)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [[], ["q1"], {}, {"id": "q1"}, [[]]])
@pytest.mark.parametrize("place", ["messages.json", "agents/1/messages.json"])
def test_an_envelopes_id_that_is_no_text_is_refused_with_its_file(tmp_path: Path, place: str, value: object) -> None:
    store = ConversationStore(Home(tmp_path))
    folder = stored(store)
    document = json.loads((folder / place).read_bytes())
    document["messages"].append({"role": "user", "content": "x", "metadata": {"envelope_id": value}})
    number = len(document["messages"]) - 1
    (folder / place).write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(ConversationBroken, match=rf"messages\.json: messages\[{number}\]: 'envelope_id' is") as caught:
        store.open(folder.name)
    assert "\n" not in str(caught.value)
    assert store.owner(folder.name) is None
