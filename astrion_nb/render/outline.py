"""A conversation laid out for reading: who said what for which purpose, in an order of its own.

The leader's conversation comes first, then each sub-agent's in the order of their numbers: an order
that depends on no scheduling. Every message stands once; a tool's result stands with its call. What
differs from machine to machine or from day to day (times, the conversation's id, the project's path)
is left out or replaced, so that equal conversations read equal, byte for byte.

System prompts are left out, and of a compaction stands only that there was one; other system messages
are kept. Knows no output form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ..envelope import Kind
from ..ids import HUMAN_ID, LEADER_ID
from ..messages import Message, ToolCall, Usage
from ..printable import clean, one_field
from ..state import AgentState, Question, TeamState
from . import reading
from .reading import Said
from .words import Origin, Words, words

Prices = Callable[[str, Usage], float | None]
"""``prices(model_key, usage)``: what a usage cost, or ``None`` where no price is known."""
CUT = 2_000
"""Characters of a tool's arguments, and of its result, that are shown."""
_SHORT = 40
"""Characters up to which an argument is shown beside the tool's name."""


@dataclass(slots=True)
class Call:
    """A tool call with its result; ``reply`` is the answer that an ask brought back."""

    name: str
    short: str
    arguments: str
    result: str | None
    ended: str = ""
    """How it ended, in a word, if it brought nothing."""
    reply: Bubble | None = None


@dataclass(slots=True)
class Bubble:
    """One message: role, purpose, content (message protocol §6).

    Parameters
    ----------
    role : str
        Display name of who speaks.
    number : int
        Who speaks; 0 leader, -1 person.
    kind : str or None
        Envelope kind, which gives the purpose.
    id : str
        The envelope's id, or empty.
    text : str
        Markdown.
    small : bool
        Stored as ``compact``: between agents, not part of the chat.
    notes : tuple of str
        Words beside the purpose: a status, or that the person sent it.
    calls : list of Call
    """

    role: str
    number: int
    kind: Kind | None
    id: str
    text: str
    small: bool = False
    notes: tuple[str, ...] = ()
    calls: list[Call] = field(default_factory=list)
    quiet: bool = False
    """Nobody speaks: ``role`` is a line about the conversation, and all that there is."""
    purpose: str = ""
    """The word for ``kind``, or an empty string."""


@dataclass(slots=True)
class Part:
    """One agent's own conversation and how the agent stands."""

    number: int
    name: str
    status: str
    waits_for: str
    summary: str
    error: str
    ended: str
    """What ``error`` is the reason of, in a word: only of a failure it is an error."""
    usage: Usage
    cost: float | None
    counted: str
    """Tokens and cost, in words; empty when there are none."""
    bubbles: list[Bubble]


@dataclass(slots=True)
class OpenQuestion:
    """A question that waits; ``command`` answers it, empty when that is not the person's to do."""

    id: str
    heading: str
    text: str
    command: str


@dataclass(slots=True)
class Outline:
    """A whole conversation, laid out."""

    words: Words
    banner: str
    leader: Part
    agents: list[Part]
    questions: list[OpenQuestion]
    warnings: list[str]
    run: str
    error: str
    ended: str
    """As for a :class:`Part`."""
    counted: str
    """As for a :class:`Part`, of all."""

    def errors(self, *, each: bool) -> list[str]:
        """Return the run's error and the leader's, with ``each`` every agent's under its name."""
        how = {self.leader.error: self.leader.ended, self.error: self.ended}
        colon = self.words.colon
        errors = [f"{how[error]}{colon}{error}" for error in dict.fromkeys((self.error, self.leader.error)) if error]
        return errors + [f"{part.name}{colon}{part.error}" for part in self.agents if part.error and each]


