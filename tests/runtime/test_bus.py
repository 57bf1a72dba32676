"""The bus: every fact once, in order, numbered; what is shown live leaves no trace."""

from __future__ import annotations

import asyncio
import logging

import pytest
from support.journals import NoJournal
from support.teams import go

from astrion_nb.events import ConversationStarted, RequestStarted, Stamped, StatusChanged, TextStreamed, Warned
from astrion_nb.runtime.bus import Bus
from astrion_nb.runtime.order import Live
from astrion_nb.state import TeamState

START = ConversationStarted("c", "", "", "k", "fast", "model", "en", "")


class Memory:
    """A journal that remembers."""

    def __init__(self) -> None:
        self.recorded: list[Stamped] = []
        self.asked: list[int] = []

    def record(self, stamped: Stamped) -> None:
        self.recorded.append(stamped)

    async def durable(self, seq: int) -> None:
        self.asked.append(seq)


def test_an_event_is_applied_then_stored_then_announced() -> None:
    journal, seen = Memory(), []
    bus = Bus(TeamState(), journal, lambda: 5.0)

    def look(stamped: Stamped) -> None:
        assert journal.recorded[-1] is stamped
        seen.append((stamped.seq, stamped.t, bus.state.seq))

    bus.subscribe(look)
    assert bus.publish(START) == 1
    assert bus.publish(StatusChanged(0, "running")) == 2
    assert seen == [(1, 5.0, 1), (2, 5.0, 2)]
    assert bus.state.leader_state.status == "running"


def test_live_events_are_announced_under_the_last_number_and_never_stored() -> None:
    journal, seen = Memory(), []
    bus = Bus(TeamState(), journal, lambda: 5.0)
    bus.publish(START)
    bus.subscribe(seen.append)
    assert bus.publish(TextStreamed(0, "a")) == 1
    assert bus.publish(RequestStarted(0, 1)) == 1
    assert bus.publish(Warned("x")) == 2
    assert [stamped.seq for stamped in seen] == [1, 1, 2]
    assert [stamped.seq for stamped in journal.recorded] == [1, 2]


def test_the_barrier_asks_for_everything_that_was_published() -> None:
    async def main() -> None:
        journal = Memory()
        bus = Bus(TeamState(), journal, lambda: 5.0)
        bus.publish(START)
        bus.publish(Warned("x"))
        await bus.durable()
        assert journal.asked == [2]

    go(main)


def test_an_event_that_cannot_be_applied_is_neither_stored_nor_announced() -> None:
    journal, seen = Memory(), []
    bus = Bus(TeamState(), journal, lambda: 5.0)
    bus.publish(START)
    bus.subscribe(seen.append)
    with pytest.raises(KeyError):
        bus.publish(StatusChanged(9, "running"))
    assert (len(journal.recorded), seen, bus.state.seq) == (1, [], 1)


def test_subscribers_come_and_go_and_a_broken_one_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    bus, seen = Bus(TeamState(), NoJournal(), lambda: 5.0), []

    def broken(stamped: Stamped) -> None:
        raise RuntimeError("view")

    cancels = [bus.subscribe(broken), bus.subscribe(seen.append)]
    assert bus.watched
    with caplog.at_level(logging.ERROR):
        bus.publish(START)
    assert len(seen) == 1
    assert "a subscriber failed on ConversationStarted" in caplog.text
    for cancel in cancels:
        cancel()
        cancel()
    bus.publish(Warned("x"))
    assert len(seen) == 1
    assert not bus.watched


def test_the_live_order_admits_at_once_and_calls_deadlines_off() -> None:
    async def main() -> None:
        order, fired = Live(), []
        await order.admit("Team Leader", "request", 1)
        done = asyncio.Event()
        order.at("a", 1, 0.0, lambda: (fired.append(1), done.set()))
        off = order.at("a", 2, 0.0, lambda: fired.append(2))
        off.cancel()
        off.cancel()
        await asyncio.wait_for(done.wait(), 5)
        await order.sleep(0)
        assert fired == [1]
        assert order.now() > 1_700_000_000
        assert order.monotonic() <= order.monotonic()
        assert order.replaying is False

    go(main)
