"""A strict server's play whose context is so many characters: what is longer is refused as real endpoints refuse it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .strict_server import Reply, Response, api_error


def characters(request: Mapping[str, Any]) -> int:
    """Return the characters of a request's messages."""
    return sum(
        len(message["content"] or "")
        + sum(len(call["function"]["name"] + call["function"]["arguments"]) for call in message.get("tool_calls") or ())
        for message in request["messages"]
    )


def systems(request: Mapping[str, Any]) -> list[str]:
    """Return the system messages of a request."""
    return [message["content"] for message in request["messages"] if message["role"] == "system"]


class Narrow:
    """Answers what fits, and refuses the rest.

    Parameters
    ----------
    play : callable
        Answers a request that fits.
    limit : int
        Characters of messages; more is an overflow.

    Attributes
    ----------
    taken, refused : list of dict
        Requests.
    order : str
        ``t`` or ``r`` for each request, as they came.
    """

    def __init__(self, play: Callable[[dict[str, Any]], Response], limit: int) -> None:
        self._play = play
        self.limit = limit
        self.taken: list[dict[str, Any]] = []
        self.refused: list[dict[str, Any]] = []
        self.order = ""

    def __call__(self, request: dict[str, Any], _: int) -> Response | Reply:
        fits = characters(request) <= self.limit
        self.order += "t" if fits else "r"
        (self.taken if fits else self.refused).append(request)
        if fits:
            return self._play(request)
        return api_error(400, "context_length_exceeded", "This model's maximum context length is exceeded.")
