"""The lines of a journal: one event each.

``{"seq": n, "v": 1, "t": ISO 8601 with zone, "event": {…}}``. The end of a file that a crash cut
short is passed over; anything else that cannot be read is an error that names file and line.

Source: decision 26.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from ..disk import Files, reason
from ..errors import ConversationBroken, StorageError
from ..events import Stamped, from_json, to_json
from ..given import shown
from .forms import LAST_SEQ, check_event, fault, read_time
from .json_form import awkward, dump_line, parse
from .version import SCHEMA_VERSION, check_version


def dump_event(stamped: Stamped) -> bytes:
    """Return an event's line, its line break included; times are kept to the microsecond.

    Raises
    ------
    TypeError
        The event holds a value without a JSON form.
    """
    event = to_json(stamped.event)
    t = datetime.fromtimestamp(stamped.t, UTC)
    record = {"seq": stamped.seq, "v": SCHEMA_VERSION, "t": t, "event": event}
    line = dump_line(record)
    # NaN and the infinities have become null; where there is none, nothing has to be looked at.
    return dump_line(record, exact=True) if b"null" in line and awkward(event) else line


def read_journal(path: Path, files: Files) -> tuple[list[Stamped], int]:
    """Read a journal.

    Parameters
    ----------
    path : Path
    files : Files

    Returns
    -------
    list of Stamped
        In order.
    int
        Bytes of whole lines. What follows is the torn end of a write that a crash cut short.

    Raises
    ------
    ConversationBroken
        A line before the last whole one cannot be read; file and line are named.
    StorageError
        The file cannot be read.
    """
    try:
        data = files.read(path)
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise StorageError(f"{path} cannot be read ({reason(error)})") from error
    lines = data.split(b"\n")
    lines.pop()  # after the last line break: empty, or torn
    out: list[Stamped] = []
    good = offset = last = 0
    broken: str | None = None
    for number, line in enumerate(lines, 1):
        offset += len(line) + 1
        try:
            record = parse(line)
            if not isinstance(record, dict):
                raise ValueError("not an object")
        except ValueError as error:
            broken = broken or f"{path}, line {number}: {error}"
            continue
        if broken is not None:
            raise ConversationBroken(f"{broken}; mend the line or take it out")
        check_version(record.get("v", SCHEMA_VERSION), f"{path}, line {number}")
        said = record.get("event")
        if isinstance(said, dict):
            check_version(said.get("v", SCHEMA_VERSION), f"{path}, line {number}, event")
        try:
            stamped = Stamped(record["seq"], read_time(record["t"]), from_json(record["event"]))
            if type(stamped.seq) is not int or stamped.seq <= last:
                raise ValueError(f"number {shown(stamped.seq)} does not follow {last}")
            if stamped.seq > LAST_SEQ:
                raise ValueError(f"number {shown(stamped.seq)} is more than {LAST_SEQ}")
            check_event(stamped.event)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            said = f"{fault(error)} is missing" if isinstance(error, KeyError) else fault(error)
            raise ConversationBroken(f"{path}, line {number}: {said}; mend the line or take it out") from error
        last = stamped.seq
        good = offset
        out.append(stamped)
    return out, good
