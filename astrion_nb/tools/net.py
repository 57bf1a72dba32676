"""The network as tools may reach it: public addresses only, bounded in size, time and redirects.

A name is resolved once, every address that it has is judged, and the connection goes to one of those very
addresses: what the name resolves to later does not matter. The same for every redirect. Certificates
are checked against the name. What is compressed is unpacked here, so a small answer cannot become a large
one.

Source: the special-purpose registries of RFC 6890, as the standard library's ipaddress has them; RFC 4291,
RFC 6052, RFC 3056 and RFC 4380 for IPv4 within IPv6.

Knows no tool and no page.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from ..errors import ToolError
from ..given import shown
from .desk import Web

if TYPE_CHECKING:
    import httpx2

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

MOST_HOPS = 5
SECONDS = 30.0
"""Seconds that an answer takes, redirects included, at most."""
MOST_BYTES = 10_000_000
"""Bytes of an answer, on the wire and unpacked."""

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")


@dataclass(frozen=True, slots=True)
class Answer:
    """What an address has answered.

    Parameters
    ----------
    url : str
        After redirects.
    status : int
    kind : str
        Media type, lower case, without parameters.
    charset : str
        As the header says, or an empty string.
    data : bytes
        Unpacked.
    """

    url: str
    status: int
    kind: str
    charset: str
    data: bytes


def is_public(address: Address) -> bool:
    """Say whether an address is one of the public internet, whatever it is wrapped in."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
        if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
            inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if any(one is not None and not is_public(one) for one in inner):
            return False
        if address.ipv4_mapped is not None:
            return True
        if address.is_site_local:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def is_allowed(host: str, port: int, address: Address, allow: Iterable[str]) -> bool:
    """Say whether somebody has opened a private address: by host, ``host:port`` or network.

    Parameters
    ----------
    host : str
        Lower case.
    port : int
    address : IPv4Address or IPv6Address
    allow : iterable of str
    """
    for item in allow:
        said = item.strip().lower()
        if said in (host, f"{host}:{port}", f"[{host}]:{port}"):
            return True
        try:
            if address in ipaddress.ip_network(said, strict=False):
                return True
        except ValueError:
            continue  # a name, and another one
    return False


async def resolved(host: str, port: int, web: Web) -> list[str]:
    """Return the addresses of a host, all of them ones that may be reached.

    Parameters
    ----------
    host : str
        A name or a literal address.
    port : int
    web : Web

    Raises
    ------
    ToolError
        No such host, or one of its addresses is not to be reached.
    """
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ToolError(f"url: {host} cannot be found ({error})") from None
    addresses = list(dict.fromkeys(str(item[4][0]) for item in found))
    for text in addresses:
        address = ipaddress.ip_address(text.partition("%")[0])
        if is_allowed(host.lower(), port, address, web.allow):
            continue
        if not is_public(address):
            raise ToolError(
                f"url: {host} leads to {address}, which is no public address; a person can open it in the configuration"
            )
        if web.offline:
            raise ToolError("url: this kernel is offline (ASTRION_OFFLINE), so no page can be fetched")
    return addresses


def checked(url: str) -> str:
    """Return an address that may be asked for, as far as its text says.

    Raises
    ------
    ToolError
        Another scheme than http and https, no host, a user's name in it.
    """
    text = url.strip()
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ToolError(f"url: {shown(text)} is no address ({error})") from None
    if parts.scheme.lower() not in ("http", "https"):
        raise ToolError(f"url: {shown(text)} must begin with http:// or https://")
    if not host or any(char.isspace() or ord(char) < 33 for char in text):
        raise ToolError(f"url: {shown(text)} is no address of a page")
    if parts.username is not None or parts.password is not None:
        raise ToolError("url: holds a user's name or password; leave it out")
    return text


