"""The strict server refuses what it says it refuses: a test that leans on it can fail."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest
from support.strict_server import StrictServer, text, violations_of

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ASK = {"role": "user", "content": "u"}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "r"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def body(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "stream": True, "messages": list(messages), **more}


def with_call(**function: Any) -> dict[str, Any]:
    return {**CALLED, "tool_calls": [{**CALL, "function": {**CALL["function"], **function}}]}


def test_a_proper_request_is_accepted() -> None:
    assert violations_of(body(ASK, CALLED, RESULT, ASK, tools=[TOOL], tool_choice="auto")) == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (body(ASK, CALLED, ASK), "no result yet for c1"),
        (body(ASK, CALLED), "at the end"),
        (body(ASK, CALLED, RESULT, RESULT), "a second result"),
        (body(ASK, RESULT), "a result without a call"),
        (body(ASK, CALLED, ASK, RESULT), "no result yet"),
        (body(ASK, CALLED, RESULT, CALLED, RESULT), "not unique"),
        (body(ASK, with_call(arguments="[1]"), RESULT), "not a JSON object"),
        (body(ASK, with_call(arguments='{"x": NaN}'), RESULT), "not a JSON object"),
        (body(ASK, with_call(arguments=""), RESULT), "not a JSON object"),
        (body(ASK, with_call(name="规划"), RESULT), "does not match the pattern"),
        (body({**ASK, "name": "UI Operator_1"}), "does not match the pattern"),
        (body({**ASK, "metadata": {}}), "'metadata' is unsupported"),
        (body({"role": "developer!", "content": "x"}), "role"),
        (body({"role": "user", "content": None}), "content is null"),
        (body({"role": "user", "content": 3}), "content is int"),
        (body({"role": "assistant", "content": None}), "content is null"),
        (body({"role": "assistant", "content": ""}), "neither content nor tool calls"),
        (body({**CALLED, "tool_calls": []}), "tool_calls is empty"),
        (body(ASK, tools=[TOOL, TOOL]), "defined twice"),
        (body(ASK, tools=[]), "tools is empty"),
        (body(ASK, tool_choice="auto"), "tool_choice without tools"),
        (body(ASK, secret=1), "unrecognized body key"),
        (body(), "messages is missing"),
        (body({"role": "user", "content": "\ud800"}), "lone surrogate"),
        (body(ASK, response_format={"type": "json_schema"}), "response_format"),
    ],
)
def test_each_fault_is_named(wrong: dict[str, Any], words: str) -> None:
    assert words in "; ".join(violations_of(wrong))


def test_the_reasoning_profiles_demand_and_forbid() -> None:
    echoed = {**CALLED, "reasoning_content": "hm"}
    assert violations_of(body(ASK, CALLED, RESULT), reasoning_content="required")
    assert violations_of(body(ASK, echoed, RESULT), reasoning_content="forbidden")
    assert not violations_of(body(ASK, echoed, RESULT), reasoning_content="required")


def test_an_endpoint_without_tools_refuses_tools_and_their_history() -> None:
    assert violations_of(body(ASK, tools=[TOOL]), tools=False)
    assert violations_of(body(ASK, CALLED, RESULT), tools=False)


def post(server: StrictServer, sent: Any, key: str = "k") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    raw = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
    connection.request("POST", "/v1/chat/completions", raw, {"Authorization": f"Bearer {key}"})
    response = connection.getresponse()
    answer = response.status, response.read()
    connection.close()
    return answer


def test_the_server_answers_400_records_the_fault_and_keeps_the_script() -> None:
    with StrictServer(api_key="k") as server:
        server.enqueue(text("hello"))
        assert post(server, b"{")[0] == 400
        assert post(server, body(ASK, CALLED))[0] == 400
        assert post(server, body(ASK), key="wrong")[0] == 401
        assert len(server.violations) == 2
        assert server.waiting_replies == 1
        status, stream = post(server, body(ASK))
        assert status == 200
        assert stream.endswith(b"data: [DONE]\n\n")
        assert b'"usage"' not in stream, "usage was not asked for"
        assert post(server, body(ASK))[0] == 400
        assert "no reply is scripted" in server.violations[-1]


def test_a_function_that_fails_is_a_violation_and_not_silence() -> None:
    with StrictServer() as server:
        server.on_request = lambda request, n: 1 / 0
        assert post(server, body(ASK))[0] == 400
        assert "ZeroDivisionError" in server.violations[0]
