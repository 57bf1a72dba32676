"""Attaches the live view to a team: events one way, commands the other.

Kept apart so that the magics work where no widget library is installed. Knows the widget's
constructor and the session's calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..app.team import Team
    from .session import Session


def attach(session: Session, team: Team) -> Any:
    """Return a live view that follows a team from now on.

    Raises
    ------
    ImportError
        ipywidgets or anywidget is not installed.
    """
    raise ImportError("the live view is not there yet")
