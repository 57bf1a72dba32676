"""A running team for tests: the real runtime on a scripted or real model, without files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from support.journals import NoJournal

from astrion_nb.errors import RoleError
from astrion_nb.events import ConversationStarted, Stamped
from astrion_nb.llm.model import Model
from astrion_nb.runtime.bus import Journal
from astrion_nb.runtime.limits import Gate, Limits
from astrion_nb.runtime.order import Live, Order
from astrion_nb.runtime.ports import Ports
from astrion_nb.runtime.team import TeamRuntime
from astrion_nb.state import TeamState
from astrion_nb.tools.leader import LEADER_TOOLS
from astrion_nb.tools.member import MEMBER_TOOLS
from astrion_nb.tools.registry import Tool

BOUND = 5.0
"""Seconds that a test may wait for anything."""


@dataclass(frozen=True)
class PlainRole:
    """A role that is not a file."""

    id: str
    name: str
    model: str | None = None
    thinking_mode: str | None = None
    description: str = ""
    prompt: str = "You do your part."
    preset: bool = False

    def system_prompt(self, base: str) -> str:
        return f"{base}\n\n{self.prompt}"


ROLES = {
    role.id: role
    for role in (
        PlainRole("ui-operator", "UI Operator"),
        PlainRole("full-stack-engineer", "Full-Stack Engineer"),
        PlainRole("planner-zh", "规划"),
        PlainRole("odd", "C++ & <QA>"),
    )
}


@dataclass
class Rig:
    """A team and everything that was published."""

    team: TeamRuntime
    events: list[Stamped] = field(default_factory=list)

    async def run(self, text: str) -> TeamState:
        """Say something to the leader and wait for rest."""
        await self.team.person.admit()
        self.team.begin_run(text)
        self.team.person.say(text)
        await asyncio.wait_for(self.team.rest(), BOUND)
        return self.team.state

    async def until(self, condition: Callable[[TeamState], bool]) -> None:
        """Return when the state meets a condition; fails after the bound."""
        if condition(self.team.state):
            return
        met = asyncio.Event()

        def look(_: Stamped) -> None:
            if condition(self.team.state):
                met.set()

        cancel = self.team.bus.subscribe(look)
        try:
            await asyncio.wait_for(met.wait(), BOUND)
        finally:
            cancel()

    def kinds(self, *types: type[Any]) -> list[Any]:
        """Return the published events of some types."""
        return [stamped.event for stamped in self.events if isinstance(stamped.event, types)]


def rig(
    model: Model | Mapping[str, Model],
    *,
    tools: tuple[Tool, ...] = (),
    limits: Limits | None = None,
    leader: str = "model",
    human: bool = True,
    language: str = "en",
    order: Order | None = None,
    prices: Callable[[str, Any], float | None] | None = None,
    journal: Journal | None = None,
    state: TeamState | None = None,
) -> Rig:
    """Make a team, fresh or on a state that was loaded; call it inside a running loop."""
    models: Mapping[str, Model] = model if isinstance(model, Mapping) else {model.key: model}
    first = next(iter(models))
    order = order or Live()
    gates: dict[str, Gate] = {}

    def choose(asked: str | None, role_model: str | None, conversation: str) -> tuple[str, str]:
        key = asked or role_model or conversation
        if key not in models:
            raise RoleError(f"unknown model {key!r}; known are {', '.join(models)}")
        return key, ""

    def load_role(role_id: str) -> PlainRole:
        if role_id not in ROLES:
            raise RoleError(f"there is no role {role_id!r}; known are {', '.join(ROLES)}")
        return ROLES[role_id]

    @dataclass
    class Found:
        roles: list[PlainRole]
        errors: list[Exception]

    ports = Ports(
        journal=journal or NoJournal(),
        order=order,
        model=lambda key: models[key],
        choose_model=choose,
        cost=prices or (lambda key, usage: None),
        load_role=load_role,
        list_roles=lambda: Found(list(ROLES.values()), []),
        gate=lambda endpoint: gates.setdefault(endpoint, Gate(order)),
        member_prompt=lambda key: "你是智能体集群团队的一员",
        home=None,
        human_can_act=lambda: human,
    )
    team = TeamRuntime(
        state or TeamState(),
        ports,
        leader_tools=(*LEADER_TOOLS, *tools),
        member_tools=(*MEMBER_TOOLS, *tools),
        limits=limits or Limits(),
    )
    made = Rig(team)
    team.bus.subscribe(made.events.append)
    if state is None:
        team.bus.publish(ConversationStarted("conv_test", "", "", first, "fast", leader, language, "You lead."))  # type: ignore[arg-type]
    return made


def go(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run an async test within a bound."""

    async def bounded() -> Any:
        return await asyncio.wait_for(main(), 4 * BOUND)

    return asyncio.run(bounded())
