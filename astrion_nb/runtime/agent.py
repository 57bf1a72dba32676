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
from typing import TYPE_CHECKING

from ..errors import AstrionError, BudgetExceeded, ContextOverflow, EmptyAnswer, ModelBroken, StorageError
from ..events import Detail, MessageAppended, StatusChanged, UsageCounted
from ..ids import LEADER_ID
from ..llm.model import Model
from ..messages import Usage
from ..state import AgentState
from ..tools.registry import Toolbox
from .calls import Calls
from .clock import Clock
from .compaction import Compaction
from .gathering import gather_wakes
from .notes import note
from .order import StepKind
from .request import ask_model
from .room import after_overflow, make_room
from .stored import stored_cut, stored_item, stored_response

if TYPE_CHECKING:
    from .team import TeamRuntime

log = logging.getLogger(__name__)


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
        "_steps",
        "calls",
        "clock",
        "live",
        "model",
        "requests_in_run",
        "state",
        "task",
        "team",
        "tools",
        "waste",
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
        self._began = 0
        self.calls = Calls(self)
        self.clock = Clock(self)
        self.live: Sequence[str] = ()
        """The text of the answer that is under way, as it came."""
        self.waste: Usage | None = None
        """What tries of the request under way have cost that failed, and is not counted yet."""

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
        self.clock.wind()
        # The task first: nobody is ever shown running who has none.
        self.task = asyncio.get_running_loop().create_task(self._work(resume), name=f"astrion:{self.name}")
        self.task.add_done_callback(self._over)
        if not resume:
            self.team.bus.publish(StatusChanged(self.id, "running"))

    def _over(self, task: asyncio.Task[None]) -> None:
        if self.task is task:  # cancelled from outside, as when the loop ends: nothing may be claimed
            self.team.cut_off(self)

    async def _work(self, resume: bool) -> None:
        me = asyncio.current_task()
        try:
            if resume:
                await self.calls.finish()
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
        self.clock.stop()
        self.calls.forget()
        self._arrived = None
        self.team.rested()

    # -- a turn -------------------------------------------------------------------------

    async def _turn(self) -> bool:
        """Work until a response without tool calls. Returns whether another turn follows at once."""
        self._notices = None
        self._began = len(self.state.messages)
        self.clock.wind()
        self.clock.start()
        if self.is_leader:
            self._arrived = asyncio.Event()
            await gather_wakes(self, self._arrived)
        first, nudged = True, False
        shorter: Compaction | None = None
        order, bus = self.team.order, self.team.bus
        while True:
            n = self.step("request")
            await order.admit(self.name, "request", n)
            self._drain(first)
            first = False
            self.team.check_budget(self)
            make_room(self)
            await bus.durable()
            self.requests_in_run += 1
            try:
                finished = await ask_model(self, n)
            except ContextOverflow as error:
                shorter = after_overflow(self, error, shorter)
                continue
            self.live, shorter = (), None
            text = finished.text
            if finished.tool_calls:
                bus.publish(MessageAppended(self.id, stored_response(self.state, finished, self.calls.used)))
                if text.strip() and not self.is_leader and not self.state.background:
                    self.team.post.report(self, "progress", text)
                await self.calls.run()
                continue
            if finished.truncated:
                bus.publish(MessageAppended(self.id, stored_response(self.state, finished, self.calls.used)))
                raise ModelBroken("the answer broke off: the stream ended without an end")
            if not text.strip():
                if finished.usage is not None:
                    bus.publish(UsageCounted(self.id, finished.usage))
                if nudged:
                    raise EmptyAnswer("the model gave an empty answer twice")
                nudged = True
                self.team.post.inform(self.id, note("nudge", self.team.language, id=""), wakes=False)
                continue
            bus.publish(MessageAppended(self.id, stored_response(self.state, finished, self.calls.used)))
            return self._complete(text)

    def wait_changed(self) -> None:
        """Stop the turn's clock while the agent waits for an answer, go on with it after (decision 20)."""
        if self.task is None:
            return
        if self.state.status == "waiting":
            self.clock.stop()
        else:
            self.clock.start()

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
                team.post.reply_to_notice(self, sender, text)
            if not asked_by_leader:
                team.post.report(self, "completion", text)
        team.bus.publish(StatusChanged(self.id, "completed"))
        self.clock.stop()
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
        self.team.halted.add(task)
        task.add_done_callback(self.team.halted.discard)
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
        if said := "".join(self.live):  # what was shown stays to be read; it was no answer, so no model gets it
            self.live = ()
            team.bus.publish(MessageAppended(self.id, stored_cut(self.state, said, detail)))
        self.count_waste()
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
            team.post.report(self, "message", text, status=detail)
        self._rest()

    def count_waste(self) -> None:
        """Count what tries have cost that failed."""
        waste, self.waste = self.waste, None
        if waste is not None:
            self.team.bus.publish(UsageCounted(self.id, waste))

    def _abandon(self, detail: Detail, reason: str) -> None:
        """Withdraw what the turn asked, close what it called and what it was asked."""
        waits = self.team.waits
        waits.withdraw(self.id, f"{self.name} was ended")
        self.calls.close("timed out" if detail == "timed_out" else "cancelled")
        if not self.is_leader and detail != "interrupted":  # else who waits for it waits on, until it goes on
            waits.give_up(self.id, f"{self.name}: {detail}{': ' + reason if reason else ''}")

    def _last_text(self) -> str:
        """Return the last text of this turn, or an empty string."""
        for message in reversed(self.state.messages[self._began :]):
            if message.role == "assistant" and message.content:
                return message.content
        return ""
