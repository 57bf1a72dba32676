"""The soak: 200 agents, 20,000 envelopes, stops, failures, timeouts, terminations, closes and resumes.

For hours: ``python tests/soak/run.py --minutes 240 --seed 7``.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from pathlib import Path

import pytest
from support.soaking import soak

SEED = 20_260_711
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Real files, synced for real; where the memory is a disk, no other program's writing slows them down."""
LIVES, AGENTS, ENVELOPES = 4, 200, 5_000


@pytest.mark.slow
@pytest.mark.soak
def test_four_long_lives_of_two_hundred_agents_keep_every_promise_and_leave_no_memory_behind(tmp_path: Path) -> None:
    async def main(home: Path) -> None:
        figures = await soak(
            home, SEED, agents=AGENTS, envelopes=ENVELOPES, go_on=lambda figures: figures.lives < LIVES
        )
        print("\n" + "\n".join(figures.lines()))
        assert figures.envelopes >= LIVES * ENVELOPES
        assert figures.agents >= LIVES * AGENTS
        assert figures.resumes == LIVES * 5
        for met in (figures.stops, figures.terminations, figures.cuts, figures.failed, figures.timed_out):
            assert met >= LIVES, "each kind of trouble came about"
        assert figures.checks > LIVES * 10
        # The first life is the warm-up. Each later one is let go of whole.
        assert figures.objects[-1] - figures.objects[0] < 1_000, figures.objects
        assert figures.rss[-1] < figures.rss[1] * 1.1 + 8, figures.rss

    logging.disable(logging.CRITICAL)  # the models' own faults are logged, and meant
    try:
        with tempfile.TemporaryDirectory(dir=MEMORY or tmp_path) as home:
            asyncio.run(asyncio.wait_for(main(Path(home)), 600))
    finally:
        logging.disable(logging.NOTSET)
