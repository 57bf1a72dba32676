"""One agent at work: mailbox → request → response → tools, until it rests.

An agent is a task only while it works; at rest it is a few values. Its history changes at one
place a step, right after the order port has admitted the step and without an ``await`` in between,
so nothing that arrives meanwhile can fall between the check and the rest. Whoever ends an agent's
turn from outside (:meth:`Agent.halt`) closes it on the spot; the cancelled task changes nothing
afterwards.

Knows its team's ports; no file, no vendor, no view.

Source: decisions 9–16, 18–20, 22, 24, 29, 54–57; message protocol §2–§4.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..envelope import Envelope, render
from ..errors import AstrionError, BudgetExceeded, EmptyAnswer, ModelBroken, StorageError
from ..events import Detail, MessageAppended, PendingMessage, StatusChanged, UsageCounted
from ..ids import LEADER_ID
from ..llm.model import Finished, Model
from ..messages import Message, ToolCall
from ..state import AgentState, Question
from ..tools.registry import Toolbox, ToolContext, error_text, result_text
from .notes import note
from .order import StepKind, Timer
from .request import ask_model

if TYPE_CHECKING:
    from .team import TeamRuntime

log = logging.getLogger(__name__)

WAKE_DELAY = 0.05
"""Seconds that a leader's wake waits for further completions (decision 57)."""
LONGEST_WAKE_DELAY = 0.5
RESULT_LIMIT = 400_000
"""Characters of one tool result that enter a history; the rest is cut with a marker."""


