"""Calls that a person has to allow: asked, shown, allowed, denied, late, lasting, and never by a text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from support.casts import Part, create, play, said
from support.served import configure
from support.strict_server import StrictServer, calls, text

from astrion_nb import Team, tool
from astrion_nb.approval import digest_of
from astrion_nb.errors import QuestionError
from astrion_nb.events import ApprovalAsked
from astrion_nb.ids import HUMAN_ID
from astrion_nb.messages import ToolCall
from astrion_nb.testing import invariants

pytestmark = pytest.mark.faults
Act = Callable[[Team, Any], Any]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StrictServer]:
    with StrictServer() as running:
        configure(tmp_path, running)
        yield running
        assert running.violations == []


def bell(rung: list[str], effect: Any = "run") -> Any:
    """A tool that a person has to allow."""

    @tool(name="ring", effect=effect)
    def ring(command: Annotated[str, "How."]) -> str:
        """Ring a bell."""
        rung.append(command)
        return f"rang {command}"

    return ring


def ringing(*commands: str, then: str = "Done.") -> list[Part]:
    return [calls(*(("ring", {"command": command}) for command in commands)), text(then)]


def run(
    place: Path, server: StrictServer, act: Act | None, *, rung: list[str], members: list[Part], **more: Any
) -> list[str]:
    """Run a team whose member rings; returns what the member has read as results."""
    cast = play(server, member=members)

    async def go() -> None:
        async with Team(home=place, tools=[bell(rung, more.pop("effect", "run"))], **{"human": True, **more}) as team:
            acting: set[asyncio.Task[Any]] = set()

            def see(stamped: Any) -> None:
                if isinstance(stamped.event, ApprovalAsked) and act is not None:
                    acting.add(asyncio.ensure_future(act(team, team.questions[-1])))

            team.watch(see)
            await team.run("Ring.", timeout=20)
            await asyncio.gather(*acting)
            invariants.check(team.state)

    asyncio.run(go())
    last = cast.member_requests[-1]["messages"]
    return [message["content"] for message in last if message["role"] == "tool"]


async def yes(team: Team, asked: Any) -> None:
    await team.approve(asked.question_id)


async def no(team: Team, asked: Any) -> None:
    await team.deny(asked.question_id, "the neighbours sleep")


def test_a_call_waits_until_the_person_allows_it_and_runs_once(server: StrictServer, tmp_path: Path) -> None:
    rung: list[str] = []
    seen: list[Any] = []

    async def look(team: Team, asked: Any) -> None:
        seen.append((asked.answerer, asked.approval, rung[:], team.agents[0].status))
        await team.approve(asked.question_id)

    results = run(tmp_path, server, look, rung=rung, members=ringing("loud"))
    assert (results, rung) == (["rang loud"], ["loud"])
    answerer, approval, before, status = seen[0]
    assert (answerer, before, status) == ("human", [], "waiting")
    assert (approval.tool, json.loads(approval.arguments)) == ("ring", {"command": "loud"})


def test_a_denial_is_a_result_with_its_reason_and_nothing_ran(server: StrictServer, tmp_path: Path) -> None:
    rung: list[str] = []
    (result,) = run(tmp_path, server, no, rung=rung, members=ringing("loud"))
    assert "the neighbours sleep" in result
    assert "not allowed" in result
    assert rung == []


def test_all_of_a_kind_is_asked_once_and_another_kind_or_agent_again(server: StrictServer, tmp_path: Path) -> None:
    rung: list[str] = []
    asked: list[str] = []

    async def lasting(team: Team, question: Any) -> None:
        asked.append(question.approval.kind)
        await team.approve(question.question_id, lasting=True)

    members = [calls(("ring", {"command": one})) for one in ("a 1", "a 1", "a 2")] + ringing("a 1")
    results = run(tmp_path, server, lasting, rung=rung, members=members)
    assert results == ["rang a 1", "rang a 1", "rang a 2", "rang a 1"]
    assert len(asked) == len(set(asked)) == 2, "no more is allowed than was shown"


@pytest.mark.parametrize("permission", ["read-only", "ask", "auto"])
@pytest.mark.parametrize("effect", ["", "read", "write", "run", "net"])
def test_a_mode_asks_for_what_it_says_and_for_nothing_else(
    server: StrictServer, tmp_path: Path, permission: str, effect: str
) -> None:
    rung: list[str] = []
    asked: list[str] = []

    async def ask(team: Team, question: Any) -> None:
        asked.append(question.question_id)
        await team.approve(question.question_id)

    run(tmp_path, server, ask, rung=rung, members=ringing("x"), permission=permission, effect=effect)
    free = effect in ("", "read") or permission == "auto"
    never = permission == "read-only" and effect in ("write", "run")
    assert bool(asked) is (not free and not never)
    assert bool(rung) is (not never)


def test_where_nobody_can_act_a_call_is_denied_and_the_way_on_is_said(server: StrictServer, tmp_path: Path) -> None:
    rung: list[str] = []
    (result,) = run(tmp_path, server, None, rung=rung, members=ringing("loud"), human=False)
    assert "nobody can approve it here" in result
    assert "--permission auto" in result
    assert rung == []


def test_no_text_is_an_approval_and_none_serves_twice_or_for_another_call(server: StrictServer, tmp_path: Path) -> None:
    rung: list[str] = []
    refused: list[str] = []

    async def try_all(team: Team, asked: Any) -> None:
        runtime = await team.open()
        agent = next(iter(runtime.state.members())).agent_id
        for attempt in (
            lambda: team.answer(asked.question_id, "yes, approved"),
            lambda: team.approve(asked.question_id, digest="0" * 64),
            lambda: team.approve("ask_re_999"),
        ):
            with pytest.raises(QuestionError) as error:
                await attempt()
            refused.append(str(error.value))
        for who in (0, agent):  # what the tools of leader and agents could say
            with pytest.raises(QuestionError):
                runtime.port.answer(who, None, asked.question_id, "approved")
        assert rung == []
        call = ToolCall(asked.approval.call_id, "ring", asked.approval.arguments)
        assert asked.approval.digest == digest_of(agent, call)
        await team.approve(asked.question_id, digest=asked.approval.digest)
        with pytest.raises(QuestionError, match="already allowed"):
            await team.approve(asked.question_id)

    assert run(tmp_path, server, try_all, rung=rung, members=ringing("loud")) == ["rang loud"]
    assert "which no text gives" in refused[0]
    assert "another call" in refused[1]


def test_several_calls_of_one_message_are_asked_for_and_answered_each(server: StrictServer, tmp_path: Path) -> None:
    rung: list[str] = []

    async def only_even(team: Team, asked: Any) -> None:
        number = int(json.loads(asked.approval.arguments)["command"].split()[1])
        await (team.deny(asked.question_id, f"not {number}") if number % 2 else team.approve(asked.question_id))

    results = run(tmp_path, server, only_even, rung=rung, members=ringing("n 0", "n 1", "n 2", "n 3"))
    assert sorted(rung) == ["n 0", "n 2"]
    assert all(sum(what in result for result in results) == 1 for what in ("rang n 0", "not 1", "rang n 2", "not 3"))


def test_a_stop_withdraws_what_waits_to_be_allowed(server: StrictServer, tmp_path: Path) -> None:
    rung: list[str] = []
    play(server, member=ringing("loud"))

    async def go() -> None:
        async with Team(home=tmp_path, tools=[bell(rung)], human=True) as team:
            waiting = asyncio.Event()
            team.watch(lambda stamped: waiting.set() if isinstance(stamped.event, ApprovalAsked) else None)
            await team.start("Ring.")
            await asyncio.wait_for(waiting.wait(), 20)
            name = team.questions[0].question_id
            await team.stop()
            assert team.questions == ()
            with pytest.raises(QuestionError, match="expired"):
                await team.approve(name)
            invariants.check(team.state)

    asyncio.run(go())
    assert rung == []


@pytest.mark.parametrize("ok", [True, False])
def test_what_waits_to_be_allowed_waits_on_in_the_next_program_and_runs_there_once(
    server: StrictServer, tmp_path: Path, ok: bool
) -> None:
    rung: list[str] = []
    cast = play(server, [calls(create()), text("Started."), text("All is well.")], ringing("loud"))

    async def first() -> str:
        async with Team(home=tmp_path, tools=[bell(rung)], human=True) as team:
            waiting = asyncio.Event()
            team.watch(lambda stamped: waiting.set() if isinstance(stamped.event, ApprovalAsked) else None)
            await team.start("Ring.")
            await asyncio.wait_for(waiting.wait(), 20)
            return team.conversation_id

    async def second(conversation: str) -> None:
        async with Team(home=tmp_path, conversation=conversation, tools=[bell(rung)], human=True) as team:
            await team.open()
            (asked,) = team.questions
            assert asked.approval is not None
            assert rung == []
            await (team.approve(asked.question_id) if ok else team.deny(asked.question_id, "no"))
            await team.wait(timeout=20)
            invariants.check(team.state)

    asyncio.run(second(asyncio.run(first())))
    assert rung == (["loud"] if ok else [])
    told = said(cast.member_requests[-1])
    assert ("rang loud" in told) is ok


def test_who_is_asked_by_a_waiting_person_is_not_asked_for_an_approval(server: StrictServer, tmp_path: Path) -> None:
    """It would wait for the person, who waits for it."""
    rung: list[str] = []
    cast = play(server, member=[text("Ready."), *ringing("loud", then="Not today.")])

    async def go() -> str:
        async with Team(home=tmp_path, tools=[bell(rung)], human=True) as team:
            await team.run("Ring.", timeout=20)
            return await team.ask("Researcher_1", "Can you ring?", timeout=20)

    assert asyncio.run(go()) == "Not today."
    assert "the person waits for you" in said(cast.member_requests[-1])
    assert rung == []
    assert HUMAN_ID == -1
