"""Records the notebooks of this folder again: their cassettes, then their outputs.

::

    python notebooks/record.py                  # all
    python notebooks/record.py quickstart       # one
    python notebooks/record.py --outputs        # only replay, for instance after a change of the transcript's looks

Each notebook is executed twice, in a fresh kernel and a home of its own. First with the scripted
model of ``scripts/<name>.py`` while a cassette is written, as in front of a person: somebody can
answer, and reads a moment before the next cell. Then from that cassette, as a reader's CI will; this
run's outputs are the ones that are saved. Scripted answers are not measured but counted: the cassette
gets the tempo of the script, so two recordings are the same bytes, and so are two saved notebooks.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import runpy
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import nbformat
from astrion_nb.disk import write_atomic
from astrion_nb.errors import ReplayError
from astrion_nb.llm.scripted import ScriptedModel
from astrion_nb.replay.cassette import Cassette, Chunk, Step
from astrion_nb.replay.recorder import TIMELESS_START
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent
SUFFIX = ".cassette.json"
READING = 1.5
"""Seconds that the person of a recording reads before the next cell; everybody rests or waits by then."""
CELL_LIMIT = 120
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
LANGUAGE = {"file_extension": ".py", "mimetype": "text/x-python", "name": "python", "pygments_lexer": "ipython3"}


class Attended(NotebookClient):
    """Executes cells as a front end does in which a person can answer."""

    async def async_start_new_kernel_client(self) -> Any:
        """Start the channels and say that lines can be read."""
        client = await super().async_start_new_kernel_client()
        client.allow_stdin = True
        return client


async def read(cell: Any, **_: Any) -> None:
    """Give the team the time that a person needs to read."""
    if cell.cell_type == "code":
        await asyncio.sleep(READING)


def execute(notebook: Path, variables: dict[str, str], *, attended: bool) -> Any:
    """Return a notebook, executed in a fresh kernel with an empty home and no network.

    Parameters
    ----------
    notebook : Path
    variables : dict
        ``ASTRION_…`` variables; those of the caller do not count.
    attended : bool
        Whether a person sits in front of it.
    """
    document = nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ASTRION_", "OPENAI_"))}
    with tempfile.TemporaryDirectory(prefix="astrion-") as home:
        client = (Attended if attended else NotebookClient)(
            document,
            kernel_name="python3",
            timeout=CELL_LIMIT,
            resources={"metadata": {"path": str(notebook.parent)}},
            record_timing=False,
            store_widget_state=False,
            on_cell_start=read if attended else None,
        )
        client.execute(env={**environment, "ASTRION_HOME": home, "ASTRION_OFFLINE": "1", **variables})
    return document


def record(notebook: Path, cassette: Path) -> None:
    """Write the cassette of a notebook from its script.

    Raises
    ------
    ReplayError
        The script was not followed to its end.
    """
    script = f"scripts/{notebook.stem}.py"
    with tempfile.TemporaryDirectory(prefix="astrion-") as folder:
        made = Path(folder) / cassette.name
        execute(
            notebook,
            {"ASTRION_MODEL": f"scripted/{script}", "ASTRION_LANGUAGE": "en", "ASTRION_RECORD": str(made)},
            attended=True,
        )
        recording = Cassette.load(made)
    model: ScriptedModel = runpy.run_path(str(notebook.parent / script))["script"]
    check(recording, model, script)
    even(recording, model.tokens_per_second or 60.0)
    write_atomic(cassette, recording.to_bytes())


def check(recording: Cassette, model: ScriptedModel, script: str) -> None:
    """Make sure that every step of the script was said; the kernel ends before the model could tell."""
    said = Counter(response.actor for tape in recording.teams for response in tape.responses)
    written = Counter(model.unused())
    if said != written:
        raise ReplayError(f"{script}: {dict(written)} steps are written, {dict(said)} were asked for")


def even(recording: Cassette, tokens_per_second: float) -> None:
    """Put the script's tempo in the place of the measured times."""
    for tape in recording.teams:
        tape.started = TIMELESS_START
        tape.order = [Step(*row[:3]) if isinstance(row, Step) else row for row in tape.order]
        for response in tape.responses:
            response.stream = [
                Chunk(_milliseconds(chunk.text, tokens_per_second), chunk.text, chunk.reasoning)
                for chunk in response.stream
            ]
            response.end = 0


def _milliseconds(text: str, tokens_per_second: float) -> int:
    return round(len(text.split()) * 1000 / tokens_per_second)


def replay(notebook: Path, cassette: Path) -> None:
    """Save a notebook with the outputs that its cassette gives."""
    document = execute(notebook, {"ASTRION_REPLAY": str(cassette)}, attended=False)
    document.metadata = {"kernelspec": KERNEL, "language_info": LANGUAGE}
    for cell in document.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            # What is left of a live view once its run has ended is an output without content.
            cell.outputs = [output for output in cell.outputs if output.output_type != "display_data" or output.data]
    nbformat.validate(document)
    text: str = nbformat.writes(document)  # type: ignore[no-untyped-call]
    write_atomic(notebook, (text + "\n").encode())


def main(arguments: list[str] | None = None) -> int:
    """Record what is named, or everything."""
    parser = argparse.ArgumentParser(description="Record the notebooks again: cassettes, then outputs.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="notebooks by name; default: all")
    parser.add_argument("--outputs", action="store_true", help="keep the cassettes, replay only")
    options = parser.parse_args(arguments)
    for name in options.names or sorted(path.stem for path in FOLDER.glob("*.ipynb")):
        notebook, cassette = FOLDER / f"{name}.ipynb", FOLDER / f"{name}{SUFFIX}"
        if not options.outputs:
            record(notebook, cassette)
        replay(notebook, cassette)
        print(f"recorded: {name}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
