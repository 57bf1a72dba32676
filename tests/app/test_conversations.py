"""What Python does to stored conversations: list, rename, archive, delete; the open one by its team."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from astrion_nb import ScriptedModel, Team, conversations
from astrion_nb.errors import ConfigError, ConversationBroken, ConversationLocked, ConversationNotFound, TeamError
from astrion_nb.events import ConversationFiled, Stamped
from astrion_nb.home import Home
from astrion_nb.store.conversations import ConversationStore
from astrion_nb.testing import call, invariants, say


def told(home: Path, title: str | None = None, task: str = "Look around.") -> str:
    """Let a team answer once; returns its conversation's id."""

    async def run() -> str:
        async with Team(title, model=ScriptedModel([say("Seen.")]), home=home) as team:
            await team.run(task)
            return str(team.conversation_id)

    return asyncio.run(run())


def entries(home: Path, **more: Any) -> dict[str, tuple[str, str]]:
    return {each.id: (each.title, each.status) for each in conversations.list(home=home, **more)}


def documents(home: Path, conversation: str) -> dict[str, Any]:
    return json.loads((Home(home).conversations / conversation / "metadata.json").read_bytes())


def test_a_conversation_is_renamed_archived_brought_back_and_deleted(tmp_path: Path) -> None:
    first, second = told(tmp_path, "First"), told(tmp_path, "Second")
    conversations.rename(first, "Uno", home=tmp_path)
    conversations.archive(first, home=tmp_path)
    assert entries(tmp_path) == {second: ("Second", "active")}
    assert entries(tmp_path, archived=True) == {first: ("Uno", "archived"), second: ("Second", "active")}
    assert [documents(tmp_path, first)[name] for name in ("title", "status")] == ["Uno", "archived"]
    conversations.archive(first, False, home=tmp_path)
    assert entries(tmp_path)[first] == ("Uno", "active")
    gone = conversations.delete(first, home=tmp_path)
    assert (gone.id, gone.title) == (first, "Uno")
    assert list(entries(tmp_path, archived=True)) == [second]
    assert sorted(path.name for path in Home(tmp_path).conversations.iterdir()) == [second, "index.json"]


def test_the_environment_s_home_is_meant_where_none_is_named() -> None:
    conversation = told(Path(os.environ["ASTRION_HOME"]))
    conversations.rename(conversation, "Uno")
    assert [each.title for each in conversations.list()] == ["Uno"]


def test_it_works_within_a_running_loop_too(tmp_path: Path) -> None:
    conversation = told(tmp_path)

    async def run() -> None:
        conversations.rename(conversation, "Uno", home=tmp_path)
        conversations.archive(conversation, home=tmp_path)

    asyncio.run(run())
    assert entries(tmp_path, archived=True) == {conversation: ("Uno", "archived")}


def test_a_team_that_goes_on_keeps_what_was_said_of_its_conversation(tmp_path: Path) -> None:
    conversation = told(tmp_path)
    conversations.rename(conversation, "Uno", home=tmp_path)
    conversations.archive(conversation, home=tmp_path)

    async def run() -> None:
        async with Team(conversation=conversation, model=ScriptedModel([say("More.")]), home=tmp_path) as team:
            await team.run("Go on.")

    asyncio.run(run())
    assert entries(tmp_path, archived=True) == {conversation: ("Uno", "archived")}


@pytest.mark.parametrize("title", ["two\nlines", "\ud800", "x" * 5000, "<b>$1$", "\x1b[2J\u202e", " "])
def test_whatever_a_title_holds_it_is_kept_and_the_conversation_opens(tmp_path: Path, title: str) -> None:
    conversation = told(tmp_path)
    if not title.strip():
        with pytest.raises(ConfigError, match="the title is"):
            conversations.rename(conversation, title, home=tmp_path)
        return
    conversations.rename(conversation, title, home=tmp_path)
    [entry] = conversations.list(home=tmp_path)
    line = title.replace("\n", " ")
    assert entry.title == line.encode("utf-8", "replace").decode() or entry.title == line

    async def run() -> None:
        async with Team(conversation=conversation, model=ScriptedModel([say("More.")]), home=tmp_path) as team:
            assert (await team.run("Go on.")).text == "More."
            assert team.state.title == entry.title

    asyncio.run(run())


