"""A real OpenAI-compatible streaming server on 127.0.0.1 that refuses what a real provider refuses.

It runs in a thread with its own event loop, on a free port, and is driven by a script::

    with StrictServer() as server:
        server.enqueue(text("Hello"))                                    # answers request 1
        server.enqueue(calls(("list_agents", {}), ("ask_master", {"question": "q"})))
        model = OpenAIModel("test", model="m", base_url=server.url, api_key="k")
        ...
        assert server.violations == []
        assert server.requests[1]["messages"][-1]["role"] == "tool"

or by a function that looks at each request, so that a test can play leader and workers at once::

    def play(request, n):                       # request: parsed JSON body; n counts from 1
        if offers(request, "create_sub_agent"):
            return calls(("create_sub_agent", {...})) if n == 1 else text("done")
        return text("worker's answer")
    server.on_request = play                    # called in the server's thread; may be a coroutine function

**Replies.** A reply is a list of parts, sent in order; after the last one ``[DONE]`` and a proper end follow.

=================  ====================================================================================
part               effect
=================  ====================================================================================
``dict``           one chunk, sent as an event; a bare usage chunk only if the request asked for usage
``bytes``          written as they are (half an event, a comment, bad JSON …)
``Gate``           stop until the test calls ``gate.release()`` (``gate.wait_reached()`` tells it is there)
``close()``        the connection is cut here: no ``[DONE]``, no proper end
``no_done()``      the body ends properly here, but without ``[DONE]``
``pause(s)``       wait; only to pace a display, never to order a test
=================  ====================================================================================

``text``, ``calls``, ``reasoning``, ``delta``, ``tool_delta``, ``finish``, ``usage`` build such lists; they join
with ``+``. ``status(429, headers={"Retry-After": "2"})`` is a reply that is an HTTP error, ``api_error``
one with a provider's code in it, ``Reply`` the general form. ``hang_up()`` closes before any byte.

**What is checked** (:func:`violations_of`, usable alone): known roles and keys, content types, every
assistant tool call followed by exactly one result before the next message, call ids unique,
arguments that are JSON objects, names ``^[a-zA-Z0-9_-]{1,64}$``, tools unique, no lone surrogate, no unknown
body key. A violation is recorded in ``server.violations`` and answered with 400; a request for which
there is no script likewise.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import socket
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, Literal

from support.strict_parts import (
    BOUND,
    Close,
    Gate,
    NoDone,
    Pause,
    Reply,
    Response,
    api_error,
    calls,
    chunk,
    close,
    delta,
    finish,
    hang_up,
    no_done,
    pause,
    reasoning,
    status,
    text,
    tool_delta,
    usage,
)
from support.strict_rules import last, offers, results, roles, violations_of

__all__ = [
    "BOUND",
    "Gate",
    "Reply",
    "Response",
    "StrictServer",
    "api_error",
    "calls",
    "chunk",
    "close",
    "delta",
    "finish",
    "hang_up",
    "last",
    "no_done",
    "offers",
    "pause",
    "reasoning",
    "results",
    "roles",
    "status",
    "text",
    "tool_delta",
    "usage",
    "violations_of",
]


class StrictServer:
    """The server; use it as a context manager.

    Parameters
    ----------
    pace : float
        Seconds between the chunks of every reply, to show a stream to a person; 0 sends at once.
    api_key : str or None
        The only key accepted (else 401); any when ``None``.
    reasoning_content, tools, allow
        As for :func:`violations_of`.
    port : int
        0 for a free one.

    Attributes
    ----------
    url : str
        Base URL for a client, ``http://127.0.0.1:PORT/v1``.
    requests : list of dict
        Parsed bodies of all chat requests, also refused ones.
    bodies : list of bytes
        The same, as they came.
    headers : list of dict
        Their headers, names in lower case.
    targets : list of str
        What they were sent to: path and query.
    violations : list of str
    connections : int
        Connections accepted.
    in_flight, max_in_flight : int
        Requests being answered now, and at most.
    dropped : int
        Replies that the client broke off.
    on_request : callable or None
        ``(request, n) -> reply``, asked when nothing is enqueued.
    """

    def __init__(
        self,
        *,
        pace: float = 0.0,
        api_key: str | None = None,
        reasoning_content: Literal["required", "forbidden"] | None = None,
        tools: bool = True,
        allow: Iterable[str] = (),
        port: int = 0,
    ) -> None:
        self.requests: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.targets: list[str] = []
        self.violations: list[str] = []
        self.connections = 0
        self.in_flight = 0
        self.max_in_flight = 0
        self.dropped = 0
        self.on_request: Callable[[dict[str, Any], int], Any] | None = None
        self.pace = pace
        self._api_key = api_key
        self._rules: dict[str, Any] = {"reasoning_content": reasoning_content, "tools": tools, "allow": tuple(allow)}
        self._queue: deque[Response] = deque()
        self._changed = threading.Condition()
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="strict-server", daemon=True)
        self._ready: Future[int] = Future()
        self._stop: asyncio.Event | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> StrictServer:
        self._thread.start()
        self._port = self._ready.result(BOUND)
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)  # type: ignore[union-attr]
        self._thread.join(BOUND)
        assert not self._thread.is_alive(), "the strict server did not stop"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def port(self) -> int:
        return self._port

    def enqueue(self, *replies: Response) -> None:
        """Add replies; each answers one request, in order of arrival."""
        self._queue.extend(replies)

    @property
    def waiting_replies(self) -> int:
        """Replies that no request has used yet."""
        return len(self._queue)

    def wait_for(self, condition: Callable[[], bool], timeout: float = BOUND) -> None:
        """Block until a condition on the server holds, such as ``lambda: server.dropped == 1``.

        In a coroutine: ``await asyncio.to_thread(server.wait_for, …)``.
        """
        with self._changed:
            if not self._changed.wait_for(condition, timeout):
                raise AssertionError("the server did not come to the expected state in time")

    def wait_for_requests(self, count: int, timeout: float = BOUND) -> None:
        """Block until that many requests have come."""
        self.wait_for(lambda: len(self.requests) >= count, timeout)

    # -- the server's own thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(error)
            raise
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", self._port, backlog=1024, limit=2**22)
        self._ready.set_result(server.sockets[0].getsockname()[1])
        await self._stop.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._loop.shutdown_asyncgens()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            # The first byte of the next request is awaited while a reply is sent: an empty one then
            # means that the client is gone, and none is lost when it is not.
            first = asyncio.ensure_future(reader.read(1))
            while byte := await first:
                request = await self._read(byte, reader)
                first = asyncio.ensure_future(reader.read(1))
                if not await self._exchange(*request, writer, first):
                    break
            first.cancel()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            writer.transport.abort()  # the server stops; a cancelled handler is no fault
        finally:
            writer.close()

    @staticmethod
    async def _read(first: bytes, reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
        head = first + await reader.readuntil(b"\r\n\r\n")
        line, *fields = head.decode("latin-1").split("\r\n")
        headers = {k.strip().lower(): v.strip() for k, _, v in (f.partition(":") for f in fields if f)}
        return line, headers, await reader.readexactly(int(headers.get("content-length", 0)))

    async def _exchange(
        self,
        line: str,
        headers: dict[str, str],
        raw: bytes,
        writer: asyncio.StreamWriter,
        gone: asyncio.Future[bytes],
    ) -> bool:
        """Answer one request; return whether the connection goes on."""
        method, target, _ = line.split(" ", 2)
        path = target.partition("?")[0]
        if method == "GET":
            known = json.dumps({"object": "list", "data": [{"id": "strict-1", "object": "model"}]}).encode()
            self._write_head(writer, Reply(body=known) if path.endswith("/models") else status(404))
            return True
        if not path.endswith("/chat/completions"):
            self._write_head(writer, status(404))
            return True
        self.targets.append(target)
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            reply, with_usage = await self._choose(raw, headers)
            return await self._answer(reply, with_usage, writer, gone)
        finally:
            self.in_flight -= 1
            self._notify()

    async def _choose(self, raw: bytes, headers: dict[str, str]) -> tuple[Reply, bool]:
        try:
            body = json.loads(raw)
        except ValueError as error:
            return self._refuse(f"the body is not JSON: {error}"), False
        self.requests.append(body)
        self.bodies.append(raw)
        self.headers.append(headers)
        number = len(self.requests)
        self._notify()
        if self._api_key is not None and headers.get("authorization") != f"Bearer {self._api_key}":
            return status(401, {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}), False
        where = f"request {number}: "
        faults = violations_of(body, **self._rules)
        if faults:
            return self._refuse("; ".join(faults), where), False
        if self._queue:
            chosen: Any = self._queue.popleft()
        elif self.on_request is not None:
            try:
                chosen = self.on_request(body, number)
                if inspect.isawaitable(chosen):
                    chosen = await chosen
            except Exception:
                return self._refuse(f"on_request failed: {traceback.format_exc()}", where), False
        else:
            return self._refuse("no reply is scripted for it", where), False
        with_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        return chosen if isinstance(chosen, Reply) else Reply(list(chosen)), with_usage

    def _refuse(self, fault: str, where: str = "") -> Reply:
        self.violations.append(where + fault)
        return status(400, {"error": {"message": fault, "type": "invalid_request_error", "code": None}})

    @staticmethod
    def _write_head(writer: asyncio.StreamWriter, reply: Reply) -> None:
        kind = "text/event-stream; charset=utf-8" if reply.body is None else "application/json"
        length = "transfer-encoding: chunked" if reply.body is None else f"content-length: {len(reply.body)}"
        lines = [f"HTTP/1.1 {reply.status} Strict", length]
        if "content-type" not in {name.lower() for name in reply.headers}:
            lines.append(f"content-type: {kind}")
        lines += [f"{name}: {value}" for name, value in reply.headers.items()]
        writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (reply.body or b""))

    async def _answer(
        self, reply: Reply, with_usage: bool, writer: asyncio.StreamWriter, gone: asyncio.Future[bytes]
    ) -> bool:
        """Send a reply, watching at the same time whether the client goes away."""
        send = asyncio.ensure_future(self._send(reply, with_usage, writer))
        try:
            await asyncio.wait({gone, send}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done() and not gone.cancelled() and (gone.exception() or not gone.result()) and not send.done():
                self.dropped += 1
                return False
            return await send
        except ConnectionError:
            self.dropped += 1
            return False
        finally:
            send.cancel()
            await asyncio.gather(send, return_exceptions=True)

    async def _send(self, reply: Reply, with_usage: bool, writer: asyncio.StreamWriter) -> bool:
        if reply.hold is not None:
            await reply.hold.passed()
        if reply.hang_up:
            return False
        self._write_head(writer, reply)
        if reply.body is not None:
            await writer.drain()
            return True
        pace = self.pace if reply.pace is None else reply.pace
        for part in reply.parts:
            if isinstance(part, Close):
                await writer.drain()
                return False
            if isinstance(part, NoDone):
                writer.write(b"0\r\n\r\n")
                return True
            if isinstance(part, Gate):
                await writer.drain()
                await part.passed()
            elif isinstance(part, Pause):
                await asyncio.sleep(part.seconds)
            elif isinstance(part, bytes):
                writer.write(_http_chunk(part))
            elif part.get("choices") or not part.get("usage") or with_usage:
                writer.write(_http_chunk(b"data: " + json.dumps(part).encode() + b"\n\n"))
                if pace:
                    await writer.drain()
                    await asyncio.sleep(pace)
        writer.write(_http_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        await writer.drain()
        return True


def _http_chunk(payload: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(payload), payload) if payload else b""
