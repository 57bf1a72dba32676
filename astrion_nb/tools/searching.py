"""``search_workspace``: regular expressions in files, and files by name.

Files are read by the workspace, so a search finds what ``read_file`` could read. ripgrep, where it is
there, says which files can be left out; what matches is always decided here, so that results are the
same with it and without. A pattern that runs away is ended by the regex library's own time-out, which
counts the processor's seconds; one whose memory nothing bounds (recursion, repeats of repeats) is refused.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from ..errors import ToolError
from ..given import shown
from ..printable import one_field
from .files import desk_of
from .globs import of
from .ignoring import Ignored
from .paths import is_protected
from .registry import ToolContext, tool
from .texts import decoded, lines_in
from .workspace import Entry, Workspace

if TYPE_CHECKING:
    import regex

MOST_BYTES = 5_000_000
"""Bytes of a file that is searched."""
MOST_FILES = 200_000
SECONDS = 20.0
"""Seconds that a search takes, at most."""
LONGEST_LINE = 1_000_000
"""Characters of a line that are searched at once; of a longer one, its parts."""
MOST_REPEATS = 10_000
"""What the counts of a pattern's repeated groups come to, multiplied, and with the largest of any other count."""
_RECURSION = re.compile(r"(?<!\\)(?:\\\\)*\(\?(?:R|[+-]?[0-9]|&|P>)")
_REPEAT = re.compile(r"([)}][?+]?\s*)?\{([0-9]*)(?:,([0-9]*))?\}")
_OTHERS = re.compile("[iks]", re.IGNORECASE)
"""Letters of ASCII that others than they stand for, case ignored."""
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
    files = (found for found in _files(workspace, path, ends) if names is None or names(found.path))
    if matcher is None:
        return _listed(files, limit, glob)
    return _matches(workspace, files, matcher, _Candidates(workspace, pattern, ignore_case), limit, ends)


def _listed(files: Iterator[Entry], limit: int, glob: str) -> str:
    every = [found.path for found in files]
    if not every:
        return f"[no file{' matches ' + shown(glob) if glob else ''}]"
    out = [one_field(name).replace("\n", "\ufffd") for name in every[:limit]]
    if len(every) > limit:
        out.append(f"[{len(every) - limit} more files; narrow glob or path, or raise limit]")
    return "\n".join(out)


def _matches(
    workspace: Workspace,
    files: Iterator[Entry],
    matcher: regex.Pattern[str],
    candidates: _Candidates,
    limit: int,
    ends: float,
) -> str:
    out: list[str] = []
    notes: list[str] = []
    more = searched = long = 0
    try:
        for entry in files:
            if entry.size > MOST_BYTES:
                long += 1
                continue
            searched += 1
            for number, line in _lines(workspace, entry.path) if candidates.may_hold(entry.path) else ():
                where = f"{one_field(entry.path)}:{number}"
                found = _found(matcher, line, ends)
                if found is None:
                    continue
                if len(out) >= limit:
                    more += 1
                else:
                    out.append(f"{where}:{_around(line, *found)}")
    except TimeoutError:
        if not out:
            raise ToolError(
                f"pattern: not done within {SECONDS:g} s (at {where}); use a simpler one, or narrow path"
            ) from None
        notes.append(f"not all was searched: {SECONDS:g} s were over at {where}; narrow path")
    if long:
        notes.append(f"{long} files of more than {MOST_BYTES:,} bytes were not searched")
    if not out:
        return f"[{'; '.join([f'no match in {searched} files', *notes])}]"
    if more:
        notes.insert(0, f"{more} more matches; narrow pattern, glob or path")
    return "\n".join([*out, f"[{'; '.join(notes)}]"] if notes else out)


def _lines(workspace: Workspace, name: str) -> Iterator[tuple[int, str]]:
    """Yield a file's lines with their numbers; none of what is no text or cannot be read."""
    try:
        text, _ = decoded(workspace.read(name, MOST_BYTES), name)
    except ToolError:
        return
    yield from enumerate(lines_in(text), 1)


