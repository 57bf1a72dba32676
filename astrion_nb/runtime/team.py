"""The running team: agents, deliveries, runs, and what tools may do with them.

All of it belongs to one event loop. Methods without ``async`` change state on the spot and are
called right after an admitted step. The parts that this class wires: the bus, the order port, the
waits, the limits; what it is given from outside comes as :class:`Ports`.

Knows no file, no Jupyter, no vendor.

Source: decisions 1, 2, 9, 11, 13–18, 21–24, 55–58; tool definitions §3.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..envelope import KINDS, Kind
from ..errors import ConfigError, TeamError
from ..events import (
    MessageQueued,
    PendingMessage,
    QuestionReminded,
    RunEnded,
    RunStarted,
    Source,
    StatusChanged,
)
from ..ids import HUMAN_ID, LEADER_ABBREVIATION, LEADER_ID, well_formed
from ..llm.model import Model
from ..messages import Usage
from ..state import AgentState, Question, TeamState
from ..tools.registry import RoleLike, Tool, toolbox
from .agent import Agent
from .bus import Bus, Journal
from .limits import Gate, Limits, Slots
from .names import title_of
from .notes import note
from .order import Order, Timer
from .port import Port
from .restoring import go_on, restore
from .waits import Waits

GRACE = 0.1
"""Seconds after which a loop that cancelled an agent has ended, or has not."""
Outcome = Literal["completed", "failed", "stopped", "timed_out", "interrupted"]


@dataclass(frozen=True, slots=True)
class Ports:
    """What a team needs from outside.

    Parameters
    ----------
    journal : Journal
    order : Order
    model : callable
        ``model(key)`` returns the :class:`Model`; raises :class:`ConfigError` for an unknown key.
    choose_model : callable
        ``choose_model(asked, role_model, conversation)`` returns the key to use and a warning or ``""``.
    cost : callable
        ``cost(model_key, usage)`` returns the cost, or ``None`` where no price is known.
    load_role, list_roles : callable
    gate : callable
        ``gate(endpoint)`` returns the endpoint's gate, shared in the process.
    member_prompt : callable
        ``member_prompt(model_key)``: the base prompt of sub-agents, in the conversation's language.
    home : object
    human_can_act : callable
        Whether a person could answer a question now.
    offers : callable
        ``offers(model_key)``: the team tools that a small model is offered; ``None`` for all.
    hide : callable
        ``hide(text)`` returns an error's text without the keys that are configured.
    """

    journal: Journal
    order: Order
    model: Callable[[str], Model]
    choose_model: Callable[[str | None, str | None, str], tuple[str, str]]
    cost: Callable[[str, Usage], float | None]
    load_role: Callable[[str], RoleLike]
    list_roles: Callable[[], Any]
    gate: Callable[[str], Gate]
    member_prompt: Callable[[str], str]
    home: Any
    human_can_act: Callable[[], bool]
    offers: Callable[[str], frozenset[str] | None] = lambda key: None
    hide: Callable[[str], str] = lambda text: text


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
        self.waits = Waits(self.bus, self.deliver, ports.order.now, ports.human_can_act, self._wait_changed)
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
        self._busy = 0
        self._leader_down = ""
        self._outcome: Outcome | None = None
        self._run_error = ""
        self._run_text = ""
        self.ending = False
        """Whether all turns are being ended, or the team was put away: nobody goes on by himself."""
        self._rest: asyncio.Future[None] | None = None
        self._human_steps = 0
        self._deadlines = 0
        self._leader_waiters: list[tuple[str, asyncio.Future[str]]] = []
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
            state = self.bus.state.agents[number]
            tools = self._leader_tools if number == LEADER_ID else self._member_tools
            offers = self.ports.offers(state.model_key)
            if offers is not None:
                tools = tools.without(item.name for item in tools if item.scope == "team" and item.name not in offers)
            found = self.agents[number] = Agent(self, state, self.ports.model(state.model_key), tools)
        return found

    # -- deliveries ---------------------------------------------------------------------

    def deliver(self, target: int, item: PendingMessage) -> None:
        """Put a message into a mailbox; wake its owner when it should."""
        # First, because a stored agent's model may be gone: then nothing has happened.
        agent = self.agent(target) if target != LEADER_ID or self.state.leader == "model" else None
        self.bus.publish(MessageQueued(target, item))
        if agent is None:
            self._person_reads()
            return
        agent.arrived()
        if item.wakes and agent.task is None and (target != LEADER_ID or not self._leader_down or item.kind == "human"):
            agent.wake()

    def _person_reads(self) -> None:
        """A person who leads reads at once: the mailbox becomes conversation."""
        leader = self.agents.get(LEADER_ID)
        if leader is None:
            leader = self.agents[LEADER_ID] = Agent(self, self.state.leader_state, _NoModel(), self._leader_tools)
        leader.drain_all()

    def shared(self, text: str) -> str:
        """Return a system prompt as the one object that all agents of a role hold."""
        return self._prompts.setdefault(text, text)

    def post(
        self,
        target: int,
        kind: Kind,
        sender: int,
        text: str,
        *,
        source: Source,
        wakes: bool = True,
        starts_work: bool = False,
        status: str = "",
        message_id: str | None = None,
        notice_from: int | None = None,
    ) -> str:
        """Write an envelope and deliver it; returns its id."""
        state = self.state
        if message_id is None or not well_formed(message_id) or message_id in state.ids:
            short = LEADER_ABBREVIATION if sender <= LEADER_ID else state.agents[sender].abbreviation
            message_id = state.ids.free(KINDS[kind].prefix, "" if kind == "task" else short)
        self.deliver(
            target,
            PendingMessage(
                message_id,
                kind,
                title_of(state, sender),
                sender if sender > LEADER_ID else None,
                text,
                self.order.now(),
                source,
                wakes,
                starts_work,
                status,
                notice_from,
            ),
        )
        return message_id

    def report(self, agent: Agent, kind: Kind, text: str, *, status: str = "") -> None:
        """Send an agent's progress, completion or failure to the leader (decisions 9, 10, 13)."""
        self.post(LEADER_ID, kind, agent.id, text, source="sub_agent", wakes=kind != "progress", status=status)

    def inform(self, target: int, text: str, *, wakes: bool, about: int | None = None) -> None:
        """Say something in the runtime's own name, as an envelope (decision 9)."""
        sender = about if about is not None else LEADER_ID
        self.post(target, "message", sender, text, source="runtime", wakes=wakes)

    def reply_to_notice(self, agent: Agent, sender: int, text: str) -> None:
        """Bring the final text after a notice to who gave it; it wakes nobody (decision 16)."""
        if self.state.agents[sender].status != "terminated":
            self.post(sender, "message", agent.id, text, source="sub_agent", wakes=False)

    # -- runs ---------------------------------------------------------------------------

    def gate(self, endpoint: str) -> Gate:
        """Return the shared gate of an endpoint."""
        return self.ports.gate(endpoint)

    def begin_run(self, title: str) -> None:
        """Begin to work for the person; a run that goes on is left alone."""
        if self.fatal is not None:
            raise TeamError(f"this team cannot go on ({self.fatal}); open its conversation again")
        if self.state.run_status == "running":
            return
        self._leader_down, self._outcome, self._run_error, self._run_text = "", None, "", ""
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
        waiting = {item.id for item in self.state.leader_state.pending}
        for message_id, future in tuple(self._leader_waiters):
            if message_id not in waiting:
                self._leader_waiters.remove((message_id, future))
                if not future.done():
                    future.set_result(text)
        for question in self.waits.unanswered(LEADER_ID):
            if question.reminded:
                self.waits.pass_to_human(question)
            else:
                self.bus.publish(QuestionReminded(question.id))
                told = note("reminder", self.language, id=question.id)
                self.inform(LEADER_ID, told, wakes=True, about=question.asker)

    def leader_broke(self, detail: str, reason: str) -> None:
        """The leader failed or was stopped: agents go on, but wake it no more in this run."""
        self._leader_down = detail
        self._run_error = reason
        self._answer_nobody(f"the leader's turn {detail}: {reason}")
        if not self.ending:
            for question in self.state.open_questions():
                if question.answerer == LEADER_ID:
                    self.waits.pass_to_human(question)

    def _answer_nobody(self, why: str) -> None:
        """Tell the person who asked the leader that there will be no answer."""
        for _, future in self._leader_waiters:
            if not future.done():
                future.set_exception(TeamError(why))
        self._leader_waiters.clear()

    @property
    def leader_is_down(self) -> bool:
        """Whether the leader has failed or was stopped in this run, and answers nobody."""
        return bool(self._leader_down)

    def terminated(self, agent: Agent, *, tell: bool) -> None:
        """An agent has ended for good (decision 22)."""
        self.bus.publish(StatusChanged(agent.id, "terminated"))
        if tell:
            self.report(agent, "message", note("terminated", self.language), status="terminated")

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
            self.bus.publish(RunEnded(self.state.run, outcome, self._run_text, self._run_error))
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
        while self._busy:
            if self._rest is None:
                self._rest = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._rest)
        if self.fatal is not None:
            raise self.fatal
        await self.bus.durable()

    def limit_run(self, seconds: float) -> Timer:
        """End the run when so many seconds have passed; a deadline of the order port, so it replays."""
        self._deadlines += 1
        reason = f"no end after {seconds:g} seconds"
        return self.order.at("team", self._deadlines, seconds, lambda: self._late(reason))

    def _late(self, reason: str) -> None:
        if self.state.run_status == "running":
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
        self._answer_nobody("the team was closed")
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

    # -- the person ---------------------------------------------------------------------

    async def admit_human(self) -> None:
        """Admit a step of the person."""
        self._human_steps += 1
        await self.order.admit("human", "human", self._human_steps)

    def say(self, text: str) -> str:
        """Put the person's own message into the leader's mailbox; returns its id."""
        if self.state.leader == "human":
            raise TeamError("you are the leader of this team: send to an agent, by name")
        self._leader_down = self._run_error = ""
        message_id = self.state.ids.free("msg", "user")
        item = PendingMessage(message_id, "human", "human", None, text, self.order.now(), "user", True, True)
        self.deliver(LEADER_ID, item)
        return message_id

    def ask_leader(self, text: str) -> asyncio.Future[str]:
        """Put a message to the leader; the future holds the final text of the turn that reads it."""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._leader_waiters.append((self.say(text), future))
        return future

    def ask_as_human(self, target: int, text: str) -> Question:
        """Ask an agent as Team Leader (decision 23); the leader is told."""
        question = self.waits.ask(HUMAN_ID, target, text, None, call_id="", tool="human")
        if self.state.leader == "model":
            told = note("human_asked", self.language, id=question.id, text=text)
            self.inform(LEADER_ID, told, wakes=False, about=target)
        return question


class _NoModel:
    """Stands where a person leads: there is no model to ask."""

    key = ""
    endpoint = ""

    def stream(self, request: Any) -> Any:
        raise ConfigError("a person leads this team; there is no leader model")

    async def close(self) -> None:
        return
