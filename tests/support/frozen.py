"""Makes the frozen home of a version: what a release wrote, kept to be read by every later one.

``python tests/support/frozen.py`` (with ``TZ=UTC``) plays a small team at the strict server, with real processes and
real kills, puts a key that nobody knows into every object of every document, notes what each conversation loads to,
and writes all of it into ``tests/data/versions/<version>``, once: a folder that is there is never touched.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.served import actor, configure, done, envelopes
from support.strict_server import Gate, Reply, Response, StrictServer, calls, reasoning, text

from astrion_nb import Team, tool
from astrion_nb.disk import RealFiles
from astrion_nb.home import Home
from astrion_nb.ids import LEADER_ID
from astrion_nb.state import TeamState
from astrion_nb.store.conversations import ConversationStore
from astrion_nb.store.json_form import dump
from astrion_nb.store.loading import load
from astrion_nb.store.version import SCHEMA_VERSION

FOLDER = Path(__file__).parents[1] / "data" / "versions"
UNKNOWN = {"未知": [1, None]}
"""What stands under the key ``x_kept`` of every object."""
README = """\
The home of a team as layout version {version} writes it. Frozen: never edited, never made again; every later release
has to read it. `tests/store/test_frozen_versions.py` holds it to that, and `SHA256SUMS` holds the files.

Made by `TZ=UTC python tests/support/frozen.py`, which plays a team at a strict server. In `home`, the conversations are

- `rest`: two agents on two models, at rest; asked, answered, an answer kept that came before its question;
- `killed`: killed by SIGKILL in its second run, the journal's last line torn: one agent waits for the leader, one was
  at work on a tool, with a message in its mailbox;
- `begun`: killed in its first run, when only the journal knew what happened;
- `open`: put away while an agent waits for the person;
- `archived`: with a title that was given, one agent terminated.

