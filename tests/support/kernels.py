"""Kernels of other versions than the installed one, and of other Pythons: each in a virtual environment made once.

``python -m support.kernels`` makes them all, ahead of tests that may fetch nothing. They lie under
``ASTRION_TEST_CACHE``, else in the system's temporary folder, and are made again when what they
should hold changes.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from . import environment, pythons

INSTALLED = "installed"
KERNELS = {
    INSTALLED: (),
    "lowest": ("ipykernel==6.31.0",),  # and every dependency as low as pyproject.toml allows
    "6.31": ("ipykernel==6.31.0",),
    "7.0": ("ipykernel==7.0.1",),  # a display or comm from a thread raises there
    "7.3": ("ipykernel==7.3.0",),  # the last one whose comms wait for the cell, subshells apart
}
"""Name → what its environment holds beside the package; ``installed`` is the environment of the tests."""
PYTHONS = {f"python{minor}": path for minor, path in pythons.others(environment.OUTER).items()}
"""More of them, the latest ipykernel on each other Python that the machine has: name → interpreter."""
EVERY = (*KERNELS, *PYTHONS)
"""The names of both, for the tests that are about the kernel itself."""
BARE = "bare"
"""One more environment, in which the package's widget libraries are missing."""
MISSING = ("anywidget", "ipywidgets")
FLOORS = "floors"
"""One more, as ``lowest``, with the extras that tests and JupyterLab need, as low as they are allowed too."""


@dataclass
class Reply:
    """What came back from a kernel for one cell.

    Parameters
    ----------
    status : str
        ``ok``, ``error`` or ``aborted``.
    outputs : list of dict
        Contents of the messages that make outputs, each with its type as ``output_type``.
    """

    status: str = ""
    outputs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def text(self) -> str:
        """What was printed."""
        return "".join(output["text"] for output in self.outputs if output["output_type"] == "stream")

    @property
    def error(self) -> str:
        """Name and message of the error, or nothing."""
        return next((f"{o['ename']}: {o['evalue']}" for o in self.outputs if o["output_type"] == "error"), "")


def requirements(name: str) -> list[str]:
    """Return what has to be installed for a kernel, the package itself not counted."""
    if name in PYTHONS:
        return ["ipykernel"]
    if name not in ("lowest", FLOORS):
        return list(KERNELS["7.3" if name == BARE else name])
    extras = ("lab", "test") if name == FLOORS else ()
    return [*(re.sub(r">=\s*", "==", line) for line in bounds(*extras)), *KERNELS["lowest"]]


def bounds(*extras: str) -> list[str]:
    """Return the requirements of ``pyproject.toml`` as they stand there, with those of some extras."""
    project = tomllib.loads((environment.REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    return [*project["dependencies"], *(line for name in extras for line in project["optional-dependencies"][name])]


def interpreter(name: str) -> Path:
    """Return the Python of a kernel, making its environment when it is not there.

    Skips when making it is forbidden; under ``CI=true`` that is a failure.
    """
    if name == INSTALLED:
        return Path(sys.executable)
    missing = MISSING if name == BARE else ()
    base = PYTHONS.get(name)
    of = sys.version if base is None else f"{base.resolve()} {base.stat().st_mtime_ns}"
    wanted = "\n".join([of, str(environment.REPOSITORY), *requirements(name), *missing])
    cache = Path(environment.OUTER.get("ASTRION_TEST_CACHE") or Path(tempfile.gettempdir()) / "astrion-test-kernels")
    folder = cache / f"{name}-{hashlib.sha256(wanted.encode()).hexdigest()[:12]}"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    done = folder / "complete"
    if not done.is_file():
        if environment.offline():
            environment.missing(f"the kernel {name} is not in {cache}: cd tests && python -m support.kernels")
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--no-input", "-qq"]
        steps = [
            [str(base or sys.executable), "-m", "venv", "--clear", str(folder)],
            [*pip, "install", *requirements(name), "-e", str(environment.REPOSITORY)],
        ]
        if missing:
            steps.append([*pip, "uninstall", "--yes", *missing])
        for step in steps:
            subprocess.run(step, check=True, timeout=900, env=environment.OUTER, stdin=subprocess.DEVNULL)
        done.touch()
    return python


@pytest.fixture
def kernel_python() -> Callable[[str], Path]:
    """The Python of a kernel by its name in :data:`EVERY`; to be used by tests marked ``slow``."""
    return interpreter


@contextmanager
def kernel(python: Path, *, folder: Path, env: dict[str, str] | None = None) -> Iterator[Callable[..., Reply]]:
    """Run a kernel of the given Python; yields what runs a cell in it.

    The function yielded takes the code and ``timeout`` (seconds, default 20), and returns a :class:`Reply`.
    """
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import KernelManager

    manager = KernelManager()
    manager._kernel_spec = KernelSpec(
        argv=[str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        display_name="test",
        language="python",
    )
    manager.start_kernel(env={**os.environ, **(env or {})}, cwd=str(folder))
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)

        def run(code: str, timeout: float = 20.0) -> Reply:
            reply = Reply()

            def take(message: dict[str, Any]) -> None:
                kind = message["msg_type"]
                if kind in ("stream", "display_data", "execute_result", "error", "update_display_data", "clear_output"):
                    reply.outputs.append({"output_type": kind, **message["content"]})

            answer = client.execute_interactive(
                code, allow_stdin=False, stop_on_error=False, timeout=timeout, output_hook=take
            )
            reply.status = answer["content"]["status"]
            return reply

        yield run
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def run_in(connection: Path, code: str, *, timeout: float = 30.0) -> str:
    """Run a cell in a kernel that somebody else has started; returns what it printed.

    Parameters
    ----------
    connection : Path
        The kernel's connection file.
    """
    from jupyter_client.blocking.client import BlockingKernelClient

    client = BlockingKernelClient()
    client.load_connection_file(str(connection))
    client.hb_channel.time_to_dead = 20.0  # a busy machine lets heartbeats wait
    client.start_channels()
    said: list[str] = []
    try:
        client.wait_for_ready(timeout=60)
        client.execute_interactive(
            code, timeout=timeout, output_hook=lambda message: said.append(message["content"].get("text", ""))
        )
    finally:
        client.stop_channels()
    return "".join(said)


if __name__ == "__main__":
    names = (*EVERY, BARE, FLOORS)
    with ThreadPoolExecutor(2) as pool:  # one fetches while the other unpacks
        for each, python in zip(names, pool.map(interpreter, names), strict=True):
            print(f"{each}: {python}", flush=True)
