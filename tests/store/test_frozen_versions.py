"""What an earlier release wrote is read for ever: each frozen home loads, goes on, and keeps what nobody here knows."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import frozen
from support.served import configure
from support.strict_server import StrictServer

from astrion_nb import Team
from astrion_nb.disk import RealFiles
from astrion_nb.errors import ConversationBroken
from astrion_nb.home import Home
from astrion_nb.state import TeamState
from astrion_nb.store import documents as docs
from astrion_nb.store.conversations import ConversationStore
from astrion_nb.store.json_form import dump
from astrion_nb.store.loading import load
from astrion_nb.testing.invariants import faults_of

pytestmark = pytest.mark.spec

VERSIONS = sorted(int(path.name) for path in frozen.FOLDER.iterdir())
SCENES = [(version, path.stem) for version in VERSIONS for path in (frozen.FOLDER / str(version) / "golden").iterdir()]
NOW = docs.SCHEMA_VERSION


@pytest.fixture(autouse=True)
def _utc() -> Iterator[None]:
    """Documents hold local times; the frozen ones were written where local is UTC."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


def golden(version: int, scene: str) -> dict[str, Any]:
    whole: dict[str, Any] = json.loads((frozen.FOLDER / str(version) / "golden" / f"{scene}.json").read_bytes())
    return whole


def thawed(version: int, tmp_path: Path) -> Path:
    return Path(shutil.copytree(frozen.FOLDER / str(version) / "home", tmp_path / "home"))


def documents(folder: Path) -> dict[str, Any]:
    return {str(path.relative_to(folder)): json.loads(path.read_bytes()) for path in sorted(folder.rglob("*.json"))}


