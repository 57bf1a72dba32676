"""What the base tools work on: a workspace, the web and a shell, as they are configured for one team.

Values and nothing else; what opens files, sockets and processes stands beside this module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .workspace import Workspace


@dataclass(frozen=True, slots=True)
class Web:
    """How the network is reached.

    Parameters
    ----------
    offline : bool
        No socket but to allowed hosts.
    allow : tuple of str
        Hosts, ``host:port`` or networks in CIDR form that may be reached though they are private.
    search : str
        Provider of ``web_search``.
    key : str
        The provider's key, where it needs one; never shown.
    search_url : str
        The provider's address, where it is not its usual one.
    """

    offline: bool = False
    allow: tuple[str, ...] = ()
    search: str = "ddgs"
    key: str = field(default="", repr=False)
    search_url: str = ""


@dataclass(frozen=True, slots=True)
class Shell:
    """How commands run.

    Parameters
    ----------
    sandbox : bool
        Through bubblewrap: no network, only the workspace writable.
    secrets : tuple of str
        Names of environment variables that no command sees, beside those whose names tell.
    values : tuple of str
        Keys: a variable that holds one is not passed on, whatever its name.
    """

    sandbox: bool = False
    secrets: tuple[str, ...] = ()
    values: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Desk:
    """What the base tools of one team work on.

    Parameters
    ----------
    workspace : Workspace
    web : Web
    shell : Shell
    sees : callable
        ``sees(agent_id)``: whether an agent's model takes images.
    """

    workspace: Workspace
    web: Web = Web()
    shell: Shell = Shell()
    sees: Callable[[int], bool] = lambda number: False
