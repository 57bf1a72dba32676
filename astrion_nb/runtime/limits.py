"""Who may ask a model now: slots, the gate of an endpoint, tries, budgets.

``Slots`` bounds the requests of a team, leader first. A ``Gate`` belongs to one endpoint and is
shared by everything in the process that talks to it: a 429 closes it for as long as the endpoint
asks, then lets few requests through and more with every success. ``attempts`` says whether a
failed request is tried again. Knows no agent and no vendor.

Source: decisions 24, 58.
"""

from __future__ import annotations

import asyncio
import itertools
import math
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
_TICK = 0.001
"""Seconds: a shorter wait may not move a clock at all."""


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
    """A bound on the requests of one team at one time; who waits for one waits at the gate of its endpoint."""

    def __init__(self, size: int | None) -> None:
        self.size = size
        self.used = 0
        self.gates: set[Gate] = set()
        """Where somebody may wait for one of these."""

    @property
    def free(self) -> bool:
        """Whether one can be had."""
        return self.size is None or self.used < self.size

    def release(self) -> None:
        """Give a slot back; the first of those who wait gets it."""
        self.used -= 1
        for gate in sorted(self.gates, key=lambda gate: gate.first(self)):
            gate.admit()


@dataclass(slots=True, eq=False)
class _Waiting:
    """One who waits at a gate."""

    turn: tuple[int, int]
    slots: Slots
    refused: bool = False
    let_in: bool = False
    woken: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if self.woken is not None and not self.woken.done():
            self.woken.set_result(None)


class Gate:
    """The shared rate limit of one endpoint: lower ranks go first, then who came first.

    After a 429 nothing passes until the endpoint's own time is over (plus jitter); then half as many
    requests at a time as were under way, one more with every success, until the bound no longer binds.
    Who was refused lets one other go ahead, so that no single one uses up its tries for all of them.
    Who waits holds nothing that another could use.
    """

    _arrivals = itertools.count()

    def __init__(self, order: Order, *, jitter: random.Random | None = None) -> None:
        self._order = order
        self._jitter = jitter or random.Random()
        self._waiting: list[_Waiting] = []
        self._closed_until = 0.0
        self.bound: int | None = None
        """Requests that may be under way now; ``None`` for any number."""
        self.under_way = 0
        """Requests that are."""
        self._held = 0  # these, and who was let in and is about to go
        self.slowed = False
        """Whether the endpoint has asked to slow down, and answered nothing since."""

    async def enter(self, rank: int, slots: Slots | None = None, *, refused: bool = False) -> None:
        """Return when a request may be sent.

        Parameters
        ----------
        rank : int
        slots : Slots, optional
            One of these is held then too.
        refused : bool
            Whether the endpoint has just answered this request with 429.
        """
        one = _Waiting((rank, next(self._arrivals)), slots or Slots(None), refused)
        one.slots.gates.add(self)
        self._waiting.append(one)
        try:
            while True:
                left = self._closed()
                if one.let_in and left <= 0 and (self.bound is None or self._held <= self.bound):
                    self.under_way += 1
                    return
                if one.let_in:  # it was closed again, or fewer may go, before this one went
                    self._turn_back(one)
                    self._waiting.append(one)
                if left > 0:
                    await self._order.sleep(max(left, _TICK))
                    continue
                self.admit()
                if not one.let_in:
                    one.woken = asyncio.get_running_loop().create_future()
                    await one.woken
        except BaseException:
            if one.let_in:
                self._turn_back(one)
                self.admit()
            else:
                self._waiting.remove(one)
            raise

    def _closed(self) -> float:
        """Return for how many seconds more nobody may ask."""
        return self._closed_until - self._order.monotonic()

    def _turn_back(self, one: _Waiting) -> None:
        one.let_in = False
        self._held -= 1
        one.slots.release()

    def first(self, slots: Slots) -> tuple[float, float]:
        """Return whose turn it is among those that wait here for a slot: rank and arrival."""
        return min((one.turn for one in self._waiting if one.slots is slots), default=(math.inf, math.inf))

    def admit(self) -> None:
        """Let in who may go now."""
        if not self._waiting or self._closed() > 0:
            return
        while self.bound is None or self._held < self.bound:
            ready = [one for one in self._waiting if one.slots.free]
            if not ready:
                return
            one = min(ready, key=lambda one: (one.refused, one.turn))
            one.slots.used += 1
            self._held += 1
            self._waiting.remove(one)
            one.let_in = True
            one.wake()
            for other in self._waiting:
                other.refused = False

    def leave(self, outcome: ModelError | None, *, answered: bool) -> None:
        """Say how the request ended; a :class:`ModelBusy` closes the gate for a while.

        Parameters
        ----------
        outcome : ModelError or None
        answered : bool
            Whether a whole response came; one that was cancelled says nothing about the endpoint.
        """
        self.slowed = isinstance(outcome, ModelBusy) or (self.slowed and not answered)
        if isinstance(outcome, ModelBusy):
            wait = min(outcome.retry_after if outcome.retry_after is not None else 1.0, LONGEST_WAIT)
            self._closed_until = max(
                self._closed_until, self._order.monotonic() + wait + self._jitter.random() * 0.1 * wait
            )
            self.bound = max(1, self.under_way // 2)
            for one in self._waiting:
                one.wake()  # to wait for another thing
        elif answered and self.bound is not None:
            self.bound = None if self.bound >= 64 else self.bound + 1
        self.under_way -= 1
        self._held -= 1
        self.admit()


def attempts(error: ModelError, tries: int, *, shown: bool, jitter: random.Random) -> float | None:
    """Return the seconds to wait before a failed request is tried again, or ``None`` to give up.

    Parameters
    ----------
    error : ModelError
    tries : int
        How often it failed in this way, busy or otherwise, this time included.
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
    told = min(error.retry_after or 0.0, LONGEST_WAIT)
    return max(told, float(min(0.5 * 2 ** (tries - 1), 8.0) * (0.75 + 0.5 * jitter.random())))
