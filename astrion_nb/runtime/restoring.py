"""A team after loading: nobody is shown at work who is not, and who waited waits again.

Knows the team; no file. What a kill left half done is known from the state alone, so restoring
twice changes nothing.

Source: decisions 22, 29.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..events import RunEnded, StatusChanged
from ..ids import HUMAN_ID, LEADER_ID
from ..state import AgentState
from .notes import note

if TYPE_CHECKING:
    from .team import TeamRuntime


def restore(team: TeamRuntime) -> None:
    """Make a loaded state one that can go on; starts no model request."""
    state = team.state
    team.unread = frozenset(item.id for agent in state.agents.values() for item in agent.pending if item.wakes)
    for agent_state in tuple(state.agents.values()):
        if agent_state.status not in ("running", "waiting") and not agent_state.open_calls:
            continue
        number = agent_state.agent_id
        agent = team.agent(number) if number or state.leader == "model" else None
        if agent is None or agent_state.status == "terminated":
            continue
        if team.waits.waits_for(number):
            if agent_state.status != "waiting":
                team.bus.publish(StatusChanged(number, "waiting"))
            agent.wake(resume=True)
            continue
        agent.calls.close("interrupted")
        if agent_state.status in ("running", "waiting"):
            team.bus.publish(StatusChanged(number, "idle", "interrupted"))
            if number != LEADER_ID:
                team.post.inform(LEADER_ID, note("interrupted", team.language), wakes=False, about=number)
    if state.run_status == "running":
        team.bus.publish(RunEnded(state.run, "interrupted", state.run_text, "the program ended"))
    team.waits.deliver_again()
    if state.leader == "human" and state.leader_state.pending:
        team.agent(LEADER_ID).drain_all()  # a person who leads reads at once: what a kill has left in between too


def go_on(team: TeamRuntime) -> None:
    """With a new run, take up the turns that were cut off while somebody waits for their end, or before they began."""
    state = team.state
    if team.ending:
        return
    unread, team.unread = team.unread, frozenset()
    team.waits.nobody_acts()
    for number, agent_state in tuple(state.agents.items()):
        if agent_state.open_calls and agent_state.status != "terminated":
            team.agent(number).wake(resume=True)
        elif _never_begun(agent_state, unread):
            team.agent(number).wake()
    people = (HUMAN_ID, LEADER_ID) if state.leader == "human" else (HUMAN_ID,)
    for question in state.open_questions():
        if question.answerer not in people:
            team.agent(question.answerer).wake()


def _never_begun(agent: AgentState, unread: frozenset[str]) -> bool:
    """Say whether an agent got a message that begins a turn, and the program ended before it could.

    ``unread`` are those that were in a mailbox when the conversation was loaded. One that came later and
    woke nobody was not to: its reader was stopped, or the leader was.
    """
    rests = agent.status in ("idle", "completed") and not agent.detail
    return rests and any(item.id in unread for item in agent.pending)
