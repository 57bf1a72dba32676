"""Interrupts of a cell that waits: counted, and told where the wait can take them.

Python raises an interrupt between any two steps of the main thread, also in the midst of taking a lock,
where it leaves the lock held or makes another error of itself; a second one comes while the first is
being seen to. While a cell waits it is only counted, and raised where :meth:`Interrupts.check` is called.

Knows no team.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TypeVar

T = TypeVar("T")


class Interrupts:
    """The interrupts that have come since a cell began to wait; of another thread than the main one, none."""

    def __init__(self) -> None:
        self._come = self._told = 0

    def check(self) -> None:
        """Raise ``KeyboardInterrupt`` for each interrupt that has come, one at a time."""
        if self._come > self._told:
            self._told += 1
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count what comes, instead of raising it wherever the thread is."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, self._count)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @contextlib.contextmanager
    def raised(self) -> Iterator[None]:
        """Raise them at once for a while: for a read that nothing else ends."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _count(self, number: int, frame: FrameType | None) -> None:
        self._come += 1


def waited(wait: Callable[[Interrupts], object], interrupted: Callable[[Interrupts], T]) -> T | None:
    """Wait; return what is to be told of an interrupt, or nothing.

    Parameters
    ----------
    wait : callable
        ``wait(interrupts)`` checks for interrupts as often as it looks at what it waits for.
    interrupted : callable
        ``interrupted(interrupts)`` sees to one; what comes meanwhile is counted too.
    """
    interrupts = Interrupts()
    with interrupts.counted():
        try:
            wait(interrupts)
        except KeyboardInterrupt:
            return interrupted(interrupts)
    return None
