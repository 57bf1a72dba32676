"""What a strict provider refuses in a chat-completions request; pure, knows no server."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")
_MESSAGE_KEYS = {
    "system": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "name", "tool_calls", "refusal", "reasoning_content"},
    "tool": {"role", "content", "tool_call_id"},
}
_BODY_KEYS = {
    "model", "messages", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options", "temperature",
    "top_p", "max_tokens", "max_completion_tokens", "response_format", "reasoning_effort", "seed", "stop", "user",
    "metadata", "presence_penalty", "frequency_penalty", "n", "logprobs", "store",
}  # fmt: skip


def offers(request: Mapping[str, Any], tool: str) -> bool:
    """Whether a request offers the tool."""
    return any(each["function"]["name"] == tool for each in request.get("tools") or ())


def roles(request: Mapping[str, Any]) -> list[str]:
    """Return the roles of a request's messages."""
    return [message["role"] for message in request["messages"]]


def last(request: Mapping[str, Any]) -> str:
    """Return the content of a request's last message."""
    return request["messages"][-1]["content"] or ""


def results(request: Mapping[str, Any]) -> dict[str, str]:
    """Return the tool results of a request by call id."""
    return {m["tool_call_id"]: m["content"] for m in request["messages"] if m["role"] == "tool"}


def violations_of(
    body: Any,
    *,
    reasoning_content: Literal["required", "forbidden"] | None = None,
    tools: bool = True,
    allow: Iterable[str] = (),
) -> list[str]:
    """Return what a strict provider would refuse in a request body; empty when it is in order.

    Parameters
    ----------
    body : object
        The parsed body.
    reasoning_content : {"required", "forbidden"} or None
        Whether assistant messages with tool calls must carry it, or no message may.
    tools : bool
        Whether the endpoint knows tools at all.
    allow : iterable of str
        Further keys of the body that are no fault.
    """
    if not isinstance(body, dict):
        return ["the body is not a JSON object"]
    found = [f"unrecognized body key {key!r}" for key in body.keys() - _BODY_KEYS - set(allow)]
    if not isinstance(body.get("model"), str) or not body["model"]:
        found.append("model is missing")
    if body.get("stream") is not True:
        found.append("this server only streams")
    if not tools and "tools" in body:
        found.append("this endpoint knows no tools")
    found += _tool_faults(body)
    found += _format_faults(body.get("response_format"))
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return [*found, "messages is missing or empty"]
    found += _order_faults(messages)
    for place, message in enumerate(messages):
        found += [f"messages[{place}]: {fault}" for fault in _message_faults(message, reasoning_content, tools)]
    if _surrogate(body):
        found.append("a string holds a lone surrogate")
    return found


def _tool_faults(body: Mapping[str, Any]) -> list[str]:
    if "tools" not in body:
        return ["tool_choice without tools"] if "tool_choice" in body else []
    tools = body["tools"]
    if not isinstance(tools, list) or not tools:
        return ["tools is empty or not a list"]
    found = []
    names = [tool.get("function", {}).get("name") for tool in tools]
    found += [f"tool {name!r} is defined twice" for name, count in Counter(names).items() if count > 1]
    for tool, name in zip(tools, names, strict=True):
        if tool.get("type") != "function" or tool.keys() - {"type", "function"}:
            found.append(f"tool {name!r} is not of the form {{type, function}}")
        if not isinstance(name, str) or not _NAME.match(name):
            found.append(f"tool name {name!r} does not match the pattern")
        if tool.get("function", {}).get("parameters", {"type": "object"}).get("type") != "object":
            found.append(f"the parameters of tool {name!r} are not an object schema")
    return found


def _format_faults(form: Any) -> list[str]:
    if form is None or form == {"type": "text"} or form == {"type": "json_object"}:
        return []
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        return [f"response_format {form!r} is unknown"]
    schema = form.get("json_schema")
    if not isinstance(schema, dict) or not _NAME.match(str(schema.get("name"))) or "schema" not in schema:
        return ["response_format.json_schema needs a name and a schema"]
    return []


def _message_faults(message: Any, reasoning_content: str | None, tools: bool) -> list[str]:
    role = message.get("role") if isinstance(message, dict) else None
    if role not in _MESSAGE_KEYS:
        return [f"role {role!r} is unknown"]
    found = [f"property {key!r} is unsupported" for key in message.keys() - _MESSAGE_KEYS[role]]
    if "name" in message and not _NAME.match(str(message["name"])):
        found.append(f"name {message['name']!r} does not match the pattern")
    called = message.get("tool_calls")
    found += _content_faults(message, bool(called))
    if not tools and (role == "tool" or "tool_calls" in message):
        found.append("this endpoint knows no tools")
    if "tool_calls" in message:
        found += _call_faults(called)
    if reasoning_content == "required" and called and not isinstance(message.get("reasoning_content"), str):
        found.append("reasoning_content is missing beside tool calls")
    if reasoning_content == "forbidden" and "reasoning_content" in message:
        found.append("reasoning_content is not supported")
    return found


def _content_faults(message: Mapping[str, Any], called: bool) -> list[str]:
    content, role = message.get("content"), message["role"]
    if isinstance(content, str):
        return ["neither content nor tool calls"] if role == "assistant" and not content and not called else []
    if content is None:
        return [] if role == "assistant" and called else ["content is null"]
    if isinstance(content, list) and all(
        isinstance(p, dict) and p.get("type") in ("text", "image_url") for p in content
    ):
        return []
    return [f"content is {type(content).__name__}"]


def _call_faults(called: Any) -> list[str]:
    if not isinstance(called, list) or not called:
        return ["tool_calls is empty or not a list"]
    found = []
    for call in called:
        function = call.get("function") or {}
        if not isinstance(call.get("id"), str) or not call["id"] or call.get("type") != "function":
            found.append("a tool call lacks its id or type")
        if not _NAME.match(str(function.get("name"))):
            found.append(f"tool call name {function.get('name')!r} does not match the pattern")
        if not _is_object(function.get("arguments")):
            found.append(f"arguments {function.get('arguments')!r} are not a JSON object")
    return found


def _is_object(raw: Any) -> bool:
    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        return isinstance(json.loads(raw, parse_constant=refuse), dict)
    except (TypeError, ValueError):
        return False


def _order_faults(messages: Sequence[Any]) -> list[str]:
    found: list[str] = []
    known: set[str] = set()
    open_calls: set[str] = set()
    for place, message in enumerate(messages):
        if not isinstance(message, dict):
            continue
        if message.get("role") == "tool":
            identifier = message.get("tool_call_id")
            if identifier in open_calls:
                open_calls.discard(identifier)
            else:
                kind = "a second result for" if identifier in known else "a result without a call"
                found.append(f"messages[{place}]: {kind} {identifier!r}")
            continue
        if open_calls:
            found.append(f"messages[{place}]: no result yet for {', '.join(sorted(open_calls))}")
            open_calls = set()
        for call in message.get("tool_calls") or ():
            identifier = call.get("id")
            if identifier in known:
                found.append(f"messages[{place}]: call id {identifier!r} is not unique")
            known.add(identifier)
            open_calls.add(identifier)
    if open_calls:
        found.append(f"no result for {', '.join(sorted(map(str, open_calls)))} at the end")
    return found


def _surrogate(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False
