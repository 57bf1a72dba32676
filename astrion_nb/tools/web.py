"""``web_search`` and ``extract_webpage``: the web as text that a model can use.

Knows providers of searches and what a page's main text is (trafilatura); sockets are
:mod:`~astrion_nb.tools.net`'s matter. What a page says is told as a page's words: data, no instruction.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

from pydantic import Field

from ..errors import ToolError
from ..given import shown
from .desk import Desk, Web
from .files import desk_of
from .net import Answer, fetch
from .registry import ToolContext, tool

MOST_TEXT = 20_000
"""Characters of a page that one call shows."""
_INSTALL = "a person can install it (pip install 'astrion-nb[web]')"
_TEXTS = ("text/", "application/json", "application/xml", "application/xhtml+xml", "application/javascript")


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
        except DDGSException as error:
            if "no results" in str(error).lower():
                return []
            raise ToolError(f"the search failed ({error}); try again later, or other words") from None

    found = await asyncio.to_thread(ask)
    return [Hit(str(one.get("title", "")), str(one.get("href", "")), str(one.get("body", ""))) for one in found]


async def _brave(query: str, count: int, web: Web) -> list[Hit]:
    at = web.search_url or "https://api.search.brave.com/res/v1/web/search"
    data = await _json(f"{at}?{urlencode({'q': query, 'count': count})}", web, {"X-Subscription-Token": web.key})
    return _hits(data.get("web", {}).get("results"), "title", "url", "description")


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
    answer = await fetch(url, web, headers={"Accept": "application/json", **headers}, body=body)
    if answer.status != 200:
        raise ToolError(f"the search failed: {web.search} answered {answer.status}{_why(answer)}")
    try:
        data = json.loads(answer.data)
    except (ValueError, RecursionError):
        raise ToolError(f"the search failed: {web.search} answered no JSON") from None
    if not isinstance(data, dict):
        raise ToolError(f"the search failed: {web.search} answered another JSON than it documents")
    return data


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
    text = await asyncio.to_thread(_main_text, answer)
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


def _main_text(answer: Answer) -> str:
    if answer.kind not in ("", "text/html", "application/xhtml+xml"):
        return _plain(answer)
    try:
        import trafilatura
    except ImportError:
        raise ToolError(f"extract_webpage needs an extra: {_INSTALL}") from None

    source: str | bytes = answer.data
    if answer.charset:
        source = _plain(answer)
    found = trafilatura.extract(
        source, url=answer.url, output_format="markdown", include_links=True, include_tables=True, with_metadata=False
    )
    return found or ""


def _plain(answer: Answer) -> str:
    try:
        return answer.data.decode(answer.charset or "utf-8", "replace")
    except LookupError:
        return answer.data.decode("utf-8", "replace")
