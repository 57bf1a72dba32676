"""Slots, the gate of an endpoint, tries and budgets, each alone (decisions 24, 58; fault 18)."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.teams import go
from support.virtual import VirtualOrder

from astrion_nb.errors import (
    BudgetExceeded,
    ConfigError,
    ModelBroken,
    ModelBusy,
    ModelError,
    ModelRefused,
    ModelUnreachable,
)
from astrion_nb.messages import Usage
from astrion_nb.runtime.limits import BROKEN_TRIES, BUSY_TRIES, LONGEST_WAIT, Gate, Limits, Slots, attempts


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


# -- slots ----------------------------------------------------------------------------------


def test_slots_go_by_rank_and_then_by_arrival_whatever_the_endpoint() -> None:
    async def main() -> None:
        slots, order, served = Slots(1), VirtualOrder(), []
        here, there = Gate(order), Gate(order)

        async def work(name: str, rank: int, gate: Gate) -> None:
            await gate.enter(rank, slots)
            served.append(name)

        await here.enter(1, slots)
        for name, rank, gate in [("a", 1, there), ("b", 1, here), ("leader", 0, there), ("c", 1, here)]:
            asyncio.ensure_future(work(name, rank, gate))  # noqa: RUF006
            await settle()
        for gate in (here, there, there, here):
            slots.release()
            gate.leave(None, answered=True)
            await settle()
        assert served == ["leader", "a", "b", "c"]
        slots.release()
        here.leave(None, answered=True)
        assert slots.used == here.under_way == there.under_way == 0

    go(main)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["take", "give", "cancel", "busy"]), st.integers(0, 5)), max_size=40),
    st.sampled_from([1, 2, 3, 4, None]),
)
def test_slots_and_places_never_leak_and_are_never_more_than_may_be(
    steps: list[tuple[str, int]], size: int | None
) -> None:
    async def main() -> None:
        slots, order = Slots(size), VirtualOrder(auto=False)
        gates = Gate(order), Gate(order)
        held: list[Gate] = []
        waiting: list[asyncio.Task[None]] = []

        async def take(rank: int, gate: Gate) -> None:
            await gate.enter(rank, slots)
            assert gate.bound is None or gate.under_way <= gate.bound
            held.append(gate)

        def give(outcome: ModelError | None = None) -> None:
            slots.release()
            held.pop().leave(outcome, answered=outcome is None)

        for step, value in steps:
            if step == "take":
                waiting.append(asyncio.ensure_future(take(value % 2, gates[value % 3 == 0])))
            elif step in ("give", "busy") and held:
                give(busy(float(value)) if step == "busy" else None)
                if value % 2 and waiting:
                    waiting[value % len(waiting)].cancel()  # cancelled just when its turn may have come
            elif step == "cancel" and waiting:
                waiting[value % len(waiting)].cancel()
            if value % 3:
                await settle()
                order.advance(value / 3)
        await settle()
        order.advance(10.0)
        await settle()
        waiting = [task for task in waiting if not task.done()]
        assert len(held) == slots.used == sum(gate.under_way for gate in gates)
        assert size is None or slots.used <= size
        full = [gate for gate in gates if gate.bound is not None and gate.under_way >= gate.bound]
        assert not waiting or slots.used == size or full, "nobody waits beside a free slot"
        while held or any(not task.done() for task in waiting):
            give()
            await settle()
        assert slots.used == gates[0].under_way == gates[1].under_way == 0

    asyncio.run(main())


# -- the gate -------------------------------------------------------------------------------


def busy(seconds: float | None) -> ModelBusy:
    return ModelBusy("429", status=429, retry_after=seconds)


@pytest.mark.faults
def test_a_busy_endpoint_is_left_alone_and_then_tried_by_one_then_by_more() -> None:
    async def main() -> None:
        order = VirtualOrder(auto=False)
        gate = Gate(order, jitter=random.Random(1))
        entered: list[float] = []

        async def enter() -> None:
            await gate.enter(1)
            entered.append(order.monotonic())

        for _ in range(8):
            await gate.enter(1)
        for _ in range(8):
            gate.leave(busy(10.0), answered=False)
        assert gate.bound == 1
        tasks = [asyncio.ensure_future(enter()) for _ in range(8)]
        await settle()
        order.advance(9.9)
        await settle()
        assert entered == [], "nobody asks before the endpoint's own time is over"
        order.advance(1.2)
        await settle()
        assert len(entered) == 1
        open_at_once = []
        while len(entered) < 8:
            before = len(entered)
            gate.leave(None, answered=True)
            await settle()
            open_at_once.append(len(entered) - before)
        assert open_at_once[0] == 2, "one more with every success"
        await asyncio.gather(*tasks)

    go(main)


def test_a_wait_that_is_not_told_is_a_second_and_no_wait_is_longer_than_the_bound() -> None:
    async def main() -> None:
        for told, least, most in [(None, 1.0, 1.1), (5.0, 5.0, 5.5), (1e9, LONGEST_WAIT, LONGEST_WAIT * 1.1)]:
            order = VirtualOrder()
            gate = Gate(order)
            await gate.enter(1)
            gate.leave(busy(told), answered=False)
            await gate.enter(1)
            assert least <= order.monotonic() <= most

    go(main)


def test_a_cancelled_request_says_nothing_about_the_endpoint() -> None:
    async def main() -> None:
        gate = Gate(VirtualOrder())
        await gate.enter(1)
        gate.leave(busy(1.0), answered=False)
        bound = gate.bound
        await gate.enter(1)
        gate.leave(None, answered=False)
        assert gate.bound == bound
        await gate.enter(1)
        gate.leave(ModelBroken("500"), answered=False)
        assert gate.bound == bound
        await gate.enter(1)
        gate.leave(None, answered=True)
        assert gate.bound == (bound or 0) + 1

    go(main)


def test_after_enough_successes_the_gate_does_not_bind() -> None:
    async def main() -> None:
        gate = Gate(VirtualOrder())
        await gate.enter(1)
        gate.leave(busy(1.0), answered=False)
        for _ in range(64):
            await gate.enter(1)
            gate.leave(None, answered=True)
        assert gate.bound is None

    go(main)


def test_who_is_cancelled_while_the_gate_is_closed_takes_nothing_along() -> None:
    async def main() -> None:
        order = VirtualOrder(auto=False)
        gate = Gate(order)
        await gate.enter(1)
        gate.leave(busy(5.0), answered=False)
        waiting = asyncio.ensure_future(gate.enter(1))
        await settle()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        order.advance(10)
        await asyncio.wait_for(gate.enter(0), 1)
        assert order.next_deadline is None

    go(main)


# -- tries ----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ModelBroken("x"), ModelUnreachable("x"), busy(1.0), ModelRefused("x")])
def test_nothing_is_tried_again_after_text_was_shown(error: Any) -> None:
    assert attempts(error, 1, shown=True, jitter=random.Random(1)) is None


def test_waits_grow_with_the_tries_and_end() -> None:
    jitter = random.Random(1)
    waits = [attempts(ModelBroken("x"), tries, shown=False, jitter=jitter) for tries in range(1, BROKEN_TRIES + 1)]
    assert waits[-1] is None
    told = [wait for wait in waits if wait is not None]
    assert told == sorted(told)
    assert all(0.3 < wait < 12 for wait in told)
    assert [attempts(busy(2.0), tries, shown=False, jitter=jitter) for tries in (1, BUSY_TRIES - 1, BUSY_TRIES)] == [
        0,
        0,
        None,
    ]
    assert attempts(ModelRefused("x"), 1, shown=False, jitter=jitter) is None


# -- budgets --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Limits)])
@pytest.mark.parametrize("value", [0, -1, True, "3", [], float("nan")])
def test_a_limit_that_is_none_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"limits: {name} is"):
        Limits(**{name: value})


def test_limits_hold_from_the_number_on() -> None:
    limits = Limits(max_turns=2, max_tokens=10, max_cost=1.0)
    limits.check_turns(1)
    limits.check_team(Usage(4, 5), 0.99)
    for check in (
        lambda: limits.check_turns(2),
        lambda: limits.check_team(Usage(5, 5), 0),
        lambda: limits.check_team(Usage(), 1.0),
    ):
        with pytest.raises(BudgetExceeded, match="used up"):
            check()
    limits.check_team(Usage(), None)
    Limits(max_turns=None).check_turns(10**9)
