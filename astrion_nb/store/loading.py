"""Reading a conversation back: documents first, then the journal on top.

Each document says in ``seq`` up to which event it speaks, and each event touches one scope: an
agent's two documents, or the conversation's own two. A scope is rebuilt from the older of its
documents by the events that followed; when the point is reached at which the younger one was
written, that one's part is taken from it as it stands. So every mixture of old and new documents
with the journal gives the same state. What no team of ours can have written is mended by
``store.mending`` and told in the log. Knows no lock and no writing.

Source: data model §4–§7, decisions 28–31.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .. import ids
from ..disk import Files, reason
from ..errors import ConversationBroken, ConversationNotFound, StorageError
from ..events import ConversationStarted, Stamped, scope
from ..given import shown
from ..ids import LEADER_ABBREVIATION, LEADER_ID, LEADER_NAME
from ..messages import Message
from ..state import AgentState, TeamState, apply
from . import documents as docs
from . import forms, reading
from .json_form import read_document
from .lines import read_journal
from .mending import count, envelope_id_of, mend
from .saving import Loaded
from .version import SCHEMA_VERSION, check_version

Part = tuple[int, Callable[[], None]]
"""A document's ``seq``, and what puts its part into the state."""

_log = logging.getLogger("astrion_nb.store")

_STATUSES = ("running", "waiting", "idle", "completed", "terminated")
_RUN_STATUSES = ("", "running", "completed", "failed", "stopped", "timed_out", "interrupted")
_DETAILS = ("", "failed", "timed_out", "stopped", "interrupted")


def load(folder: Path, files: Files) -> Loaded:
    """Read a conversation.

    Parameters
    ----------
    folder : Path
        ``conversations/<id>``.
    files : Files

    Raises
    ------
    ConversationNotFound
        There is no such folder, or nothing in it.
    ConversationBroken
        A file cannot be read; file and place are named.
    StorageError
        The system refuses to read.
    """
    collecting = gc.isenabled()
    gc.disable()  # nothing of what is being read is garbage, and looking for it takes half of the time
    try:
        return _load(folder, files)
    finally:
        if not gc.get_freeze_count():  # else somebody keeps objects there, and they are to stay
            gc.freeze()  # what was read is old at once: the next small collections pass it over
            gc.unfreeze()
        if collecting:
            gc.enable()


def _load(folder: Path, files: Files) -> Loaded:
    # The journal first: were documents written meanwhile, they would only be newer than needed.
    events, journal_size = read_journal(folder / docs.JOURNAL, files)
    by_scope: dict[int | None, list[Stamped]] = {}
    for stamped in events:
        by_scope.setdefault(scope(stamped.event), []).append(stamped)
    reader = _Reader(folder, files)
    reader.own(by_scope.pop(None, []))
    updated_at = reader.state.updated_at
    reader.leader(by_scope.pop(LEADER_ID, []))
    found = reader.agent_folders()
    for number in sorted(found | {number for number in by_scope if number is not None}):
        reader.agent(number, by_scope.get(number, []))
    state = reader.state
    for number, note in mend(state, reader.asked):
        _log.warning("%s, agent %d, was mended while it was read: %s", folder, number, note)
    state.seq = max(state.own_seq, *(agent.seq for agent in state.agents.values()))
    state.updated_at = max(updated_at, *(agent.updated_at for agent in state.agents.values()))
    _take_ids(state)
    return Loaded(state, journal_size, reader.written, reader.sizes)


def _take_ids(state: TeamState) -> None:
    """Rebuild the book of used ids from everything that carries one."""
    take = state.ids.take
    for agent in state.agents.values():
        delivered: set[str] = set()
        for message in agent.messages:
            metadata = message.metadata
            envelope_id = metadata.get("envelope_id") if metadata else None
            if not envelope_id:
                envelope_id = envelope_id_of(message) if message.role == "user" else None
            if isinstance(envelope_id, str):
                delivered.add(envelope_id)
                take(envelope_id)
            elif message.role == "user" and message.message_id and agent.agent_id == LEADER_ID:
                take(message.message_id)  # the person's own message has no envelope
        if agent.pending:
            # Documents of another writer may have been saved one after the other (decision 28).
            agent.pending = [item for item in agent.pending if item.id not in delivered]
            for item in agent.pending:
                take(item.id)
    for question in state.questions.values():
        take(question.id)
        if question.answer_id:
            take(question.answer_id)


