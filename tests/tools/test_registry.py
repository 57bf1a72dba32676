"""A function is a tool: schema from its signature, context injected, results as text."""

from __future__ import annotations

import asyncio
import contextvars
import datetime
import doctest
import functools
import json
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from astrion_nb.errors import ConfigError, ToolError
from astrion_nb.tools import registry
from astrion_nb.tools.registry import Tool, Toolbox, ToolContext, error_text, result_text, tool, toolbox


def context() -> ToolContext:
    return ToolContext(1, "call_1", object())  # type: ignore[arg-type]


def run(made: Tool, arguments: str = "{}") -> Any:
    async def main() -> Any:
        return await asyncio.wait_for(made.call(made.parse(arguments), context()), 5)

    return asyncio.run(main())


@tool(side_effects=False)
async def add(a: int, b: int = 2) -> int:
    """Add two numbers.

    The rest of the docstring is for people.
    """
    return a + b


# -- definition -----------------------------------------------------------------------------


def test_the_examples_of_the_docstring_hold() -> None:
    results = doctest.testmod(registry)
    assert results.attempted > 0
    assert results.failed == 0


def test_name_description_and_schema_come_from_the_function() -> None:
    assert add.definition == {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add two numbers.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a"],
            },
        },
    }
    assert (add.audience, add.side_effects, add.scope) == ("both", False, None)


def test_everything_can_be_named_otherwise() -> None:
    made = tool(name="sum-up", description="Sums.", audience="leader", scope="read")(add.function)
    assert (made.name, made.description, made.audience, made.scope) == ("sum-up", "Sums.", "leader", "read")
    assert made.side_effects, "a tool touches the world unless it says otherwise"


def test_rich_annotations_become_schema() -> None:
    class Point(BaseModel):
        x: float
        y: float = 0.0

    def plot(
        points: Annotated[list[Point], "Where."],
        colour: Literal["red", "blue"],
        size: int | None = None,
        label: str | None = None,
        extra: dict[str, float] = {},  # noqa: B006
    ) -> None:
        """Plot."""

    made = _make_local(plot, Point=Point)
    properties = made.parameters["properties"]
    assert properties["points"]["type"] == "array"
    assert properties["points"]["description"] == "Where."
    assert properties["colour"] == {"type": "string", "enum": ["red", "blue"]}
    assert properties["size"] == {"type": "integer"}
    assert made.parameters["required"] == ["points", "colour"]
    values = made.parse('{"points": [{"x": "1"}], "colour": "red", "size": null}')
    assert values == {"points": [Point(x=1.0)], "colour": "red"}
    with pytest.raises(ToolError, match=r"points\.0\.x: is required"):
        made.parse('{"points": [{}], "colour": "red"}')


def _make_local(function: Any, **names: Any) -> Tool:
    function.__globals__.update(names)
    return tool(function)


@pytest.mark.parametrize("name", ["", "a b", "规划", "a" * 65, "a.b", "abc\n", "a/b"])
def test_a_name_that_no_model_can_call_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="pass name="):
        tool(name=name)(add.function)


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(ConfigError, match="<lambda>"):
        tool(lambda: 1)
    assert run(tool(name="one")(lambda: 1)) == 1


def test_a_parameter_without_annotation_is_refused_by_name() -> None:
    def bare(a: int, b) -> None:  # type: ignore[no-untyped-def]
        """Nothing."""

    with pytest.raises(ConfigError, match="'bare': parameter 'b' has no type annotation"):
        tool(bare)


def test_parameters_that_cannot_be_given_by_name_are_refused() -> None:
    def many(*values: int) -> None: ...
    def more(**values: int) -> None: ...
    def only(value: int, /) -> None: ...

    for function, name in [(many, "values"), (more, "values"), (only, "value")]:
        with pytest.raises(ConfigError, match=f"parameter '{name}' cannot be given by name"):
            tool(function)


def test_annotations_that_cannot_be_read_are_refused() -> None:
    def odd(a: NoSuchType) -> None:  # type: ignore[name-defined]  # noqa: F821
        """Nothing."""

    with pytest.raises(ConfigError, match="NoSuchType"):
        tool(odd)
    with pytest.raises(ConfigError, match="annotations cannot be read"):
        tool(name="partial")(functools.partial(add.function, b=1))


