"""Canaries in every place where a secret may be: none of them in the notebook, the documents or the cassette."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.casts import play
from support.kernel_env import KEY, environment
from support.notebooks import execute, make
from support.strict_server import StrictServer, calls, status, text

pytestmark = pytest.mark.faults

PASSWORD = "canary-password-0123456789"
CELLS = [
    "%load_ext astrion_nb",
    "import os\n"
    "def break_down(why: str) -> str:\n"
    '    """Break down."""\n'
    "    raise RuntimeError(f'{why}: {os.environ[\"OPENAI_API_KEY\"]} was refused')",
    "%%team --with break_down --record run.cassette.json\nLook around.",
    "%astrion show",
    "%astrion models",
    "%astrion agents",
    "%astrion why leader",
    "team",
    "%astrion export out.md",
    "%%team\nOnce more.",
]
BREAKS = calls(("break_down", {"why": "the first key"}))
ECHO = {"error": {"message": f"Incorrect API key provided: {KEY} ({PASSWORD})", "code": "invalid_api_key"}}


def test_no_secret_is_in_the_notebook_the_documents_or_the_cassette(server: StrictServer, tmp_path: Path) -> None:
    play(server, leader=[BREAKS, text("It broke."), status(401, ECHO)])
    path = make(tmp_path / "secrets.ipynb", CELLS)
    env = environment(server, tmp_path / "home")
    env["OPENAI_BASE_URL"] = server.url.replace("http://", f"http://someone:{PASSWORD}@")
    executed = execute(path, env, on=True)
    errors = [output for number in range(len(CELLS)) for output in executed.outputs(number) if "ename" in output]
    assert [error["ename"] for error in errors] == ["RunFailed"], "all but the last cell did what they say"
    assert server.headers[0]["authorization"] == f"Bearer {KEY}", "the key went where it belongs"
    assert "the first key: [hidden] was refused" in json.dumps(server.requests[1]), "and nowhere else"
    assert KEY.encode() not in b"".join(server.bodies)
    assert "the first key: [hidden] was refused" in executed.texts(3)
    texts = {str(found): found.read_text("utf-8", "replace") for found in tmp_path.rglob("*") if found.is_file()}
    names = {Path(name).name for name in texts}
    assert {"secrets.ipynb", "messages.json", "run.cassette.json", "out.md"} <= names
    assert [name for name, content in texts.items() if KEY in content or PASSWORD in content] == []
