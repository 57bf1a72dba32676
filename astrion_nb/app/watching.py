"""Who looks at a team: the latest events of this process, listeners that iterate, views that are called.

What is older than the latest events is in the team's state, which a late view begins with.
Knows events and nothing else. A view that raises is logged and harms neither agents nor other views.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable

from ..errors import TeamError
from ..events import FLEETING, Event, Stamped

log = logging.getLogger(__name__)

KEPT = 10_000
"""Events that are kept for listeners who come later."""


class Watch:
    """The audience of one team.

    Parameters
    ----------
    kept : int
        How many of the latest events are kept.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._log: deque[Stamped] = deque(maxlen=kept)
        self._gone = 0
        self._listeners: set[asyncio.Queue[Stamped | None]] = set()
        self._views: tuple[Callable[[Stamped], None], ...] = ()
        self._closed = False
        self.left: Callable[[], None] = lambda: None
        """Called when nobody listens any more."""

    @property
    def listened(self) -> bool:
        """Whether anybody iterates over the events."""
        return bool(self._listeners)

    def tell(self, stamped: Stamped) -> None:
        """Pass an event on."""
        if not isinstance(stamped.event, FLEETING):
            if len(self._log) == self._log.maxlen:
                self._gone = self._log[0].seq
            self._log.append(stamped)
        for queue in self._listeners:
            queue.put_nowait(stamped)
        for view in self._views:
            try:
                view(stamped)
            except Exception:
                log.exception("a view failed on %s", type(stamped.event).__name__)

    def add(self, view: Callable[[Stamped], None]) -> Callable[[], None]:
        """Call ``view`` with every event from now on; returns what ends it."""
        self._views = (*self._views, view)

        def cancel() -> None:
            self._views = tuple(item for item in self._views if item is not view)

        return cancel

    async def events(self, since: int) -> AsyncIterator[Event]:
        """Yield this process's events with a number above ``since``, then those that come, until the end.

        Parameters
        ----------
        since : int
            0: from the oldest that is kept.

        Raises
        ------
        TeamError
            Some that are asked for by their number are kept no more.
        """
        if 0 < since < self._gone:
            raise TeamError(
                f"events: {since + 1} to {self._gone} are kept no more; read the team's state, and begin with its seq"
            )
        queue: asyncio.Queue[Stamped | None] = asyncio.Queue()
        for stamped in self._log:
            if stamped.seq > since:
                queue.put_nowait(stamped)
        if self._closed:
            queue.put_nowait(None)
        self._listeners.add(queue)
        try:
            while (following := await queue.get()) is not None:
                yield following.event
        finally:
            self._listeners.discard(queue)
            if not self._listeners:
                self.left()

    def close(self) -> None:
        """End every iteration once it has seen what there is."""
        self._closed = True
        for queue in self._listeners:
            queue.put_nowait(None)
