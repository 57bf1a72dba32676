"""The assembler against what endpoints really send; each example with the kind that it stands for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.strict_server import chunk, delta, finish, tool_delta, usage

from astrion_nb.errors import ContentFiltered, ModelBroken
from astrion_nb.llm.assemble import Assembler
from astrion_nb.llm.model import Finished, ReasoningDelta, TextDelta
from astrion_nb.messages import ToolCall, Usage

pytestmark = pytest.mark.faults


def assemble(*chunks: dict[str, Any], done: bool = True, **how: Any) -> Finished:
    assembler = Assembler(**how)
    shown = [event for each in chunks for event in assembler.feed(each)]
    shown += assembler.flush()
    finished = assembler.finish(done)
    assert "".join(event.text for event in shown if isinstance(event, TextDelta)) == finished.text
    assert "".join(event.text for event in shown if isinstance(event, ReasoningDelta)) == finished.reasoning
    return finished


def called(finished: Finished) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in finished.tool_calls]


# -- case 1: index


def test_a_call_whose_index_is_null_and_then_missing_is_assembled() -> None:
    finished = assemble(
        tool_delta(None, id="c1", name="ask_master", arguments='{"que'),
        tool_delta(without_index=True, arguments='stion":"q"}'),
        finish("tool_calls"),
    )
    assert finished.tool_calls == (ToolCall("c1", "ask_master", '{"question":"q"}'),)
    assert finished.finish == "tool_calls"


@pytest.mark.parametrize("indexes", [(0, 1), (1, 2), (3, 7), ("0", "1"), (None, None), (0, 0)])
def test_indexes_from_one_with_gaps_missing_or_all_zero_keep_calls_apart(indexes: tuple[Any, Any]) -> None:
    first, second = indexes
    finished = assemble(
        tool_delta(first, id="a", name="f", arguments='{"x"'),
        tool_delta(first, arguments=":1}"),
        tool_delta(second, id="b", name="g", arguments='{"y"'),
        tool_delta(second, arguments=":2}"),
        finish("tool_calls"),
    )
    assert finished.tool_calls == (ToolCall("a", "f", '{"x":1}'), ToolCall("b", "g", '{"y":2}'))


def test_index_zero_is_not_taken_for_absent() -> None:
    finished = assemble(
        tool_delta(0, id="a", name="f", arguments='{"x"'),
        tool_delta(1, id="b", name="g", arguments='{"y"'),
        tool_delta(0, arguments=":1}"),
        tool_delta(1, arguments=":2}"),
    )
    assert called(finished) == [("f", '{"x":1}'), ("g", '{"y":2}')]


def test_interleaved_calls_without_index_are_told_apart_by_id() -> None:
    finished = assemble(
        tool_delta(None, id="a", name="f", arguments='{"x"'),
        tool_delta(None, id="b", name="g", arguments='{"y"'),
        tool_delta(None, id="a", arguments=":1}"),
        tool_delta(None, id="b", arguments=":2}"),
    )
    assert called(finished) == [("f", '{"x":1}'), ("g", '{"y":2}')]


def test_an_index_that_comes_late_continues_the_call_that_had_none() -> None:
    finished = assemble(tool_delta(None, id="a", name="f", arguments='{"x"'), tool_delta(0, arguments=":1}"))
    assert called(finished) == [("f", '{"x":1}')]


@pytest.mark.parametrize("entry", [{}, {"index": 0}])
def test_whole_calls_in_one_list_without_ids_are_separate_calls(entry: dict[str, Any]) -> None:
    entries = [{**entry, "function": {"name": "list_agents", "arguments": raw}} for raw in ("{}", None, '{"a":1}')]
    finished = assemble(delta(tool_calls=entries), finish("tool_calls"))
    assert called(finished) == [("list_agents", "{}"), ("list_agents", "{}"), ("list_agents", '{"a":1}')]
    assert len({call.id for call in finished.tool_calls}) == 3


def test_whole_calls_one_chunk_each_all_at_index_zero_without_ids_are_separate_calls() -> None:
    finished = assemble(*(tool_delta(0, name="f", arguments=f'{{"x":{n}}}') for n in range(3)))
    assert called(finished) == [("f", '{"x":0}'), ("f", '{"x":1}'), ("f", '{"x":2}')]


# -- case 2: ids and names


@pytest.mark.parametrize("later", [None, ""])
def test_an_id_that_comes_once_and_a_name_that_is_repeated_make_one_call(later: str | None) -> None:
    finished = assemble(
        tool_delta(0, id="a", name="read_file", arguments='{"p'),
        tool_delta(0, id=later, name="read_file", arguments='ath":"x"}'),
        tool_delta(0, id=later, name="read_file", arguments=""),
    )
    assert finished.tool_calls == (ToolCall("a", "read_file", '{"path":"x"}'),)


@pytest.mark.parametrize("later", [None, "", "a"])
def test_a_name_that_is_truly_split_is_joined(later: str | None) -> None:
    finished = assemble(
        tool_delta(0, id="a", name="read_"),
        tool_delta(0, id=later, name="file", arguments=""),
        tool_delta(0, id=later, arguments='{"path":"x"}'),
    )
    assert finished.tool_calls == (ToolCall("a", "read_file", '{"path":"x"}'),)


def test_a_name_that_grows_is_replaced() -> None:
    finished = assemble(tool_delta(0, id="a", name="read_"), tool_delta(0, name="read_file", arguments="{}"))
    assert called(finished) == [("read_file", "{}")]


def test_an_id_that_changes_with_every_piece_is_still_one_call() -> None:
    finished = assemble(
        tool_delta(0, id="a", name="f", arguments='{"x"'),
        tool_delta(0, id="b", arguments=":"),
        tool_delta(0, id="c", name="f", arguments="1}"),
    )
    assert finished.tool_calls == (ToolCall("a", "f", '{"x":1}'),)


def test_the_whole_call_sent_again_at_the_end_is_not_a_second_one() -> None:
    whole = {"id": "a", "name": "f", "arguments": '{"x":1}'}
    assert called(assemble(tool_delta(0, **whole), tool_delta(0, **whole))) == [("f", '{"x":1}')]


def test_one_id_for_several_calls_is_replaced_from_the_second_on() -> None:
    finished = assemble(
        tool_delta(0, id="x", name="f", arguments='{"a":1}'),
        tool_delta(1, id="x", name="g", arguments='{"b":2}'),
        call_id_prefix="call_7_",
    )
    assert finished.tool_calls == (ToolCall("x", "f", '{"a":1}'), ToolCall("call_7_2", "g", '{"b":2}'))


# -- case 3: nulls


def test_a_null_list_of_calls_is_no_call() -> None:
    finished = assemble(delta(content="hi", tool_calls=None), finish())
    assert (finished.text, finished.tool_calls, finished.finish) == ("hi", (), "stop")


@pytest.mark.parametrize("nothing", [None, ""])
def test_arguments_that_are_null_or_empty_are_an_empty_object(nothing: str | None) -> None:
    assert called(assemble(tool_delta(0, id="a", name="list_agents", arguments=nothing))) == [("list_agents", "{}")]


@pytest.mark.parametrize(
    "odd",
    [
        chunk({"index": 0, "finish_reason": None}),
        chunk({"index": 0, "delta": None, "finish_reason": None}),
        {"choices": None},
        {"choices": [None]},
        {},
        delta(tool_calls=[None]),
        delta(tool_calls=[{}]),
        delta(tool_calls=[{"index": 0, "function": None}]),
        delta(role="assistant", content=None, refusal=None),
        chunk(None, usage=None),
    ],
)
def test_chunks_that_say_nothing_are_passed_over(odd: dict[str, Any]) -> None:
    finished = assemble(odd, delta(content="a"), odd, delta(content="b"), odd, finish(), odd)
    assert (finished.text, finished.tool_calls) == ("ab", ())


def test_a_choice_without_delta_may_carry_the_finish_reason() -> None:
    finished = assemble(delta(content="x"), chunk({"finish_reason": "stop"}), done=False)
    assert (finished.text, finished.finish, finished.truncated) == ("x", "stop", False)


def test_content_given_as_typed_parts_is_text_and_reasoning() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "yes"}]
    finished = assemble(delta(content=parts), finish())
    assert (finished.text, finished.reasoning) == ("yes", "hm")


def test_arguments_given_as_an_object_become_its_text() -> None:
    assert called(assemble(tool_delta(0, id="a", name="f", arguments={"x": "é"}))) == [("f", '{"x":"é"}')]


def test_an_empty_object_ahead_of_the_real_arguments_is_dropped() -> None:
    finished = assemble(tool_delta(0, id="a", name="f", arguments="{}"), tool_delta(0, arguments='{"x":1}'))
    assert called(finished) == [("f", '{"x":1}')]


# -- case 4: usage


def test_a_usage_chunk_with_empty_choices_is_counted() -> None:
    finished = assemble(delta(content="hi"), finish(), usage(10, 5))
    assert finished.usage == Usage(10, 5)


def test_usage_that_is_repeated_grows_and_is_never_added_up() -> None:
    finished = assemble(*(delta(content="x") | {"usage": usage(10, n)["usage"]} for n in (1, 3, 5)), finish())
    assert finished.usage == Usage(10, 5)
    assert finished.usage.total == 15


def test_usage_tells_cached_and_reasoning_tokens_and_survives_a_later_null() -> None:
    told = usage(10, 5, prompt_tokens_details={"cached_tokens": 4}, completion_tokens_details={"reasoning_tokens": 2})
    assert assemble(told, finish() | {"usage": None}).usage == Usage(10, 5, 4, 2)
    assert assemble(usage(10, 5, prompt_cache_hit_tokens=3), finish()).usage == Usage(10, 5, 3)


def test_no_usage_told_is_none_and_odd_figures_are_passed_over() -> None:
    assert assemble(finish()).usage is None
    assert assemble(chunk(None, usage={"prompt_tokens": "many", "completion_tokens": -1}), finish()).usage is None


# -- case 6: how it ends

FULL = tool_delta(0, id="a", name="f", arguments='{"x":1}')
HALF = tool_delta(0, id="a", name="f", arguments='{"x":')


@pytest.mark.parametrize(
    ("ending", "done"), [((), True), ((finish("stop"),), True), ((finish("stop"),), False), ((finish(),), True)]
)
def test_a_complete_call_runs_when_the_end_is_told_in_either_way(ending: tuple[Any, ...], done: bool) -> None:
    finished = assemble(FULL, *ending, done=done)
    assert called(finished) == [("f", '{"x":1}')]
    assert (finished.finish, finished.truncated) == ("tool_calls", False)


@pytest.mark.parametrize("call", [FULL, HALF])
def test_no_call_runs_when_nothing_told_the_end(call: dict[str, Any]) -> None:
    with pytest.raises(ModelBroken) as broken:
        assemble(call, done=False)
    assert broken.value.retryable
    shown = assemble(delta(content="I will"), call, done=False)
    assert (shown.text, shown.tool_calls, shown.truncated, shown.finish) == ("I will", (), True, "length")


def test_a_stream_of_nothing_is_broken_and_one_of_reasoning_too() -> None:
    for chunks in ((), (delta(reasoning_content="hm"),), (usage(),)):
        with pytest.raises(ModelBroken):
            assemble(*chunks, done=False)


def test_a_cut_answer_keeps_the_cost_of_it() -> None:
    with pytest.raises(ModelBroken) as broken:
        assemble(usage(10, 1), done=False)
    assert broken.value.usage == Usage(10, 1)  # type: ignore[attr-defined]


def test_half_a_call_does_not_run_when_only_done_came_or_the_length_was_reached() -> None:
    with pytest.raises(ModelBroken):
        assemble(HALF, done=True)
    finished = assemble(FULL, tool_delta(1, id="b", name="g", arguments='{"y"'), finish("length"))
    assert called(finished) == [("f", '{"x":1}')]
    assert finished.finish == "length"


def test_wrong_json_from_a_model_that_ended_by_itself_is_passed_on() -> None:
    finished = assemble(HALF, finish("tool_calls"))
    assert called(finished) == [("f", '{"x":')]


def test_a_stream_that_ends_with_reason_error_is_cut_off() -> None:
    with pytest.raises(ModelBroken):
        assemble(FULL, finish("error"))


# -- cases 7, 8, 9


def test_a_filtered_answer_is_no_answer_and_keeps_its_text() -> None:
    with pytest.raises(ContentFiltered) as filtered:
        assemble(delta(content="part"), finish("content_filter"))
    assert filtered.value.partial == "part"  # type: ignore[attr-defined]
    assert not filtered.value.retryable


def test_null_content_beside_calls_is_legal() -> None:
    finished = assemble(delta(role="assistant", content=None), FULL, finish("tool_calls"))
    assert (finished.text, called(finished)) == ("", [("f", '{"x":1}')])


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_alone_is_an_empty_answer(name: str) -> None:
    finished = assemble(delta(**{name: "hm "}), delta(**{name: "so", "content": None}), finish())
    assert (finished.text, finished.reasoning, finished.finish) == ("", "hm so", "stop")


# -- decision 54: surrogates


def test_lone_surrogates_become_the_replacement_character() -> None:
    finished = assemble(
        delta(content="a\udc00b"), tool_delta(0, id="a", name="f", arguments='{"x":"\ud800"}'), delta(content="\ud83d")
    )
    assert finished.text == "a\ufffdb\ufffd"
    assert called(finished) == [("f", '{"x":"\ufffd"}')]


def test_a_pair_that_is_split_between_two_chunks_is_one_character() -> None:
    assert assemble(delta(content="a\ud83d"), delta(content="\ude00b"), finish()).text == "a😀b"


# -- the kinds

NAMES = st.sampled_from(["read_file", "list_agents", "create_sub_agent", "ask_master", "f"])
VALUES = st.dictionaries(st.text(max_size=5), st.one_of(st.integers(), st.text(max_size=9), st.none()), max_size=3)
STYLES = st.fixed_dictionaries(
    {
        "index": st.sampled_from(["proper", "null", "missing", "from 1", "gaps", "zero"]),
        "id": st.sampled_from(["first", "null later", "empty later", "every", "fresh later"]),
        "name": st.sampled_from(["once", "repeated", "split"]),
        "end": st.sampled_from(["tool_calls", "stop", "done", "closed after reason"]),
        "usage": st.sampled_from(["none", "end", "running"]),
    }
)


def cut(raw: str, data: st.DataObject) -> list[str]:
    """Return a text cut at random places; the pieces may be empty."""
    places = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=4)))
    return [raw[a:b] for a, b in zip([0, *places], [*places, len(raw)], strict=True)]


def call_pieces(number: int, name: str, raw: str, style: dict[str, str], data: st.DataObject) -> list[dict[str, Any]]:
    index = {"proper": number, "null": None, "missing": None, "from 1": number + 1, "gaps": 3 * number + 2, "zero": 0}
    names = [name]
    if style["name"] == "split" and len(name) > 4:
        names = [name[:4], name[4:]]
    arguments = cut(raw, data)
    out = []
    for place in range(max(len(names), len(arguments) + len(names) - 1)):
        fields: dict[str, Any] = {}
        if place < len(names):
            fields["name"] = names[place]
        elif style["name"] == "repeated":
            fields["name"] = name
        if place >= len(names) - 1:
            fields["arguments"] = arguments[place - len(names) + 1]
        if place == 0 or style["id"] == "every":
            fields["id"] = f"id{number}"
        elif style["id"] == "null later":
            fields["id"] = None
        elif style["id"] == "empty later":
            fields["id"] = ""
        elif style["id"] == "fresh later" and "name" not in fields:
            fields["id"] = f"other{number}_{place}"
        out.append(tool_delta(index[style["index"]], without_index=style["index"] == "missing", **fields))
    return out


@given(st.lists(st.tuples(NAMES, VALUES), max_size=4), st.text(max_size=30), st.text(max_size=10), STYLES, st.data())
@settings(max_examples=400, deadline=None)
def test_every_way_of_cutting_and_numbering_a_response_gives_the_same_response(
    wanted: list[tuple[str, dict[str, Any]]], text: str, thought: str, style: dict[str, str], data: st.DataObject
) -> None:
    chunks = [delta(reasoning_content=piece) for piece in cut(thought, data)]
    chunks += [delta(content=piece) for piece in cut(text, data)]
    raws = [json.dumps(value) for _, value in wanted]
    for number, ((name, _), raw) in enumerate(zip(wanted, raws, strict=True)):
        chunks += call_pieces(number, name, raw, style, data)
    if style["usage"] == "running":
        chunks = [{**each, "usage": usage(9, n)["usage"]} for n, each in enumerate(chunks)]
    reason = {"tool_calls": "tool_calls", "stop": "stop", "done": None, "closed after reason": "stop"}[style["end"]]
    if reason:
        chunks.append(finish(reason))
    if style["usage"] != "none":
        chunks.append(usage(9, 99))
    finished = assemble(*chunks, done=style["end"] != "closed after reason")
    assert finished.text == text
    assert finished.reasoning == thought
    assert called(finished) == [(name, raw) for (name, _), raw in zip(wanted, raws, strict=True)]
    assert [call.id for call in finished.tool_calls] == [f"id{number}" for number in range(len(wanted))]
    assert finished.finish == ("tool_calls" if wanted else "stop")
    assert finished.usage == (None if style["usage"] == "none" else Usage(9, 99))


@given(st.lists(st.tuples(NAMES, VALUES), min_size=1, max_size=3), st.text(max_size=12), STYLES, st.data())
@settings(max_examples=200, deadline=None)
def test_a_stream_cut_anywhere_before_its_end_runs_no_call(
    wanted: list[tuple[str, dict[str, Any]]], text: str, style: dict[str, str], data: st.DataObject
) -> None:
    chunks = [delta(content=piece) for piece in cut(text, data)]
    for number, (name, value) in enumerate(wanted):
        chunks += call_pieces(number, name, json.dumps(value), style, data)
    kept = chunks[: data.draw(st.integers(0, len(chunks)))]
    shown = "".join(each["choices"][0]["delta"].get("content") or "" for each in kept)
    if not shown:
        with pytest.raises(ModelBroken):
            assemble(*kept, done=False)
    else:
        finished = assemble(*kept, done=False)
        assert (finished.text, finished.tool_calls, finished.truncated) == (shown, (), True)


KEYS = ["choices", "delta", "tool_calls", "index", "id", "function", "name", "arguments", "content", "usage"]
KEYS += ["finish_reason", "prompt_tokens", "completion_tokens", "reasoning_content", "model", "type", "text"]
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


DELTAS = st.builds(lambda inner, reason: chunk({"delta": inner, "finish_reason": reason}), JSON, JSON)
CHUNKS = st.one_of(DELTAS, st.dictionaries(st.sampled_from(KEYS), JSON, max_size=3))


@given(st.lists(CHUNKS, max_size=4), st.booleans())
@settings(max_examples=300, deadline=None)
def test_whatever_stands_in_a_chunk_nothing_but_a_model_error_comes_out(chunks: list[Any], done: bool) -> None:
    assembler = Assembler()
    for each in chunks:
        assembler.feed(each)
    try:
        finished = assembler.finish(done)
    except (ModelBroken, ContentFiltered):
        return
    assert all(call.id and call.name and call.arguments for call in finished.tool_calls)
