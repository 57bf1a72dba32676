"""Whatever endpoints stream, and whenever somebody interrupts: the conversation that comes of it can always be sent.

A real adapter at a real server, which refuses what a strict provider refuses (faults 1 to 9, 14, 15).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.streams import as_bytes, cut, responses
from support.strict_server import StrictServer, calls, close, no_done, offers, status, text
from support.teams import go, rig
from support.virtual import VirtualOrder, Watched

from astrion_nb.events import Stamped
from astrion_nb.ids import HUMAN_ID
from astrion_nb.llm.openai import OpenAIModel
from astrion_nb.testing.invariants import faults_of

pytestmark = pytest.mark.faults

few_or_many = pytest.mark.parametrize("count", [25, pytest.param(500, marks=pytest.mark.slow)])
ENDS = ("whole", "whole", "whole", "cut", "refused", "failed")


@pytest.fixture(scope="module")
def server() -> Iterator[StrictServer]:
    with StrictServer() as running:
        yield running


@st.composite
def replies(draw: Any) -> Any:
    """Draw what the server sends for one request."""
    how = draw(st.sampled_from(ENDS))
    if how == "refused":
        return status(draw(st.sampled_from((401, 404, 422))))
    if how == "failed":
        return status(draw(st.sampled_from((429, 500, 503))), headers={"Retry-After": "1"})
    whole = as_bytes(draw, draw(responses()))
    if how == "cut":
        return [*cut(draw, whole[: draw(st.integers(0, len(whole)))], 4), close()]
    return [*cut(draw, whole, 4), no_done()]


@few_or_many
def test_a_conversation_of_whatever_came_and_was_interrupted_is_valid_on_the_wire(
    server: StrictServer, count: int
) -> None:
    @settings(max_examples=count, suppress_health_check=list(HealthCheck))
    @given(st.lists(replies(), max_size=8), st.lists(st.tuples(st.integers(1, 60), st.integers(0, 3)), max_size=2))
    def check(script: list[Any], interruptions: list[tuple[int, int]]) -> None:
        left = script[::-1]
        begun = False

        def answer(request: dict[str, Any], _: int) -> Any:
            nonlocal begun
            if not begun and offers(request, "create_sub_agent"):
                begun = True
                return calls(("create_sub_agent", {"agent_id": 1, "role_id": "ui-operator", "task": "t"}))
            return left.pop() if left else text("Done.")

        server.on_request = answer

        async def main() -> None:
            model = Watched(OpenAIModel("m", model="m", base_url=server.url, api_key="k"))
            made = rig(model, order=VirtualOrder(busy=model.busy))
            due = {place: [what] for place, what in interruptions}
            seen: list[Stamped] = []

            def act(what: int) -> None:
                fired.append(what)
                agents = made.team.agents
                if what == 0:
                    made.team.stop_all("stopped", "enough")
                elif what == 3 and (task := agents[0].task) is not None:
                    task.cancel()
                elif 1 in agents and agents[1].state.status != "terminated":
                    end = (
                        made.team.port.stop_agent if what == 1 else lambda who, it, _: made.team.port.terminate(who, it)
                    )
                    end(HUMAN_ID, 1, "enough")

            def interrupt(stamped: Stamped) -> None:
                seen.append(stamped)
                for what in due.pop(len(seen), ()):
                    asyncio.get_running_loop().call_soon(act, what)

            try:
                made.team.bus.subscribe(interrupt)
                for say in ("Go", "More", "And more"):
                    await made.run(say)
                left.clear()
                await made.run("And now?")
            finally:
                await model.close()
            assert server.violations == []
            assert faults_of(made.team.state, made.events, made.team) == []

        go(main)

    fired: list[int] = []
    check()
    assert len(fired) > count // 4
    assert set(fired) == {0, 1, 2, 3}
