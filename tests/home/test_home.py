"""Where things live, atomic writes, and locks between processes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest

from astrion_nb import home as home_module
from astrion_nb.disk import write_atomic
from astrion_nb.errors import ConfigError, StorageError
from astrion_nb.home import Home, extra_command, language
from astrion_nb.lock import locked


def test_the_root_is_the_environments_then_mutiagents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASTRION_HOME", str(tmp_path / "host"))
    home = Home()
    assert home.base == tmp_path / "host" / "mutiagents"
    assert home.agents == home.base / "agents"
    assert home.conversations == home.base / "conversations"
    assert home.state_file == home.base / "state.json"
    assert home.models_file == home.base / "astrion_nb" / "models.toml"


def test_without_a_setting_the_root_is_the_parents_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    for empty in (None, ""):
        monkeypatch.delenv("ASTRION_HOME", raising=False)
        if empty is not None:
            monkeypatch.setenv("ASTRION_HOME", empty)
        assert Home().base == tmp_path / ".astrion" / "astrion" / "host" / "mutiagents"


def test_a_given_root_wins_and_a_tilde_is_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("ASTRION_HOME", "/elsewhere")
    assert Home(tmp_path / "a").root == tmp_path / "a"
    assert Home("~/b").root == tmp_path / "b"


def test_naming_a_home_creates_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path / "new")
    assert home.lock_file("state").is_relative_to(home.own)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("below", ["", "host", "deeper/host"])
def test_a_home_below_a_file_or_a_device_is_refused_by_the_name_of_what_is_in_its_way(
    tmp_path: Path, below: str
) -> None:
    file = tmp_path / "file"
    file.touch()
    for there in (file, Path(os.devnull)):
        with pytest.raises(ConfigError, match=f"{there.name}.* a file, not a folder"):
            Home(there / below)


def test_a_home_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(ConfigError, match="ASTRION_HOME"):
        Home(tmp_path / "file")


def test_homes_of_the_same_root_are_equal(tmp_path: Path) -> None:
    assert Home(tmp_path) == Home(str(tmp_path))
    assert {Home(tmp_path): 1}[Home(tmp_path)] == 1


def test_blanks_around_the_setting_are_none_of_it_and_blanks_alone_say_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    for said in ("", " ", " \t\n"):
        monkeypatch.setenv("ASTRION_HOME", said)
        assert Home().root == tmp_path / ".astrion" / "astrion" / "host"
    monkeypatch.setenv("ASTRION_HOME", f" {tmp_path / 'there'}\n")
    assert Home().root == tmp_path / "there"


def test_what_an_optional_part_needs_is_installed_by_its_name_wherever_the_package_is_from() -> None:
    with open(Path(__file__).parents[2] / "pyproject.toml", "rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    wanted = " ".join(f"'{requirement}'" for requirement in (*extras["lab"], *extras["local"]))
    assert extra_command("lab", "local") == f"pip install {wanted}"
    assert extra_command("nothing") == "pip install '.[nothing]'"


def test_the_shipped_folders_are_found() -> None:
    assert (home_module.builtin_roles()).is_dir()
    assert (home_module.builtin_notebooks()).is_dir()


def test_the_shipped_folder_inside_the_package_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "astrion_nb"
    (tmp_path / "roles").mkdir()
    package.mkdir()
    monkeypatch.setattr(home_module, "_PACKAGE", package)
    with pytest.raises(StorageError, match="install astrion-nb again"):
        home_module.builtin_roles()  # a folder `roles` beside an installed package is not ours
    (tmp_path / "pyproject.toml").touch()
    assert home_module.builtin_roles() == tmp_path / "roles"
    (package / "_builtin_roles").mkdir()
    assert home_module.builtin_roles() == package / "_builtin_roles"


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "C.UTF-8"}, "en"),
        ({"LC_ALL": "en_GB.UTF-8", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"LC_MESSAGES": "zh_TW.UTF-8", "LANG": "de_DE"}, "zh"),
        ({"ASTRION_LANGUAGE": "en", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"ASTRION_LANGUAGE": " ZH-cn ", "LANG": "en_US"}, "zh"),
    ],
)
def test_the_language_is_the_settings_then_the_locales_then_english(env: dict[str, str], expected: str) -> None:
    assert language(env) == expected


def test_an_unknown_language_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"ASTRION_LANGUAGE is 'fr'; it can be 'zh' or 'en'"):
        language({"ASTRION_LANGUAGE": "fr"})


def test_a_write_creates_folders_and_leaves_only_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "x.json"
    write_atomic(path, b"one")
    write_atomic(path, b"two", fsync=False)
    assert path.read_bytes() == b"two"
    assert [item.name for item in path.parent.iterdir()] == ["x.json"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_keeps_the_old_file_and_leaves_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "x.json"
    write_atomic(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(StorageError, match=r"x\.json cannot be written \(No space left on device\)"):
        write_atomic(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir()] == ["x.json"]


def test_an_interrupted_write_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(tmp_path / "x", b"new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full (Linux)")
def test_a_full_disk_is_a_storage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def open_full(path: object, flags: int, mode: int = 0o777) -> int:
        return real("/dev/full", os.O_WRONLY) if str(path).endswith(".tmp") else real(path, flags, mode)  # type: ignore[call-overload]

    (tmp_path / "x").write_bytes(b"old")
    monkeypatch.setattr(os, "open", open_full)
    with pytest.raises(StorageError, match="No space left"):
        write_atomic(tmp_path / "x", b"new" * 100_000)
    monkeypatch.undo()
    assert (tmp_path / "x").read_bytes() == b"old"


def test_a_write_into_a_path_below_a_file_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be created"):
        write_atomic(tmp_path / "file" / "x", b"")


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions and links")
def test_permissions_and_symbolic_links_survive_a_write(tmp_path: Path) -> None:
    target = tmp_path / "target.md"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link = tmp_path / "link.md"
    link.symlink_to(target)
    write_atomic(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    old = os.umask(0o027)
    try:
        write_atomic(tmp_path / "fresh", b"")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "fresh").stat().st_mode) == 0o640


@pytest.mark.skipif(os.name == "nt", reason="POSIX pipes and links")
def test_what_is_no_regular_file_is_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name, place in (("to-pipe", "pipe"), ("to-folder", "folder"), ("in-a-circle", "in-a-circle")):
        (tmp_path / name).symlink_to(place)
    before = {item.name: item.lstat().st_mode for item in tmp_path.iterdir()}
    for name in before:
        with pytest.raises(StorageError, match=f"{name} cannot be written"):
            write_atomic(tmp_path / name, b"new")
    assert {item.name: item.lstat().st_mode for item in tmp_path.iterdir()} == before


@pytest.mark.skipif(os.name == "nt", reason="POSIX links")
def test_a_link_whose_file_is_not_there_yet_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("made/later")
    write_atomic(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "made" / "later").read_bytes() == b"new"


def test_an_exclusive_write_never_replaces_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomic(tmp_path / "x", b"first", exclusive=True)
    with pytest.raises(FileExistsError):
        write_atomic(tmp_path / "x", b"second", exclusive=True)

    def no_links(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(FileExistsError):
        write_atomic(tmp_path / "x", b"third", exclusive=True)
    write_atomic(tmp_path / "y", b"fourth", exclusive=True)
    assert (tmp_path / "x").read_bytes() == b"first"
    assert (tmp_path / "y").read_bytes() == b"fourth"
    assert sorted(item.name for item in tmp_path.iterdir()) == ["x", "y"]


COUNT = """
import json, sys
from pathlib import Path
from astrion_nb.disk import write_atomic
from astrion_nb.lock import locked
folder = Path(sys.argv[1])
for _ in range(25):
    with locked(folder / "count.lock"):
        count = json.loads((folder / "count.json").read_bytes())
        write_atomic(folder / "count.json", json.dumps(count + 1).encode(), fsync=False)
