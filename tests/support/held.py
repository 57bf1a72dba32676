"""A tool that does not return before the test says so."""

from __future__ import annotations

import asyncio

from astrion_nb.tools.registry import Tool, tool

BOUND = 5.0


class Held:
    """A tool whose calls wait until they are released; make it inside a running loop.

    Parameters
    ----------
    name : str

    Attributes
    ----------
    tool : Tool
    begun, ended, cancelled : int
        Calls that have begun, have returned, were cancelled.
    """

    def __init__(self, name: str = "hold", *, side_effects: bool = False) -> None:
        self.begun = self.ended = self.cancelled = 0
        self._open = asyncio.Event()
        self._changed = asyncio.Event()
        self.tool: Tool = tool(name=name, description="Wait.", side_effects=side_effects)(self._run)

    async def _run(self, tag: str = "") -> str:
        self.begun += 1
        self._changed.set()
        try:
            await self._open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.ended += 1
        return f"done {tag}".strip()

    def release(self) -> None:
        """Let every call return, now and later."""
        self._open.set()

    async def wait_begun(self, count: int = 1) -> None:
        """Return when so many calls have begun."""

        async def look() -> None:
            while self.begun < count:
                self._changed.clear()
                await self._changed.wait()

        await asyncio.wait_for(look(), BOUND)
