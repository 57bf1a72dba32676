"""Runs one command and ends with it everything that it has started: a program of its own.

    python -I -S supervisor.py COMMAND ARGUMENT…

Standard input is a lifeline: when it ends, because the caller wants the command's end or has itself
come to one, whatever way, everything is killed. On Linux a process that detaches itself is given to
this one when its parent ends (a child subreaper), so it is found; elsewhere the command's process
group is what is found.

Knows nothing of the package, and imports nothing but the standard library's smallest modules.
"""

import contextlib
import os
import select
import signal
import sys
import time

PATIENCE = 5.0
"""Seconds in which what keeps forking is hunted."""
_SUBREAPER = 36


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


def main(command: list[str]) -> int:
    """Run a command; returns its exit status, 128 and the signal's number for one that was killed."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    adopting = adopt_orphans()
    started = os.fork()
    if started == 0:
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
            os.closerange(3, 256)
            os.execvp(command[0], command)
        except BaseException as error:
            os.write(2, f"{command[0]}: {error}\n".encode())
        os._exit(127)
    status = None
    while status is None:
        ready, _, _ = select.select([0, woken], [], [])
        if 0 in ready and not os.read(0, 4096):
            break  # the lifeline is cut
        if woken in ready:
            told = os.read(woken, 4096)
            if any(number != signal.SIGCHLD for number in told):
                break
        with contextlib.suppress(ChildProcessError):
            while True:
                process, how = os.waitpid(-1, os.WNOHANG)
                if process == 0:
                    break
                if process == started:
                    status = os.waitstatus_to_exitcode(how)
    kill_everything(started, adopting)
    if status is None:
        return 137
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
