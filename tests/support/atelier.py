"""A team of three painters and a leader, small and complete: what a kill may hit.

Creation of three at once, a question to the leader, one to a neighbour, a notice, parallel calls of which one touches
the world, text beside calls, guidance while an agent works, a person's question, an agent that is stopped in the middle
of an answer. Everybody's part is a function of what he has read, so that any process can play on.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from astrion_nb import Team, tool
from astrion_nb.errors import AstrionError
from astrion_nb.events import RunEnded, Stamped, TextStreamed
from astrion_nb.llm.assemble import Assembler
from astrion_nb.llm.model import ModelRequest, StreamEvent
from astrion_nb.llm.wire import wire_messages
from astrion_nb.tools.registry import Tool

from .served import LEADER, actor, envelopes
from .strict_parts import Part, Response, calls, text
from .strict_rules import offers, violations_of

PAGES = 3
ROLE = "ui-operator"
TASK = "Paint three pages."
GO_ON = "Go on."
GUIDANCE = "Take teal for page 1."
PERSONS_QUESTION = "How far is page 2?"
KEY = "one"


def name_of(page: int) -> str:
    return f"UI Operator_{page}"


# -- what everybody says, by what he has read -----------------------------------------------------


def play(request: dict[str, Any], _: int = 0) -> Response:
    """Answer any request of the atelier; fit for ``StrictServer.on_request``."""
    return _lead(request) if offers(request, "create_sub_agent") else _paint(request)


def made(messages: Iterable[Mapping[str, Any]]) -> list[tuple[str, dict[str, Any], str]]:
    """Return the calls that have a result: name, arguments, result."""
    messages = list(messages)
    results = {message["tool_call_id"]: message["content"] for message in messages if message["role"] == "tool"}
    return [
        (call["function"]["name"], json.loads(call["function"]["arguments"]), results[call["id"]])
        for message in messages
        for call in message.get("tool_calls") or ()
    ]


def _lead(request: Mapping[str, Any]) -> Response:
    messages = request["messages"]
    told = made(messages)
    answered = {arguments["question_id"] for name, arguments, result in told if _answered(name, result)}
    asks = [each for each in envelopes(request) if each.kind == "ask" and each.id not in answered]
    if asks:
        return calls(
            *(
                (
                    "answer_sub_agent_question",
                    {"agent_id": ask.sender, "question_id": ask.id, "answer": f"Yes to: {ask.content}"},
                )
                for ask in asks
            )
        )
    last_word = max(n for n, each in enumerate(messages) if each["role"] == "user" and not _is_envelope(each))
    looks = [
        n
        for n, message in enumerate(messages)
        if any(
            call["function"]["name"] in ("create_sub_agent", "list_active_sub_agents")
            for call in message.get("tool_calls") or ()
        )
    ]
    if not looks:
        return calls(*(_create(page) for page in range(1, PAGES + 1)), say="Three painters, 三位画师。")
    if last_word > looks[-1]:
        return calls(("list_active_sub_agents", {}), say="Who is there?")
    last = max(n for n, each in enumerate(messages) if each["role"] == "assistant")
    seen = [each["content"] for each in messages[last:] if each["role"] == "tool" and '"agents":[' in each["content"]]
    if seen:
        return _set_to_work(json.loads(seen[0])["agents"])
    return text(f"Noted {len(messages)} messages.")


def _answered(name: str, result: str) -> bool:
    return name == "answer_sub_agent_question" and "interrupted" not in result


def _is_envelope(message: Mapping[str, Any]) -> bool:
    return any(True for _ in envelopes({"messages": [message]}))


def _create(page: int) -> tuple[str, dict[str, Any]]:
    return "create_sub_agent", {"agent_id": page, "role_id": ROLE, "task": f"Page {page}, 第 {page} 页。"}


def _set_to_work(agents: list[dict[str, Any]]) -> Response:
    wanted = [
        ("send_message_to_sub_agent", {"agent_id": agent["agent_id"], "message": GO_ON})
        for agent in agents
        if agent["status"] == "idle"
    ]
    there = {agent["summary"] for agent in agents}
    for page in range(1, PAGES + 1):
        task = _create(page)
        if not any(str(page) in summary for summary in there) and task[1]["task"] not in there:
            wanted.append(task)
    return calls(*wanted) if wanted else text("Everybody is at work.")


def page_of(request: Mapping[str, Any]) -> int:
    """Return which page a painter paints."""
    return int(next(each.content for each in envelopes(request) if each.content.startswith("Page "))[5])


def _paint(request: Mapping[str, Any]) -> Response:
    """Do the first duty that is not done yet; then report."""
    page, told = page_of(request), made(request["messages"])
    marked = {arguments["what"] for name, arguments, _ in told if name == "mark"}
    open_asks = _open_asks(request, told)
    if f"{page}-a" not in marked:
        return _begin(page)
    if open_asks:
        return calls(*open_asks)
    if page == 1 and not _done(told, "ask_master"):
        number = sum(name == "ask_master" for name, _, _ in told)
        ask = {"question": f"May page 1 be blue? ({number})", "question_id": f"ask_blue_{number}"}
        return calls(("ask_master", ask), ("list_active_sub_agents", {}))
    if page == 2 and not _done(told, "ask_other_agent", expects_answer=None):
        return calls(("ask_other_agent", _peer(3, "Which size?", "size", told)))
    if page == 2 and not _done(told, "ask_other_agent", expects_answer=False):
        return calls(("ask_other_agent", _peer(1, "Page 2 is A4.", "notice", told, expects_answer=False)))
    if page == 3 and not _done(told, "list_active_sub_agents"):
        return calls(("list_active_sub_agents", {}))
    return text(f"Page {page} is painted, 完成。")


def _begin(page: int) -> Response:
    first = ("mark", {"what": f"{page}-a"})
    if page == 1:
        return calls(first, ("mark", {"what": "1-b"}), say="Page 1 begun.")
    if page == 2:
        return calls(("ask_other_agent", _peer(3, "Which size?", "size", [])), first, say="Page 2 begun.")
    return calls(first, say="Page 3 begun.")


def _peer(page: int, content: str, stem: str, told: list[Any], **more: Any) -> dict[str, Any]:
    number = sum(name == "ask_other_agent" for name, _, _ in told)
    said = f"{content} ({number})"
    return {"target_agent_id": name_of(page), "content": said, "message_id": f"{stem}_{number}", **more}


def _sent_on(request: Mapping[str, Any]) -> int:
    return sum(each.content == GO_ON for each in envelopes(request))


def _done(told: Iterable[tuple[str, dict[str, Any], str]], wanted: str, **named: Any) -> bool:
    return any(
        name == wanted and "interrupted" not in result and all(arguments.get(k) == v for k, v in named.items())
        for name, arguments, result in told
    )


def _open_asks(request: Mapping[str, Any], told: Iterable[tuple[str, dict[str, Any], str]]) -> list[Any]:
    """Return the answers to the questions of neighbours that are read and not answered."""
    answered = {
        arguments["message_id"]
        for name, arguments, result in told
        if name == "answer_other_agent" and "interrupted" not in result
    }
    return [
        (
            "answer_other_agent",
            {"source_agent_id": each.sender, "message_id": each.id, "answer": f"A4, to: {each.content}"},
        )
        for each in envelopes(request)
        if each.kind == "ask" and each.sender != "Team Leader" and each.id not in answered
    ]


# -- the model of the first process ----------------------------------------------------------------


class Painter:
    """A model that plays the atelier in the process itself, as strict as the server.

    Parameters
    ----------
    seen : callable
        Called with each request's body before it is answered.
    """

    def __init__(self, seen: Callable[[dict[str, Any]], None]) -> None:
        self.key = KEY
        self.endpoint = "atelier"
        self._seen = seen

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        body = {
            "model": "painter",
            "messages": wire_messages(request.messages),
            "tools": [dict(each) for each in request.tools],
            "stream": True,
        }
        assert violations_of(body) == []
        self._seen(body)
        told = made(body["messages"])
        parts = list(play(body))  # type: ignore[arg-type]  # it gives no whole replies
        third = actor(body) != LEADER and page_of(body) == 3
        # Once it is stopped by the person, once by its clock; then it comes to its end.
        reports = third and _done(told, "list_active_sub_agents") and not _open_asks(body, told)
        hangs = reports and _sent_on(body) < 2
        assembler = Assembler(call_id_prefix=f"call_{actor(body)}_{request.turn}_")
        for number, part in enumerate(parts):
            for event in assembler.feed(self._numbered(part, body, request.turn)):
                yield event
            if hangs and number == 4:
                await asyncio.get_running_loop().create_future()  # until it is stopped
            await asyncio.sleep(0)
        for event in assembler.flush():
            yield event
        yield assembler.finish(True)

    def _numbered(self, part: Part, body: Mapping[str, Any], turn: int) -> dict[str, Any]:
        """Return a chunk whose call ids depend on who calls and when, not on what else the process did."""
        assert isinstance(part, dict)
        for choice in part.get("choices") or ():
            for piece in choice["delta"].get("tool_calls") or ():
                if "id" in piece:
                    piece["id"] = f"call_{actor(body)}_{turn}_{piece['index']}"
        return part

    async def close(self) -> None:
        return


# -- what happens ----------------------------------------------------------------------------------


class Diary:
    """Notes that survive the process: one line each, handed to the system at once.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self.lines = 0
        self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, kind: str, value: Any) -> None:
        self.lines += 1
        os.write(self._handle, json.dumps([kind, value]).encode() + b"\n")


