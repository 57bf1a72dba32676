"""The embedded model as a model: real weights, real server; structure is asserted, never wisdom."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support.local_weights import smollm2
from support.processes import seconds_until_gone

from astrion_nb.errors import ConfigError, ContextOverflow, ModelRefused
from astrion_nb.llm import local_server
from astrion_nb.llm.local import BANNER_EN, BANNER_ZH, LocalModel
from astrion_nb.llm.local_server import LocalServer
from astrion_nb.llm.model import Finished, ModelRequest, StreamEvent, TextDelta
from astrion_nb.llm.openai import OpenAIModel
from astrion_nb.messages import Message

CONTEXT = 2048
SHORT = {"max_tokens": 24, "temperature": 0.0}

CREATE_SUB_AGENT: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "create_sub_agent",
        "description": "创建一个子智能体实例并启动它。",
        "parameters": {
            "type": "object",
            "properties": {
                "agent_id": {"type": "integer", "description": "这个角色的第几个实例，从 1 开始。"},
                "role_id": {"type": "string", "description": "角色 ID。"},
                "task": {"type": "string", "description": "任务描述。"},
                "thinking_mode": {"type": "string", "enum": ["fast", "thinking"]},
            },
            "required": ["agent_id", "role_id", "task"],
        },
    },
}


@pytest.fixture(scope="module")
def held() -> Iterator[LocalServer]:
    """Hold the one server, so that it is loaded once for this file; its first user's settings hold."""
    server = local_server.acquire(smollm2(), name="smollm2", context=CONTEXT)
    yield server
    local_server.release(server)


@asynccontextmanager
async def small(body: dict[str, Any] | None = None) -> AsyncIterator[LocalModel]:
    model = LocalModel("local/smollm2", body=body or SHORT)
    try:
        yield model
    finally:
        await model.close()


def request(text: str, *, tools: Sequence[dict[str, Any]] = (), turn: int = 1) -> ModelRequest:
    messages = [Message("system", "You are a helpful assistant."), Message("user", text, "msg_user_001")]
    return ModelRequest("Team Leader", turn, messages, tools)


async def events_of(model: Any, asked: ModelRequest) -> list[StreamEvent]:
    async with aclosing(model.stream(asked)) as events:
        return [event async for event in events]


@pytest.mark.local_model
def test_an_answer_streams_and_ends_with_its_whole_text_and_its_usage(held: LocalServer):
    async def scene() -> list[StreamEvent]:
        async with small() as model:
            return await events_of(model, request("Write three sentences about the sea."))

    *deltas, last = asyncio.run(scene())
    assert isinstance(last, Finished)
    assert len(deltas) > 3
    assert all(isinstance(delta, TextDelta) and delta.text for delta in deltas)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == last.text
    assert last.finish in ("stop", "length")
    assert last.model == "smollm2"
    assert last.usage is not None
    assert last.usage.input > 10
    assert 3 < last.usage.output <= SHORT["max_tokens"]


@pytest.mark.local_model
def test_four_agents_are_answered_at_the_same_time(held: LocalServer):
    order: list[tuple[int, bool]] = []

    async def one(model: LocalModel, number: int) -> None:
        async with aclosing(model.stream(request(f"Count from {number} to twenty."))) as events:
            async for event in events:
                order.append((number, isinstance(event, Finished)))

    async def scene() -> None:
        async with small() as model:
            await model.prepare()
            await asyncio.gather(*(one(model, number) for number in range(4)))

    asyncio.run(scene())
    first_end = order.index(next(entry for entry in order if entry[1]))
    assert {number for number, _ in order[:first_end]} == {0, 1, 2, 3}, "an agent had to wait for another's end"
    assert sum(finished for _, finished in order) == 4


