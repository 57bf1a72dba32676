"""Who may ask a model now: slots, the gate of an endpoint, tries, budgets.

``Slots`` bounds the requests of a team, leader first. A ``Gate`` belongs to one endpoint and is
shared by everything in the process that talks to it: a 429 closes it for as long as the endpoint
asks, then lets few requests through and more with every success. ``attempts`` says whether a
failed request is tried again. Knows no agent and no vendor.

Source: decisions 24, 58.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from dataclasses import dataclass, fields

from .. import given
from ..errors import BudgetExceeded, ModelBusy, ModelError
from ..messages import Usage
from .order import Order

BUSY_TRIES = 12
"""Tries of one request that an endpoint answers with 429."""
BROKEN_TRIES = 3
"""Tries of one request that fails in another way that trying again may mend."""
LONGEST_WAIT = 120.0
"""Seconds: the longest single wait that an endpoint may ask for."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a team may use.

    Parameters
    ----------
    max_active_agents : int or None
        Model requests at one time; ``None`` for no bound.
    max_turns : int or None
        Model requests of one agent in one run.
    max_tokens : int or None
        Tokens of the whole conversation.
    max_cost : float or None
        Cost of the whole conversation, in the currency of the prices in ``models.toml``.
    max_agents : int or None
        Sub-agents of a conversation that are not terminated.
    max_team_turns : int or None
        Model requests of all agents together in one run.
    max_agent_tokens : int or None
        Tokens of one agent in the whole conversation.
    max_agent_cost : float or None
        Cost of one agent in the whole conversation.

    Raises
    ------
    ConfigError
        A limit is not above 0, or no whole number where only such ones can be counted.
    """

    max_active_agents: int | None = 16
    max_turns: int | None = 200
    max_tokens: int | None = None
    max_cost: float | None = None
    max_agents: int | None = None
    max_team_turns: int | None = None
    max_agent_tokens: int | None = None
    max_agent_cost: float | None = None

    def __post_init__(self) -> None:
        for name in (item.name for item in fields(self)):
            given.number(f"limits: {name}", getattr(self, name), whole=not name.endswith("cost"), none="no limit")

    def check_turns(self, turns: int, team_turns: int = 0) -> None:
        """Raise :class:`BudgetExceeded` when an agent may make no further request in this run."""
        if self.max_turns is not None and turns >= self.max_turns:
            raise BudgetExceeded(f"max_turns: {self.max_turns} model requests of one agent in this run are used up")
        if self.max_team_turns is not None and team_turns >= self.max_team_turns:
            raise BudgetExceeded(f"max_team_turns: {self.max_team_turns} model requests in this run are used up")

    @property
    def bounds_spending(self) -> bool:
        """Whether tokens or cost are bounded at all."""
        bounds = (self.max_tokens, self.max_cost, self.max_agent_tokens, self.max_agent_cost)
        return any(bound is not None for bound in bounds)

    def check_team(self, usage: Usage, cost: float | None) -> None:
        """Raise :class:`BudgetExceeded` when the team may make no further request."""
        _check_spent("max", self.max_tokens, self.max_cost, usage, cost)

    def check_agent(self, usage: Usage, cost: float | None) -> None:
        """Raise :class:`BudgetExceeded` when an agent may make no further request."""
        _check_spent("max_agent", self.max_agent_tokens, self.max_agent_cost, usage, cost)


def _check_spent(name: str, tokens: int | None, most: float | None, usage: Usage, cost: float | None) -> None:
    if tokens is not None and usage.total >= tokens:
        raise BudgetExceeded(f"{name}_tokens: {usage.total} of {tokens} tokens are used up")
    if most is not None and cost is not None and cost >= most:
        raise BudgetExceeded(f"{name}_cost: {cost:.4f} of {most:.4f} is used up")


class Slots:
    """A bound on what happens at one time; lower ranks go first, then who came first."""

    def __init__(self, size: int | None) -> None:
        self.size = size
        self.used = 0
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._counter = itertools.count()

    async def acquire(self, rank: int) -> None:
        """Return when a slot is held."""
        if self.size is None or (self.used < self.size and not self._waiting):
            self.used += 1
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (rank, next(self._counter), future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.release()  # the slot had been handed over already
            raise

    def release(self) -> None:
        """Give a slot back, or hand it to who waits."""
        self.used -= 1
        while self._waiting and (self.size is None or self.used < self.size):
            _, _, future = heapq.heappop(self._waiting)
            if not future.done():
                self.used += 1
                future.set_result(None)


class Gate:
    """The shared rate limit of one endpoint.

    After a 429 nothing passes until the endpoint's own time is over (plus jitter); then one request
    at a time, one more with every success, until the bound no longer binds.
    """

    def __init__(self, order: Order, *, jitter: random.Random | None = None) -> None:
        self._order = order
        self._jitter = jitter or random.Random()
        self._slots = Slots(None)
        self._closed_until = 0.0
        self.slowed = False
        """Whether the endpoint has asked to slow down, and answered nothing since."""

    @property
    def bound(self) -> int | None:
        """Requests that may be under way now; ``None`` for any number."""
        return self._slots.size

    async def enter(self, rank: int) -> None:
        """Return when a request may be sent."""
        await self._slots.acquire(rank)
        try:
            while True:
                left = self._closed_until - self._order.monotonic()
                if left <= 0:
                    return
                await self._order.sleep(left)
        except BaseException:
            self._slots.release()
            raise

    def leave(self, outcome: ModelError | None, *, answered: bool) -> None:
        """Say how the request ended; a :class:`ModelBusy` closes the gate for a while.

        Parameters
        ----------
        outcome : ModelError or None
        answered : bool
            Whether a whole response came; one that was cancelled says nothing about the endpoint.
        """
        slots = self._slots
        self.slowed = isinstance(outcome, ModelBusy) or (self.slowed and not answered)
        if isinstance(outcome, ModelBusy):
            wait = min(outcome.retry_after if outcome.retry_after is not None else 1.0, LONGEST_WAIT)
            self._closed_until = max(
                self._closed_until, self._order.monotonic() + wait + self._jitter.random() * 0.1 * wait
            )
            slots.size = max(1, (slots.used if slots.size is None else slots.size) // 2)
        elif answered and slots.size is not None:
            slots.size = None if slots.size >= 64 else slots.size + 1
        slots.release()


def attempts(error: ModelError, tries: int, *, shown: bool, jitter: random.Random) -> float | None:
    """Return the seconds to wait before a failed request is tried again, or ``None`` to give up.

    Parameters
    ----------
    error : ModelError
    tries : int
        How often it was tried, this time included.
    shown : bool
        Whether text of it was shown: then it is never tried again.
    jitter : random.Random
    """
    if shown or not error.retryable:
        return None
    if isinstance(error, ModelBusy):
        return 0.0 if tries < BUSY_TRIES else None  # the gate does the waiting
    if tries >= BROKEN_TRIES:
        return None
    return float(min(0.5 * 2 ** (tries - 1), 8.0) * (0.75 + 0.5 * jitter.random()))
