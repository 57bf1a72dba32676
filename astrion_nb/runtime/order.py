"""One port for everything that could go either way.

A step is ``(actor, kind, n)``: the ``n``-th thing of its kind that an actor does. Whoever is about
to change state after having waited for something outside its own control admits the step first,
and then runs without an ``await`` until the change is made. Live, every step is admitted at once;
recording notes the total order; replaying admits a step only when it is the next one.

Kinds:

``request``   a model is about to be asked; the mailbox is drained by it
``response``  a model's response has ended (well or not)
``tool``      a tool call starts
``result``    a tool call has ended
``human``     a person's message, question, answer, stop or termination
``timer``     a deadline has passed

This module knows no agent, no file and no cassette.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Literal, Protocol

StepKind = Literal["request", "response", "tool", "result", "human", "timer"]


class Timer(Protocol):
    """A deadline that can be called off."""

    def cancel(self) -> None:
        """Call the deadline off. Harmless when it has passed."""
        ...


class Order(Protocol):
    """Admits steps, tells the time, keeps deadlines."""

    replaying: bool

    async def admit(self, actor: str, kind: StepKind, n: int) -> None:
        """Return when the step may happen; the caller acts before its next ``await``.

        Raises
        ------
        ReplayMiss
            The recording will not come to this step.
        """
        ...

    def now(self) -> float:
        """Return the time in seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start, never going back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; a replay does not."""
        ...

    def at(self, actor: str, n: int, seconds: float, act: Callable[[], None]) -> Timer:
        """Call ``act`` when the ``n``-th deadline of an actor has passed."""
        ...


class Live:
    """The order of a live team: as things come."""

    replaying = False

    async def admit(self, actor: str, kind: StepKind, n: int) -> None:
        """Admit at once."""
        return

    def now(self) -> float:
        """Return the wall clock's time."""
        return time.time()

    def monotonic(self) -> float:
        """Return the running loop's time."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Wait for real."""
        await asyncio.sleep(seconds)

    def at(self, actor: str, n: int, seconds: float, act: Callable[[], None]) -> Timer:
        """Call ``act`` after so many seconds."""
        return asyncio.get_running_loop().call_later(seconds, act)
