"""Makes room in an agent's requests: when the endpoint says that one was too long, and before it has to.

Knows the agent and its team; what is left out, :mod:`.compaction` says.

Source: decisions 9, 12.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ContextOverflow
from ..events import MessageAppended
from ..messages import Usage
from .compaction import Compaction, answered, compact

if TYPE_CHECKING:
    from .agent import Agent

NEARLY_FULL = 0.9
"""Share of a known context from which on the next request is made shorter before it is sent."""


def make_room(agent: Agent) -> None:
    """Leave earlier messages out of the next request when the last response came near the model's known context."""
    state = agent.state
    last = answered(state)
    if last < 0 or state.compacted > last:
        return  # once for each response
    usage = Usage.from_json(state.messages[last].metadata.get("usage"))
    if usage is None or not usage.total:
        return
    context = agent.team.ports.context(state.model_key)
    if context and usage.total > NEARLY_FULL * context:
        _compact(agent, context)


def after_overflow(agent: Agent, error: ContextOverflow, before: Compaction | None) -> Compaction:
    """Make room after a request that was too long; the same turn then asks again.

    Parameters
    ----------
    agent : Agent
    error : ContextOverflow
        What the endpoint said.
    before : Compaction or None
        What this returned for the request before, when that was too long as well.

    Raises
    ------
    ContextOverflow
        There is nothing to leave out, or leaving it out was not enough; says how long things are.
    """
    if before is None and not agent.live:
        made = _compact(agent, agent.team.ports.context(agent.state.model_key))
        if made.message is not None:
            return made
        before = made
    if before is None:
        raise error  # in the midst of an answer
    failed = ContextOverflow(
        f"{error}; what cannot be left out (the task, open questions, what the model has not seen yet) has "
        f"{before.least:,} characters, the request had {before.before:,}: give shorter tasks, or a model with a longer "
        "context",
        status=error.status,
    )
    failed.partial = error.partial
    raise failed


def _compact(agent: Agent, context: int | None) -> Compaction:
    team, number = agent.team, agent.id
    questions = {item.id for item in team.state.open_questions() if number in (item.target, item.answerer)}
    made = compact(agent.state, questions, language=team.language, context=context, scrub=team.ports.scrub)
    if made.message is not None:
        team.bus.publish(MessageAppended(number, made.message))
    return made
