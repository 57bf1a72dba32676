"""Sync functions off the loop: one daemon thread a call.

Daemon threads, because a kernel must be able to end while a function still computes. The calling
context (context variables) goes along. Knows no tool and no team.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any


def in_thread(function: Callable[..., Any], values: Mapping[str, Any]) -> Awaitable[Any]:
    """Run ``function(**values)`` on a thread of its own; a result that comes after cancellation is dropped."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def work() -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = context.run(function, **values)
        except Exception as raised:
            error = RuntimeError("the function raised StopIteration") if isinstance(raised, StopIteration) else raised
        except BaseException as raised:  # sys.exit() and the like end the function, never the team's loop
            try:
                error = RuntimeError(f"the function raised {type(raised).__name__}: {raised}")
            except Exception:  # its own __str__ fails
                error = RuntimeError(f"the function raised {type(raised).__name__}")
        try:
            loop.call_soon_threadsafe(settle, value, error)
        except RuntimeError:
            return  # the loop has ended: nobody waits any more

    threading.Thread(target=work, daemon=True, name=f"astrion-tool-{getattr(function, '__name__', 'call')}").start()
    return future
