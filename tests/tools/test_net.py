"""The network as tools may reach it: which addresses, how far, how long and how much."""

from __future__ import annotations

import asyncio
import gzip
import ipaddress
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.desk_calls import Blocked
from support.environment import REPOSITORY, missing
from support.web_servers import answer, authority, certified, redirect, serving

from astrion_nb.errors import ToolError
from astrion_nb.tools import net
from astrion_nb.tools.desk import Web
from astrion_nb.tools.net import Answer, checked, fetch, is_allowed, is_public

HERE = ("127.0.0.1",)


def get(url: str, *allow: str, offline: bool = False, **more: Any) -> Answer:
    return asyncio.run(fetch(url, Web(offline=offline, allow=allow or HERE), **more))


def why(url: str, *allow: str, offline: bool = False, **more: Any) -> str:
    with pytest.raises(ToolError) as caught:
        get(url, *allow, offline=offline, **more)
    said = str(caught.value)
    assert "\n" not in said
    assert said.startswith("url: ")
    return said


# -- which addresses --------------------------------------------------------------------

# The special-purpose registries of IANA (IPv4 and IPv6), multicast, and what they leave to be assigned.
NOT_PUBLIC_4 = [ipaddress.IPv4Network(text) for text in (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
    "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
    "224.0.0.0/4", "240.0.0.0/4", "255.255.255.255/32", "168.63.129.16/32",
)]  # fmt: skip
NOT_PUBLIC_6 = [ipaddress.IPv6Network(text) for text in (
    "::/128", "::1/128", "::/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001::/32", "2001:1::1/128",
    "2001:1::2/128", "2001:1::3/128", "2001:2::/48", "2001:3::/32", "2001:4:112::/48", "2001:10::/28", "2001:20::/28",
    "2001:30::/28", "2001:db8::/32", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
    "4000::/3", "8000::/3", "e000::/4",
)]  # fmt: skip
PUBLIC = (
    "1.1.1.1", "8.8.8.8", "93.184.216.34", "172.15.255.255", "172.32.0.0", "100.63.255.255", "100.128.0.0", "11.0.0.0",
    "126.255.255.255", "128.0.0.0", "169.253.255.255", "192.0.1.0", "192.169.0.0", "223.255.255.255", "2606:4700::1111",
    "2001:4860:4860::8888", "2a00:1450:4001::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1",
)  # fmt: skip


def v6(text: str, low: int = 0) -> ipaddress.IPv6Address:
    return ipaddress.IPv6Address(int(ipaddress.IPv6Address(text)) | low)


WRAPPINGS: dict[str, Callable[[ipaddress.IPv4Address], Any]] = {
    "itself": lambda address: address,
    "mapped": lambda address: v6("::ffff:0:0", int(address)),
    "compatible": lambda address: v6("::", int(address)),
    "translated": lambda address: v6("::ffff:0:0:0", int(address)),
    "NAT64": lambda address: v6("64:ff9b::", int(address)),
    "local NAT64": lambda address: v6("64:ff9b:1::", int(address)),
    "6to4": lambda address: v6("2002::1", int(address) << 80),
    "teredo server": lambda address: v6("2001::", int(address) << 64 | 0xF7F7F7F7),
    "teredo client": lambda address: v6("2001:0:808:808::", int(address) ^ 0xFFFFFFFF),
    "ISATAP": lambda address: v6("2606:4700::5efe:0:0", int(address)),
    "ISATAP, universal": lambda address: v6("2606:4700::200:5efe:0:0", int(address)),
}


def within(network: Any) -> st.SearchStrategy[Any]:
    first, last = int(network[0]), int(network[-1])
    kind = ipaddress.IPv4Address if network.version == 4 else ipaddress.IPv6Address
    return st.one_of(st.sampled_from((first, last)), st.integers(first, last)).map(kind)


@pytest.mark.containment
@pytest.mark.parametrize("wrapping", WRAPPINGS)
@given(st.sampled_from(NOT_PUBLIC_4).flatmap(within))
@example(ipaddress.IPv4Address("169.254.169.254"))
def test_no_special_ipv4_address_is_public_whatever_it_is_wrapped_in(wrapping: str, address: Any) -> None:
    assert not is_public(WRAPPINGS[wrapping](address))


