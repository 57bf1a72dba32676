"""A team's run that happens in the same order every time, threads and clock included.

The loop's time stands still while anything can go on. When the loop has nothing to do, the threads that write
journals get a turn, one after the other, and the loop waits until each is idle again; only when they are idle too
does time jump to what is due next. So two runs of the same team write the same things in the same order, though
every part of it is the real one: the loop, the journal's thread, the files.
"""

from __future__ import annotations

import asyncio
import queue
import selectors
import threading
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar

from astrion_nb.runtime.order import Live
from astrion_nb.store import journal as journals

T = TypeVar("T")
START = 1_760_000_000.0
BOUND = 5.0
"""Seconds of real time that the loop waits for what goes on outside of it."""


class _Turn:
    """The kicks of one journal: its thread runs only when the loop gives it a turn."""

    def __init__(self, owner: journals.Journal, now: Callable[[], float]) -> None:
        self._owner = owner
        self._now = now
        self._go = threading.Event()
        self._idle = threading.Event()
        self._kicked = False
        self.stands = 0
        self.deadline: float | None = None

    def put(self, _: None) -> None:
        self._kicked = True

    def get(self, timeout: float | None = None) -> None:
        self.deadline = None if timeout is None else self._now() + timeout
        self._go.clear()
        self._idle.set()
        self._go.wait()
        if not self._kicked:
            raise queue.Empty
        self._kicked = False

    def stand(self, rounds: int = 1) -> None:
        """Stand still in the middle of the work, on the journal's thread, while the loop goes on with all it can.

        Parameters
        ----------
        rounds : int
            1 until the loop has nothing else to do; with each further one the next deadline passes meanwhile.
        """
        self.stands = rounds
        self.deadline = None
        self._go.clear()
        self._idle.set()
        self._go.wait()

    def owns(self, thread: threading.Thread) -> bool:
        """Say whether this is the thread that gets the turns."""
        return self._owner._thread is thread

    def give(self) -> bool:
        """Let the thread run until it is idle again; return whether there was anything to do."""
        thread = self._owner._thread
        if self.stands:
            self.stands -= 1
            if self.stands:
                return False
            self._idle.clear()
            self._go.set()
            assert thread is not None
            self._wait(thread)
            return True
        due = self.deadline is not None and self.deadline <= self._now()
        if thread is None or not (self._kicked or due) or not self._wait(thread):
            return False
        self._idle.clear()
        self._go.set()
        self._wait(thread)
        return True

    def _wait(self, thread: threading.Thread) -> bool:
        while not self._idle.wait(0.001):
            if not thread.is_alive():
                self.deadline = None
                return False
        return True


class _Selector:
    """A selector that never waits while there is another way on."""

    def __init__(self, loop: SteppedLoop) -> None:
        self._inner = selectors.DefaultSelector()
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def select(self, timeout: float | None = None) -> Any:
        if timeout is not None and timeout <= 0:
            return self._inner.select(0)
        turns = self._loop.turns
        worked = [turn.give() for turn in turns]  # everybody gets a turn
        if any(worked):
            return self._inner.select(0)
        now = self._loop.time()
        due = [turn.deadline for turn in turns if turn.deadline is not None]
        ways = [*due, *([] if timeout is None else [now + timeout])]
        if self._loop.busy():
            ready = self._inner.select(BOUND)
            assert ready, "what the loop waits for outside of it does not come"
            return ready
        if not ways:
            return self._inner.select(0 if any(turn.stands for turn in turns) else None)
        self._loop.now = max(now, min(ways))
        return self._inner.select(0)


class SteppedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps.

    Parameters
    ----------
    busy : callable
        As in :func:`run`.
    """

    def __init__(self, busy: Callable[[], bool] = lambda: False) -> None:
        self.now = 0.0
        self.busy = busy
        self.turns: list[_Turn] = []
        super().__init__(_Selector(self))  # type: ignore[arg-type]  # a selector in all that the loop asks of one

    def time(self) -> float:
        return self.now


def now(seconds: float) -> float:
    """Return the wall clock's time after so many seconds."""
    return START + seconds


def run(
    main: Callable[[], Coroutine[Any, Any, T]],
    wall: Callable[[float], float] = now,
    busy: Callable[[], bool] = lambda: False,
) -> T:
    """Run a coroutine on a stepped loop. For a process of its own: the package's clocks are put on virtual time.

    Parameters
    ----------
    main : callable
    wall : callable, optional
        The wall clock's time after so many seconds.
    busy : callable, optional
        Whether something outside of the loop goes on that it is to wait for, however long it takes.
    """
    loop = SteppedLoop(busy)
    made = journals.Journal.__init__

    def init(self: journals.Journal, *arguments: Any, **named: Any) -> None:
        made(self, *arguments, **named)
        turn = _Turn(self, loop.time)
        self._kicks = turn  # type: ignore[assignment]  # the two methods that a journal uses
        loop.turns.append(turn)

    journals.Journal.__init__ = init  # type: ignore[method-assign]
    journals.time = SimpleNamespace(monotonic=loop.time, sleep=lambda seconds: None)  # type: ignore[assignment]
    Live.now = lambda self: wall(loop.time())  # type: ignore[method-assign]
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main())
