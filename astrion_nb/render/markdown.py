"""Markdown that a model wrote: into a token tree, and from there into HTML or harmless Markdown.

The tree is the one source of every view. A node is a string (text) or a dict ``{"t": tag, "c":
[nodes]}``, both plain JSON:

==========================  ==========================================================
``p h1 … h6``               blocks of inline nodes
``ul ol li blockquote``     ``ol`` has ``start`` when it is not 1; a tight ``li`` holds its inline
                            nodes without a ``p``
``pre``                     code block: one string, ``lang`` when the fence names one
``table thead tbody tr``    cells ``th td`` have ``align`` (``left center right``) when given
``hr br``                   no children
``em strong s code a``      inline; ``a`` has ``href``; none stands inside one of its own kind
==========================  ==========================================================

Raw HTML is text. An image is a link to it, so nothing is fetched by looking. A link whose address is
not ``http:``, ``https:`` or ``mailto:`` stays the text it was written as. Control characters and
lone surrogates become U+FFFD. A text longer than :data:`LONGEST` characters, nested deeper than
:data:`DEEPEST` or of more than :data:`MOST` blocks is one ``pre``: shown whole, not parsed.

Formulas are not set: ``$…$`` and ``\\(…\\)`` stay the characters they are, also where a page runs MathJax
over the HTML or over what it made of the Markdown.

Knows no conversation, no widget, no theme.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

from ..printable import clean as clean
from .rewrite import write

if TYPE_CHECKING:
    from markdown_it.token import Token

Node = str | dict[str, Any]
"""Text, or an element of the token tree."""

LONGEST = 60_000
"""Characters up to which a text is parsed."""
DEEPEST = 40
"""Levels of nested blocks up to which a text is parsed (a list takes two)."""
MOST = 60_000
"""Beginnings and ends of blocks up to which a text is parsed (short table rows are filled up)."""

_ALLOWED_URL = re.compile(r"(?:https?://|mailto:)[^\s]", re.IGNORECASE)
_URL_REST = re.compile(r"[^A-Za-z0-9\-._:/?#@!&+,;=%]")
_LANGUAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+#.-]{0,31}")
_ALIGN = re.compile(r"text-align:(left|center|right)")
_FORMULA_SIGN = re.compile(r"[$\\]+")
_FLAT = frozenset({"em", "strong", "s", "a"})
_BLOCKS = {
    "paragraph": "p",
    "bullet_list": "ul",
    "ordered_list": "ol",
    "list_item": "li",
    "blockquote": "blockquote",
    "table": "table",
    "thead": "thead",
    "tbody": "tbody",
    "tr": "tr",
    "th": "th",
    "td": "td",
    "em": "em",
    "strong": "strong",
    "s": "s",
    "link": "a",
}


@cache
def _parser() -> Callable[[str], list[Token]]:
    from markdown_it import MarkdownIt

    class Parser(MarkdownIt):
        def validateLink(self, url: str) -> bool:
            return _ALLOWED_URL.match(url) is not None

    options = {"html": False, "linkify": False, "typographer": False, "maxNesting": DEEPEST}
    parse = Parser("commonmark", options).enable(["table", "strikethrough"]).parse
    return lambda text: parse(text)


class _Builder:
    """Turns the parser's flat tokens into the tree."""

    def __init__(self) -> None:
        self.root: list[Node] = []
        self.open: list[dict[str, Any]] = []

    def add(self, node: Node) -> None:
        children: list[Node] = self.open[-1]["c"] if self.open else self.root
        if isinstance(node, str):
            if not node:
                return
            node = clean(node)
            if children and isinstance(children[-1], str):
                children[-1] += node
                return
        children.append(node)

    def opening(self, tag: str, **attributes: Any) -> None:
        # Emphasis inside emphasis says nothing and a link inside a link is not HTML: the inner one
        # keeps its place on the stack and loses its element.
        node = {"t": tag, **attributes, "c": []}
        if tag in _FLAT and any(above["t"] == tag for above in self.open):
            node["c"] = self.open[-1]["c"]
            node["passed"] = True
        else:
            self.add(node)
        self.open.append(node)

    def closing(self) -> None:
        node = self.open.pop()
        if node["t"] == "a" and "passed" not in node and not text_content(node["c"]).strip():
            node["c"][:] = [node["href"]]

    def blocks(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            kind, _, side = token.type.rpartition("_")
            if token.type == "inline":
                self.inline(token.children or ())
            elif token.type in ("fence", "code_block"):
                words = token.info.split(maxsplit=1)
                named = words and _LANGUAGE.fullmatch(words[0])
                code = token.content[:-1] if token.content.endswith("\n") else token.content
                self.add({"t": "pre", **({"lang": words[0]} if named else {}), "c": [clean(code)] if code else []})
            elif token.type == "hr":
                self.add({"t": "hr"})
            elif token.hidden:
                continue
            elif side == "open":
                attributes: dict[str, Any] = {}
                if kind == "ordered_list" and token.attrGet("start") is not None:
                    attributes["start"] = int(token.attrGet("start") or 0)
                align = _ALIGN.search(str(token.attrGet("style") or ""))
                if align is not None:
                    attributes["align"] = align.group(1)
                self.opening(token.tag if kind == "heading" else _BLOCKS[kind], **attributes)
            else:
                self.closing()

    def inline(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            kind, _, side = token.type.rpartition("_")
            if token.type in ("text", "text_special"):
                self.add(token.content)
            elif token.type == "softbreak":
                self.add("\n")
            elif token.type == "hardbreak":
                self.add({"t": "br"})
            elif token.type == "code_inline":
                self.add({"t": "code", "c": [clean(token.content)]})
            elif token.type == "image":
                self.opening("a", href=_href(str(token.attrGet("src") or "")))
                inner = _Builder()
                inner.inline(token.children or ())
                self.add(text_content(inner.root))
                self.closing()
            elif side == "open":
                self.opening(_BLOCKS[kind], **({"href": _href(str(token.attrGet("href")))} if kind == "link" else {}))
            elif side == "close":
                self.closing()
            else:
                self.add(token.content)


def _href(url: str) -> str:
    """Percent-encode what could end or change a link in any of the output forms."""
    return _URL_REST.sub(lambda found: "".join(f"%{byte:02X}" for byte in found.group().encode()), url)


def tree(text: str) -> list[Node]:
    """Parse Markdown (CommonMark with tables and strikethrough) into a token tree.

    Parameters
    ----------
    text : str
        Anything; nothing is refused.

    Returns
    -------
    list of Node
        The module's docstring lists the tags. Equal texts give equal trees.
    """
    text = clean(text)
    if not text.strip():
        return []
    verbatim: list[Node] = [{"t": "pre", "c": [text.strip("\n")]}]
    if len(text) > LONGEST:
        return verbatim
    tokens = _parser()(text)
    # The parser leaves out what is nested deeper than its limit; nothing may be lost here.
    if len(tokens) > MOST or any(token.level >= DEEPEST - 1 for token in tokens):
        return verbatim
    builder = _Builder()
    builder.blocks(tokens)
    return builder.root


def text_content(nodes: Sequence[Node]) -> str:
    """Return the text of a tree, blocks and line breaks parted by ``\\n``."""
    parts: list[str] = []
    for node in nodes:
        if isinstance(node, str):
            parts.append(node)
        elif node["t"] == "br":
            parts.append("\n")
        elif node["t"] in ("em", "strong", "s", "code", "a"):
            parts.append(text_content(node["c"]))
        elif node["t"] != "hr":
            parts.append("\n" + text_content(node["c"]) + "\n")
    return "".join(parts)


_LINE = "rgba(128,128,128,.45)"
_SHADE = "rgba(128,128,128,.14)"
BARE = "background:none;color:inherit;padding:0"
"""Style of a ``code`` that shall not look like one; notebooks shade each by themselves."""
_CELL = f"border:1px solid {_LINE};padding:.25em .6em;text-align:"
_STYLES = {
    "p": "margin:.45em 0;white-space:pre-line",
    "h1": "margin:.7em 0 .35em;font-size:1.3em;font-weight:600",
    "h2": "margin:.7em 0 .35em;font-size:1.2em;font-weight:600",
    "h3": "margin:.6em 0 .3em;font-size:1.1em;font-weight:600",
    "h4": "margin:.6em 0 .3em;font-size:1em;font-weight:600",
    "h5": "margin:.6em 0 .3em;font-size:1em;font-weight:600",
    "h6": "margin:.6em 0 .3em;font-size:1em;font-weight:600",
    "ul": "margin:.35em 0;padding-left:1.6em",
    "ol": "margin:.35em 0;padding-left:1.8em",
    "li": "margin:.1em 0",
    "blockquote": f"margin:.45em 0;padding:0 0 0 .8em;border-left:3px solid {_LINE}",
    "pre": f"margin:.5em 0;padding:.55em .75em;background:{_SHADE};color:inherit;border-radius:4px;"
    "font-size:.92em;line-height:1.45;white-space:pre-wrap;overflow-wrap:anywhere",
    "code": f"padding:.1em .3em;background:{_SHADE};color:inherit;border-radius:3px;font-size:.92em",
    "table": "margin:.5em 0;border-collapse:collapse;width:auto;font-size:.95em",
    "hr": f"margin:.8em 0;border:0;border-top:1px solid {_LINE}",
    "a": "color:inherit;text-decoration:underline",
}


def text_html(text: str) -> str:
    """Return text escaped for HTML, its dollar signs and backslashes apart.

    A page that runs MathJax joins neighbouring text only, so a sign in an element of its own begins
    no formula.
    """
    escaped = escape(text)
    if "$" in escaped or "\\" in escaped:
        return _FORMULA_SIGN.sub(lambda found: f"<span>{found.group()}</span>", escaped)
    return escaped


def _element(node: dict[str, Any]) -> str:
    tag = node["t"]
    if tag == "br":
        return "<br>"
    style = _STYLES.get(tag)
    if tag in ("th", "td"):
        style = _CELL + node.get("align", "left")
    attributes = f' style="{style}"' if style else ""
    if tag == "hr":
        return f"<hr{attributes}>"
    if tag == "a":
        attributes = f' href="{escape(node["href"])}" rel="noopener noreferrer nofollow"' + attributes
    elif tag == "ol" and "start" in node:
        attributes = f' start="{int(node["start"])}"' + attributes
    elif tag == "pre":
        title = f' title="{escape(node["lang"])}"' if "lang" in node else ""
        return f"<pre{title}{attributes}>" + f'<code style="{BARE}">{escape("".join(node["c"]))}</code></pre>'
    if tag == "code":
        return f"<code{attributes}>{escape(''.join(node['c']))}</code>"
    return f"<{tag}{attributes}>{to_html(node['c'])}</{tag}>"


def to_html(nodes: Sequence[Node]) -> str:
    """Return a tree as static HTML: inline styles, no class, no id, every text escaped.

    Parameters
    ----------
    nodes : sequence of Node
        What :func:`tree` returned.

    Returns
    -------
    str
        Readable on light and dark pages: borders and shades are half-transparent grey, text keeps
        the page's colour.
    """
    return "".join(text_html(node) if isinstance(node, str) else _element(node) for node in nodes)


def safe_markdown(text: str) -> str:
    """Return a model's Markdown, written anew so that a trusted viewer runs none of it.

    Notebook front ends run raw HTML in a trusted ``text/markdown`` output. So the text is parsed into
    the tree and written back from it: what was raw HTML, an image, a refused link or a formula is
    escaped text, and every construct has the one form on which viewers agree
    (:mod:`~astrion_nb.render.rewrite` says which).

    Parameters
    ----------
    text : str

    Returns
    -------
    str
        Markdown without a final line break.
    """
    return write(tree(text))
