"""Stored messages are read fast where they are plain, and by the long way otherwise: both say the same."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from astrion_nb.disk import RealFiles
from astrion_nb.messages import Message, ToolCall
from astrion_nb.store.forms import check_message
from astrion_nb.store.loading import load
from astrion_nb.store.reading import read_message

texts = st.text(max_size=6)
scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=True) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2), max_leaves=4
)


def mostly(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Nearly always what belongs there, now and then anything."""
    return st.one_of(strategy, strategy, strategy, strategy, values)


usages = st.fixed_dictionaries(
    {}, optional={"input": mostly(st.integers(0, 9)), "output": mostly(st.integers(0, 9)), "total": st.integers(0, 9)}
)
metadata = st.dictionaries(texts | st.sampled_from(["envelope_id", "status", "compaction"]), scalars | values).flatmap(
    lambda found: st.just(found) | usages.map(lambda usage: {**found, "usage": usage})
)
functions = st.fixed_dictionaries(
    {"name": mostly(texts), "arguments": mostly(texts)}, optional={"x": values, "description": texts}
)
calls = st.fixed_dictionaries(
    {"id": mostly(texts), "type": mostly(st.just("function")), "function": mostly(functions)},
    optional={"index": values},
)
roles = st.sampled_from(["system", "user", "assistant", "tool"])
items = st.fixed_dictionaries(
    {"role": mostly(roles)},
    optional={
        "content": mostly(texts),
        "message_id": mostly(texts),
        "tool_calls": mostly(st.lists(calls, max_size=2)),
        "tool_call_id": mostly(texts),
        "metadata": mostly(metadata),
        "unknown": values,
    },
)


def outcome(read: Any, item: Any) -> Any:
    try:
        message = read(json.loads(json.dumps(item)))
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        return type(error), str(error)
    # NaN is unequal to itself; what is written again tells whether two messages are the same
    return json.dumps(message.to_json()), repr(message)


def long_way(item: Any) -> Message:
    message = Message.from_json(item)
    check_message(message)
    return message


@given(mostly(items))
@example({"role": "assistant"})
@example({"role": "assistant", "content": None, "tool_calls": None, "metadata": None})
@example({"role": "assistant", "content": "", "tool_calls": []})
@example({"role": "tool", "content": "x", "other": None})
@example({"role": "user", "tool_calls": 0, "content": "x"})
@example({"role": "user", "content": "x", "metadata": {"usage": None}})
@example({"role": "user", "content": "x", "metadata": {"usage": {"input": True}}})
@example({"role": "user", "content": "x", "metadata": {"usage": {"input": 1.5}}})
@example({"role": "assistant", "content": "x", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": ""}}]})
@example({"role": "assistant", "content": "x", "tool_calls": [{"id": "a", "type": "function", "function": {}}]})
def test_a_message_is_the_same_whichever_way_it_is_read(item: Any) -> None:
    assert outcome(read_message, item) == outcome(long_way, item)


@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(mostly(items))
def test_a_message_is_the_same_whichever_way_it_is_read_at_length(item: Any) -> None:
    assert outcome(read_message, item) == outcome(long_way, item)


def test_what_this_package_writes_is_read_the_short_way_and_is_a_message_like_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usage = {"input": 3, "output": 1, "total": 4, "cached": 2}
    written = [
        Message("system", "你是 Leader"),
        Message("user", "x", "msg_user_001", metadata={"message_source": "user", "starts_work": True, "agent_id": 3}),
        Message("assistant", None, "msg_assistant_001", (ToolCall("c", "f", "{}"),), metadata={"usage": usage}),
        Message("tool", "", "msg_tool_001", tool_call_id="c"),
    ]

    def refused(item: Any) -> Message:
        raise AssertionError(f"{item} took the long way")

    monkeypatch.setattr(Message, "from_json", refused)
    for message in written:
        found = read_message(json.loads(json.dumps(message.to_json())))
        assert found == message
        assert repr(found) == repr(message)
        assert found.extra == {}


@pytest.mark.parametrize("collecting", [True, False])
@pytest.mark.parametrize("frozen", [True, False])
def test_the_collector_is_left_as_it_was_and_what_was_read_is_nothing_to_look_through_again(
    tmp_path: Path, collecting: bool, frozen: bool
) -> None:
    folder = tmp_path / "conv_1"
    folder.mkdir()
    messages = [{"role": "user", "content": "x", "message_id": f"msg_user_{n:03d}"} for n in range(1, 3000)]
    (folder / "metadata.json").write_text('{"id": "conv_1"}', encoding="utf-8")
    (folder / "messages.json").write_text(json.dumps({"messages": messages}), encoding="utf-8")
    was = gc.isenabled()
    gc.collect()
    try:
        if frozen:
            gc.freeze()  # as a server does before it forks
        kept = gc.get_freeze_count()
        (gc.enable if collecting else gc.disable)()
        loaded = load(folder, RealFiles())
        assert gc.isenabled() is collecting
        assert gc.get_freeze_count() == kept
        if not frozen:
            assert len(gc.get_objects(generation=0)) < 1000
    finally:
        gc.unfreeze()
        (gc.enable if was else gc.disable)()
    assert len(loaded.state.agents[0].messages) == 2999
