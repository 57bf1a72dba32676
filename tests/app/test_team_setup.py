"""What a team is made of: roles, models, language, tools; and what is refused before anything is written."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from support.scripts import NAME, called, conversations, create, one_helper, results
from support.teams import go

from astrion_nb import Role, Team, tool
from astrion_nb.errors import (
    ConfigError,
    RoleError,
    TeamError,
)
from astrion_nb.home import Home
from astrion_nb.testing import ScriptedModel, call, say
from astrion_nb.tools.registry import ToolContext

# -- what is refused before anything is written -------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"roles": ["ui-operater"]}, RoleError, "ui-operater"),
        ({"model": "gpt-9"}, ConfigError, r"^Team\(model=…\): there is no model 'gpt-9'"),
        ({"model": "local/none.gguf"}, ConfigError, "there is no model file none.gguf"),
        ({"all_models": "gpt-9"}, ConfigError, r"^Team\(all_models=…\): there is no model 'gpt-9'"),
        ({}, ConfigError, "no model is configured|several models"),
        ({"conversation": "conv_20200101_000000_001"}, Exception, "conv_20200101_000000_001"),
    ],
)
def test_what_cannot_be_had_is_refused_before_a_conversation_is_made(
    options: dict[str, Any], error: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASTRION_CACHE", str(Home().root / "no-weights"))

    async def main() -> None:
        team = Team(**options)
        with pytest.raises(error, match=words):
            await team.run("Go.")
        await team.close()
        assert conversations() == []

    go(main)


def test_a_model_that_the_environment_names_is_said_to_be_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASTRION_MODEL", "gpt-9")

    async def main() -> None:
        with pytest.raises(ConfigError, match=r"^ASTRION_MODEL: there is no model 'gpt-9'"):
            await Team().run("Go.")

    go(main)


def test_another_model_for_a_stored_conversation_is_named_as_it_was_said() -> None:
    async def main() -> None:
        async with Team(model=ScriptedModel([say("Done.")])) as team:
            await team.run("Go.")
        for model in ("local/smollm2", ScriptedModel([], key="other")):
            with pytest.raises(ConfigError, match=r"^Team\(model=…\): conv_.* was begun with the model 'scripted'"):
                await Team(conversation=team.conversation_id, model=model).run("Go on.")
        with pytest.raises(TeamError, match=rf"--continue {team.conversation_id}, Team\(conversation=…\)"):
            await team.run("Again.")

    go(main)


@pytest.mark.parametrize(
    "options",
    [
        {"leader": "robot"},
        {"mode": "slow"},
        {"permission": "yes"},
        {"durability": "often"},
        {"language": "fr"},
    ],
)
def test_a_wrong_option_is_refused_at_once_with_those_there_are(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"use one of|en"):
        Team(**options)


def test_a_text_where_a_list_of_roles_belongs_is_refused_with_the_list_it_may_mean() -> None:
    with pytest.raises(ConfigError, match=r"use a list: roles=\['researcher'\]"):
        Team(roles="researcher")


def test_two_tools_of_one_name_are_refused_before_a_conversation_is_made() -> None:
    @tool(name="list_agents")
    def mine() -> str:
        """Another one."""
        return ""

    async def main() -> None:
        team = Team(model=ScriptedModel([]), tools=[mine])
        with pytest.raises(ConfigError, match="list_agents"):
            await team.open()
        await team.close()
        assert conversations() == []

    go(main)


# -- roles, models, language ---------------------------------------------------------------------


def test_a_team_of_chosen_roles_offers_and_creates_only_these() -> None:
    async def main() -> None:
        poet = Role("poet", "Poet", "Writes verse.", "You write verse.")
        model = ScriptedModel(
            {
                "Team Leader": [
                    call("list_agents"),
                    create(1, "ui-operator"),
                    create(1, "poet", "A verse."),
                    say("Waiting."),
                    say("Done."),
                ],
                "Poet_1": [say("Roses.")],
            }
        )
        async with Team(model=model, roles=["researcher", poet]) as team:
            result = await team.run("Go.")
            listed, refused, _ = results(team)
            assert '"poet"' in listed
            assert '"researcher"' in listed
            assert "ui-operator" not in listed
            assert "'ui-operator' is not among the roles of this team: researcher, poet" in refused
            assert [agent.display_name for agent in result.agents] == ["Poet_1"]
            assert team.state.agents[1].system.endswith("You write verse.")

    go(main)


def test_prompts_speak_the_language_asked_for() -> None:
    async def main() -> None:
        for language, leads, works in (
            ("zh", "智能体", "你是智能体集群团队的一员"),
            ("en", "Team Leader", "You are one member"),
        ):
            async with Team(model=one_helper(), language=language) as team:  # type: ignore[arg-type]
                await team.run("Go.")
                assert leads in team.state.leader_state.system
                assert team.state.agents[1].system.startswith(works)
                assert team.state.language == language

    go(main)


def test_a_model_per_agent_as_the_leader_says_and_one_for_all_when_the_person_says(tmp_path: Path) -> None:
    script = tmp_path / "other.py"
    script.write_text(
        "from astrion_nb.testing import say\nscript = {'*': [say('From the other model.')]}\n", encoding="utf-8"
    )
    key = f"scripted/{script}"

    async def main() -> None:
        model = ScriptedModel(
            {
                "Team Leader": [
                    create(1, model_key="nothing"),
                    create(1, model_key=key),
                    say("Waiting."),
                    say("Done."),
                ],
            }
        )
        async with Team(model=model) as team:
            result = await team.run("Go.")
            refused = results(team)[0]
            assert "there is no model 'nothing'" in refused
            assert (result.agents[0].model_key, result.agents[0].last_text) == (key, "From the other model.")
            assert set(team.state.agents[1].usage) == {key}
        async with Team(all_models=key) as team:
            assert (await team.run("Go.")).text == "From the other model."

    go(main)


# -- tools ------------------------------------------------------------------------------------------


def test_plain_async_and_marked_functions_are_tools_and_sync_ones_run_off_the_loop() -> None:
    async def main() -> None:
        loop_thread = threading.get_ident()
        seen: dict[str, int] = {}

        def plain(text: str) -> int:
            """Count the letters."""
            seen["plain"] = threading.get_ident()
            return len(text)

        async def later(text: str) -> str:
            """Say it again."""
            seen["later"] = threading.get_ident()
            return text * 2

        @tool(audience="member", side_effects=False)
        def who(context: ToolContext) -> dict[str, int]:
            """Say who asks."""
            return {"agent": context.agent_id}

        model = ScriptedModel(
            {
                "Team Leader": [call("plain", text="four") + call("later", text="ab"), create(), say("W."), say("D.")],
                NAME: [call("who") + call("plain", text=""), say("Done.")],
            }
        )
        async with Team(model=model, tools=[plain, later, who]) as team:
            await team.run("Go.")
            assert set(results(team)) >= {"4", "abab"}
            assert set(results(team, 1)) == {'{"agent":1}', "0"}
        assert seen["later"] == loop_thread != seen["plain"]
        offered = {request.actor: {item["function"]["name"] for item in request.tools} for request in model.requests}
        assert {"plain", "later"} <= offered["Team Leader"]
        assert "who" not in offered["Team Leader"]
        assert {"plain", "later", "who"} <= offered[NAME]

    go(main)


def test_a_tool_that_touches_the_world_starts_when_everything_before_it_is_on_disk() -> None:
    async def main() -> None:
        found: dict[str, str] = {}

        def journal() -> str:
            return next(Home().conversations.glob("conv_*/journal.jsonl")).read_text(encoding="utf-8")

        @tool
        def touch() -> str:
            """Touch the world."""
            found["touch"] = journal()
            return "touched"

        model = ScriptedModel([call("touch"), say("Done.")])
        async with Team(model=model, tools=[touch]) as team:
            await team.run("Touch it.")
        (last,) = found["touch"].splitlines()[-1:]
        assert '"touch"' in last
        assert '"assistant"' in last

    go(main)


def test_a_tool_that_raises_or_ends_itself_is_a_result_and_not_the_end() -> None:
    async def main() -> None:
        def broken() -> str:
            """Break."""
            raise ValueError("no bread")

        def leaves() -> str:
            """Leave."""
            raise SystemExit(3)

        async def gives_up() -> str:
            """Give up."""
            raise asyncio.CancelledError

        model = ScriptedModel([call("broken") + call("leaves") + call("gives_up") + call("nothing"), say("Done.")])
        async with Team(model=model, tools=[broken, leaves, gives_up]) as team:
            assert (await team.run("Go.")).status == "completed"
            told = dict(zip(called(team), results(team), strict=True))
        assert "ValueError: no bread" in told["broken"]
        assert "SystemExit" in told["leaves"]
        assert "CancelledError" in told["gives_up"]
        assert "there is no tool 'nothing'" in told["nothing"]

    go(main)


class OwnEnd(BaseException):
    """Of a library that means to end a program."""


class MuteEnd(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


KEY = "canary-key-0123456789"


def test_a_key_in_what_a_function_returns_or_raises_is_hidden_live_recorded_and_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_API_KEY", KEY)

    def look() -> dict[str, str]:
        """Look."""
        return {"Authorization": f"Bearer {KEY}", "says": "fine"}

    async def ends() -> str:
        """End."""
        raise OwnEnd(f"refused {KEY}")

    async def leaves() -> str:
        """Leave."""
        raise SystemExit

    async def mute() -> str:
        """Fail."""
        raise MuteEnd

    async def lesson(home: str, **options: Any) -> list[str]:
        async with Team(home=tmp_path / home, tools=[look, ends, leaves, mute], **options) as team:
            assert (await team.run("Go.")).text == "Done."
            return [text for _, text in sorted(zip(called(team), results(team), strict=True))]

    async def main() -> None:
        steps = [call("look") + call("ends") + call("leaves") + call("mute"), say("Done.")]
        cassette = tmp_path / "a.json"
        live = await lesson("live", model=ScriptedModel(steps))
        assert live == [
            '{"success":false,"error":"the tool ended itself (OwnEnd: refused [hidden])"}',
            '{"success":false,"error":"the tool ended itself (SystemExit)"}',
            '{"Authorization":"Bearer [hidden]","says":"fine"}',
            '{"success":false,"error":"MuteEnd: (it has no text: its __str__ fails)"}',
        ]
        assert await lesson("recorded", model=ScriptedModel(steps), record=cassette) == live
        monkeypatch.delenv("OTHER_API_KEY")
        assert await lesson("replayed", replay=cassette) == live

    go(main)
    assert [p for p in tmp_path.rglob("*") if p.is_file() and KEY in p.read_text("utf-8", "replace")] == []


def test_an_error_that_cannot_say_what_it_is_ends_the_call_and_not_the_turn() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    async def main() -> None:
        def fails() -> str:
            """Fail."""
            raise Mute

        async def fails_later() -> str:
            """Fail."""
            raise Mute

        model = ScriptedModel([call("fails") + call("fails_later"), say("Done.")])
        async with Team(model=model, tools=[fails, fails_later]) as team:
            assert (await team.run("Go.")).text == "Done."
            assert all('"success":false,"error":"Mute: ' in result for result in results(team))
            assert len(results(team)) == 2

    go(main)


def test_a_function_that_hands_back_something_to_await_is_awaited() -> None:
    async def main() -> None:
        async def look(text: str) -> str:
            await asyncio.sleep(0)
            return f"seen: {text}"

        def wrapped(text: str) -> Any:
            """Look, as a decorator that knows nothing of coroutines calls it."""
            return look(text)

        model = ScriptedModel([call("wrapped", text="it"), say("Done.")])
        async with Team(model=model, tools=[wrapped]) as team:
            await team.run("Go.")
            assert results(team) == ["seen: it"]

    go(main)
