"""What stands on the shelf: stored conversations, roles, and exports; for whoever lists them.

The doorway of front ends to files that belong to no open team. Knows no Jupyter.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .. import roles
from ..disk import write_atomic
from ..errors import ConfigError
from ..home import Home, extra_command

if TYPE_CHECKING:
    from ..roles import RoleSet
    from ..store.conversations import Entry
    from .config import Config
    from .models import ModelConfig


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


@dataclass(frozen=True, slots=True)
class Known:
    """A model that can be named.

    Parameters
    ----------
    config : ModelConfig
    lacks : {"", "key", "extra", "fetch", "file"}
        What has to be done before it can answer.
    command : str
        Which command does that, where one does.
    size : str
        What it brings, in words.
    """

    config: ModelConfig
    lacks: str = ""
    command: str = ""
    size: str = ""


def models(config: Config, default: str = "") -> list[Known]:
    """Return the models that can be named, and the default one if it stands in no list.

    Parameters
    ----------
    config : Config
    default : str
        Key of the default model, as far as there is one.
    """
    keys = [*config.keys, *([default] if default and default not in config.keys else [])]
    return [_known(config.get(key)) for key in keys]


def _known(config: ModelConfig) -> Known:
    if config.provider == "scripted":
        return Known(config, "" if Path(config.model).is_file() else "file")
    if config.provider != "local":
        return Known(config, "key" if config.api_key_env and not config.api_key else "")
    from ..llm.weights import find, pins

    if importlib.util.find_spec("xllamacpp") is None:
        return Known(config, "extra", extra_command("local"))
    weights = pins().get(config.model)
    if weights is None:
        return Known(config, "" if Path(config.model).expanduser().is_file() else "file")
    return Known(config, "" if find(weights) else "fetch", weights.command, weights.download_size)


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
