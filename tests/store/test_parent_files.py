"""Conversations as the data model prints them load, whatever form their files have, and a team goes on with them.

The folders in ``tests/data/parent`` are written by hand: ``printed`` has the data model's own examples (§3–§8), with
their elisions filled in; ``words`` has every word, every form of a time and of a thinking mode, keys of another
program's own, missing keys, and calls that each turn numbers anew.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from support.casts import play
from support.served import configure
from support.strict_server import StrictServer, calls, text

from astrion_nb import Team
from astrion_nb.disk import RealFiles
from astrion_nb.home import Home
from astrion_nb.messages import Message
from astrion_nb.state import TeamState
from astrion_nb.store.conversations import ConversationStore
from astrion_nb.store.loading import load
from astrion_nb.testing.invariants import faults_of

pytestmark = pytest.mark.spec

FOLDER = Path(__file__).parents[1] / "data" / "parent"
PRINTED, WORDS = "conv_20260711_210000_001", "conv_20260801_080000_007"
FORMS: dict[str, Callable[[bytes], bytes]] = {
    "as it is": lambda data: data,
    "with a byte order mark": lambda data: b"\xef\xbb\xbf" + data,
    "with CRLF": lambda data: data.replace(b"\n", b"\r\n"),
    "with both": lambda data: b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n") + b"\r\n\r\n",
    "escaped, on one line": lambda data: json.dumps(json.loads(data)).encode(),
    "in another order": lambda data: json.dumps(
        json.loads(data), ensure_ascii=False, indent="\t", sort_keys=True
    ).encode(),
}


def placed(tmp_path: Path, name: str, form: Callable[[bytes], bytes] = FORMS["as it is"]) -> Home:
    home = Home(tmp_path / "home")
    shutil.copytree(FOLDER / name, home.base)
    for path in home.base.rglob("*.json"):
        path.write_bytes(form(path.read_bytes()))
    return home


def loaded(home: Home, conversation: str) -> TeamState:
    return load(home.conversations / conversation, RealFiles()).state


@pytest.mark.parametrize("form", FORMS)
def test_the_printed_conversation_loads_in_any_form_of_its_files(form: str, tmp_path: Path) -> None:
    home = placed(tmp_path, "printed", FORMS[form])
    state = loaded(home, PRINTED)
    assert (state.title, state.model_key, state.run_mode) == ("多智能体任务：设计前端", "qwen3-max", "thinking")
    assert [message.role for message in state.leader_state.messages] == ["user", "assistant", "tool", "user"]
    agent = state.agents[1]
    assert (agent.display_name, agent.role_name, agent.instance) == ("UI Operator_1", "UI Operator", 1)
    assert (agent.abbreviation, agent.status, agent.system) == ("uio", "running", "你是智能体集群团队的一员...")
    assert agent.pending == [], "its message stands in the conversation already"
    assert {"out_uio_001", "task_001", "msg_tl_001"} <= set(state.ids._taken)
    assert state.created_at == datetime.fromisoformat("2026-07-11T21:00:00").timestamp()
    (entry,) = ConversationStore(home).list()
    assert (entry.id, entry.title, entry.agent_count, entry.error) == (PRINTED, state.title, 3, "")
    assert ConversationStore(home).last() == PRINTED


@pytest.mark.parametrize("form", FORMS)
def test_every_word_and_form_is_read(form: str, tmp_path: Path) -> None:
    state = loaded(placed(tmp_path, "words", FORMS[form]), WORDS)
    agents = state.agents
    assert (state.run_mode, state.archived, state.project_path) == ("deep", True, "")
    statuses = {number: agents[number].status for number in (1, 2, 3, 4, 7)}
    assert statuses == {1: "completed", 2: "waiting", 3: "running", 4: "terminated", 7: "idle"}
    modes = [agents[number].thinking_mode for number in (1, 2, 3, 4, 7)]
    assert modes == ["fast", "thinking", "thinking", "fast", "fast"]
    names = [(agents[number].role_name, agents[number].instance) for number in (3, 4, 7)]
    assert names == [("规划", 1), ("UI Operator", 2), ("C++ & <QA>", 1)]
    assert len({agent.abbreviation for agent in agents.values()}) == 5, "the two of one role share theirs"
    assert agents[2].created_at == 1785571260.0
    assert agents[3].created_at == 1785571260.0 - 8 * 3600
    assert (agents[4].created_at, agents[7].created_at) == (1785571260.0, 1785571260.75)
    pending = [(item.id, item.kind, item.sender_id, item.created_at) for item in agents[3].pending]
    assert pending == [
        ("msg_tl_003", "message", None, 1785571270.0),
        ("ask_uio_003", "ask", 1, 1785571280.5),
        ("out_uio_009", "progress", 1, 1785571281.0),
        ("ans_uio_001", "answer", 1, 0.0),
        ("new_001", "message", 1, 0.0),
    ], "the task stands in the conversation already"
    (question,) = state.open_questions()
    assert (question.id, question.asker, question.target, question.content) == ("ask_fse_001", 2, 0, "用哪个库？")
    last = state.leader_state.messages[-1]
    assert (last.content, last.cut) == ("都完成了。", False), "a status of another program ends no turn"
    assert faults_of(state, settled=False) == []


def _find(value: Any, key: str, place: str = "") -> dict[str, Any]:
    """Return what stands under keys that begin so, by place."""
    found = {}
    if isinstance(value, dict):
        for name, inner in value.items():
            if name.startswith(key):
                found[f"{place}.{name}"] = inner
            found.update(_find(inner, key, f"{place}.{name}"))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            found.update(_find(inner, key, f"{place}[{number}]"))
    return found


@pytest.mark.parametrize(("name", "conversation"), [("printed", PRINTED), ("words", WORDS)])
@pytest.mark.parametrize("form", ["as it is", "with both"])
def test_a_team_goes_on_with_it_and_no_provider_has_cause_to_refuse(
    name: str, conversation: str, form: str, tmp_path: Path
) -> None:
    home = placed(tmp_path, name, FORMS[form])
    folder = home.conversations / conversation
    before = {path: json.loads(path.read_bytes().decode("utf-8-sig")) for path in folder.rglob("*.json")}
    with StrictServer() as server:
        configure(home.root, server, more={"one": '[models."qwen3-max"]\n' + f'model = "q"\nbase_url = "{server.url}"'})
        if (toml := home.models_file).exists():
            toml.write_text(toml.read_text() + f'[models.two]\nmodel = "t"\nbase_url = "{server.url}"\n')
        to_all = [("send_message_to_sub_agent", {"agent_id": number, "message": "接着做"}) for number in (1, 3, 7)]

        first = calls(*to_all, ("list_active_sub_agents", {}))
        cast = play(server, [first, text("好。")], [text("做完了。")])

        async def run() -> TeamState:
            async with Team(home=home, conversation=conversation, human=False) as team:
                result = await team.run("继续")
                assert (result.status, result.error) == ("completed", "")
                return team.state

        state = asyncio.run(asyncio.wait_for(run(), 20))
        assert server.violations == []
    assert len(cast.member_requests) >= 1
    assert {agent.status for agent in state.members()} <= {"completed", "terminated", "idle"}
    again = loaded(home, conversation)
    assert faults_of(again) == []
    for path, document in before.items():
        now = json.loads(path.read_bytes())
        kept = {
            place: value
            for place, value in _find(document, "x_").items()
            if not place.startswith((".pending_messages", ".pending_tool_calls"))
        }
        found = _find(now, "x_")
        assert kept.items() <= found.items(), path
        messages = [message.get("content") for message in document.get("messages", [])]
        assert [message.get("content") for message in now.get("messages", [])][: len(messages)] == messages, path


def test_ids_that_leave_numbers_out_are_never_given_twice(tmp_path: Path) -> None:
    state = loaded(placed(tmp_path, "words"), WORDS)
    agent = state.agents[7]
    assert (agent.next_message_id("user"), agent.next_message_id("assistant")) == ("msg_user_006", "msg_assistant_005")


def test_an_answer_to_a_question_of_another_program_comes_back_to_its_call(tmp_path: Path) -> None:
    home = placed(tmp_path, "words")
    with StrictServer() as server:
        configure(home.root, server, server)
        answer = {"agent_id": 2, "question_id": "ask_fse_001", "answer": "用 A"}
        play(server, [calls(("answer_sub_agent_question", answer)), text("好。")], [text("明白。")])

        async def run() -> list[Message]:
            async with Team(home=home, conversation=WORDS, human=False) as team:
                assert team.state.agents[2].status == "waiting"
                await team.run("回答它")
                return team.state.agents[2].messages

        messages = asyncio.run(asyncio.wait_for(run(), 20))
        assert server.violations == []
    assert [message.role for message in messages[-2:]] == ["tool", "assistant"]
    assert "用 A" in json.loads(messages[-2].content or "")["answer"]
