"""A function that goes on after its call was ended: what it returns and what it does to the team comes to nothing."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from support.scripts import NAME, create
from support.teams import BOUND, Rig, go, rig
from support.virtual import VirtualOrder, Watched

from astrion_nb import Team, ToolContext, tool
from astrion_nb.errors import ToolError
from astrion_nb.home import Home
from astrion_nb.ids import HUMAN_ID, LEADER_ID
from astrion_nb.llm.scripted import ScriptedModel, call, say

pytestmark = pytest.mark.faults

OK = [say("Ok.")] * 9
LATE = "written too late"


class Sleeper:
    """A function on a thread of its own that is released by the test, then writes and returns.

    Attributes
    ----------
    refused : str
        What it was told when it wrote.
    """

    def __init__(self) -> None:
        self.begun, self.free, self.over = threading.Event(), threading.Event(), threading.Event()
        self.refused = ""

    def tool(self) -> Any:
        @tool(name="sleep")
        def sleep(context: ToolContext) -> str:
            """Sleep past the time, then write."""
            self.begun.set()
            self.free.wait(BOUND)
            try:
                context.team.send(LEADER_ID, context.agent_id, LATE)
            except ToolError as error:
                self.refused = str(error)
            self.over.set()
            return LATE

        return sleep

    async def wait(self, event: threading.Event) -> None:
        assert await asyncio.to_thread(event.wait, BOUND)


def written(team: Rig) -> str:
    """Everything that the run has recorded."""
    return repr(team.events) + repr(team.team.state)


@pytest.mark.parametrize("how", ["timed_out", "stopped", "terminated"])
def test_a_function_that_writes_after_its_turn_was_ended_changes_nothing(how: str) -> None:
    async def main() -> None:
        order, sleeper = VirtualOrder(auto=False), Sleeper()
        timed = call("create_sub_agent", agent_id=1, role_id="ui-operator", task="Design.", timeout_seconds=60)
        model = Watched(ScriptedModel({"Team Leader": [timed, *OK], NAME: [call("sleep")]}, check_on_close=False))
        team = rig(model, tools=(sleeper.tool(),), order=order)
        working = asyncio.ensure_future(team.run("Go"))
        await sleeper.wait(sleeper.begun)
        await team.until(lambda state: state.leader_state.status == "completed")
        if how == "timed_out":
            order.advance(60.1)
        elif how == "stopped":
            team.team.port.stop_agent(HUMAN_ID, 1, "")
        else:
            team.team.port.terminate(HUMAN_ID, 1)
        await working
        before, count = written(team), len(team.events)
        sleeper.free.set()
        await sleeper.wait(sleeper.over)
        await asyncio.sleep(0)
        assert "has ended" in sleeper.refused
        assert len(team.events) == count
        assert written(team) == before
        assert LATE not in before
        agent = team.team.state.agents[1]
        assert how in (agent.status, agent.detail)

    go(main)


def test_a_function_that_will_not_be_cancelled_is_refused_too() -> None:
    async def main() -> None:
        order, begun, free = VirtualOrder(auto=False), asyncio.Event(), asyncio.Event()
        refused: list[str] = []

        @tool(name="sleep")
        async def sleep(context: ToolContext) -> str:
            """Go on whatever happens."""
            begun.set()
            while not free.is_set():
                try:
                    await free.wait()
                except asyncio.CancelledError:
                    continue
            for write in (
                lambda: context.team.send(LEADER_ID, 1, LATE),
                lambda: context.team.answer(1, None, "ask_x", LATE),
            ):
                try:
                    write()
                except ToolError as error:
                    refused.append(str(error))
            try:
                await context.team.ask(1, LEADER_ID, LATE, None, call_id=context.call_id, tool="sleep")
            except ToolError as error:
                refused.append(str(error))
            return LATE

        timed = call("create_sub_agent", agent_id=1, role_id="ui-operator", task="Design.", timeout_seconds=60)
        model = Watched(ScriptedModel({"Team Leader": [timed, *OK], NAME: [call("sleep")]}, check_on_close=False))
        team = rig(model, tools=(sleep,), order=order)
        working = asyncio.ensure_future(team.run("Go"))
        await begun.wait()
        await team.until(lambda state: state.leader_state.status == "completed")
        task = team.team.agents[1].task
        assert task is not None
        order.advance(60.1)
        await working
        free.set()
        await asyncio.wait({task})
        assert ["has ended" in line for line in refused] == [True] * 3
        assert LATE not in written(team)
        assert team.team.state.agents[1].detail == "timed_out"

    go(main)


def test_a_function_on_a_thread_steers_the_team_on_the_teams_own_loop() -> None:
    async def main() -> None:
        home = threading.get_ident()
        seen: list[Any] = []

        @tool(name="steer")
        def steer(context: ToolContext) -> str:
            """Look, write and ask from a thread."""
            seen.append(threading.get_ident() != home)
            seen.append(context.team.active(context.agent_id)[0]["display_name"])
            context.team.send(LEADER_ID, context.agent_id, "in time")
            ask = context.team.ask(1, LEADER_ID, "which?", None, call_id=context.call_id, tool="ask_master")
            return json.dumps(asyncio.run(ask))

        def lead(request: Any) -> Any:
            said = str(request.messages[-1].content)
            if "which?" in said:
                number = said.split("id: ")[1].split()[0]
                return call("answer_sub_agent_question", agent_id=1, question_id=number, answer="this one")
            return say("Ok.")

        model = ScriptedModel(
            {
                "Team Leader": [call("create_sub_agent", agent_id=1, role_id="ui-operator", task="t"), *[lead] * 9],
                NAME: [call("steer"), *OK],
            },
            check_on_close=False,
        )
        team = rig(model, tools=(steer,))
        where: set[int] = set()
        team.team.bus.subscribe(lambda _: where.add(threading.get_ident()))
        state = await team.run("Go")
        assert where == {home}, "every event happens on the team's loop"
        assert seen == [True, NAME]
        contents = [message.content or "" for message in state.agents[1].messages]
        assert any("this one" in content for content in contents)
        assert any("in time" in content for content in contents)

    go(main)


def test_what_comes_after_the_time_is_in_no_file(tmp_path: Path) -> None:
    async def main() -> None:
        sleeper = Sleeper()
        model = ScriptedModel(
            {
                "Team Leader": [create(timeout_seconds=1), say("I wait."), *OK],
                NAME: [call("sleep")],
            },
            check_on_close=False,
        )
        async with Team(model=model, tools=[sleeper.tool()]) as team:
            await team.run("Go.")
            assert team.agents[0].detail == "timed_out"
            sleeper.free.set()
            await sleeper.wait(sleeper.over)
            assert (await team.run("And now?")).status == "completed"
        assert "has ended" in sleeper.refused
        (folder,) = Home().conversations.glob("conv_*")
        texts = {str(path): path.read_text("utf-8") for path in folder.rglob("*") if path.is_file()}
        assert any("timed out while it ran" in text for text in texts.values())
        assert [name for name, text in texts.items() if LATE in text] == []

    go(main)
