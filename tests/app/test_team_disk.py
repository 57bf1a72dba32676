"""What a team leaves on the disk: the data model's documents; and what happens when the disk is full."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.scripts import NAME, NEVER, asked, conversations, create, one_helper, until
from support.teams import go

import astrion_nb
from astrion_nb import Team
from astrion_nb.home import Home
from astrion_nb.store import saving
from astrion_nb.store.conversations import ConversationStore
from astrion_nb.testing import ScriptedModel, call, say


def document(*names: str) -> dict[str, Any]:
    raw = conversations()[-1].joinpath(*names).read_bytes()
    found: dict[str, Any] = json.loads(raw)
    # The bytes are those of the data model's own recipe (8.2).
    assert raw.decode("utf-8") == json.dumps(found, ensure_ascii=False, indent=2)
    return found


def keys(found: dict[str, Any], wanted: str) -> None:
    """Check that a document begins with the keys that the data model prints, in that order."""
    names = wanted.split()
    assert list(found)[: len(names)] == names


@pytest.mark.spec
def test_the_documents_of_a_finished_team_are_those_of_the_data_model(tmp_path: Path) -> None:
    async def main() -> None:
        model = one_helper(call("list_active_sub_agents") + say("先看看。"), say("蓝色按钮。"))
        async with Team("多智能体任务：设计前端", model=model, mode="thinking", project_path=tmp_path) as team:
            await team.run("帮我设计一个前端页面")

    go(main)
    (folder,) = conversations()
    assert {path.name for path in folder.iterdir()} >= {"metadata.json", "messages.json", "agents"}
    metadata = document("metadata.json")
    keys(
        metadata,
        "id title created_at updated_at project_path model_key thinking_mode run_mode status agent_count agent_ids",
    )
    assert metadata["id"] == folder.name
    assert metadata["title"] == "多智能体任务：设计前端"
    assert metadata["project_path"] == str(tmp_path)
    assert (metadata["thinking_mode"], metadata["run_mode"], metadata["status"]) == (True, "thinking", "active")
    assert (metadata["agent_count"], metadata["agent_ids"], metadata["schema_version"]) == (1, [1], 1)
    assert len(metadata["created_at"]) == len("2026-07-11T21:00:00")

    messages = document("messages.json")
    keys(messages, "id title created_at updated_at messages metadata token_statistics")
    human, first = messages["messages"][:2]
    assert human == {
        "role": "user",
        "content": "帮我设计一个前端页面",
        "message_id": "msg_user_001",
        "metadata": {"message_source": "user", "visibility": "chat", "starts_work": True},
    }
    assert (first["role"], first["message_id"]) == ("assistant", "msg_assistant_001")
    assert first["tool_calls"][0]["function"]["name"] == "create_sub_agent"
    report = next(m for m in messages["messages"] if m.get("message_id") == "msg_auto_001")
    assert report["content"].startswith("来自 UI Operator_1 的任务")
    wanted = {"message_source": "sub_agent", "visibility": "compact", "starts_work": False, "agent_id": 1}
    assert {key: report["metadata"][key] for key in wanted} == wanted
    statistics = messages["token_statistics"]
    assert statistics["total"] == statistics["input"] + statistics["output"] > 0
    assert list(statistics["by_model"]) == ["scripted"]

    agent = document("agents", "1", "metadata.json")
    keys(
        agent,
        "agent_id role_id display_name status created_at updated_at task_summary model_key thinking_mode "
        "pending_messages pending_tool_calls",
    )
    assert (agent["agent_id"], agent["role_id"], agent["display_name"]) == (1, "ui-operator", NAME)
    assert (agent["status"], agent["task_summary"], agent["thinking_mode"]) == (
        "completed",
        "Draw a button.",
        "thinking",
    )
    assert agent["pending_messages"] == agent["pending_tool_calls"] == []

    own = document("agents", "1", "messages.json")
    keys(own, "agent_id role_id display_name created_at updated_at messages")
    assert [m["role"] for m in own["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert own["messages"][1]["content"] == (
        "来自 Team Leader 的任务发布\nid: task_001\n\n<Team Leader>\n<Task>\nDraw a button.\n</Task>\n</Team Leader>"
    )
    assert "message_id" not in own["messages"][0]

    index = json.loads((folder.parent / "index.json").read_text(encoding="utf-8"))
    keys(index[folder.name], "title created_at updated_at agent_count")
    state = json.loads((folder.parent.parent / "state.json").read_text(encoding="utf-8"))
    keys(state, "version last_conversation_id agent_id_counter created_at updated_at")
    assert (state["version"], state["last_conversation_id"], state["agent_id_counter"]) == ("1.0", folder.name, 1)


@pytest.mark.spec
def test_what_waits_is_in_the_documents_in_the_data_models_form() -> None:
    async def main() -> None:
        model = ScriptedModel(
            {
                "Team Leader": [create(), say("Waiting."), say("Hm."), say("Hm.")],
                NAME: [call("ask_master", question="Blue?", question_id="ask_b")],
            }
        )
        async with Team(model=model, human=True) as team:
            await team.start("Go.")
            await until(team, lambda team: bool(team.questions))
            await team.send(1, "先不要创建 API...")

    go(main)
    agent = document("agents", "1", "metadata.json")
    assert agent["status"] == "waiting"
    (pending,) = agent["pending_messages"]
    keys(pending, "id source_display_name source_agent_id message_type content created_at")
    assert pending["id"].startswith("msg_tl_")
    assert isinstance(pending["created_at"], float)
    assert (pending["source_display_name"], pending["source_agent_id"]) == ("Team Leader", None)
    assert (pending["message_type"], pending["content"]) == ("message", "先不要创建 API...")
    (waiting,) = agent["pending_tool_calls"]
    assert list(waiting) == ["tool_call_id", "tool_name", "question_id", "created_at"]
    assert (waiting["tool_name"], waiting["question_id"]) == ("ask_master", "ask_b")


def test_a_terminated_agent_leaves_the_list_and_keeps_its_folder() -> None:
    async def main() -> None:
        async with Team(model=one_helper()) as team:
            await team.run("Go.")
            await team.terminate(1)

    go(main)
    assert document("metadata.json")["agent_ids"] == []
    assert document("metadata.json")["agent_count"] == 0
    assert document("agents", "1", "metadata.json")["status"] == "terminated"
    assert document("agents", "1", "messages.json")["messages"][-1]["content"] == "A blue button."


def test_documents_are_written_when_the_team_has_rested_and_not_only_when_it_is_closed() -> None:
    async def main() -> None:
        async with Team(model=one_helper()) as team:
            await team.run("Go.")
            (folder,) = conversations()
            while not (folder / "messages.json").exists() or (folder / "journal.jsonl").stat().st_size:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            assert document("messages.json")["messages"][-1]["content"] == "All done."
            assert document("agents", "1", "messages.json")["messages"][-1]["content"] == "A blue button."

    go(main)


def test_the_journal_of_one_long_run_does_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "_LARGE", 8_000)
    turns = 60
    steps = [say("x" * 400) + call("list_agents") for _ in range(turns)]
    sizes: list[int] = []

    async def main() -> None:
        async with Team(model=ScriptedModel({"Team Leader": [*steps, say("All done.")]})) as team:
            team.watch(lambda _: sizes.append((conversations()[-1] / "journal.jsonl").stat().st_size))
            await team.run("Go.")
            assert team.state.run == 1

    go(main)
    written = conversations()[-1] / "messages.json"
    assert written.stat().st_size > 5 * 8_000
    assert max(sizes) < 3 * written.stat().st_size
    assert sum(later < earlier for earlier, later in pairwise(sizes)) >= 2, "cut while the run went on"
    state = ConversationStore(Home()).open(conversations()[-1].name, read_only=True).state
    assert sum(message.role == "tool" for message in state.leader_state.messages) == turns


# -- a full disk -----------------------------------------------------------------------------------

FULL = """
import asyncio, json, os, resource, subprocess, sys
from astrion_nb import Team
from astrion_nb.errors import StorageError
from astrion_nb.home import Home
from astrion_nb.store import saving
from astrion_nb.store.conversations import ConversationStore
from astrion_nb.testing import ScriptedModel, call, say

