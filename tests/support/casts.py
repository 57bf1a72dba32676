"""Plays a whole team at the strict server: the leader's replies and the members' replies, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from support.strict_server import Response, StrictServer, calls, offers, text

Part = Response | Callable[[dict[str, Any]], Response]


class Cast:
    """What a team says: set it as the server's ``on_request``.

    Parameters
    ----------
    leader, member : sequence
        Replies, or functions of the request; the last one stands for every further request too.

    Attributes
    ----------
    leader_requests, member_requests : list of dict
    """

    def __init__(self, leader: Sequence[Part], member: Sequence[Part] = ()) -> None:
        self.leader_requests: list[dict[str, Any]] = []
        self.member_requests: list[dict[str, Any]] = []
        self._leader = list(leader)
        self._member = list(member) or [text("Seen.")]

    def __call__(self, request: dict[str, Any], number: int) -> Response:
        led = offers(request, "create_sub_agent")
        seen, parts = (self.leader_requests, self._leader) if led else (self.member_requests, self._member)
        seen.append(request)
        part = parts[min(len(seen), len(parts)) - 1]
        return part(request) if callable(part) else part


def create(number: int = 1, role: str = "researcher", task: str = "Look around.") -> tuple[str, dict[str, Any]]:
    """Return the call that creates an agent."""
    return "create_sub_agent", {"agent_id": number, "role_id": role, "task": task}


def play(server: StrictServer, leader: Sequence[Part] = (), member: Sequence[Part] = ()) -> Cast:
    """Let the server play a team; by default a leader that creates one researcher, and all goes well.

    By default the leader says ``All is well.`` once, when the researcher has reported.
    """
    cast = Cast(leader or [calls(create()), well], member)
    server.on_request = cast
    return cast


def well(request: dict[str, Any]) -> Response:
    """Wait for the first report; what is asked afterwards is answered too."""
    told = [message["content"] for message in request["messages"] if message["role"] == "user"]
    return text("All is well." if any("任务完成汇报" in content for content in told) else "Started.")


def said(request: dict[str, Any]) -> str:
    """Return everything a request tells its model, for ``in``."""
    return "\n".join(message["content"] or "" for message in request["messages"])
