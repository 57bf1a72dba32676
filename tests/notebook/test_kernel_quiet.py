"""Cells stay clean and a team stays whole, on every kernel, whatever its front end does.

Each test runs on the installed kernel, and with the slow tests on every other one.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.casts import create, play, said
from support.live_kernel import Kernel
from support.strict_server import Gate, StrictServer, calls, text

pytestmark = pytest.mark.faults

STATIC = {"text/html", "text/markdown", "text/plain"}
BREAK = """
import threading
import ipykernel.comm.comm as comms
import ipykernel.zmqshell as displays
kept = [(comms.BaseComm, "publish_msg"), (displays.ZMQDisplayPublisher, "publish")]
kept = [(cls, name, getattr(cls, name)) for cls, name in kept]
tried = []
def broken(inner, everywhere):
    def raising(*arguments, **named):
        if arguments[1:2] == ("comm_close",):
            return  # what a widget that was never whole says when it is collected, at whatever moment
        if everywhere or threading.current_thread() is not threading.main_thread():
            tried.append(inner.__qualname__)
            raise LookupError("no parent here")
        return inner(*arguments, **named)
    return raising
def breaks(everywhere):
    for cls, name, inner in kept:
        setattr(cls, name, broken(inner, everywhere))
def mends():
    for cls, name, inner in kept:
        setattr(cls, name, inner)
"""
"""As in a kernel whose displays and comms raise outside the cell's thread, or everywhere."""
VITAL = """
import asyncio, asyncio.base_events, asyncio.events, asyncio.futures, asyncio.tasks
def vital():
    loop = type(asyncio.get_event_loop_policy().new_event_loop())
    return [
        asyncio.run, asyncio.Task, asyncio.Future, asyncio.tasks.Task, asyncio.futures.Future,
        asyncio.current_task, asyncio.get_event_loop, asyncio.events.get_event_loop, loop,
        *(getattr(where, name) for where in (loop, asyncio.SelectorEventLoop, asyncio.base_events.BaseEventLoop)
          for name in ("run_forever", "run_until_complete", "_run_once", "_check_running")),
    ]
before = vital()
"""
SAME = "print(all(one is other for one, other in zip(vital(), before, strict=True)))"


@pytest.fixture
def kernel(each_kernel: Kernel) -> Kernel:
    return each_kernel


def rests(kernel: Kernel) -> None:
    cell = kernel.ok("import time\nwhile team.running:\n    time.sleep(0.02)")
    assert cell.outputs == []


@pytest.mark.parametrize("everywhere", [False, True], ids=["outside the cell", "everywhere"])
def test_a_team_ends_and_is_stored_though_every_display_and_comm_raises(
    everywhere: bool, kernel: Kernel, server: StrictServer, home: Path
) -> None:
    gate = Gate()
    play(server, member=[[*text("Half a word, ", reason=None, tokens=None), gate, *text("then the rest.")]])
    kernel.ok("%load_ext astrion_nb", timeout=60)
    kernel.ok(BREAK)
    kernel.ok(f"breaks({everywhere})")
    first = kernel.ok("%%team\nLook around.")
    gate.wait_reached()
    later = kernel.ok("print('later')")
    gate.release()
    rests(kernel)
    assert kernel.ok("print(team.result().status, team.result().text)").out == "completed All is well.\n"
    waited = kernel.run("%astrion wait")
    assert kernel.ok("print(len(tried) > 1)").out == "True\n", "something was to be shown"
    kernel.ok("mends()")
    assert (later.outputs, waited.err) == ([{"type": "stream", "name": "stdout", "text": "later\n"}], "")
    if everywhere:
        assert first.err == "no live view: LookupError('no parent here')\n"
        assert waited.error.startswith("LookupError")
        shown = kernel.ok("%astrion show")
    else:
        assert first.err == ""
        shown = waited
    assert [set(data) for data in shown.displays] == [STATIC]
    assert "Half a word, then the rest." in shown.text
    kernel.ok("%unload_ext astrion_nb")
    assert kernel.ok("import logging; print(logging.getLogger('astrion_nb').handlers)").out == "[]\n"
    stored = "".join(path.read_text("utf-8") for path in home.rglob("messages.json"))
    assert "Half a word, then the rest." in stored
    assert "All is well." in stored
    play(server)
    kernel.ok("%load_ext astrion_nb")
    assert "All is well." in kernel.ok("%%team --wait\nAgain.").text


