"""Storms of 429 over whole teams (fault 18; decision 24).

An endpoint that refuses as chance says keeps a model of its own of what the teams may do: nobody before
its time is over, no more at once than a bound that halves with a refusal and grows by one with an answer,
the leaders first, no request tried more often than the bounds say, and in the end an answer or one report each.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.case_teams import LEADER, created, homes, perform, reports, standings

from astrion_nb import Team
from astrion_nb.app import wiring
from astrion_nb.errors import RunFailed
from astrion_nb.events import Stamped
from astrion_nb.llm.faults import from_status
from astrion_nb.llm.model import Finished, ModelRequest, StreamEvent, TextDelta
from astrion_nb.messages import ToolCall, Usage
from astrion_nb.runtime.limits import BROKEN_TRIES, BUSY_TRIES, LONGEST_WAIT, Gate, Limits, Slots
from astrion_nb.testing import invariants

pytestmark = pytest.mark.faults

few_or_many = pytest.mark.parametrize("count", [40, pytest.param(500, marks=pytest.mark.slow)])

DATE = "Wed, 21 Oct 2026 07:28:05 GMT"
FORMS: tuple[tuple[dict[str, str], float], ...] = (
    ({}, 1.0),
    ({"retry-after": "2"}, 2.0),
    ({"retry-after": " 0.25 "}, 0.25),
    ({"retry-after-ms": "1500", "retry-after": "90"}, 1.5),
    ({"retry-after": "Wed, 21 Oct 2026 07:28:12 GMT", "date": DATE}, 7.0),
    ({"retry-after": "Wed, 21 Oct 2026 09:28:12 +0200", "date": DATE}, 7.0),
    ({"retry-after": "Wed, 21 Oct 2026 07:00:00 GMT", "date": DATE}, 0.0),
    ({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT", "date": DATE}, LONGEST_WAIT),
    ({"retry-after": "Fri, 31 Dec 99999 23:59:59 GMT", "date": DATE}, 1.0),
    ({"retry-after": "86400"}, LONGEST_WAIT),
    ({"retry-after": "1e400"}, 1.0),
    ({"retry-after": "9" * 400}, 1.0),
    ({"retry-after": "nan"}, 1.0),
    ({"retry-after": "-5"}, 0.0),
    ({"retry-after": "soon, please"}, 1.0),
    ({"retry-after": ""}, 1.0),
)
"""Headers, and the seconds for which nobody may come; a wait that is not told is a second."""
ANSWER, BROKEN = -1, -2
WHO: contextvars.ContextVar[str] = contextvars.ContextVar("the team")
"""Whose life it is; a team's turns inherit it."""


