"""The person at a running team: what is said to the leader, asked as the leader, and who waits for an answer.

Knows no cell and no view; whatever brings the person's words admits a step first.

Source: decisions 11, 13, 23.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..errors import TeamError
from ..events import PendingMessage
from ..ids import HUMAN_ID, LEADER_ID
from ..state import Question
from .notes import note

if TYPE_CHECKING:
    from .team import TeamRuntime


class Person:
    """What the person does to a team.

    Parameters
    ----------
    team : TeamRuntime
    """

    __slots__ = ("_steps", "_team", "_waiting")

    def __init__(self, team: TeamRuntime) -> None:
        self._team = team
        self._steps = 0
        self._waiting: list[tuple[str, asyncio.Future[str]]] = []

    async def admit(self) -> None:
        """Admit a step of the person."""
        self._steps += 1
        await self._team.order.admit("human", "human", self._steps)

    def say(self, text: str) -> str:
        """Put the person's own message into the leader's mailbox; returns its id.

        Raises
        ------
        TeamError
            The person is the leader.
        """
        if self._team.state.leader == "human":
            raise TeamError("you are the leader of this team: send to an agent, by name")
        self._team.leader_up()
        message_id = self._team.state.ids.free("msg", "user")
        item = PendingMessage(message_id, "human", "human", None, text, self._team.order.now(), "user", True, True)
        self._team.post.deliver(LEADER_ID, item)
        return message_id

    def ask_leader(self, text: str) -> asyncio.Future[str]:
        """Put a message to the leader; the future holds the final text of the turn that reads it.

        Raises
        ------
        TeamError
            The person is the leader; the future raises it when there will be no answer.
        """
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append((self.say(text), future))
        return future

    def ask(self, target: int, text: str) -> Question:
        """Ask an agent as Team Leader (decision 23); the leader is told.

        Raises
        ------
        AgentTerminated
        WouldDeadlock
            The agent waits for the person already.
        """
        question = self._team.waits.ask(HUMAN_ID, target, text, None, call_id="", tool="human")
        if self._team.state.leader == "model":
            told = note("human_asked", self._team.language, id=question.id, text=text)
            self._team.post.inform(LEADER_ID, told, wakes=False, about=target)
        return question

    def answer(self, text: str) -> None:
        """The leader's turn has ended with a text: give it to those whose message the turn has read."""
        unread = {item.id for item in self._team.state.leader_state.pending}
        for message_id, future in tuple(self._waiting):
            if message_id not in unread:
                self._waiting.remove((message_id, future))
                if not future.done():
                    future.set_result(text)

    def answer_nobody(self, why: str) -> None:
        """Tell the person who asked the leader that there will be no answer."""
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(TeamError(why))
        self._waiting.clear()
