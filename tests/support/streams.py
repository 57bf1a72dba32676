"""Responses as endpoints stream them: what one means is known here, how it comes over the wire is drawn.

``responses`` draws a :class:`Response`: the meaning (text, reasoning, calls, usage, how it ends) and the chunks of it,
with the liberties that endpoints take. ``as_bytes`` writes the chunks as server-sent events, ``cut`` divides bytes
anywhere: inside a character, inside an escape, between CR and LF.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from astrion_nb.messages import Usage

from .strict_parts import chunk, delta, finish, tool_delta, usage

NAMES = (
    "read_file",
    "list_agents",
    "create_sub_agent",
    "ask_master",
    "f",
    "no such tool!",
    "规划",
    "a_name_of_" + "0123456789" * 7,
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\\n\r\u2028😀中{}[]:,data'), max_size=24)
ARGUMENTS = st.dictionaries(TEXTS.map(lambda text: text[:5]), st.none() | st.integers() | TEXTS, max_size=3)
CASES = ("index", "id and name", "nulls", "usage", "end", "filter", "empty", "reasoning", "surrogates")
"""Faults 1 to 4 and 6 to 9 of the cases, and half surrogate pairs."""
NOISE: tuple[dict[str, Any], ...] = (
    {},
    {"choices": None},
    {"choices": []},
    {"choices": [None]},
    chunk({"index": 0, "finish_reason": None}),
    chunk({"index": 0, "delta": None, "finish_reason": None}),
    delta(content=None, tool_calls=None),
    delta(content="", tool_calls=[]),
    delta(role="assistant", content=None, refusal=None, audio=None, function_call=None),
    delta(tool_calls=[None]),
    delta(tool_calls=[{}]),
    delta(tool_calls=[{"index": 0, "function": None}]),
    delta(reasoning_content=None),
    delta(reasoning_content=""),
    chunk(None, usage=None),
    chunk(None, usage={}),
    chunk(None, usage={"prompt_tokens": None, "completion_tokens": "many"}),
)
SSE_NOISE = (b": ping", b"event: message", b"id: 7", b"retry: 100", b":", b"unknown: field")


@dataclass(frozen=True)
class Response:
    """A response: its meaning, and its chunks in order.

    Parameters
    ----------
    text, reasoning : str
    calls : tuple of (str, str)
        Names and argument texts.
    usage : Usage or None
    reason : str or None
        The finish reason that is sent.
    done : bool
        Whether ``[DONE]`` is sent.
    chunks : tuple of dict
    """

    text: str
    reasoning: str
    calls: tuple[tuple[str, str], ...]
    usage: Usage | None
    reason: str | None
    done: bool
    chunks: tuple[dict[str, Any], ...]

    @property
    def ends(self) -> bool:
        """Whether the endpoint says in either way that it is over."""
        return self.done or self.reason is not None


def pieces(draw: Any, whole: str, most: int = 4) -> list[str]:
    """Return a text divided at random places; pieces may be empty."""
    places = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=most)))
    return [whole[a:b] for a, b in zip([0, *places], [*places, len(whole)], strict=True)]


@st.composite
def responses(draw: Any, case: str = "") -> Response:
    """Draw a response; a case is the liberty that is taken for sure."""
    text = draw(TEXTS) if case != "empty" else ""
    if case == "filter":
        text = text or "part"
    thought = draw(TEXTS) if case in ("empty", "reasoning") or draw(st.booleans()) else ""
    most = 0 if case in ("empty", "filter") else 4
    wanted = draw(st.lists(st.tuples(st.sampled_from(NAMES), ARGUMENTS), min_size=min(most, 1), max_size=most))
    dumped = draw(st.sampled_from((True, False)))
    calls = tuple((name, json.dumps(value, ensure_ascii=dumped)) for name, value in wanted)
    chunks = [
        delta(**{draw(st.sampled_from(("reasoning_content", "reasoning"))): one}) for one in pieces(draw, thought)
    ]
    spoken = [delta(content=one) for one in pieces(draw, text)]
    if case == "surrogates" and not text.isascii():
        spoken = [delta(content=one) for one in _halves(text)]
    called = _calls(draw, calls, case)
    chunks += spoken + called if draw(st.booleans()) else called + spoken
    if case == "nulls" or draw(st.booleans()):
        for one in draw(st.lists(st.sampled_from(NOISE), min_size=1, max_size=4)):
            chunks.insert(draw(st.integers(0, len(chunks))), one)
    reasons = {"filter": ("content_filter",), "end": ("stop", "tool_calls", "function_call", "eos", None)}
    reason = draw(st.sampled_from(reasons.get(case, ("stop", "tool_calls" if calls else "stop"))))
    done = draw(st.booleans()) if reason is not None else case != "end" or draw(st.booleans())
    told, tail = _usage(draw, chunks, case)
    if reason is not None:
        chunks.append(finish(reason))
    return Response(text, thought, calls, told, reason, done, (*chunks, *tail))


def _halves(text: str) -> list[str]:
    """Return a text with each astral character divided into its two surrogates, in two pieces."""
    units = text.encode("utf-16-le", "surrogatepass")
    return [units[place : place + 2].decode("utf-16-le", "surrogatepass") for place in range(0, len(units), 2)]


def _usage(draw: Any, chunks: list[dict[str, Any]], case: str) -> tuple[Usage | None, list[dict[str, Any]]]:
    """Put usage where endpoints put it; returns what it comes to, and what stands behind the end."""
    way = draw(st.sampled_from(("growing", "end", "on each and at the end") if case == "usage" else ("none", "end")))
    if way == "none":
        return None, []
    prompt, last = draw(st.integers(0, 10**6)), draw(st.integers(0, 10**6))
    cached, thought = draw(st.integers(0, prompt)), draw(st.integers(0, last))
    details = {
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": thought},
    }
    final = usage(prompt, last, **details)
    if way != "end":
        for place, each in enumerate(chunks):
            if each.get("choices"):
                chunks[place] = {**each, "usage": usage(prompt, min(place, last))["usage"]}
    if way == "growing":
        chunks.append({**delta(content=""), "usage": final["usage"]})
        return Usage(prompt, last, cached, thought), []
    empty = draw(st.sampled_from(([], None)))
    return Usage(prompt, last, cached, thought), [{**final, "choices": empty}]


def _calls(draw: Any, calls: tuple[tuple[str, str], ...], case: str) -> list[dict[str, Any]]:
    odd_index = ("null", "missing", "from 1", "gaps", "zero", "text")
    odd_id = ("null later", "empty later", "every", "fresh later")
    index = draw(st.sampled_from(odd_index if case == "index" else ("proper", "null", "from 1")))
    identity = draw(st.sampled_from(odd_id if case == "id and name" else ("first", "null later", "every")))
    naming = draw(st.sampled_from(("repeated", "split", "once") if case == "id and name" else ("once",)))
    rows = [_call_pieces(draw, number, name, raw, index, identity, naming) for number, (name, raw) in enumerate(calls)]
    apart = index in ("proper", "from 1", "gaps", "text") and identity != "fresh later" and naming == "once"
    if not apart or not draw(st.booleans()):
        return [piece for row in rows for piece in row]
    # Calls begin in their order, which nothing else tells; what follows of each comes as it comes.
    out: list[dict[str, Any]] = []
    begun = 0
    while any(rows):
        able = [place for place, row in enumerate(rows) if row and place <= begun]
        place = draw(st.sampled_from(able))
        out.append(rows[place].pop(0))
        begun = max(begun, place + 1)
    return out


def _call_pieces(
    draw: Any, number: int, name: str, raw: str, index: str, identity: str, naming: str
) -> list[dict[str, Any]]:
    places = {"proper": number, "null": None, "missing": None, "from 1": number + 1, "gaps": 3 * number + 2, "zero": 0}
    place: Any = str(number) if index == "text" else places[index]
    names = [name[:4], name[4:]] if naming == "split" and len(name) > 4 else [name]
    arguments = pieces(draw, raw)
    out = []
    for step in range(len(arguments) + len(names) - 1):
        fields: dict[str, Any] = {}
        if step < len(names):
            fields["name"] = names[step]
        elif naming == "repeated":
            fields["name"] = name
        if step >= len(names) - 1:
            fields["arguments"] = arguments[step - len(names) + 1]
        if step == 0 or identity == "every":
            fields["id"] = f"id{number}"
        elif identity == "null later":
            fields["id"] = None
        elif identity == "empty later":
            fields["id"] = ""
        elif identity == "fresh later" and "name" not in fields:
            fields["id"] = f"other{number}_{step}"
        out.append(tool_delta(place, without_index=index == "missing", **fields))
    return out


def as_bytes(draw: Any, response: Response) -> bytes:
    """Write the chunks as server-sent events, in one of the ways that the standard allows."""
    newline = draw(st.sampled_from((b"\n", b"\r\n", b"\r")))
    plain = draw(st.booleans())
    spoken = "".join(json.dumps(each, ensure_ascii=False) for each in response.chunks)
    halves = any("\ud800" <= character <= "\udfff" for character in spoken)  # which UTF-8 cannot hold
    out = [b"\xef\xbb\xbf"] if draw(st.booleans()) else []
    for each in response.chunks:
        if draw(st.integers(0, 5)) == 0:
            out.append(draw(st.sampled_from(SSE_NOISE)) + newline)
        lines = json.dumps(each, ensure_ascii=plain or halves, indent=1 if draw(st.integers(0, 9)) == 0 else None)
        prefix = draw(st.sampled_from((b"data: ", b"data:")))
        # What json leaves raw in a string ends no line of an event stream but these two, which json escapes.
        out += [prefix + line.encode() + newline for line in lines.split("\n")]
        out.append(newline)
    if response.done:
        out.append(b"data: [DONE]" + newline * 2)
    return b"".join(out)


def cut(draw: Any, data: bytes, most: int = 12) -> list[bytes]:
    """Divide bytes anywhere."""
    places = sorted(draw(st.lists(st.integers(0, len(data)), max_size=most)))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
