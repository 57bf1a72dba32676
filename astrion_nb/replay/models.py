"""The two models around a cassette: one notes what the real one says, one says what was noted.

Neither knows the order of steps; what a request must look like is the player's to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Literal

from .. import errors
from ..errors import AstrionError, ModelError
from ..llm.model import Finished, Model, ModelRequest, ReasoningDelta, StreamEvent, TextDelta
from .cassette import Chunk, Failure, Response
from .scrub import Scrubber

if TYPE_CHECKING:
    from .player import Player
    from .recorder import Recorder

CHUNK = 24
"""Characters from which on a recorded chunk takes no more pieces."""
PAUSE = 200
"""Milliseconds after which a piece begins a new chunk, however short the one before is."""
_TRAITS = ("body", "brief", "context", "offers")
"""What a model may say of itself beyond what every model does: a recorded one is asked the same."""


class RecordingModel:
    """A model whose responses are recorded.

    Parameters
    ----------
    inner : Model
    recorder : Recorder
    """

    def __init__(self, inner: Model, recorder: Recorder) -> None:
        self.inner = inner
        self.key = inner.key
        self.endpoint = inner.endpoint
        for name in _TRAITS:
            if hasattr(inner, name):
                setattr(self, name, getattr(inner, name))
        self._recorder = recorder

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        """Ask the inner model and pass on what it says."""
        recorder = self._recorder
        clock = asyncio.get_running_loop().time
        pieces: list[Chunk] = []
        response = recorder.asked(request, self.key, pieces)
        finished: Finished | None = None
        last, after = clock(), 0
        stream = self.inner.stream(request)
        try:
            async for event in stream:
                now = clock()
                after, last = round((now - last) * 1000), now
                if isinstance(event, TextDelta):
                    pieces.append(Chunk(after, event.text))
                elif isinstance(event, ReasoningDelta):
                    pieces.append(Chunk(after, event.text, True))
                else:
                    finished = event
                    recorder.finish(response, pieces, finished, after)
                yield event
        except Exception as error:
            recorder.failed(response, error)
            raise
        finally:
            if finished is None:
                recorder.finish(response, pieces, None, 0)
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()

    async def close(self) -> None:
        """Close the inner model."""
        await self.inner.close()


class ReplayModel:
    """A model that says what was recorded.

    Parameters
    ----------
    key : str
    player : Player
    """

    def __init__(self, key: str, player: Player) -> None:
        self.key = key
        self.endpoint = f"replay:{id(player):x}:{key}"
        self._player = player

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        """Yield the recorded response, at once or at the player's tempo."""
        player = self._player
        # A real model answers in a later turn of the loop; so does this one.
        await asyncio.sleep(0)
        response, final = await player.response(request)
        for chunk in response.stream:
            if player.speed:
                await self._pause(chunk.after)
            yield ReasoningDelta(chunk.text) if chunk.reasoning else TextDelta(chunk.text)
        if response.failure is not None:
            raise _error(response.failure, response, final)
        if not response.finish:
            await player.hang_after(request)
        if player.speed:
            await self._pause(response.end)
        yield _finished(response, self.key)

    async def _pause(self, milliseconds: int) -> None:
        player = self._player
        if milliseconds and player.speed:
            seconds = milliseconds / 1000 / player.speed
            player.alive(seconds)
            await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Nothing is held."""


def _finished(response: Response, key: str) -> Finished:
    text, reasoning = response.text, response.reasoning
    if text is None:
        text = "".join(chunk.text for chunk in response.stream if not chunk.reasoning)
    if reasoning is None:
        reasoning = "".join(chunk.text for chunk in response.stream if chunk.reasoning)
    finish: Literal["stop", "tool_calls", "length", "content_filter"] = response.finish  # type: ignore[assignment]
    return Finished(text, response.calls, finish, response.usage, reasoning, key, response.truncated)


def _error(failure: Failure, response: Response, final: bool) -> AstrionError:
    kind = getattr(errors, failure.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, AstrionError)):
        return AstrionError(f"internal fault: {failure.kind}: {failure.message}")
    if not issubclass(kind, ModelError):
        return kind(failure.message)
    error = kind(failure.message, status=failure.status, retry_after=failure.retry_after)
    error.partial, error.usage = failure.partial, response.usage
    if final:
        error.retryable = False  # the recording tried no further
    return error


def chunks(pieces: Sequence[Chunk], scrubber: Scrubber, timings: bool) -> list[Chunk]:
    """Join pieces to chunks that are good to read, and clean them.

    A secret may lie across two pieces, so the whole text is cleaned; where that changes it, it
    becomes one chunk.
    """
    out: list[Chunk] = []
    for piece in pieces:
        before = out[-1] if out else None
        joins = (
            before is not None
            and before.reasoning is piece.reasoning
            and len(before.text) < CHUNK
            and not (timings and piece.after > PAUSE)
        )
        if before is not None and joins:
            out[-1] = Chunk(before.after + (piece.after if timings else 0), before.text + piece.text, before.reasoning)
        else:
            out.append(piece if timings else Chunk(0, piece.text, piece.reasoning))
    for reasoning in (True, False):
        mine = [chunk for chunk in out if chunk.reasoning is reasoning]
        whole = "".join(chunk.text for chunk in mine)
        clean = scrubber.text(whole)
        if clean != whole:
            one = Chunk(mine[0].after, clean, reasoning)
            place = out.index(mine[0])
            out = [
                one if i == place else chunk
                for i, chunk in enumerate(out)
                if i == place or chunk.reasoning is not reasoning
            ]
    return out
