"""The server of the embedded model: a child process that speaks the OpenAI protocol on loopback.

:func:`acquire` gives the one server of a model file, starting nothing; :meth:`LocalServer.start`
starts it or waits for whoever is starting it; :func:`release` stops it with its last user. The
server belongs to the process, not to an event loop: any loop in any thread may use it. It ends
with this process, however that ends. Knows no messages and no roles.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import importlib.util
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ..errors import ConfigError, ModelUnreachable
from ..home import extra_command

Progress = Callable[[str, int, int], None]
"""``progress(what, done, total)``: whole seconds waited, and 0 for unknown; called on the caller's loop.

An empty ``what`` says that the wait is over, whether well or not.
"""

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 3.0
_TAIL_LINES = 20
_POLL_S = 0.25


@dataclass(frozen=True, slots=True)
class Running:
    """What one must know to speak to a running server.

    Parameters
    ----------
    base_url : str
        Up to and including ``/v1``.
    api_key : str
        Random, of this server alone.
    pid : int
        Of the server's process.
    load_s : float
        Seconds from the start of the process to readiness.
    """

    base_url: str
    api_key: str = field(repr=False)
    pid: int
    load_s: float


class LocalServer:
    """One server process for one model file. Get it from :func:`acquire`.

    Parameters
    ----------
    path : Path
        The GGUF file.
    name : str
        What the server calls the model.
    context : int
        Tokens that all conversations share.
    slots : int
        Requests answered at the same time; more are queued by the server.
    threads : int, optional
        Threads that compute; by default the processors that this process may use.
    """

    def __init__(self, path: Path, *, name: str, context: int = 16384, slots: int = 4, threads: int | None = None):
        self.path = path
        self.name = name
        self.context = context
        self.slots = slots
        self.threads = threads
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._ready: Future[Running] | None = None

    @property
    def running(self) -> Running | None:
        """Where the server listens, or ``None`` when it is not ready or has ended."""
        with self._lock:
            if self._process is None or self._process.poll() is not None or self._ready is None:
                return None
            if not self._ready.done() or self._ready.exception() is not None:
                return None
            return self._ready.result()

    async def start(self, progress: Progress | None = None, *, timeout: float = START_TIMEOUT_S) -> Running:
        """Start the server unless it runs, and wait until it answers.

        Cancelling the wait does not stop the start: others may wait for it too.

        Parameters
        ----------
        progress : callable, optional
            Called about once a second while the model loads.
        timeout : float
            Seconds after which the start counts as failed.

        Raises
        ------
        ConfigError
            The extra ``local`` is not installed, or the file cannot be loaded.
        ModelUnreachable
            The server was not ready in time, or was stopped meanwhile.
        """
        running = self.running
        if running is not None:
            return running
        ready = self._begin(timeout)
        waiting = asyncio.wrap_future(ready)
        begun = time.monotonic()
        told = -1
        try:
            while not waiting.done():
                waited = int(time.monotonic() - begun)
                if progress is not None and waited != told:
                    told = waited
                    progress(f"loading {self.name}", waited, 0)
                await asyncio.wait({waiting}, timeout=_POLL_S)
            return waiting.result()
        finally:
            waiting.cancel()
            if progress is not None and told >= 0:
                progress("", told, 0)

    def _begin(self, timeout: float) -> Future[Running]:
        with self._lock:
            alive = self._process is not None and self._process.poll() is None
            if self._ready is not None and alive and not (self._ready.done() and self._ready.exception()):
                return self._ready
            require_extra()
            _close(self._process)  # one that died by itself
            key = secrets.token_urlsafe(24)
            process = _spawn()
            log: deque[str] = deque(maxlen=_TAIL_LINES)
            self._process = process
            ready: Future[Running] = Future()
            self._ready = ready
            ready.set_running_or_notify_cancel()  # a waiter that is cancelled must not cancel the others
            wanted = {
                "model": str(self.path),
                "name": self.name,
                "key": key,
                "context": self.context,
                "slots": self.slots,
                "threads": self.threads,
            }
            threading.Thread(
                target=self._wait_until_ready,
                args=(process, ready, log, wanted, timeout),
                name=f"astrion-local-{self.name}",
                daemon=True,
            ).start()
            return ready

    def _wait_until_ready(
        self,
        process: subprocess.Popen[bytes],
        ready: Future[Running],
        log: deque[str],
        wanted: dict[str, Any],
        timeout: float,
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        begun = time.monotonic()
        drain = threading.Thread(target=_drain, args=(process.stderr, log), daemon=True)
        drain.start()
        bound = threading.Timer(timeout, _kill, (process,))
        bound.daemon = True
        bound.start()
        try:
            process.stdin.write(json.dumps(wanted).encode() + b"\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            if not answer:
                raise EOFError
            url = str(json.loads(answer)["url"])
            _check_health(url, timeout - (time.monotonic() - begun))
            ready.set_result(Running(f"{url}/v1", wanted["key"], process.pid, time.monotonic() - begun))
        except Exception as error:  # every waiter must hear of it, whatever it is
            _kill(process)
            process.wait()
            drain.join(1.0)
            late = time.monotonic() - begun >= timeout
            _close(process)
            ready.set_exception(self._why(process, log, late, error))
        finally:
            bound.cancel()
            process.stdout.close()

    def _why(self, process: subprocess.Popen[bytes], log: deque[str], late: bool, error: Exception) -> Exception:
        said = " | ".join(list(log)[-4:]) or repr(error)
        if late:
            return ModelUnreachable(f"the local model {self.name} was not ready in time; its server said: {said}")
        if self._process is not process:
            return ModelUnreachable(f"the local model {self.name} was stopped while it loaded")
        return ConfigError(f"the local model {self.name} ({self.path.name}) cannot be loaded; its server said: {said}")

    def stop(self) -> None:
        """End the server and wait until it is gone. Does nothing when it does not run."""
        with self._lock:
            process, self._process, self._ready = self._process, None, None
        if process is None:
            return
        _signal(process, "SIGTERM")
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            _kill(process)
            process.wait()
        _close(process)


def require_extra() -> None:
    """Raise unless the library with the server is installed; does not import it.

    Raises
    ------
    ConfigError
        The extra ``local`` is not installed.
    """
    if importlib.util.find_spec("xllamacpp") is None:
        raise ConfigError(
            f"the embedded model needs the extra 'local': run  {extra_command('local')}  and  "
            "python -m astrion_nb local fetch smollm2 ; or use an endpoint: set OPENAI_API_KEY or write models.toml"
        )


def _spawn() -> subprocess.Popen[bytes]:
    child = Path(__file__).with_name("local_child.py")
    # A session of its own: the interrupt that Jupyter sends to the kernel's group must not end the server.
    # -P: the child's directory holds modules that are named like others.
    return subprocess.Popen(
        [sys.executable, "-P", str(child)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
    )


def _signal(process: subprocess.Popen[bytes], name: str) -> None:
    """Signal the server and its watch; they are a process group of their own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.terminate()
        elif process.returncode is None:
            os.killpg(process.pid, getattr(signal, name))


