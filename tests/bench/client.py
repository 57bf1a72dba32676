"""One fresh process that does the work of one or more cells with one subject, and prints what it took as JSON.

    python client.py --side ours --url http://127.0.0.1:PORT --home DIR [--reps 1] [--core 0] CELL…

Before the cells comes one small run (N = 1, no latency) in the same process: imports, connections and caches that a
second run finds are not what the cells measure. CPU is that of all threads, in user and system mode, from before the
team is made until it is closed; wall time ends with the run. Every answer is checked; a wrong one is an error, never
a figure. Knows no budget.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import resource
import sys
import time
import tracemalloc
import urllib.request
from pathlib import Path
from typing import Any, Protocol

from cells import Cell

SPAWNED = float(os.environ.get("BENCH_SPAWNED") or time.monotonic())


class Subject(Protocol):
    """What is measured."""

    delegate: str

    def load(self) -> None:
        """Import what the subject needs."""

    async def setup(self, base_url: str, home: Path) -> None:
        """Make what lives as long as the process."""

    async def fanout(self, cell: Cell) -> tuple[list[str], str]:
        """Do the work of a cell; return the workers' answers and the leader's."""

    async def end(self) -> dict[str, Any]:
        """Release what one fan-out made; return further figures of it."""

    async def close(self) -> None:
        """Release what lives as long as the process."""

    async def at_rest(self, agents: int) -> tuple[int, int]:
        """Return the bytes that so many agents at rest hold, and those of their messages among them."""


class WrongAnswer(RuntimeError):
    """The subject did not do the work."""


def subject(side: str) -> Subject:
    """Return the subject of a side."""
    if side in ("reference", "lean"):
        from reference import Lean, Reference

        return Lean() if side == "lean" else Reference()
    from ours import Ours, OursViewed

    return OursViewed() if side == "viewed" else Ours()


def cpu() -> float:
    """CPU seconds of this process so far, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def status(field: str) -> int:
    """Return a number of ``/proc/self/status`` (KiB for memory)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise LookupError(f"/proc/self/status has no {field}")


def forget_peak() -> None:
    """Let the peak of memory (``VmHWM``) begin at what is used now."""
    Path("/proc/self/clear_refs").write_text("5")


def get(url: str) -> dict[str, Any]:
    """Fetch JSON from the fake server."""
    with urllib.request.urlopen(url) as answer:
        fetched: dict[str, Any] = json.load(answer)
    return fetched


async def measure(under: Subject, url: str, cell: Cell) -> dict[str, Any]:
    """Do a cell once.

    Raises
    ------
    WrongAnswer
        An answer is missing or wrong, or the server refused a request.
    """
    get(f"{url}/set/{cell}?delegate={under.delegate}&role=worker")
    gc.collect()
    forget_peak()
    cpu_before, wall_before = cpu(), time.perf_counter()
    answers, final = await under.fanout(cell)
    wall, cpu_run = time.perf_counter() - wall_before, cpu() - cpu_before
    threads = status("Threads")
    further = await under.end()
    cpu_all = cpu() - cpu_before
    server = get(f"{url}/stats")
    check(cell, answers, final, server)
    return {
        "cell": str(cell),
        "wall": wall,
        "cpu": cpu_all,
        "cpu_run": cpu_run,
        "peak_kib": status("VmHWM"),
        "threads": threads,
        "requests": server["requests"],
        "max_inflight": server["max_inflight"],
        "connections": server["connections"] - 1,
        "bytes_in": server["bytes_in"],
        "server_cpu": server["cpu"],
        "first_request_t": server["first_request_t"],
        "kinds": server["kinds"],
        **further,
    }


def check(cell: Cell, answers: list[str], final: str, server: dict[str, Any]) -> None:
    """Hold the answers against the cell, on the client's side and on the server's.

    Raises
    ------
    WrongAnswer
        They differ.
    """
    wrong = []
    good = sum(answer == cell.answer for answer in answers)
    if good != cell.n or len(answers) != cell.n:
        wrong.append(f"{good} of {cell.n} workers' answers are right ({len(answers)} given)")
    if final != cell.answer:
        wrong.append(f"the leader's answer is {final[:80]!r}")
    if server["answers_seen"] != cell.n:
        wrong.append(f"the leader's requests held {server['answers_seen']} answers, not {cell.n}")
    if server["bad"] or server["dropped"]:
        wrong.append(f"{server['bad']} requests refused, {server['dropped']} dropped: {server['last_bad']}")
    if wrong:
        raise WrongAnswer(f"{cell}: " + "; ".join(wrong))


async def at_rest(under: Subject, url: str, home: Path, few: int, many: int) -> dict[str, Any]:
    """Return KiB that each further agent at rest holds, its messages left out, and those of its messages."""
    await under.setup(f"{url}/v1", home)
    taken = []
    tracemalloc.start()
    for agents in (1, few, many):  # the first one fills caches
        get(f"{url}/set/{Cell(agents, 0, 1)}?delegate={under.delegate}&role=worker")
        taken.append(await under.at_rest(agents))
    (held, messages), (held_many, messages_many) = taken[1:]
    more = (many - few) * 1024
    written = (messages_many - messages) / more
    return {"idle_kib": (held_many - held) / more - written, "idle_messages_kib": written}


async def run(under: Subject, url: str, home: Path, cells: list[Cell], reps: int) -> dict[str, Any]:
    """Warm up, then do each cell ``reps`` times."""
    out: dict[str, Any] = {}
    await under.setup(f"{url}/v1", home)
    try:
        cold = await measure(under, url, Cell(1, 3, 50))
        out["first_request_s"] = cold["first_request_t"] - SPAWNED
        out["cold"] = cold
        out["runs"] = [await measure(under, url, cell) for cell in cells for _ in range(reps)]
    finally:
        await under.close()
    return out


def main() -> None:
    """Measure and print one JSON line; an error is printed the same way and ends with status 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", type=Cell.parse, metavar="CELL")
    parser.add_argument("--side", choices=("ours", "viewed", "reference", "lean"), required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--reps", type=int, default=1)
    parser.add_argument("--idle", type=int, nargs=2, metavar=("FEW", "MANY"), help="measure agents at rest instead")
    parser.add_argument("--core", type=int, help="the one core to run on")
    arguments = parser.parse_args()
    if arguments.core is not None:
        os.sched_setaffinity(0, {arguments.core})
    out: dict[str, Any] = {"side": arguments.side}
    failed = False
    try:
        cpu_before = cpu()
        under = subject(arguments.side)
        under.load()
        out["load_cpu"] = cpu() - cpu_before
        if arguments.idle:
            out |= asyncio.run(at_rest(under, arguments.url, arguments.home, *arguments.idle))
        else:
            out |= asyncio.run(run(under, arguments.url, arguments.home, arguments.cells, arguments.reps))
    except Exception as error:
        out["error"] = f"{type(error).__name__}: {error}"
        failed = True
        import traceback

        traceback.print_exc()
    print(json.dumps(out), flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
