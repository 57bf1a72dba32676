"""The rows of the table: what is measured, on which work, against which budget.

Each function takes a :class:`bench.Bench` and returns what it found. Ratios are medians over the alternations of the
ratio within one alternation: the two sides of it ran next to each other. Knows how the figures are made, not how
they are printed.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from bench import Bench, MeasurementFailed, middle, runs
from cells import Cell
from table import Measured, row

WORK = Cell(100, 3, 50, lat=200, rate=100)
LONG, SHORT = Cell(30, 0, 401), Cell(30, 0, 1)
SMALL, LARGE = Cell(10, 3, 50), Cell(300, 3, 50)
RERUN = Cell(10, 0, 5, lat=20)
TALK = Cell(20, 0, 500, lat=200, rate=50, mixed=True)
RERUNS = 100
TEAM = "astrion_nb.app.team"
VIEW = "astrion_nb.widgets.team"
MAGICS = "astrion_nb.notebook.magics"


def per_turn(record: dict[str, Any], cell: Cell) -> float:
    """Return CPU milliseconds per model turn of the work."""
    return middle(record, cell, "cpu") / cell.turns * 1e3


def _cpu_per_turn(bench: Bench, side: str) -> Measured:
    pairs = bench.pairs(side, WORK)
    ours, reference = ([per_turn(record, WORK) for record in side] for side in zip(*pairs, strict=True))
    ratios = [a / b for a, b in zip(ours, reference, strict=True)]
    extra = median(middle(record, WORK, "requests") for record, _ in pairs) - WORK.turns
    closing = median((middle(r, WORK, "cpu") - middle(r, WORK, "cpu_run")) / WORK.turns * 1e3 for r, _ in pairs)
    return Measured(
        median(ratios),
        f"{median(ours):.2f} ms ({closing:.2f} of it closing) against {median(reference):.2f} ms;"
        f" {extra:.0f} extra requests; ratios {min(ratios):.2f} to {max(ratios):.2f}",
    )


@row("cpu-per-turn", "team", f"CPU per model turn, {WORK}, saving and one subscriber", budget=0.4)
def cpu_per_turn(bench: Bench) -> Measured:
    """CPU of a run, from making the team to having closed it."""
    return _cpu_per_turn(bench, "ours")


@row("cpu-per-turn-viewed", "team", f"the same, {WORK}, with the live view attached", budget=0.55, needs=(TEAM, VIEW))
def cpu_per_turn_viewed(bench: Bench) -> Measured:
    """The view's comm packs every message as a kernel does and drops the bytes."""
    return _cpu_per_turn(bench, "viewed")


@row("cpu-per-token", "team", f"CPU per streamed token, {LONG} less {SHORT}", budget=0.2)
def cpu_per_token(bench: Bench) -> Measured:
    """What tokens add, dispatch of events included."""
    pairs = bench.pairs("ours", LONG, SHORT, reps=3)
    tokens = LONG.tokens - SHORT.tokens

    def micro(record: dict[str, Any]) -> float:
        return (middle(record, LONG, "cpu") - middle(record, SHORT, "cpu")) / tokens * 1e6

    ours, reference = ([micro(record) for record in side] for side in zip(*pairs, strict=True))
    ratio = median(a / b for a, b in zip(ours, reference, strict=True))
    return Measured(ratio, f"{median(ours):.1f} µs against {median(reference):.1f} µs")


@row("wall", "team", f"wall time of {WORK} against its critical path", budget=1.4)
def wall(bench: Bench) -> Measured:
    """How much longer a run takes than nobody can avoid."""
    pairs = bench.pairs("ours", WORK)
    ours, reference = ([middle(record, WORK, "wall") for record in side] for side in zip(*pairs, strict=True))
    path = WORK.critical_path
    return Measured(
        median(ours) / path, f"{median(ours):.2f} s, critical path {path:.2f} s, reference {median(reference):.2f} s"
    )


@row("in-flight", "team", f"requests in flight at once per worker, {WORK}", budget=1.0, at_least=True)
def in_flight(bench: Bench) -> Measured:
    """All workers must be served at once."""
    most = [middle(record, WORK, "max_inflight") for record, _ in bench.pairs("ours", WORK)]
    return Measured(min(most) / WORK.n, f"{min(most):.0f} in flight of {WORK.n} workers")


