"""Node for tests of the page's own code: the one on the ``PATH``, else the one that playwright brings along.

``python -m support.node ARGUMENTS…`` runs it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

from . import environment


def node() -> str:
    """Return the program's path; skips when there is none, and fails instead under ``CI=true``."""
    found = shutil.which("node") or _of_playwright()
    if found is None:
        environment.missing("there is no node: pip install -e '.[test]' brings one with playwright")
    assert found is not None
    return found


def _of_playwright() -> str | None:
    try:
        from playwright._impl._driver import compute_driver_executable
    except ImportError:
        return None
    program, _ = compute_driver_executable()
    return shutil.which(str(program))


if __name__ == "__main__":
    sys.exit(subprocess.run([node(), *sys.argv[1:]], check=False).returncode)
