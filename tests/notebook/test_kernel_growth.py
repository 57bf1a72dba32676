"""Cells run again and again, an extension loaded again and again: what the kernel's process holds does not grow.

A few rounds in the default run; with the slow tests as many as a long day has, on every kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from support.casts import play
from support.kernel_env import environment
from support.kernels import INSTALLED, KERNELS, interpreter
from support.live_kernel import Kernel, live_kernel
from support.strict_server import Gate, StrictServer, text

pytestmark = pytest.mark.faults

FEW, MANY = (8, 4), (50, 20)
"""Runs of a cell, and reloads."""
KEPT_ALIVE = 2
"""A leader's connection and a member's: fewer than what any round could leave would make in the fewest rounds."""
LIVING = (
    "import gc\nfor _ in range(3):\n    gc.collect()\n"
    "kinds = ('Team', 'TeamRuntime', 'TeamState', 'Session', 'Conversation', 'ThreadLoop')\n"
    "of = [type(o).__name__ for o in gc.get_objects() if str(type(o).__module__).startswith('astrion_nb.')]\n"
    "print(sum(of.count(kind) for kind in kinds))"
)


@dataclass(frozen=True)
class Held:
    """What a process holds."""

    threads: int
    descriptors: int
    sockets: int
    children: int
    temporary: int
    objects: int

    def within(self, other: Held) -> bool:
        """Say whether this is no more than another, connections that are kept for the next request apart."""
        more = {name: count - vars(other)[name] for name, count in vars(self).items()}
        return all(count <= (KEPT_ALIVE if name in ("descriptors", "sockets") else 0) for name, count in more.items())


@pytest.fixture(
    params=[
        pytest.param((INSTALLED, FEW), id="few"),
        *[pytest.param((name, MANY), id=name, marks=pytest.mark.slow) for name in KERNELS],
    ]
)
def growing(
    request: pytest.FixtureRequest, server: StrictServer, tmp_path: Path
) -> Iterator[tuple[Kernel, Path, int, int]]:
    name, (runs, reloads) = request.param
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {**environment(server, tmp_path / "home"), "TMPDIR": str(temporary)}
    with live_kernel(tmp_path / "kernel", env, interpreter(name)) as kernel:
        kernel.ok("%load_ext astrion_nb", timeout=60)
        yield kernel, temporary, runs, reloads


def held(kernel: Kernel, temporary: Path) -> Held:
    objects = int(kernel.ok(LIVING).out)
    process = psutil.Process(kernel.pid)
    with process.oneshot():
        return Held(
            process.num_threads(),
            process.num_fds(),
            len(process.net_connections("all")),
            len(process.children(recursive=True)),
            len(list(temporary.rglob("*"))),
            objects,
        )


def not_more(kernel: Kernel, temporary: Path, before: Held) -> None:
    """Wait, for a moment, until no more is held than before."""
    seen: list[Held] = []

    def settled() -> bool:
        seen.append(held(kernel, temporary))
        return seen[-1].within(before)

    try:
        kernel.until(settled, timeout=10)
    except AssertionError:
        raise AssertionError(f"{seen[-1]} after {before}") from None


def test_a_cell_run_again_and_again_holds_no_more_than_once(
    growing: tuple[Kernel, Path, int, int], server: StrictServer
) -> None:
    kernel, temporary, runs, _ = growing
    before = None
    for number in range(3 + runs):
        if number == 3:  # what is made once is there by now
            before = held(kernel, temporary)
        play(server)
        if number % 5 == 4:  # every fifth is stopped at work, and the next one begins at once
            gate = Gate()
            play(server, member=[[*text("Half a wo"), gate]])
            kernel.ok("%%team --no-wait\nLook around.")
            gate.wait_reached(20)
            kernel.ok("%astrion stop")
            gate.release()
            continue
        kernel.ok("%%team --wait\nLook around.")
        if number % 5 == 2:
            assert kernel.ok("%ask Researcher_1 is it done?").result == "Seen."
    assert before is not None
    not_more(kernel, temporary, before)


def test_an_extension_loaded_again_and_again_holds_no_more_than_once(
    growing: tuple[Kernel, Path, int, int], server: StrictServer
) -> None:
    kernel, temporary, _, reloads = growing
    play(server)
    kernel.ok("%%team --wait\nLook around.")
    before = None
    for number in range(2 + reloads):
        if number == 2:
            before = held(kernel, temporary)
        assert kernel.ok("%reload_ext astrion_nb").outputs == []
        if number % 4 == 3:  # also one whose team is at work
            gate = Gate()
            play(server, member=[[*text("Half a wo"), gate]])
            kernel.ok("%%team --no-wait\nLook around.")
            gate.wait_reached(20)
            gate.release()
        else:
            play(server)
            kernel.ok("%%team --wait\nLook around.")
    kernel.ok("%reload_ext astrion_nb")
    play(server)
    kernel.ok("%%team --wait\nLook around.")
    assert before is not None
    not_more(kernel, temporary, before)
    kernel.ok("%unload_ext astrion_nb")
    none = held(kernel, temporary)
    assert none.threads < before.threads, "the loop's thread and the journal's are gone"
    assert (none.children, none.temporary, none.objects) == (0, 0, 0)
