"""Time that passes when nothing else can happen, and a model that remembers what it was asked.

``VirtualOrder`` is the order port with a clock of its own: it stands still while anything on the
loop can go on, and jumps to the next deadline when everything is blocked. With a model that talks
to a real server, ``busy`` says whether an answer is still to come; or a test keeps the clock by
hand (``auto=False``) and calls :meth:`VirtualOrder.advance`.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from astrion_nb.envelope import Envelope, parse
from astrion_nb.llm.model import Model, ModelRequest, StreamEvent
from astrion_nb.messages import Message

START = 1_760_000_000.0


@dataclass
class Deadline:
    """A timer of the virtual clock."""

    act: Callable[[], None] | None

    def cancel(self) -> None:
        self.act = None


class VirtualOrder:
    """The order of a live team, in virtual time.

    Attributes
    ----------
    steps : list of (str, str, int)
        What was admitted, in order.
    """

    replaying = False

    def __init__(self, *, auto: bool = True, busy: Callable[[], bool] = lambda: False) -> None:
        self.steps: list[tuple[str, str, int]] = []
        self._auto = auto
        self._busy = busy
        self._time = 0.0
        self._count = itertools.count()
        self._deadlines: list[tuple[float, int, Deadline]] = []
        self._pumping = False

    async def admit(self, actor: str, kind: str, n: int) -> None:
        self.steps.append((actor, kind, n))

    def now(self) -> float:
        return START + self._time

    def monotonic(self) -> float:
        return self._time

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.at("", 0, seconds, lambda: future.done() or future.set_result(None))
        try:
            await future
        finally:
            timer.cancel()

    def at(self, actor: str, n: int, seconds: float, act: Callable[[], None]) -> Deadline:
        deadline = Deadline(act)
        heapq.heappush(self._deadlines, (self._time + max(0.0, seconds), next(self._count), deadline))
        self._pump_soon()
        return deadline

    @property
    def next_deadline(self) -> float | None:
        """Seconds from now to the next deadline."""
        while self._deadlines and self._deadlines[0][2].act is None:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] - self._time if self._deadlines else None

    def advance(self, seconds: float) -> None:
        """Let time pass, and do what is due meanwhile."""
        end = self._time + seconds
        while (left := self.next_deadline) is not None and self._time + left <= end:
            self._fire()
        self._time = end

    def _fire(self) -> None:
        when, _, deadline = heapq.heappop(self._deadlines)
        self._time = max(self._time, when)
        if deadline.act is not None:
            deadline.act()

    def _pump_soon(self) -> None:
        if self._auto and not self._pumping:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        loop: Any = asyncio.get_running_loop()
        if self.next_deadline is None:
            self._pumping = False
        elif loop._ready:
            loop.call_soon(self._pump)
        elif self._busy():
            loop.call_later(0.001, self._pump)
        else:
            self._fire()
            loop.call_soon(self._pump)


@dataclass(frozen=True)
class Asked:
    """One request as it was when it was made."""

    actor: str
    messages: tuple[Message, ...]
    thinking_mode: str
    time: float

    @property
    def roles(self) -> list[str]:
        return [message.role for message in self.messages]

    @property
    def last(self) -> str:
        return self.messages[-1].content or ""

    def envelopes(self) -> list[Envelope]:
        """Return the envelopes among the messages."""
        return [
            parse(message.content or "")
            for message in self.messages
            if message.role == "user" and "envelope_id" in message.metadata
        ]

    def results(self) -> dict[str, str]:
        """Return the tool results by call id."""
        return {m.tool_call_id or "": m.content or "" for m in self.messages if m.role == "tool"}


class Watched:
    """A model that notes every request as it was, and counts what is under way.

    Parameters
    ----------
    inner : Model
    order : VirtualOrder, optional
        Gives the times of the requests.
    """

    def __init__(self, inner: Model, order: VirtualOrder | None = None) -> None:
        self.inner = inner
        self.key = inner.key
        self.endpoint = inner.endpoint
        self.order = order
        self.asked: list[Asked] = []
        self.in_flight = 0
        self.most_in_flight = 0

    def busy(self) -> bool:
        """Whether an answer is still to come."""
        return self.in_flight > 0

    def of(self, actor: str) -> list[Asked]:
        """Return the requests of an actor."""
        return [asked for asked in self.asked if asked.actor == actor]

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        time = self.order.monotonic() if self.order is not None else 0.0
        self.asked.append(Asked(request.actor, tuple(request.messages), request.thinking_mode, time))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            async for event in self.inner.stream(request):
                yield event
        finally:
            self.in_flight -= 1

    async def close(self) -> None:
        await self.inner.close()
