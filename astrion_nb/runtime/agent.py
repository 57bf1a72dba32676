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
from typing import TYPE_CHECKING, cast

from ..errors import AstrionError, BudgetExceeded, EmptyAnswer, ModelBroken, StorageError
from ..events import Detail, MessageAppended, StatusChanged, UsageCounted
from ..ids import LEADER_ID
from ..llm.model import Model
from ..messages import Message, ToolCall
from ..state import AgentState, Question
from ..tools.registry import TeamPort, Toolbox, ToolContext, error_text, result_text
from .called import CallPort
from .notes import note
from .order import StepKind, Timer
from .request import ask_model
from .stored import stored_item, stored_response

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
        "_began",
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
        self._notices: dict[int, None] | None = None
        self._started: set[str] | None = None
        self._timer: Timer | None = None
        self._timer_from = 0.0
        self._remaining = 0.0
        self._began = 0

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
        """Begin to work, unless at work already; with calls left open, first wait for what is still to come."""
        if self.task is not None:
            return
        resume = resume or bool(self.state.open_calls)
        self.team.busy(resume=resume)
        self._remaining = self.state.timeout
        if not resume:
            self.team.bus.publish(StatusChanged(self.id, "running"))
        self.task = asyncio.get_running_loop().create_task(self._work(resume), name=f"astrion:{self.name}")
        self.task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        if self.task is task:  # cancelled from outside, as when the loop ends: nothing may be claimed
            self.team.cut_off(self)

    async def _work(self, resume: bool) -> None:
        me = asyncio.current_task()
        try:
            if resume:
                await self._finish_calls()
                self.team.begin_run("")
                if self.state.status != "running":
                    self.team.bus.publish(StatusChanged(self.id, "running"))
            while await self._turn():
                pass
        except asyncio.CancelledError:
            if self.task is not me or me is None or me.cancelling():
                raise
            self._fail(AstrionError("internal fault: something that the turn awaited was cancelled"))
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
        self.team.rested()

    # -- a turn -------------------------------------------------------------------------

    async def _turn(self) -> bool:
        """Work until a response without tool calls. Returns whether another turn follows at once."""
        self._notices = None
        self._began = len(self.state.messages)
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
                bus.publish(MessageAppended(self.id, stored_response(self.state, finished)))
                if text.strip() and not self.is_leader and not self.state.background:
                    self.team.report(self, "progress", text)
                await self._run_calls()
                continue
            if finished.truncated:
                bus.publish(MessageAppended(self.id, stored_response(self.state, finished)))
                raise ModelBroken("the answer broke off: the stream ended without an end")
            if not text.strip():
                if finished.usage is not None:
                    bus.publish(UsageCounted(self.id, finished.usage))
                if nudged:
                    raise EmptyAnswer("the model gave an empty answer twice")
                nudged = True
                self.team.inform(self.id, note("nudge", self.team.language, id=""), wakes=False)
                continue
            bus.publish(MessageAppended(self.id, stored_response(self.state, finished)))
            return self._complete(text)

    async def _gather_wakes(self) -> None:
        """Let completions that come close together join one request (decision 57)."""
        order = self.team.order
        if order.replaying:
            return
        self._arrived = arrived = asyncio.Event()
        end = order.monotonic() + LONGEST_WAKE_DELAY
        until, waking = order.monotonic() + WAKE_DELAY, self._waking()
        while not self._urgent() and not self.team.others_rest():
            left = min(until, end) - order.monotonic()
            if left <= 0:
                break
            arrived.clear()
            pair = {asyncio.ensure_future(order.sleep(left)), asyncio.ensure_future(arrived.wait())}
            try:
                await asyncio.wait(pair, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for future in pair:
                    future.cancel()
            if self._waking() > waking or (self.team.talking and order.monotonic() >= until):
                # Who is in the middle of an answer is likely to complete next: an extra turn of the
                # leader would cost more than the wait, which has its own bound.
                until, waking = order.monotonic() + WAKE_DELAY, self._waking()

    def _waking(self) -> int:
        return sum(1 for item in self.state.pending if item.wakes)

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
                self._notices = {**(self._notices or {}), item.notice_from: None}
            publish(MessageAppended(self.id, stored_item(state, item, begins=first and item.wakes), item.id))
            first = first and not item.wakes

    # -- tool calls ---------------------------------------------------------------------

    async def _run_calls(self) -> None:
        """Run the calls of the last response, as they were stored, at the same time."""
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
        except Exception as error:  # a validator of the user's own may raise anything
            await order.admit(self.name, "tool", n)
            text = error_text(self.team.ports.hide(_said(error)))
        else:
            if tool.side_effects:
                await bus.durable()
            await order.admit(self.name, "tool", n)
            if self._started is not None:
                self._started.add(call.id)
            try:
                team = self.team.port if tool.scope == "team" else cast(TeamPort, CallPort(self, call.id))
                text = result_text(await tool.call(arguments, ToolContext(self.id, call.id, team)))
            except StorageError:
                raise
            except Exception as error:
                if not isinstance(error, AstrionError):
                    log.info("tool %s failed", call.name, exc_info=True)
                text = error_text(self.team.ports.hide(_said(error)))
            except (asyncio.CancelledError, SystemExit, KeyboardInterrupt) as error:
                task = asyncio.current_task()
                if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                    raise
                text = error_text(f"the tool ended itself ({type(error).__name__})")
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
            settled = self.team.waits.settled(self.id, call_id) if how == "interrupted" else None
            if settled is not None:  # the answer came, and the program ended before it was handed over
                self._append_result(call, result_text(self.team.port.outcome(settled)))
                continue
            if how == "interrupted":
                outcome = "interrupted: the program ended while it ran or before it started; it was not run again"
            else:
                outcome = f"{how} while it ran; what it had done stays" if call_id in started else f"not started: {how}"
            self._append_result(call, error_text(outcome))

    # -- ends ---------------------------------------------------------------------------

    def _complete(self, text: str) -> bool:
        team = self.team
        if self.is_leader:
            team.leader_ended(text)
        else:
            asked_by_leader = False  # then the answer is the report (decision 15)
            for question in team.waits.unanswered(self.id):
                asked_by_leader = asked_by_leader or question.asker <= LEADER_ID
                team.waits.answer(self.id, None, question.id, text)
            for sender in self._notices or ():
                team.reply_to_notice(self, sender, text)
            if not asked_by_leader:
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
        self._close(detail, str(error), tell=True, partial=getattr(error, "partial", ""))

    def halt(
        self, detail: Detail, reason: str = "", *, tell: bool = True, terminate: bool = False
    ) -> asyncio.Task[None] | None:
        """End the turn from outside, now: close what is open, tell the leader, cancel the task.

        Parameters
        ----------
        detail : {"stopped", "timed_out", "failed"}
        reason : str
        tell : bool
            Whether the leader is told.
        terminate : bool
            Whether the agent ends for good, and not only its turn.

        Returns
        -------
        asyncio.Task or None
            Await it to be sure that nothing of the turn runs any more.
        """
        task = self.task
        if task is None:
            if self.state.open_calls:  # left by a turn that was cut off while it waited
                self._abandon(detail, reason)
                self.team.bus.publish(StatusChanged(self.id, "idle", detail, reason))
            return None
        self._close(detail, reason, tell=tell, terminate=terminate)
        task.cancel()
        return task

    def detach(self) -> asyncio.Task[None] | None:
        """Let go of the turn without ending it: what it waits for can still come, in another kernel."""
        task = self.task
        if task is not None:
            self._rest()
            task.cancel()
        return task

    def _close(self, detail: Detail, reason: str, *, tell: bool, partial: str = "", terminate: bool = False) -> None:
        team, language = self.team, self.team.language
        partial = partial or self._last_text()
        shown = note("partial", language, text=partial) if partial else ""
        self._abandon(detail, reason)
        team.bus.publish(StatusChanged(self.id, "idle", detail, reason))
        if self.is_leader:
            team.leader_broke(detail, reason)
        elif terminate:
            team.terminated(self, tell=tell)
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

    def _abandon(self, detail: Detail, reason: str) -> None:
        """Withdraw what the turn asked, close what it called and what it was asked."""
        waits = self.team.waits
        waits.withdraw(self.id, f"{self.name} was ended")
        self.close_calls("timed out" if detail == "timed_out" else "cancelled")
        if not self.is_leader and detail != "interrupted":  # else who waits for it waits on, until it goes on
            waits.give_up(self.id, f"{self.name}: {detail}{': ' + reason if reason else ''}")

    def _last_text(self) -> str:
        """Return the last text of this turn, or an empty string."""
        for message in reversed(self.state.messages[self._began :]):
            if message.role == "assistant" and message.content:
                return message.content
        return ""

    # -- the turn's clock ---------------------------------------------------------------

    def _start_clock(self) -> None:
        if self.state.timeout > 0 and self._timer is None:
            self._timer_from = self.team.order.monotonic()
            left = max(0.0, self._remaining)
            self._timer = self.team.order.at(self.name, self.step("timer"), left, self._time_out)

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


def _said(error: Exception) -> str:
    """Return what an error says, in one line where it is ours; one that cannot say it is named."""
    if isinstance(error, AstrionError):
        return str(error)
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}: (it has no text: its __str__ fails)"
