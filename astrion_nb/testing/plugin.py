"""The pytest plugin: where a test's teams live, and which cassette they replay.

Everything is said through the environment (``ASTRION_HOME``, ``ASTRION_OFFLINE``,
``ASTRION_REPLAY``, ``ASTRION_RECORD``), so it holds for kernels and other child processes too. Knows
nbval by the name of its items only.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SUFFIX = ".cassette.json"
_HOMES = pytest.StashKey[dict[Path, Path]]()
_RECORD = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    """Note whether cassettes are to be recorded: later on the variable names a file."""
    config.stash[_RECORD] = os.environ.get("ASTRION_RECORD", "") not in ("", "0")


def cassette_of(notebook: Path) -> Path:
    """Return where the cassette of a notebook stands: beside it, ``<notebook>.cassette.json``."""
    return notebook.with_name(notebook.stem + SUFFIX)


@contextmanager
def _environment(home: Path, cassette: Path | None, recording: bool) -> Iterator[None]:
    """Set the environment for a while; while recording the network stays as it is."""
    wanted: dict[str, str | None] = {"ASTRION_HOME": str(home), "ASTRION_REPLAY": None, "ASTRION_RECORD": None}
    if cassette is not None:
        wanted["ASTRION_RECORD" if recording else "ASTRION_REPLAY"] = str(cassette)
    if not recording:
        wanted["ASTRION_OFFLINE"] = "1"
    before = {name: os.environ.get(name) for name in wanted}
    _set(wanted)
    try:
        yield
    finally:
        _set(before)


def _set(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _bring_models(home: Path) -> None:
    """While recording, the models are the person's own; roles and conversations are not."""
    from ..app.config import Config

    own = Config.load().home
    if own.models_file.is_file():
        target = home / own.models_file.relative_to(own.root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(own.models_file, target)


# -- notebooks --------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Give a notebook's kernel, which nbval starts ahead of the first cell, its home and its cassette."""
    if type(item).__module__ != "nbval.plugin":
        return (yield)
    notebook = item.path
    homes, recording = item.config.stash.setdefault(_HOMES, {}), item.config.stash[_RECORD]
    if notebook not in homes:
        homes[notebook] = Path(tempfile.mkdtemp(prefix="astrion-"))
        if recording:
            _bring_models(homes[notebook])
    cassette = cassette_of(notebook)
    with _environment(homes[notebook], cassette if recording or cassette.is_file() else None, recording):
        return (yield)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the temporary homes."""
    for home in config.stash.get(_HOMES, {}).values():
        shutil.rmtree(home, ignore_errors=True)


# -- tests ------------------------------------------------------------------------------


@pytest.fixture
def astrion_home(tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[Path]:
    """A temporary ``ASTRION_HOME``, without network."""
    home = tmp_path / "astrion-home"
    home.mkdir()
    recording = pytestconfig.stash[_RECORD]
    if recording:
        _bring_models(home)
    with _environment(home, None, recording):
        yield home


@pytest.fixture
def astrion_cassette(request: pytest.FixtureRequest, astrion_home: Path) -> Iterator[Path]:
    """The path of the cassette that the test's marker names; every team of the test replays it.

    With ``ASTRION_RECORD=1`` it is recorded instead.
    """
    marker = request.node.get_closest_marker("astrion_cassette")
    if marker is None or len(marker.args) != 1:
        raise pytest.UsageError('say which cassette: @pytest.mark.astrion_cassette("lesson.cassette.json")')
    path = request.path.parent / marker.args[0]
    recording = request.config.stash[_RECORD]
    if not recording and not path.is_file():
        pytest.fail(f"there is no cassette {marker.args[0]}; record it with ASTRION_RECORD=1", pytrace=False)
    from ..replay.player import rewind
    from ..replay.recorder import start_over

    rewind(path)
    start_over(path)
    with _environment(astrion_home, path, recording):
        yield path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give a test that is marked its cassette without asking for it by name."""
    for item in items:
        names = getattr(item, "fixturenames", None)
        if names is not None and "astrion_cassette" not in names and item.get_closest_marker("astrion_cassette"):
            names.insert(0, "astrion_cassette")
