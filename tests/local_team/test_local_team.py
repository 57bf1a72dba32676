"""The embedded model end to end: a real team of a real script on real weights. Structure is asserted, never wisdom."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.local_teams import check_conversation, servers_of
from support.local_weights import smollm2
from support.processes import living, seconds_until_gone

import astrion_nb
from astrion_nb.home import Home
from astrion_nb.store.conversations import ConversationStore

pytestmark = pytest.mark.local_model

PROGRAM = """
import asyncio, json, sys
from astrion_nb import Role, Team

ROLES = [
    Role("poet", "Poet", "Writes verse.", "You write two short lines of verse."),
    Role("critic", "Critic", "Judges verse.", "You say in one sentence whether a verse is good."),
]
TASK = {
    "en": "Let a poet write about the sea and a critic say what makes a good verse.",
    "zh": "让诗人写两行关于大海的诗，让评论家说明什么是好诗。",
}

async def main(language):
    team = Team(roles=ROLES, language=language)
    result = await team.run(TASK[language], timeout=float(sys.argv[2]))
    told = {"status": result.status, "text": result.text, "conversation": result.conversation_id}
    told["agents"] = [[agent.display_name, agent.status, agent.last_text] for agent in result.agents]
    told["models"] = sorted({agent.model_key for agent in result.agents})
    told["first"] = team.request("leader", 1)
    if result.agents:
        told["asked"] = result.agents[0].display_name
        told["answer"] = await team.ask(told["asked"], "What is the sea like?", timeout=120)
        told["rest"] = (await team.wait(timeout=120)).status
    print(json.dumps(told), flush=True)
    await asyncio.sleep(600)  # until it is killed

asyncio.run(main(sys.argv[1]))
"""
TRIES = 3
LIMIT = 180.0
"""Seconds for one run; a quiet machine needs a tenth."""


def configure(home: Path, seed: int) -> Home:
    """Make the small model the default, under a name of its own because a seed is set."""
    place = Home(home)
    place.models_file.parent.mkdir(parents=True, exist_ok=True)
    text = f'default = "small"\n[models.small]\nprovider = "local"\nmodel = "smollm2"\nfast = {{ seed = {seed} }}\n'
    place.models_file.write_text(text, encoding="utf-8")
    return place


@contextmanager
def script(home: Path, language: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "ASTRION_HOME": str(home), "PYTHONPATH": str(Path(astrion_nb.__file__).parents[1])}
    command = [sys.executable, "-c", PROGRAM, language, str(LIMIT)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=environment, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def told_by(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"the script ended with {process.wait()}"
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.mark.parametrize("language", ["en", pytest.param("zh", marks=pytest.mark.slow)])
def test_a_script_runs_a_team_on_the_embedded_model_and_leaves_no_server_when_it_is_killed(
    tmp_path: Path, language: str
) -> None:
    smollm2()
    complaints = []
    for attempt in range(TRIES):
        seed = random.randrange(2**31)
        print(f"attempt {attempt}, seed {seed}")
        home = configure(tmp_path / f"home-{attempt}", seed)
        with script(home.root, language) as process:
            told = told_by(process)
            (server,) = servers_of(process.pid)
            assert living(server)
            os.kill(process.pid, signal.SIGKILL)
            seconds_until_gone(server, 2.0)
        if told["status"] != "completed" or len(told["agents"]) < 2:
            complaints.append(f"seed {seed}: {told['status']}, agents {told['agents']}")
            continue
        system = told["first"]["messages"][0]["content"]
        assert "- create_sub_agent" in system
        assert "- terminate_sub_agent" not in system
        assert told["models"] == ["small"]
        assert all(text for _, _, text in told["agents"])
        assert told["answer"].strip()
        assert told["rest"] == "completed"
        state = ConversationStore(home).open(told["conversation"], read_only=True).state
        (question,) = [question for question in state.questions.values() if question.tool == "human"]
        assert (question.status, question.answer) == ("answered", told["answer"])
        assert len(state.members()) == len(told["agents"])
        check_conversation(state, {"poet", "critic"})
        return
    pytest.fail(f"in {TRIES} attempts no team came about: {'; '.join(complaints)}")


def test_a_script_that_named_no_model_is_told_in_one_line_who_answers_and_why(tmp_path: Path) -> None:
    smollm2()
    program = "import asyncio\nfrom astrion_nb import Team\nasync def main():\n"
    program += "    async with Team() as team:\n        print(*team.warnings, sep='\\n')\nasyncio.run(main())\n"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    env = {**kept, "ASTRION_HOME": str(tmp_path), "ASTRION_LANGUAGE": "en"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "OPENAI_API_KEY is not set" in done.stderr
    assert "a small model that runs on this computer" in done.stderr
