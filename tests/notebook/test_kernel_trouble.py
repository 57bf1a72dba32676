"""A cell that is cut off at an awkward moment, or meets a blocked loop: one line, and everything can go on."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.casts import create, play, said
from support.live_kernel import Kernel
from support.strict_server import Gate, Reply, StrictServer, calls, text

CUT_WHILE_OPENING = """
import os, signal
from astrion_nb.app import lifetime
_open = lifetime.open_team
def _cut(*arguments):
    made = _open(*arguments)
    os.kill(os.getpid(), signal.SIGINT)
    lifetime.open_team = _open
    return made
lifetime.open_team = _cut
"""
CUT_WHILE_CLOSING = """
import os, signal
from astrion_nb.app.team import Team
_close = Team.close
async def _cut(self):
    import asyncio
    os.kill(os.getpid(), signal.SIGINT)
    Team.close = _close
    await asyncio.sleep(0.5)
    await _close(self)
Team.close = _cut
"""
BLOCK = """
import threading, time
from astrion_nb.notebook import bridge
began = threading.Event()
async def block() -> str:
    "Block."
    began.set()
    time.sleep(2)
    return 'done'
"""


def test_a_start_that_is_interrupted_leaves_nothing_that_cannot_be_opened(
    kernel: Kernel, server: StrictServer, home: Path
) -> None:
    play(server)
    kernel.ok(CUT_WHILE_OPENING)
    cell = kernel.run("%%team --wait\nLook around.")
    assert cell.error.startswith("TeamError: ")
    assert "interrupted" in cell.error
    assert len(cell.traceback) == 1
    for folder in (home / "mutiagents" / "conversations").glob("conv_*"):
        kernel.ok(f"%astrion resume {folder.name}")
    assert "All is well." in kernel.ok("%%team --wait\nLook around.").text


@pytest.mark.parametrize("how", ["", "--read-only ", "--take-over "])
def test_a_resuming_that_is_interrupted_leaves_its_conversation_free_to_be_resumed(
    kernel: Kernel, server: StrictServer, home: Path, how: str
) -> None:
    play(server)
    kernel.ok("%%team --wait\nLook around.")
    (first,) = (home / "mutiagents" / "conversations").glob("conv_*")
    kernel.ok("%%team --wait\nLook around.")  # which puts the first one away
    kernel.ok(CUT_WHILE_OPENING)
    assert kernel.run(f"%astrion resume {how}{first.name}").error.startswith("TeamError: %astrion: interrupted")
    assert kernel.ok("get_ipython()._astrion_magics.session.team.conversation_id").result != repr(first.name)
    kernel.ok(f"%astrion resume {how}{first.name}")
    if "read-only" not in how:
        assert "All is well." in kernel.ok("%%team --wait --continue\nLook around.").text


def test_an_unloading_that_is_interrupted_is_whole_all_the_same(kernel: Kernel, server: StrictServer) -> None:
    cast = play(server)
    kernel.ok("%%team --wait\nLook around.")
    kernel.ok(CUT_WHILE_CLOSING)
    kernel.run("%reload_ext astrion_nb")
    kernel.ok("%reload_ext astrion_nb")
    kernel.ok("%%team --wait\nLook around.")
    kernel.ok("%ask leader is it done?")
    assert "is it done?" in said(cast.leader_requests[-1])
    assert kernel.run("%%team\n").error.startswith("ConfigError: ")
    kernel.ok("%unload_ext astrion_nb\n%load_ext astrion_nb")


def test_a_tool_that_blocks_the_loop_is_named_and_an_interrupt_stops_its_run(
    kernel: Kernel, server: StrictServer
) -> None:
    play(server, leader=[calls(("block", {})), text("Done.")])
    kernel.ok(BLOCK)
    waiting = kernel.send("%%team --wait --with block\nGo.")
    server.wait_for_requests(1)
    kernel.interrupt()
    kernel.finish(waiting)
    assert waiting.error.startswith("TeamError: interrupted: the run was stopped (Team Leader)")
    assert len(server.requests) == 1

    server.requests.clear()
    kernel.ok("began.clear()")
    gate = Gate()
    play(server, leader=[Reply([gate, *calls(("block", {}))]), text("Done.")])
    kernel.ok("%%team --no-wait --with block\nGo.")
    gate.release()
    kernel.ok("assert began.wait(5)\nbridge.BUSY = 0.3")
    board = kernel.run("%astrion")
    assert board.error.startswith("TeamError: the team's loop has been blocked for 0.3 seconds")
    assert len(board.traceback) == 1
    kernel.ok("bridge.BUSY = 10.0")
    kernel.ok("%astrion wait")


def test_on_the_kernels_loop_an_error_is_told_once(kernel: Kernel, server: StrictServer) -> None:
    play(server)
    kernel.ok("%config AstrionMagics.loop = 'kernel'")
    kernel.ok("%%team --wait\nLook around.")
    for line in ("%ask nobody there?", "%send nobody hello"):
        assert kernel.run(line).error.startswith("AgentNotFound: ")
        later = [kernel.ok("import gc; gc.collect(); None") for _ in range(3)]
        assert [cell.err for cell in later] == [""] * 3


def test_a_terminated_agent_is_still_known_by_its_whole_name(kernel: Kernel, server: StrictServer) -> None:
    play(server, leader=[calls(create(role="ui-operator")), text("All is well.")])
    kernel.ok("%%team --wait\nLook around.")
    kernel.ok("%astrion terminate UI Operator_1")
    for line in ("%ask UI Operator_1 there?", "%send UI Operator_1 hello", "%astrion stop UI Operator_1"):
        assert kernel.run(line).error.startswith("AgentTerminated: UI Operator_1 is terminated"), line
    assert "Look around." in kernel.ok("%astrion why UI Operator_1 1").result
    assert kernel.run("%astrion why UI Operator_1 ²").error.startswith("TeamError: %astrion why: '²' is not a turn")


def test_the_teams_name_hides_nothing_of_pythons(kernel: Kernel, server: StrictServer) -> None:
    refused = kernel.run("%config AstrionMagics.variable = 'print'")
    assert "the name of a variable that hides nothing of Python's" in refused.err + refused.error
    assert kernel.ok("print(1)").out == "1\n"
