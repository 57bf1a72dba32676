"""The team as a call of somebody's own function sees it.

Such a function may run on a thread of its own, and go on after its call was timed out or stopped.
So every operation happens on the team's loop, wherever it is asked for, and is refused once the
call has ended: what comes late changes nothing. Knows no tool.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ..errors import ToolError
from ..events import ToolOutput

if TYPE_CHECKING:
    from .agent import Agent


def output_of(agent: Agent, call_id: str) -> Callable[[str], None]:
    """Return what shows text of a call while it goes on, from any thread; late text is shown nowhere."""
    loop = asyncio.get_running_loop()

    def show(text: str) -> None:
        if call_id in agent.state.open_calls:
            agent.team.bus.publish(ToolOutput(agent.id, call_id, agent.team.ports.hide(text)))

    def output(text: str) -> None:
        try:
            loop.call_soon_threadsafe(show, text)
        except RuntimeError:
            return  # the team's loop is closed: nobody looks any more

    return output


class CallPort:
    """Stands for the team's port during one tool call; made on the team's loop.

    Parameters
    ----------
    agent : Agent
        Who called.
    call_id : str
    """

    __slots__ = ("_agent", "_call_id", "_loop", "_thread")

    def __init__(self, agent: Agent, call_id: str) -> None:
        self._agent = agent
        self._call_id = call_id
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._agent.team.port, name)
        if not callable(member):
            return member
        return self._awaited(member) if inspect.iscoroutinefunction(member) else self._called(member)

    def _called(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*arguments: Any, **named: Any) -> Any:
            if threading.get_ident() == self._thread:
                self._check()
                return method(*arguments, **named)

            async def run() -> Any:
                self._check()
                return method(*arguments, **named)

            return self._hand_over(run()).result()

        return call

    def _awaited(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        async def call(*arguments: Any, **named: Any) -> Any:
            async def run() -> Any:
                self._check()
                return await method(*arguments, **named)

            if asyncio.get_running_loop() is self._loop:
                return await run()
            return await asyncio.wrap_future(self._hand_over(run()))

        return call

    def _hand_over(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:  # the team's loop is closed
            coroutine.close()
            raise self._ended() from None

    def _check(self) -> None:
        if self._agent.task is None or self._call_id not in self._agent.state.open_calls:
            raise self._ended()

    def _ended(self) -> ToolError:
        return ToolError(
            f"the call {self._call_id} of {self._agent.name} has ended: the team takes nothing from it now"
        )
