"""The public team, recorded and replayed from a file: no model, no key, the same transcript."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.teams import go

from astrion_nb import Team, tool
from astrion_nb.errors import ReplayMiss, RunFailed
from astrion_nb.replay import player, recorder
from astrion_nb.testing import ScriptedModel, call, say

WRITTEN: list[str] = []


@tool
def write(name: str) -> str:
    """Write a file."""
    WRITTEN.append(name)
    return f"wrote {name}"


def model() -> ScriptedModel:
    return ScriptedModel(
        {
            "Team Leader": [
                call("create_sub_agent", agent_id=1, role_id="ui-operator", task="Write a."),
                say("Waiting."),
                say("Done."),
            ],
            "UI Operator_1": [call("write", name="a"), say("Written.")],
        },
        check_on_close=False,
    )


async def lesson(home: Path, text: str = "Go.", **options: object) -> tuple[str, str]:
    async with Team(tools=[write], home=home, **options) as team:  # type: ignore[arg-type]
        result = await team.run(text)
        return result.status, team.transcript


@pytest.fixture
def cassette(tmp_path: Path) -> Path:
    path = tmp_path / "lesson.cassette.json"
    recorder.start_over(path)
    player.rewind(path)
    WRITTEN.clear()
    return path


def test_two_teams_replay_from_one_file_without_a_model_and_without_touching_the_world(
    cassette: Path, tmp_path: Path
) -> None:
    async def main() -> None:
        recorded = [await lesson(tmp_path / "one", model=model(), record=cassette) for _ in range(2)]
        assert WRITTEN == ["a", "a"]
        replayed = [await lesson(tmp_path / "two", replay=cassette) for _ in range(2)]
        assert replayed == recorded
        assert replayed[0][0] == "completed"
        assert WRITTEN == ["a", "a"]
        with pytest.raises(ReplayMiss, match="team 3 is asked for and 2 were recorded"):
            await lesson(tmp_path / "two", replay=cassette)

    go(main)


def test_a_changed_cell_ends_in_an_error_that_says_what_differs(cassette: Path, tmp_path: Path) -> None:
    async def main() -> None:
        await lesson(tmp_path / "one", model=model(), record=cassette)
        with pytest.raises((ReplayMiss, RunFailed), match=r"lesson.cassette.json: Team Leader, request 1 .*'Go on\.'"):
            await lesson(tmp_path / "two", "Go on.", replay=cassette)

    go(main)