def _kill(process: subprocess.Popen[bytes]) -> None:
    _signal(process, "SIGKILL")
    process.kill()  # does nothing to a process that is gone


def _close(process: subprocess.Popen[bytes] | None) -> None:
    """Close our end of the pipe whose end the server waits for."""
    if process is not None and process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()


def _drain(stream: IO[bytes], log: deque[str]) -> None:
    with stream:
        for line in stream:
            text = line.decode("utf-8", "replace").strip()
            if text:
                log.append(text)


def _check_health(url: str, timeout: float) -> None:
    """Wait until the server says that it is ready; the caller's timer bounds the whole."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    end = time.monotonic() + timeout
    while True:
        try:
            with opener.open(f"{url}/health", timeout=5) as response:
                if response.status == 200:
                    return
        except urllib.error.HTTPError as error:  # 503 while it loads
            error.close()
        if time.monotonic() > end:
            raise TimeoutError("no answer from its health endpoint")
        time.sleep(_POLL_S)


_servers: dict[Path, tuple[LocalServer, int]] = {}
_servers_lock = threading.Lock()


def acquire(path: Path, *, name: str, context: int = 16384, slots: int = 4, threads: int | None = None) -> LocalServer:
    """Return the server of a model file, one for all its users in this process; starts nothing.

    Parameters are those of :class:`LocalServer`; the first user's hold. Every call must be
    answered by one :func:`release`.
    """
    file = path.resolve()
    with _servers_lock:
        server, users = _servers.get(file) or (
            LocalServer(file, name=name, context=context, slots=slots, threads=threads),
            0,
        )
        _servers[file] = (server, users + 1)
        return server


def release(server: LocalServer) -> None:
    """Give a server back; the last user's release stops it (a few milliseconds, at most seconds)."""
    with _servers_lock:
        held, users = _servers.get(server.path) or (None, 0)
        if held is not server:
            return
        if users > 1:
            _servers[server.path] = (server, users - 1)
            return
        del _servers[server.path]
    server.stop()


def _stop_all() -> None:
    with _servers_lock:
        servers = [server for server, _ in _servers.values()]
        _servers.clear()
    for server in servers:
        server.stop()


atexit.register(_stop_all)
if hasattr(os, "register_at_fork"):  # a forked child has no part in its parent's servers
    os.register_at_fork(after_in_child=_servers.clear)
