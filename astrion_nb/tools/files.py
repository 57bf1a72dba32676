"""Reading, writing and editing text files of the workspace.

Knows the workspace and no other way to a file. What is written is what was said, to the byte, but for
an edit's line ends: in a file that has one kind of them, they stay of that kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from ..errors import ToolError
from ..given import shown
from .comparing import compared, nearest, unified
from .desk import Desk
from .registry import ToolContext, tool
from .texts import decoded, encoded, ends_of, lines_in

MOST_BYTES = 20_000_000
"""Bytes of a file that is read at all."""
MOST_LINES = 2_000
"""Lines that one call shows."""
LONGEST_LINE = 2_000
"""Characters of a line that are shown."""
MOST_SHOWN = 100_000
"""Characters that one call shows."""
MOST_PLACES = 1_000
"""Places of a text that are counted."""


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
    text, encoding = decoded(_read(path, desk_of(context)), path)
    every = lines_in(text)
    if not every:
        return "[empty file]"
    if start > len(every):
        raise ToolError(f"start: {shown(path)} has {len(every)} lines")
    out: list[str] = []
    room = MOST_SHOWN
    for number, line in enumerate(every[start - 1 : start - 1 + lines], start):
        made = f"{number:6}\t{_short(line)}"
        room -= len(made) + 1
        if out and room < 0:
            break
        out.append(made)
    last = start + len(out) - 1
    notes = []
    if encoding not in ("utf-8", "utf-8-sig"):
        notes.append(f"encoding {encoding}")
    if start > 1 or last < len(every):
        notes.append(f"lines {start} to {last} of {len(every)}")
    if last < len(every):
        notes.append(f"go on with start={last + 1}")
    return "\n".join([*out, f"[{'; '.join(notes)}]"] if notes else out)


def _read(path: str, desk: Desk) -> bytes:
    file, _ = desk.workspace.open(path)
    with file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ToolError(
            f"path: {shown(path)} has more than {MOST_BYTES:,} bytes; search_workspace finds lines of files up to "
            "5 MB, run_command can cut a part out (head, tail, sed)"
        )
    return data


def _short(line: str) -> str:
    if len(line) <= LONGEST_LINE:
        return line
    return f"{line[:LONGEST_LINE]} [cut: {len(line) - LONGEST_LINE} more characters]"


# -- writing ----------------------------------------------------------------------------


def _write_preview(arguments: Mapping[str, Any], desk: Desk) -> str:
    path = str(arguments["path"])
    return unified(path, _now(path, desk), str(arguments["content"]))


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
    written = desk_of(context).workspace.write(path, encoded(content, "utf-8", path))
    return _outcome(written.path, written.before, content)


def _edit_preview(arguments: Mapping[str, Any], desk: Desk) -> str:
    path = str(arguments["path"])
    text, _ = decoded(_read(path, desk), path)
    return unified(path, text, _edited(text, arguments["edits"], path))


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
    data = _read(path, desk_of(context))
    text, encoding = decoded(data, path)
    after = _edited(text, edits, path)
    if after == text:
        raise ToolError("edits: they change nothing")
    written = workspace.write(path, encoded(after, encoding, path), over=data)
    return _outcome(written.path, data, after)


def _edited(text: str, edits: list[Edit], path: str) -> str:
    """Return a text with every edit done, each on what the ones before it left."""
    ends = ends_of(text)
    end = ends.pop() if len(ends) == 1 else ""
    for number, edit in enumerate(edits):
        where = f"edits[{number}].old" if len(edits) > 1 else "old"
        if not edit.old:
            raise ToolError(f"{where}: must not be empty; write_file writes a whole file")
        old, new = edit.old, edit.new
        if end in ("\r\n", "\r") or (not end and old not in text and "\r\n" in ends):  # a model writes \n
            old, new = (_with_ends(part, end or "\r\n") for part in (old, new))
        places = _places(old, text)
        if not places:
            raise ToolError(f"{where}: is not in {shown(path)}{nearest(old, text)}; nothing was changed")
        if len(places) > 1 and not edit.all:
            lines = ", ".join(str(len(lines_in(text[:at] + "."))) for at in places[:10])
            many = f"{len(places)} times" if len(places) < MOST_PLACES else f"{MOST_PLACES} times or more"
            raise ToolError(
                f"{where}: occurs {many} in {shown(path)}, in lines {lines}: give more of what stands around "
                "it, or all=true; nothing was changed"
            )
        if len(text) + text.count(old) * (len(new) - len(old)) > MOST_BYTES:
            raise ToolError(f"{where}: the file would have more than {MOST_BYTES:,} characters; nothing was changed")
        text = text.replace(old, new)
    return text


def _with_ends(text: str, end: str) -> str:
    return end.join(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))


def _places(old: str, text: str) -> list[int]:
    """Return where a text occurs, also where occurrences overlap: which one is meant is open then too."""
    found: list[int] = []
    at = text.find(old)
    while at >= 0 and len(found) < MOST_PLACES:
        found.append(at)
        at = text.find(old, at + 1)
    return found


def _now(path: str, desk: Desk) -> str:
    try:
        return decoded(_read(path, desk), path)[0]
    except ToolError:
        return ""


def _outcome(path: str, before: bytes | None, after: str) -> dict[str, Any]:
    out: dict[str, Any] = {"success": True, "path": path}
    try:
        old = "" if before is None else decoded(before, path)[0]
    except ToolError:
        old = ""
        out["note"] = "what was there before was no text"
    told = compared(path, old, after)
    out |= {"lines_added": told.added, "lines_removed": told.removed}
    if before is None:
        out["created"] = True
    elif "note" not in out:
        if old == after:
            out["note"] = "the file held exactly this already"
        elif lines_in(old) == lines_in(after):
            out["note"] = "only the ends of lines differ"
        else:
            out["diff"] = told.diff
    return out
