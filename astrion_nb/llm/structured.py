"""Tool calls by JSON schema, for endpoints and small models that cannot make them by themselves.

Each response is one JSON object, held to a schema by the endpoint (``response_format``): a call of a
known tool, or something to say. The tools stand as text in the system message, and earlier calls and
results go out as plain messages (:mod:`.plain`), so the endpoint need not know tools at all. What is said
is streamed while it comes (:mod:`.say`). Wraps a model of :mod:`.openai`; opens no socket and knows no vendor.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from ..errors import ModelBroken, ModelError
from ..messages import Message, ToolCall, replace_surrogates
from .assemble import Assembler, with_partial
from .model import Finish, Finished, ModelRequest, ReasoningDelta, StreamEvent, TextDelta, ThinkingMode
from .plain import plain_messages
from .say import SayReader

_MOST = 999_999


class BodyModel(Protocol):
    """What is needed of the model inside; :class:`~astrion_nb.llm.openai.OpenAIModel` has it."""

    key: str
    endpoint: str
    model: str
    context: int | None

    def complete_body(self, body: dict[str, Any], thinking_mode: ThinkingMode) -> dict[str, Any]:
        """Add what every request carries."""
        ...

    def stream_body(self, body: Mapping[str, Any], assembler: Assembler) -> AsyncGenerator[StreamEvent, None]:
        """Send a ready body."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


