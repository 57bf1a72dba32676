"""Reading, writing and editing text files of the workspace.

Knows the workspace and no other way to a file. What is written is what was said, to the byte, but for
an edit's line ends, which stay the file's.
"""

from __future__ import annotations

import codecs
import difflib
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from ..errors import ToolError
from ..given import shown
from .desk import Desk
from .registry import ToolContext, tool

MOST_BYTES = 20_000_000
"""Bytes of a file that is read at all."""
MOST_LINES = 2_000
"""Lines that one call shows."""
LONGEST_LINE = 2_000
"""Characters of a line that are shown."""
MOST_DIFF = 8_000
"""Characters of a diff that are told."""

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_ENDS = re.compile(r"\r\n|\n|\r")
_ENCODINGS = ("utf-8", "gb18030")


class Edit(BaseModel):
    """One replacement.

    Parameters
    ----------
    old : str
        What stands there now.
    new : str
        What is to stand there.
    all : bool
        Whether every place is meant.
    """

    model_config = ConfigDict(extra="forbid")

    old: str = Field(description="文件中现有的原文，必须逐字一致（含缩进与换行）。")
    new: str = Field(description="替换后的内容。")
    all: bool = Field(default=False, description="为 true 时替换所有出现之处；默认要求 old 在文件中唯一。")


def desk_of(context: ToolContext) -> Desk:
    """Return what the base tools work on.

    Raises
    ------
    ToolError
        This team has no workspace.
    """
    if context.desk is None:
        raise ToolError("this team has no workspace")
    return context.desk


