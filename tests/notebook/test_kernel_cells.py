"""Cells in a real kernel: what they show, when they return, what reaches a team at work."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.casts import create, play, said
from support.live_kernel import Cell, Kernel, statuses
from support.strict_server import Gate, StrictServer, calls, status, text

pytestmark = pytest.mark.faults

VIEW = "application/vnd.jupyter.widget-view+json"
STATIC = {"text/html", "text/markdown", "text/plain"}


def view(cell: Cell) -> tuple[dict[str, Any], str]:
    """Return a cell's first output, which must be a live view and nothing else, and its display id."""
    shown = cell.of("display_data")[0]
    assert set(shown["data"]) == {VIEW}
    return shown["data"], shown["transient"]["display_id"]


def updates(cell: Cell) -> list[tuple[str, dict[str, Any]]]:
    return [(content["transient"]["display_id"], content["data"]) for content in cell.of("update_display_data")]


def test_run_all_runs_every_queued_cell_in_order(kernel: Kernel, server: StrictServer) -> None:
    play(server)
    cells = kernel.queue(
        "order = []",
        "%%team --wait\nLook around.",
        "order.append(1)",
        "answer = %ask Researcher_1 is it done?\norder.append(2)",
        "order.append(3)\nprint(order, answer)",
    )
    assert statuses(cells) == ["ok"] * 5
    assert [cell.err for cell in cells] == [""] * 5
    assert cells[-1].out == "[1, 2, 3] Seen.\n"
    assert [cell.reply["execution_count"] for cell in cells] == sorted(cell.reply["execution_count"] for cell in cells)
    assert "Traceback" not in kernel.log


# ---- the three forms


def test_a_waiting_cell_shows_a_view_then_one_static_transcript(kernel: Kernel, server: StrictServer) -> None:
    play(server)
    cell = kernel.ok("%%team --wait\nLook around.")
    _, place = view(cell)
    assert updates(cell) == [(place, {})], "the view is emptied, by its id"
    first, last = cell.of("display_data")
    assert set(last["data"]) == STATIC
    assert last["transient"] == {}
    assert cell.outputs[1:] == [{"type": "display_data", **last}]
    for form in last["data"].values():
        assert form.count("All is well.") == 1
        assert form.count("Seen.") == 2, "in the leader's conversation and in the agent's own"
    order = [message["msg_type"] for message in cell.messages if not message["msg_type"].startswith("comm_")]
    assert order == ["display_data", "update_display_data", "display_data"]
    assert first["data"] != {}


def test_a_cell_that_does_not_wait_fills_its_place_when_the_team_rests(kernel: Kernel, server: StrictServer) -> None:
    gate = Gate()
    play(server, member=[[*text("Seen."), gate]])
    cell = kernel.ok("%%team\nLook around.")
    _, place = view(cell)
    assert [shown["data"] for shown in cell.of("display_data")[1:]] == [{}]
    kept = cell.of("display_data")[1]["transient"]["display_id"]
    gate.wait_reached()
    between = kernel.ok("1 + 1")
    gate.release()
    waited = kernel.ok("%astrion wait")
    after = kernel.ok("2 + 2")
    kernel.until(lambda: len(updates(cell)) == 2, what="both updates")
    assert {place: {}, kept: STATIC} == {identifier: set(data) or {} for identifier, data in updates(cell)}
    assert "All is well." in dict(updates(cell))[kept]["text/plain"]
    assert [between.outputs, after.outputs] == [
        between.of("execute_result") and [between.outputs[0]],
        [after.outputs[0]],
    ]
    assert [between.result, after.result] == ["2", "4"]
    assert waited.out == "Everybody rests. The team is done.\n", "the place is in the team's cell"
    assert kernel.stray == []


def test_a_no_wait_cell_leaves_the_transcript_to_astrion_wait(kernel: Kernel, server: StrictServer) -> None:
    gate = Gate()
    play(server, member=[[*text("Seen."), gate]])
    cell = kernel.ok("%%team --no-wait\nLook around.")
    view(cell)
    assert len(cell.outputs) == 1
    gate.wait_reached()
    waiting = kernel.send("%astrion wait")
    gate.release()
    kernel.finish(waiting)
    assert [set(output["data"]) for output in waiting.outputs] == [STATIC]
    assert "All is well." in waiting.text
    assert kernel.ok("%astrion wait").out == "Everybody rests. The team is done.\n", "the transcript once"
    assert "All is well." in kernel.ok("%astrion show").text


