"""A team that a test conducts: every answer and every tool call waits until the test lets it go.

``Conductor`` is the model of all agents and the tool ``act`` that they call. While a call of ``act`` is
open the test makes its agent do something, through the very port that tools are given: write, ask, stop.
So any order of answers, ends of tools, messages, stops and revivals can be played, in the process or with
the strict server in between. What was accepted from whom is noted, and every request is compared with it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from support.strict_rules import offers, violations_of
from support.strict_server import StrictServer
from support.strict_server import calls as wired_calls
from support.strict_server import status as wired_status
from support.strict_server import text as wired_text
from support.teams import BOUND, Rig, rig
from support.virtual import VirtualOrder

from astrion_nb.envelope import parse
from astrion_nb.errors import AstrionError, EnvelopeError, ModelRefused
from astrion_nb.events import MessageAppended, QuestionPassed, Stamped, StatusChanged
from astrion_nb.ids import HUMAN_ID, LEADER_ID
from astrion_nb.llm.model import Finished, ModelRequest, StreamEvent, TextDelta
from astrion_nb.llm.openai import OpenAIModel
from astrion_nb.llm.wire import wire_messages
from astrion_nb.messages import Message, ToolCall, Usage
from astrion_nb.status import shown
from astrion_nb.tools.registry import ToolContext, tool

Calls = tuple[tuple[str, str], ...]
PART = "part "
"""How the task of a member begins; its number follows."""


class Act:
    """An open call of ``act``: waits for what to do, or for its end."""

    def __init__(self, context: ToolContext) -> None:
        self.context = context
        self.deeds: asyncio.Queue[Callable[[ToolContext], Any] | Exception | None] = asyncio.Queue()


class Conductor:
    """A team of a leader and members, and all that is said in it; make it inside a running loop.

    Parameters
    ----------
    choices : list of int
        What models answer: of each number, modulo :attr:`kinds`, 0 is a text, 1 to 3 so many parallel
        calls of ``act``, 4 two of them between calls that end at once or fail, 5 a failure. A text when used up.
    server : StrictServer or None
        Where requests go; ``None``: they are answered in the process.
    members, kinds : int

    Attributes
    ----------
    faults : list of str
        What was wrong with a request.
    asked, heard_between, found : Counter
        Requests by agent; messages by agent that came while it had open calls; how members stood when they were
        written to.
    """

    key = endpoint = "conducted"

    def __init__(self, choices: list[int], server: StrictServer | None = None, *, members: int = 3, kinds: int = 5):
        self.choices = choices[::-1]
        self.kinds = kinds
        self.members = range(1, members + 1)
        self.faults: list[str] = []
        self.asked: Counter[int] = Counter()
        self.heard_between: Counter[int] = Counter()
        self.found: Counter[str] = Counter()
        self.stops = self.revivals = 0
        self.released = False
        self._acts: dict[int, list[Act]] = defaultdict(list)
        self._gates: dict[int, list[asyncio.Future[None]]] = defaultdict(list)
        self._in_flight: Counter[int] = Counter()
        self._words: dict[str, int] = {}
        self._told: dict[int, list[str]] = defaultdict(list)
        self._due: Counter[int] = Counter()
        self._longest: dict[int, int] = {}
        self._asleep: set[int] = set()
        self._planned: dict[int, Calls | str | None] = {}
        self._count = 0
        self._changed = asyncio.Event()
        self._inner: OpenAIModel | None = None
        if server is not None:
            self._inner = OpenAIModel("conducted", model="m", base_url=server.url, api_key="k")
            server.on_request = self._serve
        self.order = VirtualOrder(busy=lambda: self._under_way > 0)
        self._under_way = 0
        act = tool(name="act", description="Act.", side_effects=False)(self._act)
        self.rig: Rig = rig(self, tools=(act,), order=self.order)
        self.team = self.rig.team
        self.team.bus.subscribe(self._note)

    # -- the model of everybody ---------------------------------------------------------------

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        number = next(n for n, agent in self.team.state.agents.items() if agent.display_name == request.actor)
        self._look(number, request)
        self._in_flight[number] += 1
        if self._in_flight[number] > 1:
            self.faults.append(f"{number} is asked {self._in_flight[number]} times at once")
        try:
            reply: Calls | str | None
            if self.asked[number] == 1 and number == LEADER_ID:
                reply = tuple(
                    (
                        "create_sub_agent",
                        f'{{"agent_id": {n}, "role_id": "ui-operator", "task": "{PART}{n}", "timeout_seconds": 0}}',
                    )
                    for n in self.members
                )
            else:
                if not self.released:
                    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._gates[number].append(gate)
                    self._changed.set()
                    try:
                        await gate
                    finally:
                        self._gates[number].remove(gate)
                reply = self._pick()
            async for event in self._answer(number, reply, request):
                yield event
        finally:
            self._in_flight[number] -= 1

    def _pick(self) -> Calls | str | None:
        what = self.choices.pop() % self.kinds if self.choices and not self.released else 0
        if what == 5:
            return None
        if what == 4:
            return (
                ("list_active_sub_agents", "{}"),
                ("act", "{}"),
                ("act", '{"when": "now"}'),
                ("act", "{}"),
                ("no", ""),
            )
        return (("act", "{}"),) * what or f"Result {len(self.rig.events)}."

    async def _answer(
        self, number: int, reply: Calls | str | None, request: ModelRequest
    ) -> AsyncIterator[StreamEvent]:
        if self._inner is not None:
            self._planned[number] = reply
            self._under_way += 1
            try:
                async for event in self._inner.stream(request):
                    yield event
            finally:
                self._under_way -= 1
                self._changed.set()
        elif reply is None:
            raise ModelRefused("401")
        elif isinstance(reply, str):
            yield TextDelta(reply)
            yield Finished(reply, (), "stop", Usage(1, 1))
        else:
            self._count += 1
            made = tuple(ToolCall(f"c{self._count}_{place}", *one) for place, one in enumerate(reply))
            yield Finished("", made, "tool_calls", Usage(1, 1))

    def _serve(self, body: dict[str, Any], _: int) -> Any:
        number = LEADER_ID
        if not offers(body, "create_sub_agent"):
            first = next(message["content"] for message in body["messages"] if message["role"] == "user")
            number = int(parse(first).content.removeprefix(PART))
        reply = self._planned[number]
        if reply is None:
            return wired_status(401)
        return wired_text(reply) if isinstance(reply, str) else wired_calls(*reply)

    async def close(self) -> None:
        if self._inner is not None:
            await self._inner.close()

    # -- what a request has to hold -------------------------------------------------------------

    def _look(self, number: int, request: ModelRequest) -> None:
        """Compare a request with what was said and done; what is wrong is noted: an error would be the endpoint's."""
        self.asked[number] += 1
        where = f"request {self.asked[number]} of {number}"
        body = {"model": "m", "stream": True, "messages": wire_messages(request.messages)}
        self.faults += [f"{where}: {fault}" for fault in violations_of(body)]
        said, told = self._said(request.messages), self._told[number]
        if said != told[: len(said)]:
            self.faults.append(f"{where} holds {said}, told was {told}")
        if len(said) < self._due[number]:
            self.faults.append(f"{where} lacks {told[len(said) : self._due[number]]}")
        if request.messages[-1].role not in ("user", "tool"):
            self.faults.append(f"{where} ends with what the agent said itself")
        if len(request.messages) <= self._longest.get(number, 0):
            self.faults.append(f"{where} holds nothing that the last one did not")
        self._longest[number] = len(request.messages)
        if number in self._asleep:
            self.faults.append(f"{where}: it was stopped, and nobody has told it anything since")

    def _said(self, messages: Any) -> list[str]:
        return [word for message in messages if message.role == "user" and (word := _content(message)) in self._words]

    def _note(self, stamped: Stamped) -> None:
        event = stamped.event
        if isinstance(event, MessageAppended) and event.message.role == "tool":
            if not self.team.state.agents[event.agent_id].open_calls:
                self._due[event.agent_id] = len(self._told[event.agent_id])
        elif isinstance(event, StatusChanged) and event.status == "running":
            self._due[event.agent_id] = len(self._told[event.agent_id])
        elif isinstance(event, QuestionPassed) and self.released:
            asyncio.get_running_loop().call_soon(self.answer_as_person)

    # -- what happens -----------------------------------------------------------------------------

    async def _act(self, context: ToolContext) -> str:
        act = Act(context)
        self._acts[context.agent_id].append(act)
        try:
            while not (self.released and act.deeds.empty()):
                deed = await act.deeds.get()
                if isinstance(deed, Exception):
                    raise deed
                if deed is None:
                    break
                try:
                    result = deed(context)
                    if asyncio.iscoroutine(result):
                        await result
                except AstrionError:
                    pass  # refused: by then there is nobody, or it would wait for ever
            return "ended"
        finally:
            self._acts[context.agent_id].remove(act)

    def begin(self) -> None:
        """Let the person begin; the leader creates the members."""
        self.team.begin_run("go")
        self.say()

    def say(self) -> None:
        """Let the person write to the leader."""
        self._tell(LEADER_ID, self.team.person.say)

    def do(self, deed: str, by: int, to: int) -> None:
        """Let an agent, or the person, do something; nothing happens where it cannot."""
        if by == HUMAN_ID:
            self._as_person(deed, to)
        elif (acts := self._acts[by]) and (by or to):
            acts[to % len(acts)].deeds.put_nowait(lambda context: self._as_agent(context, deed, to))

    def _as_person(self, deed: str, to: int) -> None:
        port = self.team.port
        if to == LEADER_ID:
            self.say()
        elif to in self.team.state.agents:
            if deed == "stop":
                self._stop(to, lambda: port.stop_agent(HUMAN_ID, to, "enough"))
            elif deed == "ask":
                try:
                    self._tell(to, lambda text: self.team.person.ask(to, text))
                except AstrionError:
                    pass  # it waits for the person itself
            else:
                self._tell(to, lambda text: port.send(HUMAN_ID, to, text))

    def _as_agent(self, context: ToolContext, deed: str, to: int) -> Any:
        me, port = context.agent_id, context.team
        if me == LEADER_ID and deed == "stop":
            return self._stop(to, lambda: port.stop_agent(me, to, "enough"))
        if me == LEADER_ID and deed == "send":
            return self._tell(to, lambda text: port.send(me, to, text))
        if me != LEADER_ID and to != LEADER_ID and deed == "send":
            return self._tell(to, lambda text: port.notify(me, to, text, None))
        name = "ask_sub_agent" if me == LEADER_ID else "ask_other_agent" if to else "ask_master"
        return self._ask(to, lambda text: port.ask(me, to, text, None, call_id=context.call_id, tool=name))

    @contextmanager
    def _telling(self, to: int) -> Iterator[str]:
        """Give a new word for somebody; it counts as told unless that is refused."""
        word = f"word {len(self._words) + 1}"
        self._words[word] = to
        self._told[to].append(word)
        asleep = to in self._asleep
        self._asleep.discard(to)
        agent = self.team.state.agents[to]
        between = bool(agent.open_calls)
        self.found[shown((agent.status, agent.detail))] += to != LEADER_ID
        self.heard_between[to] += between
        try:
            yield word
        except AstrionError:
            self._told[to].remove(word)
            self.heard_between[to] -= between
            if asleep:
                self._asleep.add(to)
            raise

    def _tell(self, to: int, how: Callable[[str], Any]) -> None:
        with self._telling(to) as word:
            how(word)

    async def _ask(self, to: int, how: Callable[[str], Any]) -> None:
        with self._telling(to) as word:
            await how(word)

    def _stop(self, to: int, how: Callable[[], Any]) -> Any:
        at_work = self.team.state.agents[to].status in ("running", "waiting")
        result = how()
        if at_work:
            self.stops += 1
            self._asleep.add(to)
        return result

    def stop_all(self) -> None:
        """Let the person stop the whole team."""
        at_work = [n for n in self.members if n in self.team.state.agents]
        at_work = [n for n in at_work if self.team.state.agents[n].status in ("running", "waiting")]
        self.team.stop_all("stopped", "all")
        self.stops += len(at_work)
        self._asleep |= set(at_work)

    def revive(self) -> None:
        """Let the person try again with those who failed."""
        for number, agent in self.team.state.agents.items():
            if agent.detail == "failed":
                self._longest[number] = 0  # who failed is asked the same again
        self.revivals += len(self.team.revive_failed())

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when a condition on the requests holds."""

        async def look() -> None:
            while not condition():
                self._changed.clear()
                await self._changed.wait()

        await asyncio.wait_for(look(), BOUND)

    def all_ask(self) -> bool:
        """Say whether the leader and every member waits for an answer."""
        return all(self._gates[number] for number in (LEADER_ID, *self.members))

    def nothing_under_way(self) -> bool:
        """Say whether no request is at the server."""
        return not self._under_way

    def let_answer(self, number: int) -> None:
        """Let the answer that an agent waits for come."""
        for gate in self._gates[number][:1]:
            if not gate.done():
                gate.set_result(None)

    def end_call(self, number: int, place: int, *, failing: bool = False) -> None:
        """Let an open call of an agent end."""
        if acts := self._acts[number]:
            acts[place % len(acts)].deeds.put_nowait(ValueError("broken") if failing else None)

    def answer_as_person(self) -> None:
        """Let the person answer the first question that waits for it."""
        for question in self.team.state.open_questions():
            if question.answerer == HUMAN_ID:
                self.team.port.answer(HUMAN_ID, None, question.id, "so")
                break

    async def finish(self) -> None:
        """Let everything come to its end, and tell everybody a last word."""
        self.released = True
        for number in (LEADER_ID, *self.members):
            self.let_answer(number)
            for act in self._acts[number]:
                act.deeds.put_nowait(None)
        while any(question.answerer == HUMAN_ID for question in self.team.state.open_questions()):
            self.answer_as_person()
        await asyncio.wait_for(self.team.rest(), BOUND)
        self.faults += [
            f"{agent.display_name} has completed, and {item.id} waits in its mailbox"
            for agent in self.team.state.members()
            if agent.status == "completed"
            for item in agent.pending
            if item.wakes
        ]
        self.say()  # a new run, in which nobody that was stopped goes on by itself
        await asyncio.wait_for(self.team.rest(), BOUND)
        for number in self.members:
            if number in self.team.state.agents:
                self._as_person("send", number)
        await asyncio.wait_for(self.team.rest(), BOUND)

    def unheard(self) -> list[str]:
        """Return what somebody did not hear just once, in the order it was said."""
        return [
            f"{number} was told {told} and heard {heard}"
            for number, told in self._told.items()
            if number in self.team.state.agents
            and (heard := self._said(self.team.state.agents[number].messages)) != told
        ]


def _content(message: Message) -> str:
    text = message.content or ""
    try:
        return parse(text).content
    except EnvelopeError:
        return text
