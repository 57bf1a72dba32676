"""A journal for tests of what is not stored."""

from __future__ import annotations

from astrion_nb.events import Stamped


class NoJournal:
    """Keeps nothing."""

    def record(self, stamped: Stamped) -> None:
        """Drop the event."""

    async def durable(self, seq: int) -> None:
        """Return at once."""
