"""What goes to the page, and when: events and state in, messages out.

The state is the truth and the events only say where to look: a flush compares the state with what
the page has been sent and sends the difference, so nothing is lost or doubled, however events and
flushes interleave. Text being streamed is the one thing that the state does not hold; it is kept
here until its message is stored.

Every message carries ``seq``, counting from 1 within the view. What happened since the last flush
travels in one message: ``event`` or ``delta`` alone, several as ``batch {seq, events, items}`` (events
come first); ``snapshot`` says all of it anew. Events of the page are not the journal's:

=================================================  ================================================
``team {title, leader, run, status, error}``       fields that changed, and seconds ``elapsed``
``agent {id, name, status, detail, error, …}``     fields that changed
``say {a, n, …}``                                  a bubble of agent ``a``; its text is ``body``, or
                                                   the streamed text and ``live`` (with a ``tree``
                                                   of its pieces), or the ``copy`` of the bubble
                                                   ``[agent, n]``
``result {a, n, k, out, bad, reply}``              of call ``k`` of a bubble
``skip {a, count}``                                bubbles that are not sent
``ask {id, by, body}``, ``closed {id}``            questions that wait for the person
``warn {text}``, ``cost {cost}``, ``window {size}``
=================================================  ================================================

Pure: no widget, no loop, no thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ..approval import Approval
from ..events import (
    ApprovalAsked,
    ApprovalGiven,
    ConversationFiled,
    ConversationStarted,
    MessageAppended,
    MessageQueued,
    ModelLoading,
    QuestionAnswered,
    QuestionAsked,
    QuestionClosed,
    QuestionPassed,
    RequestStarted,
    RunEnded,
    RunStarted,
    Stamped,
    TextStreamed,
    Warned,
)
from ..ids import HUMAN_ID, LEADER_ID
from ..messages import Message
from ..printable import clean, one_field
from ..state import Question, TeamState
from .bubbles import body
from .lanes import Json, Lanes, window_of

WARNINGS = 5
"""Latest warnings that a page shows."""
COST_PAUSE = 1.0
"""Seconds between two looks at the cost."""


class Feed:
    """Turns what happens into messages for a page.

    Parameters
    ----------
    state : callable
        Returns the conversation's state; another object than before means another beginning.
    cost : callable, optional
        Returns what the conversation has cost, or ``None``.
    banner : callable, optional
        Returns what has to be said of who answers, such as that it is a small model; empty for nothing.
    now : callable
        Seconds since the epoch.
    """

    def __init__(
        self,
        state: Callable[[], TeamState],
        *,
        cost: Callable[[], float | None] = lambda: None,
        banner: Callable[[], str] = lambda: "",
        now: Callable[[], float] = time.time,
    ) -> None:
        self._state = state
        self._cost = cost
        self._banner = banner
        self._now = now
        self._loading = ""
        """What is being loaded; nobody can answer before it is."""
        self.seq = 0
        """Number of the last message."""
        self._known: TeamState | None = None
        self._lanes = Lanes()
        self._changed: set[int] = set()
        """Agents to look at."""
        self._streaming: set[int] = set()
        """Agents with text to send."""
        self._asked: set[str] = set()
        """Questions to look at."""
        self._open: dict[str, Question] = {}
        self._mine: dict[str, Json] = {}
        """Questions that the page shows as waiting for the person."""
        self._team: Json = {}
        self._team_changed = False
        self._warned = 0
        self._began = 0.0
        self._ended = 0.0
        self._cost_sent: float | None = None
        self._cost_at = 0.0

    # -- what happens -------------------------------------------------------------------

    def push(self, stamped: Stamped) -> None:
        """Take note of an event that the state holds already. Cheap: called for every token."""
        event = stamped.event
        if type(event) is TextStreamed:
            lane = self._lanes[event.agent_id]
            (lane.thoughts if event.reasoning else lane.pieces).append(event.text)
            self._streaming.add(event.agent_id)
            if self._loading:
                self._loading, self._team_changed = "", True
            return
        agent_id: int | None = getattr(event, "agent_id", None)
        if agent_id is not None:
            if type(event) is RequestStarted:
                self._begin_answer(agent_id)
                return
            self._changed.add(agent_id)
            if type(event) is MessageAppended and event.message.role == "assistant":
                self._end_answer(agent_id, event.message)
            if self._loading and type(event) is not MessageQueued:
                self._loading, self._team_changed = "", True
        elif isinstance(
            event, (QuestionAsked, QuestionAnswered, QuestionClosed, QuestionPassed, ApprovalAsked, ApprovalGiven)
        ):
            self._asked.add(event.question_id)
        elif isinstance(event, RunStarted):
            self._began, self._ended, self._team_changed = stamped.t, 0.0, True
        elif isinstance(event, RunEnded):
            self._ended, self._team_changed = stamped.t, True
        elif isinstance(event, ConversationStarted):
            self._team_changed = True
            self._changed.add(LEADER_ID)
        elif isinstance(event, (ConversationFiled, Warned)):
            self._team_changed = True
        elif isinstance(event, ModelLoading):
            loading = f"{event.what} ({event.seconds:.0f} s)" if event.what else ""
            self._team_changed |= loading != self._loading
            self._loading = loading

    def _begin_answer(self, agent_id: int) -> None:
        lane = self._lanes[agent_id]
        if lane.pieces or lane.thoughts or lane.shown:
            # A try that failed after it had shown something: the page starts over.
            lane.restart()
            self._streaming.add(agent_id)

    def _end_answer(self, agent_id: int, message: Message) -> None:
        lane = self._lanes[agent_id]
        shown = lane.shown
        lane.end(message.message_id or "")
        if shown and not message.tool_calls and not (message.content or "").strip():
            # No bubble takes the place of what the page shows: it must be wiped.
            self._streaming.add(agent_id)
        else:
            self._streaming.discard(agent_id)

    @property
    def due(self) -> bool:
        """Whether there is something to send."""
        return bool(self._changed or self._streaming or self._asked or self._team_changed)

    # -- the difference -----------------------------------------------------------------

    def take(self) -> Json | None:
        """Return the message that brings the page up to date, or ``None`` when it is.

        The first state, and one that is another object than before, gives a snapshot.
        """
        state = self._state()
        if state is not self._known:
            return self.snapshot()
        if not self.due:
            return None
        events: list[Json] = []
        window = window_of(len(state.agents))
        if window != self._lanes.window:
            self._lanes.window = window
            events.append({"t": "window", "size": window})
        if self._team_changed:
            self._team_events(state, events)
        asked = self._look_at_questions(state)
        for number in sorted(self._changed, key=lambda number: (number == LEADER_ID, number)):
            # The leader comes last: what it was told is what the others said.
            if number in state.agents:
                events += self._lanes.changes(state, state.agents[number], self._waits(number))
        for question in asked:
            self._question_event(state, question, events)
        self._cost_event(events)
        items = [item for number in sorted(self._streaming) for item in self._lanes[number].items(number)]
        self._settled()
        if not events and not items:
            return None
        self.seq += 1
        if not events:
            return {"v": 1, "kind": "delta", "seq": self.seq, "items": items}
        if not items and len(events) == 1:
            return {"v": 1, "kind": "event", "seq": self.seq, "event": events[0]}
        return {"v": 1, "kind": "batch", "seq": self.seq, "events": events, "items": items}

    def _settled(self) -> None:
        self._changed.clear()
        self._streaming.clear()
        self._asked.clear()
        self._team_changed = False

    def _team_events(self, state: TeamState, events: list[Json]) -> None:
        fields = self._team_fields(state)
        changed = {key: value for key, value in fields.items() if self._team.get(key) != value}
        if changed:
            self._team = fields
            events.append({"t": "team", **changed, "elapsed": self._elapsed()})
        new = state.warnings[max(self._warned, len(state.warnings) - WARNINGS) :]
        events += [{"t": "warn", "text": clean(text)} for text in new]
        self._warned = len(state.warnings)

    def _team_fields(self, state: TeamState) -> Json:
        return {
            "title": one_field(state.title),
            "leader": state.leader,
            "run": state.run,
            "status": state.run_status,
            "error": clean(state.run_error),
            "banner": self._banner(),
            "loading": clean(self._loading),
        }

    def _elapsed(self) -> float:
        """Seconds that the run has taken; the page counts on from there."""
        if not self._began:
            return 0.0
        return round(max(0.0, (self._ended or self._now()) - self._began), 1)

    def _waits(self, number: int) -> list[int]:
        return [question.answerer for question in self._open.values() if question.asker == number]

    def _look_at_questions(self, state: TeamState) -> list[Question]:
        """Return the questions that changed, oldest first; who waits for them has changed too."""
        asked = sorted((state.questions[question_id] for question_id in self._asked), key=lambda question: question.seq)
        for question in asked:
            if question.status == "open":
                self._open[question.id] = question
            else:
                self._open.pop(question.id, None)
            self._changed.add(question.asker)
        return asked

    def _question_event(self, state: TeamState, question: Question, events: list[Json]) -> None:
        mine = question.status == "open" and _for_person(state, question)
        if mine and question.id not in self._mine:
            self._mine[question.id] = _shown(question)
            events.append({"t": "ask", **self._mine[question.id]})
        elif not mine and self._mine.pop(question.id, None) is not None:
            events.append({"t": "closed", "id": question.id})

    def _cost_event(self, events: list[Json]) -> None:
        now = self._now()
        if now < self._cost_at + COST_PAUSE and not self._team_changed:
            return
        self._cost_at = now
        cost = self._cost()
        if cost != self._cost_sent:
            self._cost_sent = cost
            events.append({"t": "cost", "cost": cost})

    # -- everything ---------------------------------------------------------------------

    def snapshot(self) -> Json:
        """Return everything that the page shows.

        A page that has every message before it shows the same already and need not read it, unless it
        says ``reset``. For that, :meth:`take` what is waiting and send it first.
        """
        state = self._state()
        reset = state is not self._known or self.due
        if state is not self._known:
            self._known = state
            self._lanes.begin_anew()
            self._open = {question.id: question for question in state.open_questions()}
            self._asked.clear()
        self._look_at_questions(state)
        waiting = sorted(self._open.values(), key=lambda question: question.seq)
        self._mine = {question.id: _shown(question) for question in waiting if _for_person(state, question)}
        self._lanes.window = window_of(len(state.agents))
        self._team = self._team_fields(state)
        self._warned = len(state.warnings)
        if state.run_status == "running" and not self._began:
            self._began = self._now()
        if reset:  # else a page that need not read this would never hear of a cost that is only in it
            self._cost_sent = self._cost()
        agents = [self._lanes.whole(state, agent, self._waits(n)) for n, agent in sorted(state.agents.items())]
        self._settled()
        self.seq += 1
        out: Json = {
            "v": 1,
            "kind": "snapshot",
            "seq": self.seq,
            "state": {
                "team": {**self._team, "elapsed": self._elapsed()},
                "cost": self._cost_sent,
                "agents": agents,
                "questions": list(self._mine.values()),
                "warnings": [clean(text) for text in state.warnings[-WARNINGS:]],
            },
            "window": self._lanes.window,
        }
        if reset:
            out["reset"] = 1
        return out


def _for_person(state: TeamState, question: Question) -> bool:
    return question.answerer == HUMAN_ID or (question.answerer == LEADER_ID and state.leader == "human")


def _shown(question: Question) -> Json:
    shown = {"id": question.id, "by": question.asker, "body": body(question.content)}
    if question.approval is not None:
        shown["approval"] = _approval(question.approval)
    return shown


def _approval(asked: Approval) -> Json:
    """Return what a page shows of a request: nothing in it hides a character or turns the direction of the rest."""
    return {
        "tool": asked.tool,
        "arguments": one_field(asked.arguments),
        "preview": one_field(asked.preview),
        "kind": asked.kind,
        "digest": asked.digest,
        "until": asked.expires_at,
    }
