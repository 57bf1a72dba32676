"""The SDK's clients: one per running loop, base URL and key, shared by all models that need it.

Knows no message and no response; sends ready bodies.
"""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from openai import AsyncOpenAI, AsyncStream

# Far above any number of agents: the runtime's own gate says how many requests are in flight.
_CONNECTIONS = 4096
_KEEP_ALIVE = 30.0
_REFUSAL = 1024 * 1024
"""Bytes that are read of a refusal."""
_PATIENCE = 3.0
"""Seconds in which they have to come: the status is known, and says most."""


class Refused(Exception):
    """An endpoint's answer was no success.

    Parameters
    ----------
    status : int
    headers : mapping
    body : object
        Parsed JSON, or the text; what came of it.
    """

    def __init__(self, status: int, headers: Mapping[str, str], body: object) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.headers = headers
        self.body = body


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait for an endpoint.

    Parameters
    ----------
    connect : float
        Seconds until a connection stands, name lookup included.
    read : float
        Seconds between two pieces of a response; also until the first one.
    """

    connect: float = 15.0
    read: float = 300.0


@contextmanager
def _no_collections() -> Iterator[None]:
    """Keep the garbage collector out of an import that makes a million lasting objects: a tenth of its time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Client:
    """One SDK client per running loop, base URL and key, shared and counted.

    A client that is dropped unclosed can deafen connections of the next one, so they are never
    dropped: models join and leave, and the last one closes.
    """

    _all: ClassVar[dict[tuple[asyncio.AbstractEventLoop, str, str], Client]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, loop: asyncio.AbstractEventLoop, base_url: str, authorization: str, loopback: bool) -> None:
        with _no_collections():
            import aiohttp
            import httpx2
            import openai

        self.errors: tuple[type[BaseException], ...] = (
            openai.OpenAIError,
            httpx2.HTTPError,
            httpx2.StreamError,
            aiohttp.ClientError,
            OSError,
            Refused,
        )

        async def look(response: httpx2.Response) -> None:
            """Read a refusal here, in bounds: the SDK reads it to its end, which may never come."""
            if response.is_success:
                return
            pieces, size = [], 0
            with suppress(TimeoutError, *self.errors):
                async with asyncio.timeout(_PATIENCE):
                    async for piece in response.aiter_bytes():
                        pieces.append(piece)
                        size += len(piece)
                        if size >= _REFUSAL:
                            break
            raise Refused(response.status_code, response.headers, _said(b"".join(pieces), response.charset_encoding))

        self._key = (loop, base_url, authorization)
        self.closed = False
        self._users = 0
        self._leaving: set[asyncio.Future[None]] = set()
        self._timeout = httpx2.Timeout
        self._stream_cls: type[AsyncStream[object]] = openai.AsyncStream[object]
        self._sdk: AsyncOpenAI = openai.AsyncOpenAI(
            api_key="in the header below",  # else the SDK would read one from the environment
            default_headers={"Authorization": authorization},
            base_url=base_url,
            max_retries=0,
            http_client=openai.DefaultAioHttpClient(
                limits=httpx2.Limits(max_connections=_CONNECTIONS, keepalive_expiry=_KEEP_ALIVE),
                # A redirect could carry the key to a host that nobody configured.
                follow_redirects=False,
                event_hooks={"response": [look]},
                # No proxy stands between two processes of one machine.
                trust_env=not loopback,
                # No certificates are loaded for plain HTTP.
                verify=base_url.startswith("https:"),
            ),
        )

    @classmethod
    def join(cls, loop: asyncio.AbstractEventLoop, base_url: str, authorization: str, loopback: bool) -> Client:
        """Return the client for these, with one user more."""
        with cls._lock:
            for key in [key for key in cls._all if key[0].is_closed()]:
                del cls._all[key]
            client = cls._all.get((loop, base_url, authorization))
            if client is None:
                client = cls._all[loop, base_url, authorization] = cls(loop, base_url, authorization, loopback)
            client._users += 1
            return client

    async def leave(self) -> None:
        """Count one user less; close when it was the last."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            self._all.pop(self._key, None)
        self.closed = True
        loop = self._key[0]
        if loop is asyncio.get_running_loop():
            await self._sdk.close()
        elif loop.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._sdk.close(), loop))

    def forget(self) -> None:
        """Count one user less that went without saying so; runs in the client's own loop."""
        task = asyncio.ensure_future(self.leave())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def post(self, content: bytes, query: str, timeouts: Timeouts) -> AsyncStream[object]:
        """Send a body, with the query of the endpoint's address; return when the response's head is there."""
        return await self._sdk.post(
            f"/chat/completions?{query}" if query else "/chat/completions",
            cast_to=object,
            content=content,
            stream=True,
            stream_cls=self._stream_cls,
            options={
                "headers": {"Content-Type": "application/json"},
                "timeout": self._timeout(timeouts.read, connect=timeouts.connect, pool=timeouts.connect),
            },
        )


def _said(body: bytes, charset: str | None) -> object:
    """Return what a refusal says, parsed where it is JSON."""
    try:
        text = body.decode(charset or "utf-8", "replace").strip()
    except LookupError:
        text = body.decode("utf-8", "replace").strip()
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def abandon(clients: Mapping[asyncio.AbstractEventLoop, Client]) -> None:
    """Leave the clients of a model that was collected; may run in any thread, at any moment."""
    for loop, client in clients.items():
        try:
            loop.call_soon_threadsafe(client.forget)
        except RuntimeError:
            pass  # the loop is closed, and its connections with it
