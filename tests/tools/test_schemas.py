"""What models are shown of the team's tools: the specification, and the few additions to it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from astrion_nb.tools.leader import LEADER_TOOLS
from astrion_nb.tools.member import MEMBER_TOOLS
from astrion_nb.tools.plain import plain_schema
from astrion_nb.tools.registry import Tool, toolbox
from astrion_nb.tools.schema import build

GOLDEN = Path(__file__).parents[1] / "golden" / "tools"
SPEC: dict[str, Any] = json.loads((GOLDEN / "spec.json").read_bytes())
ADDED: dict[str, Any] = json.loads((GOLDEN / "additions.json").read_bytes())
TOOLS: dict[str, list[Tool]] = {"team_leader": LEADER_TOOLS, "sub_agent": MEMBER_TOOLS}

pytestmark = pytest.mark.spec


def expected(audience: str) -> list[dict[str, Any]]:
    """Return the specification's definitions with the additions that are allowed."""
    definitions = copy.deepcopy(SPEC[audience]) + ADDED[audience]
    for definition in definitions:
        function = definition["function"]
        function["parameters"]["properties"].update(ADDED["properties"].get(function["name"], {}))
    return definitions


def text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)  # keeps the order of keys


@pytest.mark.parametrize("audience", sorted(TOOLS))
def test_the_definitions_are_the_specifications_byte_for_byte(audience: str) -> None:
    made = {tool.name: text(tool.definition) for tool in TOOLS[audience]}
    assert made == {definition["function"]["name"]: text(definition) for definition in expected(audience)}


@pytest.mark.parametrize("audience", sorted(TOOLS))
def test_the_specifications_tools_come_in_its_order(audience: str) -> None:
    wanted = [definition["function"]["name"] for definition in SPEC[audience]]
    assert [tool.name for tool in TOOLS[audience] if tool.name in wanted] == wanted


def test_only_three_things_were_added() -> None:
    added = [definition["function"]["name"] for audience in TOOLS for definition in ADDED[audience]]
    assert (added, ADDED["properties"].keys()) == (["stop_sub_agent", "answer_master"], {"ask_other_agent"})
    assert list(ADDED["properties"]["ask_other_agent"]) == ["expects_answer"]


def test_each_audience_gets_its_own_list_tool() -> None:
    both = (*LEADER_TOOLS, *MEMBER_TOOLS)
    leader, member = toolbox("leader", both), toolbox("member", both)
    assert {tool.name for tool in leader} & {tool.name for tool in member} == {"list_active_sub_agents"}
    assert leader["list_active_sub_agents"].description != member["list_active_sub_agents"].description
    assert "close_sub_agent" not in leader


def test_a_definition_is_made_once_so_that_requests_share_their_prefix() -> None:
    box = toolbox("leader", LEADER_TOOLS)
    assert text(list(box.definitions)) == text([tool.definition for tool in LEADER_TOOLS])
    assert box.definitions is box.definitions


@pytest.mark.parametrize("made", [*LEADER_TOOLS, *MEMBER_TOOLS], ids=lambda made: f"{made.audience}-{made.name}")
def test_a_plain_signature_has_the_schema_that_pydantic_gives_it(made: Tool) -> None:
    plain = plain_schema(made.function, made.context_parameter)
    assert plain is not None
    assert json.dumps(plain) == json.dumps(build(made.name, made.function, made.context_parameter)[0])
