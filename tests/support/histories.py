"""Random but lawful histories of a conversation, and what two states have in common.

A history is what a running team could have published: messages leave a mailbox only when they are
in it, questions hang on open calls, answers on open questions.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import strategies as st

from astrion_nb import events as ev
from astrion_nb.ids import LEADER_ID
from astrion_nb.messages import Message, ToolCall
from astrion_nb.state import TeamState, apply

START = 1_783_774_800.25
"""When histories begin; each event is 0.75 s later than the one before."""

STEPS = (
    *("create", "queue", "drain", "say", "answer_call", "call", "status", "ask", "answer", "close", "remind"),
    *("pass", "keep", "warn", "usage", "run", "end", "file"),
)

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8)
values = st.recursive(
    scalars | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
steps = st.lists(
    st.tuples(st.sampled_from(STEPS), st.integers(0, 50), st.text(max_size=30), values), min_size=1, max_size=45
)


def time_of(seq: int) -> float:
    """Return when the event of a number happens."""
    return START + 0.75 * seq


def build(choices: list[tuple[str, int, str, Any]], conversation_id: str = "conv_test") -> list[ev.Stamped]:
    """Turn a list of choices into a history; a choice that is not possible where it stands is passed over."""
    state = TeamState()
    out: list[ev.Stamped] = []

    def publish(event: ev.Event) -> None:
        seq = state.seq + 1
        apply(state, event, seq=seq, t=time_of(seq))
        out.append(ev.Stamped(seq, time_of(seq), event))

    publish(
        ev.ConversationStarted(conversation_id, "标题", "/work", "qwen3-max", "thinking", "model", "zh", "你是 Leader")
    )
    for step, number, text, value in choices:
        _step(state, publish, step, number, text, value)
    return out


def _step(state: TeamState, publish: Any, step: str, number: int, text: str, value: Any) -> None:
    agents = sorted(state.agents)
    agent = state.agents[agents[number % len(agents)]]
    who = agent.agent_id
    open_questions = state.open_questions()
    question = open_questions[number % len(open_questions)] if open_questions else None
    if step == "create":
        new = max(agents) + 1 + number % 2
        publish(
            ev.AgentCreated(
                new,
                "ui-operator",
                "UI Operator",
                f"UI Operator_{new}",
                new,
                "uio",
                "m",
                "fast",
                text,
                600.0,
                False,
                text,
            )
        )
    elif step == "queue":
        kinds: list[ev.ItemKind] = ["task", "progress", "completion", "ask", "message"]
        kind = kinds[number % 5]
        prefix = {"task": "task", "progress": "out", "completion": "out", "ask": "ask"}.get(kind, "msg")
        envelope_id = state.ids.free(prefix, "" if kind == "task" else "uio")
        sender = None if number % 3 else max(agents)
        publish(
            ev.MessageQueued(
                who,
                ev.PendingMessage(
                    envelope_id, kind, "某人", sender, text, 1752251700.0 + number, "sub_agent", bool(number % 2)
                ),
            )
        )
    elif step in ("drain", "say", "call") and agent.open_calls:
        return  # a conversation goes on when every call has its result
    elif step == "drain" and agent.pending:
        item = agent.pending[0]
        kind_of_id = "auto" if who == LEADER_ID else "user"
        metadata = {"message_source": item.source, "envelope_id": item.id, "note": value}
        message = Message("user", item.content, agent.next_message_id(kind_of_id), metadata=metadata)
        publish(ev.MessageAppended(who, message, item.id))
    elif step == "say":
        usage = {"input": number, "output": 2, "total": number + 2}
        message = Message("assistant", text, agent.next_message_id("assistant"), metadata={"usage": usage})
        publish(ev.MessageAppended(who, message))
    elif step == "call":
        calls = tuple(ToolCall(f"call_{state.seq}_{n}", "ask_master", text) for n in range(1 + number % 3))
        extra = {"未知": value} if number % 2 else {}
        message = Message("assistant", None, agent.next_message_id("assistant"), calls, extra=extra)
        publish(ev.MessageAppended(who, message))
    elif step == "answer_call" and agent.open_calls:
        waiting = {question.call_id for question in open_questions}
        call_id = next((call_id for call_id in agent.open_calls if call_id not in waiting), None)
        if call_id is None:
            return  # the answer comes first
        publish(ev.MessageAppended(who, Message("tool", text, agent.next_message_id("tool"), (), call_id)))
    elif step == "status":
        words: list[ev.Status] = ["running", "waiting", "idle", "completed", "terminated"]
        publish(ev.StatusChanged(who, words[number % 5], "failed" if number % 5 == 2 else "", text))
    elif step == "ask" and agent.open_calls and who != LEADER_ID:  # nobody asks himself
        call_id = next(iter(agent.open_calls))
        publish(ev.QuestionAsked(state.ids.free("ask", "uio"), who, LEADER_ID, text, call_id, "ask_master"))
    elif step == "answer" and question is not None:
        publish(ev.QuestionAnswered(question.id, LEADER_ID, state.ids.free("ans", "tl"), text))
    elif step == "close" and question is not None:
        publish(ev.QuestionClosed(question.id, text))
    elif step == "remind" and question is not None:
        publish(ev.QuestionReminded(question.id))
    elif step == "pass" and question is not None:
        publish(ev.QuestionPassed(question.id))
    elif step == "keep":
        publish(ev.AnswerKept(f"ask_early_{number}", max(agents), LEADER_ID, text))
    elif step == "warn":
        publish(ev.Warned(text))
    elif step == "usage":
        publish(ev.UsageCounted(who, ev.Usage(number, 1, number // 2, 0)))
    elif step == "file":
        publish(ev.ConversationFiled(text if number % 2 else None, None if number % 3 else bool(number % 4)))
    elif step == "run":
        publish(ev.RunStarted(state.run + 1, text))
    elif step == "end":
        publish(ev.RunEnded(state.run, "completed", text))


def replay(history: list[ev.Stamped]) -> TeamState:
    """Return the state after a history."""
    state = TeamState()
    for stamped in history:
        apply(state, stamped.event, seq=stamped.seq, t=stamped.t)
    return state


def facts(state: TeamState) -> dict[str, Any]:
    """Return all of a state in comparable form; times of documents count in whole seconds (decision 26)."""
    out = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
    out["ids"] = set(state.ids._taken)
    out["questions"] = [dataclasses.asdict(question) for question in state.questions.values()]
    out["kept"] = dict(state.kept)
    out["warnings"] = list(state.warnings)
    out["agents"] = {}
    for number, agent in state.agents.items():
        held = {field.name: getattr(agent, field.name) for field in dataclasses.fields(agent)}
        for name in ("messages", "pending"):
            held[name] = list(held[name])
        for name in ("open_calls", "usage", "extra"):
            held[name] = dict(held[name])
        for name in ("created_at", "updated_at"):
            held[name] = int(held[name])
        out["agents"][number] = held
    for name in ("created_at", "updated_at"):
        out[name] = int(out[name])
    return out


def prefixes(history: list[ev.Stamped]) -> list[dict[str, Any]]:
    """Return the facts after 0, 1, 2, … events."""
    state = TeamState()
    out = [facts(state)]
    for stamped in history:
        apply(state, stamped.event, seq=stamped.seq, t=stamped.t)
        out.append(facts(state))
    return out
