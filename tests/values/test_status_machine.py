"""The closed machine of an agent's status, as data: whole, without a dead end, and without a lie (decision 19)."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astrion_nb.events import AgentCreated, ConversationStarted, Detail, Event, Stamped, Status, StatusChanged
from astrion_nb.status import (
    AT_WORK,
    COMPLETED,
    ENDED,
    NEW,
    RUNNING,
    STANDINGS,
    TERMINATED,
    TRANSITIONS,
    Standing,
    allowed,
    shown,
)
from astrion_nb.testing.invariants import statuses_follow_the_machine

BEGINNING: tuple[Event, ...] = (
    ConversationStarted("c", "", "", "m", "fast", "model", "en", ""),
    AgentCreated(1, "r", "R", "R_1", 1, "r", "m", "fast", "", 0.0, False, ""),
)


def faults(*standings: Standing) -> list[str]:
    """Return what is wrong with an agent that goes through these standings."""
    events = (*BEGINNING, *(StatusChanged(1, status, detail) for status, detail in standings))
    return statuses_follow_the_machine([Stamped(n, 0.0, event) for n, event in enumerate(events, 1)])


def reached(start: Standing, without: tuple[Standing, ...] = ()) -> set[Standing]:
    """Return where an agent can get from a standing, not passing through some."""
    found, todo = set[Standing](), [start]
    while todo:
        here = todo.pop()
        for row in TRANSITIONS:
            if row.before == here and row.after not in found and row.after not in without:
                found.add(row.after)
                todo.append(row.after)
    return found


@pytest.mark.spec
def test_the_machine_knows_the_five_words_and_every_detail_and_nothing_else() -> None:
    assert {status for status, _ in STANDINGS} == set(get_args(Status))
    assert {detail for _, detail in STANDINGS} == set(get_args(Detail))
    assert all(status == "idle" for status, detail in STANDINGS if detail)
    assert {row.before for row in TRANSITIONS} | {row.after for row in TRANSITIONS} == set(STANDINGS)
    assert len({(row.before, row.after) for row in TRANSITIONS}) == len(TRANSITIONS), "one row for each change"
    assert all(row.when and row.before != row.after for row in TRANSITIONS)


@pytest.mark.spec
def test_every_agent_but_a_terminated_one_can_be_revived_and_terminated() -> None:
    assert reached(NEW) == {*STANDINGS} - {NEW}, "every standing can come about, and nobody is new twice"
    for standing in STANDINGS:
        if standing == TERMINATED:
            assert reached(standing) == set()
        else:
            assert RUNNING in reached(standing)
            assert TERMINATED in reached(standing)


@pytest.mark.spec
def test_no_failure_becomes_a_completion_without_work_and_only_work_fails() -> None:
    for standing in (*ENDED, NEW):
        assert COMPLETED not in reached(standing, without=AT_WORK)
    assert {row.before for row in TRANSITIONS if row.after in ENDED} == set(AT_WORK)
    assert [row.before for row in TRANSITIONS if row.after == COMPLETED] == [RUNNING]


@settings(max_examples=500)
@given(st.lists(st.sampled_from(STANDINGS), max_size=12))
def test_a_history_of_statuses_holds_exactly_when_each_change_is_in_the_table(standings: list[Standing]) -> None:
    table = {(row.before, row.after) for row in TRANSITIONS}
    changes = list(zip((NEW, *standings), standings, strict=False))
    assert [allowed(*change) for change in changes] == [change in table for change in changes]
    told = faults(*standings)
    assert len(told) == sum(change not in table for change in changes)
    for line, (before, after) in zip(told, [change for change in changes if change not in table], strict=True):
        assert line.endswith(f"agent 1 went from {shown(before)} to {shown(after)}")


def test_an_error_stands_only_where_something_went_wrong() -> None:
    events = (*BEGINNING, StatusChanged(1, "running"), StatusChanged(1, "completed", "", "401"))
    (fault,) = statuses_follow_the_machine([Stamped(n, 0.0, event) for n, event in enumerate(events, 1)])
    assert fault == "event 4: agent 1 is completed, and has an error: 401"


def machine_table() -> str:
    """Return the machine as the page prints it: the changes that come about in the same way in one row."""
    rows: dict[tuple[Standing, str], list[Standing]] = {}
    for row in TRANSITIONS:
        rows.setdefault((row.after, row.when), []).append(row.before)
    lines = ["| from | to | when |", "|---|---|---|"]
    for (after, when), before in rows.items():
        lines.append(f"| {', '.join(f'`{shown(standing)}`' for standing in before)} | `{shown(after)}` | {when} |")
    return "\n".join(lines)


def test_the_page_prints_the_machine_as_it_is() -> None:
    page = (Path(__file__).parents[2] / "notebooks" / "promises.md").read_text("utf-8")
    assert machine_table() in page, f"the table of notebooks/promises.md is to be\n\n{machine_table()}"
