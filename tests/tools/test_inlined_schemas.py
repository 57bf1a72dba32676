"""A tool's schema is complete where it stands, and says what pydantic's own says."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator
from typing import Annotated, Any, Generic, Literal, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, create_model

from astrion_nb.errors import ToolError
from astrion_nb.tools.registry import Tool, tool
from astrion_nb.tools.schema import _MOST_PARTS, _inlined


def made(annotation: Any) -> Tool:
    """Return a tool of one argument of this type."""

    def function(value: Any) -> None:
        """Take it."""

    function.__annotations__["value"] = annotation
    return tool(name="take")(function)


def schema_of(annotation: Any) -> dict[str, Any]:
    found: dict[str, Any] = made(annotation).parameters
    return found


def parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield every key and value in a JSON value."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key, item
            yield from parts(item)
    elif isinstance(value, list):
        for item in value:
            yield from parts(item)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    """A place.

    The rest is for people.
    """

    x: float
    y: float = Field(default=0.0, description="Upwards.")


class Line(BaseModel):
    start: Point = Field(description="Where it begins.")
    ends: list[Point]
    colour: Colour = Colour.RED
    named: dict[str, Point] = {}


class Node(BaseModel):
    value: int
    children: list[Node] = []


class One(BaseModel):
    other: Other | None = None


class Other(BaseModel):
    one: One | None = None
    place: Point | None = None


def test_every_definition_stands_where_it_is_used() -> None:
    schema = schema_of(Line)
    assert "$ref" not in json.dumps(schema)
    assert "$defs" not in schema
    point = {
        "type": "object",
        "properties": {
            "x": {"type": "number"},
            "y": {"type": "number", "default": 0.0, "description": "Upwards."},
        },
        "required": ["x"],
    }
    properties = schema["properties"]["value"]["properties"]
    assert properties["start"] == {**point, "description": "Where it begins."}, "the place's own words win"
    assert properties["ends"] == {"type": "array", "items": {**point, "description": "A place."}}
    assert properties["named"]["additionalProperties"] == {**point, "description": "A place."}
    assert properties["colour"] == {"type": "string", "enum": ["red", "blue"], "default": "red"}


@pytest.mark.parametrize("annotation", [Node, One, list[Node], dict[str, One], Node | None])
def test_what_holds_itself_keeps_its_definitions_and_every_reference_leads_to_one(annotation: Any) -> None:
    schema = schema_of(annotation)
    references = [value for key, value in parts(schema) if key == "$ref"]
    assert references
    for reference in references:
        assert reference.removeprefix("#/$defs/") in schema["$defs"]


def test_what_holds_itself_is_taken_as_deep_as_it_comes() -> None:
    taker = made(Node)
    node: dict[str, Any] = {"value": 0}
    for number in range(1, 50):
        node = {"value": number, "children": [node]}
    assert taker.parse(json.dumps({"value": node}))["value"].children[0].value == 48
    with pytest.raises(ToolError, match=r"value\.children\.0\.value"):
        taker.parse('{"value": {"value": 1, "children": [{"value": "x"}]}}')


def test_two_models_of_one_name_stay_two() -> None:
    def first() -> type[BaseModel]:
        class Thing(BaseModel):
            a: int

        return Thing

    def second() -> type[BaseModel]:
        class Thing(BaseModel):
            b: str

        return Thing

    one, other = first(), second()

    def function(left: Any, right: Any, both: Any) -> None:
        """Take them."""

    function.__annotations__.update(left=one, right=other, both=one | other)
    properties = tool(function).parameters["properties"]
    assert list(properties["left"]["properties"]) == ["a"]
    assert list(properties["right"]["properties"]) == ["b"]
    assert [list(item["properties"]) for item in properties["both"]["anyOf"]] == [["a"], ["b"]]


T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    inside: T


def test_generic_models_are_inlined_each_as_its_own() -> None:
    properties = schema_of(dict[str, Box[int] | Box[Box[str]]])["properties"]["value"]["additionalProperties"]["anyOf"]
    assert properties[0]["properties"]["inside"] == {"type": "integer"}
    assert properties[1]["properties"]["inside"]["properties"]["inside"] == {"type": "string"}


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]


def test_kinds_told_apart_by_a_field_name_no_definition_that_is_gone() -> None:
    taker = made(Annotated[Cat | Dog, Field(discriminator="kind")])
    text = json.dumps(taker.parameters)
    assert "$defs" not in text
    assert "discriminator" not in text
    assert len(taker.parameters["properties"]["value"]["oneOf"]) == 2
    assert taker.parse('{"value": {"kind": "dog"}}')["value"] == Dog(kind="dog")


ODD = ["$ref", "$defs", "title", "properties", "items", "discriminator", "default", "description", "anyOf", "type"]


@pytest.mark.parametrize("name", ODD)
def test_a_field_may_be_called_as_schemas_call_their_own_parts(name: str) -> None:
    model = create_model("Odd", odd=(Point, Field(alias=name)))
    schema = schema_of(model)["properties"]["value"]
    assert list(schema["properties"]) == [name]
    assert list(schema["properties"][name]["properties"]) == ["x", "y"]
    assert schema["required"] == [name]


VALUES = [{"$defs": {"a": 1}}, {"title": "t"}, [{"properties": {"a": 1}}], {"items": {"type": "x"}}]


@pytest.mark.parametrize("value", VALUES)
def test_a_default_is_a_value_whatever_it_looks_like(value: Any) -> None:
    class Holder(BaseModel):
        model_config = ConfigDict(json_schema_extra={"examples": [value]})
        where: Point
        anything: Any = value

    schema = schema_of(Holder)["properties"]["value"]
    assert schema["properties"]["anything"]["default"] == value
    assert schema["examples"] == [value]
    assert list(schema["properties"]["where"]["properties"]) == ["x", "y"]


def test_a_schema_that_would_grow_beyond_measure_keeps_its_references() -> None:
    model: Any = Point
    for number in range(30):
        model = create_model(f"Level{number}", left=(model, ...), right=(model, ...))
    schema = schema_of(model)
    assert len(json.dumps(schema)) < 20_000
    assert len(schema["$defs"]) > 25


# -- in general ---------------------------------------------------------------------------------

LEAVES = st.sampled_from([{"type": "string"}, {"type": "integer", "title": "N"}, True, {"const": {"$ref": "no"}}])
NAMES = st.sampled_from(["A", "B", "C", "D"])


def schemas(references: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.one_of(
            st.builds(lambda item: {"type": "array", "items": item}, inner),
            st.builds(lambda items: {"anyOf": items}, st.lists(inner, min_size=1, max_size=3)),
            st.dictionaries(st.sampled_from(ODD), inner, max_size=3).map(lambda named: {"properties": named}),
            st.builds(lambda item: {"additionalProperties": item, "default": {"$ref": "x"}}, inner),
        )

    return st.recursive(LEAVES | references, grown, max_leaves=6)


REFERENCES = st.builds(
    lambda name, more: {"$ref": f"#/$defs/{name}", **more}, NAMES, st.sampled_from([{}, {"description": "d"}])
)


def expanded(value: Any, defined: dict[str, Any], depth: int, key: str = "") -> Any:
    """Return a schema with its references written out, by depth alone; what is deeper than that is ``...``."""
    if depth == 0:
        return "..."
    if isinstance(value, list):
        return [expanded(item, defined, depth - 1) for item in value]
    if not isinstance(value, dict) or key in ("default", "const"):
        return value
    if key != "properties" and isinstance(value.get("$ref"), str):
        whole = {**defined[value["$ref"].rpartition("/")[2]]}
        whole.pop("title", None)
        return expanded({**whole, **{k: v for k, v in value.items() if k != "$ref"}}, defined, depth)
    named = key == "properties"
    return {k: expanded(v, defined, depth - 1, "" if named else k) for k, v in value.items() if named or k != "$defs"}


DICTS = schemas(REFERENCES).filter(lambda value: isinstance(value, dict) and "$ref" not in value)


@settings(max_examples=300)
@given(top=DICTS, defined=st.fixed_dictionaries(dict.fromkeys("ABCD", DICTS)))
def test_what_is_inlined_says_what_the_references_said(top: dict[str, Any], defined: dict[str, Any]) -> None:
    schema = {**top, "$defs": defined}
    before = json.dumps(schema)
    found = _inlined(schema)
    assert json.dumps(schema) == before, "what it was made from is left alone"
    if found is schema:
        assert _cyclic(top, defined) or sum(1 for _ in parts(schema)) * 4 > _MOST_PARTS
    else:
        assert not _cyclic(top, defined)
        assert found == expanded(schema, defined, 60)


def _cyclic(top: Any, defined: dict[str, Any]) -> bool:
    """Say whether a definition can be reached from itself, by way of what the top reaches."""

    def referred(value: Any, key: str = "") -> set[str]:
        if isinstance(value, list):
            return set().union(*(referred(item) for item in value), set())
        if not isinstance(value, dict) or key in ("default", "const"):
            return set()
        named = key == "properties"
        out = set() if named or not isinstance(value.get("$ref"), str) else {value["$ref"].rpartition("/")[2]}
        return out.union(*(referred(item, "" if named else k) for k, item in value.items() if named or k != "$defs"))

    def reached(start: set[str]) -> set[str]:
        seen: set[str] = set()
        todo = list(start)
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo += referred(defined[name])
        return seen

    return any(name in reached(referred(defined[name])) for name in reached(referred(top)))
