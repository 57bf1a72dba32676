"""A few words for each message that a request leaves out.

Pure, and the same for the same messages: no model is asked. What anybody said is quoted in one line
and escaped as in JSON, so that no envelope, tag or heading in it is one. Knows no state and does not
say which messages are left out.

Source: decisions 7, 9.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..envelope import KINDS, parse
from ..errors import EnvelopeError
from ..messages import Message
from .notes import note

EXCERPT = 160
"""Characters of a message that are quoted."""
LINE = 240
"""Characters of a line, at most."""
NAME = 60
"""Characters of a name in it."""
OLDEST = 3
"""Messages that are named from the beginning; the others are the latest."""


def digest_of(messages: Sequence[Message], left_out: Sequence[int], count: int, room: int, language: str) -> str:
    """Return what stands in place of messages: a line for each of the oldest few and the newest many.

    Parameters
    ----------
    messages : sequence of Message
        The whole conversation.
    left_out : sequence of int
        Indexes of the messages that are named.
    count : int
        How many messages the heading speaks of.
    room : int
        Characters of all lines but the heading, at most.
    language : str
        ``zh`` or ``en``.
    """
    heading = note("compacted" if count else "cut_short", language, count=count)
    lines = [_line(messages, index, language) for index in left_out[:OLDEST]]
    used = sum(len(line) + 1 for line in lines)
    while lines and used > room // 2:
        used -= len(lines.pop()) + 1
    newest: list[str] = []
    more = len(note("compacted_more", language, count=count)) + 1
    for index in reversed(left_out[len(lines) :]):
        line = _line(messages, index, language)
        if used + len(line) + 1 + more > room:
            break
        newest.append(line)
        used += len(line) + 1
    missing = len(left_out) - len(lines) - len(newest)
    if missing:
        lines.append(note("compacted_more", language, count=missing))
    return "\n".join([heading, *lines, *reversed(newest)])


def _line(messages: Sequence[Message], index: int, language: str) -> str:
    """Return who said what in one line. What is quoted is escaped, so that it ends where its quotation marks do."""
    message = messages[index]
    if message.role == "tool":
        who = note("digest_result", language, name=_one_line(_called(messages, index)))
    elif message.role == "assistant":
        who = note("digest_self", language)
    elif message.role == "system":
        who = note("digest_system", language)
    else:
        return _inserted_line(message, language)
    said = [_quoted(message.content)] if message.content else []
    said += [f"{_one_line(call.name)} {_quoted(call.arguments)}" for call in message.tool_calls]
    return f"- {who}: {'; '.join(said)}"[:LINE]


def _inserted_line(message: Message, language: str) -> str:
    content = message.content or ""
    try:
        if "envelope_id" not in message.metadata:
            raise EnvelopeError("a person's own words, whatever they look like")
        envelope = parse(content)
    except EnvelopeError:
        return f"- {note('digest_user', language)}: {_quoted(content)}"
    kind = KINDS[envelope.kind].label if language == "zh" else envelope.kind
    return f"- {_one_line(envelope.sender)} ({kind}, {envelope.id}): {_quoted(envelope.content)}"


def _called(messages: Sequence[Message], index: int) -> str:
    wanted = messages[index].tool_call_id
    for place in range(index - 1, -1, -1):
        for call in messages[place].tool_calls:
            if call.id == wanted:
                return call.name
    return "?"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:NAME]


def _quoted(text: str | None) -> str:
    # Of a text as long as a book only the beginning is worth looking at.
    said = " ".join((text or "")[: 8 * EXCERPT].split())
    return json.dumps(said if len(said) <= EXCERPT else said[: EXCERPT - 1] + "…", ensure_ascii=False)
