"""A laid-out conversation as one static piece of HTML.

Inline styles only, no class, no id, no script: what GitHub, a notebook without a kernel and an
untrusted reader keep. Colours of text come from the page, borders and shades are half-transparent
grey, so it reads on light and dark pages. Folds are ``<details>``: they work by keyboard and with a
screen reader. Everything from a model, a file or a person is escaped. Knows no state.
"""

from __future__ import annotations

from html import escape

from .markdown import BARE, Node, text_html, to_html, tree
from .outline import Bubble, Call, OpenQuestion, Outline, Part
from .words import Words

_COLOURS = ("#5b8def", "#c77d2a", "#2e9e6b", "#b5609c", "#8f8130", "#3595ad", "#c0564f", "#7d6bd0")
_GREY = "rgba(128,128,128,.7)"
_SOFT = "rgba(128,128,128,.35)"
_FOLDED = 700
"""Characters from which on a message between agents is folded in the leader's conversation."""
_ROOT = "max-width:56em;line-height:1.5;overflow-wrap:anywhere"
_HEAD = "font-size:.88em;margin:.1em 0"
_QUIET = "opacity:.75"
_PRE = (
    "margin:.2em 0 .5em;padding:.4em .65em;background:rgba(128,128,128,.12);color:inherit;border-radius:4px;"
    "font-size:.85em;line-height:1.45;white-space:pre-wrap;overflow-wrap:anywhere;max-height:24em;overflow:auto"
)
_TITLE = "font-weight:600;margin:1.1em 0 .3em"


def _colour(number: int) -> str:
    return _GREY if number < 0 else _COLOURS[number % len(_COLOURS)]


def _span(text: str, style: str = _QUIET) -> str:
    return f'<span style="{style}">{text_html(text)}</span>'


def _head(bubble: Bubble) -> str:
    parts = [f"<strong>{text_html(bubble.role)}</strong>"]
    if bubble.purpose:
        parts.append(_span(bubble.purpose))
    parts += [_span(f"({note})") for note in bubble.notes]
    attribute = f' title="{escape(bubble.id)}"' if bubble.id else ""
    return f"<span{attribute}>{' '.join(parts)}</span>"


def _call(call: Call, text: Words) -> str:
    state = text.no_result if call.result is None else call.ended
    about = " · ".join(part for part in (call.short, state) if part)
    out = [
        '<details style="margin:.3em 0;font-size:.92em">',
        f'<summary style="cursor:pointer"><code style="{BARE}">{escape(call.name)}</code>'
        + (f" {_span(about)}" if about else "")
        + "</summary>",
    ]
    for name, shown in ((text.arguments, call.arguments), (text.result, call.result or "")):
        if shown:
            label = f'<div style="{_HEAD};{_QUIET}">{name}</div>'
            out.append(f'{label}<pre style="{_PRE}"><code style="{BARE}">{escape(shown)}</code></pre>')
    out.append("</details>")
    # An answer is part of what was said, so it does not hide in the fold.
    return "".join(out) + (_bubble(call.reply, text) if call.reply is not None else "")


def _bubble(bubble: Bubble, text: Words) -> str:
    if bubble.quiet:
        return f'<div style="{_HEAD};text-align:center">{_span(bubble.role)}</div>'
    size = ";font-size:.93em" if bubble.small else ""
    shade = ".1" if bubble.number < 0 else ".05"
    box = (
        f"margin:.5em 0;padding:.3em .8em;border-left:3px solid {_colour(bubble.number)};"
        f"background:rgba(128,128,128,{shade});border-radius:0 6px 6px 0{size}"
    )
    body = to_html(tree(bubble.text))
    head = _head(bubble)
    if bubble.small and len(bubble.text) > _FOLDED:
        said = f'<details><summary style="{_HEAD};cursor:pointer">{head}</summary>{body}</details>'
    else:
        said = f'<div style="{_HEAD}">{head}</div>{body}'
    return f'<div style="{box}">{said}{"".join(_call(call, text) for call in bubble.calls)}</div>'


