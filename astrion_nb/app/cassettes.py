"""Attaches a recorder or a player to a team, as configured.

The wiring between configuration and ``replay/``: which order port the team gets, what stands around
its models and tools, and the facts that a replay must know before its first step. Knows neither the
cassette's form nor how a team runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..runtime.compaction import as_it_is
from ..runtime.order import Live, Order
from ..tools.registry import Tool, result_text

if TYPE_CHECKING:
    from ..llm.model import Model
    from ..replay.player import Player
    from ..replay.recorder import Recorder
    from ..runtime.team import TeamRuntime
    from .config import Config

STALL = 30.0
"""Seconds that a replay in a waiting cell waits for a person's step."""
Choose = Callable[[str | None, str | None, str], tuple[str, str]]


class LiveSession:
    """A team that is neither recorded nor replayed."""

    order: Order

    def __init__(self) -> None:
        self.order = Live()
        self.scrub: Callable[[str], str] = as_it_is
        """How the recording holds a text, where there is one."""

    def fact(self, name: str, value: Any) -> Any:
        """Return a fact about the team: as it is; recorded on the way, or as recorded."""
        return value

    def model(self, key: str, make: Callable[[str], Model]) -> Model:
        """Return the model of a key."""
        return make(key)

    def tools(self, tools: Sequence[Tool]) -> tuple[Tool, ...]:
        """Return the tools as the team is to have them."""
        return tuple(tools)

    def choose(self, choose: Choose) -> Choose:
        """Return how models are chosen."""
        return choose

    def take_back(self) -> None:
        """Give up the place in the recording: the team could not be opened."""

    def watch(self, runtime: TeamRuntime) -> None:
        """Follow a team from its first event."""

    def only_now(self, only: bool) -> None:
        """Say whether a person's step can come from nowhere but what happens now: a cell waits."""

    def save(self) -> None:
        """Write what there is."""

    def close(self) -> None:
        """End."""


class RecordingSession(LiveSession):
    """A team that is recorded."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.order = recorder
        self.scrub = recorder.scrub

    def fact(self, name: str, value: Any) -> Any:
        """Note a fact and return it."""
        self._recorder.tape.facts[name] = value
        return value

    def model(self, key: str, make: Callable[[str], Model]) -> Model:
        """Return the model of a key, recorded."""
        return self._recorder.model(make(key))

    def tools(self, tools: Sequence[Tool]) -> tuple[Tool, ...]:
        """Return the tools, those that touch the world recorded."""
        return self._recorder.tools(tools, result_text)

    def choose(self, choose: Choose) -> Choose:
        """Note every choice of a model: a replay has no configuration."""

        def noted(asked: str | None, role_model: str | None, conversation: str) -> tuple[str, str]:
            chosen = choose(asked, role_model, conversation)
            choices = self._recorder.tape.facts.setdefault("choices", {})
            choices[_choice(asked, role_model, conversation)] = list(chosen)
            return chosen

        return noted

    def take_back(self) -> None:
        """Leave no tape."""
        self._recorder.take_back()

    def watch(self, runtime: TeamRuntime) -> None:
        """Learn which turns are ended."""
        self._recorder.watch(runtime.bus)

    def save(self) -> None:
        """Write the cassette."""
        self._recorder.save()

    def close(self) -> None:
        """Write the cassette a last time."""
        self._recorder.close()


class ReplaySession(LiveSession):
    """A team that is replayed: no model is made, no key is needed."""

    def __init__(self, player: Player, model: Callable[[str], Model]) -> None:
        self._player = player
        self._model = model
        self.order = player
        self.scrub = player.digester.scrub

    def fact(self, name: str, value: Any) -> Any:
        """Return the fact as it was recorded."""
        return self._player.facts.get(name, value)

    def model(self, key: str, make: Callable[[str], Model]) -> Model:
        """Return the recording of a model."""
        return self._model(key)

    def tools(self, tools: Sequence[Tool]) -> tuple[Tool, ...]:
        """Return the tools, those that touch the world replaced by their recorded outcomes."""
        return self._player.tools(tools)

    def choose(self, choose: Choose) -> Choose:
        """Choose as was chosen."""
        choices = self._player.facts.get("choices") or {}

        def recorded(asked: str | None, role_model: str | None, conversation: str) -> tuple[str, str]:
            found = choices.get(_choice(asked, role_model, conversation))
            return (found[0], found[1]) if found else choose(asked, role_model, conversation)

        return recorded

    def take_back(self) -> None:
        """Leave the tape to the next team."""
        self._player.take_back()

    def watch(self, runtime: TeamRuntime) -> None:
        """End every turn when the replay leaves the recording."""
        self._player.on_miss = runtime.abort

    def only_now(self, only: bool) -> None:
        """Miss loudly, while a cell waits, what no later cell can bring."""
        self._player.expect_person(STALL if only else None)

    def close(self) -> None:
        """Stop watching for stalls."""
        self._player.close()


def _choice(asked: str | None, role_model: str | None, conversation: str) -> str:
    return f"tool={asked or ''} role={role_model or ''} conversation={conversation}"


def attach(config: Config) -> LiveSession:
    """Return the session that configuration asks for.

    Raises
    ------
    ReplayError, ReplayMiss
        The cassette cannot be used, or holds no further team.
    """
    if config.replay is not None:
        from ..replay.player import open_player

        return ReplaySession(*open_player(config.replay))
    if config.record is not None:
        from ..replay.recorder import open_recorder

        return RecordingSession(open_recorder(config.record, secrets=[item.reveal() for item in config.secrets]))
    return LiveSession()
