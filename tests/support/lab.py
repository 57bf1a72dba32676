"""The real JupyterLab in a real browser, for tests marked ``browser``.

One server and one Chromium a test session, both private: own folders, a free port on this machine,
no token, no news. Every notebook gets a kernel specification, a home and a page of its own::

    def test_a_team_shows_itself(lab):
        notebook = lab.open(["%load_ext astrion_nb", "print('hello')"])
        notebook.run(0)
        notebook.run(1)
        assert notebook.text(1) == "hello\\n"

Outputs are read from the notebook's model, not from the page. Cells count from 0. All waits are bounded.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from . import browser, environment

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

LOAD = 60.0
"""Seconds within which the application, a notebook and its kernel are there, also on a busy machine."""
WAIT = 20.0
"""Seconds that a wait takes at most unless it says otherwise."""

_SETTINGS = {
    "@jupyterlab/apputils-extension/notification.jupyterlab-settings": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/docmanager-extension/plugin.jupyterlab-settings": {"autosave": False},
    "@jupyterlab/completer-extension/manager.jupyterlab-settings": {"autoCompletion": False},
}

# What the pages run: `astrion` finds the notebook that is open.
_SCRIPT = """
window.astrion = {
  runs: [],
  panel() { return window.jupyterapp.shell.currentWidget; },
  cells() { return this.panel().content.model.cells; },
  kernel() { return this.panel().sessionContext.session?.kernel; },
  ready() {
    const panel = window.jupyterapp?.shell?.currentWidget;
    if (!panel?.context?.isReady || !panel.sessionContext?.isReady) return false;
    const kernel = panel.sessionContext.session?.kernel;
    return kernel?.status === "idle" && kernel.connectionStatus === "connected";
  },
  start(index) {
    const notebook = this.panel().content;
    notebook.deselectAll();
    notebook.activeCellIndex = index;
    const run = { done: false, error: null };
    window.jupyterapp.commands.execute("notebook:run-cell").then(
      () => { run.done = true; },
      (error) => { run.done = true; run.error = String(error); },
    );
    return this.runs.push(run) - 1;
  },
};
"""


class Notebook:
    """A notebook that is open in a page of its own.

    Parameters
    ----------
    lab : Lab
    path : Path
        The file.
    page : Page
        Playwright's page, for whatever has no method here.
    """

    def __init__(self, lab: Lab, path: Path, page: Page) -> None:
        self.lab = lab
        self.path = path
        self.page = page
        self.problems: list[str] = []
        """What the page's console and uncaught errors said."""
        self._runs: dict[int, int] = {}
        page.set_default_timeout(WAIT * 1000)
        page.on("pageerror", lambda error: self.problems.append(f"{error.name}: {error.message}"))
        page.on("console", lambda said: self.problems.append(said.text) if said.type == "error" else None)
        page.add_init_script(_SCRIPT)
        self._load()

    def _load(self) -> None:
        self._runs.clear()
        self.page.goto(f"{self.lab.url}/lab/tree/{self.path.name}?reset", timeout=LOAD * 1000)
        self._until_ready()

    def _until_ready(self) -> None:
        self.wait_for("() => astrion.ready()", timeout=LOAD)

    # -- cells --------------------------------------------------------------------------

    def run(self, cell: int, *, timeout: float = WAIT) -> list[dict[str, Any]]:
        """Run a cell, wait until it has ended, and return its outputs."""
        self.start(cell)
        self.finish(cell, timeout=timeout)
        return self.outputs(cell)

    def start(self, cell: int) -> None:
        """Run a cell and do not wait; several are queued by the kernel."""
        self._runs[cell] = self.page.evaluate("cell => astrion.start(cell)", cell)

    def finished(self, cell: int) -> bool:
        """Say whether a cell that was started has ended."""
        return bool(self.page.evaluate("run => astrion.runs[run].done", self._runs[cell]))

    def finish(self, cell: int, *, timeout: float = WAIT) -> None:
        """Wait until a cell that was started has ended, whether well or with an error of the user's."""
        self.wait_for("run => astrion.runs[run].done", self._runs[cell], timeout=timeout)
        error = self.page.evaluate("run => astrion.runs[run].error", self._runs[cell])
        # Lab rejects the command for a cell that raised, which shows in the outputs already.
        if error and not any(output["output_type"] == "error" for output in self.outputs(cell)):
            raise AssertionError(f"cell {cell} did not run: {error}")

    def append(self, source: str) -> int:
        """Add a code cell at the end and return its number."""
        return int(
            self.page.evaluate(
                """source => {
                    const model = astrion.panel().content.model;
                    const index = model.cells.length;
                    model.sharedModel.insertCell(index, { cell_type: "code", source, metadata: { trusted: true } });
                    return index;
                }""",
                source,
            )
        )

    def outputs(self, cell: int) -> list[dict[str, Any]]:
        """Return the outputs of a cell, as the file would hold them."""
        found: list[dict[str, Any]] = self.page.evaluate("cell => astrion.cells().get(cell).toJSON().outputs", cell)
        return found

    def text(self, cell: int) -> str:
        """Return what a cell has printed and displayed as plain text."""
        parts = []
        for output in self.outputs(cell):
            said = output.get("text", output.get("data", {}).get("text/plain", ""))
            parts.append(said if isinstance(said, str) else "".join(said))
        return "".join(parts)

    def error(self, cell: int) -> str:
        """Return name and message of a cell's error, or nothing."""
        return next((f"{o['ename']}: {o['evalue']}" for o in self.outputs(cell) if o["output_type"] == "error"), "")

    # -- waiting and looking ------------------------------------------------------------

    def wait_for(self, predicate: str, argument: Any = None, *, timeout: float = WAIT) -> None:
        """Wait until a JavaScript function returns something true; polled every 50 ms."""
        self.page.wait_for_function(predicate, arg=argument, timeout=timeout * 1000, polling=50)

    def screenshot(self, name: str) -> Path:
        """Save a picture of the page under ``tests/artefacts/`` and return its path."""
        path = environment.artefacts() / f"{name}.png"
        self.wait_for("() => !document.getElementById('jupyterlab-splash')")
        self.page.screenshot(path=path)
        return path

    def theme(self, which: str) -> None:
        """Switch the whole application to ``dark`` or ``light``."""
        title = {"dark": "JupyterLab Dark", "light": "JupyterLab Light"}[which]
        self.page.evaluate(
            "title => void window.jupyterapp.commands.execute('apputils:change-theme', { theme: title })", title
        )
        # Lab says it on the body once the theme's style sheet has come.
        self.wait_for("title => document.body.dataset.jpThemeName === title", title)

    # -- kernel -------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Interrupt the kernel, as the stop button does."""
        self.page.evaluate("() => void astrion.kernel().interrupt()")

    def restart(self) -> None:
        """Restart the kernel and wait until it is there again; outputs stay."""
        self.page.evaluate(
            "() => { window.astrion.restarted = false; "
            "astrion.kernel().restart().then(() => { window.astrion.restarted = true; }); }"
        )
        self.wait_for("() => window.astrion.restarted && astrion.ready()", timeout=LOAD)

    def answer_prompt(self, text: str) -> None:
        """Type an answer into the open ``input()`` of a cell."""
        box = self.page.locator(".jp-Stdin-input")
        box.fill(text)
        box.press("Enter")

    # -- the document -------------------------------------------------------------------

    def save(self) -> dict[str, Any]:
        """Save the notebook and return what the file holds."""
        self.page.evaluate(
            "() => { window.astrion.saved = false; "
            "astrion.panel().context.save().then(() => { window.astrion.saved = true; }); }"
        )
        self.wait_for("() => window.astrion.saved")
        return self.file()

    def file(self) -> dict[str, Any]:
        """Return what the file holds now."""
        content: dict[str, Any] = json.loads(self.path.read_text("utf-8"))
        return content

    def reload(self) -> None:
        """Load the page again, as the browser's button does; the kernel lives on."""
        self._load()

    def reopen(self, *, new_kernel: bool = True, trusted: bool = True) -> None:
        """Save, close, and open the notebook again.

        Parameters
        ----------
        new_kernel : bool
            End the old kernel first.
        trusted : bool
            Whether Jupyter knows the file as run here; if not, it is opened as if it came from elsewhere.
        """
        content = self.save()
        if new_kernel:
            self.page.evaluate(
                "() => { window.astrion.gone = false; "
                "astrion.panel().sessionContext.shutdown().then(() => { window.astrion.gone = true; }); }"
            )
            self.wait_for("() => window.astrion.gone", timeout=LOAD)
        self.page.goto("about:blank")
        if not trusted:
            # The signature covers the content: a change outside the cells is enough to make it unknown.
            content["metadata"]["opened_elsewhere"] = content["metadata"].get("opened_elsewhere", 0) + 1
            self.path.write_text(json.dumps(content), "utf-8")
        self._load()

    def close(self) -> None:
        """End the kernel and close the page."""
        if not self.page.is_closed():
            self.lab.end_kernels(self.path.name)
            self.page.close()


