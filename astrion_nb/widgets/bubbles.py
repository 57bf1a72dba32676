"""One stored message as the page shows it: role, purpose, content, and the tool calls beside it.

A bubble is plain JSON with short keys, since a page gets many:

=========  ===============================================================================
``n``      index of the message in its agent's conversation
``id``     the envelope's id, else the message's; for a tooltip
``by``     number of who speaks: an agent's, 0 leader, -1 person
``role``   the speaker's name, where the number does not tell it
``kind``   envelope kind, which gives the purpose (message protocol §6)
``small``  1 for what passed between agents
``mark``   a status that the message reports (``failed``, ``stopped``, …)
``you``    1 when the person sent it in the leader's name
``cut``    1 when the answer broke off
``left``   of a compaction, how many messages it leaves out of the requests; there is no body then
``think``  the model's reasoning
``body``   see :func:`body`
``calls``  tool calls: ``name``, ``args``, and with a result ``out``, ``bad`` and ``reply``
=========  ===============================================================================

What a message says is :mod:`~astrion_nb.render.reading`'s to tell. Pure; knows no widget, no sequence
numbers and no page.

Source: message protocol §6; data model §5, §7.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

from ..envelope import Kind
from ..ids import HUMAN_ID, LEADER_ID
from ..messages import Message, ToolCall
from ..printable import clean, one_field
from ..render.markdown import tree
from ..render.reading import fate, inserted, left_out, purpose, result
from ..state import AgentState, TeamState

CUT = 2_000
"""Characters of one argument, of a result's value, or of reasoning that are sent."""
LONGEST = 20_000
"""Characters of a text that are sent."""
MOST_FIELDS = 30
"""Keys of an object that are sent."""

_NEAR = 80

# One paragraph without any sign that could mean something in Markdown: its tree needs no parser.
_PLAIN = re.compile(
    r"[^\W\d_](?:[^*_`\[<&\\~\x00-\x1f\x7f-\x9f\ud800-\udfff]*[^*_`\[<&\\~\x00-\x1f\x7f-\x9f\ud800-\udfff\s])?"
)


def body(text: str) -> Any:
    """Return a text as it travels: a string for one plain paragraph, else the token tree.

    A string ``s`` means the tree ``[{"t": "p", "c": [s]}]``; an empty text is ``""``.
    """
    if len(text) > LONGEST:
        text = shorten(text, LONGEST)
    if _PLAIN.fullmatch(text):
        return text
    return _parsed(text)


@lru_cache(maxsize=128)
def _parsed(text: str) -> list[Any] | str:
    # A report is shown where it was written and where it was read, and again to every page that lost something.
    return tree(text) or ""


def against(nodes: list[Any], text: str) -> list[Any]:
    """Return a token tree for a page that has its source: text nodes are lengths of pieces of it.

    Parameters
    ----------
    nodes : list of Node
    text : str
        The source, of no character beyond U+FFFF (a page counts those twice).

    Returns
    -------
    list
        An element is ``[tag, {attributes}, children…]``, attributes only when there are any. A text is the
        number of characters taken from the source, after a negative number of those to pass over;
        where it does not stand there as it is, it is the text itself.
    """
    at = 0

    def encode(children: list[Any], out: list[Any]) -> list[Any]:
        nonlocal at
        for node in children:
            if isinstance(node, str):
                found = text.find(node, at, at + len(node) + _NEAR)
                if found < 0:
                    out.append(node)
                    continue
                if found > at:
                    out.append(at - found)
                out.append(len(node))
                at = found + len(node)
                continue
            attributes = {key: value for key, value in node.items() if key not in ("t", "c")}
            out.append(encode(node.get("c", ()), [node["t"], attributes] if attributes else [node["t"]]))
        return out

    return encode(nodes, [])


def shorten(text: str, limit: int = CUT) -> str:
    """Return the text, cut with a note of its whole length when it is longer than the limit."""
    return text if len(text) <= limit else f"{text[:limit]}… [{limit:,} / {len(text):,}]"


