"""What a stored message says, to whoever shows it: who speaks, for which purpose, what.

One reading for transcript and live view. Envelopes are read for their content only; who speaks is
what the metadata says. Pure; knows no form of output and no words.

Source: message protocol §6; decisions 7, 8, 9, 10; data model §5, §7.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from ..envelope import Envelope, Kind, parse
from ..errors import EnvelopeError
from ..ids import HUMAN_ID, LEADER_ID
from ..messages import Message
from ..state import SUMMARY_LENGTH, AgentState, TeamState


@dataclass(frozen=True, slots=True)
class Said:
    """A message that was put into a conversation.

    Parameters
    ----------
    by : int or None
        Number of who speaks: an agent's, 0 leader, -1 person; ``None`` when only the name is known, or nobody is.
    name : str
        The sender by the envelope; empty where there is none.
    kind : str or None
        The envelope's kind, which gives the purpose.
    id : str
        The envelope's id, or empty.
    text : str
    status : str
        A status that the message reports (``failed``, ``stopped``, …), or empty.
    by_person : bool
        Whether the person sent it in the leader's name.
    """

    by: int | None
    name: str
    kind: Kind | None
    id: str
    text: str
    status: str = ""
    by_person: bool = False


def envelope_of(text: str | None) -> Envelope | None:
    """Return the envelope that a text is, or ``None``."""
    try:
        return parse(text or "")
    except EnvelopeError:
        return None


def inserted(state: TeamState, agent: AgentState, message: Message) -> Said:
    """Read a user message of an agent's conversation."""
    metadata = message.metadata
    source = metadata.get("message_source")
    persons_own = agent.agent_id == LEADER_ID and "envelope_id" not in metadata and source in ("user", None)
    envelope = None if persons_own else envelope_of(message.content)
    if envelope is None:
        # The person's own message, or a stored text that some other program wrote.
        return Said(HUMAN_ID if source in ("user", None) else None, "", None, "", message.content or "")
    number = metadata.get("agent_id")
    known = isinstance(number, int) and number in state.agents
    by = number if known else LEADER_ID if envelope.sender == state.name_of(LEADER_ID) else None
    status = str(metadata.get("status") or "")
    return Said(by, envelope.sender, envelope.kind, envelope.id, envelope.content, status, source == "user")


def opens(agent: AgentState, message: Message) -> Kind | None:
    """Return the envelope kind of a message that began a sub-agent's piece of work, else ``None``."""
    if agent.agent_id == LEADER_ID or message.role != "user" or not message.metadata.get("starts_work"):
        return None
    envelope = envelope_of(message.content)
    return envelope.kind if envelope is not None else None


def task(agent: AgentState) -> str:
    """Return an agent's task in a line, with a mark where that was cut; what is stored has none."""
    said = agent.task_summary
    if len(said) < SUMMARY_LENGTH:
        return said
    told = [item.content for item in agent.pending] + [message.content or "" for message in agent.messages]
    rests = [text.partition(said)[2][:1] for text in told]
    return said.rstrip() + "…" if any(rest.isprintable() and rest for rest in rests) else said


def left_out(message: Message) -> int | None:
    """Return how many messages a compaction leaves out of the requests (0: only cuts results); ``None`` for others."""
    said = message.compaction
    if said is None:
        return None
    count = said.get("left_out")
    return count if isinstance(count, int) and count > 0 else 0


def purpose(agent: AgentState, message: Message, opened_by: Kind | None) -> Kind | None:
    """Return the purpose of what an agent wrote.

    Parameters
    ----------
    agent : AgentState
    message : Message
        One of its own.
    opened_by : str or None
        What began its present piece of work: a question's is ended by its answer.
    """
    if agent.agent_id == LEADER_ID or message.metadata.get("truncated") or not (message.content or "").strip():
        return None  # what broke off reached nobody
    # Decision 10: text beside tool calls is progress, text without is the end of the turn.
    return "progress" if message.tool_calls else "answer" if opened_by == "ask" else "completion"


_CLOSED = re.compile(
    r"not started: (cancelled|timed out)$|(cancelled|timed out) while it ran;|(interrupted): the program ended"
)
"""How the results begin that a turn's end gives to its open calls."""
_FATES = {"cancelled": "stopped", "timed out": "timed_out"}
_ENDED = ("stopped", "timed_out", "interrupted", "terminated", "failed")


def fate(state: TeamState, data: dict[str, Any] | None) -> str:
    """Return how a call ended that brought nothing, by its result: ``refused``, or how caller or answerer ended."""
    if data is None or data.get("success") is not False:
        return ""
    error = str(data.get("error") or "")
    if closed := _CLOSED.match(error):
        how = closed[closed.lastindex or 0]
        return _FATES.get(how, how)
    question = state.questions.get(str(data.get("question_id")))
    if question is not None and question.status == "closed":
        told = error.removeprefix(f"{state.name_of(question.answerer)}: ")
        return next((how for how in _ENDED if told != error and told.startswith(how)), "refused")
    return "refused"


def result(state: TeamState, content: str) -> tuple[dict[str, Any] | None, Said | None]:
    """Read a tool's result: the object that it is, without the envelope of an answer, and that answer."""
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        return None, None
    if not isinstance(data, dict):
        return None, None
    answer = data.get("answer")
    envelope = envelope_of(answer) if isinstance(answer, str) else None
    if envelope is None:
        return data, None
    by = next((a.agent_id for a in state.agents.values() if a.display_name == envelope.sender), None)
    if by is None and envelope.sender == state.name_of(HUMAN_ID):
        by = HUMAN_ID
    rest = {key: value for key, value in data.items() if key != "answer"}
    return rest, Said(by, envelope.sender, envelope.kind, envelope.id, envelope.content)
