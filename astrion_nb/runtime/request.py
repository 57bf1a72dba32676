"""One request of an agent to its model: what is in it, gate, slot, tries, live text.

Everything here is outside the agent's history: whatever happens, one step ``response`` is admitted
and then the caller acts. Knows no vendor and stores nothing.

Source: decisions 24, 54–58.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ModelBroken, ModelBusy, ModelError
from ..events import RequestStarted, TextStreamed
from ..llm.model import Finished, ModelRequest, ReasoningDelta, TextDelta, ThinkingMode
from ..state import AgentState
from .compaction import as_it_is, latest, visible
from .limits import Gate, attempts

if TYPE_CHECKING:
    from .agent import Agent


def request_of(
    state: AgentState,
    n: int,
    tools: Sequence[Mapping[str, Any]],
    *,
    before: int | None = None,
    arrival: Callable[[], Awaitable[None]] | None = None,
    scrub: Callable[[str], str] = as_it_is,
) -> ModelRequest:
    """Return the request that an agent makes, or made, from its conversation.

    Parameters
    ----------
    state : AgentState
    n : int
        The agent's request number, counted from 1.
    tools : sequence of mapping
        Definitions of the tools it is offered.
    before : int, optional
        Which message answered it; what comes from there on was not in it yet. Default: it is yet to be made.
    arrival : callable, optional
        As in :class:`ModelRequest`.
    scrub : callable
        As in :class:`~astrion_nb.runtime.ports.Ports`.
    """
    messages = visible(state, before, scrub=scrub)
    mode: ThinkingMode = "fast" if state.thinking_mode == "fast" else "thinking"
    history = None if latest(state, before) < 0 else state.messages[:before]
    return ModelRequest(state.display_name, n, messages, tools, mode, arrival, history)


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
    request = request_of(agent.state, n, agent.tools.definitions, arrival=agent.arrival, scrub=team.ports.scrub)
    gate = team.ports.gate(agent.model.endpoint)
    tries, busy = {True: 0, False: 0}, False
    while True:
        finished, error, shown = await _try(agent, request, gate, n, refused=busy)
        if error is None:
            break
        if not isinstance(error, ModelError):
            break  # not the endpoint's fault, so asking again mends nothing
        if error.usage is not None and error.usage.total:
            agent.waste = error.usage if agent.waste is None else agent.waste + error.usage
        busy = isinstance(error, ModelBusy)
        tries[busy] += 1
        wait = attempts(error, tries[busy], shown=shown, jitter=team.jitter)
        if wait is None:
            break
        if wait:
            await team.order.sleep(wait)
    await team.order.admit(agent.name, "response", n)
    agent.count_waste()
    if error is not None:
        raise error
    assert finished is not None
    return finished


async def _try(
    agent: Agent, request: ModelRequest, gate: Gate, n: int, *, refused: bool
) -> tuple[Finished | None, Exception | None, bool]:
    team = agent.team
    bus, publish = team.bus, team.bus.publish
    agent_id = agent.id
    finished: Finished | None = None
    error: Exception | None = None
    shown = False
    live: list[str] = []
    agent.live = live
    await gate.enter(agent.rank, team.slots, refused=refused)
    try:
        try:
            publish(RequestStarted(agent_id, n))
            async for event in agent.model.stream(request):
                kind = type(event)
                if kind is TextDelta:
                    if not shown:
                        shown = True
                        if agent_id:
                            team.talking.add(agent_id)
                    live.append(event.text)
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
        refusal = error if isinstance(error, ModelError) and not team.order.replaying else None
        gate.leave(refusal, answered=finished is not None)
    if finished is None and error is None:
        error = ModelBroken("the model's stream ended without a result")
    return finished, error, shown