"""


def test_increments_by_several_processes_and_threads_are_never_lost(tmp_path: Path) -> None:
    (tmp_path / "count.json").write_text("0", encoding="utf-8")
    running = [subprocess.Popen([sys.executable, "-c", COUNT, str(tmp_path)]) for _ in range(3)]

    def count() -> None:
        for _ in range(25):
            with locked(tmp_path / "count.lock"):
                value = json.loads((tmp_path / "count.json").read_bytes())
                write_atomic(tmp_path / "count.json", json.dumps(value + 1).encode(), fsync=False)

    threads = [threading.Thread(target=count) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [process.wait(30) for process in running] == [0, 0, 0]
    assert json.loads((tmp_path / "count.json").read_bytes()) == 125


HOLD = """
import sys
from pathlib import Path
from astrion_nb.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_held_lock_refuses_in_time_and_is_free_after_its_holder_was_killed(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == b"held"
        with pytest.raises(StorageError, match=r"another process holds x\.lock"), locked(lock, timeout=0):
            pytest.fail("two holders")
        holder.kill()
    with locked(lock, timeout=5):
        pass


FORK = """
import os, signal, sys
from pathlib import Path
from astrion_nb.lock import locked
with locked(Path(sys.argv[1])):
    child = os.fork()
    if child:
        signal.pause()
    other = os.open("/", os.O_RDONLY)
os.fstat(other)
with locked(Path(sys.argv[1]).with_name("y.lock")):
    print("left", flush=True)
    sys.stdin.read()
"""


@pytest.mark.faults
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_neither_keeps_its_parents_lock_nor_gives_it_up(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    with subprocess.Popen(
        [sys.executable, "-c", FORK, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        # The child has left the block, and a file that took the lock's number in it is open still.
        assert holder.stdout.readline().strip() == b"left"
        with pytest.raises(StorageError, match=r"another process holds x\.lock"), locked(lock, timeout=0):
            pytest.fail("two holders")
        holder.kill()
        with locked(lock, timeout=5):
            pass
        with pytest.raises(StorageError, match=r"y\.lock"), locked(tmp_path / "y.lock", timeout=0):
            pytest.fail("the child is gone")


def test_an_error_inside_the_block_frees_the_lock(tmp_path: Path) -> None:
    with pytest.raises(KeyError), locked(tmp_path / "x.lock"):
        raise KeyError
    with locked(tmp_path / "x.lock", timeout=0):
        pass


def test_the_protected_file_itself_cannot_be_the_lock(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\.lock"), locked(tmp_path / "state.json"):
        pass
