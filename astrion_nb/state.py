"""The state of a conversation, and the only place that changes it.

``apply(state, event)`` is the one reducer: running teams, files at rest, live views, resuming and
replaying all read the state it makes. It changes the state in place (a conversation is long and an
event is small) and nothing else: no I/O, no clock.

Source: data model §4–§7, decisions 1, 5, 19, 26, 28, 31.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, assert_never

from .approval import Approval
from .events import (
    AgentCreated,
    AnswerKept,
    ApprovalAsked,
    ApprovalGiven,
    ConversationFiled,
    ConversationStarted,
    Detail,
    Event,
    MessageAppended,
    MessageQueued,
    ModelLoading,
    PendingMessage,
    QuestionAnswered,
    QuestionAsked,
    QuestionClosed,
    QuestionPassed,
    QuestionReminded,
    RequestStarted,
    RunEnded,
    RunStarted,
    Status,
    StatusChanged,
    TextStreamed,
    ToolOutput,
    UsageCounted,
    Warned,
)
from .ids import HUMAN_ID, LEADER_ABBREVIATION, LEADER_ID, LEADER_NAME, IdBook
from .messages import Message, ToolCall, Usage

SUMMARY_LENGTH = 60
"""Characters of a title or task summary (decision 31)."""


def summary(text: str) -> str:
    """Return the first line of a task, cut to 60 characters (decision 31)."""
    return (text.strip().splitlines() or [""])[0][:SUMMARY_LENGTH]


def title_line(text: str) -> str:
    """Return a title that somebody gave in one line: breaks of lines are blanks."""
    return " ".join(text.splitlines()).strip()


@dataclass(slots=True)
class Question:
    """A blocking question between agents, the leader and the person.

    Parameters
    ----------
    id : str
    asker, target : int
        Agent numbers; 0 leader, -1 person.
    content : str
    call_id : str
        The asker's tool call; empty when the person asks.
    tool : str
        ``ask_master``, ``ask_sub_agent``, ``ask_other_agent``, ``human`` or ``approval``.
    seq : int
        When it was asked; of two waits that would close a cycle the later is refused (decision 56).
    approval : Approval or None
        What the person is asked to allow, where it is that: then no text is an answer.
    allowed : bool
        Whether it was.
    """

    id: str
    asker: int
    target: int
    content: str
    call_id: str
    tool: str
    seq: int
    created_at: float
    status: Literal["open", "answered", "closed"] = "open"
    answer: str = ""
    answer_id: str = ""
    answered_by: int | None = None
    reason: str = ""
    reminded: bool = False
    passed: bool = False
    approval: Approval | None = None
    allowed: bool = False

    @property
    def answerer(self) -> int:
        """Whom the asker waits for now: the target, or the person once it was passed on."""
        return HUMAN_ID if self.passed else self.target


@dataclass(slots=True)
class AgentState:
    """One agent, the leader (number 0) included.

    Everything that an agent's ``metadata.json`` and ``messages.json`` hold, and the sequence
    number up to which it speaks.
    """

    agent_id: int
    role_id: str
    role_name: str
    display_name: str
    instance: int
    abbreviation: str
    model_key: str = ""
    thinking_mode: str = "fast"
    system: str = ""
    timeout: float = 0.0
    background: bool = False
    task_summary: str = ""
    created_at: float = 0.0
    updated_at: float = 0.0
    status: Status = "idle"
    detail: Detail = ""
    error: str = ""
    messages: list[Message] = field(default_factory=list)
    pending: list[PendingMessage] = field(default_factory=list)
    open_calls: dict[str, tuple[ToolCall, float]] = field(default_factory=dict)
    """Calls without a result yet, with the time they were made (epoch seconds)."""
    usage: dict[str, Usage] = field(default_factory=dict)
    """By model key."""
    requests: int = 0
    """Responses that became part of the conversation."""
    cuts: int = 0
    """Those among them that were cut off by the end of their turn, and go to no model."""
    compacted: int = -1
    """Index of the message that says which ones requests leave out; -1 for none."""
    users: int = 0
    autos: int = 0
    tools: int = 0
    seq: int = 0
    extra: dict[str, Any] = field(default_factory=dict)
    """Unknown keys of its files, by file name."""

    @property
    def last_text(self) -> str:
        """The last text the agent wrote to its end, or an empty string."""
        for message in reversed(self.messages):
            if message.role == "assistant" and message.content and not message.cut:
                return message.content
        return ""

    @property
    def tokens(self) -> Usage:
        """All tokens, every model together."""
        total = Usage()
        for usage in self.usage.values():
            total = total + usage
        return total

    def tool_counts(self) -> dict[str, int]:
        """Return how often each tool was called."""
        counts: dict[str, int] = {}
        for message in self.messages:
            for call in message.tool_calls:
                counts[call.name] = counts.get(call.name, 0) + 1
        return counts

    def next_message_id(self, kind: Literal["user", "auto", "assistant", "tool"]) -> str:
        """Return the id of the next message of a kind (decision 5): counters per file."""
        if kind == "user":
            return f"msg_user_{self.users + 1:03d}"
        if kind == "auto":
            return f"msg_auto_{self.autos + 1:03d}"
        if kind == "assistant":
            return f"msg_assistant_{self.requests + 1:03d}"
        return f"msg_tool_{self.tools + 1:03d}"


@dataclass(slots=True)
class TeamState:
    """A whole conversation."""

    conversation_id: str = ""
    title: str = ""
    title_given: bool = False
    """Whether a person gave the title: then no task changes it."""
    project_path: str = ""
    model_key: str = ""
    run_mode: str = "fast"
    leader: Literal["model", "human"] = "model"
    language: str = "en"
    created_at: float = 0.0
    updated_at: float = 0.0
    archived: bool = False
    seq: int = 0
    """Number of the last event of any scope."""
    own_seq: int = 0
    """Number of the last event of the conversation's own scope."""
    agents: dict[int, AgentState] = field(default_factory=dict)
    """By number; 0 is the leader."""
    questions: dict[str, Question] = field(default_factory=dict)
    """Every question that was ever asked, by id."""
    waits: dict[str, Question] = field(default_factory=dict)
    """Those among them that are open, oldest first: so few that who looks at them looks at nothing else."""
    kept: dict[str, AnswerKept] = field(default_factory=dict)
    """Answers that came before their question, by question id."""
    grants: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Kinds of calls that the person has allowed, by agent."""
    run: int = 0
    run_status: Literal["", "running", "completed", "failed", "stopped", "timed_out", "interrupted"] = ""
    run_text: str = ""
    run_error: str = ""
    warnings: list[str] = field(default_factory=list)
    ids: IdBook = field(default_factory=IdBook)
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def leader_state(self) -> AgentState:
        """The leader's part."""
        return self.agents[LEADER_ID]

    def members(self) -> list[AgentState]:
        """Return the sub-agents, terminated ones included, in the order of their numbers."""
        return [agent for number, agent in sorted(self.agents.items()) if number != LEADER_ID]

    def name_of(self, number: int) -> str:
        """Return the display name of an agent, ``Team Leader`` or ``human``."""
        if number == HUMAN_ID:
            return "human"
        agent = self.agents.get(number)
        return agent.display_name if agent is not None else f"agent {number}"

    def open_questions(self) -> list[Question]:
        """Return the questions that somebody waits for, oldest first."""
        return list(self.waits.values())

    def usage(self) -> Usage:
        """Return all tokens of the conversation."""
        total = Usage()
        for agent in self.agents.values():
            total = total + agent.tokens
        return total


