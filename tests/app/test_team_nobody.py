"""What was left with a person, where no person can act any more: nothing waits for somebody who is not there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.casts import create as created
from support.casts import play
from support.scripts import NAME, create, results, until
from support.served import configure
from support.strict_server import StrictServer, calls, text
from support.teams import go

from astrion_nb import Team, tool
from astrion_nb.testing import ScriptedModel, call, invariants, say

ASKS = call("ask_master", question="Blue or green?", question_id="ask_q")


def asking() -> ScriptedModel:
    return ScriptedModel({"Team Leader": [create(), say("Waiting."), say("You."), say("You.")], NAME: [ASKS]})


def with_the_person(team: Team) -> bool:
    return any(question.answerer == "human" for question in team.open_questions)


async def left(team: Team) -> str:
    """Begin a conversation whose question stays with the person; returns its id."""
    await team.start("Go.")
    await until(team, with_the_person)
    await team.close()
    return team.conversation_id or ""


@pytest.mark.parametrize("human", [False, None])
@pytest.mark.parametrize("how", ["run", "wait"])
def test_a_question_that_was_left_with_the_person_ends_where_a_program_goes_on_alone(
    how: str, human: bool | None
) -> None:
    async def main() -> None:
        cid = await left(Team(model=asking(), human=True))
        steps = [say("Blue then.")]
        model = ScriptedModel({"Team Leader": [say("On.")] * (2 if how == "run" else 1), NAME: steps})
        async with Team(conversation=cid, model=model, human=human) as team:
            await team.open()
            assert with_the_person(team)
            result = await (team.run("Go on.") if how == "run" else team.wait())
            assert "no person can act here" in results(team, 1)[0]
            assert result.agents[0].last_text == "Blue then."
            invariants.check(team.state)

    go(main)


def test_a_conversation_that_is_only_looked_at_keeps_its_question_for_the_next_kernel() -> None:
    async def main() -> None:
        cid = await left(Team(model=asking(), human=True))
        for only in (True, False):
            async with Team(conversation=cid, model=ScriptedModel({}), human=False, read_only=only) as team:
                await team.open()
                assert with_the_person(team)
        model = ScriptedModel({"Team Leader": [say("On.")], NAME: [say("Green it is.")]})
        async with Team(conversation=cid, model=model, human=True) as team:
            await team.answer("ask_q", "Green.")
            assert (await team.wait()).agents[0].last_text == "Green it is."

    go(main)


@pytest.mark.parametrize("waits", ["before", "after"])
def test_when_the_only_one_who_listened_goes_away_nothing_waits_for_that_person(waits: str) -> None:
    async def main() -> None:
        model = ScriptedModel(
            {
                "Team Leader": [create(), say("Waiting."), say("You."), say("You."), say("End.")],
                NAME: [ASKS, say("Blue.")],
            }
        )
        async with Team(model=model) as team:

            async def listen() -> None:
                async for _ in team.events():
                    if with_the_person(team):
                        return

            listening = asyncio.create_task(listen())
            if waits == "before":
                result = await team.run("Go.")
            else:
                await team.start("Go.")
                await listening
                result = await team.wait()
            assert result.agents[0].last_text == "Blue."
            assert result.unanswered == ("ask_q: Blue or green?",)
            await listening

    go(main)


def test_a_person_who_begins_to_listen_while_a_program_waits_may_still_answer() -> None:
    async def main() -> None:
        cid = await left(Team(model=asking(), human=True))
        model = ScriptedModel({"Team Leader": [say("On.")], NAME: [say("Green it is.")]})
        async with Team(conversation=cid, model=model) as team:

            async def person() -> None:
                async for _ in team.events():
                    pass

            waiting = asyncio.create_task(team.wait())
            await asyncio.sleep(0)
            listening = asyncio.create_task(person())
            await asyncio.wait({waiting}, timeout=1.0)
            assert with_the_person(team)
            await team.answer("ask_q", "Green.")
            assert (await waiting).agents[0].last_text == "Green it is."
        await listening

    go(main)


def test_a_call_that_waited_to_be_allowed_is_denied_where_a_program_goes_on_alone(tmp_path: Path) -> None:
    rung: list[str] = []

    @tool(effect="run")
    def ring(command: str) -> str:
        """Ring a bell."""
        rung.append(command)
        return "rang"

    async def main(server: StrictServer) -> None:
        configure(tmp_path, server)
        play(server, [calls(created()), text("So it is.")], [calls(("ring", {"command": "loud"})), text("No bell.")])
        team: Any = Team(home=tmp_path, tools=[ring], human=True)
        cid = await left(team)
        play(server, [text("On.")], [text("No bell.")])
        async with Team(home=tmp_path, conversation=cid, tools=[ring], human=False) as team:
            await team.run("Go on.")
            assert "no person can act here" in results(team, 1)[0]
            assert rung == []
            invariants.check(team.state)

    with StrictServer() as server:
        go(lambda: main(server))
