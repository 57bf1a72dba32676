"""The embedded model in a real kernel: a notebook with a team, a question, and a kernel that dies violently."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.kernelspec import NATIVE_KERNEL_NAME, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from support.local_teams import check_conversation, servers_of
from support.local_weights import smollm2
from support.processes import living, seconds_until_gone
from traitlets import default

from astrion_nb import Role, roles
from astrion_nb.home import Home
from astrion_nb.store.conversations import ConversationStore

pytestmark = [pytest.mark.local_model, pytest.mark.slow]

CELLS = [
    "import json, os\nprint(os.getpid())",
    "%load_ext astrion_nb",
    "%%team --model local/smollm2 --roles poet,critic --wait --timeout 180\n"
    "Let a poet write about the sea and a critic say what makes a good verse.",
    "answer = await team.ask(team.agents[0].display_name, 'What is the sea like?', timeout=120)\nprint(answer)",
    "print(json.dumps([team.conversation_id, answer, [agent.status for agent in team.agents]]))",
]
TRIES = 3


class OfThisPython(AsyncKernelManager):
    """Knows one kernel: the interpreter that runs the tests."""

    @default("kernel_spec_manager")
    def _no_others(self) -> KernelSpecManager:
        return KernelSpecManager(kernel_dirs=[])


def run(home: Path) -> tuple[list[Any], list[int]]:
    """Execute the cells; kill the kernel after the last one. Returns the cells and the servers it had."""
    book = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source, id=f"c{number}") for number, source in enumerate(CELLS)]
    )
    servers: list[int] = []

    def after(cell: Any, cell_index: int, execute_reply: Any) -> None:
        if cell_index == len(CELLS) - 1:
            kernel = int(printed(book.cells[0]))
            servers.extend(servers_of(kernel))
            assert all(living(server) for server in servers)
            os.kill(kernel, signal.SIGKILL)
            for server in servers:
                seconds_until_gone(server, 2.0)

    client = NotebookClient(
        book,
        kernel_name=NATIVE_KERNEL_NAME,
        kernel_manager_class=OfThisPython,
        timeout=400,
        startup_timeout=120,
        resources={"metadata": {"path": str(home)}},
        store_widget_state=False,
        on_cell_executed=after,
    )
    client.execute(env={**os.environ, "ASTRION_HOME": str(home)})
    return book.cells, servers


def printed(cell: Any) -> str:
    return "".join(output["text"] for output in cell["outputs"] if output["output_type"] == "stream")


def shown(cell: Any) -> str:
    """Return the plain text of what a cell displays."""
    return "\n".join("".join(output["data"].get("text/plain", "")) for output in cell["outputs"] if "data" in output)


def test_a_notebook_runs_a_team_on_the_embedded_model_and_its_killed_kernel_leaves_no_server(tmp_path: Path) -> None:
    smollm2()
    home = Home(tmp_path)
    roles.save(Role("poet", "Poet", "Writes verse.", "You write two short lines of verse."), home=home)
    roles.save(Role("critic", "Critic", "Judges verse.", "You say in one sentence whether it is good."), home=home)
    complaints = []
    for attempt in range(TRIES):
        try:
            cells, servers = run(home.root)
        except CellExecutionError as error:  # a model this small may create nobody, or fail for good
            complaints.append(f"attempt {attempt}: {error}")
            continue
        assert len(servers) == 1
        conversation_id, answer, statuses = json.loads(printed(cells[4]))
        assert answer.strip() == printed(cells[3]).strip() != ""
        assert set(statuses) <= {"completed", "idle"}
        state = ConversationStore(home).open(conversation_id, read_only=True).state
        assert state.model_key == "local/smollm2"
        transcript = shown(cells[2])
        for agent in state.members():
            assert agent.display_name in transcript
        check_conversation(state, {"poet", "critic"})
        if len(state.members()) >= 2:
            return
        complaints.append(f"attempt {attempt}: {[agent.display_name for agent in state.members()]}")
    pytest.fail("; ".join(complaints))
