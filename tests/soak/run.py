"""Soak for minutes or hours: ``python tests/soak/run.py --minutes 240 --seed 7 [--agents 200] [--envelopes 20000]``.

One life after another, each with the next seed; a line after each, all figures at the end. Ends with
an error, and the seed of the life, at the first promise that does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.soaking import soak


def main() -> None:
    """Soak for as long as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--envelopes", type=int, default=20_000, help="of one life")
    chosen = parser.parse_args()
    logging.disable(logging.CRITICAL)  # the models' own faults are logged, and meant
    end = time.monotonic() + 60 * chosen.minutes
    with tempfile.TemporaryDirectory() as home:
        figures = asyncio.run(
            soak(
                Path(home),
                chosen.seed,
                agents=chosen.agents,
                envelopes=chosen.envelopes,
                go_on=lambda figures: time.monotonic() < end or not figures.lives,
                told=lambda line: print(line, flush=True),
            )
        )
    print("\n".join(figures.lines()))


if __name__ == "__main__":
    main()
