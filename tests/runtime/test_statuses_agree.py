"""One team, five places that show it: at every event all of them say the same, and none of them lies.

The live view's page, ``metadata.json`` on the disk, the agents' own listing, the board, and what
Python is told. The plays are random; the files are real.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.held import Held
from support.improvised import Improviser, actions, settle
from support.teams import rig
from support.virtual import VirtualOrder

from astrion_nb.app.result import agent_info
from astrion_nb.errors import AstrionError
from astrion_nb.events import FLEETING, ConversationStarted, Stamped
from astrion_nb.home import Home
from astrion_nb.ids import HUMAN_ID, LEADER_ID
from astrion_nb.render.board import agents_table
from astrion_nb.render.words import words
from astrion_nb.runtime.limits import Limits
from astrion_nb.runtime.restoring import go_on
from astrion_nb.state import AgentState, TeamState
from astrion_nb.store.conversations import ConversationStore
from astrion_nb.testing import invariants
from astrion_nb.widgets.feed import Feed

SAID = words("en").status
Row = tuple[str, str]
"""Status and detail."""


class Page:
    """What a page shows that got every message of a view."""

    def __init__(self) -> None:
        self.agents: dict[int, dict[str, Any]] = {}

    def hear(self, message: dict[str, Any] | None) -> None:
        if message is None:
            return
        if message["kind"] == "snapshot":
            self.agents = {agent["id"]: dict(agent) for agent in message["state"]["agents"]}
            return
        for event in message.get("events", [message.get("event", {})]):
            if event.get("t") == "agent":
                self.agents.setdefault(event["id"], {}).update(event)

    def rows(self) -> dict[int, Row]:
        return {number: (agent["status"], agent["detail"]) for number, agent in self.agents.items()}


class Compared:
    """Compares the places at each event of a team that is stored in a folder."""

    def __init__(self, home: Path, choices: list[int], human: bool) -> None:
        self.order, self.held, self.model = VirtualOrder(auto=False), Held(), Improviser(choices)
        self.conversation = ConversationStore(Home(home)).create()
        self.made = rig(
            self.model,
            tools=(self.held.tool,),
            order=self.order,
            limits=Limits(max_turns=12),
            human=human,
            journal=self.conversation,
            state=self.conversation.state,
        )
        self.feed, self.page = Feed(lambda: self.made.team.state), Page()
        self.compared = 0
        self.differing: list[str] = []
        self.made.team.bus.subscribe(self.compare)

    def stored(self) -> dict[int, Row]:
        """Return what the files say, once what is due has been written; its thread does so by itself a moment later."""
        journal = self.conversation._journal
        journal.submit(iter(journal._write_due, True)).result(5)  # type: ignore[arg-type]
        found: dict[int, Row] = {}
        for path in (self.conversation.folder / "agents").glob("*/metadata.json"):
            data = json.loads(path.read_bytes())
            found[data["agent_id"]] = (data["status"], data.get("status_detail") or "")
        return found

    def compare(self, stamped: Stamped) -> None:
        self.feed.push(stamped)
        self.page.hear(self.feed.take())
        if isinstance(stamped.event, FLEETING):
            return
        team, state = self.made.team, self.made.team.state
        truth = {agent.agent_id: (agent.status, agent.detail) for agent in state.members()}
        living = {number: row for number, row in truth.items() if row[0] != "terminated"}
        page = {number: row for number, row in self.page.rows().items() if number != LEADER_ID}
        listed = {row["agent_id"]: (row["status"], row.get("status_detail", "")) for row in team.port.active(HUMAN_ID)}
        infos = {agent.agent_id: _told(state, agent) for agent in state.members()}
        board = {int(row[0]): row[2] for row in agents_table(state)[2:]}
        places: list[tuple[str, Any, Any]] = [
            ("the page", page, truth),
            ("metadata.json", self.stored(), truth),
            ("list_active_sub_agents", listed, living),
            ("team.agents", infos, truth),
            ("the board", board, {number: SAID[detail or status] for number, (status, detail) in truth.items()}),
        ]
        for place, shown, expected in places:
            if shown != expected:
                self.differing.append(f"{place} at event {stamped.seq} ({stamped.event.tag}): {shown}, not {expected}")
        for agent in state.members():
            running = team.agents.get(agent.agent_id)
            if agent.status == "running" and (running is None or running.task is None):
                self.differing.append(f"{agent.display_name} is running without a task at event {stamped.seq}")
        self.compared += 1


def _told(state: TeamState, agent: AgentState) -> Row:
    """Return what Python is told of an agent, as in ``team.agents``."""
    info = agent_info(state, agent)
    return info.status, info.detail


async def play(home: Path, choices: list[int], deeds: list[tuple[int, int, int]], human: bool) -> int:
    """Play a team to its rest; returns how many events were compared."""
    told = Compared(home, choices, human)
    team, made = told.made.team, told.made
    beginning = ConversationStarted(team.state.conversation_id, "", "", "improv", "fast", "model", "en", "You lead.")
    team.bus.publish(beginning)
    team.begin_run("go")
    team.person.say("go")
    for what, number, turns in deeds:
        await settle(turns)
        try:
            options = actions(made, told.order, told.held, 1 + number % 4, f"q-{number % 6}")
            options[what % len(options)]()
        except (AstrionError, KeyError, AttributeError):
            pass  # refused, or there is no such agent or task yet
    told.held.release()
    for _ in range(400):
        await settle()
        if not team.running and not team.state.open_questions():
            break
        go_on(team)
        for question in team.state.open_questions():
            if question.answerer == HUMAN_ID:
                team.port.answer(HUMAN_ID, None, question.id, "at last")
        told.order.advance(0.5)
    invariants.check(team.state, made.events, team)
    await told.conversation.close()
    assert told.differing == []
    return told.compared


MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Every event is waited for on the disk: where the memory is one, five hundred plays take a minute."""
deeds = st.lists(st.tuples(st.integers(0, 10), st.integers(0, 5), st.integers(0, 12)), max_size=10)


def compare(seed: int, acts: list[tuple[int, int, int]], human: bool) -> int:
    chance = random.Random(seed)
    choices = [chance.randrange(60) for _ in range(chance.randrange(10, 90))]
    with tempfile.TemporaryDirectory(dir=MEMORY) as home:
        return asyncio.run(asyncio.wait_for(play(Path(home), choices, acts, human), 30))


@pytest.mark.faults
@settings(max_examples=25)
@given(st.integers(0, 10**6), deeds, st.booleans())
def test_page_file_listing_board_and_python_say_the_same_at_every_event(
    seed: int, acts: list[tuple[int, int, int]], human: bool
) -> None:
    assert compare(seed, acts, human) > 3


@pytest.mark.slow
@pytest.mark.faults
@settings(max_examples=500)
@given(st.integers(0, 10**6), deeds, st.booleans())
def test_page_file_listing_board_and_python_say_the_same_in_five_hundred_plays(
    seed: int, acts: list[tuple[int, int, int]], human: bool
) -> None:
    assert compare(seed, acts, human) > 3