class _Reader:
    def __init__(self, state: TeamState, hide: Iterable[tuple[str, str]], prices: Prices | None) -> None:
        self.state = state
        self.prices = prices
        self.words = words(state.language)
        pairs = [(state.project_path.rstrip("/\\"), "."), (state.conversation_id, "conversation"), *hide]
        self.hidden = {text: shown for text, shown in pairs if len(text) > 1}
        # The longest first: of two folders one may lie in the other.
        choice = "|".join(re.escape(text) for text in sorted(self.hidden, key=len, reverse=True))
        self.pattern = re.compile(rf"(?<![\w])(?:{choice})(?![\w-]|\.\w)") if choice else None

    def named(self, text: str) -> str:
        """Return a name, or a line that stands beside others."""
        return one_field(self.shown(text))

    def shown(self, text: str) -> str:
        text = clean(text)
        return self.pattern.sub(lambda found: self.hidden[found.group()], text) if self.pattern else text

    def cost(self, agents: Iterable[AgentState]) -> float | None:
        """Return what agents have cost, or ``None`` where a price is not known."""
        if self.prices is None:
            return None
        costs = [self.prices(key, usage) for agent in agents for key, usage in agent.usage.items()]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if costs and len(known) == len(costs) else None

    def spent(self, usage: Usage, cost: float | None) -> str:
        return self.words.spent(usage.total, usage.input, usage.output, cost)

    def error(self, text: str) -> str:
        return self.words.reason(self.shown(text))

    def part(self, agent: AgentState, since: int | None) -> Part:
        cost = self.cost([agent])
        return Part(
            agent.agent_id,
            self.named(agent.display_name),
            self.words.status[agent.detail or agent.status],
            self.waits_for(agent),
            self.named(reading.task(agent)),
            self.error(agent.error),
            self.words.ended.get(agent.detail, self.words.error),
            agent.tokens,
            cost,
            self.spent(agent.tokens, cost),
            [] if since is None else self.bubbles(agent, since),
        )

    def waits_for(self, agent: AgentState) -> str:
        if agent.status != "waiting":
            return ""
        return ", ".join(self.answerer(question) for question in self.questions() if question.asker == agent.agent_id)

    def questions(self) -> list[Question]:
        """Return the open questions in an order that does not depend on who asked first."""
        return sorted(self.state.open_questions(), key=lambda question: (question.asker, question.id))

    def by_person(self, question: Question) -> bool:
        target = question.answerer
        return target == HUMAN_ID or (target == LEADER_ID and self.state.leader == "human")

    def answerer(self, question: Question) -> str:
        return self.words.you if self.by_person(question) else self.named(self.state.name_of(question.answerer))

    def bubbles(self, agent: AgentState, since: int) -> list[Bubble]:
        names = {call.id: call.name for message in agent.messages for call in message.tool_calls}
        results: dict[str, list[int]] = {}
        for index, message in enumerate(agent.messages[since:], since):
            if message.role == "tool":
                results.setdefault(message.tool_call_id or "", []).append(index)
        taken: set[int] = set()
        out: list[Bubble] = []
        opened_by: Kind | None = None
        for index, message in enumerate(agent.messages[since:], since):
            if message.role == "user":
                bubble = self.inserted(agent, message)
                if agent.agent_id != LEADER_ID and message.metadata.get("starts_work"):
                    opened_by = bubble.kind
                out.append(bubble)
            elif message.role == "assistant":
                bubble = self.written(agent, message, opened_by)
                for call in message.tool_calls:
                    later = [at for at in results.get(call.id, ()) if at > index and at not in taken]
                    taken.update(later[:1])
                    bubble.calls.append(self.call(call, agent.messages[later[0]] if later else None))
                if bubble.text or bubble.calls:
                    out.append(bubble)
            elif message.role == "tool":
                if index not in taken:
                    orphan = ToolCall(message.tool_call_id or "", names.get(message.tool_call_id or "", "tool"), "")
                    calls = [self.call(orphan, message)]
                    out.append(Bubble(self.named(agent.display_name), agent.agent_id, None, "", "", calls=calls))
            elif (count := reading.left_out(message)) is not None:
                line = self.words.compacted[min(count, 2)].format(count=count)
                out.append(Bubble(line, LEADER_ID, None, "", "", small=True, quiet=True))
            elif message.content and message.content != agent.system:
                out.append(Bubble(self.words.system, LEADER_ID, None, "", self.shown(message.content), small=True))
        return out

    def inserted(self, agent: AgentState, message: Message) -> Bubble:
        said = reading.inserted(self.state, agent, message)
        small = message.metadata.get("visibility") == "compact"
        if said.kind is None:
            role = self.words.you if said.by == HUMAN_ID else self.words.system
            return Bubble(role, LEADER_ID if said.by is None else said.by, None, "", self.shown(said.text), small)
        notes = (self.words.status.get(said.status, ""), self.words.by_you if said.by_person else "")
        return self.enveloped(said, LEADER_ID, small, tuple(note for note in notes if note))

    def enveloped(self, said: Said, otherwise: int, small: bool, notes: tuple[str, ...] = ()) -> Bubble:
        """Lay out what came in an envelope; ``otherwise`` is whose colour an unknown sender gets."""
        known = self.state.agents.get(said.by) if said.by is not None else None
        role = self.named(known.display_name if known is not None else said.name)
        number = known.agent_id if known is not None else otherwise
        return self.bubble(role, number, said.kind, said.id, self.shown(said.text), small, notes)

    def bubble(
        self,
        role: str,
        number: int,
        kind: Kind | None,
        id: str,
        text: str,
        small: bool = False,
        notes: tuple[str, ...] = (),
    ) -> Bubble:
        purpose = "" if kind is None else self.words.kind[kind]
        return Bubble(role, number, kind, id, text, small, notes, purpose=purpose)

    def written(self, agent: AgentState, message: Message, opened_by: Kind | None) -> Bubble:
        text = self.shown(message.content or "")
        kind = reading.purpose(agent, message, opened_by)
        if not text.strip():
            kind, text = None, ""
        notes = (self.words.broke_off,) if message.metadata.get("truncated") else ()
        return self.bubble(self.named(agent.display_name), agent.agent_id, kind, "", text, notes=notes)

    def call(self, call: ToolCall, answer: Message | None) -> Call:
        short, arguments = self.fields(call.arguments)
        out = Call(" ".join(self.shown(call.name).split()), short, self.cut(arguments), None)
        if answer is None:
            return out
        content = answer.content or ""
        data, reply = reading.result(self.state, content)
        if fate := reading.fate(self.state, data):
            out.ended = self.words.status.get(fate, self.words.refused)
        if reply is not None:
            out.reply = self.enveloped(reply, LEADER_ID, small=True)
            content = json.dumps(data, ensure_ascii=False)
        out.result = self.cut(self.fields(content)[1])
        return out

    def fields(self, text: str) -> tuple[str, str]:
        """Return a JSON object's short values on one line, and all of it, one key a line."""
        try:
            data = json.loads(text) if text else {}
            if not isinstance(data, dict):
                return "", self.shown(text)
            values = {
                key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                for key, value in data.items()
            }
        except (ValueError, RecursionError):
            return "", self.shown(text)
        short: list[str] = []
        lines: list[str] = []
        for key, value in values.items():
            name, value = self.shown(key if key.isprintable() else json.dumps(key)), self.shown(value)
            if "\n" in value:
                lines += [f"{name}:", *("  " + line for line in value.split("\n"))]
                continue
            lines.append(f"{name}: {value}")
            if len(value) <= _SHORT:
                short.append(f"{name}: {value}")
        return " · ".join(short)[: 2 * _SHORT], "\n".join(lines)

    def cut(self, text: str) -> str:
        if len(text) <= CUT:
            return text
        return text[:CUT] + "\n" + self.words.cut.format(shown=CUT, total=len(text))


