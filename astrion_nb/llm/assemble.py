"""From raw chat-completions chunks to one response: text, reasoning, complete tool calls, usage.

Pure and synchronous: no socket, no clock, no SDK. Endpoints differ in what they leave out, repeat
or send as null; this module is the one place that knows how. It does not know which tools exist,
what arguments mean, or whether a request is tried again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from ..errors import ContentFiltered, ModelBroken, ModelError
from ..messages import ToolCall, Usage, replace_surrogates, unique_call_ids
from .model import Finish, Finished, ReasoningDelta, StreamEvent, TextDelta

_REPLACEMENT = "\ufffd"
_NOTHING: tuple[StreamEvent, ...] = ()
_CLOSING = frozenset('}]"')
_DIGITS = 18
_LENGTH = frozenset({"length", "max_tokens", "model_length"})


class _OpenCall:
    """One tool call while its pieces come in."""

    __slots__ = ("id", "index", "name", "parts")

    def __init__(self, index: int | None) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.parts: list[str] = []

    @property
    def arguments(self) -> str:
        if len(self.parts) > 1:
            self.parts = ["".join(self.parts)]
        return self.parts[0] if self.parts else ""

    @property
    def complete(self) -> bool:
        """Whether the arguments are a whole JSON value already, so that nothing can follow."""
        # The last characters are looked at first: a name repeated with every piece must not make
        # the assembly quadratic.
        return bool(self.parts) and self.parts[-1].rstrip()[-1:] in _CLOSING and _parses(self.arguments)


class Assembler:
    """Assemble the chunks of one response.

    Parameters
    ----------
    call_id_prefix : str
        Prefix of the ids minted for calls that come without a usable one; an adapter puts the turn's
        number into it, so that they are rarely used already.
    """

    __slots__ = (
        "_by_id",
        "_by_index",
        "_calls",
        "_held",
        "_last",
        "_model",
        "_prefix",
        "_reason",
        "_reasoning",
        "_text",
        "_usage",
    )

    def __init__(self, *, call_id_prefix: str = "call_") -> None:
        self._prefix = call_id_prefix
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_OpenCall] = []
        self._by_index: dict[int, _OpenCall] = {}
        self._by_id: dict[str, _OpenCall] = {}
        self._last: _OpenCall | None = None
        self._usage: dict[str, int] = {}
        self._reason = ""
        self._model = ""
        self._held = ""

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._text)

    @property
    def shown(self) -> bool:
        """Whether any text has been handed out."""
        return bool(self._text)

    @property
    def ended(self) -> bool:
        """Whether the endpoint has told why the response ended."""
        return bool(self._reason)

    @property
    def usage(self) -> Usage | None:
        """What the endpoint told about tokens so far."""
        return Usage(**self._usage) if self._usage else None

    def feed(self, chunk: Mapping[str, Any]) -> Sequence[StreamEvent]:
        """Take one chunk and return what it brought to show; usually one delta or nothing."""
        choices = chunk.get("choices")
        if chunk.get("usage"):
            self._count(chunk["usage"])
        if not choices:
            return _NOTHING
        choice = choices[0] if isinstance(choices, list) else None
        if not isinstance(choice, dict):
            return _NOTHING
        if not self._model:
            self._model = _as_text(chunk.get("model"))
        delta = choice.get("delta") or choice.get("message")
        if choice.get("finish_reason"):
            self._reason = str(choice["finish_reason"])
        if not delta or not isinstance(delta, dict):
            return _NOTHING
        text = delta.get("content")
        if text and len(delta) == 1 and type(text) is str and not self._held:
            # The plain token, by far the most frequent chunk.
            if not text.isascii():
                text = self._clean(text)
                if not text:
                    return _NOTHING
            self._text.append(text)
            return (TextDelta(text),)
        return self._feed_delta(delta)

    def _feed_delta(self, delta: Mapping[str, Any]) -> Sequence[StreamEvent]:
        events: list[StreamEvent] = []
        text, reasoning = _split_content(delta.get("content"))
        reasoning += _as_text(delta.get("reasoning_content") or delta.get("reasoning"))
        if reasoning:
            reasoning = replace_surrogates(reasoning)
            self._reasoning.append(reasoning)
            events.append(ReasoningDelta(reasoning))
        if text:
            text = self._clean(text)
        if text:
            self._text.append(text)
            events.append(TextDelta(text))
        calls = delta.get("tool_calls")
        if isinstance(calls, Sequence) and not isinstance(calls, str):
            touched: list[_OpenCall] = []
            for piece in calls:
                if isinstance(piece, Mapping):
                    self._feed_call(piece, touched)
        return events

    def _clean(self, text: str) -> str:
        """Replace lone surrogates, but let a pair that was split between two chunks come together."""
        if self._held:
            text, self._held = self._held + text, ""
        try:
            text.encode()
        except UnicodeEncodeError:
            if "\ud800" <= text[-1] <= "\udbff":
                text, self._held = text[:-1], text[-1]
            text = replace_surrogates(text)
        return text

    def _count(self, usage: object) -> None:
        """Keep the newest figures; an endpoint that repeats them sends running totals, not shares."""
        if not isinstance(usage, Mapping):
            return
        prompt, completion = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
        figures = {
            "input": usage.get("prompt_tokens"),
            "output": usage.get("completion_tokens"),
            "cached": prompt.get("cached_tokens") if isinstance(prompt, Mapping) else None,
            "reasoning": completion.get("reasoning_tokens") if isinstance(completion, Mapping) else None,
        }
        if figures["cached"] is None:
            figures["cached"] = usage.get("prompt_cache_hit_tokens")
        for name, value in figures.items():
            if isinstance(value, (int, float)) and 0 <= value < 1e15:
                self._usage[name] = int(value)

    def _feed_call(self, piece: Mapping[str, Any], touched: list[_OpenCall]) -> None:
        function = piece.get("function")
        function = function if isinstance(function, Mapping) else {}
        identifier, name = _as_text(piece.get("id")), _as_text(function.get("name"))
        arguments = _arguments(function.get("arguments"))
        index = _index(piece.get("index"))
        call = self._find(index, identifier, name, arguments, touched)
        if call is None:
            if not (identifier or name or arguments):
                return
            call = _OpenCall(index)
            self._calls.append(call)
        touched.append(call)
        self._last = call
        if index is not None:
            call.index = index
            self._by_index[index] = call
        if identifier and not call.id:
            call.id = identifier
            self._by_id[identifier] = call
        if name:
            _add_name(call, name)
        if arguments and not (name and arguments == call.arguments and call.complete):
            if call.parts == ["{}"] and arguments.strip():
                call.parts.clear()  # some endpoints send an empty object ahead of the real arguments
            call.parts.append(arguments)

    def _find(
        self, index: int | None, identifier: str, name: str, arguments: str, touched: list[_OpenCall]
    ) -> _OpenCall | None:
        """Return the call that a piece belongs to, or ``None`` when it begins a new one.

        Neither index nor id is trusted alone: an index may be missing, start at 1, have gaps, or be
        0 for every call; an id may come once, with every piece, or anew with every piece.
        """
        call = self._by_id.get(identifier) if identifier else None
        if call is not None and name and index is not None and call.index not in (None, index):
            call = None  # one id for several calls
        if call is None:
            call = self._last if index is None else self._by_index.get(index)
        if call is None and not name and self._last is not None and self._last.index is None:
            call = self._last  # the first piece came without its index
        if call is None or not name:
            return call  # whatever the id says: a call begins with its name
        if identifier and identifier == call.id:
            repeated = name == call.name and arguments in ("", call.arguments)
            return call if repeated or not call.complete else None
        if call in touched:
            return None  # two entries of one list are two calls
        if identifier and call.id:
            # Another id and a name: a new call, unless the same name goes on half written.
            return call if name == call.name and call.parts and not call.complete else None
        if call.complete and (name != call.name or identifier or arguments.strip()):
            return None
        if index is None and call.parts and name != call.name:
            return None
        return call

    def flush(self) -> Sequence[StreamEvent]:
        """Return what was held back for a next chunk that will not come."""
        if not self._held:
            return _NOTHING
        self._held = ""
        self._text.append(_REPLACEMENT)
        return (TextDelta(_REPLACEMENT),)

    def finish(self, done: bool) -> Finished:
        """Return the response.

        Parameters
        ----------
        done : bool
            Whether the endpoint said that the stream is over (``[DONE]``). A stream that ends with
            neither that nor a finish reason was cut off: no call of it may run.

        Raises
        ------
        ContentFiltered
            The provider withheld the answer; ``partial`` holds the text that had come.
        ModelBroken
            The stream was cut off before any text was shown; it may be asked again.
        """
        self.flush()
        reason = self._reason.lower()
        if reason == "content_filter":
            raise with_partial(
                ContentFiltered("the provider withheld the answer (content_filter)"), self.text, self.usage
            )
        ended = (bool(reason) or done) and reason != "error"
        calls = [call for call in self._calls if call.name or call.arguments] if ended else []
        if not reason or reason in _LENGTH:
            calls = [call for call in calls if not call.arguments or call.complete]
            if len(calls) < len(self._calls) and not reason and not calls:
                ended = False
        if not ended:
            return self._cut_off()
        finish: Finish = "length" if reason in _LENGTH else "tool_calls" if calls else "stop"
        return Finished(
            self.text,
            self._tool_calls(calls),
            finish,
            self.usage,
            "".join(self._reasoning),
            self._model,
        )

    def _cut_off(self) -> Finished:
        if not self._text:
            error = ModelBroken("the endpoint's stream ended before the answer did")
            raise with_partial(error, "", self.usage)
        return Finished(self.text, (), "length", self.usage, "".join(self._reasoning), self._model, truncated=True)

    def _tool_calls(self, calls: Sequence[_OpenCall]) -> tuple[ToolCall, ...]:
        if not calls:
            return ()
        ids = unique_call_ids([call.id for call in calls], prefix=self._prefix)
        return tuple(
            ToolCall(
                identifier,
                replace_surrogates(call.name) or "unknown_tool",
                replace_surrogates(call.arguments) or "{}",
            )
            for identifier, call in zip(ids, calls, strict=True)
        )


def with_partial(error: ModelError, text: str, usage: Usage | None = None) -> ModelError:
    """Attach what had come before the failure: ``partial`` text, and ``usage`` for the cost of it."""
    error.partial = text
    error.usage = usage
    return error


def _add_name(call: _OpenCall, name: str) -> None:
    """Join a name sent in pieces; a whole name sent again says nothing new."""
    if not call.name or name.startswith(call.name):
        call.name = name
    elif not call.parts:
        call.name += name


def _parses(arguments: str) -> bool:
    try:
        json.loads(arguments, strict=False)  # wider than the standard: NaN is whole, if wrong
    except (ValueError, RecursionError):
        return False
    return True


def _index(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    # Python refuses to read a number of thousands of digits.
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) <= _DIGITS else None


def _as_text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else str(value)


def _arguments(value: object) -> str:
    """Return the piece of argument text; some endpoints send the object itself."""
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # a lone surrogate, or nested deeper than orjson writes
        return json.dumps(value, ensure_ascii=False)


def _split_content(content: object) -> tuple[str, str]:
    """Return text and reasoning of ``content``, which is a string, null, or a list of typed parts."""
    if content is None or isinstance(content, str):
        return content or "", ""
    text: list[str] = []
    reasoning: list[str] = []
    for part in content if isinstance(content, Sequence) else ():
        if isinstance(part, str):
            text.append(part)
        elif isinstance(part, Mapping):
            if part.get("type") in ("thinking", "reasoning"):
                inner = part.get("thinking") or part.get("text")
                reasoning.append("".join(_split_content(inner)))
            else:
                text.append(_as_text(part.get("text")))
    return "".join(text), "".join(reasoning)
