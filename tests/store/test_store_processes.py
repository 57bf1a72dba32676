"""Real processes that die, share a conversation, or meet a full disk."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.histories import build, facts, replay

from astrion_nb.errors import ConversationLocked
from astrion_nb.home import Home
from astrion_nb.store.conversations import ConversationStore

pytestmark = pytest.mark.faults

SEED = 7
LENGTH = 1200


def long_history(conversation_id: str) -> list[Any]:
    """The same for every process."""
    dice = random.Random(SEED)
    words = ["create", "queue", "drain", "say", "call", "answer_call", "status", "ask", "answer", "usage", "warn"]
    choices = [(dice.choice(words), dice.randint(0, 50), "x" * dice.randint(0, 80), None) for _ in range(LENGTH)]
    return build([choice for choice in choices if choice[0] != "create" or dice.random() < 0.05], conversation_id)


WRITER = """
import asyncio, random, sys
from pathlib import Path
from test_store_processes import long_history
from astrion_nb.home import Home
from astrion_nb.state import apply
from astrion_nb.store.conversations import ConversationStore

async def main():
    store = ConversationStore(Home(sys.argv[1]))
    conversation = store.open(sys.argv[2]) if len(sys.argv) > 2 else store.create()
    print("id", conversation.id, flush=True)
    dice = random.Random()
    settling = None
    for stamped in long_history(conversation.id)[conversation.state.seq:]:
        apply(conversation.state, stamped.event, seq=stamped.seq, t=stamped.t)
        conversation.record(stamped)
        if dice.random() < 0.4:
            await conversation.durable(stamped.seq)
            print("durable", stamped.seq, flush=True)
        if dice.random() < 0.03 and (settling is None or settling.done()):
            settling = asyncio.create_task(conversation.settle())
    print("end", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent), str(here.parent.parent)])
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        encoding="utf-8",
    )


def test_twenty_kills_lose_nothing_that_was_durable(tmp_path: Path) -> None:
    dice = random.Random()
    store = ConversationStore(Home(tmp_path))
    conversation_id = ""
    reached = 0
    for _ in range(20):
        child = start(WRITER, str(tmp_path), *([conversation_id] if conversation_id else []))
        assert child.stdout is not None
        try:
            conversation_id = child.stdout.readline().split()[1]
            promised = reached
            lines = dice.randint(1, 25)
            for line in child.stdout:
                if line.startswith("end"):
                    break
                promised = int(line.split()[1])
                lines -= 1
                if not lines:
                    break
        finally:
            child.send_signal(signal.SIGKILL)
            rest, _ = child.communicate(timeout=5)
        whole = [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]  # the last one may be torn
        promised = max([promised, *(int(line.split()[1]) for line in whole if line.startswith("durable"))])
        state = store.open(conversation_id, read_only=True).state
        assert state.seq >= promised
        assert facts(state) == facts(replay(long_history(conversation_id)[: state.seq]))
        reached = state.seq
    assert reached > 20


HOLDER = """
import sys
from astrion_nb.home import Home
from astrion_nb.store.conversations import ConversationStore
conversation = ConversationStore(Home(sys.argv[1])).open(sys.argv[2])
print("open", flush=True)
sys.stdin.read()
"""


def test_a_conversation_is_open_in_one_process_and_a_dead_one_does_not_keep_it(tmp_path: Path) -> None:
    store = ConversationStore(Home(tmp_path))

    async def make() -> str:
        from astrion_nb.state import apply

        conversation = store.create()
        for stamped in build([("create", 0, "x", None)], conversation.id):
            apply(conversation.state, stamped.event, seq=stamped.seq, t=stamped.t)
            conversation.record(stamped)
        await conversation.close()
        return conversation.id

    conversation_id = asyncio.run(make())
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path), conversation_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        with pytest.raises(ConversationLocked, match=rf"open in process {child.pid} on "):
            store.open(conversation_id)
        with pytest.raises(ConversationLocked):
            store.delete(conversation_id)
        assert store.open(conversation_id, read_only=True).state.seq == 2
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=5)
    assert (store.home.conversations / conversation_id / "owner.json").exists()
    again = store.open(conversation_id)
    owner = json.loads((again.folder / "owner.json").read_bytes())
    assert owner["pid"] == os.getpid()
    again.close_now()
    assert not (again.folder / "owner.json").exists()


FULL = """
import asyncio, resource, subprocess, sys
from test_store_processes import long_history
from support.histories import facts
from astrion_nb.errors import StorageError
from astrion_nb.home import Home
from astrion_nb.state import apply
from astrion_nb.store.conversations import ConversationStore

limit = int(sys.argv[2])
mounted = sys.argv[3] == "mounted"

async def main():
    store = ConversationStore(Home(sys.argv[1]))
    conversation = store.create()
    if not mounted:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    failed = 0
    history = long_history(conversation.id)
    for stamped in history:
        apply(conversation.state, stamped.event, seq=stamped.seq, t=stamped.t)
        conversation.record(stamped)
        if stamped.seq % 50 == 0:
            try:
                await conversation.durable(stamped.seq)
            except StorageError as error:
                failed += 1
                assert "journal.jsonl cannot be written" in str(error), error
    assert failed > 1, "the disk never filled"
    for save in (conversation.settle, conversation.close):
        try:
            await save()
        except StorageError:
            continue
        raise AssertionError("saved on a full disk")
    assert conversation.state.seq == len(history)
    if mounted:
        subprocess.run(["mount", "-o", "remount,size=64m", sys.argv[1]], check=True)
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await conversation.durable(stamped.seq)
    await conversation.close()
    print(conversation.id)

asyncio.run(main())
"""


def test_a_full_disk_is_reported_and_nothing_in_memory_is_lost(tmp_path: Path) -> None:
    """On a small file system of its own where one can be mounted, else under a limit of file sizes."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", str(folder)]
    mounted = os.getuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        child = start(FULL, str(folder), "50000", "mounted" if mounted else "limited")
        out, _ = child.communicate(timeout=60)
        assert child.returncode == 0
        conversation_id = out.strip()
        state = ConversationStore(Home(folder)).open(conversation_id, read_only=True).state
        assert facts(state) == facts(replay(long_history(conversation_id)))
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)