@pytest.mark.containment
@given(st.sampled_from(NOT_PUBLIC_6).flatmap(within))
@example(ipaddress.IPv6Address("fd00:ec2::254"))
def test_no_special_ipv6_address_is_public(address: Any) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("text", PUBLIC)
def test_addresses_of_the_internet_are_public(text: str) -> None:
    assert is_public(ipaddress.ip_address(text))


@given(st.ip_addresses())
def test_what_the_standard_library_calls_private_is_never_public(address: Any) -> None:
    nat = isinstance(address, ipaddress.IPv6Address) and address in ipaddress.ip_network("64:ff9b::/96")
    if not nat and (address.is_private or address.is_loopback or address.is_link_local or address.is_multicast):
        assert not is_public(address) or getattr(address, "ipv4_mapped", None)


@pytest.mark.parametrize(
    ("item", "host", "port", "address", "opens"),
    [
        ("localhost", "localhost", 80, "127.0.0.1", True),
        ("LocalHost ", "localhost", 80, "127.0.0.1", True),
        ("localhost:8080", "localhost", 8080, "127.0.0.1", True),
        ("localhost:8080", "localhost", 80, "127.0.0.1", False),
        ("localhost", "localhost.evil.com", 80, "127.0.0.1", False),
        ("localhost", "notlocalhost", 80, "127.0.0.1", False),
        ("10.0.0.0/8", "wiki", 80, "10.1.2.3", True),
        ("10.0.0.0/8", "wiki", 80, "11.1.2.3", False),
        ("10.0.0.7", "wiki", 80, "10.0.0.7", True),
        ("10.0.0.7", "10.0.0.7.evil.com", 80, "10.0.0.8", False),
        ("[::1]:80", "::1", 80, "::1", True),
        ("::1", "::1", 80, "::1", True),
        ("127.0.0.0/8", "x", 80, "::ffff:127.0.0.1", False),
        ("", "x", 80, "127.0.0.1", False),
        ("*", "x", 80, "127.0.0.1", False),
    ],
)
def test_an_allow_list_opens_what_it_names_and_nothing_else(
    item: str, host: str, port: int, address: str, opens: bool
) -> None:
    assert is_allowed(host, port, ipaddress.ip_address(address), (item,)) is opens


_FORMS = """
import asyncio, json, sys
from astrion_nb.tools.desk import Web
from astrion_nb.tools.net import fetch
from astrion_nb.errors import ToolError
async def go(url):
    try:
        await fetch(url, Web())
    except ToolError as error:
        return str(error)
    return "reached"
print(json.dumps({url: asyncio.run(go(url)) for url in json.load(sys.stdin)}))
"""


@pytest.mark.containment
def test_no_way_to_write_an_address_leads_to_this_machine() -> None:
    hosts = [
        "127.0.0.1", "127.1", "127.0.1", "0", "0.0.0.0", "2130706433", "0x7f000001", "0x7f.1", "017700000001",
        "0177.0.0.1", "127.0.0.1.", "localhost", "LOCALHOST", "localhost.", "[::1]", "[::]", "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[0:0:0:0:0:0:0:1]", "127。0。0。1", "１２７.0.0.1",
        "①②⑦.0.0.1", "[fe80::1%25lo]", "[::1%25lo]", "169.254.169.254", "[fd00:ec2::254]", "%31%32%37.0.0.1",
        "0x7f.0x0.0x0.0x1", "127.0.0.01", "127.0.0.1%00.example.com", "10.0.0.1", "192.168.1.1", "100.64.0.1",
    ]  # fmt: skip
    with serving({"*": lambda _: answer("reached")}) as server:
        urls = [f"{scheme}://{host}:{server.port}/" for host in hosts for scheme in ("http", "https")]
        # This process has no names at all under test; a child without that guard asks the real resolver.
        found = subprocess.run(
            [sys.executable, "-c", _FORMS],
            input=json.dumps(urls),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        )
    said = json.loads(found.stdout)
    assert said.keys() == set(urls)
    for url, text in said.items():
        assert text.startswith("url: "), (url, text)
        assert any(part in text for part in ("no public", "cannot be found", "no address", "cannot be fetched")), text
    assert "no public address" in said[f"http://127.1:{server.port}/"]
    assert "no public address" in said[f"http://2130706433:{server.port}/"]
    assert server.connections == 0


