"""A replay in a waiting cell: what only a person could bring, and nobody can any more, is missed and not awaited."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.notebooks import execute, make

from astrion_nb.app import cassettes

SCRIPT = """
from astrion_nb.testing import say, until_message

script = {"Team Leader": [until_message(say("Under way.")), say("Guided.")]}
"""


@pytest.mark.faults
def test_a_waiting_cell_misses_a_message_that_no_later_cell_can_send(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    env = {"ASTRION_HOME": str(tmp_path / "home"), "ASTRION_LANGUAGE": "en"}
    sent = ["%load_ext astrion_nb", "%%team --no-wait\nLook.", "%send leader Now.", "%astrion wait"]
    recorded = make(tmp_path / "recorded.ipynb", sent)
    execute(recorded, {**env, "ASTRION_MODEL": "scripted/script.py", "ASTRION_RECORD": str(tmp_path / "c.json")})
    stalled = f"import astrion_nb.app.cassettes as c; c.STALL = {cassettes.STALL / 60}"
    silent = make(tmp_path / "silent.ipynb", [stalled, "%load_ext astrion_nb", "%%team --wait\nLook."])
    done = execute(silent, {**env, "ASTRION_REPLAY": str(tmp_path / "c.json")})
    assert done.error.startswith("ReplayMiss: c.json")
    assert "human human 2" in done.error


def test_a_kernel_that_ends_right_after_a_run_leaves_documents_at_rest(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text('from astrion_nb.testing import say\nscript = {"Team Leader": [say("Done.")]}')
    home = tmp_path / "home"
    env = {"ASTRION_HOME": str(home), "ASTRION_MODEL": "scripted/script.py"}
    assert execute(make(tmp_path / "one.ipynb", ["%load_ext astrion_nb", "%%team\nGo."]), env).error == ""
    [folder] = (home / "mutiagents" / "conversations").glob("conv_*")
    stored = json.loads((folder / "messages.json").read_text("utf-8"))
    assert [message["content"] for message in stored["messages"]] == ["Go.", "Done."]
    assert (folder / "journal.jsonl").read_bytes() == b""
