"""What a cell does with the kernel's team: starts it, waits for it, asks it, shows it.

It decides what a cell shows and when a cell waits. Magics call it in the cell's thread; what belongs
to the team happens on the bridge's loop. It does not parse lines, knows no comm, and leaves the team's
keeping to :mod:`~astrion_nb.notebook.keeping`, the page to :mod:`~astrion_nb.notebook.showing`.
"""

from __future__ import annotations

import concurrent.futures
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ..app.result import QuestionInfo, TeamResult
from ..app.team import Team
from ..errors import NobodyToAnswer, QuestionError, RunFailed, TeamBusy, TeamError
from ..events import RunStarted, Stamped
from ..printable import one_field
from ..render.words import Words
from .bridge import POLL
from .frontend import allows_input, ending, read_line
from .interrupts import Interrupts, waited
from .output import show_static
from .showing import Showing
from .shown import Shown

T = TypeVar("T")
BEFORE_INPUT = 3.0
"""Seconds that an open question waits for a click before the cell asks in its own line."""
_AT_WORK = ("running", "waiting")


class Session(Showing):
    """The team of one shell, as cells use it.

    Parameters
    ----------
    shell : InteractiveShell
    settings : callable
        ``settings()`` returns the session's and the profile's settings for ``Config.load``.
    """

    def __init__(self, shell: Any, settings: Callable[[], tuple[dict[str, Any], dict[str, Any]]]) -> None:
        super().__init__(shell, settings)
        self._starting = threading.Lock()

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
        if not self._starting.acquire(blocking=False):
            raise TeamBusy("another cell is just starting a team: write to that one with %send leader …")
        try:
            shown = self._begin(team, text, silent=silent)
        finally:
            self._starting.release()
        if wait:
            self.wait(shown, timeout=timeout)
            return
        if not silent:
            shown.keep_place()
        shown.finishing = self.bridge.submit(self._finish(shown, timeout))

    def _begin(self, team: Team, text: str, *, silent: bool) -> Shown:
        self.refuse_while_running()
        team.attended = allows_input(self.shell)
        if team is not self.team:
            self.take(team)
        last = self.shown
        shown = self._shown(team, self.look(lambda: _counts(team)), silent=silent)
        self._show_view(shown)
        try:
            error = waited(
                lambda interrupts: self.do(team.start(text), interrupts.check),
                lambda interrupts: self._interrupted(team, interrupts),
            )
        except BaseException:
            self.take_away(shown)
            self.shown = last
            raise
        if error is not None:
            self.take_away(shown)
            raise error
        return shown

    def act(self, deed: Callable[[Team], Coroutine[Any, Any, T]]) -> T:
        """Do to the team what a person does; a run that this begins is shown as of a cell that said ``--no-wait``.

        Parameters
        ----------
        deed : callable
            ``deed(team)``, on the team's loop.
        """
        team = self.current()
        begun: list[dict[int, int]] = []

        def look(stamped: Stamped) -> None:
            if isinstance(stamped.event, RunStarted):
                begun.append(_counts(team))

        async def doing() -> T:
            cancel = team.watch(look)
            try:
                return await deed(team)
            finally:
                cancel()

        done = self.do(doing())
        if begun:
            shown = self._shown(team, begun[0], silent=True)
            self._show_view(shown)
            if shown.view is None and allows_input(self.shell):
                print(self.words.at_work)
            shown.finishing = self.bridge.submit(self._finish(shown, None))
        return done

    def wait(self, shown: Shown, *, timeout: float | None = None, again: bool = False) -> TeamResult:
        """Wait in a cell for a run, then show its transcript in place of the view.

        Parameters
        ----------
        shown : Shown
        timeout : float or None
            Seconds.
        again : bool
            Another cell has begun the run: the transcript is shown here only if it is not in that one, or the
            run failed; else it is said how the run ended.

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

            def pump(interrupts: Interrupts) -> None:
                future = self.bridge.submit(team.wait(timeout=timeout))
                self._pump(future, team, interrupts)
                if shown.finishing is not None:
                    self._pump(shown.finishing, team, interrupts)
                future.result()

            error = waited(pump, lambda interrupts: self._interrupted(team, interrupts))
            result = self.look(team.result)
        except RunFailed as failed:
            error, result = failed, self.look(team.result)
        finally:
            self._waiting -= 1
        shown.trouble.text = ""  # who waits is told by the error itself
        if not again or error is not None or (shown.silent and not shown.told):
            shown.told = True
            self.take_away(shown)
            show_static(self.look(shown.bundle))
        elif result.status != "timed_out":
            print(self.look(lambda: _rest(team, self.words)))
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

    def _interrupted(self, team: Team, interrupts: Interrupts) -> BaseException:
        """Stop what a cell waited for; a second interrupt only lets go of it."""

        async def stop() -> list[str]:
            names = [agent.display_name for agent in team.state.agents.values() if agent.status in _AT_WORK]
            await team.stop(reason="the cell was interrupted")
            return names

        try:
            stopping = self.bridge.submit(stop())  # first of all: a blocked loop stops them as soon as it can
            while not stopping.done():
                self.bridge.pump(stopping, POLL)
                interrupts.check()
            at_work = stopping.result()
        except KeyboardInterrupt:
            return TeamError("let go of the team, which is still stopping: see %astrion, wait with %astrion wait")
        names = f" ({', '.join(at_work)})" if at_work else ""
        return TeamError(f"interrupted: the run was stopped{names}; go on with %%team --continue")

    def _pump(self, future: concurrent.futures.Future[Any], team: Team, interrupts: Interrupts) -> None:
        """Wait for a future; a replay that needs a person's step meanwhile misses: no later cell can bring it."""
        self.bridge.call(team.only_now, True)
        try:
            self._pump_until(future, team, interrupts)
        finally:
            self.bridge.call(team.only_now, False)

    def _pump_until(self, future: concurrent.futures.Future[Any], team: Team, interrupts: Interrupts) -> None:
        """Wait for a future and see to questions that only this cell's own line can answer."""
        seen: dict[str, float] = {}
        while not future.done():
            self.bridge.pump(future, POLL)
            interrupts.check()
            if ending(self.shell):
                future.cancel()
                raise TeamError("the kernel is ending: the team is put away, and %astrion resume goes on with it")
            if future.done() or not allows_input(self.shell) or self._clicks_arrive():
                continue
            for question in self.look(lambda: team.questions):
                first = seen.setdefault(question.question_id, time.monotonic())
                if time.monotonic() - first >= BEFORE_INPUT:
                    seen[question.question_id] = float("inf")
                    with interrupts.raised():
                        self._ask_here(question, future, team)

    def _ask_here(self, question: QuestionInfo, future: concurrent.futures.Future[Any], team: Team) -> None:
        """Ask the person in the cell's own line, until the question is settled, or a page can bring the answer."""
        name = question.question_id

        def settled() -> bool:
            if future.done() or ending(self.shell) or self._clicks_arrive():
                return True
            return all(name != one.question_id for one in self.look(lambda: team.questions))

        if question.approval is not None:
            prompt = _request(question, self.words)
        else:
            asked = self.words.prompt.format(asker=question.asker, id=name, text=question.text)
            prompt = one_field(asked) + "\n> "
        text: str | None = ""
        while text is not None and not text.strip():  # Enter alone is no answer
            text = read_line(prompt, settled)
        if text is None:
            return
        try:
            self.do(team.answer(name, text) if question.approval is None else _judged(team, name, text.strip()))
        except QuestionError as error:
            print(f"{error}; what was typed here is not used", file=sys.stderr)

    def ask(self, target: str, text: str, timeout: float | None) -> str:
        """Ask somebody in a cell and return the answer; an interrupt withdraws the question."""
        team = self.current()
        team.attended = team.attended or allows_input(self.shell)
        future = self.bridge.submit(team.ask(target, text, timeout=timeout))

        def withdrawn(_: Interrupts) -> TeamError:
            future.cancel()
            return TeamError(f"interrupted: the question to {target} is withdrawn; the team works on")

        error = waited(lambda interrupts: self._pump(future, team, interrupts), withdrawn)
        if error is not None:
            raise error
        return future.result()

    def wait_again(self, timeout: float | None) -> None:
        """Wait for the run under way; show the transcript of one whose cell said ``--no-wait``."""
        team = self.current()
        shown = self.shown
        if shown is None or shown.team is not team:
            shown = Shown(team, {}, silent=False)
        self.wait(shown, timeout=timeout, again=True)


