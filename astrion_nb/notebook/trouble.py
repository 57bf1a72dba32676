"""What went wrong where no cell was waiting: noted on any thread, told once.

Knows no team: what is noted is a line for a person.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass

from ..errors import RunFailed
from ..printable import clean


@dataclass(slots=True)
class Trouble:
    """What went wrong; empty once somebody was told."""

    text: str = ""


class Unseen:
    """The troubles of a kernel that nobody has seen yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._noted: list[Trouble] = []

    def note(self, trouble: Trouble) -> None:
        """Keep a trouble for the next magic; it may be emptied until then."""
        with self._lock:
            self._noted.append(trouble)

    def tell(self, *, read: bool) -> None:
        """Say, once, what was noted.

        Parameters
        ----------
        read : bool
            Whether somebody reads what a cell prints.

        Raises
        ------
        RunFailed
            Nobody does (nbclient, nbval, papermill): the cell fails instead.
        """
        with self._lock:
            noted, self._noted = self._noted, []
        told = [trouble.text for trouble in noted if trouble.text]
        if told and not read:
            raise RunFailed(f"before this cell: {'; '.join(told)}")
        for line in told:
            print(clean(line), file=sys.stderr)
