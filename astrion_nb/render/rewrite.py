"""A token tree written back as Markdown that no viewer can misread.

Viewers disagree about Markdown, and what one takes for code another takes for raw HTML. So each
construct has one plain form: fences at the margin between blank lines, ``[text](address)`` links with
percent-encoded addresses, backslash or entity for every sign that could begin something. Outside
code there is no ``<``, no backtick, no dollar sign and no backslash but those written here.

A page that runs MathJax looks for formulas in the finished page, where an entity is the sign again;
it joins neighbouring text only, so dollar signs and backslashes stand in a ``<span>`` of their own,
as in HTML. It is the one element written here.

JupyterLab cuts formulas out of the source before it parses it, also inside code, and a formula that
begins in one code span and ends in another takes the spans' ends with it. So the signs that begin a
formula stand in code only where its pre-pass spares them; elsewhere a code span is interrupted for
the sign, and a code block inside a list or quote is written line by line.

Emphasis that could not be closed where it stands is left out; its text stays. Knows no parser.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .markdown import Node

_INLINE = frozenset({"em", "strong", "s", "code", "a", "br"})
_MARKS = {"em": "*", "strong": "**", "s": "~~"}
_DRAWN = frozenset({"mermaid", "math", "geojson", "topojson", "stl"})
"""Languages that viewers draw instead of showing; their fences lose the name."""

_SPECIAL = re.compile(
    r"[$\\]+|[&<>`|*\[\]~\u2028\u2029]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|:(?=//)|(?i:(?<=www)\.)|(?<=[A-Za-z0-9._+-])@(?!@)"
)
_ENTITIES = {
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    "`": "&#96;",
    "|": "&#124;",
    "\u2028": "&#8232;",
    "\u2029": "&#8233;",
}
_FORMULA_IN_CODE = re.compile(r"\\(?=(?:begin|end)\{|\\[()\[\]])", re.IGNORECASE)
_FORMULA_IN_BLOCK = re.compile(r"\$|\\(?:begin|end)\{|\\\\[()\[\]]", re.IGNORECASE)
_TICKS = re.compile(r"`+")
_EDGE = re.compile(r"^\s+|\s+$")
_STARTERS = re.compile(r"^(?:(#{1,6})(?=\s|$)|([-+=:])|(\d{1,9})([.)])(?=\s|$))")
_BARE_ITEM = re.compile(r"(?:[-+*]|\d+[.)])$")

Kind = Literal["space", "punct", "letter"]


def _kind(character: str) -> Kind:
    """Sort a character as the emphasis rules do; symbols, on which viewers differ, count as letters."""
    if not character or character.isspace():
        return "space"
    ascii_sign = character.isascii() and not character.isalnum()
    return "punct" if ascii_sign or unicodedata.category(character).startswith("P") else "letter"


def _numeric(found: re.Match[str]) -> str:
    return "".join(f"&#{ord(character)};" for character in found.group())


def _escape(found: re.Match[str]) -> str:
    signs = found.group()
    if signs[0] in "$\\":
        return f"<span>{_numeric(found)}</span>"
    return _ENTITIES.get(signs, "\\" + signs)


def _escaped(text: str, link: bool = False) -> str:
    """Return text with every sign escaped that could begin or end something.

    In a link's text brackets are entities: JupyterLab takes their backslashes away before it reads on.
    """
    escaped = _SPECIAL.sub(_escape, text)
    return escaped.replace("\\[", "&#91;").replace("\\]", "&#93;") if link else escaped


def _code(code: str, sign: re.Pattern[str], link: bool = False) -> str:
    """Return a code span on one line, interrupted where ``sign`` matches."""
    code = code.replace("\n", " ")
    parts: list[str] = []
    start = 0
    for found in sign.finditer(code):
        parts += [_span(code[start : found.start()]), _escaped(found.group(), link)]
        start = found.end()
    return "".join([*parts, _span(code[start:])])


def _span(code: str) -> str:
    if not code:
        return ""
    if not code.strip(" "):
        # A span of spaces keeps them in some viewers and loses them in others.
        return code
    inner = code.rstrip("\\")
    if inner != code:
        # JupyterLab takes a backslash before the closing tick for an escape where it looks for the end of emphasis.
        return _span(inner) + _escaped(code[len(inner) :])
    ticks = "`" * (max((len(run) for run in _TICKS.findall(code)), default=0) + 1)
    pad = " " if "`" in (code[0], code[-1]) or code[0] == code[-1] == " " else ""
    return f"{ticks}{pad}{code}{pad}{ticks}"


class _Line:
    """Writes inline nodes.

    Parameters
    ----------
    cell : bool
        Inside a table, where a bar ends the cell whatever stands around it.
    """

    def __init__(self, *, cell: bool = False) -> None:
        self.cell = cell

    def _sign(self, link: bool, marked: bool) -> re.Pattern[str]:
        # JupyterLab looks for the end of emphasis and of a link within code spans too, when they hold ticks.
        signs = ("|`\\[\\]" if self.cell or link else "") + ("`*_~" if marked else "")
        return re.compile(f"{_FORMULA_IN_CODE.pattern}|[{signs}]", re.IGNORECASE) if signs else _FORMULA_IN_CODE

    def write(
        self,
        nodes: Sequence[Node],
        before: str = "",
        after: str = "",
        link: bool = False,
        marked: frozenset[str] = frozenset(),
    ) -> str:
        """Return the nodes as Markdown.

        ``before`` and ``after`` are the neighbouring characters; ``link`` says that the nodes stand in a
        link's text, and ``marked`` in which emphasis.
        """
        out = ""
        for index, node in enumerate(nodes):
            if isinstance(node, str):
                out += _escaped(node, link)
                continue
            tag = node["t"]
            if tag == "br":
                out += "\\\n"
            elif tag == "code":
                code = "".join(node["c"])
                span = _code(code, self._sign(link, bool(marked)), link)
                out += _escaped(code, link) if out.endswith("`") or before == "`" else span
            elif tag == "a" and link:
                # No viewer takes a link within a link; its address would stand bare in the text and be found there.
                out += self.write(node["c"], out[-1:] or before, "x", True, marked)
            elif tag == "a":
                if out.endswith("!"):
                    out = out[:-1] + "&#33;"
                href = node["href"].replace("&", "&amp;")
                out += f"[{self.write(node['c'], '[', ']', True, marked)}]({href})"
            elif tag in marked:
                # Its marks would close those around it.
                out += self.write(node["c"], out[-1:] or before, "x", link, marked)
            else:
                children, marks, opened = node["c"], _MARKS[tag], marked | {tag}
                if len(children) == 1 and {tag, _tag(children[0])} == {"em", "strong"} and not marked & opened:
                    children, marks, opened = children[0]["c"], "***", marked | {"em", "strong"}
                inner = self.write(children, "x", "x", link, opened)
                following = self._first(nodes[index + 1 : index + 2], after)
                mark = marks if _fits(inner, out[-1:] or before, following) else ""
                out += f"{mark}{inner}{mark}"
        return out

    @staticmethod
    def _first(nodes: Sequence[Node], after: str) -> str:
        """Return the character that will follow, ``x`` where it may turn out to be any."""
        if not nodes:
            return after
        node = nodes[0]
        if isinstance(node, str):
            return node[:1]
        return {"br": "\n", "code": "`", "a": "["}.get(node["t"], "x")


def _fits(inner: str, before: str, after: str) -> bool:
    """Say whether emphasis marks around ``inner`` open and close for every viewer."""
    if not inner or inner[0] in "*_~" or inner[-1] in "*_~" or before in ("*", "~", "_", "\\"):
        return False
    first, last = _strict(inner[0]), _strict(inner[-1])
    if first == "space" or last == "space":
        return False
    return (first == "letter" or _kind(before) != "letter") and (last == "letter" or _kind(after) != "letter")


def _strict(character: str) -> Kind:
    kind = _kind(character)
    return "punct" if kind == "letter" and unicodedata.category(character)[0] in "SMC" else kind


def _guarded(found: re.Match[str]) -> str:
    hashes, sign, number, end = found.groups()
    if hashes:
        return "\\" + hashes
    return "\\" + sign if sign else f"{number}\\{end}"


def _paragraph(nodes: Sequence[Node]) -> list[str]:
    """Return inline nodes as lines of which none is empty and none begins a block."""
    lines: list[str] = []
    for line in _Line().write(nodes).split("\n"):
        guarded = _STARTERS.sub(_guarded, _EDGE.sub(_numeric, line))
        if not lines:
            lines.append(guarded)
        elif not lines[-1] or (not guarded and not lines[-1].endswith("\\")):
            lines[-1] += "&#10;" + guarded
        else:
            lines.append(guarded)
    if len(lines) > 1 and lines[-1] == "":
        lines.pop()
        lines[-1] = lines[-1].removesuffix("\\")
    return lines


def _single(nodes: Sequence[Node], *, cell: bool) -> str:
    text = re.sub(r"\\?\n", " ", _Line(cell=cell).write(nodes))
    text = _EDGE.sub(_numeric, text)
    return text if cell else re.sub(r"(?<!&)#", r"\\#", text)


def _pre(node: dict[str, Any], contained: bool) -> list[str]:
    code = "".join(node["c"])
    lines = code.split("\n") if code else []
    if contained and _FORMULA_IN_BLOCK.search(code):
        while lines and not lines[-1].strip():
            lines.pop()
        return [f"{_EDGE.sub(_numeric, _code(line, _FORMULA_IN_CODE))}\\" for line in lines[:-1]] + [
            _code(lines[-1], _FORMULA_IN_CODE)
        ]
    fence = "`" * max(3, max((len(run) for run in _TICKS.findall(code)), default=0) + 1)
    language = node.get("lang", "")
    return [fence + ("" if language.lower() in _DRAWN else language), *lines, fence]


def _table(node: dict[str, Any]) -> list[str]:
    rows = [row["c"] for part in node["c"] for row in part["c"]]
    ends = {"left": ":--", "center": ":-:", "right": "--:"}
    lines = ["| " + " | ".join(_single(cell["c"], cell=True) for cell in row) + " |" for row in rows]
    lines.insert(1, "| " + " | ".join(ends.get(cell.get("align", ""), "---") for cell in rows[0]) + " |")
    return lines


def _list(node: dict[str, Any], depth: int, second: bool) -> list[str]:
    loose = any(isinstance(child, dict) and child["t"] == "p" for item in node["c"] for child in item["c"])
    start = node.get("start", 1)
    lines: list[str] = []
    for index, item in enumerate(node["c"]):
        # Levels take turns, so that empty items in empty items never look like a rule; lists that
        # follow one another too, so that they stay apart.
        if node["t"] == "ul":
            marker = "*" if second else "-+"[depth % 2]
        else:
            marker = f"{min(start + index, 999_999_999)}{')' if second else '.'}"
        inner = _blocks(item["c"], depth + 1, contained=True, tight=not loose)
        if loose and lines:
            lines.append("")
        lines.append(f"{marker} {inner[0]}" if inner and inner[0] else marker)
        indent = " " * (len(marker) + 1)
        lines += [indent + line if line else "" for line in inner[1:]]
    return lines


def _apart(last: str, tag: str, lines: Sequence[str]) -> bool:
    """Say whether a block in a tight item needs an empty line before it."""
    if last not in ("inline", "pre", "hr") and not last.startswith("h"):
        return True
    if last != "inline":
        return False
    interrupts = tag in ("pre", "blockquote", "hr", "ul") or tag[0] == "h" or (tag == "ol" and lines[0][:2] == "1.")
    return not interrupts or bool(_BARE_ITEM.match(lines[0]))


def _blocks(nodes: Sequence[Node], depth: int, *, contained: bool, tight: bool = False) -> list[str]:
    lines: list[str] = []
    last, second = "", False
    index = 0
    while index < len(nodes):
        node = nodes[index]
        index += 1
        if isinstance(node, str) or node["t"] in _INLINE:
            run = [node]
            while index < len(nodes) and _is_inline(nodes[index]):
                run.append(nodes[index])
                index += 1
            tag, made = "inline", _paragraph(run)
        else:
            tag = node["t"]
            second = tag == last and not second
            if tag == "p":
                made = _paragraph(node["c"])
            elif tag in ("ul", "ol"):
                made = _list(node, depth, second)
            elif tag == "blockquote":
                inner = _blocks(node["c"], depth, contained=True)
                made = [f"> {line}" if line else ">" for line in inner] or [">"]
            elif tag == "pre":
                made = _pre(node, contained)
            elif tag == "table":
                made = _table(node)
            elif tag == "hr":
                made = ["___"]
            else:
                made = [f"{'#' * int(tag[1])} {_single(node['c'], cell=False)}".rstrip(" ")]
        if last and made and (not tight or _apart(last, tag, made)):
            lines.append("")
        lines += made
        last = tag
    return lines


def _tag(node: Node) -> str:
    return "" if isinstance(node, str) else str(node["t"])


def _is_inline(node: Node) -> bool:
    return isinstance(node, str) or node["t"] in _INLINE


def write(nodes: Sequence[Node], *, contained: bool = False) -> str:
    """Return a token tree as Markdown.

    Parameters
    ----------
    nodes : sequence of Node
        What :func:`~astrion_nb.render.markdown.tree` returned.
    contained : bool
        The caller will indent or quote the result.

    Returns
    -------
    str
        Without a final line break.
    """
    return "\n".join(_blocks(nodes, 0, contained=contained))