def fields(text: str) -> str | list[list[str]]:
    """Return a JSON object as pairs of strings, anything else as the text it is."""
    try:
        data = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return shorten(clean(text))
    if not isinstance(data, dict):
        return shorten(clean(text))
    return pairs(data)


def pairs(data: dict[str, Any]) -> list[list[str]]:
    """Return an object as pairs of strings, each value cut."""
    out = []
    for key, value in list(data.items())[:MOST_FIELDS]:
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        out.append([shorten(clean(key), 80), shorten(clean(shown))])
    if len(data) > MOST_FIELDS:
        out.append(["…", f"{MOST_FIELDS} / {len(data)}"])
    return out


def is_bubble(agent: AgentState, message: Message) -> bool:
    """Say whether a message has a bubble of its own; results stand with their calls, prompts nowhere."""
    role = message.role
    if role == "assistant":
        return bool(message.tool_calls) or bool(message.content and message.content.strip())
    if role == "user":
        return True
    return role == "system" and bool(message.content) and message.content != agent.system


def bubble(state: TeamState, agent: AgentState, index: int, opened_by: Kind | None) -> tuple[dict[str, Any], str]:
    """Return a message's bubble without its body, and the text of the body.

    Parameters
    ----------
    state : TeamState
    agent : AgentState
        Whose conversation holds the message.
    index : int
        Which one; :func:`is_bubble` holds for it.
    opened_by : str or None
        What began the agent's present piece of work: a question's is ended by its answer.
    """
    message = agent.messages[index]
    if message.role == "user":
        return _inserted(state, agent, index, message)
    if (count := left_out(message)) is not None:
        return {"n": index, "id": "", "by": LEADER_ID, "role": "system", "small": 1, "left": count}, ""
    if message.role == "system":
        return {"n": index, "id": "", "by": LEADER_ID, "role": "system", "small": 1}, message.content or ""
    text = message.content or ""
    out: dict[str, Any] = {"n": index, "id": message.message_id or "", "by": agent.agent_id}
    if kind := purpose(agent, message, opened_by):
        out["kind"] = kind
    if message.metadata.get("truncated"):
        out["cut"] = 1
    reasoning = message.metadata.get("reasoning_content")
    if isinstance(reasoning, str) and reasoning.strip():
        out["think"] = shorten(clean(reasoning))
    if message.tool_calls:
        out["calls"] = [call_of(call) for call in message.tool_calls]
    return out, text


def _inserted(state: TeamState, agent: AgentState, index: int, message: Message) -> tuple[dict[str, Any], str]:
    said = inserted(state, agent, message)
    out: dict[str, Any] = {"n": index, "id": said.id or message.message_id or ""}
    if message.metadata.get("visibility") == "compact":
        out["small"] = 1
    out["by"] = LEADER_ID if said.by is None else said.by
    if said.kind is None:
        if said.by is None:
            out["role"] = "system"
        return out, said.text
    out["kind"] = said.kind
    if said.by is None:
        out["role"] = one_field(said.name)
    if said.status:
        out["mark"] = said.status
    if said.by_person:
        out["you"] = 1
    return out, said.text


def call_of(call: ToolCall) -> dict[str, Any]:
    """Return a tool call without its result."""
    return {"name": " ".join(clean(call.name).split()), "args": fields(call.arguments)}


def result_of(state: TeamState, message: Message) -> dict[str, Any]:
    """Return what a tool message adds to its call: ``out``, ``bad`` (1: refused; how it ended), ``reply`` of an ask."""
    content = message.content or ""
    data, answer = result(state, content)
    if data is None:
        return {"out": shorten(clean(content))}
    out: dict[str, Any] = {}
    if how := fate(state, data):
        out["bad"] = 1 if how == "refused" else how
    if answer is not None:
        reply: dict[str, Any] = {"id": answer.id, "kind": answer.kind, "small": 1}
        reply["by"] = HUMAN_ID if answer.by is None else answer.by
        if answer.by is None:
            reply["role"] = one_field(answer.name)
        out["reply"] = reply | {"body": body(answer.text)}
    out["out"] = pairs(data)
    return out
