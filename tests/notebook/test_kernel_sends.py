"""Messages to a team at rest, in a real kernel and under nbval: what they begin is seen, and is in the notebook."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.casts import play
from support.live_kernel import Cell, Kernel
from support.notebooks import execute, make, verify
from support.shells import AGREEABLE, loaded, scripted
from support.strict_server import Gate, StrictServer, text

pytestmark = pytest.mark.faults

VIEW = "application/vnd.jupyter.widget-view+json"
STATIC = {"text/html", "text/markdown", "text/plain"}


def views(cell: Cell) -> list[str]:
    """Return the display ids of a cell's live views."""
    return [shown["transient"]["display_id"] for shown in cell.of("display_data") if set(shown["data"]) == {VIEW}]


def emptied(cell: Cell) -> list[str]:
    return [shown["transient"]["display_id"] for shown in cell.of("update_display_data") if shown["data"] == {}]


def test_a_message_that_begins_a_run_shows_the_team_and_leaves_the_transcript_to_wait(
    kernel: Kernel, server: StrictServer
) -> None:
    gate = Gate()
    play(server, member=[text("Seen."), [*text("Looked once more."), gate]])
    kernel.ok("%%team --wait\nLook around.")
    sent = kernel.ok("%send Researcher_1 Look once more.")
    assert [output["type"] for output in sent.outputs] == ["display_data", "execute_result"]
    assert len(views(sent)) == 1
    assert sent.result == "task_002"
    gate.wait_reached()
    waiting = kernel.send("%astrion wait")
    gate.release()
    kernel.finish(waiting)
    assert emptied(sent) + emptied(waiting) == views(sent), "the view makes way for the transcript"
    assert [set(output["data"]) for output in waiting.outputs] == [STATIC]
    assert "Looked once more." in waiting.text
    assert "Look around." not in waiting.text, "what another cell has shown is not shown again"
    assert kernel.ok("%astrion wait").out == "Everybody rests. The team is done.\n", "the transcript once"


def test_a_message_to_a_team_at_work_shows_nothing_of_its_own(kernel: Kernel, server: StrictServer) -> None:
    gate = Gate()
    play(server, member=[[*text("Seen."), gate]])
    kernel.ok("%%team --no-wait\nLook around.")
    gate.wait_reached()
    sent = kernel.ok("%send Researcher_1 Hurry.")
    assert [output["type"] for output in sent.outputs] == ["execute_result"]
    gate.release()
    kernel.ok("%astrion wait")


def test_several_messages_have_one_view_and_one_transcript(kernel: Kernel, server: StrictServer) -> None:
    play(server)
    kernel.ok("%%team --wait\nLook around.")
    first = kernel.ok("%send Researcher_1 One more look.")
    kernel.until(lambda: kernel.ok("print(team.running)").out == "False\n", what="rest")
    second = kernel.ok("%send Researcher_1 And another.")
    kernel.until(lambda: kernel.ok("print(team.running)").out == "False\n", what="rest")
    waited = kernel.ok("%astrion wait")
    assert emptied(first) + emptied(second) + emptied(waited) == views(first) + views(second)
    assert waited.text.index("One more look.") < waited.text.index("And another.")
    assert "Look around." not in waited.text


def test_a_cell_that_could_not_begin_takes_no_transcript_away(kernel: Kernel, server: StrictServer) -> None:
    play(server)
    kernel.ok("%%team --wait\nLook around.")
    kernel.ok("%send leader One more look.")
    kernel.until(lambda: kernel.ok("print(team.running)").out == "False\n", what="rest")
    failed = kernel.run("%%team --continue --timeout 0\nx")
    assert failed.status == "error"
    assert "One more look." in kernel.ok("%astrion wait").text


def test_a_run_begun_by_a_message_gives_the_same_outputs_under_nbval(tmp_path: Path) -> None:
    key = scripted(tmp_path / "agreeable.py", AGREEABLE)
    cassette = tmp_path / "sends.cassette.json"
    code = [
        "%load_ext astrion_nb",
        "%%team\nLook around.",
        "%send Researcher_1 Again?",
        "%astrion wait",
        "%astrion wait",
    ]
    path = make(tmp_path / "sends.ipynb", code)
    env = {"ASTRION_HOME": str(tmp_path / "home"), "ASTRION_MODEL": key, "ASTRION_RECORD": str(cassette)}
    assert execute(path, env).error == ""
    done = execute(path, {"ASTRION_HOME": str(tmp_path / "again"), "ASTRION_REPLAY": str(cassette)})
    assert done.error == ""
    assert [len(done.outputs(number)) for number in (3, 4)] == [1, 1]
    assert "Again?" in done.texts(3)
    assert "Look around." not in done.texts(3)
    assert done.texts(4) == "Everybody rests. The team is done.\n"
    verified = verify(tmp_path, "--nbval", "--nbval-current-env", "sends.ipynb")
    assert verified.of("sends") == ["PASSED"] * len(code), verified.output


def test_a_terminal_says_how_to_see_what_a_message_began(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = scripted(tmp_path / "agreeable.py", AGREEABLE)
    theirs, ours = os.openpty()
    with os.fdopen(theirs, "rb"), open(ours, encoding="utf-8") as terminal, loaded() as shell:
        monkeypatch.setattr("sys.stdin", terminal)
        shell.run(f"%%team --model {key}\nLook around.")
        capsys.readouterr()
        shell.run("%send Researcher_1 Again?")
        assert "%astrion wait waits for it and shows what it did" in capsys.readouterr().out
        shell.run("%astrion wait")
        assert "Again?" in capsys.readouterr().out
