"""One team, hundreds of orders in which its steps can come: what must not depend on the order does not."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.schedules import ShuffledOrder
from support.strict_rules import violations_of
from support.teams import Rig, rig

from astrion_nb.envelope import parse
from astrion_nb.errors import ModelRefused
from astrion_nb.events import MessageQueued, StatusChanged
from astrion_nb.ids import LEADER_ID
from astrion_nb.llm.model import Finished, ModelRequest, StreamEvent, TextDelta
from astrion_nb.llm.wire import wire_messages
from astrion_nb.messages import Message, ToolCall, Usage
from astrion_nb.runtime.limits import Limits
from astrion_nb.testing import invariants
from astrion_nb.tools.registry import tool

LEADER = "Team Leader"
ASKER, BUILDER, PLANNER, BREAKER = "UI Operator_1", "Full-Stack Engineer_1", "规划_1", "UI Operator_2"
CREATED = {
    ASKER: (1, "ui-operator"),
    BUILDER: (1, "full-stack-engineer"),
    PLANNER: (1, "planner-zh"),
    BREAKER: (2, "ui-operator"),
}
SCHEDULES = 500


def asked_of(messages: Any) -> list[tuple[int | None, str, str]]:
    """Return the questions that an agent has read: who asked, id, text."""
    envelopes = [(m, parse(m.content)) for m in messages if m.role == "user" and "envelope_id" in m.metadata]
    return [(m.metadata.get("agent_id"), e.id, e.content) for m, e in envelopes if e.kind == "ask"]


def answered_by(messages: Any) -> set[str]:
    made = [call for m in messages for call in m.tool_calls if call.name.startswith("answer_")]
    arguments = [json.loads(call.arguments) for call in made]
    return {told.get("question_id") or told.get("message_id") for told in arguments}


class Players:
    """Five models in one: each agent goes by what it has read and done, and by nothing else."""

    key = endpoint = "players"

    def __init__(self) -> None:
        self.violations: list[str] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        messages = request.messages
        self.violations += violations_of({"model": "m", "stream": True, "messages": wire_messages(messages)})
        done = [call.name for m in messages for call in m.tool_calls]
        calls = self.leader(messages, done) if request.actor == LEADER else self.member(request.actor, messages, done)
        await asyncio.sleep(0)
        if calls is None:
            raise ModelRefused("401")
        made = tuple(
            ToolCall(f"c_{request.turn}_{place}", name, json.dumps(arguments))
            for place, (name, arguments) in enumerate(calls)
        )
        text = "Working." if made else f"{request.actor} is done."
        yield TextDelta(text)
        yield Finished(text, made, "tool_calls" if made else "stop", Usage(3, 1))

    def leader(self, messages: tuple[Message, ...], done: list[str]) -> list[tuple[str, dict[str, Any]]]:
        if not done:
            return [
                ("create_sub_agent", {"agent_id": number, "role_id": role, "task": "Go.", "timeout_seconds": 0})
                for number, role in CREATED.values()
            ]
        answered = answered_by(messages)
        return [
            ("answer_sub_agent_question", {"agent_id": by, "question_id": asked, "answer": f"leader on {text}"})
            for by, asked, text in asked_of(messages)
            if asked not in answered
        ]

    def member(
        self, actor: str, messages: tuple[Message, ...], done: list[str]
    ) -> list[tuple[str, dict[str, Any]]] | None:
        answered = answered_by(messages)
        due = [
            ("answer_other_agent", {"source_agent_id": by, "message_id": asked, "answer": f"{actor} on {text}"})
            for by, asked, text in asked_of(messages)
            if asked not in answered
        ]
        if due:
            return due
        if actor == BREAKER:
            return None if "count" in done else [("count", {"what": actor})]
        if "ask_master" not in done:
            first = ("ask_master", {"question": f"the plan of {actor}", "question_id": ""})
            return [first, ("count", {"what": actor})] if actor == PLANNER else [first]
        peer = {ASKER: BUILDER, BUILDER: PLANNER, PLANNER: ASKER}[actor]
        if "ask_other_agent" not in done:
            return [("ask_other_agent", {"target_agent_id": peer, "content": f"a word for {actor}", "message_id": ""})]
        return []

    async def close(self) -> None: ...


async def play(seed: int) -> tuple[Rig, ShuffledOrder, Counter[str], Players]:
    counted: Counter[str] = Counter()

    @tool(name="count", description="Count.", side_effects=True)
    async def count(what: str) -> str:
        counted[what] += 1
        return "counted"

    order, players = ShuffledOrder(seed), Players()
    limits = Limits(max_active_agents=(1, 2, 16)[seed % 3])
    made = rig(players, tools=(count,), order=order, limits=limits)
    await made.run("Go")
    return made, order, counted, players


def outcome(made: Rig) -> dict[str, Any]:
    """Return what has to be the same however the steps came."""
    state = made.team.state
    names = {number: agent.display_name for number, agent in state.agents.items()}
    mine = [question for question in state.questions.values() if question.tool == "ask_master"]
    told = Counter(
        (names[item.sender_id], item.status)
        for item in (event.item for event in made.kinds(MessageQueued) if event.agent_id == LEADER_ID)
        if item.kind == "message" and item.sender_id is not None
    )
    return {
        "run": state.run_status,
        "agents": sorted((agent.display_name, agent.status, agent.detail) for agent in state.members()),
        "answers of the leader": sorted((names[question.asker], question.answer) for question in mine),
        "failures told": sorted(told.items()),
        "ends of the one that breaks": [
            event.detail for event in made.kinds(StatusChanged) if names[event.agent_id] == BREAKER and event.detail
        ],
        "calls": {
            agent.display_name: sorted(agent.tool_counts().items())
            for agent in state.members()
            if agent.display_name == BREAKER
        },
        "asks": sorted((names[question.asker], question.tool, question.status) for question in mine),
    }


@pytest.mark.faults
def test_the_same_team_in_five_hundred_orders_of_its_steps_ends_the_same_and_keeps_every_promise() -> None:
    outcomes: dict[str, list[int]] = {}
    orders: set[tuple[tuple[str, str, int], ...]] = set()
    refused = answered = 0
    for seed in range(SCHEDULES):
        made, order, counted, players = asyncio.run(asyncio.wait_for(play(seed), 20))
        invariants.check(made.team.state, made.events, made.team)
        assert players.violations == [], seed
        assert counted == {PLANNER: 1, BREAKER: 1}, f"a tool with side effects runs once (schedule {seed})"
        assert made.team.slots.used == 0
        assert made.team.state.open_questions() == []
        assert order.choices > 10
        outcomes.setdefault(json.dumps(outcome(made), ensure_ascii=False), []).append(seed)
        orders.add(tuple(order.steps))
        peers = [q for q in made.team.state.questions.values() if q.tool == "ask_other_agent"]
        answered += sum(question.status == "answered" for question in peers)
        refused += 3 - len(peers)
    assert len(outcomes) == 1, {told: seeds[:5] for told, seeds in outcomes.items()}
    assert len(orders) == SCHEDULES, "every schedule is another"
    assert refused > 0, "some orders would have closed the circle of the three"
    assert answered > SCHEDULES, "most did not"
