"""Answers, storms and the ledger as kinds: random orders against a small model of the rules (faults 13, 18, 20)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.teams import Rig, go, rig
from support.virtual import VirtualOrder

from astrion_nb.envelope import parse
from astrion_nb.errors import ModelBroken, ModelBusy, ModelError, QuestionError, TeamError
from astrion_nb.events import AgentCreated, from_json, to_json
from astrion_nb.ids import HUMAN_ID, LEADER_ID
from astrion_nb.llm.faults import from_status
from astrion_nb.llm.model import Finished, ModelRequest, StreamEvent
from astrion_nb.messages import ToolCall, Usage
from astrion_nb.runtime.limits import LONGEST_WAIT, Gate
from astrion_nb.state import TeamState, apply

pytestmark = pytest.mark.faults

few_or_many = pytest.mark.parametrize("count", [50, pytest.param(500, marks=pytest.mark.slow)])


def many(count: int) -> Any:
    return settings(max_examples=count, suppress_health_check=list(HealthCheck))


# -- answers: early, late, twice, by others, to nobody (fault 13; decisions 15, 17, 56) ----------------


class Silent:
    """A model that never answers."""

    key = endpoint = "silent"

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        await asyncio.Event().wait()
        yield Finished("")

    async def close(self) -> None: ...


class Rules:
    """What may be asked and answered, and what comes of it, in as few words as possible."""

    def __init__(self) -> None:
        self.asked: dict[str, tuple[int, int]] = {}
        self.answers: dict[str, str] = {}
        self.kept: dict[str, tuple[int, int, str]] = {}

    def waits(self, start: int) -> set[int]:
        """Return for whom somebody waits, through however many others."""
        found: set[int] = set()
        way = [start]
        while way:
            one = way.pop()
            new = {to for key, (asker, to) in self.asked.items() if asker == one and key not in self.answers} - found
            found |= new
            way += new
        return found

    def ask(self, asker: int, target: int) -> bool:
        return asker != target and asker not in self.waits(target)

    def answer(self, by: int, asker: int, key: str, text: str) -> bool:
        """Say whether an answer is taken; the leader, as the one who asked, stands for: whoever it was."""
        if key not in self.asked:
            if by == HUMAN_ID or key in self.kept:
                return False
            self.kept[key] = (asker, by, text)
            return True
        owner, target = self.asked[key]
        speaks = by == target or (by == HUMAN_ID and target == LEADER_ID)
        if key in self.answers or not speaks or asker not in (owner, LEADER_ID):
            return False
        self.answers[key] = text
        return True


WHO = st.integers(0, 3)
KEYS = st.sampled_from([f"q-{number}" for number in range(3)])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), WHO, WHO, KEYS),
        st.tuples(st.just("answer"), st.integers(-1, 3), WHO, KEYS),
    ),
    min_size=4,
    max_size=30,
)


def team_of_three(made: Rig) -> None:
    for number in (1, 2, 3):
        system = ("m", "fast", "s", 0.0, False, "")
        name = f"UI Operator_{number}"
        made.team.bus.publish(
            AgentCreated(number, "ui-operator", "UI Operator", name, number, "uio", "silent", *system[1:])
        )


@few_or_many
def test_answers_in_any_order_reach_who_asked_once_and_nobody_else(count: int) -> None:
    @many(count)
    @given(STEPS)
    def check(steps: list[tuple[str, int, int, str]]) -> None:
        async def main() -> None:
            made, rules = rig(Silent()), Rules()
            team_of_three(made)
            port, state = made.team.port, made.team.state
            waiting: dict[str, asyncio.Task[dict[str, Any]]] = {}
            for place, (step, first, second, key) in enumerate(steps):
                if step == "ask":
                    tool = (
                        "ask_sub_agent"
                        if first == LEADER_ID
                        else "ask_master"
                        if second == LEADER_ID
                        else "ask_other_agent"
                    )
                    free = key not in state.ids
                    before = set(state.questions)
                    asking = port.ask(first, second, f"? {place}", key, call_id=f"c{place}", tool=tool)
                    task = asyncio.ensure_future(asking)
                    for _ in range(3):
                        await asyncio.sleep(0)
                    new = set(state.questions) - before
                    assert bool(new) == rules.ask(first, second), (place, step, first, second, key)
                    if not new:
                        with pytest.raises(TeamError):
                            await task
                        continue
                    (name,) = new
                    assert name == key or not free, "an id that is free is kept"
                    waiting[name] = task
                    rules.asked[name] = (first, second)
                    early = rules.kept.pop(name, None)
                    if early is not None and early[:2] == (first, second):
                        rules.answers[name] = early[2]
                else:
                    text = f"answer {place}"
                    taken = key in state.ids and key not in state.questions
                    allowed = not taken and rules.answer(first, second, key, text)
                    try:
                        port.answer(first, second or None, key, text)
                    except QuestionError:
                        assert not allowed, (place, step, first, second, key)
                    else:
                        assert allowed, (place, step, first, second, key)
            for _ in range(5):
                await asyncio.sleep(0)
            for name, task in waiting.items():
                assert task.done() == (name in rules.answers), name
                if task.done():
                    envelope = parse(task.result()["answer"])
                    assert (envelope.content, envelope.question_id) == (rules.answers[name], name)
            kept = {key: (one.asker, one.by, one.answer) for key, one in state.kept.items()}
            assert kept == rules.kept
            rest = [*waiting.values(), *(agent.task for agent in made.team.agents.values() if agent.task is not None)]
            for each in rest:
                each.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

        go(main)

    check()


# -- storms (fault 18; decision 24) ---------------------------------------------------------------------

FORMS = (
    {"retry-after": "2"},
    {"retry-after": "0.5"},
    {"retry-after": "0"},
    {"retry-after": "-3"},
    {"retry-after": "600"},
    {"retry-after": "soon"},
    {"retry-after": "nan"},
    {"retry-after-ms": "1500"},
    {"retry-after": "Wed, 21 Oct 2026 07:28:09 GMT", "date": "Wed, 21 Oct 2026 07:28:05 GMT"},
    {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT", "date": "Wed, 21 Oct 2026 07:28:05 GMT"},
    {},
)
WAITS = (2.0, 0.5, 0.0, 0.0, 600.0, None, None, 1.5, 4.0, 0.0, None)


@few_or_many
def test_in_a_storm_nobody_asks_before_the_time_that_the_endpoint_said_and_all_come_through(count: int) -> None:
    @many(count)
    @given(st.integers(1, 12), st.lists(st.integers(0, len(FORMS) - 1), max_size=30), st.integers(0, 2**16))
    def check(agents: int, refusals: list[int], seed: int) -> None:
        async def main() -> None:
            order, dice = VirtualOrder(), random.Random(seed)
            gate = Gate(order, jitter=random.Random(seed))
            left, under_way, closed = list(refusals), 0, 0.0
            served: list[int] = []
            waiting: set[int] = set()

            async def work(number: int) -> None:
                nonlocal under_way, closed
                while True:
                    waiting.add(number)
                    await gate.enter(0 if number == 0 else 1)
                    waiting.discard(number)
                    under_way += 1
                    assert order.monotonic() >= closed, "nobody asks before the endpoint's time is over"
                    assert gate.bound is None or under_way <= gate.bound, "and no more than the bound at a time"
                    await order.sleep(dice.random() * 0.3)
                    under_way -= 1
                    form = left.pop() if left else None
                    if form is None:
                        gate.leave(None, answered=True)
                        served.append(number)
                        return
                    error = from_status(429, {"error": {"message": "slow down"}}, FORMS[form])
                    assert isinstance(error, ModelBusy)
                    assert error.retry_after == WAITS[form]
                    gate.leave(error, answered=False)
                    said = 1.0 if error.retry_after is None else error.retry_after
                    closed = max(closed, order.monotonic() + min(said, LONGEST_WAIT))

            await asyncio.gather(*(work(number) for number in range(agents)))
            assert sorted(served) == list(range(agents))
            assert under_way == gate.under_way == 0

        go(main)

    check()


# -- the ledger (fault 20) ------------------------------------------------------------------------------


class Ledger:
    """A model that notes what every try cost, as its provider would; what it says is picked by numbers."""

    def __init__(self, key: str, choices: list[int], book: Counter[tuple[str, str]]) -> None:
        self.key = self.endpoint = key
        self.choices = choices
        self.book = book
        self.calls = 0

    def pick(self, among: int) -> int:
        return self.choices.pop() % among if self.choices else 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        what, used = self.pick(6), Usage(1 + self.pick(50), self.pick(50))
        if what in (1, 2):
            error: ModelError = ModelBroken("500")
            if what == 1:
                error.usage = used
                self.book[request.actor, self.key] += used.total
            raise error
        self.book[request.actor, self.key] += used.total
        if what == 3 and self.choices:
            self.calls += 1
            yield Finished("", (ToolCall(f"{self.key}{self.calls}", *self.act(request.actor)),), "tool_calls", used)
        else:
            yield Finished("Done.", (), "stop", used)

    def act(self, actor: str) -> tuple[str, str]:
        if actor != "Team Leader":
            return "list_active_sub_agents", "{}"
        key = ("one", "two")[self.pick(2)]
        number = self.pick(3) + 1
        if self.pick(3):
            return "send_message_to_sub_agent", f'{{"agent_id": {number}, "message": "more"}}'
        return (
            "create_sub_agent",
            f'{{"agent_id": {number}, "role_id": "ui-operator", "task": "t", "model_key": "{key}"}}',
        )

    async def close(self) -> None: ...


@few_or_many
def test_the_teams_tokens_are_the_providers_over_retries_models_and_resumed_runs(count: int) -> None:
    @many(count)
    @given(st.lists(st.lists(st.integers(0, 2**16), max_size=40), min_size=1, max_size=3))
    def check(runs: list[list[int]]) -> None:
        book: Counter[tuple[str, str]] = Counter()

        async def main() -> None:
            state: TeamState | None = None
            stored: list[Any] = []
            for choices in runs:
                shared = list(choices)
                models = {key: Ledger(key, shared, book) for key in ("one", "two")}
                for model in models.values():
                    model.calls = len(stored) * 100
                made = rig(models, order=VirtualOrder(), state=state)
                if state is not None:
                    made.team.restore()
                await made.run("Go")
                stored += [stamped for stamped in made.events if stamped.t]
                state = TeamState()  # what a later program reads: the stored events, again
                for stamped in stored:
                    apply(state, from_json(to_json(stamped.event)), seq=stamped.seq, t=stamped.t)
                for now in (state, made.team.state):
                    spent = {
                        (agent.display_name, key): usage.total
                        for agent in now.agents.values()
                        for key, usage in agent.usage.items()
                        if usage.total
                    }
                    assert spent == {place: tokens for place, tokens in book.items() if tokens}
                    assert now.usage().total == sum(book.values())

        go(main)

    check()
