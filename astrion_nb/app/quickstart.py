"""Everything the shipped quickstart needs on a person's computer: weights, copies of its own, settings.

Says what it is going to download before it does. Knows no Jupyter: how the notebook is opened or
run is for whoever asked.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from ..disk import make_folder, write_atomic
from ..errors import StorageError
from ..home import builtin_notebooks, language
from ..render.words import words

FILE = "quickstart.ipynb"
JUPYTERS = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
"""What of Jupyter's own would be left in the person's home."""
_NOT_HERE = ("ASTRION_REPLAY", "ASTRION_RECORD")  # the model is to be asked, not a recording


@dataclass(frozen=True, slots=True)
class Quickstart:
    """A working copy of the quickstart notebook.

    Parameters
    ----------
    notebook : Path
        The copy, absolute.
    environment : dict
        The whole environment of the process that its kernel is to be started from.
    """

    notebook: Path
    environment: dict[str, str]


def set_up(folder: Path, model: str = "smollm2") -> Quickstart:
    """Fetch the model unless it is there, and copy the notebook, and those it leads to, unless there are copies.

    The small model answers in the quickstart; the others need their recordings and play them.

    Parameters
    ----------
    folder : Path
        Where the copy goes, and with it everything its team stores unless ``ASTRION_HOME`` says otherwise.
    model : str
        Name of a small model.

    Raises
    ------
    ConfigError
        The extra ``local`` is missing, there is no such model, or it cannot be fetched.
    StorageError
        The folder cannot be written, or the installation lacks the notebook.
    """
    folder = folder.expanduser().absolute()
    key = bring(model)
    notebook = folder / FILE
    make_folder(folder)
    if notebook.exists():
        print(words(language()).keeps_copy.format(path=notebook), file=sys.stderr)
    for source in _shipped():
        if not (folder / source.name).exists():
            data = _read(source)
            if source.suffix == ".ipynb":
                data = _fitted(source.stem, data, key)
            write_atomic(folder / source.name, data, fsync=False)
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_HERE}
    environment.setdefault("ASTRION_HOME", str(folder / "home"))
    for name in JUPYTERS:
        environment.setdefault(name, str(folder / "jupyter" / name.removesuffix("_DIR").lower()))
    make_folder(folder / "jupyter")  # IPython makes its own folder in one that is there, and no more
    environment["ASTRION_MODEL"] = key
    return Quickstart(notebook, environment)


def bring(model: str) -> str:
    """Fetch a small model unless it is there, having said what will be downloaded; returns its key.

    Raises
    ------
    ConfigError, StorageError
        As for :func:`set_up`.
    """
    from ..llm.local_server import require_extra
    from ..llm.weights import cache_dir, find, lookup
    from ..llm.weights_fetch import cli_fetch

    weights = lookup(model)
    require_extra()
    if find(weights) is None:
        told = words(language()).will_fetch
        print(told.format(name=weights.name, size=weights.download_size, folder=cache_dir()), file=sys.stderr)
        with contextlib.redirect_stdout(sys.stderr):
            cli_fetch([weights.name])
    return weights.key


def _shipped() -> list[Path]:
    """Return the quickstart, the notebooks that it leads to, and their recordings."""
    folder = builtin_notebooks()
    if not (folder / FILE).is_file():
        raise StorageError(f"the installed package lacks {FILE}: install astrion-nb again")
    return sorted([*folder.glob("*.ipynb"), *folder.glob("*.cassette.json")])


_NOTE = re.compile(r"^\*The answers saved .*\*$", re.MULTILINE)
_ANSWERED = (
    "*Cells that were not run in this copy show the answers of a scripted model; those that were run, the answers of "
    "`{key}`, a small model on this computer. It shows how a team works; its answers are weak. Below, "
    "[Run it yourself](#Run-it-yourself) says how to let another model answer.*"
)
_PLAYED = (
    "*This copy plays the recording beside it, `{name}.cassette.json`: its cells refer to agents and questions of that "
    "recording. Without the line `%config …`, the model of your settings answers; then read names and ids off the "
    "view or the board.*"
)


def _fitted(name: str, data: bytes, key: str) -> bytes:
    """Return a notebook that says who answers in its copy: the small model, or the recording that it needs."""
    document = json.loads(data)
    played = f"{name}.ipynb" != FILE
    note = (_PLAYED if played else _ANSWERED).format(name=name, key=key)
    lines = ["%load_ext astrion_nb\n", f'%config AstrionMagics.replay = "{name}.cassette.json"']
    for cell in document["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            cell["source"] = _NOTE.sub(lambda _: note, text).splitlines(keepends=True)
        elif played and text == "%load_ext astrion_nb":
            cell["source"] = lines
    return json.dumps(document, ensure_ascii=False, indent=1).encode() + b"\n"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StorageError(f"{path} cannot be read ({error.strerror}): install astrion-nb again") from None