def _agent(part: Part, text: Words) -> str:
    waits = f"{part.status} ({part.waits_for})" if part.waits_for else part.status
    about = " · ".join(piece for piece in (waits, part.summary, part.counted) if piece)
    error = _alert(f"{part.ended}{text.colon}{part.error}") if part.error else ""
    return (
        f'<details style="margin:.3em 0;padding:.3em .8em;border:1px solid {_SOFT};'
        f'border-left:3px solid {_colour(part.number)};border-radius:0 6px 6px 0">'
        f'<summary style="cursor:pointer"><strong>{part.number} · {text_html(part.name)}</strong>'
        f" {_span(about)}</summary>"
        f"{error}{''.join(_bubble(bubble, text) for bubble in part.bubbles)}</details>"
    )


def _alert(words: str) -> str:
    return (
        '<div style="margin:.4em 0;padding:.3em .8em;border:1px solid #c0564f;border-radius:6px;white-space:pre-line">'
        f"{text_html(words)}</div>"
    )


def _question(question: OpenQuestion, text: Words) -> str:
    command = ""
    if question.command:
        command = f'<div style="{_HEAD}">{_span(text.reply)} <code>{escape(question.command)}</code></div>'
    return (
        f'<div style="margin:.4em 0;padding:.3em .8em;border:1px solid #c77d2a;border-radius:6px">'
        f'<div style="{_HEAD}"><strong>{text_html(question.heading)}</strong> <code>{escape(question.id)}</code></div>'
        f"{to_html(tree(question.text))}{command}</div>"
    )


def page(outline: Outline) -> str:
    """Return the conversation as HTML.

    Parameters
    ----------
    outline : Outline

    Returns
    -------
    str
        One ``div``; top-level parts on lines of their own, so that differences read well.
    """
    text = outline.words
    lines = [f'<div lang="{text.tag}" style="{_ROOT}">']
    if outline.banner:
        lines.append(
            f'<div style="{_HEAD};padding:.2em .8em;border:1px dashed {_GREY}">{text_html(outline.banner)}</div>'
        )
    lines += [_bubble(bubble, text) for bubble in outline.leader.bubbles]
    if outline.agents:
        lines.append(f'<div style="{_TITLE}">{text.agents}</div>')
        lines += [_agent(part, text) for part in outline.agents]
    return "\n".join([*lines, *_closing(outline, each=False), "</div>"])


def board_page(outline: Outline, agents: Node) -> str:
    """Return the board as HTML.

    Parameters
    ----------
    outline : Outline
    agents : Node
        The table of agents.
    """
    # "anywhere" would let the narrow columns break within a word to make room for the tasks.
    table = f'<div style="overflow-wrap:break-word;overflow-x:auto">{to_html([agents])}</div>'
    lines = [f'<div lang="{outline.words.tag}" style="{_ROOT}">', table, *_closing(outline, each=True)]
    return "\n".join([*lines, "</div>"])


def _closing(outline: Outline, *, each: bool) -> list[str]:
    text = outline.words
    lines: list[str] = []
    if outline.questions:
        lines.append(f'<div style="{_TITLE}">{text.questions}</div>')
        lines += [_question(question, text) for question in outline.questions]
    if outline.warnings:
        items = "".join(f"<li>{text_html(warning)}</li>" for warning in outline.warnings)
        lines.append(
            f'<div style="{_TITLE}">{text.warnings}</div><ul style="margin:.2em 0;padding-left:1.6em">{items}</ul>'
        )
    lines += [_alert(error) for error in outline.errors(each=each)]
    footer = " · ".join(part for part in (outline.run, outline.counted) if part)
    if footer:
        lines.append(f'<div style="{_HEAD};margin-top:.9em">{_span(footer)}</div>')
    return lines
