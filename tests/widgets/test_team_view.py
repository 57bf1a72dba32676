"""The widget at its comm: what it sends and when, whom it obeys, and that it never harms a team."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import comm
import pytest
from comm.base_comm import BaseComm
from support.pages import pages
from support.stage import GOAL, Stage, play

from astrion_nb.errors import QuestionError
from astrion_nb.notebook.bridge import ThreadLoop
from astrion_nb.widgets import assets, team
from astrion_nb.widgets.team import TeamView

BOUND = 5.0


class Line(BaseComm):
    """The kernel's end of a comm that keeps what it is given."""

    made: list[Line] = []  # noqa: RUF012

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.sent: list[dict[str, Any]] = []
        self.kinds: list[str] = []
        self.broken = False
        Line.made.append(self)
        super().__init__(*arguments, **options)

    def publish_msg(self, msg_type: str, data: Any = None, metadata: Any = None, buffers: Any = None, **_: Any) -> None:
        if self.broken:
            raise LookupError("no kernel here")
        self.kinds.append(msg_type)
        if msg_type == "comm_msg" and data.get("method") == "custom":
            self.sent.append(json.loads(json.dumps(data["content"])))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.sent if message["kind"] == kind]

    def say(self, **content: Any) -> None:
        """Speak as a page does."""
        data = {"method": "custom", "content": {"v": 1, **content}}
        self.handle_msg({"content": {"comm_id": self.comm_id, "data": data}, "buffers": []})


class RoutedLine(Line):
    """As in a kernel that moves replies to the shell that published last."""

    def _reply_subshell_for(self, data: Any, default: Any) -> Any:
        return "the shell that published last"