@row("threads", "team", f"threads per worker, {WORK}: no thread pool carries the work", budget=0.1)
def threads(bench: Bench) -> Measured:
    """Concurrency must not be made of threads."""
    most = max(middle(record, WORK, "threads") for record, _ in bench.pairs("ours", WORK))
    return Measured(most / WORK.n, f"{most:.0f} threads")


def _scaled(bench: Bench) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    def ours() -> dict[str, Any]:
        return bench.client("ours", *[SMALL] * 10, LARGE, LARGE)

    def reference() -> dict[str, Any]:
        return bench.client("reference", SMALL, SMALL, LARGE)

    return bench.once("scaled", lambda: [(a, b) for a, b in bench.alternate(ours, reference)])


@row("growth", "team", f"CPU per turn, {LARGE} against {SMALL}", budget=1.15)
def growth(bench: Bench) -> Measured:
    """A larger team must not cost more per turn."""
    pairs = _scaled(bench)
    ratios = [per_turn(record, LARGE) / per_turn(record, SMALL) for record, _ in pairs]
    small, large = (median(per_turn(record, cell) for record, _ in pairs) for cell in (SMALL, LARGE))
    theirs = median(per_turn(record, LARGE) / per_turn(record, SMALL) for _, record in pairs)
    return Measured(median(ratios), f"{large:.2f} ms against {small:.2f} ms; the reference grows {theirs:.2f} ×")


@row("peak-memory", "team", f"peak memory of the process, {LARGE}", budget=1.2)
def peak_memory(bench: Bench) -> Measured:
    """Resident memory at its highest, interpreter and imports included."""
    pairs = [
        tuple(max(run["peak_kib"] for run in runs(record, LARGE)) / 1024 for record in pair) for pair in _scaled(bench)
    ]
    ratio = median(ours / reference for ours, reference in pairs)
    return Measured(
        ratio, f"{median(pair[0] for pair in pairs):.0f} MiB against {median(pair[1] for pair in pairs):.0f} MiB"
    )


@row("idle-agent", "team", "memory of an idle agent without its messages", budget=6.0, unit="KiB")
def idle_agent(bench: Bench) -> Measured:
    """What 400 more agents at rest hold, less their messages."""
    records = bench.once(
        "idle",
        lambda: [bench.client("ours", more=("--idle", "100", "500")) for _ in range(min(3, bench.alternations))],
    )
    value = median(record["idle_kib"] for record in records)
    return Measured(value, f"and {median(record['idle_messages_kib'] for record in records):.1f} KiB of messages")


@row("import", "team", "CPU of `import astrion_nb` against `import openai`", budget=0.3)
def import_package(bench: Bench) -> Measured:
    """The SDK and the widgets are loaded on first use."""
    bench.import_cpu("astrion_nb"), bench.import_cpu("openai")  # compile what is not compiled yet
    pairs = bench.alternate(lambda: bench.import_cpu("astrion_nb"), lambda: bench.import_cpu("openai"))
    ours, reference = (median(side) for side in zip(*pairs, strict=True))
    return Measured(median(a / b for a, b in pairs), f"{ours * 1e3:.0f} ms against {reference * 1e3:.0f} ms")


@row(
    "load-ext",
    "team",
    "CPU of `%load_ext astrion_nb` against `import openai`, real kernels",
    budget=0.6,
    needs=(MAGICS,),
)
def load_ext(bench: Bench) -> Measured:
    """Both in a kernel that was just started."""

    def cpu(statement: str) -> float:
        with bench.kernel() as kernel:
            kernel.execute("import time", timeout=20)
            code = f"before = time.process_time()\n{statement}\ntaken = time.process_time() - before"
            return float(kernel.execute(code, timeout=60, value="taken"))

    pairs = bench.alternate(lambda: cpu("%load_ext astrion_nb"), lambda: cpu("import openai"))
    ours, reference = (median(side) for side in zip(*pairs, strict=True))
    return Measured(median(a / b for a, b in pairs), f"{ours * 1e3:.0f} ms against {reference * 1e3:.0f} ms")


