"""Scripts for the public team, and what a test waits for in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from astrion_nb import Team
from astrion_nb.home import Home
from astrion_nb.testing import ScriptedModel, call, say, until_message

from .teams import BOUND

ROLE = "ui-operator"
NAME = "UI Operator_1"
NEVER = until_message(say("Nobody writes, so nobody reads this."))


def create(number: int = 1, role: str = ROLE, task: str = "Draw a button.", **more: object) -> Any:
    return call("create_sub_agent", agent_id=number, role_id=role, task=task, **more)


def one_helper(*helper: Any, end: str = "All done.") -> ScriptedModel:
    """A leader who hands the work to one helper."""
    return ScriptedModel(
        {
            "Team Leader": [create(), say("I wait."), say(end)],
            NAME: list(helper) or [say("A blue button.")],
        }
    )


async def until(team: Team, condition: Callable[[Team], bool]) -> None:
    """Return when a condition on the team holds."""
    met = asyncio.Event()
    cancel = team.watch(lambda _: met.set() if condition(team) else None)
    try:
        if not condition(team):
            await asyncio.wait_for(met.wait(), BOUND)
    finally:
        cancel()


async def asked(model: ScriptedModel, count: int) -> None:
    """Return when the model has been asked so often."""
    while len(model.requests) < count:  # noqa: ASYNC110, a model announces nothing
        await asyncio.sleep(0)


def results(team: Team, agent: int = 0) -> list[str]:
    """Return the tool results that an agent has, in their order."""
    return [m.content or "" for m in team.state.agents[agent].messages if m.role == "tool"]


def called(team: Team, agent: int = 0) -> list[str]:
    """Return the names of the tools that these are the results of."""
    messages = team.state.agents[agent].messages
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    return [names[m.tool_call_id or ""] for m in messages if m.role == "tool"]


def conversations() -> list[Path]:
    folder = Home().conversations
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
