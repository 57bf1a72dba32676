"""Every kind of wait, a row each, and teams that wait in circles, in chains and for each other.

A node of a circle is ``leader``, ``human`` or the number of an agent. A new kind of wait joins the
suites by a row in :data:`WAITS`: who waits for whom, and the tool that makes it wait.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from support.improvised import settle
from support.teams import Rig, rig
from support.virtual import VirtualOrder, Watched

from astrion_nb.errors import AstrionError
from astrion_nb.events import Stamped
from astrion_nb.ids import HUMAN_ID, LEADER_ID
from astrion_nb.llm.model import ModelRequest
from astrion_nb.llm.scripted import ScriptedModel, Step, call, say
from astrion_nb.runtime.limits import Limits
from astrion_nb.state import TeamState
from astrion_nb.testing import invariants

Node = int | str
LEADER = "Team Leader"
GO = "begin to ask"


@dataclass(frozen=True)
class Wait:
    """One kind of wait.

    Parameters
    ----------
    name : str
    asker, target : str
        ``agent``, ``leader`` or ``human``.
    led : bool or None
        Whether a person leads the team; ``None`` for both.
    tool : callable or None
        Makes the tool call from the target's number and the question; ``None`` where the person asks.
    """

    name: str
    asker: str
    target: str
    led: bool | None
    tool: Callable[[int, str], Step] | None


WAITS = (
    Wait("ask_other_agent", "agent", "agent", None, lambda number, text: call(
        "ask_other_agent", target_agent_id=number, content=text, message_id="")),
    Wait("ask_master", "agent", "leader", False, lambda _, text: call("ask_master", question=text, question_id="")),
    Wait("ask_sub_agent", "leader", "agent", False, lambda number, text: call(
        "ask_sub_agent", agent_id=number, question=text, question_id="")),
    Wait("the person's ask", "human", "agent", None, None),
    Wait("ask_master of a person who leads", "agent", "human", True, lambda _, text: call(
        "ask_master", question=text, question_id="")),
    Wait("a question that the leader left to the person", "agent", "human", False, lambda _, text: call(
        "ask_master", question=text, question_id="")),
)  # fmt: skip


def kind_of(node: Node) -> str:
    return node if isinstance(node, str) else "agent"


def wait_between(asker: Node, target: Node, *, led: bool) -> Wait | None:
    """Return the kind of wait by which a node waits for another in such a team, if there is one."""
    for wait in WAITS:
        if (wait.asker, wait.target) == (kind_of(asker), kind_of(target)) and wait.led in (None, led):
            return wait
    return None


def circles(longest: int) -> list[tuple[bool, tuple[Node, ...]]]:
    """Return every circle of 2 to so many nodes, once for each node that may close it.

    Agents alone, with the leader, with a person who leads, and with a person to whom the leader leaves
    questions. The last node of each closes the circle by waiting for the first.
    """
    found: list[tuple[bool, tuple[Node, ...]]] = []
    for length in range(2, longest + 1):
        found.append((False, tuple(range(1, length + 1))))
        for special, led in (("leader", False), ("human", True), ("human", False)):
            circle: tuple[Node, ...] = (special, *range(1, length))
            found += [(led, circle[turn:] + circle[:turn]) for turn in range(length)]
    return found


def name_of(node: Node) -> str:
    return LEADER if node == "leader" else "human" if node == "human" else f"UI Operator_{node}"


def number_of(node: Node) -> int:
    return LEADER_ID if node == "leader" else HUMAN_ID if node == "human" else int(node)


class Circle:
    """A team in which each node, once it is asked, asks the next.

    Parameters
    ----------
    nodes : sequence
        Who asks whom, the first asking the second; the last one asks ``end``.
    led : bool
        Whether a person leads.
    closed : bool
        Whether the last one asks the first; else it answers.
    limits : Limits
    """

    def __init__(self, nodes: Sequence[Node], *, led: bool, closed: bool = True, limits: Limits | None = None) -> None:
        self.nodes = tuple(nodes)
        self.led = led
        self.next: dict[Node, Node] = dict(zip(self.nodes, self.nodes[1:], strict=False))
        if closed:
            self.next[self.nodes[-1]] = self.nodes[0]
        self.asked: set[Node] = set()
        self.refused: dict[Node, str] = {}
        self.order = VirtualOrder()
        agents = [node for node in self.nodes if isinstance(node, int)]
        self.agents = max(agents)
        plays = {name_of(node): [self._member(node)] * 60 for node in agents}
        self.model = Watched(ScriptedModel({LEADER: [self._lead] * 60, **plays}, check_on_close=False))
        self.made: Rig = rig(
            self.model,
            order=self.order,
            limits=limits or Limits(max_active_agents=1),
            leader="human" if led else "model",
        )
        self.faults: list[str] = []
        self.made.team.bus.subscribe(self._look)

    @property
    def state(self) -> TeamState:
        return self.made.team.state

    def _look(self, _: Stamped) -> None:
        self.faults += invariants.faults_of(self.state, settled=False)

    def _ask(self, node: Node) -> Step:
        self.asked.add(node)
        target = self.next[node]
        wait = wait_between(node, target, led=self.led)
        assert wait is not None
        assert wait.tool is not None
        return wait.tool(number_of(target), f"{name_of(node)} asks")

    def _told_to(self, node: Node, request: ModelRequest) -> bool:
        """Say whether a node is to ask now: it was told to begin, or asked by the one before it."""
        if node in self.asked or node not in self.next:
            return False
        asks = any("的提问\n" in (m.content or "") for m in request.messages if m.role == "user")
        return asks or any(GO in (m.content or "") for m in request.messages if m.role == "user")

    def _member(self, node: Node) -> Callable[[ModelRequest], Step]:
        return lambda request: self._ask(node) if self._told_to(node, request) else say(f"{name_of(node)} says so.")

    def _lead(self, request: ModelRequest) -> Step:
        return self._ask("leader") if "leader" in self.nodes and self._told_to("leader", request) else say("Ok.")

    async def set_up(self) -> None:
        """Create the agents and let everybody come to rest."""
        team = self.made.team
        role = team.port.load_role("ui-operator")
        team.begin_run("Go")
        for number in range(1, self.agents + 1):
            team.port.create(role, number, "Get ready.", timeout=60.0, source="user" if self.led else "team_leader")
        await team.rest()
        assert all(agent.status == "completed" for agent in self.state.members())

    def begin(self) -> None:
        """Let the first node ask."""
        first = self.nodes[0]
        team = self.made.team
        if first == "human":
            self.human_asks()
        elif first == "leader":
            team.begin_run("")
            team.person.say(GO)
        else:
            team.port.send(HUMAN_ID if self.led else LEADER_ID, number_of(first), GO)

    def human_asks(self) -> None:
        """Let the person ask the next node; a refusal is kept."""
        self.asked.add("human")
        try:
            self.made.team.person.ask(number_of(self.next["human"]), "the human asks")
        except AstrionError as error:
            self.refused["human"] = str(error)

    async def play(self) -> None:
        """Go on until everybody rests; the person asks when asked, and answers whatever then is left."""
        await self.set_up()
        self.begin()
        while True:
            await self.made.until(lambda state: state.run_status != "running" or bool(self._for_person(state)))
            waiting = self._for_person(self.state)
            if "human" in self.next and "human" not in self.asked and waiting:
                self.human_asks()
            elif waiting:
                self.made.team.port.answer(HUMAN_ID, None, waiting[0], "the human answers")
            else:
                await self.made.team.rest()
                return
            # Whoever was waited for goes on before the person looks again.
            await settle()

    def _for_person(self, state: TeamState) -> list[str]:
        return [question.id for question in state.open_questions() if question.answerer == HUMAN_ID]

    def result(self, node: Node) -> dict[str, Any]:
        """Return the result of a node's ask."""
        agent = self.state.agents[number_of(node)]
        made = [c.id for m in agent.messages for c in m.tool_calls if c.name.startswith("ask_")]
        assert len(made) == 1
        (content,) = [m.content for m in agent.messages if m.tool_call_id == made[0]]
        value = json.loads(content or "")
        assert isinstance(value, dict)
        return value