Every object of every document holds a key that nobody knows (`x_kept`). `golden` has what each conversation loads to.
"""


# -- what the team does -----------------------------------------------------------------


class Stage:
    """The models of the team: what is said follows from the request alone, and from what is being played."""

    def __init__(self) -> None:
        self.scene = ""
        self.asked = Gate()
        """Passed once the leader has been asked what nobody will answer."""

    async def play(self, request: dict[str, Any], _: int) -> Response:
        return await self._lead(request) if actor(request) == "leader" else await self._work(request)

    async def _lead(self, request: Mapping[str, Any]) -> Response:
        messages = request["messages"]
        if not done(request):
            first = {"agent_id": 1, "role_id": "researcher", "task": "Look around.", "timeout_seconds": 60}
            second = {"agent_id": 1, "role_id": "ui-operator", "task": "设计前端配色方案\n第二行", "model_key": "two"}
            return calls(
                ("create_sub_agent", first),
                ("create_sub_agent", {**second, "thinking_mode": "thinking", "run_in_background": True}),
                ("answer_sub_agent_question", {"agent_id": 1, "question_id": "early-1", "answer": "不要"}),
                say="Two helpers.",
            )
        made = [call for message in messages for call in message.get("tool_calls") or ()]
        answered = {json.loads(call["function"]["arguments"]).get("question_id") for call in made}
        asks = [one for one in envelopes(request) if one.kind == "ask" and one.id not in answered]
        if asks and self.scene in ("killed", "begun"):
            self.asked.release()
            return Reply(hold=Gate())
        if asks and self.scene == "open":
            return text("I cannot say.")
        if asks:
            ask = asks[0]
            given = {"agent_id": ask.sender, "question_id": ask.id, "answer": f"Yes, {ask.id}."}
            return calls(("answer_sub_agent_question", given))
        if "Again" in messages[-1]["content"]:
            return calls(
                ("send_message_to_sub_agent", {"agent_id": 1, "message": "Once more."}),
                ("send_message_to_sub_agent", {"agent_id": 2, "message": "再来一次"}),
            )
        return text(f"Read {len(messages)} messages; 读完了。")

    async def _work(self, request: Mapping[str, Any]) -> Response:
        name = actor(request)
        said = [message["role"] for message in request["messages"]]
        if said[-1] == "user":
            if name == "task_001":
                ask = {"question": "Which colour? 什么颜色？", "question_id": f"ask-{name}-{done(request)}"}
                return calls(("list_active_sub_agents", {}), ("ask_master", ask), say="On it.")
            if self.scene in ("killed", "begun"):
                await self.asked.passed()
            told = {"target_agent_id": 1, "content": "配色已定", "message_id": "", "expects_answer": False}
            return [*reasoning("先想一想"), *calls(("mark", {"what": self.scene}), ("ask_other_agent", told))]
        return text(f"{name} 完成了。\n\n- [x] <b>done</b> & \\\\ `$1$`")


@tool
async def mark(what: str) -> str:
    """Leave a mark."""
    return f"marked {what}"


@tool(name="mark")
async def deadly(what: str) -> str:
    """Leave a mark and die."""
    assert TEAM is not None
    await TEAM.send(2, "先不要创建 API...")
    os.kill(os.getpid(), signal.SIGKILL)
    return "unreachable"


TEAM: Team | None = None


def _team(home: Path, conversation: str | None = None, *, die: bool = False, title: str | None = None) -> Team:
    tools = [deadly if die else mark]
    return Team(title, home=home, conversation=conversation, tools=tools, human=True, language="zh", project_path="/p")


async def _die(home: Path, conversation: str | None, task: str) -> None:
    global TEAM
    TEAM = _team(home, conversation, die=True)
    await TEAM.run(task)


async def _rest(home: Path) -> str:
    async with _team(home) as team:
        assert (await team.run("帮我设计一个前端页面\nwith a button")).status == "completed"
        return str(team.conversation_id)


async def _open(home: Path) -> str:
    team = _team(home)
    await team.start("Ask me.")
    async for _ in team.events():
        if any(question.passed for question in team.state.open_questions()):
            break
    await team.close()
    return str(team.conversation_id)


async def _archived(home: Path) -> str:
    async with _team(home, title="给定的标题") as team:
        await team.run("Look around.")
        await team.terminate(2)
        await team.wait()
        name = str(team.conversation_id)
    await ConversationStore(Home(home)).archive(name)
    return name


def _killed(home: Path, conversation: str | None, task: str) -> str:
    """Let a process work on a conversation until it kills itself; returns the conversation."""
    before = set(_conversations(home))
    arguments = [sys.executable, __file__, "die", str(home), conversation or "", task]
    child = subprocess.run(arguments, timeout=30, check=False, env={**os.environ, "ASTRION_HOME": str(home)})
    assert child.returncode == -signal.SIGKILL, child.returncode
    return conversation or (set(_conversations(home)) - before).pop()


def _conversations(home: Path) -> Iterator[str]:
    return (path.name for path in Home(home).conversations.glob("conv_*"))


def play(home: Path) -> dict[str, str]:
    """Let teams work in a home; returns the conversations by their names in the README."""
    stage = Stage()
    found: dict[str, str] = {}
    with StrictServer() as one, StrictServer() as two:
        one.on_request = two.on_request = stage.play
        configure(home, one, two)
        for scene, make in (("rest", _rest), ("open", _open), ("archived", _archived)):
            stage.scene = scene
            found[scene] = asyncio.run(make(home))
        stage.scene = "first"
        going = asyncio.run(_rest(home))
        for scene, conversation in (("killed", going), ("begun", None)):
            stage.scene, stage.asked = scene, Gate()
            found[scene] = _killed(home, conversation, "Again, please.")
        assert one.violations == two.violations == []
    with (Home(home).conversations / found["killed"] / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"seq":9999,"v":1,"t":"2026-')
    return found


# -- what is kept -----------------------------------------------------------------------


def mark_document(value: Any) -> None:
    """Put the unknown key into every object of a document; not into those that are free of form anyway."""
    if isinstance(value, list):
        for item in value:
            mark_document(item)
    elif isinstance(value, dict):
        for inner in list(value.values()):
            mark_document(inner)
        if value:
            value["x_kept"] = UNKNOWN


def _mark(home: Path) -> None:
    for path in sorted(Home(home).base.rglob("*.json")):
        if path.name in ("owner.json", "offered-roles.json"):
            continue
        document = json.loads(path.read_bytes())
        by_model = (document.get("token_statistics") or {}).get("by_model")
        mark_document(document)
        if by_model:
            del by_model["x_kept"]  # its keys are models
        if path.name == "index.json":
            document["x_kept"] = "a text: an object would be a conversation"
        path.write_bytes(dump(document))


def loaded(home: Path, conversation: str) -> TeamState:
    """Load a stored conversation without touching it."""
    return load(Home(home).conversations / conversation, RealFiles()).state


def picture(state: TeamState) -> dict[str, Any]:
    """Return everything that a state holds, as JSON."""
    out: dict[str, Any] = {}
    for field in dataclasses.fields(state):
        out[field.name] = getattr(state, field.name)
    out["ids"] = sorted(state.ids._taken)
    out["questions"] = [dataclasses.asdict(question) for question in state.questions.values()]
    out["kept"] = [dataclasses.asdict(kept) for kept in state.kept.values()]
    out["agents"] = [_agent(agent) for _, agent in sorted(state.agents.items())]
    whole: dict[str, Any] = json.loads(dump(out))
    return whole


def _agent(agent: Any) -> dict[str, Any]:
    held = {field.name: getattr(agent, field.name) for field in dataclasses.fields(agent)}
    held["messages"] = [message.to_json() for message in agent.messages]
    held["pending"] = [item.to_json() for item in agent.pending]
    held["open_calls"] = {key: [call.to_json(), t] for key, (call, t) in agent.open_calls.items()}
    held["usage"] = {key: usage.to_json() for key, usage in agent.usage.items()}
    return held


def sums(folder: Path) -> str:
    """Return the hashes of all files of a frozen folder, but of their list."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "SHA256SUMS")
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n" for path in files)


def freeze(folder: Path) -> None:
    """Make a frozen folder."""
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary) / "home"
        names = play(home)
        _mark(home)
        own = Home(home).own
        shutil.rmtree(own / "locks")
        (own / "models.toml").unlink()  # it names the server's port
        for path in home.rglob("conversation.lock"):
            path.unlink()
        for path in home.rglob("owner.json"):  # the killed process left it
            path.write_bytes(dump({"pid": 4242, "started": "a boot:4242", "host": "elsewhere"}))
        golden = folder / "golden"
        golden.mkdir()
        for name, conversation in names.items():
            state = loaded(home, conversation)
            assert LEADER_ID in state.agents
            (golden / f"{name}.json").write_bytes(dump({"conversation": conversation, **picture(state)}) + b"\n")
        shutil.copytree(home, folder / "home")
    (folder / "README.md").write_text(README.format(version=SCHEMA_VERSION), encoding="utf-8")
    (folder / "SHA256SUMS").write_text(sums(folder), encoding="utf-8")


def main() -> None:
    if sys.argv[1:2] == ["die"]:
        _, _, home, conversation, task = sys.argv
        asyncio.run(_die(Path(home), conversation or None, task))
        return
    os.environ["TZ"] = "UTC"
    time.tzset()
    os.environ.pop("ASTRION_HOME", None)
    freeze(FOLDER / str(SCHEMA_VERSION))


if __name__ == "__main__":
    main()
