"""A recorded team whose context was full replays to the same compactions."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.replays import record, replayed, told
from support.teams import Rig, go

from astrion_nb import Team, tool
from astrion_nb.errors import ContextOverflow
from astrion_nb.ids import LEADER_ID
from astrion_nb.llm.model import Model, ModelRequest, StreamEvent
from astrion_nb.llm.scripted import ScriptedModel, Step, call, say
from astrion_nb.messages import Message, Usage
from astrion_nb.runtime.compaction import size
from astrion_nb.state import TeamState

pytestmark = pytest.mark.faults
PAGES = 25


class Narrow:
    """A model that takes so many characters and no more."""

    def __init__(self, inner: Model, limit: int) -> None:
        self.inner, self.limit, self.refused = inner, limit, 0
        self.key, self.endpoint = inner.key, inner.endpoint

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        if size(request.messages) > self.limit:
            self.refused += 1
            raise ContextOverflow("the prompt is longer than the model's context", status=400)
        async for event in self.inner.stream(request):
            yield event

    async def close(self) -> None:
        await self.inner.close()


@tool(side_effects=True)
def page(number: int) -> str:
    """Return a page."""
    return f"page {number}: " + "word " * (20 * number)


def reader(usage: bool) -> ScriptedModel:
    """Return a model that reads the pages one after the other, and says how much it was asked with."""

    def turn(number: int) -> Step:
        return call("page", number=number) if number <= PAGES else say("All read.")

    def step(number: int) -> object:
        def play(request: ModelRequest) -> Step:
            spent = Usage(size(request.messages) // 4, 5) if usage else None
            made = turn(number)
            return Step(made.text, made.calls, usage=spent)

        return play

    return ScriptedModel({"Team Leader": [step(number) for number in range(1, PAGES + 2)]}, check_on_close=False)  # type: ignore[dict-item]


def compactions(state: TeamState) -> list[Message]:
    messages = state.agents[LEADER_ID].messages
    return [message for message in messages if message.compaction is not None]


@pytest.mark.parametrize("dice", [None, 1, 2])
def test_a_recorded_overflow_replays_to_the_same_compaction(dice: int | None) -> None:
    async def act(made: Rig) -> None:
        await made.run("Read.")

    async def main() -> None:
        model = Narrow(reader(usage=False), 9_000)
        made = await record(model, act, tools=(page,))
        assert model.refused == len(compactions(made.rig.team.state)) >= 3
        again, player = replayed(made.cassette, tools=(page,), dice=random.Random(dice) if dice is not None else None)
        await act(again)
        player.check()
        assert told(again) == made.told

    go(main)


def test_a_context_that_was_known_when_it_was_recorded_is_known_to_the_replay(tmp_path: Path) -> None:
    cassette = tmp_path / "lesson.cassette.json"

    async def main() -> None:
        model = reader(usage=True)
        model.context = 2_000  # type: ignore[attr-defined]
        async with Team(model=model, tools=[page], home=tmp_path / "one", record=cassette, language="en") as team:
            assert (await team.run("Read.")).text == "All read."
            recorded = compactions(team.state)
            assert len(recorded) >= 3
        async with Team(tools=[page], home=tmp_path / "two", replay=cassette) as team:
            assert (await team.run("Read.")).text == "All read."
            assert compactions(team.state) == recorded

    go(main)


@tool(side_effects=True)
def listing(number: int, folder: str) -> str:
    """List a folder."""
    return f"{number}: " + " ".join(f"{folder}/file-{n}.txt" for n in range(6 * number))


def test_places_of_the_machine_that_recorded_it_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cassette, place = tmp_path / "lesson.cassette.json", tmp_path / "a-folder-with-a-rather-long-name"
    place.mkdir()
    monkeypatch.chdir(place)

    def step(number: int) -> Step:
        if number > PAGES:
            return say("All read.")
        return call("listing", number=number, folder=str(place))

    inner = ScriptedModel({"Team Leader": [step(number) for number in range(1, PAGES + 2)]}, check_on_close=False)

    async def main() -> None:
        model = Narrow(inner, 14_000)
        async with Team(model=model, tools=[listing], home=tmp_path / "one", record=cassette, language="en") as team:
            assert (await team.run("Read.")).text == "All read."
            recorded = compactions(team.state)
            assert len(recorded) >= 3
            assert any("result_limit" in message.compaction for message in recorded)
            assert str(place) not in str(recorded)
        async with Team(tools=[listing], home=tmp_path / "two", replay=cassette) as team:
            assert (await team.run("Read.")).text == "All read."
            assert compactions(team.state) == recorded

    go(main)