def test_where_nobody_can_act_the_cell_waits_by_itself(kernel: Kernel, server: StrictServer) -> None:
    play(server)
    assert "All is well." in kernel.ok("%%team\nLook around.", stdin=False).text
    assert kernel.ok("print(team.running)").out == "False\n"
    silent = kernel.ok("%%team --no-wait\nLook again.", stdin=False)
    assert len(silent.outputs) == 1
    kernel.ok("%astrion wait", stdin=False)


def test_something_is_seen_long_before_the_end_and_text_grows(kernel: Kernel, server: StrictServer) -> None:
    gate, more = Gate(), Gate()
    play(server, leader=[[*text("One word, ", reason=None, tokens=None), gate, *text("then another. "), more]])
    waiting = kernel.send("%%team --wait\nTell.")

    def sent() -> str:
        return json.dumps([message["content"] for message in waiting.messages])

    gate.wait_reached()
    kernel.until(lambda: "One word, " in sent(), what="the first words")
    assert waiting.status == ""
    view(waiting)
    gate.release()
    more.wait_reached()
    kernel.until(lambda: "then another. " in sent(), what="the next words")
    assert waiting.status == ""
    more.release()
    assert kernel.finish(waiting).status == "ok"


# ---- beside a team at work


def test_output_of_a_team_never_lands_in_a_later_cell(kernel: Kernel, server: StrictServer) -> None:
    gates = [Gate() for _ in range(4)]
    play(
        server, member=[[*text("Word. ", reason=None, tokens=None), *(p for g in gates for p in (g, *text("More. ")))]]
    )
    first = kernel.ok("%%team\nLook around.")
    later = []
    for number, gate in enumerate(gates):
        gate.wait_reached()
        later.append(kernel.ok(f"print({number})"))
        gate.release()
    kernel.ok("%astrion wait")
    kernel.until(lambda: any(data for _, data in updates(first)), what="the transcript")
    assert [cell.outputs for cell in later] == [
        [{"type": "stream", "name": "stdout", "text": f"{n}\n"}] for n in range(4)
    ]
    assert [cell.messages[1:] for cell in later] == [[]] * 4, "not even a comm message"


def test_a_sleeping_cell_does_not_stop_the_team(kernel: Kernel, server: StrictServer) -> None:
    gate = Gate()
    play(server, member=[[gate, *text("Seen.")]])
    kernel.ok("%%team\nLook around.")
    gate.wait_reached()
    sleeping = kernel.send("import time\nwhile team.running:\n    time.sleep(0.05)\nprint('rested')")
    gate.release()
    assert kernel.finish(sleeping).out == "rested\n"
    busy = kernel.send("%%team\nLook again.")
    computing = kernel.send("n = 0\nwhile team.running:\n    n += sum(range(2000))\nprint('rested')")
    kernel.finish(busy)
    assert kernel.finish(computing).out == "rested\n"


def test_a_message_of_the_next_cell_reaches_an_agent_before_its_next_request(
    kernel: Kernel, server: StrictServer
) -> None:
    gate = Gate()
    cast = play(server, member=[[*calls(("list_active_sub_agents", {})), gate], text("Seen.")])
    kernel.ok("%%team\nLook around.")
    gate.wait_reached()
    sent = kernel.ok("%send Researcher_1 don't forget {the sea}?")
    assert sent.result.startswith("msg_tl_")
    gate.release()
    kernel.ok("%astrion wait")
    assert len(cast.member_requests) == 2
    assert "don't forget {the sea}?" not in said(cast.member_requests[0])
    assert "<Message>\ndon't forget {the sea}?\n</Message>" in said(cast.member_requests[1])
    assert any("don't forget" in said(request) for request in cast.leader_requests), "the leader is told"


def test_an_agent_at_work_is_asked_from_the_next_cell(kernel: Kernel, server: StrictServer) -> None:
    gate = Gate()

    def answer(request: dict[str, Any]) -> Any:
        identifier = said(request).rsplit("id: ask_", 1)[1].split("\n")[0]
        return calls(("answer_master", {"question_id": f"ask_{identifier}", "answer": "Seven, **of course**."}))

    cast = play(server, member=[[*calls(("list_active_sub_agents", {})), gate], answer, text("Seen.")])
    kernel.ok("%%team\nLook around.")
    gate.wait_reached()
    asked = kernel.when("team.open_questions")
    asking = kernel.send("r = %ask Researcher_1 how many?\nr.upper()")
    asked()
    gate.release()
    assert kernel.finish(asking).result == "'SEVEN, **OF COURSE**.'"
    assert "<Ask>\nhow many?\n</Ask>" in said(cast.member_requests[1])
    shown = kernel.ok("r").of("execute_result")[0]["data"]
    assert shown == {"text/plain": "Seven, **of course**.", "text/markdown": "Seven, **of course**."}
    kernel.ok("%astrion wait")


