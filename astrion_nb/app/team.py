"""The public team: what a script, a magic or a button uses.

``Team`` belongs to the event loop it is first used on; it opens its conversation, its models and
its runtime when the first thing is asked of it, and puts them away in :meth:`Team.close`. It knows
no Jupyter: waiting in a cell, threads and views are others' matter.

Source: interfaces, section Python; decisions 13–24, 29, 31, 55, 56.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import (
    AgentNotFound,
    ConfigError,
    QuestionError,
    RunFailed,
    StorageError,
    TeamBusy,
    TeamError,
)
from ..events import ConversationStarted, Event, QuestionClosed, RunEnded, Stamped
from ..home import Home
from ..ids import HUMAN_ID, LEADER_ID
from ..messages import Usage
from ..prompts import base_prompt
from ..runtime.limits import Limits
from ..runtime.order import Live
from ..runtime.team import Ports, TeamRuntime
from ..state import Question, TeamState, summary
from ..tools.registry import Tool, tool
from .config import Config
from .result import AgentInfo, QuestionInfo, TeamResult, agent_info, question_infos, team_result
from .wiring import Models, Roles, shared_gate

if TYPE_CHECKING:
    from ..llm.model import Model
    from ..roles import Role
    from ..store.saving import Conversation

REST_BEFORE_SETTLING = 2.0
"""Seconds of rest after which the documents are written (decision 27)."""


class Team:
    """A team of agents.

    Parameters
    ----------
    title : str, optional
        Default: the first line of the task.
    roles : sequence of str or Role, optional
        Restrict the team to these; default: every role of the agents directory.
    model : str or Model, optional
        Key of the leader's and the default model, or a model object such as a ``ScriptedModel``.
    all_models : str, optional
        Key of every agent's model, whatever a role or the leader says.
    leader : {"model", "human"}
        With ``human`` no leader model is called; the caller plays the leader.
    mode : {"fast", "thinking", "deep"}
    conversation : str, optional
        Id of a stored conversation to go on with.
    replay, record : path, optional
        A cassette to play, or to write.
    permission : {"ask", "read-only", "auto"}
        What tools that touch the world may do.
    tools : sequence of callable or Tool
        Further tools; plain functions are made tools.
    limits : Limits
    home : path or Home, optional
        Default: ``ASTRION_HOME``.
    language : {"zh", "en"}, optional
    human : bool, optional
        Whether a person can answer questions; default: when somebody listens to :meth:`events` or
        a view is attached.
    durability : {"sync", "relaxed"}
    config : Config, optional
        Everything configured, read already.

    Examples
    --------
    >>> async def main() -> str:
    ...     async with Team(model="openai") as team:
    ...         result = await team.run("Compare three ways to cache a web page.")
    ...         return result.text
    """

    def __init__(
        self,
        title: str | None = None,
        *,
        roles: Sequence[str | Role] | None = None,
        model: str | Model | None = None,
        all_models: str | None = None,
        leader: Literal["model", "human"] = "model",
        mode: Literal["fast", "thinking", "deep"] = "fast",
        conversation: str | None = None,
        replay: str | Path | None = None,
        record: str | Path | None = None,
        permission: Literal["ask", "read-only", "auto"] = "ask",
        tools: Sequence[Tool | Callable[..., Any]] = (),
        limits: Limits | None = None,
        home: str | Path | Home | None = None,
        language: Literal["zh", "en"] | None = None,
        human: bool | None = None,
        durability: Literal["sync", "relaxed"] = "sync",
        project_path: str | Path | None = None,
        config: Config | None = None,
    ) -> None:
        for name, value, allowed in (
            ("leader", leader, ("model", "human")),
            ("mode", mode, ("fast", "thinking", "deep")),
            ("permission", permission, ("ask", "read-only", "auto")),
        ):
            if value not in allowed:
                raise ConfigError(f"{name} is {value!r}; use one of {', '.join(allowed)}")
        key = model if isinstance(model, str) else None
        flags = {"model": key, "all_models": all_models, "replay": replay, "record": record, "language": language}
        place = home if isinstance(home, Home) or home is None else Home(home)
        self.config = config or Config.load(place, flags=flags)
        self.title = title
        self.leader = leader
        self.mode = mode
        self.permission = permission
        self.limits = limits or Limits()
        self.human = human
        self.attended = False
        """Set by whoever attaches a view through which a person can answer."""
        self._roles = Roles(self.config, roles)
        self._models = Models(self.config, None if isinstance(model, str) else model, self._roles.ids)
        self._tools = tuple(item if isinstance(item, Tool) else tool(item) for item in tools)
        self._conversation_id = conversation
        self._durability = durability
        self._project_path = str(Path(project_path or ".").resolve())
        self._runtime: TeamRuntime | None = None
        self._conversation: Conversation | None = None
        self._session: Any = None
        self._opening: asyncio.Lock | None = None
        self._log: list[Stamped] = []
        self._listeners: set[asyncio.Queue[Stamped | None]] = set()
        self._views: list[Callable[[Stamped], None]] = []
        self._settling: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._unanswered: list[str] = []
        self._closed = False

    # -- opening and closing ------------------------------------------------------------

    async def __aenter__(self) -> Team:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> TeamRuntime:
        """Open the conversation, once; everything else does it by itself.

        Raises
        ------
        ConfigError, NoModelError
            No model, an unknown key, a wrong setting.
        ConversationNotFound, ConversationLocked, ConversationBroken
            The conversation to go on with cannot be used.
        """
        if self._closed:
            raise TeamError("this team is closed; make another, or go on with %%team --continue")
        if self._runtime is not None:
            return self._runtime
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if self._runtime is None:
                self._runtime = await self._open()
        return self._runtime

    async def _open(self) -> TeamRuntime:
        from ..store.conversations import ConversationStore
        from ..tools.leader import LEADER_TOOLS
        from ..tools.member import MEMBER_TOOLS
        from .cassettes import attach

        self._session = attach(self.config, self._models)
        order = self._session.order if self._session is not None else Live()
        language = self._session.language if self._session is not None else None
        self._roles.prepare()
        if self.leader == "human" and self._conversation_id is None and not self._roles.chosen:
            raise ConfigError("a person leads: say which roles to create, with --roles a,b or Team(roles=[…])")
        store = ConversationStore(self.config.home, durability=self._durability, clock=order.now)
        fresh = self._conversation_id is None
        if fresh:
            key = self._models.default_key()
            self._models.get(key)
            conversation = store.create()
        else:
            assert self._conversation_id is not None
            conversation = store.open(self._conversation_id)
        self._conversation = conversation
        state = conversation.state
        words = state.language if not fresh else language or self.config.language
        ports = Ports(
            journal=conversation,
            order=order,
            model=self._models.get,
            choose_model=self._models.choose,
            cost=self._models.cost,
            load_role=self._roles.load,
            list_roles=self._roles.list,
            gate=shared_gate,
            member_prompt=base_prompt("member", "zh" if words == "zh" else "en").text,
            home=self.config.home,
            human_can_act=self._human_can_act,
        )
        runtime = TeamRuntime(
            state,
            ports,
            leader_tools=(*LEADER_TOOLS, *self._tools),
            member_tools=(*MEMBER_TOOLS, *self._tools),
            limits=self.limits,
        )
        runtime.bus.subscribe(self._observe)
        if fresh:
            system = base_prompt("leader", "zh" if words == "zh" else "en").text
            runtime.bus.publish(
                ConversationStarted(
                    conversation.id,
                    self.title or "",
                    self._project_path,
                    key,
                    self.mode,
                    self.leader,
                    words,
                    system,
                )
            )
        else:
            runtime.restore()
        return runtime

    async def close(self) -> None:
        """Put the team away: running agents are interrupted, waiting ones wait on, files are at rest.

        May be called more than once.
        """
        if self._closed:
            return
        self._closed = True
        if self._settling is not None:
            self._settling.cancel()
        runtime, conversation = self._runtime, self._conversation
        try:
            if runtime is not None:
                await _ended(runtime.shut())
            for task in tuple(self._tasks):
                await asyncio.wait({task})
            if conversation is not None:
                await conversation.close()
        finally:
            for queue in tuple(self._listeners):
                queue.put_nowait(None)
            await self._models.close()
            if self._session is not None:
                self._session.close()

    def _human_can_act(self) -> bool:
        if self.human is not None:
            return self.human
        return self.attended or bool(self._listeners)

    def _observe(self, stamped: Stamped) -> None:
        event = stamped.event
        if stamped.t:
            self._log.append(stamped)
        for queue in self._listeners:
            queue.put_nowait(stamped)
        for view in self._views:
            view(stamped)
        if isinstance(event, RunEnded):
            self._settle_soon()
        elif isinstance(event, QuestionClosed) and "no person can act" in event.reason:
            self._unanswered.append(f"{event.question_id}: {self.state.questions[event.question_id].content}")

    def _settle_soon(self) -> None:
        if self._settling is not None:
            self._settling.cancel()
        loop = asyncio.get_running_loop()
        self._settling = loop.call_later(REST_BEFORE_SETTLING, self._settle)

    def _settle(self) -> None:
        runtime, conversation = self._runtime, self._conversation
        if runtime is None or conversation is None or runtime.running or self._closed:
            return
        task = asyncio.get_running_loop().create_task(self._write_documents(conversation))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write_documents(self, conversation: Conversation) -> None:
        try:
            await conversation.settle()
        except StorageError as error:
            assert self._runtime is not None
            self._runtime.fatal = self._runtime.fatal or error

    # -- working ------------------------------------------------------------------------

    async def start(self, text: str) -> None:
        """Give the team a task and return once it is on disk; the team works on.

        Raises
        ------
        TeamBusy
            The team is at work.
        """
        if not text.strip():
            raise ConfigError("the task is empty; say what the team is to do")
        runtime = await self.open()
        await runtime.admit_human()
        if runtime.state.run_status == "running":
            raise TeamBusy("the team is at work: write to it with %send leader …, or end it with %astrion stop")
        self._unanswered.clear()
        runtime.begin_run("" if self.title else summary(text))
        if self.leader == "human":
            for role_id in self._roles.chosen:
                runtime.port.create(self._roles.load(role_id), None, text, source="user")
        else:
            runtime.say(text)
        await runtime.bus.durable()

    async def run(self, text: str, *, timeout: float | None = None) -> TeamResult:
        """Give the team a task and wait until everybody rests.

        Parameters
        ----------
        text : str
        timeout : float, optional
            Seconds after which the team is stopped (``status == "timed_out"``).

        Returns
        -------
        TeamResult

        Raises
        ------
        TeamBusy
            The team is at work.
        RunFailed
            The leader failed; ``error.result`` holds what there is.
        StorageError
            The conversation cannot be saved.
        """
        await self.start(text)
        try:
            return await self.wait(timeout=timeout)
        except asyncio.CancelledError:
            if self._runtime is not None:
                await _ended(self._runtime.stop_all("stopped", "the caller was cancelled"))
            raise

    async def wait(self, *, timeout: float | None = None) -> TeamResult:
        """Wait until everybody rests and what happened is on disk; see :meth:`run`."""
        runtime = await self.open()
        try:
            async with asyncio.timeout(timeout):
                await runtime.rest()
        except TimeoutError:
            await _ended(runtime.stop_all("timed_out", f"no end after {timeout:g} seconds"))
            await runtime.bus.durable()
        result = self.result()
        if result.status == "failed":
            raise RunFailed(f"the run failed: {result.error or 'see the transcript'}", result)
        return result

    def result(self) -> TeamResult:
        """Return how the last run ended, or what there is of a running one."""
        return team_result(self.state, tuple(self._unanswered))

    async def ask(self, target: int | str, text: str, *, timeout: float | None = None) -> str:
        """Ask an agent (speaking as Team Leader) or the leader, and wait for the answer.

        Parameters
        ----------
        target : int or str
            Display name, id, or ``leader``.
        text : str
        timeout : float, optional
            Seconds; without it there is no limit while the agent lives.

        Raises
        ------
        AgentNotFound, AgentTerminated
        WouldDeadlock
            The agent waits for the person already.
        QuestionError
            There will be no answer: the agent failed, was ended, or the time is over.
        """
        if not text.strip():
            raise ConfigError("the question is empty")
        runtime = await self.open()
        await runtime.admit_human()
        if _is_leader(target):
            return await self._ask_leader(runtime, text, timeout)
        agent, _ = runtime.port.find(target)
        question = runtime.ask_as_human(agent.agent_id, text)
        try:
            async with asyncio.timeout(timeout):
                await runtime.bus.durable()
                question = await runtime.waits.answered(question.id)
        except TimeoutError:
            await self._withdraw(runtime, question)
            raise QuestionError(f"{agent.display_name} gave no answer within {timeout:g} seconds") from None
        except asyncio.CancelledError:
            runtime.waits.close(question, "the person does not wait any more")
            raise
        if question.status == "answered":
            await runtime.bus.durable()
            return question.answer
        raise QuestionError(f"no answer from {agent.display_name}: {question.reason}")

    async def _withdraw(self, runtime: TeamRuntime, question: Question) -> None:
        await runtime.admit_human()
        runtime.waits.close(question, "the person does not wait any more")

    async def _ask_leader(self, runtime: TeamRuntime, text: str, timeout: float | None) -> str:
        if self.leader == "human":
            raise TeamError("you are the leader of this team: ask an agent, by name")
        runtime.begin_run(summary(text))
        future = runtime.ask_leader(text)
        await runtime.bus.durable()
        try:
            async with asyncio.timeout(timeout):
                answer = await future
        except TimeoutError:
            raise QuestionError(f"the leader gave no answer within {timeout:g} seconds; it works on") from None
        await runtime.bus.durable()
        return answer

    async def send(self, target: int | str, text: str) -> str:
        """Send a message to an agent (speaking as Team Leader) or to the leader; returns the envelope's id.

        An agent at work gets it before its next model request; one at rest begins a new task. Where
        a person leads, naming a role creates its next agent.

        Raises
        ------
        AgentNotFound, AgentTerminated
        """
        if not text.strip():
            raise ConfigError("the message is empty")
        runtime = await self.open()
        await runtime.admit_human()
        if _is_leader(target):
            runtime.begin_run(summary(text))
            message_id = runtime.say(text)
        else:
            message_id = self._send(runtime, target, text)
        await runtime.bus.durable()
        return message_id

    def _send(self, runtime: TeamRuntime, target: int | str, text: str) -> str:
        try:
            return str(runtime.port.send(HUMAN_ID, target, text)["message_id"])
        except AgentNotFound:
            role = self._roles.match(str(target)) if self.leader == "human" else None
            if role is None:
                raise
        runtime.begin_run(summary(text))
        made = runtime.port.create(role, None, text, source="user")
        return next(item.id for item in runtime.state.agents[made["agent_id"]].pending)

    async def answer(self, question_id: str, text: str) -> None:
        """Answer an open question that waits for the person (or for the leader, whom the person may speak for).

        Raises
        ------
        QuestionError
            Unknown, answered already, expired, or put to somebody else.
        """
        runtime = await self.open()
        await runtime.admit_human()
        runtime.port.answer(HUMAN_ID, None, question_id, text)
        await runtime.bus.durable()

    async def stop(self, agent: int | str | None = None, reason: str = "") -> None:
        """Stop the whole team, or one agent; everybody stays addressable."""
        runtime = await self.open()
        await runtime.admit_human()
        if agent is None or _is_leader(agent):
            tasks = runtime.stop_all("stopped", reason)
        else:
            found, _ = runtime.port.find(agent)
            task = runtime.agent(found.agent_id).task
            runtime.port.stop_agent(HUMAN_ID, agent, reason)
            tasks = [task] if task is not None else []
        await _ended(tasks)
        await runtime.bus.durable()

    async def terminate(self, agent: int | str) -> None:
        """Terminate an agent for good; its files stay."""
        runtime = await self.open()
        await runtime.admit_human()
        found, _ = runtime.port.find(agent)
        task = runtime.agent(found.agent_id).task if found.agent_id != LEADER_ID else None
        runtime.port.terminate(HUMAN_ID, agent)
        await _ended([task] if task is not None else [])
        await runtime.bus.durable()

    async def retry(self) -> tuple[str, ...]:
        """Revive the agents that failed, after an endpoint's outage; returns their names."""
        runtime = await self.open()
        await runtime.admit_human()
        revived = runtime.revive_failed()
        await runtime.bus.durable()
        return revived

    # -- looking ------------------------------------------------------------------------

    async def events(self, since: int = 0) -> AsyncIterator[Event]:
        """Yield events as they happen, after those of this process with a number above ``since``.

        Ends when the team is closed.
        """
        queue: asyncio.Queue[Stamped | None] = asyncio.Queue()
        for stamped in self._log:
            if stamped.seq > since:
                queue.put_nowait(stamped)
        self._listeners.add(queue)
        try:
            while not (self._closed and queue.empty()):
                stamped_or_end = await queue.get()
                if stamped_or_end is None:
                    return
                yield stamped_or_end.event
        finally:
            self._listeners.discard(queue)

    def watch(self, view: Callable[[Stamped], None]) -> Callable[[], None]:
        """Call ``view`` with every event, on the team's loop; returns what ends it."""
        self._views.append(view)
        return lambda: self._views.remove(view) if view in self._views else None

    @property
    def state(self) -> TeamState:
        """The conversation's state; read only, on the team's loop."""
        return self._runtime.state if self._runtime is not None else TeamState()

    @property
    def conversation_id(self) -> str:
        """Id of the conversation, empty before it is opened."""
        return self._conversation.id if self._conversation is not None else self._conversation_id or ""

    @property
    def running(self) -> bool:
        """Whether a run is under way."""
        return self.state.run_status == "running"

    @property
    def agents(self) -> tuple[AgentInfo, ...]:
        """The sub-agents as they are now."""
        return tuple(agent_info(self.state, agent) for agent in self.state.members())

    @property
    def questions(self) -> tuple[QuestionInfo, ...]:
        """The open questions that wait for the person."""
        return question_infos(self.state, for_human=True)

    @property
    def usage(self) -> Usage:
        """All tokens of the conversation."""
        return self.state.usage()

    @property
    def cost(self) -> float | None:
        """What the conversation has cost, or ``None`` where a price is missing."""
        return self._runtime.cost() if self._runtime is not None else None

    @property
    def transcript(self) -> str:
        """The conversation as plain text."""
        from ..render.transcript import transcript_text

        return transcript_text(self.state)


def _is_leader(target: int | str) -> bool:
    return str(target).strip().strip("\"'").casefold() in ("leader", "team leader")


async def _ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait until cancelled turns are over, whatever they end with."""
    if tasks:
        await asyncio.wait(set(tasks))
