"""A fast fake of an OpenAI-compatible chat server, for measuring *clients*.

What the "model" does is set beforehand, so that a client object can be kept while the script changes; this
also resets the statistics::

    GET /set/N100K3T50L200R100?delegate=create_sub_agent&role=worker

``N … R`` are those of :class:`cells.Cell`. ``delegate`` names the tool of the leader's fan-out (default: the
first tool offered); ``role`` fills its ``role_id``; ``agent_id`` counts from 1 within a fan-out.

Who asks is read from the tools offered: a request that offers ``echo`` (or what ``worker`` names) comes from a
worker, any other from the leader. A worker calls ``echo`` K times, then answers T tokens. The leader calls its
delegate N times in ONE answer; every later request of it is answered with T tokens. How many of the N answers its
requests hold is counted (``answers_seen``), whichever way they are handed back: as tool results or as messages.

With R = 0 the whole body goes out in one write, still one HTTP chunk per event; with R > 0 each token is its own
write, on its own timer. GET /stats gives the statistics. Streams only. Knows nothing of the subjects.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import resource
import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import httptools
import orjson
from cells import Cell, text_tokens

USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 50,
    "total_tokens": 150,
    "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 0,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}
HEAD_SSE = (
    b"HTTP/1.1 200 OK\r\nserver: fake\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\nx-request-id: req_bench\r\n\r\n"
)


def http_chunk(data: bytes) -> bytes:
    """Frame ``data`` as one chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