class Endpoint:
    """Refuses as told, and holds every arrival against its own idea of who may come.

    Parameters
    ----------
    verdicts : list of int
        For one request after the other: a form of refusal, ``ANSWER`` or ``BROKEN``; then only answers.
    stubborn : set of str
        Members that are always refused.
    slots : int or None
        Requests that a team makes at a time.
    """

    def __init__(self, verdicts: list[int], stubborn: set[str], slots: int | None, seed: int) -> None:
        self.verdicts = verdicts[::-1]
        self.stubborn = stubborn
        self.slots = slots
        self.dice = random.Random(seed)
        self.faults: list[str] = []
        self.closed = 0.0
        self.bound: int | None = None
        self.under_way = 0
        self.most = 0
        self.wanting: set[str] = set()
        self.of_team: Counter[str] = Counter()
        self.overtaken: dict[str, float] = {}
        self.yields: dict[str, float] = {}
        self.yielded: dict[str, float] = {}
        self.tries: dict[tuple[str, int], Counter[str]] = {}
        self.not_before: dict[tuple[str, int], float] = {}
        self.refused = 0

    def _arrives(self, who: str, turn: int, now: float) -> None:
        self.wanting.discard(who)
        self.under_way += 1
        self.of_team[who[0]] += 1
        self.most = max(self.most, self.under_way)
        if now < self.closed:
            self.faults.append(f"{who} came at {now:.2f}, and was told not before {self.closed:.2f}")
        if now < self.not_before.get((who, turn), 0.0):
            self.faults.append(f"{who} came again before the time that the failed endpoint had said")
        if self.bound is not None and self.under_way > self.bound:
            self.faults.append(f"{who} came as number {self.under_way} at a time, {self.bound} may")
        since = self.overtaken.pop(who, now)
        if since < now:
            self.faults.append(f"{who} waited, and a member was let in before it at {since:.2f}")
        self.yields.pop(who, None)
        if not who.endswith(LEADER):
            for leader in self.wanting:  # another team's leader may be waiting for a slot of that team
                if leader in self.yields:  # it was refused, and lets one go ahead
                    if self.yields[leader] < now:
                        del self.yields[leader]
                        self.yielded[leader] = now
                elif self.yielded.get(leader) == now:
                    pass  # of several that are let in at one moment, it is any
                elif leader[0] == who[0] or self.slots is None or self.of_team[leader[0]] < self.slots:
                    self.overtaken.setdefault(leader, now)

    async def take(self, who: str, turn: int) -> None:
        """Take a request, and return when it may be answered."""
        clock = asyncio.get_running_loop().time
        self._arrives(who, turn, clock())
        tries = self.tries.setdefault((who, turn), Counter())
        try:
            await asyncio.sleep(self.dice.choice((0.01, 0.1, 0.4, 3.0)))
            verdict = self.verdicts.pop() if self.verdicts else ANSWER
            if who in self.stubborn:
                verdict = max(verdict, 0)
            if verdict == ANSWER:
                if self.bound is not None:
                    self.bound = None if self.bound >= 64 else self.bound + 1
                return
            if verdict == BROKEN:
                tries["broken"] += 1
                headers, wait = self.dice.choice(FORMS)
                error = from_status(503, {"error": {"message": "overloaded"}}, headers)
                if error.retry_after is not None:
                    self.not_before[who, turn] = clock() + wait
                raise error
            tries["busy"] += 1
            self.refused += 1
            self.yields[who] = clock()
            headers, wait = FORMS[verdict]
            self.closed = max(self.closed, clock() + wait)
            self.bound = max(1, self.under_way // 2)
            raise from_status(429, {"error": {"message": "slow down"}}, headers)
        finally:
            self.under_way -= 1
            self.of_team[who[0]] -= 1

    def failed(self, who: str) -> bool:
        """Say whether a request of somebody was tried as often as it may be."""
        mine = [tries for (one, _), tries in self.tries.items() if one == who]
        return any(tries["busy"] == BUSY_TRIES or tries["broken"] == BROKEN_TRIES for tries in mine)


class Voice:
    """The model of one team at the endpoint."""

    key = "one"
    endpoint = "http://127.0.0.1/storm"

    def __init__(self, team: str, server: Endpoint, members: int) -> None:
        self.team, self.server, self.members = team, server, members

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        await self.server.take(f"{self.team} {request.actor}", request.turn)
        said = sum(message.role == "assistant" for message in request.messages)
        if request.actor == LEADER and not said:
            arguments = '{{"agent_id": {0}, "role_id": "ui-operator", "task": "Part {0}.", "timeout_seconds": 0}}'
            calls = tuple(
                ToolCall(f"c{n}", "create_sub_agent", arguments.format(n)) for n in range(1, self.members + 1)
            )
            yield Finished("", calls, "tool_calls", Usage(1, 1))
        elif request.actor != LEADER and not said and int(request.actor.rpartition("_")[2]) % 2:
            yield Finished("", (ToolCall("look", "list_active_sub_agents", "{}"),), "tool_calls", Usage(1, 1))
        else:
            yield TextDelta("Done.")
            yield Finished("Done.", (), "stop", Usage(1, 1))

    async def close(self) -> None: ...


class Seen(Gate):
    """The gate, noting which leader waits."""

    server: Endpoint

    async def enter(self, rank: int, slots: Slots | None = None, *, refused: bool = False) -> None:
        if rank == 0:
            self.server.wanting.add(f"{WHO.get()} {LEADER}")
        await super().enter(rank, slots, refused=refused)


@few_or_many
def test_whatever_a_busy_endpoint_says_whole_teams_come_through_or_tell_it_once(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates: list[Gate] = []
    storms: list[int] = []

    @settings(max_examples=count, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(st.integers(1, 6), min_size=1, max_size=2),
        st.lists(st.integers(BROKEN, len(FORMS) - 1), min_size=8, max_size=50),
        st.sets(st.integers(1, 7), max_size=1),
        st.sampled_from([1, 2, 3, 16, None]),
        st.integers(0, 2**16),
    )
    def check(sizes: list[int], verdicts: list[int], stubborn: set[int], slots: int | None, seed: int) -> None:
        server = Endpoint(verdicts, {f"A UI Operator_{number}" for number in stubborn}, slots, seed)
        gates.clear()

        def gate(order: Any) -> Gate:
            made = Seen(order)
            made.server = server
            gates.append(made)
            return made

        monkeypatch.setattr(wiring, "Gate", gate)

        async def life(name: str, members: int) -> None:
            WHO.set(name)
            events: list[Stamped] = []
            limits = Limits(max_active_agents=slots)
            model = Voice(name, server, members)
            async with Team(model=model, home=folder / "home", limits=limits, human=False) as team:
                team.watch(events.append)
                try:
                    result = await team.run("Go.")
                    status = result.status
                except RunFailed as error:
                    status = error.result.status
                leader_failed = server.failed(f"{name} {LEADER}")
                assert ("too many requests" in team.state.run_error or "status 503" in team.state.run_error) == (
                    leader_failed
                )
                assert status == ("failed" if leader_failed else "completed")
                if not leader_failed:
                    assert created(events) == list(range(1, members + 1))
                for number in created(events):
                    who = team.state.agents[number].display_name
                    told = [(kind, status) for kind, status, _ in reports(events, number)]
                    if server.failed(f"{name} {who}"):
                        assert told == [("message", "failed")], who
                        assert standings(events, number) == ["running", "failed"]
                        cause = reports(events, number)[0][2]
                        assert "too many requests" in cause or "status 503" in cause
                    else:
                        assert told == [("completion", "")], who
                        assert standings(events, number) == ["running", "completed"]
                runtime = await team.open()
                assert runtime.slots.used == 0
                invariants.check(team.state, events, runtime)

        async def main() -> None:
            await asyncio.gather(*(life(name, members) for name, members in zip("AB", sizes, strict=False)))
            assert len(gates) == 1, "one gate for both teams"
            assert gates[0].under_way == 0
            assert server.faults == []
            for (who, turn), tries in server.tries.items():
                assert tries["busy"] <= BUSY_TRIES, (who, turn)
                assert tries["broken"] <= BROKEN_TRIES, (who, turn)
            storms.append(server.refused)

        perform(main)

    with homes() as folder:
        assert isinstance(folder, Path)
        check()
    if count >= 100:  # few plays meet of each what chance gives them
        assert sum(refused > 10 for refused in storms) > count // 3
