"""The public team, recorded and replayed from a file: no model, no key, the same transcript."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.teams import go

from astrion_nb import Team, tool
from astrion_nb.errors import AstrionError, ModelBusy, ReplayError, ReplayMiss, RunFailed, StorageError, TeamError
from astrion_nb.replay import player, recorder
from astrion_nb.replay.cassette import Cassette
from astrion_nb.testing import ScriptedModel, call, fail, say, until_message

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


def test_what_no_recording_can_be_written_to_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    mine = tmp_path / "mine.json"
    mine.write_text('{"format": "mine"}')
    (tmp_path / "folder").mkdir()
    (tmp_path / "broken.json").write_text("{")

    async def main() -> None:
        for record in (mine, tmp_path / "broken.json", tmp_path / "folder", mine / "below.json"):
            asked = model()
            with pytest.raises(ReplayError) as caught:
                await lesson(tmp_path / "home", model=asked, record=record)
            assert "\n" not in str(caught.value)
            assert asked.requests == []

    go(main)
    assert mine.read_text() == '{"format": "mine"}'
    assert not (tmp_path / "home").exists() or not list((tmp_path / "home").rglob("messages.json"))


def test_an_empty_file_and_an_earlier_recording_behind_a_link_are_recorded_to(cassette: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(cassette)
    cassette.touch()

    async def main() -> None:
        for _ in range(2):
            await lesson(tmp_path / "one", model=model(), record=link)
            recorder.start_over(link)
        player.rewind(link)
        assert (await lesson(tmp_path / "two", replay=link))[0] == "completed"

    go(main)
    assert link.is_symlink()
    recorder.start_over(link)


def test_a_run_whose_recording_cannot_be_written_fails(cassette: Path, tmp_path: Path) -> None:
    @tool
    def take_the_name() -> str:
        """Take the cassette's name."""
        cassette.mkdir()
        return "taken"

    async def main() -> None:
        script = ScriptedModel([call("take_the_name"), say("Done.")])
        team = Team(tools=[take_the_name], home=tmp_path / "home", model=script, record=cassette)
        with pytest.raises(StorageError, match="it is a folder"):
            await team.run("Go.")
        with pytest.raises(TeamError, match=r"cannot go on .*it is a folder"):
            await team.run("Go on.")
        with pytest.raises(StorageError, match="it is a folder"):
            await team.close()
        cassette.rmdir()  # noqa: ASYNC240
        # What was said is kept all the same.
        async with Team(home=tmp_path / "home", model=script, conversation=team.state.conversation_id) as again:
            assert "Done." in again.transcript

    go(main)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a leader without roles": ({"leader": "human"}, "say which roles"),
    "two tools of one name": ({"tools": [write, write]}, "write"),
    "a conversation that there is not": ({"conversation": "conv_none"}, "no conversation 'conv_none'"),
}


@pytest.mark.parametrize("wrong", REFUSED)
@pytest.mark.parametrize("place", [0, 1])
def test_a_team_that_was_refused_has_no_place_in_a_recording_and_takes_none_of_a_replay(
    cassette: Path, tmp_path: Path, wrong: str, place: int
) -> None:
    """The notebook whose cell was corrected replays from the first team to the last."""
    options, told = REFUSED[wrong]

    async def notebook(home: Path, *, corrected: bool, **how: Any) -> list[tuple[str, str]]:
        seen = []
        for number in range(2):
            if number == place and not corrected:
                with pytest.raises(AstrionError, match=told):
                    await Team(**{"home": home, "model": None if "replay" in how else model(), **options, **how}).open()
            seen.append(await lesson(home, **how, **({"model": model()} if "record" in how else {})))
        return seen

    async def main() -> None:
        live = await notebook(tmp_path / "one", corrected=False, record=cassette)
        assert len(Cassette.load(cassette).teams) == 2
        for home, corrected in (("two", True), ("three", False)):
            player.rewind(cassette)
            assert await notebook(tmp_path / home, corrected=corrected, replay=cassette) == live
        with pytest.raises(ReplayMiss, match="team 3 is asked for and 2 were recorded"):
            await lesson(tmp_path / "four", replay=cassette)

    go(main)


def test_a_run_that_ends_in_a_storm_of_429_says_so_live_and_replayed(cassette: Path, tmp_path: Path) -> None:
    async def end(home: Path, **options: Any) -> tuple[str, str, str]:
        async with Team(home=home, **options) as team:
            result = await team.run("Go.", timeout=0.2)
            return result.status, result.error or "", team.transcript

    async def main() -> None:
        busy = fail(ModelBusy("slow down", retry_after=60.0, status=429))
        script = ScriptedModel([busy, say("Too late.")], check_on_close=False)
        live = await end(tmp_path / "one", model=script, record=cassette)
        assert live[:2] == (
            "timed_out",
            "no end after 0.2 seconds; the endpoint asks to slow down (429, too many requests)",
        )
        assert await end(tmp_path / "two", replay=cassette) == live
        quiet = ScriptedModel([until_message(say("."))], key="quiet", check_on_close=False)
        calm = await end(tmp_path / "three", model=quiet)
        assert calm[1] == "no end after 0.2 seconds"

    go(main)
