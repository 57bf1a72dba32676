"""Every ``%astrion`` command in a real kernel, with a team at work and at rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.casts import create, play, said, well
from support.live_kernel import Kernel
from support.strict_server import Gate, StrictServer, calls, status, text

from astrion_nb.notebook.commands import COMMANDS


def test_the_board_shows_everybody_and_the_bare_magic_is_the_board(kernel: Kernel, server: StrictServer) -> None:
    assert kernel.ok("%astrion").out.startswith("no team in this kernel yet: start one with %%team")
    gate = Gate()
    play(server, member=[[gate, *text("Seen.")]])
    kernel.ok("%%team\nLook around.")
    gate.wait_reached()
    board = kernel.ok("%astrion")
    assert set(board.displays[0]) == {"text/html", "text/markdown", "text/plain"}
    assert "Team Leader" in board.text
    assert "running" in board.text
    assert kernel.ok("%astrion board").displays == kernel.ok("%astrion").displays
    gate.release()
    kernel.ok("%astrion wait")
    assert "completed" in kernel.ok("%astrion").text


def test_agents_are_a_table(kernel: Kernel, server: StrictServer) -> None:
    play(server, leader=[calls(create(1), create(1, "ui-operator", "Draw it.")), well])
    kernel.ok("%%team --wait\nLook around.")
    shown = kernel.ok("%astrion agents").of("execute_result")[0]["data"]
    rows = shown["text/plain"].split("\n")
    assert [row.split("  ")[0] for row in rows] == ["No.", "leader", "1", "2"]
    assert "Researcher_1" in rows[2]
    assert "Draw it." in rows[3]
    assert shown["text/markdown"].startswith("| No. | Name |")


def test_show_prints_the_transcript_again(kernel: Kernel, server: StrictServer) -> None:
    play(server)
    first = kernel.ok("%%team --wait\nLook around.")
    assert kernel.ok("%astrion show").displays == [first.displays[-1]]
    play(server, leader=[text("More.")])
    second = kernel.ok("%%team --continue --wait\nGo on.")
    assert "Look around." not in second.displays[-1]["text/plain"], "a cell shows its own run"
    whole = kernel.ok("%astrion show").text
    assert whole.index("Look around.") < whole.index("Go on.") < whole.index("More.")


def test_stop_ends_one_agent_or_the_team(kernel: Kernel, server: StrictServer) -> None:
    gates = [Gate(), Gate()]
    cast = play(
        server,
        leader=[calls(create(1), create(2)), text("Started."), text("I wait."), text("All is well.")],
        member=[[gate, *text("Seen.")] for gate in gates],
    )
    kernel.ok("%%team --no-wait\nLook around.")
    for gate in gates:
        gate.wait_reached()
    assert kernel.ok("%astrion stop Researcher_1 it is raining").out == "stopped: Researcher_1\n"
    server.wait_for(lambda: server.dropped >= 1)
    server.wait_for(lambda: any("it is raining" in said(request) for request in cast.leader_requests))
    assert kernel.ok("print(team.running)").out == "True\n"
    assert kernel.ok("%astrion stop --reason 'enough of it'").out == "stopped: the team\n"
    assert kernel.ok("print(team.running, team.result().status)").out == "False stopped\n"
    asked = len(server.requests)
    for gate in gates:
        gate.release()
    kernel.ok("import time; time.sleep(0.5)")
    assert len(server.requests) == asked
    assert kernel.ok("%astrion stop").out == "nobody is at work\n"


def test_terminate_ends_an_agent_for_good(kernel: Kernel, server: StrictServer) -> None:
    play(server)
    kernel.ok("%%team --wait\nLook around.")
    assert kernel.ok("%astrion terminate researcher_1").out == "terminated: researcher_1\n"
    assert "terminated" in kernel.ok("%astrion agents").text
    refused = kernel.run("%ask Researcher_1 there?")
    assert refused.error.startswith("AgentTerminated: Researcher_1 is terminated")
    kernel.ok("%astrion wait")


def test_retry_revives_who_failed(kernel: Kernel, server: StrictServer) -> None:
    play(server, member=[status(404), text("Seen.")])
    kernel.ok("%%team --wait\nLook around.")
    assert "failed" in kernel.ok("%astrion agents").text
    assert kernel.ok("%astrion retry").out == "at work again: Researcher_1\n"
    kernel.ok("%astrion wait")
    assert "Seen." in kernel.ok("%astrion show").text
    assert kernel.ok("%astrion retry").out == "nobody had failed\n"


def test_conversations_are_listed_and_resumed(kernel: Kernel, server: StrictServer) -> None:
    assert kernel.ok("%astrion conversations").result == "no stored conversations"
    play(server)
    kernel.ok("%%team --wait --title 'First look'\nLook around.")
    play(server)
    kernel.ok("%%team --wait\nSecond look.")
    listed = kernel.ok("%astrion conversations").result.split("\n")
    assert [row.split("  ")[0] for row in listed[:1]] == ["id"]
    assert ("Second look." in listed[1], "First look" in listed[2]) == (True, True)
    assert [row.split()[-2] for row in listed[1:]] == ["1", "1"]
    identifier = listed[2].split()[0]
    told = kernel.ok(f"%astrion resume {identifier}")
    assert told.out.startswith("First look: 1 agent, ")
    assert kernel.ok("print(team.conversation_id)").out == f"{identifier}\n"
    play(server, leader=[text("Here again.")])
    assert kernel.ok("%ask leader still there?").result == "Here again."
    assert "Look around." in said(server.requests[-1])


def test_continue_takes_up_a_named_conversation(kernel: Kernel, server: StrictServer) -> None:
    play(server)
    kernel.ok("%%team --wait --title One\nLook around.")
    first = kernel.ok("print(team.conversation_id)").out.strip()
    kernel.ok("%%team --wait\nAnother.")
    play(server, leader=[text("Here again.")])
    for _ in range(2):  # the second time it is the open one
        kernel.ok(f"%%team --wait --continue {first}\nGo on.")
        assert kernel.ok("print(team.conversation_id)").out.strip() == first
    assert "Look around." in said(server.requests[-1])


def listed(kernel: Kernel, *flags: str) -> list[str]:
    """Return the rows of the list of conversations."""
    return kernel.ok(f"%astrion conversations {' '.join(flags)}").result.split("\n")[1:]


def test_a_conversation_is_renamed_archived_brought_back_and_deleted(kernel: Kernel, server: StrictServer) -> None:
    play(server)
    kernel.ok("%%team --wait --title 'First look'\nLook around.")
    first = kernel.ok("print(team.conversation_id)").out.strip()
    play(server)
    kernel.ok("%%team --wait\nSecond look.")
    second = kernel.ok("print(team.conversation_id)").out.strip()
    assert kernel.ok(f'%astrion rename {first} "What\'s {{new}}?"').out == f"renamed: {first} is now What's {{new}}?\n"
    assert [("What's {new}?" in row, first in row) for row in listed(kernel)] == [(False, False), (True, True)]
    assert kernel.ok(f"%astrion archive {first}").out == f"archived: {first}\n"
    assert [second in row for row in listed(kernel)] == [True]
    assert [row.split()[-1] for row in listed(kernel, "--archived")] == ["active", "archived"]
    told = kernel.ok(f"%astrion resume {first}").out.split("\n")
    assert told[0].startswith("What's {new}?: 1 agent")
    assert told[1] == f"  it is archived; %astrion archive --undo {first} brings it back into the list"
    assert kernel.ok("%ask Researcher_1 there?").result == "Seen."
    assert kernel.ok(f"%astrion archive --undo {first}").out == f"back in the list: {first}\n", "the open one too"
    kernel.ok(f"%astrion archive {first}")
    assert kernel.ok(f"%astrion archive {first} --undo").out == f"back in the list: {first}\n", "a flag behind the id"
    assert len(listed(kernel)) == 2
    assert kernel.ok(f"%astrion rename {first} Again").out == f"renamed: {first} is now Again\n"
    assert kernel.ok("print(team.state.title)").out == "Again\n"
    refused = kernel.run(f"%astrion delete {first}")
    assert refused.error.startswith(f"ConversationLocked: {first} is the team of this kernel: start or resume another")
    assert len(refused.traceback) == 1
    kernel.ok(f"%astrion resume {second}")
    assert kernel.ok(f"%astrion delete {first}").out == f"deleted: Again ({first}, 1 agent)\n"
    assert [second in row for row in listed(kernel, "--archived")] == [True]
    gone = kernel.run(f"%astrion resume {first}")
    assert gone.error.startswith(f"ConversationNotFound: there is no conversation '{first}'")


def test_what_a_title_holds_for_a_terminal_is_not_printed_when_it_is_given(
    kernel: Kernel, server: StrictServer
) -> None:
    play(server)
    kernel.ok("%%team --wait\nLook around.")
    identifier = kernel.ok("print(team.conversation_id)").out.strip()
    told = kernel.ok(f"%astrion rename {identifier} a\x1b[2J\x07b \u202ec").out
    assert told == f"renamed: {identifier} is now a\ufffd[2J\ufffdb \ufffdc\n"


def test_a_conversation_at_work_is_renamed_and_archived_without_a_pause(kernel: Kernel, server: StrictServer) -> None:
    gate = Gate()
    play(server, member=[[gate, *text("Seen.")]])
    kernel.ok("%%team\nLook around.")
    identifier = kernel.ok("print(team.conversation_id)").out.strip()
    gate.wait_reached()
    kernel.ok(f"%astrion rename {identifier} Uno")
    kernel.ok(f"%astrion archive {identifier}")
    assert kernel.run(f"%astrion delete {identifier}").status == "error"
    assert kernel.ok("print(team.running)").out == "True\n"
    gate.release()
    kernel.ok("%astrion wait")
    assert kernel.ok("print(team.result().status, team.result().text)").out == "completed All is well.\n"
    [row] = listed(kernel, "--archived")
    assert ("Uno" in row, row.split()[-1]) == (True, "archived")


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("rename", "ConfigError: %astrion rename: name the conversation; %astrion conversations --archived lists them"),
        ("archive", "ConfigError: %astrion archive: name the conversation;"),
        ("delete", "ConfigError: %astrion delete: name the conversation;"),
        ("delete conv_a conv_b", "ConfigError: %astrion delete: it takes one conversation, and no 'conv_b'"),
        ("delete ../agents", "ConversationNotFound: there is no conversation '../agents'"),
        ("archive nobody", "ConversationNotFound: there is no conversation 'nobody'"),
        ("rename nobody x", "ConversationNotFound: there is no conversation 'nobody'"),
        ("rename nobody", "ConfigError: %astrion rename: say the new title: %astrion rename ID TITLE"),
        ("rename nobody ''", "ConfigError: %astrion rename: say the new title: %astrion rename ID TITLE"),
        ("delete --force nobody", "ConfigError: %astrion delete: there is no flag --force"),
    ],
)
def test_a_line_about_a_conversation_that_is_none_is_one_line(
    line: str, error: str, kernel: Kernel, server: StrictServer
) -> None:
    refused = kernel.run(f"%astrion {line}")
    assert refused.error.startswith(error)
    assert len(refused.traceback) == 1


def test_conversations_complete_and_their_commands_explain_themselves(kernel: Kernel, server: StrictServer) -> None:
    play(server)
    kernel.ok("%%team --wait\nLook around.")
    identifier = kernel.ok("print(team.conversation_id)").out.strip()
    kernel.ok(f"%astrion archive {identifier}")
    for name in ("rename", "archive", "delete", "resume"):
        assert kernel.complete(f"%astrion {name} conv") == [identifier], "an archived one too"
        assert f"%astrion {name} ID" in kernel.ok(f"%astrion {name} --help").out
    assert kernel.complete("%astrion archive --u") == ["--undo"]
    assert kernel.complete("%astrion conversations --") == ["--archived", "--help"]


def test_models_name_variables_and_never_keys(kernel: Kernel, server: StrictServer) -> None:
    shown = kernel.ok("%astrion models").result
    row = next(line for line in shown.split("\n") if line.startswith("openai "))
    assert "strict-1" in row
    assert "127.0.0.1" in row
    assert "OPENAI_API_KEY (set)" in row
    assert row.endswith("yes")
    assert "local/smollm2" in shown
    assert "canary" not in json.dumps(shown)


def test_export_writes_markdown_and_replaces_nothing_unasked(
    kernel: Kernel, server: StrictServer, tmp_path: Path
) -> None:
    play(server)
    kernel.ok("%%team --wait --title 'A look: around?'\nLook around.")
    target = tmp_path / "out.md"
    assert kernel.ok(f'%astrion export "{target}"').out == f"written: {target}\n"
    written = target.read_text("utf-8")
    assert "All is well." in written
    assert "openai" in written
    refused = kernel.run(f"%astrion export {target}")
    assert refused.error == f"ConfigError: {target} is there already; name another file, or add --force"
    kernel.ok(f"%astrion export --force {target}")
    kernel.ok(f"%cd -q {tmp_path}")
    assert kernel.ok("%astrion export").out == "written: A look  around.md\n"
    kernel.ok(f"%astrion export {tmp_path}/a/new/folder/x.md")
    below_a_file = kernel.run(f"%astrion export {target}/x.md")
    assert below_a_file.status == "error"
    assert len(below_a_file.traceback) == 1, "also a path that cannot be written is one line"
    kernel.ok("%cd -q -")


def test_why_shows_the_bytes_that_went_out(kernel: Kernel, server: StrictServer) -> None:
    cast = play(server)
    kernel.ok("%%team --wait\nLook around.")
    shown = json.loads(kernel.ok("%astrion why leader 1").result)
    assert shown["messages"] == cast.leader_requests[0]["messages"]
    assert json.loads(kernel.ok("%astrion why Team Leader").result)["messages"] == cast.leader_requests[-1]["messages"]
    member = json.loads(kernel.ok("%astrion why researcher_1").result)
    assert {key: member[key] for key in ("model", "messages", "tools")} == {
        key: cast.member_requests[-1][key] for key in ("model", "messages", "tools")
    }
    assert set(kernel.ok("%astrion why Researcher_1").displays[0]) == {"text/plain"}


def test_roles_are_listed_with_the_files_that_cannot_be_read(kernel: Kernel, server: StrictServer, home: Path) -> None:
    kernel.ok("%astrion roles")
    folder = home / "mutiagents" / "agents"
    (folder / "broken.md").write_text("---\nid: broken\nname: [\n---\nx", encoding="utf-8")
    cell = kernel.ok("%astrion roles")
    assert "researcher" in cell.result
    assert "broken.md" in cell.out
    assert "Traceback" not in cell.out


def test_help_lists_every_command_once(kernel: Kernel, server: StrictServer) -> None:
    lines = kernel.ok("%astrion help").out.split("\n")
    listed = [line.split()[0] for line in lines[1:] if line.startswith("  ")]
    assert listed == list(COMMANDS)
    assert kernel.ok("%astrion --help").out == kernel.ok("%astrion help").out
    assert kernel.run("%astrion help nothing").error.startswith("ConfigError: %astrion: there is no command 'nothing'")


@pytest.mark.parametrize("magic", ["%ask?", "%send?", "%answer?", "%astrion?", "%%team?"])
def test_ipython_s_own_help_works(magic: str, kernel: Kernel, server: StrictServer) -> None:
    cell = kernel.ok(magic)
    payload = cell.reply["payload"][0]["data"]["text/plain"]
    assert "--help" in payload or "TARGET" in payload or "QUESTION_ID" in payload or "help" in payload
    assert server.requests == []


def test_tab_where_nothing_of_ours_fits_leaves_the_line_as_it_is(kernel: Kernel, server: StrictServer) -> None:
    play(server)
    kernel.ok("%%team --wait\nLook around.\n")
    for line, piece in (
        ("%ask impo", "impo"),
        ("%%team --title ", ""),
        ("%astrion nothing i", "i"),
        ("%ask x i", "x i"),
    ):
        reply = kernel.client.complete(line, reply=True, timeout=20)["content"]
        assert reply["matches"] == [piece]
        assert line[reply["cursor_start"] : reply["cursor_end"]] == piece