@pytest.mark.local_model
def test_loops_of_two_threads_may_use_one_model_at_the_same_time_and_close_it_twice(held: LocalServer):
    async def scene(loop: asyncio.AbstractEventLoop) -> None:
        model = LocalModel("local/smollm2", body=SHORT)
        there = asyncio.run_coroutine_threadsafe(events_of(model, request("Say hello.")), loop)
        here = await events_of(model, request("Say goodbye."))
        assert isinstance(here[-1], Finished)
        assert isinstance((await asyncio.wrap_future(there))[-1], Finished)
        running = held.running
        await model.close()
        await model.close()
        assert held.running == running is not None

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run(scene(loop))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


@pytest.mark.local_model
@pytest.mark.faults
def test_requests_that_follow_each_other_at_once_are_all_answered(held: LocalServer):
    """The server closes a connection after a streamed response and does not announce it."""

    async def scene() -> None:
        async with small({"max_tokens": 8, "temperature": 0.0}) as model:
            for turn in range(1, 13):
                assert isinstance((await events_of(model, request("word " * 700, turn=turn)))[-1], Finished)

    asyncio.run(scene())


@pytest.mark.local_model
@pytest.mark.faults
def test_a_prompt_longer_than_the_context_is_told_as_such(held: LocalServer):
    async def scene() -> None:
        async with small() as model:
            await events_of(model, request("word " * (CONTEXT + 100)))

    with pytest.raises(ContextOverflow) as caught:
        asyncio.run(scene())
    assert caught.value.status == 400


@pytest.mark.local_model
@pytest.mark.spec
def test_a_leader_makes_calls_that_keep_to_the_schema_and_name_only_roles_that_exist(held: LocalServer):
    """Six tries with fixed seeds: each is a valid call or something said; small models vary, so some must be calls."""
    roles = ["ui-operator", "full-stack-engineer"]
    asked = request("Create one agent that designs a small web page about cats.", tools=[CREATE_SUB_AGENT])

    async def one(seed: int) -> Finished:
        body = {"temperature": 0.7, "seed": seed, "max_tokens": 400}
        model = LocalModel("local/smollm2", roles=lambda: roles, body=body)
        try:
            last = (await events_of(model, asked))[-1]
        finally:
            await model.close()
        assert isinstance(last, Finished)
        return last

    async def scene() -> list[Finished]:
        return await asyncio.gather(*(one(seed) for seed in range(6)))

    answers = asyncio.run(scene())
    calls = [call for answer in answers for call in answer.tool_calls]
    assert all(answer.text for answer in answers if not answer.tool_calls)
    assert calls
    for call in calls:
        assert call.name == "create_sub_agent"
        assert call.id
        arguments = json.loads(call.arguments)
        jsonschema.validate(arguments, CREATE_SUB_AGENT["function"]["parameters"])
        assert arguments["role_id"] in roles


@asynccontextmanager
async def directly(held: LocalServer, **changes: Any) -> AsyncIterator[OpenAIModel]:
    running = await held.start()
    settings = {"model": "smollm2", "base_url": running.base_url, "api_key": running.api_key, "extra": SHORT}
    model = OpenAIModel("local", **{**settings, **changes})
    try:
        yield model
    finally:
        await model.close()


@pytest.mark.local_model
@pytest.mark.faults
def test_a_wrong_key_is_refused(held: LocalServer):
    async def scene() -> None:
        async with directly(held, api_key="not-the-key") as model:
            await events_of(model, request("Hello."))

    with pytest.raises(ModelRefused) as caught:
        asyncio.run(scene())
    assert caught.value.status == 401
    assert "not-the-key" not in str(caught.value)


@pytest.mark.local_model
@pytest.mark.faults
def test_a_schema_that_is_none_is_refused(held: LocalServer):
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "no-such-type"}}}

    async def scene() -> None:
        async with directly(held, extra={**SHORT, "response_format": schema}) as model:
            await events_of(model, request("Hello."))

    with pytest.raises(ModelRefused) as caught:
        asyncio.run(scene())
    assert caught.value.status == 400


