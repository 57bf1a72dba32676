"""A team in the real JupyterLab: seen, guided, asked, answered, stopped, and read again without a kernel."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.lab import Lab, Notebook
from support.strict_server import Gate, StrictServer, calls, delta, finish, offers, text

pytestmark = pytest.mark.browser

LANE = """([name, part]) => [...document.querySelectorAll('.anb-lane')].some(
    (lane) => lane.querySelector('.anb-name').textContent === name && lane.textContent.includes(part))"""
TEAM = "%%team\nMake a page about tea."


def create(role: str, task: str) -> tuple[str, dict[str, Any]]:
    return ("create_sub_agent", {"agent_id": 1, "role_id": role, "task": task})


def said(request: dict[str, Any]) -> str:
    """Return all that the agent was told, as text."""
    return "\n".join(str(message.get("content") or "") for message in request["messages"])


def turns(request: dict[str, Any]) -> int:
    return sum(message["role"] == "assistant" for message in request["messages"])


class Play:
    """A leader and three agents, held at gates that a test opens."""

    def __init__(self) -> None:
        self.drawing, self.building, self.built = Gate(), Gate(), Gate()
        self.guided: dict[str, Any] | None = None

    def __call__(self, request: dict[str, Any], n: int) -> Any:
        turn = turns(request)
        if offers(request, "create_sub_agent"):
            if turn == 0:
                return [
                    delta(content="I share the work out."),
                    *calls(
                        create("ui-operator", "Draw the page."),
                        create("full-stack-engineer", "Build the page."),
                        create("researcher", "Find facts about tea."),
                    ),
                ]
            return text("The page about tea is **ready**.") if "It is built." in said(request) else text("Under way.")
        told = said(request)
        if "Draw the page." in told:
            if turn == 0:
                return [delta(content="Sketching "), self.drawing, *calls(("list_active_sub_agents", {}))]
            self.guided = request
            return text("A green page is drawn.")
        if "Build the page." in told:
            if turn == 0:
                return [
                    delta(content="First the header. "),
                    self.building,
                    delta(content="Then the footer. "),
                    self.built,
                    delta(content="It is built."),
                    finish("stop"),
                ]
            return text("Nothing more.")
        return text("80 °C for green tea.") if turn else text("Tea comes from one plant.")


@pytest.fixture
def server() -> Iterator[StrictServer]:
    with StrictServer() as running:
        yield running
    assert running.violations == []


def unopened(lab: Lab, server: StrictServer, *cells: str) -> Notebook:
    """Return a notebook of which nothing has run; its first cell loads the extension."""
    return lab.open(
        ["%load_ext astrion_nb", *cells],
        env={
            "OPENAI_BASE_URL": server.url,
            "OPENAI_API_KEY": "sk-test-0123456789abcdef",
            "OPENAI_MODEL": "strict",
            "ASTRION_LANGUAGE": "en",
            "ASTRION_OFFLINE": "1",
        },
    )


def opened(lab: Lab, server: StrictServer, *cells: str) -> Notebook:
    notebook = unopened(lab, server, *cells)
    assert notebook.run(0) == []
    return notebook


def lane(notebook: Notebook, name: str, part: str) -> None:
    notebook.wait_for(LANE, [name, part])


def whole(notebook: Notebook, cell: int) -> str:
    return json.dumps(notebook.outputs(cell), ensure_ascii=False, sort_keys=True)


def test_three_agents_at_work_are_seen_guided_and_asked_while_cells_run(lab: Lab, server: StrictServer) -> None:
    play = server.on_request = Play()
    notebook = opened(
        lab,
        server,
        TEAM,
        '%send "UI Operator_1" Use green, please.',
        "import time\ntime.sleep(5)",
        "r = %ask Researcher_1 how hot should the water be?\nprint(type(r).__mro__[1].__name__, r)",
    )
    notebook.run(1)  # returns while the team works
    lane(notebook, "UI Operator_1", "Sketching")
    lane(notebook, "Full-Stack Engineer_1", "First the header.")
    lane(notebook, "Researcher_1", "Tea comes from one plant.")
    notebook.screenshot("team-at-work-light")

    notebook.run(2)
    play.drawing.release()
    lane(notebook, "UI Operator_1", "A green page is drawn.")
    assert play.guided is not None
    last = [message["content"] for message in play.guided["messages"] if message["role"] == "user"][-1]
    assert last == (
        "来自 Team Leader 的消息\nid: msg_tl_001\n\n"
        "<Team Leader>\n<Message>\nUse green, please.\n</Message>\n</Team Leader>"
    )

    notebook.start(3)  # a cell that computes does not stop the stream
    play.building.release()
    lane(notebook, "Full-Stack Engineer_1", "First the header. Then the footer.")
    assert not notebook.finished(3)
    notebook.finish(3)

    notebook.run(4)
    assert notebook.text(4) == "str 80 °C for green tea.\n"

    notebook.theme("dark")
    notebook.screenshot("team-at-work-dark")
    notebook.theme("light")
    play.built.release()
    notebook.wait_for("() => JSON.stringify(astrion.cells().get(1).toJSON().outputs).includes('is <strong>ready')")
    # The view is gone, the transcript stands in its place; other cells stayed clean.
    assert not notebook.page.locator(".anb-lane").count()
    assert notebook.outputs(3) == []
    notebook.screenshot("team-at-rest-light")
    before = whole(notebook, 1)
    assert "Use green, please." in before
    notebook.reopen()
    assert whole(notebook, 1) == before
    page = notebook.page.locator(".jp-Notebook").inner_text()
    assert "It is built." in page
    assert "model not found" not in page
    notebook.screenshot("team-reopened-light")
    assert notebook.problems == []


def ask_master(request: dict[str, Any], n: int) -> Any:
    """A leader that leaves its agent's question to the person."""
    turn = turns(request)
    if offers(request, "create_sub_agent"):
        if turn == 0:
            return calls(create("ui-operator", "Choose a colour."))
        return text("All done: blue it is.") if "Blue, like the sea." in said(request) else text("I leave that open.")
    if turn == 0:
        return calls(("ask_master", {"question": "Which **colour** do you want?", "question_id": "ask_uio_001"}))
    return text("Painted: Blue, like the sea.")


