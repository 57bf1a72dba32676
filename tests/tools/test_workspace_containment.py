"""No path leads out of the workspace: no spelling, no link, no name that is something else elsewhere."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import subprocess
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.desks import descriptors
from support.places import SECRET, Swapping, names

from astrion_nb.errors import ToolError
from astrion_nb.tools import walking, workspace
from astrion_nb.tools.workspace import Workspace

containment = pytest.mark.containment

# -- what is not to be read ---------------------------------------------------------------

LEADING_OUT = [
    "..",
    "../secret",
    "../work-2/secret",
    "sub/../../secret",
    "sub/../../work/a.txt",
    "/etc/passwd",
    "/",
    "//etc/passwd",
    "/proc/self/root/etc/passwd",
    "/proc/self/environ",
    "../" * 300 + "etc/passwd",
    "a/../../secret",
]
NO_PATHS = [
    "",
    " ",
    "\t",
    "a.txt\0",
    "../secret\0.txt",
    "a\nb",
    "a\x7f",
    "a\x9b",
    "a\u2028b",
    "\ud800",
    "~/.ssh/id_rsa",
    "~root",
    "..\\secret",
    "sub\\..\\..\\secret",
    "C:\\Windows",
    "C:/Windows",
    "c:secret",
    "\\\\server\\share\\x",
    "\\\\?\\C:\\x",
    "\\\\.\\PhysicalDrive0",
    "x" * 1_025,
]


@containment
@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("path", [*LEADING_OUT, *NO_PATHS])
def test_no_spelling_leads_out(way: str, place: Path, path: str) -> None:
    made = Workspace(place)
    for call in (
        made.open,
        made.entries,
        made.folder,
        made.remove,
        lambda path: made.read(path, 1_000),
        lambda path: made.write(path, b"written"),
    ):
        with pytest.raises(ToolError, match=r"^path: .*") as caught:
            call(path)
        assert "\n" not in str(caught.value)
        assert SECRET.decode() not in str(caught.value)


@containment
@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    "beneath", ["{tmp}/secret", "{tmp}/work/../secret", "{tmp}/work-2/secret", "{tmp}", "{tmp}/work/.."]
)
def test_no_absolute_path_leads_out(way: str, place: Path, tmp_path: Path, beneath: str) -> None:
    made = Workspace(place)
    for call in (made.open, made.entries, made.remove, lambda path: made.write(path, b"written")):
        with pytest.raises(ToolError, match="leads out of the workspace"):
            call(beneath.format(tmp=tmp_path))


LINKS = {
    "file outside": "../secret",
    "file outside by its whole path": "{tmp}/secret",
    "folder outside": "../outside",
    "folder outside by its whole path": "{tmp}/outside",
    "root of all": "/",
    "parent": "..",
    "out by way of itself": "sub/../../secret",
    "back in by way of outside": "../work/a.txt",
    "its own process": "/proc/self/cwd",
    "its own descriptors": "/dev/fd",
    "whole path with dots": "{tmp}/work/../secret",
    "nothing yet, outside": "../outside/new",
    "neighbour of like name": "{tmp}/work-2",
}


@containment
@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("target", LINKS.values(), ids=LINKS.keys())
@pytest.mark.parametrize("far", [0, 1, 5])
def test_no_link_leads_out(way: str, place: Path, tmp_path: Path, target: str, far: int) -> None:
    if way == "by path" and target == "../work/a.txt":
        far = 0  # that one ends inside, which alone counts there
    (place / "link0").symlink_to(target.format(tmp=tmp_path))
    for number in range(far):  # a chain, through a folder and back
        (place / f"link{number + 1}").symlink_to(f"sub/../link{number}")
    made = Workspace(place)
    if way == "by path" and target == "../work/a.txt":
        assert made.read("link0", 100) == b"inside"
        return
    paths = [f"link{far}", f"link{far}/secret", f"link{far}/new", f"sub/../link{far}/x/y"]
    for path in paths:
        for call in (made.open, made.remove, lambda path: made.write(path, b"written")):
            with pytest.raises(ToolError, match=r"leads out of the workspace|is a file, not a folder|closed"):
                call(path)
        with pytest.raises(ToolError):
            made.entries(path)
    assert not any("link" in entry.path for entry in made.entries())


@containment
@pytest.mark.usefixtures("untouched")
def test_links_that_turn_in_a_circle_end(way: str, place: Path) -> None:
    (place / "self").symlink_to("self")
    (place / "one").symlink_to("two")
    (place / "two").symlink_to("one")
    (place / "sub" / "up").symlink_to("../sub")
    (place / "bomb0").symlink_to("sub")
    for number in range(8):
        (place / f"bomb{number + 1}").symlink_to(f"bomb{number}/../bomb{number}/../bomb{number}/../bomb{number}")
    made = Workspace(place)
    for path in ("self", "one", "self/x", "two/x"):
        for call in (made.open, made.entries, lambda path: made.write(path, b"written")):
            with pytest.raises(ToolError):
                call(path)
    assert made.read("sub/up/up/up/b.txt", 100) == b"beneath"
    if way == "by descriptor":
        with pytest.raises(ToolError, match="through too many links"):
            made.read("bomb8/b.txt", 100)
        with pytest.raises(ToolError, match="through too many links"):
            made.read("sub" + "/up" * 41 + "/b.txt", 100)
    assert [path for path in names(made) if "up" in path] == []


@pytest.mark.parametrize("target", ["sub/b.txt", "./sub//b.txt", "sub/deep/../b.txt", "{root}/sub/b.txt"])
def test_a_link_that_stays_inside_is_followed_for_reading_and_writing(way: str, place: Path, target: str) -> None:
    (place / "link").symlink_to(target.format(root=place))
    made = Workspace(place)
    assert made.read("link", 100) == b"beneath"
    written = made.write("link", b"new")
    assert (written.path, written.before) == ("sub/b.txt", b"beneath")
    assert (place / "link").is_symlink()
    assert (place / "sub" / "b.txt").read_bytes() == b"new"


def test_a_link_to_nothing_inside_is_where_the_file_is_made(way: str, place: Path) -> None:
    (place / "link").symlink_to("sub/new")
    assert Workspace(place).write("link", b"new").path == "sub/new"
    assert (place / "sub" / "new").read_bytes() == b"new"


@containment
@pytest.mark.usefixtures("untouched")
def test_what_is_no_regular_file_is_not_opened(way: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(place / "pipe")
    monkeypatch.chdir(place)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as listening, contextlib.ExitStack() as devices:
        listening.bind("socket")
        listening.listen(1)
        odd = ["pipe", "socket"]
        if hasattr(os, "mknod") and os.geteuid() == 0:
            os.mknod("null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
            devices.callback(os.unlink, "null")
            odd.append("null")
        (place / "linked").symlink_to("pipe")
        made = Workspace(place)
        for path in (*odd, "linked"):
            for call in (made.open, made.remove, lambda path: made.write(path, b"written")):
                with pytest.raises(ToolError, match="is a device, pipe or socket, not a file"):
                    call(path)
            with pytest.raises(ToolError, match="is a file, not a folder"):
                made.entries(path)
        for path in ("sub", ".", "sub/..", "sub/deep/.."):
            for call in (made.open, made.remove, lambda path: made.write(path, b"written")):
                with pytest.raises(ToolError, match="is a folder, not a file"):
                    call(path)
        assert names(made) == ["a.txt", "sub", "sub/b.txt", "sub/deep"]


@containment
def test_who_waits_to_write_into_a_pipe_is_not_let_go_by_a_look_at_it(place: Path) -> None:
    os.mkfifo(place / "pipe")
    reader = os.open(place / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(place / "pipe", os.O_WRONLY | os.O_NONBLOCK)
    os.close(reader)
    with pytest.raises(ToolError, match="pipe"):
        Workspace(place).open("pipe")
    with pytest.raises(BrokenPipeError):  # nobody has read meanwhile either
        os.write(writer, b"x")
    os.close(writer)


@containment
@pytest.mark.usefixtures("untouched")
def test_closed_folders_are_there_for_nobody_under_any_name(way: str, place: Path) -> None:
    (place / "kept" / "in").mkdir(parents=True)
    (place / "kept" / "in" / "x").write_bytes(SECRET)
    (place / "link").symlink_to("kept")
    (place / "sub" / "link").symlink_to("../kept/in")
    made = Workspace(place, [place / "kept", place.parent / "outside", place / "later"])
    (place / "later").mkdir()
    for path in ("kept", "kept/in/x", "link", "link/in/x", "sub/link/x", "sub/../kept/in/x", "link/new/y", "later/x"):
        for call in (made.open, made.entries, made.remove, lambda path: made.write(path, b"written")):
            with pytest.raises(ToolError, match="closed to tools"):
                call(path)
    assert names(made) == ["a.txt", "sub", "sub/b.txt", "sub/deep"]
    assert sorted(os.listdir(place / "kept")) == ["in"], "nothing was made on the way"
    assert os.listdir(place / "later") == []


@containment
def test_a_closed_folder_is_closed_under_a_second_name_that_is_no_link(place: Path, mounted: None) -> None:
    (place / "kept").mkdir()
    (place / "kept" / "x").write_bytes(SECRET)
    (place / "also").mkdir()
    subprocess.run(["mount", "--bind", place / "kept", place / "also"], check=True)
    try:
        made = Workspace(place, [place / "kept"])
        for call in (made.open, made.remove, lambda path: made.write(path, b"written")):
            with pytest.raises(ToolError, match="closed to tools"):
                call("also/x")
        with pytest.raises(ToolError, match="closed to tools"):
            made.entries("also")
        assert names(made) == ["a.txt", "sub", "sub/b.txt", "sub/deep"]
    finally:
        subprocess.run(["umount", place / "also"], check=True)


# -- what is not to be written ------------------------------------------------------------

PROTECTED = [
    ".git/config",
    ".git",
    ".GIT/hooks/post-checkout",
    ".Git/config",
    "sub/.git/config",
    "\uff0egit/config",
    ".g\u200cit/config",
    ".gi\ufefft/config",
    ".git\u200b/config",
    "\uff0e\uff27it/config",
    "GIT~1/config",
    "git~2",
    ".hg/hgrc",
    ".ſvn/x",
    "sub/../.git/config",
    ".git/../.git/config",
    "gitlink/config",
    "gitlink/new/hook",
]


@containment
@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("path", PROTECTED, ids=ascii)
def test_nothing_is_written_to_version_control(way: str, place: Path, path: str) -> None:
    (place / ".git").mkdir()
    (place / ".git" / "config").write_bytes(b"[core]")
    (place / "gitlink").symlink_to(".git")
    before = sorted(place.rglob("*"))
    made = Workspace(place)
    for call in (made.remove, lambda path: made.write(path, b"[core]\nfsmonitor = evil")):
        with pytest.raises(ToolError, match=r"belongs to version control|cannot hold"):
            call(path)
    assert sorted(place.rglob("*")) == before
    assert made.read(".git/config", 100) == b"[core]", "it may be read"


RESERVED = [
    "CON",
    "con.txt",
    "sub/NUL",
    "aux.tar.gz",
    "COM1",
    "com¹",
    "LPT9.log",
    "conin$",
    "Nul ",
    "a. ",
    "a.",
    "a ",
    "sub./x",
    "file:stream",
    "a.txt::$DATA",
    "sub:x/y",
    ".git::$INDEX_ALLOCATION/config",
    "exe.\u202etxt",
    "\u2066a",
    ".astrion-0123456789abcdef",
    "x" * 241,
    "字" * 81,
]


@containment
@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("path", RESERVED, ids=ascii)
def test_names_that_are_something_else_elsewhere_are_not_written(way: str, place: Path, path: str) -> None:
    before = sorted(place.rglob("*"))
    with pytest.raises(ToolError):
        Workspace(place).write(path, b"written")
    assert sorted(place.rglob("*")) == before


PLAIN = ["a.txt", "console.py", "communal", "nul_", ".gitignore", ".github/x.yml", "git~", "名.txt", "a b", "#", "-rf"]


@pytest.mark.parametrize("path", PLAIN)
def test_plain_names_are_written(way: str, place: Path, path: str) -> None:
    Workspace(place).write(path, b"written")
    assert (place / path).read_bytes() == b"written"


def test_names_in_another_form_of_unicode_are_names_of_their_own(place: Path) -> None:
    one, other = (unicodedata.normalize(form, "é.txt") for form in ("NFC", "NFD"))
    made = Workspace(place)
    made.write(one, b"composed")
    made.write(other, b"decomposed")
    assert (made.read(one, 100), made.read(other, 100)) in {
        (b"composed", b"decomposed"),
        (b"decomposed", b"decomposed"),  # a file system for which they are one
    }


@pytest.mark.parametrize("path", ["a.txt/b", "a.txt/b/c", "none/../x", "new/../../work/x"])
def test_a_write_that_cannot_be_leaves_no_folder_behind(way: str, place: Path, path: str) -> None:
    before = sorted(place.rglob("*"))
    with pytest.raises(ToolError):
        Workspace(place).write(path, b"written")
    assert sorted(place.rglob("*")) == before


def test_what_is_not_there_is_not_removed_and_nothing_is_made_for_it(way: str, place: Path) -> None:
    made = Workspace(place)
    for path in ("none", "new/folder/none"):
        with pytest.raises(ToolError, match="there is no"):
            made.remove(path)
        with pytest.raises(ToolError, match=r"there is no|changed meanwhile"):
            made.write(path, b"x", over=b"was there")
    assert not (place / "new").exists()
    made.remove("sub/b.txt")
    assert not (place / "sub" / "b.txt").exists()


@containment
def test_nothing_is_opened_deeper_than_a_hundred_folders(way: str, place: Path) -> None:
    handle = os.open(place, os.O_RDONLY)
    for _ in range(600):
        os.mkdir("d", dir_fd=handle)
        inner = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(handle)
    made, held = Workspace(place), descriptors()
    assert max(path.count("/") for path in names(made)) == walking.DEEPEST - 1
    for call in (made.open, made.entries, lambda path: made.write(path, b"")):
        with pytest.raises(ToolError, match="more than 100 folders deep"):
            call("d/" * 400 + "x")
    assert descriptors() <= held
    subprocess.run(["rm", "-rf", place / "d"], check=True)


# -- what changes between a look and a use --------------------------------------------------


@containment
def test_a_folder_swapped_for_a_link_leads_out_no_read_and_no_write(place: Path, tmp_path: Path) -> None:
    """2,000 reads and 2,000 writes while a thread swaps a folder, a link out and a link in."""
    outside = tmp_path / "outside"

    def folder(path: Path) -> None:
        path.mkdir()
        (path / "secret").write_bytes(b"inside")

    made, read, wrote, refused = Workspace(place), 0, 0, 0
    with Swapping(
        place / "door", folder, lambda path: path.symlink_to(outside), lambda path: path.symlink_to("sub")
    ) as swapping:
        for number in swapping.rounds(2_000):
            with contextlib.suppress(ToolError):
                assert made.read("door/secret", 1_000) != SECRET
                read += 1
            try:
                made.write("door/secret", b"inside")
                wrote += 1
            except ToolError:
                refused += 1
            with contextlib.suppress(ToolError):
                assert all(entry.path.startswith(("door/", "sub/")) for entry in made.entries("door"))
            if number % 100 == 0:
                for entry in made.entries():
                    assert entry.size != len(SECRET)
    assert swapping.times >= 500
    assert read > 0
    assert wrote > 0
    assert refused > 0
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"secret": SECRET}


@containment
def test_a_file_swapped_for_a_link_or_a_pipe_leads_out_no_read_and_no_write(place: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    made, read, refused = Workspace(place), 0, 0
    with Swapping(
        place / "door",
        lambda path: path.write_bytes(b"inside"),
        lambda path: path.symlink_to(secret),
        lambda path: path.symlink_to("a.txt"),
        os.mkfifo,
    ) as swapping:
        for _ in swapping.rounds(2_000):
            try:
                assert made.read("door", 1_000) == b"inside"
                read += 1
            except ToolError:
                refused += 1
            with contextlib.suppress(ToolError):
                made.write("door", b"inside")
    assert swapping.times >= 500
    assert read > 0
    assert refused > 0
    assert secret.read_bytes() == SECRET


@containment
def test_a_link_whose_target_is_swapped_leads_out_no_read_and_no_write(place: Path, tmp_path: Path) -> None:
    """The link itself stays inside; what it names becomes a link out."""
    (place / "link").symlink_to("middle/secret")
    made, read = Workspace(place), 0

    def folder(path: Path) -> None:
        path.mkdir()
        (path / "secret").write_bytes(b"inside")

    with Swapping(place / "middle", folder, lambda path: path.symlink_to("../outside")) as swapping:
        for _ in swapping.rounds(2_000):
            with contextlib.suppress(ToolError):
                assert made.read("link", 1_000) != SECRET
                read += 1
            with contextlib.suppress(ToolError):
                made.write("link", b"inside")
    assert swapping.times >= 500
    assert read > 0
    assert (tmp_path / "outside" / "secret").read_bytes() == SECRET
    assert os.listdir(tmp_path / "outside") == ["secret"]


# -- any path, any tree -----------------------------------------------------------------------

PIECES = st.sampled_from(
    ["..", ".", "", "a.txt", "sub", "b.txt", "deep", "out", "up", "in", "whole", "none", "secret", "work"]
)


@containment
@settings(max_examples=400)
@given(pieces=st.lists(PIECES, max_size=9), lead=st.sampled_from(["", "/", "{root}/"]), by=st.booleans())
def test_whatever_is_said_only_what_lies_inside_is_opened(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], lead: str, by: bool
) -> None:
    tmp = tmp_path_factory.getbasetemp() / "any"
    root = tmp / "work"
    if not root.exists():
        (root / "sub" / "deep").mkdir(parents=True)
        for path, data in (("a.txt", b"inside"), ("sub/b.txt", b"inside"), ("../secret", SECRET)):
            (root / path).write_bytes(data)
        (root / "out").symlink_to("..")
        (root / "up").symlink_to("sub/deep")
        (root / "sub" / "deep" / "in").symlink_to("../../sub")
        (root / "whole").symlink_to(tmp)
    path = lead.format(root=root) + "/".join(pieces)
    made = Workspace(root)
    before = workspace.BY_DESCRIPTOR
    workspace.BY_DESCRIPTOR = by  # type: ignore[misc]
    try:
        file, where = made.open(path)
    except ToolError:
        return
    finally:
        workspace.BY_DESCRIPTOR = before  # type: ignore[misc]
    with file:
        assert file.read() == b"inside"
    real = Path(os.path.realpath(root / path))
    assert real == root / where
