"""What the front end of the cell at work can do: read a line, show what a kernel displays.

Knows the kernel's request and nothing of teams.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

_LOOK = 0.1
"""Seconds between two looks at whether a prompt is still of use."""
_ON_ITS_WAY = 0.05
"""Seconds within which a signal that was sent has arrived."""


def allows_input(shell: Any) -> bool:
    """Say whether the request at work can ask its person for a line.

    False under nbclient, nbval, papermill: nobody can act between or during cells there.
    """
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return bool(sys.stdin is not None and sys.stdin.isatty())
    try:
        parent = kernel.get_parent("shell")
    except (AttributeError, TypeError, LookupError):
        parent = getattr(shell, "parent_header", None) or {}
    content = (parent or {}).get("content") or {}
    return bool(content.get("allow_stdin", False))


def has_kernel(shell: Any) -> bool:
    """Say whether a kernel displays for this shell."""
    return getattr(shell, "kernel", None) is not None


def ending(shell: Any) -> bool:
    """Say whether the kernel has been asked to end: it only waits for the cell at work."""
    return bool(getattr(shell, "exit_now", False))


def read_line(prompt: str, gone: Callable[[], bool]) -> str | None:
    """Ask the person for a line in the cell, for as long as the line is of use.

    Parameters
    ----------
    prompt : str
    gone : callable
        ``gone()`` says whether nobody needs the line any more; called in another thread.

    Returns
    -------
    str or None
        ``None`` when the prompt was withdrawn, and where no prompt can be withdrawn: a thread that
        is not the main one takes no signal.

    Raises
    ------
    KeyboardInterrupt
        The person interrupted the cell.
    EOFError
        The person closed the input.
    """
    if threading.current_thread() is not threading.main_thread():
        return None
    over = threading.Event()
    lock = threading.Lock()
    withdrawn = False

    def watch() -> None:
        nonlocal withdrawn
        while not over.wait(_LOOK):
            if gone():
                with lock:
                    if not over.is_set():
                        withdrawn = True
                        _interrupt_main()
                return

    threading.Thread(target=watch, name="astrion prompt", daemon=True).start()
    text = None
    try:
        try:
            text = input(prompt)
        finally:
            with lock:
                over.set()
            if withdrawn:
                time.sleep(_ON_ITS_WAY)  # the interrupt may only now be here: it must not hit what comes next
    except KeyboardInterrupt:
        if not withdrawn:
            raise
    return text


def _interrupt_main() -> None:
    if hasattr(signal, "pthread_kill"):  # also ends a read that blocks
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        _thread.interrupt_main()
