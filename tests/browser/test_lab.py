"""The harness itself: the real JupyterLab in a real browser does what its methods say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import browser, environment
from support.lab import Lab

pytestmark = pytest.mark.browser

COUNTER = '''
import anywidget, traitlets

class Counter(anywidget.AnyWidget):
    _esm = """
    export default {
      render({ model, el }) {
        const button = document.createElement("button");
        button.className = "counter";
        const show = () => { button.textContent = "clicked " + model.get("clicks"); };
        button.onclick = () => model.send({ kind: "click" });
        model.on("change:clicks", show);
        show();
        el.append(button);
      },
    };
    """
    clicks = traitlets.Int(0).tag(sync=True)

    def __init__(self):
        super().__init__()
        self.on_msg(self._heard)

    def _heard(self, _, content, buffers):
        self.clicks += 1

counter = Counter()
display(counter)
'''


def test_a_click_in_the_page_reaches_the_kernel_and_what_it_changes_comes_back(lab: Lab) -> None:
    notebook = lab.open([COUNTER, "counter.clicks"])
    notebook.run(0)
    button = notebook.page.locator("button.counter")
    button.click()
    button.click()
    notebook.wait_for("() => document.querySelector('button.counter').textContent === 'clicked 2'")
    notebook.run(1)
    assert notebook.text(1) == "2"
    assert notebook.problems == []


def test_a_cell_can_be_started_interrupted_and_its_error_read(lab: Lab) -> None:
    notebook = lab.open(["import time\nprint('begun', flush=True)\nwhile True:\n    time.sleep(0.05)", "1 / 0"])
    notebook.start(0)
    notebook.wait_for("() => JSON.stringify(astrion.cells().get(0).toJSON().outputs).includes('begun')")
    assert not notebook.finished(0)
    notebook.interrupt()
    notebook.finish(0)
    assert notebook.error(0).startswith("KeyboardInterrupt")
    notebook.run(1)
    assert notebook.error(1) == "ZeroDivisionError: division by zero"


def test_reload_keeps_the_kernel_and_restart_does_not(lab: Lab) -> None:
    notebook = lab.open(["x = 1", "print('x' in globals())"])
    notebook.run(0)
    notebook.reload()
    notebook.run(1)
    assert notebook.text(1) == "True\n"
    notebook.restart()
    notebook.run(1)
    assert notebook.text(1) == "False\n"


def test_a_notebook_from_elsewhere_is_reopened_untrusted(lab: Lab) -> None:
    notebook = lab.open(["from IPython.display import HTML\nHTML('<b onclick=\"1\">bold</b>')"])
    notebook.run(0)
    shown = ".jp-OutputArea-output b"
    assert notebook.page.locator(shown).get_attribute("onclick") == "1"
    notebook.reopen()
    assert notebook.page.locator(shown).get_attribute("onclick") == "1"
    notebook.reopen(trusted=False)
    assert notebook.page.locator(shown).get_attribute("onclick") is None
    assert notebook.file()["cells"][0]["outputs"][0]["data"]["text/plain"] == ["<IPython.core.display.HTML object>"]


def test_a_prompt_can_be_answered_and_cells_wait_their_turn(lab: Lab) -> None:
    notebook = lab.open(["name = input('who? ')", "print('hello', name)"])
    notebook.start(0)
    notebook.start(1)
    notebook.answer_prompt("朱")
    notebook.finish(1)
    assert notebook.text(1) == "hello 朱\n"


def test_both_themes_can_be_seen(lab: Lab) -> None:
    notebook = lab.open(["print('深色 and 浅色')"])
    notebook.run(0)
    background = "() => getComputedStyle(document.body).getPropertyValue('--jp-layout-color0').trim()"
    notebook.theme("dark")
    dark = notebook.page.evaluate(background)
    assert notebook.screenshot("harness-dark").stat().st_size > 10_000
    notebook.theme("light")
    assert notebook.page.evaluate(background) != dark
    assert notebook.screenshot("harness-light").stat().st_size > 10_000


def test_every_notebook_has_a_home_of_its_own(lab: Lab) -> None:
    show = (
        "import os\nprint(os.environ['ASTRION_HOME'], os.environ['ASTRION_OFFLINE'], os.environ.get('OPENAI_API_KEY'))"
    )
    first, second = lab.open([show]), lab.open([show], env={"OPENAI_API_KEY": "for this one"})
    first.run(0)
    second.run(0)
    (home, offline, key), (other, _, *words) = first.text(0).split(), second.text(0).split()
    assert home != other
    assert (offline, key, words) == ("1", "None", ["for", "this", "one"])


@pytest.mark.parametrize(
    ("settings", "kind", "said"),
    [
        ({"ASTRION_OFFLINE": "1"}, pytest.skip.Exception, "there is no Chromium: install one"),
        ({"ASTRION_OFFLINE": "1", "CI": "true"}, pytest.fail.Exception, "there is no Chromium: install one"),
        ({"ASTRION_CHROMIUM": "/no/such/program"}, pytest.skip.Exception, "'/no/such/program', which is no program"),
    ],
)
def test_without_a_chromium_a_test_is_skipped_with_the_way_on_and_fails_in_ci(
    lab: Lab,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    settings: dict[str, str],
    kind: type[BaseException],
    said: str,
) -> None:
    assert lab.context.browser is not None
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(environment, "OUTER", {"HOME": str(tmp_path), **settings})
    with pytest.raises(kind, match=re.escape(said)):
        browser.chromium(lab.context.browser.browser_type)
    (tmp_path / "chromium").symlink_to("/bin/sh")
    monkeypatch.setattr(environment, "OUTER", {"HOME": str(tmp_path)})
    assert browser.chromium(lab.context.browser.browser_type) == str(tmp_path / "chromium")
