"""Teams on a real endpoint: shared limits and connections, costs, and what is on disk when a request arrives."""

from __future__ import annotations

import asyncio
import json
import weakref
from pathlib import Path
from typing import Any

import pytest
from support.served import MEMBERS, actor, configure, play
from support.strict_server import Response, StrictServer, calls, close, delta, offers, status, text, usage
from support.teams import go

from astrion_nb import Team, tool
from astrion_nb.app.wiring import shared_gate
from astrion_nb.disk import RealFiles
from astrion_nb.home import Home
from astrion_nb.ids import LEADER_ID
from astrion_nb.llm.client import Client
from astrion_nb.llm.wire import wire_messages
from astrion_nb.messages import Message, Usage
from astrion_nb.store.loading import load


@tool
def mark(what: str) -> str:
    """Leave a mark."""
    return f"marked {what}"


def delegate(count: int, *, model_key: str | None = None) -> list[Any]:
    more = {"model_key": model_key} if model_key else {}
    return calls(
        *(
            ("create_sub_agent", {"agent_id": n, "role_id": "ui-operator", "task": f"Part {n}.", **more})
            for n in range(1, count + 1)
        )
    )


def workers(count: int) -> Any:
    """Play a leader with so many workers that say one thing each."""

    def answer(request: dict[str, Any], _: int) -> Response:
        if not offers(request, "create_sub_agent"):
            return text("My part is done.")
        return delegate(count) if len(request["messages"]) == 2 else text("Read.")

    return answer


def test_a_busy_team_runs_through_a_strict_endpoint_without_a_fault(tmp_path: Path) -> None:
    async def main() -> None:
        with StrictServer() as server:
            server.on_request = play
            async with Team(home=configure(tmp_path, server), tools=[mark]) as team:
                result = await team.run("Look at the pages.")
            assert server.violations == []
            assert (result.status, len(result.agents)) == ("completed", MEMBERS)
            assert {agent.status for agent in result.agents} == {"completed"}
            assert result.usage.total == 15 * len(server.requests)
            assert server.max_in_flight > 1

    go(main)


# -- what two teams share ----------------------------------------------------------------------


def test_two_teams_on_one_loop_share_the_connections_of_an_endpoint(tmp_path: Path) -> None:
    async def main() -> None:
        with StrictServer() as server:
            server.on_request = workers(3)
            home = configure(tmp_path, server)
            async with Team(home=home) as one, Team(home=home) as two:
                await asyncio.gather(one.run("Go."), two.run("Go."))
                assert len(Client._all) == 1
                await one.close()
                assert len(Client._all) == 1
                await two.run("Again.")
            assert Client._all == {}
            assert server.violations == []
            assert server.connections <= 8  # two leaders and six workers, if all ask at once
            assert len(server.requests) > 10

    go(main)


def test_a_429_to_one_team_holds_the_other_back_too_and_the_leader_goes_first(tmp_path: Path) -> None:
    async def main() -> None:
        with StrictServer() as server:
            loop = asyncio.get_running_loop()
            arrived: list[tuple[float, str]] = []
            refused: list[float] = []

            def answer(request: dict[str, Any], number: int) -> Response:
                task = request["messages"][1]["content"]
                arrived.append((loop.time(), task))
                if task == "one" and not refused:
                    refused.append(loop.time())
                    return status(429, headers={"Retry-After": "1"})
                return text("Done.")

            server.on_request = answer
            home = configure(tmp_path, server)
            async with Team(home=home) as one, Team(home=home) as two:
                first = asyncio.create_task(one.run("one"))
                await asyncio.to_thread(server.wait_for, lambda: server.in_flight == 0 and bool(refused))
                while shared_gate(server.url).bound is None:  # noqa: ASYNC110, a gate announces nothing
                    await asyncio.sleep(0)
                second = await two.run("two")
                assert (await first).status == second.status == "completed"
            waited = {task: t - refused[0] for t, task in arrived[1:]}
            assert waited["one"] >= 0.99
            assert waited["two"] >= 0.99

    go(main)


def test_another_endpoint_has_a_gate_of_its_own(tmp_path: Path) -> None:
    async def main() -> None:
        with StrictServer() as busy, StrictServer() as free:
            busy.on_request = lambda request, n: text("Done.") if n > 1 else status(429, headers={"Retry-After": "2"})
            free.on_request = lambda request, n: text("Done.")
            home = configure(tmp_path, busy, free)
            async with Team(home=home, model="one") as one, Team(home=home, model="two") as two:
                first = asyncio.create_task(one.run("Go."))
                await asyncio.to_thread(busy.wait_for, lambda: busy.in_flight == 0 and len(busy.requests) == 1)
                assert (await asyncio.wait_for(two.run("Go."), 1.5)).status == "completed"
                assert not first.done()
                assert (await first).status == "completed"

    go(main)


