"""Whole teams on virtual time, one after the other in this process, for properties of many hundred of them.

The real team, runtime, journal, its thread and its files; what is put in their place is the clock, and where a
test wants it the disk (:mod:`support.disks`) and the endpoint (:class:`Endpoint`, which speaks through the real
assembler and the real reading of refusals).
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from astrion_nb.disk import Files
from astrion_nb.events import AgentCreated, MessageQueued, Stamped, StatusChanged
from astrion_nb.ids import LEADER_ID
from astrion_nb.llm.openai import OpenAIModel
from astrion_nb.runtime import limits
from astrion_nb.runtime.order import Live
from astrion_nb.store import conversations
from astrion_nb.store import journal as journals

from . import stepwise

T = TypeVar("T")
LEADER = "Team Leader"


@contextmanager
def homes() -> Iterator[Path]:
    """Give a folder for homes, in memory where the system has such a place: many teams are written there."""
    place = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="astrion-teams-", dir=place if place.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _virtual() -> Iterator[None]:
    """Put back what a stepped loop sets in the package's clocks, and let its jitter be the same every time."""
    kept = journals.Journal.__init__, journals.time, Live.now, limits.random
    dice = random.Random(7)
    limits.random = SimpleNamespace(Random=lambda: dice)  # type: ignore[assignment]
    try:
        yield
    finally:
        journals.Journal.__init__, journals.time, Live.now, limits.random = kept  # type: ignore[method-assign]


def perform(
    main: Callable[[], Coroutine[Any, Any, T]],
    *,
    files: Callable[[], Files] | None = None,
    busy: Callable[[], bool] = lambda: False,
) -> T:
    """Run a team's life on virtual time; nothing of it may be left on the loop when it ends.

    Parameters
    ----------
    main : callable
    files : callable, optional
        Makes the store's door to the disk.
    busy : callable
        Whether something outside of the loop goes on, so that time must not jump.
    """

    async def whole() -> T:
        out = await main()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert not left, f"left behind: {left}"
        return out

    real = conversations.RealFiles
    with _virtual():
        if files is not None:
            conversations.RealFiles = files  # type: ignore[assignment,misc]
        try:
            return stepwise.run(whole, busy=busy)
        finally:
            conversations.RealFiles = real  # type: ignore[misc]


def here() -> stepwise.SteppedLoop:
    """Return the running loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, stepwise.SteppedLoop)
    return loop


def stand(loop: stepwise.SteppedLoop, rounds: int) -> bool:
    """Stand still in the middle of a write, while the loop goes on; returns whether this is a journal's thread."""
    for turn in loop.turns:
        if turn.owns(threading.current_thread()):
            turn.stand(rounds)
            return True
    return False


class UnderWay:
    """Counts the requests that a real adapter has under way at a real server."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> bool:
        return self.count > 0

    @contextmanager
    def counted(self) -> Iterator[UnderWay]:
        """Count those of every model in here."""
        inner = OpenAIModel.stream_body

        async def stream_body(model: OpenAIModel, body: Any, assembler: Any) -> AsyncIterator[Any]:
            self.count += 1
            stream = inner(model, body, assembler)
            try:
                async for event in stream:
                    yield event
            finally:
                await stream.aclose()
                self.count -= 1

        OpenAIModel.stream_body = stream_body  # type: ignore[method-assign,assignment]
        try:
            yield self
        finally:
            OpenAIModel.stream_body = inner  # type: ignore[method-assign]


# -- what is read off a history ---------------------------------------------------------------------


def reports(events: list[Stamped], agent: int) -> list[tuple[str, str, str]]:
    """Return what the leader was told by an agent: kind, status, text."""
    return [
        (event.item.kind, event.item.status, event.item.content)
        for event in (stamped.event for stamped in events)
        if isinstance(event, MessageQueued)
        and event.agent_id == LEADER_ID
        and event.item.sender_id == agent
        and event.item.source == "sub_agent"
    ]


def standings(events: list[Stamped], agent: int) -> list[str]:
    """Return how an agent stood, one word each: the detail where it is idle for a reason."""
    changes = (stamped.event for stamped in events)
    return [
        event.detail or event.status
        for event in changes
        if isinstance(event, StatusChanged) and event.agent_id == agent
    ]


def created(events: list[Stamped]) -> list[int]:
    """Return the numbers of the sub-agents that were made."""
    return [stamped.event.agent_id for stamped in events if isinstance(stamped.event, AgentCreated)]
