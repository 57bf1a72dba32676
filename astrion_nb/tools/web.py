"""``web_search`` and ``extract_webpage``: the web as text that a model can use.

Knows providers of searches; sockets are :mod:`~astrion_nb.tools.net`'s matter, and what a page's main
text is :mod:`~astrion_nb.tools.pages`'s, which runs as a process of its own that can be ended. What a
page says is told as a page's words: data, no instruction.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import html
import json
import os
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, Any
from urllib.parse import urlencode

from pydantic import Field

from ..errors import ToolError
from ..given import shown
from . import pages
from .desk import Desk, Web
from .files import desk_of
from .net import Answer, fetch
from .process import environment
from .registry import ToolContext, tool
from .threads import in_thread

MOST_TEXT = 20_000
"""Characters of a page that one call shows."""
MOST_FOUND = 2_000_000
"""Bytes of what a search provider answers."""
PATIENCE = 15.0
"""Seconds in which a page's main text is looked for; then all of its text is taken."""
_INSTALL = "a person can install it (pip install 'astrion-nb[web]')"
_TEXTS = ("text/", *(f"application/{kind}" for kind in (
    "json", "xml", "xhtml+xml", "javascript", "ecmascript", "yaml", "x-yaml", "toml", "x-ndjson", "sql", "x-sh",
)))  # fmt: skip
_PAGES = ("", "text/html", "application/xhtml+xml")
# Encodings of names and of programs' texts: no page is in one, and reading some takes for ever.
_NO_CHARSETS = frozenset({"idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape", "mbcs", "oem"})
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,100}>")


@dataclass(frozen=True, slots=True)
class Hit:
    """One result of a search.

    Parameters
    ----------
    title, url, text : str
    """

    title: str
    url: str
    text: str


# -- searching --------------------------------------------------------------------------


async def _ddgs(query: str, count: int, web: Web) -> list[Hit]:
    try:
        from ddgs import DDGS
        from ddgs.exceptions import DDGSException
    except ImportError:
        raise ToolError(f"web_search needs an extra: {_INSTALL}") from None

    def ask() -> list[dict[str, Any]]:
        try:
            return DDGS(timeout=15).text(query, max_results=count)
        except Exception as error:  # of a library that reads pages of a dozen engines, anything
            if isinstance(error, DDGSException) and "no results" in str(error).lower():
                return []
            told = _line(str(error), 200)
            raise ToolError(
                f"the search failed ({told}); is there a network? Try again later, or other words"
            ) from None

    found = await in_thread(ask, {})
    return [Hit(str(one.get("title", "")), str(one.get("href", "")), str(one.get("body", ""))) for one in found]


async def _brave(query: str, count: int, web: Web) -> list[Hit]:
    at = web.search_url or "https://api.search.brave.com/res/v1/web/search"
    data = await _json(f"{at}?{urlencode({'q': query, 'count': count})}", web, {"X-Subscription-Token": web.key})
    found = data.get("web")
    hits = _hits(found.get("results") if isinstance(found, dict) else None, "title", "url", "description")
    return [Hit(_untagged(hit.title), hit.url, _untagged(hit.text)) for hit in hits]


async def _tavily(query: str, count: int, web: Web) -> list[Hit]:
    at = web.search_url or "https://api.tavily.com/search"
    body = json.dumps({"query": query, "max_results": count}).encode()
    headers = {"Authorization": f"Bearer {web.key}", "Content-Type": "application/json"}
    return _hits((await _json(at, web, headers, body)).get("results"), "title", "url", "content")


async def _searxng(query: str, count: int, web: Web) -> list[Hit]:
    if not web.search_url:
        raise ToolError("searxng has no address: a person can configure search_url")
    data = await _json(f"{web.search_url.rstrip('/')}/search?{urlencode({'q': query, 'format': 'json'})}", web, {})
    return _hits(data.get("results"), "title", "url", "content")[:count]


Provider = Callable[[str, int, Web], Awaitable[list[Hit]]]
PROVIDERS: dict[str, Provider] = {"ddgs": _ddgs, "brave": _brave, "tavily": _tavily, "searxng": _searxng}
"""What ``web_search`` can ask, by name."""
KEYED = frozenset({"brave", "tavily"})
"""Those of them that need a key."""


async def _json(url: str, web: Web, headers: Mapping[str, str], body: bytes | None = None) -> dict[str, Any]:
    said = {"Accept": "application/json", **headers}
    try:
        answer = await fetch(url, web, headers=said, body=body, limit=MOST_FOUND)
    except ToolError as error:
        raise ToolError(f"the search failed: {web.search}: {str(error).removeprefix('url: ')}") from None
    if answer.status != 200:
        raise ToolError(f"the search failed: {web.search} answered {answer.status}{_why(answer)}")
    try:
        data = json.loads(answer.data)
    except (ValueError, RecursionError):
        raise ToolError(f"the search failed: {web.search} answered no JSON") from None
    if not isinstance(data, dict):
        raise ToolError(f"the search failed: {web.search} answered another JSON than it documents")
    return data


