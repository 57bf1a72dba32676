"""Makes of whatever stands in a file a history that a model can be asked with.

A hand, another program or a broken disk may leave a tool call without its result, a result without its
call, an id twice. What is loaded has each call followed by exactly one result and every id once, and
is the same each time: nothing is guessed, nothing depends on a clock. A history that a team of ours
wrote passes unchanged. Pure; knows no file and no endpoint.

Source: decisions 28, 29.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..envelope import parse, render
from ..errors import EnvelopeError
from ..ids import HUMAN_ID, LEADER_ID, abbreviation, well_formed
from ..messages import Message, unique_call_ids
from ..state import AgentState, Question, TeamState

LOST = '{"success":false,"error":"interrupted: the result of this call was not stored; it was not run again"}'
"""The result of a call that has none although the conversation went on."""

_ASKS = {"ask_master": "question", "ask_sub_agent": "question", "ask_other_agent": "content"}
"""Tools that wait for an answer, and which argument says what is asked."""
_DIGITS = 9
_STEM = 50
"""Characters of an envelope's id before the number that tells it from the first of that id."""
_NUMBERED = re.compile(r"msg_(user|auto|assistant|tool)_([0-9]{1,9})")


def is_sound(messages: Iterable[Message]) -> bool:
    """Say whether a history needs no mending; only its last calls may still lack their results."""
    ids: set[str] = set()
    envelopes: set[object] = set()
    calls: set[str] = set()
    waiting: set[str] = set()
    for message in messages:
        if message.message_id is not None:
            if message.message_id in ids:
                return False
            ids.add(message.message_id)
        role = message.role
        if role == "tool":
            if message.tool_call_id not in waiting or message.tool_calls:
                return False
            waiting.discard(message.tool_call_id)
            continue
        if waiting:
            return False
        if message.tool_calls:
            if role != "assistant":
                return False
            for call in message.tool_calls:
                if not call.id or call.id in calls:
                    return False
                calls.add(call.id)
                waiting.add(call.id)
        elif role == "user":
            envelope = message.metadata.get("envelope_id")
            if isinstance(envelope, str):
                if envelope in envelopes:
                    return False
                envelopes.add(envelope)
    return True


def mended(messages: Sequence[Message]) -> tuple[list[Message], list[str]]:
    """Return a history that is sound, and what was done to it, a line each.

    Notes
    -----
    A result that stands elsewhere goes behind its call; one without a call, a second one, and an
    envelope that stands there twice word for word are left out. A call without a result gets
    :data:`LOST`, unless nothing follows it. An id that is taken, another envelope's too, gives way to a
    new one; that of a call that is still open stays, because a question may name it.
    """
    notes: list[str] = []
    kept = list(_with_each_envelope_once(messages, notes))
    last = max((index for index, message in kept if message.role != "tool"), default=-1)
    results = _results(kept, notes)
    free = _Ids(message for _, message in kept)
    opened = {
        call.id
        for index, message in kept
        for place, call in enumerate(message.tool_calls)
        if index == last and message.role == "assistant" and (index, place) not in results
    }
    used = set(opened)
    out: list[Message] = []
    moved: dict[int, int] = {}
    for index, message in kept:
        if message.role == "tool":
            continue
        moved[index] = len(out)
        if not message.tool_calls:
            out.append(free.once(message, notes))
            continue
        if message.role != "assistant":
            notes.append(f"messages[{index}]: a {message.role} message calls no tools; its calls are left out")
            out.append(free.once(replace(message, tool_calls=()), notes))
            continue
        wanted = [call.id for call in message.tool_calls]
        taken = used - opened if index == last else used
        ids = unique_call_ids(wanted, prefix=f"call_{index}_", taken=taken)
        used.update(ids)
        calls = tuple(
            call if call.id == given else replace(call, id=given)
            for call, given in zip(message.tool_calls, ids, strict=True)
        )
        if ids != wanted:
            notes.append(f"messages[{index}]: a call's id was taken; it has a new one")
            message = replace(message, tool_calls=calls)
        out.append(free.once(message, notes))
        order = sorted((results[index, place], place) for place in range(len(calls)) if (index, place) in results)
        for at, place in order:
            moved[at] = len(out)
            result = replace(messages[at], tool_call_id=ids[place], tool_calls=())
            out.append(free.once(result, notes))
        if index == last:
            continue
        for place, call in enumerate(calls):
            if (index, place) not in results:
                notes.append(f"messages[{index}]: the call {call.id} has no result; it was not run again")
                out.append(Message("tool", LOST, free.new("tool"), tool_call_id=call.id))
    return [_repointed(message, moved) for message in out], notes


