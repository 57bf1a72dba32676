"""For tests and lessons: the scripted model, a pytest plugin that replays notebooks, what holds of any conversation.

::

    from astrion_nb.testing import ScriptedModel, call, say

    def test_my_role(astrion_home):              # nothing is written outside a temporary folder
        model = ScriptedModel({"Team Leader": [say("Nothing to do.")]})

    @pytest.mark.astrion_cassette("lesson.cassette.json")
    def test_my_lesson():                        # every Team in here is replayed
        ...

What holds of every conversation, and a check that names what does not, is in
:mod:`~astrion_nb.testing.invariants`.

The plugin comes with the package. Under ``pytest --nbval`` each notebook gets a temporary
``ASTRION_HOME``, no network (``ASTRION_OFFLINE``), and ``ASTRION_REPLAY`` when
``<notebook>.cassette.json`` stands beside it; ``ASTRION_RECORD=1 pytest --nbval-lax …`` records these
files instead. Other tests are left alone.

pytest reads this module in every project of its environment and touches every name that ``dir``
shows: so it imports nothing by itself, and lists nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..llm.scripted import ScriptedModel, Step, call, fail, say, until_message
    from ..replay.cassette import Cassette
    from ..replay.player import Player, open_player
    from ..replay.recorder import Recorder, open_recorder

__all__ = [
    "Cassette",
    "Player",
    "Recorder",
    "ScriptedModel",
    "Step",
    "call",
    "fail",
    "open_player",
    "open_recorder",
    "say",
    "until_message",
]

_PLACES = {
    "Cassette": "replay.cassette",
    "Player": "replay.player",
    "Recorder": "replay.recorder",
    "ScriptedModel": "llm.scripted",
    "Step": "llm.scripted",
    "call": "llm.scripted",
    "fail": "llm.scripted",
    "open_player": "replay.player",
    "open_recorder": "replay.recorder",
    "say": "llm.scripted",
    "until_message": "llm.scripted",
}


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"astrion_nb.{place}"), name)
    globals()[name] = value
    return value


def pytest_configure(config: Any) -> None:
    """Register what needs pytest itself; called by pytest."""
    from . import plugin

    config.addinivalue_line(
        "markers", "astrion_cassette(file): teams of this test replay the cassette (a path beside the test's file)"
    )
    if not config.pluginmanager.is_registered(plugin):
        config.pluginmanager.register(plugin, "astrion_nb.testing.plugin")
