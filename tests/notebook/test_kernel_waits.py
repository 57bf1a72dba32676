"""An interrupt in every kind of wait, once and twice, on every kernel: what stops, what works on, what is left.

Each row runs on the installed kernel, and with the slow tests on every other one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.casts import play
from support.kernel_env import environment
from support.kernels import INSTALLED, KERNELS, interpreter
from support.live_kernel import Cell, Kernel, live_kernel
from support.local_weights import smollm2
from support.processes import children
from support.strict_server import Gate, StrictServer, calls, status, text

pytestmark = pytest.mark.faults

SOON = 3.0
"""Seconds within which an interrupt has ended any wait, also on a busy machine."""
ASKS = calls(("ask_master", {"question": "Which sea?", "question_id": "sea-1"}))
TOOLS = '''
import asyncio, threading, time
begun, free = threading.Event(), threading.Event()
def blocking() -> str:
    """Take its time on a thread."""
    begun.set()
    free.wait()
    return "free"
async def sleeping() -> str:
    """Take its time on the loop."""
    begun.set()
    while not free.is_set():
        await asyncio.sleep(0.02)
    return "free"
'''
STOPPED = "TeamError: interrupted: the run was stopped ("


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[] if name == INSTALLED else pytest.mark.slow) for name in KERNELS],
)
def one_kernel(
    request: pytest.FixtureRequest, shared_server: StrictServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kernel]:
    folder = tmp_path_factory.mktemp("kernel")
    python = interpreter(request.param)
    with live_kernel(folder, environment(shared_server, folder / "home"), python) as made:
        made.ok("%load_ext astrion_nb", timeout=60)
        yield made


@pytest.fixture
def kernel(one_kernel: Kernel, server: StrictServer, home: Path) -> Iterator[Kernel]:
    one_kernel.forget()
    one_kernel.ok(f"import os\nos.environ['ASTRION_HOME'] = {str(home)!r}\n{TOOLS}\n%reload_ext astrion_nb", timeout=60)
    yield one_kernel
    one_kernel.ok("free.set()\n%unload_ext astrion_nb")


@dataclass
class Waiting:
    """A cell that waits, and what it is known to wait for."""

    cell: Cell
    gates: list[Gate] = field(default_factory=list)


WAITED_FOR = (
    "any(t.get_coro().__qualname__ == 'Team.wait' for t in "
    "asyncio.all_tasks(get_ipython()._astrion_magics.session.bridge.loop()))"
)


def gated(kernel: Kernel, server: StrictServer, code: str, before: str = "", when: str = "True") -> Waiting:
    """A cell that waits while the leader's answer does not come."""
    gate = Gate()
    play(server, leader=[text("Hello."), [gate, *text("Done.")]])
    kernel.ok("%%team --wait\nHello.")
    if before:
        kernel.ok(before)
    waits = kernel.when(when)
    cell = kernel.send(code)
    gate.wait_reached(20)
    waits()
    return Waiting(cell, [gate])


def team_wait(kernel: Kernel, server: StrictServer) -> Waiting:
    return gated(kernel, server, "%%team --continue --wait\nLook.")


def astrion_wait(kernel: Kernel, server: StrictServer) -> Waiting:
    return gated(kernel, server, "%astrion wait", "%%team --continue --no-wait\nLook.", WAITED_FOR)


def await_wait(kernel: Kernel, server: StrictServer) -> Waiting:
    return gated(kernel, server, "r = await team.wait()", "%%team --continue --no-wait\nLook.", WAITED_FOR)


def await_run(kernel: Kernel, server: StrictServer) -> Waiting:
    return gated(kernel, server, "r = await team.run('Look.')")


def ask(kernel: Kernel, server: StrictServer) -> Waiting:
    gate = Gate()
    play(server, member=[[*calls(("list_active_sub_agents", {})), gate], text("Seen.")])
    kernel.ok("%%team --no-wait\nLook around.")
    gate.wait_reached(20)
    asked = kernel.when("team.open_questions")
    cell = kernel.send("%ask Researcher_1 how many?")
    asked()
    return Waiting(cell, [gate])


def prompt(kernel: Kernel, server: StrictServer) -> Waiting:
    play(server, member=[ASKS, text("The North Sea it is.")])
    cell = kernel.send("%%team --leader human --roles researcher --wait\nFind a sea.")
    kernel.until(lambda: bool(cell.prompts), what="the prompt")
    return Waiting(cell)


def tool(kernel: Kernel, server: StrictServer, name: str) -> Waiting:
    play(server, leader=[calls((name, {})), text("Done.")])
    begun = kernel.when("begun.is_set()")
    cell = kernel.send(f"%%team --wait --with {name}\nTry.")
    begun()
    return Waiting(cell)


