"""The one team that a kernel holds: its loop, what it is configured by, put in place and put away.

Everything that belongs to the team happens on the bridge's loop, and plain values come back; any
thread may call. Knows no cell, no view and no line of a magic.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from ..app.config import Config
from ..app.shelf import conversations, role_set
from ..app.team import Team
from ..errors import AstrionError, ConfigError, ConversationLocked, StorageError, TeamBusy, TeamError
from ..events import Stamped, StatusChanged
from ..ids import HUMAN_ID, LEADER_ID
from ..printable import one_field
from ..render.columns import aligned
from ..render.words import Words, words
from .bridge import POLL, Bridge, KernelLoop, ThreadLoop
from .frontend import allows_input
from .remote import RemoteTeam
from .shown import Shown
from .trouble import Trouble, Unseen

if TYPE_CHECKING:
    from ..app.conversations import Entry

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
        self.shown: Shown | None = None
        self._late: Any = None  # the view that last went off a page

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
            shown, self.shown = self.shown, None
        if team is None:
            return
        if shown is not None:
            self.take_away(shown)
        try:
            self.do(team.close())
        except AstrionError as error:
            self.unseen.note(Trouble(f"{type(error).__name__}: {error}"))
        except KeyboardInterrupt:  # it is put away without anybody waiting for it
            self.bridge.submit(team.close())
            raise
        if shown is not None and shown.finishing is not None:  # its transcript is on the way to its cell
            concurrent.futures.wait([shown.finishing], 5.0)
        self._hear_instead(None)

    def take_away(self, shown: Shown) -> None:
        """Take a live view off its page; what was clicked there arrives all the same, until another view goes."""
        view = shown.take_view()
        if view is not None:
            self._hear_instead(view)

    def _hear_instead(self, view: Any) -> None:
        with self._lock:
            last, self._late = self._late, view
        if last is not None:
            last.close()

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
        """At the kernel's end: put the files of the open team at rest, within a few seconds."""
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

    # -- stored conversations ------------------------------------------------------------

    def rename(self, conversation_id: str, title: str) -> None:
        """Give a stored conversation another title, the open one too."""
        from ..app import conversations as stored

        team = self._holding(conversation_id)
        if team is not None:
            self.do(team.rename(title))
        else:
            stored.rename(conversation_id, title, home=self.config().home)

    def archive(self, conversation_id: str, archived: bool) -> None:
        """Archive a stored conversation or bring it back, the open one too."""
        from ..app import conversations as stored

        team = self._holding(conversation_id)
        if team is not None:
            self.do(team.archive(archived))
        else:
            stored.archive(conversation_id, archived, home=self.config().home)

    def delete(self, conversation_id: str) -> Entry:
        """Remove a stored conversation for good.

        Raises
        ------
        ConversationLocked
            It is open, in this kernel or elsewhere.
        """
        from ..app import conversations as stored

        if self._holding(conversation_id) is not None:
            raise ConversationLocked(
                f"{conversation_id} is the team of this kernel: start or resume another one first, or %unload_ext "
                "astrion_nb"
            )
        return stored.delete(conversation_id, home=self.config().home)

    def _holding(self, conversation_id: str) -> Team | None:
        team = self.team
        return team if team is not None and team.conversation_id == conversation_id else None

    # -- what can be named ---------------------------------------------------------------

    def resume(self, conversation_id: str, *, read_only: bool = False, take_over: bool = False) -> str:
        """Open a stored conversation; returns what was found, in words."""
        self.refuse_while_running()
        team = Team(conversation=conversation_id, config=self.config(), read_only=read_only, take_over=take_over)
        self.make_way(conversation_id)
        team.attended = allows_input(self.shell)
        self.do(opened(team))
        self.adopt(team)
        text = self.words
        told = self.look(lambda: _told(team, text))
        return f"{told}\n  {text.reads_only}" if read_only else told

    def role_ids(self) -> list[str]:
        """Return the roles that can be named."""
        return list(role_set(self.config().home).ids)

    def model_keys(self) -> list[str]:
        """Return the models that can be named."""
        return list(self.config().keys)

    def conversation_ids(self) -> list[str]:
        """Return the stored conversations, newest first."""
        return [entry.id for entry in conversations(self.config().home)]

    def question_ids(self) -> list[str]:
        """Return the open questions that a person may answer."""
        team = self.team
        return [] if team is None else self.look(lambda: [item.question_id for item in team.open_questions])


def _told(team: Team, text: Words) -> str:
    """Say what a resumed conversation holds."""
    state = team.state
    agents = text.count("agent", len(team.agents))
    messages = text.count("message", len(state.leader_state.messages))
    lines = [f"{state.title or text.untitled}{text.colon}{agents}, {messages}"]
    if state.archived:
        lines.append("  " + text.is_archived.format(id=team.conversation_id))
    for agent in team.agents:
        if agent.detail == "interrupted":
            lines.append("  " + text.was_interrupted.format(name=agent.display_name))
    human = state.name_of(HUMAN_ID)
    for question in team.open_questions:
        asker, answerer = (text.you if name == human else name for name in (question.asker, question.answerer))
        told = text.waits_for.format(asker=asker, answerer=answerer, text=question.text, id=question.question_id)
        lines.append("  " + told)
    table = [text.restored_columns] if team.agents else []
    for one in team.restored if table else ():
        status = text.status[one.detail or one.status]
        waits = ", ".join(text.you if name == human else name for name in one.waits_for)
        row = (one.display_name, status, waits, str(one.queued or ""), ", ".join(one.interrupted))
        table.append(row)
    return "\n".join([*map(one_field, lines), *(f"  {line}" for line in (aligned(table) if table else ()))])


async def opened(team: Team) -> None:
    """Open a team and return nothing of it: for :meth:`Kept.do`."""
    await team.open()


def _ours(value: Any) -> bool:
    """Say whether a value is our stand-in for a team, also one of an earlier import."""
    return type(value).__name__ == RemoteTeam.__name__ and type(value).__module__ == RemoteTeam.__module__