# -- which addresses a name leads to ----------------------------------------------------


def answering(names: dict[str, list[list[str]]], seen: list[str]) -> Callable[..., Any]:
    """Stand in for a name server: the answers of a name one after the other, the last one for ever."""

    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        seen.append(host)
        answers = names[host]
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [
            (socket.AF_INET6 if ":" in text else socket.AF_INET, socket.SOCK_STREAM, 6, "", (text, port))
            for text in found
        ]

    return getaddrinfo


def asked(url: str, names: dict[str, list[list[str]]], *allow: str, **more: Any) -> tuple[str, list[str]]:
    """Fetch with such a name server; returns what was read or why not, and which names were asked for."""
    seen: list[str] = []

    async def go() -> str:
        loop = asyncio.get_running_loop()
        loop.getaddrinfo = answering(names, seen)  # type: ignore[method-assign]
        try:
            return (await fetch(url, Web(allow=allow), **more)).data.decode()
        except ToolError as error:
            return str(error)

    return asyncio.run(go()), seen


@pytest.mark.containment
@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"], ["10.0.0.1"], ["169.254.169.254"], ["0.0.0.0"], ["100.64.0.1"], ["224.0.0.1"], ["::1"], ["::"],
        ["::ffff:127.0.0.1"], ["64:ff9b::a00:1"], ["2002:7f00:1::"], ["2001:0:808:808::80ff:fffe"], ["fe80::1%eth0"],
        ["fd00::1"], ["8.8.8.8", "127.0.0.1"], ["2606:4700::1111", "8.8.8.8", "192.168.0.1"], ["168.63.129.16"],
    ],
)  # fmt: skip
def test_a_name_one_of_whose_addresses_is_private_is_not_asked(addresses: list[str]) -> None:
    said, _ = asked("http://name.test/", {"name.test": [addresses]})
    assert "which is no public address" in said


@pytest.mark.containment
def test_the_connection_goes_to_the_address_that_was_judged() -> None:
    with serving({"*": lambda _: answer("the judged one")}, "127.0.0.2") as first:
        names = {"name.test": [["127.0.0.2"], ["127.0.0.3"]]}
        said, seen = asked(f"http://name.test:{first.port}/", names, "127.0.0.2")
        assert said == "the judged one"
        assert seen == ["name.test"]
        assert f"Host: name.test:{first.port}\r\n" in first.requests[0]


@pytest.mark.containment
def test_a_name_that_changes_between_redirects_is_judged_again() -> None:
    with serving({"/": lambda _: redirect("/private"), "*": lambda _: answer("got in")}, "127.0.0.2") as server:
        names = {"name.test": [["127.0.0.2"], ["127.0.0.1"]]}
        said, seen = asked(f"http://name.test:{server.port}/", names, "127.0.0.2")
        assert "which is no public address" in said
        assert seen == ["name.test", "name.test"]
        assert len(server.requests) == 1


def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    with serving({"*": lambda _: answer("here")}, "127.0.0.2") as server:
        said, _ = asked(f"http://name.test:{server.port}/", {"name.test": [["127.0.0.3", "127.0.0.2"]]}, "127.0.0.0/8")
        assert said == "here"


def test_a_name_without_addresses_is_told() -> None:
    said, _ = asked("http://name.test/", {"name.test": [[]]})
    assert said == "url: name.test cannot be reached (it has no address)"


def test_an_international_name_is_asked_for_as_certificates_know_it() -> None:
    with serving({"*": lambda _: answer("here")}) as server:
        names = {"xn--fa-hia.test": [["127.0.0.1"]]}
        said, _ = asked(f"http://faß.test:{server.port}/", names, "127.0.0.1")
        assert said == "here"
        assert f"Host: xn--fa-hia.test:{server.port}\r\n" in server.requests[0]


