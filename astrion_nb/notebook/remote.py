"""The team as a variable of the user's: the same methods, from any thread and any loop.

``Team`` lives on the runtime's loop. This stands for it in the notebook's namespace: coroutines are
handed over and awaited with a heartbeat, so an interrupt gets through; properties are read on the
team's loop. Knows nothing that ``Team`` does not say.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from .bridge import Bridge, beating, heartbeat

if TYPE_CHECKING:
    from ..app.team import Team
    from ..events import Event


class RemoteTeam:
    """The team of this kernel; ``%%team`` starts one, and ``%%team --help`` lists its flags.

    Stands for a :class:`~astrion_nb.app.team.Team` that runs on another loop. Everything public of
    ``Team`` works, ``await`` included: ``await team.run("…")``, ``team.agents``, ``async for event in team.events()``.
    """

    def __init__(self, team: Team, bridge: Bridge) -> None:
        self._team = team
        self._bridge = bridge

    def __repr__(self) -> str:
        from ..render.board import board_text

        return self._bridge.look(lambda: board_text(self._team.state, prices=self._team.prices))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from ..render.board import board_bundle

        return self._bridge.look(lambda: board_bundle(self._team.state, prices=self._team.prices))

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._team) if not name.startswith("_")]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        member = inspect.getattr_static(type(self._team), name, None)
        if inspect.iscoroutinefunction(member):
            return self._handed_over(getattr(self._team, name))
        if inspect.isfunction(member):
            return self._looked_up(getattr(self._team, name))
        return self._bridge.look(lambda: getattr(self._team, name))

    def _handed_over(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        async def call(*arguments: Any, **named: Any) -> Any:
            future = self._bridge.submit(method(*arguments, **named))
            try:
                return await heartbeat(future)
            except asyncio.CancelledError:
                # The cell was interrupted: run ends its run and ask takes its question back by themselves.
                future.cancel()
                if method.__name__ == "wait":
                    self._bridge.submit(self._team.stop(reason="the cell was interrupted"))
                raise

        return call

    def _looked_up(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*arguments: Any, **named: Any) -> Any:
            return self._bridge.look(lambda: method(*arguments, **named))

        return call

    async def events(self, since: int = 0) -> AsyncIterator[Event]:
        """Yield events as they happen; see :meth:`astrion_nb.app.team.Team.events`."""
        here = asyncio.get_running_loop()
        queue: asyncio.Queue[Any] = asyncio.Queue()
        end = object()

        async def carry() -> None:
            try:
                async for event in self._team.events(since):
                    here.call_soon_threadsafe(queue.put_nowait, event)
            finally:
                here.call_soon_threadsafe(queue.put_nowait, end)

        future = self._bridge.submit(carry())
        try:
            while (event := await beating(queue.get())) is not end:
                yield event
        finally:
            future.cancel()
