"""An ask to somebody who goes away returns at once, and politeness without end is ended by a budget.

Decisions 15, 17, 22, 24, 55, 58.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from support.held import Held
from support.improvised import settle
from support.teams import Rig, go, rig
from support.virtual import VirtualOrder, Watched

from astrion_nb.errors import ContentFiltered, ModelBroken, ModelRefused
from astrion_nb.events import MessageQueued
from astrion_nb.ids import HUMAN_ID, LEADER_ID
from astrion_nb.llm.model import ModelRequest
from astrion_nb.llm.scripted import ScriptedModel, Step, call, fail, say
from astrion_nb.messages import Usage
from astrion_nb.runtime.limits import Limits
from astrion_nb.state import Question
from astrion_nb.testing import invariants

LEADER, ASKER, ASKED = "Team Leader", "UI Operator_1", "UI Operator_2"
ASKER_ID, ASKED_ID = 1, 2
SECONDS = 30.0


class Asked:
    """A team in which somebody waits for an agent that is at work, or about to be.

    Parameters
    ----------
    last : Step, callable or list
        What the asked agent's model does once its tool has returned.
    """

    def __init__(self, last: Any = None) -> None:
        self.order, self.held = VirtualOrder(auto=False), Held()
        last = last or say("Done.")
        plays = {
            LEADER: [self._lead] * 60,
            ASKER: [self._ask] * 60,
            ASKED: [call("hold"), *(last if isinstance(last, list) else [last]), *[say("Again.")] * 20],
        }
        self.asking = ""
        self.model = Watched(ScriptedModel(plays, check_on_close=False))
        self.made: Rig = rig(self.model, tools=(self.held.tool,), order=self.order)
        self.team = self.made.team
        self.person: asyncio.Task[Any] | None = None

    def _lead(self, request: ModelRequest) -> Step:
        return self._once(request, "ask_sub_agent", agent_id=ASKED_ID, question="Well?", question_id="")

    def _ask(self, request: ModelRequest) -> Step:
        return self._once(request, "ask_other_agent", target_agent_id=ASKED_ID, content="Well?", message_id="")

    def _once(self, request: ModelRequest, name: str, **arguments: Any) -> Step:
        """Ask once, when told to."""
        told = any("ask now" in (m.content or "") for m in request.messages if m.role == "user")
        asked = any(made.name == name for m in request.messages for made in m.tool_calls)
        return call(name, **arguments) if told and not asked and self.asking == request.actor else say("Ok.")

    async def wait(self, by: str) -> Question:
        """Let the asked agent work and somebody ask it; returns the open question."""
        role = self.team.port.load_role("ui-operator")
        self.team.begin_run("Go")
        self.team.port.create(role, ASKER_ID, "Be there.")
        self.team.port.create(role, ASKED_ID, "Hold.", timeout=SECONDS)
        await self.held.wait_begun()
        await settle(40)
        self.asking = by
        if by == "the person":
            self.team.person.ask(ASKED_ID, "Well?")
        elif by == LEADER:
            self.team.person.say("ask now")
        else:
            self.team.port.send(LEADER_ID, ASKER_ID, "ask now")
        for _ in range(50):
            await settle()
            self.order.advance(0.06)
            if self.team.state.open_questions():
                break
        (question,) = self.team.state.open_questions()
        assert question.target == ASKED_ID
        return question


Deed = Callable[[Asked], Any]
AT_ONCE: dict[str, tuple[Deed, str]] = {
    "terminated by the person": (lambda a: a.team.port.terminate(HUMAN_ID, ASKED_ID), "was terminated"),
    "terminated by the leader": (lambda a: a.team.port.terminate(LEADER_ID, ASKED_ID), "was terminated"),
    "stopped by the person": (lambda a: a.team.port.stop_agent(HUMAN_ID, ASKED_ID, "enough"), "stopped: enough"),
    "stopped by the leader": (lambda a: a.team.port.stop_agent(LEADER_ID, ASKED_ID, ""), "stopped"),
    "past its time": (lambda a: a.order.advance(SECONDS + 1), "timed_out: no end after 30 seconds"),
}
BREAKING: dict[str, tuple[Any, str]] = {
    "refused": (fail(ModelRefused("401")), "failed: 401"),
    "withheld": (fail(ContentFiltered("withheld")), "failed: withheld"),
    "broken off in its words": (say("half ") + fail(ModelBroken("reset")), "failed: reset"),
    "crashed": (lambda _: 1 / 0, "internal fault: ZeroDivisionError"),
    "out of words": ([say(""), say("")], "empty answer twice"),
}
ASKERS = (ASKER, LEADER, "the person")


def _result(asked: Asked, question: Question) -> str:
    """Return what the asker's call came to."""
    agent = asked.team.state.agents[question.asker]
    (content,) = [m.content for m in agent.messages if m.tool_call_id == question.call_id]
    return str(json.loads(content or "")["error"])