class StructuredModel:
    """A model whose tool calls are asked for by JSON schema.

    Parameters
    ----------
    inner : BodyModel
        The endpoint; it must honour ``response_format`` of the kind ``json_schema``.
    roles : callable, optional
        Returns the role ids that exist now; a string argument named ``role_id`` must be one of them.
    optional_arguments : bool
        Whether optional arguments may be written. Small models fill them with inventions: ``False``
        leaves only the required ones.
    max_string : int
        Longest string inside arguments, in characters.
    max_text : int
        Longest text said, in characters.
    max_tokens : int
        Sent unless the model's own parameters say otherwise; below 400, calls are cut.
    max_plain : int, optional
        The same for requests without tools, whose answers no schema bounds. Default: ``max_tokens``.
    merge_user : bool
        Whether neighbouring user messages go out as one, for chat templates that demand alternation.
    join_system : bool
        Whether system messages at the beginning go out as one, for chat templates that know only one.
    most_calls : int, optional
        Responses with calls to one message of a person, after which the model may only say something: a
        small model that repeats its calls comes to an end.
    """

    def __init__(
        self,
        inner: BodyModel,
        *,
        roles: Callable[[], Sequence[str]] | None = None,
        optional_arguments: bool = True,
        max_string: int = 160,
        max_text: int = 480,
        max_tokens: int = 512,
        max_plain: int | None = None,
        merge_user: bool = False,
        join_system: bool = False,
        most_calls: int | None = None,
    ) -> None:
        self.inner = inner
        self.key = inner.key
        self.endpoint = inner.endpoint
        self.context = inner.context
        self.roles = roles
        self._optional = optional_arguments
        self._max_string = max_string
        self._max_text = max_text
        self._max_tokens = max_tokens
        self._max_plain = max_tokens if max_plain is None else max_plain
        self._merge_user = merge_user
        self._join_system = join_system
        self._most_calls = most_calls

    def __repr__(self) -> str:
        return f"StructuredModel({self.inner!r})"

    async def close(self) -> None:
        """Close the model inside."""
        await self.inner.close()

    def body(self, request: ModelRequest) -> dict[str, Any]:
        """Return the request's body as it goes out."""
        body: dict[str, Any] = {
            "model": self.inner.model,
            "messages": plain_messages(
                request.messages,
                request.tools,
                merge_user=self._merge_user,
                join_system=self._join_system,
                optional=self._optional,
            ),
            "max_tokens": self._max_tokens if request.tools else self._max_plain,
        }
        if request.tools:
            form = {
                "name": "reply",
                "strict": True,
                "schema": self.schema(request.tools, request.history or request.messages),
            }
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        return self.inner.complete_body(body, request.thinking_mode)

    def schema(self, tools: Iterable[Mapping[str, Any]], messages: Sequence[Message] = ()) -> dict[str, Any]:
        """Return the schema of one response: a call of one of the tools, or a text.

        Parameters
        ----------
        tools : iterable of mapping
        messages : sequence of Message
            The conversation: numbers that it has used are not offered again.
        """
        say = _object({"say": {"type": "string", "maxLength": self._max_text}})
        if self._most_calls is not None and _calls_made(messages) >= self._most_calls:
            return say
        roles = list(self.roles()) if self.roles is not None else []
        return {"anyOf": [*(self._call_schema(tool["function"], roles, messages) for tool in tools), say]}

    def _call_schema(
        self, function: Mapping[str, Any], roles: Sequence[str], messages: Sequence[Message]
    ) -> dict[str, Any]:
        parameters = function.get("parameters") or {}
        required = parameters.get("required") or []
        properties = {
            name: {"type": "string", "enum": list(roles)}
            if name == "role_id" and roles and schema.get("type") == "string"
            else self._bounded(schema)
            for name, schema in (parameters.get("properties") or {}).items()
            if self._optional or name in required
        }
        needed = [name for name in required if name in properties]
        arguments = {**_object(properties), "required": needed}
        if roles and {"role_id", "agent_id"} <= properties.keys():
            # A number counts within its role, and each is used once: offer the one that is next.
            following = _following(messages, function["name"])
            forms = []
            for role in roles:
                fixed = {"role_id": {"const": role}, "agent_id": {"const": following.get(role, 1)}}
                forms.append({**_object({**properties, **fixed}), "required": needed})
            arguments = {"anyOf": forms}
        return _object({"name": {"const": function["name"]}, "arguments": arguments})

    def _bounded(self, schema: Any) -> Any:
        """Return a schema in which a model that lost its way comes to an end."""
        if not isinstance(schema, Mapping):
            return schema
        bounded = {key: value for key, value in schema.items() if key not in ("description", "title", "default")}
        kind = bounded.get("type")
        if kind == "string" and not bounded.keys() & {"enum", "const", "format"}:
            bounded["maxLength"] = min(self._max_string, bounded.get("maxLength", self._max_string))
        elif kind == "integer":
            bounded.setdefault("minimum", 0)
            bounded.setdefault("maximum", _MOST)
        elif kind == "array":
            bounded["items"] = self._bounded(bounded.get("items", {"type": "string"}))
            bounded.setdefault("maxItems", 8)
        elif kind == "object" and bounded.get("properties"):
            bounded["properties"] = {name: self._bounded(each) for name, each in bounded["properties"].items()}
        for union in ("anyOf", "oneOf"):
            if union in bounded:
                bounded[union] = [self._bounded(each) for each in bounded[union]]
        return bounded

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        """Ask, and yield what comes: the text said, then the whole.

        Raises
        ------
        ModelBroken
            The endpoint did not keep to the schema, or was cut off before anything was said.
        ModelError
            The request failed otherwise.
        """
        body = self.body(request)
        if not request.tools:
            async with aclosing(self.inner.stream_body(body, Assembler())) as events:
                async for event in events:
                    yield event
            return
        said = SayReader()
        whole: Finished | None = None
        problem: ModelError | None = None
        try:
            async with aclosing(self.inner.stream_body(body, Assembler())) as events:
                async for event in events:
                    if isinstance(event, ReasoningDelta):
                        yield event
                    elif isinstance(event, TextDelta):
                        piece = said.feed(event.text)
                        if piece:
                            yield TextDelta(piece)
                    else:
                        whole = event
        except ModelError as error:
            problem = with_partial(error, said.text, getattr(error, "usage", None))
        if problem is not None:
            raise problem
        assert whole is not None  # a stream without an end has raised
        rest = said.flush()
        if rest:
            yield TextDelta(rest)
        yield self._finished(request, whole, said)

    def _finished(self, request: ModelRequest, whole: Finished, said: SayReader) -> Finished:
        def finished(text: str, calls: tuple[ToolCall, ...], finish: Finish, *, truncated: bool = False) -> Finished:
            return Finished(text, calls, finish, whole.usage, whole.reasoning, whole.model, truncated)

        if said.started:
            # What was shown is the answer, also when the object's end is missing.
            if said.complete:
                return finished(said.text, (), "stop")
            if said.text:
                return finished(said.text, (), "length", truncated=whole.truncated)
        reply = _parse(whole.text)
        name, arguments = reply.get("name"), reply.get("arguments")
        known = {tool["function"]["name"] for tool in request.tools}
        if not whole.truncated and isinstance(name, str) and isinstance(arguments, dict) and name in known:
            raw = _written(arguments)
            if raw is not None:
                made = ToolCall(f"call_{request.turn}_1", name, replace_surrogates(raw))
                return finished("", (made,), "tool_calls")
        if whole.truncated or whole.finish == "length":
            message = f"the answer of model {self.key!r} was cut off inside a call; a larger max_tokens may help"
        else:
            message = (
                f"model {self.key!r} did not keep to the schema of its answer; structured calls need an endpoint "
                "that honours response_format json_schema"
            )
        raise with_partial(ModelBroken(message), "", whole.usage)


def _calls_made(messages: Sequence[Message]) -> int:
    """Count the responses with calls since a person last wrote; reports of agents do not start anew."""
    count = 0
    for message in reversed(messages):
        if message.role == "user" and message.metadata.get("message_source") in ("user", None):
            break
        count += message.role == "assistant" and bool(message.tool_calls)
    return count


def _following(messages: Sequence[Message], tool: str) -> dict[str, int]:
    """Return, by role, the number after the highest that a conversation's calls of a tool have named."""
    following: dict[str, int] = {}
    for message in messages:
        for call in message.tool_calls:
            if call.name != tool:
                continue
            arguments = _parse(call.arguments)
            role, number = arguments.get("role_id"), arguments.get("agent_id")
            if isinstance(role, str) and isinstance(number, int) and number < _MOST:
                following[role] = max(following.get(role, 1), number + 1)
    return following


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _parse(text: str) -> dict[str, Any]:
    try:
        reply = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return {}
    return reply if isinstance(reply, dict) else {}


def _written(arguments: dict[str, Any]) -> str | None:
    try:
        return json.dumps(arguments, ensure_ascii=False)
    except RecursionError:
        return None
