"""Tools that touch the world: recorded when they are called, replayed without being called.

Tools are met as values with the fields of a registered tool; knows no tool, no order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import failure_text

if TYPE_CHECKING:
    from .player import Player
    from .recorder import Recorder


def recorded(tool: Any, recorder: Recorder, text: Callable[[Any], str]) -> Any:
    """Return a tool that notes what each call of it came to.

    Parameters
    ----------
    tool : Tool
    recorder : Recorder
    text : callable
        What turns a tool's value into the text that a model reads.
    """

    async def call(values: dict[str, Any], context: Any) -> str:
        outcome = recorder.outcome(context.agent_id, context.call_id, tool.name)
        try:
            result = text(await tool.call(values, context))
        except BaseException as error:
            task = asyncio.current_task()
            ended = isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling()
            if not ended and not isinstance(error, GeneratorExit):
                outcome.error = recorder.scrub(failure_text(error))
            raise
        outcome.text = recorder.scrub(result)
        return result

    return _rewired(tool, call)


def _rewired(tool: Any, call: Callable[[dict[str, Any], Any], Any]) -> Any:
    """Return a tool of the same name, schema and checks that does something else when it is called.

    Parameters
    ----------
    tool : Tool
    call : callable
        ``await call(arguments, context)``.
    """
    tool.prepare()
    name = tool.context_parameter
    slot = name or "astrion_context"

    async def function(**values: Any) -> Any:
        context = values.pop(slot)
        return await call(values, context)

    return replace(tool, function=function, is_async=True, context_parameter=slot)


def replayed(tool: Any, player: Player) -> Any:
    """Return a tool that is never called: each call comes to what was recorded of it.

    Parameters
    ----------
    tool : Tool
    player : Player
    """

    async def call(_: dict[str, Any], context: Any) -> str:
        return await player.outcome(context.agent_id, context.call_id, tool.name)

    return _rewired(tool, call)
