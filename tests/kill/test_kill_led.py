"""A team that a person leads, killed at every point of every save: its person has read what came, and it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL

import pytest
from support.zygote import Zygote

pytestmark = [pytest.mark.kill, pytest.mark.faults]
SAMPLE = 8


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote("support.led") as running:
        yield running


@pytest.fixture(scope="module")
def points(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    ended = zygote.call("perform", home=str(tmp_path_factory.mktemp("recorded")))
    assert (ended.signal, ended.error) == (0, ""), ended.error
    found: list[str] = ended.value
    return found


def kill(zygote: Zygote, home: Path, point: int) -> tuple[str, int]:
    """Kill the team at a point and take it up; returns what is wrong, and how many agents there were."""
    died = zygote.call("perform", home=str(home), kill_at=point)
    assert died.signal == SIGKILL, died.error
    taken_up = zygote.call("go_on", home=str(home))
    if (taken_up.signal, taken_up.error) != (0, ""):
        return f"point {point} ({died.value}): {taken_up.error}", 0
    return "", taken_up.value


def test_a_led_team_killed_within_any_line_and_at_some_other_points_goes_on(
    zygote: Zygote, points: list[str], tmp_path: Path
) -> None:
    numbers = range(1, len(points) + 1)
    torn = {point for point in numbers if points[point - 1].startswith("torn write") and "journal" in points[point - 1]}
    chosen = sorted(torn | {*numbers[:: len(points) // SAMPLE]})
    found = [kill(zygote, tmp_path / str(point), point) for point in chosen]
    print(f"{len(found)} of {len(points)} kill points")
    assert [fault for fault, _ in found if fault] == []
    assert {count for _, count in found} >= {0, 2}


@pytest.mark.slow
def test_a_led_team_killed_at_every_point_goes_on(zygote: Zygote, points: list[str], tmp_path: Path) -> None:
    found = [kill(zygote, tmp_path / str(point), point) for point in range(1, len(points) + 1)]
    print(f"{len(found)} kill points")
    assert [fault for fault, _ in found if fault] == []
