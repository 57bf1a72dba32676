"""The board: the agents of a team and the questions that wait."""

from __future__ import annotations

import unicodedata

import pytest
from support.golden import FOLDER, check
from support.lab_markdown import LabMarkdown
from support.safe_html import read
from support.stories import Story, team_at_work, team_waiting

from astrion_nb.render.board import agents_table, board_bundle, board_text


def columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", ["work", "waiting"])
def test_each_board_is_the_one_that_was_looked_at(name: str, language: str) -> None:
    state = (team_at_work if name == "work" else team_waiting)(language).state
    shown = board_bundle(state)
    assert shown["text/plain"] == board_text(state)
    check(
        {
            FOLDER / "board" / f"{name}-{language}.txt": shown["text/plain"] + "\n",
            FOLDER / "board" / f"{name}-{language}.md": shown["text/markdown"] + "\n",
            FOLDER / "board" / f"{name}-{language}.html": shown["text/html"] + "\n",
        }
    )


def test_the_table_tells_who_waits_for_whom() -> None:
    assert agents_table(team_waiting("en").state) == [
        ["No.", "Name", "Status", "Waits for", "Task", "Tokens"],
        ["leader", "Team Leader", "running", "", "", "0"],
        ["1", "Ops_1", "waiting", "You", "Deploy", "0"],
        ["2", "QA & <Test>_1", "waiting", "Ops_1", "Check | verify", "0"],
    ]


def test_a_detail_stands_for_idle_and_its_error_below() -> None:
    story = team_at_work("en")
    assert agents_table(story.state)[3][2] == "failed"
    assert "Full-Stack Engineer_1: ModelRefused: 401 at ." in board_text(story.state)


def test_columns_line_up_with_chinese_names() -> None:
    story = Story(language="zh")
    story.agent(1, "plan", "规划", task="写一份计划")
    story.agent(2, "ui", "UI Operator", task="colours")
    head, rule, *rows = board_text(story.state).split("\n")[:5]
    assert len({columns(line) for line in (rule, *rows)}) == 1
    assert columns(head) <= columns(rule)


def test_the_board_shows_no_message() -> None:
    assert "配色完成" not in board_text(team_at_work("en").state)


def test_names_and_tasks_are_escaped() -> None:
    story = Story()
    story.agent(1, "x", "<script>x</script>|`", task="<img src=x onerror=y>\nsecond line")
    shown = board_bundle(story.state)
    assert read(shown["text/html"])[0] == []
    with LabMarkdown() as lab:
        faults, text, _ = read(lab.html(shown["text/markdown"]))
    assert faults == []
    assert "<img src=x onerror=y>" in text