mounted = sys.argv[2] == "mounted"

def limit(on):
    if mounted:
        path = os.path.join(sys.argv[1], "filler")
        if on:
            with open(path, "wb", buffering=0) as file:
                try:
                    while True:
                        file.write(b"x" * 512)
                except OSError:
                    pass
        else:
            os.unlink(path)
    else:
        size = 20000 if on else resource.RLIM_INFINITY
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

def write(text: str) -> str:
    "Write a lot."
    limit(True)
    return text

async def main():
    import signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    model = ScriptedModel({
        "Team Leader": [call("create_sub_agent", agent_id=1, role_id="ui-operator", task="Write."), say("Waiting.")],
        "UI Operator_1": [call("write", text="x" * 30000), say("never asked")],
    }, check_on_close=False)
    home = Home(sys.argv[1])
    team = Team(model=model, home=home, tools=[write])
    told = {}
    try:
        await team.run("Fill the disk.")
    except StorageError as error:
        told["run"] = str(error)
    told["status"] = team.result().status
    told["error"] = team.result().error
    told["asked"] = [request.actor for request in model.requests].count("UI Operator_1")
    told["memory"] = len(team.state.agents[1].messages)
    told["agents"] = [agent.status for agent in team.agents]
    try:
        await team.run("Again.")
    except Exception as error:
        told["again"] = f"{type(error).__name__}: {error}"
    try:
        await team.close()
    except StorageError as error:
        told["close"] = str(error)
    limit(False)
    await team.close()
    rest = ScriptedModel([say("Here again.")])
    async with Team(model=rest, home=home, conversation=team.conversation_id) as again:
        await again.open()
        told["kept"] = [m.role for m in again.state.agents[1].messages]
        told["length"] = max(len(m.content or "") for m in again.state.agents[1].messages)
        told["then"] = (await again.run("Still there?")).text
    print(json.dumps(told))

