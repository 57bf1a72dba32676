"""Every way in which endpoints stream a response, as kinds: what was meant comes out, or an error of ours (faults 1–9).

The same inputs in every run; the slow run draws more of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.streams import CASES, Response, as_bytes, cut, responses
from support.strict_rules import violations_of

from astrion_nb.errors import ContentFiltered, ModelBroken, ModelError
from astrion_nb.llm.assemble import Assembler
from astrion_nb.llm.faults import in_stream
from astrion_nb.llm.model import Finished, ReasoningDelta, TextDelta
from astrion_nb.llm.openai import _parse
from astrion_nb.llm.sse import BodyDecoder
from astrion_nb.llm.wire import wire_messages
from astrion_nb.messages import Message
from astrion_nb.runtime.stored import UsedIds, stored_response
from astrion_nb.state import AgentState

pytestmark = pytest.mark.faults

few_or_many = pytest.mark.parametrize("count", [40, pytest.param(500, marks=pytest.mark.slow)])


def drawn(count: int, *strategies: Any) -> Callable[[Callable[..., None]], None]:
    """Run a check on so many inputs."""

    def run(check: Callable[..., None]) -> None:
        settings(max_examples=count, suppress_health_check=list(HealthCheck))(given(*strategies)(check))()

    return run


def received(parts: list[bytes]) -> Finished:
    """Read a response as the adapter does: bytes, events, chunks, response; what was shown is what there is."""
    decoder, assembler = BodyDecoder(), Assembler(call_id_prefix="call_1_")
    shown: list[Any] = []
    done = cut_off = False
    events = [event for part in parts for event in decoder.feed(part)] + decoder.flush()
    for event in events:
        if event == b"[DONE]":
            done = True
            break
        each = _parse(event)
        if each is None:
            cut_off = True
            break
        problem = None if "choices" in each and "error" not in each else in_stream(each)
        if problem is not None:
            raise problem
        shown += assembler.feed(each)
    shown += assembler.flush()
    finished = assembler.finish(done and not cut_off)
    assert "".join(event.text for event in shown if isinstance(event, TextDelta)) == finished.text
    assert "".join(event.text for event in shown if isinstance(event, ReasoningDelta)) == finished.reasoning
    return finished


def meant(response: Response, finished: Finished) -> None:
    assert finished.text == response.text
    assert finished.reasoning == response.reasoning
    assert [(call.name, call.arguments) for call in finished.tool_calls] == list(response.calls)
    assert [call.id for call in finished.tool_calls] == [f"id{number}" for number in range(len(response.calls))]
    assert finished.usage == response.usage
    assert (finished.finish, finished.truncated) == ("tool_calls" if response.calls else "stop", False)


@few_or_many
@pytest.mark.parametrize("case", CASES)
def test_what_was_meant_comes_out_however_it_is_streamed_and_wherever_it_is_cut(case: str, count: int) -> None:
    @drawn(count, responses(case), st.data())
    def _(response: Response, data: st.DataObject) -> None:
        parts = cut(data.draw, as_bytes(data.draw, response))
        if response.reason == "content_filter":
            with pytest.raises(ContentFiltered) as filtered:
                received(parts)
            assert (filtered.value.partial, filtered.value.usage) == (response.text, response.usage)
        elif not response.ends:
            if response.text:
                finished = received(parts)
                assert (finished.text, finished.tool_calls, finished.truncated) == (response.text, (), True)
            else:
                with pytest.raises(ModelBroken):
                    received(parts)
        else:
            meant(response, received(parts))


@few_or_many
def test_a_stream_that_ends_at_any_byte_runs_no_call_and_claims_no_end(count: int) -> None:
    @drawn(count, responses(), st.data())
    def _(response: Response, data: st.DataObject) -> None:
        whole = as_bytes(data.draw, response)
        kept = whole[: data.draw(st.integers(0, len(whole) - 1))]
        told = b"[DONE]" in kept or (response.reason is not None and b"finish_reason" in kept)
        try:
            finished = received(cut(data.draw, kept))
        except ModelError:
            return
        if finished.truncated:
            assert finished.tool_calls == ()
            assert response.text.startswith(finished.text.rstrip("\ufffd"))
        else:
            assert told
            assert finished.text == response.text
            assert [(call.name, call.arguments) for call in finished.tool_calls] == list(response.calls)


@few_or_many
def test_a_history_of_whatever_came_out_can_be_sent_to_a_strict_provider(count: int) -> None:
    @drawn(
        count, st.lists(st.tuples(responses(), st.booleans(), st.integers(0, 400)), min_size=1, max_size=4), st.data()
    )
    def _(turns: list[tuple[Response, bool, int]], data: st.DataObject) -> None:
        state = AgentState(1, "r", "R", "R_1", 1, "r", messages=[Message("system", "You are.")])
        used = UsedIds()
        for response, whole, place in turns:
            sent = as_bytes(data.draw, response)
            state.messages.append(Message("user", "Go on."))
            try:
                finished = received([sent if whole else sent[:place]])
            except ModelError:
                continue
            message = stored_response(state, finished, used)
            state.messages.append(message)
            state.requests += 1
            state.messages += [Message("tool", "", tool_call_id=call.id) for call in message.tool_calls]
        state.messages.append(Message("user", "And?"))
        for reasoning in ("strip", "echo"):
            wired = wire_messages(state.messages, reasoning=reasoning)  # type: ignore[arg-type]
            rule: Any = {"strip": "forbidden", "echo": "required"}[reasoning]
            body = json.loads(json.dumps({"model": "m", "stream": True, "messages": wired}))
            assert violations_of(body, reasoning_content=rule) == []


@few_or_many
def test_any_bytes_at_all_are_an_answer_or_an_error_of_ours(count: int) -> None:
    @drawn(count, responses(), st.data())
    def _(response: Response, data: st.DataObject) -> None:
        sent = bytearray(as_bytes(data.draw, response))
        for place, value in data.draw(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=6)):
            sent[place % len(sent)] = value
        try:
            finished = received(cut(data.draw, bytes(sent)))
        except ModelError:
            return
        finished.text.encode()
        assert all(call.id and call.name and call.arguments for call in finished.tool_calls)