NAMES = ["json", "schema", "copy", "dict", "validate", "construct", "model_config", "model_fields", "self_", "p1", "p0"]


def test_a_parameter_may_be_called_as_a_models_own_attributes() -> None:
    source = f"def odd({', '.join(f'{name}: int' for name in NAMES)}) -> list[int]:\n    return [{', '.join(NAMES)}]"
    space: dict[str, Any] = {}
    exec(source, space)
    made = tool(side_effects=False)(space["odd"])
    assert made.parameters["required"] == list(made.parameters["properties"]) == NAMES
    given = {name: number for number, name in enumerate(NAMES)}
    assert run(made, json.dumps(given)) == list(range(len(NAMES)))
    with pytest.raises(ToolError, match=r"p5: no such argument; known are json, schema, .*p1, p0$"):
        made.parse(json.dumps({**given, "p5": 1}))


# -- boxes ----------------------------------------------------------------------------------


def test_two_tools_of_one_name_are_refused() -> None:
    other = tool(name="add", side_effects=False)(lambda: 1)
    with pytest.raises(ConfigError, match="two tools named 'add'"):
        Toolbox([add, other])


def test_the_same_name_for_two_audiences_is_no_clash() -> None:
    leader = tool(name="x", audience="leader")(lambda: 1)
    member = tool(name="x", audience="member")(lambda: 2)
    assert toolbox("leader", [leader, member, add])["x"] is leader
    assert toolbox("member", [leader, member, add])["x"] is member
    with pytest.raises(ConfigError, match="two tools named 'x'"):
        toolbox("leader", [leader, tool(name="x")(lambda: 3)])


def test_an_unknown_tool_lists_the_known_ones() -> None:
    with pytest.raises(ToolError, match="no tool 'sub'; you have add"):
        Toolbox([add])["sub"]
    with pytest.raises(ToolError, match="you have none"):
        Toolbox()["add"]


def test_a_box_can_be_narrowed() -> None:
    box = Toolbox([add, tool(name="one")(lambda: 1)])
    assert [item.name for item in box.without(["add"])] == ["one"]
    assert "add" in box
    assert "add" not in box.without(["add"])
    assert box.without(["add"]).definitions == box.definitions[1:]


# -- calling --------------------------------------------------------------------------------


def test_the_context_is_injected_and_never_shown() -> None:
    @tool(side_effects=False)
    async def who(team: ToolContext, text: str) -> tuple[int, str, str]:
        """Who calls."""
        return team.agent_id, team.call_id, text

    assert list(who.parameters["properties"]) == ["text"]
    assert run(who, '{"text": "hi"}') == (1, "call_1", "hi")
    with pytest.raises(ToolError, match="team: no such argument"):
        who.parse('{"text": "hi", "team": 1}')


def test_defaults_are_the_functions_own() -> None:
    assert run(add, '{"a": 1}') == 3
    assert run(add, '{"a": 1, "b": null}') == 3
    assert run(add, '{"a": "1", "b": "5"}') == 6


variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")


def test_a_sync_function_runs_beside_the_loop_with_the_callers_context() -> None:
    seen: list[Any] = []

    @tool(side_effects=False)
    def slow() -> str:
        """Block."""
        seen.append((threading.current_thread(), variable.get()))
        reached.set()
        assert release.wait(5)
        return "done"

    reached, release = threading.Event(), threading.Event()

    async def main() -> None:
        variable.set("here")
        waiting = asyncio.ensure_future(slow.call({}, context()))
        assert await asyncio.to_thread(reached.wait, 5)  # the loop goes on while the function blocks
        assert not waiting.done()
        release.set()
        assert await asyncio.wait_for(waiting, 5) == "done"

    asyncio.run(main())
    ((thread, value),) = seen
    assert thread is not threading.main_thread()
    assert thread.daemon, "a kernel must be able to end while a function computes"
    assert value == "here"


