"""A team in a plain script: what a run gives, and how it ends."""

from __future__ import annotations

import asyncio

import pytest
from support.scripts import NAME, NEVER, ROLE, asked, conversations, create, one_helper, until
from support.teams import go

from astrion_nb import Limits, Team, TeamResult, tool
from astrion_nb.errors import (
    AgentNotFound,
    AgentTerminated,
    BudgetExceeded,
    ConfigError,
    ModelRefused,
    RunFailed,
    TeamBusy,
    TeamError,
)
from astrion_nb.messages import Usage
from astrion_nb.testing import ScriptedModel, call, fail, say

# -- a run ---------------------------------------------------------------------------------


def test_a_run_ends_with_the_leaders_last_answer_and_what_there_is_to_know() -> None:
    async def main() -> None:
        async with Team(model=one_helper()) as team:
            result = await team.run("Make a page.\nWith a button.")
            assert result == team.result()
            assert (result.text, result.status, result.error) == ("All done.", "completed", "")
            assert result.conversation_id == team.conversation_id == conversations()[0].name
            assert result.unanswered == ()
            (agent,) = result.agents
            assert (agent.agent_id, agent.display_name, agent.role_id) == (1, NAME, ROLE)
            assert (agent.status, agent.detail, agent.error) == ("completed", "", "")
            assert (agent.summary, agent.last_text, agent.model_key) == ("Draw a button.", "A blue button.", "scripted")
            assert agent.waits_for == ()
            assert team.state.title == "Make a page."
            assert not team.running

    go(main)


def test_agent_sums_and_the_leaders_own_make_the_teams_sum_and_nothing_is_counted_twice() -> None:
    async def main() -> None:
        model = ScriptedModel(
            {
                "Team Leader": [
                    create() + say("", usage=(100, 10)),
                    say("I wait.", usage=(200, 20)),
                    say("Done.", usage=Usage(300, 30, 250)),
                ],
                NAME: [say("A button.", usage=Usage(7, 3, reasoning=2))],
            }
        )
        async with Team(model=model) as team:
            result = await team.run("Go.")
            assert result.usage == team.usage == Usage(607, 63, 250, 2)
            assert result.agents[0].usage == Usage(7, 3, reasoning=2)
            leader = team.state.leader_state.tokens
            assert leader + result.agents[0].usage == result.usage
            assert team.cost is None

    go(main)


def test_the_next_run_goes_on_with_the_same_agents_and_the_same_conversation() -> None:
    async def main() -> None:
        model = ScriptedModel(
            {
                "Team Leader": [
                    create(),
                    say("I wait."),
                    say("First done."),
                    call("send_message_to_sub_agent", agent_id=1, message="Now a green one."),
                    say("I wait again."),
                    say("Second done."),
                ],
                NAME: [say("Blue."), say("Green.")],
            }
        )
        async with Team(model=model) as team:
            first = await team.run("One.")
            second = await team.run("Two.")
            assert (first.text, second.text) == ("First done.", "Second done.")
            assert first.conversation_id == second.conversation_id
            assert second.agents[0].last_text == "Green."
            assert team.state.title == "Two."
            assert team.state.run == 2

    go(main)


def test_a_title_that_was_given_stays() -> None:
    async def main() -> None:
        async with Team("Buttons", model=ScriptedModel([say("a"), say("b")])) as team:
            await team.run("One.")
            await team.run("Two.")
            assert team.state.title == "Buttons"

    go(main)


@pytest.mark.parametrize("given", ["Buttons", ""])
def test_only_a_title_that_nobody_gave_follows_what_is_asked_of_the_leader(given: str) -> None:
    async def main() -> None:
        async with Team(given or None, model=ScriptedModel([say(text) for text in "abc"])) as team:
            titles = [team.state.title]
            for act in (team.run("One."), team.send("leader", "Two."), team.ask("leader", "Three.")):
                await act
                await team.wait()
                titles.append(team.state.title)
            conversation = team.conversation_id
        left = "ab" if given else "abc"
        async with Team(conversation=conversation, model=ScriptedModel([say(text) for text in left])) as again:
            await again.run("Four.")
            await again.ask("leader", "Five.")
            titles.append(again.state.title)
            if not given:
                await again.rename("Renamed")
                await again.run("Six.")
                assert again.state.title == "Renamed"
        assert titles == (["Buttons"] * 5 if given else ["", "One.", "Two.", "Three.", "Five."])

    go(main)


