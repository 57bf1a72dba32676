"""A team whose disk is read-only, or fails in the middle: what is said, and what is left."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.scripts import NAME, create, one_helper
from support.teams import go

from astrion_nb import Team
from astrion_nb.disk import RealFiles
from astrion_nb.errors import RunFailed, StorageError
from astrion_nb.events import Stamped
from astrion_nb.home import Home
from astrion_nb.llm.model import ModelRequest
from astrion_nb.messages import Message
from astrion_nb.store import conversations
from astrion_nb.store.conversations import ConversationStore
from astrion_nb.testing import ScriptedModel, call, invariants, say

pytestmark = pytest.mark.faults


@pytest.fixture
def sealed(tmp_path: Path) -> Iterator[tuple[Home, str]]:
    """A home with one conversation, which cannot be written any more."""

    async def main() -> str:
        async with Team(model=one_helper(), home=tmp_path / "home") as team:
            await team.run("Go.")
        return team.conversation_id

    conversation = asyncio.run(main())
    home = tmp_path / "home"
    if os.getuid() == 0:  # whom permissions do not hold back
        bind = ["mount", "--bind", str(home), str(home)]
        if subprocess.run(bind, capture_output=True, check=False).returncode != 0:
            pytest.skip("mounting needs more rights than root has here")
        try:
            subprocess.run(["mount", "-o", "remount,ro,bind", str(home)], check=True)
            yield Home(home), conversation
        finally:
            subprocess.run(["umount", "-l", str(home)], check=True)
        return
    folders = [home, *(path for path in home.rglob("*") if path.is_dir())]
    for path in home.rglob("*.lock"):
        path.unlink()
    for folder in folders:
        folder.chmod(0o500)
    try:
        yield Home(home), conversation
    finally:
        for folder in folders:
            folder.chmod(0o700)


def test_what_cannot_be_written_can_be_listed_and_read(sealed: tuple[Home, str]) -> None:
    home, conversation = sealed

    async def main() -> None:
        (entry,) = ConversationStore(home).list()
        assert (entry.id, entry.title, entry.agent_count, entry.error) == (conversation, "Go.", 1, "")
        async with Team(conversation=conversation, read_only=True, home=home) as reader:
            assert [agent.last_text for agent in reader.agents] == ["A blue button."]
            assert "A blue button." in reader.transcript

    go(main)


def test_what_cannot_be_written_is_not_opened_for_writing_and_the_place_is_named(sealed: tuple[Home, str]) -> None:
    home, conversation = sealed

    async def main() -> None:
        for again in ({}, {"take_over": True}):
            with pytest.raises(StorageError, match=rf"{conversation}.*\((Read-only|Permission)"):
                await Team(conversation=conversation, home=home, model=ScriptedModel([]), **again).open()  # type: ignore[arg-type]
        with pytest.raises(StorageError, match=rf"{home.conversations}.*\((Read-only|Permission)"):
            await Team(model=ScriptedModel([]), home=home).open()

    go(main)


class Failing(RealFiles):
    """Files of a disk that fails at some of its syncs."""

    def __init__(self, first: int, last: int) -> None:
        self.count = 0
        self.first = first
        self.last = last
        self.failed: list[str] = []
        self._names: dict[int, str] = {}

    def open_append(self, path: Path) -> int:
        handle = super().open_append(path)
        self._names[handle] = path.name
        return handle

    def create(self, path: Path, mode: int | None = None) -> int:
        handle = super().create(path, mode)
        self._names[handle] = path.name
        return handle

    def fsync(self, handle: int) -> None:
        self.count += 1
        if self.first <= self.count <= self.last:
            self.failed.append(self._names[handle])
            raise OSError(errno.EIO, "Input/output error")
        super().fsync(handle)


def plain(messages: Sequence[Message]) -> list[tuple[str, str | None]]:
    return [(message.role, message.content) for message in messages if message.role != "system"]


UNTIL_IT_IS_WELL = 1000


@pytest.mark.parametrize("length", [1, 3, UNTIL_IT_IS_WELL])
def test_a_sync_that_fails_at_any_moment_is_told_and_nothing_that_was_told_before_is_lost(
    monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    async def work(files: Failing) -> tuple[str, str, list[Stamped]]:
        """Work on a disk that fails, until it is well again; returns the conversation, what was told, what happened."""
        monkeypatch.setattr(conversations, "RealFiles", lambda: files)
        model = ScriptedModel(
            {
                "Team Leader": [create(), say("I wait."), say("All done.")],
                NAME: [call("list_active_sub_agents"), say("A blue button.")],
            },
            check_on_close=False,
        )
        team, told = Team(model=model), ""
        happened: list[Stamped] = []
        team.watch(happened.append)
        try:
            told = (await team.run("Go.")).status
        except (StorageError, RunFailed) as error:
            told = str(error)
            assert "Input/output error" in told
        if team.conversation_id:
            if model.requests:
                holds_what_was_told(team.conversation_id, model.requests)
            try:
                await team.close()
            except StorageError as error:
                told = str(error)
                assert "Input/output error" in told
        files.first = files.count + 10**9  # the disk is well again
        if team.conversation_id:
            await team.close()
        return team.conversation_id, told, happened

    def holds_what_was_told(conversation: str, requests: list[ModelRequest]) -> None:
        state = ConversationStore(Home()).open(conversation, read_only=True).state
        stored = {agent.display_name: plain(agent.messages) for agent in state.agents.values()}
        for request in requests:
            told = plain(request.messages)
            assert stored[request.actor][: len(told)] == told, f"{request.actor} was told what is not on the disk"

    def left(conversation: str, happened: list[Stamped]) -> None:
        monkeypatch.setattr(conversations, "RealFiles", RealFiles)
        state = ConversationStore(Home()).open(conversation, read_only=True).state
        whole_seconds = [replace(stamped, t=float(int(stamped.t))) for stamped in happened]  # as documents have it
        invariants.check(state, whole_seconds)
        assert state.run_status != "running"

    whole = Failing(10**9, 10**9)
    conversation, told, happened = asyncio.run(work(whole))
    assert told == "completed"
    left(conversation, happened)
    assert whole.count > 10
    tellings = 0
    for number in range(1, whole.count + 1):
        files = Failing(number, number + length - 1)
        conversation, told, happened = asyncio.run(work(files))
        tellings += "Input/output error" in told
        if length == UNTIL_IT_IS_WELL:  # what fails for a moment may be mended before anybody waits for it
            assert bool(files.failed) == ("Input/output error" in told), (files.failed, told)
        if conversation:
            left(conversation, happened)
    assert tellings > whole.count // 3
