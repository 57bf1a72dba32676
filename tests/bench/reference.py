"""The reference: the bare ``openai`` SDK with a hand-written tool loop and ``asyncio.gather``.

What a capable person writes without a framework: ``AsyncOpenAI``, its default transport, typed chunks.
:class:`Lean` is the same loop with the SDK's aiohttp transport, and with bodies and events that the SDK does not
touch: no budget is measured against it; it shows how much of the reference's cost is the SDK's own. Neither saves
anything, publishes events or can be watched.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from cells import Cell

WORKER_PROMPT = "You are a worker. Use the echo tool, then answer."
LEADER_PROMPT = "You lead a team. Delegate the work items in parallel, then summarise."
TASK = "Please get all the work items done."
MODEL = "gpt-4o-mini"


def _tool(name: str, description: str, parameter: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


ECHO = [_tool("echo", "Echo the text.", "text")]
DELEGATE = [_tool("delegate", "Give a work item to a new worker.", "task")]

Call = tuple[str, str, str]
Tools = dict[str, Callable[..., Awaitable[str]]]


class Calls:
    """The tool calls of one response, put together from their deltas."""

    def __init__(self) -> None:
        self._slots: dict[int, list[Any]] = {}

    def add(self, index: int, call_id: str | None, name: str | None, arguments: str | None) -> None:
        """Take one delta."""
        slot = self._slots.setdefault(index, ["", "", []])
        slot[0] = call_id or slot[0]
        slot[1] = name or slot[1]
        if arguments:
            slot[2].append(arguments)

    def complete(self) -> list[Call]:
        """Return the calls as (id, name, arguments)."""
        return [(call_id, name, "".join(arguments)) for call_id, name, arguments in self._slots.values()]


class Reference:
    """The bare SDK, typed chunks, default transport."""

    delegate = "delegate"
    client: Any

    def __init__(self) -> None:
        self.answers: list[str] = []

    def load(self) -> None:
        """Import what the subject needs; timed apart."""
        import openai  # noqa: F401  (its cost is what is measured)

    async def setup(self, base_url: str, home: Path) -> None:
        """Make the one client of the process: a dropped, unclosed one is a hazard to the next."""
        from openai import AsyncOpenAI

        self.client = AsyncOpenAI(base_url=base_url, api_key="sk-bench")

    async def end(self) -> dict[str, Any]:
        """Release nothing: an agent was a list."""
        return {}

    async def close(self) -> None:
        """Close the client."""
        await self.client.close()

    async def at_rest(self, agents: int) -> tuple[int, int]:
        """Not measured: an agent at rest is a few lists."""
        raise NotImplementedError

    async def turn(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> tuple[str, list[Call]]:
        """Make one streamed model call; return its text and its tool calls."""
        stream = await self.client.chat.completions.create(model=MODEL, messages=messages, tools=tools, stream=True)
        text, calls = [], Calls()
        async for chunk in stream:
            if not chunk.choices:
                continue
            delta = chunk.choices[0].delta
            if delta.content:
                text.append(delta.content)
            for call in delta.tool_calls or ():
                calls.add(call.index, call.id, call.function.name, call.function.arguments)
        return "".join(text), calls.complete()

    async def agent(self, system: str, task: str, definitions: list[dict[str, Any]], tools: Tools) -> str:
        """Run one agent to its final answer."""
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}, {"role": "user", "content": task}]
        while True:
            text, calls = await self.turn(messages, definitions)
            if not calls:
                messages.append({"role": "assistant", "content": text})
                return text
            written = [
                {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
                for call_id, name, arguments in calls
            ]
            messages.append({"role": "assistant", "content": None, "tool_calls": written})
            outcomes = await asyncio.gather(*(tools[name](**json.loads(arguments)) for _, name, arguments in calls))
            messages.extend(
                {"role": "tool", "tool_call_id": call[0], "content": outcome}
                for call, outcome in zip(calls, outcomes, strict=True)
            )

    async def _echo(self, text: str) -> str:
        return text

    async def _delegate(self, task: str) -> str:
        answer = await self.agent(WORKER_PROMPT, task, ECHO, {"echo": self._echo})
        self.answers.append(answer)
        return answer

    async def fanout(self, cell: Cell) -> tuple[list[str], str]:
        """Do the work of a cell; return the workers' answers and the leader's."""
        self.answers = []
        final = await self.agent(LEADER_PROMPT, TASK, DELEGATE, {"delegate": self._delegate})
        return self.answers, final


class Lean(Reference):
    """Still the SDK (keys, retries, errors before the first byte); body and events are ours, the transport aiohttp."""

    async def setup(self, base_url: str, home: Path) -> None:
        from openai import AsyncOpenAI, DefaultAioHttpClient

        self.client = AsyncOpenAI(base_url=base_url, api_key="sk-bench", http_client=DefaultAioHttpClient())

    async def turn(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> tuple[str, list[Call]]:
        import httpx2
        import orjson

        response = await self.client.post(
            "/chat/completions",
            cast_to=httpx2.Response,
            stream=True,
            content=orjson.dumps({"model": MODEL, "messages": messages, "tools": tools, "stream": True}),
            options={"headers": {"content-type": "application/json"}},
        )
        text, calls, rest = [], Calls(), b""
        async for data in response.aiter_raw():
            lines = (rest + data).split(b"\n")
            rest = lines.pop()
            for line in lines:
                if not line.startswith(b"data: {"):
                    continue
                choices = orjson.loads(line[6:])["choices"]
                if not choices:
                    continue
                delta = choices[0]["delta"]
                if delta.get("content"):
                    text.append(delta["content"])
                for call in delta.get("tool_calls") or ():
                    function = call.get("function") or {}
                    calls.add(call["index"], call.get("id"), function.get("name"), function.get("arguments"))
        await response.aclose()
        return "".join(text), calls.complete()
