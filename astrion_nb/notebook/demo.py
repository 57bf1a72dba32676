"""The command ``demo``: the quickstart notebook, in JupyterLab or executed without a browser.

Knows how a notebook is opened and run; which one, with which model and where is
:mod:`astrion_nb.app.quickstart`'s concern.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from .. import given
from ..app.cli import Command, interface
from ..app.quickstart import JUPYTERS, Quickstart, set_up
from ..errors import AstrionError, ConfigError, StorageError

CELL_LIMIT = 900.0
"""Seconds that a cell may take without a browser; the small model needs far less."""
KERNEL_LIMIT = 120
"""Seconds within which the kernel is there."""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--headless", action="store_true", help="execute the notebook without a browser and print where it is"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path("astrion-demo"), help="where the copy goes (default: %(default)s)"
    )
    parser.add_argument("--model", default="smollm2", metavar="NAME", help="a small model (default: %(default)s)")
    parser.add_argument("--no-browser", action="store_true", help="start JupyterLab and print its address only")
    parser.add_argument("--port", type=_port, metavar="N", help="port of JupyterLab (default: 8888, or a free one)")


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r} is no port; use 1 to 65535")
    return int(text)


def _run(arguments: argparse.Namespace) -> int:
    _require(*(("nbclient", "ipykernel") if arguments.headless else ("jupyterlab",)))
    quickstart = set_up(arguments.folder, arguments.model)
    if arguments.headless:
        # Also this process, which starts the kernel, leaves nothing of Jupyter's elsewhere.
        os.environ.update({name: quickstart.environment[name] for name in JUPYTERS})
        print(execute(quickstart.notebook, quickstart.environment))
        return 0
    return _open(quickstart, browser=not arguments.no_browser, port=arguments.port)


COMMAND = Command(
    "demo",
    "open the quickstart notebook with a small model on this computer; nothing else is needed",
    _arguments,
    _run,
)


def _require(*modules: str) -> None:
    for module in modules:
        if importlib.util.find_spec(module) is None:
            from ..app.config import extra_command

            raise ConfigError(f"{module} is not installed: {extra_command('lab', 'local')}")


# -- in JupyterLab ----------------------------------------------------------------------


def _open(quickstart: Quickstart, *, browser: bool, port: int | None) -> int:
    """Run JupyterLab in the foreground until the person ends it."""
    notebook = quickstart.notebook
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={notebook.parent}"]
    # Not as a file to open: then the address that is printed would not lead to it.
    command.append(f"--LabApp.default_url=/lab/tree/{notebook.name}")
    if port is not None:  # the one that was asked for, or none
        command += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    if not browser:
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")  # in a container; the server listens on this machine only, with a token
    environment = _of_this_python(quickstart.environment)
    print(interface().opening.format(path=notebook), file=sys.stderr, flush=True)
    if os.name == "posix":
        # JupyterLab takes this process's place: an interrupt is its own affair, and no parent is left behind.
        os.execve(command[0], command, environment)
    return subprocess.run(command, env=environment, check=False).returncode


def _of_this_python(environment: Mapping[str, str]) -> dict[str, str]:
    """Let the kernel be this installation's, also where the person has one called ``python3`` elsewhere."""
    return {**environment, "JUPYTER_PREFER_ENV_PATH": "1"}


# -- without a browser ------------------------------------------------------------------


def execute(notebook: Path, environment: Mapping[str, str]) -> Path:
    """Execute a notebook in a kernel of this Python; the file itself is left alone.

    Parameters
    ----------
    notebook : Path
    environment : mapping
        The kernel's whole environment.

    Returns
    -------
    Path
        The executed notebook, ``<name>.executed.ipynb`` beside it. It is also there after an error,
        as far as it came.

    Raises
    ------
    AstrionError
        A cell failed or took too long, or the kernel died: which one, and why, in one line.
    StorageError
        The notebook cannot be read, or the result not written.
    """
    import nbformat
    import traitlets
    from jupyter_client.kernelspec import NATIVE_KERNEL_NAME, KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    try:
        document = nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TypeError, LookupError, AttributeError, nbformat.ValidationError) as error:
        # nbformat fails in many ways at what is JSON and no notebook
        raise StorageError(f"{notebook} cannot be read as a notebook: {_first_line(error)}") from None

    class OfThisPython(AsyncKernelManager):
        """Knows one kernel, the interpreter that runs this, whatever the person has installed elsewhere."""

        @traitlets.default("kernel_spec_manager")
        def _no_others(self) -> KernelSpecManager:
            return KernelSpecManager(kernel_dirs=[])

    client = NotebookClient(
        document,
        kernel_name=NATIVE_KERNEL_NAME,
        kernel_manager_class=OfThisPython,
        timeout=CELL_LIMIT,
        startup_timeout=KERNEL_LIMIT,
        resources={"metadata": {"path": str(notebook.parent)}},
        extra_arguments=["--IPKernelApp.log_level=CRITICAL"],  # its remarks are nothing for this person
        store_widget_state=False,  # the transcript says all, and viewers would prefer a widget they cannot show
    )
    executed = notebook.with_suffix(".executed.ipynb")
    number, reason = 0, ""
    try:
        # Cell by cell: `client.execute` takes the interrupt for itself and leaves something behind at exit.
        with client.setup_kernel(env=dict(environment)):
            for number, cell in enumerate(document.cells, 1):
                if cell.cell_type == "code":
                    told = interface().cell.format(number=number, total=len(document.cells))
                    print(told, file=sys.stderr, flush=True)
                    client.execute_cell(cell, number - 1)
    except CellExecutionError as error:
        reason = f"{error.ename}: {_first_line(error.evalue)}"
    except CellTimeoutError:
        reason = f"no end after {given.seconds_text(CELL_LIMIT)}"
    except (DeadKernelError, RuntimeError) as error:
        reason = f"the kernel died ({_first_line(error)})"
    try:
        nbformat.write(document, executed)  # type: ignore[no-untyped-call]
    except OSError as error:
        raise StorageError(f"{executed} cannot be written: {error.strerror}") from None
    if reason:
        raise AstrionError(f"cell {number} of {notebook.name} failed: {reason} (see {executed})")
    return executed


def _first_line(said: object) -> str:
    lines = str(said).strip().splitlines()
    return lines[0] if lines else type(said).__name__
