"""Records a team: the order in which its steps were admitted, and what its models said.

The recorder stands around the live order. Time stands still between two steps, so that everything
that happens in one step carries that step's time: a replay, which has nothing but the steps, tells
the same time at the same place. Knows no team; it learns of ended turns from the events.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ..errors import AstrionError, ModelError
from ..events import Stamped, StatusChanged
from ..llm.model import Finished, Model, ModelRequest
from ..messages import ToolCall
from ..runtime.order import Live, Order, StepKind, Timer
from ..state import TeamState
from .cassette import Cassette, Chunk, Ended, Failure, Outcome, Response, Step, Tape, check_recordable
from .digest import Digester
from .models import RecordingModel, chunks
from .outcomes import recorded
from .scrub import Scrubber

TIMELESS_START = 1_767_225_600_000
"""Where the clock of a recording without timings starts (the first second of 2026, UTC)."""

AnyTool = TypeVar("AnyTool")
_ENDED = ("stopped", "timed_out", "failed", "interrupted")


class Announces(Protocol):
    """What is watched: a team's bus."""

    state: TeamState

    def subscribe(self, subscriber: Callable[[Stamped], None]) -> Any:
        """Call the subscriber with every event."""


class Recording:
    """A cassette in the making: the recorders of all teams of one process that write to one file.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cassette = Cassette()
        self._lock = threading.Lock()

    def recorder(self, facts: Mapping[str, Any] | None = None, **options: Any) -> Recorder:
        """Return the recorder of the next team; options are those of :class:`Recorder`."""
        with self._lock:
            made = Recorder(facts, recording=self, **options)
            self.cassette.teams.append(made.tape)
        return made

    def without(self, tape: Tape) -> None:
        """Take back the tape of a team that came to nothing."""
        with self._lock:
            self.cassette.teams[:] = [each for each in self.cassette.teams if each is not tape]

    def save(self) -> None:
        """Write what there is by now; raises :class:`StorageError`."""
        with self._lock:
            self.cassette.save(self.path)


class Recorder:
    """The order port of a team that is recorded.

    Parameters
    ----------
    facts : mapping, optional
        What a replay has to know before the first step (language, model key, whether a person can
        act, …); plain JSON.
    inner : Order, optional
        What is recorded; default :class:`Live`.
    timings : bool
        Whether times are kept. Without them two recordings of the same scripted run are the same
        bytes, and the clock counts one millisecond a step.
    secrets : iterable of str
        Values that may not appear in the file.
    recording : Recording, optional
        The file that :meth:`save` writes to when it is given no other.
    """

    replaying = False

    def __init__(
        self,
        facts: Mapping[str, Any] | None = None,
        *,
        inner: Order | None = None,
        timings: bool = True,
        secrets: Iterable[str] = (),
        recording: Recording | None = None,
    ) -> None:
        self.inner = inner or Live()
        self.timings = timings
        self._scrubber = Scrubber(secrets)
        self._recording = recording
        self._digester = Digester(self._scrubber)
        self._steps = 0
        self._elapsed = 0
        self._under_way: dict[str, tuple[Response, list[Chunk]]] = {}
        """By actor: the answer that comes in, and what has come of it."""
        started = round(self.inner.now() * 1000) if timings else TIMELESS_START
        self.tape = Tape(started, dict(facts or {}), toolsets=self._digester.toolsets)

    # -- the order port -----------------------------------------------------------------

    async def admit(self, actor: str, kind: StepKind, n: int) -> None:
        """Admit as the inner order does, and note it."""
        await self.inner.admit(actor, kind, n)
        self._note(actor, kind, n)

    def _note(self, actor: str, kind: StepKind, n: int) -> None:
        self._steps += 1
        if self.timings:
            self._elapsed = max(self._elapsed, round(self.inner.now() * 1000) - self.tape.started)
            self.tape.order.append(Step(actor, kind, n, self._elapsed))
        else:
            self._elapsed = self._steps
            self.tape.order.append(Step(actor, kind, n))

    def now(self) -> float:
        """Return the time of the step that was admitted last, in seconds since the epoch."""
        return (self.tape.started + self._elapsed) / 1000

    def monotonic(self) -> float:
        """Return the inner order's seconds, which do go on between steps."""
        return self.inner.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait as the inner order does."""
        await self.inner.sleep(seconds)

    def at(self, actor: str, n: int, seconds: float, act: Callable[[], None]) -> Timer:
        """Keep a deadline; that it passed is a step."""

        def passed() -> None:
            self._note(actor, "timer", n)
            act()

        return self.inner.at(actor, n, seconds, passed)

    def watch(self, bus: Announces) -> None:
        """Learn from a team's events whose turns are ended; call it once, before the first run.

        Without it a turn that was stopped, or ran out of time, replays as a miss.
        """

        def observe(stamped: Stamped) -> None:
            event = stamped.event
            if type(event) is StatusChanged and event.status == "idle" and event.detail in _ENDED:
                name = bus.state.name_of(event.agent_id)
                self.tape.order.append(Ended(name, event.detail))
                if name in self._under_way:  # its task ends later, perhaps when the recording is saved already
                    self.finish(*self._under_way[name], None, 0)

        bus.subscribe(observe)

    # -- models and tools ---------------------------------------------------------------

    def model(self, inner: Model) -> RecordingModel:
        """Return a model that is recorded."""
        return RecordingModel(inner, self)

    def asked(self, request: ModelRequest, key: str, pieces: list[Chunk]) -> Response:
        """Note a request and return where its response goes; its pieces are put into the list as they come."""
        response = Response(request.actor, request.turn, key, self._digester.of(request))
        self.tape.responses.append(response)
        self._under_way[request.actor] = (response, pieces)
        return response

    def finish(self, response: Response, pieces: list[Chunk], finished: Finished | None, last: int) -> None:
        """Note what came of a request, also when it was cut short."""
        response.stream = chunks(pieces, self._scrubber, self.timings)
        if self._under_way.get(response.actor, (None,))[0] is response:
            del self._under_way[response.actor]
        if finished is None:
            return
        scrub = self._scrubber.text
        streamed = {
            kind: "".join(chunk.text for chunk in response.stream if chunk.reasoning is kind) for kind in (False, True)
        }
        text, reasoning = scrub(finished.text), scrub(finished.reasoning)
        response.text = None if text == streamed[False] else text
        response.reasoning = None if reasoning == streamed[True] else reasoning
        response.calls = tuple(ToolCall(call.id, call.name, scrub(call.arguments)) for call in finished.tool_calls)
        response.finish = finished.finish
        response.truncated = finished.truncated
        response.usage = finished.usage
        response.end = last if self.timings else 0

    def failed(self, response: Response, error: Exception) -> None:
        """Note that a request failed.

        What is said of it goes into reports and so into requests: it is said from here on as the recording has it.
        """
        message = self._scrubber.error(str(error))
        if isinstance(error, AstrionError):
            error.args = (message,)
        if isinstance(error, ModelError):
            partial = self._scrubber.text(error.partial)
            response.failure = Failure(type(error).__name__, message, error.status, error.retry_after, partial)
            response.usage = error.usage
        else:
            response.failure = Failure(type(error).__name__, message)

    def tools(self, tools: Sequence[AnyTool], text: Callable[[Any], str]) -> tuple[AnyTool, ...]:
        """Return the tools, those with side effects recorded.

        Parameters
        ----------
        tools : sequence of Tool
        text : callable
            What turns a tool's value into the text that a model reads.
        """
        return tuple(recorded(tool, self, text) if getattr(tool, "side_effects", False) else tool for tool in tools)

    def outcome(self, agent: int, call: str, tool: str) -> Outcome:
        """Note a call of a tool with side effects and return where its outcome goes."""
        made = Outcome(agent, call, tool)
        self.tape.outcomes.append(made)
        return made

    def scrub(self, text: str) -> str:
        """Return a text as it may stand in the file."""
        return self._scrubber.text(text)

    # -- the file -----------------------------------------------------------------------

    def save(self, path: Path | None = None) -> None:
        """Write what there is: to the recording's file with all its teams, or alone to another.

        Raises
        ------
        StorageError
            It cannot be written.
        """
        if path is not None:
            Cassette([self.tape]).save(path)
        elif self._recording is not None:
            self._recording.save()

    def take_back(self) -> None:
        """Leave no place in the recording to a team that could not be opened."""
        if self._recording is not None:
            self._recording.without(self.tape)

    def close(self) -> None:
        """Save, when the recorder belongs to a file."""
        self.save()


_RECORDINGS: dict[Path, Recording] = {}
_LOCK = threading.Lock()


def open_recorder(path: Path | str, facts: Mapping[str, Any] | None = None, **options: Any) -> Recorder:
    """Return the recorder of a new team, whose tape goes to a file.

    The first call for a path begins a new cassette, which replaces the file when it is saved for
    the first time; every further call in this process adds the next team to it. Each
    :meth:`Recorder.save` writes all of them.

    Parameters
    ----------
    path : path
    facts : mapping, optional
    **options
        ``timings``, ``secrets``, ``inner`` of :class:`Recorder`.

    Raises
    ------
    ReplayError
        No cassette can be written there, or a file that is none is there.
    """
    place = Path(path).absolute()
    with _LOCK:
        recording = _RECORDINGS.get(place)
        if recording is None:
            check_recordable(place)
            recording = _RECORDINGS[place] = Recording(place)
    return recording.recorder(facts, **options)


def start_over(path: Path | str | None = None) -> None:
    """Forget the cassette begun for a path (or all): the next recorder begins anew."""
    with _LOCK:
        if path is None:
            _RECORDINGS.clear()
        else:
            _RECORDINGS.pop(Path(path).absolute(), None)
