"""A real kernel driven by a raw client: cells queued at once, interrupts, stdin, late output, comms.

What comes back is kept by the cell whose request it names as its parent, so that output which lands
in a wrong cell shows. All waits are bounded; a wait that runs out says what the kernel has sent.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

BOUND = 20.0
"""Seconds that a cell may take, also on a busy machine."""
OUTPUTS = ("stream", "display_data", "execute_result", "error")


@dataclass
class Cell:
    """One execute request and everything the kernel has sent for it so far.

    Attributes
    ----------
    status : str
        ``ok``, ``error``, ``aborted``; empty while it runs.
    idle : bool
        Whether the kernel has said that it is done with it.
    messages : list of dict
        All iopub messages whose parent it is, in order, status messages left out.
    """

    id: str
    code: str
    status: str = ""
    idle: bool = False
    messages: list[dict[str, Any]] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)
    reply: dict[str, Any] = field(default_factory=dict)

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        """Return the contents of its messages of some types."""
        return [message["content"] for message in self.messages if message["msg_type"] in kinds]

    @property
    def outputs(self) -> list[dict[str, Any]]:
        """What a notebook would store: kinds and contents, streams joined."""
        out: list[dict[str, Any]] = []
        for message in self.messages:
            kind, content = message["msg_type"], message["content"]
            if kind not in OUTPUTS:
                continue
            if kind == "stream" and out and out[-1]["type"] == kind and out[-1]["name"] == content["name"]:
                out[-1]["text"] += content["text"]
            else:
                out.append({"type": kind, **content})
        return out

    def stream(self, name: str) -> str:
        """Return what was written to ``stdout`` or ``stderr``."""
        return "".join(content["text"] for content in self.of("stream") if content["name"] == name)

    @property
    def out(self) -> str:
        """What was printed."""
        return self.stream("stdout")

    @property
    def err(self) -> str:
        """What was written to standard error."""
        return self.stream("stderr")

    @property
    def displays(self) -> list[dict[str, Any]]:
        """The bundles that were displayed, as first shown."""
        return [content["data"] for content in self.of("display_data", "execute_result")]

    @property
    def result(self) -> str:
        """The text of its value."""
        return "".join(content["data"]["text/plain"] for content in self.of("execute_result"))

    @property
    def error(self) -> str:
        """Name and message of its error."""
        return next((f"{content['ename']}: {content['evalue']}" for content in self.of("error")), "")

    @property
    def traceback(self) -> list[str]:
        """What is shown for its error."""
        return next((content["traceback"] for content in self.of("error")), [])

    @property
    def text(self) -> str:
        """The plain text of everything displayed, updates included."""
        kinds = ("display_data", "execute_result", "update_display_data")
        return "\n".join(content["data"].get("text/plain", "") for content in self.of(*kinds))


class Kernel:
    """A kernel and a client of it.

    Parameters
    ----------
    folder : Path
        Where it runs.
    env : mapping
        Added to the environment.
    python : path, optional
        Default: this one.
    """

    def __init__(self, folder: Path, env: Mapping[str, str] | None = None, python: Path | str | None = None) -> None:
        self.folder = folder
        self.cells: dict[str, Cell] = {}
        self.stray: list[dict[str, Any]] = []
        self.answers: list[str] = []
        self.queued = 0.0
        self.stderr = folder / f"kernel-{os.getpid()}-{id(self)}.stderr"
        self.manager = KernelManager()
        self.manager._kernel_spec = KernelSpec(
            argv=[str(python or sys.executable), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            display_name="test",
            language="python",
        )
        with self.stderr.open("wb") as log:
            self.manager.start_kernel(env={**os.environ, **(env or {})}, cwd=str(folder), stderr=log)
        self.client: BlockingKernelClient = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        info = self.client.kernel_info(reply=True, timeout=BOUND)["content"]
        self.features: list[str] = info.get("supported_features", [])

    @property
    def subshells(self) -> bool:
        """Whether it has subshells, on which clicks arrive beside a cell at work."""
        return "kernel subshells" in self.features

    @property
    def unfinished(self) -> list[Cell]:
        """The cells that have not ended."""
        return [cell for cell in self.cells.values() if not (cell.status and cell.idle)]

    def forget(self) -> None:
        """Begin a new test: what has come so far is not looked at any more."""
        self.cells.clear()
        self.stray.clear()
        self.answers.clear()

    # -- requests -----------------------------------------------------------------------

    def send(self, code: str, *, stdin: bool = True, subshell: str | None = None) -> Cell:
        """Queue a cell, on the main shell or a subshell, and return at once."""
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": stdin,
            "stop_on_error": False,
        }
        message = self.client.session.msg("execute_request", content)
        if subshell is not None:
            message["header"]["subshell_id"] = subshell
        self.client.shell_channel.send(message)
        cell = self.cells[message["header"]["msg_id"]] = Cell(message["header"]["msg_id"], code)
        return cell

    def subshell(self) -> str:
        """Ask for a subshell, as JupyterLab does; returns its id."""
        self.client.control_channel.send(self.client.session.msg("create_subshell_request", {}))
        return str(self.client.control_channel.get_msg(timeout=BOUND)["content"]["subshell_id"])

    def run(self, code: str, *, stdin: bool = True, timeout: float = BOUND) -> Cell:
        """Run a cell to its end."""
        return self.finish(self.send(code, stdin=stdin), timeout=timeout)

    def ok(self, code: str, **more: Any) -> Cell:
        """Run a cell that must succeed."""
        cell = self.run(code, **more)
        assert cell.status == "ok", f"{code!r}: {cell.error}\n{cell.traceback}\n{self.log}"
        return cell

    def finish(self, cell: Cell, *, timeout: float = BOUND) -> Cell:
        """Wait for a cell's reply and its idle."""
        self.until(lambda: bool(cell.status) and cell.idle, timeout=timeout, what=f"the end of {cell.code!r}")
        return cell

    def queue(self, *codes: str, stdin: bool = True, timeout: float = BOUND) -> list[Cell]:
        """Run All: queue every cell at once, then wait for the last one to end."""
        cells = [self.send(code, stdin=stdin) for code in codes]
        for cell in cells:
            self.finish(cell, timeout=timeout)
        return cells

    def interrupt(self) -> None:
        """Send the interrupt that the stop button sends."""
        self.manager.interrupt_kernel()

    def complete(self, code: str, cursor: int | None = None) -> list[str]:
        """Return the completions at the cursor (default: the end)."""
        reply = self.client.complete(code, cursor, reply=True, timeout=BOUND)
        return list(reply["content"]["matches"])

    def comm(self, comm_id: str, data: Mapping[str, Any], *, subshell: str | None = None) -> str:
        """Send a message to a comm, as a page does."""
        content = {"comm_id": comm_id, "data": dict(data)}
        message = self.client.session.msg("comm_msg", content)
        if subshell is not None:
            message["header"]["subshell_id"] = subshell
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    # -- what comes back ----------------------------------------------------------------

    def until(self, condition: Callable[[], bool], *, timeout: float = BOUND, what: str = "") -> None:
        """Take in messages until a condition holds."""
        ends = time.monotonic() + timeout
        while not condition():
            left = ends - time.monotonic()
            if left <= 0 or not self.manager.is_alive():
                seen = "\n".join(
                    f"{cell.code[:60]!r}: {cell.status or 'running'} {cell.outputs}" for cell in self.cells.values()
                )
                gone = "" if self.manager.is_alive() else " (the kernel is dead)"
                raise AssertionError(f"not in {timeout} s{gone}: {what or condition}\n{seen}\n{self.log}")
            self._take(min(left, 0.25))

    def when(self, expression: str) -> Callable[[], None]:
        """Watch for a condition inside the kernel, from a thread of its own; returns what waits for it here."""
        place = self.folder / f"when-{len(self.cells)}-{time.monotonic_ns()}"
        self.ok(
            "import threading, time, pathlib\n"
            "def _watch(met, place):\n"
            "    while not met():\n        time.sleep(0.02)\n"
            "    pathlib.Path(place).touch()\n"
            f"threading.Thread(target=_watch, args=(lambda: {expression}, {str(place)!r}), daemon=True).start()"
        )
        return lambda: self.until(place.exists, what=expression)

    def listen(self, seconds: float) -> None:
        """Take in what comes for a while: only to show that something does not come."""
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            self._take(left)

    def _take(self, seconds: float) -> None:
        channels = (self.client.iopub_channel, self.client.shell_channel, self.client.stdin_channel)
        sockets = {channel.socket: channel for channel in channels}
        poller = zmq.Poller()
        for socket in sockets:
            poller.register(socket, zmq.POLLIN)
        for socket, _ in poller.poll(max(1, int(seconds * 1000))):
            channel = sockets[socket]
            while channel.msg_ready():
                self._sort(channel.get_msg(timeout=0))

    def _sort(self, message: dict[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        cell = self.cells.get(message["parent_header"].get("msg_id", ""))
        if kind == "input_request":
            if cell is not None:
                cell.prompts.append(content["prompt"])
            if self.answers:
                self.client.input(self.answers.pop(0))
        elif cell is None:
            if kind not in ("status", "execute_input", "kernel_info_reply", "comm_info_reply", "complete_reply"):
                self.stray.append(message)
        elif kind == "status":
            cell.idle = cell.idle or content["execution_state"] == "idle"
        elif kind == "execute_reply":
            cell.status, cell.reply = content["status"], content
        elif kind != "execute_input":
            cell.messages.append(message)

    @property
    def log(self) -> str:
        """What the kernel's process has written to its own standard error."""
        return self.stderr.read_text("utf-8", "replace")

    # -- the end ------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The kernel's process."""
        return int(self.manager.provisioner.process.pid)

    def kill(self) -> None:
        """End the kernel as a crash does."""
        os.kill(self.pid, signal.SIGKILL)
        self.manager.provisioner.process.wait(BOUND)

    def shutdown(self) -> float:
        """Ask the kernel to end; returns the seconds that its process took.

        ``queued`` says then how much of that its threads were ready to run and the machine was busy with others.
        """
        process = self.manager.provisioner.process
        queues: dict[str, float] = {}
        before = sum(_queued(process.pid).values())
        begun = time.monotonic()
        self.client.shutdown()
        while process.poll() is None:
            assert time.monotonic() - begun < BOUND, f"the kernel lives on\n{self.log}"
            queues.update(_queued(process.pid))
            time.sleep(0.005)
        took = time.monotonic() - begun
        self.queued = max(0.0, sum(queues.values()) - before)
        return took

    def restart(self) -> None:
        """Restart the kernel, as a server does: an interrupt, a request to end, a new process."""
        with self.stderr.open("ab") as log:
            self.manager.restart_kernel(stderr=log)
        self.forget()
        self.client.wait_for_ready(timeout=60)

    def close(self) -> None:
        """End the kernel, however it is."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()


def _queued(pid: int) -> dict[str, float]:
    """Return for each thread of a process the seconds that it stood in the run queue, where the system says so."""
    found = {}
    for place in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            found[place.parent.name] = int(place.read_text("ascii").split()[1]) / 1e9
        except (OSError, IndexError, ValueError):  # it ended while it was looked at
            continue
    return found


@contextmanager
def live_kernel(
    folder: Path, env: Mapping[str, str] | None = None, python: Path | str | None = None
) -> Iterator[Kernel]:
    """Run a kernel for a while."""
    folder.mkdir(parents=True, exist_ok=True)
    kernel = Kernel(folder, env, python)
    try:
        yield kernel
    finally:
        kernel.close()


def statuses(cells: Sequence[Cell]) -> list[str]:
    """Return how cells ended."""
    return [cell.status for cell in cells]
