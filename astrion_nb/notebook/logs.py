"""Keeps what the package logs out of cells.

Warnings come from the team's thread, and a kernel prints what a thread writes to standard error in
whatever cell ran last. They go to the kernel's own log instead, which its server shows. Loggers that
a person configures hear them as well. Knows no team.
"""

from __future__ import annotations

import logging
from typing import Any

_LOGGER = logging.getLogger(__package__.partition(".")[0])


class KernelLog(logging.Handler):
    """Hands records to a kernel's log.

    Parameters
    ----------
    log : logging.Logger
    """

    def __init__(self, log: logging.Logger) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a record on."""
        self._log.handle(record)


def attach(shell: Any) -> KernelLog | None:
    """Send the package's log to the shell's kernel; ``None`` where there is no kernel."""
    log = getattr(getattr(shell, "kernel", None), "log", None)
    if log is None:
        return None
    handler = KernelLog(log)
    _LOGGER.addHandler(handler)
    return handler


def detach(handler: KernelLog | None) -> None:
    """Undo :func:`attach`."""
    if handler is not None:
        _LOGGER.removeHandler(handler)
