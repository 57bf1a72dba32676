"""The clock of an agent's turn: it runs from the turn's start to rest, and stands still while the agent waits.

A deadline of the order port, so that it passes in a replay where it passed in the recording. Knows
nothing of what an agent does.

Source: decisions 20, 55.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import given
from .order import Timer

if TYPE_CHECKING:
    from .agent import Agent


class Clock:
    """How long an agent's turn may still take.

    Parameters
    ----------
    agent : Agent
        Halted when its time is over.
    """

    __slots__ = ("_agent", "_from", "_remaining", "_timer")

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._timer: Timer | None = None
        self._from = 0.0
        self._remaining = 0.0

    def wind(self) -> None:
        """Give the turn its whole time."""
        self._remaining = self._agent.state.timeout

    def start(self) -> None:
        """Let what is left run, unless it runs or there is no limit."""
        agent = self._agent
        if agent.state.timeout > 0 and self._timer is None:
            self._from = agent.team.order.monotonic()
            left = max(0.0, self._remaining)
            self._timer = agent.team.order.at(agent.name, agent.step("timer"), left, self._over)

    def stop(self) -> None:
        """Let it stand still; what is left stays."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._remaining -= self._agent.team.order.monotonic() - self._from

    def _over(self) -> None:
        self._timer = None
        self._agent.halt("timed_out", f"no end after {given.seconds_text(self._agent.state.timeout)}")
