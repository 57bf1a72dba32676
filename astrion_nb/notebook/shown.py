"""What a cell shows of one run: the live view, and one static transcript when the run is at rest.

Three forms: a cell that waits shows view, then transcript; one
that by default does not wait keeps an empty place for the transcript; one that said ``--no-wait``
leaves the transcript to ``%astrion wait``. Reads the team's state, so its bundle is made on the
team's loop; knows no bridge and decides nothing about waiting.
"""

from __future__ import annotations

import concurrent.futures
import logging
from collections.abc import Mapping
from typing import Any

from ..app.team import Team
from ..ids import LEADER_ID
from ..render.transcript import bundle
from .output import Output, view_bundle
from .trouble import Trouble

log = logging.getLogger(__name__)


class Shown:
    """What a cell shows of one run.

    Parameters
    ----------
    team : Team
    since : mapping of int to int
        Messages per agent before the run: they are not shown again.
    silent : bool
        The cell said ``--no-wait``: the transcript is for ``%astrion wait`` to show.
    """

    def __init__(self, team: Team, since: Mapping[int, int], *, silent: bool) -> None:
        self.team = team
        self.since = dict(since)
        self.silent = silent
        self.told = False
        """Whether the transcript is shown, or is being shown, somewhere."""
        self.finishing: concurrent.futures.Future[None] | None = None
        """What fills the place in the background, where the cell has not waited."""
        self.trouble = Trouble()
        """How the run failed, if no cell waited for it."""
        self.view: Any = None
        self._view_output: Output | None = None
        self._place: Output | None = None

    def show_view(self, view: Any) -> None:
        """Display a live view."""
        self.view = view
        self._view_output = Output()
        self._view_output.show(view_bundle(view))

    def take_view(self) -> Any:
        """Take the live view off the page, where there is one, and return it: a click may still be on its way."""
        view, self.view = self.view, None
        if view is not None:
            try:
                if self._view_output is not None:
                    self._view_output.change({})
            except Exception as error:  # a front end that is gone keeps no run from ending
                log.warning("the live view's place cannot be emptied: %r", error)
            view.rest()
        return view

    def keep_place(self) -> None:
        """Display an empty output, for the transcript to come."""
        try:
            place = Output()
            place.show({})
            self._place = place
        except Exception as error:
            self._cannot_show(error)

    def fill_place(self) -> None:
        """Put the transcript into the place that was kept. On the team's loop."""
        if self._place is not None and not self.told:
            try:
                self._place.change(self.bundle())
                self.told = True
            except Exception as error:
                self._cannot_show(error)

    def _cannot_show(self, error: Exception) -> None:
        """Leave the transcript to ``%astrion wait``: the cell's place cannot be reached."""
        self._place, self.silent = None, True
        log.warning("the transcript cannot be shown in its cell: %r", error)

    def bundle(self) -> dict[str, str]:
        """Return the run's transcript. On the team's loop."""
        first = all(number == LEADER_ID and not count for number, count in self.since.items())
        return transcript(self.team, None if first else self.since)


def transcript(team: Team, since: Mapping[int, int] | None = None) -> dict[str, str]:
    """Return a conversation, or what came after so many messages of each agent, as a display bundle."""
    hide = [(str(team.config.home.root), "~")]
    return bundle(team.state, since=since, origin=team.origin, hide=hide, prices=team.prices)
