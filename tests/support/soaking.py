"""A team that lives long and is treated badly: hundreds of agents, thousands of envelopes, on a virtual clock.

A *life* is one conversation in real files. Its model improvises by a seed; a person meddles: writes,
asks, answers, stops, terminates, cuts tasks off, closes the whole team and opens it again. Every
invariant is checked at every stage of a life; between two lives everything has been let go, and
what the process then holds is measured.
"""

from __future__ import annotations

import asyncio
import gc
import json
import math
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from support.histories import facts
from support.strict_rules import violations_of
from support.teams import Rig, rig
from support.virtual import START, VirtualOrder

from astrion_nb.errors import (
    AstrionError,
    ContentFiltered,
    ContextOverflow,
    ModelBroken,
    ModelBusy,
    ModelError,
    ModelRefused,
    ModelUnreachable,
)
from astrion_nb.events import (
    AgentCreated,
    ConversationStarted,
    Event,
    MessageQueued,
    QuestionAsked,
    RequestStarted,
    Stamped,
    StatusChanged,
)
from astrion_nb.home import Home
from astrion_nb.ids import HUMAN_ID, LEADER_ID
from astrion_nb.llm.model import Finished, ModelRequest, StreamEvent, TextDelta
from astrion_nb.llm.wire import wire_messages
from astrion_nb.messages import ToolCall, Usage
from astrion_nb.runtime.limits import Limits
from astrion_nb.state import TeamState
from astrion_nb.store.conversations import Conversation, ConversationStore
from astrion_nb.testing import invariants
from astrion_nb.tools.registry import tool

LEADER = "Team Leader"
ROLES = ("ui-operator", "full-stack-engineer", "planner-zh", "odd")
CHECK_EVERY = 64
"""Of so many requests one is held against the rules of a strict endpoint."""


def _error(kind: str) -> Exception:
    made: dict[str, Callable[[], Exception]] = {
        "unreachable": lambda: ModelUnreachable("connection refused"),
        "refused": lambda: ModelRefused("401"),
        "busy": lambda: ModelBusy("429", retry_after=2.0),
        "broken": lambda: ModelBroken("500"),
        "overflow": lambda: ContextOverflow("the prompt is too long"),
        "withheld": lambda: ContentFiltered("withheld"),
        "crash": lambda: RuntimeError("a fault of the model's own"),
    }
    return made[kind]()


COUNTED = (
    *("lives", "envelopes", "requests", "events", "agents", "questions", "stops", "terminations", "cuts", "resumes"),
    *("errors", "failed", "timed_out", "checks"),
)
ERRORS = ("unreachable", "refused", "busy", "broken", "overflow", "withheld", "crash")


