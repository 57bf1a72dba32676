"""Run, watch, steer and teach a team of LLM agents inside a Jupyter notebook.

``%load_ext astrion_nb`` adds the magics ``%%team``, ``%ask``, ``%send``, ``%answer`` and
``%astrion``; :class:`Team` is the same in a plain script. Names are imported when first used, so
that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import roles
    from .app import conversations
    from .app.result import AgentInfo, QuestionInfo, TeamResult
    from .app.team import Team
    from .errors import AstrionError
    from .llm.scripted import ScriptedModel
    from .roles import Role
    from .runtime.limits import Limits
    from .tools.registry import Tool, ToolContext, tool

__version__ = "0.1.0"

__all__ = [
    "AgentInfo",
    "AstrionError",
    "Limits",
    "QuestionInfo",
    "Role",
    "ScriptedModel",
    "Team",
    "TeamResult",
    "Tool",
    "ToolContext",
    "__version__",
    "conversations",
    "load_ipython_extension",
    "roles",
    "tool",
    "unload_ipython_extension",
]

_PLACES = {
    "AgentInfo": "app.result",
    "AstrionError": "errors",
    "Limits": "runtime.limits",
    "QuestionInfo": "app.result",
    "Role": "roles",
    "ScriptedModel": "llm.scripted",
    "Team": "app.team",
    "TeamResult": "app.result",
    "Tool": "tools.registry",
    "ToolContext": "tools.registry",
    "tool": "tools.registry",
}

_MODULES = {"conversations": "app.conversations", "roles": "roles"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{_MODULES[name]}")
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{place}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)


def load_ipython_extension(shell: Any) -> None:
    """Add the magics to an IPython shell; prints nothing."""
    from .notebook.magics import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Take the magics out again, stop what runs, leave nothing behind."""
    from .notebook.magics import unload

    unload(shell)
