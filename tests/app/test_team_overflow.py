"""Conversations that are longer than the model's context, at a real endpoint that refuses what is too long.

The faults "context overflow and compaction thrash" and "cost counted twice".
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.casts import said
from support.narrow import Narrow, characters, systems
from support.served import configure
from support.strict_server import Response, StrictServer, calls, last, offers, results, roles, text
from support.teams import go

import astrion_nb
from astrion_nb import Team, tool
from astrion_nb.errors import RunFailed
from astrion_nb.home import Home
from astrion_nb.ids import LEADER_ID
from astrion_nb.messages import Usage
from astrion_nb.prompts import base_prompt
from astrion_nb.store.conversations import ConversationStore

pytestmark = pytest.mark.faults

PROMPT = len(base_prompt("leader", "en").text)
ROOM = PROMPT + 9_000
TASK = "Read all the pages, and mind the comma on page seven."


@tool
def page(number: int, length: int) -> str:
    """Return a page."""
    return f"page {number}: " + "word " * (length // 5)


def pages_read(request: dict[str, Any]) -> int:
    """Return the number of the last page that a request or its digest knows of."""
    return max((int(number) for number in re.findall(r"number\W+(\d+)", str(request["messages"]))), default=0)


def reader(count: int, length: int) -> Any:
    """Play a leader that reads so many pages and says how many it has read."""

    def play(request: dict[str, Any]) -> Response:
        read = pages_read(request)
        if read < count:
            return calls(("page", {"number": read + 1, "length": length}))
        return text(f"Read {read} pages.")

    return play


@pytest.fixture
def server() -> Iterator[StrictServer]:
    with StrictServer() as server:
        yield server
        assert server.violations == []


def team(home: Path, server: StrictServer, more: str = "", **options: Any) -> Team:
    place = configure(home, server, more={"one": more})
    return Team(home=place, tools=[page], language="en", **options)


def test_a_conversation_outgrows_its_context_again_and_again_and_goes_on(tmp_path: Path, server: StrictServer) -> None:
    narrow = server.on_request = Narrow(reader(40, 900), ROOM)

    async def main() -> None:
        async with team(tmp_path, server) as made:
            result = await made.run(TASK)
            assert (result.status, result.text) == ("completed", "Read 40 pages.")
            leader = made.state.agents[LEADER_ID]
            compactions = [message for message in leader.messages if message.compaction is not None]
            assert len(narrow.refused) == len(compactions) >= 3
            assert "rr" not in narrow.order, "each one was enough"
            assert len(narrow.taken) == 41
            assert narrow.order.count("r") < 12, "half of it goes at a time, so most requests are not refused"
            assert result.usage == Usage(41 * 10, 41 * 5), "a refused request costs nothing, and none counts twice"
            for number, request in enumerate(narrow.taken, 1):
                assert TASK in said(request)
                assert json.loads(json.dumps(made.request("leader", number))) == request
            assert [message.role for message in leader.messages].count("tool") == 40, "the file has everything"
        conversation = made.conversation_id
        async with team(tmp_path, server, conversation=conversation) as again:
            assert again.usage == result.usage
            assert json.loads(json.dumps(again.request("leader", 41))) == narrow.taken[-1]

    go(main)


def test_a_giant_result_is_cut_to_what_fitted_before(tmp_path: Path, server: StrictServer) -> None:
    narrow = server.on_request = Narrow(reader(1, 390_000), ROOM)

    async def main() -> None:
        async with team(tmp_path, server) as made:
            result = await made.run(TASK)
            assert (result.status, result.text) == ("completed", "Read 1 pages.")

    go(main)
    assert narrow.order == "trt"
    (shown,) = results(narrow.taken[-1]).values()
    assert shown.startswith("page 1: word")
    assert "characters left out here]" in shown
    assert len(shown) > 2_000


def test_a_task_longer_than_the_context_is_a_failure_with_sizes_and_the_leader_is_told(
    tmp_path: Path, server: StrictServer
) -> None:
    long = "Do this. " * 4_000

    def play(request: dict[str, Any]) -> Response:
        if not offers(request, "create_sub_agent"):
            return text("never")
        if not results(request):
            return calls(("create_sub_agent", {"agent_id": 1, "role_id": "researcher", "task": long}))
        if "done" not in said(request) and "My turn failed" not in said(request):
            return text("Waiting.")
        return text("It failed.")

    narrow = Narrow(play, ROOM)

    def longer(request: dict[str, Any], number: int) -> Any:
        narrow.limit = 3 * len(long) if offers(request, "create_sub_agent") else ROOM  # only the member's is small
        return narrow(request, number)

    server.on_request = longer

    async def main() -> None:
        async with team(tmp_path, server) as made:
            result = await made.run("Go.")
            assert result.status == "completed"
            state = made.state.agents[1]
            assert (state.status, state.detail) == ("idle", "failed")
            sizes = re.search(r"has ([\d,]+) characters, the request had ([\d,]+)", state.error)
            assert sizes is not None
            assert [int(size.replace(",", "")) for size in sizes.groups()] == [characters(narrow.refused[0])] * 2
            assert characters(narrow.refused[0]) > len(long) > ROOM

    go(main)
    assert len(narrow.refused) == 1, "there was nothing to leave out, so it was not asked again"
    assert "My turn failed: the prompt is longer than the model's context" in last(narrow.taken[-1])


def test_a_second_overflow_in_a_row_is_a_failure_and_the_next_message_asks_once_or_twice_more(
    tmp_path: Path, server: StrictServer
) -> None:
    narrow = server.on_request = Narrow(reader(30, 900), ROOM)

    async def main() -> None:
        async with team(tmp_path, server) as made:
            narrow._play = lambda request: reader(30, 900)(request) if pages_read(request) < 5 else shut(narrow)
            with pytest.raises(RunFailed, match=r"has [\d,]+ characters, the request had [\d,]+"):
                await made.run(TASK)
            assert narrow.order.endswith("trr")
            count = len(narrow.order)
            with pytest.raises(RunFailed):
                await made.run("And now?")
            assert len(narrow.order) - count <= 2

    def shut(narrow: Narrow) -> Response:
        narrow.limit = 10
        return calls(("page", {"number": 6, "length": 900}))

    go(main)


def test_an_open_question_outlives_what_was_said_around_it(tmp_path: Path, server: StrictServer) -> None:
    def play(request: dict[str, Any]) -> Response:
        if not offers(request, "create_sub_agent"):
            asked = results(request)
            return (
                text(f"Told: {asked}")
                if asked
                else calls(("ask_master", {"question": "Which shade of blue?", "question_id": "q"}))
            )
        known = said(request)
        if roles(request) == ["system", "user"]:
            return calls(("create_sub_agent", {"agent_id": 1, "role_id": "researcher", "task": "Paint."}))
        if "Told: " in known:
            return text("Painted.")
        if "Which shade" not in known:
            return text("Waiting.")
        if pages_read(request) < 20:
            return calls(("page", {"number": pages_read(request) + 1, "length": 900}))
        assert "<Ask>\nWhich shade of blue?\n</Ask>" in known
        question = re.search(r"^id: (\S+)\n\n.*\n<Ask>$", known, re.MULTILINE)
        assert question is not None
        answer = {"agent_id": 1, "question_id": question[1], "answer": "Navy."}
        return calls(("answer_sub_agent_question", answer))

    narrow = server.on_request = Narrow(play, ROOM)

    async def main() -> None:
        async with team(tmp_path, server) as made:
            result = await made.run(TASK)
            assert (result.status, result.text) == ("completed", "Painted.")
            (question,) = made.state.questions.values()
            assert (question.status, question.answer) == ("answered", "Navy.")

    go(main)
    assert narrow.refused


def test_a_known_context_is_kept_to_without_a_refusal(tmp_path: Path, server: StrictServer) -> None:
    limit = ROOM // 4
    inner = reader(40, 900)

    def counting(request: dict[str, Any]) -> Response:
        tokens = (characters(request) // 4, 5)
        read = pages_read(request)
        if read < 40:
            return calls(("page", {"number": read + 1, "length": 900}), tokens=tokens)
        return inner(request)

    narrow = server.on_request = Narrow(counting, ROOM)

    async def main() -> None:
        async with team(tmp_path, server, f"context = {limit}") as made:
            assert (await made.run(TASK)).text == "Read 40 pages."
            leader = made.state.agents[LEADER_ID]
            assert sum(message.compaction is not None for message in leader.messages) >= 3

    go(main)
    assert narrow.order == "t" * 41


@pytest.mark.parametrize(("more", "most"), [("join_system = true", 1), ("", 2), ("join_system = false", 2)])
def test_an_endpoint_that_knows_one_system_message_gets_one(
    tmp_path: Path, server: StrictServer, more: str, most: int
) -> None:
    narrow = server.on_request = Narrow(reader(20, 900), ROOM)

    async def main() -> None:
        async with team(tmp_path, server, more) as made:
            assert (await made.run(TASK)).status == "completed"

    go(main)
    assert max(len(systems(request)) for request in narrow.taken) == most
    assert systems(narrow.taken[-1])[0].startswith(base_prompt("leader", "en").text)
    assert "no instruction now" in systems(narrow.taken[-1])[-1]


PROGRAM = """
import asyncio, sys
from astrion_nb import Team, tool

