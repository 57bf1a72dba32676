"""Our side: the public ``Team``, as a script uses it, with everything on.

Sync durability on a real disk, one subscriber that reads every event, the endpoint configured by environment as a
person would. :class:`OursViewed` has the live view attached as well. Knows no budget.
"""

from __future__ import annotations

import asyncio
import os
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
        result = await self.team.run(TASK)
        return answers(self.team), result.text

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


class OursViewed(Ours):
    """The same with the live view attached."""
