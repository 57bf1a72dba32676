"""What a model may write where a path is asked for: the text's rules, before any file is looked at.

Pure. Whether a path leads out through a link is :mod:`~astrion_nb.tools.workspace`'s matter.
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path, PurePosixPath

from ..errors import ToolError
from ..given import shown

LONGEST = 1_024
"""Characters of a path, at most."""
PROTECTED = frozenset({".git", ".hg", ".svn"})
"""Folders whose files run or steer programs: nobody writes there by a tool."""

_DRIVE = re.compile(r"[A-Za-z]:")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])(?:[. :].*)?", re.IGNORECASE)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_DIRECTIONS = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_SHORT = re.compile(r"(?:git|hg|svn)~[0-9]+")
"""Names under which Windows knows such folders too."""
TEMPORARY = re.compile(r"\.astrion-[0-9a-f]{16}")
"""Names of unfinished files; nobody sees them."""


def parts_of(path: str, root: Path, *, writing: bool = False) -> tuple[str, ...]:
    """Return the components of a path beneath the workspace, as they were said: ``..`` may be among them.

    Parameters
    ----------
    path : str
        Relative to the workspace, or absolute and beneath it.
    root : Path
        The workspace, absolute.
    writing : bool
        Names that only some systems can hold are refused, and folders of version control.

    Raises
    ------
    ToolError
        It is no path of this workspace.
    """
    if not path.strip():
        raise ToolError("path: must not be empty; '.' is the workspace itself")
    if len(path) > LONGEST:
        raise ToolError(f"path: has {len(path)} characters; {LONGEST} is the limit")
    if _CONTROL.search(path):
        raise ToolError(f"path: {shown(path)} holds a control character")
    if "\\" in path or _DRIVE.match(path):
        raise ToolError(f"path: {shown(path)} is a Windows path; write it relative to the workspace, with /")
    if path.startswith("~"):
        raise ToolError(f"path: {shown(path)} leads to a home folder; only paths of the workspace can be used")
    if path.startswith("/"):
        try:
            path = PurePosixPath(path).relative_to(PurePosixPath(root.as_posix())).as_posix()
        except ValueError:
            raise outside(path) from None
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    depth = 0
    for part in parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            raise outside(path)
    if writing:
        for part in parts:
            _check_name(part, path)
    return parts


def outside(path: str) -> ToolError:
    """Return the error that a path leads out of the workspace."""
    return ToolError(f"path: {shown(path)} leads out of the workspace; use a path relative to it")


def is_protected(parts: tuple[str, ...]) -> bool:
    """Say whether a resolved path lies in a folder of version control, however its name is spelled."""
    return any(_plain(part) in PROTECTED or _SHORT.fullmatch(_plain(part)) is not None for part in parts)


def _plain(part: str) -> str:
    """Return what some file systems take a name for: no case, no form, no characters that are not seen."""
    seen = "".join(char for char in unicodedata.normalize("NFKC", part) if unicodedata.category(char) != "Cf")
    return seen.casefold().partition(":")[0].rstrip(". ")


def _check_name(part: str, path: str) -> None:
    if part == "..":
        return
    if len(part.encode()) > 240:
        raise ToolError(f"path: a name in {shown(path)} is longer than 240 bytes")
    if _DIRECTIONS.search(part):
        raise ToolError(f"path: {shown(part)} holds a mark that turns the direction of what is shown; use another name")
    if TEMPORARY.fullmatch(part.casefold()):
        raise ToolError(f"path: {shown(part)} is a name of unfinished files; use another")
    if _RESERVED.fullmatch(part) or part != part.rstrip(". ") or ":" in part:
        raise ToolError(f"path: {shown(part)} is a name that Windows cannot hold or takes for a device; use another")
