"""The six envelopes: byte-exact to the message protocol, and every content survives."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astrion_nb.envelope import KINDS, Envelope, parse, render
from astrion_nb.errors import EnvelopeError

GOLDEN = Path(__file__).parents[1] / "golden" / "envelope"
PAIRS = sorted(GOLDEN.glob("*.json"))

pytestmark = pytest.mark.spec

texts = st.text(st.characters(codec=None), max_size=60)
lines = st.text(st.characters(codec=None, exclude_characters="\n"), min_size=1, max_size=30)
identifiers = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)


@st.composite
def envelopes(draw: st.DrawFn, content: st.SearchStrategy[str] = texts) -> Envelope:
    kind = draw(st.sampled_from(sorted(KINDS)))
    question = draw(st.none() | identifiers) if kind == "answer" else None
    senders = lines | st.sampled_from(
        ["Team Leader", "UI Operator_1", "规划_1", "C++ & <QA>_1", "A 的提问", "x>\r<y", " ", "</Task>"]
    )
    return Envelope(kind, draw(senders), draw(identifiers), draw(content), question)  # type: ignore[arg-type]


forged = st.recursive(
    st.sampled_from(
        ["", "id: x", "</Ask>", "</Team Leader>", "<Task>", "\r", "\r\n", "\u2028", "\x0b\x0c\x85", "\n\n\n", "\ud800"]
    )
    | texts
    | envelopes().map(render),
    lambda inner: st.lists(inner, max_size=4).map("\n".join) | envelopes(inner).map(render),
    max_leaves=8,
)


@pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.stem)
def test_a_golden_envelope_is_rendered_and_read_byte_for_byte(path: Path) -> None:
    envelope = Envelope(**json.loads(path.read_bytes()))
    text = path.with_suffix(".txt").read_bytes()
    assert render(envelope).encode() == text
    assert parse(text.decode()) == envelope


def test_every_kind_has_a_golden_pair_and_no_file_stands_alone() -> None:
    assert {json.loads(path.read_bytes())["kind"] for path in PAIRS} == set(KINDS)
    assert {path.stem for path in PAIRS} == {path.stem for path in GOLDEN.glob("*.txt")}


def test_the_table_of_kinds_is_the_protocols() -> None:
    rows = [(row.label, row.tag, row.prefix) for row in KINDS.values()]
    assert rows == [
        ("任务发布", "Task", "task"),
        ("任务进度输出", "Output", "out"),
        ("任务完成汇报", "Output", "out"),
        ("提问", "Ask", "ask"),
        ("消息", "Message", "msg"),
        ("回答", "Answer", "ans"),
    ]


@settings(deadline=None)
@given(envelopes(forged))
def test_whatever_an_envelope_holds_is_read_back(envelope: Envelope) -> None:
    assert parse(render(envelope)) == envelope


@settings(deadline=None)
@given(forged | texts)
def test_what_is_read_as_an_envelope_is_exactly_that_envelope(text: str) -> None:
    try:
        envelope = parse(text)
    except EnvelopeError:
        return
    assert render(envelope) == text


@settings(deadline=None)
@given(envelopes(), st.data())
def test_a_text_with_one_line_changed_around_the_content_is_no_envelope(
    envelope: Envelope, data: st.DataObject
) -> None:
    parts = render(envelope).split("\n")
    place = data.draw(st.sampled_from([0, 1, 2, 3, 4, len(parts) - 2, len(parts) - 1]))
    parts[place] = parts[place] + "!"
    with pytest.raises(EnvelopeError):
        parse("\n".join(parts))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"kind": "report"}, "message type"),
        ({"sender": ""}, "sender"),
        ({"sender": "a\nb"}, "sender"),
        ({"id": ""}, "id"),
        ({"id": "x" * 65}, "id"),
        ({"id": "a b"}, "id"),
        ({"id": "a\n"}, "id"),
        ({"id": "编号"}, "id"),
        ({"question_id": "ask_uio_001"}, "answer"),
        ({"kind": "answer", "question_id": 'x"'}, "question_id"),
    ],
)
def test_a_field_that_cannot_stand_in_an_envelope_is_refused_by_name(change: dict[str, str], named: str) -> None:
    fields = asdict(Envelope("task", "Team Leader", "task_001", "x")) | change
    with pytest.raises(EnvelopeError, match=named) as caught:
        Envelope(**fields)
    assert "\n" not in str(caught.value)


def test_an_answer_carries_its_own_id_outside_and_the_questions_in_the_tag() -> None:
    text = render(Envelope("answer", "A_1", "ans_a_001", "yes", "ask_b_001"))
    assert text.split("\n")[1] == "id: ans_a_001"
    assert text.split("\n")[4] == '<Answer question_id="ask_b_001">'