def read_diary(path: Path) -> list[tuple[str, Any]]:
    """Return the notes, oldest first."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [(kind, value) for kind, value in map(json.loads, lines)]


def brush(diary: Diary) -> Tool:
    """Return the tool that touches the world."""

    @tool
    async def mark(what: str) -> str:
        "Leave a mark in the world."
        diary.note("mark", what)
        return f"marked {what}"

    return mark


async def perform(team: Team, diary: Diary) -> None:
    """Let the team do its work once, with a person who acts in the middle of it; note what the person was told."""
    work = asyncio.Event(), asyncio.Event(), asyncio.Event(), asyncio.Event()
    spoke, asked, stalled, over = work

    def look(stamped: Stamped) -> None:
        event = stamped.event
        if isinstance(event, TextStreamed):
            {1: spoke, 2: asked}.get(event.agent_id, asyncio.Event()).set()
            if event.agent_id == 3 and "painted" in event.text:
                stalled.set()
        elif isinstance(event, RunEnded):
            over.set()

    team.watch(look)

    async def guide() -> None:
        await spoke.wait()
        diary.note("sent", await team.send(name_of(1), GUIDANCE))

    async def ask() -> None:
        await asked.wait()
        try:
            diary.note("answered", await team.ask(name_of(2), PERSONS_QUESTION))
        except AstrionError as error:
            diary.note("unanswered", str(error))

    async def stop() -> None:
        await stalled.wait()
        await team.stop(name_of(3), "enough")
        diary.note("stopped", 3)

    async def more() -> None:
        await over.wait()  # while the documents of the first run are being written
        diary.note("sent", await team.send("leader", "Thank you."))

    people = [asyncio.ensure_future(one()) for one in (guide, ask, stop, more)]
    await team.start(TASK)
    diary.note("started", TASK)
    result = await team.wait()
    await asyncio.gather(*people)
    result = await team.wait()
    diary.note("ended", [result.status, result.text])
    await asyncio.sleep(3)  # the documents are at rest by then
    result = await team.run("And the last word?")
    diary.note("ended", [result.status, result.text])
