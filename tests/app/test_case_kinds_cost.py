"""What a team has cost, over whole lives of it (fault 20): the sum of what the server told, each request once.

A real server keeps the ledger: what it told of tokens with every try, by agent and by model. Tries fail with
and without figures, figures come in several chunks, agents are stopped between two tries, teams are closed or
killed and resumed, and recordings are replayed.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.case_teams import UnderWay, homes, perform
from support.disks import Disk, Picture
from support.served import LEADER, actor, configure, first_envelope
from support.strict_server import (
    Response,
    StrictServer,
    calls,
    close,
    delta,
    finish,
    status,
    text,
    usage,
)

from astrion_nb import Team
from astrion_nb.errors import ConversationNotFound, RunFailed
from astrion_nb.events import FLEETING, Stamped
from astrion_nb.home import Home
from astrion_nb.ids import LEADER_ID
from astrion_nb.messages import Usage
from astrion_nb.replay import player, recorder
from astrion_nb.state import TeamState, apply
from astrion_nb.store.loading import load
from astrion_nb.testing import invariants

pytestmark = pytest.mark.faults

few_or_many = pytest.mark.parametrize("count", [30, pytest.param(500, marks=pytest.mark.slow)])

PRICES = {"one": (2.0, 10.0), "two": (0.5, 1.0), "three": (30.0, 0.25)}
Book = dict[tuple[str, str], Usage]
HOW = (
    *("done", "done", "done silently", "look", "look", "send", "send"),
    *("cut", "cut silently", "failed in the stream", "busy in the stream"),
    *("busy", "unavailable", "withheld", "refused", "half", "nothing"),
)


def error_event(code: int, kind: str) -> dict[str, Any]:
    return {"error": {"message": "not now", "type": kind, "code": code}}


class Ledger:
    """Answers as numbers say, and notes what it told about tokens.

    Attributes
    ----------
    book : dict
        By actor and model, the sum of what was told.
    """

    def __init__(self, choices: list[int]) -> None:
        self.choices = choices[::-1]
        self.book: Book = defaultdict(Usage)
        self.how: list[str] = []
        self._numbers = itertools.count(1)

    def pick(self, among: int) -> int:
        return self.choices.pop() % among if self.choices else 0

    def __call__(self, request: dict[str, Any], _: int) -> Response:
        who, key = actor(request), request["model"].removeprefix("strict-")
        begins = who == LEADER and not any(message["role"] == "assistant" for message in request["messages"])
        how = HOW[self.pick(len(HOW))] if self.choices else "done"
        self.how.append(how)
        if how == "busy":
            return status(429, headers={"Retry-After": "3"})
        if how == "unavailable":
            return status(503)
        if how == "refused":
            return status(403)
        told = [] if "silently" in how else self.told(who, key)
        if how.startswith("cut"):
            return [delta(role="assistant", content=""), *told, b"data: {", close()]
        if how == "failed in the stream":
            return [delta(role="assistant", content=""), *told, error_event(500, "server_error")]
        if how == "busy in the stream":
            return [delta(role="assistant", content=""), *told, error_event(429, "rate_limit_exceeded")]
        if how == "withheld":
            return [delta(content="Per"), finish("content_filter"), *told]
        if how == "half":
            return [delta(content="Half an"), *told, close()]
        if how == "nothing":
            return [delta(role="assistant", content=""), finish(), *told]
        if begins:
            return [*calls(*(self.create(number) for number in (1, 2)), tokens=None), *told]
        if how == "look":
            return [*calls(("list_active_sub_agents", {}), tokens=None), *told]
        if how == "send" and who == LEADER:
            wanted = {"agent_id": 1 + self.pick(2), "message": "More of it."}
            return [*calls(("send_message_to_sub_agent", wanted), tokens=None), *told]
        return [*text("That is all.", tokens=None), *told]

    def create(self, number: int) -> tuple[str, dict[str, Any]]:
        wanted: dict[str, Any] = {"agent_id": number, "role_id": "ui-operator", "task": f"Page {number}."}
        key = (None, "one", "two", "three")[self.pick(4)]
        return "create_sub_agent", wanted | ({"model_key": key} if key else {})

    def told(self, who: str, key: str) -> list[Any]:
        """Note what a try cost, and return the chunks that tell it: one, or running totals in several."""
        prompt, completion = 1000 + next(self._numbers), 1 + self.pick(90)
        cached, thought = self.pick(3) * 100, self.pick(2)
        self.book[who, key] += Usage(prompt, completion, cached, thought)
        details = {
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": thought},
        }
        parts = [usage(prompt, completion * n // 3, **details) for n in range(1 + self.pick(3), 3)]
        return [*parts, usage(prompt, completion, **details)]


def spent(state: TeamState) -> Book:
    """Return what a state says was spent, by actor as the server knows it, and model."""
    return {
        (LEADER if number == LEADER_ID else first_envelope(agent), key): used
        for number, agent in state.agents.items()
        for key, used in agent.usage.items()
        if used.total
    }


def agreed(team: Team, expected: Book) -> None:
    """Check tokens and cost of a team, its agents and its result against a ledger."""
    assert spent(team.state) == {place: used for place, used in expected.items() if used.total}
    total = sum(expected.values(), Usage())
    agents = sum((agent.usage for agent in team.agents), team.state.leader_state.tokens)
    assert team.usage == agents == total
    cost = sum(
        (used.input * PRICES[key][0] + used.output * PRICES[key][1]) / 1e6 for (_, key), used in expected.items()
    )
    assert team.cost == pytest.approx(cost)
    result = team.result()
    assert (result.usage, result.cost) == (team.usage, team.cost)
    by_agent = [team.prices(key, used) for agent in team.state.agents.values() for key, used in agent.usage.items()]
    assert sum(price or 0 for price in by_agent) == pytest.approx(cost)


def plus(one: Book, other: Book) -> Book:
    return {place: one.get(place, Usage()) + other.get(place, Usage()) for place in one.keys() | other.keys()}


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[StrictServer, Path]]:
    with StrictServer() as server, homes() as folder:
        prices = {key: f"price = {{ input = {a}, output = {b} }}" for key, (a, b) in PRICES.items()}
        configure(folder, server, server, server, more=prices)
        yield server, folder


def left_on(home: Home, picture: Picture, name: str) -> TeamState | None:
    """Return the conversation as a disk holds it."""
    try:
        return load(home.conversations / name, picture).state  # type: ignore[arg-type]  # it is only read
    except ConversationNotFound:
        return None


def after(events: list[Stamped], seq: int) -> TeamState:
    """Return the state after the events up to a number."""
    state = TeamState()
    for stamped in events:
        if stamped.seq <= seq:
            apply(state, stamped.event, seq=stamped.seq, t=stamped.t)
    return state


async def impatient(team: Team, ticks: int, under_way: UnderWay, stopped: list[int]) -> None:
    """Stop the first agent that is seen to wait for its next try so often, while nobody is being answered."""
    runtime = await team.open()
    while True:
        await asyncio.sleep(0.1)
        waits = [one.id for one in runtime.agents.values() if one.task is not None and not one.is_leader]
        if waits and not under_way.count:
            ticks -= 1
        if waits and not under_way.count and ticks < 0:
            stopped.append(waits[0])
            await team.stop(waits[0], "enough")
            return


async def nobody() -> None:
    """Leave the team alone."""


class Life:
    """One life of a team: opened, run, and closed or killed.

    Parameters
    ----------
    team : Team
    ledger : Ledger
        What the server tells in it.
    before : dict
        What was spent before.
    """

    def __init__(self, team: Team, ledger: Ledger, before: Book) -> None:
        self.team, self.ledger, self.before = team, ledger, before
        self.events: list[Stamped] = []
        self.stopped: list[int] = []
        self.left: Picture | None = None
        self.under_way = UnderWay()

    def live(self, disk: Disk, *, patience: int | None = None, kill_at: int = 0) -> Picture:
        """Live it, and return what is on the disk when it is over: killed after so many events, or closed."""

        def look(stamped: Stamped) -> None:
            if not isinstance(stamped.event, FLEETING):
                self.events.append(stamped)
            if len(self.events) == kill_at and self.left is None:
                self.left = disk.killed()

        async def main() -> None:
            team = self.team
            team.watch(look)
            async with team:
                await team.open()
                agreed(team, self.before)
                stopping = impatient(team, patience, self.under_way, self.stopped) if patience is not None else nobody()
                person = asyncio.ensure_future(stopping)
                with suppress(RunFailed):
                    await team.run("Go.")
                person.cancel()
                await asyncio.gather(person, return_exceptions=True)
                invariants.check(team.state, self.events, await team.open())
                agreed(team, plus(self.before, self.ledger.book))

        with self.under_way.counted():
            perform(main, files=lambda: disk, busy=self.under_way)
        return self.left or disk.killed()


ENDS = ("closed", "stopped", "stopped", "killed", "killed")
NUMBERS = st.lists(st.integers(0, 10**4), min_size=12, max_size=45)


@few_or_many
def test_tokens_and_cost_are_what_the_server_told_whatever_fails_and_however_a_life_ends(
    served: tuple[StrictServer, Path], count: int
) -> None:
    server, folder = served
    home = Home(folder)
    root = home.conversations.parent
    seen: set[str] = set()
    kills: list[int] = []
    stops: list[int] = []

    @settings(max_examples=count, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.tuples(NUMBERS, st.sampled_from(ENDS), st.integers(0, 40)), min_size=1, max_size=2))
    def check(lives: list[tuple[list[int], str, int]]) -> None:
        picture = Picture({}, {root, home.conversations})
        name: str | None = None
        before: Book = {}
        for choices, how, moment in lives:
            ledger = server.on_request = Ledger(choices)
            life = Life(Team(home=home, conversation=name, human=False), ledger, before)
            picture = life.live(
                Disk(root, picture),
                patience=moment % 6 if how == "stopped" else None,
                kill_at=moment + 2 if how == "killed" else 0,
            )
            seen.update(ledger.how)
            kills.extend([moment] * (life.left is not None))
            stops.extend(life.stopped)
            assert server.violations == []
            name = life.team.conversation_id
            stored = left_on(home, picture, name)
            if stored is None:
                name, before = None, {}  # killed before anything was on the disk
                continue
            if life.events[0].seq == 1:
                assert spent(after(life.events, stored.seq)) == spent(stored)
            most, before = plus(before, ledger.book), spent(stored)
            assert all(used.total <= most[place].total for place, used in before.items())
            if life.left is None:
                assert before == {place: used for place, used in most.items() if used.total}

    check()
    assert seen == set(HOW) if count > 100 else len(seen) > 6
    if count >= 100:  # few plays meet of each what chance gives them
        assert len(kills) > count // 50
        assert len(stops) > count // 50


@pytest.mark.parametrize("count", [30, pytest.param(250, marks=pytest.mark.slow)])
def test_a_replay_counts_what_was_recorded_asks_nobody_and_costs_nothing(
    served: tuple[StrictServer, Path], count: int
) -> None:
    server, folder = served
    home = Home(folder)
    root = home.conversations.parent
    cassette = folder / "life.cassette.json"
    seen: set[str] = set()
    stops: list[int] = []

    @settings(max_examples=count, suppress_health_check=list(HealthCheck))
    @given(NUMBERS, st.sampled_from((None, 0, 0, 0, 1)))
    def check(choices: list[int], patience: int | None) -> None:
        recorder.start_over(cassette)
        cassette.unlink(missing_ok=True)
        ledger = server.on_request = Ledger(choices)
        life = Life(Team(home=home, record=cassette, human=False), ledger, {})
        life.live(Disk(root, Picture({}, {root, home.conversations})), patience=patience)
        seen.update(ledger.how)
        stops.extend(life.stopped)
        asked = len(server.requests)

        async def main() -> None:
            async with Team(home=home, replay=cassette, human=False) as team:
                await team.start("Go.")
                for number in life.stopped:
                    await team.stop(number, "enough")
                with suppress(RunFailed):
                    await team.wait()
                assert spent(team.state) == spent(life.team.state) == {k: v for k, v in ledger.book.items() if v.total}
                assert team.state.run_status == life.team.state.run_status
                assert team.cost is None

        player.rewind(cassette)
        perform(main, files=lambda: Disk(root, Picture({}, {root, home.conversations})))
        assert len(server.requests) == asked

    check()
    assert seen == set(HOW) if count > 100 else len(seen) > 6
    if count >= 100:  # few plays meet of each what chance gives them
        assert len(stops) > count // 50
