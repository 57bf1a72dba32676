"""Whole notebooks under nbclient, nbval, nbmake and papermill: the same bytes again, and failures that fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest
from nbconvert import HTMLExporter, MarkdownExporter
from support.casts import play
from support.kernel_env import environment
from support.live_kernel import Cell, live_kernel
from support.notebooks import Executed, Verified, execute, make, verify
from support.shells import AGREEABLE, scripted
from support.strict_server import StrictServer, calls, text

pytestmark = pytest.mark.faults

LESSON = [
    "%load_ext astrion_nb",
    "# NBVAL_CHECK_OUTPUT\nprint('a lesson')",
    "%%team\n# NBVAL_RAISES_NOTHING\nLook around, {braces} and $dollars? Don't <b>shout</b>.",
    "answer = %ask Researcher_1 is it done?\nanswer",
    "%astrion",
    "%astrion agents",
    "%%team --no-wait\nLook again.",
    "%send Researcher_1 hello there?",
    "%astrion wait",
    "%%team --continue\nAnd again.",
    "team",
    ("%ask nobody are you there?", "raises-exception"),
    "%astrion show",
]
FAILING = [
    ("%%team\nFail.", "RunFailed: the run failed: no such model"),
    ("%%team --roles nobody\nx", "RoleError: "),
    ("%%team --modle x\nx", "ConfigError: %%team: there is no flag --modle"),
    ("%%team --model no/such\nx", "ConfigError: --model: there is no model"),
    ("%%team", "ConfigError: %%team: the task is empty"),
    ("%ask nobody hello", "AgentNotFound: "),
    ("%astrion wiat", "ConfigError: %astrion: there is no command 'wiat'"),
    ("%%team --leader human --roles researcher --model {asks}\nFind a sea.", "NobodyToAnswer: "),
    ("%%team --no-wait\nFail.", ""),
    ("import time\nwhile team.running:\n    time.sleep(0.02)", ""),
    ("%astrion agents", "RunFailed: before this cell: RunFailed: the run failed: no such model"),
]
"""Cells, and how each has to fail, if it has to."""
SEA = [
    "%load_ext astrion_nb",
    "%%team --leader human --roles researcher --no-wait\nFind a sea.",
    '%answer sea-1 the "North" Sea?',
    "%astrion wait",
]
FAILS = 'script = ScriptedModel([fail(ModelRefused("no such model"))] * 9, check_on_close=False)'
ASKS = """
script = ScriptedModel({"*": [
    call("ask_master", question="Which sea?", question_id="sea-1"), say("I chose one.")
]}, check_on_close=False)
"""


@pytest.fixture(scope="module")
def lesson(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Executed]]:
    """A notebook with its cassette, executed twice from it in different places."""
    folder = tmp_path_factory.mktemp("lesson")
    key = scripted(folder / "agreeable.py", AGREEABLE)
    path = make(folder / "lesson.ipynb", LESSON)
    cassette = folder / "lesson.cassette.json"
    recorded = execute(path, {"ASTRION_MODEL": key, "ASTRION_HOME": str(folder / "a"), "ASTRION_RECORD": str(cassette)})
    assert recorded.error == ""
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "lesson.ipynb"
    elsewhere.write_bytes(path.read_bytes())
    replays = []
    for number, place in enumerate((elsewhere, path)):
        home = str(place.parent / f"home-{number}")
        replays.append(execute(place, {"ASTRION_REPLAY": str(cassette), "ASTRION_HOME": home}))
        assert replays[-1].error == ""
    return path, replays


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A folder with a notebook of cells that have to fail, others of one each, and the environment they need."""
    folder = tmp_path_factory.mktemp("failing")
    key, asks = scripted(folder / "fails.py", FAILS), scripted(folder / "asks.py", ASKS)
    make(folder / "all.ipynb", ["%load_ext astrion_nb", *(code.format(asks=asks) for code, _ in FAILING)])
    for name, (code, _) in zip(("one", "role", "option"), FAILING, strict=False):
        make(folder / f"{name}.ipynb", ["%load_ext astrion_nb", code])
    return folder, {"ASTRION_MODEL": key, "ASTRION_HOME": str(folder / "home"), "ASTRION_LANGUAGE": "en"}


@pytest.fixture(scope="module")
def sea(lesson: tuple[Path, list[Executed]], shared_server: StrictServer) -> tuple[Executed, Cell]:
    """A notebook whose cassette was recorded with a person who answered, executed where nobody is."""
    folder = lesson[0].parent
    path = make(folder / "sea.ipynb", SEA)
    asks = calls(("ask_master", {"question": "Which {sea}?", "question_id": "sea-1"}))
    play(shared_server, member=[asks, text("The North Sea it is.")])
    cassette = folder / "sea.cassette.json"
    env = {**environment(shared_server, folder / "sea-home"), "ASTRION_RECORD": str(cassette)}
    with live_kernel(folder / "kernel", env) as kernel:
        for cell in SEA[:2]:
            kernel.ok(cell)
        kernel.when("team.questions")()
        live = [kernel.ok(cell) for cell in SEA[2:]]
        kernel.ok("%unload_ext astrion_nb")
    shared_server.on_request = None  # whoever asks from here on is refused
    executed = execute(path, {"ASTRION_REPLAY": str(cassette), "ASTRION_HOME": str(folder / "sea-again")})
    assert shared_server.violations == []
    return executed, live[-1]


