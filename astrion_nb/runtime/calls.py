"""The tool calls of one agent: run, answered late, or closed with a result that says how they ended.

Every call gets exactly one result (decision 29), whatever the tool, its author or the team does.
Knows no particular tool and no file.

Source: decisions 21, 22, 27, 29.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from ..approval import digest_of
from ..errors import AstrionError, StorageError, failure_text
from ..events import MessageAppended
from ..messages import Message, ToolCall
from ..state import Question
from ..tools.registry import TeamPort, Tool, ToolContext, error_text, result_text
from .approvals import refusal, settled
from .called import CallPort, output_of
from .stored import UsedIds

if TYPE_CHECKING:
    from .agent import Agent

log = logging.getLogger(__name__)

RESULT_LIMIT = 400_000
"""Characters of one tool result that enter a history; the rest is cut with a marker."""


SHORT = 128
"""Messages of a history that is looked through again rather than remembered while its agent rests."""


class Calls:
    """The open tool calls of an agent, and the ids of all that it has made.

    Parameters
    ----------
    agent : Agent
    """

    __slots__ = ("_agent", "_started", "_used")

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._started: set[str] | None = None
        self._used: UsedIds | None = None

    @property
    def used(self) -> UsedIds:
        """The ids that the agent's calls have had, those of earlier kernels included."""
        if self._used is None:
            self._used = UsedIds()
        return self._used

    def forget(self) -> None:
        """Note that the agent rests."""
        self._started = None
        if len(self._agent.state.messages) <= SHORT:
            self._used = None

    async def run(self) -> None:
        """Run the calls of the last response, as they were stored, at the same time."""
        self._started = set()
        numbered = [(call, self._agent.step("tool")) for call in self._agent.state.messages[-1].tool_calls]
        if len(numbered) == 1:
            await self._call(*numbered[0])
            return
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._call(call, n)) for call, n in numbered]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            # The first one to end ends the gathering; the others still put away what they have in hand.
            for task in tasks:
                if not task.cancelling():
                    task.cancel()
            await asyncio.wait(tasks)
            raise

    async def _call(self, call: ToolCall, n: int) -> None:
        agent, team = self._agent, self._agent.team
        order = team.order
        try:
            tool = agent.tools[call.name]
            arguments = tool.parse(call.arguments)
        except Exception as error:  # a validator of the user's own may raise anything
            await order.admit(agent.name, "tool", n)
            text = error_text(team.ports.hide(failure_text(error)))
        else:
            why_not = "" if tool.scope == "team" else await refusal(agent, call, tool, arguments, n)
            text = await self._perform(call, tool, arguments, n, why_not)
        await order.admit(agent.name, "result", n)
        self._append(call, text)

    async def _perform(self, call: ToolCall, tool: Tool, arguments: Mapping[str, Any], n: int, why_not: str) -> str:
        """Run a call that may happen; returns the text of its result."""
        agent, team = self._agent, self._agent.team
        if tool.side_effects and not why_not:
            await team.bus.durable()
        await team.order.admit(agent.name, "tool", n)
        if why_not:
            return error_text(why_not)
        if self._started is not None:
            self._started.add(call.id)
        try:
            port = team.port if tool.scope == "team" else cast(TeamPort, CallPort(agent, call.id))
            context = ToolContext(agent.id, call.id, port, team.ports.desk, output_of(agent, call.id))
            return team.ports.hide(result_text(await tool.call(arguments, context)))
        except StorageError:
            raise
        except BaseException as error:  # one of a tool's own ends its call and nothing else
            if isinstance(error, GeneratorExit) or _is_cancelled(error):
                raise
            if not isinstance(error, AstrionError):
                log.info("tool %s failed", call.name, exc_info=True)
            return error_text(team.ports.hide(failure_text(error)))

    def _append(self, call: ToolCall, text: str) -> None:
        agent = self._agent
        if call.id not in agent.state.open_calls:
            return  # closed from outside meanwhile; a late result is dropped
        if len(text) > RESULT_LIMIT:
            text = f"{text[:RESULT_LIMIT]}\n[cut: {len(text) - RESULT_LIMIT} of {len(text)} characters left out]"
        message = Message("tool", text, agent.state.next_message_id("tool"), tool_call_id=call.id)
        agent.team.bus.publish(MessageAppended(agent.id, message))

    async def finish(self) -> None:
        """After loading: wait for the answers that are still to come, close every other open call."""
        self._started = set()
        waiting = self._agent.team.waits.to_go_on(self._agent.id)
        self.close("interrupted", keep=set(waiting))
        numbered = [(question, self._agent.step("tool")) for question in waiting.values()]
        await asyncio.gather(*(self._resume(question, n) for question, n in numbered))

    async def _resume(self, question: Question, n: int) -> None:
        call, _ = self._agent.state.open_calls[question.call_id]
        if question.approval is not None:
            text = await self._resume_approval(call, question, n)
        else:
            text = result_text(await self._agent.team.port.answer_result(question))
        await self._agent.team.order.admit(self._agent.name, "result", n)
        self._append(call, text)

    async def _resume_approval(self, call: ToolCall, question: Question, n: int) -> str:
        """A call that had not begun when the program ended, because it waited to be allowed, happens now if it is."""
        agent = self._agent
        why_not = await settled(agent, question)
        try:
            if not why_not and (question.approval is None or question.approval.digest != digest_of(agent.id, call)):
                why_not = "not allowed: the call is another one than was approved"
            tool = agent.tools[call.name]
            arguments = tool.parse(call.arguments)
        except Exception as error:  # the tool is another one now, or gone
            return error_text(agent.team.ports.hide(failure_text(error)))
        return await self._perform(call, tool, arguments, n, why_not)

    def close(self, how: str, keep: set[str] | frozenset[str] = frozenset()) -> None:
        """Give every open tool call a result that says how it ended (decision 22)."""
        started = self._started or set()
        for call_id, (call, _) in tuple(self._agent.state.open_calls.items()):
            if call_id in keep:
                continue
            settled = self._agent.team.waits.settled(self._agent.id, call_id) if how == "interrupted" else None
            if settled is not None:  # the answer came, and the program ended before it was handed over
                self._append(call, result_text(self._agent.team.port.outcome(settled)))
                continue
            if how == "interrupted":
                outcome = "interrupted: the program ended while it ran or before it started; it was not run again"
            else:
                outcome = f"{how} while it ran; what it had done stays" if call_id in started else f"not started: {how}"
            self._append(call, error_text(outcome))


def _is_cancelled(error: BaseException) -> bool:
    """Say whether an error is the cancellation of the task it is raised in, and no tool's own."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and bool(task.cancelling())
