"""Whole notebooks: made from cells, executed without a front end, verified by pytest in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from support import environment

LIMIT = 120.0
"""Seconds that a verification of several notebooks may take."""


def make(path: Path, cells: Sequence[str | tuple[str, str]]) -> Path:
    """Write a notebook of code cells; a pair is a source and a tag."""
    book = nbformat.v4.new_notebook()
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for number, item in enumerate(cells):
        source, tag = item if isinstance(item, tuple) else (item, "")
        metadata = {"tags": [tag]} if tag else {}
        cell = nbformat.v4.new_code_cell(source, metadata=metadata)
        cell["id"] = f"cell-{number}"
        book.cells.append(cell)
    nbformat.validate(book)
    path.write_text(nbformat.writes(book), encoding="utf-8")
    return path


@dataclass
class Executed:
    """An executed notebook.

    Attributes
    ----------
    book : NotebookNode
    error : str
        Of the cell that ended it, or nothing.
    """

    book: Any
    error: str

    def outputs(self, number: int) -> list[dict[str, Any]]:
        """Return a cell's outputs."""
        return [dict(output) for output in self.book.cells[number].outputs]

    def texts(self, number: int) -> str:
        """Return the plain text of a cell's outputs, what was printed included."""
        out = []
        for output in self.outputs(number):
            out.append(output.get("text") or output.get("data", {}).get("text/plain", ""))
        return "\n".join(out)


def execute(path: Path, env: Mapping[str, str], *, on: bool = False) -> Executed:
    """Execute a notebook where it lies, with nbclient, and save it; with ``on`` cells that fail do not end it."""
    book = nbformat.read(path, as_version=4)
    client = NotebookClient(
        book,
        timeout=60,
        resources={"metadata": {"path": str(path.parent)}},
        kernel_name="python3",
        allow_errors=on,
    )
    error = ""
    with environment.kept(**env):
        try:
            client.execute()
        except CellExecutionError as raised:
            error = f"{raised.ename}: {raised.evalue}"
    path.write_text(nbformat.writes(book), encoding="utf-8")
    return Executed(book, error)


@dataclass
class Verified:
    """What pytest said.

    Attributes
    ----------
    output : str
    outcomes : dict of str to str
        Notebook and cell (``lesson::ipynb::Cell 0``) → ``PASSED``, ``FAILED``, …
    """

    output: str
    outcomes: dict[str, str]

    def of(self, name: str) -> list[str]:
        """Return the outcomes of a notebook, cell by cell."""
        return [how for where, how in self.outcomes.items() if where.split("::")[0].removesuffix(".ipynb") == name]


def verify(folder: Path, *arguments: str, env: Mapping[str, str] | None = None) -> Verified:
    """Run pytest in a folder, with the package's plugin as an installed package brings it."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:hypothesispytest",
        "--rootdir",
        str(folder),
        *arguments,
    ]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("ASTRION_", "PYTEST_"))}
    done = subprocess.run(
        command,
        cwd=folder,
        env={**inherited, **(env or {})},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        stdin=subprocess.DEVNULL,
    )
    found = re.findall(
        r"^(\S+?::ipynb::Cell \d+|\S+\.ipynb::\S*) (PASSED|FAILED|ERROR|XFAIL|SKIPPED)", done.stdout, re.MULTILINE
    )
    return Verified(done.stdout + done.stderr, dict(found))
