"""Nobody waits in silence: circles are refused, slots are given back, and an ask ends with whom it was put to.

Decisions 15, 17, 18, 20, 22, 24, 55, 56. The kinds of wait are rows of ``support.waiting``.
"""

from __future__ import annotations

import pytest
from support.teams import go
from support.waiting import WAITS, Circle, Node, circles, name_of, number_of, wait_between

from astrion_nb.events import MessageAppended, Stamped
from astrion_nb.runtime.limits import Limits
from astrion_nb.testing import invariants

LONGEST = 5


def shown(case: tuple[bool, tuple[Node, ...]]) -> str:
    led, nodes = case
    return "-".join(map(str, nodes)) + ("-led" if led else "")


def test_the_circles_go_through_every_kind_of_wait() -> None:
    used = {
        wait.name
        for led, nodes in circles(LONGEST)
        for asker, target in zip(nodes, (*nodes[1:], nodes[0]), strict=True)
        if (wait := wait_between(asker, target, led=led)) is not None
    }
    assert used == {wait.name for wait in WAITS}


@pytest.mark.faults
@pytest.mark.parametrize("case", circles(LONGEST), ids=shown)
def test_the_ask_that_would_close_a_circle_returns_at_once_and_says_who_waits_for_whom(
    case: tuple[bool, tuple[Node, ...]],
) -> None:
    async def main() -> None:
        led, nodes = case
        circle = Circle(nodes, led=led)
        await circle.play()
        state, last = circle.state, nodes[-1]
        assert circle.asked == set(nodes), "everybody asked"
        told = circle.refused["human"] if last == "human" else circle.result(last).get("error", "")
        left = nodes[0] == "human" and not led and last != "human"
        if left:  # the leader has it first, and cannot hand it over
            assert "the person waits for" in told
        else:
            assert "this would wait for ever: " in told
            assert " → ".join(map(name_of, (last, *nodes))) in told
            asked = [question.asker for question in state.questions.values()]
            assert asked == [number_of(node) for node in nodes[:-1]], "what is refused was never a question"
            if last != "human":
                assert at_once(circle.made.events, number_of(last))
        for node in nodes[:-1]:
            if node != "human":
                assert circle.result(node)["success"], f"{node} got its answer"
        assert state.run_status == "completed"
        assert circle.faults == []
        assert circle.made.team.slots.used == 0
        invariants.check(state, circle.made.events, circle.made.team)

    go(main)


def at_once(events: list[Stamped], number: int) -> bool:
    """Say whether the agent's last ask had its result next, with nothing in between."""
    stored = [stamped.event for stamped in events if stamped.t]
    for place, event in enumerate(stored):
        if isinstance(event, MessageAppended) and event.agent_id == number:
            calls = [call for call in event.message.tool_calls if call.name.startswith("ask_")]
            if calls:
                following = stored[place + 1]
                return (
                    isinstance(following, MessageAppended)
                    and following.agent_id == number
                    and following.message.tool_call_id == calls[0].id
                )
    return False


@pytest.mark.faults
@pytest.mark.parametrize("led", [False, True])
@pytest.mark.parametrize("agents", [1, 2, 5])
def test_who_waits_holds_no_slot_so_a_chain_completes_with_one(agents: int, led: bool) -> None:
    async def main() -> None:
        end: Node = "human" if led else "leader"
        circle = Circle((*range(1, agents + 1), end), led=led, closed=False, limits=Limits(max_active_agents=1))
        await circle.play()
        assert circle.model.most_in_flight == 1
        for number in range(1, agents + 1):
            if number == agents and not led:
                continue  # the leader answers with a text only: its question goes on to the person
            assert circle.result(number)["success"]
        assert circle.faults == []
        invariants.check(circle.state, circle.made.events, circle.made.team)

    go(main)
