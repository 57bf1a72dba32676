"""The address of an endpoint: checked, taken apart, and told from what of it nobody may see.

Pure: opens no socket and resolves no name. It does not know where an address was configured.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from ..errors import ConfigError
from ..given import shown

_NO_HOST = re.compile(r"[\s\x00-\x20\x7f<>\"\\^`{|}%]")
_SECRET_PARAMETER = re.compile(r"key|token|secret|passw|sig|code|auth", re.IGNORECASE)
_LONGEST_HOST = 253
_SHORTEST = 6
_SHORTEST_NAME = 8
"""Characters below which a password, or the name beside it, is too plain a word to be hidden wherever it stands."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A base URL in its parts.

    Parameters
    ----------
    url : str
        Scheme, host, port and path, without a slash at the end: what may be shown, and shares one rate limit.
    host : str
    query : str
        Sent with every request.
    user, password : str
        As they are written in the URL, percent-encoded.
    """

    url: str
    host: str
    query: str = ""
    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r})"

    @classmethod
    def parse(cls, url: str, what: str) -> Endpoint:
        """Take a base URL apart.

        Raises
        ------
        ConfigError
            It is no address. ``what`` says whose it was to be; user info is not repeated.
        """
        try:
            parts = urlsplit(url)
            if parts.scheme in ("http", "https") and parts.port != 0 and _is_host(parts.hostname or ""):
                place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")
                return cls(place, parts.hostname or "", parts.query, parts.username or "", parts.password or "")
        except ValueError:
            pass
        said = re.sub(r"//.*@", "//", url)
        raise ConfigError(f"{what} is {shown(said)}; it has to be like https://host/v1")

    @property
    def basic(self) -> str:
        """The token of basic authentication, empty without user info."""
        pair = f"{unquote(self.user)}:{unquote(self.password)}"
        return base64.b64encode(pair.encode()).decode() if self.user else ""

    @property
    def loopback(self) -> bool:
        """Whether it is on this machine."""
        if self.host == "localhost" or self.host.endswith(".localhost"):
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def secrets(self) -> tuple[str, ...]:
        """What nobody may see, in every form in which it may come back: as written, decoded, as a token."""
        told = [value for name, value in parse_qsl(self.query) if _SECRET_PARAMETER.search(name)]
        told += [form for part in (self.user, self.password) for form in (part, unquote(part))]
        return tuple({word: None for word in (*told, self.basic) if word})

    @property
    def certain(self) -> tuple[str, ...]:
        """Those of the secrets that are hidden in any text: not a word such as ``user``, which would spoil it."""
        names = (self.user, unquote(self.user)) if self.password else ()
        return tuple(word for word in self.secrets if len(word) >= (_SHORTEST_NAME if word in names else _SHORTEST))


def _is_host(host: str) -> bool:
    """Say whether a name, or an address, can be a host's."""
    try:
        ipaddress.ip_address(host)
        return True
    except ValueError:
        pass
    if not host or len(host) > _LONGEST_HOST or _NO_HOST.search(host) or ":" in host:
        return False
    try:
        host.encode("idna")  # no empty label, none beyond 63 characters
    except UnicodeError:
        return False
    return True
