"""A person and a team: questions, answers, messages, and the person as leader."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from support.scripts import NAME, NEVER, ROLE, asked, conversations, create, results, until
from support.teams import go

from astrion_nb import Team
from astrion_nb.errors import (
    AgentNotFound,
    ConfigError,
    ModelRefused,
    QuestionError,
    TeamError,
)
from astrion_nb.testing import ScriptedModel, call, fail, say, until_message

# -- questions, answers, messages ------------------------------------------------------------


def test_a_question_of_an_agent_waits_for_the_person_who_listens() -> None:
    async def main() -> None:
        model = ScriptedModel(
            {
                "Team Leader": [create(), say("Waiting."), say("You decide."), say("You decide."), say("Done.")],
                NAME: [call("ask_master", question="Blue or green?", question_id="ask_q"), say("Green it is.")],
            }
        )
        async with Team(model=model, human=True) as team:
            await team.start("Go.")
            await until(team, lambda team: bool(team.questions))
            (question,) = team.questions
            assert (question.question_id, question.asker, question.answerer) == ("ask_q", NAME, "human")
            assert question.text == "Blue or green?"
            assert team.open_questions == (question,)
            assert (team.agents[0].status, team.agents[0].waits_for) == ("waiting", ("human",))
            with pytest.raises(QuestionError, match="no question 'ask_x'; open are: ask_q"):
                await team.answer("ask_x", "?")
            await team.answer("ask_q", "Green.")
            with pytest.raises(QuestionError, match="already answered"):
                await team.answer("ask_q", "Blue.")
            result = await team.wait()
            assert result.agents[0].last_text == "Green it is."
            assert result.unanswered == ()
            assert team.questions == ()
            assert "Green." in results(team, 1)[0]

    go(main)


def test_where_nobody_can_answer_the_agent_is_told_and_the_result_names_the_question() -> None:
    async def main() -> None:
        model = ScriptedModel(
            {
                "Team Leader": [create(), say("Waiting."), say("You decide."), say("You decide."), say("Done.")],
                NAME: [call("ask_master", question="Blue or green?", question_id="ask_q"), say("Blue then.")],
            }
        )
        async with Team(model=model) as team:
            result = await team.run("Go.")
            assert result.status == "completed"
            assert result.agents[0].last_text == "Blue then."
            assert result.unanswered == ("ask_q: Blue or green?",)
            assert "no person can act here" in results(team, 1)[0]

    go(main)


def test_whoever_iterates_over_the_events_is_somebody_who_can_answer() -> None:
    async def main() -> None:
        model = ScriptedModel(
            {
                "Team Leader": [create(), say("Waiting."), say("You decide."), say("You decide."), say("Done.")],
                NAME: [call("ask_master", question="Blue or green?", question_id="ask_q"), say("Green it is.")],
            }
        )
        async with Team(model=model) as team:

            async def person() -> None:
                async for _ in team.events():
                    if team.questions:
                        await team.answer(team.questions[0].question_id, "Green.")

            listening = asyncio.create_task(person())
            result = await team.run("Go.")
            assert result.agents[0].last_text == "Green it is."
            assert result.unanswered == ()
        await listening

    go(main)


def test_ask_gives_an_agents_answer_and_tells_the_leader_about_it() -> None:
    async def main() -> None:
        model = ScriptedModel(
            {
                "Team Leader": [create(), say("Waiting."), say("Done."), say("I see.")],
                NAME: [say("Blue."), say("Because of the sky.")],
            }
        )
        async with Team(model=model) as team:
            await team.run("Go.")
            for target in (NAME, "ui operator_1", '"UI Operator_1"', 1, "1"):
                model.extend({NAME: [say(f"Answer to {target}.")]})
            assert await team.ask(NAME, "Why?") == "Because of the sky."
            for target in ("ui operator_1", '"UI Operator_1"', 1, "1"):
                assert (await team.ask(target, "And?")).startswith("Answer to ")
            with pytest.raises(AgentNotFound, match="no agent 'Bob'"):
                await team.ask("Bob", "Why?")
            model._check_on_close = False
            assert await team.ask("leader", "What happened?") == "I see."
            notes = [m.content or "" for m in team.state.leader_state.messages if m.metadata.get("agent_id") == 1]
            assert any("Why?" in text for text in notes)

    go(main)


def test_ask_ends_with_an_error_when_no_answer_will_come() -> None:
    async def main() -> None:
        model = ScriptedModel(
            {
                "Team Leader": [create(), say("Waiting."), say("Done."), say("Oh."), say("Oh."), say("Oh.")],
                NAME: [say("Blue."), fail(ModelRefused("500 at night")), NEVER, NEVER],
            },
            check_on_close=False,
        )
        async with Team(model=model) as team:
            await team.run("Go.")
            with pytest.raises(QuestionError, match=r"no answer from UI Operator_1: .*500 at night"):
                await team.ask(1, "Why?")
            await team.wait()
            with pytest.raises(QuestionError, match=r"UI Operator_1 gave no answer within 0.05 seconds"):
                await team.ask(1, "Why?", timeout=0.05)
            waiting = asyncio.create_task(team.ask(1, "Still there?"))
            await until(team, lambda team: len(team.open_questions) == 1)
            await team.stop(1)
            with pytest.raises(QuestionError, match="stopped"):
                await waiting
            await team.stop()

    go(main)


def test_a_leader_that_is_slow_to_answer_works_on_when_nobody_waits_any_more() -> None:
    async def main() -> None:
        model = ScriptedModel([until_message(say("Hello.")), say("Both questions read.")])
        async with Team(model=model) as team:
            with pytest.raises(QuestionError, match=r"leader gave no answer within 0.05 seconds; it works on"):
                await team.ask("leader", "Hello?", timeout=0.05)
            assert team.running
            assert await team.ask("Team Leader", "Anybody?") == "Both questions read."
            assert (await team.wait()).text == "Both questions read."

    go(main)


def test_a_message_reaches_a_working_agent_before_its_next_request_and_starts_one_at_rest() -> None:
    async def main() -> None:
        model = ScriptedModel(
            {
                "Team Leader": [create(), say("Waiting."), say("Done."), say("Done again.")],
                NAME: [until_message(call("list_active_sub_agents")), say("With a border."), say("And round.")],
            }
        )
        async with Team(model=model) as team:
            await team.start("Go.")
            await asked(model, 3)
            sent = await team.send(NAME, "With a border, please.")
            assert sent.startswith("msg_tl_")
            await team.wait()
            roles = [m.role for m in team.state.agents[1].messages]
            assert roles == ["system", "user", "assistant", "tool", "user", "assistant"]
            task = await team.send(1, "Round corners.")
            assert task.startswith("task_")
            result = await team.wait()
            assert result.agents[0].last_text == "And round."
            assert result.text == "Done again."

    go(main)


def test_a_message_to_the_leader_joins_the_run_that_is_under_way() -> None:
    async def main() -> None:
        model = ScriptedModel({"Team Leader": [until_message(call("list_agents")), say("Two things done.")]})
        async with Team(model=model) as team:
            await team.start("One thing.")
            await asked(model, 1)
            await team.send("leader", "And another.")
            result = await team.wait()
            assert result.text == "Two things done."
            texts = [m.content for m in team.state.leader_state.messages if m.role == "user"]
            assert texts == ["One thing.", "And another."]
            assert team.state.run == 1

    go(main)


# -- a person leads ----------------------------------------------------------------------------


def test_a_person_who_leads_makes_agents_by_their_roles_and_reads_what_they_say() -> None:
    async def main() -> None:
        model = ScriptedModel(
            {
                "Researcher_1": [say("Found."), say("Found more.")],
                "Researcher_2": [say("Found else.")],
                NAME: [say("Drawn.")],
            }
        )
        async with Team(model=model, leader="human", roles=["researcher", ROLE]) as team:
            result = await team.run("Look around.")
            assert sorted(agent.display_name for agent in result.agents) == ["Researcher_1", NAME]
            assert {agent.summary for agent in result.agents} == {"Look around."}
            assert team.leader == "human"
            await team.send("researcher", "Look elsewhere.")
            await team.send("Researcher_1", "Look again.")
            result = await team.wait()
            assert {agent.display_name: agent.last_text for agent in result.agents} == {
                "Researcher_1": "Found more.",
                "Researcher_2": "Found else.",
                NAME: "Drawn.",
            }
            read = [m.content or "" for m in team.state.leader_state.messages]
            assert sum("任务完成汇报" in text for text in read) == 4
            assert team.state.leader_state.pending == []
            with pytest.raises(AgentNotFound):
                await team.send("code-reviewer", "You are not of this team.")
            for work in (team.ask("leader", "?"), team.send("leader", "?")):
                with pytest.raises(TeamError, match="you are the leader"):
                    await work
        assert all(request.actor != "Team Leader" for request in model.requests)

    go(main)


def test_a_person_who_leads_answers_the_agents_questions() -> None:
    async def main() -> None:
        model = ScriptedModel({NAME: [call("ask_master", question="Blue?", question_id="ask_b"), say("Blue.")]})
        async with Team(model=model, leader="human", roles=[ROLE], human=True) as team:
            await team.start("Draw.")
            await until(team, lambda team: bool(team.questions))
            assert team.questions[0].answerer == "human"
            await team.answer("ask_b", "Yes.")
            assert (await team.wait()).agents[0].last_text == "Blue."

    go(main)


def test_a_person_who_leads_has_to_name_roles() -> None:
    async def main() -> None:
        with pytest.raises(ConfigError, match="say which roles to create"):
            await Team(model=ScriptedModel([]), leader="human").open()
        assert conversations() == []

    go(main)


def test_what_is_no_text_is_refused_and_the_team_stays_whole() -> None:
    async def main() -> None:
        model = ScriptedModel([say("Done.")])
        async with Team(model=model) as team:
            for wrong in (b"Go.", None, 7):
                deeds: tuple[Callable[[Any], Awaitable[Any]], ...] = (
                    team.run,
                    team.start,
                    lambda text: team.send("leader", text),
                    lambda text: team.ask("leader", text),
                    lambda text: team.answer("q1", text),
                )
                for deed in deeds:
                    with pytest.raises(ConfigError, match=r"it must be a text"):
                        await deed(wrong)
            assert (await team.run("Go.")).text == "Done."

    go(main)


def test_a_question_to_the_leader_that_is_given_up_at_any_moment_leaves_nothing_behind() -> None:
    async def main() -> None:
        lost: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(str(context["message"])))
        for moments in range(12):
            model = ScriptedModel([until_message(say("Hello."))] * 2, check_on_close=False)
            async with Team(model=model) as team:
                asked = asyncio.ensure_future(team.ask("leader", "Hello?"))
                for _ in range(moments):
                    await asyncio.sleep(0)
                asked.cancel()
                await asyncio.wait([asked])
                assert asked.cancelled()
                await team.stop()
            del team, asked
            gc.collect()
        assert lost == []

    go(main)


def test_a_team_is_used_on_the_loop_it_lives_on_while_that_runs() -> None:
    async def main() -> None:
        model = ScriptedModel([say("Done.")] * 2)
        team = Team(model=model)
        await team.run("Go.")

        def elsewhere(deed: Callable[[], Coroutine[Any, Any, Any]]) -> None:
            with pytest.raises(TeamError, match="lives on another event loop"):
                asyncio.run(deed())

        for deed in (lambda: team.run("Go."), team.wait, team.stop, team.close):
            await asyncio.to_thread(elsewhere, deed)
        assert (await team.run("Again.")).text == "Done."
        await team.close()

    go(main)
