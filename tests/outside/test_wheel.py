"""The wheel, built from this checkout: everything that is needed without the checkout is inside, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.environment import REPOSITORY


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=REPOSITORY, check=True, timeout=120, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the wheel's content as an installation would."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def tracked(folder: str) -> set[str]:
    """Return the files of a folder that belong to the repository, as paths below it."""
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", folder],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    return {str(Path(name).relative_to(folder)) for name in names if (REPOSITORY / name).is_file()}


def content(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_the_package_the_roles_and_the_notebooks_are_inside_whole(installed: Path) -> None:
    package = installed / "astrion_nb"
    assert content(package / "_builtin_roles") == tracked("roles")
    assert content(package / "_notebooks") == tracked("notebooks")
    own = {name for name in content(package) if not name.startswith(("_builtin_roles", "_notebooks"))}
    assert own == tracked("astrion_nb")


def test_nothing_else_is_inside(installed: Path) -> None:
    assert {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")} == {"astrion_nb"}


def test_it_works_where_there_is_no_checkout(installed: Path, tmp_path: Path) -> None:
    code = """if True:
        from IPython.core.interactiveshell import InteractiveShell
        import astrion_nb
        from astrion_nb import home, roles
        from astrion_nb.widgets import assets
        print(astrion_nb.__file__)
        print(home.builtin_notebooks() / "quickstart.ipynb", (home.builtin_notebooks() / "quickstart.ipynb").is_file())
        print(*roles.ensure_builtin())
        shell = InteractiveShell.instance()
        shell.run_line_magic("load_ext", "astrion_nb")
        print(len(assets.module()) > 10_000)
    """
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed), "IPYTHONDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    module, notebook, copied, view = done.stdout.splitlines()
    assert Path(module).is_relative_to(installed)
    assert notebook == f"{installed / 'astrion_nb' / '_notebooks' / 'quickstart.ipynb'} True"
    assert set(copied.split()) == {"code-reviewer", "full-stack-engineer", "researcher", "ui-operator"}
    assert view == "True"
