"""``run_command``: what it shows, what it ends, what it hides from what it runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import tracemalloc
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.desk_calls import Blocked, bubblewrap, called, carrying, desk, refused, until
from support.environment import REPOSITORY

from astrion_nb.tools import command as module
from astrion_nb.tools.command import EVERY, HEAD, MOST_LIVE, TAIL, Kept, Live, plain, run_command
from astrion_nb.tools.desk import Shell
from astrion_nb.tools.process import MARK, environment, sandboxed

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes in /proc")

GONE = 2.0
"""Seconds in which nothing of a command is left."""
_END = re.compile(r"\[exit (\d+), \d+\.\d s\]\Z")


def run(root: Path, command: str, **more: Any) -> str:
    shell = more.pop("shell", None)
    return asyncio.run(called(run_command, desk(root, shell=shell), command=command, **more))


def status(text: str) -> int:
    found = _END.search(text)
    assert found, text
    return int(found[1])


def body(text: str) -> str:
    return text.rpartition("[exit")[0].removesuffix("\n")


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """A text in the environment of everything that a command starts, by which it is found."""
    text = uuid.uuid4().hex
    monkeypatch.setenv("TRACE", text)
    return text


# -- what it shows ----------------------------------------------------------------------


def test_output_of_both_streams_comes_in_order_with_the_exit_status(tmp_path: Path) -> None:
    text = run(tmp_path, "echo one; echo two >&2; echo three; exit 3")
    assert body(text) == "one\ntwo\nthree"
    assert status(text) == 3


def test_a_command_without_output_tells_its_end_alone(tmp_path: Path) -> None:
    assert _END.fullmatch(run(tmp_path, "true"))


def test_it_runs_in_the_workspace_without_an_input(tmp_path: Path) -> None:
    assert body(run(tmp_path, "pwd; cat; echo end")) == f"{tmp_path.resolve()}\nend"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("true", 0),
        ("false", 1),
        ("exit 255", 255),
        ("no-such-program-anywhere", 127),
        ("./plain.txt", 126),
        ("if then", 2),
        *((f"kill -{number} $$", 128 + number) for number in (1, 2, 3, 6, 9, 11, 13, 15, 24, 25)),
    ],
)
def test_exit_statuses_are_those_of_a_shell(tmp_path: Path, command: str, code: int) -> None:
    (tmp_path / "plain.txt").write_text("text")
    assert status(run(tmp_path, f"ulimit -c 0; {command}")) == code


def test_a_pipe_that_closes_early_ends_its_writer_as_in_a_terminal(tmp_path: Path) -> None:
    assert body(run(tmp_path, "yes | head -n 2")) == "y\ny"


def test_of_a_long_output_head_and_tail_are_kept_and_the_cut_is_told(tmp_path: Path) -> None:
    text = body(run(tmp_path, "seq 1 20000"))
    whole = "\n".join(map(str, range(1, 20001))) + "\n"
    assert text.startswith("1\n2\n3\n")
    assert text.endswith("19999\n20000")
    assert f"[cut: {len(whole) - HEAD - TAIL} characters left out]" in text
    assert len(text) < HEAD + TAIL + 100


@given(st.lists(st.text(max_size=40), max_size=30), st.integers(1, 200))
def test_what_is_kept_does_not_depend_on_how_it_came(parts: list[str], times: int) -> None:
    whole = "".join(parts) * times
    bits, one = Kept(), Kept()
    for _ in range(times):
        for part in parts:
            bits.add(part)
    one.add(whole)
    assert bits.text() == one.text()
    assert bits.total == len(whole)
    if len(whole) <= HEAD + TAIL:
        assert bits.text() == whole
    else:
        assert bits.text().startswith(whole[:HEAD])
        assert bits.text().endswith(whole[-TAIL:])


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (r"caf\303\251\n", "café"),
        (r"bad \377\376 bytes\n", "bad \ufffd\ufffd bytes"),
        (r"\000\001\002text\177\n", "text"),
        (r"\033[1;31mred\033[0m plain\n", "red plain"),
        (r"\033]0;title\007after\n", "after"),
        (r"\033]8;;http://x\033\\link\033]8;;\033\\\n", "link"),
        (r"\033Pdevice control\033\\after\n", "after"),
        (r"\033(Bset\033=\0337\n", "set"),
        (r"10%%\r50%%\r100%%\n", "100%"),
        (r"one\r\ntwo\r\n", "one\ntwo"),
        (r"tab\there\n", "tab\there"),
        (r"\302\233" + r"1mC1\n", "1mC1"),
        (r"bell\007 back\b\n", "bell back"),
    ],
)
def test_bytes_become_text_that_a_model_can_read(tmp_path: Path, written: str, shown: str) -> None:
    assert body(run(tmp_path, f"printf '{written}'")) == shown


def test_a_character_split_between_two_writes_is_one_character(tmp_path: Path) -> None:
    program = "import os,sys\nfor b in '汉字😀'.encode(): os.write(1, bytes([b])); os.sched_yield()"
    assert body(run(tmp_path, f'"{sys.executable}" -c "{program}"')) == "汉字😀"


def test_a_character_that_never_ends_is_told_as_broken(tmp_path: Path) -> None:
    assert body(run(tmp_path, r"printf 'a\346\261'")) == "a\ufffd"


@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_nothing_that_is_shown_can_control_a_terminal(text: str) -> None:
    shown = plain(text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)


@given(st.text("\x1b[]0;m\\\x07P(\r\nab", max_size=60))
def test_escapes_of_any_form_leave_no_control_character(text: str) -> None:
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", plain(text))


@pytest.mark.parametrize("text", ["\x1b[" + "0" * 200_000, "\x1b]" * 100_000, "\x1bP" * 100_000, "\r" * 200_000])
def test_escapes_without_end_take_no_more_than_linear_time(text: str) -> None:
    began = time.process_time()
    plain(text)
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize("text", ["", "  \n\t", "a\0b"])
def test_what_is_no_command_is_refused(tmp_path: Path, text: str) -> None:
    assert asyncio.run(refused(run_command, desk(tmp_path), command=text)).startswith("command: ")


def test_a_command_line_that_is_too_long_is_refused_in_one_line(tmp_path: Path) -> None:
    assert "cannot be started" in asyncio.run(refused(run_command, desk(tmp_path), command="echo " + "x" * 3_000_000))


def test_a_workspace_that_has_been_removed_is_told(tmp_path: Path) -> None:
    at = desk(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert "cannot be started" in asyncio.run(refused(run_command, at, command="true"))


@pytest.mark.parametrize("timeout", [0, -1, 3601, "soon"])
def test_a_timeout_out_of_range_is_refused(tmp_path: Path, timeout: object) -> None:
    assert "timeout" in asyncio.run(refused(run_command, desk(tmp_path), command="true", timeout=timeout))


# -- live output ------------------------------------------------------------------------


def test_output_is_shown_while_the_command_runs(tmp_path: Path) -> None:
    async def go() -> str:
        seen = asyncio.Event()
        task = asyncio.create_task(
            called(run_command, desk(tmp_path), lambda text: seen.set(), command="echo begun; read x < gate; echo $x")
        )
        await asyncio.wait_for(seen.wait(), 5)
        assert not task.done()
        await asyncio.to_thread((tmp_path / "gate").write_text, "open\n")
        return await asyncio.wait_for(task, 5)

    os.mkfifo(tmp_path / "gate")
    assert body(asyncio.run(go())) == "begun\nopen"


def test_endless_output_is_shown_in_few_short_pieces(tmp_path: Path) -> None:
    pieces: list[str] = []
    text = asyncio.run(
        called(run_command, desk(tmp_path), pieces.append, command="yes endless | head -c 50000000", timeout=60)
    )
    took = float(text.rpartition(", ")[2].partition(" ")[0])
    assert len(pieces) <= took / EVERY + 10
    assert max(map(len, pieces)) <= MOST_LIVE + 1


@given(st.lists(st.text("ab\x1b[31m\n", min_size=1, max_size=12), min_size=1, max_size=30))
def test_live_output_is_the_output_whatever_the_pieces(parts: list[str]) -> None:
    async def go() -> list[str]:
        shown: list[str] = []
        live = Live(shown.append)
        for part in parts:
            live.add(part)
        live.close()
        return shown

    shown = "".join(asyncio.run(go()))
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", shown)


def test_an_escape_split_between_two_pieces_is_not_shown(tmp_path: Path) -> None:
    async def go() -> str:
        shown: list[str] = []
        live = Live(shown.append)
        live.add("red\x1b[3")
        live.add("1mtext\n")
        live.close()
        return "".join(shown)

    assert asyncio.run(go()) == "redtext\n"


# -- what it ends -----------------------------------------------------------------------

_DOUBLE_FORK = """
import os, signal, time
for number in set(range(1, 32)) - {signal.SIGCHLD}:
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        PIPE
        open("up", "w").close()
        while True: time.sleep(60)
    os._exit(0)