def tool_on_a_thread(kernel: Kernel, server: StrictServer) -> Waiting:
    return tool(kernel, server, "blocking")


def tool_on_the_loop(kernel: Kernel, server: StrictServer) -> Waiting:
    return tool(kernel, server, "sleeping")


def slowed_down(kernel: Kernel, server: StrictServer) -> Waiting:
    play(server, leader=[status(429, {"error": {"message": "slow down"}}, headers={"Retry-After": "4"})])
    cell = kernel.send("%%team --wait\nLook.")
    server.wait_for(lambda: len(server.requests) == 1 and server.in_flight == 0, 20)
    return Waiting(cell)


WAITS: dict[str, Callable[[Kernel, StrictServer], Waiting]] = {
    "%%team --wait": team_wait,
    "%astrion wait": astrion_wait,
    "await team.wait()": await_wait,
    "await team.run()": await_run,
    "%ask": ask,
    "the prompt": prompt,
    "a tool on a thread": tool_on_a_thread,
    "a tool on the loop": tool_on_the_loop,
    "a 429": slowed_down,
}
AWAITS = ("await team.wait()", "await team.run()")


def rests(kernel: Kernel) -> None:
    """Give the team a moment to rest."""
    cell = kernel.ok("t = time.monotonic()\nwhile team.running and time.monotonic() < t + 3:\n    time.sleep(0.02)")
    assert cell.outputs == []


def stored(home: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text("utf-8")) for path in sorted(home.rglob("metadata.json"))]


@pytest.mark.parametrize("wait", list(WAITS))
def test_an_interrupt_ends_the_wait_at_once_and_the_next_cell_works(
    wait: str, kernel: Kernel, server: StrictServer, home: Path
) -> None:
    waiting = WAITS[wait](kernel, server)
    asked = len(server.requests)
    begun = time.monotonic()
    kernel.interrupt()
    kernel.finish(waiting.cell)
    assert time.monotonic() - begun < SOON
    if wait == "%ask":
        assert waiting.cell.error.startswith("TeamError: interrupted: the question to Researcher_1 is withdrawn")
        assert kernel.ok("print(team.open_questions, team.running)").out == "() True\n"
    else:
        if wait not in AWAITS:  # those end as any interrupted await does
            assert waiting.cell.error.startswith(STOPPED)
            assert len(waiting.cell.traceback) == 1
        assert waiting.cell.status == "error"
        ended = kernel.ok(
            "t = time.monotonic()\nwhile team.running and time.monotonic() < t + 3:\n    time.sleep(0.02)"
        )
        assert ended.err == ""
        assert kernel.ok("print(team.running, team.result().status)").out == "False stopped\n"
        kernel.listen(0.3)
        assert len(server.requests) == asked, "nothing is asked of a model after the interrupt"
    for gate in waiting.gates:
        gate.release()
    kernel.ok("free.set()")
    kernel.ok("%astrion wait")
    gone = "[t.name for t in threading.enumerate() if t.name.startswith('astrion-tool')]"
    kernel.ok(f"t = time.monotonic()\nwhile {gone} and time.monotonic() < t + 3:\n    time.sleep(0.02)")
    assert kernel.ok(f"print({gone})").out == "[]\n"
    play(server, leader=[text("Going on.")])
    if wait == "the prompt":  # a person leads: an agent goes on when it is written to
        play(server, member=[text("Going on.")])
        assert kernel.ok("%ask Researcher_1 go on?").result == "Going on."
    elif wait != "%ask":
        assert "Going on." in kernel.ok("%%team --continue --wait\nGo on.").text
    kernel.ok("%unload_ext astrion_nb")
    assert [document.get("pending_tool_calls", []) for document in stored(home)] == [[]] * len(stored(home))
    kernel.ok("%load_ext astrion_nb")


@pytest.mark.parametrize("wait", list(WAITS))
def test_two_interrupts_at_once_leave_a_kernel_that_works_and_a_team_that_goes_on(
    wait: str, kernel: Kernel, server: StrictServer
) -> None:
    waiting = WAITS[wait](kernel, server)
    begun = time.monotonic()
    kernel.interrupt()
    kernel.interrupt()
    kernel.finish(waiting.cell)
    assert time.monotonic() - begun < SOON
    assert waiting.cell.status == "error"
    if wait not in AWAITS:
        assert waiting.cell.error.startswith("TeamError: "), "also where the second comes before the first is seen to"
    for gate in waiting.gates:
        gate.release()
    kernel.ok("free.set()")
    if wait != "%ask":
        rests(kernel)
        assert kernel.ok("print(team.running, team.result().status)").out == "False stopped\n"
    else:
        kernel.ok("%astrion wait")
        assert kernel.ok("print(team.result().status)").out == "completed\n"
    play(server, leader=[text("A new one.")])
    assert "A new one." in kernel.ok("%%team --wait\nBegin anew.").text


