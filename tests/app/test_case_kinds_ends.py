"""A turn that is ended at any moment of any phase, over whole teams with real journals (fault 14).

By its clock, by a person, by the leader: between tokens, between two tries, in a tool, while it waits for an
answer or a slot, and in the middle of a save, which stands still while the turn ends. The disk of these teams
knows what a power loss would leave of it: whenever the leader is asked, what he is told must be there.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.case_teams import LEADER, here, homes, perform, reports, stand
from support.disks import Disk, Picture
from support.histories import facts

from astrion_nb import Team
from astrion_nb.errors import AstrionError, ModelBroken, ModelRefused
from astrion_nb.events import FLEETING, MessageQueued, Stamped, StatusChanged
from astrion_nb.home import Home
from astrion_nb.llm.model import Finished, ModelRequest, StreamEvent, TextDelta
from astrion_nb.messages import ToolCall, Usage
from astrion_nb.runtime.limits import Limits
from astrion_nb.store.loading import load
from astrion_nb.testing import invariants
from astrion_nb.testing.histories import the_state_is_what_happened
from astrion_nb.tools.registry import Tool, ToolContext, tool

pytestmark = pytest.mark.faults

few_or_many = pytest.mark.parametrize("count", [40, pytest.param(500, marks=pytest.mark.slow)])

ENDS = ("timed_out", "stopped", "failed", "terminated")
DEEDS = ("stop", "stop", "terminate", "terminate", "send", "send", "stop all")
WHEN = ("event", "event", "save", "save and time", "time")


class Play:
    """What everybody says, as numbers have it; and what is alive of it at this moment."""

    key = endpoint = "ends"

    def __init__(self, numbers: list[int], disk: Disk, events: list[Stamped]) -> None:
        self.numbers = numbers[::-1]
        self.disk, self.events = disk, events
        self.team: Team | None = None
        self.alive: dict[tuple[str, int], Any] = {}
        """Answers and calls under way, each with the task of its turn."""
        self.faults: list[str] = []
        self.phases: set[str] = set()
        self.looked = 0
        self.putting_away = 0
        """Calls that were cancelled, and have not put away yet what they had out."""
        self._calls = 0
        self._children = 0

    async def close(self) -> None: ...

    def pick(self, among: int) -> int:
        return self.numbers.pop() % among if self.numbers else 0

    @contextmanager
    def child(self, who: str) -> Iterator[None]:
        assert self.team is not None
        running = self.team._opened.runtime.agents.values()  # type: ignore[union-attr]
        self._children += 1
        one = (who, self._children)
        self.alive[one] = next(agent.task for agent in running if agent.name == who)
        try:
            yield
        finally:
            del self.alive[one]

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        who = request.actor
        assert self.team is not None
        agent = next(one for one in self.team.state.agents.values() if one.display_name == who)
        if agent.status == "terminated":
            self.faults.append(f"{who} is terminated, and its model was asked")
        if who == LEADER:
            self._look(request)
        with self.child(who):
            try:
                async for event in self._answer(who, request):
                    yield event
            except asyncio.CancelledError:
                await asyncio.sleep(0.02)  # a connection that takes its time to close
                raise

    async def _answer(self, who: str, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        self._phase(who, "before the first token")
        await asyncio.sleep(0.1 * self.pick(8))
        what = self.pick(10) if self.numbers else 9
        if what < 2:
            raise ModelBroken("500") if self.pick(3) else ModelRefused("401")
        text = ""
        if what > 3:
            for piece in ("Here ", "it ", "is."):
                text += piece
                yield TextDelta(piece)
                self._phase(who, "between tokens")
                await asyncio.sleep(0.1 * self.pick(5))
        made = sum(message.role == "assistant" for message in request.messages)
        if who == LEADER and not made:
            limits = [(0, 1, 1, 2)[self.pick(4)] for _ in range(3)]
            calls = [("create_sub_agent", self.created(n, limit)) for n, limit in enumerate(limits, 1)]
        elif what < 8:
            calls = [self.call(who) for _ in range(1 + self.pick(3))]
        else:
            yield Finished(text or "Done.", (), "stop", Usage(1, 1))
            return
        self._calls += len(calls)
        numbered = enumerate(calls, self._calls)
        wanted = tuple(ToolCall(f"c{n}", name, json.dumps(arguments)) for n, (name, arguments) in numbered)
        yield Finished(text, wanted, "tool_calls", Usage(1, 1))

    def created(self, number: int, limit: int) -> dict[str, Any]:
        return {"agent_id": number, "role_id": "ui-operator", "task": "Draw.", "timeout_seconds": limit}

    def call(self, who: str) -> tuple[str, dict[str, Any]]:
        target = 1 + self.pick(3)
        if who == LEADER:
            return (
                ("stop_sub_agent", {"agent_id": target}),
                ("terminate_sub_agent", {"agent_id": target}),
                ("send_message_to_sub_agent", {"agent_id": target, "message": "More."}),
                ("ask_sub_agent", {"agent_id": target, "question": "Well?"}),
                ("slow", {"tenths": self.pick(9)}),
            )[self.pick(5)]
        return (
            ("slow", {"tenths": self.pick(50)}),
            ("touch", {"tenths": self.pick(9)}),
            ("ask_master", {"question": "May I?"}),
            ("ask_other_agent", {"target_agent_id": target, "content": "Well?"}),
            ("list_active_sub_agents", {}),
        )[self.pick(5)]

    def tools(self) -> list[Tool]:
        async def work(tenths: int, context: ToolContext) -> str:
            who = self.team.state.name_of(context.agent_id) if self.team is not None else ""
            with self.child(who):
                self._phase(who, "in a tool")
                try:
                    await asyncio.sleep(0.1 * tenths)
                except asyncio.CancelledError:
                    self.putting_away += 1
                    await asyncio.sleep(0.01 * tenths)
                    self.putting_away -= 1
                    raise
            return "done"

        return [
            tool(name="slow", description="Wait.")(work),
            tool(name="touch", description="Touch the world.", side_effects=True)(work),
        ]

    def _phase(self, who: str, name: str) -> None:
        if who != LEADER:
            self.phases.add(name)

    def _look(self, request: ModelRequest) -> None:
        """Hold what the leader is told against what a power loss at this moment would leave."""
        assert self.team is not None
        state = self.team.state
        told = [m.metadata for m in request.messages if m.metadata.get("status") in ENDS]
        stored = load(self.disk.root / "conversations" / state.conversation_id, self.disk.powerless()).state  # type: ignore[arg-type]
        before = [stamped for stamped in self.events if stamped.seq <= stored.seq]
        self.faults += the_state_is_what_happened(stored, before)
        for metadata in told:
            self.looked += 1
            envelope, agent, status = metadata["envelope_id"], metadata["agent_id"], metadata["status"]
            happened = [
                stamped.seq
                for stamped in before
                if isinstance(stamped.event, StatusChanged)
                and stamped.event.agent_id == agent
                and status in (stamped.event.status, stamped.event.detail)
            ]
            letters = {
                stamped.event.item.id: stamped.seq for stamped in before if isinstance(stamped.event, MessageQueued)
            }
            if envelope not in letters or not happened or min(happened) > letters[envelope]:
                self.faults.append(f"the leader is told {envelope}: {status}, and it is not on the disk")


class Person:
    """Does what it is to do when it is time, and holds what is left of an ended turn against what it was told."""

    def __init__(self, team: Team, play: Play) -> None:
        self.team, self.play = team, play
        self.ended: Counter[tuple[int, str]] = Counter()
        self.doing: list[asyncio.Task[None]] = []
        self.done = 0
        self.saves = 0

    def begin(self, deed: str, target: int) -> None:
        self.doing.append(asyncio.ensure_future(self.act(deed, target)))

    async def act(self, deed: str, target: int) -> None:
        with suppress(AstrionError):  # there is nobody of that number any more, or the team is closed
            await self._act(deed, target)

    async def _act(self, deed: str, target: int) -> None:
        team, play = self.team, self.play
        runtime = await team.open()
        found = runtime.agents.get(target)
        if deed != "stop all" and (found is None or found.state.status == "terminated"):
            return
        if deed == "send":
            await team.send(target, "And this.")
            return
        at_work = [one for one in runtime.agents.values() if one.task is not None]
        ended = at_work if deed == "stop all" else [one for one in at_work if one.id == target]
        turns = [one.task for one in ended]
        before = {one for one, turn in play.alive.items() if turn in turns}
        self.done += bool(ended)
        if deed == "terminate":
            self.ended[target, "terminated"] += 1
            await team.terminate(target)
        else:
            self.ended.update((one.id, "stopped") for one in ended if not one.is_leader)
            await team.stop(target if deed == "stop" else None, "enough")
        left = before & set(play.alive)
        if left:
            play.faults.append(f"{deed}: it was told to have ended, and {sorted(left)} went on")


def check_reports(person: Person, events: list[Stamped], number: int) -> None:
    """Every end was told as what it was, as often as it happened; who did it himself was not told."""
    told = Counter(status for _, status, _ in reports(events, number) if status)
    changes = [
        stamped.event
        for stamped in events
        if isinstance(stamped.event, StatusChanged) and stamped.event.agent_id == number
    ]
    happened = Counter(change.detail or change.status for change in changes)
    for word in ("timed_out", "failed"):
        assert told[word] == happened[word], (number, word)
    for word in ("stopped", "terminated"):
        assert told[word] == person.ended[number, word], (number, word)
    assert happened["terminated"] <= 1
    completions = sum(kind == "completion" for kind, _, _ in reports(events, number))
    assert completions <= happened["completed"]


MOMENTS = st.lists(
    st.tuples(st.sampled_from(WHEN), st.integers(1, 60), st.sampled_from(DEEDS), st.integers(1, 3)),
    min_size=1,
    max_size=4,
)


@few_or_many
def test_a_turn_that_is_ended_at_any_moment_is_ended_as_told_on_the_disk_and_altogether(count: int) -> None:
    phases: set[str] = set()
    told: Counter[str] = Counter()
    done: list[int] = []
    saves: list[int] = []
    looked: list[int] = []

    @settings(max_examples=count, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(st.integers(0, 10**4), min_size=10, max_size=90),
        MOMENTS,
        st.sampled_from([1, 2, None]),
    )
    def check(numbers: list[int], moments: list[tuple[str, int, str, int]], slots: int | None) -> None:
        events: list[Stamped] = []
        due = [list(moment) for moment in moments]
        operations = 0

        def wrote(_: Disk) -> None:
            """Stand still in the middle of a save when it is time, while somebody ends a turn, or time passes."""
            nonlocal operations
            operations += 1
            for moment in tuple(due):
                when, at, deed, target = moment
                if str(when).startswith("save") and operations >= 30 + int(at):
                    due.remove(moment)
                    loop = loops[0]
                    loop.call_soon_threadsafe(people[0].begin, deed, target)
                    people[0].saves += stand(loop, 2 if when == "save and time" else 1)

        disk = Disk(root, Picture({}, {root, home.conversations}), wrote)
        play = Play(numbers, disk, events)
        loops: list[Any] = []
        people: list[Person] = []

        def look(stamped: Stamped) -> None:
            if isinstance(stamped.event, FLEETING):
                return
            events.append(stamped)
            for moment in tuple(due):
                when, at, deed, target = moment
                if when == "event" and len(events) >= int(at):
                    due.remove(moment)
                    loops[0].call_soon(people[0].begin, deed, target)

        async def main() -> None:
            team = Team(model=play, home=home, tools=play.tools(), limits=Limits(max_active_agents=slots), human=False)
            play.team = team
            loops.append(here())
            person = Person(team, play)
            people.append(person)
            team.watch(look)
            for when, at, deed, target in moments:
                if when == "time":
                    here().call_later(0.05 * at, person.begin, deed, target)
            async with team:
                await team.start("Go.")
                runtime = await team.open()
                await runtime.rest()
                while not all(task.done() for task in person.doing):
                    await asyncio.gather(*person.doing)
                    await runtime.rest()
                invariants.check(team.state, events, runtime)
                assert play.faults == []
                for agent in team.agents:
                    check_reports(person, events, agent.agent_id)
                    told.update(status for _, status, _ in reports(events, agent.agent_id))
            assert not play.alive, "what belongs to a turn ends with it"
            assert not play.putting_away, "and nobody breaks in on it"
            assert play.faults == []
            done.append(person.done)
            saves.append(person.saves)
            looked.append(play.looked)
            phases.update(play.phases)

        perform(main, files=lambda: disk)
        assert play.team is not None
        left = load(home.conversations / play.team.conversation_id, disk.killed()).state  # type: ignore[arg-type]
        assert facts(left) == facts(play.team.state)

    with homes() as folder:
        assert isinstance(folder, Path)
        home = Home(folder)
        root = home.conversations.parent
        check()
    every = {"before the first token", "between tokens", "in a tool"}
    assert phases <= every
    if count >= 100:  # few plays meet of each what chance gives them
        assert phases == every
        assert all(told[word] > (count - 1) // 50 for word in ENDS), told
        assert sum(map(bool, done)) > count // 8
        assert sum(map(bool, saves)) > count // 20
        assert sum(map(bool, looked)) > count // 8
