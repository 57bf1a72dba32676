"""The one team that a kernel holds: its loop, what it is configured by, put in place and put away.

Everything that belongs to the team happens on the bridge's loop, and plain values come back; any
thread may call. Of cells it knows whether one waits; it knows no view, no stored conversation but the
one that is open, and no line of a magic.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ..app.config import Config
from ..app.shelf import role_set
from ..app.team import Team
from ..errors import AstrionError, ConfigError, StorageError, TeamBusy, TeamError
from ..events import Stamped, StatusChanged
from ..ids import LEADER_ID
from ..render.words import Words, words
from .bridge import POLL, Bridge, KernelLoop, ThreadLoop
from .frontend import allows_input
from .remote import RemoteTeam
from .trouble import Trouble, Unseen

T = TypeVar("T")
AT_EXIT = 0.4
"""Seconds that a kernel's end waits for files to be at rest; the journal holds everything anyway."""


class Kept:
    """A kernel's team, from the first magic to the last.

    Parameters
    ----------
    shell : InteractiveShell
    settings : callable
        ``settings()`` returns the session's and the profile's settings for ``Config.load``.
    """

    def __init__(self, shell: Any, settings: Callable[[], tuple[dict[str, Any], dict[str, Any]]]) -> None:
        self.shell = shell
        self._settings = settings
        self._lock = threading.RLock()
        self._bridge: Bridge | None = None
        self._mode = "thread"
        self.unseen = Unseen()
        self._waiting = 0
        self.variable = "team"
        self.team: Team | None = None

    # -- the loop -----------------------------------------------------------------------

    @property
    def bridge(self) -> Bridge:
        """The bridge to the team's loop, made at first use."""
        with self._lock:
            if self._bridge is None:
                self._bridge = KernelLoop() if self._mode == "kernel" else ThreadLoop()
            return self._bridge

    @property
    def mode(self) -> str:
        """Where agents run: ``thread`` or ``kernel``."""
        return self._mode

    def set_loop(self, mode: str) -> None:
        """Choose where agents run: ``thread`` or ``kernel``; an open team is put away, to be resumed there."""
        if mode == self._mode:
            return
        if self.team is not None:
            self.close_team()
            if _ours(self.shell.user_ns.get(self.variable)):
                del self.shell.user_ns[self.variable]
        with self._lock:
            if self._bridge is not None:
                self._bridge.close()
                self._bridge = None
            self._mode = mode

    def do(self, coroutine: Coroutine[Any, Any, T], check: Callable[[], None] = lambda: None) -> T:
        """Run something short on the team's loop and return its value; ``check`` is called at every look at it."""
        try:
            bridge = self.bridge
        except AstrionError:
            coroutine.close()
            raise
        future = bridge.submit(coroutine)
        try:
            while not future.done():
                bridge.pump(future, POLL)
                check()
        except KeyboardInterrupt:
            future.cancel()
            raise
        return future.result()

    def look(self, function: Callable[[], T]) -> T:
        """Read something of the team on its loop."""
        return self.bridge.look(function)

    # -- the team -----------------------------------------------------------------------

    def config(self, **flags: Any) -> Config:
        """Return what is configured now."""
        session, profile = self._settings()
        return Config.load(flags=flags, session=session, profile=profile)

    @property
    def words(self) -> Words:
        """The words of the interface: in the open conversation's language, as its transcript, else as configured."""
        team = self.team
        if team is not None and team.conversation_id:
            return words(team.state.language)
        try:
            return words(self.config().language)
        except ConfigError:  # which whatever needs a configuration tells; words are always to be had
            return words("en")

    def current(self) -> Team:
        """Return the open team.

        Raises
        ------
        TeamError
            There is none.
        """
        if self.team is None:
            raise TeamError("there is no team in this kernel: start one with %%team, or %astrion resume ID")
        return self.team

    def names(self) -> list[str]:
        """Return the display names that can be addressed now."""
        team = self.team
        if team is None:
            return []
        return self.look(lambda: [agent.display_name for agent in team.agents if agent.status != "terminated"])

    def known_names(self) -> list[str]:
        """Return every display name of the conversation, those of terminated agents too."""
        team = self.team
        return [] if team is None else self.look(lambda: [agent.display_name for agent in team.agents])

    def running(self) -> bool:
        """Say whether a run is under way."""
        team = self.team
        return team is not None and self.look(lambda: team.running)

    def refuse_while_running(self) -> None:
        """Raise :class:`TeamBusy` while a run is under way; the message names the ways on."""
        if self.running():
            raise TeamBusy(
                "a team is at work: write to it with %send leader …, go on with it later with %%team --continue, "
                "or end it with %astrion stop"
            )

    def take(self, team: Team) -> None:
        """Open a team and make it the kernel's; where either fails or is interrupted, it is put away again."""

        async def opened() -> None:
            await team.open()

        try:
            self.do(opened())
            self.adopt(team)
        except BaseException:
            if team is not self.team:  # nobody else could put it away
                self.bridge.pump(self.bridge.submit(team.close()), AT_EXIT)
            raise

    def adopt(self, team: Team) -> None:
        """Make a team the kernel's, putting an earlier one away."""
        self.close_team()
        team.watch(self._notice)
        with self._lock:
            self.team = team
            space = self.shell.user_ns
            if self.variable not in space or _ours(space[self.variable]):  # never over a variable of the user's
                space[self.variable] = RemoteTeam(team, self.bridge)

    def make_way(self, conversation_id: str) -> None:
        """Close the open team if it holds a conversation that is to be opened again."""
        if self.team is not None and self.team.conversation_id == conversation_id:
            self.close_team()

    def close_team(self) -> None:
        """Put the open team away: files at rest, lock free. What fails is said at the next magic."""
        with self._lock:
            team, self.team = self.team, None
        if team is None:
            return
        try:
            self.do(team.close())
        except AstrionError as error:
            self.unseen.note(Trouble(f"{type(error).__name__}: {error}"))
        except KeyboardInterrupt:  # it is put away without anybody waiting for it
            self.bridge.submit(team.close())
            raise

    def close(self) -> None:
        """End everything; the magics are about to go."""
        try:
            self.close_team()
        finally:
            if _ours(self.shell.user_ns.get(self.variable)):
                del self.shell.user_ns[self.variable]
            with self._lock:
                bridge, self._bridge = self._bridge, None
            if bridge is not None:
                bridge.close()
        self.unseen.tell(read=True)

    def put_away(self) -> None:
        """At the kernel's end: put the files of the open team at rest, and wait :data:`AT_EXIT` for it at most."""
        with self._lock:
            team, bridge = self.team, self._bridge
        if team is None:
            return
        if isinstance(bridge, ThreadLoop):
            concurrent.futures.wait([bridge.submit(team.close())], AT_EXIT)
        else:  # the kernel's loop runs no more
            with contextlib.suppress(StorageError):  # the journal holds everything
                team.close_now(AT_EXIT)

    # -- trouble ------------------------------------------------------------------------

    def surface(self) -> None:
        """Say, once, what went wrong where no cell was waiting.

        Raises
        ------
        RunFailed
            Nobody reads what is printed here (nbclient, nbval, papermill): the cell fails instead.
        """
        self.unseen.tell(read=allows_input(self.shell))

    def _notice(self, stamped: Stamped) -> None:
        """On the team's loop: note an agent that fails while no cell waits for the team and a person is there."""
        event, team = stamped.event, self.team
        if not isinstance(event, StatusChanged) or event.detail not in ("failed", "timed_out"):
            return
        if event.agent_id != LEADER_ID and team is not None and team.attended and not self._waiting:
            name, how = team.state.name_of(event.agent_id), event.detail.replace("_", " ")
            self.unseen.note(Trouble(f"{name} {how}: {event.error}; %astrion why {name} shows its last request"))

    # -- what can be named ---------------------------------------------------------------

    def role_ids(self) -> list[str]:
        """Return the roles that can be named."""
        return list(role_set(self.config().home).ids)

    def model_keys(self) -> list[str]:
        """Return the models that can be named."""
        return list(self.config().keys)

    def question_ids(self) -> list[str]:
        """Return the open questions that a person may answer."""
        team = self.team
        return [] if team is None else self.look(lambda: [item.question_id for item in team.open_questions])


def _ours(value: Any) -> bool:
    """Say whether a value is our stand-in for a team, also one of an earlier import."""
    return type(value).__name__ == RemoteTeam.__name__ and type(value).__module__ == RemoteTeam.__module__