@pytest.mark.faults
@pytest.mark.parametrize("by", ASKERS)
@pytest.mark.parametrize("how", AT_ONCE)
def test_an_ask_to_an_agent_that_is_ended_returns_at_once(how: str, by: str) -> None:
    async def main() -> None:
        asked = Asked()
        question = await asked.wait(by)
        deed, said = AT_ONCE[how]
        waiter = asyncio.ensure_future(asked.team.waits.answered(question.id))
        await settle()
        time = asked.order.monotonic()
        deed(asked)
        assert question.status == "closed", "in the same step"
        assert said in question.reason
        await settle(5)
        assert waiter.done()
        if by != "the person":
            assert said in _result(asked, question)
            assert not asked.team.waits.waits_for(question.asker)
        assert asked.order.monotonic() - time <= SECONDS + 1, "and no time has passed for it"
        await rest(asked)

    go(main)


@pytest.mark.faults
@pytest.mark.parametrize("by", ASKERS)
@pytest.mark.parametrize("how", BREAKING)
def test_an_ask_to_an_agent_that_breaks_returns_with_the_reason(how: str, by: str) -> None:
    async def main() -> None:
        last, said = BREAKING[how]
        asked = Asked(last)
        question = await asked.wait(by)
        asked.held.release()
        for _ in range(20):
            await settle()
            if question.status != "open":
                break
        assert question.status == "closed"
        assert said in question.reason
        assert asked.team.state.agents[ASKED_ID].detail == "failed"
        await settle(5)
        if by != "the person":
            assert said in _result(asked, question)
        await rest(asked)

    go(main)


@pytest.mark.faults
@pytest.mark.parametrize("by", ASKERS)
def test_an_agent_whose_task_is_cancelled_from_outside_goes_on_for_who_waits_for_it(by: str) -> None:
    async def main() -> None:
        asked = Asked()
        question = await asked.wait(by)
        asked.team.agents[ASKED_ID].task.cancel()  # type: ignore[union-attr]
        await settle(5)
        assert asked.team.state.agents[ASKED_ID].detail == "interrupted"
        assert question.status == "open"
        changed = asyncio.Event()
        cancel = asked.team.bus.subscribe(lambda _: changed.set() if question.status != "open" else None)
        await asyncio.wait_for(changed.wait(), 5)
        cancel()
        assert question.status == "answered"
        assert question.answer == "Done."
        await rest(asked)

    go(main)


@pytest.mark.faults
@pytest.mark.parametrize("by", ASKERS)
def test_an_ask_to_who_is_gone_already_is_no_question(by: str) -> None:
    async def main() -> None:
        asked = Asked()
        role = asked.team.port.load_role("ui-operator")
        asked.team.begin_run("Go")
        asked.team.port.create(role, ASKER_ID, "Be there.")
        asked.team.port.create(role, ASKED_ID, "Hold.")
        await settle(40)
        asked.team.port.terminate(HUMAN_ID, ASKED_ID)
        asked.asking = by
        if by == "the person":
            with pytest.raises(Exception, match="is terminated and cannot"):
                asked.team.person.ask(ASKED_ID, "Well?")
        else:
            number = LEADER_ID if by == LEADER else ASKER_ID
            if by == LEADER:
                asked.team.person.say("ask now")
            else:
                asked.team.port.send(LEADER_ID, ASKER_ID, "ask now")
            for _ in range(30):
                await settle()
                asked.order.advance(0.06)
            said = [m.content or "" for m in asked.team.state.agents[number].messages if m.role == "tool"]
            assert any("is terminated and cannot" in content for content in said)
        assert asked.team.state.questions == {}
        await rest(asked)

    go(main)