os.wait()
while not os.path.exists("up"): time.sleep(0.005)
"""
_CLOSE = 'n = os.open("/dev/null", os.O_RDWR); [os.dup2(n, f) for f in (0, 1, 2)]'

FUGITIVES = {
    "background": "sleep 600 & echo started",
    "background that keeps the pipe": "(while :; do sleep 600; done) & echo started",
    "nohup": "nohup sleep 600 >/dev/null 2>&1 & echo started",
    "setsid": "setsid sleep 600 & echo started",
    "setsid, closed": "setsid sleep 600 </dev/null >/dev/null 2>&1 & echo started",
    "double fork, ignores signals, keeps the pipe": "{python} -c '"
    + _DOUBLE_FORK.replace("PIPE", "pass")
    + "'; echo started",
    "double fork, ignores signals, closes the pipe": "{python} -c '"
    + _DOUBLE_FORK.replace("PIPE", _CLOSE)
    + "'; echo started",
    "trap": "sh -c 'trap \"\" 1 2 3 15; while :; do sleep 1; done' & echo started",
    "stopped": "sleep 600 & kill -STOP $!; echo started",
    "new session and group": "setsid sh -c 'setsid sleep 600 & sleep 600' >/dev/null 2>&1 & echo started",
    "kills its parent": "setsid sleep 600 >/dev/null 2>&1 & echo started; kill -9 $PPID; sleep 600",
    "kills its parent's parent too": (
        "setsid sleep 600 >/dev/null 2>&1 & echo started; "
        "p=$(cut -d' ' -f4 /proc/$PPID/stat); kill -9 $p $PPID; sleep 600"
    ),
    "without an environment": "env -i setsid sleep 600.{mark} >/dev/null 2>&1 & echo started",
    "respawns": "{python} respawn.py & while [ ! -e up ]; do :; done; echo started",
    "forks for a while": "i=0; while [ $i -lt 60 ]; do i=$((i+1)); setsid sleep 600 & done; echo started",
}
_RESPAWN = """
import os, time
# Each generation starts the next one and ends: who lists processes and kills them one by one comes too late.
open("up", "w").close()
while time.monotonic() < {ends}:
    if os.fork():
        os._exit(0)
    os.setsid()
