"""The file of a recording, ``<notebook>.cassette.json``: versioned, readable, good to compare.

A cassette holds one *tape* for every team that was made while it was recorded, in the order of
their making: the facts that a replay needs to know, the total order of steps, every response, and
the outcome of every call of a tool that touches the world. One step, chunk or call stands on one
line. Knows no team, no model, no clock.

::

    {"format": "astrion-cassette", "version": 1, "teams": [
     {"facts": {"language": "en"}, "started": 1767225600000,
      "order": [["human", "human", 1, 0], ["Team Leader", "request", 1, 3], …
                ["UI Operator_1", "ended", "stopped"], …],
      "toolsets": {"5c0ffee5": {"ask_master": "0b…"}},
      "responses": [{"actor": "Team Leader", "n": 1, "model": "main", "digest": …, "added": […],
                     "stream": [[12, "Hello"]], "calls": […], "end": 1, "finish": "stop", "usage": {…}}, …],
      "outcomes": [{"agent": 1, "call": "call_1", "tool": "write_file", "text": …}]}]}

Times are milliseconds: ``started`` since the epoch, a step's since ``started``, a chunk's since
what came before it. A recording without timings leaves a step's time out and counts one
millisecond a step.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import orjson

from ..disk import check_replaceable, reason, write_atomic
from ..errors import ReplayError, StorageError
from ..messages import ToolCall, Usage
from .digest import Asked, Line

FORMAT = "astrion-cassette"
VERSION = 1
Row = TypeVar("Row", bound=Sequence[Any])


class Step(NamedTuple):
    """One admitted step, and when (milliseconds since the tape's start; ``None`` without timings)."""

    actor: str
    kind: str
    n: int
    at: int | None = None

    def __str__(self) -> str:
        return f"{self.actor} {self.kind} {self.n}"


class Ended(NamedTuple):
    """The turn of an agent was ended during the step before: ``stopped``, ``timed_out`` or ``failed``.

    ``interrupted`` came from no step: the team was put away.
    """

    actor: str
    how: str


class Chunk(NamedTuple):
    """A piece of a response: milliseconds since what came before it, text, whether it is reasoning."""

    after: int
    text: str
    reasoning: bool = False


@dataclass(slots=True)
class Failure:
    """How a response failed: the error's class by name, its message, what came with it."""

    kind: str
    message: str
    status: int | None = None
    retry_after: float | None = None
    partial: str = ""


@dataclass(slots=True)
class Response:
    """One try of one request; without ``finish`` and ``failure`` it was cut short from outside.

    ``text`` and ``reasoning`` are kept only where they are not what was streamed.
    """

    actor: str
    n: int
    model: str
    asked: Asked
    stream: list[Chunk] = field(default_factory=list)
    end: int = 0
    finish: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    text: str | None = None
    reasoning: str | None = None
    truncated: bool = False
    failure: Failure | None = None


@dataclass(slots=True)
class Outcome:
    """What a call of a tool with side effects came to; with neither text nor error it never ended."""

    agent: int
    call: str
    tool: str
    text: str | None = None
    error: str | None = None


@dataclass(slots=True)
class Tape:
    """The recording of one team."""

    started: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    order: list[Step | Ended] = field(default_factory=list)
    toolsets: dict[str, dict[str, str]] = field(default_factory=dict)
    responses: list[Response] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)


