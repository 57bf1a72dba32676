"""What of the kernel's team is on a page: a live view while it works, its transcript when it rests.

One run is shown at a time, the last one begun. What was clicked in a view that went off its page still
arrives, until another one goes. It does not decide when a cell waits, and leaves what one cell shows to
:mod:`~astrion_nb.notebook.shown`.
"""

from __future__ import annotations

import concurrent.futures
import sys
from collections.abc import Callable
from typing import Any

from ..app.team import Team
from ..errors import AstrionError
from .frontend import allows_input, has_kernel
from .keeping import Kept
from .shown import Shown, transcript


class Showing(Kept):
    """A kernel's team, and what is shown of it.

    Parameters
    ----------
    shell : InteractiveShell
    settings : callable
        ``settings()`` returns the session's and the profile's settings for ``Config.load``.
    """

    def __init__(self, shell: Any, settings: Callable[[], tuple[dict[str, Any], dict[str, Any]]]) -> None:
        super().__init__(shell, settings)
        self.shown: Shown | None = None
        self._late: Any = None  # the view that last went off a page
        self._told_viewless = False

    def close_team(self) -> None:
        """Put the open team away; its view goes off the page, and its transcript gets the time to reach its cell."""
        with self._lock:
            shown, self.shown = self.shown, None
        if shown is not None:
            self.take_away(shown)
        super().close_team()
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

    def transcript(self) -> dict[str, str]:
        """Return the whole conversation as a display bundle."""
        team = self.current()
        return self.look(lambda: transcript(team))

    def _shown(self, team: Team, since: dict[int, int], *, silent: bool) -> Shown:
        """Put what a cell shows of a run in the place of the last one; one still owed comes with this one."""
        last = self.shown
        if last is not None and last.team is team:
            self.take_away(last)
            if last.silent and not last.told:
                since = last.since
        self.shown = Shown(team, since, silent=silent)
        return self.shown

    def _show_view(self, shown: Shown) -> None:
        """Show the live view, where a front end can; its absence loses nothing but liveliness."""
        if not has_kernel(self.shell):
            return
        try:
            from .views import attach

            shown.show_view(attach(shown.team, self.bridge))
        except ImportError as error:
            if not self._told_viewless and allows_input(self.shell):
                why = f"{error}; pip install ipywidgets anywidget"
                print(self.words.no_view.format(why=why), file=sys.stderr)
            self._told_viewless = True
        except Exception as error:  # a view never ends a run
            self.take_away(shown)
            print(self.words.no_view.format(why=repr(error)), file=sys.stderr)

    async def _finish(self, shown: Shown, timeout: float | None) -> None:
        """In the background: when the run rests, put the transcript where the cell kept a place."""
        try:
            result = await shown.team.wait(timeout=timeout)
            if result.status == "timed_out":
                shown.trouble.text = f"TeamError: the team was stopped: {result.error}"
        except AstrionError as error:
            shown.trouble.text = f"{type(error).__name__}: {error}"
        if shown.trouble.text:
            self.unseen.note(shown.trouble)
        shown.fill_place()
        if not shown.silent:
            self.take_away(shown)

    def _clicks_arrive(self) -> bool:
        shown = self.shown
        return shown is not None and shown.view is not None and bool(shown.view.answered)
