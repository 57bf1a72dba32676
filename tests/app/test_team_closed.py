"""Putting a team away while it works, and taking its conversation up again elsewhere."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.scripts import NAME, NEVER, asked, conversations, create, one_helper, results, until
from support.teams import go

from astrion_nb import Team
from astrion_nb.envelope import parse
from astrion_nb.errors import ConfigError, ConversationLocked, ScriptError, StorageError, TeamError
from astrion_nb.home import Home
from astrion_nb.store.conversations import ConversationStore
from astrion_nb.testing import ScriptedModel, call, say

SECOND = "UI Operator_2"


def document(*names: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(conversations()[-1].joinpath(*names).read_text(encoding="utf-8"))
    return found


def journal() -> str:
    return (conversations()[-1] / "journal.jsonl").read_text(encoding="utf-8")


def kinds(team: Team, agent: int = 0) -> list[str]:
    """Return the kinds of the envelopes in an agent's history, in order; checks that each is one."""
    found = []
    for message in team.state.agents[agent].messages:
        if message.role == "user" and message.metadata.get("visibility") != "chat":
            found.append(parse(message.content or "").kind)  # raises for whatever is no envelope
    return found


def test_closing_twice_or_before_anything_happened_is_harmless() -> None:
    async def main() -> None:
        unused = Team(model=ScriptedModel([]))
        await unused.close()
        await unused.close()
        team = Team(model=one_helper())
        await team.run("Go.")
        await asyncio.gather(team.close(), team.close())
        await team.close()
        for work in (team.run("Again."), team.wait(), team.send("leader", "Hello."), team.open()):
            with pytest.raises(TeamError, match="this team is closed"):
                await work
        assert team.result().text == "All done."

    go(main)


def test_a_closed_team_leaves_whole_documents_an_empty_journal_and_no_lock() -> None:
    async def main() -> None:
        async with Team(model=one_helper()) as team:
            await team.run("Go.")
            with pytest.raises(ConversationLocked):
                ConversationStore(Home()).open(team.conversation_id)
        assert journal() == ""
        assert document("metadata.json")["leader_state"]["status"] == "completed"
        assert [m["role"] for m in document("agents", "1", "messages.json")["messages"]] == [
            *("system", "user", "assistant")
        ]
        conversation = ConversationStore(Home()).open(team.conversation_id)
        await conversation.close()

    go(main)


def test_closing_while_agents_work_interrupts_them_and_what_they_began_stays() -> None:
    async def main() -> None:
        model = ScriptedModel(
            {
                "Team Leader": [create(1) + create(2), NEVER],
                NAME: [call("list_active_sub_agents"), NEVER],
                SECOND: [NEVER],
            }
        )
        async with Team(model=model) as team:
            await team.start("Go.")
            await asked(model, 5)
        assert team.result().status == "interrupted"
        assert [(agent.status, agent.detail) for agent in team.agents] == [("idle", "interrupted")] * 2
        for number in ("1", "2"):
            stored = document("agents", number, "metadata.json")
            assert (stored["status"], stored["status_detail"]) == ("idle", "interrupted")
            assert stored["pending_tool_calls"] == []
        assert journal() == ""

    go(main)


def test_closing_wakes_nobody_and_asks_no_model_again() -> None:
    async def main() -> None:
        model = ScriptedModel(
            {
                "Team Leader": [
                    create(1) + create(2),
                    call("ask_sub_agent", agent_id=2, question="?", question_id="ask_l"),
                ],
                NAME: [call("ask_other_agent", target_agent_id=2, content="?", message_id="ask_n")],
                SECOND: [NEVER],
            }
        )
        team = Team(model=model)
        await team.start("Go.")
        await until(team, lambda team: len(team.open_questions) == 2)
        await team.close()
        assert len(model.requests) == 4
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("astrion")]
        assert [agent.status for agent in team.agents] == ["waiting", "idle"]
        assert document("metadata.json")["leader_state"]["status"] == "waiting"
        first = document("agents", "1", "metadata.json")
        assert first["status"] == "waiting"
        assert [call["question_id"] for call in first["pending_tool_calls"]] == ["ask_n"]
        assert document("agents", "2", "metadata.json")["status"] == "idle"

        model = ScriptedModel({"Team Leader": [say("Now I know.")] * 3, NAME: [say("Thanks.")], SECOND: [say("42.")]})
        model._check_on_close = False
        async with Team(model=model, conversation=team.conversation_id) as again:
            result = await again.run("Go on.")
            assert result.status == "completed"
            assert [(agent.status, agent.last_text) for agent in result.agents] == [
                ("completed", "Thanks."),
                ("completed", "42."),
            ]
            assert "42." in results(again, 1)[0]
            assert "42." in results(again)[-1]

    go(main)