def test_the_leader_is_asked_and_answers_with_its_turn_s_text(kernel: Kernel, server: StrictServer) -> None:
    cast = play(server, leader=[text("First."), text("Second.")])
    kernel.ok("%%team --wait\nBegin.")
    assert kernel.ok("%ask leader and then?").result == "Second."
    assert cast.leader_requests[-1]["messages"][-1] == {"role": "user", "content": "and then?"}
    assert kernel.ok("print(team.result().text)").out == "Second.\n"


def test_a_second_team_is_refused_while_one_works(kernel: Kernel, server: StrictServer) -> None:
    gate = Gate()
    play(server, member=[[gate, *text("Seen.")]])
    kernel.ok("%%team\nLook around.")
    gate.wait_reached()
    for line in ("%%team\nAnother.", "%%team --continue\nMore."):
        refused = kernel.run(line)
        assert refused.error.startswith("TeamBusy: a team is at work")
        assert all(way in refused.error for way in ("%send leader", "--continue", "%astrion stop"))
        assert len(refused.traceback) == 1
    gate.release()
    kernel.ok("%astrion wait")
    kernel.ok("%%team --continue --wait\nMore.")


def test_the_same_cell_runs_again_and_again_and_leaves_nothing(kernel: Kernel, server: StrictServer) -> None:
    for _ in range(3):
        play(server)
        cell = kernel.ok("%%team --wait\nLook around.")
        assert cell.displays[-1]["text/plain"].count("All is well.") == 1
        assert cell.err == ""
    assert kernel.ok("%astrion stop").out == "nobody is at work\n"
    collected = kernel.ok("import gc\nfor _ in range(3):\n    gc.collect()")
    assert collected.outputs == []
    assert kernel.ok("%astrion conversations").text.count("conv_") == 3
    kernel.ok("%unload_ext astrion_nb")
    server.wait_for(lambda: not server._tasks)  # every connection is closed
    assert kernel.ok("import gc; gc.collect();").err == ""
    assert "never" not in kernel.log
    kernel.ok("%load_ext astrion_nb")


def test_two_teams_one_after_the_other_show_each_their_own(kernel: Kernel, server: StrictServer) -> None:
    play(server, leader=[text("The first team.")])
    one = kernel.ok("%%team\nOne.")
    kernel.ok("%astrion wait")
    play(server, leader=[text("The second team.")])
    two = kernel.ok("%%team\nTwo.")
    kernel.ok("%astrion wait")
    kernel.until(lambda: all(any(data for _, data in updates(cell)) for cell in (one, two)), what="two transcripts")
    assert ("The first team." in one.text, "The second team." in one.text) == (True, False)
    assert ("The first team." in two.text, "The second team." in two.text) == (False, True)


# ---- failures


@pytest.mark.parametrize("stdin", [True, False])
def test_a_failed_run_fails_its_cell_in_one_line_after_the_transcript(
    stdin: bool, kernel: Kernel, server: StrictServer
) -> None:
    play(server, leader=[status(401, {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}})])
    cell = kernel.run("%%team --wait\nLook around.", stdin=stdin)
    assert cell.status == "error"
    assert cell.error.startswith("RunFailed: the run failed: ")
    assert len(cell.traceback) == 1
    kinds = [output["type"] for output in cell.outputs]
    assert kinds == ["display_data", "display_data", "error"]
    assert "The run failed." in cell.text
    assert kernel.ok("1").err == "", "it has been told"


def test_a_run_that_fails_unseen_is_told_once_at_the_next_magic(kernel: Kernel, server: StrictServer) -> None:
    play(server, leader=[status(404)])
    kernel.ok("%%team\nLook around.")
    kernel.ok("import time\nwhile team.running:\n    time.sleep(0.02)")
    assert kernel.ok("print('no magic')").err == ""
    told = kernel.ok("%astrion agents")
    assert told.err.startswith("RunFailed: the run failed: ")
    assert told.err.count("\n") == 1
    assert kernel.ok("%astrion agents").err == ""


def test_where_nobody_reads_it_an_unseen_failure_fails_the_next_magic(kernel: Kernel, server: StrictServer) -> None:
    play(server, leader=[status(404)])
    kernel.ok("%%team --no-wait\nLook around.", stdin=False)
    kernel.ok("import time\nwhile team.running:\n    time.sleep(0.02)", stdin=False)
    failed = kernel.run("%astrion agents", stdin=False)
    assert failed.error.startswith("RunFailed: before this cell: RunFailed: the run failed: ")
    kernel.ok("%astrion agents", stdin=False)


