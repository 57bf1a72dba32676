"""What the processes of the tests do that delete a conversation and die, or stand still, in the middle of it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from astrion_nb.home import Home
from astrion_nb.state import apply
from astrion_nb.store.conversations import ConversationStore

from .histories import build
from .mortal import MortalFiles
from .zygote import say

AGENTS = 3
MIDDLE = 9
"""A point of a delete at which the folder has lost its name, and something is left in it."""
STOPS = 3


def lay_out(home: Path) -> tuple[str, str]:
    """Store two conversations with some agents each; returns their ids."""
    store = ConversationStore(Home(home), durability="relaxed")

    async def make() -> str:
        conversation = store.create()
        steps: list[tuple[str, int, str, object]] = [("create", 0, "x", None)] * AGENTS
        for stamped in build(steps, conversation.id):
            apply(conversation.state, stamped.event, seq=stamped.seq, t=stamped.t)
            conversation.record(stamped)
        await conversation.close()
        return conversation.id

    async def both() -> tuple[str, str]:
        return await make(), await make()

    return asyncio.run(both())


def _store(home: str, kill_at: int) -> tuple[ConversationStore, MortalFiles]:
    place = Home(Path(home))
    files = MortalFiles(place.conversations, kill_at, say)
    return ConversationStore(place, files=files), files


def delete(home: str, conversation: str, kill_at: int = 0) -> list[str]:
    """Delete a conversation, until the point of that number; returns the labels of all points."""
    store, files = _store(home, kill_at)
    store.delete(conversation)
    return files.points


def take_up(home: str, conversation: str, kill_at: int = 0) -> list[str]:
    """Open a conversation and close it, until the point of that number; returns the labels of all points."""
    store, files = _store(home, kill_at)
    store.open(conversation).close_now()
    return files.points


def tidy(home: str, kill_at: int = 0) -> list[str]:
    """Do what tidies up, until the point of that number; returns the labels of all points up to there."""
    store, files = _store(home, kill_at)
    store._tidy()
    return files.points


class Halting(MortalFiles):
    """Files that stand still at every third removal of a file, for a line on the standard input."""

    __slots__ = ("removed",)

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.removed = 0

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self.removed += 1
        if self.removed % 3 == 0 and self.removed <= 3 * STOPS:
            print("stands", flush=True)
            sys.stdin.readline()


def hold() -> None:
    """Delete the conversation that the command line names, standing still now and then."""
    place = Home(Path(sys.argv[1]))
    ConversationStore(place, files=Halting(place.conversations)).delete(sys.argv[2])
    print("done", flush=True)