async def fetch(
    url: str,
    web: Web,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    accepts: Callable[[str], bool] = lambda kind: True,
    limit: int = MOST_BYTES,
    seconds: float = SECONDS,
) -> Answer:
    """Ask an address, and follow its redirects.

    Parameters
    ----------
    url : str
    web : Web
    headers : mapping, optional
        Further ones; they go to the first host only.
    body : bytes, optional
        Then it is a POST, and no redirect is followed.
    accepts : callable
        ``accepts(media_type)``: whether the body is wanted at all.
    limit : int
        Bytes.
    seconds : float

    Raises
    ------
    ToolError
        It cannot be reached, may not be, is too long, or takes too long; one line says which.
    """
    import httpx2

    at = checked(url)
    try:
        async with asyncio.timeout(seconds):
            for _ in range(MOST_HOPS + 1):
                said = headers if urlsplit(at).hostname == urlsplit(url).hostname else None
                found = await _hop(at, web, said or {}, body, accepts, limit)
                if isinstance(found, Answer):
                    return found
                if body is not None:
                    raise ToolError(f"url: {at} redirects, which is not followed with a body")
                at = checked(urljoin(at, found))
    except TimeoutError:
        raise ToolError(f"url: {at} is not done within {seconds:g} s") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        told = str(error) or type(error).__name__
        raise ToolError(f"url: {at} cannot be fetched ({told})") from None
    raise ToolError(f"url: {url.strip()} redirects more than {MOST_HOPS} times")


async def _hop(
    url: str, web: Web, headers: Mapping[str, str], body: bytes | None, accepts: Callable[[str], bool], limit: int
) -> Answer | str:
    """Ask one address; returns the answer, or where it redirects to."""
    import httpx2

    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    addresses = await resolved(host, port, web)
    last: Exception | None = None
    async with httpx2.AsyncClient(trust_env=False, follow_redirects=False, timeout=SECONDS) as client:
        for address in addresses:
            request = _request(client, url, host, address, headers, body)
            try:
                response = await client.send(request, stream=True)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                last = error
                continue
            try:
                if response.is_redirect and "location" in response.headers:
                    return str(response.headers["location"])
                return await _answer(url, response, accepts, limit)
            finally:
                await response.aclose()
    raise ToolError(f"url: {host} cannot be reached ({last})")


def _request(
    client: httpx2.AsyncClient, url: str, host: str, address: str, headers: Mapping[str, str], body: bytes | None
) -> httpx2.Request:
    import httpx2

    parsed = httpx2.URL(url)
    said = {
        "Host": parsed.netloc.decode("ascii"),
        "User-Agent": "astrion-nb",
        "Accept": "text/html,application/xhtml+xml,text/*;q=0.9,application/json;q=0.9,*/*;q=0.5",
        "Accept-Encoding": "gzip, deflate",
        **headers,
    }
    asked: dict[str, Any] = {"sni_hostname": parsed.raw_host.decode("ascii")}
    target = parsed.copy_with(host=address)
    return client.build_request("GET" if body is None else "POST", target, headers=said, content=body, extensions=asked)


async def _answer(url: str, response: httpx2.Response, accepts: Callable[[str], bool], limit: int) -> Answer:
    header = str(response.headers.get("content-type", ""))
    kind = header.partition(";")[0].strip().lower()
    if response.status_code < 400 and not accepts(kind):
        raise ToolError(f"url: {url} is {kind or 'of no said kind'}, which cannot be read here")
    data = bytearray()
    async for part in _unpacked(response.headers.get("content-encoding", ""), response.aiter_raw(), limit):
        data += part
        if len(data) > limit:
            raise ToolError(f"url: {url} has more than {limit:,} bytes")
    return Answer(url, response.status_code, kind, response.charset_encoding or "", bytes(data))


async def _unpacked(encoding: str, raw: AsyncIterator[bytes], limit: int) -> AsyncIterator[bytes]:
    """Yield a body's bytes, of a packed one never more than the limit and a little."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        async for part in raw:
            yield part
        return
    if name not in ("gzip", "x-gzip", "deflate"):
        raise ToolError(f"url: the answer is packed in a way that was not asked for ({shown(encoding)})")
    total, unpack, first = 0, zlib.decompressobj(zlib.MAX_WBITS | 32), True
    async for part in raw:
        while part:
            try:
                out = unpack.decompress(part, limit + 1 - total)
            except zlib.error as error:
                if first and name == "deflate":  # without the header that the standard asks for
                    unpack, first = zlib.decompressobj(-zlib.MAX_WBITS), False
                    continue
                raise ToolError(f"url: the answer is broken ({error})") from None
            first = False
            total += len(out)
            yield out
            if total > limit:
                return
            part = unpack.unconsumed_tail
            if unpack.eof:
                return
