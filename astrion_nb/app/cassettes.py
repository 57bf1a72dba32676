"""Attaches a recorder or a player to a team, as configured.

The wiring between configuration and ``replay/``; knows neither the cassette's form nor the runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config import Config
    from .wiring import Models


def attach(config: Config, models: Models) -> Any:
    """Return the session of a cassette, or ``None`` for a team that is neither recorded nor replayed."""
    if config.replay is None and config.record is None:
        return None
    raise NotImplementedError