@pytest.mark.parametrize("runs", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_however_often_a_team_with_ten_calls_at_a_time_is_run_again_it_never_hangs(tmp_path: Path, runs: int) -> None:
    """As a cell that is run again: each run a team of its own, closed or dropped."""

    async def main() -> None:
        with StrictServer() as server:
            server.on_request = workers(10)
            home = configure(tmp_path, server)
            dropped: list[weakref.ref[Team]] = []
            for number in range(runs):
                team = Team(home=home, durability="relaxed")
                result = await asyncio.wait_for(team.run(f"Run {number}."), 10)
                assert result.status == "completed"
                assert [agent.status for agent in result.agents] == ["completed"] * 10
                if number % 2:
                    await team.close()
                else:
                    dropped.append(weakref.ref(team))
                del team
            assert server.violations == []
            assert server.max_in_flight >= 9
            for team in [team for ref in dropped if (team := ref()) is not None]:
                await team.close()

    asyncio.run(asyncio.wait_for(main(), 120))


# -- what it costs -------------------------------------------------------------------------------


def test_two_models_are_priced_apart_and_a_failed_try_counts_once(tmp_path: Path) -> None:
    async def main() -> None:
        with StrictServer() as dear, StrictServer() as cheap:
            tries: list[int] = []

            def lead(request: dict[str, Any], _: int) -> Response:
                if len(request["messages"]) == 2:
                    return delegate(2, model_key="two")
                return text("Read.", tokens=(1000, 100))

            def work(request: dict[str, Any], number: int) -> Response:
                tries.append(number)
                if number == 1:  # breaks off before anything was said, but not before it was counted
                    return [delta(role="assistant", content=""), usage(500, 7), b"data: {", close()]
                return text("My part.", tokens=(200, 20))

            dear.on_request, cheap.on_request = lead, work
            prices = {"one": "price = { input = 2.0, output = 10.0 }", "two": "price = { input = 0.5, output = 1.0 }"}
            async with Team(home=configure(tmp_path, dear, cheap, more=prices)) as team:
                result = await team.run("Go.")
                led = team.state.leader_state.tokens
                worked = [agent.usage for agent in result.agents]
                assert {agent.model_key for agent in result.agents} == {"two"}
                assert led + worked[0] + worked[1] == result.usage == team.usage
                assert len(tries) == 3
                assert worked[0] + worked[1] == Usage(200 + 200 + 500, 20 + 20 + 7)
                cost = (led.input * 2 + led.output * 10) / 1e6
                cost += sum(each.input * 0.5 + each.output * 1.0 for each in worked) / 1e6
                assert team.cost == pytest.approx(cost)
                before = team.usage
            async with Team(home=Home(tmp_path), conversation=team.conversation_id) as again:
                await again.open()
                assert again.usage == before
                assert again.cost == pytest.approx(cost)
                await again.run("And?")
                assert again.usage.input == before.input + 1000

    go(main)


def test_where_one_price_is_missing_there_is_no_cost(tmp_path: Path) -> None:
    async def main() -> None:
        with StrictServer() as one, StrictServer() as two:
            one.on_request = lambda request, n: delegate(1, model_key="two") if n == 1 else text("Read.")
            two.on_request = lambda request, n: text("Mine.")
            prices = {"one": "price = { input = 2.0, output = 10.0 }"}
            async with Team(home=configure(tmp_path, one, two, more=prices)) as team:
                await team.run("Go.")
                assert team.cost is None

    go(main)


# -- save points -----------------------------------------------------------------------------------


def test_whatever_a_request_tells_a_model_is_on_the_disk_before_it_is_sent(tmp_path: Path) -> None:
    """The server reads the conversation's files, as another process would, whenever a request arrives."""
    late: list[str] = []
    looked: list[str] = []

    def look(request: dict[str, Any], number: int) -> Response:
        (folder,) = (path for path in Home(tmp_path).conversations.iterdir() if path.is_dir())
        state = load(folder, RealFiles()).state
        who = actor(request)
        for agent in state.agents.values():
            messages = agent.messages
            if agent.agent_id == LEADER_ID:
                messages = [Message("system", agent.system), *messages]
            first = next((m.metadata.get("envelope_id") for m in messages if m.role == "user"), None)
            if who != (first if agent.agent_id != LEADER_ID else "leader"):
                continue
            stored = [dict(message) for message in wire_messages(messages, reasoning="strip")]
            looked.append(who)
            if stored[: len(request["messages"])] != request["messages"]:
                late.append(f"request {number} of {who}: {len(request['messages'])} told, {len(stored)} stored")
            # It is at work, so it does not count as resting on the disk either (data model, 8.1).
            if agent.status != "running":
                late.append(f"request {number} of {who}: {agent.status}")
        return play(request, number)

    async def main() -> None:
        with StrictServer() as server:
            server.on_request = look
            async with Team(home=configure(tmp_path, server), tools=[mark]) as team:
                assert (await team.run("Look at the pages.")).status == "completed"
            assert server.violations == []
            assert len(looked) == len(server.requests)

    go(main)
    assert late == []


def test_the_small_documents_follow_the_status_while_the_team_works(tmp_path: Path) -> None:
    async def main() -> None:
        with StrictServer() as server:
            server.on_request = play
            async with Team(home=configure(tmp_path, server), tools=[mark]) as team:
                await team.run("Look at the pages.")
                folder = Home(tmp_path).conversations / team.conversation_id

                def stored() -> set[str]:
                    files = folder.glob("agents/*/metadata.json")
                    return {json.loads(path.read_text(encoding="utf-8"))["status"] for path in files}

                def shown() -> bool:
                    return len(list(folder.glob("agents/*/metadata.json"))) == MEMBERS and stored() == {"completed"}

                await asyncio.wait_for(asyncio.to_thread(wait_until, shown), 5)

    go(main)


def wait_until(condition: Any) -> None:
    import time

    while not condition():
        time.sleep(0.01)
