"""A saved notebook without kernel and widget state: every message is there, in each form as often as in the others."""

from __future__ import annotations

import html
import re
from collections import Counter
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbconvert import HTMLExporter, MarkdownExporter
from support.casts import create, play
from support.kernel_env import environment
from support.notebooks import execute, make
from support.strict_server import StrictServer, calls, last, text

pytestmark = pytest.mark.faults

MARK = re.compile(r"mark-[a-z]+-\d+")


def lead(request: dict[str, Any]) -> Any:
    if "mark-question-4" in last(request):
        number = last(request).split("id: ")[1].split()[0]
        answer = {"agent_id": 1, "question_id": number, "answer": "It is mark-answer-5."}
        return calls(("answer_sub_agent_question", answer))
    return text("The end: mark-final-7." if "mark-report-6" in str(request["messages"]) else "I wait.")


@pytest.mark.filterwarnings("ignore:Your element with mimetype")  # of an emptied view; it is skipped, as it should
def test_every_message_is_in_page_and_markdown_after_the_widgets_are_lost_and_the_file_is_saved_again(
    server: StrictServer, tmp_path: Path
) -> None:
    play(
        server,
        leader=[calls(create(1, task="Do mark-subtask-2."), say="First mark-plan-1."), *[lead] * 9],
        member=[
            calls(("list_active_sub_agents", {}), say="Busy with mark-progress-3."),
            calls(("ask_master", {"question": "What of mark-question-4?", "question_id": "q-1"})),
            text("Found mark-report-6."),
        ],
    )
    path = make(tmp_path / "kept.ipynb", ["%load_ext astrion_nb", "%%team\nThe task is **mark-task-0**."])
    executed = execute(path, environment(server, tmp_path / "home"))
    assert executed.error == ""
    book: Any = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    (transcript,) = [output.data for output in book.cells[1].outputs if "text/plain" in output.data]
    told = Counter(MARK.findall(transcript["text/plain"]))
    assert sorted(mark.rpartition("-")[2] for mark in told) == list("01234567")
    assert told["mark-task-0"] == told["mark-plan-1"] == told["mark-final-7"] == 1, "who reads it says it once"
    for _ in range(2):
        book.metadata.pop("widgets", None)
        book.cells[1].source = ""
        path.write_text(nbformat.writes(book), encoding="utf-8")
        book = nbformat.read(path, as_version=4)
        page, _ = HTMLExporter().from_notebook_node(book)
        markdown, _ = MarkdownExporter().from_notebook_node(book)
        body = html.unescape(page[page.index("<body") :])
        assert Counter(MARK.findall(body)) == told
        assert Counter(MARK.findall(markdown)) == told
        assert Counter(MARK.findall(transcript["text/html"])) == told
        assert "Error displaying widget" not in body
        assert "widget-state" not in body