class _Reader:
    """Builds one state, scope by scope."""

    def __init__(self, folder: Path, files: Files) -> None:
        self.folder = folder
        self.files = files
        self.state = TeamState()
        self.written: dict[int | None, int] = {}
        self.sizes: dict[str, int] = {}
        self.metadata: dict[str, Any] | None = None
        self.messages: dict[str, Any] | None = None
        self.call_times: dict[int, dict[str, float]] = {}
        self.read: dict[int, tuple[Message, ...]] = {}
        """Messages by agent: a document may be restored twice, and is read once."""
        self.asked: dict[int, dict[str, str]] = {}

    def own(self, events: list[Stamped]) -> None:
        """The conversation's own scope; creates the leader."""
        metadata, runtime = self._read(docs.METADATA), self._read(docs.RUNTIME)
        self.metadata = metadata
        self.messages = self._read(docs.MESSAGES, fast=True)
        if metadata is None and not events:
            raise ConversationNotFound(f"there is no conversation {self.folder.name} in {self.folder.parent}")
        self._check_same(metadata, events)
        parts: list[Part] = []
        if metadata is not None:
            data = metadata
            path = self.folder / docs.METADATA
            check_version(data.get("version", SCHEMA_VERSION), path)
            parts.append((self._seq(docs.METADATA, data), lambda: self._restore_own(data)))
        if runtime is not None:
            held = runtime
            parts.append((self._seq(docs.RUNTIME, held), lambda: self._restore_runtime(held)))
        if self.messages is None and not any(stamped.event.tag == "conversation_started" for stamped in events):
            raise ConversationBroken(f"{self.folder / docs.MESSAGES}: missing; put a copy back")
        # The leader's prompt comes with the first event and is kept in the leader's messages.
        self._replay(None, parts, events, complete=self.messages is not None)
        if LEADER_ID not in self.state.agents:
            raise ConversationBroken(f"{self.folder / docs.METADATA}: missing, and the journal does not begin it")
        if not self.state.conversation_id:
            self.state.conversation_id = self.folder.name

    def leader(self, events: list[Stamped]) -> None:
        """The leader's scope: its part of the conversation's metadata, and its messages."""
        parts: list[Part] = []
        if self.metadata is not None:
            data = self.metadata
            held = data.get("leader_state", {})
            if not isinstance(held, dict):
                raise ConversationBroken(f"{self.folder / docs.METADATA}: 'leader_state' must be an object")
            seq = self._seq(docs.METADATA, held)
            parts.append((seq, lambda: self._guard(docs.METADATA, self._restore_leader, data, held)))
        self._add_messages(parts, LEADER_ID, docs.MESSAGES, self.messages)
        self._replay(LEADER_ID, parts, events)

    def agent(self, number: int, events: list[Stamped]) -> None:
        """A sub-agent's scope."""
        name = docs.agent_folder(number)
        metadata = self._read(f"{name}/{docs.METADATA}")
        messages = self._read(f"{name}/{docs.MESSAGES}", fast=True)
        parts: list[Part] = []
        if metadata is not None:
            data = metadata
            where = f"{name}/{docs.METADATA}"
            parts.append((self._seq(where, data), lambda: self._guard(where, self._restore_agent, number, data)))
        self._add_messages(parts, number, f"{name}/{docs.MESSAGES}", messages)
        if not parts and not events:
            return  # an empty folder: a crash came before anything was said
        begun = any(stamped.event.tag == "agent_created" for stamped in events)
        for path, document in ((docs.METADATA, metadata), (docs.MESSAGES, messages)):
            if document is None and not begun:
                raise ConversationBroken(f"{self.folder / name / path}: missing; put a copy back")
        self._replay(number, parts, events)

    def agent_folders(self) -> set[int]:
        """Return the numbers of the agents that have a folder."""
        try:
            names = self.files.listdir(self.folder / docs.AGENTS)
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise StorageError(f"{self.folder / docs.AGENTS} cannot be read ({reason(error)})") from error
        return {int(name) for name in names if name.isdecimal() and int(name) != LEADER_ID}

    # ------------------------------------------------------------------ the crash rule

    def _replay(self, of: int | None, parts: list[Part], events: list[Stamped], *, complete: bool = True) -> None:
        """Rebuild one scope; two documents make it up, a missing one speaks up to event 0."""
        parts = sorted(parts, key=lambda part: part[0])
        for _, restore in parts:
            restore()
        low = 0
        if complete and len(parts) == 2:
            low = self.written[of] = parts[0][0]
        later = [part for part in parts if part[0] > low]
        for stamped in events:
            if stamped.seq <= low:
                continue
            while later and later[0][0] < stamped.seq:
                later.pop(0)[1]()
            try:
                apply(self.state, stamped.event, seq=stamped.seq, t=stamped.t)
            except KeyError as error:
                raise ConversationBroken(
                    f"{self.folder / docs.JOURNAL}: event {stamped.seq} ({stamped.event.tag}) names "
                    f"{shown(error.args[0])}, which does not exist; put a copy back"
                ) from error
        for _, restore in later:
            restore()

    # ------------------------------------------------------------------ parts of the state

    def _restore_own(self, data: Mapping[str, Any]) -> None:
        self._guard(docs.METADATA, self._set_own, data)

    def _set_own(self, data: Mapping[str, Any]) -> None:
        state = self.state
        state.conversation_id = _text(data, "id") or self.folder.name
        state.title = _text(data, "title")
        state.title_given = bool(state.title) and data.get("title_given") is True
        state.project_path = _text(data, "project_path")
        state.model_key = _text(data, "model_key")
        mode = _text(data, "run_mode") or ("thinking" if _thinks(data.get("thinking_mode")) else "fast")
        state.run_mode = mode
        state.leader = "human" if data.get("leader") == "human" else "model"
        state.language = _text(data, "language") or state.language
        state.created_at = forms.read_time(data.get("created_at"))
        state.updated_at = forms.read_time(data.get("updated_at"))
        state.archived = data.get("status") == "archived"
        state.own_seq = max(state.own_seq, data.get("seq", 0))
        unknown = forms.unknown(data, reading.CONVERSATION_KEYS)
        state.extra = {**state.extra, docs.METADATA: unknown} if unknown else state.extra
        if LEADER_ID not in state.agents:
            thinking = "fast" if mode == "fast" else "thinking"
            leader = AgentState(
                LEADER_ID, "", LEADER_NAME, LEADER_NAME, 0, LEADER_ABBREVIATION, state.model_key, thinking
            )
            leader.created_at = state.created_at
            leader.updated_at = state.created_at
            state.agents[LEADER_ID] = leader

    def _restore_runtime(self, data: Mapping[str, Any]) -> None:
        self._guard(docs.RUNTIME, self._set_runtime, data)

    def _set_runtime(self, data: Mapping[str, Any]) -> None:
        state = self.state
        run = data["run"]
        number, status = run["number"], run["status"]
        if type(number) is not int or number < 0:
            raise ValueError(f"the run's number is {shown(number)}; it must be a whole number from 0")
        if status not in _RUN_STATUSES:
            raise ValueError(f"the run's status is {shown(status)}")
        state.run, state.run_status = number, status
        state.run_text, state.run_error = _text(run, "text"), _text(run, "error")
        questions = [reading.read_question(item) for item in data["questions"]]
        state.questions = {question.id: question for question in questions}
        state.waits = {question.id: question for question in questions if question.status == "open"}
        kept = [reading.read_kept(item) for item in data["kept_answers"]]
        state.kept = {answer.question_id: answer for answer in kept}
        state.grants = reading.read_grants(data.get("grants") or {})
        state.warnings = [_text({"a warning": text}, "a warning") for text in data["warnings"]]
        state.own_seq = max(state.own_seq, data["seq"])
        unknown = {
            docs.RUNTIME: forms.unknown(data, reading.RUNTIME_KEYS),
            "run": forms.unknown(run, reading.RUN_KEYS),
            "questions": forms.unknown_by(data["questions"], "id", reading.QUESTION_KEYS),
            "kept_answers": forms.unknown_by(data["kept_answers"], "question_id", reading.KEPT_KEYS),
        }
        state.extra = {**state.extra, **{name: extra for name, extra in unknown.items() if extra}}

    def _restore_leader(self, data: Mapping[str, Any], held: Mapping[str, Any]) -> None:
        leader = self.state.agents[LEADER_ID]
        self._set_common(leader, data, held)
        leader.task_summary = _text(held, "task_summary")
        if held.get("updated_at"):
            leader.updated_at = forms.read_time(held["updated_at"])
        _keep(leader, "leader_state", forms.unknown(held, reading.LEADER_KEYS))

    def _restore_agent(self, number: int, data: Mapping[str, Any]) -> None:
        agent = self._agent(number)
        agent.role_id = _text(data, "role_id")
        agent.display_name = _text(data, "display_name") or f"{agent.role_id}_{number}"
        name, _, instance = agent.display_name.rpartition("_")
        agent.role_name = _text(data, "role_name") or name or agent.display_name
        agent.instance = int(data.get("instance") or (instance if instance.isdecimal() else number))
        agent.abbreviation = _text(data, "abbreviation") or self._abbreviation(agent)
        agent.created_at = forms.read_time(data.get("created_at"))
        agent.updated_at = forms.read_time(data.get("updated_at"))
        agent.task_summary = _text(data, "task_summary")
        agent.model_key = _text(data, "model_key")
        mode = data.get("thinking_mode")
        agent.thinking_mode = mode if isinstance(mode, str) and mode else "thinking" if mode else "fast"
        agent.timeout = float(data.get("timeout_seconds") or 0.0)
        agent.background = bool(data.get("run_in_background"))
        self._set_common(agent, data, data)
        _keep(agent, docs.METADATA, forms.unknown(data, reading.AGENT_KEYS))

    def _set_common(self, agent: AgentState, data: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        status, detail = own.get("status"), own.get("status_detail", "")
        agent.status = status if status in _STATUSES else "idle"  # decision 19
        agent.detail = detail if detail in _DETAILS else ""
        agent.error = _text(own, "last_error")
        agent.pending = reading.read_pending(data.get("pending_messages") or [])
        calls = data.get("pending_tool_calls") or []
        _keep(agent, "pending_tool_calls", forms.unknown_by(calls, "tool_call_id", reading.CALL_KEYS))
        times = {call["tool_call_id"]: float(call.get("created_at") or 0.0) for call in calls}
        for call_id, (call, _) in list(agent.open_calls.items()):
            if call_id in times:
                agent.open_calls[call_id] = (call, times[call_id])
        self.call_times[agent.agent_id] = times
        if "seq" not in own:  # of another writer, who keeps no questions
            asked = {call["tool_call_id"]: call.get("question_id") for call in calls}
            self.asked[agent.agent_id] = {call_id: name for call_id, name in asked.items() if isinstance(name, str)}
        agent.seq = max(agent.seq, own.get("seq", 0))

    def _restore_messages(self, number: int, data: Mapping[str, Any]) -> None:
        agent = self._agent(number)
        raw = data.get("messages")
        if not isinstance(raw, list):
            raise ValueError("'messages' must be a list")
        times = self.call_times.get(number, {})
        messages = list(self.read.get(number, ()))
        try:
            count(agent, messages if messages else _read_into(messages, raw), times)
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ValueError(f"messages[{len(messages)}]: {error}") from error
        self.read[number] = tuple(messages)
        agent.messages = messages
        if number == LEADER_ID:
            metadata = data.get("metadata") or {}
            agent.system = _text(metadata, "system_prompt") or agent.system
            _keep(agent, "messages.metadata", forms.unknown(metadata, frozenset({"system_prompt"})))
            known = reading.LEADER_MESSAGES_KEYS
        else:
            first = messages[0] if messages else None
            agent.system = (first.content or "") if first is not None and first.role == "system" else ""
            known = reading.AGENT_MESSAGES_KEYS
        statistics = data.get("token_statistics") or {}
        agent.usage = reading.read_statistics(statistics)
        _keep(agent, "token_statistics", forms.unknown(statistics, reading.STATISTICS_KEYS))
        by_model = (statistics.get("by_model") or {}).items()
        unknown = {str(key): forms.unknown(usage, reading.USAGE_KEYS) for key, usage in by_model if usage}
        _keep(agent, "by_model", {key: extra for key, extra in unknown.items() if extra})
        _keep(agent, docs.MESSAGES, forms.unknown(data, known))
        updated = forms.read_time(data.get("updated_at"))
        if data.get("seq", 0) >= agent.seq and updated:
            agent.updated_at = updated
        agent.seq = max(agent.seq, data.get("seq", 0))

    # ------------------------------------------------------------------ small things

    def _agent(self, number: int) -> AgentState:
        agent = self.state.agents.get(number)
        if agent is None:
            agent = self.state.agents[number] = AgentState(number, "", "", "", number, "")
        return agent

    def _abbreviation(self, agent: AgentState) -> str:
        held = {other.abbreviation: other.role_id for other in self.state.members() if other is not agent}
        return ids.abbreviation(agent.role_name, agent.role_id, held)

    def _add_messages(self, parts: list[Part], number: int, name: str, data: dict[str, Any] | None) -> None:
        if data is not None:
            held = data
            seq = self._seq(name, held)
            parts.append((seq, lambda: self._guard(name, self._restore_messages, number, held)))

    def _read(self, name: str, *, fast: bool = False) -> dict[str, Any] | None:
        data = read_document(
            self.files, self.folder / name, fast=fast, measured=lambda size: self.sizes.update({name: size})
        )
        if data is not None:  # not every document of ours says its version; another's may
            check_version(data.get("schema_version", SCHEMA_VERSION), self.folder / name)
        return data

    def _seq(self, name: str, data: Mapping[str, Any]) -> int:
        seq = data.get("seq", 0)
        if not isinstance(seq, int) or isinstance(seq, bool) or seq < 0:
            raise ConversationBroken(f"{self.folder / name}: 'seq' must be a number from 0, not {shown(seq)}")
        if seq > forms.LAST_SEQ:
            raise ConversationBroken(
                f"{self.folder / name}: 'seq' must be at most {forms.LAST_SEQ}, not {shown(seq)}; "
                "mend the file or put a copy back"
            )
        return seq

    def _check_same(self, metadata: Mapping[str, Any] | None, events: list[Stamped]) -> None:
        """Refuse a journal that begins another conversation than the documents are of: the two would be mixed."""
        begins = events[0].event if events else None
        named = metadata.get("id") if metadata is not None else None
        if isinstance(begins, ConversationStarted) and named and begins.conversation_id != named:
            raise ConversationBroken(
                f"{self.folder / docs.JOURNAL}: is of the conversation {shown(begins.conversation_id)}, and "
                f"{docs.METADATA} beside it of {shown(named)}; put the right one back, or take the journal out"
            )

    def _guard(self, name: str, restore: Callable[..., None], *arguments: Any) -> None:
        """Turn a wrong value into an error that names the file."""
        try:
            restore(*arguments)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            said = f"{forms.fault(error)} is missing" if isinstance(error, KeyError) else forms.fault(error)
            raise ConversationBroken(f"{self.folder / name}: {said}; mend the file or put a copy back") from error


def _read_into(messages: list[Message], raw: list[Any]) -> Iterator[Message]:
    """Read stored messages one by one, each looked at while it is at hand; what was read is given up at once."""
    raw.reverse()
    while raw:
        message = reading.read_message(raw.pop())
        messages.append(message)
        yield message


def _keep(agent: AgentState, name: str, unknown: dict[str, Any]) -> None:
    if unknown:
        agent.extra[name] = unknown


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{key!r} must be a text, not {shown(value)}")
    return value


def _thinks(value: object) -> bool:
    return value in (True, "thinking", "deep")
