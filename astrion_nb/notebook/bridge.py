"""Between a cell and the team's event loop.

The loop runs on a daemon thread of its own, in an isolated loop class that nobody's nest_asyncio
reaches; a cell hands coroutines over and polls their futures, so an interrupt always lands in the
cell and never in an agent. ``KernelLoop`` is the other mode, on request only: the agents run on the
kernel's own loop and a waiting cell nests into it with nest-asyncio2. This is the only place of the
package that knows that library.

Knows no team and no magic.
"""

from __future__ import annotations

import _asyncio
import asyncio
import concurrent.futures
import contextvars
import sys
import threading
from asyncio.base_events import BaseEventLoop
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from ..errors import ConfigError, TeamError

T = TypeVar("T")
POLL = 0.2
"""Seconds between two looks of a waiting cell."""


BUSY = 10.0
"""Seconds after which a loop that looks at nothing is said to be blocked."""


class _IsolatedLoop(asyncio.SelectorEventLoop):
    """A loop whose vital methods are bound before anybody can patch them.

    nest_asyncio replaces methods on asyncio's classes, for every loop of the process; this class
    binds the originals for itself, and makes C tasks and futures whatever ``asyncio.Task`` is.
    """

    run_forever = BaseEventLoop.run_forever
    run_until_complete = BaseEventLoop.run_until_complete
    _run_once = BaseEventLoop._run_once  # type: ignore[attr-defined]
    _check_running = BaseEventLoop._check_running  # type: ignore[attr-defined]

    def create_future(self) -> asyncio.Future[Any]:
        return _asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None, **more: Any) -> Any:
        self._check_closed()  # type: ignore[attr-defined]
        if context is None:
            return _asyncio.Task(coro, loop=self, name=name)
        return _asyncio.Task(coro, loop=self, name=name, context=context)


def _soon(future: concurrent.futures.Future[T]) -> T:
    """Return what a quick call on the loop returns.

    Raises
    ------
    TeamError
        The loop does not get to it.
    """
    concurrent.futures.wait([future], BUSY)
    if not future.done():
        future.cancel()
        raise TeamError(
            f"the team's loop has been blocked for {BUSY:g} seconds by an async function given as a tool: wait for it, "
            "and give it as a plain function, which runs on a thread of its own"
        )
    return future.result()


class Bridge(Protocol):
    """Runs coroutines on the team's loop, from any thread."""

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine; it carries the calling context."""
        ...

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function on the loop soon, from any thread."""
        ...

    def look(self, function: Callable[[], T]) -> T:
        """Call a quick function on the loop and return its value; ``TeamError`` where the loop is blocked."""
        ...

    def pump(self, future: concurrent.futures.Future[Any], seconds: float) -> None:
        """Wait for a future, at most so long; interruptible."""
        ...

    def close(self) -> None:
        """End the loop."""
        ...


class ThreadLoop:
    """The default: a daemon thread with an isolated loop, started at first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop."""
        with self._lock:
            if self._loop is None:
                started = threading.Event()
                loop = _IsolatedLoop() if sys.platform != "win32" else asyncio.SelectorEventLoop()
                # An empty context: what a cell sets must not leak into every later run.
                run = contextvars.Context().run
                self._thread = threading.Thread(target=run, args=(_serve, loop, started), name="astrion", daemon=True)
                self._thread.start()
                started.wait()
                self._loop = loop
            return self._loop

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine on the thread's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop())

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function on the loop soon."""
        self.loop().call_soon_threadsafe(function, *arguments)

    def look(self, function: Callable[[], T]) -> T:
        """Call a quick function on the loop and wait for its value."""
        if threading.current_thread() is self._thread:
            return function()

        async def run() -> T:
            return function()

        return _soon(self.submit(run()))

    def pump(self, future: concurrent.futures.Future[Any], seconds: float) -> None:
        """Wait for a future, at most so long."""
        concurrent.futures.wait([future], seconds)

    def close(self) -> None:
        """End the loop and its thread."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout=5.0)


def _serve(loop: asyncio.AbstractEventLoop, started: threading.Event) -> None:
    asyncio.set_event_loop(loop)
    loop.call_soon(started.set)
    try:
        loop.run_forever()
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


class KernelLoop:
    """On request: agents on the kernel's own loop.

    For notebook functions that must run in the main thread, and for kernels without threads. What
    it costs: agents stop while a cell computes, and while an async function of theirs computes the
    cell that waits for them stands still, its interrupt included.
    """

    def __init__(self) -> None:
        if hasattr(asyncio, "_nest_patched") and not hasattr(asyncio, "_nest_asyncio2"):
            raise ConfigError(
                "the archived nest_asyncio is active in this kernel and loses cells and widget events; restart the "
                "kernel without it, or leave %config AstrionMagics.loop at 'thread'"
            )
        import nest_asyncio2

        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = asyncio.get_event_loop_policy().get_event_loop()
        nest_asyncio2.apply(self._loop)
        self._thread = threading.current_thread()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine on the kernel's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function on the loop soon."""
        self._loop.call_soon_threadsafe(function, *arguments)

    def look(self, function: Callable[[], T]) -> T:
        """Call a quick function; the loop's thread is this one unless a subshell calls."""
        if threading.current_thread() is self._thread:
            return function()

        async def run() -> T:
            return function()

        return _soon(self.submit(run()))

    def pump(self, future: concurrent.futures.Future[Any], seconds: float) -> None:
        """Nest into the loop until the future is done, at most so long."""
        if threading.current_thread() is not self._thread:
            concurrent.futures.wait([future], seconds)
            return

        async def wait() -> None:
            inner = asyncio.wrap_future(future)
            # Who waits gets the error from the outer future; the inner one must not tell it again.
            inner.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.wait({inner}, timeout=seconds)

        self._loop.run_until_complete(wait())

    def close(self) -> None:
        """Leave the kernel's loop as it is."""


async def heartbeat(future: concurrent.futures.Future[T]) -> T:
    """Await a future of another loop so that an interrupt gets through while nothing happens."""
    wrapped = asyncio.wrap_future(future)
    while not wrapped.done():
        await asyncio.wait({wrapped}, timeout=POLL)
    return wrapped.result()


async def beating(coroutine: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine so that an interrupt gets through while nothing happens; it is then cancelled."""
    task = asyncio.ensure_future(coroutine)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=POLL)
    finally:
        task.cancel()
    return task.result()
