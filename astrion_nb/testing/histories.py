"""What the events of a conversation promise, as pure functions over what was published.

Each takes the events in their order and returns the faults it finds, a line per fault; none means
that the promise holds. Events that begin with ``ConversationStarted`` are a whole history; others
are a later part of one, as after a conversation was opened again, and what happened before it is
taken as given. Knows values only: no runtime, no file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields

from ..events import (
    FLEETING,
    AgentCreated,
    ApprovalAsked,
    ApprovalGiven,
    ConversationStarted,
    Event,
    MessageAppended,
    MessageQueued,
    QuestionAnswered,
    QuestionAsked,
    QuestionClosed,
    RunEnded,
    RunStarted,
    Stamped,
    StatusChanged,
    scope,
)
from ..ids import LEADER_ID
from ..messages import Usage
from ..state import TeamState, apply
from ..status import NEW, Standing, allowed, shown

Events = Sequence[Stamped]


def is_whole(events: Events) -> bool:
    """Say whether the events begin where the conversation began."""
    return bool(events) and isinstance(events[0].event, ConversationStarted)


def _facts(events: Events) -> Iterator[tuple[int, Event]]:
    for stamped in events:
        if not isinstance(stamped.event, FLEETING):
            yield stamped.seq, stamped.event


def numbers_have_no_gaps(events: Events) -> list[str]:
    """Stored events are numbered without a gap, and none is numbered twice."""
    faults, last = [], 0 if is_whole(events) else None
    for seq, event in _facts(events):
        if last is not None and seq != last + 1:
            faults.append(f"event {seq} ({event.tag}) follows event {last}")
        last = seq
    return faults


def statuses_follow_the_machine(events: Events) -> list[str]:
    """An agent's status changes only as the machine says (decision 19, :mod:`astrion_nb.status`)."""
    faults = []
    standings: dict[int, Standing] = {}
    for seq, event in _facts(events):
        if isinstance(event, ConversationStarted):
            standings[LEADER_ID] = NEW
        elif isinstance(event, AgentCreated):
            standings[event.agent_id] = NEW
        elif isinstance(event, StatusChanged):
            after: Standing = (event.status, event.detail)
            before = standings.get(event.agent_id)
            if before is not None and not allowed(before, after):
                faults.append(f"event {seq}: agent {event.agent_id} went from {shown(before)} to {shown(after)}")
            if event.error and not event.detail:
                faults.append(f"event {seq}: agent {event.agent_id} is {shown(after)}, and has an error: {event.error}")
            standings[event.agent_id] = after
    return faults


def order_per_pair_kept(events: Events) -> list[str]:
    """Who gets two messages reads them in the order they came, so in the order each sender sent them (decision 12)."""
    faults = []
    waiting: dict[int, list[str]] = {}
    for seq, event in _facts(events):
        if isinstance(event, MessageQueued):
            waiting.setdefault(event.agent_id, []).append(event.item.id)
        elif isinstance(event, MessageAppended) and event.drained:
            queue = waiting.get(event.agent_id, [])
            if event.drained in queue:
                place = queue.index(event.drained)
                if place:
                    faults.append(f"event {seq}: agent {event.agent_id} read {event.drained} before {queue[0]}")
                del queue[place]
    return faults


def delivered_exactly_once(events: Events) -> list[str]:
    """An envelope enters one mailbox once and leaves it once, into its owner's conversation (decision 28)."""
    faults = []
    queued: dict[str, int] = {}
    drained: set[str] = set()
    whole = is_whole(events)
    for seq, event in _facts(events):
        if isinstance(event, MessageQueued):
            if event.item.id in queued:
                faults.append(f"event {seq}: {event.item.id} entered a mailbox twice")
            queued[event.item.id] = event.agent_id
        elif isinstance(event, MessageAppended) and event.drained:
            if event.drained in drained:
                faults.append(f"event {seq}: {event.drained} was read twice")
            elif whole and queued.get(event.drained) != event.agent_id:
                faults.append(f"event {seq}: agent {event.agent_id} read {event.drained}, which was not in its mailbox")
            drained.add(event.drained)
    return faults


def no_envelope_after_terminate(events: Events) -> list[str]:
    """A terminated agent gets, says, asks and becomes nothing more; only its end is told, once (decision 22)."""
    faults = []
    gone: set[int] = set()
    told: set[int] = set()
    for seq, event in _facts(events):
        touched = scope(event)
        if touched in gone:
            faults.append(f"event {seq}: agent {touched} is terminated, and {event.tag} happened to it")
        if isinstance(event, StatusChanged) and event.status == "terminated":
            gone.add(event.agent_id)
        elif isinstance(event, MessageQueued) and event.item.sender_id in gone:
            sender = event.item.sender_id
            if event.item.status != "terminated" or sender in told:
                faults.append(f"event {seq}: agent {sender} is terminated, and sent {event.item.id}")
            told.add(sender)
        elif isinstance(event, QuestionAsked) and {event.asker, event.target} & gone:
            faults.append(f"event {seq}: {event.question_id} was asked by or of a terminated agent")
        elif isinstance(event, QuestionAnswered) and event.by in gone:
            faults.append(f"event {seq}: agent {event.by} is terminated, and answered {event.question_id}")
    return faults


