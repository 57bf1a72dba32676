"""The embedded server as a process: who may use it, what ends it, what it survives."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest
from support.local_weights import smollm2
from support.processes import living, seconds_until_gone

import astrion_nb
from astrion_nb.errors import ConfigError, ModelUnreachable
from astrion_nb.llm import local_server
from astrion_nb.llm.local_server import LocalServer, Running

pytestmark = pytest.mark.local_model
posix = pytest.mark.skipif(sys.platform == "win32", reason="sessions, signals and FIFOs of POSIX")

DEATH_S = 2.0
CONTEXT = 1024


@pytest.fixture
def path() -> Path:
    return smollm2()


@pytest.fixture
def server(path: Path) -> Iterator[LocalServer]:
    server = local_server.acquire(path, name="smollm2", context=CONTEXT)
    yield server
    local_server.release(server)
    assert server.running is None


@pytest.fixture
def stuck(path: Path, tmp_path: Path) -> Path:
    """A file whose loading never ends: the server waits in C++ for the other end of a FIFO.

    ``path`` stands for the extra, without which there is no server to get stuck.
    """
    fifo = tmp_path / "stuck.gguf"
    os.mkfifo(fifo)
    return fifo


def get(running: Running, path: str, key: str | None = None) -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {running.api_key if key is None else key}"}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(running.base_url + path, headers=headers), timeout=5
        ) as reply:
            return reply.status, reply.read()
    except HTTPError as error:
        with error:
            return error.code, error.read()


def child_of(process: subprocess.Popen[str]) -> int:
    """Read the process id that a parent script prints when it has started its server."""
    assert process.stdout is not None
    return int(process.stdout.readline())


def run_parent(body: str, model: Path) -> subprocess.Popen[str]:
    """Start a real program that owns a server for ``model``."""
    head = f"""
        import asyncio, os, subprocess, sys, threading, time
        from pathlib import Path
        from astrion_nb.llm import local_server
        server = local_server.acquire(Path({str(model)!r}), name="m", context={CONTEXT})
    """
    code = textwrap.dedent(head) + textwrap.dedent(body)
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path(astrion_nb.__file__).parents[1])},
    )


READY_THEN_WAIT = """
    print(asyncio.run(server.start()).pid, flush=True)
    time.sleep(60)
"""

LOADING = """
    threading.Thread(target=lambda: asyncio.run(server.start()), daemon=True).start()
    while server._process is None:
        time.sleep(0.01)
    time.sleep(1.0)  # until the library is imported and the constructor holds the interpreter lock
    print(server._process.pid, flush=True)
    time.sleep(60)
"""

FORKED_SIBLING = """
    pid = asyncio.run(server.start()).pid
    if os.fork() == 0:
        time.sleep(20)  # holds the writing end of the pipe, as a worker of a pool would
        os._exit(0)
    print(pid, flush=True)
    time.sleep(60)
