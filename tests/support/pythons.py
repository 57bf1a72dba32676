"""Other Pythons than the one that runs the tests, where the machine has them.

``ASTRION_PYTHONS`` names interpreters, separated as in ``PATH``, and then these are all; empty means none. Else they
are looked for on ``PATH`` and where pyenv and uv put theirs. Nothing is run while looking but what was named: tests
are collected often. Knows nothing of kernels.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

MINORS = ("3.11", "3.12", "3.13", "3.14")
"""Of the Pythons that are looked for."""
RUNNING = f"{sys.version_info[0]}.{sys.version_info[1]}"


def others(env: Mapping[str, str]) -> dict[str, Path]:
    """Return the interpreters that ``env`` leads to by their version (``3.12``), that of the tests left out.

    Raises
    ------
    ValueError
        ``ASTRION_PYTHONS`` names something that does not say its version, or one that is not among :data:`MINORS`.
    """
    named = env.get("ASTRION_PYTHONS")
    found = _found(env) if named is None else _named(filter(None, named.split(os.pathsep)))
    by_minor: dict[str, Path] = {}
    for minor, python in found:
        by_minor.setdefault(minor, python)
    return {minor: by_minor[minor] for minor in MINORS if minor in by_minor and minor != RUNNING}


def told(found: Iterable[str]) -> str:
    """Say in a line which Pythons kernels are tested with, and which are missing here."""
    tested = [RUNNING, *found]
    missing = [minor for minor in MINORS if minor not in tested]
    line = f"kernels (slow tests) run on Python {', '.join(sorted(tested))}"
    return line + (f"; not on this machine: {', '.join(missing)} (ASTRION_PYTHONS names others)" if missing else "")


def _named(paths: Iterable[str]) -> Iterator[tuple[str, Path]]:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    for path in paths:
        try:
            done = subprocess.run([path, "-c", code], capture_output=True, text=True, timeout=30, check=False)
        except OSError as error:
            raise ValueError(f"ASTRION_PYTHONS: {path} cannot be run ({error.strerror})") from error
        minor = done.stdout.strip()
        if done.returncode or minor not in MINORS:
            raise ValueError(f"ASTRION_PYTHONS: {path} is not one of Python {', '.join(MINORS)}")
        yield minor, Path(path)


def _found(env: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    home = Path(env.get("HOME") or Path.home())
    roots = [Path(env.get("PYENV_ROOT") or home / ".pyenv") / "versions"]
    roots.append(Path(env.get("UV_PYTHON_INSTALL_DIR") or home / ".local" / "share" / "uv" / "python"))
    for minor in MINORS:
        name = f"python{minor}"
        for place in filter(None, env.get("PATH", "").split(os.pathsep)):
            if _is_whole(python := Path(place) / name, minor):
                yield minor, python
        for root in roots:
            # The newest first; a name that is no version's, such as that of an environment, comes last.
            installed = sorted(root.glob(f"*{minor}*/bin/{name}"), key=_version, reverse=True)
            for python in installed:
                if _is_whole(python, minor):
                    yield minor, python


def _version(python: Path) -> tuple[int, ...]:
    number = re.search(r"\d+(\.\d+)+", python.parts[-3])
    return tuple(map(int, number[0].split("."))) if number else ()


def _is_whole(python: Path, minor: str) -> bool:
    """Say whether it is an interpreter and no script that looks for one, and can make environments with pip."""
    try:
        with python.open("rb") as file:
            script = file.read(2) == b"#!"
    except OSError:
        return False
    installed = python.resolve().parent.parent
    return not script and (installed / "lib" / f"python{minor}" / "ensurepip" / "__init__.py").is_file()
