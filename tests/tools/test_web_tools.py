"""``web_search`` and ``extract_webpage`` against real servers that say what providers and pages say, and worse."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.desk_calls import called, carrying, desk, refused, until
from support.web_servers import WebServer, answer, redirect, serving

from astrion_nb.tools import pages, web
from astrion_nb.tools.desk import Desk, Web
from astrion_nb.tools.web import MOST_TEXT, PROVIDERS, extract_webpage, web_search

KEY = "hunter2-hunter2"
HERE = ("127.0.0.1",)


def at(root: Path, provider: str, server: WebServer, **more: Any) -> Desk:
    url = server.url + {"brave": "/brave", "tavily": "/tavily", "searxng": ""}[provider]
    return desk(root, web=Web(**{"allow": HERE, "search": provider, "key": KEY, "search_url": url, **more}))


def search(where: Desk, query: str = "notebooks", **more: Any) -> str:
    return asyncio.run(called(web_search, where, query=query, **more))


def no_search(where: Desk, query: str = "notebooks", **more: Any) -> str:
    return asyncio.run(refused(web_search, where, query=query, **more))


def found(*hits: tuple[str, str, str], provider: str) -> Any:
    """Return what a provider answers, in the form of a recorded answer of its own."""
    if provider == "brave":
        results = [
            {"title": title, "url": url, "is_source_local": False, "description": text, "profile": {"name": "x"}}
            for title, url, text in hits
        ]
        return {
            "type": "search",
            "query": {"original": "q"},
            "mixed": {},
            "web": {"type": "search", "results": results},
        }
    results = [
        {"title": title, "url": url, "content": text, "score": 0.9, "raw_content": None, "engine": "x"}
        for title, url, text in hits
    ]
    if provider == "tavily":
        return {"query": "q", "answer": None, "images": [], "results": results, "response_time": 0.9}
    return {"query": "q", "number_of_results": 0, "results": results, "answers": [], "unresponsive_engines": []}


HITS = (
    ("Project Jupyter", "https://jupyter.org/", "Free software, open standards"),
    ("笔记本", "https://example.cn/%E7", "中文 摘要"),
    ("Third", "https://example.com/3", ""),
)
OWN = ("brave", "tavily", "searxng")


def telling(data: Any, status: int = 200) -> Callable[[str], Any]:
    body = data if isinstance(data, (bytes, str)) else json.dumps(data)
    return lambda _: answer(body, status, content_type="application/json")


# -- searching --------------------------------------------------------------------------


@pytest.mark.parametrize("provider", OWN)
def test_a_search_shows_title_address_and_summary_by_number(tmp_path: Path, provider: str) -> None:
    with serving({"*": telling(found(*HITS, provider=provider))}) as server:
        text = search(at(tmp_path, provider, server), "notebooks & kernels", count=5)
    assert text.split("\n")[:6] == [
        "1. Project Jupyter",
        "   https://jupyter.org/",
        "   Free software, open standards",
        "2. 笔记本",
        "   https://example.cn/%E7",
        "   中文 摘要",
    ]


def test_each_provider_is_asked_in_its_own_way(tmp_path: Path) -> None:
    for provider in OWN:
        with serving({"*": telling(found(*HITS, provider=provider))}) as server:
            search(at(tmp_path, provider, server), "a b&c", count=3)
            (said,) = server.requests
        if provider == "brave":
            assert said.startswith("GET /brave?q=a+b%26c&count=3 ")
            assert f"X-Subscription-Token: {KEY}\r\n" in said
        elif provider == "tavily":
            assert said.startswith("POST /tavily ")
            assert f"Authorization: Bearer {KEY}\r\n" in said
            assert json.loads(said.partition("\r\n\r\n")[2]) == {"query": "a b&c", "max_results": 3}
        else:
            assert said.startswith("GET /search?q=a+b%26c&format=json ")
            assert KEY not in said


def test_what_brave_marks_up_becomes_plain_text(tmp_path: Path) -> None:
    hit = ("A &amp; B", "https://x.test/?a=1&b=2", "The <strong>best</strong> of 1 < 2 &#39;quoted&#39;")
    with serving({"*": telling(found(hit, provider="brave"))}) as server:
        text = search(at(tmp_path, "brave", server))
    assert text == "1. A & B\n   https://x.test/?a=1&b=2\n   The best of 1 < 2 'quoted'"


@pytest.mark.parametrize("provider", OWN)
def test_no_results_say_so(tmp_path: Path, provider: str) -> None:
    with serving({"*": telling(found(provider=provider))}) as server:
        assert search(at(tmp_path, provider, server)) == "[no results; try other words]"


def test_searxng_shows_no_more_than_was_asked_for(tmp_path: Path) -> None:
    with serving({"*": telling(found(*HITS, provider="searxng"))}) as server:
        assert "2. " not in search(at(tmp_path, "searxng", server), count=1)


@pytest.mark.parametrize("provider", OWN)
@pytest.mark.parametrize(
    ("status", "told"),
    [
        (401, "its key is refused"), (403, "its key is refused"), (429, "too many requests, try again later"),
        (400, "400"), (404, "404"), (500, "500"), (502, "502"), (204, "204"),
    ],
)  # fmt: skip
def test_a_provider_that_refuses_is_told_in_one_line_without_the_key(
    tmp_path: Path, provider: str, status: int, told: str
) -> None:
    with serving({"*": telling("" if status == 204 else {"error": KEY}, status)}) as server:
        said = no_search(at(tmp_path, provider, server))
    assert said.startswith(f"the search failed: {provider} answered {status}")
    assert told in said
    assert KEY not in said


@pytest.mark.parametrize("provider", OWN)
@pytest.mark.parametrize(
    "body",
    [b"", b"<html>Sorry</html>", b"\xff\xfe\x00", b"[", b"[" * 100_000, b"nul", b'"text"', b"[1, 2]", b"17", b"NaN",
     b'{"results": [}'],
)  # fmt: skip
def test_what_is_no_answer_of_a_provider_is_told(tmp_path: Path, provider: str, body: bytes) -> None:
    with serving({"*": telling(body)}) as server:
        assert f"the search failed: {provider} answered " in no_search(at(tmp_path, provider, server))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["web", "results", "title", "url", "content", "description"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("provider", OWN)
def test_an_answer_of_any_form_is_read_or_told(tmp_path: Path, provider: str) -> None:
    told: dict[str, Any] = {}
    with serving({"*": lambda _: answer(json.dumps(told["data"]))}) as server:
        where = at(tmp_path, provider, server)

        @given(st.dictionaries(st.sampled_from(["web", "results", "error"]), _JSON, max_size=3))
        def read(data: Any) -> None:
            told["data"] = data
            text = search(where)
            assert text.startswith(("1. ", "[no results"))

        read()


@pytest.mark.parametrize("provider", OWN)
def test_a_provider_that_is_not_there_is_told(tmp_path: Path, provider: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    where = at(tmp_path, provider, WebServer({}, port=port))
    assert no_search(where).startswith(f"the search failed: {provider}: 127.0.0.1 cannot be reached")


@pytest.mark.containment
def test_a_key_is_not_sent_to_where_a_provider_redirects(tmp_path: Path) -> None:
    with serving({"*": telling(found(*HITS, provider="brave"))}) as other:
        with serving({"*": lambda _: redirect(f"{other.url}/x")}) as server:
            search(at(tmp_path, "brave", server))
        assert len(other.requests) == 1
        assert KEY not in other.requests[0]


@pytest.mark.containment
def test_a_provider_at_a_private_address_is_asked_only_when_it_is_opened(tmp_path: Path) -> None:
    with serving({"*": telling(found(*HITS, provider="searxng"))}) as server:
        assert "no public address" in no_search(at(tmp_path, "searxng", server, allow=()))
        assert server.connections == 0


@pytest.mark.containment
def test_a_provider_that_answers_without_end_is_left(tmp_path: Path) -> None:
    with serving({"*": lambda _: [b"HTTP/1.1 200 OK\r\n\r\n[", *[b"1," * 50_000] * 100]}) as server:
        assert "has more than" in no_search(at(tmp_path, "searxng", server))


@pytest.mark.parametrize("query", ["", "  ", "\n"])
def test_an_empty_query_is_refused(tmp_path: Path, query: str) -> None:
    assert no_search(desk(tmp_path), query) == "query: must not be empty"


@pytest.mark.parametrize("count", [0, 21, -1, "many"])
def test_a_count_out_of_range_is_refused(tmp_path: Path, count: object) -> None:
    assert "count" in no_search(desk(tmp_path), count=count)


def test_settings_that_are_missing_are_named(tmp_path: Path) -> None:
    assert "known are ddgs, brave, tavily, searxng" in no_search(desk(tmp_path, web=Web(search="altavista")))
    for provider in ("brave", "tavily"):
        assert f"{provider} has no key" in no_search(desk(tmp_path, web=Web(search=provider)))
    assert "search_url" in no_search(desk(tmp_path, web=Web(search="searxng")))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_kernel_that_is_offline_says_so(tmp_path: Path, provider: str) -> None:
    where = desk(tmp_path, web=Web(offline=True, search=provider, key=KEY, search_url="https://example.com/"))
    assert "offline" in no_search(where)


def test_offline_a_provider_of_this_machine_can_still_be_opened(tmp_path: Path) -> None:
    with serving({"*": telling(found(*HITS, provider="searxng"))}) as server:
        assert search(at(tmp_path, "searxng", server, offline=True)).startswith("1. Project Jupyter")


def test_ddgs_without_a_network_says_so_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def proxy(_: str) -> list[bytes]:
        return answer("no way out", 502)

    with serving({"*": proxy}) as way:
        monkeypatch.setenv("DDGS_PROXY", way.url)  # the library's own setting: every engine goes through it
        said = no_search(desk(tmp_path))
    assert said.startswith("the search failed (")
    assert said.endswith("is there a network? Try again later, or other words")
    assert len(said) < 400
    assert way.requests
    assert all(request.startswith("CONNECT ") for request in way.requests)


@pytest.mark.parametrize(("tool", "arguments", "module"), [
    (web_search, {"query": "x"}, "ddgs"), (extract_webpage, {"url": "{url}"}, "trafilatura"),
])  # fmt: skip
def test_a_missing_extra_is_named_with_the_way_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: Any, arguments: dict[str, str], module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with serving({"*": lambda _: answer("<p>x", content_type="text/html")}) as server:
        given_ = {name: value.replace("{url}", server.url) for name, value in arguments.items()}
        said = asyncio.run(refused(tool, desk(tmp_path, web=Web(allow=HERE)), **given_))
    assert "pip install 'astrion-nb[web]'" in said


# -- pages ------------------------------------------------------------------------------


def page(root: Path, body: bytes | str, kind: str = "text/html; charset=utf-8", **more: Any) -> str:
    with serving({"*": lambda _: answer(body, content_type=kind)}) as server:
        where = desk(root, web=Web(allow=HERE))
        text = asyncio.run(called(extract_webpage, where, url=f"{server.url}/dir/page", **more))
        return text.replace(server.url, "http://here")


ARTICLE = """<!doctype html><html><head><title>Kernels</title><style>p {color: red}</style>
<script>var hidden = "not text";</script></head><body>
<nav><a href="/">Home</a> <a href="/about">About us</a></nav>
<main><article><h1>Kernels in short</h1>
<p>A kernel runs the code of a notebook; see <a href="protocol#top">the protocol</a> for how it is asked to.</p>
<h2>Kinds</h2><ul><li>Those of Python, which are many</li><li>Those of other languages</li></ul>
<table><tr><th>Name</th><th>Language</th></tr><tr><td>ipykernel</td><td>Python</td></tr><tr><td>IRkernel</td><td>R</td></tr></table>
<pre><code>def run(cell):
    return cell &lt; 1</code></pre>
