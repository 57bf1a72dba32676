"""Who looks at a team: the log of this process, listeners that iterate, views that are called.

Knows events and nothing else. A view that raises is logged and harms neither agents nor other views.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

from ..events import FLEETING, Event, Stamped

log = logging.getLogger(__name__)


class Watch:
    """The audience of one team."""

    def __init__(self) -> None:
        self._log: list[Stamped] = []
        self._listeners: set[asyncio.Queue[Stamped | None]] = set()
        self._views: tuple[Callable[[Stamped], None], ...] = ()
        self._closed = False

    @property
    def listened(self) -> bool:
        """Whether anybody iterates over the events."""
        return bool(self._listeners)

    def tell(self, stamped: Stamped) -> None:
        """Pass an event on."""
        if not isinstance(stamped.event, FLEETING):
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
        """Yield this process's events with a number above ``since``, then those that come, until the end."""
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

    def close(self) -> None:
        """End every iteration once it has seen what there is."""
        self._closed = True
        for queue in self._listeners:
            queue.put_nowait(None)