def _found(matcher: regex.Pattern[str], line: str, ends: float) -> tuple[int, int] | None:
    """Return where a line matches.

    Raises
    ------
    TimeoutError
        It took too long, or too much.
    """
    for start in range(0, max(len(line), 1), LONGEST_LINE):
        left = ends - time.monotonic()
        if left <= 0:
            raise TimeoutError
        try:
            found = matcher.search(line, start, start + LONGEST_LINE + LINE, timeout=left, concurrent=True)
        except MemoryError:
            raise TimeoutError from None
        if found is not None:
            return found.start(), found.end()
    return None


def _around(line: str, start: int, end: int) -> str:
    """Return a line, or of a long one what stands around its match."""
    if len(line) <= LINE:
        return line
    first = max(0, min(start - LINE // 3, len(line) - LINE))
    return f"{'…' if first else ''}{line[first : first + LINE]}{'…' if first + LINE < len(line) else ''}"


def _compiled(pattern: str, ignore_case: bool) -> regex.Pattern[str]:
    import regex

    groups = others = 1
    for group, least, most in _REPEAT.findall(pattern):
        count = int((most or least or "0")[:9])
        if group:
            groups *= max(1, count)
        else:
            others = max(others, count)
    repeats = groups * others if groups > 1 else 1
    if _RECURSION.search(pattern) or repeats > MOST_REPEATS:
        raise ToolError("pattern: recursion and repeats of repeats in great number are not done; use a simpler one")
    try:
        return regex.compile(pattern, regex.V0 | (regex.IGNORECASE if ignore_case else 0))
    except (regex.error, RecursionError, OverflowError) as error:
        raise ToolError(
            f"pattern: is no regular expression ({error}); escape what is meant literally with \\"
        ) from None


def _files(workspace: Workspace, path: str, ends: float) -> Iterator[Entry]:
    """Yield the files beneath a path that are not ignored; a path of a file is that file.

    Whoever names an ignored folder means it, and all that it holds.
    """
    ignored = Ignored(workspace)
    try:
        where = workspace.folder(path)
    except ToolError:
        file, where = workspace.open(path)
        with file:
            size = os.fstat(file.fileno()).st_size
        yield Entry(where, False, size)
        return
    meant = where and ignored.within(where)
    entries = workspace.entries(path, skip=_closed if meant else ignored)
    count = 0
    for entry in entries:
        if time.monotonic() > ends:
            raise ToolError(f"path: there are too many files beneath {shown(path)}; narrow path")
        if not entry.folder:
            count += 1
            if count > MOST_FILES:
                raise ToolError(f"path: there are more than {MOST_FILES:,} files beneath {shown(path)}; narrow path")
            yield entry


def _closed(path: str, folder: bool) -> bool:
    return is_protected((path.rpartition("/")[2],))


class _Glob:
    """A pattern of names, as ``.gitignore`` has them, with ``{a,b}`` for either; a folder's is all that it holds."""

    def __init__(self, glob: str) -> None:
        made = [of(one) for one in _either(glob.removeprefix("./"))]
        self._rules = [one for one in made if one is not None]
        if not self._rules:
            raise ToolError(f"glob: {shown(glob)} is no pattern of names; write one like *.py or src/**/*.md")

    def __call__(self, path: str) -> bool:
        parts = path.split("/")
        for depth in range(len(parts), 0, -1):
            if any(one.says("/".join(parts[:depth]), depth < len(parts)) for one in self._rules):
                return True
        return False


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
        program = _program(workspace)
        # Letters and digits of ASCII stand for themselves in every dialect and every encoding that is read here but
        # UTF-16, which ripgrep reads by its mark.
        if program is None or len(pattern) < 3 or not (pattern.isascii() and pattern.replace("_", "").isalnum()):
            return
        if ignore_case and _OTHERS.search(pattern):
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
            found = os.fsdecode(done.stdout).split("\0")
            self._names = frozenset(name.removeprefix("./") for name in found if name)

    def may_hold(self, path: str) -> bool:
        """Say whether a file has to be looked at."""
        return self._names is None or path in self._names


def _program(workspace: Workspace) -> str | None:
    """Return ripgrep's path, but of none that an agent may have written."""
    found = shutil.which("rg")
    if found is None or not os.path.isabs(found):
        return None
    inside = any(Path(one).is_relative_to(workspace.root) for one in (os.path.abspath(found), os.path.realpath(found)))
    return None if inside else found