"""


@posix
@pytest.mark.faults
@pytest.mark.parametrize("moment", ["ready", "loading", "with a forked sibling"])
def test_a_server_ends_within_two_seconds_of_its_parents_violent_death(moment: str, path: Path, stuck: Path):
    body, model = {
        "ready": (READY_THEN_WAIT, path),
        "loading": (LOADING, stuck),
        "with a forked sibling": (FORKED_SIBLING, path),
    }[moment]
    with run_parent(body, model) as parent:
        pid = child_of(parent)
        assert pid in living(pid)
        os.kill(parent.pid, signal.SIGKILL)
        try:
            seconds_until_gone(pid, DEATH_S)
        finally:
            for group in (parent.pid, pid):
                try:
                    os.killpg(group, signal.SIGKILL)
                except ProcessLookupError:
                    continue


@posix
def test_a_server_ends_with_a_parent_that_ends_in_order(path: Path):
    with run_parent("print(asyncio.run(server.start()).pid, flush=True)", path) as parent:
        pid = child_of(parent)
        assert parent.wait(10) == 0
        seconds_until_gone(pid, DEATH_S)


@posix
@pytest.mark.faults
def test_the_interrupt_that_jupyter_sends_to_the_kernels_group_leaves_the_server_alone(path: Path):
    body = """
        import urllib.request
        running = asyncio.run(server.start())
        try:
            print(running.pid, flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            url = running.base_url.removesuffix("/v1") + "/health"
            print(urllib.request.urlopen(url, timeout=5).status, server.running == running, flush=True)
    """
    with run_parent(body, path) as parent:
        pid = child_of(parent)
        assert os.getsid(pid) != os.getsid(parent.pid)
        os.killpg(parent.pid, signal.SIGINT)
        out, _ = parent.communicate(timeout=10)
        assert out.split() == ["200", "True"]
        seconds_until_gone(pid, DEATH_S)


def test_every_loop_of_every_thread_shares_one_server_until_the_last_user_lets_go(path: Path):
    first = local_server.acquire(path, name="smollm2", context=CONTEXT)
    second = local_server.acquire(path.parent / "." / path.name, name="smollm2", context=CONTEXT)
    assert first is second
    found: list[Running] = []
    threads = [threading.Thread(target=lambda: found.append(asyncio.run(first.start()))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    found.append(asyncio.run(second.start()))
    assert len(found) == 4
    assert len(set(found)) == 1
    running = found[0]
    local_server.release(first)
    assert get(running, "/models")[0] == 200
    local_server.release(second)
    assert first.running is None
    seconds_until_gone(running.pid, DEATH_S)
    local_server.release(second)  # once too often does no harm


def test_it_listens_on_loopback_only_for_who_has_the_key_and_shows_the_key_to_nobody(server: LocalServer):
    running = asyncio.run(server.start())
    assert running.base_url.startswith("http://127.0.0.1:")
    status, body = get(running, "/models")
    assert status == 200
    assert b'"smollm2"' in body
    assert get(running, "/models/../props", key="wrong")[0] in (401, 404)
    assert get(running, "/chat/completions", key="wrong")[0] == 401
    assert running.api_key not in repr(running)
    if sys.platform == "linux":
        for pid in living(running.pid):
            for file in ("cmdline", "environ"):
                assert running.api_key.encode() not in Path(f"/proc/{pid}/{file}").read_bytes()


@posix
@pytest.mark.faults
def test_a_server_that_died_is_started_again_when_next_asked(server: LocalServer):
    before = asyncio.run(server.start())
    os.kill(before.pid, signal.SIGKILL)
    seconds_until_gone(before.pid, DEATH_S)
    assert server.running is None
    after = asyncio.run(server.start())
    assert after.pid != before.pid
    assert after.api_key != before.api_key
    assert get(after, "/models")[0] == 200


@pytest.mark.faults
def test_a_file_that_is_no_model_is_an_error_with_the_servers_own_words(path: Path, tmp_path: Path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(path.read_bytes()[:1_000_000])
    server = local_server.acquire(broken, name="broken", context=CONTEXT)
    try:
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"broken \(broken\.gguf\) cannot be loaded.*failed to load model"):
                asyncio.run(server.start())
        assert server.running is None
    finally:
        local_server.release(server)


@posix
@pytest.mark.faults
def test_a_load_that_does_not_end_is_given_up_and_its_process_killed(stuck: Path):
    server = local_server.acquire(stuck, name="stuck", context=CONTEXT)
    told: list[tuple[str, int, int]] = []
    try:
        with pytest.raises(ModelUnreachable, match=r"stuck was not ready in time"):
            asyncio.run(server.start(lambda *step: told.append(step), timeout=1.5))
        *waited, over = told
        assert over[0] == ""
        assert waited[0] == ("loading stuck", 0, 0)
        seconds = [step[1] for step in waited]
        assert seconds == sorted(set(seconds))
        assert seconds[-1] >= 1
        assert server._process is not None
        assert living(server._process.pid) == []
    finally:
        local_server.release(server)


@posix
@pytest.mark.faults
def test_giving_up_the_wait_stops_neither_the_start_nor_the_other_waiters_and_stop_ends_both(stuck: Path):
    async def scene(server: LocalServer) -> None:
        other = asyncio.create_task(server.start())
        begun = time.monotonic()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(server.start(), 0.2)
        assert time.monotonic() - begun < 1.5, "the wait held the event loop"
        process = server._process
        assert process is not None
        assert living(process.pid)
        assert not other.done()
        await asyncio.to_thread(local_server.release, server)
        with pytest.raises(ModelUnreachable, match="was stopped while it loaded"):
            await other
        seconds_until_gone(process.pid, DEATH_S)

    asyncio.run(scene(local_server.acquire(stuck, name="stuck", context=CONTEXT)))


def test_without_the_extra_the_error_names_both_ways_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    server = local_server.acquire(tmp_path / "any.gguf", name="any")
    try:
        with pytest.raises(ConfigError, match=r"pip install 'xllamacpp==.*local fetch smollm2.*OPENAI_API_KEY"):
            asyncio.run(server.start())
    finally:
        local_server.release(server)
