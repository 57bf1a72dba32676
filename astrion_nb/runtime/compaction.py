"""What of a conversation goes to its model, once not all of it fits any more.

A compaction is one stored system message: the file keeps the whole history, only requests get
shorter. The message holds a digest of what is left out and says, in its metadata, which messages
still go out; the latest one counts. Pure: reads a state, changes nothing, asks no model. Knows no
team, no endpoint and no token: sizes are characters.

Source: decisions 9, 12, 29; data model §5, §7.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..ids import LEADER_ID
from ..messages import Message, Usage
from ..state import AgentState
from .excerpts import LINE, digest_of

DIGEST = 4_000
"""Characters of a digest's quotations, at most."""
SHORTEST = 400
"""Characters below which no tool result is cut."""
SAFE = 8_000
"""Characters that any model is expected to take."""


class Compaction(NamedTuple):
    """What making room came to.

    Parameters
    ----------
    message : Message or None
        To be appended to the conversation; ``None`` when there is nothing to leave out.
    before : int
        Characters of the request as it is now.
    least : int
        Characters of what cannot be left out.
    """

    message: Message | None
    before: int
    least: int


def as_it_is(text: str) -> str:
    """Return the text."""
    return text


@dataclass(frozen=True, slots=True)
class _Plan:
    """What goes out: messages from ``start`` on, the pinned ones before it, results up to ``limit`` characters."""

    start: int
    pinned: tuple[int, ...] = ()
    limit: int | None = None


# -- what goes out ----------------------------------------------------------------------


def visible(
    state: AgentState, before: int | None = None, *, scrub: Callable[[str], str] = as_it_is
) -> Sequence[Message]:
    """Return the messages of an agent's request.

    Parameters
    ----------
    state : AgentState
    before : int, optional
        Only messages of a smaller index were there. Default: all are.
    scrub : callable
        As for :func:`compact`.

    Returns
    -------
    sequence of Message
        The system prompt; after a compaction its digest and the pinned messages; then the others.
        Whatever stands in the metadata, every tool call has its results and every result its call.
    """
    messages = state.messages if before is None else state.messages[:before]
    at = latest(state, before)
    kept = messages if at < 0 else _compacted(messages, at, scrub)
    if state.cuts:
        kept = [message for message in kept if not message.cut]
    if state.agent_id == LEADER_ID:  # whose prompt is no message of the conversation
        kept = [Message("system", state.system), *kept]
    return kept


def latest(state: AgentState, before: int | None = None) -> int:
    """Return the index of the latest compaction, or -1."""
    at = state.compacted
    while before is not None and at >= before:
        at = next((index for index in range(at - 1, -1, -1) if state.messages[index].compaction is not None), -1)
    return at


def _compacted(messages: Sequence[Message], at: int, scrub: Callable[[str], str]) -> list[Message]:
    plan, base = _read(messages, at), _base(messages)
    kept = [*messages[:base], messages[at], *(messages[index] for index in plan.pinned)]
    for index in range(plan.start, len(messages)):
        message = messages[index]
        if message.compaction is None:
            # What came after the compaction was not there to be cut.
            kept.append(_shown(message, plan.limit if index < at else None, scrub))
    return kept


def _base(messages: Sequence[Message]) -> int:
    """Return where the conversation begins: behind the system prompt."""
    return int(bool(messages) and messages[0].role == "system" and messages[0].compaction is None)


def _read(messages: Sequence[Message], at: int) -> _Plan:
    """Return what a stored compaction says, whatever a hand has made of it."""
    said: Mapping[str, Any] = messages[at].compaction or {}
    base = _base(messages)
    last = _last_response(messages, at)  # what came after it no model had seen
    start = _start_of_group(messages, max(base, min(_number(said.get("from"), base), last)))
    listed = said.get("pinned")
    numbers = {_number(item, -1) for item in listed} if isinstance(listed, (list, tuple)) else set()
    pinned = (index for index in sorted(numbers) if base <= index < start and messages[index].role == "user")
    limit = _number(said.get("result_limit"), 0)
    return _Plan(start, tuple(pinned), limit if limit >= SHORTEST else None)