def _appended(agent: AgentState, event: MessageAppended, t: float) -> None:
    message = event.message
    agent.messages.append(message)
    role = message.role
    if role == "assistant":
        agent.requests += 1
        agent.cuts += message.cut
        for call in message.tool_calls:
            agent.open_calls[call.id] = (call, t)
        usage = message.metadata.get("usage")
        if usage:
            counted = Usage.from_json(usage) or Usage()
            key = str(message.metadata.get("model_key") or agent.model_key)
            known = agent.usage.get(key)
            agent.usage[key] = counted if known is None else known + counted
    elif role == "tool":
        agent.tools += 1
        agent.open_calls.pop(message.tool_call_id or "", None)
    elif role == "user":
        if (message.message_id or "").startswith("msg_auto_"):
            agent.autos += 1
        else:
            agent.users += 1
    elif message.compaction is not None:
        agent.compacted = len(agent.messages) - 1
    if event.drained:
        for index, item in enumerate(agent.pending):
            if item.id == event.drained:
                del agent.pending[index]
                break


def apply(state: TeamState, event: Event, *, seq: int, t: float) -> None:
    """Change the state by one event.

    Parameters
    ----------
    state : TeamState
        Changed in place.
    event : Event
    seq : int
        The event's number; fleeting events carry that of the last stored one.
    t : float
        Seconds since the epoch.

    Raises
    ------
    KeyError
        The event names an agent or question that the state does not have.
    """
    match event:
        case TextStreamed() | RequestStarted() | ModelLoading() | ToolOutput():
            return
        case MessageAppended():
            agent = state.agents[event.agent_id]
            _appended(agent, event, t)
        case MessageQueued():
            agent = state.agents[event.agent_id]
            item = event.item
            agent.pending.append(item)
            state.ids.take(item.id)
            if item.kind == "task":
                agent.task_summary = summary(item.content)
        case StatusChanged():
            agent = state.agents[event.agent_id]
            agent.status, agent.detail, agent.error = event.status, event.detail, event.error
        case UsageCounted():
            agent = state.agents[event.agent_id]
            known = agent.usage.get(agent.model_key, Usage())
            agent.usage[agent.model_key] = known + event.usage
        case AgentCreated():
            agent = AgentState(
                event.agent_id,
                event.role_id,
                event.role_name,
                event.display_name,
                event.instance,
                event.abbreviation,
                event.model_key,
                event.thinking_mode,
                event.system,
                event.timeout,
                event.background,
                event.task_summary,
                t,
                t,
            )
            agent.messages.append(Message("system", event.system))
            state.agents[event.agent_id] = agent
        case _:
            _apply_conversation(state, event, seq, t)
            state.seq = state.own_seq = seq
            if not isinstance(event, ConversationFiled):  # nothing was worked: it stays where it stands in a list
                state.updated_at = t
            return
    state.seq = agent.seq = seq
    state.updated_at = agent.updated_at = t


