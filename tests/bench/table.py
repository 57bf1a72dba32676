"""Rows, their budgets, and the table: what is a row, when is it broken, how is it printed.

Pure: measures nothing. A row is registered where it is written, so adding one touches one place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from bench import Bench

Verdict = Literal["ok", "BROKEN", "FAILED", "not there yet"]


@dataclass(frozen=True, slots=True)
class Measured:
    """What a row's function found.

    Parameters
    ----------
    value : float
        What the budget bounds: mostly a ratio.
    figures : str
        The absolute figures behind it, with units.
    """

    value: float
    figures: str


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Parameters
    ----------
    name : str
        By which it is picked on the command line.
    mark : str
        The group of rows it belongs to.
    what : str
        What is measured, on which work.
    budget : float
    unit : str
        What value and budget count; ``x`` for a ratio.
    at_least : bool
        The value must reach the budget; otherwise it must not pass it.
    needs : tuple of str
        Modules without which there is nothing to measure yet.
    measure : callable
    """

    name: str
    mark: str
    what: str
    budget: float
    unit: str
    at_least: bool
    needs: tuple[str, ...]
    measure: Callable[[Bench], Measured]

    def missing(self) -> list[str]:
        """Return the needed modules that do not exist yet."""
        return [module for module in self.needs if not _exists(module)]

    def holds(self, value: float) -> bool:
        """Tell whether a value is within the budget; what is no number never is."""
        return value >= self.budget if self.at_least else value <= self.budget


@dataclass(frozen=True, slots=True)
class Outcome:
    """A row after it was measured, or could not be."""

    row: str
    mark: str
    what: str
    budget: float
    unit: str
    at_least: bool
    verdict: Verdict
    value: float | None
    figures: str


ROWS: dict[str, Row] = {}


def row(
    name: str,
    mark: str,
    what: str,
    *,
    budget: float,
    unit: str = "x",
    at_least: bool = False,
    needs: Sequence[str] = ("astrion_nb.app.team",),
) -> Callable[[Callable[[Bench], Measured]], Callable[[Bench], Measured]]:
    """Register the decorated function as a row.

    Raises
    ------
    ValueError
        There is a row or a mark of that name.
    """

    def register(measure: Callable[[Bench], Measured]) -> Callable[[Bench], Measured]:
        if name in ROWS or any(name == other.mark or mark == other.name for other in ROWS.values()):
            raise ValueError(f"there is a row or a mark {name!r} already")
        ROWS[name] = Row(name, mark, what, budget, unit, at_least, tuple(needs), measure)
        return measure

    return register


def pick(names: Iterable[str]) -> list[Row]:
    """Return the rows of the given names and marks in the order of the table; all of them for none.

    Raises
    ------
    LookupError
        No row and no mark has that name.
    """
    wanted = set(names)
    unknown = wanted - ROWS.keys() - {row.mark for row in ROWS.values()}
    if unknown:
        raise LookupError(f"no row or mark {', '.join(sorted(unknown))}; rows: {', '.join(ROWS)}")
    return [row for row in ROWS.values() if not wanted or row.name in wanted or row.mark in wanted]


def judge(row: Row, measured: Measured) -> Outcome:
    """Hold a measurement against its budget."""
    return _outcome(row, "ok" if row.holds(measured.value) else "BROKEN", measured.value, measured.figures)


def not_there(row: Row, missing: Sequence[str]) -> Outcome:
    """Return the outcome of a row whose subject does not exist yet: no figure, and not in order."""
    return _outcome(row, "not there yet", None, f"waits for {', '.join(missing)}")


def failed(row: Row, reason: str) -> Outcome:
    """Return the outcome of a row that could not be measured."""
    return _outcome(row, "FAILED", None, reason)


def _outcome(row: Row, verdict: Verdict, value: float | None, figures: str) -> Outcome:
    return Outcome(row.name, row.mark, row.what, row.budget, row.unit, row.at_least, verdict, value, figures)


def exit_code(outcomes: Iterable[Outcome]) -> int:
    """Return 0 when every row was measured and is within its budget, else 1; nothing measured is not in order."""
    verdicts = [outcome.verdict for outcome in outcomes]
    return 0 if verdicts and all(verdict == "ok" for verdict in verdicts) else 1


def as_text(outcomes: Sequence[Outcome], note: str) -> str:
    """Return the table as Markdown, ``note`` above it."""
    lines = [note, "", "| row | measured | budget | | figures | what |", "|---|---|---|---|---|---|"]
    for outcome in outcomes:
        value = "–" if outcome.value is None else _number(outcome.value, outcome.unit)
        budget = f"{'≥' if outcome.at_least else '≤'} {_number(outcome.budget, outcome.unit)}"
        cells = (outcome.row, value, budget, outcome.verdict, outcome.figures, outcome.what)
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(lines)


def as_json(outcomes: Sequence[Outcome], note: str) -> dict[str, Any]:
    """Return the table as a JSON object."""
    return {"note": note, "ok": exit_code(outcomes) == 0, "rows": [asdict(outcome) for outcome in outcomes]}


def _number(value: float, unit: str) -> str:
    number = f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return f"{number} {unit}" if unit != "x" else f"{number} ×"


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent is missing
        return False
