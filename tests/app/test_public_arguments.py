"""Whatever is handed to the public functions: it is taken, or refused in one line, and nothing is lost."""

from __future__ import annotations

import asyncio
import inspect
import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.scripts import conversations
from support.teams import BOUND

from astrion_nb import Limits, Role, ScriptedModel, Team, roles, tool
from astrion_nb.app.config import Config
from astrion_nb.errors import AstrionError, ConfigError, RoleError, ScriptError, TeamBusy, TeamError
from astrion_nb.home import Home
from astrion_nb.llm.scripted import call, fail, say, until_message

Takes = Callable[[Any], bool]


class Loud:
    """As a table of data: its text has many lines."""

    def __repr__(self) -> str:
        return "a\n  table\n" * 40


class Broken:
    """As an array: it is neither equal nor true, and here it cannot even be written."""

    def __repr__(self) -> str:
        raise ValueError("no text")

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value is ambiguous")

    def __bool__(self) -> bool:
        raise ValueError("the truth value is ambiguous")

    __hash__ = None  # type: ignore[assignment]


class BrokenPath:
    """A path that cannot tell its name."""

    def __fspath__(self) -> str:
        raise OSError("gone")


def endless() -> Any:
    yield "researcher"
    raise RuntimeError("the list broke off")


class Anything:
    """A model's attributes, on a class instead of a model."""

    key = endpoint = stream = close = ""


