"""The live view of a team: one widget per conversation, any number of views of it on pages.

A thin shell around :class:`~astrion_nb.widgets.feed.Feed`. It is made in any thread; from then on
everything runs on the team's loop: events come in by ``watch``, messages go out every
:data:`TICK` seconds at most, and what a page says is handed to the loop by the thread that hears it,
which does nothing else. A failing comm or command is logged and ends nothing.

Custom messages only, both ways. Runs nothing itself;
what a page asks for is the session's matter. Knows no magic and no runtime.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import anywidget
import traitlets

from ..errors import AstrionError
from ..events import Stamped
from ..state import TeamState
from . import assets
from .feed import Feed
from .lanes import Json

log = logging.getLogger(__name__)

TICK = 0.1
"""Seconds between two messages, at least."""
QUIET = 1.5
"""Seconds after the last message, after which its number is said again: the last one may be lost too."""

# Kind → fields that must be text; a number is taken for an agent. The rest of a message is the command's matter.
COMMANDS: dict[str, tuple[str, ...]] = {
    "hello": (),
    "need": (),
    "answer": ("question_id", "text"),
    "approve": ("id", "digest"),
    "stop": (),
    "send": ("target", "text"),
}

Commands = Callable[[str, Json], Awaitable[Any] | None]


class Watched(Protocol):
    """The team, as far as a view looks at it."""

    @property
    def state(self) -> TeamState:
        """The conversation's state."""
        ...

    @property
    def cost(self) -> float | None:
        """What the conversation has cost."""
        ...

    def watch(self, view: Callable[[Stamped], None]) -> Callable[[], None]:
        """Call ``view`` with every event, on the team's loop; returns what ends it."""
        ...