def lacking(before: Any, after: Any, place: str = "") -> list[str]:
    """Return where something of a golden value is not in a value; what has been added since is no fault."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            fault
            for key, value in before.items()
            for fault in (lacking(value, after[key], f"{place}.{key}") if key in after else [f"{place}.{key} is gone"])
        ]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [
            fault for n, pair in enumerate(zip(before, after, strict=True)) for fault in lacking(*pair, f"{place}[{n}]")
        ]
    return [] if before == after else [f"{place}: {before!r} became {after!r}"]


def test_every_version_that_was_ever_written_is_frozen_and_what_is_written_now_is_the_last_of_them() -> None:
    assert list(range(1, NOW + 1)) == VERSIONS, "run tests/support/frozen.py for the new version, and commit its folder"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frozen_folder_is_as_it_was_frozen(version: int) -> None:
    folder = frozen.FOLDER / str(version)
    assert frozen.sums(folder) == (folder / "SHA256SUMS").read_text(encoding="utf-8")


@pytest.mark.parametrize(("version", "scene"), SCENES)
def test_a_frozen_conversation_loads_to_what_it_was(version: int, scene: str) -> None:
    wanted = golden(version, scene)
    conversation = wanted.pop("conversation")
    state = frozen.loaded(frozen.FOLDER / str(version) / "home", conversation)
    assert lacking(wanted, frozen.picture(state)) == []
    assert faults_of(state, settled=scene not in ("killed", "begun")) == []


def rendered(state: TeamState) -> dict[str, bytes]:
    out = {
        "metadata.json": dump(docs.conversation_metadata(state)),
        "runtime.json": dump(docs.runtime_document(state)),
    }
    for number, agent in state.agents.items():
        place = f"agents/{number}/" if number else ""
        if number:
            out[f"{place}metadata.json"] = dump(docs.agent_metadata(state, agent))
        before, after = docs.messages_document(state, agent)
        out[f"{place}messages.json"] = b"".join(docs.render_messages(before, agent.messages, after))
    return out


@pytest.mark.parametrize("scene", ["rest", "open", "archived"])
def test_documents_of_this_version_are_written_back_byte_for_byte_with_every_key_that_nobody_knows(scene: str) -> None:
    home = frozen.FOLDER / str(NOW) / "home"
    conversation = golden(NOW, scene)["conversation"]
    folder = Home(home).conversations / conversation
    written = rendered(frozen.loaded(home, conversation))
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.json")} == written.keys()
    for name, data in written.items():
        assert data == (folder / name).read_bytes(), name


@pytest.mark.parametrize(("version", "scene"), SCENES)
def test_a_frozen_conversation_goes_on_and_what_nobody_knows_stays(version: int, scene: str, tmp_path: Path) -> None:
    home = thawed(version, tmp_path)
    conversation = golden(version, scene)["conversation"]
    folder = Home(home).conversations / conversation
    before = documents(folder)
    stage = frozen.Stage()
    with StrictServer() as one, StrictServer() as two:
        one.on_request = two.on_request = stage.play
        configure(home, one, two)

        async def run() -> None:
            async with Team(home=home, conversation=conversation, tools=[frozen.mark], human=True) as team:
                for question in team.state.open_questions():
                    if question.passed:
                        await team.answer(question.id, "blue")
                        await team.wait()
                result = await team.run("Again.")
                assert (result.status, result.error) == ("completed", "")

        asyncio.run(asyncio.wait_for(run(), 20))
        assert one.violations == two.violations == []
        assert len(one.requests) > 2
    after = documents(folder)
    assert faults_of(frozen.loaded(home, conversation)) == []
    for name, document in before.items():
        if name == "owner.json":
            continue
        found = after[name]
        assert document.get("x_kept") == found.get("x_kept"), name
        assert document.get("leader_state", {}).get("x_kept") == found.get("leader_state", {}).get("x_kept")
        messages = document.get("messages", [])
        assert found.get("messages", [])[: len(messages)] == messages, name
        for key in ("metadata", "token_statistics", "run"):
            assert document.get(key, {}).get("x_kept") == found.get(key, {}).get("x_kept"), (name, key)
        for key, naming in (("questions", "id"), ("kept_answers", "question_id")):
            kept = {item[naming]: item.get("x_kept") for item in document.get(key, [])}
            assert {item[naming]: item["x_kept"] for item in found.get(key, []) if "x_kept" in item} == kept, (
                name,
                key,
            )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frozen_index_lists_every_conversation_and_keeps_what_nobody_knows(version: int, tmp_path: Path) -> None:
    home = thawed(version, tmp_path)
    store = ConversationStore(Home(home))
    names = {golden(version, scene)["conversation"]: scene for of, scene in SCENES if of == version}
    found = {entry.id: entry for entry in store.list()}
    going = {"killed", "begun", "rest", "open", "archived"}
    assert {scene for name, scene in names.items() if name in found and not found[name].error} >= going
    assert {names[name]: entry.status for name, entry in found.items() if name in names}["archived"] == "archived"
    archived = next(name for name, scene in names.items() if scene == "archived")
    asyncio.run(store.rename(archived, "Another title"))
    index = json.loads((Home(home).conversations / "index.json").read_bytes())
    assert index["x_kept"] == "a text: an object would be a conversation"
    assert (index[archived]["title"], index[archived]["x_kept"]) == ("Another title", frozen.UNKNOWN)
    assert json.loads(Home(home).state_file.read_bytes())["x_kept"] == frozen.UNKNOWN


# -- versions to come --------------------------------------------------------------------

PLACES = [
    ("metadata.json", "schema_version"),
    ("metadata.json", "version"),
    ("runtime.json", "schema_version"),
    ("messages.json", "schema_version"),
    ("agents/1/metadata.json", "schema_version"),
    ("agents/1/messages.json", "schema_version"),
]
LATER = [NOW + 1, f"{NOW + 1}.0", str(NOW + 9), f"{NOW + 1}.0-beta"]


@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize(("name", "key"), PLACES)
def test_a_document_of_a_later_release_is_refused_by_name(name: str, key: str, later: Any, tmp_path: Path) -> None:
    home = thawed(NOW, tmp_path)
    folder = Home(home).conversations / golden(NOW, "rest")["conversation"]
    document = json.loads((folder / name).read_bytes())
    (folder / name).write_bytes(dump({**document, key: later}))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(ConversationBroken, match=rf"{name}: written by a later release .*update astrion-nb"):
        ConversationStore(Home(home)).open(folder.name)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path in before} == before


@pytest.mark.parametrize("place", [("v",), ("event", "v")])
def test_a_line_of_the_journal_of_a_later_release_is_refused_by_its_number(place: Any, tmp_path: Path) -> None:
    home = thawed(NOW, tmp_path)
    folder = Home(home).conversations / golden(NOW, "killed")["conversation"]
    lines = (folder / "journal.jsonl").read_bytes().splitlines()
    line = json.loads(lines[2])
    inner = line
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = NOW + 1
    lines[2] = json.dumps(line).encode()
    (folder / "journal.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(ConversationBroken, match=r"journal\.jsonl, line 3.*later release.*update astrion-nb"):
        load(folder, RealFiles())


def test_a_global_state_of_a_later_release_is_refused_by_name_and_stays(tmp_path: Path) -> None:
    home = thawed(NOW, tmp_path)
    path = Home(home).state_file
    path.write_bytes(dump({"version": f"{NOW + 1}.0", "something": "else"}))
    before = path.read_bytes()
    store = ConversationStore(Home(home))
    with pytest.raises(ConversationBroken, match=r"state\.json: written by a later release"):
        store.create()
    assert path.read_bytes() == before


@pytest.mark.parametrize("key", ["schema_version", "version"])
def test_an_index_of_a_later_release_is_named_and_left_alone_and_everything_is_found_without_it(
    key: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = thawed(NOW, tmp_path)
    path = Home(home).conversations / "index.json"
    path.write_bytes(dump({key: NOW + 1, "conversations": []}))
    before = path.read_bytes()
    store = ConversationStore(Home(home))
    with caplog.at_level(logging.WARNING):
        found = {entry.id: entry.title for entry in store.list()}
    assert len(found) == len(list(Home(home).conversations.glob("conv_*")))
    assert found[golden(NOW, "rest")["conversation"]] == golden(NOW, "rest")["title"]
    assert "index.json: written by a later release" in caplog.text
    asyncio.run(store.rename(golden(NOW, "rest")["conversation"], "x"))
    assert path.read_bytes() == before
