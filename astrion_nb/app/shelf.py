"""What stands on the shelf: stored conversations, roles, and exports; for whoever lists them.

The doorway of front ends to files that belong to no open team. Knows no Jupyter.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .. import roles
from ..disk import write_atomic
from ..errors import ConfigError
from ..home import Home

if TYPE_CHECKING:
    from ..roles import RoleSet
    from ..store.conversations import Entry


def conversations(home: Home, *, archived: bool = True) -> list[Entry]:
    """Return the stored conversations, newest first.

    Parameters
    ----------
    home : Home
    archived : bool
        Whether archived ones are among them.
    """
    from ..store.conversations import ConversationStore

    entries = sorted(ConversationStore(home).list(), key=lambda item: (item.updated_at, item.id), reverse=True)
    return [entry for entry in entries if archived or entry.status != "archived"]


def role_set(home: Home) -> RoleSet:
    """Return the roles of the agents directory, and the errors of files that are none."""
    return roles.list_roles(home)


def write_export(text: str, path: Path, *, replace: bool) -> None:
    """Write an exported conversation.

    Raises
    ------
    ConfigError
        The file is there already and is not to be replaced.
    StorageError
        It cannot be written.
    """
    if path.exists() and not replace:
        raise ConfigError(f"{path} is there already; name another file, or add --force")
    write_atomic(path, text.encode())


def file_name(title: str) -> str:
    """Return a file name for a title that any system takes, without its ending."""
    safe = "".join(character if character.isalnum() or character in " -_" else " " for character in title)
    return safe.strip()[:60].strip() or "conversation"
