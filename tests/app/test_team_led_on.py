"""A person who leads gives the next task, in the same program and in the next: to the agents that are there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.casts import play, said
from support.served import configure
from support.strict_server import StrictServer, text

from astrion_nb import Team
from astrion_nb.errors import TeamError

ROLES = ["researcher", "researcher", "code-reviewer"]
NAMES = ["Researcher_1", "Researcher_2", "Code Reviewer_1"]


def test_the_next_task_goes_to_the_agents_that_are_there_and_a_run_ends(tmp_path: Path) -> None:
    with StrictServer() as server:
        place = configure(tmp_path, server)
        cast = play(server, member=[text("Done.")])

        async def first() -> str:
            async with Team(home=place, leader="human", roles=ROLES[:2], language="en") as team:
                await team.run("First task.", timeout=20)
                await team.run("Second task.", timeout=20)
                assert [agent.display_name for agent in team.agents] == NAMES[:2]
                return team.conversation_id

        async def later(conversation: str) -> None:
            async with Team(home=place, conversation=conversation) as team:
                result = await team.run("Third task.", timeout=20)
                assert result.status == "completed"
                assert [agent.display_name for agent in team.agents] == NAMES[:2]
                await team.terminate("Researcher_1")
                assert (await team.run("Fourth task.", timeout=20)).status == "completed"
                await team.terminate("Researcher_2")
                with pytest.raises(TeamError, match="has no agents any more"):
                    await team.run("Fifth task.", timeout=20)
                assert not team.running
                assert (await team.wait(timeout=20)).status == "completed"

        asyncio.run(later(asyncio.run(first())))
        tasks = [said(request) for request in cast.member_requests]
        assert len(tasks) == 2 + 2 + 2 + 1
        assert sum("Third task." in task for task in tasks) == 3  # the last one remembers it, too
        assert server.violations == []


def test_chosen_roles_that_have_no_agent_get_one_with_the_next_task(tmp_path: Path) -> None:
    with StrictServer() as server:
        place = configure(tmp_path, server)
        play(server, member=[text("Done.")])

        async def main() -> None:
            async with Team(home=place, leader="human", roles=ROLES[:1], language="en") as team:
                await team.run("First task.", timeout=20)
                conversation = team.conversation_id
            async with Team(home=place, conversation=conversation, leader="human", roles=ROLES) as team:
                await team.run("Second task.", timeout=20)
                assert [agent.display_name for agent in team.agents] == NAMES

        asyncio.run(main())
