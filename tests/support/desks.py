"""A desk over a folder, and tools called on it as a model calls them: by JSON, and by the text that comes back."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any, cast

from astrion_nb.tools.desk import Desk
from astrion_nb.tools.registry import Tool, ToolContext
from astrion_nb.tools.workspace import Workspace


def context(root: Path, *closed: Path) -> ToolContext:
    """Return what a call in this workspace knows."""
    return ToolContext(1, "call_1", cast(Any, None), Desk(Workspace(root, closed)))


def call(tool: Tool, root: Path, **arguments: Any) -> Any:
    """Call a tool as a model does."""

    async def main() -> Any:
        values = tool.parse(json.dumps(arguments, ensure_ascii=False))
        return await asyncio.wait_for(tool.call(values, context(root)), 60)

    return asyncio.run(main())


def preview(tool: Tool, root: Path, **arguments: Any) -> str:
    """Return what a person is shown before a call is allowed."""
    desk = context(root).desk
    assert tool.preview is not None
    assert desk is not None
    return tool.preview(tool.parse(json.dumps(arguments)), desk)


def descriptors() -> int:
    """Return how many descriptors this process holds."""
    return len(os.listdir("/dev/fd"))
