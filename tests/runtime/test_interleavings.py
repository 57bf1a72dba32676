"""Whatever agents say and a person does, in whatever order: the team comes to rest and nothing is torn."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.held import Held
from support.improvised import Improviser, actions, settle
from support.strict_rules import violations_of
from support.teams import Rig, rig
from support.virtual import VirtualOrder

from astrion_nb.envelope import parse
from astrion_nb.errors import AstrionError
from astrion_nb.events import MessageAppended, MessageQueued, RunEnded, RunStarted, Stamped, from_json, to_json
from astrion_nb.ids import HUMAN_ID, LEADER_ID
from astrion_nb.llm.wire import wire_messages
from astrion_nb.messages import Usage
from astrion_nb.runtime.limits import Limits
from astrion_nb.runtime.restoring import go_on
from astrion_nb.state import TeamState, apply
from astrion_nb.testing import invariants


async def play(
    choices: list[int],
    deeds: list[tuple[int, int, int]],
    slots: int | None,
    human: bool,
    *,
    cut: int | None = None,
    state: TeamState | None = None,
) -> None:
    """Play a team to its rest; or, with a cut, only to the end of the deeds, and go on from its first events."""
    order, held, model = VirtualOrder(auto=False), Held(), Improviser(choices)
    limits = Limits(max_active_agents=slots, max_turns=25)
    made = rig(model, tools=(held.tool,), order=order, limits=limits, human=human, state=state)
    team = made.team
    waiting = mailboxes(made)
    if state is not None:
        team.restore()
        await settle()
        invariants.check(state, made.events, team)
    team.begin_run("go")
    team.person.say("go")
    for what, number, turns in deeds:
        await settle(turns)
        invariants.check(team.state, made.events, team)
        try:
            options = actions(made, order, held, 1 + number % 4, f"q-{number % 6}")
            options[what % len(options)]()
        except (AstrionError, KeyError, AttributeError):
            pass  # refused, or there is no such agent or task yet
        invariants.check(team.state, made.events, team)
    await settle()
    if cut is not None:
        stored = [stamped for stamped in made.events if stamped.t]
        state = replayed(stored[: 1 + cut % len(stored)])
        await asyncio.gather(*team.shut(), return_exceptions=True)
        await play(model.choices, deeds, slots, human, state=state)
        return
    held.release()
    for _ in range(400):
        await settle()
        if not team.running:
            if not team.state.open_questions() and not any(a.open_calls for a in team.state.agents.values()):
                break
            team.person.say("again")  # a turn that was cut off while it waited still waits
        invariants.check(team.state, made.events, team)
        go_on(team)  # the grace after a cancellation is over
        for question in team.state.open_questions():
            if question.answerer == HUMAN_ID:
                team.port.answer(HUMAN_ID, None, question.id, "at last")
        order.advance(0.5)
    check(made, order, model, waiting, fresh=state is None)


def replayed(stored: list[Stamped]) -> TeamState:
    state = TeamState()
    for stamped in stored:
        apply(state, from_json(to_json(stamped.event)), seq=stamped.seq, t=stamped.t)
    return state


def mailboxes(made: Rig) -> Counter[tuple[int, str]]:
    return Counter((number, item.id) for number, agent in made.team.state.agents.items() for item in agent.pending)


def check(made: Rig, order: VirtualOrder, model: Improviser, before: Counter[tuple[int, str]], *, fresh: bool) -> None:
    team, state = made.team, made.team.state
    assert not team.running, "the team comes to rest"
    invariants.check(state, made.events, team)
    assert model.violations == []
    assert state.open_questions() == []
    assert team.waits._futures == {}
    assert team.slots.used == 0
    assert order.next_deadline is None
    assert state.run_status not in ("", "running")
    if fresh:
        assert len(made.kinds(RunStarted)) == len(made.kinds(RunEnded)) == state.run

    queued = Counter((e.agent_id, e.item.id) for e in made.kinds(MessageQueued))
    drained = Counter((e.agent_id, e.drained) for e in made.kinds(MessageAppended) if e.drained)
    assert max((before + queued).values()) == 1
    assert drained + mailboxes(made) == before + queued, "each is read once, or still waits, where it came to"

    for number, agent in state.agents.items():
        assert team.agents[number].task is None if number in team.agents else True
        assert agent.status not in ("running", "waiting"), agent.display_name
        assert not agent.open_calls
        body = {
            "model": "m",
            "stream": True,
            "messages": wire_messages(agent.messages) or [{"role": "user", "content": "x"}],
        }
        assert violations_of(body) == []
        ids = [m.message_id for m in agent.messages if m.message_id]
        assert len(ids) == len(set(ids))
        for message in agent.messages:
            if message.role != "user":
                continue
            if number == LEADER_ID and message.metadata["message_source"] == "user":
                continue
            assert parse(message.content or "").id == message.metadata["envelope_id"]
    total = sum((agent.tokens for agent in state.agents.values()), Usage())
    assert total == state.usage()


deeds = st.lists(st.tuples(st.integers(0, 10), st.integers(0, 5), st.integers(0, 12)), max_size=14)


@pytest.mark.faults
@settings(max_examples=500, deadline=None)
@given(st.lists(st.integers(0, 59), min_size=10, max_size=160), deeds, st.sampled_from([None, 1, 2, 16]), st.booleans())
def test_any_interleaving_comes_to_rest_whole(
    choices: list[int], deeds: list[tuple[int, int, int]], slots: int | None, human: bool
) -> None:
    asyncio.run(asyncio.wait_for(play(choices, deeds, slots, human), 20))


@pytest.mark.faults
@settings(max_examples=500, deadline=None)
@given(st.lists(st.integers(0, 59), min_size=10, max_size=160), deeds, st.integers(0, 500), st.booleans())
def test_any_interleaving_cut_off_after_any_event_and_restored_comes_to_rest_whole(
    choices: list[int], deeds: list[tuple[int, int, int]], cut: int, human: bool
) -> None:
    asyncio.run(asyncio.wait_for(play(choices, deeds, 16, human, cut=cut), 20))
