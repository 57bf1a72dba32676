"""Agents whose names hold ideographs, blanks, symbols and markup: asked by name, stored, exported, shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.safe_html import read
from support.served import configure
from support.strict_server import Response, StrictServer, calls, last, offers, text
from support.teams import go

from astrion_nb import Role, Team, roles
from astrion_nb.home import Home
from astrion_nb.render.transcript import bundle, export_markdown

pytestmark = pytest.mark.faults

NAMES = {"planner": "规划", "tester": "C++ & <QA>", "pather": "../a b\\c|`x`"}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    place = Home(tmp_path / "home")
    for role_id, name in NAMES.items():
        roles.save(Role(id=role_id, name=name, description="d", prompt="Work."), home=place)
    return place


def play(request: dict[str, Any], _: int) -> Response:
    if offers(request, "create_sub_agent"):
        if len(request["messages"]) == 2:
            return calls(*(("create_sub_agent", {"agent_id": 1, "role_id": r, "task": f"For {r}."}) for r in NAMES))
        asks = [m["content"] for m in request["messages"] if m["role"] == "user" and "的提问" in m["content"]]
        given = json.dumps(request["messages"], ensure_ascii=False)
        answers = []
        for said in asks:
            name, number = said.split("\n")[0][3:-3], said.split("id: ")[1].split()[0]
            if f"for {number}" not in given:
                arguments = {"agent_id": name, "question_id": number, "answer": f"for {number}"}
                answers.append(("answer_sub_agent_question", arguments))
        return calls(*answers) if answers else text("Ok.")
    if len(request["messages"]) == 2:
        return calls(("ask_master", {"question": f"May I, {last(request)[-40:]}?"}))
    return text("Heard you." if "<Ask>" in last(request) or "<Message>" in last(request) else "Done.")


def test_names_of_any_kind_are_asked_stored_and_exported_end_to_end(home: Home) -> None:
    async def main() -> None:
        with StrictServer() as server:
            server.on_request = play
            configure(home.root, server)
            async with Team(home=home.root, roles=list(NAMES)) as team:
                assert (await team.run("Go.")).status == "completed"
                shown = [f"{name}_1" for name in NAMES.values()]
                assert [agent.display_name for agent in team.agents] == shown
                assert [agent.status for agent in team.agents] == ["completed"] * 3
                for name in shown:
                    assert await team.ask(name, "There?") == "Heard you."
                    assert await team.ask(name.lower(), "And now?") == "Heard you."
                    await team.send(name, "Thanks.")
                await team.wait()
                forms = bundle(team.state)
                exported = export_markdown(team.state)
                conversation = team.conversation_id
            assert server.violations == []
        assert all("name" not in message for request in server.requests for message in request["messages"])
        for request in server.requests:
            assert not {"name", "user"} & set(request)
        faults, words, _ = read(forms["text/html"])
        assert faults == []
        for name in shown:
            assert name in words
            assert name in forms["text/plain"]
        assert "规划_1" in exported
        outside_code = exported.split("```")[::2]
        assert not any("<QA>" in part.replace("\\<QA", "") for part in outside_code)
        folder = home.conversations / conversation
        found = [path.relative_to(home.root) for path in home.root.rglob("*")]
        assert all(str(path).isascii() and "QA" not in str(path) and ".." not in path.parts for path in found)
        metadata = [json.loads(path.read_text("utf-8")) for path in folder.rglob("metadata.json")]
        assert {f"{name}_1" for name in NAMES.values()} <= {each.get("display_name") for each in metadata}
        async with Team(conversation=conversation, home=home.root) as again:
            await again.open()
            assert [agent.display_name for agent in again.agents] == shown

    go(main)