def _untagged(text: str) -> str:
    """Return the plain text of what a provider has marked up."""
    return html.unescape(_TAG.sub("", text))


def _why(answer: Answer) -> str:
    hints = {401: "its key is refused", 403: "its key is refused", 429: "too many requests, try again later"}
    return f" ({hints[answer.status]})" if answer.status in hints else ""


def _hits(found: Any, title: str, url: str, text: str) -> list[Hit]:
    items = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    return [Hit(*(str(one.get(key) or "") for key in (title, url, text))) for one in items]


@tool(
    name="web_search",
    description="在网络上搜索，返回标题、网址和摘要。需要细节时再用 extract_webpage 打开网页。",
    effect="read",
)
async def web_search(
    context: ToolContext,
    query: Annotated[str, "搜索词。"],
    count: Annotated[int, Field(ge=1, le=20), "结果数量。"] = 8,
) -> str:
    """Return what a search engine finds."""
    if not query.strip():
        raise ToolError("query: must not be empty")
    web = desk_of(context).web
    provider = PROVIDERS.get(web.search)
    if provider is None:
        raise ToolError(f"there is no search provider {shown(web.search)}; known are {', '.join(PROVIDERS)}")
    if web.search in KEYED and not web.key:
        raise ToolError(f"the search provider {web.search} has no key: a person can configure it")
    if web.offline and not (web.search_url and web.allow):
        raise ToolError("web_search: this kernel is offline (ASTRION_OFFLINE); work with what is in the workspace")
    found = await provider(query, count, web)
    if not found:
        return "[no results; try other words]"
    lines = [
        f"{number}. {_line(hit.title)}\n   {_line(hit.url)}\n   {_line(hit.text)}"
        for number, hit in enumerate(found, 1)
    ]
    return "\n".join(lines)


def _line(text: str, most: int = 400) -> str:
    one = " ".join(text.split())
    return one if len(one) <= most else one[:most] + "…"


# -- pages ------------------------------------------------------------------------------


def _preview(arguments: Mapping[str, Any], desk: Desk) -> str:
    return f"GET {arguments['url']}"


@tool(
    name="extract_webpage",
    description="打开网页并返回正文文本（保留标题、列表与链接）。较长的网页用 start 继续读取。",
    effect="net",
    preview=_preview,
)
async def extract_webpage(
    context: ToolContext,
    url: Annotated[str, "网址，以 http:// 或 https:// 开头。"],
    start: Annotated[int, Field(ge=0), "从第几个字符开始，用于继续读取。"] = 0,
) -> str:
    """Return a page's main text."""
    answer = await fetch(url, desk_of(context).web, accepts=_readable)
    if answer.status >= 400:
        raise ToolError(f"url: {answer.url} answered {answer.status}")
    text = await _text(answer)
    if not text.strip():
        return f"[{answer.url} holds no text; it may be made by scripts]"
    if start >= len(text):
        raise ToolError(f"start: the text has {len(text)} characters")
    part = text[start : start + MOST_TEXT]
    end = start + len(part)
    notes = [answer.url]
    if start or end < len(text):
        notes.append(f"characters {start} to {end} of {len(text)}")
    if end < len(text):
        notes.append(f"go on with start={end}")
    return f"[{'; '.join(notes)}]\n{part}"


def _readable(kind: str) -> bool:
    return kind == "" or kind.startswith(_TEXTS) or kind.endswith(("+json", "+xml"))


async def _text(answer: Answer) -> str:
    if answer.kind not in _PAGES:
        text = _decoded(answer)
        if "\0" in text[:1000]:
            raise ToolError(f"url: {answer.url} is no text, though it says {answer.kind}")
        return text
    if find_spec("trafilatura") is None:
        raise ToolError(f"extract_webpage needs an extra: {_INSTALL}")
    data, charset = answer.data, ""
    if answer.charset:
        data, charset = _decoded(answer).encode("utf-8", "replace"), "utf-8"
    for how in ("main", "simple"):
        made = await _made(how, answer.url, data, charset)
        if made is not None:
            return made
    raise ToolError(f"url: the text of {answer.url} could not be found within {PATIENCE:g} s; it is an odd page")


async def _made(how: str, url: str, data: bytes, charset: str) -> str | None:
    """Return what :mod:`~astrion_nb.tools.pages` makes of a page; ``None`` when it does not come to an end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", pages.__file__, how, url, charset),
        env=environment(os.environ),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            out, _ = await process.communicate(data)
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return out.decode("utf-8", "replace") if process.returncode == 0 else None


def _decoded(answer: Answer) -> str:
    for mark, encoding in _BOMS:
        if answer.data.startswith(mark):
            return answer.data.decode(encoding, "replace")
    with contextlib.suppress(LookupError, UnicodeError, ValueError):
        if codecs.lookup(answer.charset or "utf-8").name.replace("-", "_") not in _NO_CHARSETS:
            return answer.data.decode(answer.charset or "utf-8", "replace")
    return answer.data.decode("utf-8", "replace")