def test_what_the_package_logs_goes_to_the_kernels_log_and_into_no_cell(kernel: Kernel, server: StrictServer) -> None:
    kernel.ok("%load_ext astrion_nb", timeout=60)
    warn = "logging.getLogger('astrion_nb.store').warning('something %s', 'odd')"
    cells = [
        kernel.ok(f"import logging, threading\n{warn}"),
        kernel.ok(f"at = threading.Thread(target=lambda: {warn})\nat.start()\nat.join()"),
        kernel.ok("print('later')"),
    ]
    assert [cell.err for cell in cells] == [""] * 3
    assert kernel.log.count("something odd") == 2
    heard = kernel.ok(
        "class Mine(logging.Handler):\n    def emit(self, record):\n        print(record.getMessage())\n"
        f"logging.getLogger().addHandler(Mine())\n{warn}"
    )
    assert heard.out == "something odd\n", "a person's own logging hears it too"


def test_nothing_of_asyncio_is_patched_by_import_extension_or_team(kernel: Kernel, server: StrictServer) -> None:
    play(server)
    kernel.ok(VITAL)
    kernel.ok("import astrion_nb", timeout=60)
    assert kernel.ok(SAME).out == "True\n"
    kernel.ok("%load_ext astrion_nb")
    kernel.ok("%%team --wait\nLook around.")
    assert kernel.ok("%ask Researcher_1 is it done?").result == "Seen."
    kernel.ok("r = await team.run('Again.')")
    assert kernel.ok(SAME).out == "True\n"
    assert kernel.ok("import sys; print('nest_asyncio' in sys.modules)").out == "False\n"
    assert (
        kernel.ok("import asyncio; print(asyncio.current_task() is not None)\nawait asyncio.sleep(0)").out == "True\n"
    )


def test_the_next_cells_of_a_running_team_have_their_own_outputs_and_nothing_else(
    kernel: Kernel, server: StrictServer
) -> None:
    gates = [Gate() for _ in range(3)]
    parts = [part for gate in gates for part in (gate, *text("More. ", reason=None, tokens=None))]
    play(server, member=[[*text("Word. ", reason=None, tokens=None), *parts, *text("Seen.")]])
    kernel.ok("%load_ext astrion_nb", timeout=60)
    kernel.ok("%%team\nLook around.")
    later = []
    for number, gate in enumerate(gates):
        gate.wait_reached()
        later.append(kernel.ok(f"print({number})"))
        gate.release()
    rests(kernel)
    kernel.ok("%astrion wait")
    assert [cell.outputs for cell in later] == [
        [{"type": "stream", "name": "stdout", "text": f"{n}\n"}] for n in range(3)
    ]


def test_after_an_interrupt_nothing_is_asked_of_a_model_for_two_seconds(kernel: Kernel, server: StrictServer) -> None:
    look = calls(("list_active_sub_agents", {}))
    cast = play(server, leader=[calls(create(1), create(2)), text("Started.")], member=[look])
    kernel.ok("%load_ext astrion_nb", timeout=60)
    waiting = kernel.send("%%team --wait\nLook around.")
    server.wait_for(lambda: len(cast.member_requests) > 20, 20)
    kernel.interrupt()
    kernel.finish(waiting)
    assert waiting.error.startswith("TeamError: interrupted: the run was stopped (")
    server.wait_for(lambda: server.in_flight == 0)
    asked = len(server.requests)
    kernel.listen(2.0)
    assert len(server.requests) == asked
    assert kernel.ok("print(team.running)").out == "False\n"


def test_two_runs_and_a_stop_leave_nothing_for_a_later_cell(kernel: Kernel, server: StrictServer) -> None:
    play(server)
    kernel.ok("%load_ext astrion_nb", timeout=60)
    kernel.ok("%%team --wait\nLook around.")
    gate = Gate()
    play(server, member=[[*text("Half a wo", reason=None, tokens=None), gate]])
    kernel.ok("%%team\nLook again.")
    gate.wait_reached()
    assert kernel.ok("%astrion stop").out == "stopped: the team\n"
    gate.release()
    collected = kernel.ok("import gc\nfor _ in range(3):\n    gc.collect()")
    assert collected.outputs == []
    kernel.ok("%unload_ext astrion_nb")
    server.wait_for(lambda: not server._tasks)  # every connection is closed
    assert kernel.ok("gc.collect(); None").outputs == []
    assert "never retrieved" not in kernel.log
    assert "loop is closed" not in kernel.log


