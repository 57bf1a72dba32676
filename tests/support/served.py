"""A busy team whose model is the strict server: who asks is told by the request, what it says by its history.

The cast needs no memory of its own, so a team may be killed and taken up again at any moment and the
same functions play on.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from astrion_nb.envelope import Envelope, parse
from astrion_nb.errors import EnvelopeError
from astrion_nb.home import Home
from astrion_nb.ids import LEADER_ID
from astrion_nb.llm.wire import wire_messages
from astrion_nb.runtime.request import request_of
from astrion_nb.state import AgentState, TeamState

from .strict_rules import offers
from .strict_server import Response, StrictServer, calls, text

MEMBERS = 4
ROLE = "ui-operator"
LEADER = "leader"


def configure(home: Path, *servers: StrictServer, more: Mapping[str, str] | None = None) -> Home:
    """Write ``models.toml``: a model ``one``, ``two`` … for each server, the first of them the default.

    Parameters
    ----------
    more : mapping
        Further lines of TOML by model key.
    """
    lines = ['default = "one"']
    for key, server in zip(("one", "two", "three"), servers, strict=False):
        lines += [f"[models.{key}]", f'model = "strict-{key}"', f'base_url = "{server.url}"', (more or {}).get(key, "")]
    place = Home(home)
    place.models_file.parent.mkdir(parents=True, exist_ok=True)
    place.models_file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return place


def envelopes(request: Mapping[str, Any]) -> Iterator[Envelope]:
    """Yield the envelopes that a request's user messages are."""
    for message in request["messages"]:
        if message["role"] == "user" and (found := _envelope(message["content"])) is not None:
            yield found


def _envelope(content: str) -> Envelope | None:
    try:
        return parse(content)
    except EnvelopeError:
        return None


def actor(request: Mapping[str, Any]) -> str:
    """Return who asks: ``leader``, or the id of the member's first task, which no other has."""
    if offers(request, "create_sub_agent"):
        return LEADER
    return next(envelope.id for envelope in envelopes(request))


def done(request: Mapping[str, Any]) -> int:
    """Return how many responses the asker has given."""
    return sum(message["role"] == "assistant" for message in request["messages"])


def play(request: dict[str, Any], _: int) -> Response:
    """Answer a request of the busy team; fit for ``StrictServer.on_request``."""
    return _lead(request) if actor(request) == LEADER else _work(request)


def _lead(request: Mapping[str, Any]) -> Response:
    messages = request["messages"]
    made = [call for message in messages for call in message.get("tool_calls") or ()]
    answered = {json.loads(call["function"]["arguments"]).get("question_id") for call in made}
    asks = [envelope for envelope in envelopes(request) if envelope.kind == "ask" and envelope.id not in answered]
    if not done(request):
        return calls(*(_create(number) for number in range(1, MEMBERS + 1)), say="Four helpers.")
    if asks:
        return calls(*(_answer(envelope) for envelope in asks))
    if messages[-1]["role"] == "tool" and '"agents":[' in messages[-1]["content"]:
        return _set_to_work(json.loads(messages[-1]["content"])["agents"])
    if _last_word(messages) > _last_look(messages):
        return calls(("list_active_sub_agents", {}), say="Who is there?")
    return text(f"Read {len(messages)} messages.")


def _create(number: int) -> tuple[str, dict[str, Any]]:
    task = f"Look at page {number}, 第 {number} 页。"
    return "create_sub_agent", {"agent_id": number, "role_id": ROLE, "task": task}


def _answer(ask: Envelope) -> tuple[str, dict[str, Any]]:
    return (
        "answer_sub_agent_question",
        {"agent_id": ask.sender, "question_id": ask.id, "answer": f"Yes to {ask.id}."},
    )


