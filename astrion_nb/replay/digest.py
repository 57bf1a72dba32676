"""What a request looked like: a digest to match it, and enough to say what differs.

A request is told by its messages (role, text, calls), its tools and its thinking mode; ids of
stored messages, times and usage are left out, and so is what :class:`Scrubber` takes away. Knows no
cassette, no order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from ..llm.model import ModelRequest
from ..messages import Message
from .scrub import Scrubber

HEAD = 60
"""Characters of a message that a cassette keeps beside its digest."""


class Line(NamedTuple):
    """One message of a request: role, digest, length of its text, beginning of its text."""

    role: str
    digest: str
    length: int
    head: str

    def __str__(self) -> str:
        return f"{self.role}, {self.length} characters: {self.head!r}"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, as a cassette keeps it.

    Parameters
    ----------
    digest : str
        Of everything below.
    mode : str
        Thinking mode.
    toolset : str
        Digest of the tool definitions.
    kept : int
        How many leading messages are those of the actor's request before.
    added : tuple of Line
        The messages after these.
    """

    digest: str
    mode: str
    toolset: str
    kept: int
    added: tuple[Line, ...]


class _History:
    __slots__ = ("hash", "lines", "messages")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.lines: list[Line] = []
        self.hash = hashlib.sha256()


class Digester:
    """Digests the requests of one team; each message is read once.

    Parameters
    ----------
    scrubber : Scrubber
    """

    def __init__(self, scrubber: Scrubber) -> None:
        self.scrub = scrubber.text
        self._histories: dict[str, _History] = {}
        self._toolsets: dict[int, tuple[Any, str]] = {}
        self.toolsets: dict[str, dict[str, str]] = {}

    def of(self, request: ModelRequest) -> Asked:
        """Return what a cassette keeps of a request."""
        history = self._histories.setdefault(request.actor, _History())
        before, messages = history.messages, request.messages
        kept = _common(before, messages)
        if kept < len(before):
            del history.messages[kept:], history.lines[kept:]
            history.hash = hashlib.sha256()
            for line in history.lines:
                history.hash.update(line.digest.encode())
        added = tuple(self._line(message) for message in messages[kept:])
        for line in added:
            history.hash.update(line.digest.encode())
        history.messages.extend(messages[kept:])
        history.lines.extend(added)
        toolset = self.toolset(request.tools)
        whole = history.hash.copy()
        whole.update(f"{toolset} {request.thinking_mode}".encode())
        return Asked(whole.hexdigest()[:16], request.thinking_mode, toolset, kept, added)

    def lines(self, actor: str) -> Sequence[Line]:
        """Return the messages of the actor's last request."""
        return self._histories[actor].lines

    def toolset(self, tools: Sequence[Mapping[str, Any]]) -> str:
        """Return the digest of tool definitions; what they were is in :attr:`toolsets`."""
        known = self._toolsets.get(id(tools))
        if known is None:
            names = {
                str((tool.get("function") or tool).get("name", place)): _short(orjson.dumps(tool), 8)
                for place, tool in enumerate(tools)
            }
            digest = _short(orjson.dumps(names), 8)
            self.toolsets[digest] = names
            known = self._toolsets[id(tools)] = (tools, digest)  # kept alive, so that the id stays theirs
        return known[1]

    def _line(self, message: Message) -> Line:
        content = self.scrub(message.content) if message.content else message.content
        calls = [(call.id, call.name, self.scrub(call.arguments)) for call in message.tool_calls]
        shown = (content or "") + "".join(f" {name}({arguments})" for _, name, arguments in calls)
        body = encode([message.role, content, calls, message.tool_call_id])
        return Line(message.role, _short(body, 12), len(shown), " ".join(shown[: 2 * HEAD].split())[:HEAD])


def encode(value: Any) -> bytes:
    """Return canonical JSON; a lone surrogate becomes a question mark."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        import json

        return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode("utf-8", "replace")


def _short(body: bytes, digits: int) -> str:
    return hashlib.sha256(body).hexdigest()[:digits]


def _common(before: list[Message], now: Sequence[Message]) -> int:
    length = len(before)
    if len(now) >= length and before == list(now[:length]):
        return length
    for place, (one, other) in enumerate(zip(before, now, strict=False)):
        if one != other:
            return place
    return min(length, len(now))


def differences(
    recorded: Sequence[Line],
    now: Sequence[Line],
    tools: tuple[Mapping[str, str], Mapping[str, str]],
    modes: tuple[str, str],
) -> str:
    """Say in one line what differs between a recorded request and the one at hand.

    Parameters
    ----------
    recorded, now : sequence of Line
    tools : pair of mapping
        Tool names and their digests, recorded and now.
    modes : pair of str
        Thinking mode, recorded and now.
    """
    found: list[str] = []
    for place in range(max(len(recorded), len(now))):
        one = recorded[place] if place < len(recorded) else None
        other = now[place] if place < len(now) else None
        if one is not None and other is not None and one.digest == other.digest:
            continue
        if one is None:
            found.append(f"message {place + 1} is new ({other})")
        elif other is None:
            found.append(f"message {place + 1} is missing (recorded: {one})")
        else:
            found.append(f"message {place + 1} differs (recorded: {one}; now: {other})")
        break
    if len(recorded) != len(now):
        found.append(f"{len(recorded)} messages were recorded, {len(now)} are asked with")
    before, after = tools
    changed = [name for name in before if name in after and before[name] != after[name]]
    for word, names in (
        ("changed", changed),
        ("missing", [name for name in before if name not in after]),
        ("new", [name for name in after if name not in before]),
    ):
        if names:
            found.append(f"tools {word}: {', '.join(names)}")
    if not found and before != after:
        found.append("the tools come in another order")
    if modes[0] != modes[1]:
        found.append(f"thinking mode {modes[1]!r}, recorded {modes[0]!r}")
    return "; ".join(found) or "nothing that is kept of it"
