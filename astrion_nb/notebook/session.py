"""The team of one kernel: started, watched, waited for, put away.

Magics and widgets call it from any thread; everything that belongs to the team happens on the
bridge's loop, and plain values come back. It decides what a cell shows and when a cell waits; it
does not parse lines and it knows no comm.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from ..app.config import Config
from ..app.result import TeamResult
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
from ..ids import LEADER_ID
from ..render.transcript import bundle
from .bridge import POLL, Bridge, KernelLoop, ThreadLoop
from .frontend import allows_input, has_kernel
from .output import Output, show_static, view_bundle
from .remote import RemoteTeam

T = TypeVar("T")
BEFORE_INPUT = 3.0
"""Seconds that an open question waits for a click before the cell asks in its own line."""


class Shown:
    """What a cell shows of one run."""

    def __init__(self, team: Team, since: Mapping[int, int], *, silent: bool) -> None:
        self.team = team
        self.since = dict(since)
        self.silent = silent
        """Its cell said ``--no-wait``: the transcript is for ``%astrion wait`` to show."""
        self.view: Any = None
        self.view_output: Output | None = None
        self.static_output: Output | None = None
        self.told = False


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
        self._trouble: list[str] = []
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
        future = self.bridge.submit(coroutine)
        try:
            while not future.done():
                self.bridge.pump(future, POLL)
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
        with self._lock:
            self.team = team
            space = self.shell.user_ns
            if not isinstance(space.get(self.variable), (RemoteTeam, type(None))) and self.variable in space:
                return  # never over a variable of the user's
            space[self.variable] = RemoteTeam(team, self.bridge)

    def close_team(self) -> None:
        """Put the open team away: files at rest, lock free."""
        with self._lock:
            team, self.team = self.team, None
            shown, self.shown = self.shown, None
        if shown is not None and shown.view is not None:
            self._close_view(shown)
        if team is not None:
            self.do(team.close())

    def close(self) -> None:
        """End everything; the magics are about to go."""
        self.close_team()
        if isinstance(self.shell.user_ns.get(self.variable), RemoteTeam):
            del self.shell.user_ns[self.variable]
        with self._lock:
            bridge, self._bridge = self._bridge, None
        if bridge is not None:
            bridge.close()

    # -- trouble ------------------------------------------------------------------------

    def surface(self) -> None:
        """Say, once, what went wrong in the background since the last magic."""
        import sys

        with self._lock:
            trouble, self._trouble = self._trouble, []
        for line in trouble:
            print(line, file=sys.stderr)

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
        if team is not self.team:
            team.attended = allows_input(self.shell)
            self.do(_open(team))
            self.adopt(team)
        else:
            team.attended = allows_input(self.shell)
        since = self.look(lambda: {number: len(agent.messages) for number, agent in team.state.agents.items()})
        shown = Shown(team, since, silent=silent)
        self._show_view(shown)
        self.shown = shown
        try:
            self.do(team.start(text))
        except BaseException:
            self._close_view(shown)
            raise
        if wait:
            self.wait(shown, timeout=timeout)
            return
        if not silent:
            shown.static_output = Output()
            shown.static_output.show({})
        self.bridge.submit(self._finish(shown, timeout))

    async def _finish(self, shown: Shown, timeout: float | None) -> None:
        """In the background: when the run rests, put the transcript where the cell kept a place."""
        try:
            await shown.team.wait(timeout=timeout)
        except AstrionError as error:
            with self._lock:
                self._trouble.append(f"{type(error).__name__}: {error}")
        if shown.told or shown.silent or shown.static_output is None:
            return
        shown.told = True
        with contextlib.suppress(Exception):
            shown.static_output.change(self._bundle(shown))
            self._close_view(shown)

    def wait(self, shown: Shown, *, timeout: float | None = None, show: bool = True) -> TeamResult:
        """Wait in a cell for a run, then show its transcript in place of the view.

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
        team.attended = team.attended or allows_input(self.shell)
        future = self.bridge.submit(team.wait(timeout=timeout))
        error: BaseException | None = None
        try:
            self._pump(future, team)
            result = future.result()
        except KeyboardInterrupt:
            error = self._interrupted(team)
            result = self.look(team.result)
        except RunFailed as failed:
            error, result = failed, self.look(team.result)
        shown.told = True
        self._close_view(shown)
        if show:
            show_static(self.look(lambda: self._bundle(shown)))
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
        at_work = self.look(lambda: [agent.display_name for agent in team.agents if agent.status in _AT_WORK])
        stop = self.bridge.submit(team.stop(reason="the cell was interrupted"))
        try:
            while not stop.done():
                self.bridge.pump(stop, POLL)
        except KeyboardInterrupt:
            return TeamError("let go of the team, which is still stopping: see %astrion, wait with %astrion wait")
        names = ", ".join(["Team Leader", *at_work])
        return TeamError(f"interrupted: the run was stopped ({names}); go on with %%team --continue")

    def _pump(self, future: concurrent.futures.Future[Any], team: Team) -> None:
        """Wait for a future and see to questions that only this cell's own line can answer."""
        self.bridge.call(team.only_now, True)
        try:
            self._pump_until(future, team)
        finally:
            self.bridge.call(team.only_now, False)

    def _pump_until(self, future: concurrent.futures.Future[Any], team: Team) -> None:
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
            shown.told = True
        self.wait(shown, timeout=timeout, show=shown.silent and not shown.told)

    def resume(self, conversation_id: str) -> str:
        """Open a stored conversation; returns what was found, in words."""
        self.refuse_while_running()
        team = Team(conversation=conversation_id, config=self.config())
        self.close_team()
        team.attended = allows_input(self.shell)
        self.do(_open(team))
        self.adopt(team)
        return self.look(lambda: _told(team))

    def role_ids(self) -> list[str]:
        """Return the roles that can be named."""
        from .. import roles

        return list(roles.list_roles(self.config().home).ids)

    def question_ids(self) -> list[str]:
        """Return the open questions that a person may answer."""
        team = self.team
        return [] if team is None else self.look(lambda: [item.question_id for item in team.open_questions])

    # -- showing ------------------------------------------------------------------------

    def _bundle(self, shown: Shown) -> dict[str, str]:
        since = shown.since if any(number != LEADER_ID or count for number, count in shown.since.items()) else None
        team = shown.team
        origin = team.origin
        return bundle(team.state, since=since, origin=origin, hide=[(str(team.config.home.root), "~")])

    def transcript(self) -> dict[str, str]:
        """Return the whole conversation as a display bundle."""
        team = self.current()
        origin = team.origin
        return self.look(lambda: bundle(team.state, origin=origin, hide=[(str(team.config.home.root), "~")]))

    def _show_view(self, shown: Shown) -> None:
        """Show the live view, where a front end can; its absence loses nothing but liveliness."""
        if not has_kernel(self.shell):
            return
        try:
            from .views import attach

            shown.view = attach(shown.team, self.bridge)
        except ImportError:
            return
        shown.view_output = Output()
        shown.view_output.show(view_bundle(shown.view))

    def _close_view(self, shown: Shown) -> None:
        view, shown.view = shown.view, None
        if view is not None:
            if shown.view_output is not None:
                shown.view_output.change({})
            view.close()


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


def checked_text(text: str, what: str) -> str:
    """Return a text that is not empty.

    Raises
    ------
    ConfigError
    """
    if not text.strip():
        raise ConfigError(f"{what} is empty")
    return text
