"""How an agent ended is on disk before the leader is told, also when the end falls into a save."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from support.scripts import until
from support.served import configure
from support.strict_server import Gate, Response, StrictServer, calls, delta, finish, last, offers, text
from support.teams import BOUND, go

from astrion_nb import Team
from astrion_nb.disk import RealFiles
from astrion_nb.home import Home
from astrion_nb.state import AgentState
from astrion_nb.store.loading import load

pytestmark = pytest.mark.faults

HOW = ["timed_out", "stopped", "terminated"]


class Play:
    """A leader, and an agent that is held after its first token; the leader's requests read the disk."""

    def __init__(self, home: Home, seconds: int) -> None:
        self.home, self.seconds = home, seconds
        self.gate = Gate()
        self.worker: list[dict[str, Any]] = []
        self.found: list[tuple[str, str]] = []

    def __call__(self, request: dict[str, Any], _: int) -> Response:
        if not offers(request, "create_sub_agent"):
            self.worker.append(request)
            return [delta(content="Fir"), self.gate, delta(content="st"), finish("stop")]
        if len(request["messages"]) == 2:
            create = {"agent_id": 1, "role_id": "ui-operator", "task": "Draw.", "timeout_seconds": self.seconds}
            return calls(("create_sub_agent", create))
        if last(request).startswith("来自 UI Operator_1 的"):
            agent = stored(self.home)
            self.found.append((agent.status, agent.detail))
        return text("Ok.")


def stored(home: Home) -> AgentState:
    """Return the agent as another process would find it."""
    (folder,) = home.conversations.glob("conv_*")
    return load(folder, RealFiles()).state.agents[1]


async def end(team: Team, how: str) -> None:
    if how == "stopped":
        await team.stop(1, reason="enough")
    elif how == "terminated":
        await team.terminate(1)


def expected(how: str) -> tuple[str, str]:
    return ("terminated", "") if how == "terminated" else ("idle", how)


@pytest.mark.parametrize("how", HOW)
def test_the_leader_is_told_how_an_agent_ended_when_that_is_on_disk(how: str, tmp_path: Path) -> None:
    async def main() -> None:
        with StrictServer() as server:
            home = configure(tmp_path, server)
            play = server.on_request = Play(home, 1 if how == "timed_out" else 0)
            async with Team(home=home) as team:
                working = asyncio.create_task(team.run("Go."))
                await asyncio.to_thread(play.gate.wait_reached)
                await end(team, how)
                await asyncio.to_thread(server.wait_for, lambda: server.dropped == 1)
                assert (await working).status == "completed"
                play.gate.release()
                assert play.found == [expected(how)], "told once, and it was on disk"
                assert len(play.worker) == 1
            assert (stored(home).status, stored(home).detail) == expected(how)
            assert server.violations == []

    go(main)


class SlowDisk:
    """Holds the next flush of the journal until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.armed, self.inside, self.free = threading.Event(), threading.Event(), threading.Event()
        inner = RealFiles.fsync

        def fsync(files: RealFiles, handle: int) -> None:
            if self.armed.is_set():
                self.inside.set()
                self.free.wait(BOUND)
            inner(files, handle)

        monkeypatch.setattr(RealFiles, "fsync", fsync)


@pytest.mark.parametrize("how", HOW)
def test_an_end_that_falls_into_a_save_is_whole_and_nothing_comes_after_it(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        disk = SlowDisk(monkeypatch)
        with StrictServer() as server:
            home = configure(tmp_path, server)
            play = server.on_request = Play(home, 1 if how == "timed_out" else 0)
            async with Team(home=home) as team:
                working = asyncio.create_task(team.run("Go."))
                await asyncio.to_thread(play.gate.wait_reached)
                disk.armed.set()
                saving = asyncio.create_task(team.send(1, "A note."))
                assert await asyncio.to_thread(disk.inside.wait, BOUND)
                ending = asyncio.create_task(end(team, how))
                await until(team, lambda team: (team.agents[0].status, team.agents[0].detail) == expected(how))
                assert play.found == [], "the leader is not told while it is not on disk"
                disk.armed.clear()
                disk.free.set()
                await saving
                await ending
                result = await working
                assert result.status == "completed"
                await team.wait()
                asked = len(server.requests)
            assert server.violations == []
            agent = stored(home)
            assert play.found[0] == expected(how)
            assert [(m.content, m.cut) for m in agent.messages if m.role == "assistant"] == [("Fir", True)]
            if how == "terminated":
                assert (agent.status, len(play.worker)) == ("terminated", 1)
            assert len(server.requests) == asked

    go(main)
