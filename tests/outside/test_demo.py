"""The command ``demo``: a notebook executed without a browser, and one opened in a real JupyterLab."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from support.kernels import run_in
from support.lab import ask_server, until_up
from support.local_weights import smollm2

from astrion_nb.__main__ import main
from astrion_nb.app.quickstart import JUPYTERS, set_up
from astrion_nb.errors import AstrionError, ConfigError, StorageError
from astrion_nb.home import Home, builtin_notebooks
from astrion_nb.notebook.demo import execute
from astrion_nb.store.conversations import ConversationStore


def write(path: Path, *sources: str) -> Path:
    cells = [nbformat.v4.new_code_cell(source, id=f"c{number}") for number, source in enumerate(sources)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


def printed(path: Path, cell: int = 0) -> str:
    outputs = nbformat.read(path, as_version=4).cells[cell].outputs
    return "".join(output.get("text", "") for output in outputs)


def test_a_notebook_is_executed_by_this_python_in_its_own_folder_and_environment(tmp_path: Path) -> None:
    show = "import os, sys\nprint(sys.executable, os.getcwd(), os.environ.get('ASTRION_MODEL'), os.environ.get('SEEN'))"
    notebook = write(tmp_path / "lesson.ipynb", show)
    before = notebook.read_bytes()
    os.environ["SEEN"] = "must not be"
    executed = execute(notebook, {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "ASTRION_MODEL": "local/smollm2"})
    assert executed == tmp_path / "lesson.executed.ipynb"
    assert printed(executed).split() == [sys.executable, str(tmp_path), "local/smollm2", "None"]
    assert notebook.read_bytes() == before


def test_a_widget_is_not_stored_with_its_state(tmp_path: Path) -> None:
    notebook = write(tmp_path / "lesson.ipynb", "import ipywidgets\nipywidgets.IntSlider()")
    assert "widgets" not in nbformat.read(execute(notebook, os.environ), as_version=4).metadata


def test_a_failing_cell_ends_it_with_one_line_and_the_notebook_as_far_as_it_came(tmp_path: Path) -> None:
    fail = "from astrion_nb.errors import NoModelError\nraise NoModelError('no model: set one\\nor another')"
    notebook = write(tmp_path / "lesson.ipynb", "print('first')", fail, "print('never')")
    with pytest.raises(
        AstrionError, match=r"cell 2 of lesson\.ipynb failed: NoModelError: no model: set one "
    ) as caught:
        execute(notebook, os.environ)
    assert "\n" not in str(caught.value)
    executed = tmp_path / "lesson.executed.ipynb"
    assert str(executed) in str(caught.value)
    assert printed(executed, 0) == "first\n"
    assert printed(executed, 2) == ""


@pytest.mark.faults
def test_a_kernel_that_dies_is_said_in_one_line(tmp_path: Path) -> None:
    notebook = write(tmp_path / "lesson.ipynb", "import os\nos._exit(3)")
    with pytest.raises(AstrionError, match=r"cell 1 of lesson\.ipynb failed: the kernel died"):
        execute(notebook, os.environ)


@pytest.mark.faults
def test_an_interrupt_ends_it_in_one_line_and_leaves_no_kernel(tmp_path: Path) -> None:
    notebook = write(
        tmp_path / "lesson.ipynb", "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(60)"
    )
    code = f"""if True:
        import os, sys
        from pathlib import Path
        from astrion_nb.app.cli import Command, main
        from astrion_nb.notebook.demo import execute
        run = lambda _: execute(Path({str(notebook)!r}), os.environ)
        sys.exit(main(["run"], [Command("run", "", lambda _: None, run)]))
    """
    with subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        kernel = until(lambda: (tmp_path / "pid").read_text("utf-8") if (tmp_path / "pid").exists() else "")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130
        assert process.stderr is not None
        assert process.stderr.read().splitlines() == ["cell 1 of 1", "interrupted"]
        until(lambda: not Path(f"/proc/{kernel}").exists())


@pytest.mark.faults
@pytest.mark.parametrize("content", ["", "{}", '{"cells": 1}', "not json"])
def test_what_is_no_notebook_is_said_in_one_line(tmp_path: Path, content: str) -> None:
    notebook = tmp_path / "lesson.ipynb"
    notebook.write_text(content, "utf-8")
    with pytest.raises(StorageError, match=r"lesson\.ipynb cannot be read as a notebook: \S") as caught:
        execute(notebook, os.environ)
    assert "\n" not in str(caught.value)


def test_without_the_weights_and_offline_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ASTRION_CACHE", str(tmp_path / "cache"))
    assert main(["demo", "--headless", "--folder", str(tmp_path / "demo")]) == 1
    said = capsys.readouterr()
    announced, *_, reason = said.err.splitlines()
    assert re.match(r"smollm2 is not here yet: \d+ MB will be downloaded", announced)
    assert reason.startswith("ConfigError: ")
    assert said.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("port", ["0", "65536", "http", "²", "-1"])
def test_a_port_that_is_none_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", f"--port={port}"]) == 2
    assert "is no port; use 1 to 65535" in capsys.readouterr().err


def test_an_unknown_model_is_refused_before_anything_else(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no local model 'gpt-9'"):
        set_up(tmp_path / "demo", "gpt-9")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.local_model
class TestWithTheWeights:
    @pytest.fixture(autouse=True)
    def _weights(self) -> None:
        smollm2()

    def test_the_copy_is_the_shipped_notebook_with_who_answers_and_a_changed_one_is_kept(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        folder = tmp_path / "demo"
        made = set_up(folder)
        assert made.notebook == folder / "quickstart.ipynb"
        ours, shipped = (json.loads((at / "quickstart.ipynb").read_bytes()) for at in (folder, builtin_notebooks()))
        first, *rest = ours["cells"]
        assert rest == shipped["cells"][1:]
        assert first["source"][:3] == shipped["cells"][0]["source"][:3]
        assert "`local/smollm2`, a small model on this computer" in "".join(first["source"])
        assert capsys.readouterr().err == ""
        made.notebook.write_text("mine", "utf-8")
        assert set_up(folder).notebook.read_text("utf-8") == "mine"
        assert "using the copy" in capsys.readouterr().err

    def test_what_the_quickstart_leads_to_is_there_too(self, tmp_path: Path) -> None:
        notebook = set_up(tmp_path / "demo").notebook
        text = notebook.read_text("utf-8")
        links = re.findall(r"\]\(([^)#]+\.ipynb)\)", text)
        assert links
        for link in links:
            assert (notebook.parent / link).is_file()
            assert (notebook.parent / link).with_suffix(".cassette.json").is_file()

    @pytest.mark.parametrize("name", ["ask-and-guide", "human-as-leader"])
    def test_what_it_leads_to_plays_its_recording_whatever_the_model(self, tmp_path: Path, name: str) -> None:
        made = set_up(tmp_path / "demo")
        copy = made.notebook.with_name(f"{name}.ipynb")
        executed = nbformat.read(execute(copy, made.environment), as_version=4)
        shipped = nbformat.read(builtin_notebooks() / copy.name, as_version=4)
        assert f"plays the recording beside it, `{name}.cassette.json`" in executed.cells[0].source

        def shown(cell: Any) -> list[str]:
            return [output.data["text/plain"] for output in cell.get("outputs", ()) if output.get("data")]

        assert [shown(cell) for cell in executed.cells] == [shown(cell) for cell in shipped.cells]

    def test_the_kernels_model_is_the_small_one_and_no_recording_is_played(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ASTRION_MODEL", "openai")
        monkeypatch.setenv("ASTRION_REPLAY", "lesson.cassette.json")
        monkeypatch.setenv("ASTRION_RECORD", "lesson.cassette.json")
        environment = set_up(tmp_path).environment
        assert environment["ASTRION_MODEL"] == "local/smollm2"
        assert not {"ASTRION_REPLAY", "ASTRION_RECORD"} & environment.keys()
        assert environment["ASTRION_HOME"] == os.environ["ASTRION_HOME"]
        monkeypatch.delenv("ASTRION_HOME")
        assert set_up(tmp_path).environment["ASTRION_HOME"] == str(tmp_path / "home")

    @pytest.mark.faults
    def test_a_folder_that_cannot_be_made_is_said(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(StorageError, match=r"the folder .* cannot be created"):
            set_up(tmp_path / "file" / "demo")

    def test_the_quickstart_runs_on_the_small_model_and_its_path_is_the_last_line(self, tmp_path: Path) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "ASTRION_HOME"}
        done = subprocess.run(
            [sys.executable, "-m", "astrion_nb", "demo", "--headless", "--folder", "demo"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=400,
        )
        assert done.returncode == 0, done.stderr
        executed = Path(done.stdout.splitlines()[-1])
        assert executed == tmp_path / "demo" / "quickstart.executed.ipynb"
        cells = [cell for cell in nbformat.read(executed, as_version=4).cells if cell.cell_type == "code"]
        assert all(cell.execution_count for cell in cells)
        store = ConversationStore(Home(tmp_path / "demo" / "home"))
        (entry,) = store.list()
        conversation = store.open(entry.id)
        try:
            assert {message.role for message in conversation.state.leader_state.messages} >= {"user", "assistant"}
        finally:
            conversation.close_now()

    def test_nothing_is_left_in_the_persons_home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in JUPYTERS:
            monkeypatch.delenv(name, raising=False)
        folder, home = tmp_path / "demo", tmp_path / "home"
        home.mkdir()
        quickstart = set_up(folder)
        notebook = write(folder / "look.ipynb", "import IPython\nprint(IPython.paths.get_ipython_dir())")
        for name in JUPYTERS:
            monkeypatch.setenv(name, quickstart.environment[name])
        executed = execute(notebook, {**quickstart.environment, "HOME": str(home)})
        assert printed(executed) == f"{folder / 'jupyter' / 'ipythondir'}\n"
        assert list(home.iterdir()) == []

    def test_jupyterlab_opens_the_copy_with_a_kernel_that_is_set_up(self, tmp_path: Path) -> None:
        private = {f"JUPYTER_{name}_DIR": str(tmp_path / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
        with subprocess.Popen(
            [sys.executable, "-m", "astrion_nb", "demo", "--no-browser", "--folder", str(tmp_path / "demo")],
            env={**os.environ, **private},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as lab:
            try:
                address, path, token = _address(lab)
                assert path == "/lab/tree/quickstart.ipynb"
                until_up(lab, address, f"token {token}")
                content = ask_server(f"{address}/api/contents/quickstart.ipynb", token)
                assert content["format"] == "json"
                session = {
                    "path": "quickstart.ipynb",
                    "type": "notebook",
                    "name": "quickstart",
                    "kernel": {"name": "python3"},
                }
                kernel = ask_server(f"{address}/api/sessions", token, session)["kernel"]
                show = "import os, sys\nprint(sys.executable, os.environ['ASTRION_MODEL'], os.getcwd())"
                said = run_in(tmp_path / "runtime" / f"kernel-{kernel['id']}.json", show)
                assert said.split() == [sys.executable, "local/smollm2", str(tmp_path / "demo")]
            finally:
                lab.send_signal(signal.SIGTERM)
                lab.wait(timeout=20)


def until(look: Callable[[], Any], limit: float = 30.0) -> Any:
    """Return what ``look`` returns as soon as that is true."""
    deadline = time.monotonic() + limit
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {limit} s"
        time.sleep(0.02)
    return found


def _address(lab: subprocess.Popen[bytes]) -> tuple[str, str, str]:
    """Wait for the address that JupyterLab prints; returns server, path and token."""
    assert lab.stderr is not None
    said = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([lab.stderr], [], [], 1)[0]:
            more = os.read(lab.stderr.fileno(), 65536)
            assert more, f"JupyterLab ended:\n{said.decode()}"
            said += more
        if found := re.search(rb"(http://127\.0\.0\.1:\d+)(/\S*)\?token=(\w+)", said):
            server, path, token = (part.decode() for part in found.groups())
            return server, path, token
    raise AssertionError(f"no address after a minute:\n{said.decode()}")