def _apply_conversation(
    state: TeamState,
    event: ConversationStarted
    | ConversationFiled
    | RunStarted
    | RunEnded
    | QuestionAsked
    | QuestionAnswered
    | QuestionClosed
    | QuestionReminded
    | QuestionPassed
    | AnswerKept
    | ApprovalAsked
    | ApprovalGiven
    | Warned,
    seq: int,
    t: float,
) -> None:
    match event:
        case ConversationStarted():
            state.conversation_id = event.conversation_id
            state.title, state.title_given = event.title, bool(event.title)
            state.project_path = event.project_path
            state.model_key = event.model_key
            state.run_mode = event.run_mode
            state.leader = event.leader
            state.language = event.language
            state.created_at = t
            mode = "fast" if event.run_mode == "fast" else "thinking"
            leader = AgentState(
                LEADER_ID, "", LEADER_NAME, LEADER_NAME, 0, LEADER_ABBREVIATION, event.model_key, mode, event.system
            )
            leader.created_at = leader.updated_at = t
            state.agents[LEADER_ID] = leader
        case ConversationFiled():
            if event.title is not None:
                state.title, state.title_given = event.title, bool(event.title)
            if event.archived is not None:
                state.archived = event.archived
        case RunStarted():
            state.run, state.run_status, state.run_text, state.run_error = event.run, "running", "", ""
            if not state.title_given:
                state.title = event.title or state.title
        case RunEnded():
            state.run_status, state.run_text, state.run_error = event.status, event.text, event.error
        case QuestionAsked():
            state.questions[event.question_id] = state.waits[event.question_id] = Question(
                event.question_id, event.asker, event.target, event.content, event.call_id, event.tool, seq, t
            )
            state.ids.take(event.question_id)
            state.kept.pop(event.question_id, None)
        case QuestionAnswered():
            question = state.questions[event.question_id]
            question.status, question.answered_by = "answered", event.by
            question.answer, question.answer_id = event.answer, event.answer_id
            state.waits.pop(event.question_id, None)
            state.ids.take(event.answer_id)
        case QuestionClosed():
            question = state.questions[event.question_id]
            question.status, question.reason = "closed", event.reason
            state.waits.pop(event.question_id, None)
        case QuestionReminded():
            state.questions[event.question_id].reminded = True
        case QuestionPassed():
            state.questions[event.question_id].passed = True
        case AnswerKept():
            state.kept[event.question_id] = event
        case ApprovalAsked():
            asked = event.approval
            question = Question(
                event.question_id, event.asker, HUMAN_ID, asked.tool, asked.call_id, "approval", seq, t, approval=asked
            )
            state.questions[event.question_id] = state.waits[event.question_id] = question
            state.ids.take(event.question_id)
        case ApprovalGiven():
            question = state.questions[event.question_id]
            question.status, question.answered_by = "answered", HUMAN_ID
            question.allowed, question.reason = event.ok, event.reason
            state.waits.pop(event.question_id, None)
            if event.ok and event.lasting and question.approval is not None:
                held, kind = state.grants.get(question.asker, ()), question.approval.kind
                state.grants[question.asker] = (*(one for one in held if one != kind), kind)
        case Warned():
            state.warnings.append(event.text)
        case _:
            assert_never(event)