def test_many_sync_functions_block_side_by_side() -> None:
    barrier = threading.Barrier(40, timeout=5)

    @tool(side_effects=False)
    def meet() -> int:
        """Wait for all."""
        return barrier.wait()

    async def main() -> list[Any]:
        return await asyncio.wait_for(asyncio.gather(*(meet.call({}, context()) for _ in range(40))), 10)

    assert sorted(asyncio.run(main())) == list(range(40))


def test_what_a_sync_function_raises_comes_back() -> None:
    @tool(side_effects=False)
    def broken() -> None:
        """Fail."""
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        run(broken)


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), StopIteration(7), asyncio.CancelledError()]
)
def test_a_sync_function_cannot_end_the_loop(error: BaseException) -> None:
    @tool(side_effects=False)
    def leave() -> None:
        """Leave."""
        raise error

    async def main() -> str:
        with pytest.raises(RuntimeError, match=type(error).__name__):
            await leave.call({}, context())
        return "the loop goes on"

    assert asyncio.run(main()) == "the loop goes on"


def test_a_sync_function_that_ends_with_what_has_no_words_still_ends() -> None:
    class MuteEnd(BaseException):
        def __str__(self) -> str:
            raise ValueError("no words")

    @tool(side_effects=False)
    def leave() -> None:
        """Leave."""
        raise MuteEnd

    with pytest.raises(RuntimeError, match="MuteEnd"):
        run(leave)


def test_the_result_of_a_cancelled_call_is_dropped() -> None:
    release, left = threading.Event(), threading.Event()

    @tool(side_effects=False)
    def slow() -> str:
        """Block."""
        release.wait(5)
        left.set()
        return "late"

    async def main() -> None:
        waiting = asyncio.ensure_future(slow.call({}, context()))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        release.set()
        assert await asyncio.to_thread(left.wait, 5)
        await asyncio.sleep(0)

    asyncio.run(main())


# -- results --------------------------------------------------------------------------------


class Shape(BaseModel):
    sides: int


@dataclass
class Plain:
    sides: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text", "text"),
        ("", ""),
        (None, '{"success":true}'),
        (True, "true"),
        (3, "3"),
        (2.5, "2.5"),
        ([1, "é"], '[1,"é"]'),
        ((1, 2), "[1,2]"),
        ({"a": {"b": None}}, '{"a":{"b":null}}'),
        ({1: "x"}, '{"1":"x"}'),
        (float("nan"), "null"),
        (Shape(sides=3), '{"sides":3}'),
        ({"shape": Shape(sides=3)}, '{"shape":{"sides":3}}'),
        ([Plain(4)], '[{"sides":4}]'),
        (datetime.date(2026, 7, 11), '"2026-07-11"'),
        ({"path": Path("/x/y")}, '{"path":"/x/y"}'),
        (2**70, str(2**70)),
        ({"n": -(2**70)}, f'{{"n":{-(2**70)}}}'),
        ("a\udcffb", "a\ufffdb"),
        ({"name": "a\udcffb"}, '{"name":"a\ufffdb"}'),
        ("\ud83d\ude00", "\U0001f600"),
        ({(1, 2): "x"}, "{(1, 2): 'x'}"),
    ],
)
def test_a_result_becomes_text(value: object, text: str) -> None:
    assert result_text(value) == text


def test_what_contains_itself_becomes_text_too() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    assert result_text(loop) == "[1, [...]]"


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None))
    | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
        | st.frozensets(st.integers(), max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(values)
def test_any_result_becomes_text_that_utf8_can_hold(value: object) -> None:
    result_text(value).encode()


@settings(deadline=None)
@given(st.text(st.characters(codec=None)))
def test_an_error_is_json_of_the_agreed_form(message: str) -> None:
    data = json.loads(error_text(message, field="x"))
    assert (data["success"], data["field"]) == (False, "x")
    assert data["error"] == message or any("\ud800" <= char <= "\udfff" for char in message)


def test_nothing_heavy_is_loaded_until_a_call_is_validated() -> None:
    import subprocess

    code = """if True:
        import sys
        from astrion_nb import tool
        @tool
        def f(a: int) -> int: return a
        f.definition
        assert "pydantic" not in sys.modules
        assert f.parse('{"a": "1"}') == {"a": 1}
        assert "pydantic" in sys.modules
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30, cwd=Path(registry.__file__).parents[2])
