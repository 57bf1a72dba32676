"""Calls that wait to be allowed, in the real JupyterLab: seen, reached by keys, settled, and nothing of them markup."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.lab import Lab

pytestmark = pytest.mark.browser

TESTS = Path(__file__).parents[1]
HOSTILE = "<img src=x onerror=window.hit=1><script>window.hit=1</script>"
DIFF = f"""\
--- a/count.py
+++ b/count.py
@@ -1,2 +1,3 @@
 import sys
-print(len(sys.argv))
+text = sys.stdin.read()
+print(len(text.split()))  # {HOSTILE}"""
MAKE = f"""
import sys; sys.path[:0] = [{str(TESTS)!r}, {str(TESTS.parent)!r}]
from support.stage import Stage
from astrion_nb.widgets.team import TeamView
from astrion_nb.notebook.bridge import ThreadLoop
bridge = ThreadLoop()
stage = bridge.look(Stage)
view = TeamView(stage, commands=stage.command, call=bridge.call)
display({{"application/vnd.jupyter.widget-view+json": view.get_view_spec()}}, raw=True)
def act():
    stage.start("Build a small tool that counts words.")
    stage.create(1, "Full-Stack Engineer", 1, "Write the program.")
    stage.create(2, "Researcher", 1, "Run its tests.")
    stage.says(0, "I have shared the work out.")
    diff = {DIFF!r}
    stage.wants("ask_fse_001", 1, "edit_file", {{"path": "count.py", "edits": [{{"old": "a", "new": "b"}}]}}, diff)
    stage.wants("ask_re_001", 2, "run_command", {{"command": "pytest -q; echo {HOSTILE}"}}, "$ pytest -q")
bridge.look(act)
"""
SHOWN = "() => document.querySelectorAll('.anb-approval').length === 2"
LEFT = "(n) => document.querySelectorAll('.anb-approval').length === n"


def test_cards_are_read_reached_by_keys_and_settled_and_nothing_in_them_is_markup(lab: Lab) -> None:
    notebook = lab.open([MAKE, "stage.commands"])
    notebook.run(0)
    notebook.wait_for(SHOWN)
    page = notebook.page
    notebook.screenshot("approval-light")
    notebook.theme("dark")
    notebook.screenshot("approval-dark")
    assert page.evaluate("() => [window.hit, document.querySelectorAll('.anb img, .anb script').length]") == [None, 0]
    first, second = page.locator(".anb-approval").nth(0), page.locator(".anb-approval").nth(1)
    assert "denied in" in first.inner_text()
    first.locator("summary").click()
    assert "path: count.py" in first.inner_text()
    first.get_by_role("button", name="Approve", exact=True).focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.type("Not this way.")
    page.keyboard.press("Enter")
    notebook.wait_for(LEFT, 1)
    second = page.locator(".anb-approval").nth(0)
    second.get_by_role("button", name="Approve", exact=True).focus()
    page.keyboard.press("Enter")
    notebook.wait_for(LEFT, 0)
    notebook.run(1)
    told = notebook.text(1)
    assert "'reason': 'Not this way.'" in told
    assert "'digest': 'digest of ask_re_001'" in told
    assert "'ok': True" in told
    assert notebook.problems == []
