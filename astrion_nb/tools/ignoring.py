"""Which files of a workspace nobody wants to search: what its ``.gitignore`` files say.

Of git's other lists (a person's own, ``.git/info/exclude``, those of folders above the workspace) nothing is read.
Knows the workspace; no pattern of a search.
"""

from __future__ import annotations

from ..errors import ToolError
from .globs import Rule, rule
from .paths import is_protected
from .workspace import Workspace

NAME = ".gitignore"
MOST_BYTES = 200_000
"""Bytes of such a file; a longer one is not heeded."""


class Ignored:
    """The ``.gitignore`` files of a workspace, read as folders are met.

    Parameters
    ----------
    workspace : Workspace
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._rules: dict[str, list[Rule]] = {}

    def __call__(self, path: str, folder: bool) -> bool:
        """Say whether a file or folder is ignored, whose parents are not.

        Parameters
        ----------
        path : str
            Relative to the workspace.
        folder : bool
        """
        parts = path.split("/")
        if is_protected((parts[-1],)):
            return True
        for depth in range(len(parts) - 1, -1, -1):  # the nearest file that says anything decides
            beneath = "/".join(parts[depth:])
            for one in self._of("/".join(parts[:depth])):
                if one.says(beneath, folder):
                    return one.include
        return False

    def within(self, path: str) -> bool:
        """Say whether a folder, or one above it, is ignored."""
        parts = path.split("/")
        return any(self("/".join(parts[:depth]), True) for depth in range(1, len(parts) + 1))

    def _of(self, folder: str) -> list[Rule]:
        """Return the rules of a folder's file, the last first."""
        if folder not in self._rules:
            self._rules[folder] = self._read(f"{folder}/{NAME}" if folder else NAME)
        return self._rules[folder]

    def _read(self, path: str) -> list[Rule]:
        try:
            file, where = self._workspace.open(path)
        except ToolError:
            return []
        with file:
            data = file.read(MOST_BYTES + 1)
        if where != path or len(data) > MOST_BYTES:  # as git, through a link it is not read
            return []
        lines = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape").split("\n")
        return [found for line in reversed(lines) if (found := rule(line.removesuffix("\r")))]
