"""What can be seen of a team, by whom, and that looking harms nobody."""

from __future__ import annotations

import asyncio

import pytest
from support.scripts import NAME, one_helper
from support.teams import go

from astrion_nb import Team
from astrion_nb.errors import (
    AgentNotFound,
    TeamError,
)
from astrion_nb.events import (
    AgentCreated,
    Event,
    MessageAppended,
    RunEnded,
    RunStarted,
    StatusChanged,
    TextStreamed,
)
from astrion_nb.messages import Usage
from astrion_nb.testing import ScriptedModel, say


def test_several_listeners_hear_the_same_from_wherever_they_begin() -> None:
    async def main() -> None:
        async with Team(model=one_helper()) as team:
            early, late = [], []

            async def listen(into: list[Event], since: int) -> None:
                async for event in team.events(since):
                    into.append(event)

            first = asyncio.create_task(listen(early, 0))
            await team.run("Go.")
            middle = next(n for n, event in enumerate(stored(early)) if isinstance(event, AgentCreated))
            others = [asyncio.create_task(listen(late, 0)), asyncio.create_task(listen(past := [], middle))]
            one = team.events()
            assert isinstance(await anext(one), Event.__args__)  # type: ignore[attr-defined]
            await one.aclose()
        await asyncio.gather(first, *others)
        assert stored(early) == stored(late) == late
        assert past == late[middle:]
        assert any(isinstance(event, TextStreamed) for event in early)
        kinds = [type(event) for event in late]
        assert kinds.count(RunStarted) == kinds.count(RunEnded) == 1
        assert kinds[-1] is RunEnded
        ended = [event async for event in team.events()]
        assert ended == late

    go(main)


def stored(events: list[Event]) -> list[Event]:
    from astrion_nb.events import FLEETING

    return [event for event in events if not isinstance(event, FLEETING)]


def test_a_listener_that_breaks_or_leaves_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        model = one_helper()
        model.extend({"Team Leader": [say("As before.")]})
        async with Team(model=model) as team:

            def breaks(_: object) -> None:
                raise RuntimeError("a view broke")

            team.watch(breaks)
            heard: list[object] = []
            cancel = team.watch(heard.append)

            async def one() -> Event:
                async for event in team.events():
                    return event
                raise AssertionError

            leaving = asyncio.create_task(one())
            assert (await team.run("Go.")).status == "completed"
            await leaving
            assert len(heard) > 10
            cancel()
            cancel()
            count = len(heard)
            await team.run("Once more.")
            assert len(heard) == count
        assert "a view broke" in caplog.text

    go(main)


def test_the_exact_request_of_any_turn_can_be_seen() -> None:
    async def main() -> None:
        model = one_helper()
        async with Team(model=model) as team:
            with pytest.raises(TeamError, match="has not begun"):
                Team(model=model).request("leader")
            await team.run("Go.")
            asked = [request for request in model.requests if request.actor == NAME]
            shown = team.request(NAME)
            assert [m["role"] for m in shown["messages"]] == ["system", "user"]
            assert shown["tools"] == list(asked[0].tools)
            first = team.request("leader", 1)
            assert [m["role"] for m in first["messages"]] == ["system", "user"]
            assert first["messages"][1]["content"] == "Go."
            with pytest.raises(TeamError, match="Team Leader has 3 turns; there is no turn 4"):
                team.request("leader", 4)
            with pytest.raises(AgentNotFound):
                team.request("Nobody")

    go(main)


def test_the_transcript_tells_who_said_what() -> None:
    async def main() -> None:
        async with Team(model=one_helper()) as team:
            await team.run("Make a page.")
            text = team.transcript
            for part in ("Make a page.", NAME, "A blue button.", "All done."):
                assert part in text

    go(main)


def test_a_team_that_has_not_begun_is_empty_and_says_so() -> None:
    team = Team(model=ScriptedModel([]))
    assert (team.agents, team.questions, team.usage, team.cost) == ((), (), Usage(), None)
    assert (team.running, team.conversation_id, team.leader, team.origin) == (False, "", "model", "live")
    assert "completed" not in team.transcript


def test_status_changes_are_told_in_their_order() -> None:
    async def main() -> None:
        async with Team(model=one_helper()) as team:
            told: list[tuple[int, str]] = []
            team.watch(
                lambda item: (
                    told.append((item.event.agent_id, item.event.status))
                    if isinstance(item.event, StatusChanged)
                    else None
                )
            )
            appended: list[str] = []
            team.watch(
                lambda item: (
                    appended.append(item.event.message.role) if isinstance(item.event, MessageAppended) else None
                )
            )
            await team.run("Go.")
        assert [status for agent, status in told if agent == 1] == ["running", "completed"]
        assert appended.count("assistant") == 4

    go(main)
