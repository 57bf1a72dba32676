"""The static transcript of a conversation, in the three forms a notebook stores, and the export.

All three say the same in the same order (:mod:`~astrion_nb.render.outline`) and depend on nothing
but the state: no clock, no path, no conversation id. Everything from a model is escaped in each of
them. Only the export names title, roles and models.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..messages import Usage
from ..printable import one_field
from ..state import TeamState
from .markdown import Node, tree
from .outline import Bubble, Call, Outline, Prices, lay_out
from .page import page
from .rewrite import write
from .words import Origin, Words, price


def transcript_text(state: TeamState, **options: Any) -> str:
    """Return the conversation as plain text; what an agent said is indented under its name.

    Parameters
    ----------
    state : TeamState
    **options
        ``origin``, ``since``, ``hide`` and ``prices`` of :func:`~astrion_nb.render.outline.lay_out`.
    """
    return _text(lay_out(state, **options))


def bundle(
    state: TeamState,
    *,
    origin: Origin = "live",
    since: Mapping[int, int] | None = None,
    hide: Iterable[tuple[str, str]] = (),
    prices: Prices | None = None,
) -> dict[str, str]:
    """Return the transcript as a display bundle: static HTML, Markdown that no viewer runs, and plain text.

    Parameters
    ----------
    state : TeamState
    origin, since, hide, prices
        As for :func:`~astrion_nb.render.outline.lay_out`.
    """
    outline = lay_out(state, origin=origin, since=since, hide=hide, prices=prices)
    return {"text/html": page(outline), "text/markdown": write(_document(outline)), "text/plain": _text(outline)}


def export_markdown(state: TeamState, **options: Any) -> str:
    """Return the conversation as a Markdown document of its own: title, agents, models, transcript.

    Parameters
    ----------
    state : TeamState
    **options
        As for :func:`transcript_text`.
    """
    prices: Prices | None = options.get("prices")
    outline = lay_out(state, **options)
    text = outline.words
    costs = {part.number: part.cost for part in (outline.leader, *outline.agents)}
    rows = []
    for agent in (state.leader_state, *state.members()):
        about = [agent.display_name, agent.role_id, agent.model_key, f"{agent.tokens.total:,}"]
        rows.append([str(agent.agent_id or ""), *about, price(costs.get(agent.agent_id))])
    head = [*text.columns[:2], text.role_column, text.model_column, text.columns[5], text.cost_column]
    agents = filled([head, *rows])
    spent: dict[str, Usage] = {}
    for agent in state.agents.values():
        for key, usage in agent.usage.items():
            spent[key] = spent.get(key, Usage()) + usage
    models = [
        [key, text.spent(usage.total, usage.input, usage.output, prices(key, usage) if prices else None)]
        for key, usage in sorted(spent.items())
    ]
    front: list[Node] = [{"t": "h1", "c": [state.title or text.agents]}]
    front.append(table(agents[0], agents[1:]))
    if models:
        front.append(table([text.models, text.columns[5]], models))
    return write([*front, {"t": "hr"}, *_document(outline)]) + "\n"


def filled(rows: list[list[str]]) -> list[list[str]]:
    """Return rows, headings first, without a last column in which nothing stands."""
    return rows if any(row[-1] for row in rows[1:]) else [row[:-1] for row in rows]


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Node:
    """Return a table of the token tree from plain strings."""

    def line(tag: str, cells: Iterable[str]) -> Node:
        texts = (one_field(cell).replace("\n", " ") for cell in cells)
        return {"t": "tr", "c": [{"t": tag, "c": [text] if text else []} for text in texts]}

    body = [line("td", row) for row in rows]
    return {"t": "table", "c": [{"t": "thead", "c": [line("th", head)]}, {"t": "tbody", "c": body}]}


def _heading(bubble: Bubble) -> str:
    return " ".join(part for part in (bubble.role, bubble.purpose, *(f"({note})" for note in bubble.notes)) if part)


def _about(call: Call, text: Words) -> str:
    state = text.no_result if call.result is None else call.ended
    return " · ".join(part for part in (call.short, state) if part)


def _footer(outline: Outline) -> str:
    return " · ".join(part for part in (outline.run, outline.counted) if part)


# ---- plain text


def _indented(lines: Iterable[str], by: str = "  ") -> list[str]:
    return [by + line if line else "" for line in lines]


def _bubble_text(bubble: Bubble, text: Words) -> list[str]:
    lines = [_heading(bubble), *_indented(bubble.text.strip("\n").split("\n") if bubble.text else ())]
    for call in bubble.calls:
        about = _about(call, text)
        lines.append(f"  * {call.name}" + (f" ({about})" if about else ""))
        for name, shown in ((text.arguments, call.arguments), (text.result, call.result or "")):
            if shown:
                lines += [f"    {name}:", *_indented(shown.split("\n"), "      ")]
        if call.reply is not None:
            lines += _indented(_bubble_text(call.reply, text), "    ")
    return lines


def _text(outline: Outline) -> str:
    text = outline.words
    blocks: list[list[str]] = [[outline.banner]] if outline.banner else []
    blocks += [_bubble_text(bubble, text) for bubble in outline.leader.bubbles]
    if outline.agents:
        blocks.append([f"== {text.agents} =="])
    for part in outline.agents:
        waits = f"{part.status} ({part.waits_for})" if part.waits_for else part.status
        about = " · ".join(piece for piece in (part.name, waits, part.summary, part.counted) if piece)
        blocks.append([f"{part.number} · {about}"])
        if part.error:
            blocks[-1] += _indented(f"{part.ended}{text.colon}{part.error}".split("\n"))
        blocks += [_indented(_bubble_text(bubble, text)) for bubble in part.bubbles]
    return "\n\n".join(["\n".join(block) for block in blocks] + closing_text(outline))


def closing_text(outline: Outline, *, each: bool = False) -> list[str]:
    """Return what stands below transcript and board: questions, warnings, errors, the run's end.

    Parameters
    ----------
    outline : Outline
    each : bool
        Whether the agents' own errors are named too.
    """
    text = outline.words
    blocks: list[list[str]] = []
    if outline.questions:
        blocks.append([f"== {text.questions} =="])
    for question in outline.questions:
        block = [f"{question.heading} [{question.id}]", *_indented(question.text.strip("\n").split("\n"))]
        blocks.append([*block, f"  {text.reply}{text.colon}{question.command}"] if question.command else block)
    if outline.warnings:
        warned = [line for warning in outline.warnings for line in ("- " + warning).replace("\n", "\n  ").split("\n")]
        blocks.append([f"== {text.warnings} ==", *warned])
    blocks += [error.replace("\n", "\n  ").split("\n") for error in outline.errors(each=each)]
    if footer := _footer(outline):
        blocks.append([footer])
    return ["\n".join(block) for block in blocks]


# ---- Markdown


def _paragraph(*parts: Node) -> Node:
    return {"t": "p", "c": list(parts)}


def _strong(words: str) -> Node:
    return {"t": "strong", "c": [words]}


def _quoted(said: str) -> list[Node]:
    """Return Markdown quoted, so that no heading in it looks like ours.

    Code blocks stand between the quotes: at the margin they can stay fences whatever is in them.
    """
    nodes: list[Node] = []
    for node in tree(said):
        if isinstance(node, dict) and node["t"] == "pre":
            nodes.append(node)
        elif nodes and isinstance(nodes[-1], dict) and nodes[-1]["t"] == "blockquote":
            nodes[-1]["c"].append(node)
        else:
            nodes.append({"t": "blockquote", "c": [node]})
    return nodes


def _bubble_nodes(bubble: Bubble, text: Words) -> list[Node]:
    if bubble.quiet:
        return [_paragraph({"t": "em", "c": [bubble.role]})]
    rest = " ".join(part for part in (bubble.purpose, *(f"({note})" for note in bubble.notes)) if part)
    nodes = [_paragraph(_strong(bubble.role), *([f" {rest}"] if rest else []))]
    nodes += _quoted(bubble.text)
    for call in bubble.calls:
        about = _about(call, text)
        nodes.append(_paragraph({"t": "code", "c": [call.name or "?"]}, *([f" {about}"] if about else [])))
        shown = [(text.arguments, call.arguments), (text.result, call.result or "")]
        lines = [line for name, value in shown if value for line in (f"{name}:", *_indented(value.split("\n")))]
        if lines:
            nodes.append({"t": "pre", "lang": "text", "c": ["\n".join(lines)]})
        if call.reply is not None:
            nodes += _bubble_nodes(call.reply, text)
    return nodes


def _document(outline: Outline) -> list[Node]:
    text = outline.words
    nodes: list[Node] = [_paragraph({"t": "em", "c": [outline.banner]})] if outline.banner else []
    for bubble in outline.leader.bubbles:
        nodes += _bubble_nodes(bubble, text)
    if outline.agents:
        nodes.append({"t": "h3", "c": [text.agents]})
    for part in outline.agents:
        waits = f"{part.status} ({part.waits_for})" if part.waits_for else part.status
        nodes.append({"t": "h4", "c": [f"{part.number} · {part.name}"]})
        nodes.append(_paragraph(" · ".join(piece for piece in (waits, part.summary, part.counted) if piece)))
        if part.error:
            nodes.append(_paragraph(_strong(part.ended), f"{text.colon}{part.error}"))
        for bubble in part.bubbles:
            nodes += _bubble_nodes(bubble, text)
    return nodes + closing_nodes(outline)


def closing_nodes(outline: Outline, *, each: bool = False) -> list[Node]:
    """Return what :func:`closing_text` returns, as nodes of the token tree."""
    text = outline.words
    nodes: list[Node] = []
    if outline.questions:
        nodes.append({"t": "h3", "c": [text.questions]})
    for question in outline.questions:
        nodes.append(_paragraph(_strong(question.heading), " ", {"t": "code", "c": [question.id]}))
        nodes += _quoted(question.text)
        if question.command:
            nodes.append(_paragraph(f"{text.reply}{text.colon}", {"t": "code", "c": [question.command]}))
    if outline.warnings:
        items: list[Node] = [{"t": "li", "c": [warning]} for warning in outline.warnings]
        nodes += [{"t": "h3", "c": [text.warnings]}, {"t": "ul", "c": items}]
    nodes += [_paragraph(error) for error in outline.errors(each=each)]
    if footer := _footer(outline):
        nodes.append(_paragraph({"t": "em", "c": [footer]}))
    return nodes
