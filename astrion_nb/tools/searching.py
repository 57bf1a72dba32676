"""``search_workspace``: regular expressions in files, and files by name.

Files are read by the workspace, so a search finds what ``read_file`` could read. ripgrep, where it is
there, says which files can be left out; what matches is always decided here, so that results are the
same with it and without. A pattern that runs away is ended by the regex library's own time-out.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from ..errors import ToolError
from ..given import shown
from .files import decoded, desk_of, lines_in
from .ignoring import Ignored
from .registry import ToolContext, tool
from .workspace import Workspace

if TYPE_CHECKING:
    import regex

MOST_BYTES = 5_000_000
"""Bytes of a file that is searched."""
MOST_FILES = 200_000
SECONDS = 20.0
"""Seconds that a search takes, at most."""
_BRACES = re.compile(r"\{([^{}]*)\}")
LINE = 300
"""Characters of a line that are shown."""


@tool(
    name="search_workspace",
    description=(
        "在工作区中搜索。给出 pattern 时按正则表达式搜索文件内容，返回 路径:行号:内容；"
        "不给 pattern 时按 glob 列出文件。遵守 .gitignore。"
    ),
    effect="read",
)
def search_workspace(
    context: ToolContext,
    pattern: Annotated[str, "正则表达式；留空则只列出文件名。"] = "",
    glob: Annotated[str, "只看名称匹配的文件，如 *.py 或 src/**/*.md。"] = "",
    path: Annotated[str, "从哪个目录（或哪个文件）开始，相对于工作区。"] = ".",
    ignore_case: Annotated[bool, "是否忽略大小写。"] = False,
    limit: Annotated[int, Field(ge=1, le=1000), "最多返回多少条。"] = 100,
) -> str:
    """Return matching lines, or the names of files."""
    workspace = desk_of(context).workspace
    ends = time.monotonic() + SECONDS
    matcher = _compiled(pattern, ignore_case) if pattern else None
    names = _Glob(glob) if glob else None
    files = (found for found in _files(workspace, path, ends) if names is None or names(found))
    if matcher is None:
        return _listed(files, limit, glob)
    return _matches(workspace, files, matcher, _Candidates(workspace, pattern, ignore_case), limit, ends)


def _listed(files: Iterator[str], limit: int, glob: str) -> str:
    every = list(files)
    if not every:
        return f"[no file{' matches ' + glob if glob else ''}]"
    out = every[:limit]
    if len(every) > limit:
        out.append(f"[{len(every) - limit} more files; narrow glob or path, or raise limit]")
    return "\n".join(out)


def _matches(
    workspace: Workspace,
    files: Iterator[str],
    matcher: regex.Pattern[str],
    candidates: _Candidates,
    limit: int,
    ends: float,
) -> str:
    out: list[str] = []
    more = searched = 0
    for name in files:
        if not candidates.may_hold(name):
            searched += 1
            continue
        try:
            text, _ = decoded(workspace.read(name, MOST_BYTES), name)
        except ToolError:
            continue  # no text, or too long
        searched += 1
        for number, line in enumerate(lines_in(text), 1):
            try:
                left = ends - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                found = matcher.search(line, timeout=left, concurrent=True)
            except TimeoutError:
                raise ToolError(
                    f"pattern: not done within {SECONDS:g} s (at {name}:{number}); use a simpler one, or narrow path"
                ) from None
            if found is None:
                continue
            if len(out) >= limit:
                more += 1
            else:
                out.append(f"{name}:{number}:{_around(line, found.start(), found.end())}")
    if not out:
        return f"[no match in {searched} files]"
    if more:
        out.append(f"[{more} more matches; narrow pattern, glob or path]")
    return "\n".join(out)


def _around(line: str, start: int, end: int) -> str:
    """Return a line, or of a long one what stands around its match."""
    if len(line) <= LINE:
        return line
    first = max(0, min(start - LINE // 3, len(line) - LINE))
    return f"{'…' if first else ''}{line[first : first + LINE]}{'…' if first + LINE < len(line) else ''}"


def _compiled(pattern: str, ignore_case: bool) -> regex.Pattern[str]:
    import regex

    try:
        return regex.compile(pattern, regex.V0 | (regex.IGNORECASE if ignore_case else 0))
    except (regex.error, RecursionError, OverflowError) as error:
        raise ToolError(
            f"pattern: is no regular expression ({error}); escape what is meant literally with \\"
        ) from None


def _files(workspace: Workspace, path: str, ends: float) -> Iterator[str]:
    """Yield the files beneath a path that are not ignored; a path of a file is that file."""
    ignored = Ignored(workspace)
    try:
        entries = workspace.entries(path, skip=ignored)
    except ToolError:
        file, where = workspace.open(path)
        file.close()
        yield where
        return
    count = 0
    for entry in entries:
        if time.monotonic() > ends:
            raise ToolError(f"path: there are too many files beneath {shown(path)}; narrow path")
        if not entry.folder:
            count += 1
            if count > MOST_FILES:
                raise ToolError(f"path: there are more than {MOST_FILES:,} files beneath {shown(path)}; narrow path")
            yield entry.path


class _Glob:
    """A pattern of names, as ``.gitignore`` has them, with ``{a,b}`` for either."""

    def __init__(self, glob: str) -> None:
        from pathspec import GitIgnoreSpec

        lines = [f"\\{line}" if line[0] in "!#" else line for line in _either(glob.removeprefix("./"))]
        try:
            self._spec = GitIgnoreSpec.from_lines(lines)
        except ValueError as error:
            raise ToolError(f"glob: {shown(glob)} is no pattern of names ({error})") from None

    def __call__(self, path: str) -> bool:
        return self._spec.match_file(path)


def _either(glob: str, most: int = 100) -> list[str]:
    """Return what a glob stands for, its braces written out."""
    done: list[str] = []
    todo = [glob]
    while todo:
        one = todo.pop(0)
        found = _BRACES.search(one)
        if found is None:
            done.append(one)
        else:
            todo += [one[: found.start()] + part + one[found.end() :] for part in found[1].split(",")]
        if len(todo) + len(done) > most:
            raise ToolError(f"glob: {shown(glob)} stands for more than {most} patterns; use a simpler one")
    return [one for one in done if one.strip()]


class _Candidates:
    """Files that may hold a match, as ripgrep says where it is there and the pattern is a plain word.

    Parameters
    ----------
    workspace : Workspace
    pattern : str
    ignore_case : bool
    """

    def __init__(self, workspace: Workspace, pattern: str, ignore_case: bool) -> None:
        self._names: frozenset[str] | None = None
        program = shutil.which("rg")
        # Letters and digits of ASCII stand for themselves in every dialect and every encoding that is read here but
        # UTF-16, which ripgrep reads by its mark.
        if program is None or len(pattern) < 3 or not (pattern.isascii() and pattern.replace("_", "").isalnum()):
            return
        command = [program, "--files-with-matches", "--null", "--no-ignore", "--hidden", "--text", "--no-config"]
        command += ["--ignore-case"] * ignore_case + ["--fixed-strings", "-e", pattern, "./"]
        try:
            done: subprocess.CompletedProcess[Any] = subprocess.run(
                command, cwd=workspace.root, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS / 2
            )
        except (OSError, subprocess.TimeoutExpired):
            return
        if done.returncode in (0, 1) and not done.stderr:
            found = done.stdout.decode("utf-8", "surrogateescape").split("\0")
            self._names = frozenset(name.removeprefix("./") for name in found if name)

    def may_hold(self, path: str) -> bool:
        """Say whether a file has to be looked at."""
        return self._names is None or path in self._names
