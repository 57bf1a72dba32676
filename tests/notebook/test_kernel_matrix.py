"""The same cells on other kernels: those without subshells, the lowest versions that are allowed, other Pythons."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.casts import play, said
from support.kernel_env import environment
from support.kernels import EVERY, INSTALLED
from support.live_kernel import Kernel, live_kernel
from support.strict_server import Gate, StrictServer, calls, text

pytestmark = [pytest.mark.faults, pytest.mark.slow]

ASKS = calls(("ask_master", {"question": "Which sea?", "question_id": "sea-1"}))
STATIC = {"text/html", "text/markdown", "text/plain"}


@pytest.fixture(params=sorted(set(EVERY) - {INSTALLED}))
def kernel(
    request: pytest.FixtureRequest, kernel_python: Callable[[str], Path], server: StrictServer, tmp_path: Path
) -> Iterator[Kernel]:
    python = kernel_python(request.param)
    with live_kernel(tmp_path / "kernel", environment(server, tmp_path / "home"), python) as made:
        made.ok("%load_ext astrion_nb", timeout=60)
        yield made


def test_run_all_runs_every_queued_cell_in_order(kernel: Kernel, server: StrictServer) -> None:
    play(server)
    cells = kernel.queue(
        "%%team --wait\nLook around.",
        "order = [1]",
        "answer = %ask Researcher_1 is it done?\norder.append(2)",
        "print(order, answer)",
        timeout=60,
    )
    assert [cell.error for cell in cells] == [""] * 4
    assert [cell.err for cell in cells] == [""] * 4
    assert cells[-1].out == "[1, 2] Seen.\n"
    assert [set(data) for data in cells[0].displays][-1] == STATIC
    assert "Traceback" not in kernel.log


def test_a_run_goes_on_beside_cells_and_fills_its_place_and_nothing_else(kernel: Kernel, server: StrictServer) -> None:
    gate = Gate()
    cast = play(server, member=[[*calls(("list_active_sub_agents", {})), gate], text("Seen.")])
    first = kernel.ok("%%team\nLook around.", timeout=60)
    places = [content["transient"]["display_id"] for content in first.of("display_data")]
    assert len(places) == 2
    gate.wait_reached()
    sent = kernel.ok("%send Researcher_1 don't forget?")
    later = kernel.ok("import time\nfor _ in range(3):\n    print('later')\n    time.sleep(0.1)")
    gate.release()
    kernel.ok("while team.running:\n    time.sleep(0.02)")
    assert "don't forget?" in said(cast.member_requests[1])

    def shown() -> dict[str, set[str]]:
        found = {}
        for cell in kernel.cells.values():
            for content in cell.of("update_display_data"):
                found[content["transient"]["display_id"]] = set(content["data"])
        return found

    kernel.until(lambda: len(shown()) == 2, what="both places are updated, by id, whichever cell is named")
    assert shown() == {places[0]: set(), places[1]: STATIC}
    assert [cell.displays for cell in (later,)] == [[]]
    assert (later.out, later.err, sent.err) == ("later\n" * 3, "", "")
    kernel.ok("%astrion wait")


def test_an_interrupt_stops_the_run_that_the_cell_waits_for(kernel: Kernel, server: StrictServer) -> None:
    gate = Gate()
    play(server, leader=[[gate, *text("Done.")]])
    waiting = kernel.send("%%team --wait\nLook around.")
    gate.wait_reached(30)
    kernel.interrupt()
    kernel.finish(waiting)
    assert waiting.error.startswith("TeamError: interrupted: the run was stopped (Team Leader)")
    gate.release()
    assert kernel.ok("print(team.running)").out == "False\n"
    assert len(server.requests) == 1


def test_a_waiting_cell_asks_in_its_own_line(kernel: Kernel, server: StrictServer) -> None:
    cast = play(server, member=[ASKS, text("The North Sea it is.")])
    kernel.answers.append("the North Sea")
    cell = kernel.ok("%%team --leader human --roles researcher --wait\nFind a sea.", timeout=60)
    assert cell.prompts == ["Researcher_1 asks (sea-1): Which sea?\n> "]
    assert "the North Sea" in said(cast.member_requests[1])


def test_where_nobody_can_act_a_question_fails_and_cells_wait_by_themselves(
    kernel: Kernel, server: StrictServer
) -> None:
    play(server, member=[ASKS, text("I chose one.")])
    refused = kernel.run("%%team --leader human --roles researcher\nFind a sea.", stdin=False, timeout=60)
    assert refused.error.startswith("NobodyToAnswer: ")
    assert len(refused.traceback) == 1


def test_a_kernel_ends_quickly_while_a_team_works(kernel: Kernel, server: StrictServer) -> None:
    gate = Gate()
    play(server, leader=[[gate, *text("Done.")]])
    kernel.ok("%%team\nLook around.", timeout=60)
    gate.wait_reached()
    assert kernel.shutdown() < 5
    gate.release()
