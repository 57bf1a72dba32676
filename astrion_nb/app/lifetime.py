"""A team's life: opened when the first thing is asked of it, its files brought to rest, put away.

Whose loop it lives on, when its documents are written, what is done with what happens to it, and what
an end has to wait for. Knows no task and no agent; of questions only which one a result has to name
because nobody could answer it, and even that is :mod:`~astrion_nb.app.result`'s to say.

Source: decisions 25, 27–29.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Self

from .. import given
from ..errors import StorageError, TeamError
from ..events import ConversationFiled, MessageAppended, RunEnded, Stamped
from ..runtime.team import TeamRuntime
from ..state import title_line
from .observed import Observed
from .opening import Opened, Plan, open_team
from .result import TeamResult, team_result, unanswered

log = logging.getLogger(__name__)

REST_BEFORE_SETTLING = 2.0
"""Seconds of rest after which the documents are written (decision 27)."""
PUTTING_AWAY = 1.0
"""Seconds that a turn which its clock has ended gets when the team is closed, to put away what it has in hand."""


class Lived(Observed):
    """A team that can be opened and closed.

    Parameters
    ----------
    plan : Plan
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.attended = False
        """Set by whoever attaches a view through which a person can answer."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._settling: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._unanswered: list[str] = []
        self._closed = False
        self._put_away = False
        self._closing = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> TeamRuntime:
        """Open the conversation, once; everything else does it by itself.

        Raises
        ------
        ConfigError, NoModelError
            No model, an unknown key, a wrong setting.
        ConversationNotFound, ConversationLocked, ConversationBroken
            The conversation to go on with cannot be used.
        """
        if self._closed:
            raise TeamError(
                f"this team is closed: go on with its conversation (%%team --continue {self.conversation_id or 'ID'}, "
                "Team(conversation=…)), or make another"
            )
        if self._opened is None:
            self._opened = open_team(self._plan, self._observe, lambda: self.attended or self._watch.listened)
            self._loop = asyncio.get_running_loop()
            self._watch.left = self._person_left
            for warning in self.warnings:
                log.warning("%s", warning)  # on a script's standard error, in a kernel's log
        self._check_loop()
        return self._opened.runtime

    def _person_left(self) -> None:
        """Nobody listens any more: nothing waits for a person who is not there."""
        if self._opened is not None and not self._closed and self._plan.access != "read":
            self._opened.runtime.person_left()

    def _check_access(self) -> None:
        """Refuse what would change a conversation that is only read."""
        if self._plan.access == "read":
            raise TeamError(
                f"{self.conversation_id} is open for reading only: resume it without --read-only to go on with it "
                "(Team: read_only)"
            )

    def _check_loop(self) -> None:
        loop = self._loop
        if loop is not None and loop is not asyncio.get_running_loop() and loop.is_running():
            raise TeamError(
                "this team lives on another event loop, which still runs: use it there "
                "(asyncio.run_coroutine_threadsafe hands a call over)"
            )

    async def close(self) -> None:
        """Put the team away: running agents are interrupted, waiting ones wait on, files are at rest.

        May be called more than once; after an error it tries again.

        Raises
        ------
        StorageError
            The conversation cannot be written. It stays open, and nothing is lost.
        """
        self._check_loop()
        self._closed = True
        async with self._closing:
            if self._put_away:
                return
            if self._settling is not None:
                self._settling.cancel()
            opened = self._opened
            try:
                if opened is not None:
                    if self._plan.access != "read":  # else nobody works here, and nothing may change
                        await ended(opened.runtime.shut())
                        await ended(opened.runtime.halted, within=PUTTING_AWAY)
                    await ended(tuple(self._tasks))
                    await opened.conversation.close()
                self._put_away = True
            finally:
                self._watch.close()
                if opened is not None:
                    try:
                        await opened.models.close()
                    except Exception as error:
                        if self._put_away:
                            raise
                        log.warning("%s", error)  # beside what keeps the team from being put away, which is raised
                    finally:
                        opened.session.close()

    async def rename(self, title: str) -> None:
        """Give the conversation another title, of one line; no later task changes it any more.

        Raises
        ------
        StorageError
            It cannot be written.
        """
        given.text("rename: the title", title, empty="say the new title")
        await self._file(ConversationFiled(title=title_line(title)))

    async def archive(self, archived: bool = True) -> None:
        """Archive the conversation, or bring it back; the team goes on either way.

        Raises
        ------
        StorageError
            It cannot be written.
        """
        given.switch("archive: archived", archived)
        await self._file(ConversationFiled(archived=archived))

    async def _file(self, event: ConversationFiled) -> None:
        runtime = await self.open()
        self._check_access()
        assert self._opened is not None
        runtime.bus.publish(event)
        await self._opened.conversation.settle()

    def close_now(self, seconds: float) -> None:
        """Put the files at rest where no event loop runs any more, as at the end of a process.

        Parameters
        ----------
        seconds : float
            How long to wait for the disk.

        Raises
        ------
        StorageError
            It was not saved in time; the journal holds what the documents lack.
        """
        self._closed = True
        if self._opened is not None and not self._put_away:
            self._opened.conversation.close_now(seconds)
            self._put_away = True

    def _observe(self, stamped: Stamped) -> None:
        event = stamped.event
        self._watch.tell(stamped)
        if isinstance(event, RunEnded):
            if self._opened is not None:
                try:
                    self._opened.session.save()
                except StorageError as error:  # whoever waits for the run is told
                    self._opened.runtime.fatal = self._opened.runtime.fatal or error
                self._opened.conversation.settle_soon(resting=True)
            self._settle_at_rest()
        elif isinstance(event, MessageAppended) and self._opened is not None:
            # One turn may be long: what a kill leaves to be read is bounded.
            self._opened.conversation.settle_soon(resting=False)
        if question := unanswered(self.state, event):
            self._unanswered.append(question)

    def _settle_at_rest(self) -> None:
        if self._settling is not None:
            self._settling.cancel()
        self._settling = asyncio.get_running_loop().call_later(REST_BEFORE_SETTLING, self._settle)

    def _settle(self) -> None:
        opened = self._opened
        if opened is not None and not opened.runtime.running and not self._closed:
            task = asyncio.get_running_loop().create_task(self._write_documents(opened))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _write_documents(self, opened: Opened) -> None:
        try:
            await opened.conversation.settle()
        except StorageError as error:
            opened.runtime.fatal = opened.runtime.fatal or error

    def result(self) -> TeamResult:
        """Return how the last run ended, or what there is of a running one."""
        return team_result(self.state, tuple(self._unanswered), self.cost)


async def ended(tasks: Iterable[asyncio.Task[None] | None], *, within: float | None = None) -> None:
    """Wait until cancelled turns are over, whatever they end with; for so many seconds at most."""
    left = {task for task in tasks if task is not None}
    if left:
        await asyncio.wait(left, timeout=within)


@contextmanager
def begun(runtime: TeamRuntime, title: str) -> Iterator[None]:
    """Begin a run for what follows; where that is refused, no run is left that nobody would end."""
    runtime.begin_run(title)
    try:
        yield
    except BaseException:
        if not runtime.running:
            runtime.end_run()
        raise