def decoded(data: bytes, path: str) -> tuple[str, str]:
    """Return a file's text, and the name of its encoding.

    Parameters
    ----------
    data : bytes
    path : str
        For the message.

    Raises
    ------
    ToolError
        It is no text.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            try:
                return data.decode(name), name
            except UnicodeDecodeError:
                break
    if b"\0" not in data:
        for name in _ENCODINGS:
            try:
                return data.decode(name), name
            except UnicodeDecodeError:
                continue
    raise ToolError(
        f"path: {shown(path)} is no text ({len(data):,} bytes); read_mediafile reads images, audio and PDF, "
        "run_command can look at other kinds"
    )


def lines_in(text: str) -> list[str]:
    """Return the lines of a text, without their ends: of those that editors and programs count as ends alone."""
    found = _ENDS.split(text)
    return found[:-1] if found[-1] == "" else found


@tool(
    name="read_file",
    description="读取工作区中的文本文件，每行前带行号。文件较长时用 start 和 lines 分段读取。",
    side_effects=True,
    effect="read",
)
def read_file(
    context: ToolContext,
    path: Annotated[str, "文件路径，相对于工作区。"],
    start: Annotated[int, Field(ge=1), "起始行号，从 1 开始。"] = 1,
    lines: Annotated[int, Field(ge=1, le=MOST_LINES), "最多读取的行数。"] = MOST_LINES,
) -> str:
    """Return numbered lines of a text file."""
    text, encoding = decoded(desk_of(context).workspace.read(path, MOST_BYTES), path)
    every = lines_in(text)
    if not every:
        return "[empty file]"
    if start > len(every):
        raise ToolError(f"start: {shown(path)} has {len(every)} lines")
    chosen = every[start - 1 : start - 1 + lines]
    out = [f"{number:6}\t{_short(line)}" for number, line in enumerate(chosen, start)]
    last = start + len(chosen) - 1
    notes = []
    if encoding not in ("utf-8", "utf-8-sig"):
        notes.append(f"encoding {encoding}")
    if start > 1 or last < len(every):
        notes.append(f"lines {start} to {last} of {len(every)}")
    if last < len(every):
        notes.append(f"go on with start={last + 1}")
    return "\n".join([*out, f"[{'; '.join(notes)}]"] if notes else out)


def _short(line: str) -> str:
    if len(line) <= LONGEST_LINE:
        return line
    return f"{line[:LONGEST_LINE]} [cut: {len(line) - LONGEST_LINE} more characters]"


# -- writing ----------------------------------------------------------------------------


def _write_preview(arguments: Mapping[str, Any], desk: Desk) -> str:
    path = str(arguments["path"])
    return _diff(path, _now(path, desk), str(arguments["content"]))


@tool(
    name="write_file",
    description="在工作区中写入文件：不存在则新建（包括上级目录），存在则整体覆盖。只改动局部时请用 edit_file。",
    effect="write",
    preview=_write_preview,
)
def write_file(
    context: ToolContext,
    path: Annotated[str, "文件路径，相对于工作区。"],
    content: Annotated[str, "文件的完整内容。"],
) -> dict[str, Any]:
    """Replace or create a file."""
    written = desk_of(context).workspace.write(path, _encoded(content, "utf-8", path))
    return _outcome(written.path, written.before, content)


def _edit_preview(arguments: Mapping[str, Any], desk: Desk) -> str:
    path = str(arguments["path"])
    text, _ = decoded(desk.workspace.read(path, MOST_BYTES), path)
    return _diff(path, text, _edited(text, arguments["edits"], path))


@tool(
    name="edit_file",
    description=(
        "修改工作区中的文本文件：依次把 old 替换为 new。每个 old 必须与原文逐字一致且唯一，"
        "任何一处不符则整个调用不做任何修改。"
    ),
    effect="write",
    preview=_edit_preview,
)
def edit_file(
    context: ToolContext,
    path: Annotated[str, "文件路径，相对于工作区。"],
    edits: Annotated[list[Edit], Field(min_length=1, max_length=100), "按顺序执行的替换。"],
) -> dict[str, Any]:
    """Make several replacements in a file, all or none."""
    workspace = desk_of(context).workspace
    data = workspace.read(path, MOST_BYTES)
    text, encoding = decoded(data, path)
    after = _edited(text, edits, path)
    if after == text:
        raise ToolError("edits: they change nothing")
    written = workspace.write(path, _encoded(after, encoding, path), over=data)
    return _outcome(written.path, data, after)


def _edited(text: str, edits: list[Edit], path: str) -> str:
    """Return a text with every edit done, each on what the ones before it left."""
    for number, edit in enumerate(edits):
        where = f"edits[{number}].old" if len(edits) > 1 else "old"
        if not edit.old:
            raise ToolError(f"{where}: must not be empty; write_file writes a whole file")
        old, new = edit.old, edit.new
        if old not in text and "\r\n" in text:  # a model writes line ends as \n
            old, new = (part.replace("\r\n", "\n").replace("\n", "\r\n") for part in (old, new))
        count = text.count(old)
        if count == 0:
            raise ToolError(f"{where}: is not in {shown(path)}{_nearest(old, text)}; nothing was changed")
        if count > 1 and not edit.all:
            places = ", ".join(map(str, _lines_of(old, text)))
            raise ToolError(
                f"{where}: occurs {count} times in {shown(path)}, in lines {places}: give more of what stands around "
                "it, or all=true; nothing was changed"
            )
        text = text.replace(old, new)
    return text


def _lines_of(old: str, text: str, most: int = 10) -> list[int]:
    found: list[int] = []
    at = text.find(old)
    while at >= 0 and len(found) < most:
        found.append(text.count("\n", 0, at) + 1)
        at = text.find(old, at + len(old))
    return found


def _nearest(old: str, text: str) -> str:
    """Say which line is most like the first one that was looked for, and whether only spaces differ."""
    wanted = next((line for line in old.splitlines() if line.strip()), "")
    lines = lines_in(text)
    if not wanted or len(lines) > 20_000:
        return ""
    bare = " ".join(wanted.split())
    for number, line in enumerate(lines, 1):
        if " ".join(line.split()) == bare:
            return f" (line {number} differs only in spaces or in the lines after it: {shown(line)})"
    near = difflib.get_close_matches(wanted, lines[:5_000], n=1, cutoff=0.7)
    return f" (line {lines.index(near[0]) + 1} is like it: {shown(near[0])})" if near else ""


def _now(path: str, desk: Desk) -> str:
    try:
        return decoded(desk.workspace.read(path, MOST_BYTES), path)[0]
    except ToolError:
        return ""


def _encoded(text: str, encoding: str, path: str) -> bytes:
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        raise ToolError(
            f"content: character {error.start} ({text[error.start]!r}) cannot be written in {encoding}, "
            f"the encoding of {shown(path)}"
        ) from None


def _outcome(path: str, before: bytes | None, after: str) -> dict[str, Any]:
    try:
        old = "" if before is None else decoded(before, path)[0]
    except ToolError:
        old = ""
    plus, minus = _counts(old, after)
    out: dict[str, Any] = {"success": True, "path": path, "lines_added": plus, "lines_removed": minus}
    if before is None:
        out["created"] = True
    elif old == after:
        out["note"] = "the file held exactly this already"
    else:
        out["diff"] = _diff(path, old, after)
    return out


def _counts(old: str, new: str) -> tuple[int, int]:
    plus = minus = 0
    for line in difflib.unified_diff(lines_in(old), lines_in(new), n=0, lineterm=""):
        plus += line.startswith("+") and not line.startswith("+++")
        minus += line.startswith("-") and not line.startswith("---")
    return plus, minus


def _diff(path: str, old: str, new: str) -> str:
    made = "\n".join(difflib.unified_diff(lines_in(old), lines_in(new), f"a/{path}", f"b/{path}", lineterm=""))
    return made if len(made) <= MOST_DIFF else f"{made[:MOST_DIFF]}\n[cut: {len(made) - MOST_DIFF} more characters]"
