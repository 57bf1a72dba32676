"""The rows of the mark *keep*: what it costs to keep a conversation, and to take it up again.

Each alternation is a fresh process (:mod:`keeping`) that measures both sides next to each other. Knows how the
figures are made, not how they are printed.
"""

from __future__ import annotations

from statistics import median

from bench import Bench, Record
from table import Measured, row

STORE = ("astrion_nb.store.conversations",)
WORK = "a conversation growing to 5,000 messages of 600 bytes"


def _taken(bench: Bench, what: str) -> list[Record]:
    """Return a record of each alternation; which side goes first alternates."""
    return bench.once(
        ("keeping", what),
        lambda: [
            bench.script("keeping.py", what, *(("--swapped",) if i % 2 else ())) for i in range(bench.alternations)
        ],
    )


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} µs"


@row("keep-cpu", "keep", f"CPU per message of {WORK}, documents at its end included", budget=20, unit="µs", needs=STORE)
def keep_cpu(bench: Bench) -> Measured:
    """Without barriers and what the disk takes, as peers are measured; the work itself is taken off."""
    taken = _taken(bench, "grow")
    value = median(record["long"] for record in taken)
    return Measured(value * 1e6, f"beside {_micro(median(record['work'] for record in taken))} of work without a store")


@row(
    "keep-barriers",
    "keep",
    "CPU per message with a barrier every second one, against a bare thread that writes and syncs as often",
    budget=1.6,
    needs=STORE,
)
def keep_barriers(bench: Bench) -> Measured:
    """What durability costs, against what two threads that wake each other take for it; no disk's time on either side.

    No absolute budget: the bare thread alone takes several times what a line and its document do.
    """
    taken = _taken(bench, "barriers")
    ours, theirs, syncing = (median(record[key] for record in taken) for key in ("kept", "bare", "syncing"))
    return Measured(
        median(record["kept"] / record["bare"] for record in taken),
        f"{_micro(ours)} against {_micro(theirs)}, work included; beside that {_micro(syncing)} in"
        f" {taken[0]['syncs']} syncs for {taken[0]['messages']} messages",
    )


@row("keep-bytes-turn", "keep", f"bytes written for {WORK} in one turn, of its final size", budget=3, needs=STORE)
def keep_bytes_turn(bench: Bench) -> Measured:
    """Journal and documents, against the files at the end."""
    return _bytes(bench, "one")


@row("keep-bytes-turns", "keep", f"the same for {WORK} in 50 turns back to back", budget=6, needs=STORE)
def keep_bytes_turns(bench: Bench) -> Measured:
    """The end of a turn begins to settle when the conversation has grown by a share of itself."""
    return _bytes(bench, "many")


def _bytes(bench: Bench, turns: str) -> Measured:
    written, size = max((record[turns] for record in _taken(bench, "grow")), key=lambda pair: pair[0] / pair[1])
    return Measured(written / size, f"{written / 1e6:.2f} MB written, {size / 1e6:.2f} MB at the end")


@row("keep-growth", "keep", "CPU per message of a conversation of 5,000 messages against 100", budget=1.5, needs=STORE)
def keep_growth(bench: Bench) -> Measured:
    """The greater of two: whole conversations compared, and the end of the long one with its beginning."""
    taken = _taken(bench, "grow")
    whole = median(record["long"] / record["short"] for record in taken)
    within = median(record["last"] / record["first"] for record in taken)
    long, short, first, last = (median(record[key] for record in taken) for key in ("long", "short", "first", "last"))
    return Measured(
        max(whole, within),
        f"{_micro(long)} against {_micro(short)}; within the long one {_micro(last)} against {_micro(first)}",
    )


@row(
    "keep-block",
    "keep",
    "longest block of the event loop while 5,000 messages are written, over the idle loop's p99.9",
    budget=5,
    unit="ms",
    needs=STORE,
)
def keep_block(bench: Bench) -> Measured:
    """In a usual writing: the median over many, for now and then the machine has other things to do."""
    taken = _taken(bench, "block")
    longest = [gap for record in taken for gap in record["longest"]]
    idle, writing = (median(record["idle"] for record in taken), median(t for r in taken for t in r["taken"]))
    return Measured(
        median(gap - record["idle"] for record in taken for gap in record["longest"]) * 1e3,
        f"{median(longest) * 1e3:.1f} ms (worst {max(longest) * 1e3:.1f} ms) in {writing * 1e3:.0f} ms of writing;"
        f" idle p99.9 {idle * 1e3:.1f} ms",
    )


@row("keep-open", "keep", "CPU of resuming a conversation of 5,000 messages against parsing its files", budget=3)
def keep_open(bench: Bench) -> Measured:
    """Lock, load, de-duplicate, repair, index; no imports, no paint."""
    pairs = [pair for record in _taken(bench, "open") for pair in record["pairs"]]
    ours, least = (median(side) for side in zip(*pairs, strict=True))
    return Measured(median(a / b for a, b in pairs), f"{ours * 1e3:.1f} ms against {least * 1e3:.1f} ms of orjson")
