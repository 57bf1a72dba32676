"""The live view in the real JupyterLab: reloads, several views, keys, clicks while a cell is busy, many agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.lab import Lab, Notebook
from support.stage import GOAL

pytestmark = pytest.mark.browser

TESTS = Path(__file__).parents[1]
MAKE = f"""
import sys; sys.path[:0] = [{str(TESTS)!r}, {str(TESTS.parent)!r}]
import asyncio, threading, time
from support.stage import Stage, crowd, play
from astrion_nb.widgets.team import TeamView
from astrion_nb.notebook.bridge import ThreadLoop
bridge = ThreadLoop()
stage = bridge.look(Stage)
threads = []
def command(kind, payload):
    threads.append(threading.current_thread().name)
    stage.command(kind, payload)
view = TeamView(stage, commands=command, call=bridge.call)
def show():
    display({{"application/vnd.jupyter.widget-view+json": view.get_view_spec()}}, raw=True)
show()
"""
PLAY = "future = bridge.submit(play(stage, rate=400, to_the_end=True))"
BOX = ".anb-question textarea"
ASKED = "() => document.querySelector('.anb-question') !== null"
DONE = "() => document.querySelector('.anb')?.dataset.status === 'completed'"
# Text of each view without what differs by nature: the clock, and what a reader has just been told.
TEXTS = """() => [...document.querySelectorAll('.anb')].map((view) => {
    const copy = view.cloneNode(true);
    for (const part of copy.querySelectorAll('[hidden], .anb-time, .anb-said, .anb-form-note')) part.remove();
    return copy.textContent;
})"""


def opened(lab: Lab, *cells: str) -> Notebook:
    notebook = lab.open([MAKE, *cells])
    notebook.run(0)
    notebook.wait_for("() => document.querySelector('.anb-lane') !== null")
    return notebook


def test_a_reload_and_views_shown_at_any_time_agree(lab: Lab) -> None:
    notebook = opened(lab, PLAY, "show()")
    notebook.run(1)
    notebook.run(2)
    notebook.wait_for(ASKED)
    notebook.page.locator(BOX).first.fill("No phone number.")
    notebook.page.locator(BOX).first.press("Enter")
    notebook.wait_for(DONE)
    agree = f"part => {{ const [one, two] = ({TEXTS})(); return one === two && one.includes(part); }}"
    notebook.wait_for(agree, "No phone number.")
    shown = notebook.page.evaluate(TEXTS)[0]
    assert GOAL["en"] in shown
    notebook.save()
    notebook.reload()
    notebook.wait_for("() => document.querySelectorAll('.anb-lane').length === 8")
    notebook.wait_for(agree, "No phone number.")
    assert notebook.page.evaluate(TEXTS) == [shown, shown]
    assert notebook.problems == []


def test_keys_in_a_box_are_the_boxs_and_a_draft_outlives_streaming(lab: Lab) -> None:
    notebook = opened(lab, PLAY, "stage.commands")
    notebook.run(1)
    notebook.wait_for(ASKED)
    box = notebook.page.locator(BOX)
    box.click()
    box.press_sequentially("first dd ")
    box.press("Shift+Enter")
    box.press_sequentially("second b a")
    assert box.input_value() == "first dd \nsecond b a"
    assert notebook.page.evaluate("() => astrion.cells().length") == 3
    box.press("Enter")
    notebook.wait_for(DONE)
    notebook.run(2)
    assert "'text': 'first dd \\nsecond b a'" in notebook.text(2)


@pytest.mark.faults
def test_a_click_arrives_while_a_cell_sleeps(lab: Lab) -> None:
    notebook = opened(lab, PLAY, "time.sleep(8)\nprint(stage.commands[-1], threads[-1])")
    notebook.run(1)
    notebook.wait_for(ASKED)
    notebook.start(2)
    box = notebook.page.locator(BOX)
    box.fill("Yes.")
    box.press("Enter")
    notebook.wait_for(DONE, timeout=6)
    assert not notebook.finished(2)
    notebook.finish(2)
    assert "'Yes.'" in notebook.text(2)
    assert notebook.text(2).strip().endswith("astrion")


def test_nothing_that_a_model_says_becomes_an_element(lab: Lab) -> None:
    hostile = "<img src=x onerror=window.hit=1><script>window.hit=1</script> [x](javascript:window.hit=1)"
    say = f"""
def speak():
    stage.start({hostile!r})
    stage.create(1, {hostile!r}, 1, {hostile!r})
    stage.token(1, {hostile!r})
    stage.says(0, {hostile!r}, ({hostile!r}, {{{hostile!r}: {hostile!r}}}))
    stage.asks("ask_1", 0, -1, {hostile!r})
    stage.warns({hostile!r})
    stage.status(1, "idle", "failed", {hostile!r})
bridge.look(speak)
"""
    notebook = opened(lab, say)
    notebook.run(1)
    notebook.wait_for(ASKED)
    notebook.wait_for("() => document.querySelector('.anb-error, .anb-notice') !== null")
    found = notebook.page.evaluate(
        "() => [window.hit, document.querySelectorAll('.anb img, .anb script, .anb a').length,"
        " document.querySelector('.anb').textContent.split('onerror').length > 8]"
    )
    assert found == [None, 0, True]


def test_a_crowd_that_streams_leaves_the_page_fluent(lab: Lab) -> None:
    notebook = opened(
        lab,
        "future = bridge.submit(crowd(stage, 50, seconds=8.0))\nbegun = time.process_time(), time.time()",
        "print((time.process_time() - begun[0]) / (time.time() - begun[1]))",
    )
    frames = """() => new Promise((done) => {
        const times = [];
        let last = performance.now();
        const end = last + 5000;
        const frame = (now) => {
            times.push(now - last);
            last = now;
            if (now < end) requestAnimationFrame(frame);
            else done(times.sort((one, other) => one - other)[Math.floor(times.length * 0.95)]);
        };
        requestAnimationFrame(frame);
    })"""
    idle = notebook.page.evaluate(frames)
    notebook.run(1)
    busy: Any = notebook.page.evaluate(frames)
    notebook.run(2)
    print(
        f"95 % of the frames within {busy:.0f} ms, idle {idle:.0f} ms; kernel {float(notebook.text(2)):.0%} of a core"
    )
    assert busy <= max(50.0, 2 * idle)
    assert float(notebook.text(2)) <= 0.2
