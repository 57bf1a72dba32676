"""Steering, sending, asking, stopping and reviving as kinds: five hundred random orders each (faults 10, 16).

Whoever writes to whom, at whatever moment between calls and their results, and however often agents are
stopped and go on: the next request carries it behind all results, once, in order; and one turn at a time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.conducted import Conductor
from support.strict_server import StrictServer
from support.teams import go

from astrion_nb.events import MessageQueued, QuestionAnswered, QuestionAsked, Stamped, StatusChanged
from astrion_nb.ids import HUMAN_ID, LEADER_ID
from astrion_nb.testing import invariants

pytestmark = pytest.mark.faults

few_or_many = pytest.mark.parametrize("count", [50, pytest.param(500, marks=pytest.mark.slow)])
few_or_some = pytest.mark.parametrize("count", [10, pytest.param(100, marks=pytest.mark.slow)])

STEERING = ("send", "send", "send", "ask", "end", "end", "break", "answer", "answer")
MEDDLING = (
    "send",
    "send",
    "ask",
    "ask",
    "stop",
    "stop",
    "end",
    "answer",
    "answer",
    "answer",
    "revive",
    "stop all",
    "so",
)
Step = tuple[str, int, int, int]


def steps(deeds: tuple[str, ...]) -> st.SearchStrategy[list[Step]]:
    """Draw what happens: a deed, by whom (the person too), to whom, and the loop's passes until the next one."""
    one = st.tuples(st.sampled_from(deeds), st.integers(HUMAN_ID, 3), st.integers(0, 3), st.integers(0, 6))
    return st.lists(one, min_size=10, max_size=40)


CHOICES = st.lists(st.integers(1, 59), min_size=4, max_size=24)


@pytest.fixture(scope="module")
def server() -> Iterator[StrictServer]:
    with StrictServer() as running:
        yield running


async def passes(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def step(team: Conductor, deed: str, by: int, to: int) -> None:
    if deed == "answer":
        team.let_answer(to)
    elif deed in ("end", "break"):
        team.end_call(to, by, failing=deed == "break")
    elif deed == "revive":
        team.revive()
    elif deed == "stop all":
        team.stop_all()
    elif deed == "so":
        team.answer_as_person()
    else:
        team.do(deed, by, to)


async def play(team: Conductor, order: list[Step], wired: bool) -> None:
    """Play an order to its end; nothing that is promised may ever fail to hold."""
    try:
        team.begin()
        await team.rig.until(lambda state: len(state.agents) == len(team.members) + 1)
        await team.until(team.all_ask)
        for number in (LEADER_ID, *team.members):
            team.let_answer(number)
        for deed, by, to, turns in order:
            await passes(turns)
            if wired and turns % 2:
                await team.until(team.nothing_under_way)
            step(team, deed, by, to)
            if not wired:
                invariants.check(team.team.state, (), team.team)
        await passes(3)
        await team.finish()
    finally:
        await team.close()
    assert team.faults == []
    assert team.unheard() == []
    invariants.check(team.team.state, team.rig.events, team.team)
    assert team.team.state.open_questions() == []
    assert not team.team.running


def played(server: StrictServer | None, kinds: int, choices: list[int], order: list[Step]) -> Conductor:
    async def main() -> Conductor:
        team = Conductor(choices, server, kinds=kinds)
        await play(team, order, server is not None)
        return team

    team: Conductor = go(main)
    if server is not None:
        assert server.violations == []
    return team


def many(count: int) -> Any:
    return settings(max_examples=count, suppress_health_check=list(HealthCheck))


# -- steering between calls and results (fault 10; decisions 12, 54) --------------------------------------


def steered(count: int, server: StrictServer | None) -> int:
    between: Counter[int] = Counter()

    @many(count)
    @given(CHOICES, steps(STEERING))
    def check(choices: list[int], order: list[Step]) -> None:
        between.update(played(server, 5, choices, order).heard_between)

    check()
    assert set(between) == {0, 1, 2, 3}
    return between.total()


@few_or_many
def test_what_anybody_says_between_calls_and_results_comes_behind_all_of_them_once_and_in_order(count: int) -> None:
    assert steered(count, None) > 2 * count


@few_or_some
def test_no_strict_endpoint_has_cause_to_refuse_a_steered_conversation(server: StrictServer, count: int) -> None:
    assert steered(count, server) > count


# -- sending, asking, stopping, reviving (fault 16; decisions 11, 14, 15, 19, 22) -------------------------


def turns_without_their_report(events: list[Stamped]) -> list[str]:
    """Return the turns of members whose end was not told as it should be.

    Who completes is told to the leader, once; where the leader or the person had asked, the answer is the report.
    Who was stopped or failed tells no completion.
    """
    faults: list[str] = []
    askers: dict[str, int] = {}
    reports: Counter[int] = Counter()
    answers: Counter[int] = Counter()
    for stamped in events:
        event = stamped.event
        if isinstance(event, QuestionAsked):
            askers[event.question_id] = event.asker
        elif isinstance(event, MessageQueued) and event.item.kind == "completion" and event.item.sender_id is not None:
            reports[event.item.sender_id] += 1
        elif isinstance(event, QuestionAnswered):
            answers[event.by] += askers[event.question_id] <= LEADER_ID
        elif isinstance(event, StatusChanged) and event.agent_id != LEADER_ID and event.status in ("completed", "idle"):
            number = event.agent_id
            told = reports.pop(number, 0)
            answered = answers.pop(number, 0)
            due = event.status == "completed" and not answered
            if told != due:
                faults.append(f"event {stamped.seq}: {number} is {event.status}, and {told} reports tell it")
    return faults


def meddled(count: int, server: StrictServer | None) -> tuple[int, int]:
    stops = revivals = 0
    found: set[str] = set()

    @many(count)
    @given(CHOICES, steps(MEDDLING))
    def check(choices: list[int], order: list[Step]) -> None:
        nonlocal stops, revivals
        team = played(server, 6, choices, order)
        found.update(team.found)
        assert turns_without_their_report(team.rig.events) == []
        stops, revivals = stops + team.stops, revivals + team.revivals

    check()
    if count >= 50:
        assert found >= {"running", "waiting", "completed", "idle (stopped)", "idle (failed)"}, (
            "whom a message can find"
        )
    return stops, revivals


@few_or_many
def test_however_often_agents_are_sent_to_asked_stopped_and_revived_they_work_one_turn_at_a_time_and_hear_all_once(
    count: int,
) -> None:
    stops, revivals = meddled(count, None)
    assert stops > count
    if count >= 100:  # few plays meet of each what chance gives them
        assert revivals > count // 25


@few_or_some
def test_no_strict_endpoint_has_cause_to_refuse_who_was_stopped_and_revived(server: StrictServer, count: int) -> None:
    stops, _ = meddled(count, server)
    if count >= 100:  # few plays meet of each what chance gives them
        assert stops > count // 2
