"""What leaves the process: valid for a strict endpoint, whatever the conversation holds."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.strict_server import violations_of

from astrion_nb.errors import ConfigError
from astrion_nb.llm.plain import plain_messages
from astrion_nb.llm.wire import encode, object_text, tool_name, wire_messages
from astrion_nb.messages import Message, ToolCall


def test_metadata_ids_and_unknown_keys_stay_behind() -> None:
    secret = {"message_source": "user", "agent_id": 3, "usage": {"input": 1}, "reasoning_content": "hm"}
    messages = [
        Message("system", "s", metadata=secret, extra={"x": 1}),
        Message("user", "u", "msg_user_001", metadata=secret, extra={"x": 1}),
        Message("assistant", None, "msg_assistant_001", (ToolCall("c", "f", "{}"),), metadata=secret),
        Message("tool", "r", "msg_tool_001", tool_call_id="c", metadata=secret),
        Message("assistant", "done", metadata=secret),
    ]
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert wire_messages(messages) == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "r"},
        {"role": "assistant", "content": "done"},
    ]
    echoed = wire_messages(messages, reasoning="echo")
    assert [message.get("reasoning_content") for message in echoed] == [None, None, "hm", None, None]


@pytest.mark.parametrize("joined", [wire_messages, lambda messages, **more: plain_messages(messages, (), **more)])
def test_only_system_messages_at_the_beginning_are_joined_and_only_where_that_is_wanted(joined: Any) -> None:
    messages = [Message("system", "a"), Message("system", "b"), Message("user", "u"), Message("system", "c")]
    assert [message["content"] for message in joined(messages)] == ["a", "b", "u", "c"]
    assert [message["content"] for message in joined(messages, join_system=True)] == ["a\n\nb", "u", "c"]
    assert joined(messages[1:], join_system=True) == joined(messages[1:])
    assert joined(messages[:2], join_system=True) == [{"role": "system", "content": "a\n\nb"}]


def test_an_empty_assistant_message_is_left_out() -> None:
    messages = [Message("user", "u"), Message("assistant", ""), Message("assistant", None), Message("user", "v")]
    assert [message["content"] for message in wire_messages(messages)] == ["u", "v"]


def test_arguments_that_are_no_object_are_kept_inside_one() -> None:
    assert object_text('{"a": 1}') == '{"a": 1}'
    for wrong in ("[1]", '"{}"', '{"x": NaN}', '{"x":', "", "\ud800"):
        assert json.loads(object_text(wrong)) == {"invalid_arguments": wrong.replace("\ud800", "\ufffd")}


def test_a_name_that_a_model_made_up_is_made_acceptable() -> None:
    assert tool_name("transfer_to_规划") == "transfer_to"
    assert tool_name("a b.c") == "a_b_c"
    assert tool_name("规划") == "unknown_tool"
    assert len(tool_name("x" * 99)) == 64


def test_lone_surrogates_do_not_keep_a_request_from_going_out() -> None:
    assert orjson.loads(encode({"a\ud800": ["x\udfff", {"b": "y"}], "n": 1})) == {
        "a\ufffd": ["x\ufffd", {"b": "y"}],
        "n": 1,
    }


TEXT = st.text(st.characters(), max_size=20)  # lone surrogates included
CALLS = st.lists(st.tuples(TEXT, TEXT), max_size=3)


@given(st.lists(st.tuples(TEXT, st.one_of(st.none(), TEXT), CALLS), max_size=5), st.sampled_from(["strip", "echo"]))
@settings(max_examples=300, deadline=None)
def test_any_conversation_with_its_results_is_accepted_by_a_strict_endpoint(
    turns: list[tuple[str, str | None, list[tuple[str, str]]]], reasoning: Any
) -> None:
    messages = [Message("system", "s")]
    number = 0
    for asked, said, calls in turns:
        messages.append(Message("user", asked))
        made = tuple(ToolCall(f"c{number + n}", name, raw) for n, (name, raw) in enumerate(calls))
        number += len(made)
        messages.append(Message("assistant", said, tool_calls=made, metadata={"reasoning_content": asked}))
        messages += [Message("tool", asked, tool_call_id=call.id) for call in made]
    body = json.loads(encode({"model": "m", "stream": True, "messages": wire_messages(messages, reasoning=reasoning)}))
    rule: Any = "required" if reasoning == "echo" else "forbidden"
    assert violations_of(body, reasoning_content=rule) == []


def test_a_parameter_that_no_request_can_carry_is_a_configuration_error() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    for value in (10**30, object(), deep):
        with pytest.raises(ConfigError, match="cannot be written as JSON"):
            encode({"seed": value})
