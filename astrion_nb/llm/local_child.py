"""The child process that runs llama.cpp's server; started by path, never imported by the package.

Reads one line of JSON from standard input (``model``, ``name``, ``key``, ``context``, ``slots``,
``threads``), starts the server, writes one line of JSON to standard output (``url``), and ends
when standard input ends or its parent is gone. Imports nothing of the package, so that it starts
fast and works wherever the package lies.

Two watches, because the server's constructor holds the interpreter lock while a model loads,
which takes seconds: a forked process waits for the end of standard input from the very
beginning, and a thread of the server itself asks for its parent once the model is loaded (a
process that the parent forked may keep the pipe open after the parent's death).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

_POLL_S = 0.25


def _keep_watch() -> None:
    """Fork a process that kills this one when standard input ends, and ends with it."""
    server = os.getpid()
    if os.fork():
        return
    # The parent must see the ends of the server's output when the server ends.
    silence = os.open(os.devnull, os.O_RDWR)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    import select

    while os.getppid() == server:
        readable, _, _ = select.select([0], [], [], _POLL_S)
        if readable and not os.read(0, 4096):
            if os.getppid() == server:
                os.kill(server, signal.SIGKILL)
            break
    os._exit(0)


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    os._exit(0)


def _line() -> bytes:
    """Read one line, and not a byte more: what follows is for the watches."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            os._exit(0)
        line += byte
    return bytes(line)


def _usable_cpus() -> int:
    """Return how many processors this process may keep busy: affinity and the container's quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        count = min(count, max(1, int(quota) // int(period)))
    except (OSError, ValueError):  # no such file, or "max": no quota
        pass
    # One is left for the kernel where there are enough; beyond eight a small model gets no faster.
    return max(1, min(8, count - 1 if count > 2 else count))


def main() -> None:
    """Run the server until standard input ends."""
    parent = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wanted = json.loads(_line())
    if hasattr(os, "fork"):
        _keep_watch()
    out = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints is for the log, not for the answer

    # Without this, idle threads of a busy small machine spin and take the time of those that work.
    os.environ["OMP_WAIT_POLICY"] = "passive"
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = wanted["model"]
    params.model_alias = {wanted["name"]}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [wanted["key"]]
    params.offline = True
    params.ui = False
    params.endpoint_slots = False
    params.verbosity = 1
    params.n_ctx = wanted["context"]
    params.n_parallel = wanted["slots"]
    params.kv_unified = True
    params.cache_ram_mib = 256
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = wanted["threads"] or _usable_cpus()
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:  # the library has printed why; a traceback would only hide it
        print(error, file=sys.stderr)
        sys.exit(1)
    with os.fdopen(out, "w", encoding="utf-8") as answer:
        answer.write(json.dumps({"url": server.listening_address}) + "\n")

    if hasattr(os, "fork"):
        threading.Thread(target=_watch_parent, args=(parent,), daemon=True).start()
    while os.read(0, 4096):
        pass
    os._exit(0)  # there is nothing to save, and an orderly end would wait for open requests


if __name__ == "__main__":
    main()
