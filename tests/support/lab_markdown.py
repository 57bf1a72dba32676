"""JupyterLab's own Markdown, out of the installed application, in a Node process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from .node import node


class LabMarkdown:
    """Renders Markdown to HTML exactly as JupyterLab does before it puts it into a trusted page."""

    def __enter__(self) -> LabMarkdown:
        static = Path(sys.prefix) / "share" / "jupyter" / "lab" / "static"
        self._process = subprocess.Popen(
            [node(), str(Path(__file__).with_name("lab_markdown.cjs")), str(static)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=5)
        self._process.stdout.close()

    def html(self, markdown: str) -> str:
        """Return the HTML that a trusted ``text/markdown`` output becomes."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(markdown) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the Markdown process ended"
        answer = json.loads(line)
        assert "error" not in answer, f"JupyterLab cannot show {markdown!r}: {answer['error']}"
        return str(answer["html"])
