"""One contract, every model: what any reader of a stream may rely on.

Each implementation is given the same four answers in its own way; the structured one by objects that
its endpoint writes, the openai one by chunks, the scripted one by steps.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from support.asking import ASK, ask, events, request, run
from support.strict_server import StrictServer, calls, close, delta, status, text

from astrion_nb.errors import ModelBroken, ModelBusy
from astrion_nb.llm.model import Finished, Model, TextDelta
from astrion_nb.llm.openai import OpenAIModel
from astrion_nb.llm.scripted import ScriptedModel, call, fail, say
from astrion_nb.llm.structured import StructuredModel
from astrion_nb.messages import Message, ToolCall

TOOLS = (
    {
        "type": "function",
        "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}},
    },
)

Answers = dict[str, Any]
Build = Callable[[str], Model]


@pytest.fixture(params=["openai", "structured", "scripted"])
def build(request: pytest.FixtureRequest) -> Iterator[Build]:
    """Return a function that makes a model which gives the named answer, again and again."""
    kind = request.param
    if kind == "scripted":
        steps = {
            "text": say("你好 there"),
            "call": call("f", x="é"),
            "busy": fail(ModelBusy("slow down", status=429, retry_after=2)),
            "broken": fail(ModelBroken("cut")),
        }
        yield lambda answer: ScriptedModel([steps[answer]] * 40, check_on_close=False)
        return
    chunks: Answers = {
        "text": text("你好 ", "there"),
        "call": calls(("f", {"x": "é"})),
        "busy": status(429, headers={"Retry-After": "2"}),
        "broken": [close()],
    }
    if kind == "structured":
        chunks["text"] = text(*'{"say": "你好 there"}')
        chunks["call"] = [delta(content='{"name": "f", '), *text(json.dumps({"x": "é"}).join(['"arguments": ', "}"]))]
    with StrictServer(tools=kind == "openai") as server:

        def make(answer: str) -> Model:
            server.on_request = lambda asked, n: chunks[answer]
            inner = OpenAIModel("k", model="m", base_url=server.url, api_key="key-123456")
            return inner if kind == "openai" else StructuredModel(inner)

        yield make
        assert server.violations == []


def test_text_comes_in_deltas_and_then_once_as_a_whole(build: Build) -> None:
    async def work() -> None:
        model = build("text")
        came = await events(model, request(tools=TOOLS))
        assert len([event for event in came if isinstance(event, TextDelta)]) > 1
        finished = came[-1]
        assert isinstance(finished, Finished)
        assert (finished.text, finished.finish, finished.tool_calls, finished.truncated) == (
            "你好 there",
            "stop",
            (),
            False,
        )
        assert finished.usage is not None
        await model.close()

    run(work)


def test_a_call_comes_whole_and_with_an_id(build: Build) -> None:
    async def work() -> None:
        model = build("call")
        history: tuple[Message, ...] = ASK
        for turn in range(1, 4):
            finished = await ask(model, request(history, turn=turn, tools=TOOLS))
            (made,) = finished.tool_calls
            assert (made.name, json.loads(made.arguments), finished.finish) == ("f", {"x": "é"}, "tool_calls")
            assert made.id
            stored = replace(made, id=f"stored_{turn}")  # whatever it is: the runtime makes it unique
            history = (*history, Message("assistant", finished.text or None, tool_calls=(stored,)))
            history = (*history, Message("tool", "r", tool_call_id=stored.id))
        await model.close()

    run(work)


def test_a_failure_is_one_of_our_errors_and_says_whether_to_ask_again(build: Build) -> None:
    async def work() -> None:
        model = build("busy")
        with pytest.raises(ModelBusy) as busy:
            await ask(model, request(tools=TOOLS))
        assert (busy.value.retry_after, busy.value.retryable, busy.value.status) == (2, True, 429)
        await model.close()
        model = build("broken")
        with pytest.raises(ModelBroken):
            await ask(model, request(tools=TOOLS))
        await model.close()

    run(work)


def test_twenty_requests_run_side_by_side(build: Build) -> None:
    async def work() -> None:
        model = build("text")
        finished = await asyncio.gather(*(ask(model, request(actor=f"A_{n}", tools=TOOLS)) for n in range(20)))
        assert {each.text for each in finished} == {"你好 there"}
        await model.close()

    run(work)


def test_a_stream_may_be_dropped_half_way_and_the_model_asked_again(build: Build) -> None:
    async def work() -> None:
        model = build("text")
        stream = model.stream(request(tools=TOOLS))
        assert isinstance(await anext(stream), TextDelta)
        await stream.aclose()  # type: ignore[attr-defined]
        assert (await ask(model, request(tools=TOOLS))).text == "你好 there"
        await model.close()

    run(work)


def test_closing_twice_is_no_fault(build: Build) -> None:
    async def work() -> None:
        model = build("text")
        await ask(model, request(tools=TOOLS))
        await model.close()
        await model.close()

    run(work)


def test_key_and_endpoint_are_told_without_asking(build: Build) -> None:
    model = build("text")
    assert model.key
    assert model.endpoint
    run(model.close)


def test_a_request_is_not_changed_by_being_asked(build: Build) -> None:
    messages = [*ASK, Message("assistant", None, tool_calls=(ToolCall("c", "f", "[1"),), metadata={"a": 1})]
    messages.append(Message("tool", "r", tool_call_id="c", metadata={"b": 2}))
    before = [message.to_json() for message in messages]
    tools = json.dumps(TOOLS)

    async def work() -> None:
        model = build("text")
        await ask(model, request(messages, tools=TOOLS))
        await model.close()

    run(work)
    assert [message.to_json() for message in messages] == before
    assert json.dumps(TOOLS) == tools
