"""The page's own store, run by node, for tests that hold what it shows against the state."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .node import node

__all__ = ["SCRIPTS", "Pages", "node"]

SCRIPTS = Path(__file__).parents[1] / "js"


class Pages:
    """Pages that are given messages."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def show(self, *pages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return what pages show that got these messages, each in a store of its own."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(pages) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError("node ended")
        shown: list[dict[str, Any]] = json.loads(line)
        return shown


@contextmanager
def pages() -> Iterator[Pages]:
    """Run node with the page's store."""
    command = [node(), str(SCRIPTS / "store_driver.mjs")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        try:
            yield Pages(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=5)
