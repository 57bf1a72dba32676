"""A team that a person leads, in processes that are killed: one works until it dies, the next takes up what is left."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from typing import Any

from astrion_nb import Team
from astrion_nb.errors import ModelRefused
from astrion_nb.events import QuestionAsked, Stamped
from astrion_nb.home import Home
from astrion_nb.ids import LEADER_ID
from astrion_nb.store import conversations
from astrion_nb.store.conversations import ConversationStore
from astrion_nb.testing import ScriptedModel, call, fail, invariants, say

from . import stepwise
from .mortal import MortalFiles
from .zygote import say as last_words

for _name in ("frontmatter", "astrion_nb.store.loading", "astrion_nb.tools.leader", "astrion_nb.tools.member"):
    importlib.import_module(_name)

ROLES = ["researcher", "ui-operator"]
GO_ON = "Go on."


def model(*, taken_up: bool) -> ScriptedModel:
    """Return what the agents say: one asks the person and fails, one reports; taken up, everybody reports."""
    working = [] if taken_up else [say("I look.") + call("ask_master", question="Where?", question_id="ask_w")]
    refused = [] if taken_up else [fail(ModelRefused("no such model", status=404))]
    ready = [say(f"Ready {number}.") for number in range(9)]
    script: dict[str, list[Any]] = {"Researcher_1": [*working, *refused, *ready], "UI Operator_1": ready}
    return ScriptedModel(script, check_on_close=False)


def perform(home: str, kill_at: int = 0) -> list[str]:
    """Let the team work in ``home``, until the point of that number; returns the labels of all points."""
    place = Home(Path(home))
    files = MortalFiles(place.conversations, kill_at, last_words)
    conversations.RealFiles = lambda: files  # type: ignore[assignment,misc]

    async def main() -> None:
        async with Team(model=model(taken_up=False), home=place, leader="human", roles=ROLES, human=True) as team:
            asked = asyncio.Event()
            team.watch(lambda stamped: asked.set() if isinstance(stamped.event, QuestionAsked) else None)
            await team.start("Look around.")
            await asked.wait()
            await team.answer("ask_w", "Here.")
            await team.wait()
            await team.send("UI Operator_1", "And there?")
            await team.wait()

    stepwise.run(main)
    return files.points


def go_on(home: str) -> int:
    """Take up what is left in ``home`` and give everybody something to do; returns how many had been there."""
    place = Home(Path(home))
    entries = ConversationStore(place).list()
    if not entries:
        return 0
    (entry,) = entries
    assert entry.error == "", entry.error
    return asyncio.run(_go_on(place, entry.id))


async def _go_on(place: Home, conversation: str) -> int:
    before = ConversationStore(place).open(conversation, read_only=True).state
    events: list[Stamped] = []
    asked = model(taken_up=True)
    async with Team(model=asked, home=place, conversation=conversation, roles=ROLES, human=True) as team:
        team.watch(events.append)
        await team.open()
        assert team.state.leader_state.pending == [], "a person who leads has read what came"
        for question in team.questions:
            await team.answer(question.question_id, "Here.")
        members = team.state.members()
        for member in members:
            await team.send(member.agent_id, GO_ON)
        result = await team.wait()
        invariants.check(team.state, events, team)
        if members:
            assert (result.status, result.error) == ("completed", ""), (result.status, result.error)
        leader = team.state.leader_state
        assert (leader.status, leader.requests, leader.pending) == ("idle", 0, [])
        read = [str(message.metadata.get("envelope_id")) for message in leader.messages]
        known = [item.id for item in before.leader_state.pending]
        assert set(known) <= set(read), "what waited for the person is gone"
        assert len(set(read)) == len(read), "the person reads it twice"
        ends = {agent.display_name: (agent.status, agent.error) for agent in team.state.members()}
        assert set(ends.values()) <= {("completed", "")}, ends
    assert not any(request.actor == team.state.name_of(LEADER_ID) for request in asked.requests)
    return len(members)