def _number(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def _starts(messages: Sequence[Message], first: int, last: int) -> Iterator[int]:
    """Yield the places from ``first`` (one itself) to ``last`` where no call before waits for its result behind."""
    waiting: set[str] = set()
    for index in range(first, last + 1):
        message = messages[index] if index < len(messages) else None
        if message is not None and message.role == "tool":
            waiting.discard(message.tool_call_id or "")
            continue
        calls = message is not None and message.role == "assistant" and message.tool_calls
        if calls or not waiting:
            yield index
        if calls and message is not None:
            waiting = {call.id for call in message.tool_calls}


def _start_of_group(messages: Sequence[Message], at: int) -> int:
    first = next((index for index in range(at, -1, -1) if index < len(messages) and messages[index].tool_calls), 0)
    return max(_starts(messages, first, at), default=first)


def _shown(message: Message, limit: int | None, scrub: Callable[[str], str] = as_it_is) -> Message:
    if limit is None or message.role != "tool":
        return message
    content = scrub(message.content or "")
    if len(content) <= limit:
        return message
    tail = limit // 3
    gone = len(content) - limit
    cut = f"\n[cut: {gone} of {len(content)} characters left out here]\n"
    return replace(message, content=f"{content[: limit - tail]}{cut}{content[len(content) - tail :]}")


# -- making room ------------------------------------------------------------------------


def size(messages: Iterable[Message]) -> int:
    """Return the characters that messages say to a model."""
    return sum(
        len(message.content or "") + sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
        for message in messages
    )


def answered(state: AgentState) -> int:
    """Return the index of the last whole response, or -1: what came after it no model has seen."""
    return _last_response(state.messages, len(state.messages))


def _last_response(messages: Sequence[Message], before: int) -> int:
    for index in range(before - 1, -1, -1):
        if messages[index].role == "assistant" and not messages[index].cut:
            return index
    return -1


def compact(
    state: AgentState,
    questions: Collection[str],
    *,
    language: str,
    context: int | None = None,
    scrub: Callable[[str], str] = as_it_is,
) -> Compaction:
    """Say how an agent's requests get shorter: about half as long, and no longer than one that fitted.

    Parameters
    ----------
    state : AgentState
        No tool call may be open.
    questions : collection of str
        Ids of the open questions that the agent has to answer.
    language : str
        ``zh`` or ``en``.
    context : int, optional
        Tokens that the model takes, when that is known.
    scrub : callable
        How a recording holds a text: what is measured and quoted must be the same in its replay.

    Notes
    -----
    Old messages go first; results are cut only when that is not enough. The system prompt, the first
    and the present piece of work, the open questions and everything from the last response on stay.
    """
    if scrub is not as_it_is:
        state = replace(state, system=scrub(state.system), messages=[_scrubbed(one, scrub) for one in state.messages])
    messages, base, last = state.messages, _base(state.messages), answered(state)
    before = size(visible(state))
    if last < 0:
        return Compaction(None, before, before)
    now = _read(messages, state.compacted) if state.compacted >= 0 else _Plan(base)
    pinned = _pinned(messages, questions, last)
    target = _target(state, before, last, context)
    room = min(DIGEST, max(SHORTEST, target // 6), LINE * (last - base))
    always = size(messages[:base]) + size(messages[index] for index in pinned)
    always += len(state.system) if state.agent_id == LEADER_ID else 0
    free = target - always - len(digest_of(messages, (), len(messages), room, language)) - room
    starts = [*_starts(messages, now.start, last)] or [now.start]
    start, limit, rest = starts[-1], now.limit, 0
    for limit in _limits(now.limit, target):
        start, rest = _first_that_fits(messages, starts, pinned, limit, free)
        if rest <= free:
            break
    left_out = [index for index in range(base, start) if index not in pinned and _goes_out(messages[index])]
    said: dict[str, Any] = {
        "from": start,
        "pinned": [index for index in pinned if index < start],
        "left_out": len(left_out),
    }
    if limit is not None and any(_shown(message, limit) is not message for message in messages[start:]):
        said["result_limit"] = limit
    digest = digest_of(messages, left_out, len(left_out), room, language)
    made = Message(
        "system", digest, metadata={"message_source": "runtime", "visibility": "compact", "compaction": said}
    )
    after = always + len(digest) + rest
    return Compaction(made, before, after) if after < before else Compaction(None, before, min(before, always + rest))


def _scrubbed(message: Message, scrub: Callable[[str], str]) -> Message:
    calls = tuple(replace(call, arguments=scrub(call.arguments)) for call in message.tool_calls)
    return replace(message, content=message.content and scrub(message.content), tool_calls=calls)


def _pinned(messages: Sequence[Message], questions: Collection[str], last: int) -> list[int]:
    """Return what stays whatever is left out: first and present piece of work, open questions."""
    users = [index for index, message in enumerate(messages) if message.role == "user"]
    work = [index for index in users if messages[index].metadata.get("starts_work")]
    work = work or users  # another program's conversation does not say which ones began work
    asked = [index for index in users if messages[index].metadata.get("envelope_id") in questions]
    return sorted({index for index in (*work[:1], *work[-1:], *asked) if index < last})


def _target(state: AgentState, before: int, last: int, context: int | None) -> int:
    """Return the characters that the next request may have."""
    fitted = size(visible(state, last))  # the request that was answered
    most = max(SAFE, fitted)
    usage = Usage.from_json(state.messages[last].metadata.get("usage"))
    if context is not None and usage is not None and usage.input and fitted:
        most = int(context * fitted / usage.input / 2)
    return min(before // 2, most)


def _limits(now: int | None, target: int) -> list[int | None]:
    """Return the lengths to which results may be cut, the mildest first."""
    limits, limit = [now], max(SHORTEST, target // 2)
    while True:
        if now is None or limit < now:
            limits.append(limit)
        if limit == SHORTEST:
            return limits
        limit = max(SHORTEST, limit * 3 // 4)


def _goes_out(message: Message) -> bool:
    return message.compaction is None and not message.cut


def _first_that_fits(
    messages: Sequence[Message], starts: Sequence[int], pinned: Collection[int], limit: int | None, room: int
) -> tuple[int, int]:
    """Return the earliest start from which on the messages fit, else the last one, and their characters."""
    counted = [
        size((_shown(message, limit),)) if index not in pinned and _goes_out(message) else 0
        for index, message in enumerate(messages[starts[0] :], starts[0])
    ]
    rest, place = sum(counted), starts[0]
    for start in starts:
        rest -= sum(counted[place - starts[0] : start - starts[0]])
        place = start
        if rest <= room:
            break
    return place, rest
