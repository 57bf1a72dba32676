"""Which files of a workspace nobody wants to search: what its ``.gitignore`` files say, by the pathspec library.

Knows the workspace; no pattern of a search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ToolError
from .paths import is_protected
from .workspace import Workspace

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

NAME = ".gitignore"
MOST_BYTES = 1_000_000


class Ignored:
    """The ``.gitignore`` files of a workspace, read as folders are met.

    Parameters
    ----------
    workspace : Workspace
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._specs: dict[str, GitIgnoreSpec | None] = {}

    def __call__(self, path: str, folder: bool) -> bool:
        """Say whether a file or folder is ignored; its parents are not.

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
            spec = self._spec("/".join(parts[:depth]))
            if spec is not None:
                said = spec.check_file("/".join(parts[depth:]) + "/" * folder).include
                if said is not None:
                    return said
        return False

    def _spec(self, folder: str) -> GitIgnoreSpec | None:
        if folder not in self._specs:
            self._specs[folder] = self._read(f"{folder}/{NAME}" if folder else NAME)
        return self._specs[folder]

    def _read(self, path: str) -> GitIgnoreSpec | None:
        from pathspec import GitIgnoreSpec

        try:
            data = self._workspace.read(path, MOST_BYTES)
        except ToolError:
            return None
        lines = data.decode("utf-8", "replace").splitlines()
        made = []
        for line in lines:
            try:
                GitIgnoreSpec.from_lines([line])
            except ValueError:  # one line that is no pattern says nothing; the others count
                continue
            made.append(line)
        return GitIgnoreSpec.from_lines(made)
