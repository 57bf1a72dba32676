"""The page's module and style sheet, joined from the files of ``static``.

A widget takes one ES module. Each file there is one too, without imports, so that it can be tested
by itself; joined they are one scope, and only ``index.js`` keeps its export.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|let|class) )", re.MULTILINE)


def _files(suffix: str) -> list[tuple[str, str]]:
    folder = resources.files(__package__) / "static"
    found = (entry for entry in folder.iterdir() if entry.name.endswith(suffix))
    return [(entry.name, entry.read_text(encoding="utf-8")) for entry in sorted(found, key=lambda entry: entry.name)]


@cache
def module() -> str:
    """Return the ES module: every file in the order of names, their named exports taken away."""
    return "\n".join(_EXPORT.sub("", text) for _, text in _files(".js"))


@cache
def style() -> str:
    """Return the style sheet."""
    return "\n".join(text for _, text in _files(".css"))
