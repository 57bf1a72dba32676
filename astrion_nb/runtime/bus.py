"""The bus: every fact passes here once, in order.

``publish`` is synchronous: number, apply to the state, hand to the journal, notify subscribers.
Durability is a barrier and not a step: ``await durable()`` before a model is asked, before a tool
that touches the world, before a caller is told that something is done.

The bus knows the state and a journal's two methods; no file, no view, no agent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from ..events import FLEETING, Event, Stamped
from ..state import TeamState, apply

log = logging.getLogger(__name__)
Subscriber = Callable[[Stamped], None]


class Journal(Protocol):
    """Where events become durable."""

    def record(self, stamped: Stamped) -> None:
        """Take an event into the buffer; never blocks."""
        ...

    async def durable(self, seq: int) -> None:
        """Return when every event up to ``seq`` is on disk.

        Raises
        ------
        StorageError
            It could not be written.
        """
        ...


class Bus:
    """Numbers, applies, stores and announces events.

    Parameters
    ----------
    state : TeamState
        Changed by every event, and by nothing else.
    journal : Journal
    now : callable
        Seconds since the epoch.
    """

    __slots__ = ("_journal", "_now", "_subscribers", "state")

    def __init__(self, state: TeamState, journal: Journal, now: Callable[[], float]) -> None:
        self.state = state
        self._journal = journal
        self._now = now
        self._subscribers: tuple[Subscriber, ...] = ()

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call ``subscriber`` with every event from now on; returns what ends it.

        A subscriber that raises is logged and goes on: a view never ends an agent.
        """
        self._subscribers = (*self._subscribers, subscriber)

        def cancel() -> None:
            self._subscribers = tuple(item for item in self._subscribers if item is not subscriber)

        return cancel

    @property
    def watched(self) -> bool:
        """Whether anyone listens."""
        return bool(self._subscribers)

    def publish(self, event: Event) -> int:
        """Make an event a fact. Returns the number of the last stored event."""
        state = self.state
        if isinstance(event, FLEETING):
            if self._subscribers:
                self._notify(Stamped(state.seq, 0.0, event))
            return state.seq
        seq = state.seq + 1
        t = round(self._now(), 6)  # what the journal can say: a replayed and a loaded state are equal
        apply(state, event, seq=seq, t=t)
        stamped = Stamped(seq, t, event)
        self._journal.record(stamped)
        if self._subscribers:
            self._notify(stamped)
        return seq

    def _notify(self, stamped: Stamped) -> None:
        for subscriber in self._subscribers:
            try:
                subscriber(stamped)
            except Exception:
                log.exception("a subscriber failed on %s", type(stamped.event).__name__)

    async def durable(self) -> None:
        """Return when everything published so far is on disk.

        Raises
        ------
        StorageError
            It could not be written.
        """
        await self._journal.durable(self.state.seq)
