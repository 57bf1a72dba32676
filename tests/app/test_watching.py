"""What is kept for those who begin to look at a team late."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

import pytest
from support.teams import go

from astrion_nb.app.watching import Watch
from astrion_nb.errors import TeamError
from astrion_nb.events import Event, MessageAppended, Stamped, TextStreamed, Warned
from astrion_nb.messages import Message


def told(watch: Watch, first: int, last: int) -> None:
    for seq in range(first, last + 1):
        watch.tell(Stamped(seq, 0.0, Warned(str(seq))))
        watch.tell(Stamped(seq, 0.0, TextStreamed(0, "x")))


async def heard(watch: Watch, since: int) -> list[str]:
    events: list[Event] = [event async for event in watch.events(since)]
    return [event.text for event in events if isinstance(event, Warned)]


def test_memory_stays_flat_however_long_a_team_works() -> None:
    watch = Watch(kept=500)
    seen: list[int] = []
    watch.add(lambda stamped: seen.append(0) if not stamped.seq % 10_000 else None)

    def work(first: int, last: int) -> int:
        for seq in range(first, last):
            watch.tell(Stamped(seq, 0.0, MessageAppended(0, Message("user", f"{seq}" * 50))))
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = work(1, 2_000)
        after = work(2_000, 30_000)
    finally:
        tracemalloc.stop()
    assert len(seen) == 2
    assert after - before < 100_000, "bytes for 28,000 messages of 250 characters"


def test_who_comes_late_gets_the_latest_events_and_those_asked_for_by_number() -> None:
    async def main() -> None:
        watch = Watch(kept=3)
        told(watch, 101, 103)
        watch.close()
        assert await heard(watch, 0) == ["101", "102", "103"]
        assert await heard(watch, 5) == ["101", "102", "103"], "what an earlier process did is not asked for"
        told(watch, 104, 105)
        assert await heard(watch, 0) == ["103", "104", "105"]
        assert await heard(watch, 102) == ["103", "104", "105"]
        assert await heard(watch, 105) == []

    go(main)


def test_events_that_are_kept_no_more_are_not_left_out_silently() -> None:
    async def main() -> None:
        watch = Watch(kept=3)
        told(watch, 1, 9)
        with pytest.raises(TeamError, match="events: 5 to 6 are kept no more; read the team's state"):
            await heard(watch, 4)
        listening = asyncio.create_task(heard(watch, 6))
        await asyncio.sleep(0)
        told(watch, 10, 20)
        watch.close()
        assert await listening == [str(seq) for seq in range(7, 21)], "who listens misses nothing"

    go(main)