asyncio.run(main())
"""


@pytest.fixture(params=["mounted", "limited"])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A file system of its own that fills up, and a limit on the size of files: two ways in which writing fails."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if request.param == "limited":
        yield folder, "limited"
        return
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    try:
        yield folder, "mounted"
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.faults
@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
def test_a_full_disk_ends_the_run_with_a_report_and_nothing_in_memory_is_lost(small_disk: tuple[Path, str]) -> None:
    folder, how = small_disk
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(folder), how],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(astrion_nb.__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert "journal.jsonl cannot be written" in told["run"]
    assert (told["status"], told["asked"]) == ("failed", 1)
    assert "cannot be written" in told["error"]
    assert told["agents"] == ["idle"]
    assert "cannot" in told["again"]
    assert "cannot" in told["close"]
    assert told["memory"] == len(told["kept"])
    assert told["kept"][:4] == ["system", "user", "assistant", "tool"]
    assert told["length"] == 30000
    assert told["then"] == "Here again."


def test_homes_do_not_mix(tmp_path: Path) -> None:
    async def main() -> None:
        for name in ("one", "two"):
            async with Team(model=ScriptedModel([say(name)]), home=tmp_path / name) as team:
                await team.run("Go.")
            assert len(list(Home(tmp_path / name).conversations.glob("conv_*"))) == 1
        assert conversations() == []

    go(main)


def test_relaxed_durability_loses_nothing_when_the_team_is_closed() -> None:
    async def main() -> None:
        model = ScriptedModel({"Team Leader": [create(), NEVER], NAME: [NEVER]})
        async with Team(model=model, durability="relaxed") as team:
            await team.start("Go.")
            await asked(model, 3)
        assert document("agents", "1", "metadata.json")["status_detail"] == "interrupted"

    go(main)
