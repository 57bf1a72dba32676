"""The public team: what a script, a magic or a button uses.

``Team`` belongs to the event loop it is first used on; it opens its conversation, its models and
its runtime when the first thing is asked of it, and puts them away in :meth:`Team.close`. It knows
no Jupyter: waiting in a cell, threads and views are others' matter.

Source: decisions 13–24, 29, 31, 55, 56.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import (
    AgentNotFound,
    ConfigError,
    QuestionError,
    ReplayMiss,
    RunFailed,
    StorageError,
    TeamBusy,
    TeamError,
)
from ..events import MessageAppended, QuestionClosed, RunEnded, Stamped
from ..home import Home
from ..ids import HUMAN_ID, LEADER_ID
from ..runtime.limits import Limits
from ..runtime.team import TeamRuntime
from ..runtime.waits import NO_PERSON
from ..state import summary
from ..tools.registry import Tool, tool
from .config import Config
from .observed import Observed
from .opening import Opened, Plan, open_team
from .result import TeamResult, refused_question, team_result
from .wiring import Roles

if TYPE_CHECKING:
    from ..llm.model import Model
    from ..roles import Role

_GONE = "the person does not wait any more"
REST_BEFORE_SETTLING = 2.0
"""Seconds of rest after which the documents are written (decision 27)."""


class Team(Observed):
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
        How much the models think; ``deep`` is kept with the conversation and counts as ``thinking``.
    conversation : str, optional
        Id of a stored conversation to go on with.
    replay, record : path, optional
        A cassette to play, or to write.
    permission : {"ask", "read-only", "auto"}
        What tools that touch the world may do. Nothing asks for it yet: the team's own tools touch
        nothing, and a function in ``tools`` always runs.
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
        ``relaxed`` does not wait for the disk before each step; a crash may cost the last moments.
    project_path : path, optional
        Folder that the conversation is noted to be about; default: the working directory.
    config : Config, optional
        Everything configured, read already.

    Examples
    --------
    >>> async def main() -> str:
    ...     async with Team(model="openai") as team:
    ...         return (await team.run("Compare three ways to cache a web page.")).text
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
        checks: tuple[tuple[str, str, tuple[str, ...]], ...] = (
            ("leader", leader, ("model", "human")),
            ("mode", mode, ("fast", "thinking", "deep")),
            ("permission", permission, ("ask", "read-only", "auto")),
            ("durability", durability, ("sync", "relaxed")),
        )
        for name, value, allowed in checks:
            if value not in allowed:
                raise ConfigError(f"{name} is {value!r}; use one of {', '.join(allowed)}")
        if isinstance(roles, str):
            raise ConfigError(f"roles is the text {roles!r}; use a list: roles=[{roles!r}]")
        key = model if isinstance(model, str) else None
        flags = {"model": key, "all_models": all_models, "replay": replay, "record": record, "language": language}
        place = home if isinstance(home, Home) or home is None else Home(home)
        self.config = config or Config.load(place, flags=flags)
        self.permission = permission
        self.attended = False
        """Set by whoever attaches a view through which a person can answer."""
        plan = Plan(
            config=self.config,
            roles=Roles(self.config, roles),
            model=None if isinstance(model, str) else model,
            title=title,
            leader=leader,
            mode=mode,
            conversation=conversation,
            durability=durability,
            tools=tuple(item if isinstance(item, Tool) else tool(item) for item in tools),
            limits=limits or Limits(),
            project_path=str(Path(project_path or ".").resolve()),
            human=human,
        )
        super().__init__(plan)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._settling: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._unanswered: list[str] = []
        self._closed = False
        self._put_away = False
        self._closing = asyncio.Lock()

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
        if self._opened is None:
            self._opened = open_team(self._plan, self._observe, lambda: self.attended or self._watch.listened)
            self._loop = asyncio.get_running_loop()
        self._check_loop()
        return self._opened.runtime

    def _check_loop(self) -> None:
        loop = self._loop
        if loop is not None and loop is not asyncio.get_running_loop() and loop.is_running():
            raise TeamError(
                "this team lives on another event loop, which still runs: use it there "
                "(asyncio.run_coroutine_threadsafe hands a call over)"
            )

    async def close(self) -> None:
        """Put the team away: running agents are interrupted, waiting ones wait on, files are at rest.

        May be called more than once; after an error it tries again.

        Raises
        ------
        StorageError
            The conversation cannot be written. It stays open, and nothing is lost.
        """
        self._check_loop()
        self._closed = True
        async with self._closing:
            if self._put_away:
                return
            if self._settling is not None:
                self._settling.cancel()
            opened = self._opened
            try:
                if opened is not None:
                    await _ended(opened.runtime.shut())
                    await _ended(tuple(self._tasks))
                    await opened.conversation.close()
                self._put_away = True
            finally:
                self._watch.close()
                if opened is not None:
                    try:
                        await opened.models.close()
                    finally:
                        opened.session.close()

    def _observe(self, stamped: Stamped) -> None:
        event = stamped.event
        self._watch.tell(stamped)
        if isinstance(event, RunEnded):
            if self._opened is not None:
                self._opened.session.save()
                self._opened.conversation.settle_soon(resting=True)
            self._settle_soon()
        elif isinstance(event, QuestionClosed) and NO_PERSON in event.reason:
            self._unanswered.append(f"{event.question_id}: {self.state.questions[event.question_id].content}")
        elif isinstance(event, MessageAppended) and (refused := refused_question(self.state, event)):
            self._unanswered.append(refused)

    def _settle_soon(self) -> None:
        if self._settling is not None:
            self._settling.cancel()
        self._settling = asyncio.get_running_loop().call_later(REST_BEFORE_SETTLING, self._settle)

    def _settle(self) -> None:
        opened = self._opened
        if opened is not None and not opened.runtime.running and not self._closed:
            task = asyncio.get_running_loop().create_task(self._write_documents(opened))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _write_documents(self, opened: Opened) -> None:
        try:
            await opened.conversation.settle()
        except StorageError as error:
            opened.runtime.fatal = opened.runtime.fatal or error

    # -- working ------------------------------------------------------------------------

    async def start(self, text: str) -> None:
        """Give the team a task and return once it is on disk; the team works on.

        Raises
        ------
        TeamBusy
            The team is at work.
        """
        _check_text(text, "the task is empty; say what the team is to do")
        runtime = await self.open()
        await runtime.admit_human()
        if runtime.state.run_status == "running":
            raise TeamBusy("the team is at work: write to it with %send leader …, or end it with %astrion stop")
        self._unanswered.clear()
        runtime.begin_run("" if self._plan.title else summary(text))
        if self.leader == "human":
            for role_id in self._plan.roles.chosen:
                runtime.port.create(self._plan.roles.load(role_id), None, text, source="user")
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
        before = self.state.run
        try:
            await self.start(text)
            return await self.wait(timeout=timeout)
        except asyncio.CancelledError:
            if self._opened is not None and self.state.run > before:
                await _ended(self._opened.runtime.stop_all("stopped", "the caller was cancelled"))
            raise

    async def wait(self, *, timeout: float | None = None) -> TeamResult:
        """Wait until everybody rests and what happened is on disk; see :meth:`run`."""
        runtime = await self.open()
        limit = runtime.limit_run(timeout) if timeout is not None and runtime.running else None
        try:
            await runtime.rest()
        finally:
            if limit is not None:
                limit.cancel()
        result = self.result()
        if result.status == "failed":
            raise RunFailed(f"the run failed: {result.error or 'see the transcript'}", result)
        return result

    async def _admit(self, runtime: TeamRuntime) -> None:
        """Admit a step of the person; one that may begin no run is recorded at once, for no run's end will do it."""
        await runtime.admit_human()
        if self._opened is not None and not runtime.running:
            self._opened.session.save()

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
        _check_text(text, "the question is empty")
        runtime = await self.open()
        await self._admit(runtime)
        if _is_leader(target):
            return await self._ask_leader(runtime, text, timeout)
        agent, _ = runtime.port.find(target)
        question = runtime.ask_as_human(agent.agent_id, text)
        try:
            async with asyncio.timeout(timeout):
                await runtime.bus.durable()
                question = await runtime.waits.answered(question.id)
        except TimeoutError:
            await self._admit(runtime)
            runtime.waits.close(question, _GONE)
            raise QuestionError(f"{agent.display_name} gave no answer within {timeout:g} seconds") from None
        except asyncio.CancelledError:
            runtime.waits.close(question, _GONE)
            raise
        if question.status == "answered":
            await runtime.bus.durable()
            return question.answer
        raise QuestionError(f"no answer from {agent.display_name}: {question.reason}")

    async def _ask_leader(self, runtime: TeamRuntime, text: str, timeout: float | None) -> str:
        if self.leader == "human":
            raise TeamError("you are the leader of this team: ask an agent, by name")
        runtime.begin_run(summary(text))
        future = runtime.ask_leader(text)
        try:
            async with asyncio.timeout(timeout):
                await runtime.bus.durable()
                answer = await future
        except TimeoutError:
            raise QuestionError(f"the leader gave no answer within {timeout:g} seconds; it works on") from None
        finally:
            # Whoever asked may have gone before he looked; an answer, or that there is none, is lost on nobody.
            if not future.cancel() and not future.cancelled():
                future.exception()
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
        _check_text(text, "the message is empty")
        runtime = await self.open()
        await self._admit(runtime)
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
            role = self._plan.roles.match(str(target)) if self.leader == "human" else None
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
        _check_text(text, "the answer is empty")
        runtime = await self.open()
        await self._admit(runtime)
        runtime.port.answer(HUMAN_ID, None, question_id, text)
        await runtime.bus.durable()

    async def stop(self, agent: int | str | None = None, reason: str = "") -> None:
        """Stop the whole team, or one agent; everybody stays addressable."""
        runtime = await self.open()
        try:
            await self._admit(runtime)
        except ReplayMiss:
            if agent is not None:
                raise
            return  # the replay has left its recording, and that has ended every turn
        if agent is None or _is_leader(agent):
            tasks: list[asyncio.Task[None] | None] = [*runtime.stop_all("stopped", reason)]
        else:
            found, _ = runtime.port.find(agent)
            task = runtime.agent(found.agent_id).task
            runtime.port.stop_agent(HUMAN_ID, agent, reason)
            tasks = [task]
        await _ended(tasks)
        await runtime.bus.durable()

    async def terminate(self, agent: int | str) -> None:
        """Terminate an agent for good; its files stay."""
        runtime = await self.open()
        await self._admit(runtime)
        found, _ = runtime.port.find(agent)
        task = runtime.agent(found.agent_id).task if found.agent_id != LEADER_ID else None
        runtime.port.terminate(HUMAN_ID, agent)
        await _ended([task])
        await runtime.bus.durable()

    async def retry(self) -> tuple[str, ...]:
        """Revive the agents that failed, after an endpoint's outage; returns their names."""
        runtime = await self.open()
        await self._admit(runtime)
        revived = runtime.revive_failed()
        await runtime.bus.durable()
        return revived


def _check_text(text: object, empty: str) -> None:
    """Refuse what is no text before it is part of a conversation that could then not be stored."""
    if not isinstance(text, str):
        raise ConfigError(f"a text is needed, not {type(text).__name__}; write str(…) around it")
    if not text.strip():
        raise ConfigError(empty)


def _is_leader(target: int | str) -> bool:
    return str(target).strip().strip("\"'").casefold() in ("leader", "team leader")


async def _ended(tasks: Sequence[asyncio.Task[None] | None]) -> None:
    """Wait until cancelled turns are over, whatever they end with."""
    left = {task for task in tasks if task is not None}
    if left:
        await asyncio.wait(left)