DONE = http_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def sse(delta: dict[str, Any] | None, finish: str | None = None, usage: dict[str, Any] | None = None) -> bytes:
    """Return one event of a stream; ``delta`` None for the usage event, which has no choices."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    event = {
        "id": "chatcmpl-bench0000000000000000000",
        "object": "chat.completion.chunk",
        "created": 1760000000,
        "model": "gpt-4o-mini",
        "service_tier": "default",
        "system_fingerprint": "fp_0000000000",
        "choices": [] if delta is None else [choice],
        "usage": usage,
    }
    return http_chunk(b"data: " + orjson.dumps(event) + b"\n\n")


@lru_cache(maxsize=64)
def text_events(t: int, mixed: bool, with_usage: bool) -> tuple[bytes, tuple[bytes, ...], bytes]:
    """Return a final answer as its first event, one event a token, and its end."""
    first = sse({"role": "assistant", "content": "", "refusal": None})
    tokens = tuple(sse({"content": word}) for word in text_tokens(t, mixed))
    return first, tokens, sse({}, "stop") + (sse(None, None, USAGE) if with_usage else b"") + DONE


def call_events(calls: Iterable[tuple[str, str, str]], with_usage: bool) -> bytes:
    """Return an answer that is all tool calls, each in three deltas."""
    out = [sse({"role": "assistant", "content": None})]
    for i, (call_id, name, arguments) in enumerate(calls):
        function = {"name": name, "arguments": ""}
        out.append(sse({"tool_calls": [{"index": i, "id": call_id, "type": "function", "function": function}]}))
        middle = len(arguments) // 2
        for part in (arguments[:middle], arguments[middle:]):
            out.append(sse({"tool_calls": [{"index": i, "function": {"arguments": part}}]}))
    out.append(sse({}, "tool_calls"))
    if with_usage:
        out.append(sse(None, None, USAGE))
    out.append(DONE)
    return b"".join(out)


def delegate_arguments(function: dict[str, Any], i: int, role: str) -> str:
    """Fill the required parameters of a delegate from its schema, for the ``i``-th call from 0."""
    schema = function.get("parameters") or {}
    properties = schema.get("properties") or {}
    values: dict[str, Any] = {}
    for name in schema.get("required") or list(properties):
        kind = str((properties.get(name) or {}).get("type"))
        if name == "agent_id":
            values[name] = i + 1
        elif name == "role_id":
            values[name] = role
        else:
            values[name] = {"integer": i, "boolean": False, "array": [], "object": {}}.get(kind, f"work item {i}")
    return orjson.dumps(values).decode()


class Statistics:
    """What happened since the last ``/set``."""

    def __init__(self) -> None:
        self.first_request_t: float | None = None
        self.kinds: dict[str, int] = {}
        self.requests = self.finished = self.dropped = self.bad = 0
        self.bytes_in = 0
        self.inflight = self.max_inflight = 0
        self.connections = 0
        self.answers_seen = 0
        self.last_bad = ""
        self._cpu = _cpu()

    def dump(self) -> bytes:
        """Return the statistics as JSON, with the CPU seconds of this process since the reset."""
        public = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return orjson.dumps(public | {"cpu": _cpu() - self._cpu})


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Server:
    """The script in force and its statistics, shared by the connections."""

    def __init__(self) -> None:
        self.cell = Cell(1, 3, 50)
        self.delegate = ""
        self.role = "worker"
        self.worker = "echo"
        self.stats = Statistics()
        self.call_ids = itertools.count(1)

    def set(self, url: str) -> None:
        """Put the script of a ``/set`` URL in force and forget the statistics."""
        parts = urlsplit(url)
        query = parse_qs(parts.query)
        self.cell = Cell.parse(parts.path)
        self.delegate = query.get("delegate", [""])[0]
        self.role = query.get("role", ["worker"])[0]
        self.worker = query.get("worker", ["echo"])[0]
        self.stats = Statistics()

    def answer(self, request: dict[str, Any]) -> tuple[str, bytes | None]:
        """Return what kind of turn a request is, and its body when that is all tool calls."""
        cell = self.cell
        tools = [tool["function"] for tool in request.get("tools") or ()]
        messages = request["messages"]
        turns = sum(message["role"] == "assistant" for message in messages)
        if any(tool["name"] == self.worker for tool in tools):
            if turns >= cell.k:
                return "worker_final", None
            kind, calls = "worker_tool", [("echo", f'{{"text":"ping {turns} of a worker"}}')]
        elif turns == 0 and cell.n:
            tool = next(tool for tool in tools if not self.delegate or tool["name"] == self.delegate)
            kind = "leader_fanout"
            calls = [(tool["name"], delegate_arguments(tool, i, self.role)) for i in range(cell.n)]
        else:
            returned = (message.get("content") for message in messages if message["role"] in ("user", "tool"))
            seen = sum(content.count(cell.answer) for content in returned if isinstance(content, str))
            self.stats.answers_seen = max(self.stats.answers_seen, seen)
            return "leader_final", None
        numbered = [(f"call_{next(self.call_ids):024d}", name, arguments) for name, arguments in calls]
        return kind, call_events(numbered, _with_usage(request))


def _with_usage(request: dict[str, Any]) -> bool:
    return bool((request.get("stream_options") or {}).get("include_usage"))


class Connection(asyncio.Protocol):
    """One connection: reads requests, answers each at the script's pace."""

    transport: asyncio.Transport

    def __init__(self, server: Server) -> None:
        self.server = server
        self.loop = asyncio.get_running_loop()
        self.parser = httptools.HttpRequestParser(self)
        self.body: list[bytes] = []
        self.url = b""
        self.timer: asyncio.TimerHandle | None = None
        self.stats: Statistics | None = None  # those that the request in flight is counted in
        self.tokens: Sequence[bytes] = ()
        self.tail = b""
        self.sent = 0
        self.t_first = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transports do not derive from it
        self.server.stats.connections += 1

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.stats is not None:
            self.stats.inflight -= 1
            self.stats.dropped += 1
            self.stats = None

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.server.stats.bad += 1
            self.server.stats.last_bad = repr(error)
            self.transport.close()

    def on_message_begin(self) -> None:
        self.body, self.url = [], b""

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_body(self, part: bytes) -> None:
        self.body.append(part)

    def on_message_complete(self) -> None:
        url = self.url.decode()
        if url == "/stats":
            self.send_json(self.server.stats.dump())
        elif url.startswith("/set/"):
            self.server.set(url)
            self.send_json(b"{}")
        elif url.endswith("/chat/completions"):
            self.complete(b"".join(self.body))
        else:
            self.refuse(b"404 Not Found", f"no such path: {url}")

    def complete(self, body: bytes) -> None:
        """Answer one request for a chat completion."""
        stats = self.server.stats
        stats.requests += 1
        stats.bytes_in += len(body)
        if stats.first_request_t is None:
            stats.first_request_t = time.monotonic()
        try:
            request = orjson.loads(body)
            if not request.get("stream"):
                raise ValueError("only streams are served")
            kind, calls = self.server.answer(request)
        except Exception as error:  # whatever the script cannot read is the subject's fault and is reported
            self.refuse(b"400 Bad Request", f"{error!r} in {body[:300].decode('utf-8', 'replace')}")
            return
        stats.kinds[kind] = stats.kinds.get(kind, 0) + 1
        stats.inflight += 1
        stats.max_inflight = max(stats.max_inflight, stats.inflight)
        self.stats = stats
        cell = self.server.cell
        if calls is not None:
            self.later(cell.lat / 1e3, lambda: self.finish(HEAD_SSE + calls))
            return
        first, tokens, tail = text_events(cell.t, cell.mixed, _with_usage(request))
        if not cell.rate:
            self.later(cell.lat / 1e3, lambda: self.finish(HEAD_SSE + first + b"".join(tokens) + tail))
            return
        self.tokens, self.tail, self.sent = tokens, tail, 0
        self.t_first = self.loop.time() + cell.lat / 1e3
        self.timer = self.loop.call_at(self.t_first, self.begin, HEAD_SSE + first, cell.rate)

    def later(self, seconds: float, send: Callable[[], None]) -> None:
        """Send after ``seconds``, or now."""
        if seconds:
            self.timer = self.loop.call_later(seconds, send)
        else:
            send()

    def begin(self, head: bytes, rate: int) -> None:
        """Send the head of a paced answer and start its clock."""
        self.transport.write(head)
        self.tick(rate)

    def tick(self, rate: int) -> None:
        """Send the tokens that are due, each as its own write."""
        now = self.loop.time() + 0.0005
        while self.sent < len(self.tokens) and self.t_first + (self.sent + 1) / rate <= now:
            self.transport.write(self.tokens[self.sent])
            self.sent += 1
        if self.sent == len(self.tokens):
            self.finish(self.tail)
        else:
            self.timer = self.loop.call_at(self.t_first + (self.sent + 1) / rate, self.tick, rate)

    def finish(self, data: bytes) -> None:
        """Send the end of the answer in flight."""
        assert self.stats is not None
        self.stats.inflight -= 1
        self.stats.finished += 1
        self.stats = self.timer = None
        self.transport.write(data)

    def refuse(self, status: bytes, reason: str) -> None:
        """Answer with an error and remember it."""
        self.server.stats.bad += 1
        self.server.stats.last_bad = reason
        self.send_json(orjson.dumps({"error": {"message": reason}}), status)

    def send_json(self, body: bytes, status: bytes = b"200 OK") -> None:
        """Send one whole JSON answer."""
        head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(body))
        self.transport.write(head + body)


async def serve(port: int) -> None:
    """Listen on ``port`` (0: any free one) of the loopback; print ``ready PORT`` when it does."""
    server = Server()
    listening = await asyncio.get_running_loop().create_server(
        lambda: Connection(server), "127.0.0.1", port, backlog=4096
    )
    print("ready", listening.sockets[0].getsockname()[1], flush=True)
    await listening.serve_forever()


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--core", type=int, help="the one core to run on")
    arguments = parser.parse_args()
    if arguments.core is not None:
        os.sched_setaffinity(0, {arguments.core})
    try:
        import uvloop
    except ImportError:  # slower, and still far from being the bottleneck
        factory = None
    else:
        factory = uvloop.new_event_loop
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(serve(arguments.port))
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