@pytest.mark.parametrize("target", [NAME, "leader"])
def test_closing_ends_whoever_still_waits_for_an_answer(target: str) -> None:
    async def main() -> None:
        model = ScriptedModel(
            {
                "Team Leader": [create(1), call("ask_sub_agent", agent_id=1, question="?", question_id="ask_l")],
                NAME: [NEVER],
            },
        )
        team = Team(model=model)
        await team.start("Go.")
        await until(team, lambda team: len(team.open_questions) == 1)
        await asked(model, 3)
        person = asyncio.create_task(team.ask(target, "Anybody?"))
        rest = asyncio.create_task(team.wait())
        await asyncio.sleep(0)
        await team.close()
        with pytest.raises(TeamError, match=r"closed|interrupted"):
            await person
        assert (await rest).status == "interrupted"

    go(main)


def test_a_listener_ends_when_the_team_is_closed() -> None:
    async def main() -> None:
        team = Team(model=one_helper())
        listening = asyncio.create_task(_count(team))
        await team.run("Go.")
        await team.close()
        assert await listening > 10
        assert await _count(team) > 10

    go(main)


async def _count(team: Team) -> int:
    return len([event async for event in team.events()])


def test_an_interrupted_agent_is_told_to_the_leader_and_goes_on_by_a_message() -> None:
    async def main() -> None:
        model = ScriptedModel({"Team Leader": [create(1), NEVER], NAME: [NEVER]})
        async with Team(model=model) as team:
            await team.start("Go.")
            await asked(model, 3)
        model = ScriptedModel(
            {
                "Team Leader": [
                    call("send_message_to_sub_agent", agent_id=1, message="Go on."),
                    say("Waiting."),
                    say("Done after all."),
                ],
                NAME: [say("A late button.")],
            }
        )
        async with Team(model=model, conversation=team.conversation_id) as again:
            assert again.result().status == "interrupted"
            assert not again.running
            result = await again.run("What now?")
            assert result.text == "Done after all."
            assert result.agents[0].last_text == "A late button."
            assert kinds(again) == ["message", "completion"]
            assert kinds(again, 1) == ["task", "task"]
        assert sorted(request.actor for request in model.requests) == ["Team Leader"] * 3 + [NAME]

    go(main)


def test_what_is_queued_when_a_team_is_closed_is_queued_when_it_is_opened_again_and_read_once() -> None:
    async def main() -> None:
        model = ScriptedModel(
            {
                # Woken by the question, then reminded of it; then it goes to the person.
                "Team Leader": [create(1), say("Waiting."), say("Hm."), say("Hm.")],
                NAME: [call("ask_master", question="Blue?", question_id="ask_b")],
            }
        )
        async with Team(model=model, human=True) as team:
            await team.start("Go.")
            await until(team, lambda team: bool(team.questions))
            sent = [await team.send(1, "One."), await team.send(1, "Two.")]
        stored = document("agents", "1", "metadata.json")
        assert [item["id"] for item in stored["pending_messages"]] == sent
        assert [item["content"] for item in stored["pending_messages"]] == ["One.", "Two."]

        model = ScriptedModel({"Team Leader": [say("Asked.")] * 4, NAME: [say("Blue it is, one and two.")]})
        model._check_on_close = False
        async with Team(model=model, conversation=team.conversation_id, human=True) as again:
            assert [item.id for item in again.state.agents[1].pending] == sent
            await again.answer("ask_b", "Yes.")
            await again.wait()
            assert kinds(again, 1) == ["task", "message", "message"]
            roles = [m.role for m in again.state.agents[1].messages]
            assert roles == ["system", "user", "assistant", "tool", "user", "user", "assistant"]

    go(main)


RESUME = """
import asyncio, sys
from astrion_nb import Team
from astrion_nb.testing import ScriptedModel, say

async def main():
    script = {"UI Operator_1": [say("Green it is.")], "Team Leader": [say("Done.")] * 3}
    model = ScriptedModel(script, check_on_close=False)
    async with Team(model=model, conversation=sys.argv[1], human=True) as team:
        (question,) = team.questions
        print(question.question_id, question.asker, question.text, sep="|")
        print(team.agents[0].status)
        await team.answer(question.question_id, "Green.")
        result = await asyncio.wait_for(team.wait(), 10)
        print(result.agents[0].last_text)

asyncio.run(main())
"""


