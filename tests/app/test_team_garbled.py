"""Whatever stands in the files of a home: a conversation is taken up whole or refused in one line, and others begin."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.histories import build
from support.scripts import one_helper

from astrion_nb import Team
from astrion_nb.app.shelf import conversations
from astrion_nb.errors import AstrionError, StorageError
from astrion_nb.home import Home
from astrion_nb.llm.model import Finished, ModelRequest, StreamEvent, TextDelta
from astrion_nb.messages import Usage
from astrion_nb.notebook.shown import transcript
from astrion_nb.render.board import board_bundle
from astrion_nb.render.transcript import export_markdown
from astrion_nb.state import apply
from astrion_nb.store.conversations import ConversationStore

pytestmark = pytest.mark.faults

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 7, 2**40, 10**30, 1.5, -0.5, 1e308, float("nan"), float("inf")),
    *("", "x", "\x00\x1b[2J\u202e", "<b>$1$", "../../x", "9" * 5000, "-1", "human", "0001-01-01T00:00:00+14:00"),
    *([], {}, [None], [[]], ["x"], {"a": 1}, {"a": {"b": []}}, {"usage": "x"}, [{"id": "x"}]),
)
DEEP = b"[" * 100_000, b'{"a":' * 100_000, b"[" * 200 + b"]" * 200
DIGITS = b"9" * 5000
WHOLE = (b"", b"\x00" * 50, b"{", b"[]", b"null", b"5", b"\xff\xfe{}", b'{"a":NaN}', DIGITS, *DEEP)
CHOICES = [
    *[("create", 0, "设计前端", None), ("run", 0, "标题", None), ("queue", 1, "做", None), ("drain", 1, "", None)],
    *[("call", 1, "{}", None), ("ask", 1, "?", None), ("queue", 3, "later", None), ("keep", 3, "early", None)],
    *[("say", 1, "said", {"a": 1}), ("create", 0, "测试", None), ("call", 2, "{}", None), ("ask", 4, "?", None)],
    *[("answer", 0, "yes", None), ("usage", 2, "", None), ("warn", 0, "careful", None), ("status", 2, "", None)],
    *[("end", 0, "over", None), ("run", 0, "again", None)],
]


class Steady:
    """A model that always says the same."""

    key = "qwen3-max"
    endpoint = "steady"

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        json.dumps([message.to_json() for message in request.messages])
        yield TextDelta("Fine.")
        yield Finished("Fine.", usage=Usage(10, 1))

    async def close(self) -> None:
        pass


Files = dict[str, bytes]
Place = tuple[str, int | None, tuple[str | int, ...]]


def taken(home: Home) -> Files:
    found = (path for path in home.root.rglob("*") if path.is_file() and path.suffix in (".json", ".jsonl", ".md"))
    return {str(path.relative_to(home.root)): path.read_bytes() for path in found if path.name != "owner.json"}


@cache
def stored() -> tuple[Files, str]:
    """Return the files of a home with a conversation whose documents lag behind its journal, and its id."""

    async def run(root: str) -> tuple[Files, str]:
        home = Home(root)
        async with Team(model=one_helper(), home=home) as team:
            await team.run("Make a button.")
        store = ConversationStore(home)
        conversation = store.create()
        history = build(CHOICES, conversation.id)
        for place, stamped in enumerate(history):
            apply(conversation.state, stamped.event, seq=stamped.seq, t=stamped.t)
            conversation.record(stamped)
            if place == len(history) // 3:
                await conversation.settle()
                settled = taken(home)
        await conversation.durable(len(history))
        files = {**taken(home), **{name: data for name, data in settled.items() if not name.endswith("journal.jsonl")}}
        await conversation.close()
        return files, conversation.id

    with TemporaryDirectory() as root:
        return asyncio.run(run(root))


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Give the path of every value inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from leaves(item, (*path, key))


@cache
def places() -> list[Place]:
    """Return every value of every document and of every line of the journal."""
    files, conversation_id = stored()
    out: list[Place] = []
    for name, data in sorted(files.items()):
        if name.endswith(".json") and ("conv_" not in name or conversation_id in name):
            out += [(name, None, path) for path in leaves(json.loads(data))]
        elif name.endswith(".jsonl") and conversation_id in name:
            lines = data.splitlines()
            out += [(name, number, path) for number, line in enumerate(lines) for path in leaves(json.loads(line))]
    return out


def replaced(place: Place, value: Any) -> Files:
    """Return the files with one value replaced; ``...`` takes it out."""
    name, number, path = place
    files = dict(stored()[0])
    lines = [files[name]] if number is None else files[name].splitlines()
    whole = json.loads(lines[number or 0])
    inner = whole
    for key in path[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = "@@" if isinstance(value, bytes) else value
    text = json.dumps(whole).encode()
    lines[number or 0] = text.replace(b'"@@"', value) if isinstance(value, bytes) else text
    files[name] = lines[0] if number is None else b"".join(line + b"\n" for line in lines)
    return files


async def taken_up(home: Home, conversation_id: str) -> None:
    """Open, show, run, save and open again, unless it is refused when it is opened."""

    def shown(team: Team) -> None:
        for part in (*transcript(team).values(), *board_bundle(team.state).values(), export_markdown(team.state)):
            part.encode()

    team = Team(model=Steady(), home=home, conversation=conversation_id)
    try:
        await team.open()
    except AstrionError as error:
        told = str(error)
    else:
        told = ""
    assert "\n" not in told
    assert len(told) < 600
    if told:
        await team.close()
        return
    shown(team)
    refused: list[AstrionError] = []
    deeds = [lambda: team.run("Go on.", timeout=5), *(lambda agent=a: team.ask(agent, "?", timeout=5) for a in (1, 2))]
    for deed in deeds:
        try:
            await deed()
        except AstrionError as error:
            refused.append(error)
    assert [error for error in refused if isinstance(error, StorageError) or "internal" in str(error)] == []
    shown(team)
    await team.close()
    async with Team(model=Steady(), home=home, conversation=conversation_id) as again:
        await again.open()
        shown(again)


async def begun(home: Home) -> None:
    """Begin a new team beside whatever lies there."""
    conversations(home)
    async with Team(model=Steady(), home=home) as team:
        assert (await team.run("Something new.")).text == "Fine."


def check(files: Files, *, later: bool = False) -> None:
    with TemporaryDirectory() as root:
        for name, data in files.items():
            path = Path(root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

        async def run() -> None:
            await taken_up(Home(root), stored()[1])
            if not later:
                await begun(Home(root))

        asyncio.run(asyncio.wait_for(run(), 20))


many = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
garbage = st.sampled_from((..., *VALUES, DIGITS, *DEEP))


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No fault may be told to the log alone."""
    yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


@many
@given(st.deferred(lambda: st.sampled_from(places())), garbage)
def test_any_value_in_any_file_is_borne_or_refused(place: Place, value: Any) -> None:
    later = place[0].endswith("state.json") and place[2] == ("version",)
    check(replaced(place, value), later=later and value in (7, 2**40))


@many
@given(st.deferred(lambda: st.sampled_from(sorted(stored()[0]))), st.sampled_from(WHOLE))
def test_any_file_may_be_anything(name: str, data: bytes) -> None:
    check({**stored()[0], name: data})
