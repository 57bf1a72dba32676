"""That requests leave messages out is one quiet line of the transcript; what was said stays readable."""

from __future__ import annotations

from typing import Any

import pytest
from support.safe_html import read
from support.stories import Story

from astrion_nb.events import MessageAppended
from astrion_nb.messages import Message
from astrion_nb.render.transcript import bundle

DIGEST = 'The model\'s context was full.\n- user: "<b>first</b> words"'


def story(language: str, said: Any) -> dict[str, str]:
    told = Story(language=language)
    told.human("The first words.")
    told.says(0, "The second words.")
    message = Message("system", DIGEST, metadata={"message_source": "runtime", "compaction": said})
    told.tell(MessageAppended(0, message))
    told.says(0, "The third words.")
    return bundle(told.state)


@pytest.mark.parametrize(
    ("language", "count", "line"),
    [
        ("en", 1234, "1,234 earlier messages left out of the requests: the model's context was full"),
        ("en", 1, "1 earlier message left out of the requests: the model's context was full"),
        ("en", 0, "Long results were cut in the requests: the model's context was full"),
        ("zh", 12, "请求里略去了 12 条较早的消息：模型的上下文已满"),
        ("zh", 1, "请求里略去了 1 条较早的消息：模型的上下文已满"),
        ("zh", 0, "请求里截短了较长的结果：模型的上下文已满"),
    ],
)
def test_a_compaction_is_one_quiet_line_between_what_was_said(language: str, count: int, line: str) -> None:
    shown = story(language, {"from": 2, "pinned": [1], "left_out": count})
    text = shown["text/plain"]
    assert text.split("\n").count(line) == 1
    assert text.index("The second words.") < text.index(line) < text.index("The third words.")
    assert f"*{line}*" in shown["text/markdown"].replace("\\", "").split("\n")
    assert read(shown["text/html"])[1].count(line) == 1
    for form in shown.values():
        assert "context was full.\n" not in form
        assert 'words"' not in form
        assert "The first words." in form


@pytest.mark.parametrize("said", [{}, {"left_out": "many"}, {"left_out": -3}, {"left_out": None, "from": []}])
def test_a_compaction_that_a_hand_has_changed_is_shown_too(said: dict[str, Any]) -> None:
    assert "Long results were cut in the requests" in story("en", said)["text/plain"]


def test_what_is_no_compaction_is_shown_as_it_is() -> None:
    assert "context was full.\n" in story("en", ["of another program"])["text/plain"]