def _rest(team: Team, text: Words) -> str:
    """Say that everybody rests, and how the last run ended. On the team's loop."""
    state = team.state
    how = text.run[state.run_status] if state.run_status else text.no_run
    why = text.colon + text.reason(state.run_error) if state.run_error else ""
    return text.rests.format(run=how.rstrip(".。") + why if why else how)


def _request(question: QuestionInfo, text: Words) -> str:
    """Return what a cell's own line shows of a call that waits to be allowed."""
    asked = question.approval
    assert asked is not None
    shown = one_field(asked.preview or asked.arguments)
    return (
        text.may.format(asker=one_field(question.asker), id=question.question_id, tool=asked.tool, text=shown) + "\n> "
    )


async def _judged(team: Team, name: str, said: str) -> None:
    """Allow or deny a call as a line says; whatever is no clear yes denies."""
    if said.casefold() in ("y", "yes", "是", "允许"):
        await team.approve(name)
    elif said.casefold() in ("a", "all"):
        await team.approve(name, lasting=True)
    else:
        await team.deny(name, "" if said.casefold() in ("n", "no", "否") else said)


def _counts(team: Team) -> dict[int, int]:
    """Return how many messages each agent has. On the team's loop."""
    return {number: len(agent.messages) for number, agent in team.state.agents.items()}
