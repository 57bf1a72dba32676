"""One request of an agent to its model: gate, slot, tries, live text.

Everything here is outside the agent's history: whatever happens, one step ``response`` is admitted
and then the caller acts. Knows no vendor and stores nothing.

Source: decisions 24, 54–58.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ModelBroken, ModelError
from ..events import RequestStarted, TextStreamed, UsageCounted
from ..llm.model import Finished, ModelRequest, ReasoningDelta, TextDelta
from ..messages import Message, Usage
from .limits import Gate, attempts

if TYPE_CHECKING:
    from .agent import Agent


async def ask_model(agent: Agent, n: int) -> Finished:
    """Ask, with tries, and return the whole response.

    Parameters
    ----------
    agent : Agent
    n : int
        The agent's request number, counted from 1.

    Raises
    ------
    ModelError
        The last try's error.
    """
    team = agent.team
    state = agent.state
    messages = [Message("system", state.system), *state.messages] if agent.is_leader else state.messages
    request = ModelRequest(
        agent.name,
        n,
        messages,
        agent.tools.definitions,
        "fast" if state.thinking_mode == "fast" else "thinking",
        agent.arrival,
    )
    gate = team.gate(agent.model.endpoint)
    tries, waste = 0, Usage()
    while True:
        tries += 1
        finished, error, shown = await _try(agent, request, gate, n)
        if error is None:
            break
        if not isinstance(error, ModelError):
            break  # not the endpoint's fault, so asking again mends nothing
        waste = waste + (error.usage or Usage())
        wait = attempts(error, tries, shown=shown, jitter=team.jitter)
        if wait is None:
            break
        if wait:
            await team.order.sleep(wait)
    await team.order.admit(agent.name, "response", n)
    if waste.total:
        team.bus.publish(UsageCounted(agent.id, waste))
    if error is not None:
        raise error
    assert finished is not None
    return finished


async def _try(
    agent: Agent, request: ModelRequest, gate: Gate, n: int
) -> tuple[Finished | None, Exception | None, bool]:
    team = agent.team
    bus, publish = team.bus, team.bus.publish
    agent_id = agent.id
    finished: Finished | None = None
    error: Exception | None = None
    shown = False
    await gate.enter(agent.rank)
    try:
        await team.slots.acquire(agent.rank)
        try:
            publish(RequestStarted(agent_id, n))
            async for event in agent.model.stream(request):
                kind = type(event)
                if kind is TextDelta:
                    if not shown:
                        shown = True
                        if agent_id:
                            team.talking.add(agent_id)
                    if bus.watched:
                        publish(TextStreamed(agent_id, event.text))
                elif kind is ReasoningDelta:
                    if bus.watched:
                        publish(TextStreamed(agent_id, event.text, True))
                else:
                    finished = event  # type: ignore[assignment]
        except Exception as raised:
            # Whatever it is, it happens in the order of steps: the caller admits one and then raises.
            error = raised
        finally:
            team.talking.discard(agent_id)
            team.slots.release()
    finally:
        gate.leave(error if isinstance(error, ModelError) else None, answered=finished is not None)
    if finished is None and error is None:
        error = ModelBroken("the model's stream ended without a result")
    return finished, error, shown
