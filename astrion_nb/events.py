"""Everything that can happen in a conversation: a closed union of past-tense facts.

An event is a plain value. Each touches exactly one *scope*: one agent's document, or the
conversation's own; loading relies on it (a document knows the sequence number up to which it
speaks, so an event that it already holds is passed over). ``state.apply`` is the only reader that
changes anything.

To add an event: one class here, its name in the union, one branch in ``state.apply`` (the type
checker asks for it), one golden file. Knows no state, no file, no clock: time and sequence number
are given by the bus.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, get_args

from .approval import Approval
from .envelope import KINDS, Kind
from .messages import Message, Usage

Status = Literal["running", "waiting", "idle", "completed", "terminated"]
"""The five words of the data model (§6)."""
Detail = Literal["", "failed", "timed_out", "stopped", "interrupted"]
"""Why an ``idle`` agent is idle (decision 19)."""
Source = Literal["user", "team_leader", "sub_agent", "runtime"]
ItemKind = Kind | Literal["human"]
"""An envelope's kind, or ``human``: the person's own unwrapped message to the leader."""

_KIND_OF_TYPE: dict[str, ItemKind] = {
    "task": "task",
    "output": "progress",
    "ask": "ask",
    "message": "message",
    "answer": "answer",
}
_KNOWN_OF_PENDING = {
    *("id", "source_display_name", "source_agent_id", "message_type", "content", "created_at"),
    *("kind", "message_source", "wakes", "starts_work", "status", "notice_from"),
}


@dataclass(frozen=True, slots=True)
class PendingMessage:
    """A message in a mailbox (data model §6, ``pending_messages``).

    Parameters
    ----------
    id : str
        The envelope's id.
    kind : str
        Envelope kind, or ``human``.
    sender : str
        Display name that the envelope shows.
    sender_id : int or None
        The sending agent's number; ``None`` for leader and person.
    content : str
        Raw text, without envelope.
    created_at : float
        Seconds since the epoch.
    source : str
        ``metadata.message_source`` of the stored message.
    wakes : bool
        Whether it starts its owner when that one rests.
    starts_work : bool
        Whether it begins a piece of work when it is the first of a turn.
    status : str
        ``failed``, ``timed_out``, ``stopped``, ``terminated`` or empty (decision 9).
    notice_from : int or None
        The agent that wants the receiver's final text as a 消息 (decision 16).
    extra : mapping or None
        Keys of the stored message that this package does not know (decision 30).
    """

    id: str
    kind: ItemKind
    sender: str
    sender_id: int | None
    content: str
    created_at: float
    source: Source
    wakes: bool = True
    starts_work: bool = False
    status: str = ""
    notice_from: int | None = None
    extra: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the stored form: the data model's six keys first, ours after them, unknown ones last."""
        out: dict[str, Any] = {
            "id": self.id,
            "source_display_name": self.sender,
            "source_agent_id": self.sender_id,
            "message_type": "message" if self.kind == "human" else KINDS[self.kind].message_type,
            "content": self.content,
            "created_at": self.created_at,
            "kind": self.kind,
            "message_source": self.source,
            "wakes": self.wakes,
            "starts_work": self.starts_work,
        }
        if self.status:
            out["status"] = self.status
        if self.notice_from is not None:
            out["notice_from"] = self.notice_from
        if self.extra:
            out.update(self.extra)
        return out

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PendingMessage:
        """Read the stored form; ours may be missing when the parent application wrote it."""
        kind: ItemKind = data.get("kind") or _KIND_OF_TYPE.get(data.get("message_type") or "", "message")
        sender_id = data.get("source_agent_id")
        return cls(
            str(data["id"]),
            kind,
            str(data.get("source_display_name") or ""),
            sender_id,
            str(data.get("content") or ""),
            float(data.get("created_at") or 0.0),
            data.get("message_source") or ("team_leader" if sender_id is None else "sub_agent"),
            bool(data.get("wakes", True)),
            bool(data.get("starts_work", kind in ("task", "ask"))),
            str(data.get("status") or ""),
            data.get("notice_from"),
            {key: value for key, value in data.items() if key not in _KNOWN_OF_PENDING} or None,
        )


