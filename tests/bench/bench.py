"""The processes of a bench: one fake server for all, a fresh client for each measurement, real kernels.

Ours and the reference alternate within one session, and which goes first alternates too, so that what else happens
on the machine meets both. A measurement made for one row is reused by the next. Knows no budget and no row.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, TypeVar

from cells import Cell

if TYPE_CHECKING:
    from jupyter_client.blocking.client import BlockingKernelClient

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ARTEFACTS = ROOT / "tests" / "artefacts"
CLIENT_LIMIT = 300.0
"""Seconds after which a client is stuck and killed."""

Record = dict[str, Any]
T = TypeVar("T")


class MeasurementFailed(RuntimeError):
    """A measurement could not be made: the subject failed, gave a wrong answer or got stuck."""


class Bench:
    """One session of measurements against one fake server.

    Parameters
    ----------
    alternations : int
        How often ours and the reference take turns; five at least for a figure that counts.
    log : text stream, optional
        Where the errors of the clients go; default standard error.
    """

    def __init__(self, alternations: int, *, log: IO[str] | None = None) -> None:
        self.alternations = alternations
        self.log = log or sys.stderr
        self._memo: dict[object, Any] = {}
        cores = sorted(os.sched_getaffinity(0))
        self._client_core: int | None = cores[0] if len(cores) > 1 else None
        self._server_core: int | None = cores[1] if len(cores) > 1 else None

    def __enter__(self) -> Bench:
        ARTEFACTS.mkdir(parents=True, exist_ok=True)
        # in the checkout, not in /tmp: that may be memory, and what durability costs would vanish
        self._home = tempfile.TemporaryDirectory(prefix="bench-", dir=ARTEFACTS, ignore_cleanup_errors=True)
        self._server = subprocess.Popen(
            [sys.executable, str(HERE / "fake_server.py"), *_core(self._server_core)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._server.stdout is not None
        ready = self._server.stdout.readline().split()
        if ready[:1] != ["ready"]:
            self.__exit__(None, None, None)
            raise MeasurementFailed("the fake server does not start; is httptools installed (extra test)?")
        self.url = f"http://127.0.0.1:{ready[1]}"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._server.terminate()
        self._server.wait()
        if self._server.stdout is not None:
            self._server.stdout.close()
        self._home.cleanup()

    def get(self, path: str) -> Record:
        """Fetch JSON from the fake server."""
        with urllib.request.urlopen(self.url + path) as answer:
            fetched: Record = json.load(answer)
        return fetched

    def home(self) -> Path:
        """Return a new, empty folder on a real disk."""
        return Path(tempfile.mkdtemp(dir=self._home.name))

    def environment(self, home: Path) -> dict[str, str]:
        """Return the environment of a process that measures: our package importable, nothing of the user's."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ASTRION_", "OPENAI_"))}
        return kept | {
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(HERE))),
            "ASTRION_HOME": str(home),
            "ASTRION_OFFLINE": "1",
            "OPENAI_API_KEY": "sk-bench",
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "OPENAI_MODEL": "gpt-4o-mini",
        }

    def client(self, side: str, *cells: Cell, reps: int = 1, more: Sequence[str] = ()) -> Record:
        """Measure ``cells`` with one side in a fresh process.

        Raises
        ------
        MeasurementFailed
            The client failed, gave a wrong answer or got stuck.
        """
        home = self.home()
        command = [sys.executable, str(HERE / "client.py"), "--side", side, "--url", self.url, "--home", str(home)]
        command += ["--reps", str(reps), *_core(self._client_core), *more, *map(str, cells)]
        environment = self.environment(home) | {"BENCH_SPAWNED": repr(time.monotonic())}
        what = f"{side} on {' '.join(map(str, cells)) or 'the warm-up'}"
        return self._record(what, command, environment)

    def script(self, name: str, *arguments: str) -> Record:
        """Run a script beside this file in a fresh process, with an empty home; return what it prints.

        Raises
        ------
        MeasurementFailed
            It failed or got stuck.
        """
        home = self.home()
        command = [sys.executable, str(HERE / name), *arguments, "--home", str(home), *_core(self._client_core)]
        return self._record(f"{name} {' '.join(arguments)}", command, self.environment(home))

    def _record(self, what: str, command: Sequence[str], environment: Mapping[str, str]) -> Record:
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=CLIENT_LIMIT, start_new_session=True
            )
        except subprocess.TimeoutExpired:
            raise MeasurementFailed(f"{what}: stuck for {CLIENT_LIMIT:.0f} s; {self.get('/stats')}") from None
        if done.stderr:
            print(done.stderr, end="", file=self.log, flush=True)
        try:
            record: Record = json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError):
            raise MeasurementFailed(f"{what}: no result, exit status {done.returncode}") from None
        if "error" in record:
            raise MeasurementFailed(f"{what}: {record['error']}")
        return record

    def once(self, key: object, measure: Callable[[], T]) -> T:
        """Return what ``measure`` gives, measured once per process for ``key``; a failure is kept as well."""
        if key not in self._memo:
            try:
                self._memo[key] = measure()
            except MeasurementFailed as error:
                self._memo[key] = error
        kept = self._memo[key]
        if isinstance(kept, MeasurementFailed):
            raise kept
        result: T = kept
        return result

    def alternate(self, *sides: Callable[[], T]) -> list[tuple[T, ...]]:
        """Call each of ``sides`` once an alternation, in alternating order; return their results in the given order."""
        out = []
        for i in range(self.alternations):
            order = list(enumerate(sides))
            results = {at: side() for at, side in (order if i % 2 == 0 else reversed(order))}
            out.append(tuple(results[at] for at in range(len(sides))))
        return out

    def pairs(self, side: str, *cells: Cell, reps: int = 1) -> list[tuple[Record, Record]]:
        """Return records of ``side`` and of the reference on the same cells, alternating."""

        def measure() -> list[tuple[Record, Record]]:
            taken = self.alternate(
                lambda: self.client(side, *cells, reps=reps), lambda: self.client("reference", *cells, reps=reps)
            )
            return [(ours, reference) for ours, reference in taken]

        return self.once(("pairs", side, cells, reps), measure)

    def import_cpu(self, module: str) -> float:
        """Return the CPU seconds that ``import module`` takes in a fresh interpreter with compiled files."""
        code = f"import time; before = time.process_time(); import {module}; print(time.process_time() - before)"
        home = self.home()
        done = subprocess.run(
            [sys.executable, "-c", code], env=self.environment(home), capture_output=True, text=True, timeout=60
        )
        if done.returncode:
            raise MeasurementFailed(f"import {module}: {done.stderr.strip().splitlines()[-1]}")
        return float(done.stdout)

    @contextmanager
    def kernel(self) -> Iterator[Kernel]:
        """Run a real kernel, started fresh, for the time of the block."""
        from jupyter_client.manager import KernelManager

        home = self.home()
        environment = self.environment(home) | {
            "IPYTHONDIR": str(home / "ipython"),
            "JUPYTER_CONFIG_DIR": str(home / "jupyter"),
            "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        }
        manager = KernelManager(kernel_name="python3")
        manager.start_kernel(env=environment, cwd=str(home))
        client = manager.blocking_client()
        try:
            client.start_channels()
            client.wait_for_ready(timeout=60)
            yield Kernel(client)
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


class Kernel:
    """A running kernel, seen as something that executes cells."""

    def __init__(self, client: BlockingKernelClient) -> None:
        self._client = client

    def execute(self, code: str, *, timeout: float, value: str | None = None) -> Any:
        """Execute a cell; return the value of the expression ``value`` after it.

        Raises
        ------
        TimeoutError
            The cell did not end in time.
        MeasurementFailed
            The cell failed.
        """
        expressions = {} if value is None else {"value": f"__import__('json').dumps({value})"}
        asked = self._client.execute(code, user_expressions=expressions, allow_stdin=False, stop_on_error=False)
        deadline = time.monotonic() + timeout
        while True:  # replies of earlier, stuck cells may come first
            try:
                reply = self._client.get_shell_msg(timeout=max(0.0, deadline - time.monotonic()))
            except Exception as error:  # queue.Empty, by way of several classes
                raise TimeoutError(f"a cell did not end within {timeout:.0f} s") from error
            if reply["parent_header"].get("msg_id") == asked:
                break
        content = reply["content"]
        if content["status"] != "ok":
            raise MeasurementFailed(f"{content.get('ename')}: {content.get('evalue')}")
        if value is None:
            return None
        result = content["user_expressions"]["value"]
        if result["status"] != "ok":
            raise MeasurementFailed(f"{result.get('ename')}: {result.get('evalue')}")
        return json.loads(ast.literal_eval(result["data"]["text/plain"]))


def _core(core: int | None) -> list[str]:
    return [] if core is None else ["--core", str(core)]


def runs(record: Mapping[str, Any], cell: Cell) -> list[Record]:
    """Return the runs of ``cell`` in a client's record."""
    return [run for run in record["runs"] if run["cell"] == str(cell)]


def middle(record: Mapping[str, Any], cell: Cell, field: str) -> float:
    """Return the median of a field over the runs of ``cell`` in a client's record."""
    return float(median(run[field] for run in runs(record, cell)))
