"""A public, strict model that says what a script says: for tests, lessons and demonstrations.

::

    model = ScriptedModel({
        "Team Leader": [
            call("create_sub_agent", agent_id=1, role_id="ui-operator", task="…") + say("One helper."),
            until_message(say("All done.")),
        ],
        "UI Operator_1": [say("The page is blue.")],
    })

A file that defines such a ``script`` is a model too: ``--model scripted/PATH.py``.

The tools and their arguments (``?``: may be left out). To create one, ``agent_id`` is its number within its
role; everywhere else an agent is meant, by number or display name. The leader has::

    create_sub_agent           agent_id, role_id, task, run_in_background?, timeout_seconds?, thinking_mode?, model_key?
    terminate_sub_agent        agent_id
    send_message_to_sub_agent  agent_id, message
    ask_sub_agent              agent_id, question, question_id
    answer_sub_agent_question  agent_id, question_id, answer
    list_active_sub_agents
    get_sub_agent_status       agent_id
    create_custom_agent        role_id, name, description, model?, thinking_mode?, prompt
    list_agents
    stop_sub_agent             agent_id, reason?

and every agent has::

    ask_master                 question, question_id
    ask_other_agent            target_agent_id, content, message_id, expects_answer?
    answer_other_agent         source_agent_id, message_id, answer
    answer_master              question_id, answer
    list_active_sub_agents

A request that no step answers, and a step that no request used, raise
:class:`~astrion_nb.errors.ScriptError`. Opens no socket, reads no clock; it does not know what the
tools it calls do.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, get_args

from .. import given
from ..errors import ContentFiltered, ModelError, ScriptError
from ..messages import ToolCall, Usage
from .assemble import with_partial
from .model import Finish, Finished, ModelRequest, ReasoningDelta, StreamEvent, TextDelta

# One or two ideographs, or a word with the space behind it: about what a token is.
_TOKEN = re.compile(r"[\u2e80-\uffff]{1,2}|[^\s\u2e80-\uffff]+\s*|\s+")


@dataclass(frozen=True, slots=True)
class Step:
    """One scripted response; build it with :func:`say`, :func:`call` and :func:`fail`, join with ``+``.

    Parameters
    ----------
    text : str
        What is said.
    calls : tuple of (str, str)
        Names and JSON texts of the tool calls.
    chunks : tuple of str or None
        The pieces in which the text is streamed; words when ``None``.
    reasoning : str
        Reasoning text, streamed ahead of the answer.
    usage : Usage or None
        Tokens told at the end; derived from the request when ``None``.
    error : ModelError or None
        Raised once the text, if any, has been streamed.
    after_message : bool
        Wait until a message is in the actor's mailbox before answering.
    finish : str or None
        Finish reason; derived when ``None``.
    """

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    chunks: tuple[str, ...] | None = None
    reasoning: str = ""
    usage: Usage | None = None
    error: ModelError | None = None
    after_message: bool = False
    finish: Finish | None = None

    def __add__(self, other: Step) -> Step:
        """Join two steps into one response: the texts, then the calls of both."""
        chunks = None if self.chunks is other.chunks is None else (*self.pieces(), *other.pieces())
        return Step(
            self.text + other.text,
            self.calls + other.calls,
            chunks,
            self.reasoning + other.reasoning,
            other.usage if self.usage is None else self.usage,
            self.error or other.error,
            self.after_message or other.after_message,
            other.finish or self.finish,
        )

    def pieces(self) -> tuple[str, ...]:
        """Return the pieces in which the text is streamed."""
        return tuple(_TOKEN.findall(self.text)) if self.chunks is None else self.chunks


Script = Step | Callable[[ModelRequest], Step]


def say(
    text: str,
    *,
    chunks: Sequence[str] | None = None,
    usage: Usage | tuple[int, int] | None = None,
    reasoning: str = "",
    after_message: bool = False,
    finish: Finish | None = None,
) -> Step:
    """Return a step that says a text.

    Parameters
    ----------
    text : str
        May be empty: an empty answer.
    chunks : sequence of str, optional
        Pieces to stream; they must join to ``text``.
    usage : Usage or (input, output), optional
    reasoning : str
    after_message : bool
        Wait for a message first.
    finish : str, optional
        For instance ``"length"`` or ``"content_filter"``.

    Raises
    ------
    ScriptError
        The chunks are not the text.
    """
    given.text("say: the text", text, error=ScriptError)
    given.text("say: reasoning", reasoning, error=ScriptError)
    given.switch("say: after_message", after_message, error=ScriptError)
    given.one_of("say: finish", finish, get_args(Finish), none=True, error=ScriptError)
    pieces = None
    if chunks is not None:
        pieces = given.items("say: chunks", chunks, "use a list of texts, or None", error=ScriptError)
        for piece in pieces:
            given.text("say: a chunk", piece, error=ScriptError)
        if "".join(pieces) != text:
            raise ScriptError(f"the chunks of say({text!r}) do not join to its text; leave them out or correct them")
    counted = _usage(usage)
    return Step(text, (), pieces, reasoning, counted, None, after_message, finish)


def _usage(usage: Usage | tuple[int, int] | None) -> Usage | None:
    if usage is None or isinstance(usage, Usage):
        return usage
    if not isinstance(usage, tuple) or len(usage) != 2:
        raise given.refused("say: usage", usage, "use (input, output), a Usage, or None", ScriptError)
    for count in usage:
        given.number("say: usage", count, whole=True, least=0, error=ScriptError)
    return Usage(*usage)


def call(name: str, raw: str | None = None, /, **arguments: object) -> Step:
    """Return a step that calls a tool; join several with ``+`` for parallel calls in one response.

    Parameters
    ----------
    name : str
    raw : str, optional
        The argument text as the model would write it, also when it is not valid JSON.
    **arguments
        Arguments of the tool.

    Raises
    ------
    ScriptError
        An argument cannot be written as JSON.
    """
    given.text("call: the name", name, error=ScriptError)
    given.text("call: raw", raw, none=True, error=ScriptError)
    if raw is None:
        try:
            raw = json.dumps(arguments, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError) as error:
            told = " ".join(str(error).split())
            raise ScriptError(f"call: the arguments of {name} are no JSON ({told}); use plain values, or raw") from None
    return Step(calls=((name, raw),))


def fail(error: ModelError) -> Step:
    """Return a step that raises a model error; ``say("part") + fail(…)`` fails after some text."""
    if not isinstance(error, ModelError):
        raise given.refused("fail: the error", error, "use a ModelError, such as ModelRefused('…')", ScriptError)
    return Step(error=error)


def until_message(step: Step | None = None) -> Step:
    """Return the step, but answered only when a message is in the actor's mailbox.

    Alone in a script it holds back the step that follows it.
    """
    if step is not None and not isinstance(step, Step):
        raise given.refused("until_message: the step", step, "use say(…), call(…) or fail(…)", ScriptError)
    return replace(step or Step(), after_message=True)


_WAIT = until_message()


class ScriptedModel:
    """A model that follows a script and accepts no departure from it.

    Parameters
    ----------
    script : mapping or sequence
        Steps per actor (display name or a pattern such as ``"UI Operator_*"``, whose steps are then
        shared in the order of asking), or a list of ``(actor, step)`` pairs, or a plain list of
        steps for whoever asks next. A step may be a function of the request.
    key : str
        The key by which configuration names the model.
    tokens_per_second : float, optional
        Tempo of the stream, for live demonstrations; at once when ``None``.
    check_on_close : bool
        Whether closing raises for unused steps.

    Raises
    ------
    ScriptError
        A parameter is not what it has to be; it is named.

    Attributes
    ----------
    requests : list of ModelRequest
        Every request, in order.
    """

    def __init__(
        self,
        script: Mapping[str, Sequence[Script]] | Sequence[Script | tuple[str, Script]] = (),
        *,
        key: str = "scripted",
        tokens_per_second: float | None = None,
        check_on_close: bool = True,
    ) -> None:
        given.text("ScriptedModel: key", key, empty="leave it out, or name one", error=ScriptError)
        given.number("ScriptedModel: tokens_per_second", tokens_per_second, none="at once", error=ScriptError)
        given.switch("ScriptedModel: check_on_close", check_on_close, error=ScriptError)
        self.key = key
        self.endpoint = f"script:{key}"
        self.requests: list[ModelRequest] = []
        self.tokens_per_second = tokens_per_second
        self._check_on_close = check_on_close
        self._complaint: ScriptError | None = None
        self._steps: list[tuple[str, Script]] = []
        self.extend(script)

    def extend(self, script: Mapping[str, Sequence[Script]] | Sequence[Script | tuple[str, Script]]) -> None:
        """Add steps, in any of the forms that the constructor takes.

        Raises
        ------
        ScriptError
            It is none of these forms; nothing is added then.
        """
        self._steps += _pairs(script)

    def unused(self) -> dict[str, int]:
        """Return the number of steps that no request has used yet, by actor."""
        counts: dict[str, int] = {}
        for actor, _ in self._steps:
            counts[actor] = counts.get(actor, 0) + 1
        return counts

    def check(self) -> None:
        """Make sure that the script was followed to its end.

        Raises
        ------
        ScriptError
            A request met no step, or steps are left.
        """
        if self._complaint is not None:
            raise ScriptError(str(self._complaint))
        left = self.unused()
        if left:
            named = ", ".join(f"{actor}: {count}" for actor, count in left.items())
            raise ScriptError(f"steps of the script were never asked for ({named}); remove them or let the team run on")

    async def close(self) -> None:
        """End the script; raises as :meth:`check` does, once, unless that was switched off."""
        if self._check_on_close:
            self._check_on_close = False
            self.check()

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        """Answer with the actor's next step.

        Raises
        ------
        ScriptError
            The script has no step for this actor.
        ModelError
            The step says so.
        """
        self.requests.append(request)
        step = self._next(request)
        # A real model answers in a later turn of the loop; so does this one.
        await asyncio.sleep(0)
        if step.after_message:
            if request.arrival is None:
                raise self._complain(
                    f"the step for {request.actor} waits for a message, but the request has no mailbox"
                )
            await request.arrival()
        pieces = step.pieces()
        for position, piece in enumerate((step.reasoning, *pieces)):
            if piece:
                if self.tokens_per_second:
                    await asyncio.sleep(1 / self.tokens_per_second)
                yield ReasoningDelta(piece) if position == 0 else TextDelta(piece)
        if step.error is not None:
            raise step.error
        if step.finish == "content_filter":
            raise with_partial(ContentFiltered("the provider withheld the answer (content_filter)"), step.text)
        yield self._finished(request, step, len(pieces))

    def _finished(self, request: ModelRequest, step: Step, pieces: int) -> Finished:
        slug = re.sub(r"[^a-z0-9]+", "_", request.actor.lower()).strip("_") or "agent"
        prefix = f"call_{slug}_{request.turn}_"
        return Finished(
            step.text,
            tuple(ToolCall(f"{prefix}{place}", *called) for place, called in enumerate(step.calls, 1)),
            step.finish or ("tool_calls" if step.calls else "stop"),
            step.usage or Usage(10 * len(request.messages), pieces + 10 * len(step.calls)),
            step.reasoning,
            self.key,
        )

    def _next(self, request: ModelRequest) -> Step:
        wait = False
        while True:
            place = self._place(request.actor)
            if place is None:
                told = [actor for actor, _ in self._steps]
                rest = f"steps left are for {', '.join(dict.fromkeys(told))}" if told else "no steps are left"
                raise self._complain(f"the script has no step for {request.actor}, request {request.turn}; {rest}")
            scripted = self._steps.pop(place)[1]
            step = scripted if isinstance(scripted, Step) else scripted(request)
            if not isinstance(step, Step):
                raise self._complain(f"a step for {request.actor} is {step!r}; build it with say, call or fail")
            if step == _WAIT:
                wait = True
                continue
            return replace(step, after_message=True) if wait else step

    def _place(self, actor: str) -> int | None:
        """Return where the actor's next step is: under its own name, else under a pattern."""
        pattern: int | None = None
        for place, (name, _) in enumerate(self._steps):
            if name == actor:
                return place
            if pattern is None and fnmatchcase(actor, name):
                pattern = place
        return pattern

    def _complain(self, message: str) -> ScriptError:
        error = ScriptError(message)
        self._complaint = self._complaint or error
        return error


def _pairs(script: object) -> list[tuple[str, Script]]:
    """Return a script, in any of its forms, as pairs of actor and step."""
    todo = "use {actor: [steps]}, a list of steps, or a list of (actor, step)"
    found: list[tuple[Any, Any]] = []
    if isinstance(script, Mapping):
        for actor, steps in script.items():
            found += [
                (actor, step)
                for step in given.items(f"ScriptedModel: {given.shown(actor)}", steps, todo, error=ScriptError)
            ]
    else:
        for item in given.items("ScriptedModel: the script", script, todo, error=ScriptError):
            if isinstance(item, tuple) and len(item) != 2:
                raise given.refused("ScriptedModel: a step", item, todo, ScriptError)
            found.append(item if isinstance(item, tuple) else ("*", item))
    for actor, step in found:
        given.text("ScriptedModel: an actor", actor, error=ScriptError)
        if not isinstance(step, Step) and not callable(step):
            raise given.refused(
                f"ScriptedModel: a step for {actor}", step, "build it with say, call or fail", ScriptError
            )
    return found