def test_a_question_left_to_the_person_is_answered_in_the_view_while_the_cell_waits(
    lab: Lab, server: StrictServer
) -> None:
    server.on_request = ask_master
    notebook = opened(lab, server, "%%team --wait\nChoose a colour.")
    notebook.start(1)
    box = notebook.page.locator(".anb-question textarea")
    box.wait_for()
    notebook.page.wait_for_timeout(4500)  # longer than a cell waits for a page: none is asked for a line
    assert not notebook.page.locator(".jp-Stdin").count()
    assert not notebook.finished(1)
    notebook.screenshot("question-light")
    box.fill("Blue, like the sea.")
    box.press("Enter")
    notebook.finish(1)
    assert "All done: blue it is." in whole(notebook, 1)
    assert notebook.error(1) == ""
    before = whole(notebook, 1)
    notebook.reopen()
    assert whole(notebook, 1) == before
    assert "Blue, like the sea." in notebook.page.locator(".jp-Notebook").inner_text()
    assert notebook.problems == []


def test_in_run_all_a_question_is_answered_in_the_view_and_every_cell_runs(lab: Lab, server: StrictServer) -> None:
    server.on_request = ask_master
    notebook = unopened(lab, server, "%%team --wait\nChoose a colour.", "print('after')")
    for cell in range(3):
        notebook.start(cell)
    box = notebook.page.locator(".anb-question textarea")
    box.wait_for()
    notebook.page.wait_for_timeout(4500)
    assert not notebook.page.locator(".jp-Stdin").count()
    box.fill("Blue, like the sea.")
    box.press("Enter")
    notebook.finish(2)
    assert "All done: blue it is." in whole(notebook, 1)
    assert notebook.text(2) == "after\n"
    assert notebook.problems == []


