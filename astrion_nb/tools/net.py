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
import os
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from ..errors import ToolError
from ..given import shown
from .desk import Web

if TYPE_CHECKING:
    import httpx2

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

MOST_HOPS = 5
LONGEST_URL = 8_000
SECONDS = 30.0
"""Seconds that an answer takes, redirects included, at most."""
MOST_BYTES = 10_000_000
"""Bytes of an answer, on the wire and unpacked."""

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})
# What ipaddress lets pass, or lets pass in some of its versions: anycast addresses that the nearest router
# answers, documentation, and a cloud's own services at an address that looks public.
_NEAR = tuple(
    ipaddress.ip_network(text)
    for text in (
        *("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32"),
        *("2001::/23", "2001:db8::/32", "3fff::/20", "fec0::/10"),
    )
)


_OFFLINE = "url: this kernel is offline (ASTRION_OFFLINE), so no page can be fetched"


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
        last = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if address.ipv4_mapped is not None or address in _NAT64:
            return is_public(last)
        if address.sixtofour is not None and not is_public(address.sixtofour):
            return False
        if int(address) >> 32 & 0xFFFFFFFF in _ISATAP and not is_public(last):
            return False
    if any(address in network for network in _NEAR):
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
    if is_named(host, port, allow):
        return True
    for item in allow:
        try:
            if address in ipaddress.ip_network(item.strip(), strict=False):
                return True
        except ValueError:
            continue  # a name, and another one
    return False


def is_named(host: str, port: int, allow: Iterable[str]) -> bool:
    """Say whether somebody has opened a host by its name, or by name and port."""
    said = {item.strip().lower() for item in allow}
    return not said.isdisjoint((host, f"{host}:{port}", f"[{host}]:{port}"))


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
    addresses = [host] if _is_address(host) else await _looked_up(host, port, web)
    for text in addresses:
        address = ipaddress.ip_address(text.partition("%")[0])
        if is_allowed(host.lower(), port, address, web.allow):
            continue
        if not is_public(address):
            raise ToolError(
                f"url: {host} leads to {address}, which is no public address; a person can open it in the configuration"
            )
        if web.offline:
            raise ToolError(_OFFLINE)
    return addresses


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def _looked_up(host: str, port: int, web: Web) -> list[str]:
    # The resolver itself reads other ways to write an address, as 127.1: they end in a number.
    alone = host == "localhost" or host.rpartition(".")[2].isdigit() or is_named(host, port, web.allow)
    if web.offline and not alone:
        raise ToolError(_OFFLINE)  # a question to a name server is traffic too
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ToolError(f"url: {host} cannot be found ({error})") from None
    return list(dict.fromkeys(str(item[4][0]) for item in found))


def checked(url: str) -> str:
    """Return an address that may be asked for, as far as its text says.

    Raises
    ------
    ToolError
        Another scheme than http and https, no host, a user's name in it.
    """
    text = url.strip()
    if len(text) > LONGEST_URL:
        raise ToolError(f"url: has {len(text):,} characters; {LONGEST_URL:,} are the most")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
        text.encode()
    except ValueError as error:
        raise ToolError(f"url: {shown(text)} is no address ({error})") from None
    if parts.scheme.lower() not in ("http", "https"):
        raise ToolError(f"url: {shown(text)} must begin with http:// or https://")
    if not host or port == 0 or any(char in "%\\" for char in parts.netloc) or not text.isprintable() or " " in text:
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
        Further ones; they go to the first origin (scheme, host and port) only.
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

    at, here = checked(url), True
    try:
        async with asyncio.timeout(seconds):
            first = _origin(httpx2.URL(at))
            for _ in range(MOST_HOPS + 1):
                here = here and _origin(httpx2.URL(at)) == first  # once gone, never back
                found = await _hop(at, web, (headers or {}) if here else {}, body, accepts, limit)
                if isinstance(found, Answer):
                    return found
                if body is not None:
                    raise ToolError(f"url: {at} redirects, which is not followed with a body")
                at = checked(urljoin(at, found.strip().replace(" ", "%20")))
    except TimeoutError:
        raise ToolError(f"url: {at} is not done within {seconds:g} s") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
        told = " ".join(str(error).split()) or type(error).__name__
        raise ToolError(f"url: {at} cannot be fetched ({told})") from None
    raise ToolError(f"url: {url.strip()} redirects more than {MOST_HOPS} times")


def _origin(url: httpx2.URL) -> tuple[str, str, int]:
    """Return scheme, host and port, the host as it is asked for: what a name server and a certificate know."""
    return url.scheme, url.raw_host.decode("ascii").lower(), url.port or (443 if url.scheme == "https" else 80)


async def _hop(
    url: str, web: Web, headers: Mapping[str, str], body: bytes | None, accepts: Callable[[str], bool], limit: int
) -> Answer | str:
    """Ask one address; returns the answer, or where it redirects to."""
    import httpx2

    _, host, port = _origin(httpx2.URL(url))
    addresses = await resolved(host, port, web)
    last: Exception | None = None
    trusted = await asyncio.to_thread(_trusted, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    async with httpx2.AsyncClient(verify=trusted, trust_env=False, follow_redirects=False, timeout=SECONDS) as client:
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
    raise ToolError(f"url: {host} cannot be reached ({last or 'it has no address'})")


@lru_cache(maxsize=4)
def _trusted(file: str | None, folder: str | None) -> ssl.SSLContext:
    """Return whose certificates are trusted: reading them takes a while, so it is done once."""
    import httpx2

    return httpx2.create_ssl_context()


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
    asked: dict[str, Any] = {"sni_hostname": host.rstrip(".")}
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
    """Yield a body's bytes; of the wire's, and of a packed body's, never more than the limit and a little."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        async for part in raw:
            yield part
        return
    if name not in ("gzip", "x-gzip", "deflate"):
        raise ToolError(f"url: the answer is packed in a way that was not asked for ({shown(encoding)})")
    taken = total = 0
    begun, unpack = b"", zlib.decompressobj(zlib.MAX_WBITS | 32)
    async for part in raw:
        taken += len(part)
        if taken > limit:  # it may be packed to nothing
            raise ToolError(f"url: the answer has more than {limit:,} bytes")
        if len(begun) < 2:
            begun += part[:2]
        while part:
            try:
                out = unpack.decompress(part, limit + 1 - total)
            except zlib.error as error:
                if name != "deflate" or total or taken - len(part) > 1:
                    raise ToolError(f"url: the answer is broken ({error})") from None
                # Without the header that the standard asks for; what has come of it is one byte at most.
                unpack, part = zlib.decompressobj(-zlib.MAX_WBITS), begun[: taken - len(part)] + part
                name = "raw"
                continue
            total += len(out)
            yield out
            if total > limit:
                return
            part = unpack.unconsumed_tail
            if unpack.eof and (part := unpack.unused_data):
                if name not in ("gzip", "x-gzip"):
                    return
                unpack = zlib.decompressobj(zlib.MAX_WBITS | 16)  # members may follow each other
    if taken and not unpack.eof:
        raise ToolError("url: the answer is broken (it ends early)")
