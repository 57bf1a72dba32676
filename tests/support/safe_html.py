"""What a browser would make of HTML: its elements, attributes and text, checked against an allow-list."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"br", "hr"}
TAGS = {
    *(
        "p",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "ul",
        "ol",
        "li",
        "blockquote",
        "pre",
        "code",
        "em",
        "strong",
        "s",
        "del",
    ),
    *("s", "del", "a", "table", "thead", "tbody", "tr", "th", "td", "hr", "br", "span", "div", "details", "summary"),
}
ATTRIBUTES = {"style", "href", "rel", "title", "start", "align", "lang", "open", "class"}
SCHEMES = ("http://", "https://", "mailto:")


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.titles: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in TAGS:
            self.faults.append(f"element <{tag}>")
        for name, value in attrs:
            if name not in ATTRIBUTES:
                self.faults.append(f"attribute {name} of <{tag}>")
            if name == "href" and not (value or "").lower().startswith(SCHEMES):
                self.faults.append(f"address {value!r}")
            if name == "style" and any(word in (value or "").lower() for word in ("url", "expression", "import")):
                self.faults.append(f"style {value!r}")
            if name == "class" and not (value or "").startswith("language-"):
                self.faults.append(f"class {value!r}")
            if name == "title":
                self.titles.append(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes nothing")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        self.faults.append(f"comment {data!r}")

    def handle_decl(self, decl: str) -> None:
        self.faults.append(f"declaration {decl!r}")

    def handle_pi(self, data: str) -> None:
        self.faults.append(f"instruction {data!r}")

    def unknown_decl(self, data: str) -> None:
        self.faults.append(f"declaration {data!r}")


def read(html: str) -> tuple[list[str], str, list[str]]:
    """Return what is wrong with a piece of HTML, its text, and its ``title`` attributes."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    faults = reader.faults + [f"<{tag}> stays open" for tag in reader.open]
    return faults, "".join(reader.texts), reader.titles
