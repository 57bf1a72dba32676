"""The six envelopes: how a message between agents looks to the model that reads it.

``KINDS`` is the whole table; adding a message type is one row. Rendering is byte-exact to the
message protocol (§1–§4). Parsing is anchored on the first five and the last two lines and splits
on ``\\n`` only, so any content survives, forged envelopes and closing tags included. Nothing in
the package routes by parsed text: sender, type and id travel as structured data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from . import ids
from .errors import EnvelopeError

Kind = Literal["task", "progress", "completion", "ask", "message", "answer"]


@dataclass(frozen=True, slots=True)
class KindRow:
    """One row of the table in message protocol §1.

    Parameters
    ----------
    label : str
        The words of the first line.
    tag : str
        The inner tag.
    prefix : str
        Prefix of the id (§5).
    message_type : str
        The word of ``pending_messages`` (data model §6).
    """

    label: str
    tag: str
    prefix: str
    message_type: str


KINDS: dict[Kind, KindRow] = {
    "task": KindRow("任务发布", "Task", "task", "task"),
    "progress": KindRow("任务进度输出", "Output", "out", "output"),
    "completion": KindRow("任务完成汇报", "Output", "out", "output"),
    "ask": KindRow("提问", "Ask", "ask", "ask"),
    "message": KindRow("消息", "Message", "msg", "message"),
    "answer": KindRow("回答", "Answer", "ans", "answer"),
}
_BY_LABEL: dict[str, Kind] = {row.label: kind for kind, row in KINDS.items()}


@dataclass(frozen=True, slots=True)
class Envelope:
    """One message between agents.

    Parameters
    ----------
    kind : str
        A key of :data:`KINDS`.
    sender : str
        Display name, or ``Team Leader``. One line, not empty.
    id : str
        ``[A-Za-z0-9_-]{1,64}``.
    content : str
        Any text.
    question_id : str or None
        Answers only: the question answered (decision 6).

    Raises
    ------
    EnvelopeError
        A field cannot stand in an envelope.
    """

    kind: Kind
    sender: str
    id: str
    content: str
    question_id: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise EnvelopeError(f"there is no message type {self.kind!r}; known are {', '.join(KINDS)}")
        if not self.sender or "\n" in self.sender:
            raise EnvelopeError(f"the sender {self.sender!r} must be one line and not empty")
        if not ids.well_formed(self.id):
            raise EnvelopeError(f"the id {self.id!r} must be 1 to 64 letters, digits, '_' or '-'")
        if self.question_id is not None and self.kind != "answer":
            raise EnvelopeError(f"only an answer has a question_id, not a message of type {self.kind!r}")
        if self.question_id is not None and not ids.well_formed(self.question_id):
            raise EnvelopeError(f"the question_id {self.question_id!r} must be 1 to 64 letters, digits, '_' or '-'")


def render(envelope: Envelope) -> str:
    """Return the text that a model reads, without a final line break (message protocol §1)."""
    row = KINDS[envelope.kind]
    opening = row.tag if envelope.question_id is None else f'{row.tag} question_id="{envelope.question_id}"'
    sender = envelope.sender
    return (
        f"来自 {sender} 的{row.label}\nid: {envelope.id}\n\n"
        f"<{sender}>\n<{opening}>\n{envelope.content}\n</{row.tag}>\n</{sender}>"
    )


def parse(text: str) -> Envelope:
    """Read what :func:`render` wrote; ``parse(render(e)) == e`` for every envelope.

    Parameters
    ----------
    text : str

    Raises
    ------
    EnvelopeError
        The text is not exactly one envelope.
    """
    lines = text.split("\n")
    if len(lines) < 8:
        raise EnvelopeError(f"an envelope has at least 8 lines, this text has {len(lines)}")
    first, second, third, outer, inner = lines[:5]
    sender, found, label = first.rpartition(" 的")
    if not first.startswith("来自 ") or not found or label not in _BY_LABEL:
        raise EnvelopeError(f"line 1 is not '来自 … 的…': {first[:80]!r}")
    sender = sender[len("来自 ") :]
    kind = _BY_LABEL[label]
    tag = KINDS[kind].tag
    if not second.startswith("id: "):
        raise EnvelopeError(f"line 2 is not 'id: …': {second[:80]!r}")
    if third:
        raise EnvelopeError("line 3 must be empty")
    if outer != f"<{sender}>" or lines[-1] != f"</{sender}>":
        raise EnvelopeError(
            f"the outer tag must be the sender {sender!r}, opened on line 4 and closed on the last line"
        )
    question_id: str | None = None
    if inner != f"<{tag}>":
        head, tail = f'<{tag} question_id="', '">'
        if kind != "answer" or not inner.startswith(head) or not inner.endswith(tail):
            raise EnvelopeError(f"line 5 must open <{tag}>: {inner[:80]!r}")
        question_id = inner[len(head) : -len(tail)]
    if lines[-2] != f"</{tag}>":
        raise EnvelopeError(f"the line before the last must close <{tag}>")
    return Envelope(kind, sender, second[len("id: ") :], "\n".join(lines[5:-2]), question_id)
