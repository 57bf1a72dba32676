"""Takes out of a recording what belongs to a machine or a person: keys, hosts, paths.

The same pass runs over what is recorded and over what a replay compares with it, so a request that
names a path has the same digest on every machine. Knows no cassette and no model.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

_SECRET_NAME = re.compile(r"key|token|secret|passw|credential|auth(?!or)", re.IGNORECASE)
_SHORTEST_SECRET = 8
_KEY = re.compile(r"\b(?:sk|pk|rk|ghp|gho|hf|xox[bp])[-_][A-Za-z0-9_-]{16,}")
_HEADER = re.compile(r"\b((?:Bearer|Basic)\s+)[A-Za-z0-9._~+/=-]{8,}")
_USERINFO = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s/@'\"]+@")
_HOST = re.compile(r"(\b(?:https?|wss?)://)[^\s/'\"<>]+")
_PATH_END = r"(?![A-Za-z0-9_-]|\.[A-Za-z0-9])"


class Scrubber:
    """Replaces secrets and places by constant words.

    Parameters
    ----------
    secrets : iterable of str
        Values that may not appear, however short: keys, host names. What the environment holds under a name such
        as ``…_KEY`` or ``…_TOKEN`` is added.
    environment : mapping, optional
        Default: the process's.
    folder : Path, optional
        The folder that becomes ``.``; default: the working directory.
    """

    def __init__(
        self, secrets: Iterable[str] = (), *, environment: Mapping[str, str] | None = None, folder: Path | None = None
    ) -> None:
        env = os.environ if environment is None else environment
        named = [value for name, value in env.items() if _SECRET_NAME.search(name)]
        named = [value for value in named if len(value) >= _SHORTEST_SECRET]
        words = {value for value in (*secrets, *named) if value.strip()}
        self._secrets = sorted(words, key=len, reverse=True)
        places: dict[str, str] = {}
        home = env.get("HOME") or env.get("USERPROFILE") or ""
        own = env.get("ASTRION_HOME", "").strip()
        for place, name in ((home, "~"), (own, "<home>"), (str(folder or Path.cwd()), ".")):
            if len(Path(place).parts) > 1:
                places[place.rstrip("/\\")] = name
        # The longest first: a working directory lies inside the home directory more often than not.
        ordered = sorted(places.items(), key=lambda item: len(item[0]), reverse=True)
        self._places = [(place, re.compile(re.escape(place) + _PATH_END), name) for place, name in ordered]

    def text(self, text: str) -> str:
        """Return a text without secrets and places."""
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, "[hidden]")
        for place, pattern, name in self._places:
            if place in text:
                text = pattern.sub(name, text)
        if "://" in text:
            text = _USERINFO.sub(r"\1", text)
        if "-" in text or "_" in text:
            text = _KEY.sub("[hidden]", text)
        if "Bearer" in text or "Basic" in text:
            text = _HEADER.sub(r"\1[hidden]", text)
        return text

    def error(self, text: str) -> str:
        """Return an error's text, without the host that raised it either."""
        return _HOST.sub(r"\1<host>", self.text(text))
