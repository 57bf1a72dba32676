"""Whatever a person does to a working team, in whatever order: it comes to rest, whole, and can be taken up again."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from support.served import actor, check, configure, play
from support.strict_server import Response, StrictServer
from support.teams import BOUND

from astrion_nb import Team, tool
from astrion_nb.errors import AstrionError
from astrion_nb.home import Home
from astrion_nb.store.conversations import ConversationStore

QUICK = 4
MANY = 30


@tool
async def mark(what: str) -> str:
    """Leave a mark."""
    await asyncio.sleep(0)
    return f"marked {what}"


class Person:
    """Does one thing after another to a team, as the dice say, and takes every refusal."""

    def __init__(self, team: Team, dice: random.Random) -> None:
        self.team = team
        self.dice = dice
        self.refused: list[str] = []
        self.unasked: list[asyncio.Task[Any]] = []

    async def act(self, count: int) -> None:
        team = self.team
        deeds: list[Callable[[], Awaitable[Any]]] = [
            lambda: team.send(self.somebody(), "Mind the gap."),
            lambda: team.send("leader", "How far are you?"),
            lambda: team.ask(self.somebody(), "What have you got?", timeout=self.dice.choice((0.01, 0.2, 2.0))),
            lambda: team.ask("leader", "Well?", timeout=0.5),
            lambda: team.stop(self.somebody(), "enough"),
            lambda: team.terminate(self.somebody()),
            lambda: team.stop(),
            lambda: team.run("Something else."),
            lambda: team.retry(),
            self.answer,
            lambda: team.wait(timeout=0.05),
        ]
        for _ in range(count):
            deed = self.dice.choice(deeds)
            if self.dice.random() < 0.2:
                self.unasked.append(asyncio.create_task(self.bear(deed)))
            else:
                await self.bear(deed)
            await asyncio.sleep(self.dice.choice((0, 0, 0.002, 0.02)))
        for task in self.unasked:
            if self.dice.random() < 0.5:
                task.cancel()
        await asyncio.gather(*self.unasked, return_exceptions=True)

    async def bear(self, deed: Callable[[], Awaitable[Any]]) -> None:
        try:
            await deed()
        except AstrionError as error:
            self.refused.append(f"{type(error).__name__}: {error}")

    async def answer(self) -> None:
        if self.team.open_questions:
            question = self.dice.choice(self.team.open_questions)
            await self.team.answer(question.question_id, "As you like.")

    def somebody(self) -> str:
        names = [agent.display_name for agent in self.team.agents] or ["UI Operator_1"]
        return self.dice.choice(names)


async def scene(home: Home, server: StrictServer, dice: random.Random) -> None:
    seen: dict[str, list[dict[str, Any]]] = {}

    def answer(request: dict[str, Any], number: int) -> Response:
        seen[actor(request)] = request["messages"]
        return play(request, number)

    server.on_request = answer
    conversation_id = None
    for _ in range(3):
        team = Team(home=home, tools=[mark], conversation=conversation_id, human=dice.random() < 0.7)
        async with asyncio.timeout(6 * BOUND):
            try:
                await team.start("Look at the pages.")
                persons = [Person(team, dice) for _ in range(2)]
                await asyncio.gather(*(person.act(6) for person in persons))
                if dice.random() < 0.5:
                    while team.questions:
                        await persons[0].bear(persons[0].answer)
                    with contextlib.suppress(AstrionError):
                        await team.wait(timeout=2 * BOUND)
            finally:
                await team.close()
        conversation_id = team.conversation_id
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("astrion")]
        stored = ConversationStore(home).open(conversation_id, read_only=True).state
        check(seen, stored)
        assert {agent.status for agent in stored.agents.values()} <= {"idle", "completed", "waiting", "terminated"}
        waiting = {agent.agent_id for agent in stored.agents.values() if agent.status == "waiting"}
        assert waiting == {question.asker for question in stored.open_questions()}
        assert (home.conversations / conversation_id / "journal.jsonl").read_bytes() == b""

    # And in the end it can be brought to its end: nobody waits for ever.
    async with Team(home=home, tools=[mark], conversation=conversation_id, human=False) as team:
        for question in team.questions:
            await team.answer(question.question_id, "Yes.")
        result = await asyncio.wait_for(team.run("Come to an end."), 4 * BOUND)
        assert result.status == "completed"
        assert not [agent for agent in result.agents if agent.status in ("running", "waiting")]
        assert team.open_questions == ()


@pytest.mark.parametrize("number", [pytest.param(n, marks=pytest.mark.slow) if n >= QUICK else n for n in range(MANY)])
def test_whatever_a_person_does_the_team_comes_to_rest_whole(tmp_path: Path, number: int) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    dice = random.Random(seed)
    with StrictServer(pace=dice.choice((0, 0.001, 0.004))) as server:
        asyncio.run(scene(configure(tmp_path, server), server, dice))
        assert server.violations == []
