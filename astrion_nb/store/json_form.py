"""The two JSON forms that the store writes, and how they are read.

Documents are written byte for byte as the data model's recipe writes them (``json.dumps(data,
ensure_ascii=False, indent=2)``), lines of the journal compactly. Knows no conversation.

Source: data model §8.2, decision 27.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from ..disk import Files, reason
from ..errors import ConversationBroken, StorageError
from .forms import too_deep


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"a value of type {type(value).__name__} has no JSON form: {str(value)[:80]!r}")


_EVEN: frozenset[type] = frozenset({str, int, bool, type(None)})


def awkward(value: object) -> bool:
    """Say whether a value holds a number that orjson prints otherwise than ``json`` does.

    Those are NaN, the infinities, and floats with an exponent.
    """
    if isinstance(value, Mapping):
        items: Iterable[object] = value.values()
    elif isinstance(value, list | tuple):
        items = value
    else:
        return isinstance(value, float) and not (1e-4 <= abs(value) < 1e16 or value == 0.0)
    for item in items:  # noqa: SIM110 - nearly all are texts, and a generator costs more than the loop
        if type(item) not in _EVEN and awkward(item):
            return True
    return False


def dump(data: Any, *, exact: bool | None = None) -> bytes:
    """Return a document's bytes: the data model's recipe (§8.2), UTF-8.

    Parameters
    ----------
    data : JSON value
        May hold any mapping in the place of a dict.
    exact : bool, optional
        Whether to print with ``json`` itself. Default: only when :func:`awkward` says so.

    Returns
    -------
    bytes
        Equal to ``json.dumps(data, ensure_ascii=False, indent=2)``. A lone surrogate, which has no
        UTF-8 form, is written as its ``\\uXXXX`` escape.
    """
    if not (awkward(data) if exact is None else exact):
        try:
            return orjson.dumps(data, _plain, orjson.OPT_INDENT_2)
        except TypeError:
            pass  # a big integer, a lone surrogate, a key that is no string: json knows them
    return json.dumps(data, ensure_ascii=False, indent=2, default=_plain).encode("utf-8", "backslashreplace")


def dump_line(data: Any, *, exact: bool = False) -> bytes:
    """Return one line of a journal, its line break included; ``exact`` keeps NaN and the infinities."""
    if not exact:
        try:
            return orjson.dumps(data, _plain, orjson.OPT_APPEND_NEWLINE)
        except TypeError:
            pass  # as in dump
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=_plain)
    return text.encode("utf-8", "backslashreplace") + b"\n"


def parse(data: bytes) -> Any:
    """Read JSON as fast as possible; what orjson refuses (NaN, lone surrogates) ``json`` reads.

    Raises
    ------
    ValueError
        It is not JSON.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_document(
    files: Files, path: Path, *, fast: bool = False, measured: Callable[[int], None] | None = None
) -> dict[str, Any] | None:
    """Read a JSON object from a file.

    Parameters
    ----------
    files : Files
    path : Path
    fast : bool
        For long files: integers beyond 64 bits become floats.
    measured : callable, optional
        Called with the number of bytes read.

    Returns
    -------
    dict or None
        ``None`` when there is no such file.

    Raises
    ------
    ConversationBroken
        The file is not a JSON object; file, line and column are named.
    StorageError
        The file cannot be read.
    """
    try:
        data = files.read(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StorageError(f"{path} cannot be read ({reason(error)})") from error
    if measured is not None:
        measured(len(data))
    try:
        # utf-8-sig: an editor may have put a byte order mark in front.
        value = parse(data) if fast else json.loads(data.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ConversationBroken(f"{path}, {place}: {error.msg}; mend the file or put a copy back") from error
    except UnicodeDecodeError as error:
        raise ConversationBroken(f"{path}, byte {error.start}: not UTF-8; mend the file or put a copy back") from error
    except RecursionError as error:
        raise ConversationBroken(f"{path}: nested too deeply; mend the file or put a copy back") from error
    except ValueError as error:
        raise ConversationBroken(f"{path}: {error}; mend the file or put a copy back") from error
    if not isinstance(value, dict):
        raise ConversationBroken(f"{path}: holds a {type(value).__name__} where an object belongs")
    # The messages of a long file are looked at one by one.
    if any(too_deep(part) for key, part in value.items() if not (fast and key == "messages")):
        raise ConversationBroken(f"{path}: nested too deeply; mend the file or put a copy back")
    return value
