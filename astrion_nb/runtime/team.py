"""The running team: its agents, its runs, and how they end.

All of it belongs to one event loop. Methods without ``async`` change state on the spot and are
called right after an admitted step. The parts that this class wires: the bus, the order port, the
post, the waits, the limits, what tools and the person may do; what it is given from outside comes
as :class:`Ports`.

Knows no file, no Jupyter, no vendor.

Source: decisions 1, 2, 9, 11, 13–18, 21–24, 55–58; tool definitions §3.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from .. import given
from ..errors import ConfigError, TeamError
from ..events import QuestionReminded, RunEnded, RunStarted, StatusChanged
from ..ids import HUMAN_ID, LEADER_ID
from ..state import AgentState, TeamState
from ..tools.registry import Tool, toolbox
from .agent import Agent
from .bus import Bus
from .limits import Limits, Slots
from .notes import note
from .order import Timer
from .person import Person
from .port import Port
from .ports import Ports
from .post import Post
from .restoring import go_on, restore
from .waits import Waits

GRACE = 0.1
"""Seconds after which a loop that cancelled an agent has ended, or has not."""
BACK = 0.5
"""Seconds in which a person who stopped to listen may begin again, before nothing waits for a person any more."""
_SLOWED = "; the endpoint asks to slow down (429, too many requests)"
Outcome = Literal["completed", "failed", "stopped", "timed_out", "interrupted"]


class TeamRuntime:
    """A team at work on one conversation.

    Parameters
    ----------
    state : TeamState
        Fresh after ``ConversationStarted``, or loaded.
    ports : Ports
    leader_tools, member_tools : sequence of Tool
        Offered by audience.
    limits : Limits
    """

    def __init__(
        self,
        state: TeamState,
        ports: Ports,
        *,
        leader_tools: Sequence[Tool],
        member_tools: Sequence[Tool],
        limits: Limits,
    ) -> None:
        self.ports = ports
        self.order = ports.order
        self.limits = limits
        self.bus = Bus(state, ports.journal, ports.order.now)
        self.post = Post(self)
        self.person = Person(self)
        self.waits = Waits(self.bus, self.post.deliver, ports.order.now, ports.human_can_act, self._wait_changed)
        # A replay admits requests in the recorded order; a response that never came must not hold a slot.
        self.slots = Slots(None if ports.order.replaying else limits.max_active_agents)
        self.jitter = random.Random()
        self.port = Port(self)
        self.agents: dict[int, Agent] = {}
        self._leader_tools = toolbox("leader", leader_tools)
        self._member_tools = toolbox("member", member_tools)
        self._prompts: dict[str, str] = {}
        self.talking: set[int] = set()
        """Sub-agents that are in the middle of an answer."""
        self.halted: set[asyncio.Task[None]] = set()
        """Turns that were ended from outside, and put away what they had in hand."""
        self._busy = 0
        self._leader_down = ""
        self._outcome: Outcome | None = None
        self._run_error = ""
        self._aside = ""
        """What the person is told beside the error; the agents are told nothing of it."""
        self._run_text = ""
        self.ending = False
        """Whether all turns are being ended, or the team was put away: nobody goes on by himself."""
        self.unread: frozenset[str] = frozenset()
        """Messages that begin a turn and were in a mailbox when the conversation was loaded, until the first run."""
        self._rest: asyncio.Future[None] | None = None
        self._waiters = 0
        self._deadlines = 0
        self.fatal: Exception | None = None

    @property
    def state(self) -> TeamState:
        """The conversation's state; read only."""
        return self.bus.state

    @property
    def language(self) -> str:
        """``zh`` or ``en``."""
        return self.bus.state.language

    @property
    def running(self) -> bool:
        """Whether any agent works or waits."""
        return self._busy > 0

    # -- agents -------------------------------------------------------------------------

    def agent(self, number: int) -> Agent:
        """Return the running part of an agent, making it when it was only stored."""
        found = self.agents.get(number)
        if found is None:
            state = self.state.agents[number]
            if number == LEADER_ID and self.state.leader == "human":
                found = self.agents[number] = Agent(self, state, _NoModel(), self._leader_tools)
                return found
            tools = self._leader_tools if number == LEADER_ID else self._member_tools
            offers = self.ports.offers(state.model_key)
            if offers is not None:
                tools = tools.without(item.name for item in tools if item.scope == "team" and item.name not in offers)
            found = self.agents[number] = Agent(self, state, self.ports.model(state.model_key), tools)
        return found

    def shared(self, text: str) -> str:
        """Return a system prompt as the one object that all agents of a role hold."""
        return self._prompts.setdefault(text, text)

    # -- runs ---------------------------------------------------------------------------

    def begin_run(self, title: str) -> None:
        """Begin to work for the person; a run that goes on is left alone.

        Raises
        ------
        TeamError
            What happens can no longer be saved.
        """
        if self.fatal is not None:
            raise TeamError(f"this team cannot go on ({self.fatal}); open its conversation again")
        if self.state.run_status == "running":
            return
        self._leader_down, self._outcome, self._run_error, self._run_text, self._aside = "", None, "", "", ""
        for agent in self.agents.values():
            agent.requests_in_run = 0
        self.bus.publish(RunStarted(self.state.run + 1, title))
        asyncio.get_running_loop().call_soon(go_on, self)

    def busy(self, *, resume: bool) -> None:
        """Count an agent that begins to work."""
        if self._busy == 0 and not resume:
            self.begin_run("")
        self._busy += 1

    def rested(self) -> None:
        """Count an agent that came to rest; the last one ends the run (decision 14)."""
        self._busy -= 1
        if self._busy == 0:
            self.end_run()
        elif self._busy == 1 and LEADER_ID in self.agents:
            self.agents[LEADER_ID].arrived()  # it may be waiting for others to report

    def others_rest(self) -> bool:
        """Say whether nobody works but the one who asks."""
        return self._busy <= 1

    def _wait_changed(self, number: int) -> None:
        agent = self.agent(number)
        agent.wait_changed()
        if agent.task is None and agent.state.open_calls and not self.ending:
            agent.wake(resume=True)  # its answer came while nobody worked on its turn

    def leader_ended(self, text: str) -> None:
        """The leader's turn has ended: answer who asked it, see to the questions it left (decision 18)."""
        self._run_text = text
        self.person.answer(text)
        for question in self.waits.unanswered(LEADER_ID):
            if question.reminded:
                self.waits.pass_to_human(question)
            else:
                self.bus.publish(QuestionReminded(question.id))
                told = note("reminder", self.language, id=question.id)
                self.post.inform(LEADER_ID, told, wakes=True, about=question.asker)

    def leader_broke(self, detail: str, reason: str) -> None:
        """The leader failed or was stopped: agents go on, but wake it no more in this run."""
        self._leader_down = detail
        self._run_error = reason
        self.person.answer_nobody(f"the leader's turn {detail}: {reason}")
        if not self.ending:
            for question in self.state.open_questions():
                if question.answerer == LEADER_ID:
                    self.waits.pass_to_human(question)

    def leader_up(self) -> None:
        """The person speaks to the leader: what it could not do before counts no more."""
        self._leader_down = self._run_error = ""

    @property
    def leader_is_down(self) -> bool:
        """Whether the leader has failed or was stopped in this run, and answers nobody."""
        return bool(self._leader_down)

    def terminated(self, agent: Agent, *, tell: bool) -> None:
        """An agent has ended for good (decision 22)."""
        self.bus.publish(StatusChanged(agent.id, "terminated"))
        if tell:
            self.post.report(agent, "message", note("terminated", self.language), status="terminated")

    def cut_off(self, agent: Agent) -> None:
        """An agent's task was cancelled from outside, as when the loop ends: it is put away (decision 29).

        Should the loop go on after all, so does whoever is waited for.
        """
        self._outcome = self._outcome or "interrupted"
        self._leader_down = self._leader_down or "interrupted"
        if agent.state.status == "waiting":
            agent.detach()
        else:
            agent.halt("interrupted", "its task was cancelled")
        asyncio.get_running_loop().call_later(GRACE, go_on, self)

    def check_budget(self, agent: Agent) -> None:
        """Raise :class:`BudgetExceeded` when the agent may make no further request."""
        limits = self.limits
        everybody = 0 if limits.max_team_turns is None else sum(one.requests_in_run for one in self.agents.values())
        limits.check_turns(agent.requests_in_run, everybody)
        if limits.bounds_spending:
            limits.check_team(self.state.usage(), self.cost())
            limits.check_agent(agent.state.tokens, self.cost([agent.state]))

    def cost(self, agents: Iterable[AgentState] | None = None) -> float | None:
        """Return what some agents (or all) have cost, or ``None`` where a price is missing."""
        counted = [item for one in agents or self.state.agents.values() for item in one.usage.items()]
        parts = [self.ports.cost(key, usage) for key, usage in counted]
        return None if None in parts else sum(part for part in parts if part is not None)

    def end_run(self) -> None:
        """Everybody rests: the run is over."""
        if self.state.run_status == "running":
            outcome = self._outcome
            if outcome is None:
                outcome = (
                    "stopped" if self._leader_down == "stopped" else "failed" if self._leader_down else "completed"
                )
            self.bus.publish(RunEnded(self.state.run, outcome, self._run_text, self._run_error + self._aside))
        if self._rest is not None and not self._rest.done():
            self._rest.set_result(None)
        self._rest = None

    async def rest(self) -> None:
        """Return when everybody rests and what happened is on disk.

        Raises
        ------
        StorageError
            It could not be saved.
        """
        self._waiters += 1
        try:
            if self._busy:
                self.person_left()
            while self._busy:
                if self._rest is None:
                    self._rest = asyncio.get_running_loop().create_future()
                await asyncio.shield(self._rest)
        finally:
            self._waiters -= 1
        if self.fatal is not None:
            raise self.fatal
        await self.bus.durable()

    def person_left(self) -> None:
        """Look soon whether a person can act: a person who left may come back, and one who waits begin to listen."""
        asyncio.get_running_loop().call_later(BACK, self._nobody_acts)

    def _nobody_acts(self) -> None:
        """End what waits for a person where none can act, if somebody waits for the run (decision 55)."""
        if self._waiters and self._busy and not self.ending:
            self.waits.nobody_acts()

    def limit_run(self, seconds: float) -> Timer:
        """End the run when so many seconds have passed; a deadline of the order port, so it replays."""
        self._deadlines += 1
        number, reason = self._deadlines, f"no end after {given.seconds_text(seconds)}"
        return self.order.at("team", number, seconds, lambda: self._late(number, reason))

    def _late(self, number: int, reason: str) -> None:
        if self.state.run_status == "running":
            asked = [agent.model.endpoint for agent in self.agents.values() if agent.task is not None]
            if self.ports.noted(f"slowed {number}", any(self.ports.gate(endpoint).slowed for endpoint in asked)):
                self._aside = _SLOWED
            self.stop_all("timed_out", reason)

    def stop_all(self, outcome: Outcome, reason: str = "") -> list[asyncio.Task[None]]:
        """End every turn; returns the tasks to await. What is reported meanwhile wakes nobody."""
        self._outcome, self._run_error, self._leader_down = outcome, reason, outcome
        self.ending = True
        tasks = []
        for agent in sorted(self.agents.values(), key=lambda item: item.id):
            task = agent.halt("stopped", reason, tell=not agent.is_leader and self.state.leader == "model")
            if task is not None:
                tasks.append(task)
        self.ending = False
        return tasks

    def revive_failed(self) -> tuple[str, ...]:
        """Wake the agents that failed; they go on from where their history ends."""
        failed = [state.agent_id for state in self.state.agents.values() if state.detail == "failed"]
        if failed:
            self.begin_run("")
            self._leader_down = ""
        for number in failed:
            self.agent(number).wake()
        return tuple(self.state.name_of(number) for number in failed)

    def shut(self) -> list[asyncio.Task[None]]:
        """Put the team away: who works is interrupted, who waits for an answer waits on (decision 29)."""
        self._outcome = self._leader_down = "interrupted"
        self.ending = True
        for question in self.waits.waits_for(HUMAN_ID):
            self.waits.close(question, "the team was closed")
        self.person.answer_nobody("the team was closed")
        tasks = []
        for agent in sorted(self.agents.values(), key=lambda item: item.id):
            waiting = agent.state.status == "waiting"
            task = agent.detach() if waiting else agent.halt("interrupted", "the team was closed")
            if task is not None:
                tasks.append(task)
        return tasks

    def restore(self) -> None:
        """After loading: nobody works, so nobody is shown at work; who waited waits again (decision 29)."""
        restore(self)

    def abort(self, error: Exception) -> None:
        """What happens can no longer be saved: end everything, keep what is in memory."""
        if self.fatal is None:
            self.fatal = error
            self.stop_all("failed", str(error))


class _NoModel:
    """Stands where a person leads: there is no model to ask."""

    key = ""
    endpoint = ""

    def stream(self, request: Any) -> Any:
        raise ConfigError("a person leads this team; there is no leader model")

    async def close(self) -> None:
        return
