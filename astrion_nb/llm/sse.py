"""Server-sent events, sans I/O: bytes in, the data of whole events out.

Written out because an adapter must know whether ``[DONE]`` came before the stream ended, which the
SDK's reader does not tell. Knows no JSON, no chat, no socket; event names and ids are not used by
chat completions and are skipped.
"""

from __future__ import annotations

_BOM = b"\xef\xbb\xbf"
_BLANK = _BOM + b" \t\r\n"
_HEAD = 2000


class EventDecoder:
    """Split a byte stream into the data fields of its events.

    Lines may end with LF, CRLF or CR, events may be cut anywhere, data may span several lines.
    """

    __slots__ = ("_after_cr", "_data", "_parts", "_started")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._data: list[bytes] = []
        self._after_cr = False
        self._started = False

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes; return the data of every event that they complete."""
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
        if b"\n" not in data:
            self._parts.append(data)
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

    __slots__ = ("_document", "_events", "head")

    def __init__(self) -> None:
        self.head = b""
        self._events = EventDecoder()
        self._document: list[bytes] | None = None

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes; return the data of every event that they complete."""
        if not self.head:
            data = data.lstrip(_BLANK)  # also of a byte order mark that comes in pieces
            if data.startswith(b"{"):
                self._document = []
        if len(self.head) < _HEAD:
            self.head += data[:_HEAD]
        if self._document is not None:
            self._document.append(data)
            return []
        return self._events.feed(data)

    def flush(self) -> list[bytes]:
        """Return the document, or the data of a last event whose blank line never came."""
        return self._events.flush() if self._document is None else [b"".join(self._document)]
