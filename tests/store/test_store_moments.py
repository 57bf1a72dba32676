"""Who reads a conversation while its owner writes it sees one moment of it, and never parts of two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.histories import build, facts, replay

from astrion_nb.disk import RealFiles
from astrion_nb.events import Stamped
from astrion_nb.home import Home
from astrion_nb.state import apply
from astrion_nb.store.conversations import Conversation, ConversationStore
from astrion_nb.store.moment import TRIES

STEPS: list[tuple[str, int, str, object]] = [
    ("create", 0, "x", None),
    ("create", 0, "y", None),
    *[
        *[(step, agent, "t", None) for agent in (1, 2) for step in ("call", "ask")],
        *[("answer", 0, "a", None)] * 2,
        *[("answer_call", agent, "r", None) for agent in (1, 2) for _ in range(3)],
        *[("queue", agent, "m", None) for agent in (0, 1, 2)],
        *[("drain", agent, "", None) for agent in (0, 1, 2)],
    ]
    * 4,
]
"""Questions hang on calls, and messages go from mailboxes into conversations: every part depends on another."""


class Between(RealFiles):
    """Files in which something happens before a read of the given numbers, counted from 1."""

    def __init__(self, happens: dict[int, Callable[[], None]]) -> None:
        self.happens = happens
        self.reads = 0

    def read(self, path: Path) -> bytes:
        self.reads += 1
        self.happens.pop(self.reads, lambda: None)()
        return super().read(path)


class Owner:
    """Whoever has the conversation open, and goes on with its history a piece at a time."""

    def __init__(self, home: Path) -> None:
        self.store = ConversationStore(Home(home), durability="relaxed")
        self.conversation: Conversation = self.store.create()
        self.id = self.conversation.id
        self.history: list[Stamped] = build([*STEPS], self.id)
        self.done = 0
        self.goes_on(len(self.history) // 3)

    def goes_on(self, count: int) -> None:
        for stamped in self.history[self.done : self.done + count]:
            apply(self.conversation.state, stamped.event, seq=stamped.seq, t=stamped.t)
            self.conversation.record(stamped)
            self.done += 1

    def flushes(self) -> None:
        self.conversation._journal.submit(iter(())).result(5)

    def settles(self) -> None:
        self.conversation.close_now()
        self.conversation = self.store.open(self.id)


def settled(owner: Owner) -> None:
    owner.goes_on(7)
    owner.settles()


def settled_twice(owner: Owner) -> None:
    settled(owner)
    settled(owner)


def went_on_after_settling(owner: Owner) -> None:
    settled(owner)
    owner.goes_on(7)
    owner.flushes()


def settled_with_a_rest(owner: Owner) -> None:
    went_on_after_settling(owner)
    settled(owner)


DEEDS = (settled, settled_twice, went_on_after_settling, settled_with_a_rest)


@pytest.mark.parametrize("journal", ["empty", "not empty"])
@pytest.mark.parametrize("deed", [*DEEDS[:2], *(pytest.param(deed, marks=pytest.mark.slow) for deed in DEEDS[2:])])
def test_what_is_read_while_its_owner_works_is_one_moment_of_it(
    deed: Callable[[Owner], None], journal: str, tmp_path: Path
) -> None:
    def read(number: int, at: int) -> tuple[int, int]:
        home = tmp_path / str(number)
        owner = Owner(home)
        owner.settles()
        if journal == "not empty":
            owner.goes_on(7)
            owner.flushes()
        begun = owner.done
        files = Between({at: lambda: deed(owner)})
        state = ConversationStore(Home(home), files=files).open(owner.id, read_only=True).state
        assert begun <= state.seq <= owner.done
        assert facts(state) == facts(replay(owner.history[: state.seq])), f"it happened before read {at}"
        owner.conversation.close_now()
        return state.seq - begun, files.reads

    _, reads = read(0, 0)
    assert reads >= 9
    after = [read(at, at)[0] for at in range(1, reads + 1)]
    assert after[0] > 0, "what happened before the first read is seen"


def test_who_has_every_reading_spoilt_comes_to_an_end(tmp_path: Path) -> None:
    owner = Owner(tmp_path)
    owner.settles()

    def spoil() -> None:
        owner.goes_on(1)
        owner.settles()

    each = 8
    files = Between(dict.fromkeys(range(4, 4 + each * len(owner.history), each), spoil))
    before = owner.done
    opened = ConversationStore(Home(tmp_path), files=files).open(owner.id, read_only=True)
    assert before < opened.state.seq <= owner.done
    assert files.reads < TRIES * 2 * each
    owner.conversation.close_now()
