"""Interrupts, questions to the person, clicks: who is at the notebook, and what it does to a team."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.casts import create, play, said
from support.live_kernel import Cell, Kernel
from support.strict_server import Gate, Reply, StrictServer, calls, text

pytestmark = pytest.mark.faults

ASKS = calls(("ask_master", {"question": "Which {sea}?", "question_id": "sea-1"}))


def documents(home: Path) -> dict[str, Any]:
    """Return what lies in the newest conversation's folder."""
    folder = max((home / "mutiagents" / "conversations").glob("conv_*"))
    return {path.name: json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")}


# ---- interrupts


def test_an_interrupt_stops_the_run_that_the_cell_waits_for(kernel: Kernel, server: StrictServer, home: Path) -> None:
    gates = [Gate(), Gate()]
    play(server, leader=[calls(create(1), create(2)), text("Started.")], member=[[g, *text("Seen.")] for g in gates])
    waiting = kernel.send("%%team --wait\nLook around.")
    for gate in gates:
        gate.wait_reached()
    server.wait_for(lambda: len(server.requests) == 4)
    begun = time.monotonic()
    kernel.interrupt()
    kernel.finish(waiting)
    assert time.monotonic() - begun < 3
    assert re.fullmatch(
        r"TeamError: interrupted: the run was stopped \((Team Leader, )?Researcher_1, Researcher_2\); "
        "go on with %%team --continue",
        waiting.error,
    )
    assert len(waiting.traceback) == 1
    server.wait_for(lambda: server.dropped >= 2)
    for gate in gates:
        gate.release()
    kernel.ok("import time; time.sleep(1)")
    assert len(server.requests) == 4, "nothing is asked of a model after the interrupt"
    transcript = waiting.displays[-1]["text/plain"]
    assert "Look around." in transcript
    assert "stopped" in transcript
    kernel.ok("import asyncio; await asyncio.sleep(2.2)")  # the documents are written after two seconds of rest
    stored = documents(home)
    assert "Look around." in json.dumps(stored["messages.json"])
    assert stored["metadata.json"]["pending_tool_calls"] == []
    play(server, leader=[text("Going on.")])
    assert "Going on." in kernel.ok("%%team --continue --wait\nGo on.").text
    assert "Look around." in said(server.requests[-1])


def test_an_interrupt_closes_open_tool_calls_and_a_second_one_lets_go(kernel: Kernel, server: StrictServer) -> None:
    play(server, leader=[calls(("stubborn", {})), text("Done.")])
    kernel.ok(
        "import asyncio\n"
        "free = asyncio.Event()\n"
        "begun = stopping = False\n"
        "async def stubborn() -> str:\n"
        '    """Do not stop when asked to."""\n'
        "    global begun, stopping\n"
        "    begun = True\n"
        "    try:\n        await free.wait()\n"
        "    except asyncio.CancelledError:\n"
        "        stopping = True\n        await free.wait()\n        raise\n"
        "    return 'free'"
    )
    begun = kernel.when("begun")
    stopping = kernel.when("stopping")
    waiting = kernel.send("%%team --wait --with stubborn\nTry.")
    begun()
    kernel.interrupt()
    stopping()
    assert waiting.status == ""
    kernel.interrupt()
    kernel.finish(waiting)
    assert waiting.error.startswith("TeamError: let go of the team, which is still stopping")
    kernel.ok("get_ipython()._astrion_magics.session.bridge.call(free.set)")
    kernel.ok("%astrion wait")
    assert kernel.ok("print(team.result().status)").out == "stopped\n"
    play(server, leader=[text("Going on.")])
    kernel.ok("%%team --continue --wait\nGo on.")
    sent = server.requests[-1]["messages"]
    assert [message["role"] for message in sent if message["role"] == "tool"] == ["tool"], "the open call was closed"


def test_an_interrupt_of_astrion_wait_stops_the_run_too(kernel: Kernel, server: StrictServer) -> None:
    gate = Gate()
    play(server, leader=[[gate, *text("Done.")]])
    cell = kernel.ok("%%team\nLook around.")
    gate.wait_reached()
    waiting = kernel.send("print('begun')\n%astrion wait")
    kernel.until(lambda: waiting.out == "begun\n", what="the wait")
    kernel.interrupt()
    kernel.finish(waiting)
    assert waiting.error.startswith("TeamError: interrupted: the run was stopped (Team Leader)")
    kernel.until(lambda: "stopped" in cell.text, what="the transcript in the team's cell")
    gate.release()


def test_an_interrupt_of_a_cell_that_computes_does_not_touch_the_team(kernel: Kernel, server: StrictServer) -> None:
    gate = Gate()
    play(server, member=[[gate, *text("Seen.")]])
    kernel.ok("%%team\nLook around.")
    gate.wait_reached()
    computing = kernel.send("print('begun', flush=True)\nwhile True:\n    pass")
    kernel.until(lambda: computing.out == "begun\n", what="the loop")
    kernel.interrupt()
    assert kernel.finish(computing).error.startswith("KeyboardInterrupt")
    gate.release()
    kernel.ok("%astrion wait")
    assert kernel.ok("print(team.result().text)").out == "All is well.\n"


def test_an_interrupt_of_ask_takes_the_question_back_and_the_team_works_on(
    kernel: Kernel, server: StrictServer
) -> None:
    gate = Gate()
    cast = play(server, member=[[*calls(("list_active_sub_agents", {})), gate], text("Seen.")])
    kernel.ok("%%team\nLook around.")
    gate.wait_reached()
    asked = kernel.when("team.open_questions")
    asking = kernel.send("%ask Researcher_1 how many?")
    asked()
    kernel.interrupt()
    kernel.finish(asking)
    assert asking.error == "TeamError: interrupted: the question to Researcher_1 is withdrawn; the team works on"
    assert kernel.ok("print(team.open_questions, team.running)").out == "() True\n"
    gate.release()
    kernel.ok("%astrion wait")
    assert kernel.ok("print(team.result().text)").out == "All is well.\n"
    assert len(cast.member_requests) == 2


@pytest.mark.parametrize(("call", "status"), [("run('Look.')", "stopped"), ("wait()", "stopped")])
def test_an_interrupt_of_an_awaiting_cell_stops_the_run_too(
    call: str, status: str, kernel: Kernel, server: StrictServer
) -> None:
    gate = Gate()
    play(server, leader=[text("Hello."), [gate, *text("Done.")]])
    kernel.ok("%%team --wait\nHello.")
    if call == "wait()":
        kernel.ok("%%team --continue --no-wait\nLook.")
    awaiting = kernel.send(f"print('begun')\nawait team.{call}")
    kernel.until(lambda: awaiting.out == "begun\n", what="the wait")
    gate.wait_reached()
    kernel.interrupt()
    kernel.finish(awaiting)
    assert awaiting.status == "error"
    gate.release()
    kernel.ok("import time\nwhile team.running:\n    time.sleep(0.02)")
    assert kernel.ok("print(team.result().status)").out == f"{status}\n"


def test_an_interrupted_loop_over_events_ends_and_the_team_works_on(kernel: Kernel, server: StrictServer) -> None:
    gate = Gate()
    play(server, leader=[[gate, *text("Done.")]])
    kernel.ok("%%team\nLook around.")
    gate.wait_reached()
    following = kernel.send("async for event in team.events():\n    print('.', end='', flush=True)")
    kernel.until(lambda: "." in following.out, what="an event")
    begun = time.monotonic()
    kernel.interrupt()
    kernel.finish(following)
    assert time.monotonic() - begun < 3
    gate.release()
    kernel.ok("%astrion wait")
    assert kernel.ok("print(team.result().status)").out == "completed\n"


# ---- questions to the person


def test_an_open_question_is_answered_by_a_magic(kernel: Kernel, server: StrictServer) -> None:
    cast = play(server, member=[ASKS, text("The North Sea it is.")])
    kernel.ok("%%team --leader human --roles researcher\nFind a sea.")
    kernel.when("team.questions")()
    board = kernel.ok("%astrion").text
    assert "sea-1" in board
    assert "Which {sea}?" in board
    refused = kernel.run("%ask Researcher_1 and now?")
    assert refused.error.startswith("WouldDeadlock: ")
    assert "%answer sea-1" in refused.error
    assert kernel.complete("%answer ") == ["sea-1"]
    kernel.ok('%answer sea-1 the "North" {Sea}, isn\'t it?')
    kernel.ok("%astrion wait")
    assert (
        '<Answer question_id="sea-1">\nthe "North" {Sea}, isn\'t it?\n</Answer>'
        in json.loads(cast.member_requests[1]["messages"][-1]["content"])["answer"]
    )
    again = kernel.run("%answer sea-1 another")
    assert again.error.startswith("QuestionError: sea-1 is already answered, by Team Leader")


def test_a_waiting_cell_asks_in_its_own_line_where_no_click_arrives(kernel: Kernel, server: StrictServer) -> None:
    cast = play(server, member=[ASKS, text("The North Sea it is.")])
    kernel.answers.append("the North Sea")
    cell = kernel.ok("%%team --leader human --roles researcher --wait\nFind a sea.")
    assert cell.prompts == ["Researcher_1 asks (sea-1): Which {sea}?\n> "]
    assert "the North Sea" in said(cast.member_requests[1])
    assert "the North Sea" in cell.text


@pytest.mark.parametrize(
    ("line", "end"),
    [
        ("%answer sea-1 the North Sea", ""),
        ("%astrion stop", ""),
        ("", "TeamError: the team was stopped: no end after 5 seconds"),
    ],
    ids=["answered elsewhere", "stopped", "timed out"],
)
def test_the_prompt_is_withdrawn_when_nobody_needs_its_line_any_more(
    kernel: Kernel, server: StrictServer, line: str, end: str
) -> None:
    cast = play(server, member=[ASKS, text("The North Sea it is.")])
    console = kernel.subshell()
    waiting = kernel.send("%%team --leader human --roles researcher --wait --timeout 5\nFind a sea.")
    kernel.until(lambda: bool(waiting.prompts), what="the prompt")
    if line:
        kernel.finish(kernel.send(line, subshell=console))
    after = kernel.send("print('the next cell')")
    kernel.finish(waiting)
    assert waiting.error == end or (end and waiting.error.startswith(end))
    assert kernel.finish(after).out == "the next cell\n"
    assert len(waiting.prompts) == 1
    if line.startswith("%answer"):
        assert "the North Sea" in said(cast.member_requests[1])


def test_the_prompt_is_withdrawn_when_a_page_speaks_after_all(kernel: Kernel, server: StrictServer) -> None:
    cast = play(server, member=[ASKS, text("The North Sea it is.")])
    waiting = kernel.send("%%team --leader human --roles researcher --wait\nFind a sea.")
    kernel.until(lambda: bool(waiting.prompts), what="the prompt")
    click = page(kernel, waiting)
    click("hello", since=0, req="r0")
    click("answer", question_id="sea-1", text="the North Sea", req="r1")
    kernel.finish(waiting)
    assert waiting.status == "ok"
    assert "the North Sea" in said(cast.member_requests[1])


def test_enter_alone_at_the_prompt_is_no_answer(kernel: Kernel, server: StrictServer) -> None:
    cast = play(server, member=[ASKS, text("The North Sea it is.")])
    kernel.answers += ["", "  ", "the North Sea"]
    cell = kernel.ok("%%team --leader human --roles researcher --wait\nFind a sea.")
    assert len(cell.prompts) == 3
    assert "the North Sea" in said(cast.member_requests[1])


def test_two_cells_that_wait_for_one_question_ask_for_one_line(kernel: Kernel, server: StrictServer) -> None:
    play(server, member=[ASKS, text("The North Sea it is.")])
    console = kernel.subshell()
    asked = kernel.when("'team' in globals() and team.questions")
    waiting = kernel.send("%%team --leader human --roles researcher --wait\nFind a sea.")
    asked()
    beside = kernel.send("%astrion wait", subshell=console)
    kernel.until(lambda: bool(waiting.prompts), what="the prompt")
    kernel.client.input("the North Sea")
    assert kernel.finish(waiting).status == "ok"
    assert kernel.finish(beside).status == "ok"
    assert [len(waiting.prompts), len(beside.prompts)] == [1, 0]


def test_an_interrupt_at_the_prompt_stops_the_run(kernel: Kernel, server: StrictServer) -> None:
    play(server, member=[ASKS, text("The North Sea it is.")])
    waiting = kernel.send("%%team --leader human --roles researcher --wait\nFind a sea.")
    kernel.until(lambda: bool(waiting.prompts), what="the prompt")
    kernel.interrupt()
    kernel.finish(waiting)
    assert waiting.error.startswith("TeamError: interrupted: the run was stopped (Researcher_1)")


def test_a_question_to_a_person_who_is_not_there_fails_the_cell_after_the_transcript(
    kernel: Kernel, server: StrictServer
) -> None:
    cast = play(server, member=[ASKS, text("I chose one myself.")])
    begun = time.monotonic()
    cell = kernel.run("%%team --leader human --roles researcher\nFind a sea.", stdin=False)
    assert time.monotonic() - begun < 5
    assert cell.error.startswith(
        "NobodyToAnswer: a question needed a person and nobody can act here (sea-1: Which {sea}?)"
    )
    assert "I chose one myself." in cell.displays[-1]["text/plain"]
    assert "no person can act here" in said(cast.member_requests[1])
    assert [output["type"] for output in cell.outputs][-1] == "error"


def test_a_question_that_the_leader_leaves_goes_to_the_person_or_fails_where_none_is(
    kernel: Kernel, server: StrictServer
) -> None:
    for stdin in (True, False):
        play(
            server,
            leader=[calls(create()), text("I do not know.")],
            member=[ASKS, text("The North Sea it is.")],
        )
        kernel.answers.append("the North Sea")
        cell = kernel.run("%%team --wait\nFind a sea.", stdin=stdin)
        if stdin:
            assert cell.status == "ok"
            assert cell.prompts == ["Researcher_1 asks (sea-1): Which {sea}?\n> "]
        else:
            assert cell.error.startswith("NobodyToAnswer: ")
            assert "sea-1: Which {sea}?" in cell.error


# ---- clicks


def page(kernel: Kernel, cell: Cell) -> Callable[..., None]:
    """Return what sends a message of the page that shows a cell's view."""
    kernel.until(lambda: bool(cell.displays), what="the view")
    identifier = cell.displays[0]["application/vnd.jupyter.widget-view+json"]["model_id"]
    shell = kernel.subshell()

    def send(kind: str, **payload: Any) -> None:
        data = {"method": "custom", "content": {"v": 1, "kind": kind, **payload}}
        kernel.comm(identifier, data, subshell=shell)

    return send


def test_a_click_is_heard_while_the_kernel_is_idle_and_while_a_cell_waits(kernel: Kernel, server: StrictServer) -> None:
    for waits in (False, True):
        play(server, member=[ASKS, text("The North Sea it is.")])
        asked = kernel.when("'team' in globals() and team.questions")
        cell = kernel.send(f"%%team --leader human --roles researcher {'--wait' if waits else ''}\nFind a sea.")
        click = page(kernel, cell)
        click("hello", since=0, req="r0")
        server.wait_for_requests(1)
        if not waits:
            kernel.finish(cell)
        asked()
        begun = time.monotonic()
        click("answer", question_id="sea-1", text="the North Sea", req="r1")
        kernel.until(lambda: len(server.requests) == 2, what="the agent going on")
        assert time.monotonic() - begun < 1.0, "not only when something else wakes the loop"
        if not waits:
            kernel.ok("%astrion wait")
        else:
            assert kernel.finish(cell).status == "ok"
            assert cell.prompts == [], "who can click is not asked for a line"
        assert "the North Sea" in said(server.requests[1])
        server.requests.clear()


def test_a_storm_of_clicks_beside_a_working_cell_loses_and_doubles_nothing(
    kernel: Kernel, server: StrictServer
) -> None:
    gate = Gate()
    cast = play(server, member=[[*calls(("list_active_sub_agents", {})), gate], text("Seen.")])
    cell = kernel.ok("%%team\nLook around.")
    gate.wait_reached()
    click = page(kernel, cell)
    click("hello", since=0)
    busy = kernel.send("for n in range(30):\n    await team.send('Researcher_1', f'cell {n}.')\n    sum(range(20000))")
    for number in range(150):
        click("send", target="Researcher_1", text=f"click {number}.")
    kernel.finish(busy)
    kernel.ok(
        "import time\nwhile sum(m.kind == 'message' for m in team.state.agents[1].pending) < 180:\n    time.sleep(0.02)"
    )
    gate.release()
    kernel.ok("%astrion wait")
    heard = [message["content"] for message in cast.member_requests[-1]["messages"]]
    for kind, count in (("cell", 30), ("click", 150)):
        got = [n for n in range(count) for content in heard if content and f"\n{kind} {n}.\n" in content]
        assert got == list(range(count)), f"each {kind} once"
    ids = [line for content in heard for line in (content or "").split("\n") if line.startswith("id: msg_")]
    assert len(ids) == len(set(ids))


def test_magics_of_a_subshell_reach_a_team_while_a_cell_waits_for_it(kernel: Kernel, server: StrictServer) -> None:
    gate = Gate()
    cast = play(server, member=[[*calls(("list_active_sub_agents", {})), gate], text("Seen.")])
    waiting = kernel.send("%%team --wait\nLook around.")
    gate.wait_reached()
    console = kernel.subshell()
    beside = [
        kernel.finish(kernel.send(code, subshell=console))
        for code in ("%send Researcher_1 don't forget?", "%astrion agents", "%ask nobody there?", "%%team\nAnother.")
    ]
    assert [cell.status for cell in beside] == ["ok", "ok", "error", "error"]
    assert beside[3].error.startswith("TeamBusy: ")
    assert "Researcher_1" in beside[1].text
    assert waiting.status == ""
    gate.release()
    kernel.finish(waiting)
    assert waiting.status == "ok"
    assert "don't forget?" in said(cast.member_requests[1])
    assert "don't forget?" in waiting.displays[-1]["text/plain"]
    assert kernel.finish(kernel.send("%ask Researcher_1 there?", subshell=console)).result == "Seen."


def test_stop_in_the_view_ends_a_run_that_no_cell_waits_for(kernel: Kernel, server: StrictServer) -> None:
    gate = Gate()
    play(server, leader=[Reply([gate, *text("Done.")])])
    cell = kernel.ok("%%team\nLook around.")
    gate.wait_reached()
    page(kernel, cell)("stop", req="r1")
    server.wait_for(lambda: server.dropped >= 1)
    kernel.ok("import time\nwhile team.running:\n    time.sleep(0.02)")
    assert kernel.ok("print(team.result().status)").out == "stopped\n"
    gate.release()
