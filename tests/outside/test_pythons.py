"""Other Pythons are found where the machine has them, and what it does not have is said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import environment
from support.pythons import MINORS, RUNNING, others, told

OTHER = next(minor for minor in MINORS if minor != RUNNING)


def lay_out(installed: Path, minor: str = OTHER, *, whole: bool = True) -> Path:
    """Make what looks like an installed Python, without one in it."""
    python = installed / "bin" / f"python{minor}"
    python.parent.mkdir(parents=True)
    python.write_bytes(b"\x7fELF")
    if whole:
        (module := installed / "lib" / f"python{minor}" / "ensurepip" / "__init__.py").parent.mkdir(parents=True)
        module.touch()
    return python


def test_each_python_that_this_machine_has_is_the_one_it_is_named_for() -> None:
    for minor, python in others(environment.OUTER).items():
        said = subprocess.check_output([python, "-c", "import sys, venv, ensurepip; print(sys.version)"], text=True)
        assert said.startswith(f"{minor}.")
        assert minor != RUNNING


def test_the_newest_of_a_version_is_taken_from_pyenv_and_uv_and_what_is_on_the_path_comes_first(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path)}
    versions = tmp_path / ".pyenv" / "versions"
    assert others(env) == {}
    in_uv = lay_out(tmp_path / ".local" / "share" / "uv" / "python" / f"cpython-{OTHER}.1-linux")
    assert others(env) == {OTHER: in_uv}
    for patch in (2, 10, 9):
        lay_out(versions / f"{OTHER}.{patch}")
    assert others(env) == {OTHER: versions / f"{OTHER}.10" / "bin" / f"python{OTHER}"}
    on_path = lay_out(tmp_path / "usr")
    assert others({**env, "PATH": f"/nowhere{os.pathsep}{on_path.parent}"}) == {OTHER: on_path}
    lay_out(versions / f"{RUNNING}.99", RUNNING)
    assert list(others(env)) == [OTHER], "the one that runs the tests is no other one"


def test_a_script_that_looks_for_a_python_and_one_that_makes_no_environments_are_passed_over(tmp_path: Path) -> None:
    shim, bare = tmp_path / "shims", tmp_path / "bare"
    shim.mkdir()
    (shim / f"python{OTHER}").write_text("#!/bin/sh\nexit 127\n")
    lay_out(bare, whole=False)
    assert others({"HOME": str(tmp_path), "PATH": f"{shim}{os.pathsep}{bare / 'bin'}"}) == {}


def test_those_that_are_named_are_all_and_a_wrong_name_is_told(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "PATH": str(lay_out(tmp_path / "usr").parent)}
    assert list(others(env)) == [OTHER]
    assert others({**env, "ASTRION_PYTHONS": ""}) == {}
    assert others({**env, "ASTRION_PYTHONS": sys.executable}) == {}, "it runs the tests"
    for wrong in (str(tmp_path / "none"), "/bin/false", str(tmp_path)):
        with pytest.raises(ValueError, match="ASTRION_PYTHONS: "):
            others({**env, "ASTRION_PYTHONS": wrong})


def test_which_are_tested_and_which_are_missing_is_said_in_one_line() -> None:
    missing = [minor for minor in MINORS if minor not in (OTHER, RUNNING)]
    assert told([OTHER]).startswith(f"kernels (slow tests) run on Python {', '.join(sorted((OTHER, RUNNING)))}; ")
    assert told([OTHER]).endswith(f"not on this machine: {', '.join(missing)} (ASTRION_PYTHONS names others)")
    assert "not on this machine" not in told(minor for minor in MINORS if minor != RUNNING)
