"""The post of a team: what is written to an agent gets an envelope and a place in its mailbox, and wakes it.

Methods change state on the spot. Knows who reads, not what follows from it.

Source: decisions 9–13, 16, 55; message protocol §2–§4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..envelope import KINDS, Kind
from ..events import MessageQueued, PendingMessage, Source
from ..ids import LEADER_ABBREVIATION, LEADER_ID, well_formed
from .names import title_of

if TYPE_CHECKING:
    from .agent import Agent
    from .team import TeamRuntime


class Post:
    """Delivers messages between the agents of a team, its leader and the person.

    Parameters
    ----------
    team : TeamRuntime
    """

    __slots__ = ("_team",)

    def __init__(self, team: TeamRuntime) -> None:
        self._team = team

    def deliver(self, target: int, item: PendingMessage) -> None:
        """Put a message into a mailbox; wake its owner when it should."""
        # First, because a stored agent's model may be gone: then nothing has happened.
        agent = self._team.agent(target)
        self._team.bus.publish(MessageQueued(target, item))
        if target == LEADER_ID and self._team.state.leader == "human":
            agent.drain_all()  # a person who leads reads at once: the mailbox becomes conversation
            return
        agent.arrived()
        hears = target != LEADER_ID or not self._team.leader_is_down or item.kind == "human"
        if item.wakes and hears and agent.task is None:
            agent.wake()

    def write(
        self,
        target: int,
        kind: Kind,
        sender: int,
        text: str,
        *,
        source: Source,
        wakes: bool = True,
        starts_work: bool = False,
        status: str = "",
        message_id: str | None = None,
        notice_from: int | None = None,
    ) -> str:
        """Write an envelope and deliver it; returns its id."""
        state = self._team.state
        if message_id is None or not well_formed(message_id) or message_id in state.ids:
            short = LEADER_ABBREVIATION if sender <= LEADER_ID else state.agents[sender].abbreviation
            message_id = state.ids.free(KINDS[kind].prefix, "" if kind == "task" else short)
        self.deliver(
            target,
            PendingMessage(
                message_id,
                kind,
                title_of(state, sender),
                sender if sender > LEADER_ID else None,
                text,
                self._team.order.now(),
                source,
                wakes,
                starts_work,
                status,
                notice_from,
            ),
        )
        return message_id

    def report(self, agent: Agent, kind: Kind, text: str, *, status: str = "") -> None:
        """Send an agent's progress, completion or failure to the leader (decisions 9, 10, 13)."""
        self.write(LEADER_ID, kind, agent.id, text, source="sub_agent", wakes=kind != "progress", status=status)

    def inform(self, target: int, text: str, *, wakes: bool, about: int | None = None) -> None:
        """Say something in the runtime's own name, as an envelope (decision 9)."""
        sender = about if about is not None else LEADER_ID
        self.write(target, "message", sender, text, source="runtime", wakes=wakes)

    def reply_to_notice(self, agent: Agent, sender: int, text: str) -> None:
        """Bring the final text after a notice to who gave it; it wakes nobody (decision 16)."""
        if self._team.state.agents[sender].status != "terminated":
            self.write(sender, "message", agent.id, text, source="sub_agent", wakes=False)