@pytest.fixture(scope="module")
def verified(lesson: tuple[Path, list[Executed]], sea: tuple[Executed, Cell]) -> Verified:
    """What nbval says, comparing everything; also of a lesson whose saved outputs were changed."""
    path, _ = lesson
    changed: Any = nbformat.read(path, as_version=4)
    shown = changed.cells[2].outputs[-1]["data"]
    assert "All is well." in shown["text/markdown"]
    shown["text/markdown"] = shown["text/markdown"].replace("All is well.", "All is lost.")
    changed.cells = changed.cells[:4]
    (path.parent / "changed.ipynb").write_text(nbformat.writes(changed), encoding="utf-8")
    (path.parent / "changed.cassette.json").write_bytes(path.with_name("lesson.cassette.json").read_bytes())
    return verify(path.parent, "--nbval", "--nbval-current-env", ".")


def test_a_replayed_notebook_has_the_same_outputs_byte_for_byte(lesson: tuple[Path, list[Executed]]) -> None:
    _, (one, other) = lesson
    for first, second in zip(one.book.cells, other.book.cells, strict=True):
        assert json.dumps(first.outputs) == json.dumps(second.outputs)
    assert "{braces} and $dollars? Don't <b>shout</b>." in one.texts(2)
    assert one.texts(3) == "Seen."
    assert one.texts(7).lstrip().startswith(("msg_", "task_")), "behind the emptied view, where it began a run"
    assert one.outputs(11)[0]["ename"] == "AgentNotFound"


def test_nbval_finds_every_cell_of_it_unchanged(verified: Verified) -> None:
    assert verified.of("lesson") == ["PASSED"] * len(LESSON), verified.output


def test_nbval_finds_a_changed_transcript(verified: Verified) -> None:
    outcomes = verified.of("changed")
    assert outcomes == ["PASSED", "PASSED", "FAILED", "PASSED"], verified.output


def test_the_two_forms_leave_view_place_and_transcript_in_their_cells(lesson: tuple[Path, list[Executed]]) -> None:
    _, (one, _) = lesson
    static = {"text/html", "text/markdown", "text/plain"}
    assert [set(output["data"]) for output in one.outputs(2)] == [set(), static], (
        "the view is emptied, the transcript stays"
    )
    assert [set(output["data"]) for output in one.outputs(6)] == [set()], "a no-wait cell keeps none"
    assert [set(output["data"]) for output in one.outputs(8)] == [static]
    assert [set(output["data"]) for output in one.outputs(9)] == [set(), static]


@pytest.mark.filterwarnings("ignore:Your element with mimetype")  # of an emptied view; it is skipped, as it should
def test_the_notebook_reads_without_kernel_or_widgets_and_says_everything_once(
    lesson: tuple[Path, list[Executed]],
) -> None:
    path, _ = lesson
    book: Any = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    widgets = book.metadata.get("widgets")
    if widgets is not None:
        state = widgets["application/vnd.jupyter.widget-state+json"]
        assert {"state", "version_major", "version_minor"} <= set(state)
    book.metadata.pop("widgets", None)
    well = book.cells[2].outputs[-1]["data"]["text/plain"].count("All is well.")
    book.cells = book.cells[:3]
    html, _ = HTMLExporter().from_notebook_node(book)
    markdown, _ = MarkdownExporter().from_notebook_node(book)
    body = html[html.index("<body") :]
    for exported in (body, markdown):
        assert exported.count("All is well.") == well
        assert exported.count("Error displaying widget") == 0
    assert "<b>shout" not in body


def test_nbval_lax_fails_every_cell_whose_team_fails(failing: tuple[Path, dict[str, str]]) -> None:
    folder, env = failing
    found = verify(folder, "--nbval-lax", "--nbval-current-env", "all.ipynb", env=env)
    expected = ["PASSED", *("FAILED" if error else "PASSED" for _, error in FAILING)]
    assert found.of("all") == expected, found.output


def test_nbmake_fails_a_notebook_whose_team_role_or_option_fails(failing: tuple[Path, dict[str, str]]) -> None:
    folder, env = failing
    found = verify(folder, "--nbmake", "one.ipynb", "role.ipynb", "option.ipynb", env=env)
    assert list(found.outcomes.values()) == ["FAILED"] * 3, found.output


def test_nbclient_gets_one_line_from_every_failing_cell(failing: tuple[Path, dict[str, str]]) -> None:
    folder, env = failing
    executed = execute(folder / "all.ipynb", env, on=True)
    for number, (code, error) in enumerate(FAILING, start=1):
        found = [output for output in executed.outputs(number) if output["output_type"] == "error"]
        assert [f"{output['ename']}: {output['evalue']}"[: len(error)] for output in found] == [error] * bool(error), (
            code
        )
        for output in found:
            assert output["traceback"] == [f"{output['ename']}: {output['evalue']}"]
    shown = [output["output_type"] for output in executed.outputs(1)]
    assert shown == ["display_data", "display_data", "error"], "the transcript comes before the error"


def test_papermill_ends_at_the_failing_cell(
    failing: tuple[Path, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, env = failing
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(papermill.PapermillExecutionError, match="no such model"):
        papermill.execute_notebook(
            folder / "one.ipynb", tmp_path / "out.ipynb", cwd=folder, progress_bar=False, kernel_name="python3"
        )


def test_an_answer_given_by_a_person_is_replayed_where_nobody_is(
    sea: tuple[Executed, Cell], verified: Verified
) -> None:
    executed, live = sea
    assert executed.error == ""
    for said in ('the "North" Sea?', "The North Sea it is."):
        assert said in executed.texts(3)
        assert said in live.text
    assert verified.of("sea") == ["PASSED"] * len(SEA), verified.output