@row("first-request", "team", "wall time from spawning a script to its first request at the server", budget=1.2)
def first_request(bench: Bench) -> Measured:
    """Imports, configuration, a conversation on disk, and the request."""
    pairs = [(ours["first_request_s"], theirs["first_request_s"]) for ours, theirs in bench.pairs("ours")]
    ours, reference = (median(side) for side in zip(*pairs, strict=True))
    return Measured(median(a / b for a, b in pairs), f"{ours:.2f} s against {reference:.2f} s")


def _view_traffic(bench: Bench) -> list[dict[str, Any]]:
    def measure() -> list[dict[str, Any]]:
        records = [bench.client("viewed", TALK) for _ in range(min(3, bench.alternations))]
        return [run for record in records for run in runs(record, TALK)]

    return bench.once("view traffic", measure)


@row("view-bytes", "team", f"bytes to the page per byte of UTF-8 text, {TALK}", budget=2.5, needs=(TEAM, VIEW))
def view_bytes(bench: Bench) -> Measured:
    """Packed content and buffers of every message after the comm is open, over the text that the agents streamed."""
    taken = _view_traffic(bench)
    text = len(TALK.answer.encode())
    ratios = [run["view_bytes"] / (run["kinds"]["worker_final"] + run["kinds"]["leader_final"]) / text for run in taken]
    sent, opening = (median(run[field] for run in taken) / 1024 for field in ("view_bytes", "view_opening"))
    return Measured(median(ratios), f"{sent:.0f} KiB; before that {opening:.0f} KiB of code and style, once a page")


@row("view-messages", "team", f"messages to the page per second, {TALK}", budget=12.0, unit="/s", needs=(TEAM, VIEW))
def view_messages(bench: Bench) -> Measured:
    """Comm messages over the wall time of the run."""
    taken = _view_traffic(bench)
    return Measured(
        median(run["view_messages"] / run["wall"] for run in taken),
        f"{median(run['view_messages'] for run in taken):.0f} messages in {median(run['wall'] for run in taken):.1f} s",
    )


def _rerun(bench: Bench, cells: list[str], value: str, worker: str = "echo") -> Measured:
    """Execute the last of ``cells`` again and again; count the times that it got stuck, failed or answered wrongly."""
    bench.get(f"/set/{RERUN}?delegate=create_sub_agent&role=worker&worker={worker}")
    bad: list[str] = []
    with bench.kernel() as kernel:
        for cell in cells[:-1]:
            kernel.execute(cell, timeout=60)
        for i in range(RERUNS):
            try:
                given = kernel.execute(cells[-1], timeout=30, value=value)
            except TimeoutError as error:
                bad.append(f"run {i + 1}: {error}")
                break
            except MeasurementFailed as error:
                bad.append(f"run {i + 1}: {error}")
                continue
            if given != [RERUN.answer] * RERUN.n:
                bad.append(f"run {i + 1}: {len(given)} answers, not {RERUN.n}, or wrong ones")
    server = bench.get("/stats")
    failures = len(bad) + server["bad"] + server["dropped"]
    if server["max_inflight"] < RERUN.n:
        raise MeasurementFailed(f"only {server['max_inflight']} concurrent calls, not {RERUN.n}")
    return Measured(
        failures,
        f"{server['finished']} requests, {server['max_inflight']} at once, {server['connections']} connections"
        + "".join(f"; {reason}" for reason in bad[:3]),
    )


MAKE = "team = ours.make()\nresult = await team.run(ours.TASK)"
MAGIC = "%%team --wait\nPlease get all the work items done."


@row(
    "rerun",
    "team",
    f"re-running a cell {RERUNS} times in a real kernel, {RERUN}, its old team dropped: stuck or failed",
    budget=0,
    unit="",
)
def rerun(bench: Bench) -> Measured:
    """The cell rebinds its team and leaves the old one to the collector, as cells do."""
    return _rerun(bench, ["import ours; ours.prepare_home()", MAKE], "ours.answers(team)")


@row(
    "rerun-magic",
    "team",
    f"re-running a %%team cell {RERUNS} times in a real kernel, {RERUN}: stuck or failed",
    budget=0,
    unit="",
    needs=(TEAM, MAGICS),
)
def rerun_magic(bench: Bench) -> Measured:
    """The cell as a person writes it; it has no tool of ours, so a worker is known by one that every member has."""
    cells = ["%load_ext astrion_nb", "import ours; ours.prepare_home()", MAGIC]
    return _rerun(bench, cells, "ours.answers(team)", worker="ask_master")
