"""What a person does to a team at work: write to it, ask it, answer it, stop it.

The acting half of the public :class:`~astrion_nb.app.team.Team`. Every act is admitted as a step of
the person's, so that a recording holds it, and is refused before that when it cannot be meant. Knows
no file and no view.

Source: decisions 15, 22, 23, 55, 56.
"""

from __future__ import annotations

import asyncio

from .. import given
from ..errors import AgentNotFound, QuestionError, ReplayMiss, TeamError
from ..ids import HUMAN_ID, LEADER_ID
from ..runtime.names import is_leader
from ..runtime.team import TeamRuntime
from ..state import AgentState, summary
from .lifetime import Lived, begun, ended

_GONE = "the person does not wait any more"


class Steered(Lived):
    """A team that can be written to, asked, answered and stopped."""

    async def _admit(self, runtime: TeamRuntime) -> None:
        """Admit a step of the person; one that may begin no run is recorded at once, for no run's end will do it."""
        self._check_access()
        await runtime.person.admit()
        if self._opened is not None and not runtime.running:
            self._opened.session.save()

    def _find(self, runtime: TeamRuntime, target: int | str) -> AgentState:
        """Return the agent that the person means; the leader is among those that an error names."""
        return runtime.port.find(target, leader=self.leader == "model")[0]

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
        given.agent("ask: the agent", target)
        given.text("ask: the question", text, empty="say what to ask")
        given.seconds("ask: timeout", timeout)
        runtime = await self.open()
        await self._admit(runtime)
        if is_leader(target):
            return await self._ask_leader(runtime, text, timeout)
        agent = self._find(runtime, target)
        question = runtime.person.ask(agent.agent_id, text)
        try:
            async with asyncio.timeout(timeout):
                await runtime.bus.durable()
                question = await runtime.waits.answered(question.id)
        except TimeoutError:
            await self._admit(runtime)
            runtime.waits.close(question, _GONE)
            raise QuestionError(
                f"{agent.display_name} gave no answer within {given.seconds_text(timeout or 0)}"
            ) from None
        except asyncio.CancelledError:
            runtime.waits.close(question, _GONE)
            raise
        if question.status == "answered":
            await runtime.bus.durable()
            return question.answer
        raise QuestionError(f"no answer from {agent.display_name}: {question.reason}")

    def only_now(self, only: bool) -> None:
        """Say whether a cell waits, so that nothing of a person can come from a later one; for replays."""
        if self._opened is not None:
            self._opened.session.only_now(only)

    def _check_leader(self, act: str) -> None:
        if self.leader == "human":
            raise TeamError(f"you are the leader of this team: {act} an agent, by name")

    async def _ask_leader(self, runtime: TeamRuntime, text: str, timeout: float | None) -> str:
        self._check_leader("ask")
        with begun(runtime, summary(text)):
            future = runtime.person.ask_leader(text)
        try:
            async with asyncio.timeout(timeout):
                await runtime.bus.durable()
                answer = await future
        except TimeoutError:
            raise QuestionError(
                f"the leader gave no answer within {given.seconds_text(timeout or 0)}; it works on"
            ) from None
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
        given.agent("send: the agent", target)
        given.text("send: the message", text, empty="say what to send")
        runtime = await self.open()
        await self._admit(runtime)
        if is_leader(target):
            self._check_leader("write to")
            with begun(runtime, summary(text)):
                message_id = runtime.person.say(text)
        else:
            message_id = self._send(runtime, target, text)
        await runtime.bus.durable()
        return message_id

    def _send(self, runtime: TeamRuntime, target: int | str, text: str) -> str:
        try:
            agent = self._find(runtime, target)
        except AgentNotFound:
            role = self._plan.roles.match(str(target)) if self.leader == "human" else None
            if role is None:
                raise
        else:
            return str(runtime.port.send(HUMAN_ID, agent.agent_id, text)["message_id"])
        with begun(runtime, summary(text)):
            made = runtime.port.create(role, None, text, source="user")
        return next(item.id for item in runtime.state.agents[made["agent_id"]].pending)

    async def answer(self, question_id: str, text: str) -> None:
        """Answer an open question that waits for the person (or for the leader, whom the person may speak for).

        Raises
        ------
        QuestionError
            Unknown, answered already, expired, or put to somebody else.
        """
        given.text("answer: question_id", question_id, empty="name the question")
        given.text("answer: the answer", text, empty="say what to answer")
        runtime = await self.open()
        await self._admit(runtime)
        runtime.port.answer(HUMAN_ID, None, question_id, text)
        await runtime.bus.durable()

    async def approve(self, question_id: str, *, lasting: bool = False, digest: str | None = None) -> None:
        """Allow a call that waits for the person.

        Parameters
        ----------
        question_id : str
            As :attr:`~astrion_nb.app.observed.Observed.questions` names it.
        lasting : bool
            Allow the agent all further calls of this kind, too.
        digest : str, optional
            Of what was seen: another call is not allowed then.

        Raises
        ------
        QuestionError
            No such request, one that is settled, or another one than was seen.
        """
        given.text("approve: question_id", question_id, empty="name the request")
        given.switch("approve: lasting", lasting)
        given.text("approve: digest", digest, none=True)
        await self._judge(question_id, True, "", lasting, digest)

    async def deny(self, question_id: str, reason: str = "", *, digest: str | None = None) -> None:
        """Deny a call that waits for the person; the model reads the reason.

        Raises
        ------
        QuestionError
            No such request, or one that is settled.
        """
        given.text("deny: question_id", question_id, empty="name the request")
        given.text("deny: reason", reason)
        given.text("deny: digest", digest, none=True)
        await self._judge(question_id, False, reason, False, digest)

    async def _judge(self, question_id: str, ok: bool, reason: str, lasting: bool, digest: str | None) -> None:
        runtime = await self.open()
        await self._admit(runtime)
        runtime.waits.approve(question_id, digest, ok=ok, reason=reason, lasting=lasting)
        await runtime.bus.durable()

    async def stop(self, agent: int | str | None = None, reason: str = "") -> None:
        """Stop the whole team, or one agent; everybody stays addressable."""
        if agent is not None:
            given.agent("stop: the agent", agent)
        given.text("stop: reason", reason)
        runtime = await self.open()
        try:
            await self._admit(runtime)
        except ReplayMiss:
            if agent is not None:
                raise
            return  # the replay has left its recording, and that has ended every turn
        if agent is None or is_leader(agent):
            tasks: list[asyncio.Task[None] | None] = [*runtime.stop_all("stopped", reason)]
        else:
            found = self._find(runtime, agent)
            task = runtime.agent(found.agent_id).task
            runtime.port.stop_agent(HUMAN_ID, agent, reason)
            tasks = [task]
        await ended(tasks)
        await runtime.bus.durable()

    async def terminate(self, agent: int | str) -> None:
        """Terminate an agent for good; its files stay."""
        given.agent("terminate: the agent", agent)
        runtime = await self.open()
        await self._admit(runtime)
        found = self._find(runtime, agent)
        task = runtime.agent(found.agent_id).task if found.agent_id != LEADER_ID else None
        runtime.port.terminate(HUMAN_ID, agent)
        await ended([task])
        await runtime.bus.durable()

    async def retry(self) -> tuple[str, ...]:
        """Revive the agents that failed, after an endpoint's outage; returns their names."""
        runtime = await self.open()
        await self._admit(runtime)
        revived = runtime.revive_failed()
        await runtime.bus.durable()
        return revived
