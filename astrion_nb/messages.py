"""The plain values that a conversation is made of: messages, tool calls, usage.

Pure values: equal content is equal. The JSON form is the data model's (§5, §7); keys that this
package does not know survive a round trip in ``extra``. What a text and a set of call ids must be
before they stand in one is said here too. Knows no envelope, no state, no file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]
_KNOWN_OF_CALL = frozenset({"id", "type", "function"})


def replace_surrogates(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates by U+FFFD: what is left, UTF-8 can hold (decision 54)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def unique_call_ids(wanted: Sequence[str], *, prefix: str = "call_", taken: Collection[str] = ()) -> list[str]:
    """Return one id per call: the wanted one where it is free, else a minted one.

    Parameters
    ----------
    wanted : sequence of str
        The calls' ids, in order; empty where there is none.
    prefix : str
        Minted ids are the prefix and the call's place in the response, counted from 1.
    taken : collection of str
        Ids that may not be given again. Only asked for those in question, so let it be a set.
    """
    used: set[str] = set()
    kept: list[str] = []
    for identifier in wanted:
        free = bool(identifier) and identifier not in used and identifier not in taken
        kept.append(identifier if free else "")
        if free:
            used.add(identifier)
    for place, identifier in enumerate(kept):
        if identifier:
            continue
        minted, again = f"{prefix}{place + 1}", 1
        while minted in used or minted in taken:
            again += 1
            minted = f"{prefix}{place + 1}_{again}"
        used.add(minted)
        kept[place] = minted
    return kept


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool as the model wrote it.

    Parameters
    ----------
    id : str
        Provider's or our own call id, unique within the conversation.
    name : str
        Name of the tool.
    arguments : str
        JSON text of the arguments, exactly as the model wrote it (may be invalid).
    extra : mapping or None
        Keys of the stored call that this package does not know; those of its ``function`` under that name.
    """

    id: str
    name: str
    arguments: str
    extra: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the chat-completions form of the call."""
        function = {"name": self.name, "arguments": self.arguments}
        out: dict[str, Any] = {"id": self.id, "type": "function", "function": function}
        if self.extra:
            inner: dict[str, Any] = {**function, **self.extra.get("function", {})}
            out.update(self.extra, function=inner)
        return out

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ToolCall:
        """Read the chat-completions form; missing parts become empty strings.

        Raises
        ------
        ValueError
            It is not an object, or its arguments are not text.
        """
        if not isinstance(data, Mapping) or not isinstance(data.get("function") or {}, Mapping):
            raise ValueError(f"a tool call is {data!r}; it must be an object with id and function")
        function = data.get("function") or {}
        arguments = function.get("arguments") or ""
        if not isinstance(arguments, str):
            raise ValueError(f"the arguments of tool call {data.get('id')!r} are not text")
        extra = {key: value for key, value in data.items() if key not in _KNOWN_OF_CALL}
        if inner := {key: value for key, value in function.items() if key not in ("name", "arguments")}:
            extra["function"] = inner
        return cls(str(data.get("id") or ""), str(function.get("name") or ""), arguments, extra or None)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one model request, or a sum of them.

    Parameters
    ----------
    input, output : int
        Prompt and completion tokens.
    cached : int
        Part of ``input`` that the provider read from its prompt cache.
    reasoning : int
        Part of ``output`` that was reasoning.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0

    @property
    def total(self) -> int:
        """Input and output tokens together."""
        return self.input + self.output

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cached + other.cached,
            self.reasoning + other.reasoning,
        )

    def to_json(self) -> dict[str, int]:
        """Return a JSON object; parts that are zero and optional are left out."""
        out = {"input": self.input, "output": self.output, "total": self.input + self.output}
        if self.cached:
            out["cached"] = self.cached
        if self.reasoning:
            out["reasoning"] = self.reasoning
        return out

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> Usage | None:
        """Read what :meth:`to_json` wrote; ``None`` stays ``None``."""
        if not data:
            return None
        return cls(
            int(data.get("input") or 0),
            int(data.get("output") or 0),
            int(data.get("cached") or 0),
            int(data.get("reasoning") or 0),
        )


_KNOWN = frozenset({"role", "content", "message_id", "tool_calls", "tool_call_id", "metadata"})


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation, as stored (data model §5 and §7).

    Parameters
    ----------
    role : {"system", "user", "assistant", "tool"}
    content : str or None
        ``None`` only for an assistant message that is all tool calls.
    message_id : str or None
        ``msg_user_001`` and so on; system messages have none.
    tool_calls : tuple of ToolCall
        Assistant messages only.
    tool_call_id : str or None
        Tool messages only: the call that this is the result of.
    metadata : mapping
        ``message_source``, ``visibility``, ``starts_work``, ``agent_id``, ``envelope_id``,
        ``status``; for an assistant message ``usage``, ``reasoning_content``, and ``truncated`` with
        the ``status`` of a turn that was ended while it was written; for a system message ``compaction``, with
        the index ``from`` which messages still go to the model, the ``pinned`` ones before, how many are
        ``left_out``, and the ``result_limit`` (characters) of what was there.
    extra : mapping
        Keys of the file that this package does not know.
    """

    role: Role
    content: str | None
    message_id: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cut(self) -> bool:
        """Whether it is what there was of an answer when its turn was ended: for people, never sent to a model."""
        metadata = self.metadata
        ended = "status" in metadata and metadata.get("truncated") is True
        return ended and self.role == "assistant" and not self.tool_calls

    @property
    def compaction(self) -> Mapping[str, Any] | None:
        """What it says of the messages that requests leave out from it on; ``None`` when it is no compaction."""
        said = self.metadata.get("compaction") if self.role == "system" else None
        return said if isinstance(said, Mapping) else None

    def to_json(self) -> dict[str, Any]:
        """Return the stored form, keys in the order the data model prints them."""
        out: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.message_id is not None:
            out["message_id"] = self.message_id
        if self.tool_calls:
            out["tool_calls"] = [call.to_json() for call in self.tool_calls]
        if self.tool_call_id is not None:
            out["tool_call_id"] = self.tool_call_id
        if self.metadata:
            out["metadata"] = self.metadata
        if self.extra:
            out.update(self.extra)
        return out

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Message:
        """Read the stored form.

        Raises
        ------
        ValueError
            ``role`` is missing or not one of the four, or the metadata or a tool call is not an object.
        """
        role = data.get("role")
        if role not in ("system", "user", "assistant", "tool"):
            raise ValueError(f"a message has the role {role!r}; known are system, user, assistant, tool")
        calls, metadata = data.get("tool_calls") or (), data.get("metadata") or {}
        if not isinstance(calls, (list, tuple)) or not isinstance(metadata, Mapping):
            raise ValueError(
                f"the tool_calls or the metadata of message {data.get('message_id')!r} are of a wrong type"
            )
        return cls(
            role,
            data.get("content"),
            data.get("message_id"),
            tuple(ToolCall.from_json(call) for call in calls),
            data.get("tool_call_id"),
            metadata,
            {key: value for key, value in data.items() if key not in _KNOWN},
        )
