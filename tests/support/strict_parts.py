"""The parts and whole replies that the strict server sends; how each is meant stands in ``strict_server``."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

BOUND = 5.0
"""Seconds that any wait of these modules lasts at most."""

_call_numbers = itertools.count(1)


class Gate:
    """A point in a reply that the server does not pass until the test releases it."""

    def __init__(self) -> None:
        self._open: Future[None] = Future()
        self._reached = threading.Event()

    def release(self) -> None:
        """Let the server go on, now and whenever it comes here again."""
        if not self._open.done():
            self._open.set_result(None)

    def wait_reached(self, timeout: float = BOUND) -> None:
        """Block until the server stands at the gate (in a coroutine: ``await asyncio.to_thread(…)``)."""
        if not self._reached.wait(timeout):
            raise AssertionError("the server did not reach the gate in time")

    async def passed(self) -> None:
        """Wait here; the server's side of the gate."""
        self._reached.set()
        await asyncio.shield(asyncio.wrap_future(self._open))


@dataclass(frozen=True)
class Close:
    pass


@dataclass(frozen=True)
class NoDone:
    pass


@dataclass(frozen=True)
class Pause:
    seconds: float


Part = dict[str, Any] | bytes | Gate | Close | NoDone | Pause


@dataclass
class Reply:
    """A whole reply; a plain list of parts stands for ``Reply(parts)``.

    Parameters
    ----------
    parts : sequence of parts
    status : int
    headers : mapping
        Sent beside the standard ones.
    body : bytes or None
        A body that is not a stream; ``parts`` are then ignored.
    pace : float or None
        Seconds between chunks; the server's own pace when ``None``.
    hang_up : bool
        Close the connection before any byte.
    hold : Gate or None
        Stands before the status line.
    """

    parts: Sequence[Part] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    pace: float | None = None
    hang_up: bool = False
    hold: Gate | None = None


Response = Reply | Sequence[Part]


def close() -> Close:
    """Cut the connection at this point."""
    return Close()


def no_done() -> NoDone:
    """End the body properly, but without ``[DONE]``."""
    return NoDone()


def pause(seconds: float) -> Pause:
    """Wait, to pace what a person watches."""
    return Pause(seconds)


def hang_up() -> Reply:
    """Close the connection without a byte of answer."""
    return Reply(hang_up=True)


def status(code: int, body: Mapping[str, Any] | str = "", *, headers: Mapping[str, str] | None = None) -> Reply:
    """Answer with an HTTP error."""
    if not body:
        body = {"error": {"message": f"status {code}", "type": "error", "code": None}}
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return Reply(status=code, headers=headers or {}, body=raw)


def api_error(code: int, error_code: str, message: str, *, headers: Mapping[str, str] | None = None) -> Reply:
    """Answer with an HTTP error that carries a provider's error code."""
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": error_code}
    return status(code, {"error": error}, headers=headers)


def chunk(choice: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return a chunk with one choice, or none."""
    head = {"id": "chatcmpl-strict", "object": "chat.completion.chunk", "created": 1_760_000_000, "model": "strict-1"}
    return {**head, "choices": [] if choice is None else [dict(choice)], **more}


def delta(finish_reason: str | None = None, /, **fields: Any) -> dict[str, Any]:
    """Return a chunk whose delta has the given fields."""
    return chunk({"index": 0, "delta": fields, "finish_reason": finish_reason})


def finish(reason: str = "stop") -> dict[str, Any]:
    """Return the chunk that tells why the response ends."""
    return delta(reason)


def usage(prompt: int = 10, completion: int = 5, **details: Any) -> dict[str, Any]:
    """Return a usage chunk with empty choices."""
    counted = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return chunk(None, usage={**counted, **details})


def tool_delta(index: int | None = 0, /, **fields: Any) -> dict[str, Any]:
    """Return one tool-call piece; ``name`` and ``arguments`` go into its function.

    ``index=None`` is sent as null; pass ``without_index=True`` to leave it out.
    """
    piece: dict[str, Any] = {} if fields.pop("without_index", False) else {"index": index}
    function = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    piece.update(fields)
    if function:
        piece["function"] = function
    return delta(tool_calls=[piece])


def text(*pieces: str, reason: str | None = "stop", tokens: tuple[int, int] | None = (10, 5)) -> list[Part]:
    """Return a text answer, streamed in the given pieces.

    Parameters
    ----------
    *pieces : str
        One piece is split into words.
    reason : str or None
        Finish reason; ``None`` sends none.
    tokens : (prompt, completion) or None
        Usage, sent if the request asks for it.
    """
    if len(pieces) == 1:
        pieces = tuple(re.findall(r"\S+\s*|\s+", pieces[0]))
    parts: list[Part] = [delta(role="assistant", content="")]
    parts += [delta(content=piece) for piece in pieces]
    return parts + _tail(reason, tokens)


def reasoning(*pieces: str) -> list[Part]:
    """Return reasoning text; join it in front of ``text`` or ``calls``."""
    return [delta(reasoning_content=piece) for piece in pieces]


def calls(
    *wanted: tuple[Any, ...],
    say: str = "",
    reason: str | None = "tool_calls",
    tokens: tuple[int, int] | None = (10, 5),
) -> list[Part]:
    """Return an answer with tool calls, as a provider streams them.

    Parameters
    ----------
    *wanted : (name, arguments) or (name, arguments, id)
        Arguments are a mapping, or the argument text itself.
    say : str
        Text beside the calls.
    """
    parts: list[Part] = [delta(role="assistant", content=None)]
    parts += [delta(content=piece) for piece in re.findall(r"\S+\s*|\s+", say)]
    for index, (name, arguments, *given) in enumerate(wanted):
        raw = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        identifier = given[0] if given else f"call_s{next(_call_numbers)}"
        parts.append(tool_delta(index, id=identifier, type="function", name=name, arguments=""))
        middle = len(raw) // 2
        parts += [tool_delta(index, arguments=piece) for piece in (raw[:middle], raw[middle:])]
    return parts + _tail(reason, tokens)


def _tail(reason: str | None, tokens: tuple[int, int] | None) -> list[Part]:
    parts: list[Part] = [] if reason is None else [finish(reason)]
    return parts if tokens is None else [*parts, usage(*tokens)]
