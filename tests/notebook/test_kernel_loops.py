"""Run All, interrupts and comms on every kernel, with agents on their own thread and on the kernel's loop.

Each test runs on the installed kernel, and with the slow tests on every other one.
"""

from __future__ import annotations

from collections import Counter

import pytest
from support.casts import play
from support.live_kernel import Kernel, statuses
from support.strict_server import Gate, StrictServer, calls, text

pytestmark = pytest.mark.faults


@pytest.fixture
def kernel(every_kernel: Kernel) -> Kernel:
    return every_kernel


BEFORE = {
    "a thread of its own": "pass",
    "the kernel's loop": "%config AstrionMagics.loop = 'kernel'",
    "a loop that somebody has patched": "import nest_asyncio2\nnest_asyncio2.apply()",
}


@pytest.mark.parametrize("where", list(BEFORE))
def test_every_queued_cell_runs_in_order_wherever_the_agents_are(
    where: str, kernel: Kernel, server: StrictServer
) -> None:
    play(server)
    kernel.ok("%load_ext astrion_nb", timeout=60)
    kernel.ok(BEFORE[where])
    cells = kernel.queue(
        "order = []",
        "%%team --wait\nLook around.",
        "order.append(1)",
        "answer = %ask Researcher_1 is it done?\norder.append(2)",
        "order.append(3)\nprint(order, answer)",
        timeout=60,
    )
    assert [cell.error for cell in cells] == [""] * 5
    assert statuses(cells) == ["ok"] * 5
    assert [cell.err for cell in cells] == [""] * 5
    assert cells[-1].out == "[1, 2, 3] Seen.\n"
    assert [cell.reply["execution_count"] for cell in cells] == sorted(cell.reply["execution_count"] for cell in cells)
    assert "All is well." in cells[1].text
    awaited = kernel.ok("r = await team.run('Again.')\nprint(r.status)")
    assert awaited.out == "completed\n"
    assert "Traceback" not in kernel.log


def test_an_interrupt_of_an_idle_kernel_leaves_the_team_at_work(kernel: Kernel, server: StrictServer) -> None:
    gate = Gate()
    play(server, member=[[gate, *text("Seen.")]])
    kernel.ok("%load_ext astrion_nb", timeout=60)
    kernel.ok("%%team\nLook around.")
    gate.wait_reached()
    kernel.interrupt()
    assert kernel.ok("print(team.running)").out == "True\n"
    gate.release()
    kernel.ok("%astrion wait")
    assert kernel.ok("print(team.result().status, team.result().text)").out == "completed All is well.\n"


def test_every_run_opens_one_view_and_closes_what_it_opened(kernel: Kernel, server: StrictServer) -> None:
    kernel.ok("%load_ext astrion_nb", timeout=60)
    for line in ("%%team --wait", "%%team --wait --continue", "%%team"):
        play(server)
        kernel.ok(f"{line}\nLook around.")
        kernel.ok("%astrion wait")
    kernel.ok("%unload_ext astrion_nb")
    kernel.listen(0.3)
    messages = [message for cell in kernel.cells.values() for message in cell.messages] + kernel.stray
    opened = Counter(
        message["content"]["data"]["state"]["_model_name"] for message in messages if message["msg_type"] == "comm_open"
    )
    assert opened["AnyModel"] == 3
    assert set(opened) <= {"AnyModel", "LayoutModel"}
    ids = {
        kind: [m["content"]["comm_id"] for m in messages if m["msg_type"] == kind]
        for kind in ("comm_open", "comm_close")
    }
    assert sorted(ids["comm_open"]) == sorted(ids["comm_close"]), "no comm is left behind"


def test_a_team_cell_may_begin_with_blank_lines_and_a_comment_above_it_fails_loudly(
    kernel: Kernel, server: StrictServer
) -> None:
    cast = play(server)
    kernel.ok("%load_ext astrion_nb", timeout=60)
    kernel.ok("\n\n  \n%%team --wait\n\nLook around.\n")
    assert cast.leader_requests[0]["messages"][-1]["content"] == "Look around."
    above = kernel.run("# NBVAL_IGNORE_OUTPUT\n%%team --wait\nLook around.")
    assert above.status == "error"


