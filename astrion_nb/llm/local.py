"""The embedded model: a small model on this computer, as a model like any other.

Puts together what others do: :mod:`.weights` finds the file, :mod:`.local_server` runs the server,
:mod:`.openai` speaks to it and :mod:`.structured` gets tool calls out of a model that cannot make
them by itself. Downloads nothing: that is :mod:`.weights_fetch`, at a person's command.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from ..errors import ConfigError, ModelUnreachable
from . import local_server
from .local_server import LocalServer, Progress, Running, require_extra
from .model import LOCAL, ModelRequest, StreamEvent
from .weights import Weights, cache_dir, find, lookup, pins

if TYPE_CHECKING:
    from .structured import StructuredModel

BANNER_EN = (
    "This is a small model that runs on this computer. It shows how a team of agents works; what it says "
    "is often wrong, so do not rely on it. For real work set OPENAI_API_KEY or write models.toml."
)
NO_KEY_EN = "No model is configured and OPENAI_API_KEY is not set. "
NO_KEY_ZH = "没有配置模型，也没有设置 OPENAI_API_KEY。"
BANNER_ZH = (
    "这是在本机运行的小模型，用来体验智能体团队如何协作；它的回答常常有误，请勿当真。"
    "正式使用请设置 OPENAI_API_KEY，或编写 models.toml。"
)


class _Bounds(TypedDict, total=False):
    max_string: int
    max_text: int
    max_tokens: int
    max_plain: int


# A turn of a model this small is either short or has lost its way; without a bound it would go on
# until the context is full. The strings of a call are so bounded that it never is cut, in any script.
_BODY = {"temperature": 0.7}
_BOUNDS: _Bounds = {"max_tokens": 768}
_TIGHT: dict[str, _Bounds] = {"smollm2": {"max_string": 96, "max_text": 240, "max_tokens": 400, "max_plain": 128}}
_READ_TIMEOUT_S = 900.0
_LOST_S = 5.0
# What such a model can be trusted to choose between. With all tools before it, the smallest picks
# one by chance; with these it drives the protocol.
_OFFERS: dict[str, frozenset[str]] = {
    "smollm2": frozenset({"create_sub_agent"}),
    "qwen-1.5b": frozenset({"create_sub_agent", "send_message_to_sub_agent", "answer_sub_agent_question"}),
}
_CONTEXT = 16384
_NOWHERE = Running("http://127.0.0.1:9/v1", "", 0, 0.0)


class LocalModel:
    """A model that runs on this computer, behind a server of its own.

    The server starts with the first request, or with :meth:`prepare`, and is shared by all models
    of this process that use the same file; it ends with the last of them to be closed, and with
    this process, however that ends. A server that died is started again by the next request.

    Parameters
    ----------
    key : str
        Key by which configuration, roles and tools name the model: ``local/smollm2``,
        ``local/qwen-1.5b``, ``local/PATH.gguf``, or any when ``weights`` says what is meant.
    weights : str or Path, optional
        Name of fetched weights, or the path of a GGUF file. Default: what the key says.
    roles : callable, optional
        Returns the role ids that exist now, so that a call cannot name another.
    context : int, optional
        Tokens that all conversations of the server share. Default: 16384.
    slots : int
        Requests answered at the same time; more wait in the server.
    threads : int, optional
        Threads that compute. Default: the processors that this process may use.
    progress : callable, optional
        ``progress(what, seconds, 0)`` about once a second while the first request waits for the
        model to load.
    body : mapping, optional
        Body parameters of every request, over the defaults (temperature 0.7, and tokens as suit the model).
    thinking : mapping, optional
        Body parameters of the thinking mode, over those.
    join_system : bool
        Whether system messages at the beginning go out as one: many chat templates know only one.

    Attributes
    ----------
    endpoint : str
        The same for every model of one file in every process.
    offers : frozenset of str or None
        The team tools that make sense for this model; ``None`` for all.
    brief : bool
        Whether it is too small for long prompts: it would take most of a minute to read what it cannot follow.

    Raises
    ------
    ConfigError
        The extra ``local`` is not installed, the name is unknown, or the file is not there; the
        message says what to run.
    """

    def __init__(
        self,
        key: str,
        weights: str | Path | None = None,
        *,
        roles: Callable[[], Sequence[str]] | None = None,
        context: int | None = None,
        slots: int = 4,
        threads: int | None = None,
        progress: Progress | None = None,
        body: Mapping[str, Any] | None = None,
        thinking: Mapping[str, Any] | None = None,
        join_system: bool = True,
    ) -> None:
        self.key = key
        self.name, self.path, self._pin = _resolve(weights if weights is not None else key)
        require_extra()
        if not self.path.is_file():
            raise _missing(self.name, self.path, self._pin)
        self.context = context or (self._pin.context if self._pin else _CONTEXT)
        self.endpoint = f"{LOCAL}{self.name}"
        if self._pin is None:
            self.endpoint += f"#{hashlib.sha256(str(self.path.resolve()).encode()).hexdigest()[:8]}"
        self.offers = _OFFERS.get(self.name)
        self.brief = self.offers is not None
        self._roles = roles
        self._slots = slots
        self._threads = threads
        self._progress = progress
        self._body = {**_BODY, **(body or {})}
        self._thinking = dict(thinking or {})
        self._join_system = join_system
        self._lock = threading.Lock()
        self._server: LocalServer | None = None
        self._running: Running | None = None
        self._inner: StructuredModel | None = None

    def __repr__(self) -> str:
        return f"LocalModel({self.key!r}, {str(self.path)!r})"

    async def prepare(self, progress: Progress | None = None) -> Running:
        """Start the server unless it runs, and wait until the model is loaded.

        Parameters
        ----------
        progress : callable, optional
            As for the class.

        Raises
        ------
        ConfigError
            The file is damaged or not a model.
        ModelUnreachable
            The model was not loaded in time, or was closed meanwhile.
        """
        if self._server is None:
            await asyncio.to_thread(self._check)
            with self._lock:
                if self._server is None:
                    self._server = local_server.acquire(
                        self.path, name=self.name, context=self.context, slots=self._slots, threads=self._threads
                    )
        server = self._server
        return server.running or await server.start(progress or self._progress)

    def _check(self) -> None:
        if self._pin is not None:
            if find(self._pin) is None:
                raise _missing(self.name, self.path, self._pin)
            return
        try:
            with self.path.open("rb") as file:
                magic = file.read(4)
        except OSError as error:
            raise ConfigError(f"cannot read the model file {self.path}: {error.strerror}") from None
        if magic != b"GGUF":
            raise ConfigError(
                f"{self.path} is not a GGUF file; give the path of one, or use a name: {', '.join(pins())}"
            )

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        """Ask, and yield what comes; loads the model first when it is not.

        Raises
        ------
        ModelError
            The request failed.
        ConfigError
            As for :meth:`prepare`.
        """
        # The server closes a connection right after a streamed response without having announced it.
        # A request that goes out on it in that moment is lost before the server has seen it.
        lost = False
        while True:
            inner = await self._connected()
            begun = time.monotonic()
            shown = False
            try:
                async with aclosing(inner.stream(request)) as events:
                    async for event in events:
                        shown = True
                        yield event
                return
            except ModelUnreachable:
                if shown or lost or self._server is None or time.monotonic() - begun > _LOST_S:
                    raise
                lost = True

    def body(self, request: ModelRequest) -> dict[str, Any]:
        """Return the request's body as it goes out; no server is needed for that."""
        return (self._inner or self._speak_to(_NOWHERE)).body(request)

    async def _connected(self) -> StructuredModel:
        """Return what speaks to the server as it runs now."""
        running = await self.prepare()
        inner = self._inner
        if inner is None or running != self._running:
            stale, inner = inner, self._speak_to(running)
            self._inner, self._running = inner, running
            if stale is not None:
                await stale.close()
        return inner

    def _speak_to(self, running: Running) -> StructuredModel:
        from .client import Timeouts
        from .openai import OpenAIModel
        from .structured import StructuredModel

        return StructuredModel(
            OpenAIModel(
                self.key,
                model=self.name,
                base_url=running.base_url,
                api_key=running.api_key,
                context=self.context,
                extra=self._body,
                thinking=self._thinking,
                timeouts=Timeouts(read=_READ_TIMEOUT_S),
            ),
            roles=self._roles,
            join_system=self._join_system,
            optional_arguments=False,  # models this small fill them with inventions
            most_calls=3 if self.offers is not None else None,
            **_TIGHT.get(self.name, _BOUNDS),
        )

    async def close(self) -> None:
        """Give up the connections and the server. A later request starts it again."""
        inner, self._inner, self._running = self._inner, None, None
        with self._lock:
            server, self._server = self._server, None
        try:
            if inner is not None:
                await inner.close()
        finally:
            if server is not None:
                await asyncio.to_thread(local_server.release, server)


def _resolve(source: str | Path) -> tuple[str, Path, Weights | None]:
    """Return name, file and pin of what a key, name or path means."""
    text = str(source).removeprefix(LOCAL)
    if isinstance(source, Path) or text.lower().endswith(".gguf"):
        path = Path(text).expanduser()
        return path.stem, path, None
    pin = lookup(text)
    return pin.name, cache_dir() / pin.file, pin


def _missing(name: str, path: Path, pin: Weights | None) -> ConfigError:
    if pin is None:
        return ConfigError(f"there is no model file {path}; correct the path, or use a name: {', '.join(pins())}")
    return ConfigError(
        f"the local model {name} has not been fetched ({pin.download_size}); run in a terminal: {pin.command}"
    )