def test_a_kernel_that_is_offline_asks_no_name_server_and_nothing_but_what_is_allowed() -> None:
    seen: list[str] = []

    async def go(url: str, *allow: str) -> str:
        loop = asyncio.get_running_loop()
        loop.getaddrinfo = answering({"name.test": [["127.0.0.1"]], "8.8.8.8": [["8.8.8.8"]]}, seen)  # type: ignore[method-assign]
        try:
            return (await fetch(url, Web(offline=True, allow=allow))).data.decode()
        except ToolError as error:
            return str(error)

    assert "offline" in asyncio.run(go("http://name.test/"))
    assert seen == []
    assert "offline" in asyncio.run(go("http://8.8.8.8/"))
    with serving({"*": lambda _: answer("here")}) as server:
        assert asyncio.run(go(f"http://name.test:{server.port}/", "name.test")) == "here"


# -- which URLs -------------------------------------------------------------------------


@pytest.mark.containment
@pytest.mark.parametrize(
    "url",
    [
        "", " ", "file:///etc/passwd", "FILE:///etc/passwd", "ftp://host/", "gopher://host:70/_x", "data:text/plain,x",
        "javascript:alert(1)", "unix:///run/docker.sock", "http+unix://%2Frun%2Fdocker.sock/", "//host/", "host",
        "/etc/passwd", "http://", "http:///x", "http:host", "http:/host", "http://user@host/", "http://user:pw@host/",
        "http://:pw@host/", "http://@host/", "http://a\\@b/", "http://a%2fb/", "http://ho st/", "http://host/a b",
        "http://host/\r\nX: y", "http://host/\ta", "http://host\0/", "http://host:0/", "http://host:99999/",
        "http://host:x/", "http://[::1", "http://[v1.x]/", "http://host/\ud800", "http://\u202ehost/", "http://./",
        "http://a..b/", "http://" + "a" * 300 + "/", "http://xn--\u0000/", "blob:http://host/x", "view-source:http://host",
    ],
)  # fmt: skip
def test_what_is_no_address_of_a_page_is_refused_before_anything_is_asked(url: str) -> None:
    said, _ = asked(url, {"a..b": [[]], "a" * 300: [[]], ".": [[]]})
    assert said.startswith("url: ")
    assert "\n" not in said


@given(st.text(max_size=60), st.sampled_from(["", "http://", "https://", "http://h/", "http://h:"]))
def test_any_text_is_an_address_or_is_refused(text: str, begins: str) -> None:
    said = ""
    try:
        found = checked(begins + text)
    except ToolError as error:
        said = str(error)
    if said:
        assert "\n" not in said
    else:
        assert found.lower().startswith(("http://", "https://"))
        assert "@" not in found.partition("//")[2].partition("/")[0].partition("?")[0].partition("#")[0]


# -- redirects --------------------------------------------------------------------------


@pytest.mark.containment
@pytest.mark.parametrize(
    ("to", "told"),
    [
        ("http://127.0.0.1:{other}/", "no public address"),
        ("//127.0.0.1:{other}/", "no public address"),
        ("http://[::1]:{other}/", "no public address"),
        ("http://169.254.169.254/latest/meta-data/", "no public address"),
        ("http://10.0.0.1/", "no public address"),
        ("file:///etc/passwd", "must begin with"),
        ("ftp://127.0.0.1/", "must begin with"),
        ("data:text/html,x", "must begin with"),
        ("javascript:x", "must begin with"),
        ("http://user:pw@127.0.0.1:{port}/", "leave it out"),
        ("http://127.0.0.1:{port}\\@x/", "no address"),
        ("http://[::1/", "IPv6"),
    ],
)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_leads_nowhere_that_a_url_may_not(to: str, told: str, status: int) -> None:
    with serving({"*": lambda _: answer("got in")}) as other:
        routes: dict[str, Any] = {}
        with serving(routes) as server:
            place = to.format(other=other.port, port=server.port)
            routes["/"] = lambda _: redirect(place, status)
            assert told in why(f"{server.url}/", server.at)
        assert other.connections == 0


def test_a_redirect_is_followed_relative_and_absolute_and_the_last_url_is_told() -> None:
    routes: dict[str, Any] = {"/a/b": lambda _: redirect("../c?q=1 2"), "/d": lambda _: answer("end")}
    with serving(routes) as server:
        routes["/c"] = lambda _: redirect(f"http://127.0.0.1:{server.port}/d#part")
        found = get(f"{server.url}/a/b")
        assert found.data == b"end"
        assert found.url.startswith(f"{server.url}/d")
        assert "GET /c?q=1%202 " in server.requests[1]