def test_stop_in_the_view_stops_the_team_and_nothing_is_asked_afterwards(lab: Lab, server: StrictServer) -> None:
    play = server.on_request = Play()
    notebook = opened(lab, server, "%%team --no-wait\nMake a page about tea.", "%astrion wait")
    notebook.run(1)
    lane(notebook, "Full-Stack Engineer_1", "First the header.")
    lane(notebook, "UI Operator_1", "Sketching")
    lane(notebook, "Researcher_1", "Tea comes from one plant.")
    notebook.page.locator(".anb-stop").click()
    notebook.run(2)
    asked = len(server.requests)
    for gate in (play.drawing, play.building, play.built):
        gate.release()
    shown = whole(notebook, 2)
    assert "stopped" in shown
    # What was being said when it was stopped stands, marked as no result.
    assert "First the header." in shown
    assert "broke off" in shown
    assert len(server.requests) == asked
    notebook.reopen()
    # Whether the leader had read the report by then is open; in its agent's own part, folded, it stands.
    assert "Tea comes from one plant." in (notebook.page.locator(".jp-Notebook").text_content() or "")
    assert notebook.problems == []


NAMES = {"planner": "规划", "tester": "C++ & <QA>"}
ROLES = """
from astrion_nb import Role, roles
for role_id, name in {names!r}.items():
    roles.save(Role(id=role_id, name=name, description="d", prompt="Work."))
"""


@pytest.mark.faults
def test_names_in_any_script_and_with_markup_are_text_in_the_view_and_are_asked_by_name(
    lab: Lab, server: StrictServer
) -> None:
    gate = Gate()

    def play(request: dict[str, Any], n: int) -> Any:
        if offers(request, "create_sub_agent"):
            made = calls(*(create(role, f"Do the work of {role}.") for role in NAMES))
            return text("Under way.") if turns(request) else made
        if turns(request):
            return text("Heard by name.")
        return [delta(content="At work. "), gate, delta(content="Done."), finish("stop")]

    server.on_request = play
    asks = "\n".join(
        f"print(get_ipython().run_line_magic('ask', '{name}_1 are you there?'))" for name in NAMES.values()
    )
    notebook = opened(lab, server, ROLES.format(names=NAMES), "%%team --no-wait\nWork.", "%astrion wait", asks)
    notebook.run(1)
    notebook.run(2)
    for name in NAMES.values():
        lane(notebook, f"{name}_1", "At work.")
    assert notebook.page.evaluate("() => document.querySelectorAll('.anb qa').length") == 0
    gate.release()
    notebook.run(3)
    assert notebook.page.evaluate("() => document.querySelectorAll('.jp-OutputArea qa').length") == 0
    for name in NAMES.values():
        assert f"{name}_1" in notebook.page.locator(".jp-Notebook").inner_text()
    notebook.run(4)
    assert notebook.text(4) == "Heard by name.\n" * 2
    assert all("name" not in message for request in server.requests for message in request["messages"])
    assert notebook.problems == []


@pytest.mark.faults
def test_sums_of_money_are_text_wherever_they_are_shown(lab: Lab, server: StrictServer) -> None:
    prices = "Plan A costs $5 a month, plan B $6"
    server.on_request = lambda request, n: text(prices + r", \\(x\\)")
    show = "from IPython.display import Markdown\nMarkdown('set: $xyz$')"
    notebook = opened(
        lab,
        server,
        f'%%team --wait --title "{prices}"\n{prices}',
        "%ask leader prices?",
        "%astrion conversations",
        show,
    )
    for cell in (1, 2, 3, 4):
        notebook.run(cell)
    # The page sets formulas in the order of its cells: when the last is set, those before it would be.
    notebook.wait_for("() => document.querySelectorAll('.jp-OutputArea mjx-container').length > 0")
    for cell in (1, 2, 3):
        shown, formulas = notebook.page.evaluate(
            """cell => {
                const area = document.querySelectorAll('.jp-CodeCell')[cell].querySelector('.jp-OutputArea');
                return [area.innerText, area.querySelectorAll('mjx-container').length];
            }""",
            cell,
        )
        assert (prices if cell == 3 else prices + r", \(x\)") in shown
        assert formulas == 0
    assert notebook.problems == []
