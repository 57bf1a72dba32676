"""An environment that lacks the widget libraries: everything works as text, and one line says what to install."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.casts import play
from support.kernel_env import environment
from support.kernels import BARE, MISSING
from support.live_kernel import Kernel, live_kernel
from support.strict_server import Gate, StrictServer, text

pytestmark = [pytest.mark.faults, pytest.mark.slow]

STATIC = {"text/html", "text/markdown", "text/plain"}


@pytest.fixture
def bare(kernel_python: Callable[[str], Path], server: StrictServer, home: Path, tmp_path: Path) -> Iterator[Kernel]:
    with live_kernel(tmp_path / "kernel", environment(server, home), kernel_python(BARE)) as made:
        yield made


def test_magics_load_and_work_as_text_and_one_line_says_what_to_install(bare: Kernel, server: StrictServer) -> None:
    gone = bare.ok(f"import importlib.util\nprint([importlib.util.find_spec(name) for name in {MISSING}])")
    assert gone.out == "[None, None]\n"
    assert bare.ok("%load_ext astrion_nb", timeout=60).outputs == []
    play(server)
    cell = bare.ok("%%team --wait\nLook around.", timeout=60)
    assert cell.err == "no live view: No module named 'anywidget'; pip install ipywidgets anywidget\n"
    assert [set(data) for data in cell.displays] == [STATIC]
    assert "All is well." in cell.text
    assert bare.ok("%ask Researcher_1 is it done?").result == "Seen."
    gate = Gate()
    play(server, member=[[gate, *text("Seen again.")]])
    running = bare.ok("%%team\nLook again.")
    gate.wait_reached()
    assert (running.err, "Researcher_1" in bare.ok("%astrion").text) == ("", True), "said once"
    bare.ok("%send Researcher_1 hello")
    gate.release()
    bare.ok("%astrion wait")
    bare.until(lambda: "All is well." in running.text, what="the transcript in the team's cell")
    assert bare.ok("%unload_ext astrion_nb").outputs == []