KERNEL_LOOP = "%config AstrionMagics.loop = 'kernel'"
FUNCTIONS = """
import threading, time
async def computing() -> str:
    \"\"\"Compute without a pause.\"\"\"
    computing.began = time.monotonic()
    time.sleep(1.2)
    return f"main: {threading.current_thread() is threading.main_thread()}"
def plain() -> str:
    \"\"\"Compute on a thread.\"\"\"
    return f"main: {threading.current_thread() is threading.main_thread()}"
"""
PATCHED = "import asyncio\nprint(hasattr(asyncio, '_nest_patched') or hasattr(asyncio, '_nest_asyncio2'))"


def test_the_loop_stays_as_it_is_while_a_team_works_and_puts_one_at_rest_away(
    kernel: Kernel, server: StrictServer
) -> None:
    gate = Gate()
    play(server, member=[[gate, *text("Seen.")]])
    kernel.ok("%load_ext astrion_nb", timeout=60)
    kernel.ok("%%team\nLook around.")
    gate.wait_reached(20)
    refused = kernel.run(KERNEL_LOOP)
    said = refused.err + refused.error  # %config prints what it is told, and goes on
    assert "AstrionMagics.loop: the team at work stays on its loop; wait for it with %astrion wait" in said
    assert "Traceback" not in said
    assert kernel.ok("%config AstrionMagics.loop").result == "'thread'"
    assert kernel.ok(PATCHED).out == "False\n"
    gate.release()
    kernel.ok("%astrion wait")
    identifier = kernel.ok("print(team.conversation_id)").out.strip()
    kernel.ok(KERNEL_LOOP)
    assert kernel.ok(PATCHED).out == "False\n", "not before a team begins there"
    assert kernel.ok("print('team' in globals())").out == "False\n"
    kernel.ok(f"%astrion resume {identifier}")
    assert kernel.ok(PATCHED).out == "True\n"
    assert kernel.ok("%ask Researcher_1 is it done?").result == "Seen."
    kernel.ok("%config AstrionMagics.loop = 'thread'")
    kernel.ok(f"%astrion resume {identifier}")
    assert kernel.ok("%ask Researcher_1 is it done?").result == "Seen."


def test_on_the_kernel_s_loop_agents_stand_still_while_a_cell_computes_and_nothing_is_lost(
    kernel: Kernel, server: StrictServer
) -> None:
    kernel.ok("%load_ext astrion_nb", timeout=60)
    for loop, moves in (("thread", True), ("kernel", False)):
        kernel.ok(f"%config AstrionMagics.loop = {loop!r}")
        gate = Gate()
        cast = play(server, member=[[*calls(("list_active_sub_agents", {})), gate], text("Seen.")])
        kernel.ok("%%team\nLook around.")
        gate.wait_reached(20)
        computing = kernel.send("print('begun', flush=True)\nimport time\ntime.sleep(1.5)")
        kernel.until(lambda cell=computing: cell.out == "begun\n", what="the cell")  # type: ignore[misc]
        gate.release()
        kernel.listen(0.7)
        assert (len(cast.member_requests) > 1) is moves
        kernel.finish(computing)
        kernel.ok("%astrion wait")
        assert kernel.ok("print(team.result().status, team.result().text)").out == "completed All is well.\n"


def test_on_the_kernel_s_loop_async_functions_have_the_main_thread_and_an_interrupt_waits_for_them(
    kernel: Kernel, server: StrictServer
) -> None:
    kernel.ok("%load_ext astrion_nb", timeout=60)
    kernel.ok(FUNCTIONS)
    for loop, there in (("thread", "False"), ("kernel", "True")):
        kernel.ok(f"%config AstrionMagics.loop = {loop!r}")
        play(server, leader=[calls(("computing", {})), calls(("plain", {})), text("Done.")])
        kernel.ok("%%team --wait --with computing,plain\nTry.")
        results = [message["content"] for message in server.requests[-1]["messages"] if message["role"] == "tool"]
        assert [f"main: {there}" in results[0], "main: False" in results[1]] == [True, True]
    play(server, leader=[calls(("computing", {})), text("Done.")])
    begun = kernel.when("getattr(computing, 'began', 0) > time.monotonic() - 1")
    waiting = kernel.send("%%team --wait --with computing\nTry.")
    begun()
    kernel.interrupt()
    kernel.finish(waiting)
    assert waiting.error.startswith("TeamError: interrupted: the run was stopped (Team Leader)")
    assert float(kernel.ok("print(time.monotonic() - computing.began)").out) >= 1.2, "not before the function lets it"
    assert kernel.ok("print(team.running, team.result().status)").out == "False stopped\n"
    cells = kernel.queue("print(1)", "print(2)")
    assert [cell.out for cell in cells] == ["1\n", "2\n"]
