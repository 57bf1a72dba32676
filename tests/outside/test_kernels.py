"""A team in kernels of other versions than the installed one, of other Pythons, and with the lowest dependencies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.kernels import EVERY, INSTALLED, KERNELS, PYTHONS, Reply, kernel
from support.pythons import RUNNING

SCRIPT = """
from astrion_nb.testing import ScriptedModel, call, say

script = ScriptedModel(
    {
        "Team Leader": [
            say("Begun.") + call("create_sub_agent", agent_id=1, role_id="researcher", task="Look it up."),
            say("I wait."),
            say("It is blue."),
            say("The report says so."),
        ],
        "Researcher_1": [say("Blue."), say("I saw it.")],
    }
)
"""
VERSIONS = """
import ipykernel, openai, anywidget, sys
print("python%d.%d" % sys.version_info[:2], ipykernel.__version__, openai.__version__, anywidget.__version__)
"""


@pytest.fixture(params=[pytest.param(name, marks=[] if name == INSTALLED else pytest.mark.slow) for name in EVERY])
def run(
    request: pytest.FixtureRequest, kernel_python: Callable[[str], Path], tmp_path: Path
) -> Iterator[Callable[..., Reply]]:
    (tmp_path / "lesson.py").write_text(SCRIPT, "utf-8")
    env = {"ASTRION_MODEL": "scripted/lesson.py", "ASTRION_LANGUAGE": "en"}
    with kernel(kernel_python(request.param), folder=tmp_path, env=env) as cell:
        yield cell


def test_a_team_works_in_it_and_is_asked_afterwards(run: Callable[..., Reply]) -> None:
    loaded = run("%load_ext astrion_nb", timeout=60)
    assert (loaded.status, loaded.outputs) == ("ok", [])
    worked = run("%%team\nWhich colour is the sky?", timeout=60)
    assert worked.error == ""
    transcripts = [o["data"]["text/plain"] for o in worked.outputs if "text/plain" in o.get("data", {})]
    assert any("It is blue." in text and "Researcher_1" in text for text in transcripts)
    asked = run("answer = %ask Researcher_1 How do you know?\nprint('heard:', answer)")
    assert "heard: I saw it." in asked.text, asked.error
    leader = run("answer = %ask leader Why?\nprint('heard:', answer)")
    assert "heard: The report says so." in leader.text, leader.error
    assert run("%unload_ext astrion_nb").outputs == []


def test_an_error_of_a_magic_is_an_error_of_the_cell(run: Callable[..., Reply]) -> None:
    run("%load_ext astrion_nb", timeout=60)
    assert run("%astrion nosuch").error.startswith("ConfigError: ")


def test_the_kernel_is_the_one_it_is_named_for(request: pytest.FixtureRequest, run: Callable[..., Reply]) -> None:
    name = request.node.callspec.params["run"]
    python, ipykernel, *others = run(VERSIONS).text.split()
    assert python == (name if name in PYTHONS else f"python{RUNNING}")
    wanted = dict(row.split("==") for row in KERNELS.get(name, ()))
    assert ipykernel == wanted.get("ipykernel", ipykernel)
    if name == "lowest":
        assert others == ["3.50.0", "0.9.18"]
