"""Bytes as text and back: which encodings are read, and what a line is.

UTF-8, UTF-16 with its mark, and GB18030, where the bytes look like it. What is written back in the
same encoding keeps its mark and the order of its bytes. Pure.
"""

from __future__ import annotations

import codecs
import re

from ..errors import ToolError
from ..given import shown

_MARKS = {"utf-8-sig": codecs.BOM_UTF8, "utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}
_ENDS = re.compile(r"\r\n|\n|\r")
_LONG = re.compile(rb"[\x81-\xfe][0-9][\x81-\xfe][0-9]")
_RUN = re.compile(rb"[\x80-\xff]+")


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
    name = next((name for name, mark in _MARKS.items() if data.startswith(mark)), "utf-8")
    text = _as(data[len(_MARKS.get(name, b"")) :], name.removesuffix("-sig"))
    if text is not None and "\0" not in text:
        return text, name
    if b"\0" not in data:
        if _looks_chinese(data) and (text := _as(data, "gb18030")) is not None:
            return text, "gb18030"
        raise ToolError(
            f"path: {shown(path)} is in an encoding that is not known (UTF-8, UTF-16 with its mark and GB18030 are); "
            "run_command can convert it (iconv -f … -t utf-8)"
        )
    raise ToolError(
        f"path: {shown(path)} is no text ({len(data):,} bytes); read_mediafile reads images, audio and PDF, "
        "run_command can look at other kinds"
    )


def encoded(text: str, encoding: str, path: str) -> bytes:
    """Return a text in an encoding that :func:`decoded` named.

    Raises
    ------
    ToolError
        It cannot say a character.
    """
    try:
        return _MARKS.get(encoding, b"") + text.encode(encoding.removesuffix("-sig"))
    except UnicodeEncodeError as error:
        raise ToolError(
            f"content: character {error.start} ({text[error.start]!r}) cannot be written in {encoding}, "
            f"the encoding of {shown(path)}"
        ) from None


def lines_in(text: str) -> list[str]:
    """Return the lines of a text, without their ends: of those that editors and programs count as ends alone."""
    found = _ENDS.split(text)
    return found[:-1] if found[-1] == "" else found


def ends_of(text: str) -> set[str]:
    """Return the kinds of line ends in a text."""
    return set(_ENDS.findall(text))


def _as(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return None


def _looks_chinese(data: bytes) -> bool:
    """Say whether more letters stand as pairs of high bytes than alone, as accents in Western encodings do."""
    runs = [len(run) for run in _RUN.findall(_LONG.sub(b"", data))]
    alone = runs.count(1)
    return alone <= sum(runs) - alone