def test_redirects_in_a_circle_end() -> None:
    with serving({"/a": lambda _: redirect("/b"), "/b": lambda _: redirect("/a")}) as server:
        assert "redirects more than 5 times" in why(f"{server.url}/a")
        assert len(server.requests) == net.MOST_HOPS + 1


def test_a_redirect_without_a_place_is_an_answer() -> None:
    with serving({"/": lambda _: answer("choose", 300)}) as server:
        assert get(server.url + "/").status == 300


@pytest.mark.containment
def test_headers_go_to_the_first_origin_only() -> None:
    routes: dict[str, Any] = {}
    with serving({"*": lambda _: redirect(f"{first.url}/back")}) as second, serving(routes) as first:
        routes["/"] = lambda _: redirect("/same")
        routes["/same"] = lambda _: redirect(f"{second.url}/other")  # the same host, another port
        routes["/back"] = lambda _: answer("end")
        found = get(f"{first.url}/", headers={"X-Key": "hunter2"})
        assert found.data == b"end"
        held = ["hunter2" in request for request in first.requests]
        assert held == [True, True, False]
        assert all("hunter2" not in request for request in second.requests)
        assert len(second.requests) == 1


def test_cookies_are_not_kept() -> None:
    with serving(
        {"/": lambda _: answer("", 302, location="/b", set_cookie="a=1"), "*": lambda _: answer("x")}
    ) as server:
        get(f"{server.url}/")
        assert all("ookie" not in request for request in server.requests)


def test_a_body_is_not_sent_on() -> None:
    with serving({"/": lambda _: redirect("/b", 307), "*": lambda _: answer("x")}) as server:
        assert "not followed with a body" in why(f"{server.url}/", body=b"secret")
        assert len(server.requests) == 1
        assert server.requests[0].endswith("secret")


# -- how long and how much --------------------------------------------------------------


