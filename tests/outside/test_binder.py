"""What a visitor on Binder gets, set up by the real ``binder/postBuild`` in a home of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.environment import REPOSITORY
from support.kernels import run_in
from support.lab import ask_server, server

BINDER = REPOSITORY / "binder"
SHOW = "import os\nprint(os.environ.get('ASTRION_REPLAY'), sorted(n for n in dir() if not n.startswith('_')))"


@pytest.fixture
def visitor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which Binder's build has run."""
    for name in ("XDG_CONFIG_HOME", "JUPYTER_PLATFORM_DIRS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    subprocess.run([BINDER / "postBuild"], cwd=REPOSITORY, check=True, timeout=60)
    return tmp_path


@pytest.fixture
def binder(visitor: Path) -> Iterator[tuple[str, Path, Path]]:
    """Its server: address, the folder it serves, the folder of its kernels' connection files."""
    private = {"IPYTHONDIR": visitor / ".ipython", "JUPYTER_CONFIG_DIR": visitor / ".jupyter"}
    with server(visitor, **private) as (url, root, _):
        yield url, root, visitor / "runtime"


def test_the_notebook_that_opens_has_a_recording() -> None:
    assert "/lab/tree/notebooks/quickstart.ipynb" in (BINDER / "postBuild").read_text("utf-8")
    assert (REPOSITORY / "notebooks" / "quickstart.ipynb").is_file()
    assert (REPOSITORY / "notebooks" / "quickstart.cassette.json").is_file()


def test_a_visitor_lands_on_the_quickstart(binder: tuple[str, Path, Path]) -> None:
    url, _, _ = binder
    with urllib.request.urlopen(f"{url}/", timeout=30) as landed:
        assert landed.url == f"{url}/lab/tree/notebooks/quickstart.ipynb"


def test_a_notebook_with_a_recording_replays_it_and_another_does_not(binder: tuple[str, Path, Path]) -> None:
    url, root, runtime = binder
    (root / "notebooks").mkdir()
    for name in ("quickstart.ipynb", "quickstart.cassette.json"):
        shutil.copy(REPOSITORY / "notebooks" / name, root / "notebooks" / name)
    said = {}
    for name in ("notebooks/quickstart.ipynb", "notebooks/own.ipynb"):
        # as JupyterLab asks for a notebook's kernel
        session = {"path": name, "type": "notebook", "name": Path(name).name, "kernel": {"name": "python3"}}
        kernel = ask_server(f"{url}/api/sessions", post=session)["kernel"]["id"]
        said[name] = run_in(runtime / f"kernel-{kernel}.json", SHOW)
    assert said["notebooks/quickstart.ipynb"].startswith(str(root / "notebooks" / "quickstart.cassette.json"))
    assert said["notebooks/own.ipynb"].startswith("None ")
    assert not any("replay" in names or "Path" in names for names in said.values())  # nothing is left in the namespace


def test_the_python_is_one_that_the_package_takes() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = project["requires-python"].removeprefix(">=")
    runtime = (BINDER / "runtime.txt").read_text("utf-8").strip().removeprefix("python-")
    assert tuple(map(int, runtime.split("."))) >= tuple(map(int, wanted.split(".")))