class Agent:
    """The running part of one agent, the leader included.

    Parameters
    ----------
    team : TeamRuntime
    state : AgentState
    model : Model
    tools : Toolbox
    """

    __slots__ = (
        "_arrived",
        "_asking_leader",
        "_notices",
        "_remaining",
        "_started",
        "_steps",
        "_timer",
        "_timer_from",
        "model",
        "requests_in_run",
        "state",
        "task",
        "team",
        "tools",
    )

    def __init__(self, team: TeamRuntime, state: AgentState, model: Model, tools: Toolbox) -> None:
        self.team = team
        self.state = state
        self.model = model
        self.tools = tools
        self.task: asyncio.Task[None] | None = None
        self.requests_in_run = 0
        self._steps: dict[StepKind, int] | None = None
        self._arrived: asyncio.Event | None = None
        self._notices: list[int] | None = None
        self._started: set[str] | None = None
        self._timer: Timer | None = None
        self._timer_from = 0.0
        self._remaining = 0.0
        self._asking_leader = False

    @property
    def id(self) -> int:
        """The agent's number."""
        return self.state.agent_id

    @property
    def name(self) -> str:
        """The display name."""
        return self.state.display_name

    @property
    def is_leader(self) -> bool:
        """Whether this is the Team Leader."""
        return self.state.agent_id == LEADER_ID

    @property
    def rank(self) -> int:
        """Priority for slots and gates: the leader goes first."""
        return 0 if self.is_leader else 1

    def step(self, kind: StepKind) -> int:
        """Count a step of this agent."""
        if self._steps is None:
            self._steps = {}
        n = self._steps.get(kind, 0) + 1
        self._steps[kind] = n
        return n

    # -- waking and resting -------------------------------------------------------------

    def arrived(self) -> None:
        """Note that a message came."""
        if self._arrived is not None:
            self._arrived.set()

    def wake(self, *, resume: bool = False) -> None:
        """Begin to work, unless at work already."""
        if self.task is not None:
            return
        self.team.busy(self, resume=resume)
        if not resume:
            self.team.bus.publish(StatusChanged(self.id, "running"))
        self.task = asyncio.get_running_loop().create_task(self._work(resume), name=f"astrion:{self.name}")

    async def _work(self, resume: bool) -> None:
        me = asyncio.current_task()
        try:
            if resume:
                await self._finish_calls()
                self.team.begin_run("")
            while await self._turn():
                pass
        except asyncio.CancelledError:
            if self.task is me:  # cancelled by the loop's end and not by halt: nothing may be claimed
                self._rest()
            raise
        except StorageError as error:
            if self.task is me:
                self.team.abort(error)
        except AstrionError as error:
            if self.task is me:
                self._fail(error)
        except Exception as error:
            log.exception("%s failed inside the runtime", self.name)
            if self.task is me:
                self._fail(AstrionError(f"internal fault: {type(error).__name__}: {error}"))

    def _rest(self) -> None:
        self.task = None
        self._stop_clock()
        self._arrived = None
        self._started = None
        self.team.rested(self)

    # -- a turn -------------------------------------------------------------------------

    async def _turn(self) -> bool:
        """Work until a response without tool calls. Returns whether another turn follows at once."""
        self._notices = None
        self._asking_leader = False
        self._remaining = self.state.timeout
        self._start_clock()
        if self.is_leader:
            await self._gather_wakes()
        first, nudged = True, False
        order, bus = self.team.order, self.team.bus
        while True:
            n = self.step("request")
            await order.admit(self.name, "request", n)
            self._drain(first)
            first = False
            self.team.check_budget(self)
            await bus.durable()
            self.requests_in_run += 1
            finished = await ask_model(self, n)
            text = finished.text
            if finished.tool_calls:
                self._append_assistant(finished)
                if text.strip() and not self.is_leader and not self.state.background:
                    self.team.report(self, "progress", text)
                await self._run_calls(finished.tool_calls)
                continue
            if finished.truncated:
                self._append_assistant(finished)
                raise ModelBroken("the answer broke off: the stream ended without an end")
            if not text.strip():
                if finished.usage is not None:
                    bus.publish(UsageCounted(self.id, finished.usage))
                if nudged:
                    raise EmptyAnswer("the model gave an empty answer twice")
                nudged = True
                self.team.inform(self.id, note("nudge", self.team.language, id=""), wakes=False)
                continue
            self._append_assistant(finished)
            return self._complete(text)

    async def _gather_wakes(self) -> None:
        """Let completions that come close together join one request (decision 57)."""
        order = self.team.order
        if order.replaying:
            return
        self._arrived = asyncio.Event()
        end = order.monotonic() + LONGEST_WAKE_DELAY
        while not self._urgent() and not self.team.others_rest(self):
            left = min(WAKE_DELAY, end - order.monotonic())
            if left <= 0:
                break
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), left)
            except TimeoutError:
                break

    def _urgent(self) -> bool:
        return any(item.kind in ("human", "ask") or item.source == "runtime" for item in self.state.pending)

    async def arrival(self) -> None:
        """Return when a message waits in the mailbox."""
        if self._arrived is None:
            self._arrived = asyncio.Event()
        while not self.state.pending:
            self._arrived.clear()
            await self._arrived.wait()

    def drain_all(self) -> None:
        """Take the whole mailbox into the conversation: for a leader that is a person."""
        self._drain(first=False)

    def _drain(self, first: bool) -> None:
        """Take every waiting message into the history: the safe point (decision 12)."""
        publish, state = self.team.bus.publish, self.state
        for item in tuple(state.pending):
            if item.notice_from is not None:
                self._notices = [*(self._notices or ()), item.notice_from]
            publish(MessageAppended(self.id, self._stored(item, first), item.id))
            first = False

    def _stored(self, item: PendingMessage, first: bool) -> Message:
        """Return the stored form of a mailbox item (data model §5, §7)."""
        if item.kind == "human":
            metadata: dict[str, Any] = {"message_source": "user", "visibility": "chat", "starts_work": True}
            return Message("user", item.content, self.state.next_message_id("user"), metadata=metadata)
        content = render(Envelope(item.kind, item.sender, item.id, item.content))
        begins = not self.is_leader and (
            item.kind == "task" or (first and item.kind in ("message", "ask") and item.source != "runtime")
        )
        metadata = {"message_source": item.source, "visibility": "compact", "starts_work": begins}
        if item.sender_id is not None:
            metadata["agent_id"] = item.sender_id
        metadata["envelope_id"] = item.id
        if item.status:
            metadata["status"] = item.status
        message_id = self.state.next_message_id("auto" if self.is_leader else "user")
        return Message("user", content, message_id, metadata=metadata)

    def _append_assistant(self, finished: Finished) -> None:
        metadata: dict[str, Any] = {}
        if finished.usage is not None:
            metadata["usage"] = finished.usage.to_json()
        if finished.reasoning:
            metadata["reasoning_content"] = finished.reasoning
        if finished.truncated:
            metadata["truncated"] = True
        elif finished.finish == "length":
            metadata["finish"] = "length"
        content = finished.text if finished.text or not finished.tool_calls else None
        message = Message(
            "assistant",
            content,
            self.state.next_message_id("assistant"),
            self._unique_calls(finished.tool_calls),
            metadata=metadata,
        )
        self.team.bus.publish(MessageAppended(self.id, message))

    def _unique_calls(self, calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
        """Give a call whose id this conversation has used a new one; results must stay paired."""
        if not calls:
            return calls
        used = {call.id for message in self.state.messages for call in message.tool_calls}
        out: list[ToolCall] = []
        for call in calls:
            call_id, number = call.id, 1
            while call_id in used:
                number += 1
                call_id = f"{call.id}_{number}"
            used.add(call_id)
            out.append(call if call_id == call.id else ToolCall(call_id, call.name, call.arguments))
        return tuple(out)

    # -- tool calls ---------------------------------------------------------------------

    async def _run_calls(self, _: Sequence[ToolCall]) -> None:
        calls = self.state.messages[-1].tool_calls
        self._started = set()
        numbered = [(call, self.step("tool")) for call in calls]
        if len(numbered) == 1:
            await self._call(*numbered[0])
            return
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._call(call, n)) for call, n in numbered]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _call(self, call: ToolCall, n: int) -> None:
        order, bus = self.team.order, self.team.bus
        try:
            tool = self.tools[call.name]
            arguments = tool.parse(call.arguments)
        except AstrionError as error:
            await order.admit(self.name, "tool", n)
            text = error_text(str(error))
        else:
            if tool.side_effects:
                await bus.durable()
            await order.admit(self.name, "tool", n)
            if self._started is not None:
                self._started.add(call.id)
            try:
                text = result_text(await tool.call(arguments, ToolContext(self.id, call.id, self.team.port)))
            except StorageError:
                raise
            except AstrionError as error:
                text = error_text(str(error))
            except Exception as error:
                log.info("tool %s failed", call.name, exc_info=True)
                text = error_text(f"{type(error).__name__}: {error}")
        await order.admit(self.name, "result", n)
        self._append_result(call, text)

    def _append_result(self, call: ToolCall, text: str) -> None:
        if call.id not in self.state.open_calls:
            return  # closed from outside meanwhile; a late result is dropped
        if len(text) > RESULT_LIMIT:
            text = f"{text[:RESULT_LIMIT]}\n[cut: {len(text) - RESULT_LIMIT} of {len(text)} characters left out]"
        message = Message("tool", text, self.state.next_message_id("tool"), tool_call_id=call.id)
        self.team.bus.publish(MessageAppended(self.id, message))

    async def _finish_calls(self) -> None:
        """After loading: wait for the answers that are still to come, close every other open call."""
        self._started = set()
        waiting = {question.call_id: question for question in self.team.waits.waits_for(self.id)}
        self.close_calls("interrupted", keep=set(waiting))
        numbered = [(question, self.step("tool")) for question in waiting.values()]
        await asyncio.gather(*(self._resume_call(question, n) for question, n in numbered))

    async def _resume_call(self, question: Question, n: int) -> None:
        call, _ = self.state.open_calls[question.call_id]
        result = await self.team.port.answer_result(question)
        await self.team.order.admit(self.name, "result", n)
        self._append_result(call, result_text(result))

    def close_calls(self, how: str, keep: set[str] | frozenset[str] = frozenset()) -> None:
        """Give every open tool call a result that says how it ended (decision 22)."""
        started = self._started or set()
        for call_id, (call, _) in tuple(self.state.open_calls.items()):
            if call_id in keep:
                continue
            if how == "interrupted":
                outcome = "interrupted: the program ended while it ran or before it started; it was not run again"
            else:
                outcome = f"{how} while it ran; what it had done stays" if call_id in started else f"not started: {how}"
            self._append_result(call, error_text(outcome))

    # -- ends ---------------------------------------------------------------------------

    def note_leader_question(self) -> None:
        """Note that the final text answered the leader (or the person): no report then (decision 15)."""
        self._asking_leader = True

    def _complete(self, text: str) -> bool:
        team = self.team
        if self.is_leader:
            team.leader_ended(text)
        else:
            for question in team.waits.unanswered(self.id):
                if question.asker <= LEADER_ID:
                    self._asking_leader = True
                team.waits.answer(self.id, None, question.id, text)
            for sender in self._notices or ():
                team.reply_to_notice(self, sender, text)
            if not self._asking_leader:
                team.report(self, "completion", text)
        team.bus.publish(StatusChanged(self.id, "completed"))
        self._stop_clock()
        if any(item.wakes for item in self.state.pending):
            team.bus.publish(StatusChanged(self.id, "running"))
            return True
        self._rest()
        return False

    def _fail(self, error: AstrionError) -> None:
        detail: Detail = "stopped" if isinstance(error, BudgetExceeded) else "failed"
        self._close(detail, str(error), tell=True)

    def halt(self, detail: Detail, reason: str = "", *, tell: bool = True) -> asyncio.Task[None] | None:
        """End the turn from outside, now: close what is open, tell the leader, cancel the task.

        Parameters
        ----------
        detail : {"stopped", "timed_out", "failed"}
        reason : str
        tell : bool
            Whether the leader is told.

        Returns
        -------
        asyncio.Task or None
            Await it to be sure that nothing of the turn runs any more.
        """
        task = self.task
        if task is None:
            return None
        self._close(detail, reason, tell=tell)
        task.cancel()
        return task

    def detach(self) -> asyncio.Task[None] | None:
        """Let go of the turn without ending it: what it waits for can still come, in another kernel."""
        task = self.task
        if task is not None:
            self._rest()
            task.cancel()
        return task

    def _close(self, detail: Detail, reason: str, *, tell: bool) -> None:
        team, language = self.team, self.team.language
        how = {"stopped": "cancelled", "timed_out": "timed out"}.get(detail, "cancelled")
        partial = self.state.last_text
        shown = note("partial", language, text=partial) if partial else ""
        team.waits.withdraw(self.id, f"{self.name} was ended")
        self.close_calls(how)
        if not self.is_leader:
            team.waits.give_up(self.id, f"{self.name}: {detail}{': ' + reason if reason else ''}")
        team.bus.publish(StatusChanged(self.id, "idle", detail, reason))
        if self.is_leader:
            team.leader_broke(detail, reason)
        elif tell:
            text = note(
                detail or "failed",
                language,
                seconds=self.state.timeout,
                cause=f": {reason}" if detail == "stopped" and reason else reason,
                partial=shown,
            )
            team.report(self, "message", text, status=detail)
        self._rest()

    # -- the turn's clock ---------------------------------------------------------------

    def _start_clock(self) -> None:
        if self._remaining > 0 and self._timer is None:
            self._timer_from = self.team.order.monotonic()
            self._timer = self.team.order.at(self.name, self.step("timer"), self._remaining, self._time_out)

    def _stop_clock(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._remaining -= self.team.order.monotonic() - self._timer_from

    def clock(self) -> None:
        """Stop the turn's clock while the agent waits for an answer, go on with it after (decision 20)."""
        if self.task is None:
            return
        if self.state.status == "waiting":
            self._stop_clock()
        else:
            self._start_clock()

    def _time_out(self) -> None:
        self._timer = None
        self.halt("timed_out", f"no end after {self.state.timeout:g} seconds")