class Lab:
    """A JupyterLab server and a browser.

    Parameters
    ----------
    url : str
        Of the server, without a slash at the end.
    root : Path
        The folder it serves.
    context : BrowserContext
        All pages of the session; they share the browser's storage.
    """

    def __init__(self, url: str, root: Path, data: Path, context: BrowserContext) -> None:
        self.url = url
        self.root = root
        self.context = context
        self._data = data
        self._count = 0
        self._open: list[Notebook] = []

    def open(
        self,
        cells: Sequence[str] | Mapping[str, Any],
        *,
        name: str | None = None,
        python: str | Path = sys.executable,
        env: Mapping[str, str] | None = None,
    ) -> Notebook:
        """Write a notebook, open it in a new page, and wait until its kernel is idle.

        Parameters
        ----------
        cells : sequence of str, or mapping
            Sources of code cells, or a whole notebook (nbformat 4).
        name : str, optional
            Of the file; default a new one.
        python : path
            The kernel's interpreter.
        env : mapping, optional
            Further environment of the kernel. ``ASTRION_HOME`` is a new folder unless named here.
        """
        self._count += 1
        path = self.root / (name or f"test-{self._count}.ipynb")
        kernel = f"test-{self._count}"
        self._write_kernel(kernel, str(python), {"ASTRION_HOME": str(self.root / f"home-{self._count}"), **(env or {})})
        notebook = dict(cells) if isinstance(cells, Mapping) else _notebook(cells)
        notebook["metadata"] = {
            **notebook.get("metadata", {}),
            "kernelspec": {"name": kernel, "display_name": kernel, "language": "python"},
        }
        path.write_text(json.dumps(notebook), "utf-8")
        opened = Notebook(self, path, self.context.new_page())
        self._open.append(opened)
        return opened

    def close_all(self) -> None:
        """Close every notebook that is open, with its kernel."""
        for notebook in self._open:
            notebook.close()
        self._open.clear()

    def end_kernels(self, name: str) -> None:
        """End the kernels of a notebook."""
        for session in ask_server(f"{self.url}/api/sessions"):
            if session["path"] == name:
                request = urllib.request.Request(f"{self.url}/api/sessions/{session['id']}", method="DELETE")
                with urllib.request.urlopen(request, timeout=WAIT):
                    pass

    def _write_kernel(self, name: str, python: str, env: Mapping[str, str]) -> None:
        folder = self._data / "kernels" / name
        folder.mkdir(parents=True)
        (folder / "kernel.json").write_text(
            json.dumps(
                {
                    "argv": [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
                    "display_name": name,
                    "language": "python",
                    "env": dict(env),
                }
            ),
            "utf-8",
        )


def _notebook(sources: Sequence[str]) -> dict[str, Any]:
    cells = [
        {
            "id": f"cell-{number}",
            "cell_type": "code",
            "source": source,
            "metadata": {},
            "outputs": [],
            "execution_count": None,
        }
        for number, source in enumerate(sources)
    ]
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server(folder: Path, **own: Path) -> Iterator[tuple[str, Path, Path]]:
    """Run a JupyterLab server with folders of its own; yields its URL, its root and its data folder.

    Parameters
    ----------
    folder : Path
        Gets everything; kernels' connection files lie in ``runtime``.
    **own : Path
        Environment variables that name other folders, such as ``IPYTHONDIR``.
    """
    root, data, settings = folder / "root", folder / "data", folder / "settings"
    root.mkdir()
    for name, value in _SETTINGS.items():
        file = settings / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value), "utf-8")
    places = {
        "JUPYTERLAB_SETTINGS_DIR": settings,
        "JUPYTERLAB_WORKSPACES_DIR": folder / "workspaces",
        "JUPYTER_CONFIG_DIR": folder / "config",
        "JUPYTER_DATA_DIR": data,
        "JUPYTER_RUNTIME_DIR": folder / "runtime",
        "IPYTHONDIR": folder / "ipython",
        **own,
    }
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}"]
    command += ["--ServerApp.port_retries=0", "--ServerApp.ip=127.0.0.1", f"--ServerApp.root_dir={root}"]
    command += [
        "--IdentityProvider.token=",
        "--ServerApp.disable_check_xsrf=True",
        "--ServerApp.terminals_enabled=False",
    ]
    command += ["--LabApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly"]
    log = folder / "server.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command,
            cwd=root,
            env={**os.environ, **{name: str(place) for name, place in places.items()}},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            try:
                until_up(process, url)
            except AssertionError as error:
                raise AssertionError(f"{error}:\n{log.read_text('utf-8', 'replace')[-3000:]}") from None
            yield url, root, data
        finally:
            _end(process)