@dataclass(slots=True)
class Cassette:
    """The tapes of a file, in the order in which their teams were made."""

    teams: list[Tape] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path) -> Cassette:
        """Read a file.

        Raises
        ------
        ReplayError
            There is none, it is no cassette, or a later version wrote it.
        """
        try:
            data = orjson.loads(path.read_bytes())
        except FileNotFoundError:
            raise ReplayError(f"{path.name}: there is no such cassette; record it with --record {path.name}") from None
        except OSError as error:
            raise ReplayError(f"{path.name}: cannot be read ({error.strerror})") from None
        except orjson.JSONDecodeError as error:
            raise ReplayError(f"{path.name}: not valid JSON ({error}); record it again") from None
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ReplayError(f"{path.name}: this is no cassette; record one with --record {path.name}")
        if data.get("version") != VERSION:
            raise ReplayError(
                f"{path.name}: version {data.get('version')!r} of the format, this release reads {VERSION}; "
                "record it again, or use the release that wrote it"
            )
        try:
            return cls([_tape_from(tape) for tape in data["teams"]])
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            raise ReplayError(
                f"{path.name}: the cassette is damaged ({type(error).__name__}: {error}); record it again"
            ) from None

    def save(self, path: Path) -> None:
        """Replace a file at once.

        Raises
        ------
        StorageError
            It cannot be written; what was there is unchanged.
        """
        write_atomic(path, self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the file's content."""
        data = {"format": FORMAT, "version": VERSION, "teams": [_tape_to(tape) for tape in self.teams]}
        return ("".join(_lines(data, "")) + "\n").encode()


def check_recordable(path: Path) -> None:
    """Refuse a file that no recording can be written to, or that something else than a recording would be lost from.

    Raises
    ------
    ReplayError
        The name is a folder's or another thing's, a file of somebody's has it, or the folder takes no file.
    """
    try:
        check_replaceable(path)
        data = path.read_bytes() if path.exists() else b""
    except StorageError as error:
        raise ReplayError(f"no recording can be made: {error}") from None
    except OSError as error:
        raise ReplayError(f"no recording can be made: {path} cannot be read ({reason(error)})") from None
    if data.strip() and not _is_cassette(data):
        raise ReplayError(f"{path.name}: this is no cassette, and no recording replaces it; name another file")
    folder = next(parent for parent in path.resolve().parents if os.path.lexists(parent))
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise ReplayError(f"no recording can be made: {folder} is no folder that a file can be written into")


def _is_cassette(data: bytes) -> bool:
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return isinstance(found, dict) and found.get("format") == FORMAT


def _tape_to(tape: Tape) -> dict[str, Any]:
    order: list[list[Any]] = []
    first: dict[tuple[str, int], int] = {}
    for place, row in enumerate(tape.order):
        if isinstance(row, Ended):
            order.append([row.actor, "ended", row.how])
        else:
            order.append([row.actor, row.kind, row.n] if row.at is None else list(row))
            if row.kind == "request":
                first[row.actor, row.n] = place
    # In the order of asking as it was admitted: streams may begin in another one.
    responses = sorted(tape.responses, key=lambda item: first.get((item.actor, item.n), len(order)))
    out: dict[str, Any] = {"facts": tape.facts, "started": tape.started, "order": order, "toolsets": tape.toolsets}
    out["responses"] = [_response_to(item) for item in responses]
    if tape.outcomes:
        ordered = sorted(tape.outcomes, key=lambda item: (item.agent, item.call))
        out["outcomes"] = [
            {"agent": item.agent, "call": item.call, "tool": item.tool}
            | ({} if item.text is None else {"text": item.text})
            | ({} if item.error is None else {"error": item.error})
            for item in ordered
        ]
    return out


def _checked(row: Row, *kinds: type) -> Row:
    """Return a row whose first values are of these types; they are looked up later, far from the file."""
    for value, kind in zip(row, kinds, strict=False):
        if not isinstance(value, kind) or isinstance(value, bool):
            raise TypeError(f"{type(value).__name__} {value!r:.40} stands in place of {kind.__name__}")
    return row


def _tape_from(data: Mapping[str, Any]) -> Tape:
    order: list[Step | Ended] = [
        _checked(Ended(row[0], row[2]), str, str) if row[1] == "ended" else _checked(Step(*row), str, str, int)
        for row in data["order"]
    ]
    return Tape(
        int(data["started"]),
        dict(data["facts"]),
        order,
        data["toolsets"],
        [_response_from(item) for item in data["responses"]],
        [
            Outcome(
                *_checked((item["agent"], item["call"], item["tool"]), int, str, str),
                item.get("text"),
                item.get("error"),
            )
            for item in data.get("outcomes", ())
        ],
    )


def _response_to(item: Response) -> dict[str, Any]:
    asked = item.asked
    out: dict[str, Any] = {
        "actor": item.actor,
        "n": item.n,
        "model": item.model,
        "digest": asked.digest,
        "mode": asked.mode,
        "toolset": asked.toolset,
        "kept": asked.kept,
        "added": [list(line) for line in asked.added],
        "stream": [[c.after, c.text, "reasoning"] if c.reasoning else [c.after, c.text] for c in item.stream],
    }
    if item.calls:
        out["calls"] = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in item.calls]
    if item.failure is not None:
        failure = item.failure
        out["error"] = {"class": failure.kind, "message": failure.message}
        for name in ("status", "retry_after", "partial"):
            if getattr(failure, name) not in (None, ""):
                out["error"][name] = getattr(failure, name)
    elif item.finish:
        out["end"] = item.end
        out["finish"] = item.finish
    else:
        out["cut"] = True
    for name in ("text", "reasoning"):
        if getattr(item, name) is not None:
            out[name] = getattr(item, name)
    if item.truncated:
        out["truncated"] = True
    if item.usage is not None:
        out["usage"] = item.usage.to_json()
    return out


def _response_from(data: Mapping[str, Any]) -> Response:
    added = tuple(Line(*row) for row in data["added"])
    asked = Asked(data["digest"], data["mode"], data["toolset"], data["kept"], added)
    error = data.get("error")
    return Response(
        *_checked((data["actor"], data["n"], data["model"]), str, int, str),
        asked,
        [Chunk(row[0], row[1], len(row) > 2) for row in data["stream"]],
        data.get("end", 0),
        data.get("finish", ""),
        tuple(ToolCall(call["id"], call["name"], call["arguments"]) for call in data.get("calls", ())),
        Usage.from_json(data.get("usage")),
        data.get("text"),
        data.get("reasoning"),
        data.get("truncated", False),
        None
        if error is None
        else Failure(
            error["class"], error["message"], error.get("status"), error.get("retry_after"), error.get("partial", "")
        ),
    )


def _lines(value: Any, indent: str) -> Iterator[str]:
    """Lay JSON out: what holds only plain values stands on one line, everything else on several."""
    if isinstance(value, Mapping):
        inner, brackets = [(f"{_plain(key)}: ", item) for key, item in value.items()], "{}"
    elif isinstance(value, Sequence) and not isinstance(value, str):
        inner, brackets = [("", item) for item in value], "[]"
    else:
        yield _plain(value)
        return
    if not any(isinstance(item, (Mapping, list, tuple)) for _, item in inner):
        yield brackets[0] + ", ".join(key + _plain(item) for key, item in inner) + brackets[1]
        return
    yield brackets[0]
    deeper = indent + " "
    for place, (key, item) in enumerate(inner):
        yield f"{',' if place else ''}\n{deeper}{key}"
        yield from _lines(item, deeper)
    yield f"\n{indent}{brackets[1]}"


def _plain(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # a lone surrogate, or a number beyond 64 bits
        import json

        return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()
