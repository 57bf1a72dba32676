"""Tools: a function is a tool, and its definition is its registration.

``@tool`` turns a function into a :class:`Tool`: name, description and JSON schema come from the
signature; a parameter annotated :class:`ToolContext` is injected and never shown to a model.
Arguments are validated more widely than the schema says (decision 21): numbers may come as
strings, agents by name, ``null`` stands for a missing optional argument, and the two pairs of
aliases of decision 4 are understood. Whatever a model sends becomes a result or an error result.

This module knows no particular tool, no team and no transport.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, get_args, get_type_hints, overload

import orjson

from .. import given
from ..errors import ConfigError, ToolError
from ..messages import replace_surrogates
from .plain import plain_schema

if TYPE_CHECKING:
    from .desk import Desk

Audience = Literal["leader", "member", "both"]
Effect = Literal["", "read", "write", "run", "net"]
"""What a tool does outside the team: nothing (or what its author answers for), read or write files, run a
program, reach a network."""
Preview = Callable[[Mapping[str, Any], "Desk"], str]
"""Returns what a person should see of a call before allowing it, beside its arguments."""
AgentRef = Annotated[int | str, "astrion:agent"]
"""An agent by number or display name; its schema says ``integer``, as the specification does."""

_NAME_PATTERN = r"[a-zA-Z0-9_-]{1,64}"
_ALIASES = {"question_id": "message_id", "message_id": "question_id", "model": "model_key", "model_key": "model"}


class RoleLike(Protocol):
    """What a team needs to know of a role."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def model(self) -> str | None: ...
    @property
    def thinking_mode(self) -> str | None: ...

    def system_prompt(self, base: str) -> str:
        """Return the base prompt followed by the role's own."""
        ...


class TeamPort(Protocol):
    """What tools may do with the team they are called in. All but ``ask`` return at once."""

    home: Any

    def load_role(self, role_id: str) -> RoleLike: ...
    def list_roles(self) -> Any: ...
    def check_model_key(self, key: str) -> None: ...
    def create(
        self,
        role: RoleLike,
        instance: int | None,
        task: str,
        *,
        background: bool = False,
        timeout: float = 600.0,
        thinking_mode: str | None = None,
        model_key: str | None = None,
    ) -> dict[str, Any]: ...
    def terminate(self, caller: int, target: int | str) -> dict[str, Any]: ...
    def stop_agent(self, caller: int, target: int | str, reason: str) -> dict[str, Any]: ...
    def send(self, caller: int, target: int | str, text: str) -> dict[str, Any]: ...
    def notify(self, caller: int, target: int | str, text: str, message_id: str | None) -> dict[str, Any]: ...
    async def ask(
        self, caller: int, target: int | str, text: str, question_id: str | None, *, call_id: str, tool: str
    ) -> dict[str, Any]: ...
    def answer(self, caller: int, asker: int | str | None, question_id: str, text: str) -> dict[str, Any]: ...
    def active(self, caller: int) -> list[dict[str, Any]]: ...
    def describe(self, target: int | str) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool knows of the call it serves.

    Parameters
    ----------
    agent_id : int
        The calling agent; 0 is the leader.
    call_id : str
        Id of the tool call.
    team : TeamPort
    desk : Desk, optional
        What the base tools work on.
    output : callable
        ``output(text)`` shows text while the call goes on; from any thread. Nothing of it is kept.
    """

    agent_id: int
    call_id: str
    team: TeamPort
    desk: Desk | None = None
    output: Callable[[str], None] = lambda text: None


@dataclass(slots=True)
class Tool:
    """A function that models can call.

    Parameters
    ----------
    name, description : str
    function : callable
        Sync (run on a thread of its own) or async (run on the team's loop).
    audience : {"leader", "member", "both"}
        Who is offered it.
    side_effects : bool
        Whether it touches the world: then everything before it is on disk when it starts, and it
        is never run a second time.
    scope : str or None
        Kind of the tool: ``team`` for those that stay within the team, of which a small model is
        offered a part; ``None`` for a function of the user's.
    effect : {"", "read", "write", "run", "net"}
        What permissions judge it by.
    preview : callable, optional
        Returns what a person should see before allowing a call.
    """

    name: str
    description: str
    function: Callable[..., Any]
    audience: Audience = "both"
    side_effects: bool = True
    scope: str | None = None
    effect: Effect = ""
    preview: Preview | None = field(default=None, repr=False)
    context_parameter: str | None = None
    is_async: bool = False
    _parameters: dict[str, Any] | None = field(default=None, repr=False)
    _validator: Any = field(default=None, repr=False)
    _optional: frozenset[str] = field(default=frozenset(), repr=False)
    _names: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of the arguments."""
        if self._parameters is None:
            self._parameters = plain_schema(self.function, self.context_parameter)
        if self._parameters is None:
            self._build()
        assert self._parameters is not None
        return self._parameters

    @property
    def definition(self) -> dict[str, Any]:
        """The tool in chat-completions form."""
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": self.parameters},
        }

    def prepare(self) -> None:
        """Build schema and checks now, while the function that they come from is at hand."""
        if self._validator is None:
            self._build()

    def _build(self) -> None:
        from .schema import build

        self._parameters, self._validator, self._names, self._optional = build(
            self.name, self.function, self.context_parameter
        )

    def parse(self, arguments: str) -> dict[str, Any]:
        """Read and validate the JSON text that a model wrote.

        Raises
        ------
        ToolError
            Names the field and says what it must be.
        """
        self.prepare()
        data = _decode(arguments)
        for alias, name in _ALIASES.items():
            if alias in data and alias not in self._names and name in self._names and name not in data:
                data[name] = data.pop(alias)
        for name in self._optional:
            if name in data and data[name] is None:
                del data[name]
        from .schema import validate

        return validate(self._validator, data)

    def call(self, arguments: Mapping[str, Any], context: ToolContext) -> Awaitable[Any]:
        """Start the function with validated arguments; returns an awaitable of its value."""
        values = dict(arguments)
        if self.context_parameter is not None:
            values[self.context_parameter] = context
        if self.is_async:
            result: Awaitable[Any] = self.function(**values)
            return result
        from .threads import in_thread

        return _awaited(in_thread(self.function, values))


