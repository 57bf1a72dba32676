"""The closed machine of an agent's status: which word may follow which, and when.

Five words stand in files (data model §6); an ``idle`` agent may have a detail that says why it is
idle. Both together are a *standing*. What is not in :data:`TRANSITIONS` does not happen. A message
revives every agent but a terminated one, and no failure becomes a completion: from ``idle`` with a
detail the only way to ``completed`` is through ``running``. Knows no agent and no task.

Source: data model §6, decisions 9, 15, 19, 22, 29.
"""

from __future__ import annotations

from dataclasses import dataclass

from .events import Detail, Status

Standing = tuple[Status, Detail]
"""A status and its detail; the detail is empty unless the status is ``idle``."""

NEW: Standing = ("idle", "")
"""How an agent is created: at rest, before its first message."""
RUNNING: Standing = ("running", "")
WAITING: Standing = ("waiting", "")
COMPLETED: Standing = ("completed", "")
FAILED: Standing = ("idle", "failed")
TIMED_OUT: Standing = ("idle", "timed_out")
STOPPED: Standing = ("idle", "stopped")
INTERRUPTED: Standing = ("idle", "interrupted")
TERMINATED: Standing = ("terminated", "")

STANDINGS: tuple[Standing, ...] = (
    NEW,
    RUNNING,
    WAITING,
    COMPLETED,
    FAILED,
    TIMED_OUT,
    STOPPED,
    INTERRUPTED,
    TERMINATED,
)
"""Every standing there is."""
AT_WORK = (RUNNING, WAITING)
ENDED = (FAILED, TIMED_OUT, STOPPED, INTERRUPTED)
"""A turn that ended without a completion."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the machine.

    Parameters
    ----------
    before, after : Standing
    when : str
        What makes the change.
    """

    before: Standing
    after: Standing
    when: str


def _rows(before: tuple[Standing, ...], after: Standing, when: str) -> tuple[Transition, ...]:
    return tuple(Transition(standing, after, when) for standing in before)


TRANSITIONS: tuple[Transition, ...] = (
    *_rows((NEW,), RUNNING, "its first message wakes it"),
    *_rows((COMPLETED,), RUNNING, "a message begins another turn"),
    *_rows(ENDED, RUNNING, "a message or an answer that is waited for revives it, and a retry who failed"),
    *_rows((RUNNING,), WAITING, "it asks, and waits for the answer"),
    *_rows((WAITING,), RUNNING, "the last question it waits for is answered or closed"),
    *_rows((RUNNING,), COMPLETED, "it ended its turn with a text"),
    *_rows(AT_WORK, FAILED, "its model, its answer or the runtime failed"),
    *_rows((RUNNING,), TIMED_OUT, "its time is over; the clock stands still while it waits"),
    *_rows(AT_WORK, STOPPED, "somebody ended its turn, or a budget is used up"),
    *_rows(AT_WORK, INTERRUPTED, "the program ended, or the team was closed"),
    *_rows((NEW, COMPLETED, *ENDED), WAITING, "its conversation was opened, and a question of its is still open"),
    *_rows((NEW, COMPLETED, *ENDED), TERMINATED, "it was terminated; who is at work is stopped first"),
)
"""The whole machine."""

_ALLOWED = {(row.before, row.after) for row in TRANSITIONS}


def allowed(before: Standing, after: Standing) -> bool:
    """Say whether an agent may go from one standing to another. Staying as it was is no change, and not allowed."""
    return (before, after) in _ALLOWED


def shown(standing: Standing) -> str:
    """Return a standing as people read it: ``idle (failed)``."""
    status, detail = standing
    return f"{status} ({detail})" if detail else status