BODY = '{"a": {x:1}}\n}\n$x ${x} {{a}}\n\\frac{1}{2} {x}\ninterface T { n: number }'


def test_body_and_line_reach_the_server_byte_for_byte(kernel: Kernel, server: StrictServer) -> None:
    cast = play(server)
    kernel.ok("%load_ext astrion_nb", timeout=60)
    kernel.ok("x = 7")
    kernel.ok(f"%%team --wait\n{BODY}")
    assert cast.leader_requests[0]["messages"][-1] == {"role": "user", "content": BODY}
    line = BODY.replace("\n", " ")
    kernel.ok(f"%ask Researcher_1 {line}")
    assert f"<Ask>\n{line}\n</Ask>" in said(cast.member_requests[-1])
    assert json.dumps(line, ensure_ascii=False)[1:-1].encode() in server.bodies[-1]


ENDINGS = ["is it done?", "is it done??", "好了吗？", "done?", "?", "why? "]


def test_question_marks_reach_the_agent_wherever_the_line_stands(kernel: Kernel, server: StrictServer) -> None:
    cast = play(server)
    kernel.ok("%load_ext astrion_nb", timeout=60)
    kernel.ok("%%team --wait\nLook around.")
    literal = 'kept = """\n%ask Researcher_1 is it done?\n"""\n'
    for words in ENDINGS:
        for place in ("{}", "r = {}", "if True:\n    {}", literal + "{}"):
            asked = len(cast.member_requests)
            cell = kernel.ok(place.format(f"%ask Researcher_1 {words}"))
            assert (cell.err, cell.reply["payload"]) == ("", []), "no help and no complaint"
            assert len(cast.member_requests) == asked + 1
            last = cast.member_requests[-1]["messages"][-1]["content"]
            assert f"<Ask>\n{words.strip()}\n</Ask>" in last
    assert kernel.ok("print(repr(kept))").out == "'\\n%ask Researcher_1 is it done?\\n'\n"
    asked = len(cast.member_requests)
    shown = kernel.ok("%ask?")
    assert "%ask" in json.dumps(shown.reply["payload"])
    assert len(cast.member_requests) == asked


CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
TURNING = re.compile("[\u202a-\u202e\u2066-\u2069]")


def test_no_control_sequence_and_no_turned_line_reaches_who_looks(kernel: Kernel, server: StrictServer) -> None:
    evil = "a\x1b[31m b\x1b]0;t\x07 \u202ec\u2066 \x9b2J\rd"
    ask = calls(("ask_master", {"question": evil, "question_id": "q1"}))
    spoken = {"assistant"}
    server.on_request = lambda request, n: text(evil) if spoken & {m["role"] for m in request["messages"]} else ask
    kernel.ok("%load_ext astrion_nb")
    kernel.answers = ["blue"]
    lines = f"%%team --wait --leader human --roles researcher\nLook {evil}"
    shown = [kernel.ok(lines), kernel.ok("%astrion")]
    kernel.ok(lines.replace("--wait", "--no-wait"))
    kernel.ok("import time\nwhile not team.questions:\n    time.sleep(0.02)")
    conversation_id = kernel.ok("print(team.conversation_id)").out.strip()
    kernel.ok("%reload_ext astrion_nb")
    shown += [kernel.run(f"%astrion resume {conversation_id}")]
    for line in ("conversations", "agents", "why researcher_1", f"resume {evil!r}", f"why {evil!r}"):
        shown.append(kernel.run(f"get_ipython().run_line_magic('astrion', {line!r})"))
    shown.append(kernel.run(f"get_ipython().run_line_magic('ask', {'researcher_1 ' + evil!r})"))
    for cell in shown:
        told = [cell.out, cell.err, cell.text, *cell.prompts, *cell.traceback, cell.error]
        told += [str(data) for display in cell.displays for data in display.values()]
        for part in told:
            assert CONTROL.search(part) is None
    for cell in (*shown[2:5], *shown[6:-1]):
        assert TURNING.search(cell.out + "".join(cell.displays[-1]["text/plain"] if cell.displays else "")) is None
