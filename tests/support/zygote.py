"""A process that has everything imported and forks itself for every piece of work: a new process for a fork's price.

``Zygote("support.killed")`` starts it; ``zygote.call("function", …)`` runs a function of that module in a child of its
own and returns how the child ended. Arguments and results are JSON. The child may be killed, by itself or by its alarm;
the zygote goes on.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import astrion_nb

LONGEST = 60
"""Seconds that a child may take before it counts as hanging."""


@dataclass(frozen=True)
class Ended:
    """How a child ended.

    Parameters
    ----------
    signal : int
        0 when it came to its end by itself.
    value : object
        What the function returned; of a killed child, what it said last.
    error : str
        The traceback of the function's error, or empty.
    """

    signal: int
    value: Any
    error: str


class Zygote:
    """The process; a context manager.

    Parameters
    ----------
    module : str
        Whose functions can be called.
    """

    def __init__(self, module: str) -> None:
        here = Path(__file__).parents[1]
        paths = [str(Path(astrion_nb.__file__).parents[1]), str(here)]
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from support.zygote import serve; serve()", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "0"},
        )

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.wait(LONGEST)

    def call(self, function: str, **arguments: Any) -> Ended:
        """Run a function in a child."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([function, arguments]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the zygote itself has ended"
        number, value, error = json.loads(line)
        if number == signal.SIGALRM:
            raise AssertionError(f"{function}({arguments}) hangs: no end within {LONGEST} s")
        return Ended(number, value, error)


_voice = -1


def say(value: Any) -> None:
    """From a child: say something that is heard even if the process dies in the next moment."""
    os.write(_voice, json.dumps([value, ""]).encode() + b"\n")


def serve() -> None:
    """Fork for every line of the standard input; runs in the zygote."""
    module = importlib.import_module(sys.argv[1])
    while line := os.read(0, 1 << 20):
        function, arguments = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            _live(module, function, arguments, writing)
        os.close(writing)
        with os.fdopen(reading, "rb") as voice:
            said = voice.read().splitlines()
        status = os.waitpid(child, 0)[1]
        value, error = json.loads(said[-1]) if said else (None, "")
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        os.write(1, json.dumps([number, value, error]).encode() + b"\n")


def _live(module: Any, function: str, arguments: dict[str, Any], writing: int) -> None:
    global _voice
    _voice = writing
    signal.alarm(LONGEST)
    try:
        value = getattr(module, function)(**arguments)
        os.write(writing, json.dumps([value, ""]).encode() + b"\n")
    except BaseException:
        os.write(writing, json.dumps([None, traceback.format_exc()]).encode() + b"\n")
    finally:
        os._exit(0)
