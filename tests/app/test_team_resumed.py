"""A stored conversation opened again: what was found, read only, or taken over from whoever has it."""

from __future__ import annotations

import asyncio
import json
from inspect import iscoroutinefunction
from pathlib import Path

import pytest
from support.scripts import NAME, NEVER, asked, conversations, create, results, until
from support.teams import go

from astrion_nb import Team
from astrion_nb.app.restored import RestoredAgent
from astrion_nb.errors import ConfigError, ConversationLocked, StorageError, TeamError
from astrion_nb.testing import ScriptedModel, call, invariants, say

SECOND = "UI Operator_2"


def snapshot() -> dict[Path, bytes]:
    """Return what is in every file of the store but the locks."""
    return {path: path.read_bytes() for folder in conversations() for path in folder.rglob("*.json*")}


def waiting_team() -> Team:
    """One helper waits for the person, one works, and the leader rests."""
    model = ScriptedModel(
        {
            "Team Leader": [create(1) + create(2), say("I wait."), *[say("Hm.")] * 3],
            NAME: [call("ask_master", question="Blue?", question_id="ask_b") + call("list_active_sub_agents")],
            SECOND: [NEVER],
        },
        check_on_close=False,
    )
    return Team(model=model, human=True)


async def left_behind() -> str:
    """Leave a team as it is found after a kill: a helper waits, another was at work, a message is queued."""
    team = waiting_team()
    await team.start("Go.")
    await until(team, lambda team: bool(team.questions))
    await asked(team._plan.model, 5)  # type: ignore[arg-type]  # the leader has been reminded, the second is asked
    await team.send(1, "Wait a little.")
    folder = conversations()[-1]
    kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    await team.close()
    for path in folder.rglob("*"):
        if path.is_file():
            path.write_bytes(kept.get(path, b"")) if path in kept else path.unlink()
    return folder.name


async def refuses_every_act(reader: Team) -> None:
    acts = {
        "run": lambda: reader.run("More."),
        "start": lambda: reader.start("More."),
        "send": lambda: reader.send(1, "Hello."),
        "ask": lambda: reader.ask(1, "Are you there?"),
        "answer": lambda: reader.answer("ask_b", "Blue."),
        "approve": lambda: reader.approve("ask_b"),
        "deny": lambda: reader.deny("ask_b"),
        "stop": lambda: reader.stop(),
        "terminate": lambda: reader.terminate(1),
        "retry": lambda: reader.retry(),
        "rename": lambda: reader.rename("Another"),
        "archive": lambda: reader.archive(),
    }
    awaited = {name for name in dir(Team) if not name.startswith("_") and iscoroutinefunction(getattr(Team, name))}
    assert acts.keys() == awaited - {"open", "wait", "close"}, "whatever can be awaited is an act, but for these"
    for act in acts.values():
        with pytest.raises(TeamError, match="open for reading only"):
            await act()


def rest(first: list[object], *leader: object) -> ScriptedModel:
    return ScriptedModel({"Team Leader": [*leader, *[say("Hm.")] * 4], NAME: first}, check_on_close=False)


def test_what_was_restored_and_what_was_interrupted_is_told_by_agent_and_the_answer_ends_that_very_call() -> None:
    async def main() -> None:
        conversation = await left_behind()
        async with Team(conversation=conversation, model=rest([say("A blue button.")]), human=True) as team:
            leader, first, second = team.restored
            assert (leader.agent_id, leader.display_name, leader.status) == (0, "Team Leader", "completed")
            assert first == RestoredAgent(1, NAME, "waiting", "", ("human",), 1, ())
            assert second == RestoredAgent(2, SECOND, "idle", "interrupted", (), 0, ())
            await asyncio.sleep(0)
            invariants.check(team.state, runtime=await team.open())
            await team.answer("ask_b", "Blue it is.")
            result = await team.wait()
            assert result.status == "completed"
            messages = team.state.agents[1].messages
            (asking,) = [one.id for m in messages for one in m.tool_calls if one.name == "ask_master"]
            (answer,) = [json.loads(m.content or "") for m in messages if m.tool_call_id == asking]
            assert (answer["success"], answer["question_id"]) == (True, "ask_b")
            assert "Blue it is." in answer["answer"]
            assert sum("Wait a little." in (m.content or "") for m in messages) == 1

    go(main)


def test_a_new_team_has_restored_nothing() -> None:
    async def main() -> None:
        async with Team(model=ScriptedModel([say("Here.")])) as team:
            assert team.restored == ()
            await team.run("Go.")

    go(main)


def test_a_conversation_can_be_read_while_it_is_open_elsewhere_and_nothing_is_changed_by_it() -> None:
    async def main() -> None:
        async with waiting_team() as team:
            await team.start("Go.")
            await until(team, lambda team: bool(team.questions))
            await asked(team._plan.model, 5)  # type: ignore[arg-type]  # the leader has been reminded
            await until(team, lambda team: team.state.leader_state.status == "completed")
            assert team._opened is not None
            await team._opened.conversation.settle()
            before, seq = snapshot(), team.state.seq
            with pytest.raises(ConversationLocked, match="read_only, take_over"):
                await Team(conversation=team.conversation_id).open()
            async with Team(conversation=team.conversation_id, read_only=True) as reader:
                assert [agent.display_name for agent in reader.agents] == [NAME, SECOND]
                assert [question.question_id for question in reader.questions] == ["ask_b"]
                assert not reader.running
                assert "Blue?" in reader.transcript
                await refuses_every_act(reader)
            assert (snapshot(), team.state.seq) == (before, seq)
            await team.answer("ask_b", "Green.")

    go(main)


def test_what_is_only_read_is_not_changed_and_needs_no_model() -> None:
    async def main() -> None:
        conversation = await left_behind()
        before = snapshot()
        async with Team(conversation=conversation, read_only=True) as reader:
            assert reader.agents[1].status == "running"
            assert (reader.running, (await reader.wait()).status) == (False, "running")
            await refuses_every_act(reader)
        assert snapshot() == before

    go(main)


def test_who_was_taken_over_ends_with_an_error_that_names_the_other_and_the_other_goes_on() -> None:
    async def main() -> None:
        former = waiting_team()
        await former.start("Go.")
        await until(former, lambda team: bool(team.questions))
        await (await former.open()).bus.durable()
        name = former.conversation_id
        async with Team(conversation=name, take_over=True, model=rest([say("Blue.")]), human=True) as team:
            assert [agent.waits_for for agent in team.restored if agent.agent_id == 1] == [("human",)]
            with pytest.raises(StorageError, match=f"{name} was taken over by this process"):
                await former.answer("ask_b", "Red.")
            with pytest.raises(StorageError, match=f"{name} was taken over by this process"):
                await former.close()
            await team.answer("ask_b", "Green.")
            await team.wait()
            assert any("Green." in one for one in results(team, 1))
            invariants.check(team.state, runtime=await team.open())
        async with Team(conversation=name, read_only=True) as reader:
            invariants.check(reader.state)
            assert any("Green." in one for one in results(reader, 1))
            assert not any("Red." in one for one in results(reader, 1))

    go(main)


@pytest.mark.parametrize(
    "wrong",
    [
        {"read_only": True},
        {"take_over": True},
        {"conversation": "conv_x", "read_only": True, "take_over": True},
        {"conversation": "conv_x", "read_only": "yes"},
    ],
)
def test_how_a_conversation_is_opened_is_said_of_a_stored_one_and_in_one_way(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="Team: "):
        Team(**wrong)  # type: ignore[arg-type]