async def rest(asked: Asked) -> None:
    """Let everybody come to rest, and look that nothing is left."""
    asked.held.release()
    for _ in range(100):
        await settle()
        if not asked.team.running:
            break
        asked.order.advance(0.06)
    assert not asked.team.running
    assert asked.team.state.open_questions() == []
    assert asked.team.waits._futures == {}
    invariants.check(asked.team.state, asked.made.events, asked.team)


# -- politeness without end -----------------------------------------------------------------

PEER = {ASKER: ASKED_ID, ASKED: ASKER_ID}


def _thanks(request: ModelRequest) -> Step:
    """Two agents who thank each other, turn after turn, and wait for nothing."""
    return _alternating(request, call("ask_other_agent", target_agent_id=PEER[request.actor], content="Thank you!",
                                      message_id="", expects_answer=False))  # fmt: skip


def _asks(request: ModelRequest) -> Step:
    """An agent who asks the other in every request."""
    if request.actor == ASKED:
        return say("You are welcome. And you?")
    return call("ask_other_agent", target_agent_id=ASKED_ID, content="How are you?", message_id="")


def _asks_leader(request: ModelRequest) -> Step:
    return call("ask_master", question="Is it good like this?", question_id="")


def _alternating(request: ModelRequest, step: Step) -> Step:
    """Do something in every other request, and end the turn in between."""
    return step if request.messages[-1].role == "user" else say("That was kind.")


def _lead_quietly(request: ModelRequest) -> Step:
    return say("Ok.")


def _lead_politely(request: ModelRequest) -> Step:
    """Answer every question that is open, and else thank the agent that reported."""
    answered = {
        json.loads(made.arguments)["question_id"]
        for m in request.messages
        for made in m.tool_calls
        if made.name == "answer_sub_agent_question"
    }
    for m in request.messages:
        said = m.content or ""
        if m.role == "user" and "的提问\n" in said and (asked := m.metadata["envelope_id"]) not in answered:
            by = m.metadata["agent_id"]
            return call("answer_sub_agent_question", agent_id=by, question_id=asked, answer="Very good.")
    if request.messages[-1].role == "user":
        return call("send_message_to_sub_agent", agent_id=ASKER_ID, message="Very good. Anything else?")
    return say("Ok.")


PING_PONG: dict[str, tuple[Any, Any]] = {
    "notices between peers": (_lead_quietly, _thanks),
    "questions between peers": (_lead_quietly, _asks),
    "questions to the leader": (_lead_politely, _asks_leader),
    "messages of the leader": (_lead_politely, lambda request: say("No, thank you. And you?")),
}
BUDGETS: dict[str, tuple[Limits, str]] = {
    "max_turns": (Limits(max_turns=12), "max_turns: 12 model requests of one agent"),
    "max_team_turns": (Limits(max_team_turns=25), "max_team_turns: 25 model requests in this run"),
    "max_tokens": (Limits(max_tokens=20_000), "max_tokens: "),
    "max_cost": (Limits(max_cost=0.5), "max_cost: "),
    "max_agent_tokens": (Limits(max_agent_tokens=8_000), "max_agent_tokens: "),
}


@pytest.mark.faults
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("how", PING_PONG)
def test_politeness_without_end_is_ended_by_a_budget_that_is_named(how: str, budget: str) -> None:
    async def main() -> None:
        lead, member = PING_PONG[how]
        limits, named = BUDGETS[budget]
        model = Watched(
            ScriptedModel({LEADER: [lead] * 400, ASKER: [member] * 400, ASKED: [member] * 400}, check_on_close=False)
        )
        made = rig(model, limits=limits, order=VirtualOrder(), human=False, prices=lambda key, usage: _cost(usage))
        team = made.team
        team.begin_run("Go")
        role = team.port.load_role("ui-operator")
        for number in (ASKER_ID, ASKED_ID):
            team.port.create(role, number, "Be polite.", timeout=0.0)
        await asyncio.wait_for(team.rest(), 15)
        stopped = [agent for agent in team.state.agents.values() if agent.detail == "stopped"]
        assert stopped
        assert all(named in agent.error for agent in stopped)
        assert len(model.asked) < 150
        told = [event.item.content for event in made.kinds(MessageQueued) if event.item.status == "stopped"]
        members = [agent for agent in stopped if agent.agent_id != LEADER_ID]
        assert all(any(named in content for content in told) for _ in members), "the leader is told why"
        assert team.state.open_questions() == []
        invariants.check(team.state, made.events, team)

    go(main)


def _cost(usage: Usage) -> float:
    return usage.total / 40_000
