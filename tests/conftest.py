"""What holds for every test: nothing of the person's in the environment, no network, a home of its own.

Browser tests come last: the browser's driver leaves a running loop on the main thread, where
``asyncio.run`` of a later test would refuse to start another.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator

import pytest
from hypothesis import settings
from support import environment, pythons
from support.kernels import PYTHONS, kernel_python
from support.lab import lab, lab_session

__all__ = ["kernel_python", "lab", "lab_session"]

_number = itertools.count(1)

# What is checked does not depend on luck: the same inputs in every run. To look for others:
# ``--hypothesis-profile=search``.
settings.register_profile("same", derandomize=True, deadline=None, database=None, print_blob=True)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile("same")


def pytest_configure(config: pytest.Config) -> None:
    home = environment.clean()
    config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))
    environment.refuse_network()


def pytest_report_header() -> str:
    return pythons.told(name.removeprefix("python") for name in PYTHONS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give the test an ``ASTRION_HOME``, and undo what it does to the environment."""
    home = tmp_path_factory.getbasetemp() / f"home-{next(_number)}"
    with environment.kept(ASTRION_HOME=str(home), ASTRION_OFFLINE="1"):
        yield
