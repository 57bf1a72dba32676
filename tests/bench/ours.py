"""Our side: the public ``Team``, as a script uses it, with everything on.

Sync durability on a real disk, one subscriber that reads every event, the endpoint configured by environment as a
person would. :class:`OursViewed` has the live view attached as well. Knows no budget.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import tracemalloc
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cells import Cell

if TYPE_CHECKING:
    from astrion_nb.app.team import Team

TASK = "Please get all the work items done."
ROLE = """---
id: worker
name: Worker
description: Echoes, then answers.
---

You are a worker. Use the echo tool, then answer.
"""


def prepare_home(home: Path | None = None) -> None:
    """Put the workers' role into a home; default: that of the environment."""
    agents = (home or Path(os.environ["ASTRION_HOME"])) / "mutiagents" / "agents"
    agents.mkdir(parents=True, exist_ok=True)
    (agents / "worker.md").write_text(ROLE, encoding="utf-8")


def make(home: Path | None = None, *, max_active_agents: int | None = None) -> Team:
    """Return a new team whose workers can echo."""
    from astrion_nb.app.team import Team
    from astrion_nb.runtime.limits import Limits
    from astrion_nb.tools.registry import tool

    @tool(audience="member", side_effects=False)
    async def echo(text: str) -> str:
        """Echo the text."""
        return text

    return Team(model="openai", tools=(echo,), limits=Limits(max_active_agents=max_active_agents), home=home)


def answers(team: Team) -> list[str]:
    """Return the last text of every worker that ended well."""
    return [agent.last_text for agent in team.agents if agent.status == "completed"]


def deep_size(value: Any, seen: set[int]) -> int:
    """Return the bytes of a plain value with all that it holds and ``seen`` does not."""
    if id(value) in seen or value is None or isinstance(value, (bool, type)):
        return 0
    seen.add(id(value))
    size = sys.getsizeof(value)
    if isinstance(value, dict):
        return size + sum(deep_size(part, seen) for item in value.items() for part in item)
    if isinstance(value, (list, tuple)):
        return size + sum(deep_size(part, seen) for part in value)
    if is_dataclass(value):
        return size + sum(deep_size(getattr(value, part.name), seen) for part in fields(value))
    return size


class Ours:
    """A team per fan-out; nothing outlives it but what the package itself keeps."""

    delegate = "create_sub_agent"
    team: Team

    def load(self) -> None:
        """Import what is public; the SDK comes with the first request."""
        import astrion_nb.app.team  # noqa: F401  (its cost is what is measured)

    async def setup(self, base_url: str, home: Path) -> None:
        """Configure the endpoint and the role."""
        os.environ |= {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": "sk-bench", "OPENAI_MODEL": "gpt-4o-mini"}
        self.home = home
        prepare_home(home)

    async def fanout(self, cell: Cell) -> tuple[list[str], str]:
        """Make a team, listen to it, give it the task."""
        self.team = make(self.home)
        self.events = 0
        self.listening = asyncio.create_task(self._listen(self.team))
        self.started(self.team)
        result = await self.team.run(TASK)
        return answers(self.team), result.text

    def started(self, team: Team) -> None:
        """Look at the new team in no further way."""

    async def _listen(self, team: Team) -> None:
        async for _ in team.events():
            self.events += 1

    async def end(self) -> dict[str, Any]:
        """Close the team: its documents are written, its connections are given up."""
        await self.team.close()
        await self.listening
        return {"events": self.events}

    async def close(self) -> None:
        """Leave nothing behind."""

    async def at_rest(self, agents: int) -> tuple[int, int]:
        """Return the bytes that a team of so many agents at rest holds, and those of its messages among them.

        Few work at a time, so that what connections hold does not grow with the team.
        """
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        team = make(self.home, max_active_agents=16)
        await team.run(TASK)
        # Idle is what is at rest: the documents that a run's end begins to write are written by then.
        await team._opened.conversation.settle()
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before
        seen: set[int] = set()
        messages = sum(deep_size(agent.messages, seen) for agent in team.state.agents.values())
        if answers(team) != ["lorem"] * agents:
            raise RuntimeError(f"{len(answers(team))} of {agents} agents came to rest with their answer")
        await team.close()
        return held, messages


class OursViewed(Ours):
    """The same with the live view attached, over a comm that packs what it sends and drops it."""

    async def setup(self, base_url: str, home: Path) -> None:
        """Configure as before, and let widgets talk through recording comms."""
        import recording_comm

        recording_comm.install()
        self.traffic = recording_comm.TRAFFIC
        await super().setup(base_url, home)

    async def fanout(self, cell: Cell) -> tuple[list[str], str]:
        """Let the team have a view before it gets its task."""
        self.traffic.reset()
        return await super().fanout(cell)

    def started(self, team: Team) -> None:
        """Attach the view."""
        from astrion_nb.widgets.team import TeamView

        loop = asyncio.get_running_loop()
        self.view = TeamView(team, commands=lambda kind, payload: None, call=loop.call_soon_threadsafe)

    async def end(self) -> dict[str, Any]:
        """Settle and close the view as well; add what went to the page."""
        self.view.settle()
        self.view.close()
        figures = await super().end()
        sent = {
            "view_messages": self.traffic.messages,
            "view_bytes": self.traffic.size,
            "view_opening": self.traffic.opening,
        }
        if not self.traffic.messages:
            raise RuntimeError("the view sent nothing")
        return figures | sent
