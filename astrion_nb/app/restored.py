"""What was found when a stored conversation was opened: who there is, who waits, what was cut off.

Plain values of that moment, made from the state before and after it was restored. Changes nothing.

Source: decision 29.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..state import AgentState, TeamState


@dataclass(frozen=True, slots=True)
class RestoredAgent:
    """One agent, as it was found.

    Parameters
    ----------
    agent_id : int
        0 for the leader.
    display_name : str
    status : str
        As in :class:`~astrion_nb.app.result.AgentInfo`.
    detail : str
        ``interrupted`` for one that was at work when its program ended.
    waits_for : tuple of str
        Display names, or ``human``: an answer given now is the result of the call that asked.
    queued : int
        Messages that wait in its mailbox.
    interrupted : tuple of str
        Names of the tools whose calls were cut off; none of them is run again.
    """

    agent_id: int
    display_name: str
    status: str
    detail: str
    waits_for: tuple[str, ...]
    queued: int
    interrupted: tuple[str, ...]


def cut_off(state: TeamState) -> dict[int, tuple[str, ...]]:
    """Return by agent the tools whose calls were cut off, in a state that was loaded and not restored yet.

    A call that waits for an answer, or whose answer has come meanwhile, is none of them.
    """
    asked = {(question.asker, question.call_id) for question in state.questions.values() if question.call_id}
    return {
        number: tuple(call.name for call, _ in agent.open_calls.values() if (number, call.id) not in asked)
        for number, agent in state.agents.items()
    }


def restored(state: TeamState, cut: Mapping[int, tuple[str, ...]]) -> tuple[RestoredAgent, ...]:
    """Describe every agent of a restored state but the terminated ones, the leader first.

    Parameters
    ----------
    state : TeamState
    cut : mapping
        From :func:`cut_off`, before it was restored.
    """

    def found(agent: AgentState) -> RestoredAgent:
        number = agent.agent_id
        waits = tuple(state.name_of(one.answerer) for one in state.open_questions() if one.asker == number)
        calls = cut.get(number, ())
        return RestoredAgent(number, agent.display_name, agent.status, agent.detail, waits, len(agent.pending), calls)

    return tuple(found(agent) for _, agent in sorted(state.agents.items()) if agent.status != "terminated")
