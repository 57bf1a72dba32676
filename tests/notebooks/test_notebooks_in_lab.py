"""The shipped notebooks in the real JupyterLab: run as a whole and saved, they are the files that were shipped."""

from __future__ import annotations

import json
import shutil

import pytest
from support import lessons
from support.lab import Lab

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("name", lessons.NAMES)
def test_run_all_in_lab_saves_the_outputs_that_ci_compares(lab: Lab, name: str) -> None:
    shutil.copy(lessons.cassette(name), lab.root)
    book = json.loads(lessons.notebook(name).read_text("utf-8"))
    cells = [number for number, cell in enumerate(book["cells"]) if cell["cell_type"] == "code"]
    for number in cells:
        book["cells"][number].update(outputs=[], execution_count=None)
    opened = lab.open(book, name=f"{name}.ipynb", env={"ASTRION_REPLAY": f"{name}.cassette.json"})
    for number in cells:  # all are queued by the kernel, as Run All does
        opened.start(number)
    for number in cells:
        opened.finish(number, timeout=60)
    saved = opened.save()
    assert lessons.outputs(joined(saved)) == lessons.outputs(
        joined(json.loads(lessons.notebook(name).read_text("utf-8")))
    )
    assert opened.problems == []


def joined(book: dict[str, object]) -> dict[str, object]:
    """Return a notebook with the texts of its outputs in one piece each, as programs see them."""
    for cell in book["cells"]:  # type: ignore[attr-defined]
        for output in cell.get("outputs", []):
            for holder in (output, output.get("data", {})):
                for key, value in holder.items():
                    if isinstance(value, list):
                        holder[key] = "".join(value)
    return book
