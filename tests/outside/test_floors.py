"""Every bound in ``pyproject.toml`` is a version that something runs with: the lowest allowed, extras included."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

import pytest
from support import environment
from support.kernels import FLOORS, bounds

BOUND = re.compile(r"(?P<name>[A-Za-z0-9_-]+)(\[[a-z,]+\])?\s*(?P<sign>>=|==)\s*(?P<version>[0-9.]+)")
RUN = (
    "tests/values",
    "tests/app/test_conversations.py",
    "tests/notebook/test_magic_lines.py",
    "tests/notebook/test_kept_notebooks.py",
)
"""Values with hypothesis, teams with files, and notebooks under nbval: about 500 tests."""


def floors(*extras: str) -> dict[str, tuple[str, str]]:
    found = [BOUND.fullmatch(line) for line in bounds(*extras)]
    return {match["name"]: (match["sign"], match["version"]) for match in found if match is not None}


def in_it(python: Path, *words: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [str(python), *words],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=environment.REPOSITORY,
        env={**environment.OUTER, "PATH": path},
        stdin=subprocess.DEVNULL,
        check=False,
    )


def same(version: str, bound: str) -> bool:
    """Say whether a version is a bound; what a bound leaves out is nought."""
    numbers: list[Sequence[int]] = [[int(part) for part in text.split(".")] for text in (version, bound)]
    long = max(map(len, numbers))
    return [*numbers[0], *[0] * (long - len(numbers[0]))] == [*numbers[1], *[0] * (long - len(numbers[1]))]


def test_every_dependency_has_a_bound_and_what_is_pinned_is_the_version_in_use() -> None:
    unbound = [line for line in bounds("lab", "local", "web", "test", "dev") if BOUND.fullmatch(line) is None]
    assert unbound == ["types-PyYAML", "types-regex"], "stubs, of which any will do"
    assert {sign for sign, _ in floors("lab", "test", "dev").values()} == {">="}
    assert floors("local")["xllamacpp"][0] == "==", "one version, which is the one that is tested"
    try:
        assert same(metadata.version("xllamacpp"), floors("local")["xllamacpp"][1])
    except metadata.PackageNotFoundError:
        environment.missing("xllamacpp is not installed: pip install '.[local]'")


@pytest.mark.slow
def test_the_environment_of_floors_holds_every_bound(kernel_python: Callable[[str], Path]) -> None:
    names = list(floors("lab", "test"))
    code = f"import importlib.metadata as m, json; print(json.dumps({{n: m.version(n) for n in {names!r}}}))"
    held = json.loads(in_it(kernel_python(FLOORS), "-c", code).stdout)
    assert len(held) > 15
    assert {n: v for n, v in held.items() if not same(v, floors("lab", "test")[n][1])} == {}


@pytest.mark.slow
def test_tests_pass_with_the_lowest_versions_of_everything(
    kernel_python: Callable[[str], Path], tmp_path: Path
) -> None:
    done = in_it(
        kernel_python(FLOORS),
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'inner'}", *RUN),
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 300


@pytest.mark.slow
def test_the_lowest_jupyterlab_has_what_the_live_view_needs(kernel_python: Callable[[str], Path]) -> None:
    done = in_it(kernel_python(FLOORS), "-m", "jupyter", "labextension", "list")
    said = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    assert "JupyterLab v4.2.0" in said
    for name in ("anywidget", "@jupyter-widgets/jupyterlab-manager"):
        assert re.search(rf"{re.escape(name)} v\S+ enabled\s+OK", said), said