class Crowd:
    """The model of everybody.

    Parameters
    ----------
    chance : random.Random
    size : int
        How many agents there are to be.
    """

    key = endpoint = "crowd"

    def __init__(self, chance: random.Random, size: int) -> None:
        self.chance = chance
        self.size = size
        self.order: VirtualOrder | None = None
        self.state: TeamState | None = None
        self.alive: list[int] = []
        """Agents that are not terminated; the driver keeps it."""
        self.unanswered: dict[int, dict[str, int]] = {}
        """Open questions by who is to answer: id and asker; the driver keeps it."""
        self.violations: list[str] = []
        self.calls = 0
        self.made: Counter[str] = Counter()

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        chance = self.chance
        self.made["requests"] += 1
        if self.made["requests"] % CHECK_EVERY == 0:
            body = {"model": "m", "stream": True, "messages": wire_messages(request.messages)}
            self.violations += violations_of(body)
        await asyncio.sleep(0)
        assert self.order is not None
        if chance.random() < 0.2:
            await self.order.sleep(chance.choice((0.2, 2.0, 20.0, 90.0)))
        usage = Usage(chance.randrange(1, 50), chance.randrange(1, 9))
        luck = chance.random()
        if luck < 0.05:
            kind = chance.choice(ERRORS)
            self.made[f"error {kind}"] += 1
            error = _error(kind)
            if kind != "busy" and chance.random() < 0.4:
                yield TextDelta("half a ")
                if isinstance(error, ModelError):
                    error.partial = "half a "
            if isinstance(error, ModelError) and chance.random() < 0.3:
                error.usage = usage
            raise error
        if luck < 0.06:
            self.made["empty answers"] += 1
            yield Finished("", (), "stop", usage)
            return
        if luck < 0.065:
            self.made["broken off"] += 1
            yield TextDelta("cut o")
            yield Finished("cut o", (), "stop", usage, truncated=True)
            return
        calls = self.lead() if request.actor == LEADER else self.work(request.actor)
        text = "" if calls and chance.random() < 0.4 else f"{request.actor} says {chance.randrange(1000)}."
        if text:
            yield TextDelta(text)
        yield Finished(text, tuple(calls), "tool_calls" if calls else "stop", usage)

    def call(self, name: str, **arguments: Any) -> ToolCall:
        self.calls += 1
        return ToolCall(f"c{self.calls}", name, json.dumps(arguments))

    def somebody(self) -> int:
        return self.chance.choice(self.alive) if self.alive and self.chance.random() < 0.97 else 10_000

    def lead(self) -> list[ToolCall]:
        chance, calls = self.chance, []
        for question, asker in list(self.unanswered.get(LEADER_ID, {}).items())[:20]:
            if chance.random() < 0.9:
                calls.append(
                    self.call("answer_sub_agent_question", agent_id=asker, question_id=question, answer="Do it.")
                )
        for _ in range(min(20, self.size - len(self.alive))):
            role = chance.choice(ROLES)
            limit = chance.choice((0, 30, 60, 600))
            background = chance.random() < 0.3
            number = self.calls + 1
            calls.append(
                self.call("create_sub_agent", agent_id=number, role_id=role, task=f"Task {number}",
                          timeout_seconds=limit, run_in_background=background))  # fmt: skip
        for _ in range(chance.choice((0, 0, 1, 4, 8))):
            calls.append(self.call("send_message_to_sub_agent", agent_id=self.somebody(), message="And this."))
        luck = chance.random()
        if luck < 0.1:
            calls.append(self.call("ask_sub_agent", agent_id=self.somebody(), question="Well?", question_id=""))
        elif luck < 0.13:
            calls.append(self.call("stop_sub_agent", agent_id=self.somebody(), reason="enough"))
        elif luck < 0.15:
            calls.append(self.call("terminate_sub_agent", agent_id=self.somebody()))
        return calls

    def work(self, actor: str) -> list[ToolCall]:
        chance = self.chance
        assert self.state is not None
        (me,) = (number for number in self.alive if self.state.agents[number].display_name == actor)
        calls = []
        for question, asker in list(self.unanswered.get(me, {}).items())[:4]:
            if chance.random() < 0.5:
                name = "answer_master" if asker <= LEADER_ID else "answer_other_agent"
                where = {"question_id": question} if asker <= LEADER_ID else {"message_id": question}
                who = {} if asker <= LEADER_ID else {"source_agent_id": asker}
                calls.append(self.call(name, **where, **who, answer="Like this."))
        for _ in range(chance.choice((0, 0, 0, 0, 1, 1, 2))):
            luck = chance.random()
            if luck < 0.3:
                calls.append(self.call("ask_other_agent", target_agent_id=self.somebody(), content="?", message_id=""))
            elif luck < 0.5:
                calls.append(self.call("ask_master", question="May I?", question_id=""))
            elif luck < 0.7:
                calls.append(
                    self.call("ask_other_agent", target_agent_id=self.somebody(), content="fyi", message_id="",
                              expects_answer=False))  # fmt: skip
            elif luck < 0.9:
                calls.append(self.call("touch", what=f"t{self.calls}"))
            elif luck < 0.95:
                calls.append(ToolCall("same", "no_such_tool", "{"))
            else:
                calls.append(self.call("list_active_sub_agents"))
        return calls

    async def close(self) -> None: ...


@dataclass
class Figures:
    """What a soak did, and what it left."""

    lives: int = 0
    envelopes: int = 0
    requests: int = 0
    events: int = 0
    agents: int = 0
    questions: int = 0
    stops: int = 0
    terminations: int = 0
    cuts: int = 0
    resumes: int = 0
    errors: int = 0
    failed: int = 0
    timed_out: int = 0
    checks: int = 0
    virtual_seconds: float = 0.0
    seconds: float = 0.0
    rss: list[float] = field(default_factory=list)
    """MB after each life."""
    objects: list[int] = field(default_factory=list)
    """Objects that the garbage collector knows, after each life."""

    def lines(self) -> list[str]:
        """Return the figures, a line each."""
        out = [f"{name}: {getattr(self, name):,}" for name in COUNTED]
        out += [f"virtual time: {self.virtual_seconds / 3600:.1f} h", f"wall time: {self.seconds:.0f} s"]
        if self.rss:
            out.append(f"RSS at warm-up {self.rss[0]:.1f} MB, at the end {self.rss[-1]:.1f} MB")
            out.append(f"objects at warm-up {self.objects[0]:,}, at the end {self.objects[-1]:,}")
        return out