@pytest.fixture(autouse=True)
def line(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(comm, "create_comm", Line)
    Line.made = []
    yield
    Line.made = []


def line_of(view: TeamView) -> Line:
    return next(line for line in Line.made if line.comm_id == view.model_id)


def on_a_loop(main: Callable[[Stage, TeamView, Line], Any], **options: Any) -> None:
    """Run a test with a stage and a view on one loop."""

    async def bounded() -> None:
        stage = Stage()
        loop = asyncio.get_running_loop()
        view = TeamView(stage, commands=options.get("commands", stage.command), call=loop.call_soon_threadsafe)
        await asyncio.sleep(0)
        try:
            result = main(stage, view, line_of(view))
            if result is not None:
                await asyncio.wait_for(result, BOUND)
        finally:
            view.close()

    asyncio.run(bounded())


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(BOUND):
        while not condition():  # noqa: ASYNC110  (what is waited for happens in several places)
            await asyncio.sleep(0.005)


def test_what_is_saved_of_a_view_never_differs() -> None:
    def main(stage: Stage, view: TeamView, line: Line) -> None:
        assert repr(view) == "TeamView()"
        bundle: Any = view._repr_mimebundle_()
        assert bundle[0]["text/plain"] == "TeamView()"
        assert set(view.get_view_spec()) == {"version_major", "version_minor", "model_id"}

    on_a_loop(main)


def test_the_state_holds_the_page_and_its_language_and_nothing_that_grows() -> None:
    async def main(stage: Stage, view: TeamView, line: Line) -> None:
        before = view.get_state()
        assert {key for key in before if not key.startswith("_")} == {"language", "layout", "tabbable", "tooltip"}
        await play(stage, rate=1e6)
        view.settle()
        line.say(kind="answer", req="r1", question_id="ask_uio_001", text="my secret word")
        await until(lambda: line.of("ack"))
        assert view.get_state() == before
        assert "comm_msg" in line.kinds
        assert "my secret word" not in json.dumps(view.get_state())

    on_a_loop(main)


def test_the_first_thing_sent_is_how_things_stand() -> None:
    def main(stage: Stage, view: TeamView, line: Line) -> None:
        assert [message["kind"] for message in line.sent] == ["snapshot"]
        assert line.kinds[0] == "comm_open"

    on_a_loop(main)


def test_events_of_a_tick_travel_in_one_message() -> None:
    async def main(stage: Stage, view: TeamView, line: Line) -> None:
        stage.start("go")
        for number in range(1, 21):
            stage.create(number, "Worker", number, "task")
            stage.token(number, "text")
        assert len(line.sent) == 1
        begun = time.monotonic()
        await until(lambda: len(line.sent) == 2)
        assert time.monotonic() - begun > 0.5 * team.TICK
        assert line.sent[1]["kind"] == "batch"

    on_a_loop(main)


def test_nothing_is_sent_while_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(team, "TICK", 0.01)
    monkeypatch.setattr(team, "QUIET", 0.03)

    async def main(stage: Stage, view: TeamView, line: Line) -> None:
        stage.warns("careful")
        # A slow machine may have been quiet before the warning too: what counts is the last number.
        await until(lambda: line.of("mark")[-1:] == [{"v": 1, "kind": "mark", "seq": 2}])
        count = len(line.sent)
        await asyncio.sleep(0.1)
        assert len(line.sent) == count

    on_a_loop(main)


def test_a_view_made_in_another_thread_while_events_come_loses_and_doubles_nothing() -> None:
    bridge = ThreadLoop()
    try:
        stage = bridge.look(Stage)
        playing = bridge.submit(play(stage, rate=1e6))
        views = [TeamView(stage, commands=stage.command, call=bridge.call) for _ in range(5)]
        playing.result(BOUND)
        for view in views:
            bridge.look(view.settle)
        lasts = [bridge.look(view._feed.snapshot) for view in views]
        with pages() as browser:
            for view, last in zip(views, lasts, strict=True):
                grown, fresh = browser.show(line_of(view).sent, [last])
                assert grown["asked"] == 0
                assert {**grown, "seq": 0} == {**fresh, "seq": 0}
                assert fresh["team"]["title"] == GOAL["en"]
            view.close()
    finally:
        for view in views:
            view.close()
        bridge.close()


def test_a_comm_that_fails_is_logged_once_and_harms_no_team(caplog: pytest.LogCaptureFixture) -> None:
    async def main(stage: Stage, view: TeamView, line: Line) -> None:
        line.broken = True
        await play(stage, rate=1e6)
        view.settle()
        assert stage.state.agents[1].status == "completed"
        stage.warns("more")
        view.settle()
        assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1
        line.broken = False
        stage.warns("again")
        view.settle()
        line.say(kind="need", req="r9", since=1)
        await until(lambda: len(line.of("snapshot")) == 2)
        with pages() as browser:
            (page,) = browser.show(line.sent)
        assert page["warnings"][-1] == "again"

    on_a_loop(main)


def test_a_feed_that_fails_is_logged_and_harms_no_team(caplog: pytest.LogCaptureFixture) -> None:
    async def main(stage: Stage, view: TeamView, line: Line) -> None:
        def fail() -> Any:
            raise RuntimeError("broken")

        view._feed.take = fail  # type: ignore[method-assign]
        await play(stage, rate=1e6)
        view.settle()
        assert stage.state.agents[1].status == "completed"
        assert "cannot be brought up to date" in caplog.text

    on_a_loop(main)


def test_hello_is_answered_with_a_snapshot_unless_the_page_has_it_all() -> None:
    async def main(stage: Stage, view: TeamView, line: Line) -> None:
        assert not view.answered
        line.say(kind="hello", req="r1", since=None)
        await until(lambda: len(line.of("snapshot")) == 2)
        assert view.answered
        assert stage.commands == [("hello", {"since": None})]
        line.say(kind="hello", req="r2", since=2)
        await until(lambda: len(line.of("ack")) == 2)
        await asyncio.sleep(2 * team.TICK)
        assert len(line.of("snapshot")) == 2

    on_a_loop(main)


def test_many_pages_that_ask_at_once_get_one_snapshot_and_no_command_is_told() -> None:
    async def main(stage: Stage, view: TeamView, line: Line) -> None:
        for number in range(10):
            line.say(kind="need", req=f"r{number}", since=0)
        await until(lambda: len(line.of("snapshot")) > 1)
        await asyncio.sleep(2 * team.TICK)
        assert len(line.of("snapshot")) == 2
        assert stage.commands == []

    on_a_loop(main)


def test_a_command_is_acknowledged_when_it_is_done() -> None:
    gate = asyncio.Event()
    told: list[Any] = []

    async def slowly(kind: str, payload: dict[str, Any]) -> None:
        told.append((kind, payload))
        await gate.wait()

    async def main(stage: Stage, view: TeamView, line: Line) -> None:
        line.say(kind="answer", req="r1", question_id="ask_1", text="yes\nplease")
        await until(lambda: told)
        assert line.of("ack") == []
        gate.set()
        await until(lambda: line.of("ack"))
        assert line.of("ack") == [{"v": 1, "kind": "ack", "req": "r1"}]
        assert told == [("answer", {"question_id": "ask_1", "text": "yes\nplease"})]

    on_a_loop(main, commands=slowly)


def test_a_refusal_comes_back_in_one_line_and_a_fault_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(kind: str, payload: dict[str, Any]) -> None:
        if kind == "stop":
            raise ValueError("a bug")
        raise QuestionError("ask_1 was answered already")

    async def main(stage: Stage, view: TeamView, line: Line) -> None:
        line.say(kind="answer", req="r1", question_id="ask_1", text="late")
        line.say(kind="stop", req="r2")
        await until(lambda: len(line.of("ack")) == 2)
        assert [message["error"] for message in line.of("ack")] == ["ask_1 was answered already", "ValueError: a bug"]
        assert [record.exc_info is not None for record in caplog.records if record.levelname == "ERROR"] == [True]

    on_a_loop(main, commands=refuse)


def test_a_command_that_fails_at_once_or_is_cancelled_is_acknowledged_too() -> None:
    def commands(kind: str, payload: dict[str, Any]) -> Any:
        if kind == "stop":
            raise QuestionError("no")
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        return future

    async def main(stage: Stage, view: TeamView, line: Line) -> None:
        line.say(kind="stop", req="r1")
        line.say(kind="send", req="r2", target="leader", text="on")
        await until(lambda: len(line.of("ack")) == 2)
        assert [message["error"] for message in line.of("ack")] == ["no", "cancelled"]

    on_a_loop(main, commands=commands)


@pytest.mark.parametrize(
    "content",
    [
        {"kind": "novelty"},
        {"kind": "answer", "v": 2, "question_id": "q", "text": "t"},
        {"kind": ["answer"]},
        {"kind": None},
        {},
    ],
)
def test_what_is_unknown_is_ignored_with_a_line_in_the_log(
    content: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def main(stage: Stage, view: TeamView, line: Line) -> None:
        line.say(req="r1", **content)
        await until(lambda: "ignores a message" in caplog.text)
        line.handle_msg({"content": {"data": {"method": "custom", "content": "text"}}, "buffers": []})
        await asyncio.sleep(0.01)
        assert stage.commands == []
        assert line.of("ack") == []

    on_a_loop(main)


@pytest.mark.parametrize(
    ("content", "lacks"),
    [
        ({"kind": "answer", "question_id": "q"}, "text"),
        ({"kind": "answer", "question_id": "", "text": "  "}, "question_id, text"),
        ({"kind": "send", "target": {"a": 1}, "text": "t"}, "target"),
        ({"kind": "send", "target": True, "text": ["t"]}, "target, text"),
    ],
)
def test_a_message_that_lacks_something_is_refused_and_runs_nothing(content: dict[str, Any], lacks: str) -> None:
    async def main(stage: Stage, view: TeamView, line: Line) -> None:
        line.say(req="r1", **content)
        await until(lambda: line.of("ack"))
        assert line.of("ack")[0]["error"] == f"the message lacks {lacks}"
        assert stage.commands == []

    on_a_loop(main)


@pytest.mark.faults
def test_a_storm_of_clicks_from_other_threads_runs_on_the_teams_loop_only() -> None:
    bridge = ThreadLoop()
    try:
        stage = bridge.look(Stage)
        ran: list[tuple[str, str]] = []

        def commands(kind: str, payload: dict[str, Any]) -> None:
            ran.append((threading.current_thread().name, payload["text"]))

        view = TeamView(stage, commands=commands, call=bridge.call)
        line = line_of(view)

        def click(start: int) -> None:
            for number in range(start, start + 50):
                line.say(kind="send", req=f"r{number}", target="leader", text=str(number))

        threads = [threading.Thread(target=click, args=(at,), name=f"subshell-{at}") for at in (0, 50, 100, 150)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(BOUND)
        bridge.look(lambda: None)
        assert {name for name, _ in ran} == {"astrion"}
        assert sorted(int(text) for _, text in ran) == list(range(200))
        assert len(line.of("ack")) == 200
        view.close()
    finally:
        bridge.close()


def test_the_thread_that_hears_a_click_does_nothing_but_hand_it_over() -> None:
    handed: list[Any] = []
    stage = Stage()
    view = TeamView(stage, commands=stage.command, call=lambda *call: handed.append(call))
    handed.clear()
    line_of(view).say(kind="send", req="r1", target="leader", text="hello")
    assert stage.commands == []
    assert len(handed) == 1
    view.close()


def test_a_loop_that_is_gone_makes_clicks_harmless(caplog: pytest.LogCaptureFixture) -> None:
    async def make() -> TeamView:
        stage = Stage()
        view = TeamView(stage, commands=stage.command, call=asyncio.get_running_loop().call_soon_threadsafe)
        await asyncio.sleep(0)
        return view

    view = asyncio.run(make())
    line_of(view).say(kind="stop", req="r1")
    assert "could not be handed over" in caplog.text
    view.close()


def test_clicks_stay_with_the_subshell_that_the_page_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comm, "create_comm", RoutedLine)

    def main(stage: Stage, view: TeamView, line: Line) -> None:
        assert view.comm._reply_subshell_for({"content": {}}, "subshell-1") == "subshell-1"

    on_a_loop(main)


def test_closing_ends_the_comm_the_timers_and_the_watching(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(stage: Stage, view: TeamView, line: Line) -> None:
        stage.warns("one")
        view.close()
        view.close()
        await asyncio.sleep(0)
        assert line.kinds[-1] == "comm_close"
        count = len(line.sent)
        stage.warns("two")
        stage.token(0, "text")
        view.settle()
        await asyncio.sleep(2 * team.TICK)
        assert len(line.sent) == count
        assert (view._unwatch, view._timer, view._resting) == (None, None, None)
        assert not stage.bus.watched

    on_a_loop(main)


def test_a_view_that_was_closed_leaves_nothing_behind() -> None:
    async def main() -> weakref.ref[TeamView]:
        stage = Stage()
        view = TeamView(stage, commands=stage.command, call=asyncio.get_running_loop().call_soon_threadsafe)
        await asyncio.sleep(0)
        await play(stage, rate=1e6)
        view.close()
        await asyncio.sleep(0)
        gone = weakref.ref(view)
        del view
        Line.made.clear()
        gc.collect()
        assert gone() is None
        assert stage.state.agents
        return gone

    assert asyncio.run(main())() is None


def test_closing_before_the_loop_has_begun_sends_nothing() -> None:
    async def main() -> None:
        stage = Stage()
        view = TeamView(stage, commands=stage.command, call=asyncio.get_running_loop().call_soon_threadsafe)
        line = line_of(view)
        view.close()
        await asyncio.sleep(0.01)
        assert line.sent == []
        assert not stage.bus.watched

    asyncio.run(main())


def test_two_views_of_one_team_are_told_the_same() -> None:
    async def main(stage: Stage, view: TeamView, line: Line) -> None:
        other = TeamView(stage, commands=stage.command, call=asyncio.get_running_loop().call_soon_threadsafe)
        await asyncio.sleep(0)
        await play(stage, rate=1e6)
        view.settle()
        other.settle()
        with pages() as browser:
            one, two = browser.show(line.sent, line_of(other).sent)
        assert {**one, "seq": 0} == {**two, "seq": 0}
        other.close()

    on_a_loop(main)


def test_the_module_is_one_file_without_imports_that_node_can_read() -> None:
    import subprocess

    from support.pages import node

    module = assets.module()
    assert "import " not in "".join(line for line in module.splitlines() if line.startswith("import"))
    assert module.count("\nexport ") == 1
    checked = subprocess.run(
        [node(), "--check", "--input-type=module", "-"], input=module, text=True, capture_output=True
    )
    assert checked.returncode == 0, checked.stderr


def test_every_class_name_that_the_page_uses_is_in_the_style_sheet_or_only_marks() -> None:
    import re

    used = set(re.findall(r"anb-[a-z-]+[a-z]", assets.module()))
    styled = set(re.findall(r"\.(anb-[a-z-]+[a-z])", assets.style()))
    assert styled - used <= {
        "anb-turn",
        "anb-breathe",
        "anb-banner",
        "anb-progress",
        "anb-warning",
        "anb-error",
        "anb-center",
        "anb-right",
        "anb-mark-running",
    } | {name for name in styled if name.startswith("anb-mark-")}


def test_the_pages_own_tests_pass() -> None:
    import subprocess

    from support.pages import SCRIPTS, node

    tests = sorted(str(path) for path in SCRIPTS.glob("*.test.mjs"))
    assert len(tests) >= 3
    done = subprocess.run([node(), "--test", *tests], text=True, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