def test_waiting_for_a_run_that_failed_tells_it_once_and_shows_it(kernel: Kernel, server: StrictServer) -> None:
    play(server, leader=[status(404)])
    kernel.ok("%%team --no-wait\nLook around.")
    waited = kernel.run("%astrion wait")
    assert waited.error.startswith("RunFailed: the run failed: ")
    assert waited.err == ""
    assert "The run failed." in waited.text
    assert kernel.ok("%astrion agents").err == ""


def test_a_run_past_its_time_is_stopped_and_its_cell_fails(kernel: Kernel, server: StrictServer) -> None:
    gate = Gate()
    play(server, leader=[[gate]])
    cell = kernel.run("%%team --wait --timeout 0.5\nLook around.")
    assert cell.error == "TeamError: the team was stopped: no end after 0.5 seconds; go on with %%team --continue"
    assert "no end after 0.5 seconds" in cell.text
    gate.release()
    play(server, leader=[text("On time.")])
    assert "On time." in kernel.ok("%%team --continue --wait\nAgain.").text


def test_a_view_that_cannot_be_made_or_fed_never_ends_a_run(kernel: Kernel, server: StrictServer) -> None:
    play(server)
    kernel.ok(
        "from astrion_nb.widgets.team import TeamView\n"
        "keep = TeamView.send\n"
        "def broken(*arguments, **named):\n    raise LookupError('no parent')\n"
        "TeamView.send = broken"
    )
    assert "All is well." in kernel.ok("%%team --wait\nLook around.").text
    kernel.ok("TeamView.send = keep\nwhole = TeamView.__init__\nTeamView.__init__ = broken")
    cell = kernel.run("%%team --wait\nLook around.")
    kernel.ok("TeamView.__init__ = whole")
    assert cell.status == "ok"
    assert [set(data) for data in cell.displays] == [STATIC]
    assert kernel.ok("print(team.result().status)").out == "completed\n"


def test_a_running_agents_error_is_told_at_the_next_magic(kernel: Kernel, server: StrictServer) -> None:
    play(server, member=[status(404)])
    kernel.ok("%%team\nLook around.")
    kernel.ok("import time\nwhile team.running:\n    time.sleep(0.02)")
    told = kernel.ok("%astrion agents")
    assert told.err.startswith("Researcher_1 failed: ")
    assert told.err.count("\n") == 1
    assert kernel.ok("%astrion agents").err == ""


# ---- the variable in cells


def test_the_team_is_awaited_and_followed_in_cells(kernel: Kernel, server: StrictServer) -> None:
    gate = Gate()
    play(server, member=[[gate, *text("Seen.")]])
    kernel.ok("%%team\nLook around.")
    gate.wait_reached()
    following = kernel.send(
        "names = []\n"
        "async for event in team.events():\n"
        "    names.append(type(event).__name__)\n"
        "    if names[-1] == 'RunEnded':\n        break\n"
        "print(names[0], names[-1])"
    )
    gate.release()
    assert kernel.finish(following).out == "ConversationStarted RunEnded\n"
    assert kernel.ok("r = await team.run('Again.')\nprint(r.status, r.text)").out == "completed All is well.\n"
    assert kernel.ok("print(await team.ask('Researcher_1', 'there?'))").out == "Seen.\n"
    assert kernel.ok("print((await team.wait()).status)").out == "completed\n"
    assert "Researcher_1" in kernel.ok("team").text
    failed = kernel.run("await team.ask('nobody', 'there?')")
    assert failed.error.startswith("AgentNotFound: ")
    assert len(failed.traceback) == 1


def test_a_researcher_is_created_where_the_person_leads(kernel: Kernel, server: StrictServer) -> None:
    cast = play(server, member=[text("Seen."), text("Seen more.")])
    cell = kernel.ok("%%team --leader human --roles researcher,ui-operator --wait\nLook around.")
    assert cast.leader_requests == []
    assert len(cast.member_requests) == 2
    assert "Researcher_1" in cell.text
    assert "UI Operator_1" in cell.text
    kernel.ok("%send researcher Look further.")
    kernel.ok("%astrion wait")
    assert "Researcher_2" in kernel.ok("%astrion agents").text
    refused = kernel.run("%ask leader what now?")
    assert refused.error == "TeamError: you are the leader of this team: ask an agent, by name"


def test_a_created_role_s_number_is_the_leader_s(kernel: Kernel, server: StrictServer) -> None:
    play(server, leader=[calls(create(3), create(1, "ui-operator")), text("All is well.")])
    kernel.ok("%%team --wait\nLook around.")
    assert kernel.ok("print([(a.agent_id, a.display_name) for a in team.agents])").out == (
        "[(1, 'UI Operator_1'), (3, 'Researcher_3')]\n"
    )
