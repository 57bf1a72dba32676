"""The workspace finds what is in it, and writes whole files."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.desks import descriptors
from support.places import SECRET, names

from astrion_nb.errors import ToolError
from astrion_nb.tools.workspace import MOST_REPLACED, Workspace

containment = pytest.mark.containment

# -- what is there ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("a.txt", "a.txt"),
        ("./a.txt", "a.txt"),
        ("sub/../a.txt", "a.txt"),
        ("sub//deep/..//./b.txt", "sub/b.txt"),
        ("sub/b.txt", "sub/b.txt"),
    ],
)
def test_a_path_is_found_however_it_is_spelled(way: str, place: Path, path: str, where: str) -> None:
    made = Workspace(place)
    for said in (path, f"{place}/{path}"):
        file, found = made.open(said)
        with file:
            assert (file.read(), found) == ((place / where).read_bytes(), where)


def test_a_workspace_named_by_a_link_is_known_by_both_names(way: str, place: Path, tmp_path: Path) -> None:
    (tmp_path / "named").symlink_to(place)
    (place / "there").symlink_to(tmp_path / "named" / "a.txt")
    made = Workspace(tmp_path / "named")
    for said in ("a.txt", f"{tmp_path}/named/a.txt", f"{place}/a.txt", "there"):
        assert made.read(said, 100) == b"inside"


def test_what_is_no_folder_is_no_workspace(place: Path) -> None:
    for path in (place / "a.txt", place / "none"):
        with pytest.raises(ToolError, match="is no folder; create it"):
            Workspace(path)


def test_entries_come_in_order_folders_before_what_they_hold(way: str, place: Path) -> None:
    (place / "sub" / "deep" / "c").write_bytes(b"xyz")
    (place / "link").symlink_to("a.txt")
    (place / "turned").symlink_to("sub")
    (place / "broken").symlink_to("none")
    os.mkfifo(place / "pipe")
    found = list(Workspace(place).entries())
    assert [(entry.path, entry.folder, entry.size) for entry in found] == [
        ("a.txt", False, 6),
        ("sub", True, 0),
        ("sub/b.txt", False, 7),
        ("sub/deep", True, 0),
        ("sub/deep/c", False, 3),
    ]
    assert names(Workspace(place), "sub/deep") == ["sub/deep/c"]
    assert names(Workspace(place), "turned") == ["sub/b.txt", "sub/deep", "sub/deep/c"]


def test_what_is_skipped_is_not_looked_into(way: str, place: Path) -> None:
    seen: list[str] = []

    def skip(path: str, folder: bool) -> bool:
        seen.append(path)
        return folder

    assert [entry.path for entry in Workspace(place).entries(skip=skip)] == ["a.txt"]
    assert seen == ["a.txt", "sub"]


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("none", "there is no 'none'"),
        ("none/b", "there is no"),
        ("a.txt", "is a file, not a folder"),
        ("a.txt/b", "a part of 'a.txt/b' is a file"),
        ("none/..", "there is no"),
    ],
)
def test_a_folder_that_is_not_there_is_an_error_at_once(way: str, place: Path, path: str, told: str) -> None:
    with pytest.raises(ToolError, match=told):
        Workspace(place).entries(path)
    with pytest.raises(ToolError, match=told):
        Workspace(place).folder(path)


def test_entries_that_nobody_reads_hold_nothing(place: Path) -> None:
    held = descriptors()
    for _ in range(50):
        Workspace(place).entries()
        next(iter(Workspace(place).entries("sub")))
    assert descriptors() <= held


def test_a_folder_that_goes_while_it_is_walked_ends_its_part(way: str, place: Path) -> None:
    for number in range(5):
        (place / f"d{number}" / "in").mkdir(parents=True)
    seen = []
    for entry in Workspace(place).entries():
        seen.append(entry.path)
        if entry.path == "d1":
            shutil.rmtree(place / "d1")
            shutil.rmtree(place / "d3")
    assert seen == ["a.txt", "d0", "d0/in", "d1", "d2", "d2/in", "d4", "d4/in", "sub", "sub/b.txt", "sub/deep"]


# -- writing ------------------------------------------------------------------------------


def test_a_file_is_made_with_its_folders_and_replaced_with_its_mode(way: str, place: Path) -> None:
    made = Workspace(place)
    assert made.write("new/er/x", b"one").before is None
    os.chmod(place / "new" / "er" / "x", 0o6750)
    assert made.write("new/er/x", b"two").before == b"one"
    assert stat.S_IMODE((place / "new" / "er" / "x").stat().st_mode) == 0o750, "no set-user-id is handed on"
    assert made.write("new/er/x", b"").before == b"two"


@containment
def test_the_other_name_of_a_hard_link_keeps_its_bytes(way: str, place: Path, tmp_path: Path) -> None:
    os.link(tmp_path / "secret", place / "hard")
    made = Workspace(place)
    made.write("hard", b"written")
    assert (tmp_path / "secret").read_bytes() == SECRET
    assert (place / "hard").read_bytes() == b"written"
    os.link(tmp_path / "secret", place / "harder")
    made.remove("harder")
    assert (tmp_path / "secret").read_bytes() == SECRET


def test_what_the_owner_made_read_only_stays_as_it_is(way: str, place: Path) -> None:
    os.chmod(place / "a.txt", 0o444)
    made = Workspace(place)
    for call in (made.remove, lambda path: made.write(path, b"written")):
        with pytest.raises(ToolError, match="read-only"):
            call("a.txt")
    assert (place / "a.txt").read_bytes() == b"inside"


def test_a_write_over_something_else_than_expected_is_refused(way: str, place: Path) -> None:
    made = Workspace(place)
    for over in (b"other", None):
        with pytest.raises(ToolError, match="was changed meanwhile; read it again"):
            made.write("a.txt", b"mine", over=over)
    made.write("a.txt", b"mine", over=b"inside")
    made.write("new", b"mine", over=None)
    assert names(made) == ["a.txt", "new", "sub", "sub/b.txt", "sub/deep"], "no unfinished file is left"
    assert not [name for name in os.listdir(place) if name.startswith(".astrion")]


def test_a_file_too_long_to_be_put_back_is_not_replaced(way: str, place: Path) -> None:
    with open(place / "huge", "wb") as file:
        file.truncate(MOST_REPLACED + 1)
    with pytest.raises(ToolError, match="more than 64,000,000 bytes"):
        Workspace(place).write("huge", b"small")
    assert (place / "huge").stat().st_size == MOST_REPLACED + 1
    with pytest.raises(ToolError, match="more than 10 bytes"):
        Workspace(place).read("huge", 10)


def test_of_many_writers_each_counts_once(place: Path) -> None:
    """A counter in a file, read and written over what was read: not one count is lost."""
    made = Workspace(place)
    made.write("count", b"0")
    done: list[int] = []
    refusals: set[str] = set()

    def count() -> None:
        mine = 0
        while mine < 25:
            seen = made.read("count", 100)
            try:
                made.write("count", b"%d" % (int(seen) + 1), over=seen)
                mine += 1
            except ToolError as error:
                refusals.add(str(error))
        done.append(mine)

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert done == [25] * 8
    assert made.read("count", 100) == b"200"
    assert refusals == {"path: 'count' was changed meanwhile; read it again, and write then"}


def test_who_reads_while_it_is_written_sees_one_whole_file(place: Path) -> None:
    made = Workspace(place)
    whole = [bytes([letter]) * 300_000 for letter in b"abc"]
    made.write("big", whole[0])
    stop = threading.Event()
    seen: list[bytes] = []

    def read() -> None:
        while not stop.is_set():
            data = made.read("big", 1_000_000)
            if data not in whole:
                seen.append(data)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(60):
        made.write("big", whole[number % 3])
    stop.set()
    for thread in threads:
        thread.join(30)
    assert seen == []


@containment
@pytest.mark.usefixtures("mounted")
def test_a_full_disk_and_one_that_is_read_only_leave_the_old_file_whole(way: str, place: Path) -> None:
    small = place / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", small], check=True)
    try:
        made = Workspace(place)
        made.write("small/x", b"old")
        with pytest.raises(ToolError, match="No space left on device"):
            made.write("small/x", b"n" * 100_000)
        assert os.listdir(small) == ["x"], "what was begun is gone"
        assert made.read("small/x", 10) == b"old"
        subprocess.run(["mount", "-o", "remount,ro", small], check=True)
        for call in (made.remove, lambda path: made.write(path, b"new")):
            for path in ("small/x", "small/new"):
                with pytest.raises(ToolError, match=r"Read-only file system|read-only|there is no"):
                    call(path)
        with pytest.raises(ToolError, match="Read-only file system"):
            made.write("small/folder/new", b"new")
        assert made.read("small/x", 10) == b"old"
    finally:
        subprocess.run(["umount", small], check=True)


FULL = """
import os, resource, signal, sys
from pathlib import Path
from astrion_nb.errors import ToolError
from astrion_nb.tools.workspace import Workspace
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
made = Workspace(Path(sys.argv[1]))
try:
    made.write("a.txt", b"n" * 5000)
except ToolError as error:
    print(error)
print(sorted(os.listdir(sys.argv[1])), made.read("a.txt", 100))
"""


def test_a_write_that_the_system_cuts_short_leaves_the_old_file_whole(place: Path) -> None:
    assert signal.SIGXFSZ
    done = subprocess.run([sys.executable, "-c", FULL, place], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["path: 'a.txt': File too large", "['a.txt', 'sub'] b'inside'"]


def test_descriptors_that_have_run_out_are_an_error_of_one_line(place: Path) -> None:
    import resource

    made = Workspace(place)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors() + 20, before[1]))
    told = set()
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for _ in range(4):  # none is left, then one, two, three
            with contextlib.suppress(OSError):
                for path in ("a.txt", "sub/b.txt"):
                    try:
                        made.open(path)[0].close()
                    except ToolError as error:
                        told.add(str(error))
            os.close(taken.pop())
    finally:
        for handle in taken:
            os.close(handle)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert {message.rpartition(": ")[2] for message in told if message.startswith("path")} == {"Too many open files"}
    assert made.read("sub/b.txt", 100) == b"beneath"