class Life:
    """One conversation from its beginning to its last close.

    Parameters
    ----------
    home : Path
    seed : int
    agents, envelopes : int
        How many agents there are at a time, and how many envelopes are sent until the life ends.
    figures : Figures
        Added to.
    """

    def __init__(self, home: Path, seed: int, *, agents: int, envelopes: int, figures: Figures) -> None:
        self.chance = random.Random(seed)
        self.store = ConversationStore(Home(home), clock=lambda: START)
        self.crowd = Crowd(self.chance, agents)
        self.wanted = envelopes
        self.figures = figures
        self.sent = 0
        self.ran: Counter[str] = Counter()
        self.asked: list[asyncio.Future[str]] = []
        """What the person waits for of the leader."""
        self.left: dict[str, Any] = {}
        """The state when it was closed."""
        self.made: Rig
        self.conversation: Conversation
        self.order: VirtualOrder

    # -- open and close -----------------------------------------------------------------

    def open(self, conversation_id: str | None) -> None:
        """Open the conversation, new or again, and let the team go on."""
        self.conversation = self.store.create() if conversation_id is None else self.store.open(conversation_id)
        conversation = self.conversation
        self.order = VirtualOrder(busy=lambda: bool(conversation._journal._waiters))
        self.order._time = self.figures.virtual_seconds
        ran = self.ran

        @tool(name="touch", description="Touch something.", side_effects=True)
        async def touch(what: str) -> str:
            ran[what] += 1
            return f"{what} touched"

        self.made = rig(
            self.crowd,
            tools=(touch,),
            order=self.order,
            journal=conversation,
            state=conversation.state,
            limits=Limits(max_turns=None, max_active_agents=16),
        )
        self.crowd.order, self.crowd.state = self.order, conversation.state
        team = self.made.team
        team.bus.subscribe(self._look)
        if conversation_id is None:
            team.bus.publish(ConversationStarted(conversation.id, "", "", "crowd", "fast", "model", "en", "You lead."))
        else:
            found = facts(conversation.state)
            odd = {name: (self.left[name], found[name]) for name in self.left if self.left[name] != found[name]}
            assert not odd, f"what was closed is opened as something else: {odd}"
            self._read(conversation.state)
            invariants.check(conversation.state, settled=False)
            team.restore()
        self.check()

    def _read(self, state: TeamState) -> None:
        self.crowd.alive = [agent.agent_id for agent in state.members() if agent.status != "terminated"]
        self.crowd.unanswered = {}
        for question in state.open_questions():
            self.crowd.unanswered.setdefault(question.answerer, {})[question.id] = question.asker

    def _look(self, stamped: Stamped) -> None:
        """Keep the figures, and what the crowd knows."""
        event: Event = stamped.event
        kind = type(event)
        if kind is RequestStarted:
            self.figures.requests += 1
            return
        if not stamped.t:
            return
        self.figures.events += 1
        if isinstance(event, MessageQueued):
            self.sent += 1
            self.figures.envelopes += 1
        elif isinstance(event, AgentCreated):
            self.crowd.alive.append(event.agent_id)
            self.figures.agents += 1
        elif isinstance(event, StatusChanged):
            if event.status == "terminated":
                self.crowd.alive.remove(event.agent_id)
            self.figures.failed += event.detail == "failed"
            self.figures.timed_out += event.detail == "timed_out"
        elif isinstance(event, QuestionAsked):
            self.figures.questions += 1
            self.crowd.unanswered.setdefault(event.target, {})[event.question_id] = event.asker
        elif event.tag in ("question_answered", "question_closed"):
            for waiting in self.crowd.unanswered.values():
                waiting.pop(event.question_id, None)  # type: ignore[union-attr]

    def check(self) -> None:
        """Check every invariant of the state and of what was published since the conversation was opened."""
        invariants.check(self.conversation.state, self.made.events, self.made.team)
        assert self.crowd.violations == []
        twice = [what for what, count in self.ran.items() if count > 1]
        assert not twice, f"tools with side effects ran twice: {twice[:5]}"
        team = self.made.team
        assert len(team.waits._futures) <= len(self.conversation.state.open_questions())
        self.figures.checks += 1

    async def close(self) -> None:
        """Close the team as a program does that ends; nothing of it may be left."""
        team = self.made.team
        await asyncio.gather(*team.shut(), return_exceptions=True)
        self.check()
        assert not team.running
        assert team.slots.used == 0
        assert all(gate.first(team.slots) == (math.inf, math.inf) for gate in team.slots.gates), "somebody waits"
        assert all(future.done() for future in self.asked), "whoever asked the leader is told how it ended"
        self.asked.clear()
        await self.conversation.close()
        self.left = facts(self.conversation.state)
        self.figures.virtual_seconds = self.order.monotonic()

    # -- living -------------------------------------------------------------------------

    def meddle(self) -> None:
        """Do one thing to the team, as a person does."""
        chance, team, state = self.chance, self.made.team, self.conversation.state
        number = self.crowd.somebody()
        luck = chance.random()
        try:
            if luck < 0.35:
                team.port.send(HUMAN_ID, number, "psst")
            elif luck < 0.5:
                team.person.ask(team.port.find(number)[0].agent_id, "how is it?")
            elif luck < 0.55:
                team.person.say("go on")
            elif luck < 0.6:
                self.asked = [future for future in self.asked if not future.done() or future.exception() is None][-50:]
                self.asked.append(team.person.ask_leader("how far are you?"))
                self.asked[-1].add_done_callback(lambda future: future.exception())
            elif luck < 0.75:
                team.port.stop_agent(HUMAN_ID, number, "enough")
                self.figures.stops += 1
            elif luck < 0.8:
                team.port.terminate(HUMAN_ID, number)
                self.figures.terminations += 1
            elif luck < 0.85:
                running = team.agents.get(number)
                if running is not None and running.task is not None:
                    running.task.cancel()
                    self.figures.cuts += 1
            elif luck < 0.87:
                team.stop_all("stopped", "everybody")
                self.figures.stops += 1
            else:
                for question in state.open_questions()[:10]:
                    if question.answerer == HUMAN_ID:
                        team.port.answer(HUMAN_ID, None, question.id, "so be it")
        except AstrionError:
            pass  # refused: there is no such agent, it is terminated, or it waits for the person

    async def live(self) -> None:
        """Live until enough envelopes were sent; closed at the end."""
        self.open(None)
        reopen_at = [self.wanted * part // 6 for part in range(1, 6)]
        check_at = 0
        self.made.team.begin_run("go")
        self.made.team.person.say("go")
        while self.sent < self.wanted:
            for _ in range(self.chance.randrange(1, 12)):
                await self.order.sleep(self.chance.choice((0.0, 0.1, 1.0)))
            self.meddle()
            if not self.made.team.running:
                self.made.team.begin_run("go on")
                self.made.team.person.say("go on")
            if reopen_at and self.sent >= reopen_at[0]:
                reopen_at.pop(0)
                await self.close()
                self.figures.resumes += 1
                self.open(self.conversation.id)
                check_at = 0
            if len(self.made.events) >= check_at:
                self.check()
                check_at = len(self.made.events) + 4000
        await self.close()
        self.figures.errors += sum(count for name, count in self.crowd.made.items() if name.startswith("error"))


async def soak(
    home: Path,
    seed: int,
    *,
    agents: int,
    envelopes: int,
    go_on: Callable[[Figures], bool],
    told: Callable[[str], None] = lambda line: None,
) -> Figures:
    """Live one life after another, each with a seed of its own, for as long as ``go_on`` says.

    Parameters
    ----------
    home : Path
    seed : int
        Of the first life; each further one has the next.
    agents, envelopes : int
        Of one life.
    go_on : callable
        Asked before each life.
    told : callable
        Called with a line after each life.
    """
    figures, process, began = Figures(), psutil.Process(), time.monotonic()
    threads, tasks = threading.active_count(), len(asyncio.all_tasks())
    while go_on(figures):
        folder, own = home / f"life-{figures.lives}", seed + figures.lives
        await Life(folder, own, agents=agents, envelopes=envelopes, figures=figures).live()
        shutil.rmtree(folder)
        figures.lives += 1
        await asyncio.sleep(0)
        gc.collect()
        figures.rss.append(process.memory_info().rss / 1e6)
        figures.objects.append(len(gc.get_objects()))
        assert len(asyncio.all_tasks()) <= tasks, "nobody works on after a close"
        assert threading.active_count() <= threads, "no thread is left"
        figures.seconds = time.monotonic() - began
        told(f"life {figures.lives} (seed {own}): {'; '.join(figures.lines())}")
    return figures
