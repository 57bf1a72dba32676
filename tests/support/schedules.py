"""Schedules: the order port lets one step happen at a time, and chance picks which of those that could.

``ShuffledOrder`` parks every step that asks to be admitted. When nothing on the loop can go on, it
admits one of them, or lets the next deadline pass: so each seed is one order in which a team's
steps can really come.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from support.virtual import VirtualOrder


class ShuffledOrder(VirtualOrder):
    """The order of a team of which every step comes when chance says so.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._chance = random.Random(seed)
        self._parked: list[tuple[tuple[str, str, int], asyncio.Future[None]]] = []
        self.choices = 0
        """How often there was more than one step to choose from."""

    async def admit(self, actor: str, kind: str, n: int) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parked.append(((actor, kind, n), future))
        self._pump_soon()
        await future

    def _pump(self) -> None:
        loop: Any = asyncio.get_running_loop()
        if loop._ready:
            loop.call_soon(self._pump)
            return
        self._parked = [(step, future) for step, future in self._parked if not future.done()]
        deadline = self.next_deadline is not None
        among = len(self._parked) + deadline
        if not among:
            self._pumping = False
            return
        self.choices += among > 1
        place = self._chance.randrange(among)
        if place == len(self._parked):
            self._fire()
        else:
            step, future = self._parked.pop(place)
            self.steps.append(step)
            future.set_result(None)
        loop.call_soon(self._pump)