@tool
def page(number: int, length: int) -> str:
    "Return a page."
    return f"page {number}: " + "word " * (length // 5)

async def main():
    async with Team(conversation=sys.argv[1] if len(sys.argv) > 1 else None, tools=[page], language="en") as team:
        result = await team.run("Go on." if len(sys.argv) > 1 else sys.stdin.read())
        print(result.status, result.text)

asyncio.run(main())
"""


def test_killed_at_the_first_shortened_request_another_process_goes_on_with_the_same_words(
    tmp_path: Path, server: StrictServer
) -> None:
    child: list[subprocess.Popen[str]] = []
    cut_off: list[dict[str, Any]] = []
    play = reader(30, 900)

    def deadly(request: dict[str, Any]) -> Response:
        if len(systems(request)) > 1 and not cut_off:
            cut_off.append(request)
            child[0].send_signal(signal.SIGKILL)
        return play(request)

    narrow = server.on_request = Narrow(deadly, ROOM)
    configure(tmp_path, server)
    place = str(Path(astrion_nb.__file__).parents[1])

    def start(*arguments: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        environment = {**os.environ, "ASTRION_HOME": str(tmp_path), "PYTHONPATH": place}
        command = [sys.executable, "-c", PROGRAM, *arguments]
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)

    with start() as first:
        child.append(first)
        first.communicate(TASK, timeout=40)
    assert first.returncode == -signal.SIGKILL
    store = ConversationStore(Home(tmp_path))
    (entry,) = store.list()
    before = len(narrow.taken)
    with start(entry.id) as second:
        out, err = second.communicate(timeout=40)
    assert (out, err) == ("completed Read 30 pages.\n", "")
    after = narrow.taken[before]
    assert after["messages"][: len(cut_off[0]["messages"])] == cut_off[0]["messages"]
    assert last(after) == "Go on."
