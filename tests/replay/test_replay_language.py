"""A recording is told in its own language, whatever language the home of the replay is set up in."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.teams import go

from astrion_nb import Team
from astrion_nb.errors import ReplayMiss, RunFailed
from astrion_nb.home import Home, Language
from astrion_nb.replay import player, recorder
from astrion_nb.roles import Role, ensure_builtin, in_language, load
from astrion_nb.testing import ScriptedModel, call, say

OTHER: dict[Language, Language] = {"en": "zh", "zh": "en"}


def model() -> ScriptedModel:
    return ScriptedModel(
        {
            "Team Leader": [
                call("list_agents"),
                call("create_sub_agent", agent_id=1, role_id="researcher", task="Look."),
                say("Waiting."),
                say("Done."),
            ],
            "Researcher_1": [say("Found.")],
        },
    )


async def lesson(home: Path, **options: object) -> str:
    async with Team(home=home, **options) as team:  # type: ignore[arg-type]
        await team.run("Go.")
        return team.transcript


def home_in(folder: Path, language: Language) -> Path:
    home = Home(folder)
    ensure_builtin(home, language)
    return folder


@pytest.fixture
def cassette(tmp_path: Path) -> Path:
    path = tmp_path / "lesson.cassette.json"
    recorder.start_over(path)
    player.rewind(path)
    return path


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("recorded_in", ["en", "zh"])
def test_shipped_roles_speak_the_recordings_language_in_any_home(
    cassette: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language: Language, recorded_in: Language
) -> None:
    async def main() -> None:
        monkeypatch.setenv("ASTRION_LANGUAGE", language)
        first = home_in(tmp_path / "first", recorded_in)
        recorded = await lesson(first, model=model(), record=cassette)
        monkeypatch.setenv("ASTRION_LANGUAGE", OTHER[language])
        fresh, other = tmp_path / "fresh", home_in(tmp_path / "other", OTHER[language])
        for home in (fresh, other):
            player.rewind(cassette)
            assert await lesson(home, replay=cassette) == recorded
        # The home itself stays as its person has it.
        assert load("researcher", Home(fresh)).prompt == load("researcher", Home(other)).prompt

    go(main)


def test_a_role_that_somebody_changed_is_not_the_recorded_one(cassette: Path, tmp_path: Path) -> None:
    changed = home_in(tmp_path / "changed", "en")
    with open(Home(changed).agents / "researcher.md", "a", encoding="utf-8") as file:
        file.write("\nAnswer in rhymes.\n")

    async def main() -> None:
        await lesson(home_in(tmp_path / "first", "en"), model=model(), record=cassette)
        with pytest.raises((ReplayMiss, RunFailed), match=r"Researcher_1, request 1 is not the recorded one"):
            await lesson(changed, replay=cassette)

    go(main)


def test_a_role_of_ones_own_has_one_language() -> None:
    own = Role("poet", "Poet", "Writes verse", "Rhyme.")
    assert in_language(own, "zh") is own
