"""Runs one command and ends with it everything that it has started: a program of its own.

    python -I -S supervisor.py COMMAND ARGUMENT…

Standard input is a lifeline: when it ends, because the caller wants the command's end or has itself
come to one, whatever way, everything is killed. On Linux a process that detaches itself is given to
this one when its parent ends (a child subreaper), so it is found; elsewhere the command's process
group is what is found. There are two of this process, one below the other, with one lifeline: whichever
of them is killed, by the command or by the caller's event loop, the other one ends the command.

Knows nothing of the package, and imports nothing but the standard library's smallest modules.
"""

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable

PATIENCE = 5.0
"""Seconds in which what keeps forking is hunted."""
_SUBREAPER = 36
_ASKED_TO_END = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def adopt_orphans() -> bool:
    """Become the parent of every descendant whose own parent ends; says whether the system can."""
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    return bool(ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0) == 0)


def descendants() -> list[int]:
    """Return the processes below this one, by ``/proc``."""
    below: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    # The command's name stands in parentheses, and may hold any character.
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            below.setdefault(parent, []).append(int(name))
    found: list[int] = []
    todo = [os.getpid()]
    while todo:
        for process in below.get(todo.pop(), ()):
            found.append(process)
            todo.append(process)
    return found


def kill_everything(group: int, adopting: bool) -> None:
    """Kill what is left, until nothing is."""
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
        left = descendants() if adopting else []
        for step in (signal.SIGSTOP, signal.SIGKILL):  # first nobody forks any more
            for process in left:
                with contextlib.suppress(OSError):
                    os.kill(process, step)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)


def see_out(supervisor: int) -> None:
    """Let the supervisor below end its command first: what it has started is found by nobody else."""
    ends = time.monotonic() + PATIENCE
    with contextlib.suppress(OSError):
        os.kill(supervisor, signal.SIGTERM)
        while time.monotonic() < ends and not os.waitpid(supervisor, os.WNOHANG)[0]:
            time.sleep(0.005)


def supervise(start: Callable[[], int], *, supervises: bool = False) -> int:
    """Run something in a process of its own session, see it end or the lifeline cut, and kill what is left.

    Parameters
    ----------
    start : callable
        What the process does; returns its exit status.
    supervises : bool
        Whether that is to supervise.

    Returns
    -------
    int
        The exit status; 128 and the signal's number for what was killed.
    """
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, *_ASKED_TO_END):
        signal.signal(number, lambda *_: None)
    adopting = adopt_orphans()
    started = os.fork()
    status: int | None = None
    if started == 0:
        status = 127
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, *_ASKED_TO_END):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            for end in (woken, wake):
                os.close(end)
            status = start()
        finally:
            os._exit(status)
    while status is None:
        ready, _, _ = select.select([0, woken], [], [])
        if 0 in ready and not os.read(0, 4096):
            break  # the lifeline is cut
        if woken in ready and any(number in _ASKED_TO_END for number in os.read(woken, 4096)):
            break
        with contextlib.suppress(ChildProcessError):
            while True:
                process, how = os.waitpid(-1, os.WNOHANG)
                if process == 0:
                    break
                if process == started:
                    status = os.waitstatus_to_exitcode(how)
    if supervises and status is None and not adopting:
        see_out(started)
    kill_everything(started, adopting)
    if status is None:
        return 128 + signal.SIGKILL
    return status if status >= 0 else 128 - status


def execute(command: list[str]) -> int:
    """Become a command that has neither an input nor the lifeline; returns only when it cannot be run."""
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.closerange(3, 256)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and what it becomes would too
            signal.signal(number, signal.SIG_DFL)
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error}\n".encode())
    return 127


def main(command: list[str]) -> int:
    """Run a command; returns its exit status, 128 and the signal's number for one that was killed."""
    return supervise(lambda: supervise(lambda: execute(command)), supervises=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
