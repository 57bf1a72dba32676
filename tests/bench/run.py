"""Measure and print the table of budgets.

    python tests/bench/run.py [MARK or ROW …] [--json] [--quick]

Exits with 1 when a budget is broken, a measurement failed, or what a row measures is not there yet. Figures that
count take five alternations or more; ``--quick`` takes two and says so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import keep_rows as _keep_rows  # noqa: F401  (registers the rows)
import rows as _rows  # noqa: F401  (registers the rows)
from bench import Bench, MeasurementFailed
from table import Outcome, Row, as_json, as_text, exit_code, failed, judge, not_there, pick

ALTERNATIONS = 5
QUICK = 2


def outcome(bench: Bench, row: Row) -> Outcome:
    """Measure a row and judge it."""
    missing = row.missing()
    if missing:
        return not_there(row, missing)
    try:
        return judge(row, row.measure(bench))
    except MeasurementFailed as error:
        return failed(row, str(error))


def main() -> int:
    """Run the bench; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="MARK or ROW")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} alternations: for working on it, not to quote")
    parser.add_argument("--alternations", type=int, default=ALTERNATIONS, metavar="N")
    arguments = parser.parse_args()
    try:
        picked = pick(arguments.names)
    except LookupError as error:
        parser.error(str(error.args[0]))
    alternations = QUICK if arguments.quick else arguments.alternations
    with Bench(alternations) as bench:
        outcomes = []
        for row in picked:
            outcomes.append(outcome(bench, row))
            print(f"{row.name}: {outcomes[-1].verdict}", file=sys.stderr, flush=True)
    note = (
        f"Python {platform.python_version()}, openai {version('openai')}, {os.cpu_count()} cores, load"
        f" {os.getloadavg()[0]:.1f}; medians of {alternations} alternations"
        + ("" if alternations >= ALTERNATIONS else " (quick: indications, not figures to quote)")
    )
    print(json.dumps(as_json(outcomes, note), indent=1) if arguments.json else as_text(outcomes, note))
    return exit_code(outcomes)


if __name__ == "__main__":
    sys.exit(main())