@pytest.mark.local_model
@pytest.mark.faults
def test_an_answer_nobody_wants_any_more_gives_its_slot_back():
    """With one slot, a request that was left in the middle must not hold up the next."""
    smollm2()

    async def scene() -> None:
        model = LocalModel("local/smollm2", slots=1, body={"max_tokens": 1500, "temperature": 0.0, "ignore_eos": True})
        try:
            async with aclosing(model.stream(request("Tell a very long story."))) as events:
                async for event in events:
                    assert isinstance(event, TextDelta)
                    break
            async with asyncio.timeout(5), aclosing(model.stream(request("And another."))) as events:
                assert isinstance(await anext(events), TextDelta)
        finally:
            await model.close()

    asyncio.run(scene())


@pytest.mark.local_model
@pytest.mark.faults
@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL of POSIX")
def test_a_server_killed_in_the_middle_fails_that_request_alone(held: LocalServer):
    async def scene() -> None:
        async with small({"max_tokens": 400, "temperature": 0.0, "ignore_eos": True}) as model:
            before = await model.prepare()
            last: StreamEvent | None = None
            async with aclosing(model.stream(request("Tell a very long story."))) as events:
                async for event in events:
                    if last is None:
                        os.kill(before.pid, signal.SIGKILL)
                    last = event
            assert isinstance(last, Finished)
            assert last.truncated
            seconds_until_gone(before.pid, 2.0)
            async with small() as other:
                assert isinstance((await events_of(other, request("Hello.")))[-1], Finished)
            assert (await model.prepare()).pid != before.pid

    asyncio.run(scene())


def test_the_endpoint_is_the_same_for_one_file_and_another_for_another(tmp_path: Path):
    pytest.importorskip("xllamacpp", reason="the extra 'local' is not installed")
    files = [tmp_path / "a" / "m.gguf", tmp_path / "b" / "m.gguf"]
    for file in files:
        file.parent.mkdir()
        file.write_bytes(b"GGUF")
    one, again, other = LocalModel("x", files[0]), LocalModel(f"local/{files[0]}"), LocalModel("x", files[1])
    assert one.endpoint == again.endpoint != other.endpoint
    assert str(tmp_path) not in one.endpoint
    assert again.key == f"local/{files[0]}"


def test_weights_that_are_not_there_are_an_error_that_names_the_command_and_fetches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("xllamacpp", reason="the extra 'local' is not installed")
    monkeypatch.setenv("ASTRION_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ASTRION_OFFLINE", raising=False)
    with pytest.raises(ConfigError, match=r"smollm2 has not been fetched.*python -m astrion_nb local fetch smollm2"):
        LocalModel("local/smollm2")
    with pytest.raises(ConfigError, match=r"there is no model file .*nothing\.gguf"):
        LocalModel(f"local/{tmp_path}/nothing.gguf")
    with pytest.raises(ConfigError, match=r"'nonsense'.*smollm2, qwen-1\.5b"):
        LocalModel("local/nonsense")
    assert not (tmp_path / "cache").exists()


def test_a_file_that_is_not_gguf_is_told_before_a_server_starts(tmp_path: Path):
    pytest.importorskip("xllamacpp", reason="the extra 'local' is not installed")
    file = tmp_path / "page.gguf"
    file.write_text("<html>404</html>")
    with pytest.raises(ConfigError, match=r"page\.gguf is not a GGUF file"):
        asyncio.run(events_of(LocalModel("x", file), request("Hello.")))


def test_fetched_weights_that_were_damaged_are_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("xllamacpp", reason="the extra 'local' is not installed")
    monkeypatch.setenv("ASTRION_CACHE", str(tmp_path))
    model_file = tmp_path / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    model_file.parent.mkdir()
    model_file.write_bytes(b"GGUF and then nothing that was pinned")
    with pytest.raises(ConfigError, match="local fetch smollm2"):
        asyncio.run(LocalModel("local/smollm2").prepare())


def test_without_the_extra_a_model_cannot_be_made_and_the_error_names_both_ways_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ConfigError, match=r"pip install 'xllamacpp==.*OPENAI_API_KEY"):
        LocalModel("local/smollm2")


def test_the_banner_is_honest_in_both_languages():
    for banner in (BANNER_EN, BANNER_ZH):
        assert "OPENAI_API_KEY" in banner
        assert "\n" not in banner
