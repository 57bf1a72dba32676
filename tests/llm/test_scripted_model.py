"""The scripted model: it plays its script, and complains about every departure from it."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.asking import ASK, ask, events, request, run

from astrion_nb.errors import ContentFiltered, ModelBroken, ScriptError
from astrion_nb.llm import scripted
from astrion_nb.llm.model import ModelRequest, ReasoningDelta, TextDelta
from astrion_nb.llm.scripted import ScriptedModel, Step, call, fail, say, until_message
from astrion_nb.messages import Message, Usage
from astrion_nb.tools.leader import LEADER_TOOLS
from astrion_nb.tools.member import MEMBER_TOOLS


def test_each_actor_follows_its_own_steps() -> None:
    async def work() -> None:
        model = ScriptedModel({"Team Leader": [say("one"), say("two")], "UI Operator_1": [say("mine")]})
        assert (await ask(model)).text == "one"
        assert (await ask(model, request(actor="UI Operator_1"))).text == "mine"
        assert (await ask(model)).text == "two"
        assert [asked.actor for asked in model.requests] == ["Team Leader", "UI Operator_1", "Team Leader"]
        model.check()
        await model.close()

    run(work)


def test_patterns_share_steps_and_an_exact_name_goes_first() -> None:
    async def work() -> None:
        model = ScriptedModel([("UI *", say("a")), ("UI *", say("b")), ("UI Operator_2", say("two"))])
        assert (await ask(model, request(actor="UI Operator_2"))).text == "two"
        assert (await ask(model, request(actor="UI Operator_1"))).text == "a"
        assert (await ask(model, request(actor="UI Operator_2"))).text == "b"
        plain = ScriptedModel([say("x")])
        assert (await ask(plain, request(actor="C++ & <QA>_1"))).text == "x"

    run(work)


def test_calls_and_text_join_into_one_response() -> None:
    async def work() -> None:
        step = (
            say("Starting ", reasoning="hm") + call("create_sub_agent", agent_id=1, task="查") + call("f", "[not json")
        )
        model = ScriptedModel({"Team Leader": [step]})
        came = await events(model, request(turn=3))
        assert came[0] == ReasoningDelta("hm")
        finished = came[-1]
        assert [(each.name, each.arguments) for each in finished.tool_calls] == [  # type: ignore[union-attr]
            ("create_sub_agent", '{"agent_id": 1, "task": "查"}'),
            ("f", "[not json"),
        ]
        assert finished.text == "Starting "  # type: ignore[union-attr]

    run(work)


def test_call_ids_tell_actor_turn_and_place() -> None:
    async def work() -> None:
        model = ScriptedModel([call("f") + call("f"), call("f"), call("f")])
        for turn, actor, ids in (
            (1, "Team Leader", ["call_team_leader_1_1", "call_team_leader_1_2"]),
            (2, "Team Leader", ["call_team_leader_2_1"]),
            (2, "UI Operator_1", ["call_ui_operator_1_2_1"]),
        ):
            finished = await ask(model, request(actor=actor, turn=turn))
            assert [each.id for each in finished.tool_calls] == ids

    run(work)


def test_text_is_streamed_in_words_or_in_the_given_chunks() -> None:
    async def work() -> None:
        model = ScriptedModel([say("The page is 蓝色的。"), say("ab", chunks=["a", "b"])])
        assert [e.text for e in await events(model) if isinstance(e, TextDelta)] == [
            "The ",
            "page ",
            "is ",
            "蓝色",
            "的。",
        ]
        assert [e.text for e in await events(model) if isinstance(e, TextDelta)] == ["a", "b"]

    run(work)
    with pytest.raises(ScriptError):
        say("ab", chunks=["a"])


def test_a_step_may_be_a_function_of_the_request() -> None:
    def answer(asked: ModelRequest) -> Step:
        identifier = json.loads(asked.messages[-1].content or "")["question_id"]
        return call("answer_sub_agent_question", question_id=identifier, answer="yes")

    async def work() -> None:
        model = ScriptedModel([answer])
        finished = await ask(model, request((*ASK, Message("user", '{"question_id": "ask_uio_001"}'))))
        assert json.loads(finished.tool_calls[0].arguments)["question_id"] == "ask_uio_001"

    run(work)


@pytest.mark.parametrize("script", [[until_message(say("after"))], [until_message(), say("after")]])
def test_a_step_waits_until_a_message_has_come(script: list[Step]) -> None:
    async def work() -> None:
        came = asyncio.Event()

        async def arrival() -> None:
            await came.wait()

        model = ScriptedModel(script)
        task = asyncio.ensure_future(ask(model, request(arrival=arrival)))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not task.done()
        came.set()
        assert (await task).text == "after"
        model.check()

    run(work)


def test_a_wait_without_a_mailbox_is_an_error() -> None:
    model = ScriptedModel([say("x", after_message=True)])
    with pytest.raises(ScriptError, match="mailbox"):
        run(lambda: ask(model))


def test_failures_come_as_scripted_also_after_some_text() -> None:
    async def work() -> None:
        model = ScriptedModel([fail(ModelBroken("down")), say("part ") + fail(ModelBroken("cut")), say("ok")])
        with pytest.raises(ModelBroken, match="down"):
            await ask(model)
        stream = model.stream(request())
        assert await anext(stream) == TextDelta("part ")
        with pytest.raises(ModelBroken, match="cut"):
            await anext(stream)
        assert (await ask(model)).text == "ok"

    run(work)


def test_a_filtered_answer_is_scripted_by_its_finish_reason() -> None:
    with pytest.raises(ContentFiltered) as filtered:
        run(lambda: ask(ScriptedModel([say("part", finish="content_filter")])))
    assert filtered.value.partial == "part"  # type: ignore[attr-defined]


def test_usage_is_deterministic_or_as_scripted() -> None:
    async def work() -> None:
        model = ScriptedModel([say("a b"), say("a b"), say("x", usage=(7, 3))])
        assert (await ask(model)).usage == (await ask(model)).usage == Usage(20, 2)
        assert (await ask(model)).usage == Usage(7, 3)

    run(work)


def test_a_request_without_a_step_fails_and_is_remembered() -> None:
    async def work() -> None:
        model = ScriptedModel({"Team Leader": [say("x")], "UI Operator_1": []})
        with pytest.raises(ScriptError, match=r"no step for UI Operator_1, request 2; steps left are for Team Leader"):
            await ask(model, request(actor="UI Operator_1", turn=2))
        await ask(model)
        with pytest.raises(ScriptError, match="UI Operator_1"):
            model.check()

    run(work)


def test_unused_steps_fail_the_check_and_the_first_close() -> None:
    async def work() -> None:
        model = ScriptedModel({"Team Leader": [say("x"), say("y")]})
        await ask(model)
        with pytest.raises(ScriptError, match="Team Leader: 1"):
            model.check()
        with pytest.raises(ScriptError, match="never asked for"):
            await model.close()
        await model.close()
        lenient = ScriptedModel([say("x")], check_on_close=False)
        await lenient.close()

    run(work)


def test_the_tempo_is_kept() -> None:
    async def work() -> None:
        model = ScriptedModel([say("a b c d e")], tokens_per_second=100)
        before = time.perf_counter()
        await ask(model)
        assert time.perf_counter() - before >= 0.045

    run(work)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=80))
@settings(max_examples=200, deadline=None)
def test_the_pieces_of_any_text_join_to_the_text(text: str) -> None:
    assert "".join(say(text).pieces()) == text
    assert "".join((say(text) + say("x", chunks=["x"])).pieces()) == text + "x"


def test_the_documentation_names_every_tool_with_its_arguments() -> None:
    tables = (scripted.__doc__ or "").split("::\n\n")[-2:]
    for told, tools in zip(tables, (LEADER_TOOLS, MEMBER_TOOLS), strict=True):
        lines = told.partition("\n\n")[0].splitlines()
        found = {
            name: rest.split(", ") if rest else [] for name, _, rest in (line.strip().partition(" ") for line in lines)
        }
        wanted = {}
        for tool in tools:
            required = tool.parameters.get("required", ())
            wanted[tool.name] = [name if name in required else f"{name}?" for name in tool.parameters["properties"]]
        assert {name: [item.strip() for item in items] for name, items in found.items()} == wanted
