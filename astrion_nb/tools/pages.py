"""Makes the text of one page: a program of its own, because a page can make that take for ever.

    python -P pages.py main|simple URL CHARSET < PAGE > TEXT

``main`` gives the main text (trafilatura), but of a page that is mostly links, or of which nothing would
be left, all of it; ``simple`` gives all of it at once. Both write Markdown. Time and memory are bounded
from within, too, should nobody be left to end this.

Knows nothing of the package.
"""

import codecs
import contextlib
import sys
from typing import Any
from urllib.parse import urljoin

MOST_CPU = 30
"""Seconds of a processor."""
MOST_MEMORY = 2_000_000_000
"""Bytes."""
MOST_TEXT = 4_000_000
"""Characters of a text."""
MOST_LOOKED_AT = 200_000
"""Bytes by which an encoding is told."""

_UNSEEN = frozenset({"script", "style", "head", "noscript", "template", "svg", "iframe", "object"})
_INLINE = frozenset(
    ("a", "abbr", "b", "button", "cite", "code", "em", "font", "i", "img", "input", "kbd", "label", "mark", "q", "s",
     "small", "span", "strong", "sub", "sup", "td", "th", "time", "u", "var")
)  # fmt: skip


_BEGINS = {"li": "\n- ", "td": " | ", "th": " | "} | {f"h{n}": f"\n{'#' * n} " for n in range(1, 7)}


def bound() -> None:
    """Bound this process, where the system can."""
    with contextlib.suppress(ImportError):
        import resource

        for what, most in ((resource.RLIMIT_CPU, MOST_CPU), (resource.RLIMIT_AS, MOST_MEMORY)):
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(what, (most, most))


def decoded(data: bytes, charset: str) -> str:
    """Return a page as text; without a charset by what it says itself, or looks like."""
    if charset:
        return data.decode(charset, "replace")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    with contextlib.suppress(UnicodeDecodeError):
        return data.decode("utf-8-sig")
    from trafilatura.utils import detect_encoding

    for guess in detect_encoding(data[:MOST_LOOKED_AT]):
        with contextlib.suppress(LookupError, UnicodeError):
            return data.decode(guess, "replace")
    return data.decode("utf-8", "replace")


def parsed(text: str, url: str) -> Any:
    """Return a page's tree, its links absolute; or nothing."""
    from lxml import etree

    parser = etree.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True)
    tree = None
    with contextlib.suppress(etree.LxmlError, ValueError):
        tree = etree.fromstring(text.encode("utf-8", "replace"), parser)
    if tree is None:
        return None
    for base in tree.iter("base"):
        if base.get("href"):
            with contextlib.suppress(ValueError):
                url = urljoin(url, base.get("href").strip())
            break
    for link in tree.iter("a"):
        if link.get("href"):
            with contextlib.suppress(ValueError):
                link.set("href", urljoin(url, link.get("href").strip()))
    return tree


def simple(tree: Any) -> tuple[str, float]:
    """Return all text of a page with its links, and what share of it is links."""
    from lxml import etree

    out: list[str] = []
    size = linked = hidden = 0
    href: list[tuple[int, str]] = []

    def add(text: str | None) -> None:
        nonlocal size, linked
        if text and not hidden:
            words = " ".join(text.split())
            if words:
                out.append((" " if text[0].isspace() else "") + words + (" " if text[-1].isspace() else ""))
                size += len(words)
                linked += len(words) if href else 0
            elif text:
                out.append(" ")

    for event, element in etree.iterwalk(tree, events=("start", "end")):
        tag = element.tag if isinstance(element.tag, str) else ""
        if event == "start":
            hidden += tag in _UNSEEN
            if not hidden:
                out.append(_BEGINS.get(tag, "" if tag in _INLINE else "\n"))
                if tag == "a" and element.get("href"):
                    href.append((len(out), element.get("href")))
            add(element.text)
        else:
            if tag == "a" and href and not hidden and element.get("href"):
                start, to = href.pop()
                if "".join(out[start:]).strip():
                    out.insert(start, "[")
                    out.append(f"]({to})")
            hidden -= tag in _UNSEEN
            if not hidden and tag not in _INLINE:
                out.append("\n")
            add(element.tail)
        if size > MOST_TEXT:
            break
    lines = (" ".join(line.split()) for line in "".join(out)[: 2 * MOST_TEXT].split("\n"))
    text = "\n".join(line for line in lines if line and line != "-")
    return text, linked / size if size else 0.0


def main_text(tree: Any, url: str) -> str:
    """Return a page's main text."""
    import trafilatura
    from lxml import etree

    found = trafilatura.extract(
        etree.tostring(tree, method="html", encoding="unicode"),
        url=url,
        output_format="markdown",
        include_links=True,
        include_tables=True,
        with_metadata=False,
    )
    return found or ""


def main(how: str, url: str, charset: str) -> None:
    """Read a page, write its text."""
    bound()
    tree = parsed(decoded(sys.stdin.buffer.read(), charset), url)
    text, share = simple(tree) if tree is not None else ("", 0.0)
    if how == "main" and tree is not None and share < 0.5:
        text = main_text(tree, url) or text
    sys.stdout.buffer.write(text[:MOST_TEXT].encode("utf-8", "replace"))


if __name__ == "__main__":
    main(*sys.argv[1:4])