def test_an_open_conversation_is_its_team_s_and_refused_to_everybody_else(tmp_path: Path) -> None:
    async def run() -> str:
        async with Team(model=ScriptedModel([say("Seen.")]), home=tmp_path) as team:
            await team.run("Look around.")
            conversation = str(team.conversation_id)
            before = sorted((Home(tmp_path).conversations / conversation).rglob("*"))
            for refused in (
                lambda: conversations.rename(conversation, "x", home=tmp_path),
                lambda: conversations.archive(conversation, home=tmp_path),
                lambda: conversations.delete(conversation, home=tmp_path),
            ):
                with pytest.raises(ConversationLocked, match=rf"{conversation} is open in this process \(\d+\)"):
                    refused()
            assert sorted((Home(tmp_path).conversations / conversation).rglob("*")) == before
            await team.rename("Uno")
            await team.archive()
            assert entries(tmp_path, archived=True) == {conversation: ("Uno", "archived")}
            await team.archive(False)
        return conversation

    conversation = asyncio.run(run())
    assert entries(tmp_path) == {conversation: ("Uno", "active")}


@pytest.mark.parametrize("title", ["one\ntwo\n", "one\r\ntwo", "one\rtwo", "one\u2028two", "\x1cone\x85two"])
def test_a_title_is_one_line_however_it_is_given(tmp_path: Path, title: str) -> None:
    async def run() -> str:
        async with Team(title, model=ScriptedModel([say("Seen.")]), home=tmp_path) as team:
            await team.run("Look around.")
            assert team.state.title == "one two"
            await team.rename(f"{title} ")
            assert team.state.title == "one two"
            return team.conversation_id or ""

    conversation = asyncio.run(run())
    conversations.rename(conversation, f"Uno {title}", home=tmp_path)
    assert [len(entry.title.splitlines()) for entry in conversations.list(home=tmp_path)] == [1]


def test_a_team_that_is_renamed_and_archived_is_what_its_events_say_in_memory_and_on_the_disk(tmp_path: Path) -> None:
    async def run() -> tuple[str, list[Stamped]]:
        events: list[Stamped] = []
        script = [call("create_sub_agent", agent_id=1, role_id="ui-operator", task="Draw."), *[say("Seen.")] * 9]
        model = ScriptedModel({"Team Leader": script, "UI Operator_1": [say("Drawn.")]}, check_on_close=False)
        team = Team(model=model, home=tmp_path)
        team.watch(events.append)
        async with team:
            invariants.check(team.state, events, team)
            await team.rename("Uno")
            await team.run("Look around.")
            await team.archive()
            invariants.check(team.state, events, team)
            assert (team.state.title, team.state.archived) == ("Uno", True)
            assert entries(tmp_path, archived=True) == {team.conversation_id: ("Uno", "archived")}
            journal = Home(tmp_path).conversations / team.conversation_id / "journal.jsonl"
            assert journal.read_bytes() == b"", "it is in the documents when it is told"
        return team.conversation_id, events

    conversation, events = asyncio.run(run())
    assert [stamped.event for stamped in events if isinstance(stamped.event, ConversationFiled)] == [
        ConversationFiled(title="Uno"),
        ConversationFiled(archived=True),
    ]
    state = ConversationStore(Home(tmp_path)).open(conversation, read_only=True).state
    assert (state.title, state.title_given, state.archived) == ("Uno", True, True)


