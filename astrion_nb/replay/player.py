"""Replays a team: admits its steps in the recorded order, and says what its models said.

A step is admitted when it is the next of the recording, whatever the timing; deadlines pass when
the recording says that they passed; the clock shows the time of the step at hand. What the
recording does not hold is a :class:`ReplayMiss`, for everybody, at once where that is certain and
after a stall where it is not. Nothing ever falls through to a live model. Knows no team and no tool.
"""

from __future__ import annotations

import asyncio
import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from .. import given
from ..errors import ModelBusy, ReplayError, ReplayMiss, ToolError
from ..llm.model import ModelRequest
from ..runtime.order import StepKind, Timer
from .cassette import Cassette, Ended, Outcome, Response, Step, Tape
from .digest import Digester, Line, differences
from .models import ReplayModel
from .outcomes import replayed
from .scrub import Scrubber

STALL = 30.0
"""Seconds in which somebody must take the recording's next step."""
RESULT_STALL = 300.0
"""The same for the end of a tool call: a tool that is run again may compute for long."""

AnyTool = TypeVar("AnyTool")
Key = tuple[str, str, int]


class Player:
    """The order port of a team that is replayed.

    Parameters
    ----------
    tape : Tape
    name : str
        What to call the cassette in errors.
    speed : float, optional
        Tempo of the responses: 1 as recorded, 2 twice as fast; ``None`` at once.
    stall, result_stall : float
        Seconds after which a step that nobody takes is a miss.
    human_stall : float, optional
        The same for a person's step, which a later cell brings; ``None``: never.

    Attributes
    ----------
    on_miss : callable or None
        Called once, on the loop, with the miss that ended the replay: the place to end every turn.
    take_back : callable
        Leaves the tape to the next team, when the one that was to play it could not be opened.
    """

    replaying = True

    def __init__(
        self,
        tape: Tape,
        *,
        name: str = "the cassette",
        speed: float | None = None,
        stall: float = STALL,
        result_stall: float = RESULT_STALL,
        human_stall: float | None = None,
    ) -> None:
        self.tape = tape
        self.name = name
        self.speed = speed
        self.stall, self.result_stall, self.human_stall = stall, result_stall, human_stall
        self.on_miss: Callable[[ReplayMiss], None] | None = None
        self.take_back: Callable[[], None] = _nothing_to_do
        self.digester = Digester(Scrubber())
        self._steps: list[Step] = []
        self._places: dict[Key, int] = {}
        self._requests: dict[str, list[int]] = {}
        self._ends: dict[str, list[int]] = {}
        self._tries: dict[tuple[str, int], list[Response]] = {}
        for response in tape.responses:
            self._tries.setdefault((response.actor, response.n), []).append(response)
        self._holds: dict[int, list[tuple[str, int]]] = {}
        self._said: set[tuple[str, int]] = set()
        asked: dict[str, int] = {}
        for row in tape.order:
            place = len(self._steps)
            if isinstance(row, Ended):
                # What is ended by a step is ended when that step has come; being put away is no step.
                self._ends.setdefault(row.actor, []).append(place + (row.how == "interrupted"))
                if row.how != "interrupted" and self._cut((row.actor, asked.get(row.actor, 0))):
                    self._holds.setdefault(place - 1, []).append((row.actor, asked[row.actor]))
                continue
            self._places[row[:3]] = place
            if row.kind == "request":
                self._requests.setdefault(row.actor, []).append(place)
                asked[row.actor] = row.n
            self._steps.append(row)
        self._tried: dict[tuple[str, int], int] = {}
        self._outcomes = {(item.agent, item.call): item for item in tape.outcomes}
        self._at = 0
        self._elapsed = 0
        self._slept = 0.0
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._hanging: dict[asyncio.Future[None], str] = {}
        self._deadlines: dict[int, Callable[[], None]] = {}
        self._miss = ""
        self._moved = 0.0
        self._watchdog: asyncio.TimerHandle | None = None

    # -- what the recording knows -------------------------------------------------------

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the recorder was told about the team."""
        return self.tape.facts

    @property
    def next(self) -> Step | None:
        """The step that the recording waits for, or ``None`` at its end."""
        return self._steps[self._at] if self._at < len(self._steps) else None

    @property
    def miss(self) -> ReplayMiss | None:
        """The miss that ended the replay, if one did."""
        return ReplayMiss(self._miss) if self._miss else None

    def check(self) -> None:
        """Make sure that the whole recording was replayed.

        Raises
        ------
        ReplayMiss
            The replay left the recording.
        ReplayError
            Steps are left.
        """
        if self._miss:
            raise ReplayMiss(self._miss)
        left = len(self._steps) - self._at
        if left:
            raise ReplayError(
                f"{self.name}: {left} of {len(self._steps)} recorded steps were not replayed; next is {self.next}"
            )

    def close(self) -> None:
        """Stop watching for stalls. May be called more than once."""
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None

    # -- the order port -----------------------------------------------------------------

    async def admit(self, actor: str, kind: StepKind, n: int) -> None:
        """Return when the step is the recording's next.

        Raises
        ------
        ReplayMiss
            The recording does not come to it, or goes on with a step that nobody takes.
        """
        if self._miss:
            raise ReplayMiss(self._miss)
        place = self._places.get((actor, kind, n), -1)
        if place != self._at or not self._ready(place):
            if place < self._at:
                if not self._will_end(actor):
                    raise self.fail(f"{actor} comes to {kind} {n}, which it does not hold")
                if kind == "response":  # all its tries have failed, and it waited for the next one
                    self._say((actor, n))
                await self.hang(f"{actor} {kind} {n}")
            await self._turn(place)
        self._pass()

    async def _turn(self, place: int) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[place] = future
        self._watch()
        try:
            await future
        except asyncio.CancelledError:
            if self._waiting.get(place) is future:
                del self._waiting[place]
            raise
        if self._miss:
            raise ReplayMiss(self._miss)

    def _pass(self) -> None:
        """Go on to the next step. The caller acts before anybody who is woken here runs."""
        at = self._at
        recorded = self._steps[at].at
        self._elapsed = at + 1 if recorded is None else recorded
        self._at = at = at + 1
        self._moved = asyncio.get_running_loop().time()
        self._go_on()

    def _go_on(self) -> None:
        """Wake whoever takes the next step, unless it ends an answer of which something is still to be said."""
        at = self._at
        if not self._ready(at):
            return
        future = self._waiting.pop(at, None)
        if future is not None:
            if not future.done():
                future.set_result(None)
        elif at in self._deadlines:
            asyncio.get_running_loop().call_soon(self._expire, at)

    def _ready(self, place: int) -> bool:
        return self._said.issuperset(self._holds.get(place, ()))

    def _cut(self, key: tuple[str, int]) -> bool:
        """Say whether a request was being answered when its turn was ended, or tried again after tries that cost."""
        tries = self._tries.get(key)
        if tries is None or tries[-1].finish:
            return False
        wasted = any(item.usage is not None for item in tries)
        return tries[-1].failure is None or (wasted and (key[0], "response", key[1]) not in self._places)

    def now(self) -> float:
        """Return the time of the step at hand, in seconds since the epoch."""
        return (self.tape.started + self._elapsed) / 1000

    def monotonic(self) -> float:
        """Return the seconds slept; between sleeps no time passes."""
        return self._slept

    async def sleep(self, seconds: float) -> None:
        """Let others go first and count the time as passed."""
        self._slept += max(0.0, seconds)
        await asyncio.sleep(0)

    def at(self, actor: str, n: int, seconds: float, act: Callable[[], None]) -> Timer:
        """Keep a deadline that passes when, and only when, the recording says so."""
        place = self._places.get((actor, "timer", n), -1)
        if place >= self._at:
            self._deadlines[place] = act
            if place == self._at:
                asyncio.get_running_loop().call_soon(self._expire, place)
        return _Deadline(self._deadlines, place)

    def _expire(self, place: int) -> None:
        if place == self._at and self._ready(place) and not self._miss:
            act = self._deadlines.pop(place, None)
            if act is not None:
                self._pass()
                act()

    def _will_end(self, actor: str) -> bool:
        """Say whether the recording ends the actor's turn from outside before its next request."""
        ends = self._ends.get(actor, ())
        place = bisect_left(ends, self._at + 1)
        if place == len(ends):
            return False
        requests = self._requests.get(actor, ())
        following = bisect_left(requests, self._at)
        return following == len(requests) or requests[following] >= ends[place]

    async def hang_after(self, request: ModelRequest) -> None:
        """Wait to be cancelled in the middle of an answer, all of which that was recorded has been said."""
        self._say((request.actor, request.turn))
        await self.hang(f"{request.actor} response {request.turn}")

    def _say(self, key: tuple[str, int]) -> None:
        self._said.add(key)
        self._go_on()

    async def hang(self, what: str) -> None:
        """Wait to be cancelled, as whoever was cut short in the recording; a miss wakes it with an error."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._hanging[future] = what
        self._watch()
        try:
            await future
        finally:
            self._hanging.pop(future, None)

    # -- misses -------------------------------------------------------------------------

    def fail(self, what: str) -> ReplayMiss:
        """End the replay for everybody and return the error to raise."""
        if not self._miss:
            following = f"goes on with {self.next}" if self._at < len(self._steps) else "is at its end"
            self._miss = f"{self.name}: {what}; the recording {following}; correct that, or record again with --record"
            for future in (*self._waiting.values(), *self._hanging):
                if not future.done():
                    future.set_exception(ReplayMiss(self._miss))
            self._waiting.clear()
            if self.on_miss is not None:
                asyncio.get_running_loop().call_soon(self.on_miss, ReplayMiss(self._miss))
        return ReplayMiss(self._miss)

    def alive(self, seconds: float) -> None:
        """Say that something that takes so long goes on, so that nobody takes it for a stall."""
        self._moved = max(self._moved, asyncio.get_running_loop().time() + seconds)

    def expect_person(self, within: float | None) -> None:
        """Say within how many seconds a person's step must come; ``None``: some later cell may bring it.

        Call it on the loop.
        """
        self.human_stall = within
        if within is not None and self._watchdog is not None:
            loop = asyncio.get_running_loop()
            self._watchdog.cancel()
            self._moved = max(self._moved, loop.time())
            self._watchdog = loop.call_later(min(within, self.stall), self._look)

    def _watch(self) -> None:
        if self._watchdog is None:
            loop = asyncio.get_running_loop()
            self._moved = max(self._moved, loop.time())
            self._watchdog = loop.call_later(min(self.stall, self.human_stall or self.stall), self._look)

    def _look(self) -> None:
        self._watchdog = None
        if self._miss or not (self._waiting or self._hanging):
            return
        loop = asyncio.get_running_loop()
        following = self.next
        kind = following.kind if following is not None else ""
        limit = self.human_stall if kind == "human" else self.result_stall if kind == "result" else self.stall
        left = self.stall if limit is None else self._moved + limit - loop.time()
        if limit is not None and left <= 0:
            waiting = [str(self._steps[place]) for place in sorted(self._waiting)] + list(self._hanging.values())
            told = ", ".join(waiting[:5]) + (f" and {len(waiting) - 5} more" if len(waiting) > 5 else "")
            self.fail(f"nothing has happened for {given.seconds_text(limit)}; waiting are {told}")
            return
        self._watchdog = loop.call_later(max(left, 0.001), self._look)

    # -- models and tools ---------------------------------------------------------------

    def model(self, key: str) -> ReplayModel:
        """Return the model that stands for every model of a key."""
        return ReplayModel(key, self)

    async def response(self, request: ModelRequest) -> tuple[Response, bool]:
        """Return the recorded response to a request, and whether it was the last try of it.

        Raises
        ------
        ReplayMiss
            There is none, or it belongs to another request.
        """
        if self._miss:
            raise ReplayMiss(self._miss)
        key = (request.actor, request.turn)
        tries = [item for item in self._tries.get(key, ()) if not _leaves_no_trace(item)]
        tries = tries or self._tries.get(key, [])[-1:]
        if not tries:
            if not self._will_end(request.actor):
                raise self.fail(f"{request.actor}, request {request.turn}: it holds no response to it")
            await self.hang(f"{request.actor} response {request.turn}")
        asked = self.digester.of(request)
        place = self._tried.get(key, 0)
        response = tries[min(place, len(tries) - 1)]
        self._tried[key] = place + 1
        if asked.digest != response.asked.digest:
            modes = (response.asked.mode, asked.mode)
            before, now = self.tape.toolsets.get(response.asked.toolset, {}), self.digester.toolsets[asked.toolset]
            found = differences(self._recorded_lines(key), self.digester.lines(request.actor), (before, now), modes)
            raise self.fail(f"{request.actor}, request {request.turn} is not the recorded one: {found}")
        return response, place >= len(tries) - 1

    def _recorded_lines(self, key: tuple[str, int]) -> list[Line]:
        lines: list[Line] = []
        for response in self.tape.responses:
            if response.actor == key[0]:
                lines = [*lines[: response.asked.kept], *response.asked.added]
                if response.n == key[1]:
                    break
        return lines

    def tools(self, tools: Sequence[AnyTool]) -> tuple[AnyTool, ...]:
        """Return the tools, those with side effects replaced by their recorded outcomes."""
        return tuple(replayed(tool, self) if getattr(tool, "side_effects", False) else tool for tool in tools)

    async def outcome(self, agent: int, call: str, tool: str) -> str:
        """Return what a call of a tool with side effects came to; raises what it raised."""
        found: Outcome | None = self._outcomes.get((agent, call))
        if found is None:
            raise self.fail(f"it holds no outcome of {tool}, call {call} of agent {agent}")
        if found.error is not None:
            raise ToolError(found.error)
        if found.text is None:
            await self.hang(f"{tool}, call {call} of agent {agent}")
            raise AssertionError("only a miss or a cancellation ends this wait")
        return found.text


_BUSY = ModelBusy.__name__


def _leaves_no_trace(item: Response) -> bool:
    """Say whether a try was put off with 429, and has cost nothing but time."""
    return item.failure is not None and item.failure.kind == _BUSY and item.usage is None


class _Deadline:
    __slots__ = ("_deadlines", "_place")

    def __init__(self, deadlines: dict[int, Callable[[], None]], place: int) -> None:
        self._deadlines = deadlines
        self._place = place

    def cancel(self) -> None:
        """Call the deadline off."""
        self._deadlines.pop(self._place, None)


def _nothing_to_do() -> None:
    pass


_PLAYED: dict[Path, tuple[Cassette, int]] = {}
_LOCK = threading.Lock()


def open_player(
    path: Path | str, team_index: int | None = None, **options: Any
) -> tuple[Player, Callable[[str], ReplayModel]]:
    """Return the player of a team, and what makes its models by key.

    The first team that a process makes for a path gets the cassette's first tape, the second the
    second, and so on: as they were recorded.

    Parameters
    ----------
    path : path
    team_index : int, optional
        Which tape, counted from 0, instead of the next one.
    **options
        ``speed``, ``stall``, ``result_stall``, ``human_stall`` of :class:`Player`.

    Raises
    ------
    ReplayError
        The file is missing, damaged or of a later version.
    ReplayMiss
        More teams are made than were recorded.
    """
    place = Path(path).absolute()
    with _LOCK:
        cassette, following = _PLAYED.get(place, (None, 0))
        if cassette is None or team_index is not None:
            cassette = Cassette.load(place)
        index = following if team_index is None else team_index
        if not 0 <= index < len(cassette.teams):
            raise ReplayMiss(
                f"{place.name}: team {index + 1} is asked for and {len(cassette.teams)} were recorded; "
                "restart the kernel to replay from the start, or record again with --record"
            )
        _PLAYED[place] = (cassette, index + 1)
    player = Player(cassette.teams[index], name=place.name, **options)

    def take_back() -> None:
        with _LOCK:
            if _PLAYED.get(place) != (cassette, index + 1):
                return  # another team has gone on from there
            if following:
                _PLAYED[place] = (cassette, following)
            else:
                del _PLAYED[place]

    player.take_back = take_back
    return player, player.model


def rewind(path: Path | str | None = None) -> None:
    """Forget which teams of a path (or of all) were replayed: the next one is the first again."""
    with _LOCK:
        if path is None:
            _PLAYED.clear()
        else:
            _PLAYED.pop(Path(path).absolute(), None)
