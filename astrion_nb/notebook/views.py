"""Attaches the live view to a team: events one way, commands the other.

Kept apart so that the magics work where no widget library is installed. Knows the widget's
constructor and the team's calls; decides nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError

if TYPE_CHECKING:
    from ..app.team import Team
    from ..widgets.team import TeamView
    from .bridge import Bridge

Act = Callable[["Team", dict[str, Any]], Awaitable[Any] | None]


def _greet(team: Team, payload: dict[str, Any]) -> None:
    team.attended = True


def _judge(team: Team, payload: dict[str, Any]) -> Awaitable[Any]:
    digest = str(payload["digest"])
    if payload.get("ok") is True:
        return team.approve(payload["id"], lasting=payload.get("lasting") is True, digest=digest)
    return team.deny(payload["id"], str(payload.get("reason") or ""), digest=digest)


ACTS: dict[str, Act] = {
    "hello": _greet,
    "answer": lambda team, payload: team.answer(payload["question_id"], payload["text"]),
    "approve": lambda team, payload: _judge(team, payload),
    "send": lambda team, payload: team.send(payload["target"], payload["text"]),
    "stop": lambda team, payload: team.stop(payload.get("agent")),
}
"""What a page may ask for; each runs on the team's loop."""


def attach(team: Team, bridge: Bridge) -> TeamView:
    """Return a live view that follows a team from now on.

    Raises
    ------
    ImportError
        ipywidgets or anywidget is not installed.
    """
    from ..render.words import words
    from ..widgets.team import TeamView

    language = team.config.language

    def act(kind: str, payload: dict[str, Any]) -> Awaitable[Any] | None:
        do = ACTS.get(kind)
        if do is None:
            raise ConfigError(f"this team cannot be asked to {kind}")
        return do(team, payload)

    def banner() -> str:
        return " ".join(team.warnings) or words(language).origin.get(team.origin, "")

    return TeamView(team, commands=act, call=bridge.call, language=language, banner=banner)