ODD: list[Any] = [
    None, True, False, 0, -1, 5, 10**400, 1.5, math.nan, math.inf, -math.inf, 1j,
    "", " ", "word", "a\0b", "\ud800", "two\nlines", "x" * 5000, b"word", bytearray(b"x"),
    [], [3], [None], ["a\0b"], ["No Role"], [[]], (), ("a", "b", "c"), {}, {"a": 1}, {1: [2]}, {3}, frozenset(),
    object(), Loud(), Broken(), BrokenPath(), Anything, int, print, len, lambda: 1, Path("p"), Path("a\0b"),
    Exception("two\nlines"), Ellipsis, NotImplemented, range(3),
]  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(ODD),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=5),
    st.lists(st.one_of(st.integers(), st.text(max_size=5), st.none()), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def text(value: Any) -> bool:
    return isinstance(value, str)


def full(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def switch(value: Any) -> bool:
    return isinstance(value, bool)


def mapping(value: Any) -> bool:
    return isinstance(value, dict)


def number(value: Any) -> bool:
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 and math.isfinite(value)
    except OverflowError:
        return False


def whole(value: Any) -> bool:
    return isinstance(value, int) and number(value)


def agent(value: Any) -> bool:
    return full(value) or (isinstance(value, int) and not isinstance(value, bool))


def path(value: Any) -> bool:
    """Say whether a value can name a file; a byte that is no character is one (PEP 383)."""
    unnameable = re.compile("[\0-\x1f\x7f\ud800-\udc7f\udd00-\udfff]|[^/]{256}")
    return isinstance(value, (str, Path)) and not unnameable.search(str(value))


def folder(value: Any) -> bool:
    return path(value) and value != ""


def role_id(value: Any) -> bool:
    return text(value) and roles.validate(Role(value, "N", "d")) == ()


def role_ids(value: Any) -> bool:
    return isinstance(value, (list, tuple, set, frozenset, range)) and all(role_id(item) for item in value)


def functions(value: Any) -> bool:
    return isinstance(value, (list, tuple, set, frozenset, range)) and not value


def none(takes: Takes) -> Takes:
    return lambda value: value is None or takes(value)


def words(*known: str) -> Takes:
    return lambda value: text(value) and value in known


TEAM: dict[str, Takes] = {
    "title": none(text),
    "roles": none(role_ids),
    "model": none(text),
    "all_models": none(text),
    "leader": words("model", "human"),
    "mode": words("fast", "thinking", "deep"),
    "conversation": none(text),
    "read_only": lambda value: value is False,  # of a new conversation nothing else makes sense
    "take_over": lambda value: value is False,
    "replay": none(path),
    "record": none(path),
    "permission": words("ask", "read-only", "auto"),
    "tools": functions,
    "limits": none(lambda value: False),
    "home": none(folder),
    "language": none(words("zh", "en", "", " ")),
    "human": none(switch),
    "durability": words("sync", "relaxed"),
    "project_path": none(path),
    "config": none(lambda value: False),
}
METHODS: dict[str, dict[str, Takes]] = {
    "run": {"text": full, "timeout": none(number)},
    "start": {"text": full},
    "wait": {"timeout": none(number)},
    "ask": {"target": agent, "text": full, "timeout": none(number)},
    "send": {"target": agent, "text": full},
    "answer": {"question_id": full, "text": full},
    "approve": {"question_id": full, "lasting": switch, "digest": none(text)},
    "deny": {"question_id": full, "reason": text, "digest": none(text)},
    "stop": {"agent": none(agent), "reason": text},
    "terminate": {"agent": agent},
    "request": {"agent": agent, "turn": none(whole)},
    "events": {"since": lambda value: whole(value) or (type(value) is int and value == 0)},
    "watch": {"view": callable},
    "rename": {"title": full},
    "archive": {"archived": switch},
}
WELL: dict[str, Any] = {"text": "Hello.", "target": "leader", "agent": "leader", "question_id": "ask_x"}
ROLE: dict[str, Takes] = {
    "id": text, "name": text, "description": text, "prompt": text, "model": none(text), "thinking_mode": none(text),
    "extra": lambda value: isinstance(value, dict) and all(map(text, value)),
    "path": none(lambda value: isinstance(value, Path)),
    "preset": switch,
    "warnings": lambda value: isinstance(value, tuple) and all(map(text, value)),
    "keys": lambda value: isinstance(value, tuple) and all(map(text, value)),
}  # fmt: skip
LIMITS: dict[str, Takes] = {
    name: none(number if name.endswith("cost") else whole) for name in inspect.signature(Limits).parameters
}
MODEL: dict[str, Takes] = {
    "script": lambda value: (
        value == [] or value == () or value == {} or value == frozenset()
        if isinstance(value, (list, tuple, dict, frozenset, set))
        else isinstance(value, range) and not len(value)
    ),
    "key": full,
    "tokens_per_second": none(number),
    "check_on_close": switch,
}
TOOL: dict[str, Takes] = {
    "name": none(lambda value: text(value) and value.isascii() and value.isalpha() and len(value) <= 64),
    "description": none(text),
    "audience": words("leader", "member", "both"),
    "side_effects": switch,
    "scope": none(text),
    "effect": words("", "read", "write", "run", "net"),
    "preview": none(callable),
}


def function(count: int) -> str:
    """Count."""
    return str(count)


def in_one_line(error: AstrionError | None, name: str) -> None:
    assert error is not None
    said = str(error)
    assert name in said
    assert len(said.splitlines()) == 1
    assert said.isprintable()
    assert len(said) < 300
    assert error._render_traceback_() == [f"{type(error).__name__}: {said}"]


async def refused(deed: Callable[[], Any]) -> AstrionError | None:
    """Do something, at once or in time; return how it was refused."""
    try:
        done = deed()
        async with asyncio.timeout(BOUND):
            if inspect.isasyncgen(done):
                await anext(done)
            elif inspect.isawaitable(done):
                await done
    except AstrionError as error:
        return error
    return None


def judged(deed: Callable[[Any], Any], takes: Takes, value: Any, name: str, error: type[AstrionError]) -> None:
    """Hand a value in; it is taken exactly where it is said to be."""
    if takes(value):
        deed(value)
        return
    with pytest.raises(error) as raised:
        deed(value)
    in_one_line(raised.value, name)


def parameters(function: Any) -> set[str]:
    return {name for name in inspect.signature(function).parameters if name != "self"}


def of(table: dict[str, Takes]) -> Any:
    return pytest.mark.parametrize("name", sorted(table))


anything = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own to be in: relative paths are taken."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_tables_name_every_parameter_there_is() -> None:
    assert set(TEAM) == parameters(Team.__init__)
    public = {name for name, member in inspect.getmembers(Team, inspect.isfunction) if not name.startswith("_")}
    with_parameters = {name for name in public if parameters(getattr(Team, name))}
    assert set(METHODS) == with_parameters - {"only_now", "prices", "close_now"}, "those are called by this package"
    for name, table in METHODS.items():
        assert set(table) == parameters(getattr(Team, name)), name
    assert set(ROLE) == parameters(Role)
    assert set(MODEL) == parameters(ScriptedModel)
    assert set(TOOL) == parameters(tool) - {"function"}


@of(TEAM)
@given(value=VALUES)
@anything
def test_a_team_takes_a_parameter_or_names_it(name: str, value: Any) -> None:
    if name == "language" and text(value) and value.lower().startswith(("zh", "en")):
        return  # forms such as zh_CN
    if name in ("record", "replay") and text(value) and not value.strip():
        return  # not said
    if name == "home" and folder(value) and ("~" in str(value) or len(str(value)) > 200):
        return  # somebody's own folder; no folder's name
    judged(lambda it: Team(**{name: it}), TEAM[name], value, name.rstrip("s"), AstrionError)


@of(TEAM)
def test_a_team_that_took_something_odd_opens_or_says_in_one_line_why_not(name: str) -> None:
    async def main() -> None:
        for value in filter(TEAM[name], ODD):
            given: dict[str, Any] = {"model": ScriptedModel([], check_on_close=False), name: value}
            team = Team(**given)
            try:
                refusal = await refused(team.open)
                assert refusal is None or len(str(refusal).splitlines()) == 1
            finally:
                await team.close()

    asyncio.run(main())


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_team_at_rest_refuses_what_cannot_be_meant_and_loses_nothing(method: str) -> None:
    async def main() -> None:
        async with Team(model=ScriptedModel([say("Done."), say("Still here.")])) as team:
            await team.run("Go.")
            before, seq = team.transcript, team.state.seq
            for name, takes in METHODS[method].items():
                others = {key: WELL[key] for key in METHODS[method] if key != name and key in WELL}
                for value in ODD:
                    if takes(value):
                        continue
                    refusal = await refused(partial(getattr(team, method), **others, **{name: value}))
                    in_one_line(refusal, method)
            assert (team.transcript, team.state.seq) == (before, seq)
            assert (await team.run("And now?", timeout=5)).text == "Still here."

    asyncio.run(main())


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_team_that_was_never_used_refuses_the_same_and_makes_no_conversation(method: str) -> None:
    async def main() -> None:
        team = Team(model=ScriptedModel([], check_on_close=False))
        name, takes = next(iter(METHODS[method].items()))
        others = {key: WELL[key] for key in METHODS[method] if key != name and key in WELL}
        for value in ODD:
            if not takes(value):
                assert isinstance(await refused(partial(getattr(team, method), **others, **{name: value})), ConfigError)
        assert conversations() == []
        await team.close()

    asyncio.run(main())


@of(ROLE)
@given(value=VALUES)
@anything
def test_a_role_is_made_of_what_its_fields_are(name: str, value: Any) -> None:
    well = {"id": "poet", "name": "Poet", "description": "Writes.", "prompt": ""}
    judged(lambda it: Role(**{**well, name: it}), ROLE[name], value, name, RoleError)


@of({name: ROLE[name] for name in ("id", "name", "thinking_mode", "model")})
@given(value=st.one_of(st.sampled_from([item for item in ODD if text(item)]), st.text()))
@anything
def test_a_role_that_cannot_be_used_reaches_no_team_and_no_file(name: str, value: str) -> None:
    role = Role(**{"id": "poet", "name": "Poet", "description": "Writes.", name: value})  # type: ignore[arg-type]
    problems = roles.validate(role)
    if not problems:
        Team(roles=[role])
        return
    for deed in (lambda: Team(roles=[role]), lambda: roles.save(role)):
        with pytest.raises(RoleError) as raised:
            deed()
        assert len(str(raised.value).splitlines()) == 1
    assert not Home().agents.exists()


@of(LIMITS)
@given(value=VALUES)
@anything
def test_limits_are_numbers_above_nothing(name: str, value: Any) -> None:
    judged(lambda it: Limits(**{name: it}), LIMITS[name], value, name, ConfigError)


@of(MODEL)
@given(value=VALUES)
@anything
def test_a_scripted_model_takes_steps_and_nothing_else(name: str, value: Any) -> None:
    judged(lambda it: ScriptedModel(**{name: it}), MODEL[name], value, "ScriptedModel", ScriptError)


@pytest.mark.parametrize(
    "script",
    [
        {"a": say("x")},
        {"a": "x"},
        {3: [say("x")]},
        [("a",)],
        [("a", say("x"), 3)],
        [("a", "x")],
        ["x"],
        "Hello.",
        say("x"),
    ],
)
def test_a_script_of_a_wrong_form_adds_no_step(script: Any) -> None:
    model = ScriptedModel([say("first")])
    with pytest.raises(ScriptError, match=r"ScriptedModel: .*; (use|build|it must)"):
        model.extend(script)
    assert model.unused() == {"*": 1}


@pytest.mark.parametrize(
    "deed",
    [
        lambda: say(5),
        lambda: say("x", chunks="x"),
        lambda: say("x", chunks=[1]),
        lambda: say("x", usage=(1,)),
        lambda: say("x", usage=(-1, 2)),
        lambda: say("x", usage=5),
        lambda: say("x", reasoning=None),
        lambda: say("x", after_message="yes"),
        lambda: say("x", finish="soon"),
        lambda: call(5),
        lambda: call("f", 5),
        lambda: call("f", when=object()),
        lambda: fail(ValueError("x")),
        lambda: fail("x"),
        lambda: until_message("x"),
    ],
)
def test_a_step_is_refused_where_it_is_written(deed: Callable[[], Any]) -> None:
    with pytest.raises(ScriptError) as raised:
        deed()
    in_one_line(raised.value, "")


@of(TOOL)
@given(value=VALUES)
@anything
def test_a_tool_takes_a_parameter_or_names_it(name: str, value: Any) -> None:
    if name == "name" and text(value) and set(value) & set("0123456789_-"):
        return
    judged(lambda it: tool(**{name: it})(function), TOOL[name], value, name, ConfigError)


@pytest.mark.parametrize("value", [item for item in ODD if not callable(item) and item is not None])
def test_what_is_no_function_is_no_tool(value: Any) -> None:
    for deed in (lambda: tool(value), lambda: Team(tools=[value])):
        with pytest.raises(ConfigError) as raised:
            deed()
        in_one_line(raised.value, "tool")


def odd_annotation(x: "no such [ thing"): ...  # type: ignore[syntax,no-untyped-def]  # noqa: F722
def failing_annotation(x: "1 / 0"): ...  # type: ignore[valid-type,no-untyped-def]  # noqa: UP037
def object_of_ours(x: Loud): ...  # type: ignore[no-untyped-def]
def generator_of_ours(x: Callable[[int], Broken]) -> None: ...


@pytest.mark.parametrize(
    "value", [int, dict, type, print, len, odd_annotation, failing_annotation, object_of_ours, lambda x: x]
)
def test_a_function_that_models_cannot_call_is_refused_before_a_conversation_is_made(value: Any) -> None:
    async def main() -> None:
        async with Team(model=ScriptedModel([], check_on_close=False), tools=[value]):
            pass

    try:
        with pytest.raises(ConfigError) as raised:
            asyncio.run(main())
        in_one_line(raised.value, "tool")
    finally:
        assert conversations() == []


@pytest.mark.parametrize(
    ("deed", "name"),
    [
        (lambda it: roles.load(it), "role"),
        (lambda it: roles.load("researcher", it), "home"),
        (lambda it: roles.load_file(it), "path"),
        (lambda it: roles.list(it), "home"),
        (lambda it: roles.save(it), "role"),
        (lambda it: roles.save(Role("a", "A", "d"), overwrite=it), "overwrite"),
        (lambda it: roles.save(Role("a", "A", "d"), home=it), "home"),
        (lambda it: roles.validate(it), "role"),
        (lambda it: roles.check_id(it), "role"),
        (lambda it: roles.ensure_builtin(it), "home"),
        (lambda it: roles.ensure_builtin(None, it), "lang"),
        (lambda it: roles.in_language(it, "en"), "role"),
        (lambda it: roles.in_language(Role("a", "A", "d"), it), "lang"),
    ],
)
def test_the_functions_about_roles_refuse_in_one_line(deed: Callable[[Any], Any], name: str) -> None:
    known = {"home": none(folder), "path": path, "overwrite": switch, "lang": none(words("zh", "en"))}
    takes = known.get(name, lambda value: False)
    for value in ODD:
        # A text is no role, and may be somebody's id; another language is none.
        if not takes(value) and not (name == "role" and role_id(value)):
            with pytest.raises((RoleError, ConfigError)) as raised:
                deed(value)
            in_one_line(raised.value, name)
    assert not Home().agents.joinpath("a.md").exists()


def test_a_team_of_the_roles_there_are_can_be_made_of_what_lists_them() -> None:
    Team(roles=roles.list())
    Team(roles=(name for name in ("researcher", "ui-operator")))


def test_a_list_that_breaks_off_is_refused() -> None:
    with pytest.raises(ConfigError, match="roles"):
        Team(roles=endless())


def test_a_config_says_everything_and_nothing_beside_it_is_dropped_in_silence() -> None:
    config = Config.load()
    for beside in ({"model": "openai"}, {"home": "x"}, {"language": "zh"}, {"replay": "x"}, {"all_models": "x"}):
        with pytest.raises(ConfigError, match=f"leave it or {next(iter(beside))} out"):
            Team(config=config, **beside)  # type: ignore[arg-type]
    Team(config=config, model=ScriptedModel([]))


def test_a_message_that_nobody_can_take_begins_no_run_that_would_never_end() -> None:
    async def main() -> None:
        async with Team(
            model=ScriptedModel([say("Hello.")]),
            leader="human",
            roles=["researcher"],
            limits=Limits(max_agents=1),
        ) as team:
            for deed in (team.send("leader", "x"), team.ask("leader", "x"), team.send(" ' leader ' ", "x")):
                with pytest.raises(TeamError, match="you are the leader"):
                    await deed
            assert not team.running
            await team.run("Go.", timeout=5)
            with pytest.raises(TeamError, match="max_agents"):
                await team.send("' researcher '", "Another.")
            assert not team.running
            try:
                await team.wait(timeout=5)
            except TeamBusy:
                pytest.fail("a run was begun that nobody ends")

    asyncio.run(main())
