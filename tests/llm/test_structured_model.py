"""Calls by schema, against a server that knows no tools and refuses every trace of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.asking import ask, events, request, run
from support.strict_server import Gate, StrictServer, close, delta, finish, no_done, reasoning, status, text

from astrion_nb.errors import ModelBroken, ModelBusy
from astrion_nb.home import Language
from astrion_nb.llm.model import Finished, ModelRequest, TextDelta
from astrion_nb.llm.openai import OpenAIModel
from astrion_nb.llm.plain import plain_messages
from astrion_nb.llm.say import SayReader
from astrion_nb.llm.structured import StructuredModel
from astrion_nb.messages import Message, ToolCall, Usage
from astrion_nb.prompts import Audience, base_prompt

CREATE = {
    "type": "function",
    "function": {
        "name": "create_sub_agent",
        "description": "创建一个子智能体",
        "parameters": {
            "type": "object",
            "properties": {
                "agent_id": {"type": "integer", "description": "编号"},
                "role_id": {"type": "string", "description": "角色"},
                "task": {"type": "string", "description": "任务"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "thinking_mode": {"type": "string", "enum": ["fast", "thinking"]},
            },
            "required": ["agent_id", "role_id", "task"],
        },
    },
}
LIST = {"type": "function", "function": {"name": "list_agents", "parameters": {"type": "object", "properties": {}}}}
TOOLS = (CREATE, LIST)
ASK = (Message("system", "You lead."), Message("user", "go"))
SAID = '{"say": "Hello \\"you\\"\\n\\u4e16\\ud83d\\ude00 end"}'
SAYING = 'Hello "you"\n世😀 end'
CALLED = '{"name": "create_sub_agent", "arguments": {"agent_id": 1, "role_id": "ui-operator", "task": "看"}}'


@pytest.fixture
def server() -> Iterator[StrictServer]:
    with StrictServer(tools=False) as strict:
        yield strict
        assert strict.violations == []
        assert strict.waiting_replies == 0


def model(server: StrictServer, **settings: Any) -> StructuredModel:
    return StructuredModel(OpenAIModel("local/x", model="m", base_url=server.url), **settings)


def once(server: StrictServer, reply: Any, messages: tuple[Message, ...] = ASK, **settings: Any) -> Finished:
    async def work() -> Finished:
        server.enqueue(reply)
        asked = model(server, **settings)
        try:
            return await ask(asked, request(messages, tools=TOOLS))
        finally:
            await asked.close()

    return run(work)


def test_a_call_becomes_a_tool_call(server: StrictServer) -> None:
    finished = once(server, text(*CALLED, tokens=(30, 20)))
    arguments = '{"agent_id": 1, "role_id": "ui-operator", "task": "看"}'
    assert finished.tool_calls == (ToolCall("call_1_1", "create_sub_agent", arguments),)
    assert (finished.text, finished.finish, finished.usage) == ("", "tool_calls", Usage(30, 20))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_what_is_said_is_streamed_in_whatever_pieces_it_comes(server: StrictServer, size: int) -> None:
    pieces = [SAID[i : i + size] for i in range(0, len(SAID), size)]
    finished = once(server, text(*pieces))
    assert (finished.text, finished.finish, finished.tool_calls) == (SAYING, "stop", ())


def test_what_is_said_is_shown_before_the_object_has_ended(server: StrictServer) -> None:
    gate = Gate()
    server.enqueue([*reasoning("hm"), delta(content='{"say": "first '), gate, *text('second"}')])

    async def work() -> None:
        asked = model(server)
        stream = asked.stream(request(ASK, tools=TOOLS))
        await anext(stream)
        assert await anext(stream) == TextDelta("first ")
        await asyncio.to_thread(gate.wait_reached)
        gate.release()
        assert [event.text for event in [e async for e in stream]] == ["second", "first second"]
        await asked.close()

    run(work)


def test_the_schema_offers_every_tool_with_bounds_and_living_roles(server: StrictServer) -> None:
    once(server, text(CALLED), roles=lambda: ["ui-operator", "tester"], max_string=100)
    sent = server.requests[0]
    assert "tools" not in sent
    assert sent["max_tokens"] >= 400
    forms = sent["response_format"]["json_schema"]["schema"]["anyOf"]
    assert [form["properties"].get("name", {}).get("const") for form in forms] == [
        "create_sub_agent",
        "list_agents",
        None,
    ]
    for arguments, role in zip(forms[0]["properties"]["arguments"]["anyOf"], ["ui-operator", "tester"], strict=True):
        assert arguments["properties"]["role_id"] == {"const": role}
        assert arguments["properties"]["agent_id"] == {"const": 1}
    assert arguments["properties"]["task"] == {"type": "string", "maxLength": 100}
    assert arguments["properties"]["tags"]["items"] == {"type": "string", "maxLength": 100}
    assert arguments["properties"]["thinking_mode"] == {"type": "string", "enum": ["fast", "thinking"]}
    assert arguments["required"] == ["agent_id", "role_id", "task"]
    assert arguments["additionalProperties"] is False
    assert forms[2]["properties"]["say"]["type"] == "string"
    system = sent["messages"][0]["content"]
    assert system.startswith("You lead.\n\n# Tools")
    assert "create_sub_agent" in system
    assert "thinking_mode" in system


def test_a_number_that_the_conversation_has_used_is_not_offered_again(server: StrictServer) -> None:
    made = ToolCall("c1", "create_sub_agent", '{"agent_id": 3, "role_id": "tester", "task": "t"}')
    history = [*ASK, Message("assistant", None, tool_calls=(made,)), Message("tool", "{}", tool_call_id="c1")]
    asked = model(server, roles=lambda: ["ui-operator", "tester"])
    forms = asked.schema(TOOLS, history)["anyOf"][0]["properties"]["arguments"]["anyOf"]
    offered = {form["properties"]["role_id"]["const"]: form["properties"]["agent_id"]["const"] for form in forms}
    assert offered == {"ui-operator": 1, "tester": 4}


def test_a_number_is_not_offered_again_when_the_request_leaves_its_use_out(server: StrictServer) -> None:
    made = ToolCall("c1", "create_sub_agent", '{"agent_id": 3, "role_id": "tester", "task": "t"}')
    history = [*ASK, Message("assistant", None, tool_calls=(made,)), Message("tool", "{}", tool_call_id="c1")]
    asked = model(server, roles=lambda: ["tester"])
    request = ModelRequest("Team Leader", 2, [*ASK, Message("system", "Digest.")], TOOLS, history=history)
    assert asked.body(request)["response_format"]["json_schema"]["schema"] == asked.schema(TOOLS, history)
    assert asked.schema(TOOLS, history) != asked.schema(TOOLS, ASK)


def test_after_so_many_calls_only_speech_is_left_until_a_person_writes_again(server: StrictServer) -> None:
    call = ToolCall("c1", "list_agents", "{}")
    round_ = [Message("assistant", None, tool_calls=(call,)), Message("tool", "{}", tool_call_id="c1")]
    report = Message("user", "a report", metadata={"message_source": "sub_agent"})
    asked = model(server, most_calls=2)
    assert "anyOf" in asked.schema(TOOLS, [*ASK, *round_])
    assert list(asked.schema(TOOLS, [*ASK, *round_, report, *round_])["properties"]) == ["say"]
    person = Message("user", "more", metadata={"message_source": "user"})
    assert "anyOf" in asked.schema(TOOLS, [*ASK, *round_, *round_, person])


def test_optional_arguments_can_be_left_out_for_models_that_invent_them(server: StrictServer) -> None:
    once(server, text(CALLED), optional_arguments=False)
    sent = server.requests[0]
    arguments = sent["response_format"]["json_schema"]["schema"]["anyOf"][0]["properties"]["arguments"]
    assert list(arguments["properties"]) == ["agent_id", "role_id", "task"]
    assert "thinking_mode" not in sent["messages"][0]["content"]


def test_earlier_calls_and_results_go_out_as_plain_messages(server: StrictServer) -> None:
    history = (
        *ASK,
        Message("assistant", "I start", tool_calls=(ToolCall("a", "list_agents", "{}"), ToolCall("b", "f", "[1"))),
        Message("tool", "[]", tool_call_id="a"),
        Message("tool", "wrong", tool_call_id="b"),
        Message("user", "report"),
        Message("assistant", "fine"),
        Message("user", "and?"),
    )
    once(server, text(SAID), history)
    sent = server.requests[0]["messages"]
    assert sent[2:] == [
        {
            "role": "assistant",
            "content": '{"say": "I start"}\n{"name": "list_agents", "arguments": {}}\n'
            '{"name": "f", "arguments": {"invalid_arguments":"[1"}}',
        },
        {"role": "user", "content": "Result of list_agents:\n[]\n\nResult of f:\nwrong"},
        {"role": "user", "content": "report"},
        {"role": "assistant", "content": '{"say": "fine"}'},
        {"role": "user", "content": "and?"},
    ]
    merged = plain_messages(history, TOOLS, merge_user=True)
    assert [message["role"] for message in merged] == ["system", "user", "assistant", "user", "assistant", "user"]


def test_the_rules_are_told_in_the_language_of_the_system_message(server: StrictServer) -> None:
    once(server, text(CALLED), (Message("system", "你是负责人"), Message("user", "go")))
    assert "# 工具" in server.requests[0]["messages"][0]["content"]


@pytest.mark.parametrize(("language", "rule"), [("en", "To call a tool:"), ("zh", "调用工具：")])
@pytest.mark.parametrize("brief", [False, True], ids=["whole", "brief"])
@pytest.mark.parametrize("kind", ["leader", "member"])
def test_the_rules_follow_the_language_of_every_base_prompt(
    kind: Audience, brief: bool, language: Language, rule: str
) -> None:
    system = base_prompt(kind, language, brief=brief).text
    (told, _) = plain_messages([Message("system", system), Message("user", "Go.")], TOOLS)
    assert rule in told["content"]


def test_a_conversation_without_a_system_message_gets_one(server: StrictServer) -> None:
    once(server, text(CALLED), (Message("user", "go"),))
    assert server.requests[0]["messages"][0]["role"] == "system"


def test_prefixes_stay_equal_from_turn_to_turn(server: StrictServer) -> None:
    async def work() -> None:
        asked = model(server)
        history = ASK
        for turn in range(1, 4):
            server.enqueue(text(CALLED))
            finished = await ask(asked, request(history, tools=TOOLS, turn=turn))
            call = finished.tool_calls[0]
            history = (
                *history,
                Message("assistant", None, tool_calls=(call,)),
                Message("tool", "ok", tool_call_id=call.id),
            )
        await asked.close()

    run(work)
    sent = [each["messages"] for each in server.requests]
    assert sent[2][: len(sent[1])] == sent[1]
    assert sent[1][: len(sent[0])] == sent[0]


def test_without_tools_it_is_a_plain_request(server: StrictServer) -> None:
    async def work() -> None:
        server.enqueue(text("plain words"))
        asked = model(server)
        assert (await ask(asked, request(ASK))).text == "plain words"
        await asked.close()

    run(work)
    assert "response_format" not in server.requests[0]
    assert server.requests[0]["messages"][0]["content"] == "You lead."


@pytest.mark.faults
@pytest.mark.parametrize(
    "reply",
    [
        text("I cannot do that."),
        text('{"name": "unknown", "arguments": {}}'),
        text('{"name": "list_agents"}'),
        text("[]"),
        text('{"name": "list_agents", "argu', reason="length"),
        [delta(content='{"name": "list_agents", "arguments": {}}'), close()],
        [delta(content='{"name": "list_agents", "arguments": {}}'), no_done()],
        [delta(content='{"say": "'), close()],
        [close()],
    ],
)
def test_what_is_neither_a_whole_call_nor_something_said_may_be_asked_again(server: StrictServer, reply: Any) -> None:
    with pytest.raises(ModelBroken) as broken:
        once(server, reply)
    assert broken.value.retryable
    assert broken.value.partial == ""  # type: ignore[attr-defined]


@pytest.mark.faults
def test_a_text_cut_off_is_kept_and_flagged(server: StrictServer) -> None:
    cut = once(server, [delta(content='{"say": "half \\u4e'), close()])
    assert (cut.text, cut.finish, cut.truncated) == ("half ", "length", True)
    short = once(server, [delta(content='{"say": "too lo'), finish("length")])
    assert (short.text, short.finish, short.truncated) == ("too lo", "length", False)


def test_an_error_of_the_endpoint_passes_through_with_what_was_said(server: StrictServer) -> None:
    with pytest.raises(ModelBusy):
        once(server, status(429))
    with pytest.raises(ModelBroken) as broken:
        once(server, [delta(content='{"say": "so far'), {"error": {"message": "x", "code": 500}}])
    assert broken.value.partial == "so far"  # type: ignore[attr-defined]


@given(
    st.text(max_size=40), st.booleans(), st.lists(st.integers(0, 120), max_size=8), st.sampled_from(["", " ", "\n "])
)
@settings(max_examples=300, deadline=None)
def test_any_text_in_any_pieces_is_read_back(said: str, ascii_only: bool, places: list[int], space: str) -> None:
    raw = space + json.dumps({"say": said}, ensure_ascii=ascii_only)
    cuts = sorted(min(place, len(raw)) for place in places)
    reader = SayReader()
    shown = [reader.feed(raw[a:b]) for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    shown.append(reader.flush())
    assert "".join(shown) == reader.text == said.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert reader.complete


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "call", "tool"]), st.text(max_size=8)), max_size=8))
@settings(max_examples=200, deadline=None)
def test_no_conversation_leaves_a_trace_of_tools(turns: list[tuple[Any, str]]) -> None:
    messages = [Message("system", "s")]
    for role, content in turns:
        if role == "call":
            messages.append(Message("assistant", content or None, tool_calls=(ToolCall("c", content, content),)))
        else:
            messages.append(Message(role, content, tool_call_id="c" if role == "tool" else None))
    for each in plain_messages(messages, TOOLS):
        assert each.keys() == {"role", "content"}
        assert each["role"] in ("system", "user", "assistant")
        assert isinstance(each["content"], str)


def test_events_of_the_contract_hold(server: StrictServer) -> None:
    async def work() -> None:
        server.enqueue(text(SAID), text(CALLED))
        asked = model(server)
        assert len(await events(asked, request(ASK, tools=TOOLS))) > 1
        assert len(await events(asked, request(ASK, tools=TOOLS))) == 1
        await asked.close()

    run(work)


@pytest.mark.faults
@pytest.mark.parametrize("deep", ["[" * 100_000, "[" * 20_000 + "]" * 20_000, "1" * 5000])
def test_a_call_beyond_all_measure_is_a_broken_answer(server: StrictServer, deep: str) -> None:
    server.enqueue(text('{"name": "list_agents", "arguments": {"x": ' + deep + "}}"))

    async def work() -> None:
        asked = model(server)
        try:
            with pytest.raises(ModelBroken, match="did not keep to the schema"):
                await ask(asked, request(ASK, tools=TOOLS))
        finally:
            await asked.close()

    run(work)


def test_a_number_beyond_all_measure_in_a_call_does_not_spoil_the_next_request(server: StrictServer) -> None:
    made = ToolCall("c1", "create_sub_agent", json.dumps({"agent_id": 10**30, "role_id": "tester", "task": "t"}))
    messages = (*ASK, Message("assistant", None, "m1", (made,)), Message("tool", "no", "m2", tool_call_id="c1"))
    server.enqueue(text('{"say": "ok"}'))

    async def work() -> None:
        asked = model(server, roles=lambda: ["tester"])
        try:
            assert (await ask(asked, request(messages, tools=TOOLS))).text == "ok"
        finally:
            await asked.close()

    run(work)
