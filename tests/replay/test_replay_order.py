"""A concurrent team replays byte for byte, whatever the timing."""

from __future__ import annotations

import random

import pytest
from support.replays import busy_model, busy_person, record, replayed, told
from support.teams import go


@pytest.mark.parametrize("seed", range(3))
def test_a_busy_team_replays_byte_equal_under_any_timing(seed: int) -> None:
    async def main() -> None:
        dice = random.Random(seed)
        recorded = await record(busy_model(dice), lambda made: busy_person(made, dice))
        cassette = recorded.cassette
        assert len(cassette.teams[0].order) > 80
        for again in range(20):
            made, player = replayed(cassette, dice=random.Random(1000 * seed + again))
            await busy_person(made)
            assert player.miss is None
            assert told(made) == recorded.told
            player.check()
            player.close()

    go(main)


def test_two_recordings_under_different_timing_hold_different_orders() -> None:
    """Otherwise the test above would prove nothing."""

    async def main() -> None:
        orders = set()
        for seed in range(4):
            dice = random.Random(seed)
            recorded = await record(busy_model(dice), lambda made, dice=dice: busy_person(made, dice))
            orders.add(tuple(row[:3] for row in recorded.cassette.teams[0].order))
        assert len(orders) == 4

    go(main)
