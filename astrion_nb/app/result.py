"""What the public team tells: plain values, safe to keep and to hand to another thread.

Pure: made from a state, knows no loop and no file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from ..approval import Approval
from ..events import Event, MessageAppended, QuestionClosed
from ..ids import HUMAN_ID
from ..messages import Usage
from ..runtime.waits import NEEDS_PERSON, NO_PERSON
from ..state import AgentState, TeamState


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """One agent, as it was at that moment.

    Parameters
    ----------
    agent_id : int
        0 for the leader.
    display_name, role_id : str
    status : {"running", "waiting", "idle", "completed", "terminated"}
    detail : str
        ``failed``, ``timed_out``, ``stopped``, ``interrupted`` or empty.
    error : str
    summary : str
        First line of its task.
    waits_for : tuple of str
        Display names, or ``human``.
    model_key : str
    usage : Usage
    last_text : str
        What it wrote last.
    """

    agent_id: int
    display_name: str
    role_id: str
    status: str
    detail: str
    error: str
    summary: str
    waits_for: tuple[str, ...]
    model_key: str
    usage: Usage
    last_text: str


@dataclass(frozen=True, slots=True)
class QuestionInfo:
    """An open question.

    Parameters
    ----------
    question_id : str
    asker, answerer : str
        Display names; ``human`` for the person.
    text : str
    approval : Approval or None
        What the person is asked to allow, where it is that.
    """

    question_id: str
    asker: str
    answerer: str
    text: str
    approval: Approval | None = None


@dataclass(frozen=True, slots=True)
class TeamResult:
    """How a run ended.

    Parameters
    ----------
    text : str
        The leader's last answer.
    status : {"completed", "failed", "stopped", "timed_out", "interrupted"}
    usage : Usage
        Of the whole conversation.
    agents : tuple of AgentInfo
        The sub-agents.
    conversation_id : str
    error : str
        Why it did not complete.
    unanswered : tuple of str
        Questions that needed a person where none could act, one line each.
    cost : float, optional
        Of the whole conversation, in the currency of the prices in ``models.toml``; ``None`` where one is missing.
    """

    text: str
    status: str
    usage: Usage
    agents: tuple[AgentInfo, ...]
    conversation_id: str
    error: str = ""
    unanswered: tuple[str, ...] = ()
    cost: float | None = None


def agent_info(state: TeamState, agent: AgentState) -> AgentInfo:
    """Return what is to be told of an agent."""
    waits = tuple(state.name_of(q.answerer) for q in state.open_questions() if q.asker == agent.agent_id)
    return AgentInfo(
        agent.agent_id,
        agent.display_name,
        agent.role_id,
        agent.status,
        agent.detail,
        agent.error,
        agent.task_summary,
        waits,
        agent.model_key,
        agent.tokens,
        agent.last_text,
    )


def question_infos(state: TeamState, *, for_human: bool = False) -> tuple[QuestionInfo, ...]:
    """Return the open questions, oldest first; with ``for_human`` only those a person is to answer."""
    return tuple(
        QuestionInfo(q.id, state.name_of(q.asker), state.name_of(q.answerer), q.content, q.approval)
        for q in state.open_questions()
        if not for_human or q.answerer == HUMAN_ID
    )


def unanswered(state: TeamState, event: Event) -> str:
    """Return the question that an event leaves without an answer because no person could act, in one line, or nothing.

    Parameters
    ----------
    state : TeamState
        Holds the event already.
    event : Event
    """
    if isinstance(event, QuestionClosed) and NO_PERSON in event.reason:
        return f"{event.question_id}: {state.questions[event.question_id].content}"
    return _refused(state, event) if isinstance(event, MessageAppended) else ""


def _refused(state: TeamState, event: MessageAppended) -> str:
    """Return the question that a tool refused."""
    message = event.message
    if message.role != "tool" or NEEDS_PERSON not in (message.content or ""):
        return ""
    for earlier in reversed(state.agents[event.agent_id].messages):
        for call in earlier.tool_calls:
            if call.id == message.tool_call_id and call.name == "ask_master":
                try:
                    arguments = json.loads(call.arguments)
                except ValueError:
                    return ""
                return f"{arguments.get('question_id', call.name)}: {arguments.get('question', '')}"
    return ""


def team_result(state: TeamState, unanswered: tuple[str, ...], cost: float | None = None) -> TeamResult:
    """Return how the last run ended."""
    return TeamResult(
        state.run_text,
        state.run_status or "completed",
        state.usage(),
        tuple(agent_info(state, agent) for agent in state.members()),
        state.conversation_id,
        state.run_error,
        unanswered,
        cost,
    )
