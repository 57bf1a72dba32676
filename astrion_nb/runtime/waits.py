"""Blocking questions: one wait-for graph over everybody, the person included.

An ask that would close a cycle is refused when it is made; answers find their question by id, and
whoever may not answer changes nothing. A question made in an earlier kernel is answered like any
other: its waiter is looked up, not remembered.

Knows the bus, the mailboxes' ``deliver`` and names; no model, no task, no clock of its own.

Source: decisions 4, 8, 15, 17, 18, 22, 55, 56; message protocol §4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from ..approval import Approval
from ..envelope import Envelope, render
from ..errors import AgentTerminated, NobodyToAnswer, QuestionError, TeamError, WouldDeadlock
from ..events import (
    AnswerKept,
    ApprovalAsked,
    ApprovalGiven,
    MessageQueued,
    PendingMessage,
    QuestionAnswered,
    QuestionAsked,
    QuestionClosed,
    QuestionPassed,
    StatusChanged,
)
from ..ids import HUMAN_ID, LEADER_ABBREVIATION, LEADER_ID, well_formed
from ..state import Question, TeamState
from .bus import Bus
from .names import title_of

NO_PERSON = "no person can act here"
"""How the reason or error of a question begins or goes on that needed a person where there was none."""
NOBODY = f"{NO_PERSON}, so nobody can answer"
"""The reason of a question that was left with a person where there is none any more."""
NEEDS_PERSON = f"this question needs a person, and {NO_PERSON}"
"""How such a question is refused at once, before it is one."""
PERSON_WAITS = "the person waits for"
"""How the reason of a question begins that the person cannot be asked while waiting for its asker."""
ADVICE = "decide yourself or report"
"""What its asker reads behind these; in the reason itself, which a person reads too, it does not stand."""
KEPT_ANSWERS = 64
"""Answers that may wait for their question, in one conversation."""


class Deliver(Protocol):
    """Puts a message into a mailbox."""

    def __call__(self, target: int, item: PendingMessage) -> None: ...


class Waits:
    """The questions of a conversation and who waits for them.

    Parameters
    ----------
    bus : Bus
    deliver : callable
        ``deliver(target, item)`` puts a message into a mailbox.
    now : callable
        Seconds since the epoch.
    human_can_act : callable
        Whether a person could answer here and now.
    changed : callable
        ``changed(agent_id)``: whether the agent waits has changed (its clock stops while it does).
    """

    def __init__(
        self,
        bus: Bus,
        deliver: Deliver,
        now: Callable[[], float],
        human_can_act: Callable[[], bool],
        changed: Callable[[int], None],
    ) -> None:
        self._bus = bus
        self._deliver = deliver
        self._now = now
        self._human_can_act = human_can_act
        self._changed = changed
        self._futures: dict[str, asyncio.Future[Question]] = {}
        self._given: set[str] = set()  # approvals of this process that no call has begun on

    @property
    def _state(self) -> TeamState:
        return self._bus.state

    # -- the graph ----------------------------------------------------------------------

    def waits_for(self, number: int) -> list[Question]:
        """Return the open questions that an agent (or the person) waits for."""
        return [question for question in self._state.open_questions() if question.asker == number]

    def settled(self, asker: int, call_id: str) -> Question | None:
        """Return the question of a tool call, when it is open no more."""
        for question in reversed(self._state.questions.values()):  # what is looked for was asked of late
            if question.asker == asker and question.call_id == call_id and question.status != "open":
                return question
        return None

    def deliver_again(self) -> None:
        """After loading: put every open question that was lost on its way to its target; none to a person who left."""
        state = self._state
        for question in state.open_questions():
            if question.asker == HUMAN_ID:
                self.close(question, "the program ended while the person waited")
                continue
            target = state.agents.get(question.target)
            if target is None or any(item.id == question.id for item in target.pending):
                continue
            if not any(message.metadata.get("envelope_id") == question.id for message in target.messages):
                # It wakes nobody: a conversation may be opened to be read. Who is waited for goes on
                # with the next run.
                self._bus.publish(MessageQueued(question.target, self._item(question)))

    def path(self, start: int, goal: int) -> list[Question] | None:
        """Return the open questions that lead from ``start`` to ``goal``, or ``None``."""
        stack: list[tuple[int, list[Question]]] = [(start, [])]
        seen = {start}
        edges: dict[int, list[Question]] = {}
        for question in self._state.open_questions():
            edges.setdefault(question.asker, []).append(question)
        while stack:
            node, way = stack.pop()
            for question in edges.get(node, ()):
                if question.answerer == goal:
                    return [*way, question]
                if question.answerer not in seen:
                    seen.add(question.answerer)
                    stack.append((question.answerer, [*way, question]))
        return None

    def _refuse_cycle(self, asker: int, target: int) -> None:
        way = self.path(target, asker)
        if way is None:
            return
        state = self._state
        names = [state.name_of(asker), state.name_of(target), *(state.name_of(question.answerer) for question in way)]
        last = way[-1]
        if asker == HUMAN_ID:
            todo = f"answer {last.id} first: %answer {last.id} …, or team.answer"
        else:
            todo = f"answer the open question {last.id} of {state.name_of(last.asker)} first"
        raise WouldDeadlock(f"this would wait for ever: {' → '.join(names)}; {todo}")

    # -- asking -------------------------------------------------------------------------

    def question_id(self, supplied: str | None, abbreviation: str) -> str:
        """Return the id under which a question goes: the supplied one if it is free and well formed."""
        if supplied is not None and well_formed(supplied) and supplied not in self._state.ids:
            return supplied
        return self._state.ids.free("ask", abbreviation)

    def check_target(self, asker: int, target: int) -> None:
        """Refuse what can never be answered.

        Raises
        ------
        TeamError, AgentTerminated, WouldDeadlock
        """
        state = self._state
        if asker == target:
            raise TeamError("you cannot ask yourself; work it out or ask somebody else")
        if target > LEADER_ID and state.agents[target].status == "terminated":
            raise AgentTerminated(f"{state.name_of(target)} is terminated and cannot answer")
        self._refuse_cycle(asker, target)

    def ask(self, asker: int, target: int, text: str, supplied: str | None, *, call_id: str, tool: str) -> Question:
        """Ask, without waiting; :meth:`answered` waits.

        Parameters
        ----------
        asker, target : int
            Agent numbers; 0 leader, -1 person.
        text : str
        supplied : str or None
            The id that the model gave.
        call_id, tool : str
            The asker's tool call.

        Returns
        -------
        Question
            Answered already when its answer had come early.

        Raises
        ------
        TeamError
            Asking oneself, a terminated agent, a cycle, or a person where none can act.
        """
        self.check_target(asker, target)
        if target == HUMAN_ID and not self._human_can_act():
            raise NobodyToAnswer(f"{NEEDS_PERSON}; {ADVICE}")
        state = self._state
        abbreviation = LEADER_ABBREVIATION if asker <= LEADER_ID else state.agents[asker].abbreviation
        question_id = self.question_id(supplied, abbreviation)
        kept = state.kept.get(question_id)
        self._bus.publish(QuestionAsked(question_id, asker, target, text, call_id, tool))
        question = state.questions[question_id]
        if kept is not None and kept.asker == asker and kept.by == target:
            self._settle(question, kept.by, kept.answer)
            return question
        self._begin_to_wait(asker)
        if target != HUMAN_ID:
            self._deliver(target, self._item(question))
        return question

    def ask_approval(self, asker: int, approval: Approval) -> Question:
        """Ask the person to allow a call, without waiting; :meth:`answered` waits.

        Raises
        ------
        WouldDeadlock
            The person waits for the asker.
        NobodyToAnswer
            No person can act here.
        """
        if not self._human_can_act():
            raise NobodyToAnswer(NO_PERSON)
        self._refuse_cycle(asker, HUMAN_ID)
        question_id = self._state.ids.free("ask", self._state.agents[asker].abbreviation or LEADER_ABBREVIATION)
        self._bus.publish(ApprovalAsked(question_id, asker, approval))
        self._begin_to_wait(asker)
        return self._state.questions[question_id]

    def _begin_to_wait(self, asker: int) -> None:
        if asker != HUMAN_ID and self._state.agents[asker].status != "waiting":
            self._bus.publish(StatusChanged(asker, "waiting"))
            self._changed(asker)

    def _item(self, question: Question) -> PendingMessage:
        asker = question.asker
        return PendingMessage(
            question.id,
            "ask",
            title_of(self._state, asker),
            asker if asker > LEADER_ID else None,
            question.content,
            self._now(),
            "user" if asker == HUMAN_ID else "team_leader" if asker == LEADER_ID else "sub_agent",
        )

    async def answered(self, question_id: str) -> Question:
        """Return the question when it is answered or closed."""
        question = self._state.questions[question_id]
        if question.status != "open":
            return question
        future = self._futures.get(question_id)
        if future is None or future.done():
            future = self._futures[question_id] = asyncio.get_running_loop().create_future()
        return await asyncio.shield(future)

    # -- answering ----------------------------------------------------------------------

    def answer(self, by: int, asker: int | None, question_id: str, text: str) -> str:
        """Answer a question.

        Parameters
        ----------
        by : int
            Who answers.
        asker : int or None
            Whom the answerer believes to have asked; ``None`` to go by the id alone.
        question_id : str
        text : str

        Returns
        -------
        str
            ``answered``, or ``kept`` when the question has not been asked yet.

        Raises
        ------
        QuestionError
            Unknown, answered, expired, somebody else's; nothing is changed.
        """
        state = self._state
        question = state.questions.get(question_id)
        if question is None:
            return self._keep(by, asker, question_id, text)
        owner = state.name_of(question.asker)
        if question.approval is not None:
            raise QuestionError(
                f"{question_id} asks for an approval, which no text gives: %astrion approve {question_id}, or "
                f"%astrion deny {question_id} REASON (team.approve, team.deny)"
            )
        if question.status == "answered":
            raise QuestionError(f"{question_id} is already answered, by {title_of(state, question.answered_by or 0)}")
        if question.status == "closed":
            raise QuestionError(f"{question_id} has expired ({question.reason}); {owner} does not wait for it any more")
        allowed = {question.target, question.answerer}
        if question.target == LEADER_ID:
            allowed.add(HUMAN_ID)  # the person may speak for the leader (decision 23)
        if by not in allowed:
            raise QuestionError(f"{question_id} was put to {title_of(state, question.target)}, not to you")
        if asker is not None and asker != question.asker:
            raise QuestionError(
                f"{question_id} is a question of {owner} (agent_id {question.asker}), not of {state.name_of(asker)}"
            )
        self._settle(question, by, text)
        return "answered"

    def approve(self, question_id: str, digest: str | None, *, ok: bool, reason: str, lasting: bool) -> None:
        """Allow or deny a call; what is said comes from the person, or from the time that has passed.

        Parameters
        ----------
        question_id : str
        digest : str or None
            Of what the person has seen; ``None`` where the id was typed.
        ok : bool
        reason : str
        lasting : bool
            Whether all calls of this kind are allowed to this agent.

        Raises
        ------
        QuestionError
            No such request, one that is settled, or another one than was seen; nothing is changed.
        """
        question = self._state.questions.get(question_id)
        if question is None or question.approval is None:
            waiting = [one.id for one in self._state.open_questions() if one.approval is not None]
            known = f"open are: {', '.join(waiting)}" if waiting else "none is open"
            raise QuestionError(f"{question_id!r} is no request for an approval; {known}")
        if question.status == "answered":
            raise QuestionError(f"{question_id} is already {'allowed' if question.allowed else 'denied'}")
        if question.status == "closed":
            raise QuestionError(f"{question_id} has expired ({question.reason})")
        if digest is not None and digest != question.approval.digest:
            raise QuestionError(f"{question_id} asks for another call than the one that was shown; look at it again")
        self._bus.publish(ApprovalGiven(question_id, ok, reason, lasting))
        self._given.add(question_id)
        self._release(question)

    def take(self, question_id: str) -> None:
        """Note that whoever waited for an approval goes on from here."""
        self._given.discard(question_id)

    def to_go_on(self, number: int) -> dict[str, Question]:
        """Return what an agent's open calls wait for, by call; of settled requests those that no call has begun on."""
        found = {question.call_id: question for question in self.waits_for(number)}
        for question_id in self._given:
            question = self._state.questions[question_id]
            if question.asker == number:
                found[question.call_id] = question
        return found

    def _keep(self, by: int, asker: int | None, question_id: str, text: str) -> str:
        state = self._state
        open_ids = [question.id for question in state.open_questions() if by in (question.target, question.answerer)]
        known = f"open are: {', '.join(open_ids)}" if open_ids else "no question is open"
        if by == HUMAN_ID or not well_formed(question_id):
            raise QuestionError(f"there is no question {question_id!r}; {known}")
        asker = LEADER_ID if asker is None else asker
        if question_id in state.kept:
            raise QuestionError(f"{question_id} has an answer waiting already; {known}")
        if question_id in state.ids or len(state.kept) >= KEPT_ANSWERS:
            raise QuestionError(f"{question_id!r} is not a question; {known}")
        self._bus.publish(AnswerKept(question_id, asker, by, text))
        return "kept"

    def _settle(self, question: Question, by: int, text: str) -> None:
        state = self._state
        abbreviation = LEADER_ABBREVIATION if by <= LEADER_ID else state.agents[by].abbreviation
        self._bus.publish(QuestionAnswered(question.id, by, state.ids.free("ans", abbreviation), text))
        self._release(question)

    def close(self, question: Question, reason: str) -> None:
        """End a question that will get no answer; its asker is told."""
        if question.status == "open":
            self._bus.publish(QuestionClosed(question.id, reason))
            self._release(question)

    def _release(self, question: Question) -> None:
        asker = question.asker
        if asker != HUMAN_ID and not self.waits_for(asker) and self._state.agents[asker].status == "waiting":
            self._bus.publish(StatusChanged(asker, "running"))
        if asker != HUMAN_ID:
            self._changed(asker)
        future = self._futures.pop(question.id, None)
        if future is not None and not future.done():
            future.set_result(question)

    def pass_to_human(self, question: Question) -> None:
        """Hand a question that the leader left unanswered to the person (decision 18).

        Where no person can act, or the person waits for the asker, it is closed instead.
        """
        if not self._human_can_act():
            self.close(question, NOBODY)
            return
        way = self.path(HUMAN_ID, question.asker)
        if way is not None:
            names = " → ".join(self._state.name_of(step.answerer) for step in way)
            self.close(question, f"{PERSON_WAITS} {self._state.name_of(question.asker)} (human → {names})")
            return
        self._bus.publish(QuestionPassed(question.id))

    def nobody_acts(self) -> None:
        """Where no person can act, end what was left with the person: questions are closed, approvals denied."""
        left = [question for question in self._state.open_questions() if question.answerer == HUMAN_ID]
        if not left or self._human_can_act():
            return
        for question in left:
            if question.approval is not None:
                self.approve(question.id, None, ok=False, reason=NO_PERSON, lasting=False)
            else:
                self.close(question, NOBODY)

    # -- an agent's end -----------------------------------------------------------------

    def unanswered(self, number: int) -> list[Question]:
        """Return the open questions that an agent has read and not answered."""
        waiting = {item.id for item in self._state.agents[number].pending}
        return [
            question
            for question in self._state.open_questions()
            if question.answerer == number and question.id not in waiting
        ]

    def give_up(self, number: int, reason: str) -> None:
        """Close every question put to an agent that cannot answer any more."""
        for question in self._state.open_questions():
            if question.answerer == number:
                self.close(question, reason)

    def withdraw(self, number: int, reason: str) -> None:
        """Close an agent's own open questions, without waking it."""
        for question in self.waits_for(number):
            self._bus.publish(QuestionClosed(question.id, reason))
            future = self._futures.pop(question.id, None)
            if future is not None:
                future.cancel()

    def envelope(self, question: Question) -> str:
        """Return the Answer envelope of an answered question (message protocol §4.2)."""
        by = question.answered_by if question.answered_by is not None else question.answerer
        return render(Envelope("answer", title_of(self._state, by), question.answer_id, question.answer, question.id))
