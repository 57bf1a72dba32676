"""What holds of every conversation, whatever happened to it: invariants with names.

::

    from astrion_nb.testing.invariants import check

    check(state)                       # of a state that was loaded
    check(state, events)               # and of the events that were published
    check(team.state, events, team)    # and of a running team, between two of its steps

Each invariant is a function whose docstring is the promise; it returns a line per fault. ``check``
runs all that can be run on what it is given, and raises an ``AssertionError`` that names the
invariant and the place. A step of a team may publish several events; what is said here about the
state holds when the step is done, and of a stored conversation when it was opened. Those of
:data:`ALWAYS` hold after every single event, and of whatever a kill leaves.

Knows values only; of a running team, the public one or its runtime, it reads who has a task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from ..app.observed import Observed
from ..envelope import parse
from ..errors import EnvelopeError
from ..ids import LEADER_ID
from ..state import AgentState, TeamState
from ..status import STANDINGS, shown
from .histories import (
    Events,
    delivered_exactly_once,
    no_envelope_after_terminate,
    no_failure_is_told_as_a_completion,
    numbers_have_no_gaps,
    order_per_pair_kept,
    questions_end_once,
    runs_begin_and_end_in_turn,
    statuses_follow_the_machine,
    the_state_is_what_happened,
    usage_is_the_sum_of_requests,
)

__all__ = [
    "ALWAYS",
    "SETTLED",
    "calls_and_results_pair",
    "check",
    "delivered_exactly_once",
    "envelopes_say_what_is_known_of_them",
    "faults_of",
    "ids_unique",
    "no_envelope_after_terminate",
    "no_failure_is_told_as_a_completion",
    "no_running_without_a_task",
    "nobody_waits_for_who_cannot_answer",
    "nothing_lost_or_doubled",
    "numbers_have_no_gaps",
    "open_calls_are_those_without_a_result",
    "open_questions_reach_their_target",
    "order_per_pair_kept",
    "questions_end_once",
    "runs_begin_and_end_in_turn",
    "standings_are_known",
    "statuses_follow_the_machine",
    "the_state_is_what_happened",
    "usage_is_the_sum_of_requests",
    "waiting_means_an_open_question",
    "waits_form_no_circle",
    "what_waits_is_what_is_open",
    "work_means_a_run",
]


def _twice(items: Counter[str]) -> list[str]:
    return sorted(item for item, count in items.items() if count > 1)


def ids_unique(state: TeamState) -> list[str]:
    """Every id is given once: stored messages and tool calls within a file, names and answers in a conversation."""
    faults = []
    for agent in state.agents.values():
        messages = Counter(message.message_id for message in agent.messages if message.message_id)
        calls = Counter(call.id for message in agent.messages for call in message.tool_calls)
        faults += [f"{agent.display_name}: two messages are {doubled}" for doubled in _twice(messages)]
        faults += [f"{agent.display_name}: two calls are {doubled}" for doubled in _twice(calls)]
    names = Counter(agent.display_name.casefold() for agent in state.agents.values())
    faults += [f"two agents are {doubled}" for doubled in _twice(names)]
    answers = Counter(question.answer_id for question in state.questions.values() if question.answer_id)
    faults += [f"two answers are {doubled}" for doubled in _twice(answers)]
    faults += [f"{shared} is a question and an answer" for shared in sorted(answers.keys() & state.questions.keys())]
    return faults


def nothing_lost_or_doubled(state: TeamState) -> list[str]:
    """An envelope is in one place only: read by one agent, or in one mailbox; an open question is in one (decision 28).

    With :func:`delivered_exactly_once` over the events: none is lost.
    """
    faults = []
    places: dict[str, list[str]] = {}
    for agent in state.agents.values():
        for item in agent.pending:
            places.setdefault(item.id, []).append(f"the mailbox of {agent.display_name}")
        for message in agent.messages:
            if envelope_id := message.metadata.get("envelope_id"):
                places.setdefault(envelope_id, []).append(f"the conversation of {agent.display_name}")
    faults += [
        f"{envelope_id} is in {' and in '.join(where)}" for envelope_id, where in places.items() if len(where) > 1
    ]
    return faults


def what_waits_is_what_is_open(state: TeamState) -> list[str]:
    """The questions that are known to be waited for are exactly those that are neither answered nor closed."""
    is_open = {question.id: question for question in state.questions.values() if question.status == "open"}
    odd = sorted(is_open.keys() ^ state.waits.keys())
    odd += sorted(name for name in is_open.keys() & state.waits.keys() if is_open[name] is not state.waits[name])
    return [f"{name} is open in one place and not in the other" for name in odd]


def open_questions_reach_their_target(state: TeamState) -> list[str]:
    """A question that somebody waits for has reached the agent it was put to: read, or in its mailbox (decision 15)."""
    faults = []
    for question in state.open_questions():
        target = state.agents.get(question.target)
        if target is None or (question.target == LEADER_ID and state.leader == "human"):
            continue
        reached = any(item.id == question.id for item in target.pending) or any(
            message.metadata.get("envelope_id") == question.id for message in target.messages
        )
        if not reached:
            faults.append(f"{question.id} was put to {target.display_name}, and is nowhere there")
    return faults


def calls_and_results_pair(state: TeamState) -> list[str]:
    """Every tool call has one result, right behind the response that made it; only the last may miss some (29)."""
    faults = []
    for agent in state.agents.values():
        missing: list[str] = []
        for message in agent.messages:
            if message.role == "tool":
                if message.tool_call_id in missing:
                    missing.remove(message.tool_call_id)
                else:
                    faults.append(f"{agent.display_name}: {message.message_id} is the result of no call before it")
                continue
            if missing:
                where = message.message_id or message.role
                faults.append(f"{agent.display_name}: {where} comes before the result of {', '.join(missing)}")
            missing = [call.id for call in message.tool_calls]
    return faults


def open_calls_are_those_without_a_result(state: TeamState) -> list[str]:
    """The open calls of an agent are exactly the calls of its conversation that have no result (decision 27)."""
    faults = []
    for agent in state.agents.values():
        results = {message.tool_call_id for message in agent.messages if message.role == "tool"}
        made = {call.id for message in agent.messages for call in message.tool_calls}
        if made - results != agent.open_calls.keys():
            odd = sorted((made - results) ^ agent.open_calls.keys())
            faults.append(f"{agent.display_name}: {', '.join(odd)} is open in one place and not in the other")
    return faults


def envelopes_say_what_is_known_of_them(state: TeamState) -> list[str]:
    """Every stored envelope can be read, and its text says the id that is stored beside it (decisions 6, 7, 9)."""
    faults = []
    for agent in state.agents.values():
        for message in agent.messages:
            envelope_id = message.metadata.get("envelope_id")
            if message.role != "user" or envelope_id is None:
                continue
            try:
                said = parse(message.content or "").id
            except EnvelopeError as error:
                faults.append(f"{agent.display_name}: {message.message_id} is no envelope: {error}")
                continue
            if said != envelope_id:
                faults.append(f"{agent.display_name}: {message.message_id} says {said}, stored is {envelope_id}")
    return faults


def standings_are_known(state: TeamState) -> list[str]:
    """A status is one of the five words, and has a detail only where it is idle (decision 19)."""
    return [
        f"{agent.display_name} is {shown((agent.status, agent.detail))}"
        for agent in state.agents.values()
        if (agent.status, agent.detail) not in STANDINGS
    ]


def waits_form_no_circle(state: TeamState) -> list[str]:
    """Nobody waits, through however many others, the leader and the person included, for itself (decisions 17, 56)."""
    edges: dict[int, set[int]] = {}
    for question in state.open_questions():
        edges.setdefault(question.asker, set()).add(question.answerer)
    faults = []
    for start in edges:
        reached, stack = set[int](), list(edges[start])
        while stack:
            node = stack.pop()
            if node not in reached:
                reached.add(node)
                stack += edges.get(node, ())
        if start in reached:
            faults.append(f"{state.name_of(start)} waits for itself, among {sorted(map(state.name_of, reached))}")
    return faults


def waiting_means_an_open_question(state: TeamState) -> list[str]:
    """An agent is shown waiting exactly when a question of its is open (decisions 17, 19)."""
    askers = {question.asker: question.id for question in state.open_questions()}
    faults = []
    for number, agent in state.agents.items():
        if (agent.status == "waiting") != (number in askers):
            why = f"{askers[number]} of its is open" if number in askers else "no question of its is open"
            faults.append(f"{agent.display_name} is {agent.status}, and {why}")
    return faults


def nobody_waits_for_who_cannot_answer(state: TeamState) -> list[str]:
    """An open question is that of an open call, and put to somebody who can still answer it (decisions 22, 55).

    While no run goes on, who was asked before the program ended may rest: the next run takes it up.
    """
    faults = []
    for question in state.open_questions():
        asker, answerer = state.agents.get(question.asker), state.agents.get(question.answerer)
        if asker is not None and question.call_id and question.call_id not in asker.open_calls:
            faults.append(f"{question.id} is open, and {asker.display_name} has no open call {question.call_id}")
        if answerer is not None and _cannot_answer(answerer, question.id, running=state.run_status == "running"):
            how = shown((answerer.status, answerer.detail))
            faults.append(f"{question.id} waits for {answerer.display_name}, which is {how}")
    return faults


def _cannot_answer(agent: AgentState, question_id: str, *, running: bool) -> bool:
    if agent.status == "terminated":
        return True
    rests = agent.status == "completed" or agent.detail in ("failed", "timed_out", "stopped")
    return running and rests and not any(item.id == question_id for item in agent.pending)


def work_means_a_run(state: TeamState) -> list[str]:
    """While a run goes on somebody works or waits, and who works belongs to one (decision 14).

    An agent that got its answer while no run went on begins one as soon as its call has the result.
    """
    at_work = [agent for agent in state.agents.values() if agent.status in ("running", "waiting")]
    if state.run_status == "running":
        return [] if at_work else [f"run {state.run} goes on, and everybody rests"]
    return [
        f"{agent.display_name} is running, and no run goes on"
        for agent in at_work
        if agent.status == "running" and not agent.open_calls
    ]


def _tasks_of(team: Any) -> Mapping[int, Any]:
    """Return the running agents of a team, the public one or its runtime, by number."""
    if isinstance(team, Observed):
        opened = team._opened
        return opened.runtime.agents if opened is not None else {}
    agents: Mapping[int, Any] = team.agents
    return agents


def no_running_without_a_task(state: TeamState, runtime: Any) -> list[str]:
    """Who is shown running has a live task, and who has one is shown at work (decision 19).

    Of a task that was cancelled from outside the team hears on the loop's next pass.
    """
    faults = []
    known = _tasks_of(runtime)
    for number, agent in state.agents.items():
        running = known.get(number)
        task = running.task if running is not None else None
        alive = task is not None and (task.cancelled() or not task.done())
        if agent.status == "running" and not alive:
            faults.append(f"{agent.display_name} is running without a task")
        if alive and agent.status not in ("running", "waiting") and not agent.open_calls:
            faults.append(f"{agent.display_name} has a task and is {shown((agent.status, agent.detail))}")
    return faults


OfState = Callable[[TeamState], list[str]]
OfEvents = Callable[[Events], list[str]]

ALWAYS: tuple[OfState, ...] = (
    ids_unique,
    nothing_lost_or_doubled,
    calls_and_results_pair,
    open_calls_are_those_without_a_result,
    envelopes_say_what_is_known_of_them,
    standings_are_known,
    waits_form_no_circle,
    what_waits_is_what_is_open,
)
"""Invariants of a state that hold after every event."""
SETTLED: tuple[OfState, ...] = (
    open_questions_reach_their_target,
    waiting_means_an_open_question,
    nobody_waits_for_who_cannot_answer,
    work_means_a_run,
)
"""Invariants of a state that hold between two steps, and of a stored conversation once it was opened."""
OF_EVENTS: tuple[OfEvents, ...] = (
    numbers_have_no_gaps,
    statuses_follow_the_machine,
    order_per_pair_kept,
    delivered_exactly_once,
    no_envelope_after_terminate,
    no_failure_is_told_as_a_completion,
    questions_end_once,
    runs_begin_and_end_in_turn,
)
"""Invariants of what was published."""


def faults_of(state: TeamState, events: Events = (), runtime: Any = None, *, settled: bool = True) -> list[str]:
    """Return everything that does not hold, a line each: the invariant, the place. See :func:`check`."""
    found = [(rule.__name__, fault) for rule in ALWAYS for fault in rule(state)]
    if settled:
        found += [(rule.__name__, fault) for rule in SETTLED for fault in rule(state)]
    found += [(rule.__name__, fault) for rule in OF_EVENTS for fault in rule(events)] if events else []
    for both in (usage_is_the_sum_of_requests, the_state_is_what_happened):
        found += [(both.__name__, fault) for fault in both(state, events)]
    if runtime is not None and settled:
        rule = no_running_without_a_task
        found += [(rule.__name__, fault) for fault in rule(state, runtime)]
    return [f"{name}: {fault}" for name, fault in found]


def check(state: TeamState, events: Events = (), runtime: Any = None, *, settled: bool = True) -> None:
    """Check every invariant that can be checked on what is given.

    Parameters
    ----------
    state : TeamState
    events : sequence of Stamped, optional
        What was published, in order: the whole history, or all since the conversation was opened.
    runtime : Team or TeamRuntime, optional
        The running team, to compare what is shown with the tasks there are.
    settled : bool
        Whether the team is between two steps, or the conversation was opened: else only what holds
        after every event is checked, as of what a kill left before it is opened.

    Raises
    ------
    AssertionError
        Names each invariant that does not hold, and where.
    """
    faults = faults_of(state, events, runtime, settled=settled)
    if faults:
        raise AssertionError("\n".join(faults))