def _with_each_envelope_once(messages: Sequence[Message], notes: list[str]) -> Iterator[tuple[int, Message]]:
    seen: dict[str, set[str | None]] = {}
    taken = {message.metadata.get("envelope_id") for message in messages if message.role == "user"}
    for index, message in enumerate(messages):
        envelope = message.metadata.get("envelope_id")
        if message.role == "user" and isinstance(envelope, str):
            said = seen.setdefault(envelope, set())
            if message.content in said:
                notes.append(f"messages[{index}]: {envelope} is there already; it is left out")
                continue
            first = not said
            said.add(message.content)
            if not first:
                made = next(name for n in itertools.count(2) if (name := f"{envelope[:_STEM]}_{n}") not in taken)
                taken.add(made)
                notes.append(f"messages[{index}]: {envelope} is the id of another envelope; it is {made} now")
                message = _under(message, made)
        yield index, message


def _under(message: Message, envelope_id: str) -> Message:
    """Return an envelope under another id, in its text too."""
    content = message.content
    try:
        content = render(replace(parse(content or ""), id=envelope_id))
    except EnvelopeError:
        pass  # its text says no id
    return replace(message, content=content, metadata={**message.metadata, "envelope_id": envelope_id})


def _results(kept: Sequence[tuple[int, Message]], notes: list[str]) -> dict[tuple[int, int], int]:
    """Return which message is the result of which call: (index of the message, place of the call) to index."""
    found: dict[tuple[int, int], int] = {}
    missing: dict[str, list[tuple[int, int]]] = {}
    strays: list[tuple[int, str]] = []
    group: list[tuple[int, int, str]] = []

    def end() -> None:
        for index, place, call_id in group:
            missing.setdefault(call_id, []).append((index, place))

    for index, message in kept:
        if message.role != "tool":
            end()
            calls = message.tool_calls if message.role == "assistant" else ()
            group = [(index, place, call.id) for place, call in enumerate(calls)]
            continue
        wanted = message.tool_call_id or ""
        own = next((one for one in group if one[2] == wanted), None)
        if own is None:
            strays.append((index, wanted))
        else:
            group.remove(own)
            found[own[0], own[1]] = index
    end()
    for index, wanted in strays:
        if wanted and missing.get(wanted):
            found[missing[wanted].pop(0)] = index
            notes.append(f"messages[{index}]: the result of {wanted} stands behind its call now")
        else:
            notes.append(f"messages[{index}]: it is the result of no call; it is left out")
    return found