async def _awaited(started: Awaitable[Any]) -> Any:
    """Return the value; a wrapper or a callable object does not show that what it wraps is asynchronous."""
    value = await started
    return await value if inspect.isawaitable(value) else value


def _decode(arguments: str) -> dict[str, Any]:
    if not arguments.strip() or arguments.strip() == "null":
        return {}
    try:
        data = orjson.loads(arguments)
    except orjson.JSONDecodeError as error:
        raise ToolError(_json_fault(arguments, error)) from None
    if not isinstance(data, dict):
        kind = {list: "a list", str: "a string", bool: "a boolean", type(None): "null"}.get(type(data), "a number")
        raise ToolError(f'arguments: must be a JSON object like {{"name": value}}, not {kind}')
    return data


def _json_fault(arguments: str, error: ValueError) -> str:
    """Say what is wrong with arguments that strict JSON refuses, naming the field where that can be told."""
    import json

    refused = f"arguments: not valid JSON ({error}); write one JSON object"
    if any(word in str(error).lower() for word in ("depth", "recursion")):
        return refused  # each Python's own reader goes to another depth, and what a model is told may not differ
    found: list[str] = []

    def constant(name: str) -> str:
        found.append(name)
        return f"\0{name}"

    try:
        data = json.loads(arguments, parse_constant=constant)
    except (ValueError, RecursionError):
        return refused
    for key, value in data.items() if isinstance(data, dict) else ():
        place = key if key and key.isprintable() else repr(key)
        if isinstance(value, str) and value.startswith("\0"):
            return f"{place}: {value[1:]} is not a number that JSON allows"
        try:
            orjson.loads(json.dumps(value))
        except orjson.JSONDecodeError as fault:
            return f"{place}: {fault.msg.partition(':')[0]}"
    return f"arguments: {found[0] if found else error} is not allowed in JSON"


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    audience: Audience = "both",
    side_effects: bool = True,
    scope: str | None = None,
    effect: Effect = "",
    preview: Preview | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    audience: Audience = "both",
    side_effects: bool = True,
    scope: str | None = None,
    effect: Effect = "",
    preview: Preview | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a function a tool.

    Parameters
    ----------
    function : callable
        Its parameters become the schema: annotate them with ``int``, ``str``, ``bool``, ``float``,
        ``Literal[...]``, ``list[...]`` or pydantic models; ``Annotated[T, "text"]`` describes one.
        Parameters with a default are optional.
    name, description : str, optional
        Default: the function's name, the first paragraph of its docstring.
    audience : {"leader", "member", "both"}
    side_effects : bool
        Set to ``False`` for a function that only computes or reads.
    scope : str, optional
    effect : {"", "read", "write", "run", "net"}
        What permissions judge it by; by default its author answers for it, and nobody is asked.
    preview : callable, optional
        ``preview(arguments, desk)`` returns what a person should see before allowing a call.

    Returns
    -------
    Tool
        Pass it to ``Team(tools=[...])``.

    Raises
    ------
    ConfigError
        The name is not one that models can call, or a parameter has no annotation.

    Examples
    --------
    >>> @tool(side_effects=False)
    ... def word_count(text: Annotated[str, "Text to count."]) -> int:
    ...     "Count the words of a text."
    ...     return len(text.split())
    >>> word_count.definition["function"]["parameters"]["required"]
    ['text']
    """
    if function is None:
        return lambda inner: _make(inner, name, description, audience, side_effects, scope, effect, preview)
    return _make(function, name, description, audience, side_effects, scope, effect, preview)


def _make(
    function: Callable[..., Any],
    name: str | None,
    description: str | None,
    audience: Audience,
    side_effects: bool,
    scope: str | None,
    effect: Effect,
    preview: Preview | None,
) -> Tool:
    import re

    if not callable(function):
        raise given.refused("tool: the function", function, "use a function; its parameters become the tool's")
    given.text("tool: name", name, none=True)
    given.text("tool: description", description, none=True)
    given.text("tool: scope", scope, none=True)
    given.one_of("tool: audience", audience, ("leader", "member", "both"))
    given.switch("tool: side_effects", side_effects)
    given.one_of("tool: effect", effect, get_args(Effect))
    if preview is not None and not callable(preview):
        raise given.refused("tool: preview", preview, "use a function of the arguments and the desk, or None")
    tool_name = name if name is not None else str(getattr(function, "__name__", ""))
    if not re.fullmatch(_NAME_PATTERN, tool_name):
        raise ConfigError(
            f"tool: name is {given.shown(tool_name)}; use 1 to 64 of a-z, A-Z, 0-9, '_', '-'; pass name=…"
        )
    try:
        hints = get_type_hints(function, include_extras=True)
        signature = inspect.signature(function)
    except Exception as error:  # whatever evaluating an annotation raises
        told = " ".join(str(error).split())
        raise ConfigError(
            f"tool {tool_name!r}: its annotations cannot be read ({told}); import what they name"
        ) from None
    context_parameter = None
    for parameter in signature.parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConfigError(
                f"tool {tool_name!r}: parameter {parameter.name!r} cannot be given by name; make it a plain one"
            )
        annotation = hints.get(parameter.name)
        if annotation is ToolContext:
            context_parameter = parameter.name
        elif annotation is None:
            raise ConfigError(f"tool {tool_name!r}: parameter {parameter.name!r} has no type annotation; add one")
    doc = inspect.cleandoc(function.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    return Tool(
        tool_name,
        description if description is not None else doc,
        function,
        audience,
        side_effects,
        scope,
        effect,
        preview,
        context_parameter,
        inspect.iscoroutinefunction(function),
    )


class Toolbox:
    """The tools of one audience, by name, in order.

    Parameters
    ----------
    tools : iterable of Tool
        Later ones may not repeat an earlier name.

    Raises
    ------
    ConfigError
        A name occurs twice.
    """

    __slots__ = ("_by_name", "definitions")

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._by_name: dict[str, Tool] = {}
        for item in tools:
            if item.name in self._by_name:
                raise ConfigError(f"there are two tools named {item.name!r}; rename one with @tool(name=…)")
            self._by_name[item.name] = item
        self.definitions: tuple[dict[str, Any], ...] = tuple(item.definition for item in self._by_name.values())

    def __getitem__(self, name: str) -> Tool:
        found = self._by_name.get(name)
        if found is None:
            raise ToolError(f"there is no tool {name!r}; you have {', '.join(self._by_name) or 'none'}")
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Any:
        return iter(self._by_name.values())

    def without(self, names: Iterable[str]) -> Toolbox:
        """Return a toolbox that lacks the named tools."""
        gone = set(names)
        return Toolbox(item for item in self._by_name.values() if item.name not in gone)


def toolbox(audience: Literal["leader", "member"], tools: Iterable[Tool]) -> Toolbox:
    """Return the tools that an audience is offered, in the order given."""
    return Toolbox(item for item in tools if item.audience in (audience, "both"))


def result_text(value: Any) -> str:
    """Return the text that a model reads as the result of a tool.

    Strings stay as they are; everything else becomes JSON (what JSON cannot say, its ``str``). A
    lone surrogate, such as a file name that is not UTF-8 may hold, becomes U+FFFD.
    """
    if isinstance(value, str):
        return replace_surrogates(value)
    if value is None:
        value = {"success": True}
    return _json(value)


def _json(value: Any) -> str:
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # a large integer, a lone surrogate, a key that is no plain value: json knows them
        import json

        try:
            return replace_surrogates(json.dumps(value, ensure_ascii=False, default=_plain, separators=(",", ":")))
        except (TypeError, ValueError, RecursionError):
            return replace_surrogates(str(value))


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else str(value)


def error_text(message: str, **more: Any) -> str:
    """Return the error result of decision 21: ``{"success": false, "error": …}``."""
    return _json({"success": False, "error": message, **more})