def no_failure_is_told_as_a_completion(events: Events) -> list[str]:
    """A completion is told by who completed; who failed, timed out or was stopped is told as that (decision 9)."""
    faults = []
    standings: dict[int, Standing] = {}
    claimed: dict[int, str] = {}
    for seq, event in _facts(events):
        if isinstance(event, AgentCreated):
            standings[event.agent_id] = NEW
        elif isinstance(event, StatusChanged):
            standings[event.agent_id] = standing = (event.status, event.detail)
            claim = claimed.pop(event.agent_id, None)
            if claim is not None and event.status != "completed":
                faults.append(f"event {seq}: agent {event.agent_id} told {claim} and became {shown(standing)}")
        elif isinstance(event, MessageQueued) and event.item.sender_id is not None:
            item = event.item
            sender = event.item.sender_id
            now = standings.get(sender)
            if item.kind == "completion":
                claimed[sender] = item.id
                if item.status or (now is not None and now[0] != "running"):
                    faults.append(f"event {seq}: {item.id} tells a completion of agent {sender}, which was {now}")
            elif item.status and now is not None and item.status not in now:
                faults.append(f"event {seq}: {item.id} says {item.status}, agent {sender} is {shown(now)}")
    return faults


def questions_end_once(events: Events) -> list[str]:
    """A question is asked once and ends at most once: answered, or closed with a reason (decisions 4, 15)."""
    faults = []
    asked: set[str] = set()
    ended: set[str] = set()
    whole = is_whole(events)
    for seq, event in _facts(events):
        if isinstance(event, QuestionAsked | ApprovalAsked):
            if event.question_id in asked:
                faults.append(f"event {seq}: {event.question_id} was asked twice")
            asked.add(event.question_id)
        elif isinstance(event, QuestionAnswered | QuestionClosed | ApprovalGiven):
            if event.question_id in ended:
                faults.append(f"event {seq}: {event.question_id} ended twice")
            if whole and event.question_id not in asked:
                faults.append(f"event {seq}: {event.question_id} ended and was never asked")
            ended.add(event.question_id)
    return faults


def runs_begin_and_end_in_turn(events: Events) -> list[str]:
    """A run begins when none goes on, is numbered on from the last, and ends once (decision 14)."""
    faults = []
    run: int | None = 0 if is_whole(events) else None
    running = False
    for seq, event in _facts(events):
        if isinstance(event, RunStarted):
            if running or (run is not None and event.run != run + 1):
                faults.append(f"event {seq}: run {event.run} began {'within' if running else 'after'} run {run}")
            run, running = event.run, True
        elif isinstance(event, RunEnded):
            if run is not None and (event.run != run or not running):
                faults.append(f"event {seq}: run {event.run} ended, which did not go on")
            run, running = event.run, False
    return faults


def usage_is_the_sum_of_requests(state: TeamState, events: Events = ()) -> list[str]:
    """Tokens are counted once per request: a team's are its agents', an agent's those of its responses and tries.

    From the state alone, an agent's tokens are at least those of its stored responses.
    """
    faults = []
    counted: Counter[int] = Counter()
    for _, event in _facts(events):
        number = scope(event)
        if number is not None:
            used = event.message.metadata.get("usage") if isinstance(event, MessageAppended) else None
            usage = getattr(event, "usage", None) or Usage.from_json(used)
            counted[number] += usage.total if usage is not None else 0
    for number, agent in state.agents.items():
        stored = (Usage.from_json(message.metadata.get("usage")) for message in agent.messages)
        least = sum(usage.total for usage in stored if usage is not None)
        if agent.tokens.total < least:
            faults.append(f"{agent.display_name}: {agent.tokens.total} tokens, its responses alone had {least}")
        if is_whole(events) and agent.tokens.total != counted[number]:
            faults.append(f"{agent.display_name}: {agent.tokens.total} tokens, its requests had {counted[number]}")
    total = sum(agent.tokens.total for agent in state.agents.values())
    if state.usage().total != total:
        faults.append(f"the team has {state.usage().total} tokens, its agents {total}")
    return faults


def the_state_is_what_happened(state: TeamState, events: Events) -> list[str]:
    """A whole history, applied again, gives the very state: what is loaded is what was (decision 27)."""
    if not is_whole(events):
        return []
    again = TeamState()
    for stamped in events:
        if not isinstance(stamped.event, FLEETING):
            apply(again, stamped.event, seq=stamped.seq, t=stamped.t)
    faults = [
        f"{field.name} differs from what the events say"
        for field in fields(TeamState)
        if field.name not in ("ids", "agents") and getattr(state, field.name) != getattr(again, field.name)
    ]
    for number in state.agents.keys() | again.agents.keys():
        mine, its = state.agents.get(number), again.agents.get(number)
        if mine is None or its is None:
            faults.append(f"agent {number} is not in {'the state' if mine is None else 'the events'}")
        elif mine != its:
            differing = [field.name for field in fields(mine) if getattr(mine, field.name) != getattr(its, field.name)]
            faults.append(f"{mine.display_name}: {', '.join(differing)} differ from what the events say")
    return faults
