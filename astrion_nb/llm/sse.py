"""Server-sent events, sans I/O: bytes in, the data of whole events out.

Written out because an adapter must know whether ``[DONE]`` came before the stream ended, which the
SDK's reader does not tell. Knows no JSON, no chat, no socket; event names and ids are not used by
chat completions and are skipped.
"""

from __future__ import annotations

_BOM = b"\xef\xbb\xbf"
_BLANK = _BOM + b" \t\r\n"
_HEAD = 2000
MOST = 16 * 1024 * 1024
"""Bytes of one event, or of a whole document: no answer is as long, and what never ends would fill the memory."""


class TooLong(Exception):
    """An event, or a line of one, does not end."""


class EventDecoder:
    """Split a byte stream into the data fields of its events.

    Lines may end with LF, CRLF or CR, events may be cut anywhere, data may span several lines.
    """

    __slots__ = ("_after_cr", "_data", "_held", "_parts", "_started")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._data: list[bytes] = []
        self._held = 0  # bytes of the event that is not complete
        self._after_cr = False
        self._started = False

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes; return the data of every event that they complete.

        Raises
        ------
        TooLong
            An event is longer than :data:`MOST`.
        """
        if not data:
            return []
        if not self._started:
            data = b"".join((*self._parts, data))
            self._parts.clear()
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._parts.append(data)  # the mark itself may come in pieces
                return []
            self._started = True
            data = data.removeprefix(_BOM)
        if self._after_cr:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._held += len(data)
        if b"\n" not in data:
            self._parts.append(data)
            if self._held > MOST:
                raise TooLong
            return []
        if self._parts:
            self._parts.append(data)
            data = b"".join(self._parts)
            self._parts.clear()
        lines = data.split(b"\n")
        rest = lines.pop()
        if rest:
            self._parts.append(rest)
        events: list[bytes] = []
        for line in lines:
            self._take(line, events)
        if not self._data:
            self._held = len(rest)
        elif self._held > MOST:
            self._held = len(rest) + sum(map(len, self._data))
            if self._held > MOST:
                raise TooLong
        return events

    def flush(self) -> list[bytes]:
        """Return the data of a last event whose blank line never came."""
        events: list[bytes] = []
        if self._parts:
            self._take(b"".join(self._parts), events)
            self._parts.clear()
        self._take(b"", events)
        return events

    def _take(self, line: bytes, events: list[bytes]) -> None:
        if line[:5] == b"data:":
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
        elif not line and self._data:
            events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
            self._data.clear()
        elif line == b"data":
            self._data.append(b"")


class BodyDecoder:
    """Split the body of a response into events, or take it whole where it is one JSON document.

    How it begins decides, not what its content type says: endpoints and proxies name both wrongly.

    Attributes
    ----------
    head : bytes
        The first bytes, for whoever has to say what came instead of an answer.
    """

    __slots__ = ("_document", "_events", "_held", "head")

    def __init__(self) -> None:
        self.head = b""
        self._events = EventDecoder()
        self._document: list[bytes] | None = None
        self._held = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes; return the data of every event that they complete.

        Raises
        ------
        TooLong
            An event, or the document, is longer than :data:`MOST`.
        """
        if not self.head:
            data = data.lstrip(_BLANK)  # also of a byte order mark that comes in pieces
            if data.startswith(b"{"):
                self._document = []
        if len(self.head) < _HEAD:
            self.head += data[:_HEAD]
        if self._document is not None:
            self._document.append(data)
            self._held += len(data)
            if self._held > MOST:
                raise TooLong
            return []
        return self._events.feed(data)

    def flush(self) -> list[bytes]:
        """Return the document, or the data of a last event whose blank line never came."""
        return self._events.flush() if self._document is None else [b"".join(self._document)]
