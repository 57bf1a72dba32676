"""What a leader that wakes waits for: completions that come close together join one request.

Not in a replay, which knows what came when. Knows no model and no message's text; whether the leader wakes
at all is the agent's own matter.

Source: decision 57.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .agent import Agent

WAKE_DELAY = 0.05
"""Seconds that a leader's wake waits for further completions (decision 57)."""
LONGEST_WAKE_DELAY = 0.5


async def gather_wakes(agent: Agent, arrived: asyncio.Event) -> None:
    """Let completions that come close together join one request (decision 57).

    Parameters
    ----------
    agent : Agent
        The leader.
    arrived : asyncio.Event
        Set when a message comes, and when only the leader is left at work.
    """
    order = agent.team.order
    if order.replaying:
        return
    end = order.monotonic() + LONGEST_WAKE_DELAY
    until, waking = order.monotonic() + WAKE_DELAY, _waking(agent)
    while not _urgent(agent) and not agent.team.others_rest():
        left = min(until, end) - order.monotonic()
        if left <= 0:
            break
        arrived.clear()
        pair = {asyncio.ensure_future(order.sleep(left)), asyncio.ensure_future(arrived.wait())}
        try:
            await asyncio.wait(pair, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for future in pair:
                future.cancel()
        if _waking(agent) > waking or (agent.team.talking and order.monotonic() >= until):
            # Who is in the middle of an answer is likely to complete next: an extra turn of the
            # leader would cost more than the wait, which has its own bound.
            until, waking = order.monotonic() + WAKE_DELAY, _waking(agent)


def _waking(agent: Agent) -> int:
    return sum(1 for item in agent.state.pending if item.wakes)


def _urgent(agent: Agent) -> bool:
    return any(item.kind in ("human", "ask") or item.source == "runtime" for item in agent.state.pending)
