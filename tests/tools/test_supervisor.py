"""The program that runs one command and ends with it whatever that has started."""

from __future__ import annotations

import ast
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.desk_calls import carrying, until

from astrion_nb.tools import process, supervisor

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes in /proc")

GONE = 2.0
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def mark() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def start(mark: str) -> Iterator[Start]:
    running: list[subprocess.Popen[bytes]] = []

    def begin(*line: str, program: str = "") -> subprocess.Popen[bytes]:
        what = ["-c", program] if program else [supervisor.__file__]
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", *what, *line],
            env={**os.environ, "TRACE": mark},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        running.append(child)
        return child

    yield begin
    for child in running:
        child.kill()
        child.wait()
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
    for left in carrying(mark):
        os.kill(left, signal.SIGKILL)


def read(child: subprocess.Popen[bytes]) -> str:
    assert child.stdout is not None
    return child.stdout.read().decode()


def cut(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    child.stdin.close()


def ready(child: subprocess.Popen[bytes]) -> None:
    assert child.stdout is not None
    assert child.stdout.readline() == b"up\n"


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 1", 1), ("exit 255", 255), ("kill -9 $$", 137), ("kill -15 $$", 143), ("kill -2 $$", 130)],
)
def test_its_status_is_that_of_the_command(start: Start, script: str, code: int) -> None:
    assert start("/bin/sh", "-c", script).wait(5) == code


def test_arguments_come_as_they_were_given(start: Start) -> None:
    child = start("/usr/bin/printf", "%s|", "a b", "", "'", "$HOME", "汉", "\n")
    assert read(child) == "a b||'|$HOME|汉|\n|"


@pytest.mark.parametrize("program", ["/no/such/program", "no-such-program", "/etc/passwd", "/"])
def test_a_program_that_cannot_run_is_told(start: Start, program: str) -> None:
    child = start(program)
    assert read(child).startswith(f"{program}: ")
    assert child.wait(5) == 127


def test_what_it_is_told_by_its_input_is_no_end(start: Start) -> None:
    child = start("/bin/sh", "-c", 'echo up; read line; echo "[$line]"')
    assert child.stdin is not None
    child.stdin.write(b"not for the command\n" * 1000)
    child.stdin.flush()
    assert read(child) == "up\n[]\n"
    assert child.wait(5) == 0


@pytest.mark.containment
@pytest.mark.parametrize("way", ["lifeline", "SIGTERM", "SIGINT", "SIGHUP"])
def test_whoever_wants_its_end_ends_everything(start: Start, mark: str, way: str) -> None:
    child = start(
        "/bin/sh", "-c", "trap '' 1 2 15; setsid sleep 600 & (setsid setsid sleep 600 &) ; echo up; sleep 600"
    )
    ready(child)
    if way == "lifeline":
        cut(child)
    else:
        child.send_signal(signal.Signals[way])
    assert child.wait(5) == 137
    assert until(lambda: not carrying(mark), GONE)


@pytest.mark.containment
@pytest.mark.parametrize("which", ["outer", "inner"])
def test_one_of_the_two_is_killed_and_the_other_ends_the_command(start: Start, mark: str, which: str) -> None:
    child = start("/bin/sh", "-c", "setsid sleep 600 & (setsid sleep 600 &); echo up; sleep 600")
    ready(child)
    if which == "outer":
        child.kill()
        cut(child)  # as it is when the caller is gone, or has closed its transport
    else:
        children = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
    child.wait(5)
    assert until(lambda: not carrying(mark), GONE)


@pytest.mark.containment
def test_what_is_left_of_a_command_that_killed_both_is_found_by_its_mark(mark: str) -> None:
    child = subprocess.Popen(
        ["setsid", "sh", "-c", "setsid sleep 600 & sleep 600"], env={**os.environ, process.MARK: mark}
    )
    other = subprocess.Popen(["sleep", "600"], env={**os.environ, process.MARK: mark + "0"})
    try:
        assert until(lambda: len(carrying(mark)) >= 4)
        process.hunt(mark)
        child.wait(5)
        assert until(lambda: carrying(mark) == [other.pid], GONE)
    finally:
        for one in (child, other):
            one.kill()
            one.wait()


@pytest.mark.containment
@pytest.mark.parametrize("way", ["lifeline", "SIGTERM", "outer"])
def test_where_orphans_cannot_be_adopted_the_group_of_the_command_is_ended(start: Start, mark: str, way: str) -> None:
    program = (
        f"import runpy, sys; sys.platform = 'other'; sys.argv = ['x', *sys.argv[1:]]; "
        f"runpy.run_path({supervisor.__file__!r}, run_name='__main__')"
    )
    child = start("/bin/sh", "-c", "trap '' 1 2 15; sleep 600 & echo up; sleep 600", program=program)
    ready(child)
    if way == "SIGTERM":
        child.send_signal(signal.SIGTERM)
    elif way == "outer":
        child.kill()
    if way != "SIGTERM":
        cut(child)
    assert child.wait(10) == (-9 if way == "outer" else 137)
    assert until(lambda: not carrying(mark), GONE)


def test_many_children_that_end_at_once_are_all_seen_out(start: Start) -> None:
    child = start("/bin/sh", "-c", "i=0; while [ $i -lt 300 ]; do i=$((i+1)); (setsid true &); done; echo done")
    assert read(child) == "done\n"
    assert child.wait(5) == 0


def test_a_process_of_any_name_is_found(start: Start, tmp_path: Path, mark: str) -> None:
    odd = tmp_path / ") R 1 (x"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", odd)
    child = start("/bin/sh", "-c", 'setsid "$0" 600 & echo up; sleep 600', str(odd))
    ready(child)
    cut(child)
    assert child.wait(5) == 137
    assert until(lambda: not carrying(mark), GONE)


def test_it_needs_nothing_but_the_standard_library() -> None:
    tree = ast.parse(Path(supervisor.__file__).read_text(encoding="utf-8"))
    names = {
        name.name if isinstance(node, ast.Import) else str(node.module)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in node.names
    }
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names