def test_another_process_answers_the_question_that_was_left_and_it_becomes_that_very_calls_result() -> None:
    async def main() -> Team:
        model = ScriptedModel(
            {
                "Team Leader": [create(), say("Waiting."), say("You decide."), say("You decide.")],
                NAME: [call("ask_master", question="Blue or green?", question_id="ask_q")],
            }
        )
        async with Team(model=model, human=True) as team:
            await team.start("Go.")
            await until(team, lambda team: bool(team.questions))
        return team

    team = go(main)
    (open_call,) = document("agents", "1", "metadata.json")["pending_tool_calls"]
    assert open_call["question_id"] == "ask_q"
    done = subprocess.run(
        [sys.executable, "-c", RESUME, team.conversation_id], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["ask_q|UI Operator_1|Blue or green?", "waiting", "Green it is."]
    messages = document("agents", "1", "messages.json")["messages"]
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert messages[3]["tool_call_id"] == messages[2]["tool_calls"][0]["id"] == open_call["tool_call_id"]
    answer = json.loads(messages[3]["content"])
    assert answer["success"] is True
    assert answer["question_id"] == "ask_q"
    assert 'question_id="ask_q"' in answer["answer"]
    assert "Green." in answer["answer"]


def test_a_conversation_whose_model_is_gone_says_so_and_can_be_opened_again(tmp_path: Path) -> None:
    script = tmp_path / "gone.py"
    script.write_text("from astrion_nb.testing import say\nscript = [say('Here.')]\n", encoding="utf-8")

    async def main() -> None:
        async with Team(model=f"scripted/{script}") as team:
            await team.run("Go.")
        text = script.read_text(encoding="utf-8")
        script.unlink()
        for _ in range(2):
            lost = Team(conversation=team.conversation_id)
            with pytest.raises(ConfigError, match="there is no such file"):
                await lost.run("Go on.")
            await lost.close()
        script.write_text(text, encoding="utf-8")
        async with Team(conversation=team.conversation_id) as again:
            assert (await again.run("Go on.")).text == "Here."
            assert again.state.run == 2

    go(main)


def test_a_conversation_keeps_its_model_and_another_is_refused_instead_of_silently_not_used(tmp_path: Path) -> None:
    keys = []
    for name in ("one", "two"):
        script = tmp_path / f"{name}.py"
        script.write_text(f"from astrion_nb.testing import say\nscript = {{'*': [say('{name}')]}}\n", encoding="utf-8")
        keys.append(f"scripted/{script}")

    async def main() -> None:
        async with Team(model=keys[0]) as team:
            await team.run("Go.")
        others: list[dict[str, Any]] = [{"model": keys[1]}, {"all_models": keys[1]}, {"model": ScriptedModel([])}]
        for other in others:
            refused = Team(conversation=team.conversation_id, **other)
            with pytest.raises(ConfigError, match=r"was begun with the model .*one.py' and keeps it"):
                await refused.run("Go on.")
            await refused.close()
        for same in ({"model": keys[0]}, {"all_models": keys[0]}, {}):
            async with Team(conversation=team.conversation_id, **same) as again:  # type: ignore[arg-type]
                assert (await again.run("Go on.")).text == "one"

    go(main)


def test_a_conversation_that_is_open_is_not_opened_twice() -> None:
    async def main() -> None:
        async with Team(model=ScriptedModel([say("One."), say("Two.")])) as team:
            await team.run("Go.")
            other = Team(conversation=team.conversation_id)
            with pytest.raises(ConversationLocked):
                await other.run("Go.")
            await other.close()
            assert (await team.run("Go on.")).text == "Two."

    go(main)


INTERRUPTED = """
import asyncio, time
from astrion_nb import Team
from astrion_nb.testing import ScriptedModel, call

def nap() -> str:
    "Compute for a long time."
    print("working", flush=True)
    time.sleep(600)
    return "rested"

async def main():
    model = ScriptedModel({
        "Team Leader": [call("create_sub_agent", agent_id=1, role_id="ui-operator", task="Nap.") + call("nap")],
        "UI Operator_1": [call("nap")],
    }, check_on_close=False)
    async with Team(model=model, tools=[nap]) as team:
        await team.run("Go.")

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_an_interrupted_script_ends_at_once_and_leaves_its_team_stopped_and_whole() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert [child.stdout.readline() for _ in range(2)] == ["working\n"] * 2
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=10)
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert "never retrieved" not in err
    assert journal() == ""
    stored = document("agents", "1", "metadata.json")
    assert (stored["status"], stored["status_detail"], stored["pending_tool_calls"]) == ("idle", "stopped", [])
    leader = document("messages.json")["messages"]
    assert [m["role"] for m in leader] == ["user", "assistant", "tool", "tool"]
    assert "cancelled while it ran" in leader[-1]["content"]
    assert document("runtime.json")["run"]["status"] == "stopped"


def test_a_conversation_that_cannot_be_written_is_what_close_says_though_a_script_has_steps_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logging.getLogger("astrion_nb").disabled = False

    async def main() -> None:
        team = Team(model=ScriptedModel([say("One."), say("Never asked for.")]))
        await team.run("Go.")
        in_the_way = conversations()[-1] / "metadata.json"
        in_the_way.mkdir()
        with pytest.raises(StorageError):
            await team.close()
        assert "never asked for" in caplog.text
        in_the_way.rmdir()
        await team.close()

    go(main)


def test_a_script_with_steps_left_is_still_said_where_all_is_written() -> None:
    async def main() -> None:
        team = Team(model=ScriptedModel([say("One."), say("Never asked for.")]))
        await team.run("Go.")
        with pytest.raises(ScriptError, match="never asked for"):
            await team.close()

    go(main)