def _set_to_work(agents: list[dict[str, Any]]) -> Response:
    """Send everybody at rest on, and create who is missing."""
    wanted = [
        ("send_message_to_sub_agent", {"agent_id": agent["agent_id"], "message": f"Go on, {agent['display_name']}."})
        for agent in agents
        if agent["status"] in ("idle", "completed")
    ]
    following = 1 + max((int(agent["display_name"].rpartition("_")[2]) for agent in agents), default=0)
    wanted += [_create(number) for number in range(following, following + MEMBERS - len(agents))]
    return calls(*wanted) if wanted else text("Everybody is at work.")


def _last_word(messages: list[dict[str, Any]]) -> int:
    """Return where the person spoke last."""
    return max(n for n, each in enumerate(messages) if each["role"] == "user" and _envelope(each["content"]) is None)


def _last_look(messages: list[dict[str, Any]]) -> int:
    """Return where the leader created agents or looked around last."""
    names = ("create_sub_agent", "list_active_sub_agents")
    return max(
        n
        for n, message in enumerate(messages)
        if any(call["function"]["name"] in names for call in message.get("tool_calls") or ())
    )


def _work(request: Mapping[str, Any]) -> Response:
    """Touch the world, ask, tell a neighbour once, report; and so on with each task."""
    name, turn = actor(request), done(request)
    step = turn % 4
    if step == 0:
        touch = ("mark", {"what": f"{name}-{turn}"})
        return calls(touch, ("list_active_sub_agents", {}), say=f"{name} begins, 开始。")
    if step == 1:
        ask = {"question": f"May {name} go on after {turn}?", "question_id": f"ask_{name}_{turn}"}
        return calls(("ask_master", ask))
    if step == 2 and turn < 4:
        neighbour = 1 + int(re.sub(r"\D", "", name)) % MEMBERS
        return calls(
            (
                "ask_other_agent",
                {
                    "target_agent_id": neighbour,
                    "content": f"For your information, from {name}.",
                    "message_id": f"fyi_{name}_{turn}",
                    "expects_answer": False,
                },
            )
        )
    return text(f"{name} has seen {turn} things; 看完了。")


# -- what must hold of a conversation, whatever happened to it ------------------------------------


def history(agent: AgentState) -> list[dict[str, Any]]:
    """Return an agent's messages as a request carries them."""
    return [dict(message) for message in wire_messages(request_of(agent, 1, ()).messages, reasoning="strip")]


def first_envelope(agent: AgentState) -> str:
    """Return the id of a sub-agent's first task."""
    ids = [message.metadata.get("envelope_id") for message in agent.messages if message.role == "user"]
    return str((ids or [item.id for item in agent.pending])[0])


def check(seen: Mapping[str, list[dict[str, Any]]], state: TeamState) -> None:
    """Check that a conversation is whole, and that it holds what the server was told.

    Parameters
    ----------
    seen : mapping
        By :func:`actor`, the messages of its last request.
    """
    by_actor = {
        LEADER if agent.agent_id == LEADER_ID else first_envelope(agent): agent for agent in state.agents.values()
    }
    for who, messages in seen.items():
        assert history(by_actor[who])[: len(messages)] == messages, who
    for agent in state.agents.values():
        name = agent.display_name
        ids = [message.metadata["envelope_id"] for message in agent.messages if "envelope_id" in message.metadata]
        assert _twice([*ids, *(item.id for item in agent.pending)]) == [], name
        assert _twice([message.message_id for message in agent.messages if message.message_id]) == [], name
        called = [call.id for message in agent.messages for call in message.tool_calls]
        assert _twice(called) == [], name
        got = [message.tool_call_id for message in agent.messages if message.role == "tool"]
        assert Counter(got) == Counter(call for call in called if call not in agent.open_calls), name
        for message in agent.messages:
            if message.role == "user" and message.metadata.get("visibility") != "chat":
                parse(message.content or "")  # raises for whatever is not one of the six envelopes


def _twice(values: Iterable[Any]) -> list[Any]:
    return [value for value, count in Counter(values).items() if count > 1]