def lay_out(
    state: TeamState,
    *,
    origin: Origin = "live",
    since: Mapping[int, int] | None = None,
    hide: Iterable[tuple[str, str]] = (),
    messages: bool = True,
    prices: Prices | None = None,
) -> Outline:
    """Lay a conversation out for reading.

    Parameters
    ----------
    state : TeamState
        Read, never changed.
    origin : str
        Who answered; anything but ``live`` gives a banner.
    since : mapping, optional
        Agent number → number of its messages to leave out, for a run that continues a conversation
        already shown. An agent with nothing new is left out.
    hide : iterable of (str, str)
        Further texts to replace, such as a home folder, and what to show for them. The project's
        path and the conversation's id are replaced always.
    messages : bool
        Whether to lay out what was said; without, only how the agents stand.
    prices : callable, optional
        What tokens cost; without it nothing is said about costs.
    """
    reader = _Reader(state, hide, prices)
    text = reader.words
    shown = since or {}

    def part(agent: AgentState) -> Part:
        return reader.part(agent, shown.get(agent.agent_id, 0) if messages else None)

    leader = state.agents.get(LEADER_ID) or AgentState(LEADER_ID, "", "", "Team Leader", 0, "tl")
    members = [
        part(agent)
        for agent in state.members()
        if agent.agent_id not in shown or len(agent.messages) > shown[agent.agent_id]
    ]
    questions = [
        OpenQuestion(
            question.id,
            text.asks.format(
                asker=text.you if question.asker == HUMAN_ID else reader.shown(state.name_of(question.asker)),
                target=reader.answerer(question),
            ),
            reader.shown(question.content),
            f"%answer {question.id} {text.reply_text}" if reader.by_person(question) else "",
        )
        for question in reader.questions()
    ]
    return Outline(
        text,
        text.origin.get(origin, ""),
        part(leader),
        members,
        questions,
        [reader.shown(warning) for warning in state.warnings],
        text.run.get(state.run_status, ""),
        reader.error(state.run_error),
        text.ended.get(state.run_status, text.error),
        reader.spent(state.usage(), reader.cost(state.agents.values())),
    )
