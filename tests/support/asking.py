"""Asking a model from a test: one request, everything it streamed, within a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from astrion_nb.llm.model import Finished, Model, ModelRequest, ReasoningDelta, StreamEvent, TextDelta
from astrion_nb.messages import Message

T = TypeVar("T")
BOUND = 10.0

ASK = (Message("system", "s"), Message("user", "u"))


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine function in a loop of its own, within the bound."""

    async def bounded() -> T:
        async with asyncio.timeout(BOUND):
            return await work()

    return asyncio.run(bounded())


def request(
    messages: Sequence[Message] = ASK, *, actor: str = "Team Leader", turn: int = 1, **more: Any
) -> ModelRequest:
    """Return a request; the shortest conversation when none is given."""
    return ModelRequest(actor, turn, messages, **more)


async def events(model: Model, asked: ModelRequest | None = None) -> list[StreamEvent]:
    """Ask and return everything that came; checks what every stream owes its reader."""
    came: list[StreamEvent] = []
    async with aclosing(model.stream(asked or request())) as stream:  # type: ignore[type-var]
        async for event in stream:
            came.append(event)
    finished = came[-1]
    assert isinstance(finished, Finished)
    assert not any(isinstance(event, Finished) for event in came[:-1])
    assert "".join(event.text for event in came if isinstance(event, TextDelta)) == finished.text
    assert "".join(event.text for event in came if isinstance(event, ReasoningDelta)) == finished.reasoning
    ids = [call.id for call in finished.tool_calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    return came


async def ask(model: Model, asked: ModelRequest | None = None) -> Finished:
    """Ask and return the end of the answer."""
    finished = (await events(model, asked))[-1]
    assert isinstance(finished, Finished)
    return finished
