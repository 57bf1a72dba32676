"""Kernels that start differently, end, are killed, and come back: what a team survives."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.casts import create, play, said, well
from support.kernel_env import KEY, environment
from support.live_kernel import Kernel, live_kernel
from support.strict_server import Gate, Reply, StrictServer, calls, status, text

from astrion_nb.home import Home
from astrion_nb.state import TeamState
from astrion_nb.store.conversations import ConversationStore

pytestmark = pytest.mark.faults

ENVELOPE = re.compile(r"^id: ((?:task|msg|ask|out)_\S+)$", re.MULTILINE)


@contextmanager
def loaded(server: StrictServer, home: Path, **env: str) -> Iterator[Kernel]:
    """A kernel of its own, with the extension loaded."""
    home.mkdir(exist_ok=True)
    with live_kernel(home.parent / f"at-{home.name}", {**environment(server, home), **env}) as kernel:
        kernel.ok("%load_ext astrion_nb")
        yield kernel


def stored(home: Path, conversation: str) -> TeamState:
    """Return what is on disk, read as the next kernel would."""

    async def read() -> TeamState:
        opened = ConversationStore(Home(home)).open(conversation)
        state = opened.state
        await opened.close()
        return state

    return asyncio.run(read())


# ---- ends


def test_a_kernel_ends_quickly_while_a_team_works_and_another_goes_on_where_it_was(
    server: StrictServer, tmp_path: Path
) -> None:
    gate = Gate()
    cast = play(server, member=[[*text("Half a wo"), gate], text("Seen.")])
    home = tmp_path / "home"
    with loaded(server, home) as first:
        first.ok("%%team --title Survey\nLook around.")
        conversation = first.ok("print(team.conversation_id)").out.strip()
        gate.wait_reached()
        first.ok("%send leader I am leaving.")
        seconds = first.shutdown()
        assert seconds < 4
        assert "Traceback" not in first.log
        assert "Exception" not in first.log
    gate.release()
    with loaded(server, home) as second:
        told = second.ok(f"%astrion resume {conversation}")
        assert told.out.startswith("Survey: 1 agent, ")
        assert "Researcher_1 was interrupted; a message lets it go on" in told.out
        assert second.ok("print(team.running, [a.detail for a in team.agents])").out == "False ['interrupted']\n"
        second.ok("%send Researcher_1 Go on, please.")
        second.ok("%astrion wait")
        transcript = second.ok("%astrion show").text
    assert transcript.count("I am leaving.") == 1
    assert "Seen." in transcript
    assert "Look around." in said(cast.member_requests[-1])
    assert "Go on, please." in said(cast.member_requests[-1])
    leader = [message["content"] for message in cast.leader_requests[-1]["messages"]]
    assert sum("I am leaving." in (content or "") for content in leader) == 1


def test_an_agent_that_waited_for_the_person_is_answered_in_the_next_kernel(
    server: StrictServer, tmp_path: Path
) -> None:
    asks = calls(("ask_master", {"question": "Which sea?", "question_id": "sea-1"}))
    cast = play(server, member=[asks, text("The North Sea it is.")])
    home = tmp_path / "home"
    with loaded(server, home) as first:
        first.ok("%%team --leader human --roles researcher\nFind a sea.")
        first.when("team.questions")()
        conversation = first.ok("print(team.conversation_id)").out.strip()
        first.kill()
    with loaded(server, home) as second:
        told = second.ok(f"%astrion resume {conversation}")
        assert "Researcher_1 waits for You: Which sea? (%answer sea-1 …)" in told.out
        cells = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in told.out.split("\n")]
        assert ["agent", "status", "waits for", "queued messages", "calls cut off"] in cells
        assert ["Researcher_1", "waiting", "You"] in cells
        second.ok("%answer sea-1 the North Sea")
        second.ok("%astrion wait")
    assert len(cast.member_requests) == 2
    assert "the North Sea" in said(cast.member_requests[1])


def test_a_conversation_open_in_another_kernel_is_refused_with_its_owner(server: StrictServer, tmp_path: Path) -> None:
    play(server)
    home = tmp_path / "home"
    with loaded(server, home) as first, live_kernel(tmp_path / "other", environment(server, home)) as second:
        first.ok("%%team --wait\nLook around.")
        conversation = first.ok("print(team.conversation_id)").out.strip()
        second.ok("%load_ext astrion_nb")
        for code in (f"%astrion resume {conversation}", f"%%team --continue {conversation}\nGo on."):
            refused = second.run(code)
            assert refused.error == (
                f"ConversationLocked: {conversation} is open in process {first.pid} on {_host()}: "
                "close it there first, or resume it with --read-only or --take-over (Team: read_only, take_over)"
            )
            assert len(refused.traceback) == 1
        told = second.ok(f"%astrion resume {conversation} --read-only")
        assert "open for reading only" in told.out
        assert "Look around." in second.ok("%astrion show").text
        assert second.run("%send leader Hello.").error.startswith(f"TeamError: {conversation} is open for reading only")
        first.ok("%%team --wait\nAnother.")
        second.ok(f"%astrion resume {conversation}")
        assert second.ok("%ask Researcher_1 there?").result == "Seen."


def test_a_kernel_whose_conversation_is_taken_over_is_told_and_saves_nothing_more(
    server: StrictServer, tmp_path: Path
) -> None:
    play(server)
    home = tmp_path / "home"
    with loaded(server, home) as first, live_kernel(tmp_path / "other", environment(server, home)) as second:
        first.ok("%%team --wait\nLook around.")
        conversation = first.ok("print(team.conversation_id)").out.strip()
        second.ok("%load_ext astrion_nb")
        assert second.run(f"%astrion resume --read-only --take-over {conversation}").error.startswith("ConfigError: ")
        second.ok(f"%astrion resume {conversation} --take-over")
        refused = first.run("%send leader Are you there?")
        assert refused.error.startswith(f"StorageError: {conversation} was taken over by process {second.pid} on ")
        assert len(refused.traceback) == 1
        assert second.ok("%ask Researcher_1 there?").result == "Seen."
        assert "Are you there?" not in second.ok("%astrion show").text


def _host() -> str:
    import socket

    return socket.gethostname()


# ---- kills


def delivered(requests: list[dict[str, Any]]) -> set[str]:
    """Return the ids of all envelopes that models have been shown as user messages."""
    found: set[str] = set()
    for request in requests:
        for message in request["messages"]:
            if message["role"] == "user":
                found |= set(ENVELOPE.findall(message["content"]))
    return found


def killed(server: StrictServer, home: Path, kernel: Kernel, dice: random.Random) -> tuple[int, int]:
    """Kill a kernel at a random moment of a busy team, and compare what it had done with what is on disk.

    Returns how many envelopes models had been shown, and how many sends had been reported as done.
    """
    for seen in (server.requests, server.bodies, server.headers):
        seen.clear()
    look = calls(("list_active_sub_agents", {}), say="Looking.")
    cast = play(
        server,
        leader=[calls(create(1), create(2)), *[calls(("get_sub_agent_status", {"agent_id": 1}))] * 500, well],
        member=[*[look] * 1000],
    )
    kernel.ok("%%team --no-wait\nLook around.")
    conversation = kernel.ok("print(team.conversation_id)").out.strip()
    sending = kernel.send(
        "for n in range(1000):\n    print(await team.send(f'Researcher_{1 + n % 2}', f'hint {n}.'), flush=True)"
    )
    wanted = dice.randrange(3, 60)
    server.wait_for(lambda: len(server.requests) >= wanted, 20)
    kernel.listen(dice.random() * 0.05)
    kernel.kill()
    kernel.listen(0.3)
    promised = set(sending.out.split("\n")[:-1])
    server.wait_for(lambda: server.in_flight == 0)
    state = stored(home, conversation)
    members = [state.agents[number] for number in state.agents if number]
    in_history = [m.metadata["envelope_id"] for a in members for m in a.messages if "envelope_id" in m.metadata]
    assert len(in_history) == len(set(in_history)), "each envelope once"
    shown = delivered(cast.member_requests)
    assert shown <= set(in_history), f"shown to a model and lost: {sorted(shown - set(in_history))}"
    waiting = {item.id for agent in members for item in agent.pending}
    assert promised <= set(in_history) | waiting, f"promised and lost: {sorted(promised - set(in_history) - waiting)}"
    assert not waiting & set(in_history), "no envelope both read and waiting"
    led = [m.metadata["envelope_id"] for m in state.agents[0].messages if "envelope_id" in m.metadata]
    assert len(led) == len(set(led))
    assert delivered(cast.leader_requests) <= set(led)
    for agent in state.agents.values():
        made = [call.id for message in agent.messages for call in message.tool_calls]
        answered = [message.tool_call_id for message in agent.messages if message.role == "tool"]
        assert sorted(made) == sorted(answered), "every call has its result"
    return len(shown), len(promised)


def resumed(server: StrictServer, home: Path, kernel: Kernel) -> None:
    """Open the newest conversation in another kernel and let it come to its end."""
    conversation = max((home / "mutiagents" / "conversations").glob("conv_*")).name
    play(server, leader=[text("Here again.")])
    kernel.ok(f"%astrion resume {conversation}")
    assert kernel.ok("%ask leader still there?").result == "Here again."
    kernel.ok("%astrion wait")


def test_a_killed_kernel_loses_nothing_that_was_delivered_and_another_one_goes_on(
    server: StrictServer, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    with loaded(server, home) as first:
        killed(server, home, first, random.Random(1))
    with loaded(server, home) as second:
        resumed(server, home, second)


@pytest.mark.slow
def test_twenty_kills_at_random_moments_lose_nothing(server: StrictServer, tmp_path: Path) -> None:
    dice, home = random.Random(20), tmp_path / "home"
    shown = promised = 0
    for number in range(20):
        with loaded(server, home) as kernel:
            if number:
                resumed(server, home, kernel)
            counts = killed(server, home, kernel, dice)
            shown, promised = shown + counts[0], promised + counts[1]
    assert shown > 100
    assert promised > 100
    with loaded(server, home) as last:
        resumed(server, home, last)


# ---- starts


def test_agents_on_the_kernel_s_loop_answer_a_waiting_cell_and_nesting_comes_only_then(
    server: StrictServer, tmp_path: Path
) -> None:
    cast = play(server)
    nested = "import sys\nprint('nest_asyncio' in sys.modules, 'nest_asyncio2' in sys.modules)"
    patched = "import asyncio\nprint(hasattr(asyncio, '_nest_patched') or hasattr(asyncio, '_nest_asyncio2'))"
    with loaded(server, tmp_path / "home") as kernel:
        kernel.ok("%%team --wait\nLook around.")
        assert kernel.ok(nested).out.split()[0] == "False"
        assert kernel.ok(patched).out == "False\n"
        kernel.ok("%config AstrionMagics.loop = 'kernel'")
        play(server)
        cells = kernel.queue(
            "import threading",
            "%%team --wait\nLook around.",
            "answer = %ask Researcher_1 is it done?\nanswer",
            "print('after')",
        )
        assert [cell.error for cell in cells] == [""] * 4
        assert [cell.err for cell in cells] == [""] * 4
        assert cells[2].result == "'Seen.'" or cells[2].result == "Seen."
        assert cells[3].out == "after\n"
        assert "All is well." in cells[1].text
        assert kernel.ok(nested).out == "False True\n"
        assert kernel.ok(patched).out == "True\n"
        assert kernel.ok("print([t.name for t in threading.enumerate() if t.name == 'astrion'])").out == "[]\n"
        play(server)
        silent = kernel.queue("%%team --no-wait\nLook around.", "1 + 1", "%astrion wait")
        assert [cell.error for cell in silent] == [""] * 3
        assert "All is well." in silent[2].text
        gate = Gate()
        play(server, leader=[Reply([gate, *text("Done.")])])
        waiting = kernel.send("%%team --wait\nLook again.")
        gate.wait_reached()
        kernel.interrupt()
        kernel.finish(waiting)
        assert waiting.status == "error"
        gate.release()
        play(server, leader=[text("Going on.")])
        kernel.ok("%%team --continue --wait\nGo on.")
        kernel.ok("%config AstrionMagics.loop = 'thread'")
        play(server)
        assert "All is well." in kernel.ok("%%team --wait\nLook around.").text
    assert cast.member_requests


def test_ipython_s_configuration_file_speaks_where_nothing_nearer_does(server: StrictServer, tmp_path: Path) -> None:
    profile = tmp_path / "ipython" / "profile_default"
    profile.mkdir(parents=True)
    (profile / "ipython_config.py").write_text(
        "c.AstrionMagics.model = 'nowhere/by-file'\nc.AstrionMagics.wait = True\nc.AstrionMagics.variable = 'crew'\n"
    )
    play(server)
    with loaded(server, tmp_path / "home", IPYTHONDIR=str(profile.parent)) as kernel:
        refused = kernel.run("%%team\nLook around.")
        assert refused.error.startswith("ConfigError: c.AstrionMagics.model: there is no model 'nowhere/by-file'")
        kernel.ok("import os\nos.environ['ASTRION_MODEL'] = 'nowhere/by-environment'")
        assert kernel.run("%%team\nx").error.startswith("ConfigError: ASTRION_MODEL: there is no model")
        kernel.ok("%config AstrionMagics.model = 'nowhere/by-session'")
        assert kernel.run("%%team\nx").error.startswith("ConfigError: %config AstrionMagics.model: there is no model")
        assert kernel.run("%%team --model nowhere/by-flag\nx").error.startswith(
            "ConfigError: --model: there is no model"
        )
        assert "All is well." in kernel.ok("%%team --model openai\nLook around.").text, "it waits, as the file says"
        assert kernel.ok("print(crew.running)").out == "False\n"


def test_without_the_widget_libraries_everything_works_as_text(server: StrictServer, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    missing.mkdir()
    for name in ("anywidget", "ipywidgets"):
        (missing / f"{name}.py").write_text(f"raise ImportError(\"No module named '{name}'\")")
    play(server)
    with loaded(server, tmp_path / "home", PYTHONPATH=str(missing)) as kernel:
        cell = kernel.ok("%%team --wait\nLook around.")
        assert [set(data) for data in cell.displays] == [{"text/html", "text/markdown", "text/plain"}]
        assert cell.err == "no live view: No module named 'anywidget'; pip install ipywidgets anywidget\n"
        assert kernel.ok("%ask Researcher_1 is it done?").result == "Seen."
        assert kernel.ok("%%team --wait\nAgain.").err == "", "said once"
        assert kernel.ok("%%team\nAgain.", stdin=False).err == ""


# ---- secrets


def test_no_key_reaches_an_output_a_file_or_a_cassette(server: StrictServer, tmp_path: Path) -> None:
    password = "canary-password-0123456789"
    echo = {"error": {"message": f"Incorrect API key provided: {KEY} ({password})", "code": "invalid_api_key"}}
    asks = calls(("ask_master", {"question": "Which key?", "question_id": "key-1"}))
    home, cassette = tmp_path / "home", tmp_path / "run.cassette.json"
    url = server.url.replace("http://", f"http://someone:{password}@")
    with loaded(server, home, OPENAI_BASE_URL=url) as kernel:
        play(
            server,
            leader=[calls(create(1), create(2)), text("Started."), text("All is well.")],
            member=[status(401, echo), text("Seen.")],
        )
        cells = [kernel.run(f"%%team --wait --record {cassette}\nLook around.")]
        play(server, leader=[status(401, echo)])
        cells.append(kernel.run("%%team --wait\nLook around."))
        play(server, member=[asks, text("Thanks.")])
        kernel.ok("%%team --leader human --roles researcher --no-wait\nx")
        kernel.when("team.questions")()
        cells += [kernel.run(f"%answer key-1 it is {KEY[:6]}…")]
        cells += [
            kernel.run(f"%astrion {command}")
            for command in ("wait", "show", "models", "agents", "why Researcher_1", "")
        ]
        cells.append(kernel.run("team"))
        kernel.ok(f"import os\nos.environ['OPENAI_BASE_URL'] = 'http://someone:{password}@127.0.0.1:9/v1'")
        cells.append(kernel.run("%%team --wait\nNobody listens there."))
        assert cells[-1].error.startswith("RunFailed: ")
        kernel.ok("%unload_ext astrion_nb")
        log = kernel.log
    assert server.headers[0]["authorization"] == f"Bearer {KEY}", "the key went where it belongs"
    outputs = json.dumps([message["content"] for cell in cells for message in cell.messages])
    texts = {"outputs": outputs, "log": log}
    for path in [cassette, *home.rglob("*")]:
        if path.is_file():
            texts[str(path)] = path.read_text("utf-8", "replace")
    assert len(texts) > 10
    assert [where for where, content in texts.items() if KEY in content or password in content] == []
    assert "Incorrect API key provided: [hidden] ([hidden])" in outputs
