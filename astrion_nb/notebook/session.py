"""The team of one kernel: started, watched, waited for, put away.

Magics and widgets call it from any thread; everything that belongs to the team happens on the
bridge's loop, and plain values come back. It decides what a cell shows and when a cell waits; it
does not parse lines and it knows no comm.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ..app.config import Config
from ..app.result import TeamResult
from ..app.shelf import conversations, role_set
from ..app.team import Team
from ..errors import (
    AstrionError,
    ConfigError,
    NobodyToAnswer,
    QuestionError,
    RunFailed,
    TeamBusy,
    TeamError,
)
from ..events import Stamped, StatusChanged
from ..ids import LEADER_ID
from .bridge import POLL, Bridge, KernelLoop, ThreadLoop
from .frontend import allows_input, has_kernel
from .output import show_static
from .remote import RemoteTeam
from .shown import Shown, Trouble, transcript

T = TypeVar("T")
AT_EXIT = 3.0
"""Seconds that a kernel's end waits for files to be at rest; the journal holds everything anyway."""
BEFORE_INPUT = 3.0
"""Seconds that an open question waits for a click before the cell asks in its own line."""


class Session:
    """Everything that one shell has of this package.

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
        self._unseen: list[Trouble] = []
        self._told_viewless = False
        self._waiting = 0
        self.variable = "team"
        self.team: Team | None = None
        self.shown: Shown | None = None

    # -- the loop -----------------------------------------------------------------------

    @property
    def bridge(self) -> Bridge:
        """The bridge to the team's loop, made at first use."""
        with self._lock:
            if self._bridge is None:
                self._bridge = KernelLoop() if self._mode == "kernel" else ThreadLoop()
            return self._bridge

    def set_loop(self, mode: str) -> None:
        """Choose where agents run: ``thread`` or ``kernel``; not while a team is open."""
        if mode == self._mode:
            return
        if self.team is not None:
            self.close_team()
        with self._lock:
            if self._bridge is not None:
                self._bridge.close()
                self._bridge = None
            self._mode = mode

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run something short on the team's loop and return its value."""
        try:
            bridge = self.bridge
        except AstrionError:
            coroutine.close()
            raise
        future = bridge.submit(coroutine)
        try:
            while not future.done():
                bridge.pump(future, POLL)
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
            shown.close_view()
        try:
            self.do(team.close())
        except AstrionError as error:
            self._note(Trouble(f"{type(error).__name__}: {error}"))
        if shown is not None and shown.finishing is not None:  # its transcript is on the way to its cell
            concurrent.futures.wait([shown.finishing], 5.0)

    def close(self) -> None:
        """End everything; the magics are about to go."""
        self.close_team()
        if _ours(self.shell.user_ns.get(self.variable)):
            del self.shell.user_ns[self.variable]
        with self._lock:
            bridge, self._bridge = self._bridge, None
            unseen, self._unseen = self._unseen, []
        if bridge is not None:
            bridge.close()
        for trouble in unseen:
            print(trouble.text, file=sys.stderr)

    def put_away(self) -> None:
        """At the kernel's end: put the files of the open team at rest, within a few seconds."""
        with self._lock:
            team, bridge = self.team, self._bridge
        if team is not None and isinstance(bridge, ThreadLoop):
            concurrent.futures.wait([bridge.submit(team.close())], AT_EXIT)

    # -- trouble ------------------------------------------------------------------------

    def surface(self) -> None:
        """Say, once, what went wrong where no cell was waiting.

        Raises
        ------
        RunFailed
            Nobody reads what is printed here (nbclient, nbval, papermill): the cell fails instead.
        """
        with self._lock:
            unseen, self._unseen = self._unseen, []
        told = [trouble.text for trouble in unseen if trouble.text]
        if told and not allows_input(self.shell):
            raise RunFailed(f"before this cell: {'; '.join(told)}")
        for line in told:
            print(line, file=sys.stderr)

    def _notice(self, stamped: Stamped) -> None:
        """On the team's loop: note an agent that fails while no cell waits for the team and a person is there."""
        event, team = stamped.event, self.team
        if not isinstance(event, StatusChanged) or event.detail not in ("failed", "timed_out"):
            return
        if event.agent_id != LEADER_ID and team is not None and team.attended and not self._waiting:
            name, how = team.state.name_of(event.agent_id), event.detail.replace("_", " ")
            self._note(Trouble(f"{name} {how}: {event.error}; %astrion why {name} shows its last request"))

    def _note(self, trouble: Trouble) -> None:
        with self._lock:
            self._unseen.append(trouble)

    # -- running ------------------------------------------------------------------------

    def start(self, team: Team, text: str, *, wait: bool, silent: bool, timeout: float | None) -> None:
        """Start a run, show it, and wait for it when the cell is to wait.

        Parameters
        ----------
        team : Team
        text : str
        wait : bool
        silent : bool
            The cell said ``--no-wait``: nothing but the view is shown.
        timeout : float or None
            Seconds.
        """
        self.refuse_while_running()
        team.attended = allows_input(self.shell)
        if team is not self.team:
            self.do(_open(team))
            self.adopt(team)
        since = self.look(lambda: {number: len(agent.messages) for number, agent in team.state.agents.items()})
        shown = Shown(team, since, silent=silent)
        self._show_view(shown)
        self.shown = shown
        try:
            self.do(team.start(text))
        except KeyboardInterrupt:
            shown.close_view()
            raise self._interrupted(team) from None
        except BaseException:
            shown.close_view()
            raise
        if wait:
            self.wait(shown, timeout=timeout)
            return
        if not silent:
            shown.keep_place()
        shown.finishing = self.bridge.submit(self._finish(shown, timeout))

    async def _finish(self, shown: Shown, timeout: float | None) -> None:
        """In the background: when the run rests, put the transcript where the cell kept a place."""
        try:
            result = await shown.team.wait(timeout=timeout)
            if result.status == "timed_out":
                shown.trouble.text = f"TeamError: the team was stopped: {result.error}"
        except AstrionError as error:
            shown.trouble.text = f"{type(error).__name__}: {error}"
        if shown.trouble.text:
            self._note(shown.trouble)
        shown.fill_place()
        if not shown.silent:
            shown.close_view()

    def wait(self, shown: Shown, *, timeout: float | None = None, again: bool = False) -> TeamResult:
        """Wait in a cell for a run, then show its transcript in place of the view.

        Parameters
        ----------
        shown : Shown
        timeout : float or None
            Seconds.
        again : bool
            Another cell has begun the run: the transcript is shown here only if it is not in that one.

        Raises
        ------
        RunFailed, StorageError, ReplayMiss
            As the run ended.
        NobodyToAnswer
            A question needed a person and none could act here.
        TeamError
            The cell was interrupted; the message says what was stopped.
        """
        team = shown.team
        error: BaseException | None = None
        self._waiting += 1
        try:
            team.attended = team.attended or allows_input(self.shell)
            future = self.bridge.submit(team.wait(timeout=timeout))
            self._pump(future, team)
            if shown.finishing is not None:
                self._pump(shown.finishing, team)
            result = future.result()
        except KeyboardInterrupt:
            error = self._interrupted(team)
            result = self.look(team.result)
        except RunFailed as failed:
            error, result = failed, self.look(team.result)
        finally:
            self._waiting -= 1
        shown.trouble.text = ""  # who waits is told by the error itself
        if not again or (shown.silent and not shown.told):
            shown.told = True
            shown.close_view()
            show_static(self.look(shown.bundle))
        if error is not None:
            raise error
        if result.unanswered:
            raise NobodyToAnswer(
                "a question needed a person and nobody can act here ("
                + "; ".join(result.unanswered)
                + "): run the notebook in Jupyter, or replay a recorded answer"
            )
        if result.status == "timed_out":
            raise TeamError(f"the team was stopped: {result.error}; go on with %%team --continue")
        return result

    def _interrupted(self, team: Team) -> BaseException:
        """Stop what a cell waited for; a second interrupt only lets go of it."""
        try:
            at_work = self.look(
                lambda: [agent.display_name for agent in team.state.agents.values() if agent.status in _AT_WORK]
            )
            stop = self.bridge.submit(team.stop(reason="the cell was interrupted"))
            while not stop.done():
                self.bridge.pump(stop, POLL)
            stop.result()
        except KeyboardInterrupt:
            return TeamError("let go of the team, which is still stopping: see %astrion, wait with %astrion wait")
        names = f" ({', '.join(at_work)})" if at_work else ""
        return TeamError(f"interrupted: the run was stopped{names}; go on with %%team --continue")

    def _pump(self, future: concurrent.futures.Future[Any], team: Team) -> None:
        """Wait for a future; a replay that needs a person's step meanwhile misses: no later cell can bring it."""
        self.bridge.call(team.only_now, True)
        try:
            self._pump_until(future, team)
        finally:
            self.bridge.call(team.only_now, False)

    def _pump_until(self, future: concurrent.futures.Future[Any], team: Team) -> None:
        """Wait for a future and see to questions that only this cell's own line can answer."""
        seen: dict[str, float] = {}
        while not future.done():
            self.bridge.pump(future, POLL)
            if future.done() or not allows_input(self.shell) or self._clicks_arrive():
                continue
            for question in self.look(lambda: team.questions):
                first = seen.setdefault(question.question_id, time.monotonic())
                if time.monotonic() - first >= BEFORE_INPUT:
                    seen[question.question_id] = float("inf")
                    text = input(f"{question.asker} asks ({question.question_id}): {question.text}\n> ")
                    with contextlib.suppress(QuestionError):  # an answer from elsewhere came first
                        self.do(team.answer(question.question_id, text))

    def _clicks_arrive(self) -> bool:
        shown = self.shown
        return shown is not None and shown.view is not None and bool(shown.view.answered)

    def ask(self, target: str, text: str, timeout: float | None) -> str:
        """Ask somebody in a cell and return the answer; an interrupt withdraws the question."""
        team = self.current()
        team.attended = team.attended or allows_input(self.shell)
        future = self.bridge.submit(team.ask(target, text, timeout=timeout))
        try:
            self._pump(future, team)
        except KeyboardInterrupt:
            future.cancel()
            raise TeamError(f"interrupted: the question to {target} is withdrawn; the team works on") from None
        return future.result()

    def wait_again(self, timeout: float | None) -> None:
        """Wait for the run under way; show the transcript of one whose cell said ``--no-wait``."""
        team = self.current()
        shown = self.shown
        if shown is None or shown.team is not team:
            shown = Shown(team, {}, silent=False)
        self.wait(shown, timeout=timeout, again=True)

    def resume(self, conversation_id: str) -> str:
        """Open a stored conversation; returns what was found, in words."""
        self.refuse_while_running()
        team = Team(conversation=conversation_id, config=self.config())
        self.make_way(conversation_id)
        team.attended = allows_input(self.shell)
        self.do(_open(team))
        self.adopt(team)
        return self.look(lambda: _told(team))

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

    # -- showing ------------------------------------------------------------------------

    def transcript(self) -> dict[str, str]:
        """Return the whole conversation as a display bundle."""
        team = self.current()
        return self.look(lambda: transcript(team))

    def _show_view(self, shown: Shown) -> None:
        """Show the live view, where a front end can; its absence loses nothing but liveliness."""
        if not has_kernel(self.shell):
            return
        try:
            from .views import attach

            shown.show_view(attach(shown.team, self.bridge))
        except ImportError as error:
            if not self._told_viewless and allows_input(self.shell):
                print(f"no live view: {error}; pip install ipywidgets anywidget", file=sys.stderr)
            self._told_viewless = True
        except Exception as error:  # a view never ends a run
            shown.close_view()
            print(f"no live view: {error!r}", file=sys.stderr)


_AT_WORK = ("running", "waiting")


def _told(team: Team) -> str:
    """Say what a resumed conversation holds."""
    state = team.state
    lines = [f"{state.title or 'untitled'}: {len(team.agents)} agents, {len(state.leader_state.messages)} messages"]
    for agent in team.agents:
        if agent.detail == "interrupted":
            lines.append(f"  {agent.display_name} was interrupted; a message lets it go on")
    for question in team.open_questions:
        lines.append(
            f"  {question.asker} waits for {question.answerer}: {question.text} (%answer {question.question_id} …)"
        )
    return "\n".join(lines)


async def _open(team: Team) -> None:
    await team.open()


def _ours(value: Any) -> bool:
    """Say whether a value is our stand-in for a team, also one of an earlier import."""
    return type(value).__name__ == RemoteTeam.__name__ and type(value).__module__ == RemoteTeam.__module__


def checked_text(text: str, what: str) -> str:
    """Return a text that is not empty.

    Raises
    ------
    ConfigError
    """
    if not text.strip():
        raise ConfigError(f"{what} is empty")
    return text
