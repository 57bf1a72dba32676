"""A team that improvises, and a person who meddles: whatever a list of numbers says happens.

``Improviser`` is a model whose every answer, tool call and failure is picked by the next number;
``actions`` is what a person can do. With the same numbers the same happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from support.held import Held
from support.strict_rules import violations_of
from support.teams import Rig
from support.virtual import VirtualOrder

from astrion_nb.errors import ContentFiltered, ModelBroken, ModelRefused
from astrion_nb.ids import HUMAN_ID
from astrion_nb.llm.model import Finished, ModelRequest, StreamEvent, TextDelta
from astrion_nb.llm.wire import wire_messages
from astrion_nb.messages import ToolCall, Usage

LEADER = "Team Leader"
ROLES = ("ui-operator", "full-stack-engineer", "planner-zh")


class Improviser:
    """A model that does what a list of numbers says, and ends every turn when the list is used up."""

    key = endpoint = "improv"

    def __init__(self, choices: list[int]) -> None:
        self.choices = choices[::-1]
        self.calls = 0
        self.violations: list[str] = []

    def pick(self, among: int) -> int:
        return self.choices.pop() % among if self.choices else 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        body = {"model": "m", "stream": True, "messages": wire_messages(request.messages)}
        self.violations += violations_of(body)
        for _ in range(self.pick(4)):
            await asyncio.sleep(0)
        if request.actor == LEADER and not self.calls:
            yield Finished("", tuple(self.create(number) for number in (1, 2, 3)), "tool_calls", Usage(1, 1))
            return
        what = self.pick(12) if self.choices else 0
        if what == 1:
            yield Finished("", (), "stop", Usage(1, 0))
            return
        if what == 2:
            yield TextDelta("half")
            error = [ModelBroken("reset"), ContentFiltered("withheld"), ModelRefused("401")][self.pick(3)]
            error.partial = "half"
            raise error
        if what == 3:
            raise [ModelBroken("500"), ModelRefused("401")][self.pick(2)]
        if what <= 5:
            yield TextDelta("Done.")
            yield Finished("Done.", (), "stop", Usage(1, 1))
            return
        text = "On it." if self.pick(2) else ""
        if text:
            yield TextDelta(text)
        calls = tuple(self.call(request.actor == LEADER) for _ in range(1 + self.pick(3)))
        yield Finished(text, calls, "tool_calls", Usage(1, 1))

    def create(self, number: int) -> ToolCall:
        self.calls += 1
        role = ROLES[self.pick(3)]
        limit = (5, 600)[self.pick(2)]
        arguments = f'{{"agent_id": {number}, "role_id": "{role}", "task": "t", "timeout_seconds": {limit}}}'
        return ToolCall(f"c{self.calls}", "create_sub_agent", arguments)

    def call(self, leads: bool) -> ToolCall:
        self.calls += 1
        agent, question = 1 + self.pick(4), f"q-{self.pick(6)}"
        options = [
            ("hold", "{}"),
            ("list_active_sub_agents", "{}"),
            ("no_such_tool", "{"),
        ]
        if leads:
            options += [
                ("create_sub_agent", self.create(agent).arguments),
                ("ask_sub_agent", f'{{"agent_id": {agent}, "question": "?", "question_id": "{question}"}}'),
                ("answer_sub_agent_question", f'{{"agent_id": {agent}, "question_id": "{question}", "answer": "a"}}'),
                ("send_message_to_sub_agent", f'{{"agent_id": {agent}, "message": "m"}}'),
                ("terminate_sub_agent", f'{{"agent_id": {agent}}}'),
                ("stop_sub_agent", f'{{"agent_id": {agent}}}'),
            ]
        else:
            options += [
                ("ask_master", f'{{"question": "?", "question_id": "{question}"}}'),
                ("ask_other_agent", f'{{"target_agent_id": {agent}, "content": "?", "message_id": "{question}"}}'),
                (
                    "ask_other_agent",
                    f'{{"target_agent_id": {agent}, "content": "n", "message_id": "", "expects_answer": false}}',
                ),
                ("answer_other_agent", f'{{"source_agent_id": {agent}, "message_id": "{question}", "answer": "a"}}'),
                ("answer_master", f'{{"question_id": "{question}", "answer": "a"}}'),
            ]
        name, arguments = options[self.pick(len(options))]
        return ToolCall(f"c{self.calls}" if self.pick(3) else "same", name, arguments)

    async def close(self) -> None: ...


async def settle(turns: int = 30) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


def actions(made: Rig, order: VirtualOrder, held: Held, number: int, question: str) -> list[Callable[[], Any]]:
    """Return what a person can do."""
    team = made.team
    return [
        lambda: team.person.say("more"),
        lambda: team.port.send(HUMAN_ID, number, "psst"),
        lambda: team.person.ask(number, "how is it?"),
        lambda: team.port.stop_agent(HUMAN_ID, number, "enough"),
        lambda: team.port.terminate(HUMAN_ID, number),
        lambda: team.port.answer(HUMAN_ID, None, question, "so"),
        lambda: team.stop_all("stopped", "all"),
        lambda: order.advance(0.06),
        lambda: order.advance(6.0),
        held.release,
        lambda: team.agents[number].task.cancel(),  # type: ignore[union-attr]
    ]