def for_ever(*first: bytes, part: bytes, pause: float = 0.0) -> Callable[[str], Iterator[bytes]]:
    def route(_: str) -> Iterator[bytes]:
        yield from first
        while True:
            yield part
            if pause:
                time.sleep(pause)

    return route


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
SLOW = {
    "one byte at a time": for_ever(HEAD + b"\r\n", part=b"x", pause=0.02),
    "headers one at a time": for_ever(HEAD, part=b"X-More: y\r\n", pause=0.02),
    "hints for ever": for_ever(part=b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", pause=0.005),
    "chunks of nothing but comments": for_ever(
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n", part=b"1;" + b"x" * 100 + b"\r\na\r\n", pause=0.02
    ),
    "packed nothing": for_ever(
        HEAD + b"Content-Encoding: gzip\r\n\r\n", gzip.compress(b"")[:10], part=b"\0", pause=0.02
    ),
}


@pytest.mark.containment
@pytest.mark.parametrize("name", SLOW)
def test_a_server_that_drips_is_left_in_time(name: str) -> None:
    with serving({"*": SLOW[name]}) as server:
        began = time.monotonic()
        said = why(f"{server.url}/", seconds=0.5)
        assert time.monotonic() - began < 3
        assert "not done within 0.5 s" in said or "cannot be fetched" in said or "broken" in said


@pytest.mark.containment
def test_a_server_that_says_nothing_is_left_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert "not done within 0.3 s" in why(f"http://127.0.0.1:{silent.getsockname()[1]}/", seconds=0.3)


@pytest.mark.containment
@pytest.mark.parametrize(
    "route",
    [
        for_ever(HEAD + b"\r\n", part=b"x" * 65536),
        for_ever(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", part=b"10000\r\n" + b"x" * 65536 + b"\r\n"),
        for_ever(HEAD, part=b"X-More: " + b"y" * 1000 + b"\r\n"),
        for_ever(part=b"HTTP/1.1 200 OK" + b"x" * 65536),
        lambda _: [HEAD + b"Content-Length: 99999999999\r\n\r\n", *[b"x" * 1_000_000] * 12],
    ],
    ids=["endless body", "endless chunks", "endless headers", "endless status", "huge"],
)
def test_a_server_that_never_ends_is_left_after_the_limit_with_flat_memory(route: Any) -> None:
    with serving({"*": lambda _: answer("x")}) as server:
        get(f"{server.url}/")  # what is imported and read once
    with serving({"*": route}) as server:
        tracemalloc.start()
        try:
            why(f"{server.url}/", limit=1_000_000, seconds=20)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 8_000_000


def bomb(packer: Any, pieces: int) -> bytes:
    """Return what unpacks to megabytes of zeros, as many as there are pieces."""
    head = packer.compress(b"\0") + packer.flush(zlib.Z_FULL_FLUSH)
    packer.compress(b"")
    one = packer.compress(bytes(1_000_000)) + packer.flush(zlib.Z_FULL_FLUSH)
    return bytes(head + one * pieces)


BOMBS = {
    "gzip": (bomb(zlib.compressobj(9, zlib.DEFLATED, 31), 1000), "gzip"),
    "deflate": (bomb(zlib.compressobj(9), 1000), "deflate"),
    "raw deflate": (bomb(zlib.compressobj(9, zlib.DEFLATED, -15), 1000), "deflate"),
    "many members": (gzip.compress(bytes(100_000)) * 10_000, "gzip"),
}


@pytest.mark.containment
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_unpacks_to_no_more_than_the_limit(name: str) -> None:
    data, encoding = BOMBS[name]
    assert len(data) < 2_500_000
    with serving({"*": lambda _: answer("x")}) as server:
        get(f"{server.url}/")
    with serving({"*": lambda _: answer(data, content_encoding=encoding)}) as server:
        tracemalloc.start()
        try:
            said = why(f"{server.url}/", limit=5_000_000)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert "has more than 5,000,000 bytes" in said
    assert peak < 25_000_000, peak


@pytest.mark.containment
def test_what_is_packed_to_nothing_counts_on_the_wire() -> None:
    data = gzip.compress(b"") * 100_000
    with serving({"*": lambda _: answer(data, content_encoding="gzip")}) as server:
        assert "more than 1,000,000 bytes" in why(f"{server.url}/", limit=1_000_000)


@given(st.binary(max_size=3000), st.sampled_from(["gzip", "zlib", "raw", "members"]), st.integers(1, 50))
def test_what_is_packed_is_unpacked_however_it_comes(data: bytes, way: str, size: int) -> None:
    raw = zlib.compressobj(6, zlib.DEFLATED, -15)
    packed = {
        "gzip": gzip.compress(data),
        "zlib": zlib.compress(data),
        "raw": raw.compress(data) + raw.flush(),
        "members": gzip.compress(data[:100]) + gzip.compress(data[100:]),
    }[way]

    async def parts() -> Any:
        for at in range(0, len(packed), size):
            yield packed[at : at + size]

    async def go() -> bytes:
        name = "gzip" if way in ("gzip", "members") else "deflate"
        return b"".join([part async for part in net._unpacked(name, parts(), 10_000)])

    assert asyncio.run(go()) == data


@pytest.mark.parametrize(
    ("body", "encoding", "told"),
    [
        (gzip.compress(b"text" * 1000)[:-9], "gzip", "ends early"),
        (b"not packed at all", "gzip", "broken"),
        (gzip.compress(b"x")[:-4] + b"\0\0\0\1", "gzip", "broken"),
        (b"x", "br", "not asked for"),
        (b"x", "zstd", "not asked for"),
        (gzip.compress(gzip.compress(b"x")), "gzip, gzip", "not asked for"),
        (b"x", "\u2603", "not asked for"),
    ],
)
def test_a_broken_packing_is_told(body: bytes, encoding: str, told: str) -> None:
    with serving({"*": lambda _: answer(body, content_encoding=encoding)}) as server:
        assert told in why(f"{server.url}/")


@pytest.mark.parametrize(
    "raw",
    [
        HEAD + b"Content-Length: 100\r\n\r\nshort",
        HEAD + b"Content-Length: -5\r\n\r\nx",
        HEAD + b"Content-Length: many\r\n\r\nx",
        HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc",
        b"",
        b"\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"HTTP/1.1 9 OK\r\n\r\n",
        b"\xff\xfe\x00garbage" * 100,
        b"HTTP/1.1 302 Found\r\nLocation: \xff\xfe\r\nBroken\r\n\r\n",
    ],
)
def test_a_server_that_lies_becomes_one_line(raw: bytes) -> None:
    with serving({"*": lambda _: [raw]}) as server:
        assert "cannot be fetched" in why(f"{server.url}/", seconds=3)


def test_of_more_than_it_promised_nothing_is_taken() -> None:
    with serving({"*": lambda _: [HEAD + b"Content-Length: 4\r\n\r\ntrueHTTP/1.1 200 OK\r\n\r\nfalse"]}) as server:
        assert get(f"{server.url}/").data == b"true"


def test_a_body_of_a_kind_that_is_not_wanted_is_not_read() -> None:
    route = for_ever(b"HTTP/1.1 200 OK\r\nContent-Type: video/mp4\r\n\r\n", part=b"x" * 65536)
    with serving({"*": route}) as server:
        assert "video/mp4" in why(f"{server.url}/", accepts=lambda kind: kind.startswith("text/"), limit=10**12)


@pytest.mark.parametrize("status", [200, 201, 204, 400, 401, 404, 429, 500, 503])
def test_the_status_is_told_as_it_is(status: int) -> None:
    with serving({"*": lambda _: answer("" if status == 204 else "x", status)}) as server:
        assert get(f"{server.url}/").status == status


def test_type_and_charset_are_read_from_the_header() -> None:
    with serving({"*": lambda _: answer("x", content_type="Text/HTML ; Charset=GB2312")}) as server:
        found = get(f"{server.url}/")
        assert (found.kind, found.charset.lower()) == ("text/html", "gb2312")


def test_a_port_where_nobody_listens_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert "127.0.0.1 cannot be reached" in why(f"http://127.0.0.1:{port}/")


def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving({"*": lambda _: answer("the proxy")}) as proxy, serving({"*": lambda _: answer("itself")}) as server:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        assert get(f"{server.url}/").data == b"itself"
        assert proxy.connections == 0


def test_fetching_does_not_hold_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, inner = Blocked(), asyncio.events.Handle._run

    def measured(handle: asyncio.Handle) -> None:
        watch.start()
        inner(handle)
        watch.stop()

    with serving({"*": lambda _: answer(gzip.compress(bytes(9_000_000)), content_encoding="gzip")}) as server:
        get(f"{server.url}/")
        monkeypatch.setattr(asyncio.events.Handle, "_run", measured)
        assert len(get(f"{server.url}/").data) == 9_000_000
    assert watch.longest < 0.05


# -- certificates -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        missing("needs openssl")
    return authority(tmp_path_factory.mktemp("authority"))


def test_a_certificate_of_the_name_is_trusted_and_the_name_is_said(
    trusted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    tls = certified(trusted.parent, "good", names="DNS:localhost", authority=trusted)
    with serving({"*": lambda _: answer("safe")}, tls=tls) as server:
        assert get(f"https://localhost:{server.port}/", "localhost").data == b"safe"
        assert get(f"https://LOCALHOST:{server.port}/", "localhost").data == b"safe"
        assert server.names == ["localhost", "localhost"]


@pytest.mark.containment
@pytest.mark.parametrize("fault", ["another name", "its address only", "own signature", "out of date", "not trusted"])
def test_a_wrong_certificate_is_refused_before_anything_is_said(
    trusted: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    if fault != "not trusted":
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    names = {"another name": "DNS:other.test", "its address only": "IP:127.0.0.1"}.get(fault, "DNS:localhost")
    tls = certified(
        trusted.parent,
        fault.replace(" ", "-"),
        names=names,
        days=-1 if fault == "out of date" else 2,
        authority=None if fault == "own signature" else trusted,
    )
    with serving({"*": lambda _: answer("not safe")}, tls=tls) as server:
        said = why(f"https://localhost:{server.port}/", "localhost", headers={"X-Key": "hunter2"})
        assert "CERTIFICATE_VERIFY_FAILED" in said or "certificate" in said.lower()
        assert server.requests == []


def test_plain_text_at_a_tls_port_is_told() -> None:
    with serving({"*": lambda _: answer("x")}) as server:
        assert "127.0.0.1 cannot be reached" in why(f"https://127.0.0.1:{server.port}/", seconds=5)