@dataclass(frozen=True, slots=True)
class ConversationStarted:
    """A conversation was created."""

    tag: ClassVar[str] = "conversation_started"
    conversation_id: str
    title: str
    project_path: str
    model_key: str
    run_mode: str
    leader: Literal["model", "human"]
    language: str
    system: str


@dataclass(frozen=True, slots=True)
class ConversationFiled:
    """The conversation got another title, or was archived or brought back; ``None`` is what stays as it was.

    A title outlives the tasks to come; without one the next task's is taken.
    """

    tag: ClassVar[str] = "conversation_filed"
    title: str | None = None
    archived: bool | None = None


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The team began to work on a message of the person; runs count from 1.

    ``title`` is what the message would be called, or empty; a title that was given outlives it.
    """

    tag: ClassVar[str] = "run_started"
    run: int
    title: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The team came to rest. ``text`` is the leader's last answer."""

    tag: ClassVar[str] = "run_ended"
    run: int
    status: Literal["completed", "failed", "stopped", "timed_out", "interrupted"]
    text: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class AgentCreated:
    """A sub-agent was created; its role's prompt is frozen in ``system``. ``timeout`` in seconds, 0 for none."""

    tag: ClassVar[str] = "agent_created"
    agent_id: int
    role_id: str
    role_name: str
    display_name: str
    instance: int
    abbreviation: str
    model_key: str
    thinking_mode: str
    system: str
    timeout: float
    background: bool
    task_summary: str


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """An agent's status changed."""

    tag: ClassVar[str] = "status_changed"
    agent_id: int
    status: Status
    detail: Detail = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class MessageQueued:
    """A message entered an agent's mailbox."""

    tag: ClassVar[str] = "message_queued"
    agent_id: int
    item: PendingMessage


@dataclass(frozen=True, slots=True)
class MessageAppended:
    """A message became part of an agent's conversation; ``drained`` left the mailbox by it."""

    tag: ClassVar[str] = "message_appended"
    agent_id: int
    message: Message
    drained: str = ""


@dataclass(frozen=True, slots=True)
class RequestStarted:
    """An agent asks its model for the ``n``-th time. Shown live, never stored."""

    tag: ClassVar[str] = "request_started"
    agent_id: int
    n: int


@dataclass(frozen=True, slots=True)
class TextStreamed:
    """A piece of an agent's answer (or of its reasoning). Shown live, never stored."""

    tag: ClassVar[str] = "text_streamed"
    agent_id: int
    text: str
    reasoning: bool = False


@dataclass(frozen=True, slots=True)
class ModelLoading:
    """A model is not ready yet; ``what`` says which, after ``seconds``; empty when the wait is over.

    Shown live, never stored.
    """

    tag: ClassVar[str] = "model_loading"
    what: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """A tool has something to show while its call goes on."""

    tag: ClassVar[str] = "tool_output"
    agent_id: int
    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class UsageCounted:
    """Tokens of a request that brought no message (a failed try): counted once, as waste."""

    tag: ClassVar[str] = "usage_counted"
    agent_id: int
    usage: Usage


@dataclass(frozen=True, slots=True)
class QuestionAsked:
    """``asker`` waits for an answer of ``target`` (agent numbers; 0 leader, -1 person)."""

    tag: ClassVar[str] = "question_asked"
    question_id: str
    asker: int
    target: int
    content: str
    call_id: str
    tool: str


@dataclass(frozen=True, slots=True)
class QuestionAnswered:
    """A question got its answer; ``by`` is who gave it, ``answer`` its text, ``answer_id`` the id of its envelope."""

    tag: ClassVar[str] = "question_answered"
    question_id: str
    by: int
    answer_id: str
    answer: str


@dataclass(frozen=True, slots=True)
class QuestionClosed:
    """A question will get no answer: withdrawn, or its target cannot give one."""

    tag: ClassVar[str] = "question_closed"
    question_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class QuestionReminded:
    """The leader was reminded of a question it had left unanswered (decision 18)."""

    tag: ClassVar[str] = "question_reminded"
    question_id: str