<p>&copy; and &#x4e2d;&#25991; are letters, too; this is the last paragraph of the text.</p></article></main>
<footer>Cookies and imprint</footer></body></html>"""


def test_a_page_becomes_its_main_text_with_headings_lists_tables_code_and_links(tmp_path: Path) -> None:
    text = page(tmp_path, ARTICLE)
    assert text.startswith("[http://here/dir/page]\n")
    for part in (
        "# Kernels in short", "## Kinds", "- Those of other languages", "| ipykernel | Python |",
        "[the protocol](http://here/dir/protocol#top)", "def run(cell):\n    return cell < 1", "© and 中文",
    ):  # fmt: skip
        assert part in text
    for part in ("not text", "color: red", "Cookies"):
        assert part not in text


@pytest.mark.parametrize(("href", "to"), [
    ("x", "http://here/dir/x"), ("/x", "http://here/x"), ("../x", "http://here/x"), ("?q=1", "http://here/dir/page?q=1"),
    ("//other.test/x", "http://other.test/x"), ("https://other.test/", "https://other.test/"), (" x ", "http://here/dir/x"),
])  # fmt: skip
def test_links_lead_where_a_reader_of_the_page_would_come(tmp_path: Path, href: str, to: str) -> None:
    assert f"[the way]({to})" in page(tmp_path, f"<p>Some words of a text, and <a href='{href}'>the way</a> on.</p>")


def test_links_are_relative_to_the_base_that_a_page_names(tmp_path: Path) -> None:
    body = "<head><base href='/other/'></head><p>Some words of a text, and <a href='x'>the way</a> on.</p>"
    assert "[the way](http://here/other/x)" in page(tmp_path, body)


def test_a_page_of_links_keeps_them(tmp_path: Path) -> None:
    links = "".join(f"<li><a href='p{number}?a=1&amp;b=2'>Page {number}</a></li>" for number in range(30))
    text = page(tmp_path, f"<html><body><h1>Index</h1><ul>{links}</ul></body></html>")
    assert "- [Page 29](http://here/dir/p29?a=1&b=2)" in text
    assert "# Index" in text


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("中文网页".encode("gb2312"), "text/html; charset=gb2312"),
        ("中文网页".encode("gb18030"), "text/html; charset=GBK"),
        (b"<meta charset=gb2312><p>" + "中文网页的一段内容，写在这里供检测编码。".encode("gb2312"), "text/html"),
        ("<p>中文网页".encode("utf-8-sig"), "text/html"),
        ("<p>中文网页".encode("utf-16"), "text/html"),
        ("<p>Café 中文网页".encode("gb18030"), "text/html; charset=gb18030"),
        ("中文网页".encode(), "text/plain"),
        ("中文网页".encode("utf-16"), "text/plain; charset=utf-8"),
        ("中文网页".encode(), "text/plain; charset=no-such-thing"),
        ('"中文网页"'.encode(), "application/json"),
        ("中文网页".encode("gb18030"), "text/csv; charset=gb18030"),
        ("<rss><title>中文网页</title></rss>".encode(), "application/rss+xml"),
        (
            "<html xmlns='http://www.w3.org/1999/xhtml'><body><p>中文网页</p></body></html>".encode(),
            "application/xhtml+xml",
        ),
    ],
)
def test_encodings_are_read(tmp_path: Path, body: bytes, kind: str) -> None:
    assert "中文网页" in page(tmp_path, body, kind)


@pytest.mark.containment
@pytest.mark.parametrize(
    "charset",
    [
        "punycode",
        "idna",
        "undefined",
        "hex",
        "zip",
        "rot13",
        "unicode_escape",
        "utf-8\u2603",
        "a" * 999,
        "mbcs",
        "base64",
    ],
)
def test_an_encoding_that_is_none_of_pages_does_no_harm(tmp_path: Path, charset: str) -> None:
    began = time.monotonic()
    assert "plain-text" in page(tmp_path, b"plain-text " + b"a" * 500_000, f"text/plain; charset={charset}")
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "body",
    ["", " \n ", "<html></html>", "<html><body></body></html>", "<body><script>document.write('x')</script></body>",
     "<body><div id='root'></div><script src='app.js'></script></body>", "<!-- only a comment -->",
     "<style>p{}</style>"],
)  # fmt: skip
def test_a_page_without_text_says_that_scripts_may_make_it(tmp_path: Path, body: str) -> None:
    assert page(tmp_path, body) == "[http://here/dir/page holds no text; it may be made by scripts]"


@pytest.mark.parametrize(
    "body",
    ["<p>unclosed <b>bold <i>both</b> found", "found", "<<<>>> found <", "<a href='http://[bad'>found</a>",
     "<p>found\0found",
     "<table><tr><td><table><tr><td>found</table>", "<a href=''>found</a>", "<html><body>found</html></body>trailing",
     "<base href='http://elsewhere.test/'><p>found <a href='x'>y</a>", "<?xml version='1.0' encoding='utf-8'?><p>found",
     "<a href='/x'>" + "<a href='/y'>" * 50 + "found", "<p>found" + "<![CDATA[" * 50],
)  # fmt: skip
def test_broken_markup_is_read_as_far_as_it_goes(tmp_path: Path, body: str) -> None:
    assert "found" in page(tmp_path, body)


def test_a_long_page_is_read_on_from_where_it_was_left(tmp_path: Path) -> None:
    whole = "".join(f"line {number} of the text\n" for number in range(3000))
    first = page(tmp_path, whole, "text/plain")
    head, _, text = first.partition("\n")
    assert head == f"[http://here/dir/page; characters 0 to {MOST_TEXT} of {len(whole)}; go on with start={MOST_TEXT}]"
    start = MOST_TEXT
    while start < len(whole):
        text += page(tmp_path, whole, "text/plain", start=start).partition("\n")[2]
        start += MOST_TEXT
    assert text == whole


def test_a_start_behind_the_end_is_refused(tmp_path: Path) -> None:
    with serving({"*": lambda _: answer("short")}) as server:
        said = asyncio.run(refused(extract_webpage, desk(tmp_path, web=Web(allow=HERE)), url=server.url, start=99))
    assert said == "start: the text has 5 characters"


@pytest.mark.parametrize(
    "kind", ["image/png", "application/pdf", "video/mp4", "application/octet-stream", "application/zip", "font/woff2"]
)
def test_what_is_no_text_is_refused_by_its_kind(tmp_path: Path, kind: str) -> None:
    with serving({"*": lambda _: answer(b"\x89PNG", content_type=kind)}) as server:
        assert kind in asyncio.run(refused(extract_webpage, desk(tmp_path, web=Web(allow=HERE)), url=server.url))


def test_what_says_it_is_text_and_is_not_is_refused(tmp_path: Path) -> None:
    with serving({"*": lambda _: answer(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + os.urandom(500))}) as server:
        said = asyncio.run(refused(extract_webpage, desk(tmp_path, web=Web(allow=HERE)), url=server.url))
    assert "is no text" in said


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 418, 429, 500, 503])
def test_a_page_that_is_not_there_is_told_with_its_status(tmp_path: Path, status: int) -> None:
    with serving({"*": lambda _: answer("<p>Sorry", status)}) as server:
        said = asyncio.run(refused(extract_webpage, desk(tmp_path, web=Web(allow=HERE)), url=server.url))
    assert said == f"url: {server.url} answered {status}"


def test_where_a_redirect_has_led_is_shown(tmp_path: Path) -> None:
    with serving({"/": lambda _: redirect("/end"), "/end": lambda _: answer("text")}) as server:
        text = asyncio.run(called(extract_webpage, desk(tmp_path, web=Web(allow=HERE)), url=f"{server.url}/"))
    assert text == f"[{server.url}/end]\ntext"


# -- pages that attack ------------------------------------------------------------------

SENTENCE = "<p>Sentence {} of some words that goes on for a while with <b>bold</b> and <a href='/{}'>a link</a>.</p>"
ODD = {
    "long": "<html><body><article>"
    + "".join(SENTENCE.format(n, n) for n in range(30_000))
    + "</article></body></html>",
    "deep": "<div>" * 200_000 + "found" + "</div>" * 200_000,
    "open": "<p>found" + "<p>a" * 1_000_000,
    "links in links": "<a href=x>" * 500_000 + "found",
    "one attribute": "<p>found</p><p title='" + "x" * 8_000_000 + "'>",
    "many attributes": "<p " + " ".join(f"a{n}=b" for n in range(200_000)) + ">found",
    "tables in tables": "<table><tr><td>" * 20_000 + "found",
    "entities": "<p>found" + "&lt;" * 1_500_000,
    "comments": "<p>found" + "<!--" * 1_000_000,
    "long base": "<p>found" + f"<a href='/{'x' * 3000}'>y</a>" * 2_500,
}


@pytest.mark.containment
@pytest.mark.parametrize("name", ODD)
def test_an_odd_page_takes_bounded_time_and_gives_bounded_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(web, "PATIENCE", 4.0)
    where = desk(tmp_path, web=Web(allow=HERE))
    longest = 0.0

    async def go(url: str) -> str:
        nonlocal longest
        task = asyncio.create_task(called(extract_webpage, where, url=url))
        while not task.done():
            before = time.thread_time()
            await asyncio.wait((task,), timeout=0.05)
            longest = max(longest, time.thread_time() - before)
        return await task

    with serving({"*": lambda _: answer(ODD[name], content_type="text/html; charset=utf-8")}) as server:
        began = time.monotonic()
        try:
            text = asyncio.run(go(f"{server.url}/page"))
        except Exception as error:
            text = str(error)
            assert "odd page" in text
        assert time.monotonic() - began < 15
    assert len(text) < MOST_TEXT + 300
    assert longest < 0.5, "the event loop is not where a page is read"
    if name in ("long", "one attribute", "entities"):
        assert "odd page" not in text


@pytest.mark.containment
def test_a_page_bomb_is_refused_before_it_is_read(tmp_path: Path) -> None:
    import gzip

    bomb = gzip.compress(b"<p>" + bytes(50_000_000))
    with serving({"*": lambda _: answer(bomb, content_type="text/html", content_encoding="gzip")}) as server:
        said = asyncio.run(refused(extract_webpage, desk(tmp_path, web=Web(allow=HERE)), url=server.url))
    assert "has more than 10,000,000 bytes" in said


@pytest.mark.containment
def test_a_call_that_is_cancelled_ends_the_reading_of_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACE", "page-that-is-read-for-long")

    async def go(url: str) -> None:
        task = asyncio.create_task(called(extract_webpage, desk(tmp_path, web=Web(allow=HERE)), url=url))
        assert await asyncio.to_thread(until, lambda: carrying("page-that-is-read-for-long"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)

    with serving({"*": lambda _: answer(ODD["long"], content_type="text/html")}) as server:
        asyncio.run(go(server.url))
    assert until(lambda: not carrying("page-that-is-read-for-long"), 2)


@pytest.mark.containment
def test_reading_a_page_is_bounded_from_within() -> None:
    found = subprocess.run(
        [sys.executable, "-P", "-c", "import runpy, sys, resource as r\n"
         "main = runpy.run_path(sys.argv[1])\nmain['bound']()\n"
         "print(r.getrlimit(r.RLIMIT_CPU)[0], r.getrlimit(r.RLIMIT_AS)[0])", pages.__file__],
        capture_output=True, text=True, check=True, timeout=20,
    )  # fmt: skip
    assert found.stdout.split() == [str(pages.MOST_CPU), str(pages.MOST_MEMORY)]


@given(st.text("<>/abp h1='\"&;!-\n中", max_size=80))
def test_any_markup_has_a_text(text: str) -> None:
    tree = pages.parsed(text, "http://x.test/")
    if tree is not None:
        said, share = pages.simple(tree)
        assert "<script" not in said
        assert 0.0 <= share <= 1.0


@pytest.mark.containment
@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "http://127.0.0.1/", "http://169.254.169.254/", "ftp://x/", "http://u:p@x/", "", "x" * 9000],
)
def test_a_page_that_may_not_be_reached_is_not(tmp_path: Path, url: str) -> None:
    assert asyncio.run(refused(extract_webpage, desk(tmp_path), url=url)).startswith("url: ")


def test_what_is_asked_for_is_shown_before(tmp_path: Path) -> None:
    assert extract_webpage.preview is not None
    assert extract_webpage.preview({"url": "https://x.test/"}, desk(tmp_path)) == "GET https://x.test/"
    assert (web_search.effect, extract_webpage.effect) == ("read", "net")
