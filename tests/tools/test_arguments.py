"""Whatever a model writes as arguments: values, or one error line that names the field (fault 5)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from astrion_nb.errors import ToolError
from astrion_nb.tools.leader import LEADER_TOOLS
from astrion_nb.tools.member import MEMBER_TOOLS
from astrion_nb.tools.registry import Tool

pytestmark = pytest.mark.faults

ALL: dict[str, Tool] = {f"{tool.audience}.{tool.name}": tool for tool in (*LEADER_TOOLS, *MEMBER_TOOLS)}
CREATE = ALL["leader.create_sub_agent"]
ASK = ALL["leader.ask_sub_agent"]


def good(tool: Tool) -> dict[str, Any]:
    """Return arguments that the tool takes."""
    kinds = {"integer": 1, "string": "text", "boolean": True}
    return {
        name: schema["enum"][0] if "enum" in schema else kinds[schema["type"]]
        for name, schema in tool.parameters["properties"].items()
    }


def refusal(tool: Tool, arguments: str) -> str:
    with pytest.raises(ToolError) as caught:
        tool.parse(arguments)
    return str(caught.value)


@pytest.mark.parametrize("name", sorted(ALL))
def test_good_arguments_pass_unchanged(name: str) -> None:
    assert ALL[name].parse(json.dumps(good(ALL[name]))) == good(ALL[name])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("[1]", 'arguments: must be a JSON object like {"name": value}, not a list'),
        ('"{}"', "not a string"),
        ("7", "not a number"),
        ("true", "not a boolean"),
        ("{", "arguments: not valid JSON"),
        ("{'a': 1}", "arguments: not valid JSON"),
        ('{"agent_id": NaN}', "agent_id: NaN is not a number that JSON allows"),
        ('{"agent_id": -Infinity}', "agent_id: -Infinity is not a number that JSON allows"),
        ("[NaN]", "arguments: NaN is not allowed in JSON"),
        ("[" * 100_000, "arguments: not valid JSON"),
        *(
            (opening * depth + "1" + closing * depth, "arguments: not valid JSON (")
            for depth in (1030, 3000, 9990, 20_000)
            for opening, closing in (('{"a":', "}"), ("[", "]"))
        ),
        ('{"agent_id": "\\ud800"}', "agent_id: "),
        ('{"agent_id": 1' + "0" * 400 + "}", "agent_id: number is infinity"),
    ],
)
def test_what_is_no_json_object_is_refused(arguments: str, said: str) -> None:
    assert said in refusal(CREATE, arguments)


@pytest.mark.parametrize("arguments", ["", "  ", "null", "{}", " {} \n"])
def test_nothing_stands_for_no_arguments(arguments: str) -> None:
    assert ALL["leader.list_agents"].parse(arguments) == {}
    assert refusal(ASK, arguments) == "agent_id: is required; question: is required; question_id: is required"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"agent_id": [1]}, "agent_id: input should be a valid integer"),
        ({"agent_id": True}, "agent_id: must be a number, not a boolean"),
        ({"agent_id": "one"}, "agent_id: input should be a valid integer"),
        ({"agent_id": 1.5}, "agent_id: input should be a valid integer"),
        ({"agent_id": None}, "agent_id: input should be a valid integer"),
        ({"role_id": 3}, "role_id: input should be a valid string"),
        ({"task": {"a": 1}}, "task: input should be a valid string"),
        ({"run_in_background": "maybe"}, "run_in_background: input should be a valid boolean"),
        ({"thinking_mode": "deep"}, "thinking_mode: input should be 'fast' or 'thinking'"),
        ({"priority": 1}, "priority: no such argument; known are agent_id, role_id, task"),
    ],
)
def test_a_wrong_argument_is_named(change: dict[str, Any], said: str) -> None:
    assert said in refusal(CREATE, json.dumps({"agent_id": 1, "role_id": "r", "task": "t", **change}))


def test_all_wrong_fields_are_named_in_one_line() -> None:
    line = refusal(CREATE, '{"agent_id": [], "extra": 1}')
    assert [part.split(":")[0] for part in line.split("; ") if ":" in part] == ["agent_id", "role_id", "task", "extra"]
    assert "\n" not in line


@pytest.mark.parametrize(("given", "taken"), [("1", 1), (" 1 ", 1), (1.0, 1), ("01", 1), (-3, -3)])
def test_numbers_may_come_as_text(given: object, taken: int) -> None:
    assert CREATE.parse(json.dumps({"agent_id": given, "role_id": "r", "task": "t"}))["agent_id"] == taken


@pytest.mark.parametrize(
    ("given", "taken"), [(1, 1), ("1", "1"), (2.0, 2), ("UI Operator_1", "UI Operator_1"), ("规划_1", "规划_1")]
)
def test_an_agent_may_be_named(given: object, taken: object) -> None:
    arguments = {"agent_id": given, "question": "?", "question_id": "q"}
    assert ASK.parse(json.dumps(arguments))["agent_id"] == taken


@pytest.mark.parametrize("given", [True, 1.5, None, [], {}, [1]])
def test_what_can_be_no_agent_is_refused(given: object) -> None:
    line = refusal(ASK, json.dumps({"agent_id": given, "question": "?", "question_id": "q"}))
    assert line == "agent_id: must be an agent_id (an integer) or a display name"


def test_the_two_pairs_of_aliases_are_understood() -> None:
    assert ASK.parse('{"agent_id": 1, "question": "?", "message_id": "m"}')["question_id"] == "m"
    member = ALL["member.answer_other_agent"]
    assert member.parse('{"source_agent_id": 1, "question_id": "q", "answer": "a"}')["message_id"] == "q"
    assert CREATE.parse('{"agent_id": 1, "role_id": "r", "task": "t", "model": "m"}')["model_key"] == "m"
    custom = ALL["leader.create_custom_agent"]
    made = custom.parse('{"role_id": "r", "name": "n", "description": "d", "prompt": "p", "model_key": "m"}')
    assert made["model"] == "m"


def test_an_alias_beside_the_real_name_is_an_unknown_argument() -> None:
    line = refusal(ASK, '{"agent_id": 1, "question": "?", "question_id": "q", "message_id": "m"}')
    assert line.startswith("message_id: no such argument")


def test_null_stands_for_a_missing_optional_argument_only() -> None:
    values = CREATE.parse('{"agent_id": 1, "role_id": "r", "task": "t", "model_key": null, "timeout_seconds": null}')
    assert values == {"agent_id": 1, "role_id": "r", "task": "t"}
    assert refusal(CREATE, '{"agent_id": 1, "role_id": null, "task": "t"}').startswith("role_id: ")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(sorted(ALL))


@settings(deadline=None)
@example("leader.list_active_sub_agents", '{":": null}')
@example("leader.list_active_sub_agents", '{"a: b; c": null}')
@given(
    names,
    st.text(max_size=40) | json_values.map(json.dumps) | st.text(alphabet='{}[]":,\\ntrueNa0eE+-.\ud800', max_size=30),
)
def test_no_text_raises_anything_but_a_tool_error(name: str, arguments: str) -> None:
    try:
        ALL[name].parse(arguments)
    except ToolError as error:
        line = str(error)
    else:
        return
    assert line.split(":")[0].strip()
    assert line.isprintable()


@settings(deadline=None)
@given(names, st.data())
def test_one_wrong_field_is_the_field_that_is_named(name: str, data: st.DataObject) -> None:
    arguments = good(ALL[name])
    field = data.draw(st.sampled_from([*arguments, "surplus"]))
    arguments[field] = data.draw(json_values)
    try:
        values = ALL[name].parse(json.dumps(arguments, allow_nan=True))
    except ToolError as error:
        line = str(error)
    else:
        assert field in good(ALL[name])
        assert values.keys() <= good(ALL[name]).keys()
        return
    assert line.startswith((f"{field}: ", "arguments: ")), line
