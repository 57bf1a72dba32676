"""From stored messages to the chat-completions wire form; pure, no socket and no SDK.

What an endpoint must not see stays behind: message ids, metadata, names. What it would refuse is
mended in a way that depends on the message alone, so that successive requests share their prefix
byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import orjson

from ..errors import ConfigError
from ..messages import Message, ToolCall, replace_surrogates

ReasoningProfile = Literal["strip", "echo"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")


def wire_messages(
    messages: Iterable[Message], *, reasoning: ReasoningProfile = "strip", join_system: bool = False
) -> list[dict[str, Any]]:
    """Return the messages as an endpoint takes them.

    Parameters
    ----------
    messages : iterable of Message
    reasoning : {"strip", "echo"}
        ``echo`` sends the reasoning text of assistant messages with tool calls back, as some
        endpoints demand; others refuse the field.
    join_system : bool
        Whether system messages at the beginning go out as one, for endpoints that refuse a second one.

    Notes
    -----
    No ``name`` field is ever written. An assistant message with neither text nor calls is left out.
    """
    out: list[dict[str, Any]] = []
    for message in messages:
        role = message.role
        if role == "tool":
            out.append({"role": "tool", "tool_call_id": message.tool_call_id or "", "content": message.content or ""})
        elif role == "assistant":
            if message.tool_calls:
                wired: dict[str, Any] = {"role": "assistant", "content": message.content}
                if reasoning == "echo":
                    wired["reasoning_content"] = str(message.metadata.get("reasoning_content") or "")
                wired["tool_calls"] = [_wire_call(call) for call in message.tool_calls]
                out.append(wired)
            elif message.content:
                out.append({"role": "assistant", "content": message.content})
        else:
            out.append({"role": role, "content": message.content or ""})
    return joined_system(out) if join_system else out


def joined_system(wired: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages of the wire with the system messages at their beginning as one."""
    count = next((place for place, message in enumerate(wired) if message["role"] != "system"), len(wired))
    if count < 2:
        return wired
    content = "\n\n".join(message["content"] for message in wired[:count])
    return [{"role": "system", "content": content}, *wired[count:]]


def _wire_call(call: ToolCall) -> dict[str, Any]:
    name = call.name if _NAME.match(call.name) else tool_name(call.name)
    return {"id": call.id, "type": "function", "function": {"name": name, "arguments": object_text(call.arguments)}}


def tool_name(name: str) -> str:
    """Return a name that endpoints accept for one that a model made up."""
    return re.sub(r"[^a-zA-Z0-9_-]+", "_", name)[:64].strip("_") or "unknown_tool"


def object_text(arguments: str) -> str:
    """Return argument text that is a JSON object.

    A model may write anything; endpoints refuse a history in which arguments are no object. What it
    wrote is kept inside one, so that the error result that answers it still makes sense.
    """
    if arguments == "{}":
        return arguments
    try:
        if isinstance(orjson.loads(arguments), dict):
            return arguments
    except ValueError:
        pass
    return orjson.dumps({"invalid_arguments": replace_surrogates(arguments)}).decode()


def encode(body: Mapping[str, Any]) -> bytes:
    """Return the JSON bytes of a request body; lone surrogates become U+FFFD.

    Raises
    ------
    ConfigError
        A parameter of the body is nothing that JSON can say.
    """
    try:
        return orjson.dumps(body)
    except TypeError:
        pass
    try:
        return orjson.dumps(_clean(body))
    except (TypeError, RecursionError) as error:
        raise ConfigError(f"the request cannot be written as JSON ({error}): correct fast, thinking or extra") from None


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, Mapping):
        return {_clean(key): _clean(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(each) for each in value]
    return value
