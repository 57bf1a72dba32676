"""A workspace among secrets, as fixtures, and a thread that swaps what stands under a name in it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from astrion_nb.tools import workspace
from astrion_nb.tools.workspace import Workspace

from .desks import descriptors

SECRET = b"a secret that nobody in the workspace may see"


def names(made: Workspace, path: str = ".") -> list[str]:
    """Return the paths of everything beneath a folder."""
    return [entry.path for entry in made.entries(path)]


@pytest.fixture(params=["by descriptor", "by path"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Walk as systems with descriptors of folders do, and as those without."""
    if request.param == "by path":
        monkeypatch.setattr(workspace, "BY_DESCRIPTOR", False)
    else:
        assert workspace.BY_DESCRIPTOR
    return str(request.param)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A workspace, with secrets around it."""
    root = tmp_path / "work"
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "a.txt").write_bytes(b"inside")
    (root / "sub" / "b.txt").write_bytes(b"beneath")
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(SECRET)
    (tmp_path / "work-2").mkdir()
    (tmp_path / "work-2" / "secret").write_bytes(SECRET)
    return root


@pytest.fixture
def untouched(tmp_path: Path, place: Path) -> Iterator[None]:
    """See that nothing around the workspace was written, and that every descriptor was closed."""

    def around() -> dict[str, bytes]:
        return {
            path.relative_to(tmp_path).as_posix(): path.read_bytes() if path.is_file() else b""
            for path in tmp_path.rglob("*")
            if "work" not in path.relative_to(tmp_path).parts
        }

    before, held = around(), descriptors()
    yield
    assert around() == before
    assert descriptors() <= held


@pytest.fixture
def mounted() -> None:
    """Skip where this process may mount nothing."""
    done = subprocess.run(["unshare", "-m", "true"], capture_output=True) if shutil.which("unshare") else None
    if done is None or done.returncode or os.geteuid():
        pytest.skip("mounting needs root")


class Swapping:
    """A thread that puts one thing after another under a name, as fast as it can.

    Parameters
    ----------
    name : Path
    makers : callables
        Each puts one thing at a path.
    """

    def __init__(self, name: Path, *makers: Callable[[Path], object]) -> None:
        self._name = name
        self._makers = makers
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._swap)
        self.times = 0

    def _swap(self) -> None:
        fresh = self._name.with_name(f"{self._name.name}.fresh")
        while not self._stop.is_set():
            for maker in self._makers:
                maker(fresh)
                while True:
                    try:
                        os.rename(fresh, self._name)
                        break
                    except OSError:  # a folder is there
                        shutil.rmtree(self._name, ignore_errors=True)
                        with contextlib.suppress(OSError):
                            self._name.unlink()
                self.times += 1

    def rounds(self, least: int, swaps: int = 500) -> Iterator[int]:
        """Yield numbers until there were so many of them, and so many swaps; at most ten times as many."""
        for number in range(10 * least):
            if number >= least and self.times >= swaps:
                return
            yield number

    def __enter__(self) -> Swapping:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(30)
