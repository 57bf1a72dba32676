"""The notebooks that come with the package: what their files hold, and that they replay to just that."""

from __future__ import annotations

import getpass
import json
import re
import runpy
import socket
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat
import pytest
from support import lessons
from support.notebooks import make, verify

from astrion_nb.llm.scripted import ScriptedModel
from astrion_nb.replay.cassette import Cassette

FILES = [path(name) for name in lessons.NAMES for path in (lessons.notebook, lessons.cassette)]
named = pytest.mark.parametrize("name", lessons.NAMES)


def test_there_are_no_others() -> None:
    assert tuple(sorted(path.stem for path in lessons.FOLDER.glob("*.ipynb"))) == lessons.NAMES
    assert sorted(lessons.FOLDER.glob("*.json")) == [lessons.cassette(name) for name in lessons.NAMES]
    assert tuple(sorted(path.stem for path in lessons.FOLDER.glob("scripts/*.py"))) == lessons.NAMES


@named
def test_the_file_is_a_valid_notebook_that_needs_no_widget_and_ignores_nothing(name: str) -> None:
    book = lessons.read(lessons.notebook(name))
    nbformat.validate(book)
    assert book.metadata.kernelspec.name == "python3"
    assert set(book.metadata) == {"kernelspec", "language_info"}
    assert [dict(cell.metadata) for cell in book.cells] == [{}] * len(book.cells)
    assert lessons.code(book)[0].source == "%load_ext astrion_nb"
    text = json.dumps(book)
    assert lessons.VIEW not in text
    assert "NBVAL" not in text
    outputs = [output for cell in lessons.code(book) for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert len(re.findall("Replayed from a recording", text)) >= 1
    assert "scripted model" in book.cells[0].source


@named
def test_no_cell_names_a_model_or_a_cassette(name: str) -> None:
    for cell in lessons.code(lessons.read(lessons.notebook(name))):
        assert not re.search(r"--(?:model|all-models|replay|record)\b|%config|ASTRION_", cell.source)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_of_a_machine_a_person_or_a_moment_is_in_the_file(path: Path) -> None:
    text = path.read_text("utf-8")
    traces = {
        "path": r"(?<![\w.])/(?:home|root|Users|tmp|var|mnt|opt|work|private)/|[A-Z]:\\\\|file://|~/",
        "key": r"\b(?:sk|pk|ghp|hf)[-_]\w{8}|Bearer ",
        "host": r"127\.0\.0\.1|localhost|\bhttps?://",
        "conversation": r"conv_\d{8}",
        "moment": r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d",
        "address": r"0x[0-9a-f]{6,}",
        "display id": r"\b[0-9a-f]{32}\b",
    }
    assert {what: found for what, pattern in traces.items() if (found := re.findall(pattern, text))} == {}
    for own in (socket.gethostname(), getpass.getuser(), str(Path.home())):
        assert not re.search(rf"(?<!\w){re.escape(own)}(?!\w)", text), own


@named
def test_the_cassette_says_what_the_script_says(name: str) -> None:
    script: ScriptedModel = runpy.run_path(str(lessons.FOLDER / "scripts" / f"{name}.py"))["script"]
    written: dict[str, list[Any]] = {}
    for actor, step in script._steps:
        written.setdefault(actor, []).append(step)
    said: dict[str, list[Any]] = {}
    for tape in Cassette.load(lessons.cassette(name)).teams:
        for response in sorted(tape.responses, key=lambda item: item.n):
            said.setdefault(response.actor, []).append(response)
    assert {actor: len(steps) for actor, steps in written.items()} == {
        actor: len(found) for actor, found in said.items()
    }
    for actor, steps in written.items():
        for step, response in zip(steps, said[actor], strict=True):
            if response.finish:  # else the turn was ended before it was said
                assert "".join(chunk.text for chunk in response.stream) == step.text
                assert [(call.name, call.arguments) for call in response.calls] == list(step.calls)


# -- replayed ---------------------------------------------------------------------------


@named
def test_replayed_twice_it_gives_the_saved_file_byte_for_byte_and_its_outputs(name: str, tmp_path: Path) -> None:
    copy = lessons.copy(name, tmp_path)
    lessons.record().replay(copy, lessons.cassette(name))
    assert copy.read_bytes() == lessons.notebook(name).read_bytes()
    saved = lessons.outputs(lessons.read(lessons.notebook(name)))
    assert any(saved)
    executed = lessons.record().execute(copy, {"ASTRION_REPLAY": str(lessons.cassette(name))}, attended=False)
    assert lessons.outputs(executed) == saved


GUARDED = """
import socket
try:
    socket.create_connection(("192.0.2.1", 9), 1)
except OSError as error:
    assert "tests have no network" in str(error), error
else:
    raise AssertionError("a kernel reached the network")
"""


def test_nbval_passes_every_cell_in_full_without_a_network_and_in_another_language_and_zone(tmp_path: Path) -> None:
    for name in lessons.NAMES:
        lessons.copy(name, tmp_path)
    block = tmp_path / "block"
    block.mkdir()
    tests = Path(__file__).parents[1]
    (block / "sitecustomize.py").write_text(
        f"import sys\nsys.path.insert(0, {str(tests)!r})\nfrom support.environment import refuse_network\n"
        "refuse_network()\nsys.path.pop(0)\n"
    )
    make(tmp_path / "guard.ipynb", [GUARDED])
    env = {"PYTHONPATH": str(block), "LC_ALL": "zh_CN.UTF-8", "LANG": "zh_CN.UTF-8", "TZ": "Asia/Shanghai"}
    verified = verify(tmp_path, "--nbval", env={**env, "ASTRION_LANGUAGE": "zh"})
    assert lessons.outcomes(verified.output, "guard") == ["PASSED"], verified.output
    for name in lessons.NAMES:
        cells = len(lessons.code(lessons.read(lessons.notebook(name))))
        assert lessons.outcomes(verified.output, name) == ["PASSED"] * cells, verified.output


def test_nbval_passes_where_there_are_no_widgets(tmp_path: Path) -> None:
    lessons.copy("quickstart", tmp_path)
    block = tmp_path / "block"
    block.mkdir()
    for module in ("anywidget", "ipywidgets"):
        (block / f"{module}.py").write_text("raise ImportError('not installed')\n")
    verified = verify(tmp_path, "--nbval", env={"PYTHONPATH": str(block)})
    assert set(lessons.outcomes(verified.output, "quickstart")) == {"PASSED"}, verified.output


@pytest.mark.faults
def test_a_changed_text_fails_loudly_and_says_what_differs(tmp_path: Path) -> None:
    changes = {
        "quickstart": ("four study rooms", "five study rooms", "Team Leader, request 1"),
        "ask-and-guide": ("the museum's own numbers", "invented numbers", "Researcher_1, request 2"),
        "human-as-leader": ("Whoever paid", "Everybody who", "Code Reviewer_1, request 2"),
    }
    for name, (before, after, _) in changes.items():
        lessons.changed(lessons.copy(name, tmp_path), before, after)
    said = verify(tmp_path, "--nbval").output
    for name, (_, _, where) in changes.items():
        assert lessons.outcomes(said, name)[0] == "PASSED"
        assert "FAILED" in lessons.outcomes(said, name)
        line = rf"ReplayMiss: {name}\.cassette\.json: {where} is not the recorded one: message \d+ differs .*"
        missed = re.search(line, said)
        assert missed, said[-3000:]
        assert missed.group().endswith("record again with --record")


@pytest.mark.faults
def test_without_its_cassette_it_fails_and_names_the_ways_to_a_model(tmp_path: Path) -> None:
    lessons.copy("quickstart", tmp_path)
    (tmp_path / "quickstart.cassette.json").unlink()
    verified = verify(tmp_path, "--nbval-lax", env={"ASTRION_CACHE": str(tmp_path / "no-weights")})
    assert lessons.outcomes(verified.output, "quickstart")[:2] == ["PASSED", "FAILED"]
    assert "NoModelError: " in verified.output


# -- other models and other readers -----------------------------------------------------

ALONE = """
from astrion_nb.testing import ScriptedModel, say
script = ScriptedModel({"Team Leader": [say("I did it alone."), say("Of the opening hours.")]})
"""
ONE = """
from astrion_nb.testing import ScriptedModel, call, say
script = ScriptedModel({
    "Team Leader": [
        call("create_sub_agent", agent_id=1, role_id="researcher", task="Everything."), say("It works."), say("Done."),
    ],
    "Researcher_1": [say("All of it."), say("Of the opening hours.")],
})
"""


@pytest.mark.parametrize(("script", "agents"), [(ALONE, 0), (ONE, 1)], ids=["nobody", "one agent"])
def test_the_quickstart_runs_on_a_leader_that_creates_fewer_agents(tmp_path: Path, script: str, agents: int) -> None:
    copy = lessons.copy("quickstart", tmp_path)
    (tmp_path / "model.py").write_text(script)
    executed = lessons.record().execute(copy, {"ASTRION_MODEL": "scripted/model.py"}, attended=False)
    shown = lessons.outputs(executed)
    assert shown[-2][0]["data"]["text/plain"] == "Of the opening hours."
    assert len(shown[-1][0]["data"]["text/plain"].splitlines()) == 2 + agents


class _Text(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.found.append(data)


@named
def test_a_page_made_of_it_shows_every_message(name: str, recwarn: pytest.WarningsRecorder) -> None:
    from nbconvert import HTMLExporter

    book = lessons.read(lessons.notebook(name))
    for cell in lessons.code(book):
        cell.source = ""  # what a cell says itself is no message
    page, _ = HTMLExporter(template_name="basic").from_notebook_node(book)
    shown = lessons.words(" ".join(_Text(page).found))
    for tape in Cassette.load(lessons.cassette(name)).teams:
        for response in tape.responses:
            text = "".join(chunk.text for chunk in response.stream)
            told = [str(value) for call in response.calls for value in json.loads(call.arguments).values()]
            for line in lessons.lines("\n".join([text, *told])):
                assert line in shown, (response.actor, response.n, line)
    assert [str(item.message) for item in recwarn] == []


# -- recorded ---------------------------------------------------------------------------


@pytest.mark.slow
@named
def test_recording_again_changes_not_one_byte(name: str, tmp_path: Path) -> None:
    copy = lessons.copy(name, tmp_path)
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / f"{name}.py").write_bytes((lessons.FOLDER / "scripts" / f"{name}.py").read_bytes())
    cassette = tmp_path / f"{name}.cassette.json"
    cassette.unlink()
    lessons.record().record(copy, cassette)
    assert cassette.read_bytes() == lessons.cassette(name).read_bytes()


def test_a_script_that_was_not_followed_to_its_end_is_no_recording() -> None:
    from astrion_nb.errors import ReplayError
    from astrion_nb.testing import say

    recording = Cassette.load(lessons.cassette("quickstart"))
    with pytest.raises(ReplayError, match=r"x\.py: .* steps are written, .* were asked for"):
        lessons.record().check(recording, ScriptedModel({"Team Leader": [say("once")]}, check_on_close=False), "x.py")
