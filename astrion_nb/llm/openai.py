"""Any OpenAI-compatible endpoint, through the openai SDK; the only module that imports it.

The SDK gives authentication, headers, timeouts and typed errors; its public ``post`` is used with
ready bytes, and the response's bytes are read directly, because the typed route costs more than
ten times the CPU per token. Retries, rate limits and prices are not known here: every failure is
mapped to one :class:`~astrion_nb.errors.ModelError` and raised.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from ..errors import ConfigError, ModelBroken, ModelError, ModelUnreachable
from .assemble import Assembler, with_partial
from .client import Client, Refused, Timeouts, abandon
from .endpoint import Endpoint
from .faults import from_status, in_stream, no_completion, scrub
from .model import ModelRequest, StreamEvent, ThinkingMode
from .sse import MOST, BodyDecoder, TooLong
from .wire import ReasoningProfile, encode, wire_messages

if TYPE_CHECKING:
    from openai import AsyncStream

DEFAULT_BASE_URL = "https://api.openai.com/v1"

# The body's end mark follows [DONE] at once or never; waiting for it keeps the connection usable.
_DRAIN = 0.1


class OpenAIModel:
    """A model behind an OpenAI-compatible chat-completions endpoint.

    Parameters
    ----------
    key : str
        Key by which configuration, roles and tools name the model.
    model : str
        Name of the model at the endpoint.
    base_url : str, optional
        Default: OpenAI's own. User info in it is sent as basic authentication when there is no key; a query
        goes along with every request.
    api_key : str, optional
        Sent as a bearer token. Without one a placeholder is sent (local servers want none); no
        environment variable is read.
    context : int, optional
        Length of the model's context in tokens, for whoever asks; nothing here depends on it.
    join_system : bool
        Whether system messages at the beginning go out as one, for endpoints that refuse a second one.
    reasoning : {"strip", "echo"}
        Whether reasoning text goes back with tool calls.
    fast, thinking : mapping
        Body parameters of the two thinking modes.
    extra : mapping
        Body parameters of every request; ``None`` as a value takes a default one out.
    timeouts : Timeouts

    Attributes
    ----------
    endpoint : str
        Base URL without user info and query: what shares one rate limit.
    """

    def __init__(
        self,
        key: str,
        *,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        context: int | None = None,
        reasoning: ReasoningProfile = "strip",
        join_system: bool = False,
        fast: Mapping[str, Any] | None = None,
        thinking: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self.key = key
        self.model = model
        self.context = context
        self.reasoning: ReasoningProfile = reasoning
        self.join_system = join_system
        self.timeouts = timeouts or Timeouts()
        address = Endpoint.parse(base_url or DEFAULT_BASE_URL, f"the base_url of model {key!r}")
        self.endpoint = address.url
        self._query = address.query
        self._loopback = address.loopback
        basic = address.basic if not api_key else ""
        self._authorization = f"Basic {basic}" if basic else f"Bearer {api_key or 'none'}"
        self._secrets = (*((api_key,) if api_key else ()), *address.secrets)
        self._parameters: dict[ThinkingMode, dict[str, Any]] = {
            "fast": {**(extra or {}), **(fast or {})},
            "thinking": {**(extra or {}), **(thinking or {})},
        }
        self._clients: dict[asyncio.AbstractEventLoop, Client] = {}
        # A cell that is run again drops its models; what they shared must not stay open for that.
        weakref.finalize(self, abandon, self._clients).atexit = False

    def __repr__(self) -> str:
        return f"OpenAIModel({self.key!r}, model={self.model!r}, endpoint={self.endpoint!r})"

    def body(self, request: ModelRequest) -> dict[str, Any]:
        """Return the request's body as it goes out."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": wire_messages(request.messages, reasoning=self.reasoning, join_system=self.join_system),
        }
        if request.tools:
            body["tools"] = request.tools
        return self.complete_body(body, request.thinking_mode)

    def complete_body(self, body: dict[str, Any], thinking_mode: ThinkingMode) -> dict[str, Any]:
        """Add what every request carries: streaming, usage, and the parameters of the mode."""
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
        parameters = self._parameters[thinking_mode]
        if parameters:
            body.update(parameters)
            body = {name: value for name, value in body.items() if value is not None}
        return body

    def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        """Ask, and yield what comes.

        Raises
        ------
        ModelError
            The request failed. ``partial`` holds the text that had come, ``usage`` its cost.
        ConfigError
            ``ASTRION_OFFLINE`` is set and the endpoint is not on this machine.
        """
        return self.stream_body(self.body(request), Assembler(call_id_prefix=f"call_{request.turn}_"))

    async def stream_body(self, body: Mapping[str, Any], assembler: Assembler) -> AsyncGenerator[StreamEvent, None]:
        """Send a ready body and yield what an assembler makes of the response.

        Raises
        ------
        ModelError, ConfigError
            As for :meth:`stream`.
        """
        self._check_offline()
        client = self._client()
        problem: ModelError | None = None
        stream: AsyncStream[object] | None = None
        source: AsyncIterator[bytes] | None = None
        done = cut = begun = False
        decoder = BodyDecoder()
        feed = assembler.feed
        try:
            stream = await client.post(encode(body), self._query, self.timeouts)
            source = stream.response.aiter_bytes()
            over = False
            while not (over or done or cut or problem is not None):
                data = await anext(source, None)
                over = data is None
                for event in decoder.flush() if data is None else decoder.feed(data):
                    if event == b"[DONE]":
                        done = True
                        break
                    chunk = _parse(event)
                    if chunk is None:
                        cut = True  # half an event, or no stream of chunks at all
                        break
                    if "choices" in chunk and "error" not in chunk:
                        begun = True
                    else:
                        problem = in_stream(chunk, where=self.endpoint, secrets=self._secrets)
                        if problem is not None:
                            break
                    for delta in feed(chunk):
                        yield delta
        except client.errors as error:
            # A stream that was cut off is judged by what has come, see Assembler.finish.
            cut = True
            if stream is None or _is_timeout(_cause(error)):
                problem = None if assembler.shown or assembler.ended else self._explain(error)
            else:
                said = (_parse(event) or {} for event in decoder.flush())
                told = (in_stream(chunk, where=self.endpoint, secrets=self._secrets) for chunk in said)
                problem = next(filter(None, told), None)
        except TooLong:
            what = f"the answer of {self.endpoint} holds a line, or an event, of more than {MOST >> 20} MB"
            problem = ModelBroken(f"{what}; check base_url and what stands between")
        except RecursionError:
            problem = ModelBroken(f"the answer of {self.endpoint} is nested too deeply to be read")
        except RuntimeError:
            if not client.closed:
                raise
            problem = ModelUnreachable(f"model {self.key!r} was closed while it was asked")
        finally:
            if stream is not None:
                await _release(stream, source if done else None)
        if problem is None and stream is not None and not (begun or done or cut):
            kind = stream.response.headers.get("content-type", "")
            problem = no_completion(kind, decoder.head, where=self.endpoint, secrets=self._secrets)
        if problem is not None:
            # Raised out here so that the SDK's error, which holds the request and its headers, is
            # not in the context.
            raise with_partial(problem, assembler.text, assembler.usage)
        for delta in assembler.flush():
            yield delta
        yield assembler.finish(done)

    async def close(self) -> None:
        """Give up the connections; the last model that shares them closes them."""
        for loop, client in list(self._clients.items()):
            del self._clients[loop]
            await client.leave()

    def _client(self) -> Client:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = Client.join(loop, self.endpoint, self._authorization, self._loopback)
        return client

    def _check_offline(self) -> None:
        if not self._loopback and os.environ.get("ASTRION_OFFLINE", "") not in ("", "0"):
            raise ConfigError(
                f"model {self.key!r} is at {self.endpoint}, but ASTRION_OFFLINE allows this machine only; "
                "unset it, or use a local, scripted or replayed model"
            )

    def _explain(self, error: BaseException) -> ModelError:
        cause = _cause(error)
        if isinstance(cause, Refused):
            return from_status(cause.status, cause.body, cause.headers, where=self.endpoint, secrets=self._secrets)
        said = scrub(str(cause) or type(cause).__name__, self._secrets)
        if _is_timeout(cause):
            return ModelUnreachable(
                f"no answer in time from {self.endpoint} (waits: connect {self.timeouts.connect:g} s, "
                f"read {self.timeouts.read:g} s): {said}"
            )
        return ModelUnreachable(f"the connection to {self.endpoint} failed: {said}; check base_url and the network")


def _cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _is_timeout(cause: BaseException) -> bool:
    return isinstance(cause, TimeoutError) or "Timeout" in type(cause).__name__


async def _release(stream: AsyncStream[object], rest: AsyncIterator[bytes] | None) -> None:
    """Read what is left of a finished response, so that its connection can be used again; close it."""
    try:
        if rest is not None:
            async with asyncio.timeout(_DRAIN):
                async for _ in rest:
                    pass
    except Exception:
        pass  # the answer is complete; the connection is simply not used again
    finally:
        await stream.close()


def _parse(event: bytes) -> dict[str, Any] | None:
    try:
        chunk = orjson.loads(event)
    except ValueError:
        try:
            import json

            chunk = json.loads(event)  # lone surrogates, NaN
        except (ValueError, RecursionError):  # also of a number beyond all measure
            return None
    return chunk if isinstance(chunk, dict) else {}
