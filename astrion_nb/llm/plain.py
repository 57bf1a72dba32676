"""A conversation with tools, told to an endpoint that knows none: in text, by rules that keep prefixes equal.

Pure; knows no schema and no socket.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..messages import Message
from .wire import joined_system, object_text

_IDEOGRAPH = re.compile(r"[\u3400-\u9fff]")
_WORD = re.compile(r"[A-Za-z]+")
_EXPLANATION = {
    "en": (
        "# Tools\n\n"
        "Answer with exactly one JSON object and nothing else. To call a tool:\n"
        '{"name": "<tool>", "arguments": {…}}\n'
        "To say something, or to give your final answer:\n"
        '{"say": "<text>"}\n\n'
        "The tools:\n"
    ),
    "zh": (
        "# 工具\n\n"
        "每次只回复一个 JSON 对象，不要有其他内容。调用工具：\n"
        '{"name": "<工具名>", "arguments": {…}}\n'
        "说话或给出最终答复：\n"
        '{"say": "<文字>"}\n\n'
        "可用工具：\n"
    ),
}
_RESULT = {"en": "Result of {name}:\n{content}", "zh": "工具 {name} 的结果：\n{content}"}


def plain_messages(
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    *,
    merge_user: bool = False,
    join_system: bool = False,
    optional: bool = True,
) -> list[dict[str, Any]]:
    """Return a conversation without tool messages, for an endpoint that knows none.

    A call goes out as the JSON object by which the model would make it, a result as a user message,
    each by a rule that depends on the conversation's beginning alone: prefixes stay equal.
    """
    system = next((message.content or "" for message in messages if message.role == "system"), "")
    language = _language(system)
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    out: list[dict[str, Any]] = []
    explained = not tools
    for message in messages:
        role, content = message.role, message.content or ""
        if role == "tool":
            content = _RESULT[language].format(name=names.get(message.tool_call_id or "", "?"), content=content)
            if out and out[-1].pop("results", False):
                out[-1] = {"role": "user", "content": f"{out[-1]['content']}\n\n{content}", "results": True}
            else:
                out.append({"role": "user", "content": content, "results": True})
            continue
        if out:
            out[-1].pop("results", None)
        if role == "system" and not explained:
            content, explained = f"{content}\n\n{tool_text(tools, language, optional=optional)}".lstrip(), True
        elif role == "assistant":
            content = _as_written(message) if tools or message.tool_calls else content
            if not content:
                continue
        if merge_user and role == "user" and out and out[-1]["role"] == "user":
            out[-1]["content"] += f"\n\n{content}"
        else:
            out.append({"role": role, "content": content})
    if out:
        out[-1].pop("results", None)
    if not explained:
        out.insert(0, {"role": "system", "content": tool_text(tools, language, optional=optional)})
    return joined_system(out) if join_system else out


def _as_written(message: Message) -> str:
    """Return an assistant message as the objects by which the model would have given it."""
    lines = [json.dumps({"say": message.content}, ensure_ascii=False)] if message.content else []
    for call in message.tool_calls:
        name = json.dumps(call.name, ensure_ascii=False)
        lines.append(f'{{"name": {name}, "arguments": {object_text(call.arguments)}}}')
    return "\n".join(lines)


def _language(text: str) -> str:
    """Return the language that a text is mostly in; English ones quote Chinese labels, Chinese ones names of tools."""
    return "zh" if len(_IDEOGRAPH.findall(text)) > len(_WORD.findall(text)) else "en"


def tool_text(tools: Iterable[Mapping[str, Any]], language: str, *, optional: bool = True) -> str:
    """Return the description of the tools for a system message, in ``"zh"`` or ``"en"``."""
    lines = []
    for tool in tools:
        function = tool["function"]
        parameters = function.get("parameters") or {}
        required = parameters.get("required") or []
        lines.append(f"- {function['name']}: {function.get('description', '')}".rstrip(": "))
        for name, schema in (parameters.get("properties") or {}).items():
            if name in required:
                kind = schema.get("type", "any")
            elif optional:
                kind = schema.get("type", "any") + ("，可选" if language == "zh" else ", optional")
            else:
                continue
            lines.append(f"  - {name} ({kind}): {schema.get('description', '')}".rstrip(": "))
    return _EXPLANATION[language] + "\n".join(lines)