def test_an_interrupt_of_an_idle_kernel_once_and_twice_changes_nothing(kernel: Kernel, server: StrictServer) -> None:
    gate = Gate()
    play(server, member=[[gate, *text("Seen.")]])
    kernel.ok("%%team --no-wait\nLook around.")
    gate.wait_reached(20)
    kernel.interrupt()
    kernel.interrupt()
    cells = kernel.queue("print(1)", "print(team.running)")
    assert [cell.out for cell in cells] == ["1\n", "True\n"]
    gate.release()
    assert kernel.ok("%astrion wait").err == ""
    assert kernel.ok("print(team.result().status, team.result().text)").out == "completed All is well.\n"
    assert "Traceback" not in kernel.log


def test_a_team_cell_run_again_while_its_team_works_is_refused_and_afterwards_begins_anew(
    kernel: Kernel, server: StrictServer, home: Path
) -> None:
    gate = Gate()
    play(server, member=[[gate, *text("Seen.")]])
    kernel.ok("%%team --no-wait\nLook around.")
    gate.wait_reached(20)
    first = kernel.ok("print(team.conversation_id)").out.strip()
    for line in ("%%team --no-wait", "%%team --wait", f"%%team --continue {first}"):
        again = kernel.run(f"{line}\nLook around.")
        assert again.error.startswith("TeamBusy: a team is at work: ")
        assert len(again.traceback) == 1
    assert kernel.ok("print(team.conversation_id, team.running)").out == f"{first} True\n"
    gate.release()
    kernel.ok("%astrion wait")
    play(server)
    assert "All is well." in kernel.ok("%%team --wait\nLook around.").text
    second = kernel.ok("print(team.conversation_id)").out.strip()
    assert second != first
    assert len(list(home.rglob("conv_*"))) == 2
    kernel.ok(f"%astrion resume {first}")


def test_reload_ext_while_a_team_works_puts_it_away_whole_and_it_can_be_resumed(
    kernel: Kernel, server: StrictServer
) -> None:
    gate = Gate()
    play(server, member=[[gate, *text("Seen.")], text("Seen.")])
    kernel.ok("%%team --no-wait\nLook around.")
    gate.wait_reached(20)
    identifier = kernel.ok("print(team.conversation_id)").out.strip()
    begun = time.monotonic()
    assert kernel.ok("%reload_ext astrion_nb").outputs == []
    assert time.monotonic() - begun < SOON
    gate.release()
    assert kernel.ok("print('team' in globals())").out == "False\n"
    assert "was interrupted" in kernel.ok(f"%astrion resume {identifier}").out
    kernel.ok("%send Researcher_1 Go on.")
    kernel.ok("%astrion wait")
    assert "Seen." in kernel.ok("%astrion show").text


@pytest.mark.slow
@pytest.mark.local_model
@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_while_the_small_model_loads_ends_the_wait_and_it_answers_afterwards(
    times: int, home: Path, tmp_path: Path
) -> None:
    weights = smollm2()
    env = {"ASTRION_HOME": str(home), "ASTRION_LANGUAGE": "en", "ASTRION_CACHE": str(weights.parent.parent)}
    with live_kernel(tmp_path / "kernel", {**env, "ASTRION_MODEL": f"local/{weights}"}) as kernel:
        kernel.ok("%load_ext astrion_nb", timeout=60)
        waiting = kernel.send("%%team --wait\nSay hello.")
        kernel.until(lambda: bool(children(kernel.pid, "local_child")), what="the model's server")
        begun = time.monotonic()
        for _ in range(times):
            kernel.interrupt()
        kernel.finish(waiting)
        assert time.monotonic() - begun < SOON
        assert waiting.error.startswith("TeamError: ")
        kernel.ok("import time")
        rests_soon = "t = time.monotonic()\nwhile team.running and time.monotonic() < t + 10:\n    time.sleep(0.02)"
        kernel.ok(rests_soon)
        assert kernel.ok("print(team.running, team.result().status)").out == "False stopped\n"
        again = kernel.run("%%team --continue --wait --timeout 20\nSay hello.", timeout=60)
        assert again.error == "" or "was stopped: no end after 20 seconds" in again.error
        servers = children(kernel.pid, "local_child")
        kernel.shutdown()
        _, alive = psutil.wait_procs([psutil.Process(pid) for pid in servers if psutil.pid_exists(pid)], SOON)
        assert alive == []