class _Ids:
    """The ids of the messages of one history, each to be given once."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self._all: set[str] = set()
        self._given: set[str] = set()
        self._highest: dict[str, int] = {}
        for message in messages:
            if message.message_id is not None:
                self._all.add(message.message_id)
                known = _NUMBERED.fullmatch(message.message_id)
                if known is not None:
                    self._highest[known[1]] = max(self._highest.get(known[1], 0), int(known[2]))

    def new(self, kind: str) -> str:
        while True:
            self._highest[kind] = self._highest.get(kind, 0) + 1
            made = f"msg_{kind}_{self._highest[kind]:03d}"
            if made not in self._all:
                self._all.add(made)
                self._given.add(made)
                return made

    def once(self, message: Message, notes: list[str]) -> Message:
        identifier = message.message_id
        if identifier is None or identifier not in self._given:
            if identifier is not None:
                self._given.add(identifier)
            return message
        known = _NUMBERED.fullmatch(identifier)
        made = self.new(known[1] if known is not None else message.role)
        notes.append(f"{identifier} is the id of two messages; the second is {made} now")
        return replace(message, message_id=made)


def _repointed(message: Message, moved: dict[int, int]) -> Message:
    """Let a compaction name the same messages by the indexes that they have now."""
    said = message.compaction
    if said is None:
        return message

    def now(index: object) -> Any:
        if not isinstance(index, int) or isinstance(index, bool):
            return index
        return moved[min((before for before in moved if before >= index), default=max(moved))]

    pinned = said.get("pinned")
    changed = {**said}
    if "from" in said:
        changed["from"] = now(said["from"])
    if isinstance(pinned, (list, tuple)):
        changed["pinned"] = [now(index) for index in pinned]
    return replace(message, metadata={**message.metadata, "compaction": changed})


def mend(state: TeamState, asked: Mapping[int, Mapping[str, str]]) -> Iterator[tuple[int, str]]:
    """Mend what a conversation was loaded to; yields agent and what was done, one by one.

    Parameters
    ----------
    state : TeamState
        Changed in place.
    asked : mapping
        By agent and call: the id of the question that another program's pending call waits for.
    """
    for number, agent in sorted(state.agents.items()):
        _name(state, agent)
        if not is_sound(agent.messages):
            agent.messages, notes = mended(agent.messages)
            count(agent, agent.messages, {})
            for note in notes:
                yield number, note
        _skip_numbers(agent)
    for number, waiting in asked.items():
        for call_id, question_id in waiting.items():
            _ask(state, state.agents[number], call_id, question_id)
    for question in state.open_questions():
        asker = state.agents.get(question.asker)
        if question.asker != HUMAN_ID and (asker is None or question.call_id not in asker.open_calls):
            question.reason = "the call that asked is not in the conversation"
        elif question.answerer != HUMAN_ID and question.answerer not in state.agents:
            question.reason = f"agent {question.answerer} does not exist"
        else:
            continue
        yield _close(state, question)
    for question in _circular(state):
        question.reason = "it closes a circle in which everybody waits for ever"
        yield _close(state, question)


def _close(state: TeamState, question: Question) -> tuple[int, str]:
    question.status = "closed"
    del state.waits[question.id]
    return question.asker, f"{question.id} is closed: {question.reason}"


def _circular(state: TeamState) -> Iterator[Question]:
    """Yield every question that would have been refused when it was asked: the latest of each circle (decision 56)."""
    edges: dict[int, set[int]] = {}
    for question in sorted(state.open_questions(), key=lambda one: (one.seq, one.created_at)):
        reached, stack = set[int](), [question.answerer]
        while stack:
            node = stack.pop()
            if node not in reached:
                reached.add(node)
                stack += edges.get(node, ())
        if question.asker in reached:
            yield question
        else:
            edges.setdefault(question.asker, set()).add(question.answerer)


def _name(state: TeamState, agent: AgentState) -> None:
    """Let an agent have a name of one line, and an abbreviation that can stand in an id."""
    if not agent.display_name.strip() or len(agent.display_name.splitlines()) > 1:
        agent.display_name = " ".join(agent.display_name.split()) or f"agent_{agent.agent_id}"
    if not well_formed(agent.abbreviation):
        held = {other.abbreviation: other.role_id for other in state.members() if other is not agent}
        agent.abbreviation = abbreviation(agent.role_name, agent.role_id, held)


def count(agent: AgentState, messages: Iterable[Message], times: Mapping[str, float]) -> None:
    """Derive from the messages what is not stored: counters, and open calls with their ``times``."""
    users = autos = requests = cuts = tools = 0
    compacted = -1
    before = agent.open_calls
    calls: dict[str, Any] = {}
    for index, message in enumerate(messages):
        role = message.role
        if role == "assistant":
            requests += 1
            cuts += message.cut
            for call in message.tool_calls:
                calls[call.id] = call
        elif role == "tool":
            tools += 1
            calls.pop(message.tool_call_id or "", None)
        elif role == "user":
            if (message.message_id or "").startswith("msg_auto_"):
                autos += 1
            else:
                users += 1
        elif message.compaction is not None:
            compacted = index
    agent.compacted = compacted
    agent.users, agent.autos, agent.requests, agent.cuts, agent.tools = users, autos, requests, cuts, tools
    agent.open_calls = {
        key: (call, before[key][1] if key in before else times.get(key, agent.updated_at))
        for key, call in calls.items()
    }


def _skip_numbers(agent: AgentState) -> None:
    """Let the counters pass every number that is given: where some are left out, the count is not the highest."""
    given = {
        "msg_user": agent.users,
        "msg_auto": agent.autos,
        "msg_assistant": agent.requests,
        "msg_tool": agent.tools,
    }
    for message in agent.messages:
        if message.message_id is not None:
            kind, _, number = message.message_id.rpartition("_")
            if kind in given and len(number) <= _DIGITS and number.isdecimal() and int(number) > given[kind]:
                given[kind] = int(number)
    agent.users, agent.autos, agent.requests, agent.tools = given.values()


def _ask(state: TeamState, asker: AgentState, call_id: str, question_id: str) -> None:
    """Let an agent wait again for what another program's pending call waits for."""
    call, t = asker.open_calls.get(call_id, (None, 0.0))
    if call is None or call.name not in _ASKS or question_id in state.questions or not well_formed(question_id):
        return
    try:
        said = json.loads(call.arguments)
        content = str(said[_ASKS[call.name]])
        target = LEADER_ID if call.name == "ask_master" else int(said.get("target_agent_id", said.get("agent_id")))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return  # its call is told that it was interrupted
    if target != asker.agent_id and target in state.agents:
        question = Question(question_id, asker.agent_id, target, content, call_id, call.name, 0, t)
        state.questions[question_id] = state.waits[question_id] = question


def envelope_id_of(message: Message) -> str | None:
    """Return the id that an envelope's text says; other programs say it nowhere else."""
    content = message.content
    if message.role != "user" or content is None or not content.startswith("来自 "):
        return None
    if message.metadata.get("message_source") == "user":
        return None  # whatever the person writes is the person's
    try:
        return parse(content).id
    except EnvelopeError:
        return None
