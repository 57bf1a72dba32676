"""Comparing with files that people have looked at.

``ASTRION_GOLDEN=write pytest …`` writes what differs and still fails: look at the files, run again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "golden"


def check(expected: Mapping[Path, str]) -> None:
    """Fail unless each file holds exactly its text."""
    found = {path: path.read_bytes().decode("utf-8") if path.exists() else None for path in expected}
    differing = [path for path, text in expected.items() if found[path] != text]
    if os.environ.get("ASTRION_GOLDEN") == "write":
        for path in differing:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(expected[path].encode("utf-8"))
        assert not differing, f"written anew: {[path.name for path in differing]}; look at them and run again"
    for path in differing:
        assert found[path] is not None, f"{path} is missing"
        assert found[path] == expected[path]
