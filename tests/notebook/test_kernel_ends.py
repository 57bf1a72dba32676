"""The end of a kernel, asked for as a server does, in every state of a team: within a second, and nothing is left.

Each test runs on the installed kernel, and with the slow tests on every other one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from support.casts import play
from support.kernel_env import environment
from support.kernels import EVERY, INSTALLED, interpreter
from support.live_kernel import Kernel, live_kernel
from support.strict_server import Gate, StrictServer, calls, status, text

from astrion_nb.home import Home
from astrion_nb.store.conversations import ConversationStore

pytestmark = pytest.mark.faults

BOUND = 1.0
"""Seconds from the request to the end of the process; those in which a busy machine lets it stand are not counted."""
TRIES = 3
"""How often a busy machine may try: one time within the bound shows that nothing waits longer."""
TOOLS = '''
import asyncio, threading
begun, free = threading.Event(), threading.Event()
def blocking() -> str:
    """Take its time on a thread."""
    begun.set()
    free.wait()
    return "free"
async def stubborn() -> str:
    """Do not stop when asked to."""
    begun.set()
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            continue
'''


@pytest.fixture(params=[pytest.param(name, marks=[] if name == INSTALLED else pytest.mark.slow) for name in EVERY])
def begin(request: pytest.FixtureRequest, server: StrictServer, tmp_path: Path) -> Callable[[int], Iterator[Kernel]]:
    """Start a kernel whose temporary files, and whose home, are in folders of its own."""
    python = interpreter(request.param)

    def started(number: int) -> Iterator[Kernel]:
        place = tmp_path / str(number)
        (place / "temporary").mkdir(parents=True)
        env = {**environment(server, place / "home"), "TMPDIR": str(place / "temporary")}
        with live_kernel(place, env, python) as kernel:
            kernel.ok(f"%load_ext astrion_nb\n{TOOLS}", timeout=60)
            yield kernel

    return started


def rests(kernel: Kernel, server: StrictServer, gate: Gate) -> None:
    play(server)
    kernel.ok("%%team --wait\nLook around.")


def works(kernel: Kernel, server: StrictServer, gate: Gate) -> None:
    play(server, member=[[*text("Half a wo"), gate, *text("rd.")]])
    kernel.ok("%%team --no-wait\nLook around.")
    gate.wait_reached(20)


def waits_in_a_cell(kernel: Kernel, server: StrictServer, gate: Gate) -> None:
    play(server, member=[[*text("Half a wo"), gate, *text("rd.")]])
    kernel.send("%%team --wait\nLook around.")
    gate.wait_reached(20)


def asks_in_a_cell(kernel: Kernel, server: StrictServer, gate: Gate) -> None:
    play(server, member=[[*calls(("list_active_sub_agents", {})), gate], text("Seen.")])
    kernel.ok("%%team --no-wait\nLook around.")
    gate.wait_reached(20)
    asked = kernel.when("team.open_questions")
    kernel.send("%ask Researcher_1 how many?")
    asked()


def awaits_in_a_cell(kernel: Kernel, server: StrictServer, gate: Gate) -> None:
    play(server, leader=[text("Hello."), [gate, *text("Done.")]])
    kernel.ok("%%team --wait\nHello.")
    kernel.send("await team.run('Look.')")
    gate.wait_reached(20)


def waits_for_the_person(kernel: Kernel, server: StrictServer, gate: Gate) -> None:
    asks = calls(("ask_master", {"question": "Which sea?", "question_id": "sea-1"}))
    play(server, member=[asks, text("The North Sea it is.")])
    kernel.ok("%%team --leader human --roles researcher --no-wait\nFind a sea.")
    kernel.when("team.questions")()


def runs_a_tool(name: str) -> Callable[[Kernel, StrictServer, Gate], None]:
    def run(kernel: Kernel, server: StrictServer, gate: Gate) -> None:
        play(server, leader=[calls((name, {})), text("Done.")])
        begun = kernel.when("begun.is_set()")
        kernel.ok(f"%%team --no-wait --with {name}\nTry.")
        begun()

    return run


def is_slowed_down(kernel: Kernel, server: StrictServer, gate: Gate) -> None:
    play(server, leader=[status(429, {"error": {"message": "slow down"}}, headers={"Retry-After": "40"})])
    kernel.ok("%%team --no-wait\nLook.")
    server.wait_for(lambda: len(server.requests) == 1 and server.in_flight == 0, 20)


def works_on_the_kernel_s_loop(kernel: Kernel, server: StrictServer, gate: Gate) -> None:
    kernel.ok("%config AstrionMagics.loop = 'kernel'")
    works(kernel, server, gate)


STATES: dict[str, Callable[[Kernel, StrictServer, Gate], None]] = {
    "at rest": rests,
    "at work": works,
    "a cell waits": waits_in_a_cell,
    "a cell asks": asks_in_a_cell,
    "a cell awaits": awaits_in_a_cell,
    "the person is waited for": waits_for_the_person,
    "a tool on a thread": runs_a_tool("blocking"),
    "a tool that does not stop": runs_a_tool("stubborn"),
    "a 429": is_slowed_down,
    "at work on the kernel's loop": works_on_the_kernel_s_loop,
}


@pytest.mark.parametrize("state", list(STATES))
def test_a_kernel_ends_within_a_second_and_leaves_no_process_socket_lock_or_file(
    state: str, begin: Callable[[int], Iterator[Kernel]], server: StrictServer, tmp_path: Path
) -> None:
    took = []
    for number in range(TRIES):
        gate = Gate()
        for kernel in begin(number):
            STATES[state](kernel, server, gate)
            children = psutil.Process(kernel.pid).children(recursive=True)
            took.append(kernel.shutdown() - kernel.queued)
            psutil.wait_procs(children, BOUND)
            assert [child for child in children if child.is_running()] == []
            server.wait_for(lambda: server.in_flight == 0)
            assert "astrion_nb" not in kernel.log, "no traceback of ours, and no task of ours that was pending"
            assert "never retrieved" not in kernel.log
        gate.release()
        left_whole(tmp_path / str(number))
        if took[-1] <= BOUND:
            break
    assert min(took) <= BOUND, took


def left_whole(place: Path) -> None:
    """Nothing lies about, nothing is locked, and the conversation can be opened."""
    assert list((place / "temporary").iterdir()) == []
    [folder] = (place / "home" / "mutiagents" / "conversations").glob("conv_*")
    names = [path.name for path in folder.rglob("*") if path.is_file()]
    assert [name for name in names if name.endswith((".tmp", "~")) or name.startswith(".")] == []
    store = ConversationStore(Home(place / "home"))
    assert store.owner(folder.name) is None
    opened = store.open(folder.name)
    assert opened.state.leader_state.display_name
    opened.close_now()


def test_a_restart_by_the_server_s_way_takes_a_new_kernel_to_where_the_old_one_was(
    begin: Callable[[int], Iterator[Kernel]], server: StrictServer
) -> None:
    gate = Gate()
    for kernel in begin(0):
        works(kernel, server, gate)
        identifier = kernel.ok("print(team.conversation_id)").out.strip()
        old = kernel.pid
        began = time.monotonic()
        kernel.restart()
        assert time.monotonic() - began < 20
        assert kernel.pid != old
        assert not psutil.pid_exists(old)
        gate.release()
        assert kernel.ok("print('team' in globals(), 'astrion_nb' in __import__('sys').modules)").out == "False False\n"
        kernel.ok("%load_ext astrion_nb", timeout=60)
        assert "Researcher_1 was interrupted" in kernel.ok(f"%astrion resume {identifier}").out
        play(server, member=[text("Seen.")])
        kernel.ok("%send Researcher_1 Go on.")
        kernel.ok("%astrion wait")
        assert "Seen." in kernel.ok("%astrion show").text