def test_a_title_given_to_a_human_leaders_team_outlives_the_agents_it_sends_to() -> None:
    async def main() -> None:
        model = ScriptedModel({NAME: [say("Blue.")]})
        async with Team("Buttons", model=model, leader="human", roles=[ROLE]) as team:
            await team.send(ROLE, "A blue one.")
            await team.wait()
            assert team.state.title == "Buttons"

    go(main)


def test_two_agents_work_at_the_same_time() -> None:
    async def main() -> None:
        both = asyncio.Barrier(2)

        @tool(side_effects=False)
        async def meet() -> str:
            """Wait for the other."""
            await both.wait()
            return "met"

        model = ScriptedModel(
            {
                "Team Leader": [create(1) + create(2), say("Waiting."), say("Both met.")],
                "UI Operator_*": [call("meet"), call("meet"), say("Met."), say("Met.")],
            }
        )
        async with Team(model=model, tools=[meet]) as team:
            result = await team.run("Meet.")
            assert [agent.status for agent in result.agents] == ["completed", "completed"]

    go(main)


def test_start_returns_while_the_team_works_and_wait_gives_the_result() -> None:
    async def main() -> None:
        gate = asyncio.Event()

        @tool(side_effects=False)
        async def hold() -> str:
            """Wait."""
            await gate.wait()
            return "ok"

        async with Team(model=one_helper(call("hold"), say("Held.")), tools=[hold]) as team:
            await team.start("Go.")
            assert team.running
            with pytest.raises(TeamBusy, match="%send leader"):
                await team.run("Another.")
            with pytest.raises(TeamBusy):
                await team.start("Another.")
            gate.set()
            assert (await team.wait()).text == "All done."
            assert (await team.wait()).text == "All done."

    go(main)


def test_an_empty_task_question_or_message_is_refused_before_anything_is_made() -> None:
    async def main() -> None:
        async with Team(model=ScriptedModel([])) as team:
            for work in (team.run("  \n"), team.start(""), team.ask("leader", " "), team.send("leader", "\t")):
                with pytest.raises(ConfigError, match="empty"):
                    await work
            assert team.state.run == 0

    go(main)


# -- how a run ends --------------------------------------------------------------------------


def test_a_leader_that_fails_ends_the_run_in_an_error_that_carries_the_result() -> None:
    async def main() -> None:
        model = ScriptedModel({"Team Leader": [create(), fail(ModelRefused("401: no such key"))], NAME: [say("Blue.")]})
        async with Team(model=model) as team:
            with pytest.raises(RunFailed, match="401: no such key") as caught:
                await team.run("Go.")
            result = caught.value.result
            assert isinstance(result, TeamResult)
            assert result == team.result()
            assert (result.status, result.error) == ("failed", "401: no such key")
            assert [agent.last_text for agent in result.agents] == ["Blue."]

    go(main)


def test_retry_revives_who_failed_from_where_the_history_ends() -> None:
    async def main() -> None:
        model = ScriptedModel(
            {
                # Revived, it hears of its helper in one request or in two, as it comes.
                "Team Leader": [
                    create(),
                    say("Waiting."),
                    fail(ModelRefused("502 for ever")),
                    *[say("Back again.")] * 2,
                ],
                NAME: [fail(ModelRefused("502 for ever")), say("Blue after all.")],
            },
            check_on_close=False,
        )
        async with Team(model=model) as team:
            with pytest.raises(RunFailed):
                await team.run("Go.")
            assert [(agent.status, agent.detail) for agent in team.agents] == [("idle", "failed")]
            assert await team.retry() == ("Team Leader", NAME)
            result = await team.wait()
            assert result.status == "completed"
            assert result.agents[0].last_text == "Blue after all."
            assert [m.role for m in team.state.agents[1].messages] == ["system", "user", "assistant"]
            assert await team.retry() == ()

    go(main)