def until_up(process: subprocess.Popen[bytes], url: str, authorization: str = "") -> None:
    """Wait until a Jupyter server answers; it prints its address a moment before it does.

    Raises
    ------
    AssertionError
        It ended, or does not answer in time.
    """
    request = urllib.request.Request(f"{url}/api/status", headers={"Authorization": authorization})
    deadline = time.monotonic() + LOAD
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(request, timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"JupyterLab at {url} does not answer; exit status {process.poll()}")


def ask_server(url: str, token: str = "", post: Any = None) -> Any:
    """Ask a Jupyter server something; returns what it answers.

    Parameters
    ----------
    url : str
    token : str
    post : optional
        What to post; without it the answer is just read.
    """
    data = None if post is None else json.dumps(post).encode()
    request = urllib.request.Request(url, data=data, headers={"Authorization": f"token {token}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the server, which ends its kernels; what does not go by itself is killed."""
    process.terminate()
    try:
        process.wait(timeout=15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(timeout=5)


@pytest.fixture(scope="session")
def lab_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    pytest.importorskip("jupyterlab", reason="JupyterLab is not installed: pip install -e '.[lab,test]'")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium: Browser = browser.launch(playwright.chromium)
        with server(tmp_path_factory.mktemp("lab")) as (url, root, data):
            context = chromium.new_context(viewport={"width": 1280, "height": 900})
            yield Lab(url, root, data, context)
            context.close()
        chromium.close()


@pytest.fixture
def lab(lab_session: Lab, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The session's JupyterLab; every notebook that the test opens is closed afterwards.

    When the test fails, a picture of each page is left in ``tests/artefacts/``.
    """
    failed_before = request.session.testsfailed
    yield lab_session
    if request.session.testsfailed > failed_before:
        name = re.sub(r"\W+", "-", request.node.name)
        for number, notebook in enumerate(lab_session._open):
            if not notebook.page.is_closed():
                notebook.screenshot(f"failed-{name}-{number}")
    lab_session.close_all()
