"""Messages as files hold them: nothing that another program wrote is lost (decision 30)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astrion_nb.messages import Message, ToolCall, Usage, replace_surrogates, unique_call_ids

pytestmark = pytest.mark.spec

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
unknown = st.dictionaries(
    st.text(max_size=8).filter(
        lambda key: (
            key
            not in {"role", "content", "message_id", "tool_calls", "tool_call_id", "metadata", "id", "type", "function"}
        )
    ),
    json_values,
    max_size=3,
)


@st.composite
def stored_messages(draw: st.DrawFn) -> dict[str, Any]:
    role = draw(st.sampled_from(["system", "user", "assistant", "tool"]))
    out: dict[str, Any] = {
        "role": role,
        "content": draw(st.text(max_size=20) | (st.none() if role == "assistant" else st.nothing())),
    }
    if draw(st.booleans()):
        out["message_id"] = draw(st.text(min_size=1, max_size=12))
    if role == "assistant" and draw(st.booleans()):
        out["tool_calls"] = [
            {
                "id": draw(st.text(max_size=6)),
                "type": "function",
                "function": {"name": draw(st.text(max_size=6)), "arguments": draw(st.text(max_size=12))},
                **draw(unknown),
            }
            for _ in range(draw(st.integers(1, 3)))
        ]
    if role == "tool":
        out["tool_call_id"] = draw(st.text(max_size=6))
    metadata = draw(st.dictionaries(st.text(max_size=8), json_values, max_size=3))
    if metadata:
        out["metadata"] = metadata
    return {**out, **draw(unknown)}


@settings(deadline=None)
@given(stored_messages())
def test_a_stored_message_survives_with_the_keys_nobody_here_knows(stored: dict[str, Any]) -> None:
    message = Message.from_json(stored)
    assert message.to_json() == stored
    assert list(message.to_json()) == list(stored)
    assert Message.from_json(message.to_json()) == message


def test_keys_stand_in_the_order_of_the_data_model() -> None:
    call = ToolCall("c", "f", "{}")
    message = Message("assistant", "x", "m", (call,), None, {"a": 1}, {"later": 2})
    assert list(message.to_json()) == ["role", "content", "message_id", "tool_calls", "metadata", "later"]


@pytest.mark.parametrize("role", [None, "", "function", 7, ["user"], "User"])
def test_an_unknown_role_is_refused(role: object) -> None:
    with pytest.raises(ValueError, match="known are system, user, assistant, tool"):
        Message.from_json({"role": role, "content": "x"})


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["role", "content", "message_id", "tool_calls", "tool_call_id", "metadata"]),
        json_values | st.just("assistant"),
        max_size=6,
    )
)
def test_any_json_object_is_read_or_refused_with_a_value_error(data: dict[str, Any]) -> None:
    try:
        Message.from_json(data).to_json()
    except ValueError:
        pass


def test_null_and_missing_parts_of_a_call_are_empty() -> None:
    assert ToolCall.from_json({"id": None, "function": {"name": "f", "arguments": None}}) == ToolCall("", "f", "")
    assert ToolCall.from_json({}) == ToolCall("", "", "")


usages = st.builds(Usage, *[st.integers(0, 10**9)] * 4)


@settings(deadline=None)
@given(usages, usages, usages)
def test_usage_adds_up_and_survives(a: Usage, b: Usage, c: Usage) -> None:
    assert (a + b) + c == a + (b + c)
    assert a + Usage() == a
    assert (a + b).total == a.total + b.total == a.input + a.output + b.input + b.output
    assert Usage.from_json(a.to_json()) == a


def test_no_usage_is_not_zero_usage() -> None:
    assert Usage.from_json(None) is None
    assert Usage.from_json(Usage().to_json()) == Usage()
    assert Usage(3, 4).to_json() == {"input": 3, "output": 4, "total": 7}


@given(st.lists(st.sampled_from(["", "a", "b", "call_1", "call_2", "call_1_2"]), max_size=8), st.booleans())
@settings(max_examples=200, deadline=None)
def test_call_ids_are_always_non_empty_unique_and_stable(wanted: list[str], busy: bool) -> None:
    taken = {"a", "call_2"} if busy else set()
    ids = unique_call_ids(wanted, taken=taken)
    assert len(set(ids)) == len(ids) == len(wanted)
    assert all(ids)
    assert not taken & set(ids)
    assert ids == unique_call_ids(wanted, taken=taken)


@pytest.mark.parametrize(
    ("text", "whole"),
    [("蓝色", "蓝色"), ("\ud83d\ude00", "😀"), ("a\ud83d", "a\ufffd"), ("\ude00\ud83d", "\ufffd\ufffd"), ("", "")],
)
def test_pairs_of_surrogates_come_together_and_lone_ones_are_replaced(text: str, whole: str) -> None:
    assert replace_surrogates(text) == whole
