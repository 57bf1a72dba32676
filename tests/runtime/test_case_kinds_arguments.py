"""Arguments that parse but are wrong, as a kind: five hundred parallel mixes at a server that refuses (fault 5).

Each mix holds good calls beside lists, texts within texts, NaN, wrong types, surplus and missing keys and tools
that there are not. Every call has its one result in the next request; what is refused names the field and does
nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.strict_server import StrictServer, calls, offers, text
from support.teams import BOUND, go, rig
from support.virtual import VirtualOrder, Watched

from astrion_nb.events import FLEETING, MessageAppended
from astrion_nb.home import Home
from astrion_nb.ids import HUMAN_ID
from astrion_nb.llm.openai import OpenAIModel
from astrion_nb.testing.invariants import faults_of
from astrion_nb.tools.leader import LEADER_TOOLS
from astrion_nb.tools.member import MEMBER_TOOLS
from astrion_nb.tools.registry import tool

pytestmark = pytest.mark.faults

few_or_many = pytest.mark.parametrize("count", [30, pytest.param(500, marks=pytest.mark.slow)])

AGENT = "agent"
SHAPES: dict[str, dict[str, dict[str, Any]]] = {
    "leader": {each.name: each.parameters for each in LEADER_TOOLS if each.parameters["properties"]},
    "member": {each.name: each.parameters for each in MEMBER_TOOLS if each.parameters["properties"]},
}
"""The published schemas: what is wrong is told from them, and not from what the code takes."""
COUNT: dict[str, Any] = {
    "properties": {
        "n": {"type": "integer"},
        "tag": {"type": "string"},
        "ratio": {"type": "number"},
        "loud": {"type": "boolean"},
        "mode": {"enum": ["fast", "thinking"], "type": "string"},
    },
    "required": ["n", "tag"],
}
WRONG: dict[str, tuple[Any, ...]] = {
    "integer": ([1], [], {"value": 1}, True, False, "one", "", 1.5, "1.5", "0x10", None),
    AGENT: ([1], [], {"agent_id": 1}, True, False, 1.5, None),
    "string": (3, 0, 1.5, True, [], ["text"], {}, {"text": "text"}, None),
    "number": ("x", "", True, False, [], [1.0], {}),
    "boolean": ("maybe", "", 2, -1, 0.5, [], [True], {}),
    "enum": ("deep", "", "FAST", 1, True, [], ["fast"], {}),
}
"""By type, what no reading of a value makes right. ``null`` stands for a missing optional argument (decision 21)."""
SURPLUS = ("extra", "Agent_Id", "agent id", "n ", "", "键", "<b>", "a.b", "a: b", "context", "self", "__class__", "\n")
UNKNOWN = ("cuont", "Count", "count()", "functions.count", "a b", "工具", "<b>", "x" * 90, "", "null", "ask_everybody")
NOT_OBJECTS = ("7", "true", '"text"', '""', "[]", "[{}]", "0.5", "-1")
BROKEN = ("{", '{"n": 1', "{'n': 1}", '{"n": 1,}', "n=1", '{"n": 1} {"n": 1}', "undefined", "\ufeff{}")
HOW = (
    *("good", "type", "missing", "surplus", "not finite", "twice encoded", "in a list", "no object", "broken"),
    *("unknown tool", "blank", "nobody", "surrogate"),
)
BLANKED = {"create_sub_agent": "task", "send_message_to_sub_agent": "message", "ask_sub_agent": "question"}
BLANKED |= {"ask_master": "question", "ask_other_agent": "content"}


@dataclass(frozen=True)
class Wanted:
    """A call that a model makes, and what has to come of it.

    Parameters
    ----------
    name, arguments : str
    how : str
        What is wrong with it; ``good`` where nothing is.
    said : tuple of str
        What the error has to hold, or for a good call the whole result.
    """

    name: str
    arguments: str
    how: str
    said: tuple[str, ...]


def kind_of(name: str, field: str, schema: dict[str, Any]) -> str:
    if field.endswith("agent_id") and name != "create_sub_agent":
        return AGENT
    return "enum" if "enum" in schema else str(schema["type"])


def right(draw: Any, kind: str) -> Any:
    return {
        "integer": draw(st.integers(1, 9)),
        AGENT: draw(st.sampled_from((1, "1", "UI Operator_1"))),
        "string": draw(st.sampled_from(("text", "规划", '{"n": 1}', "NaN", "a\nb"))),
        "number": draw(st.sampled_from((0.5, 2, -1))),
        "boolean": draw(st.booleans()),
        "enum": "fast",
    }[kind]


def field_shown(key: str) -> str:
    return key if key and key.replace(".", "").replace("-", "").replace("_", "").isalnum() else repr(key)


@st.composite
def wanted(draw: Any, audience: Literal["leader", "member"]) -> Wanted:
    """Draw a call."""
    shapes = {**SHAPES[audience], "count": COUNT}
    how = draw(st.sampled_from((*HOW, "type", "type", "type")))
    if how == "good":
        n = draw(st.integers(-9, 10**6))
        value = draw(st.sampled_from((n, str(n), f" {n} ", float(n))))
        return Wanted("count", json.dumps({"n": value, "tag": "t", "mode": None}), how, (str(n),))
    names = sorted(shapes)
    if how == "blank":
        names = sorted(BLANKED.keys() & shapes.keys())
    elif how == "nobody":
        names = [
            each for each in names if any(kind_of(each, f, s) == AGENT for f, s in shapes[each]["properties"].items())
        ]
    name = draw(st.sampled_from(names))
    shape = shapes[name]
    kinds = {field: kind_of(name, field, schema) for field, schema in shape["properties"].items()}
    optional = kinds.keys() - set(shape.get("required", ()))
    whole = {field: right(draw, kind) for field, kind in kinds.items() if field not in optional or draw(st.booleans())}
    field = draw(st.sampled_from(sorted(kinds)))
    if how == "type":
        choices = [each for each in WRONG[kinds[field]] if each is not None or field not in optional]
        return Wanted(name, json.dumps({**whole, field: draw(st.sampled_from(choices))}), how, (f"{field}: ",))
    if how == "missing":
        gone = draw(st.sampled_from(sorted(kinds.keys() - optional)))
        return Wanted(name, json.dumps({k: v for k, v in whole.items() if k != gone}), how, (f"{gone}: is required",))
    if how == "surplus":
        key = draw(st.sampled_from(SURPLUS))
        said = (f"{field_shown(key)}: no such argument", *kinds)
        return Wanted(name, json.dumps({**whole, key: right(draw, "string")}), how, said)
    if how == "not finite":
        number = draw(st.sampled_from((float("nan"), float("inf"), float("-inf"))))
        return Wanted(name, json.dumps({**whole, field: number}), how, (f"{field}: ", json.dumps(number)))
    if how == "surrogate":
        return Wanted(name, json.dumps({**whole, field: "\ud800"}), how, (f"{field}: ",))
    if how == "twice encoded":
        return Wanted(name, json.dumps(json.dumps(whole)), how, ("arguments: ", "not a string"))
    if how == "in a list":
        return Wanted(name, json.dumps([whole]), how, ("arguments: ", "not a list"))
    if how == "no object":
        return Wanted(name, draw(st.sampled_from(NOT_OBJECTS)), how, ("arguments: ", "must be a JSON object"))
    if how == "broken":
        return Wanted(name, draw(st.sampled_from(BROKEN)), how, ("arguments: not valid JSON",))
    if how == "unknown tool":
        known = ("there is no tool", "count", *sorted(SHAPES[audience]))
        return Wanted(draw(st.sampled_from(UNKNOWN)), json.dumps(whole), how, known)
    if how == "blank":
        blank = draw(st.sampled_from(("", " ", "\n\t", "\u3000")))
        return Wanted(name, json.dumps({**whole, BLANKED[name]: blank}), how, (f"{BLANKED[name]}: must not be empty",))
    nobody = draw(st.sampled_from((0, -1, 99, 10**18, "99", "nobody", "", "None", "[1]", "<b>", "UI Operator")))
    return Wanted(
        name,
        json.dumps({**whole, next(each for each, kind in kinds.items() if kind == AGENT): nobody}),
        how,
        ("there is no agent", "UI Operator_1 (agent_id 1)"),
    )


@st.composite
def mixes(draw: Any) -> tuple[Literal["leader", "member"], list[Wanted], tuple[str, ...]]:
    """Draw who calls, the calls of one response, and their ids."""
    audience: Literal["leader", "member"] = draw(st.sampled_from(("leader", "member")))
    mix = draw(st.lists(wanted(audience), min_size=1, max_size=8))
    ids = draw(st.sampled_from(("own", "own", "all the same", "none")))
    if not all(each.name for each in mix):
        ids = "own"  # what has neither a name nor an id of its own is a piece of another call
    return audience, mix, tuple({"own": f"c{n}", "all the same": "c", "none": ""}[ids] for n in range(len(mix)))


@pytest.fixture(scope="module")
def server() -> Iterator[StrictServer]:
    with StrictServer() as running:
        yield running


@few_or_many
def test_in_any_parallel_mix_every_call_has_one_result_and_what_is_wrong_is_named_and_does_nothing(
    server: StrictServer, count: int
) -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=count, suppress_health_check=list(HealthCheck))
    @given(mixes())
    def check(drawn: tuple[Literal["leader", "member"], list[Wanted], tuple[str, ...]]) -> None:
        audience, mix, ids = drawn
        seen.update(each.how for each in mix)
        ran: list[int] = []
        create = ("create_sub_agent", {"agent_id": 1, "role_id": "ui-operator", "task": "t"})
        wrong = calls(*((each.name, each.arguments, id_) for each, id_ in zip(mix, ids, strict=True)))
        leads = audience == "leader"
        left: dict[bool, list[Any]] = {True: [calls(create)], False: []}
        asked: dict[bool, list[dict[str, Any]]] = {True: [], False: []}

        def answer(request: dict[str, Any], _: int) -> Any:
            who = offers(request, "create_sub_agent")
            asked[who].append(request)
            return left[who].pop(0) if left[who] else text("Done.")

        server.on_request = answer

        async def main() -> None:
            @tool(name="count")
            async def counting(
                n: int,
                tag: str,
                ratio: float = 1.0,
                loud: bool = False,
                mode: Literal["fast", "thinking"] | None = None,
            ) -> int:
                """Count."""
                ran.append(n)
                return n

            model = Watched(OpenAIModel("m", model="m", base_url=server.url, api_key="k"))
            made = rig(model, tools=(counting,), order=VirtualOrder(busy=model.busy))
            try:
                await made.run("Go")
                before = len(made.events)
                left[leads].append(wrong)
                if leads:
                    await made.run("More")
                else:
                    await made.team.person.admit()
                    made.team.port.send(HUMAN_ID, 1, "More")
                    await asyncio.wait_for(made.team.rest(), BOUND)
            finally:
                await model.close()
            state = made.team.state
            assert server.violations == []
            assert faults_of(state, made.events, made.team) == []
            assert [state.run_status, *(agent.status for agent in state.agents.values())] == ["completed"] * 3
            events = [stamped.event for stamped in made.events[before:] if not isinstance(stamped.event, FLEETING)]
            begun = next(n for n, e in enumerate(events) if isinstance(e, MessageAppended) and e.message.tool_calls)
            during = events[begun + 1 : begun + 1 + len(mix)]
            roles = [e.message.role if isinstance(e, MessageAppended) else e.tag for e in during]
            assert roles == ["tool"] * len(mix), "nothing else happened while the calls ran"

        go(main)
        messages = asked[leads][-1]["messages"]
        (place,) = [n for n, m in enumerate(messages) if len(m.get("tool_calls", ())) == len(mix) and n > 3]
        results = {m["tool_call_id"]: m["content"] for m in messages[place + 1 : place + 1 + len(mix)]}
        texts = [results.pop(call["id"]) for call in messages[place]["tool_calls"]]
        assert results == {}
        for each, result in zip(mix, texts, strict=True):
            if each.how == "good":
                assert (result,) == each.said
                continue
            outcome = json.loads(result)
            assert outcome["success"] is False, each
            assert all(said in outcome["error"] for said in each.said), (each, outcome["error"])
            assert outcome["error"].isprintable()
        assert sorted(ran) == sorted(int(each.said[0]) for each in mix if each.how == "good")
        assert not Home().agents.exists(), "no role was written"

    check()
    assert set(seen) >= set(HOW) if count > 100 else len(seen) > 6, "of every kind of fault there was one"
