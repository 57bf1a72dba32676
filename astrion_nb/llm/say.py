"""What is said in an answer that is one JSON object, read while it comes.

Knows no tool, no schema and no request.
"""

from __future__ import annotations

import json
import re

from ..messages import replace_surrogates

_SAY = re.compile(r'\s*\{\s*"say"\s*:\s*"')
_STRING = re.compile(r'(?:[^"\\]+|\\u[0-9a-fA-F]{4}|\\["\\/bfnrt])*')


class SayReader:
    """Read the text of ``{"say": "…"}`` while it comes.

    Attributes
    ----------
    text : str
        What was said so far.
    started : bool
        Whether the response is something said.
    complete : bool
        Whether the text has come to its end.
    """

    def __init__(self) -> None:
        self.text = ""
        self.started = False
        self.complete = False
        self._raw = ""
        self._half = ""
        self._call = False

    def feed(self, raw: str) -> str:
        """Take a piece of the response; return the text that it brought."""
        if self.complete or self._call:
            return ""
        self._raw += raw
        if not self.started:
            head = _SAY.match(self._raw)
            if head is None:
                # Anything longer than the longest head is a call, or nothing at all.
                self._call = len("".join(self._raw.split())) > len('{"say":"')
                return ""
            self.started = True
            self._raw = self._raw[head.end() :]
        return self._take()

    def _take(self) -> str:
        whole = _STRING.match(self._raw)
        assert whole is not None  # matches the empty string at least
        piece = self._half + json.loads(f'"{whole.group()}"', strict=False)
        self._half = ""
        self._raw = self._raw[whole.end() :]
        self.complete = self._raw.startswith('"')
        if not self.complete and piece and "\ud800" <= piece[-1] <= "\udbff":
            piece, self._half = piece[:-1], piece[-1]
        piece = replace_surrogates(piece)
        self.text += piece
        return piece

    def flush(self) -> str:
        """Return what was held back for a second half that did not come."""
        piece = replace_surrogates(self._half)
        self._half = ""
        self.text += piece
        return piece