def test_a_team_that_works_where_the_state_says_it_rests_is_found_by_what_is_said_of_the_public_team(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with Team(model=ScriptedModel([say("Seen.")]), home=tmp_path) as team:
            invariants.check(team.state, (), team)
            await team.run("Look around.")
            team.state.leader_state.status = "running"
            with pytest.raises(AssertionError, match="no_running_without_a_task: Team Leader is running without"):
                invariants.check(team.state, (), team)
            team.state.leader_state.status = "completed"

    asyncio.run(run())


def test_one_that_is_only_read_is_not_renamed_and_stays_as_it_was(tmp_path: Path) -> None:
    conversation = told(tmp_path)

    async def run() -> None:
        async with Team(conversation=conversation, home=tmp_path, read_only=True) as team:
            for refused in (team.rename("x"), team.archive()):
                with pytest.raises(TeamError, match="open for reading only"):
                    await refused
            assert (team.state.title, team.state.archived) == ("Look around.", False)

    asyncio.run(run())
    assert entries(tmp_path) == {conversation: ("Look around.", "active")}


def test_filing_a_stored_conversation_keeps_the_date_of_its_last_work(tmp_path: Path) -> None:
    conversation = told(tmp_path)
    before = documents(tmp_path, conversation)
    later = ConversationStore(Home(tmp_path), clock=lambda: time.time() + 5_000.0)
    asyncio.run(later.rename(conversation, "Uno"))
    asyncio.run(later.archive(conversation))
    after = documents(tmp_path, conversation)
    assert (after["title"], after["status"], after["updated_at"]) == ("Uno", "archived", before["updated_at"])


def test_a_conversation_open_in_another_process_is_refused_with_its_owner_and_stays_whole(tmp_path: Path) -> None:
    conversation = told(tmp_path)
    code = (
        "import sys\n"
        "from astrion_nb.home import Home\n"
        "from astrion_nb.store.conversations import ConversationStore\n"
        "held = ConversationStore(Home(sys.argv[1])).open(sys.argv[2])\n"
        "print('held', flush=True)\nsys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path), conversation]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(ConversationLocked, match=f"is open in process {other.pid} on "):
            conversations.delete(conversation, home=tmp_path)
        other.communicate(timeout=20)
    assert documents(tmp_path, conversation)["title"] == "Look around."
    assert conversations.delete(conversation, home=tmp_path).id == conversation


def test_one_that_cannot_be_read_can_only_be_deleted(tmp_path: Path) -> None:
    conversation = told(tmp_path)
    folder = Home(tmp_path).conversations / conversation
    for name in ("metadata.json", "messages.json"):
        (folder / name).write_text("{", "utf-8")
    (folder.parent / "index.json").unlink()
    [entry] = conversations.list(home=tmp_path)
    assert (entry.status, "metadata.json" in entry.error) == ("broken", True)
    for refused in (
        lambda: conversations.rename(conversation, "x", home=tmp_path),
        lambda: conversations.archive(conversation, home=tmp_path),
    ):
        with pytest.raises(ConversationBroken, match=r"\.json"):
            refused()
    assert conversations.delete(conversation, home=tmp_path).error == entry.error
    assert conversations.list(home=tmp_path) == []


@pytest.mark.parametrize("name", ["", "..", "../agents", "conv_missing", "a/b", "/", "index.json"])
def test_what_is_no_conversation_is_said_so_and_nothing_is_touched(tmp_path: Path, name: str) -> None:
    conversation = told(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for refused in (
        lambda: conversations.rename(name, "x", home=tmp_path),
        lambda: conversations.archive(name, home=tmp_path),
        lambda: conversations.delete(name, home=tmp_path),
    ):
        with pytest.raises(ConversationNotFound, match="there is no conversation"):
            refused()
    assert sorted(tmp_path.rglob("*")) == before
    assert list(entries(tmp_path)) == [conversation]


def test_a_folder_in_which_nothing_was_said_is_not_said_to_be_renamed(tmp_path: Path) -> None:
    (Home(tmp_path).conversations / "conv_empty").mkdir(parents=True)
    with pytest.raises(ConversationNotFound):
        conversations.rename("conv_empty", "x", home=tmp_path)
    with pytest.raises(ConversationNotFound):
        conversations.archive("conv_empty", home=tmp_path)
    assert conversations.delete("conv_empty", home=tmp_path).id == "conv_empty"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: conversations.rename("c", ""), "conversations.rename: the title is empty; say the new title"),
        (lambda: conversations.rename("c", None), "conversations.rename: the title is None"),  # type: ignore[arg-type]
        (lambda: conversations.rename(7, "x"), "conversations.rename: the id is 7"),  # type: ignore[arg-type]
        (lambda: conversations.archive("c", "no"), "conversations.archive: archived is 'no'"),  # type: ignore[arg-type]
        (lambda: conversations.delete(None), "conversations.delete: the id is None"),  # type: ignore[arg-type]
        (lambda: conversations.list(archived=1), "conversations.list: archived is 1"),  # type: ignore[arg-type]
        (lambda: conversations.list(home=7), "conversations.list: home is 7"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_argument_is_one_line_that_names_it(call: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        call()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
