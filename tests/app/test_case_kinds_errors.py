"""Whatever an endpoint and a disk do to a whole team: failures are told as such, with cause and last words (fault 15).

A real server refuses, breaks off, sends garbage or nothing, in any order; a model of the rules in a few lines says
how each agent has to end and what the leader is told. A disk fails for a while at any moment: that is told, the
run ends, and once the disk is well again everything that was in memory is in the files.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.case_teams import UnderWay, homes, perform, reports, standings
from support.disks import Disk, Picture
from support.histories import facts
from support.served import LEADER, actor, configure
from support.strict_server import (
    Reply,
    Response,
    StrictServer,
    api_error,
    calls,
    close,
    delta,
    finish,
    hang_up,
    no_done,
    reasoning,
    status,
    text,
)

from astrion_nb import Team
from astrion_nb.errors import RunFailed, StorageError
from astrion_nb.events import FLEETING, Stamped
from astrion_nb.home import Home
from astrion_nb.runtime.limits import BROKEN_TRIES, BUSY_TRIES
from astrion_nb.store.loading import load
from astrion_nb.testing import invariants

pytestmark = pytest.mark.faults

few_or_many = pytest.mark.parametrize("count", [60, pytest.param(500, marks=pytest.mark.slow)])


class Kind(NamedTuple):
    """What a server may do with a request: how it is to be taken, what is said of it, and the text that came."""

    verdict: str
    cause: str
    reply: Response
    partial: str = ""


def page(words: str) -> Reply:
    return Reply(body=f"<html><body>{words}</body></html>".encode(), headers={"Content-Type": "text/html"})


KINDS: dict[str, Kind] = {
    "done": Kind("done", "", text("All is drawn.")),
    "done without an end": Kind("done", "", [*text("All is drawn."), no_done()]),
    "look": Kind("look", "", calls(("list_active_sub_agents", {}), say="Looking around.")),
    "500": Kind("again", "status 500", status(500, "boom")),
    "502": Kind("again", "status 502", Reply(status=502, body=b"\x00\xff garbage")),
    "503": Kind("again", "status 503", status(503, headers={"Retry-After": "4"})),
    "408": Kind("again", "status 408", status(408)),
    "504": Kind("again", "status 504", status(504)),
    "hung up": Kind("again", "connection", hang_up()),
    "no event": Kind("again", "ended before the answer", [close()]),
    "half an event": Kind(
        "again", "ended before the answer", [delta(role="assistant", content=""), b"data: {", close()]
    ),
    "half a call": Kind("again", "ended before the answer", [*calls(("mark", {"what": "x"}))[:2], close()]),
    "only thoughts": Kind("again", "ended before the answer", [*reasoning("Hm."), close()]),
    "error in the stream": Kind("again", "not now", [{"error": {"message": "not now", "code": 500}}]),
    "429": Kind("busy", "too many requests", status(429, headers={"Retry-After": "1"})),
    "429 in the stream": Kind("busy", "too many requests", [{"error": {"message": "x", "type": "rate_limit"}}]),
    "400": Kind("fatal", "status 400", status(400)),
    "401": Kind("fatal", "check the API key", status(401)),
    "402": Kind("fatal", "check plan and billing", status(402)),
    "403": Kind("fatal", "status 403", status(403)),
    "404": Kind("fatal", "check base_url", status(404, "nothing here")),
    "418": Kind("fatal", "status 418", status(418, b"\xff\xfe".decode("latin-1"))),
    "422": Kind("fatal", "status 422", status(422, {"detail": [{"loc": ["body"], "msg": "no"}]})),
    "no quota": Kind("fatal", "no quota", api_error(429, "insufficient_quota", "You exceeded your current quota")),
    "a page": Kind("fatal", "no completion", page("Please log in")),
    "withheld": Kind(
        "fatal", "withheld", [delta(content="Per"), delta(content="haps"), finish("content_filter")], "Perhaps"
    ),
    "withheld at once": Kind("fatal", "withheld", api_error(400, "content_filter", "No.")),
    "broken off": Kind(
        "fatal", "broke off", [delta(content="Half an "), delta(content="answer"), close()], "Half an answer"
    ),
    "error after text": Kind(
        "fatal", "not now", [delta(content="Half."), {"error": {"message": "not now", "code": 500}}], "Half."
    ),
    "nothing": Kind("nothing", "empty answer", [delta(role="assistant", content=""), finish()]),
    "blanks": Kind("nothing", "empty answer", text(" \n")),
}


def outcome(kinds: list[str]) -> tuple[str, str, int]:
    """Return how a turn ends that meets these: its cause or nothing, the last words, and how many were met."""
    busy = broken = 0
    nudged, said = False, ""
    for number, name in enumerate([*kinds, "done"], 1):
        kind = KINDS[name]
        busy, broken = busy + (kind.verdict == "busy"), broken + (kind.verdict == "again")
        if kind.verdict == "done":
            return "", "All is drawn.", number
        if (
            kind.verdict == "fatal"
            or busy == BUSY_TRIES
            or broken == BROKEN_TRIES
            or (kind.verdict == "nothing" and nudged)
        ):
            return kind.cause, kind.partial or said, number
        if kind.verdict in ("look", "nothing"):
            busy = broken = 0
            nudged = nudged or kind.verdict == "nothing"
            said = "Looking around." if kind.verdict == "look" else said
    raise AssertionError("a turn ends")


class Play:
    """A leader who makes a member for each list of kinds, and members who meet theirs."""

    def __init__(self, members: list[list[str]], leader_breaks: bool) -> None:
        self.members = [[*kinds, "done"][::-1] for kinds in members]
        self.leader_breaks = leader_breaks
        self.leads = 0
        self.last: dict[str, Any] = {}

    def __call__(self, request: dict[str, Any], _: int) -> Response:
        who = actor(request)
        if who != LEADER:
            left = self.members[int(request["messages"][1]["content"].split("Page ")[1][0]) - 1]
            return KINDS[left.pop() if len(left) > 1 else left[0]].reply
        self.leads += 1
        self.last = request
        if self.leads == 1:
            tasks = [
                {"agent_id": n, "role_id": "ui-operator", "task": f"Page {n}."} for n in range(1, len(self.members) + 1)
            ]
            return calls(*(("create_sub_agent", task) for task in tasks))
        return status(403) if self.leader_breaks else text("Read.")


class Failing(Disk):
    """A disk that fails for a while.

    Parameters
    ----------
    first, last : int
        Operations that fail, counted from 1.
    number : int
        The system's error.
    """

    def __init__(self, root: Path, start: Picture, first: int, last: int, number: int) -> None:
        super().__init__(root, start)
        self.first, self.last, self.number = first, last, number
        self.operations = self.failed = 0

    def _operation(self) -> None:
        self.operations += 1
        if self.first <= self.operations <= self.last:
            self.failed += 1
            raise OSError(self.number, "the disk fails")

    def open_append(self, path: Path) -> int:
        self._operation()
        return super().open_append(path)

    def create(self, path: Path, mode: int | None = None) -> int:
        self._operation()
        return super().create(path, mode)

    def write(self, handle: int, data: bytes) -> int:
        self._operation()
        return super().write(handle, data)

    def fsync(self, handle: int) -> None:
        self._operation()
        super().fsync(handle)

    def truncate(self, handle: int, size: int) -> None:
        self._operation()
        super().truncate(handle, size)

    def mkdir(self, path: Path) -> None:
        self._operation()
        super().mkdir(path)

    def replace(self, source: Path, target: Path) -> None:
        self._operation()
        super().replace(source, target)

    def fsync_dir(self, path: Path) -> None:
        self._operation()
        super().fsync_dir(path)


def check_member(team: Team, events: list[Stamped], number: int, kinds: list[str]) -> None:
    """Check that a member ended as the rules say, and that the leader was told just that."""
    cause, said, _ = outcome(kinds)
    agent = team.state.agents[number]
    told = [(kind, how, words) for kind, how, words in reports(events, number) if kind != "progress"]
    assert len(told) == 1, told
    ((kind, how, words),) = told
    if not cause:
        assert (kind, how, words) == ("completion", "", said)
        assert standings(events, number) == ["running", "completed"]
        return
    assert (kind, how) == ("message", "failed")
    assert standings(events, number) == ["running", "failed"]
    assert cause in words, (cause, words)
    assert cause in agent.error
    assert said in words, (said, words)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[StrictServer, Path]]:
    with StrictServer() as server, homes() as folder:
        configure(folder, server)
        yield server, folder


OFTEN = ("look", "look", "look", "429", "429", "429", "429", "500", "hung up", "nothing")
MEMBERS = st.lists(st.lists(st.sampled_from([*sorted(KINDS), *OFTEN]), min_size=2, max_size=12), min_size=1, max_size=3)
WINDOWS = st.none() | st.tuples(
    st.sampled_from(range(8, 130)),
    st.sampled_from([1, 2, 5, 10**9]),
    st.sampled_from([errno.ENOSPC, errno.EIO, errno.EROFS]),
)


@few_or_many
def test_whatever_fails_is_told_with_its_cause_and_last_words_and_nothing_in_memory_is_lost(
    served: tuple[StrictServer, Path], count: int
) -> None:
    server, folder = served
    home = Home(folder)
    root = home.conversations.parent
    met: set[str] = set()
    ends: dict[str, int] = {"told": 0, "unnoticed": 0, "refused": 0}

    @settings(max_examples=count, suppress_health_check=list(HealthCheck))
    @given(MEMBERS, st.integers(0, 3), WINDOWS)
    def check(members: list[list[str]], leads: int, window: tuple[int, int, int] | None) -> None:
        breaks = leads == 0
        play = server.on_request = Play(members, breaks)
        first, length, number = window or (0, 0, 0)
        disk = Failing(root, Picture({}, {root, home.conversations}), first, first + length - 1, number)
        events: list[Stamped] = []
        under_way = UnderWay()

        def look(stamped: Stamped) -> None:
            if not isinstance(stamped.event, FLEETING):
                events.append(stamped)

        async def life() -> Team | None:
            team = Team(home=home, human=False)
            team.watch(look)
            try:
                return team if await lived(team) else None
            finally:
                disk.last = 0  # the disk is well again
                await team.close()

        async def lived(team: Team) -> bool:
            """Let the team live while its disk fails; returns whether it could begin."""
            told, ended = "", ""
            try:
                await team.open()
                ended = (await team.run("Go.")).status
            except StorageError as error:
                told = str(error)
            except RunFailed as error:
                ended = error.result.status
            assert not told or "the disk fails" in told
            if not team.conversation_id:
                ends["refused"] += 1
                return False
            runtime = await team.open()
            with suppress(StorageError, RunFailed):  # who gave the task may be told before the agents are
                await team.wait()
            assert not runtime.running
            invariants.check(team.state, events, runtime)
            if told:
                ends["told"] += 1
                return True
            ends["unnoticed"] += bool(disk.failed)
            assert ended == ("failed" if breaks else "completed")
            assert not breaks or "status 403" in team.state.run_error
            for place, kinds in enumerate(members, 1):
                check_member(team, events, place, kinds)
                met.update(kinds[: outcome(kinds)[2]])
            if not breaks:  # the leader went on, and has read all of it
                read = "\n".join(message["content"] or "" for message in play.last["messages"])
                letters = [words for place in range(len(members)) for _, _, words in reports(events, place + 1)]
                assert all(words in read for words in letters)
            return True

        async def again(name: str) -> None:
            async with Team(conversation=name, home=home, human=False) as team:
                assert (await team.run("And now?")).status == "completed"

        with under_way.counted():
            team = perform(life, files=lambda: disk, busy=under_way)
            if team is not None:
                stored = load(home.conversations / team.conversation_id, disk.powerless()).state  # type: ignore[arg-type]
                assert facts(stored) == facts(team.state)
                invariants.check(stored)
                play.leader_breaks = False
                perform(lambda: again(team.conversation_id), files=lambda: disk, busy=under_way)
        assert server.violations == []

    check()
    assert met == set(KINDS) if count > 100 else len(met) > 5
    if count >= 100:  # few plays meet of each what chance gives them
        assert ends["told"] > count // 30, ends