def test_a_helper_that_fails_is_reported_and_the_run_completes() -> None:
    async def main() -> None:
        model = ScriptedModel(
            {
                "Team Leader": [create(), say("Waiting."), say("It failed.")],
                NAME: [fail(ModelRefused("404: no such model"))],
            }
        )
        async with Team(model=model) as team:
            result = await team.run("Go.")
            assert result.status == "completed"
            assert (result.agents[0].status, result.agents[0].detail) == ("idle", "failed")
            assert result.agents[0].error == "404: no such model"

    go(main)


def test_a_run_that_takes_too_long_is_stopped_and_says_so() -> None:
    async def main() -> None:
        model = ScriptedModel({"Team Leader": [create(), say("I wait.")], NAME: [NEVER]})
        async with Team(model=model) as team:
            result = await team.run("Go.", timeout=0.05)
            assert result.status == "timed_out"
            assert "0.05 seconds" in result.error
            assert [(agent.status, agent.detail) for agent in result.agents] == [("idle", "stopped")]
            assert not team.running

    go(main)


def test_a_caller_that_is_cancelled_stops_the_team() -> None:
    async def main() -> None:
        model = ScriptedModel({"Team Leader": [create(), NEVER], NAME: [NEVER]}, check_on_close=False)
        async with Team(model=model) as team:
            run = asyncio.create_task(team.run("Go."))
            await asked(model, 3)
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            assert not team.running
            assert (team.result().status, team.result().error) == ("stopped", "the caller was cancelled")
            assert team.agents[0].detail == "stopped"

    go(main)


def test_a_caller_that_is_cancelled_before_its_task_is_on_disk_stops_the_team_as_well() -> None:
    async def main() -> None:
        model = ScriptedModel({"Team Leader": [say("Never mind.")]}, check_on_close=False)
        async with Team(model=model) as team:
            run = asyncio.create_task(team.run("Go."))
            await until(team, lambda team: team.running)
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            assert not team.running
            assert team.result().status == "stopped"

    go(main)


def test_the_whole_team_can_be_stopped_and_goes_on_with_the_next_message() -> None:
    async def main() -> None:
        model = ScriptedModel({"Team Leader": [create(), NEVER, say("Here again.")], NAME: [NEVER]})
        async with Team(model=model) as team:
            await team.start("Go.")
            await asked(model, 3)
            await team.stop(reason="lunch")
            result = await team.wait()
            assert (result.status, result.error) == ("stopped", "lunch")
            assert result.agents[0].detail == "stopped"
            assert (await team.run("Go on.")).text == "Here again."

    go(main)


def test_one_agent_can_be_stopped_and_another_terminated() -> None:
    async def main() -> None:
        model = ScriptedModel(
            {
                "Team Leader": [create(1) + create(2), say("Waiting."), say("One is stopped."), say("Both.")],
                "UI Operator_*": [NEVER, NEVER],
            },
            check_on_close=False,
        )
        async with Team(model=model) as team:
            await team.start("Go.")
            await asked(model, 4)
            await team.stop(NAME, "enough")
            await team.terminate(2)
            result = await team.wait()
            assert [(agent.status, agent.detail) for agent in result.agents] == [
                ("idle", "stopped"),
                ("terminated", ""),
            ]
            for work in (team.send(2, "Hello?"), team.ask("UI Operator_2", "Hello?"), team.stop(2), team.terminate(2)):
                with pytest.raises(AgentTerminated, match="UI Operator_2 is terminated"):
                    await work
            with pytest.raises(TeamError, match="leader cannot be terminated"):
                await team.terminate("leader")
            with pytest.raises(
                AgentNotFound, match=r"no agent 'Nobody_1'; agents are: leader, UI Operator_1 \(agent_id 1\)"
            ):
                await team.stop("Nobody_1")

    go(main)


def test_a_budget_ends_the_run_as_stopped() -> None:
    async def main() -> None:
        async with Team(model=ScriptedModel([call("list_agents")] * 2), limits=Limits(max_turns=2)) as team:
            result = await team.run("Go.")
            assert result.status == "stopped"
            assert result.error.startswith("max_turns: 2 model requests")
        assert issubclass(BudgetExceeded, TeamError)

    go(main)
