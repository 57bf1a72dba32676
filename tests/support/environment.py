"""The environment that tests run in: nothing of the person's, and no network but this machine's own.

Imported before anything is changed: :data:`OUTER` is the environment as pytest was started with it.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from astrion_nb.llm.weights import cache_dir

OUTER = dict(os.environ)
REPOSITORY = Path(__file__).parents[2]

_FOREIGN = ("ASTRION_", "OPENAI_", "JUPYTER", "IPYTHON", "JPY_")
_KEPT = {"ASTRION_CACHE", "ASTRION_GOLDEN"}


def offline() -> bool:
    """Say whether whoever started the tests has forbidden to fetch anything (``ASTRION_OFFLINE``)."""
    return OUTER.get("ASTRION_OFFLINE", "") not in ("", "0")


def missing(reason: str) -> None:
    """Skip, and say what is missing; under ``CI=true`` that is a failure."""
    if OUTER.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def clean() -> str:
    """Take the person's settings out of the process's environment, for its children too; returns the new home."""
    weights = cache_dir().parent  # where the person's home and settings put it
    for name in list(os.environ):
        if name.startswith(_FOREIGN) and name not in _KEPT:
            del os.environ[name]
    home = tempfile.mkdtemp(prefix="astrion-tests-")
    os.environ.update(
        HOME=home,
        USERPROFILE=home,
        XDG_CONFIG_HOME=f"{home}/.config",
        ASTRION_HOME=f"{home}/astrion",
        ASTRION_CACHE=str(weights),
        ASTRION_OFFLINE="1",
        LC_ALL="C.UTF-8",
        JUPYTER_PLATFORM_DIRS="1",
    )
    return home


@contextmanager
def kept(**values: str) -> Iterator[None]:
    """Set variables for a while; afterwards the environment is as it was, whatever was done to it."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if os.environ.get(name) != value})


def refuse_network() -> None:
    """Let this process behave as on a machine without network: names resolve and connections go to itself only."""

    def guard(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.connect":
            address = arguments[1]
            if isinstance(address, tuple) and not _is_own(address[0]):
                raise OSError(errno.ENETUNREACH, f"tests have no network: {address[0]}")
        elif event == "socket.getaddrinfo" and not _is_own(arguments[0]):
            raise socket.gaierror(socket.EAI_NONAME, f"tests have no network: {arguments[0]}")

    sys.addaudithook(guard)


def _is_own(host: str | bytes | None) -> bool:
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
    if not name or name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def artefacts() -> Path:
    """Return the folder for what people look at afterwards (screenshots); git does not see it."""
    folder = REPOSITORY / "tests" / "artefacts"
    folder.mkdir(exist_ok=True)
    return folder
