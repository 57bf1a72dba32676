"""The adapter against a real server that refuses what providers refuse."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from support.asking import ASK, ask, events, request, run
from support.strict_server import (
    Gate,
    Reply,
    StrictServer,
    api_error,
    calls,
    close,
    delta,
    finish,
    hang_up,
    no_done,
    reasoning,
    results,
    status,
    text,
    tool_delta,
    usage,
)
from support.teams import rig

from astrion_nb.errors import (
    ConfigError,
    ContentFiltered,
    ContextOverflow,
    ModelBroken,
    ModelBusy,
    ModelError,
    ModelRefused,
    ModelUnreachable,
)
from astrion_nb.llm.client import Timeouts
from astrion_nb.llm.model import Finished, ReasoningDelta, TextDelta
from astrion_nb.llm.openai import OpenAIModel
from astrion_nb.messages import Message, ToolCall, Usage

TOOL = {
    "type": "function",
    "function": {"name": "list_agents", "description": "列出", "parameters": {"type": "object", "properties": {}}},
}


@pytest.fixture
def server() -> Iterator[StrictServer]:
    with StrictServer() as strict:
        yield strict
        assert strict.violations == []
        assert strict.waiting_replies == 0


def model(server: StrictServer, **settings: Any) -> OpenAIModel:
    return OpenAIModel("test", **{"model": "m", "base_url": server.url, "api_key": "sk-test-key-123456", **settings})


def once(server: StrictServer, reply: Any, **settings: Any) -> Finished:
    async def work() -> Finished:
        server.enqueue(reply)
        asked = model(server, **settings)
        try:
            return await ask(asked)
        finally:
            await asked.close()

    return run(work)


def failure(server: StrictServer, reply: Any, **settings: Any) -> ModelError:
    with pytest.raises(ModelError) as error:
        once(server, reply, **settings)
    return error.value


# -- what goes out


def test_the_request_is_streamed_with_usage_and_nothing_private(server: StrictServer) -> None:
    messages = (
        Message("system", "你是负责人"),
        Message("user", "u", "msg_user_001", metadata={"message_source": "user"}, extra={"x": 1}),
        Message("assistant", None, "m1", (ToolCall("c1", "list_agents", ""),), metadata={"reasoning_content": "hm"}),
        Message("tool", "[]", "m2", tool_call_id="c1"),
    )

    async def work() -> None:
        server.enqueue(text("ok"))
        asked = model(
            server, extra={"temperature": 0.5, "seed": 1}, thinking={"reasoning_effort": "high", "seed": None}
        )
        await ask(asked, request(messages, actor="规划_1", tools=(TOOL,), thinking_mode="thinking"))
        await asked.close()

    run(work)
    sent = server.requests[0]
    call = {"id": "c1", "type": "function", "function": {"name": "list_agents", "arguments": "{}"}}
    call["function"]["arguments"] = sent["messages"][2]["tool_calls"][0]["function"]["arguments"]
    assert sent == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "你是负责人"},
            {"role": "user", "content": "u"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "[]"},
        ],
        "tools": [TOOL],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "reasoning_effort": "high",
    }
    assert server.headers[0]["authorization"] == "Bearer sk-test-key-123456"
    assert "规划" not in server.bodies[0].decode()


@pytest.mark.faults
@pytest.mark.parametrize("actor", ["规划_1", "C++ & <QA>_1", "UI Operator_1"])
def test_display_names_and_made_up_tool_names_pass_a_strict_endpoint(server: StrictServer, actor: str) -> None:
    messages = (*ASK, Message("assistant", None, tool_calls=(ToolCall("c", f"transfer_to_{actor}", '["x"]'),)))
    messages = (*messages, Message("tool", "unknown tool", tool_call_id="c"))

    async def work() -> None:
        server.enqueue(text("ok"))
        asked = model(server)
        await ask(asked, request(messages, actor=actor))
        await asked.close()

    run(work)
    assert all("name" not in message for message in server.requests[0]["messages"])


@pytest.mark.faults
@pytest.mark.parametrize(("profile", "rule"), [("echo", "required"), ("strip", "forbidden")])
def test_reasoning_goes_back_by_profile_only(profile: Any, rule: Any) -> None:
    with StrictServer(reasoning_content=rule) as strict:
        strict.enqueue([*reasoning("let me ", "see"), *calls(("list_agents", {}))], text("done"))

        async def work() -> None:
            asked = model(strict, reasoning=profile)
            first = await ask(asked)
            assert first.reasoning == "let me see"
            assert first.text == ""
            turn = Message(
                "assistant", None, tool_calls=first.tool_calls, metadata={"reasoning_content": first.reasoning}
            )
            result = Message("tool", "[]", tool_call_id=first.tool_calls[0].id)
            await ask(asked, request((*ASK, turn, result), turn=2))
            await asked.close()

        run(work)
        assert strict.violations == []
        assert strict.requests[1]["messages"][2].get("reasoning_content") == (
            "let me see" if profile == "echo" else None
        )


def test_successive_requests_share_their_prefix_byte_for_byte(server: StrictServer) -> None:
    async def work() -> None:
        asked = model(server)
        history: tuple[Message, ...] = ASK
        for turn in range(1, 4):
            server.enqueue(calls(("list_agents", {})))
            finished = await ask(asked, request(history, turn=turn, tools=(TOOL,)))
            call = finished.tool_calls[0]
            history = (
                *history,
                Message("assistant", None, tool_calls=(call,)),
                Message("tool", "r", tool_call_id=call.id),
            )
        await asked.close()

    run(work)
    bodies = [body[: body.index(b'],"tools"')] for body in server.bodies]
    assert bodies[1].startswith(bodies[0])
    assert bodies[2].startswith(bodies[1])


# -- what comes in


def test_text_and_reasoning_are_yielded_as_they_come(server: StrictServer) -> None:
    gate = Gate()
    server.enqueue([*reasoning("hm "), delta(content="一"), gate, *text("二", tokens=(7, 3))])

    async def work() -> None:
        asked = model(server)
        stream = asked.stream(request())
        assert await anext(stream) == ReasoningDelta("hm ")
        assert await anext(stream) == TextDelta("一")
        await asyncio.to_thread(gate.wait_reached)
        gate.release()
        rest = [event async for event in stream]
        assert rest == [TextDelta("二"), Finished("一二", (), "stop", Usage(7, 3), "hm ", "strict-1")]
        await asked.close()

    run(work)


@pytest.mark.faults
@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        # case 1
        (
            [
                tool_delta(None, id="c1", name="ask_master", arguments='{"que'),
                tool_delta(without_index=True, arguments='stion":"q"}'),
                finish("tool_calls"),
            ],
            [("c1", "ask_master", '{"question":"q"}')],
        ),
        # case 2
        (
            [
                tool_delta(0, id="a", name="read_file", arguments='{"p'),
                tool_delta(0, id=None, name="read_file", arguments='ath":"x"}'),
            ],
            [("a", "read_file", '{"path":"x"}')],
        ),
        # case 3
        ([delta(content="hi", tool_calls=None), finish()], []),
        ([tool_delta(0, id="a", name="list_agents", arguments=None), finish()], [("a", "list_agents", "{}")]),
        # case 6 a, b
        ([tool_delta(0, id="a", name="f", arguments='{"x":1}')], [("a", "f", '{"x":1}')]),
        ([tool_delta(0, id="a", name="f", arguments='{"x":1}'), finish("stop")], [("a", "f", '{"x":1}')]),
        ([tool_delta(0, id="a", name="f", arguments="{}"), finish("stop"), no_done()], [("a", "f", "{}")]),
        ([tool_delta(0, id="a", name="f", arguments="{}"), finish("stop"), close()], [("a", "f", "{}")]),
    ],
)
def test_calls_survive_what_endpoints_leave_out(
    server: StrictServer, reply: Any, expected: list[tuple[str, str, str]]
) -> None:
    finished = once(server, reply)
    assert [(call.id, call.name, call.arguments) for call in finished.tool_calls] == expected


@pytest.mark.faults
def test_usage_is_counted_once_a_request(server: StrictServer) -> None:
    running = [{**delta(content="x"), "usage": usage(10, n)["usage"]} for n in (1, 3, 5)]
    assert once(server, [*running, finish()]).usage == Usage(10, 5)
    assert once(server, text("hi", tokens=(10, 5))).usage == Usage(10, 5)
    assert once(server, text("hi"), extra={"stream_options": None}).usage is None


@pytest.mark.faults
@pytest.mark.parametrize("end", [close(), no_done(), b'data: {"choices": [{"del', b"data: <html>\n\n"])
def test_a_stream_cut_off_runs_no_call_and_keeps_what_was_shown(server: StrictServer, end: Any) -> None:
    half = tool_delta(0, id="a", name="f", arguments='{"x":')
    last: list[Any] = [end] if end in (close(), no_done()) else [end, close()]
    assert type(failure(server, [half, *last])) is ModelBroken
    shown = once(server, [delta(content="I wi"), delta(content="ll"), half, *last])
    assert (shown.text, shown.tool_calls, shown.truncated) == ("I will", (), True)


@pytest.mark.faults
def test_zero_bytes_and_a_close_may_be_asked_again(server: StrictServer) -> None:
    assert failure(server, hang_up()).retryable
    assert failure(server, [close()]).retryable
    assert failure(server, [no_done()]).retryable


@pytest.mark.faults
def test_a_filtered_answer_is_an_error_with_its_text(server: StrictServer) -> None:
    error = failure(server, [delta(content="part"), finish("content_filter")])
    assert type(error) is ContentFiltered
    assert error.partial == "part"  # type: ignore[attr-defined]
    assert type(failure(server, api_error(400, "content_filter", "The prompt was filtered"))) is ContentFiltered


@pytest.mark.faults
def test_reasoning_alone_is_an_empty_answer_and_not_an_error(server: StrictServer) -> None:
    finished = once(server, [*reasoning("hm"), finish()])
    assert (finished.text, finished.reasoning, finished.tool_calls) == ("", "hm", ())


def test_an_endpoint_that_uses_its_ids_again_can_be_worked_with(server: StrictServer) -> None:
    async def work() -> None:
        asked = model(server)
        for _ in range(3):
            server.enqueue(calls(("list_active_sub_agents", {}, "call_0"), ("list_active_sub_agents", {}, "call_0")))
        server.enqueue(text("ok"))
        state = await rig(asked).run("Go")
        assert state.run_text == "ok", state.run_error
        await asked.close()

    run(work)
    assert len(results(server.requests[-1])) == 6


def test_an_endpoint_that_answers_with_one_document_is_understood(server: StrictServer) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": "hi", "tool_calls": [call]}
    whole = {
        "model": "m1",
        "choices": [{"message": message, "finish_reason": "tool_calls"}],
        "usage": usage()["usage"],
    }
    finished = once(server, Reply(body=json.dumps(whole).encode()))
    assert (finished.text, finished.tool_calls, finished.usage) == ("hi", (ToolCall("a", "f", "{}"),), Usage(10, 5))


def test_compressed_events_and_events_cut_anywhere_are_read(server: StrictServer) -> None:
    import gzip

    events = b"".join(b"data: " + json.dumps(part).encode() + b"\r\n\r\n" for part in text("你好 world"))
    raw = events + b"data: [DONE]\n\n"
    assert once(server, [raw[i : i + 7] for i in range(0, len(raw), 7)]).text == "你好 world"
    squeezed = gzip.compress(raw)
    headers = {"content-encoding": "gzip", "content-type": "text/event-stream"}
    assert once(server, Reply(body=squeezed, headers=headers)).text == "你好 world"


# -- errors


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (status(401), ModelRefused),
        (status(403), ModelRefused),
        (status(404), ModelRefused),
        (status(429), ModelBusy),
        (api_error(429, "insufficient_quota", "You exceeded your current quota"), ModelRefused),
        (status(500), ModelBroken),
        (status(502, "<html>bad gateway</html>"), ModelBroken),
        (status(302, headers={"Location": "http://127.0.0.1:9/v1/chat/completions"}), ModelRefused),
        (api_error(400, "context_length_exceeded", "maximum context length is 10 tokens"), ContextOverflow),
        ([{"error": {"message": "Overloaded", "code": 503}}], ModelBroken),
    ],
)
def test_every_refusal_is_one_of_our_errors(server: StrictServer, reply: Any, expected: type[ModelError]) -> None:
    error = failure(server, reply)
    assert type(error) is expected
    assert len(server.requests) == 1, "the adapter itself never asks twice"


def _nested(levels: int) -> bytes:
    return b'[{"type": "thinking", "thinking": ' * levels + b'"hm"' + b"}]" * levels


TOO_LONG = {"error": {"message": "maximum context length is 10 tokens", "code": "context_length_exceeded"}}


@pytest.mark.parametrize(
    "reply",
    [
        Reply(body=json.dumps(TOO_LONG).encode(), headers={"content-type": "application/json"}),
        Reply(body=json.dumps(TOO_LONG).encode(), headers={"content-type": "text/event-stream"}),
        [b"data: " + json.dumps(TOO_LONG).encode() + b"\n\n", no_done()],
        [b"data: " + json.dumps(TOO_LONG).encode(), no_done()],
        [b"data: " + json.dumps(TOO_LONG).encode(), close()],
    ],
)
def test_an_error_under_a_good_status_is_named_however_it_ends(server: StrictServer, reply: Any) -> None:
    assert type(failure(server, reply)) is ContextOverflow


@pytest.mark.parametrize("kind", ["Application/JSON; charset=utf-8", "text/plain", "text/event-stream", ""])
@pytest.mark.parametrize("before", [b"", b"\n  ", b"\xef\xbb\xbf"])
def test_a_document_and_events_are_told_apart_by_how_they_begin(server: StrictServer, kind: str, before: bytes) -> None:
    whole = json.dumps({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}, indent=1).encode()
    assert once(server, Reply(body=before + whole, headers={"content-type": kind})).text == "hi"
    streamed = b"".join(b"data: " + json.dumps(part).encode() + b"\n\n" for part in text("hi"))
    assert once(server, Reply(body=before + streamed, headers={"content-type": kind})).text == "hi"


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("text/html; charset=utf-8", "<!DOCTYPE html><script>x()</script><h1>Log in</h1>", "Log in"),
        ("text/plain", "upstream error", "upstream error"),
        ("application/json", '{"detail": "no such route"}', '{"detail": "no such route"}'),
    ],
)
def test_a_page_in_place_of_an_answer_is_named_with_its_address(
    server: StrictServer, kind: str, body: str, words: str
) -> None:
    error = failure(server, Reply(body=body.encode(), headers={"content-type": kind}))
    assert type(error) is ModelRefused, "asking again brings the same page"
    known = f"{server.url} answered with {kind.partition(';')[0]} that is no completion: {words}; check base_url "
    assert str(error).startswith(known)


def _call(**more: Any) -> dict[str, Any]:
    function = {"name": "f", "arguments": "{}"} | more.pop("function", {})
    return delta(tool_calls=[{"index": 0, "id": "a", "type": "function", "function": function} | more])


DEEP = b"[" * 100_000


@pytest.mark.faults
@pytest.mark.parametrize(
    "reply",
    [
        Reply(body=b'{"choices": ' + DEEP),
        [b"data: " + DEEP + b"\n\n"],
        [b'data: {"choices": [{"delta": {"content": ' + b"[" * 900 + b"]" * 900 + b"}}]}\n\n", close()],
        [b'data: {"choices": [{"delta": {"content": ' + _nested(500) + b"}}]}\n\n", close()],
        [b'data: {"choices": [{"index": ' + b"1" * 5000 + b"}]}\n\n"],
    ],
)
def test_an_answer_beyond_all_measure_is_a_broken_one(server: StrictServer, reply: Any) -> None:
    assert type(failure(server, reply)) is ModelBroken


@pytest.mark.faults
def test_arguments_and_numbers_beyond_all_measure_are_taken_as_they_are(server: StrictServer) -> None:
    deep: Any = 1
    for _ in range(400):
        deep = [deep]
    finished = once(server, [_call(index="1" * 5000), finish("tool_calls")])
    assert finished.tool_calls == (ToolCall("a", "f", "{}"),)
    finished = once(server, [_call(function={"arguments": {"x": deep}}), finish("tool_calls")])
    assert json.loads(finished.tool_calls[0].arguments) == {"x": deep}


def test_the_wait_an_endpoint_asks_for_is_passed_on(server: StrictServer) -> None:
    assert failure(server, status(429, headers={"Retry-After": "2"})).retry_after == 2
    assert failure(server, status(429, headers={"Retry-After-Ms": "150"})).retry_after == 0.15
    dated = {"Date": "Mon, 30 Nov 2026 10:00:00 GMT", "Retry-After": "Mon, 30 Nov 2026 10:00:20 GMT"}
    assert failure(server, status(429, headers=dated)).retry_after == 20


def test_an_error_after_text_carries_the_text(server: StrictServer) -> None:
    error = failure(server, [*text("half", reason=None), {"error": {"message": "boom", "code": 500}}])
    assert error.partial == "half"  # type: ignore[attr-defined]


def test_a_closed_port_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    async def work() -> None:
        asked = OpenAIModel("test", model="m", base_url=f"http://127.0.0.1:{port}/v1")
        with pytest.raises(ModelUnreachable, match="base_url"):
            await ask(asked)
        await asked.close()

    run(work)


def test_an_endpoint_that_falls_silent_is_given_up(server: StrictServer) -> None:
    gate = Gate()
    silent = Timeouts(read=0.1)
    assert type(failure(server, Reply(text("x"), hold=gate), timeouts=silent)) is ModelUnreachable
    shown = once(server, [delta(content="so far"), gate], timeouts=silent)
    assert (shown.text, shown.truncated) == ("so far", True)
    gate.release()


KEY = "sk-canary-0123456789abcdef"


@pytest.mark.parametrize(
    "reply",
    [
        api_error(401, "invalid_api_key", f"Incorrect API key provided: {KEY}"),
        status(400, f"you sent Authorization: Bearer {KEY}"),
        status(500, f"at http://user:{KEY}@host/ it failed"),
        [{"error": {"message": f"bad key {KEY}", "code": 401}}],
        hang_up(),
    ],
)
def test_neither_key_nor_header_nor_user_info_is_in_an_error(server: StrictServer, reply: Any) -> None:
    url = server.url.replace("http://", "http://someone:pass-canary@")
    error = failure(server, reply, api_key=KEY, base_url=url)
    told = "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))
    assert error.__context__ is None
    for canary in (KEY, "pass-canary", "someone", "Bearer s"):
        assert canary not in told


def test_neither_repr_nor_endpoint_shows_a_secret() -> None:
    asked = OpenAIModel("k", model="m", base_url="https://u:pass-canary@h.example/v1/", api_key=KEY)
    assert asked.endpoint == "https://h.example/v1"
    assert KEY not in repr(asked)
    assert "canary" not in repr(asked)


def test_a_password_is_in_no_error_in_whatever_form_it_comes_back(server: StrictServer) -> None:
    user, password = "canaryuser", "canaryp@ss/w0rd%1"
    written = quote(password, safe="")
    token = base64.b64encode(f"{user}:{password}".encode()).decode()
    url = server.url.replace("http://", f"http://{user}:{written}@")
    said = failure(
        server, api_error(400, "bad", f"{user}, {password}, {written}, {token}!"), base_url=url, api_key=None
    )
    assert server.headers[0]["authorization"] == f"Basic {token}"
    assert "canary" not in str(said)
    assert token not in str(said)
    assert "[hidden]! (bad" in str(said)


def test_the_query_of_a_base_url_goes_along_with_every_request(server: StrictServer) -> None:
    assert once(server, text("ok"), base_url=f"{server.url}/?api-version=1&x=a%20b").text == "ok"
    assert server.targets == ["/v1/chat/completions?api-version=1&x=a%20b"]


@pytest.mark.parametrize("url", ["ftp://h/v1", "h.example/v1", "https://"])
def test_a_base_url_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(ConfigError, match="base_url"):
        OpenAIModel("k", model="m", base_url=url)


# -- offline


@pytest.mark.parametrize("said", ["1", "true"])
@pytest.mark.parametrize(
    "url", ["https://api.openai.com/v1", "http://192.0.2.1/v1", "http://localhost.example/v1", None]
)
def test_offline_refuses_other_machines_before_a_socket_is_opened(
    url: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASTRION_OFFLINE", said)

    def forbidden(*args: Any) -> None:
        raise AssertionError("a socket was opened")

    async def work() -> None:
        asked = OpenAIModel("k", model="m", base_url=url, api_key="x")
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", forbidden)
        monkeypatch.setattr(socket.socket, "connect", forbidden)
        with pytest.raises(ConfigError, match="ASTRION_OFFLINE"):
            await ask(asked)
        await asked.close()

    run(work)


def test_offline_allows_this_machine(server: StrictServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASTRION_OFFLINE", "1")
    assert once(server, text("ok"), base_url=server.url.replace("127.0.0.1", "localhost")).text == "ok"


# -- connections


def test_running_a_cell_a_hundred_times_never_hangs(server: StrictServer) -> None:
    """Each run makes new models and asks ten at once; every second one is dropped unclosed."""
    server.on_request = lambda asked, n: text(f"answer {n}")

    async def work() -> None:
        kept = model(server)
        await ask(kept)
        for again in range(100):
            models = [model(server) for _ in range(2)]
            answers = await asyncio.gather(*(ask(models[n % 2]) for n in range(10)))
            assert len({answer.text for answer in answers}) == 10
            if again % 2:
                await models[0].close()
                await models[1].close()
            del models
            if again % 10 == 0:
                gc.collect()
        await kept.close()

    run(work)
    assert len(server.requests) == 1001
    assert server.connections <= 10


def test_the_last_model_closes_the_shared_connections_and_may_be_used_again(server: StrictServer) -> None:
    server.on_request = lambda asked, n: text("ok")

    async def work() -> None:
        first, second = model(server), model(server)
        await ask(first)
        await ask(second)
        assert server.connections == 1
        await first.close()
        await first.close()
        await ask(second)
        assert server.connections == 1
        await second.close()
        await ask(first)
        assert server.connections == 2
        await first.close()

    run(work)


def test_another_key_has_connections_of_its_own(server: StrictServer) -> None:
    server.on_request = lambda asked, n: text("ok")

    async def work() -> None:
        models = [model(server, api_key=f"sk-key-number-{n}") for n in range(2)]
        for each in models:
            await ask(each)
        for each in models:
            await each.close()

    run(work)
    assert server.connections == 2
    assert {headers["authorization"][-1] for headers in server.headers} == {"0", "1"}


def test_a_model_serves_one_loop_after_another_and_a_foreign_loop_closes_it(server: StrictServer) -> None:
    server.on_request = lambda asked, n: text("ok")
    asked = model(server)

    async def work() -> None:
        await ask(asked)
        await asked.close()

    run(work)
    run(work)

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(ask(asked), loop).result(5)
        run(asked.close)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


def test_three_hundred_requests_are_in_flight_at_once(server: StrictServer) -> None:
    gate = Gate()
    server.on_request = lambda asked, n: Reply(text("ok"), hold=gate)

    async def work() -> None:
        asked = model(server)
        before = threading.active_count()
        tasks = [asyncio.ensure_future(ask(asked)) for _ in range(300)]
        await asyncio.to_thread(server.wait_for, lambda: server.in_flight == 300)
        assert threading.active_count() < before + 50, "requests wait in the loop, not in threads"
        gate.release()
        assert {finished.text for finished in await asyncio.gather(*tasks)} == {"ok"}
        await asked.close()

    run(work)
    assert server.max_in_flight == 300


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_a_request_that_is_given_up_frees_its_connection(server: StrictServer, how: str) -> None:
    gate = Gate()
    server.enqueue([delta(content="a"), gate])

    async def work() -> None:
        asked = model(server)
        if how == "cancel":
            task = asyncio.ensure_future(ask(asked))
            await asyncio.to_thread(gate.wait_reached)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            stream = asked.stream(request())
            assert await anext(stream) == TextDelta("a")
            await stream.aclose()
        await asyncio.to_thread(server.wait_for, lambda: server.dropped == 1)
        server.enqueue(text("next"))
        assert (await ask(asked)).text == "next"
        await asked.close()

    run(work)
    gate.release()


def test_a_connection_is_kept_between_requests_also_when_the_body_ends_late(server: StrictServer) -> None:
    server.on_request = lambda asked, n: text("ok", "go")

    async def work() -> None:
        asked = model(server)
        for _ in range(20):
            assert len(await events(asked)) == 3
        await asked.close()

    run(work)
    assert server.connections == 1


def test_importing_the_adapter_does_not_import_the_sdk() -> None:
    code = "import sys, astrion_nb.llm.openai as m; m.OpenAIModel('k', model='m'); print('openai' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert out.stdout.strip() == "False"
