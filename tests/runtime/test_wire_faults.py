"""Faults that users of such systems met, over a real connection to a server that refuses what providers refuse."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import pairwise
from typing import Any

import pytest
from support.held import Held
from support.strict_server import (
    Gate,
    Response,
    StrictServer,
    api_error,
    calls,
    close,
    delta,
    finish,
    hang_up,
    last,
    offers,
    reasoning,
    results,
    roles,
    status,
    text,
    tool_delta,
    usage,
)
from support.teams import Rig, go, rig
from support.virtual import VirtualOrder, Watched

from astrion_nb.events import MessageQueued, RunEnded
from astrion_nb.ids import HUMAN_ID, LEADER_ID
from astrion_nb.llm.openai import OpenAIModel
from astrion_nb.messages import Usage
from astrion_nb.tools.registry import tool

pytestmark = pytest.mark.faults

CREATE = ("create_sub_agent", {"agent_id": 1, "role_id": "ui-operator", "task": "Design."})
Play = Callable[[dict[str, Any], int], Any]


class Cast:
    """Plays the leader and one script for each worker, told apart by the tools they are offered.

    Parameters
    ----------
    leader : list of replies
        Then ``Ok.`` for ever.
    worker : list of replies
        Then ``Done.`` for ever.
    """

    def __init__(self, leader: list[Response], worker: list[Response]) -> None:
        self.left = {True: list(leader), False: list(worker)}
        self.requests: dict[bool, list[dict[str, Any]]] = {True: [], False: []}

    def __call__(self, request: dict[str, Any], n: int) -> Response:
        leads = offers(request, "create_sub_agent")
        self.requests[leads].append(request)
        if self.left[leads]:
            return self.left[leads].pop(0)
        return text("Ok." if leads else "Done.")

    @property
    def leader(self) -> list[dict[str, Any]]:
        return self.requests[True]

    @property
    def worker(self) -> list[dict[str, Any]]:
        return self.requests[False]


@contextmanager
def serving(play: Play, **rules: Any) -> Iterator[StrictServer]:
    """Serve, and see to it that every request was in order."""
    with StrictServer(**rules) as server:
        server.on_request = play
        yield server
        assert server.violations == []


@asynccontextmanager
async def teamed(server: StrictServer, **more: Any) -> AsyncIterator[tuple[Rig, VirtualOrder]]:
    """Give a team whose time passes while no answer is to come."""
    profile = more.pop("reasoning", "strip")
    model = OpenAIModel("wire", model="m", base_url=server.url, api_key="secret", reasoning=profile)
    watched = Watched(model)
    order = VirtualOrder(busy=watched.busy)
    try:
        yield rig(watched, order=order, **more), order
    finally:
        await model.close()


def told(team: Rig) -> list[tuple[str, str]]:
    """Return kind and status of what the first agent reported."""
    items = [e.item for e in team.kinds(MessageQueued) if e.agent_id == LEADER_ID and e.item.source == "sub_agent"]
    return [(item.kind, item.status) for item in items]


# -- 5 --------------------------------------------------------------------------------------


def test_arguments_that_parse_but_are_wrong_each_get_an_error_result() -> None:
    ran: list[int] = []

    @tool
    def count(n: int) -> int:
        """Count."""
        ran.append(n)
        return n

    six = calls(
        ("count", "[1]", "a"),
        ("count", '"{\\"n\\": 1}"', "b"),
        ("count", '{"n": NaN}', "c"),
        ("count", '{"n": "7"}', "d"),
        ("count", '{"n": 1, "m": 2}', "e"),
        ("cuont", '{"n": 1}', "f"),
    )
    cast = Cast([six], [])
    with serving(cast) as server:

        async def main() -> None:
            async with teamed(server, tools=(count,)) as (team, _):
                state = await team.run("Go")
                assert state.run_status == "completed"

        go(main)
    got = results(cast.leader[1])
    assert sorted(got) == ["a", "b", "c", "d", "e", "f"]
    assert got.pop("d") == "7"
    for key, said in [
        ("a", "a list"),
        ("b", "a string"),
        ("c", "n: NaN"),
        ("e", "m: no such argument"),
        ("f", "you have"),
    ]:
        assert json.loads(got[key])["success"] is False
        assert said in json.loads(got[key])["error"]
    assert ran == [7], "no side effect of a refused call"


def test_arguments_nested_without_end_are_an_error_result() -> None:
    cast = Cast([calls(("list_agents", "[" * 50_000, "a"), ("list_agents", '{"a":' * 5000, "b"))], [])
    with serving(cast) as server:

        async def main() -> None:
            async with teamed(server) as (team, _):
                state = await team.run("Go")
                assert state.run_status == "completed"

        go(main)
    assert all("not valid JSON" in result for result in results(cast.leader[1]).values())


# -- 6 --------------------------------------------------------------------------------------

PART: list[Any] = [delta(role="assistant", content=None), tool_delta(0, id="c1", type="function", name="list_agents")]


@pytest.mark.parametrize(
    ("reply", "requests", "ends"),
    [
        ([*PART, tool_delta(0, arguments="{}")], 2, "completed"),
        ([*PART, tool_delta(0, arguments="{}"), finish("stop")], 2, "completed"),
        ([*PART, tool_delta(0, arguments='{"a'), close()], 2, "completed"),
        ([delta(content="It is bl"), close()], 1, "failed"),
        (hang_up(), 2, "completed"),
    ],
    ids=["done without reason", "reason stop", "half a call", "half a text", "no byte"],
)
def test_a_stream_that_ends_oddly_runs_whole_calls_only_and_is_retried_only_unseen(
    reply: Response, requests: int, ends: str
) -> None:
    cast = Cast([reply], [])
    with serving(cast) as server:

        async def main() -> None:
            async with teamed(server) as (team, _):
                state = await team.run("Go")
                assert state.run_status == ends
                if ends == "failed":
                    kept = state.leader_state.messages[-1]
                    assert (kept.content, kept.metadata["truncated"]) == ("It is bl", True)

        go(main)
    assert len(cast.leader) == requests


# -- 7 --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        [delta(content="part"), finish("content_filter"), usage(9, 1)],
        api_error(400, "content_filter", "The response was filtered"),
    ],
    ids=["stream", "status"],
)
def test_a_withheld_answer_is_a_failure_with_what_came_and_no_completion(reply: Response) -> None:
    cast = Cast([calls(CREATE)], [reply])
    with serving(cast) as server:

        async def main() -> None:
            async with teamed(server) as (team, _):
                state = await team.run("Go")
                assert told(team) == [("message", "failed")]
                assert (state.agents[1].status, state.agents[1].detail) == ("idle", "failed")
                assert "content_filter" in state.agents[1].error

        go(main)
    assert len(cast.worker) == 1
    report = last(cast.leader[-1])
    assert "content_filter" in report
    assert ("part" in report.split("Last output")[-1]) == isinstance(reply, list)


# -- 8 --------------------------------------------------------------------------------------


def test_reasoning_without_an_answer_twice_is_a_failure_after_one_nudge() -> None:
    silent: list[Any] = [*reasoning("Let me think"), finish("stop"), usage(10, 5)]
    cast = Cast([calls(CREATE)], [silent, silent, text("never")])
    with serving(cast) as server:

        async def main() -> None:
            async with teamed(server) as (team, _):
                state = await team.run("Go")
                assert told(team) == [("message", "failed")]
                assert state.agents[1].tokens == Usage(20, 10)
                assert all(e.item.content.strip() for e in team.kinds(MessageQueued))

        go(main)
    assert len(cast.worker) == 2
    assert roles(cast.worker[1]) == ["system", "user", "user"], "no empty assistant message goes out"


def test_null_content_with_tool_calls_is_kept_as_null() -> None:
    cast = Cast([calls(("list_agents", {}, "a"))], [])
    with serving(cast) as server:

        async def main() -> None:
            async with teamed(server) as (team, _):
                await team.run("Go")

        go(main)
    assert cast.leader[1]["messages"][-2]["content"] is None


# -- 9 --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("profile", "rule"), [("echo", "required"), ("strip", "forbidden")])
def test_reasoning_goes_back_by_profile_only_and_to_nobody_else(profile: str, rule: str) -> None:
    leader: list[Response] = [[*reasoning("secret thought"), *calls(CREATE)]]
    worker: list[Response] = [[*reasoning("own thought"), *calls(("list_active_sub_agents", {}), say="Looking.")]]
    cast = Cast(leader, worker)
    with serving(cast, reasoning_content=rule) as server:

        async def main() -> None:
            async with teamed(server, reasoning=profile) as (team, _):
                state = await team.run("Go")
                assert state.leader_state.messages[1].metadata["reasoning_content"] == "secret thought"
                assert all("thought" not in e.item.content for e in team.kinds(MessageQueued))

        go(main)
    assert all("own thought" not in json.dumps(request) for request in cast.leader)
    assert all("secret thought" not in json.dumps(request) for request in cast.worker)
    assert any("secret thought" in json.dumps(request) for request in cast.leader) == (profile == "echo")


# -- 10 -------------------------------------------------------------------------------------


def test_steering_comes_after_all_results_in_the_next_request() -> None:
    cast = Cast([calls(CREATE)], [calls(("hold", {"tag": "a"}, "c1"), ("hold", {"tag": "b"}, "c2"))])
    with serving(cast) as server:

        async def main() -> None:
            held = Held()
            async with teamed(server, tools=(held.tool,)) as (team, _):
                working = asyncio.ensure_future(team.run("Go"))
                await held.wait_begun(2)
                team.team.port.send(LEADER_ID, 1, "first")
                team.team.port.send(LEADER_ID, 1, "second")
                held.release()
                await working

        go(main)
    assert roles(cast.worker[1]) == ["system", "user", "assistant", "tool", "tool", "user", "user"]
    said = [message["content"] for message in cast.worker[1]["messages"][-2:]]
    assert ["first" in said[0], "second" in said[1]] == [True, True]


# -- 13 -------------------------------------------------------------------------------------


def test_two_questions_answered_in_reverse_each_get_their_own_over_the_wire() -> None:
    ask = calls(
        ("ask_master", {"question": "A?", "question_id": "qa"}, "c1"),
        ("ask_master", {"question": "B?", "question_id": "qb"}, "c2"),
    )

    def play(request: dict[str, Any], n: int) -> Response:
        if not offers(request, "create_sub_agent"):
            return ask if len(request["messages"]) == 2 else text("Done.")
        if n == 1:
            return calls(CREATE)
        contents = " ".join(str(message["content"]) for message in request["messages"] if message["role"] == "user")
        answered = any("qb" in json.dumps(m.get("tool_calls") or "") for m in request["messages"])
        if "B?" in contents and not answered:
            reply = [{"agent_id": 1, "question_id": q, "answer": f"to {q}"} for q in ("qb", "qa")]
            return calls(*[("answer_sub_agent_question", each) for each in reply])
        return text("Ok.")

    with serving(play) as server:

        async def main() -> None:
            async with teamed(server) as (team, _):
                state = await team.run("Go")
                by_call = {m.tool_call_id: m.content or "" for m in state.agents[1].messages if m.role == "tool"}
                assert ("to qa" in by_call["c1"], "to qb" in by_call["c2"]) == (True, True)
                assert state.agents[1].status == "completed"

        go(main)


# -- 14 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["timed_out", "stopped", "terminated"])
def test_a_turn_ended_in_mid_stream_is_told_apart_and_nothing_comes_after(how: str) -> None:
    gate = Gate()
    create = (CREATE[0], {**CREATE[1], "timeout_seconds": 1})
    cast = Cast([calls(create)], [[delta(content="Fir"), gate, delta(content="st"), finish("stop")]])
    with serving(cast) as server:

        async def main() -> None:
            async with teamed(server) as (team, order):
                working = asyncio.ensure_future(team.run("Go"))
                await asyncio.to_thread(gate.wait_reached)
                await team.until(lambda state: state.leader_state.status == "completed")
                await team.until(lambda state: team.team.agents[1].live == ["Fir"])
                task = team.team.agents[1].task
                assert task is not None
                if how == "timed_out":
                    order.advance(1.0)
                elif how == "stopped":
                    team.team.port.stop_agent(HUMAN_ID, 1, "")
                else:
                    team.team.port.terminate(HUMAN_ID, 1)
                await asyncio.wait({task})
                await asyncio.to_thread(server.wait_for, lambda: server.dropped == 1)
                state = await working
                assert told(team) == [("message", how)]
                agent = state.agents[1]
                shown = "terminated" if how == "terminated" else agent.detail
                assert shown == how
                assert agent.status in ("idle", "terminated")
                assert [m.role for m in agent.messages] == ["system", "user", "assistant"]
                assert (agent.messages[2].content, agent.messages[2].cut) == ("Fir", True)

        go(main)
    assert len(cast.worker) == 1


# -- 15 -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "tries", "cause"),
    [
        (status(500, "boom"), 3, "status 500"),
        (status(503), 3, "status 503"),
        (status(401), 1, "API key"),
        (status(403), 1, "status 403"),
        (api_error(429, "insufficient_quota", "You exceeded your current quota"), 1, "no quota"),
        (api_error(400, "bad_request", "nope"), 1, "nope"),
    ],
    ids=["500", "503", "401", "403", "quota", "400"],
)
def test_an_error_of_the_endpoint_is_a_failed_report_with_its_cause(reply: Response, tries: int, cause: str) -> None:
    cast = Cast([calls(CREATE)], [calls(("list_active_sub_agents", {}), say="Looking."), *[reply] * 9])
    with serving(cast) as server:

        async def main() -> None:
            async with teamed(server) as (team, _):
                state = await team.run("Go")
                assert told(team) == [("progress", ""), ("message", "failed")]
                assert state.run_status == "completed"
                assert "secret" not in state.agents[1].error

        go(main)
    assert len(cast.worker) == 1 + tries
    report = last(cast.leader[-1])
    assert report.startswith("来自 UI Operator_1 的消息\n")
    assert cause in report
    assert "Looking." in report.split("Last output")[-1]


def test_an_endpoint_that_recovers_is_no_failure() -> None:
    cast = Cast([calls(CREATE)], [status(500), hang_up(), text("Blue.")])
    with serving(cast) as server:

        async def main() -> None:
            async with teamed(server) as (team, _):
                await team.run("Go")
                assert told(team) == [("completion", "")]

        go(main)
    assert len(cast.worker) == 3


# -- 16 -------------------------------------------------------------------------------------


def test_two_sends_at_once_to_an_agent_at_rest_start_one_run() -> None:
    cast = Cast([calls(CREATE)], [])
    with serving(cast) as server:

        async def main() -> None:
            async with teamed(server) as (team, _):
                await team.run("Go")

                async def send(words: str) -> None:
                    await team.team.person.admit()
                    team.team.port.send(LEADER_ID, 1, words)

                await asyncio.gather(send("one"), send("two"))
                await team.team.rest()

        go(main)
    assert len(cast.worker) == 2
    assert roles(cast.worker[1]) == ["system", "user", "assistant", "user", "user"]


def test_an_agent_revived_after_a_stop_does_not_run_the_old_prompt_again() -> None:
    gate = Gate()
    cast = Cast([calls(CREATE)], [[gate, *text("Old.")], text("New.")])
    with serving(cast) as server:

        async def main() -> None:
            async with teamed(server) as (team, _):
                working = asyncio.ensure_future(team.run("Go"))
                await asyncio.to_thread(gate.wait_reached)
                team.team.port.stop_agent(HUMAN_ID, 1, "")
                await working
                team.team.port.send(LEADER_ID, 1, "Another thing.")
                await team.team.rest()
                assert told(team) == [("message", "stopped"), ("completion", "")]

        go(main)
    assert len(cast.worker) == 2
    assert roles(cast.worker[1]) == ["system", "user", "user"]
    assert "Another thing." in last(cast.worker[1])


# -- 17 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("role_id", ["planner-zh", "odd"])
def test_names_in_any_script_work_end_to_end(role_id: str) -> None:
    name = {"planner-zh": "规划_1", "odd": "C++ & <QA>_1"}[role_id]
    create = ("create_sub_agent", {"agent_id": 1, "role_id": role_id, "task": "Plan."})
    ask = ("ask_master", {"question": "Which?", "question_id": "bad id!"})
    leader: list[Response] = [calls(create), text("Started.")]

    def play(request: dict[str, Any], n: int) -> Response:
        if not offers(request, "create_sub_agent"):
            return calls(ask) if len(request["messages"]) == 2 else text("Planned.")
        if leader:
            return leader.pop(0)
        said = last(request)
        if "的提问" in said:
            question_id = said.split("\n")[1].removeprefix("id: ")
            return calls(
                ("answer_sub_agent_question", {"agent_id": name, "question_id": question_id, "answer": "this"})
            )
        return text("Ok.")

    with serving(play) as server:

        async def main() -> None:
            async with teamed(server) as (team, _):
                state = await team.run("Go")
                agent = state.agents[1]
                assert agent.display_name == name
                assert agent.status == "completed"
                (question,) = state.questions.values()
                assert question.id == {"planner-zh": "ask_planner-zh_001", "odd": "ask_cqa_001"}[role_id]
                assert question.answer == "this"

        go(main)
    assert all("name" not in message for request in server.requests for message in request["messages"])


# -- 18 -------------------------------------------------------------------------------------


def test_a_storm_of_429_is_waited_out_by_all_with_few_requests_at_a_time() -> None:
    count, refused = 10, 30
    refusals: list[float] = []
    asked: list[tuple[float, bool]] = []
    create = calls(
        *[("create_sub_agent", {"agent_id": n, "role_id": "ui-operator", "task": f"t{n}"}) for n in range(1, count + 1)]
    )
    clock: list[VirtualOrder] = []

    def play(request: dict[str, Any], n: int) -> Response:
        if n == 1:
            return create
        asked.append((clock[0].monotonic(), offers(request, "create_sub_agent")))
        if len(refusals) < refused:
            refusals.append(clock[0].monotonic())
            return status(429, headers={"Retry-After": "2"})
        return text("Ok." if offers(request, "create_sub_agent") else "Done.")

    with serving(play) as server:

        async def main() -> None:
            async with teamed(server) as (team, order):
                clock.append(order)
                state = await team.run("Go")
                assert [agent.status for agent in state.members()] == ["completed"] * count
                assert told(team) == [("completion", "")] * count
                assert [e.status for e in team.kinds(RunEnded)] == ["completed"]

        go(main)
    windows: dict[float, int] = {}
    for time in refusals:
        windows[time] = windows.get(time, 0) + 1
    starts = sorted(windows)
    assert all(later - earlier >= 2.0 for earlier, later in pairwise(starts)), "nobody asks too early"
    assert windows[starts[0]] <= count + 1
    assert all(windows[start] <= 2 for start in starts[1:]), "after the first wave one or two at a time"
    first_wave = [leads for at, leads in asked if at == starts[0]]
    assert first_wave.count(True) == 1
    ahead = [next(leads for at, leads in asked if at == start) for start in starts[1:]]
    assert all(either or other for either, other in pairwise(ahead)), "whenever the leader waits, it goes first"


def test_an_endpoint_that_stays_busy_ends_in_one_report_per_agent() -> None:
    create = calls(*[("create_sub_agent", {"agent_id": n, "role_id": "ui-operator", "task": "t"}) for n in (1, 2)])
    asked: list[int] = []

    def play(request: dict[str, Any], n: int) -> Response:
        if offers(request, "create_sub_agent"):
            return create if n == 1 else text("Ok.")
        asked.append(n)
        return status(429, headers={"Retry-After": "1"})

    with serving(play) as server:

        async def main() -> None:
            async with teamed(server) as (team, _):
                state = await team.run("Go")
                assert told(team) == [("message", "failed")] * 2
                assert state.run_status == "completed"

        go(main)
    assert len(asked) == 24


# -- 20 -------------------------------------------------------------------------------------


def test_what_the_team_counts_is_what_the_server_billed() -> None:
    billed: list[tuple[int, int]] = []

    def bill(prompt: int, completion: int) -> Any:
        billed.append((prompt, completion))
        return usage(prompt, completion)

    broken: list[Any] = [delta(role="assistant", content=""), bill(40, 4), close()]
    filtered: list[Any] = [delta(content="x"), finish("content_filter"), bill(50, 5)]
    cast = Cast(
        [
            [*calls(CREATE, tokens=None), bill(100, 10)],
            [*text("Started.", tokens=None), bill(110, 11)],
            [*text("Ok.", tokens=None), bill(120, 12)],
        ],
        [broken, [*calls(("list_active_sub_agents", {}), tokens=None), usage(1, 1), bill(60, 6)], filtered],
    )
    with serving(cast) as server:

        async def main() -> None:
            async with teamed(server) as (team, _):
                state = await team.run("Go")
                assert state.usage() == Usage(sum(p for p, _ in billed), sum(c for _, c in billed))
                assert state.agents[1].tokens == Usage(150, 15)
                assert state.agents[1].tokens + state.leader_state.tokens == state.usage()

        go(main)


def test_successive_requests_share_their_prefix_byte_for_byte() -> None:
    cast = Cast(
        [calls(CREATE)], [calls(("list_active_sub_agents", {}), say="Looking."), text("Done."), text("Done again.")]
    )
    with serving(cast) as server:

        async def main() -> None:
            async with teamed(server) as (team, _):
                await team.run("Go")
                team.team.port.send(LEADER_ID, 1, "More.")
                await team.team.rest()

        go(main)
    for own in (cast.leader, cast.worker):
        for earlier, later in pairwise(own):
            assert json.dumps(later["messages"][: len(earlier["messages"])]) == json.dumps(earlier["messages"])
            assert later["tools"] == earlier["tools"]