class TeamView(anywidget.AnyWidget):
    """Shows a team at work and passes on what the reader does.

    Parameters
    ----------
    team : Watched
        Read on its loop only.
    commands : callable
        ``commands(kind, payload)`` does what a page asks for, on the loop; it may return an awaitable.
        What it raises is shown beside the button. It is told of ``hello`` too: clicks arrive.
    call : callable
        ``call(function, *arguments)`` runs a function on the team's loop soon, from any thread.
    language : str
        ``zh…`` for a Chinese page, anything else for an English one.
    banner : callable, optional
        Returns what has to be said of who answers; called on the loop.
    """

    _esm = assets.module()
    _css = assets.style()
    language = traitlets.Unicode("en").tag(sync=True)

    def __init__(
        self,
        team: Watched,
        *,
        commands: Commands,
        call: Callable[..., Any],
        language: str = "en",
        banner: Callable[[], str] = lambda: "",
    ) -> None:
        super().__init__(language="zh" if language.lower().startswith("zh") else "en")
        self._team = team
        self._commands = commands
        self._call = call
        self._feed = Feed(lambda: team.state, cost=lambda: team.cost, banner=banner)
        self._unwatch: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._resting: asyncio.TimerHandle | None = None
        self._wanted = False
        self._tasks: set[asyncio.Future[Any]] = set()
        self._over = False
        self._failed = False
        self.answered = False
        """Whether a page has spoken: somebody can act, and clicks arrive."""
        comm = self.comm
        if hasattr(comm, "_reply_subshell_for"):
            # Clicks stay with the subshell that the page chose; by default the kernel moves them to the
            # shell that published last, where they wait for the running cell.
            comm._reply_subshell_for = lambda data, default: default
        self.on_msg(self._hear)
        call(self._begin)

    def __repr__(self) -> str:
        return "TeamView()"

    # -- out ----------------------------------------------------------------------------

    def _begin(self) -> None:
        """Say how things stand and listen from here on: on the loop, so nothing comes in between."""
        if self._over:
            return
        self._unwatch = self._team.watch(self.push)
        self._wanted = True
        self.settle()

    def push(self, stamped: Stamped) -> None:
        """Take an event; the team calls it, on its loop.

        Parameters
        ----------
        stamped : Stamped
            The state holds it already.
        """
        self._feed.push(stamped)
        if self._timer is None:
            self._arm()

    def _arm(self) -> None:
        if self._timer is None and not self._over:
            self._timer = asyncio.get_running_loop().call_later(TICK, self.settle)

    def settle(self) -> None:
        """Send what is waiting, now. On the team's loop."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._over:
            return
        try:
            message = self._feed.take()
            if message is not None:
                self._post(message)
            if self._wanted and (message is None or message["kind"] != "snapshot"):
                message = self._feed.snapshot()
                self._post(message)
            self._wanted = False
        except Exception:
            # The page stays behind and asks; agents never notice.
            log.exception("the live view cannot be brought up to date")
            return
        if message is not None:
            self._rest_soon()

    def _rest_soon(self) -> None:
        if self._resting is not None:
            self._resting.cancel()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._resting = loop.call_later(QUIET, self._rest)

    def _rest(self) -> None:
        self._resting = None
        self._post({"v": 1, "kind": "mark", "seq": self._feed.seq})

    def _post(self, message: Json) -> None:
        if self._over:
            return
        try:
            self.send(message)
        except Exception as error:
            level = logging.DEBUG if self._failed else logging.WARNING
            self._failed = True
            log.log(level, "a message to the live view was not sent: %r", error)

    # -- in -----------------------------------------------------------------------------

    def _hear(self, _: Any, content: Any, __: Any) -> None:
        """Hand over what a page said; runs in whichever thread the kernel chose."""
        if self._over:
            return
        try:
            self._call(self._receive, content)
        except Exception as error:
            log.warning("a message of the live view could not be handed over: %r", error)

    def _receive(self, content: Any) -> None:
        if self._over:
            return
        kind = content.get("kind") if isinstance(content, dict) else None
        if not isinstance(kind, str) or content.get("v") != 1 or kind not in COMMANDS:
            log.info("the live view ignores a message of kind %.40r", kind)
            return
        self.answered = True
        req = content.get("req")
        if kind in ("hello", "need"):
            if content.get("since") != self._feed.seq:
                self._wanted = True
                self._arm()
            if kind == "need":
                return
        payload = {key: value for key, value in content.items() if key not in ("v", "kind", "req")}
        missing = [name for name in COMMANDS[kind] if not _usable(payload.get(name))]
        if missing:
            self._acknowledge(req, f"the message lacks {', '.join(missing)}")
            return
        try:
            result = self._commands(kind, payload)
        except Exception as error:
            self._acknowledge(req, _said(kind, error))
            return
        if result is None:
            self._acknowledge(req)
            return
        task = asyncio.ensure_future(result)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._done(kind, req, done))

    def _done(self, kind: str, req: Any, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            self._acknowledge(req, "cancelled")
            return
        error = task.exception()
        self._acknowledge(req, "" if error is None else _said(kind, error))

    def _acknowledge(self, req: Any, error: str = "") -> None:
        if req is not None:
            self._post({"v": 1, "kind": "ack", "req": req, **({"error": error} if error else {})})

    # -- the end ------------------------------------------------------------------------

    def rest(self) -> None:
        """Follow the team no longer, but hear and acknowledge what pages have said. From any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing on it runs any more
            self._call(self._release)

    def close(self) -> None:
        """End the view: no timer, no watcher and no comm remain. From any thread, more than once."""
        layout = None
        if not getattr(self, "_over", True):
            self._over, layout = True, self.layout
            self.on_msg(self._hear, remove=True)
            self.rest()
        super().close()
        if layout is not None:
            layout.close()  # a comm of its own, which would stay with every run

    def _release(self) -> None:
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None
        for timer in (self._timer, self._resting):
            if timer is not None:
                timer.cancel()
        self._timer = self._resting = None


def _usable(value: Any) -> bool:
    return (isinstance(value, str) and bool(value.strip())) or (isinstance(value, int) and not isinstance(value, bool))


def _said(kind: str, error: BaseException) -> str:
    if isinstance(error, AstrionError):
        return str(error)
    log.error("the command %r of the live view failed", kind, exc_info=error)
    return f"{type(error).__name__}: {error}"
