"""A team whose process is killed at every point of every save: what is left is whole, and the work goes on from it."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from signal import SIGKILL
from typing import Any

import pytest
from support import atelier, killed
from support.served import configure
from support.strict_server import StrictServer
from support.zygote import Zygote

pytestmark = [pytest.mark.kill, pytest.mark.faults]
SAMPLE = 16
AT_ONCE = 2


class Bench:
    """Where teams are killed: two processes that fork, and a server that refuses what a provider would."""

    def __init__(self, server: StrictServer, zygotes: list[Zygote], folder: Path) -> None:
        self.server = server
        self.folder = folder
        self._free: SimpleQueue[Zygote] = SimpleQueue()
        for zygote in zygotes:
            self._free.put(zygote)
        self.points = self._record("recorded")
        self.again = self._record("recorded-again")
        taken_up = self._call("go_on", home=str(folder / "recorded"))
        assert taken_up.error == "", taken_up.error
        self.uninterrupted: dict[str, Any] = taken_up.value
        self.killed_again: list[int] = []

    def _record(self, name: str) -> list[str]:
        ended = self._call("perform", home=self._home(name))
        assert (ended.signal, ended.error) == (0, ""), ended.error
        points: list[str] = ended.value
        return points

    def _home(self, name: str) -> str:
        home = self.folder / name
        while home.exists():  # another test has killed a team at this point
            home = home.with_name(f"{home.name}-again")
        configure(home, self.server)
        return str(home)

    def _call(self, function: str, **arguments: Any) -> Any:
        zygote = self._free.get()
        try:
            return zygote.call(function, **arguments)
        finally:
            self._free.put(zygote)

    def jump(self) -> tuple[list[str], dict[str, Any]]:
        """Let the team work while its wall clock jumps, and take it up; returns the points and the facts."""
        home = self._home("jumping")
        ended = self._call("perform", home=home, jump=True)
        assert (ended.signal, ended.error) == (0, ""), ended.error
        taken_up = self._call("go_on", home=home)
        assert taken_up.error == "", taken_up.error
        return ended.value, taken_up.value

    def kill(self, point: int) -> str:
        """Kill a team at a point and take it up again; returns what is wrong, or an empty string."""
        home = self._home(f"point-{point}")
        label = self.points[point - 1]
        try:
            died = self._call("perform", home=home, kill_at=point)
            assert (died.signal, died.error) == (SIGKILL, ""), died.error or "it came to its end"
            assert died.value == label, f"it died {died.value!r}"
            taken_up = self._call("go_on", home=home)
            assert (taken_up.signal, taken_up.error) == (0, ""), taken_up.error
            killed.compare(self.uninterrupted, taken_up.value)
        except AssertionError as error:
            return f"point {point} ({label}): {error}"
        return ""

    def kill_twice(self, point: int) -> str:
        """Kill a team at a point, and the process that takes it up as well, at some point of its own."""
        home = self._home(f"twice-{point}")
        again = 1 + point * 7 % 60
        try:
            self._call("perform", home=home, kill_at=point)
            second = self._call("go_on", home=home, kill_at=again)
            assert second.error == "", second.error
            if second.signal == SIGKILL:
                self.killed_again.append(point)  # else it had come to its end before that point
            third = self._call("go_on", home=home)
            assert (third.signal, third.error) == (0, ""), third.error
            killed.compare(self.uninterrupted, third.value)
        except AssertionError as error:
            return f"point {point} ({self.points[point - 1]}), then {again}: {error}"
        return ""

    def pictures(self) -> list[killed.Left]:
        """Return what a power loss may leave of the team's work, at every moment of it."""
        home = self._home("powerless")
        ended = self._call("lose_power", home=home)
        assert ended.error == "", ended.error
        found: list[killed.Left] = pickle.loads((Path(home) / "pictures").read_bytes())
        assert len(found) > ended.value > len(self.points) // 2
        return found

    def read_all(self) -> int:
        """Load every picture; returns in how many there was a conversation."""
        ended = self._call("read_all", home=str(self.folder / "powerless"))
        assert ended.error == "", ended.error
        count: int = ended.value
        return count

    def restart(self, left: killed.Left, number: int) -> str:
        """Take a team up from a picture; returns what is wrong, or an empty string."""
        home = self._home(f"picture-{number}")
        left.lay_out(self.folder / "powerless", Path(home))
        try:
            taken_up = self._call("go_on", home=home)
            assert (taken_up.signal, taken_up.error) == (0, ""), taken_up.error
            killed.compare(self.uninterrupted, taken_up.value)
        except AssertionError as error:
            return f"picture {number}, after operation {left.operation}: {error}"
        return ""

    def restart_all(self, pictures: list[killed.Left]) -> list[str]:
        """Take a team up from each of these pictures; returns what is wrong."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return [fault for fault in pool.map(self.restart, pictures, range(len(pictures))) if fault]

    def kill_all(self, points: Sequence[int], kill: Callable[[int], str] | None = None) -> list[str]:
        """Kill a team at each of these points; returns what is wrong."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return [fault for fault in pool.map(kill or self.kill, points) if fault]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with StrictServer() as server, Zygote("support.killed") as first, Zygote("support.killed") as second:
        server.on_request = atelier.play
        yield Bench(server, [first, second], tmp_path_factory.mktemp("killed"))
        assert server.violations == []