@dataclass(frozen=True, slots=True)
class QuestionPassed:
    """A question that the leader left unanswered went to the person (decision 18)."""

    tag: ClassVar[str] = "question_passed"
    question_id: str


@dataclass(frozen=True, slots=True)
class AnswerKept:
    """An answer came before its question and is kept for it (decision 15)."""

    tag: ClassVar[str] = "answer_kept"
    question_id: str
    asker: int
    by: int
    answer: str


@dataclass(frozen=True, slots=True)
class ApprovalAsked:
    """``asker`` waits for the person to allow a call."""

    tag: ClassVar[str] = "approval_asked"
    question_id: str
    asker: int
    approval: Approval


@dataclass(frozen=True, slots=True)
class ApprovalGiven:
    """The person, or the time that has passed, has allowed or denied a call; ``lasting``: all of its kind."""

    tag: ClassVar[str] = "approval_given"
    question_id: str
    ok: bool
    reason: str
    lasting: bool


@dataclass(frozen=True, slots=True)
class Warned:
    """Something that a person should know and that stops nothing."""

    tag: ClassVar[str] = "warned"
    text: str


Event = (
    ConversationStarted
    | ConversationFiled
    | RunStarted
    | RunEnded
    | AgentCreated
    | StatusChanged
    | MessageQueued
    | MessageAppended
    | RequestStarted
    | TextStreamed
    | ModelLoading
    | UsageCounted
    | QuestionAsked
    | QuestionAnswered
    | QuestionClosed
    | QuestionReminded
    | QuestionPassed
    | AnswerKept
    | ApprovalAsked
    | ApprovalGiven
    | ToolOutput
    | Warned
)

TYPES: dict[str, type[Any]] = {cls.tag: cls for cls in get_args(Event)}

FLEETING = (TextStreamed, RequestStarted, ModelLoading, ToolOutput)
"""Events that are shown and never stored."""


def scope(event: Event) -> int | None:
    """Return the number of the agent whose document the event touches, or ``None`` for the conversation's."""
    return getattr(event, "agent_id", None)


@dataclass(frozen=True, slots=True)
class Stamped:
    """An event as it was published.

    Parameters
    ----------
    seq : int
        Counts from 1 within the conversation, fleeting events excluded (they carry the number of
        the last stored one).
    t : float
        Seconds since the epoch.
    event : Event
    """

    seq: int
    t: float
    event: Event


_NESTED: dict[str, tuple[Callable[[Any], Any], Callable[[Mapping[str, Any]], Any]]] = {
    "item": (PendingMessage.to_json, PendingMessage.from_json),
    "message": (Message.to_json, Message.from_json),
    "usage": (Usage.to_json, Usage.from_json),
    "approval": (Approval.to_json, Approval.from_json),
}
_FIELDS: dict[type[Any], tuple[str, ...]] = {cls: tuple(f.name for f in fields(cls)) for cls in TYPES.values()}


def to_json(event: Event) -> dict[str, Any]:
    """Return the stored form of an event: its tag, its version, its fields."""
    out: dict[str, Any] = {"type": event.tag, "v": 1}
    for name in _FIELDS[type(event)]:
        value = getattr(event, name)
        nested = _NESTED.get(name)
        out[name] = nested[0](value) if nested is not None else value
    return out


def from_json(data: Mapping[str, Any]) -> Event:
    """Read what :func:`to_json` wrote.

    Raises
    ------
    ValueError
        Unknown tag, newer version, or a missing field.
    """
    cls = TYPES.get(str(data.get("type")))
    if cls is None:
        raise ValueError(f"unknown event {data.get('type')!r}")
    if data.get("v", 1) != 1:
        raise ValueError(f"event {cls.tag!r} has version {data.get('v')!r}; this release reads version 1")
    values: dict[str, Any] = {}
    try:
        for name in _FIELDS[cls]:
            if name not in data:
                continue
            nested = _NESTED.get(name)
            values[name] = nested[1](data[name]) if nested is not None else data[name]
        event: Event = cls(**values)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise ValueError(f"event {cls.tag!r}: {error}") from None
    return event
