"""Whatever moment a kill or a power loss picks, the conversation that is found again is a past one, whole."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.disks import Disk, Picture
from support.histories import build, facts, prefixes, replay, steps

from astrion_nb.errors import ConversationNotFound
from astrion_nb.state import TeamState, apply
from astrion_nb.store import journal
from astrion_nb.store.loading import load
from astrion_nb.store.saving import Conversation, Loaded

FOLDER = Path("/disk/conv_test")
pytestmark = pytest.mark.faults


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "COALESCE", 0.0)


class Watch:
    """Collects the pictures of a disk, each with what had been promised by then."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.promised = 0
        self.pictures: list[tuple[int, str, Picture]] = []

    def __call__(self, disk: Disk) -> None:
        promised = self.promised
        self.pictures.append((promised, "killed", disk.killed()))
        self.pictures.append((promised, "powerless", disk.powerless()))
        self.pictures.append((promised, "torn", disk.torn(self.dice)))
        self.pictures.append((promised, "reordered", disk.reordered(self.dice)))


async def act(conversation: Conversation, history: list[Any], seed: int, watch: Watch | None) -> None:
    """Record a history with barriers and settlings in between, some of which run while it goes on."""
    dice = random.Random(seed)
    running: list[asyncio.Task[None]] = []
    for stamped in history:
        apply(conversation.state, stamped.event, seq=stamped.seq, t=stamped.t)
        conversation.record(stamped)
        chance = dice.random()
        if chance < 0.25:
            await conversation.durable(stamped.seq)
            if watch is not None:
                watch.promised = stamped.seq
        elif chance < 0.35:
            running.append(asyncio.create_task(conversation.settle()))
            await asyncio.sleep(0)
        elif chance < 0.4:
            await conversation.settle()
            if watch is not None:
                watch.promised = stamped.seq
    await asyncio.gather(*running)
    await conversation.close()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps, st.integers(0, 10_000))
def test_every_picture_of_the_disk_loads_to_a_state_that_once_was_and_holds_all_that_was_promised(
    choices: list[Any], seed: int
) -> None:
    history = build(choices)
    known = prefixes(history)
    watch = Watch(seed)
    disk = Disk(FOLDER, after=watch)
    conversation = Conversation(FOLDER, disk, Loaded(TeamState(conversation_id="conv_test"), 0, {}, {}))
    asyncio.run(asyncio.wait_for(act(conversation, history, seed, watch), 20))

    assert len(watch.pictures) > 9
    for promised, kind, picture in watch.pictures:
        try:
            state = load(FOLDER, picture).state
        except ConversationNotFound:
            assert promised == 0, kind
            continue
        assert state.seq >= promised, kind
        assert facts(state) == known[state.seq], (kind, state.seq)
    assert facts(load(FOLDER, disk).state) == known[-1]
    assert disk.read(FOLDER / "journal.jsonl") == b""

    # And from any of them the work can be taken up again.
    again = [picture for promised, _, picture in watch.pictures if promised]
    if again:
        taken_up(random.Random(seed).choice(again), history, seed)


def taken_up(picture: Picture, history: list[Any], seed: int) -> None:
    disk = Disk(FOLDER, picture)
    found = load(FOLDER, disk)
    rest = history[found.state.seq :]
    conversation = Conversation(FOLDER, disk, found)
    asyncio.run(asyncio.wait_for(act(conversation, rest, seed + 1, None), 20))
    assert facts(load(FOLDER, disk).state) == facts(replay(history))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps, st.integers(0, 10_000))
def test_any_mixture_of_old_and_new_documents_with_the_journal_gives_the_same_state(
    choices: list[Any], seed: int
) -> None:
    history = build(choices)
    dice = random.Random(seed)
    cuts = [*sorted(dice.randint(1, len(history)) for _ in range(2)), len(history)]

    def documents(upto: int) -> dict[Path, bytes]:
        disk = Disk(FOLDER)
        conversation = Conversation(FOLDER, disk, Loaded(TeamState(conversation_id="conv_test"), 0, {}, {}))

        async def run() -> None:
            for stamped in history[:upto]:
                apply(conversation.state, stamped.event, seq=stamped.seq, t=stamped.t)
                conversation.record(stamped)
            await conversation.close()

        asyncio.run(asyncio.wait_for(run(), 20))
        return disk.killed().files

    generations = [documents(cut) for cut in cuts]
    whole = b"".join(journal.dump_event(stamped) for stamped in history)
    paths = sorted({path for files in generations for path in files if path.name != "journal.jsonl"})
    expected = facts(replay(history))
    for _ in range(8):
        files = {FOLDER / "journal.jsonl": whole}
        for path in paths:
            held = dice.choice([files.get(path) for files in generations] + [None])
            if held is not None:
                files[path] = held
        folders = {FOLDER, FOLDER / "agents"} | {path.parent for path in files}
        assert facts(load(FOLDER, Picture(files, folders)).state) == expected
