"""A process that dies while it deletes a conversation: nothing of it is left for long, and nothing else is touched."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL

import pytest
from support import deleting
from support.zygote import Zygote

from astrion_nb.home import Home
from astrion_nb.store.conversations import ConversationStore
from astrion_nb.testing import invariants

pytestmark = [pytest.mark.kill, pytest.mark.faults]


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote("support.deleting") as running:
        yield running


def leftovers(place: Home) -> list[str]:
    folders = (place.conversations, place.state_file.parent)
    return [path.name for folder in folders for path in folder.iterdir() if path.name.startswith(".")]


def whole(store: ConversationStore, conversation: str) -> None:
    """It is there with everything that was said, and can be gone on with."""
    opened = store.open(conversation)
    invariants.check(opened.state)
    assert len(opened.state.agents) == 1 + deleting.AGENTS
    opened.close_now()


def test_a_delete_that_is_killed_at_any_point_leaves_the_conversation_whole_or_gone(
    zygote: Zygote, tmp_path: Path
) -> None:
    first, _ = deleting.lay_out(tmp_path / "recorded")
    recorded = zygote.call("delete", home=str(tmp_path / "recorded"), conversation=first)
    assert recorded.error == ""
    points: list[str] = recorded.value
    phases = [label.rsplit(" ", 1)[0] for label in points]
    assert phases.count("after unlink") > 2 * deleting.AGENTS
    gone_at = phases.index("after rename", phases.index("after rename") + 1)  # the first is its owner's note
    assert ".deleted-" in points[gone_at]
    assert points[gone_at + 1] == "after sync a folder", "on the disk before anything is removed"
    seen: set[tuple[bool, bool]] = set()
    for point in range(1, len(points) + 1):
        home = tmp_path / f"point-{point}"
        ids = deleting.lay_out(home)
        died = zygote.call("delete", home=str(home), conversation=ids[0], kill_at=point)
        assert (died.signal, died.error) == (SIGKILL, ""), died.error
        place = Home(home)
        left = bool(leftovers(place))
        store = ConversationStore(place)
        there = point <= gone_at
        expected = [*ids] if there else [ids[1]]
        if point % 2:
            assert [entry.id for entry in store.list()] == expected, died.value
        else:
            whole(store, ids[1])  # opening another one tidies up too
        assert leftovers(place) == [], f"point {point}: {died.value}"
        assert [(entry.id, entry.error) for entry in store.list()] == [(name, "") for name in expected]
        for name in expected:
            whole(store, name)
        seen.add((there, left))
    print(f"{len(points)} kill points")
    assert seen == {(True, False), (False, True), (False, False)}


def test_tidying_up_that_is_killed_at_any_point_is_done_by_the_next(zygote: Zygote, tmp_path: Path) -> None:
    def left_behind(name: str) -> Path:
        home = tmp_path / name
        ids = deleting.lay_out(home)
        died = zygote.call("delete", home=str(home), conversation=ids[0], kill_at=deleting.MIDDLE)
        assert died.signal == SIGKILL
        assert len(leftovers(Home(home))) == 1, died.value
        return home

    points: list[str] = zygote.call("tidy", home=str(left_behind("recorded"))).value
    assert len(points) > deleting.AGENTS
    for point in range(1, len(points) + 1):
        home = left_behind(f"point-{point}")
        died = zygote.call("tidy", home=str(home), kill_at=point)
        assert (died.signal, died.error) == (SIGKILL, ""), died.error
        store = ConversationStore(Home(home))
        assert len(store.list()) == 1
        assert leftovers(Home(home)) == [], f"point {point}: {died.value}"


def test_no_unfinished_copy_of_the_files_beside_the_conversations_is_left_for_long(
    zygote: Zygote, tmp_path: Path
) -> None:
    ids = deleting.lay_out(tmp_path)
    place = Home(tmp_path)
    copies = set()
    points: list[str] = zygote.call("take_up", home=str(tmp_path), conversation=ids[0]).value
    for point in range(1, len(points) + 1):
        # The one that was not opened last, so that the global state is written.
        zygote.call("take_up", home=str(tmp_path), conversation=ids[point % 2], kill_at=point)
        copies.update(name.split(".")[1] for name in leftovers(place))
        assert [entry.error for entry in ConversationStore(place).list()] == ["", ""]
        assert leftovers(place) == [], f"point {point}: {points[point - 1]}"
    assert copies == {"state"}


def test_what_another_process_is_deleting_is_left_to_it_and_what_is_not_ours_is_nobodys_to_remove(
    tmp_path: Path,
) -> None:
    first, second = deleting.lay_out(tmp_path)
    place = Home(tmp_path)
    others = [
        *(".deleted-by-hand", ".deleted-conv_1-0123456", ".deleted-conv_1-01234567.bak", ".deleted--01234567"),
        ".Trash-conv_1-01234567",
    ]
    for name in others:
        (place.conversations / name).mkdir()
        (place.conversations / name / "messages.json").write_text("{}")
    (place.conversations / ".deleted-conv_1-01234567").write_text("a file")
    (place.conversations / ".deleted-conv_2-01234567").symlink_to(place.conversations / second)
    others += [".deleted-conv_1-01234567", ".deleted-conv_2-01234567"]

    child = subprocess.Popen(
        [sys.executable, "-c", "from support.deleting import hold; hold()", str(tmp_path), first],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    try:
        assert child.stdin is not None
        assert child.stdout is not None
        for _ in range(deleting.STOPS):
            assert child.stdout.readline() == "stands\n"
            (trash,) = set(leftovers(place)) - set(others)
            before = sorted(path.relative_to(place.conversations) for path in place.conversations.rglob("*"))
            store = ConversationStore(place)
            assert [entry.id for entry in store.list()] == [second]
            whole(store, second)
            after = sorted(path.relative_to(place.conversations) for path in place.conversations.rglob("*"))
            assert [path for path in before if path.parts[0] == trash] == [
                path for path in after if path.parts[0] == trash
            ]
            child.stdin.write("\n")
            child.stdin.flush()
        assert child.stdout.readline() == "done\n"
    finally:
        child.stdin.close()  # type: ignore[union-attr]
        child.wait(10)
        child.stdout.close()  # type: ignore[union-attr]
    assert child.returncode == 0
    assert sorted(leftovers(place)) == sorted(others)
    whole(ConversationStore(place), second)
