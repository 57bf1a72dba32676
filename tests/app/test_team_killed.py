"""A team whose process is killed, again and again: what was told is kept once, and the work goes on."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.served import MEMBERS, check, configure, envelopes, play
from support.served import actor as who
from support.strict_server import Response, StrictServer

import astrion_nb
from astrion_nb.home import Home
from astrion_nb.state import TeamState
from astrion_nb.store.conversations import ConversationStore

pytestmark = pytest.mark.faults

PROGRAM = """
import asyncio, os, sys
from astrion_nb import Team, tool

@tool
def mark(what: str) -> str:
    "Leave a mark in the world."
    handle = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, what.encode() + b"\\n")
    os.close(handle)
    return f"marked {what}"

async def main():
    async with Team(conversation=sys.argv[2] if len(sys.argv) > 2 else None, tools=[mark]) as team:
        result = await team.run("Look at the pages.")
        print(result.status, team.conversation_id, flush=True)

asyncio.run(main())
"""
LONGEST = 40.0
"""Seconds that one process may take on a busy machine."""


class Killer:
    """A server that plays the team, and ends the team's process after so many requests and a moment more."""

    def __init__(self, server: StrictServer) -> None:
        self.server = server
        self.seen: dict[str, list[dict[str, Any]]] = {}
        self.told: Counter[tuple[str, str]] = Counter()
        self.after = 0
        self.due = threading.Event()
        server.on_request = self.answer

    def answer(self, request: dict[str, Any], number: int) -> Response:
        actor = who(request)
        self.seen[actor] = request["messages"]
        for envelope in envelopes(request):
            self.told[actor, envelope.id] += 1
        self.after -= 1
        if self.after == 0:
            self.due.set()
        return play(request, number)

    def kill(self, home: Path, conversation_id: str, after: int, delay: float) -> None:
        """Run the team, in as many processes as it takes, until one was killed after so many requests."""
        self.after = after
        while True:
            self.due.clear()
            with self._start(home, conversation_id) as child:
                try:
                    end = time.monotonic() + LONGEST
                    while not self.due.wait(0.05) and child.poll() is None:
                        assert time.monotonic() < end, f"no {after} requests within {LONGEST} s"
                    time.sleep(delay)
                    child.send_signal(signal.SIGKILL)
                    out, err = child.communicate(timeout=LONGEST)
                finally:
                    child.kill()
            if child.returncode == -signal.SIGKILL:
                return
            assert child.returncode == 0, err  # it came to its end before
            conversation_id = out.split()[-1]
            self.after = max(1, self.after)

    def finish(self, home: Path, conversation_id: str = "") -> str:
        """Run the team to its end; returns what its process printed."""
        with self._start(home, conversation_id) as child:
            try:
                out, err = child.communicate(timeout=LONGEST)
            finally:
                child.kill()
        assert (child.returncode, err) == (0, "")
        return out

    def _start(self, home: Path, conversation_id: str) -> subprocess.Popen[str]:
        arguments = [str(home / "marks"), *([conversation_id] if conversation_id else [])]
        package = str(Path(astrion_nb.__file__).parents[1])
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "ASTRION_HOME": str(home), "PYTHONPATH": package},
        )


def loaded(home: Path) -> TeamState:
    """Read the one conversation as it lies on the disk, as any reader may."""
    store = ConversationStore(Home(home))
    (entry,) = store.list()
    assert entry.error == ""
    return store.open(entry.id, read_only=True).state


def kills(home: Path, seed: int, count: int) -> None:
    """Kill a team's process so often in one conversation, then let it come to its end."""
    print(f"seed {seed}")
    dice = random.Random(seed)
    with StrictServer(pace=0.001) as server:
        configure(home, server)
        killer = Killer(server)
        conversation_id = ""
        for number in range(count):
            after, delay = dice.randint(1, 24), dice.random() * 0.04
            print(f"kill {number}: {after} requests and {delay * 1000:.1f} ms")
            killer.kill(home, conversation_id, after, delay)
            state = loaded(home)
            check(killer.seen, state)
            conversation_id = state.conversation_id
        assert killer.finish(home, conversation_id) == f"completed {conversation_id}\n"
        assert server.violations == []
        state = loaded(home)
        check(killer.seen, state)
    told = {(actor, envelope) for actor, envelope in killer.told}
    assert len(told) > 4 * MEMBERS
    finished(home, state)


def finished(home: Path, state: TeamState) -> None:
    """Check the files and the world after the end."""
    assert len(state.members()) == MEMBERS
    assert {agent.status for agent in state.agents.values()} == {"completed"}
    assert state.open_questions() == []
    assert not any(item.wakes for agent in state.agents.values() for item in agent.pending)
    folder = Home(home).conversations / state.conversation_id
    assert (folder / "journal.jsonl").read_bytes() == b""
    for path in folder.rglob("*.json"):
        json.loads(path.read_text(encoding="utf-8"))
    assert not list(folder.rglob("*.tmp"))
    marks = (home / "marks").read_text(encoding="utf-8").split()
    assert len(set(marks)) == len(marks), "a tool that touches the world ran twice"
    for agent in state.members():
        names = {
            call.id: json.loads(call.arguments)["what"]
            for m in agent.messages
            for call in m.tool_calls
            if call.name == "mark"
        }
        for message in agent.messages:
            if message.tool_call_id in names and (message.content or "").startswith("marked"):
                assert names[message.tool_call_id] in marks


def test_four_kills_lose_nothing_that_was_told_and_tell_nothing_twice(tmp_path: Path) -> None:
    kills(tmp_path, random.randrange(10**6), 4)


@pytest.mark.slow
@pytest.mark.parametrize("conversation", range(5))
def test_twenty_kills_lose_nothing_that_was_told_and_tell_nothing_twice(tmp_path: Path, conversation: int) -> None:
    kills(tmp_path, random.randrange(10**6), 4)


def test_the_same_work_without_a_kill_comes_to_the_same_end(tmp_path: Path) -> None:
    with StrictServer() as server:
        configure(tmp_path, server)
        killer = Killer(server)
        assert killer.finish(tmp_path).startswith("completed conv_")
        assert server.violations == []
        state = loaded(tmp_path)
        check(killer.seen, state)
        finished(tmp_path, state)
        assert asyncio.run(_is_free(tmp_path, state.conversation_id))


async def _is_free(home: Path, conversation_id: str) -> bool:
    return ConversationStore(Home(home)).owner(conversation_id) is None
