"""What a model is to the rest of the package: a request in, a stream of events out.

Values and one protocol; no vendor, no retry, no clock. Adapters live beside this module, one
vendor a file. Whoever calls a model consumes :class:`StreamEvent` values and nothing else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ..messages import Message, ToolCall, Usage

ThinkingMode = Literal["fast", "thinking"]
Finish = Literal["stop", "tool_calls", "length", "content_filter"]

LOCAL = "local/"
"""Keys of models that run on this machine begin so."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request to a model.

    Parameters
    ----------
    actor : str
        Display name of the asking agent (``Team Leader`` for the leader). Never sent to an endpoint.
    turn : int
        How many requests the actor has made before in this conversation, plus one.
    messages : sequence of Message
        System message first, then the conversation.
    tools : sequence of mapping
        Tool definitions in chat-completions form; empty for none.
    thinking_mode : {"fast", "thinking"}
    arrival : callable, optional
        ``await arrival()`` returns when a message waits in the actor's mailbox. Only the scripted
        model uses it, to act after a message has come.
    history : sequence of Message, optional
        The whole conversation, where ``messages`` leave a part of it out; no endpoint gets it.
    """

    actor: str
    turn: int
    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()
    thinking_mode: ThinkingMode = "fast"
    arrival: Callable[[], Awaitable[None]] | None = field(default=None, compare=False)
    history: Sequence[Message] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of text, as it came."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of reasoning text, as it came; never part of an answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The response is complete; the last event of every stream that ends well.

    Parameters
    ----------
    text : str
        The whole text (may be empty).
    tool_calls : tuple of ToolCall
        Complete calls, in order; every id is non-empty and unique within the response. That it is unique
        in the conversation too is the runtime's to see to.
    finish : {"stop", "tool_calls", "length", "content_filter"}
        Why it ended. ``length`` also stands for a stream cut off after text was shown.
    usage : Usage or None
        Counted once for the request; ``None`` when the endpoint told nothing.
    reasoning : str
        Reasoning text, or empty.
    model : str
        Name of the model as the endpoint reported it, or empty.
    truncated : bool
        The stream broke after text was shown: there is no call in it and the text may lack its end.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    finish: Finish = "stop"
    usage: Usage | None = None
    reasoning: str = ""
    model: str = ""
    truncated: bool = False


StreamEvent = TextDelta | ReasoningDelta | Finished


class Model(Protocol):
    """A model that can be asked.

    Attributes
    ----------
    key : str
        The key by which configuration, roles and tools name it.
    endpoint : str
        What shares one rate limit: requests to the same endpoint pass one gate.
    """

    key: str
    endpoint: str

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        """Ask, and yield what comes: deltas, then exactly one :class:`Finished`.

        Raises
        ------
        ModelError
            The request failed; a subclass says how. When text was already yielded the caller
            must not ask again.
        """
        ...

    async def close(self) -> None:
        """Release connections and processes. May be called more than once."""
        ...
