"""An IPython shell in this process, with the magics loaded; for what needs no kernel.

Cells raise what they raise: ``run`` returns the value of the last expression, an error comes as it is.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config


class Shell:
    """A shell that can be run cell by cell.

    Parameters
    ----------
    config : dict, optional
        What a configuration file would say, by class.
    """

    def __init__(self, config: dict[str, dict[str, Any]] | None = None) -> None:
        said = Config({"HistoryManager": {"enabled": False}, **(config or {})})
        self.ip = InteractiveShell(config=said)
        atexit.unregister(self.ip.atexit_operations)  # of hundreds of shells they take longer than the tests

    @property
    def space(self) -> dict[str, Any]:
        """The person's namespace."""
        return self.ip.user_ns

    def run(self, code: str) -> Any:
        """Run a cell; returns its value, raises its error."""
        done = self.ip.run_cell(code)
        if done.error_before_exec is not None:
            raise done.error_before_exec
        if done.error_in_exec is not None:
            raise done.error_in_exec
        return done.result

    def complete(self, line: str) -> list[str]:
        """Return what Tab offers at the end of a line."""
        with provisionalcompleter():
            return [found.text for found in self.ip.Completer.completions(line, len(line))]


@contextmanager
def loaded(config: dict[str, dict[str, Any]] | None = None) -> Iterator[Shell]:
    """A shell with the extension loaded; at the end it must unload cleanly and leave no thread."""
    shell = Shell(config)
    shell.run("%load_ext astrion_nb")
    try:
        yield shell
    finally:
        shell.run("%unload_ext astrion_nb")
        left = [thread.name for thread in threading.enumerate() if thread.name.startswith("astrion")]
        assert left == [], f"threads live on after unload: {left}"


def scripted(path: Path, script: str) -> str:
    """Write a scripted model and return the key that names it; its helpers are imported already."""
    path.write_text(
        "from astrion_nb.testing import ScriptedModel, call, fail, say, until_message\n"
        "from astrion_nb.errors import ModelRefused, ModelUnreachable\n" + script,
        encoding="utf-8",
    )
    return f"scripted/{path}"


AGREEABLE = """
def lead(request):
    if not any(message.role == "assistant" for message in request.messages):
        return call("create_sub_agent", agent_id=1, role_id="researcher", task="Look around.")
    return say("All is well.")

script = ScriptedModel({"Team Leader": [lead] * 99, "*": [say("Seen.")] * 99}, check_on_close=False)
"""
"""A leader that creates one researcher, and everybody agrees with whatever is said."""
