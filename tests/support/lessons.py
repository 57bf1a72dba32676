"""The shipped notebooks, as tests look at them: their files, their outputs, and what records them."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat

from astrion_nb.home import builtin_notebooks

FOLDER = builtin_notebooks()
NAMES = ("ask-and-guide", "human-as-leader", "quickstart")
VIEW = "application/vnd.jupyter.widget-view+json"


def record() -> ModuleType:
    """Return the module ``record.py`` of the folder."""
    name = "notebooks_record"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, FOLDER / "record.py")
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


def notebook(name: str) -> Path:
    """Return the file of a notebook."""
    return FOLDER / f"{name}.ipynb"


def cassette(name: str) -> Path:
    """Return the file of a notebook's cassette."""
    return FOLDER / f"{name}.cassette.json"


def read(path: Path) -> Any:
    """Return a notebook."""
    return nbformat.read(path, as_version=4)


def code(book: Any) -> list[Any]:
    """Return the code cells of a notebook."""
    return [cell for cell in book.cells if cell.cell_type == "code"]


def outputs(book: Any) -> list[list[Any]]:
    """Return what each code cell shows: the place of a live view that has gone does not count."""
    return [
        [
            {key: value for key, value in output.items() if key not in ("metadata", "execution_count")}
            for output in cell["outputs"]
            if output["output_type"] != "display_data" or set(output["data"]) - {VIEW}
        ]
        for cell in book["cells"]
        if cell["cell_type"] == "code"
    ]


def copy(name: str, folder: Path) -> Path:
    """Copy a notebook and its cassette; returns the notebook."""
    shutil.copy(cassette(name), folder)
    return Path(shutil.copy(notebook(name), folder))


def changed(path: Path, before: str, after: str) -> None:
    """Change the source of one cell of a notebook."""
    book = read(path)
    found = [cell for cell in code(book) if before in cell.source]
    assert len(found) == 1, before
    found[0].source = found[0].source.replace(before, after)
    path.write_text(nbformat.writes(book), "utf-8")


def words(text: str) -> str:
    """Return the letters and digits of a text: what is left of it however it is laid out."""
    return "".join(re.findall(r"\w", text))


def lines(markdown: str) -> Iterator[str]:
    """Yield the words of each line of a text, without list numbers and fences, which no renderer writes as text."""
    for line in markdown.splitlines():
        if line.startswith("```"):
            continue
        found = words(re.sub(r"^\s*(?:\d+\.|[-*#]+)\s+", "", line))
        if found:
            yield found


def outcomes(said: str, name: str) -> list[str]:
    """Return what ``pytest --nbval -v`` said of a notebook, cell by cell."""
    return re.findall(rf"^{name}(?:\.|::)ipynb::Cell \d+ (\w+)", said, re.MULTILINE)
