"""What the front end of the cell at work can do: read a line, show what a kernel displays.

Knows the kernel's request and nothing of teams.
"""

from __future__ import annotations

import sys
from typing import Any


def allows_input(shell: Any) -> bool:
    """Say whether the request at work can ask its person for a line.

    False under nbclient, nbval, papermill: nobody can act between or during cells there.
    """
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return bool(sys.stdin is not None and sys.stdin.isatty())
    try:
        parent = kernel.get_parent("shell")
    except (AttributeError, TypeError, LookupError):
        parent = getattr(shell, "parent_header", None) or {}
    content = (parent or {}).get("content") or {}
    return bool(content.get("allow_stdin", False))


def has_kernel(shell: Any) -> bool:
    """Say whether a kernel displays for this shell."""
    return getattr(shell, "kernel", None) is not None