def test_the_same_team_passes_the_same_points_every_time(bench: Bench) -> None:
    assert bench.again == bench.points
    phases = {label.rsplit(" ", 1)[0] if " a folder" not in label else "after sync" for label in bench.points}
    assert phases >= {"before write", "torn write", "after write", "after fsync", "after rename", "after sync"}
    saved = {label.split(" ")[2].split("/")[-1] for label in bench.points if label.startswith("after rename")}
    documents = {"metadata.json", "messages.json", "runtime.json", "index.json", "state.json", "owner.json"}
    assert saved == documents | {"journal.jsonl"}


def test_a_wall_clock_that_jumps_by_years_changes_no_step_no_order_no_timeout_and_no_word(bench: Bench) -> None:
    points, facts = bench.jump()
    assert [_nameless(label) for label in points] == [_nameless(label) for label in bench.points]
    assert facts == bench.uninterrupted
    assert (bench.folder / "jumping" / "diary").read_bytes() == (bench.folder / "recorded" / "diary").read_bytes()


def _nameless(label: str) -> str:
    """Return a point's label without the conversation's id, in which the time stands."""
    return re.sub(r"conv_\w+", "conv", label)


def test_a_team_killed_at_some_point_of_every_kind_loses_nothing_and_repeats_nothing(bench: Bench) -> None:
    by_kind = sorted(range(1, len(bench.points) + 1), key=lambda point: (bench.points[point - 1], point))
    sample = by_kind[:: max(1, len(by_kind) // SAMPLE)]
    faults = bench.kill_all(sample)
    print(f"{len(sample)} of {len(bench.points)} kill points")
    assert faults == [], "\n\n".join(faults)


@pytest.mark.slow
def test_a_team_killed_at_every_point_of_every_save_loses_nothing_and_repeats_nothing(bench: Bench) -> None:
    points = range(1, len(bench.points) + 1)
    faults = bench.kill_all(points)
    print(f"{len(points)} kill points")
    assert faults == [], "\n\n".join(faults)


@pytest.mark.slow
def test_a_team_killed_again_while_it_is_taken_up_loses_nothing_and_repeats_nothing(bench: Bench) -> None:
    points = range(1, len(bench.points) + 1, 3)
    faults = bench.kill_all(points, bench.kill_twice)
    print(f"{len(points)} pairs of kill points; at {len(bench.killed_again)} the second process died too")
    assert faults == [], "\n\n".join(faults)
    assert len(bench.killed_again) > len(points) // 2


def test_a_team_goes_on_from_some_of_what_a_power_loss_leaves(bench: Bench) -> None:
    pictures = bench.pictures()
    sample = pictures[5 :: max(1, len(pictures) // 8)]
    faults = bench.restart_all(sample)
    print(f"{len(sample)} of {len(pictures)} pictures")
    assert faults == [], "\n\n".join(faults)


@pytest.mark.slow
def test_everything_that_a_power_loss_may_leave_holds_what_was_told_and_a_team_goes_on_from_it(bench: Bench) -> None:
    pictures = bench.pictures()
    read = bench.read_all()
    assert 0.9 * len(pictures) < read <= len(pictures)
    sample = pictures[::3]
    faults = bench.restart_all(sample)
    print(f"{len(pictures)} pictures, {len(sample)} of them taken up")
    assert faults == [], "\n\n".join(faults)