"""


@pytest.mark.containment
@pytest.mark.parametrize("name", FUGITIVES)
def test_nothing_that_a_command_has_started_outlives_it(tmp_path: Path, mark: str, name: str) -> None:
    (tmp_path / "respawn.py").write_text(_RESPAWN.format(ends=time.monotonic() + 60))
    line = FUGITIVES[name].replace("{python}", f'"{sys.executable}" -S -E').replace("{mark}", str(int(mark[:8], 16)))
    began = time.monotonic()
    text = run(tmp_path, line, timeout=30)
    assert text.startswith("started"), text
    assert time.monotonic() - began < 15
    assert until(lambda: not carrying(mark) and not carrying(f"600.{int(mark[:8], 16)}"), GONE)


@pytest.mark.containment
def test_a_fork_bomb_is_ended_by_the_time_out(tmp_path: Path, mark: str) -> None:
    # Each process starts others until 200 have been started, and one that ends is replaced: bounded, but never quiet.
    program = textwrap.dedent("""
        import os, time
        tickets = os.open("tickets", os.O_RDONLY)
        while os.read(tickets, 1):
            if os.fork() == 0:
                os.setsid()
        while True:
            if os.fork() == 0: os._exit(0)
            os.wait()
    """)
    (tmp_path / "tickets").write_bytes(b"x" * 200)
    (tmp_path / "bomb.py").write_text(program)
    text = run(tmp_path, f'"{sys.executable}" -S -E bomb.py', timeout=1)
    assert "not done within 1 s" in text
    assert until(lambda: not carrying(mark), GONE)


@pytest.mark.containment
@pytest.mark.parametrize(
    "command",
    [
        "sleep 600",
        "trap '' 1 2 3 15; while :; do sleep 600; done",
        "kill -STOP $PPID; sleep 600",
        "kill -STOP $(cut -d' ' -f4 /proc/$PPID/stat) $PPID; sleep 600",
        "kill -STOP $$",
        "exec >/dev/null 2>&1; sleep 600",
        "yes",
    ],
)
def test_a_time_out_ends_it_and_says_so(tmp_path: Path, mark: str, command: str) -> None:
    began = time.monotonic()
    text = run(tmp_path, f"echo before; {command}", timeout=1)
    assert text.startswith("before")
    assert "[not done within 1 s, so it was ended with all that it had started]" in text
    assert time.monotonic() - began < 8
    assert until(lambda: not carrying(mark), GONE)


@pytest.mark.containment
@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13, 50, 200])
def test_a_cancelled_call_leaves_nothing_whenever_it_is_cancelled(tmp_path: Path, mark: str, turns: int) -> None:
    async def go() -> None:
        task = asyncio.create_task(called(run_command, desk(tmp_path), command="setsid sleep 600 & sleep 600"))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)

    asyncio.run(go())
    assert until(lambda: not carrying(mark), GONE)


@pytest.mark.containment
@pytest.mark.parametrize("twice", [False, True])
def test_a_cancelled_call_leaves_nothing_while_it_runs(tmp_path: Path, mark: str, twice: bool) -> None:
    async def go() -> None:
        begun = asyncio.Event()
        line = "setsid sleep 600 & echo begun; sleep 600"
        task = asyncio.create_task(called(run_command, desk(tmp_path), lambda text: begun.set(), command=line))
        await asyncio.wait_for(begun.wait(), 5)
        task.cancel()
        if twice:
            await asyncio.sleep(0)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)

    asyncio.run(go())
    assert until(lambda: not carrying(mark), GONE)


_CHILD = """
import asyncio, sys
from pathlib import Path
from support.desk_calls import called, desk
from astrion_nb.tools.command import run_command
line = Path("line").read_text()
async def go():
    await called(run_command, desk(Path("ws")), lambda text: print(text, flush=True), command=line)
{how}
"""
_ENDS = {
    "kill -9": "asyncio.run(go())",
    "its loop is dropped": (
        "loop = asyncio.new_event_loop(); task = loop.create_task(go()); "
        "loop.run_until_complete(asyncio.sleep(1)); sys.stdin.read(); import os; os._exit(0)"
    ),
    "its loop is closed": (
        "import warnings; warnings.simplefilter('ignore')\n"
        "loop = asyncio.new_event_loop(); task = loop.create_task(go()); "
        "loop.run_until_complete(asyncio.sleep(1)); sys.stdin.read(); loop.close()"
    ),
}


@pytest.mark.containment
@pytest.mark.parametrize("way", _ENDS)
@pytest.mark.parametrize(
    "line",
    [
        "echo up; sleep 600",
        "setsid sleep 600 >/dev/null 2>&1 & echo up; sleep 600",
        "trap '' 1 2 3 15; setsid sh -c 'trap \"\" 1 2 15; sleep 600; sleep 600' & echo up; while :; do sleep 9; done",
        "setsid sleep 600 & echo up; kill -STOP $PPID; sleep 600",
    ],
)
def test_nothing_outlives_the_process_that_ran_it(tmp_path: Path, mark: str, way: str, line: str) -> None:
    (tmp_path / "line").write_text(line)
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD.format(how=_ENDS[way])],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'tests'}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == b"up\n"
        assert len(carrying(mark)) > 2
        if way == "kill -9":
            child.send_signal(signal.SIGKILL)
        else:
            child.stdin.close()
        child.wait(10)
        assert until(lambda: not carrying(mark), GONE)
    finally:
        child.kill()
        child.wait()
        with contextlib.suppress(OSError):
            child.stdin.close()
        child.stdout.close()


def test_an_output_that_somebody_else_holds_open_does_not_hold_the_call(tmp_path: Path) -> None:
    held: list[int] = []

    def hold(text: str) -> None:
        held.append(os.open(f"/proc/{int(text)}/fd/1", os.O_WRONLY))
        (tmp_path / "held").touch()

    line = "echo $$; while [ ! -e held ]; do :; done"
    try:
        began = time.monotonic()
        text = asyncio.run(called(run_command, desk(tmp_path), hold, command=line))
        assert status(text) == 0
        assert held
        assert time.monotonic() - began < 5
    finally:
        for end in held:
            os.close(end)


# -- what it takes ----------------------------------------------------------------------


@pytest.mark.containment
def test_memory_stays_flat_under_endless_output(tmp_path: Path) -> None:
    async def go(size: int) -> tuple[int, str]:
        tracemalloc.start()
        try:
            text = await called(run_command, desk(tmp_path), command=f"head -c {size} /dev/zero", timeout=60)
            return tracemalloc.get_traced_memory()[1], text
        finally:
            tracemalloc.stop()

    asyncio.run(go(1000))  # what is imported and compiled once
    small, _ = asyncio.run(go(1_000_000))
    large, text = asyncio.run(go(100_000_000))
    assert status(text) == 0
    assert large < small + 2_000_000, (small, large)


@pytest.mark.parametrize(
    "command",
    ["yes | head -c 20000000", "head -c 20000000 /dev/urandom", "sleep 0.2", "printf '\\033[%.0s' $(seq 1 60000)"],
)
def test_the_event_loop_is_never_held_for_long(tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    watch, inner = Blocked(), asyncio.events.Handle._run

    def measured(handle: asyncio.Handle) -> None:
        watch.start()
        inner(handle)
        watch.stop()

    run(tmp_path, "true")
    monkeypatch.setattr(asyncio.events.Handle, "_run", measured)
    assert status(run(tmp_path, command, timeout=60)) == 0
    assert watch.longest < 0.05


def test_twenty_at_once_keep_to_themselves(tmp_path: Path, mark: str) -> None:
    async def go() -> list[str]:
        at = desk(tmp_path)
        lines = [f"sleep 600 & for i in 1 2 3; do echo {number}; done; exit {number}" for number in range(20)]
        return await asyncio.gather(*(called(run_command, at, command=line) for line in lines))

    before = len(os.listdir("/proc/self/fd"))
    for number, text in enumerate(asyncio.run(go())):
        assert body(text) == f"{number}\n{number}\n{number}"
        assert status(text) == number
    assert until(lambda: not carrying(mark), GONE)
    assert len(os.listdir("/proc/self/fd")) <= before


# -- what it sees -----------------------------------------------------------------------

_SECRETS = {
    "OPENAI_API_KEY": "sk-1",
    "GITHUB_TOKEN": "t",
    "DB_PASSWORD": "hunter2",
    "SMTP_PASS": "hunter2",
    "MYSQL_PWD": "hunter2",
    "AWS_SECRET_ACCESS_KEY": "x",
    "GOOGLE_APPLICATION_CREDENTIALS": "/x.json",
    "MY_CREDS": "x",
    "SSH_AUTH_SOCK": "/x",
    "HTTP_COOKIE": "x",
    "SENTRY_DSN": "https://x@y/1",
    "GH_PAT": "x",
    "ASTRION_HOME": "/x",
    "JUPYTER_SERVER_URL": "http://x",
    "JPY_PARENT_PID": "1",
    "DATABASE_URL": "postgres://me:hunter2@db/x",
    "https_proxy": "http://me:hunter2@proxy:1",
    "SETTING_A": "sk-abcdefgh12345678",
    "SETTING_B": "ghp_abcdefgh12345678",
    "SETTING_C": "AKIAABCDEFGH12345678",
    "SETTING_D": "-----BEGIN PRIVATE KEY-----",
    "SETTING_E": "Bearer eyJhbGciOi.eyJzdWIiOi.x",
    "SETTING_F": "prefix-the-configured-value-suffix",
    "SETTING_G": "short",
    "NAMED_BY_HAND": "x",
}
_INNOCENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/home/me",
    "LANG": "C.UTF-8",
    "XAUTHORITY": "/home/me/.Xauthority",
    "AUTHOR": "me",
    "EDITOR": "vi",
    "PYTHONPATH": "/x",
    "http_proxy": "http://proxy:3128",
    "GREETING": "shortly",
    "COMPASS": "north",
    "PATTERN": "x",
}


def test_what_names_or_holds_a_key_is_left_out_and_nothing_else() -> None:
    found = environment(_SECRETS | _INNOCENT, ["NAMED_BY_HAND"], ["the-configured-value", "short", ""])
    assert not found.keys() & _SECRETS.keys()
    assert {name: found[name] for name in _INNOCENT} == _INNOCENT


@pytest.mark.containment
def test_no_key_of_this_process_is_in_the_environment_of_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in _SECRETS.items():
        monkeypatch.setenv(name, value)
    shell = Shell(secrets=("NAMED_BY_HAND",), values=("the-configured-value", "short"))
    line = "env; tr '\\0' '\\n' </proc/self/environ; tr '\\0' '\\n' </proc/$PPID/environ; cat /proc/$PPID/cmdline"
    text = run(tmp_path, line, shell=shell)
    names = {part.partition("=")[0] for part in body(text).split("\n")}
    assert not names & _SECRETS.keys()
    assert "hunter2" not in text
    assert "the-configured-value" not in text
    assert {"PATH", "HOME", MARK} <= names


def test_nothing_that_this_process_has_open_is_open_in_a_command(tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        text = run(tmp_path, "ls -l /proc/self/fd | grep -c open; ls /proc/self/fd | wc -l")
    assert body(text).split() == ["0", "4"]  # the three, and the folder that ls reads


def test_signals_are_as_a_shell_expects_them(tmp_path: Path) -> None:
    text = run(tmp_path, "grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status")
    masks = [int(line.split()[1], 16) for line in body(text).split("\n")]
    assert masks[:2] == [0, 0]


# -- the sandbox ------------------------------------------------------------------------

_TRIES: dict[str, tuple[str, Callable[[str], bool]]] = {
    "writes the workspace": ("echo x > made && cat made", lambda text: text.startswith("x\n")),
    "writes /etc": ("touch /etc/made", lambda text: "Read-only" in text),
    "writes beside the workspace": ("touch ../made || ls -A ..", lambda text: "made" not in text.split()),
    "writes home": ("touch ~/made; echo done", lambda text: "done" in text),
    "reads home": ("cat ~/secret.txt", lambda text: "top secret" not in text),
    "lists what runs": ("ls -d /proc/[0-9]* | wc -l", lambda text: int(text.split()[0]) < 10),
    "reads what runs": ("cat /proc/*/environ | tr '\\0' '\\n'", lambda text: "OUTER=" not in text),
    "kills everything": ("kill -9 -1; echo still", lambda text: "exit" in text),
    "connects to this machine": (
        "{python} -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}), 2)'",
        lambda text: "refused" in text or "unreachable" in text,
    ),
    "finds a name": (
        "{python} -c 'import socket; socket.getaddrinfo(\"example.com\", 80)'",
        lambda text: "rror" in text,
    ),
    "sees sockets of services": ("ls -A /run | wc -l", lambda text: text.startswith("0\n")),
    "mounts": ("mount -t tmpfs x /mnt", lambda text: not text.endswith("[exit 0")),
    "has no capability": ("grep CapEff /proc/self/status", lambda text: int(text.split()[1], 16) == 0),
    "runs this Python": ("{python} -c 'print(6 * 7)'", lambda text: text.startswith("42\n")),
    "detaches": ("setsid sleep 600 >/dev/null 2>&1 & echo started", lambda text: text.startswith("started")),
}


@pytest.mark.containment
@pytest.mark.parametrize("name", _TRIES)
def test_the_sandbox_holds(tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    import socket

    bubblewrap()
    home = tmp_path / "home"
    home.mkdir()
    (home / "secret.txt").write_text("top secret")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("OUTER", "1")
    (tmp_path / "workspace").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        line, holds = _TRIES[name]
        line = line.replace("{python}", f'"{sys.executable}"').replace("{port}", str(server.getsockname()[1]))
        if name == "reads what runs":
            monkeypatch.delenv("OUTER")
            with subprocess.Popen(["sleep", "600"], env={"OUTER": "1"}) as other:
                text = run(tmp_path / "workspace", line, shell=Shell(sandbox=True))
                other.kill()
        else:
            text = run(tmp_path / "workspace", line, shell=Shell(sandbox=True))
    assert holds(text), text
    assert not Path("/etc/made").exists()
    assert not (tmp_path / "made").exists()
    assert sorted(path.name for path in home.iterdir()) == ["secret.txt"]
    assert until(lambda: not carrying(mark), GONE)


@pytest.mark.containment
def test_a_workspace_in_the_home_folder_is_all_of_it_that_the_sandbox_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bubblewrap()
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    text = run(tmp_path / "project", "echo x > made; ls -A ~", shell=Shell(sandbox=True))
    assert body(text) == "project"
    assert (tmp_path / "project" / "made").read_text() == "x\n"


def test_without_bubblewrap_a_sandbox_is_refused_and_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    said = asyncio.run(refused(run_command, desk(tmp_path, shell=Shell(sandbox=True)), command="touch made"))
    assert "bubblewrap" in said
    assert "install" in said
    assert not (tmp_path / "made").exists()


def test_the_sandbox_hides_home_before_it_shows_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bwrap").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    root = tmp_path / "project"
    line = sandboxed(["true"], root, tmp_path)
    assert line.index(str(tmp_path)) < line.index(str(root))
    assert line[-2:] == ["--", "true"]


def test_a_preview_shows_the_command_and_the_sandbox(tmp_path: Path) -> None:
    assert run_command.preview is not None
    assert run_command.preview({"command": "ls"}, desk(tmp_path)) == "$ ls"
    assert "sandbox" in run_command.preview({"command": "ls"}, desk(tmp_path, shell=Shell(sandbox=True)))
    assert run_command.effect == "run"
    assert module.__doc__
