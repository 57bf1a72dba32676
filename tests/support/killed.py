"""What the processes of the kill tests do: one performs the atelier until it dies, the next takes up what is left.

Everything is imported here at once, so that a zygote has it before it forks.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import pickle
import random
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from astrion_nb import Team
from astrion_nb.errors import ConversationNotFound
from astrion_nb.events import Stamped
from astrion_nb.home import Home
from astrion_nb.ids import LEADER_ID
from astrion_nb.messages import Message
from astrion_nb.runtime.notes import note
from astrion_nb.state import AgentState, TeamState
from astrion_nb.store import conversations, saving
from astrion_nb.store.conversations import ConversationStore
from astrion_nb.store.loading import load
from astrion_nb.testing import invariants

from . import atelier, stepwise
from .disks import Disk, Picture
from .mortal import MortalFiles
from .served import actor, check, envelopes
from .zygote import say

for _name in (
    *(
        "aiohttp",
        "frontmatter",
        "httpx2",
        "openai",
        "openai._vendor.httpx_aiohttp",
        "openai.resources.chat.completions",
    ),
    *("tomllib", "yaml", "astrion_nb.llm.client", "astrion_nb.llm.openai", "astrion_nb.tools.leader"),
    *("astrion_nb.tools.member", "astrion_nb.tools.schema"),
):
    importlib.import_module(_name)

MARKS = ("1-a", "1-b", "2-a", "3-a")


def perform(home: str, kill_at: int = 0, jump: bool = False) -> list[str]:
    """Let the atelier do its work in ``home``, until the point of that number; returns the labels of all points.

    With ``jump`` the wall clock is set to another time, years away, whenever somebody looks.
    """
    place = Home(Path(home))
    files = MortalFiles(place.conversations, kill_at, say)
    conversations.RealFiles = lambda: files  # type: ignore[assignment,misc]
    saving._SMALL = 1 << 12  # documents are written between the runs too, and the journal is cut while it grows
    diary, seen = atelier.Diary(Path(home) / "diary"), atelier.Diary(Path(home) / "seen")
    model = atelier.Painter(lambda body: seen.note(actor(body), body["messages"]))

    async def main() -> None:
        async with Team(model=model, home=place, tools=[atelier.brush(diary)], human=True) as team:
            await atelier.perform(team, diary)

    dice = random.Random(2)
    jumps = (-(10**8), -3600, 0, 0.5, 86400, 10**8)
    stepwise.run(main, (lambda t: stepwise.START + t + dice.choice(jumps)) if jump else stepwise.now)
    return files.points


def lose_power(home: str) -> int:
    """Let the atelier do its work on a disk that tells, after each operation, what a power loss would leave.

    The pictures are written to the file ``pictures`` in ``home``, each once; returns how many operations there were.
    """
    place = Home(Path(home))
    root = place.conversations.parent
    diary, seen = atelier.Diary(Path(home) / "diary"), atelier.Diary(Path(home) / "seen")
    dice = random.Random(1)
    pictures: dict[int, Left] = {}
    operations = 0

    def look(disk: Disk) -> None:
        nonlocal operations
        operations += 1
        for picture in (disk.powerless(), disk.torn(dice), disk.reordered(dice)):
            files = {str(path.relative_to(root)): data for path, data in picture.files.items()}
            folders = sorted(str(path.relative_to(root)) for path in picture.folders)
            left = Left(operations, diary.lines, seen.lines, files, folders)
            pictures.setdefault(hash((left.diary, left.seen, *sorted(files.items()))), left)

    disk = Disk(root, Picture({}, {root, place.conversations}), look)
    conversations.RealFiles = lambda: disk  # type: ignore[assignment,misc]
    saving._SMALL = 1 << 12

    async def main() -> None:
        model = atelier.Painter(lambda body: seen.note(actor(body), body["messages"]))
        async with Team(model=model, home=place, tools=[atelier.brush(diary)], human=True) as team:
            await atelier.perform(team, diary)

    stepwise.run(main)
    (Path(home) / "pictures").write_bytes(pickle.dumps([*pictures.values()]))
    return operations


@dataclass
class Left:
    """What a power loss leaves: files and folders, and how much had been noted in the world by then."""

    operation: int
    diary: int
    seen: int
    files: dict[str, bytes]
    folders: list[str]

    def lay_out(self, source: Path, home: Path) -> None:
        """Put the picture into another home; ``source`` is the one whose diaries tell what had been noted."""
        for name, count in (("diary", self.diary), ("seen", self.seen)):
            (home / name).write_bytes(b"".join((source / name).read_bytes().splitlines(keepends=True)[:count]))
        root = Home(home).conversations.parent
        for folder in self.folders:
            (root / folder).mkdir(parents=True, exist_ok=True)
        for name, data in self.files.items():
            (root / name).write_bytes(data)


def read_all(home: str) -> int:
    """Load the conversation from every picture of ``home`` and check it; returns in how many there was one already."""
    told, asked = atelier.read_diary(Path(home) / "diary"), atelier.read_diary(Path(home) / "seen")
    root = Home(Path(home)).conversations.parent
    pictures: list[Left] = pickle.loads((Path(home) / "pictures").read_bytes())
    found = 0
    for number, left in enumerate(pictures):
        files = {root / name: data for name, data in left.files.items()}
        picture = Picture(files, {root / name for name in left.folders})
        places = [folder for folder in picture.folders if folder.name.startswith("conv_")]
        try:
            state = load(places[0], picture).state  # type: ignore[arg-type]  # it is only read
        except (IndexError, ConversationNotFound):
            assert (left.diary, left.seen) == (0, 0), f"picture {number}: nothing is left"
            continue
        found += 1
        try:
            invariants.check(state, settled=False)
            check(dict(asked[: left.seen]), state)
            promised(state, told[: left.diary])
        except AssertionError as error:
            raise AssertionError(f"picture {number}, after operation {left.operation}: {error}") from error
    return found


def go_on(home: str, kill_at: int = 0) -> dict[str, Any] | None:
    """Take up what is left in ``home``, check it against what had been told, let the team finish; returns the facts.

    With ``kill_at`` this process dies too, if it passes so many points.
    """
    place = Home(Path(home))
    files = MortalFiles(place.conversations, kill_at, say)
    conversations.RealFiles = lambda: files  # type: ignore[assignment,misc]
    return asyncio.run(_go_on(place, Path(home)))


async def _go_on(place: Home, home: Path) -> dict[str, Any]:
    told = atelier.read_diary(home / "diary")
    seen: dict[str, Any] = dict(atelier.read_diary(home / "seen"))
    before = _loaded(place)
    if before is None:
        assert not told, f"the conversation is gone, and the person was told {told}"
        assert not seen, "the conversation is gone, and a model was asked"
    else:
        invariants.check(before, settled=False)
        check(seen, before)
        promised(before, told)
    diary = atelier.Diary(home / "diary")
    name = None if before is None else before.conversation_id
    events: list[Stamped] = []
    async with Team(conversation=name, home=place, tools=[atelier.brush(diary)], human=True) as team:
        team.watch(events.append)
        runtime = await team.open()
        await asyncio.sleep(0)  # who waits closes the calls beside the question in a step of his own
        invariants.check(team.state, runtime=runtime)
        if before is not None:
            at_work = {one.agent_id for one in before.agents.values() if one.status in ("running", "waiting")}
            truthful(team.state, at_work)
        result = await team.run(atelier.GO_ON)
        invariants.check(team.state, events, runtime)
        assert result.status == "completed", (result.status, result.error)
    after = _loaded(place)
    assert after is not None
    invariants.check(after)
    check(seen, after)
    if before is not None:
        kept(before, after)
    whole(after, atelier.read_diary(home / "diary"))
    at_rest(place, after)
    return facts(after)


def _loaded(place: Home) -> TeamState | None:
    """Read the one conversation as any reader may; ``None`` when there is none."""
    store = ConversationStore(place)
    entries = store.list()
    if not entries:
        for folder in place.conversations.glob("conv_*"):
            try:
                store.open(folder.name, read_only=True)
            except ConversationNotFound:
                continue
            raise AssertionError(f"{folder.name} can be opened and is not listed")
        return None
    (entry,) = entries
    assert entry.error == "", entry.error
    return store.open(entry.id, read_only=True).state


# -- what has to hold ------------------------------------------------------------------------------


def promised(state: TeamState, told: list[tuple[str, Any]]) -> None:
    """Check that what a person was told is there."""
    for kind, value in told:
        if kind == "started":
            assert _said(state.leader_state, value), "the task was taken, and is gone"
        elif kind == "sent":
            assert any(_has(agent, value) for agent in state.agents.values()), f"message {value} was sent, and is gone"
        elif kind == "answered":
            assert value in [question.answer for question in state.questions.values()], (
                "an answer was told, and is gone"
            )
        elif kind == "stopped":
            leader, name = state.leader_state, atelier.name_of(value)
            letters = [(item.sender, item.status) for item in leader.pending]
            letters += [(name, message.metadata.get("status")) for message in _from(leader, value)]
            assert (name, "stopped") in letters, f"{name} was stopped, and nobody knows"
        elif kind == "mark":
            call = [
                call for _, call in _calls(state) if call.name == "mark" and json.loads(call.arguments)["what"] == value
            ]
            assert len(call) == 1, f"{value} was marked in the world, and {len(call)} calls say so"


def truthful(state: TeamState, at_work: set[int]) -> None:
    """Check a restored state: nobody is shown at work, and who was is marked and told of."""
    waiting = {question.asker for question in state.open_questions()}
    for number, agent in state.agents.items():
        name = agent.display_name
        assert agent.status != "running", f"{name} is shown running, and nothing runs"
        assert (agent.status == "waiting") == (number in waiting), f"{name}: {agent.status}, asked: {number in waiting}"
        if number in at_work and number not in waiting:
            assert (agent.status, agent.detail) == ("idle", "interrupted"), f"{name}: {agent.status} {agent.detail}"
            if number != LEADER_ID:
                words = note("interrupted", state.language)
                notes = [item for item in state.leader_state.pending if item.sender == name and item.content == words]
                assert len(notes) == 1, f"the leader is told {len(notes)} times that {name} was interrupted"
        open_calls = {question.call_id for question in state.open_questions() if question.asker == number}
        assert set(agent.open_calls) == open_calls, f"{name}: calls are open that nothing can end"
    assert state.run_status != "running"


def kept(before: TeamState, after: TeamState) -> None:
    """Check that nothing of what was there before is lost, moved or doubled."""
    for number, agent in before.agents.items():
        later = after.agents[number]
        assert later.messages[: len(agent.messages)] == agent.messages, f"the past of {agent.display_name} has changed"
        gone = [item.id for item in agent.pending if not _has(later, item.id)]
        assert gone == [], f"{agent.display_name} never got {gone}"
        ids = [item.id for item in agent.pending]
        got = [message.metadata.get("envelope_id", message.message_id) for message in later.messages]
        places = [got.index(item) for item in ids if item in got]
        assert places == sorted(places), f"the mailbox of {agent.display_name} was read out of order"


def whole(state: TeamState, diary: list[tuple[str, Any]]) -> None:
    """Check the end: all is done, and what touches the world was done at most once and is told as it was."""
    marks = Counter(value for kind, value in diary if kind == "mark")
    assert all(count == 1 for count in marks.values()), f"a tool that touches the world ran again: {marks}"
    results = {
        message.tool_call_id: message.content or "" for agent in state.agents.values() for message in agent.messages
    }
    for what in MARKS:
        calls = [
            call for _, call in _calls(state) if call.name == "mark" and json.loads(call.arguments)["what"] == what
        ]
        assert len(calls) == 1, f"{what}: {len(calls)} calls"
        result = results[calls[0].id]
        if result == f"marked {what}":
            assert marks[what] == 1, f"{what} is said to be marked, and is not"
        else:
            assert "interrupted" in result, result
            assert "not run again" in result, result
    assert {agent.display_name: agent.status for agent in state.agents.values()} == {
        agent.display_name: "completed" for agent in state.agents.values()
    }
    assert state.open_questions() == []
    assert not any(item.wakes for agent in state.agents.values() for item in agent.pending)
    ordered(state)


def ordered(state: TeamState) -> None:
    """Check that what one wrote to another was read in the order in which it was written."""
    for agent in state.agents.values():
        last: dict[tuple[str, str], int] = defaultdict(int)
        for message in agent.messages:
            found = re.fullmatch(r"(\w+)_(\d{3})", str(message.metadata.get("envelope_id", "")))
            if found:
                key = (str(message.metadata.get("agent_id")), found[1])
                assert int(found[2]) > last[key], f"{agent.display_name}: {found[0]} came late"
                last[key] = int(found[2])


def at_rest(place: Home, state: TeamState) -> None:
    """Check the files after a proper end."""
    folder = place.conversations / state.conversation_id
    assert (folder / "journal.jsonl").read_bytes() == b""
    for path in place.conversations.rglob("*.json"):
        json.loads(path.read_text(encoding="utf-8"))
    left = [path.name for path in folder.rglob("*") if path.name.endswith(".tmp") or path.name == "owner.json"]
    assert left == [], f"left behind: {left}"
    assert ConversationStore(place).owner(state.conversation_id) is None


def facts(state: TeamState) -> dict[str, Any]:
    """Return what two ends are compared by: what everybody was told, and what everybody has done."""
    heard: list[list[str]] = []
    for agent in state.agents.values():
        stored = [
            {"role": message.role, "content": message.content} for message in agent.messages if message.role == "user"
        ]
        for envelope in envelopes({"messages": stored}):
            heard.append([agent.display_name, envelope.kind, envelope.sender, envelope.content])
    said = [message.content or "" for message in state.leader_state.messages if message.message_id in _own(state)]
    return {"heard": heard, "said": said, "agents": sorted(agent.display_name for agent in state.agents.values())}


def compare(uninterrupted: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Check that a run that was killed and taken up again comes to what an uninterrupted one comes to.

    What a person did not come to say is not missed; what an agent was told again, because it was told that its call was
    interrupted, says so in its words and is another message.
    """
    assert found["agents"] == uninterrupted["agents"]
    wanted, got = _letters(uninterrupted), _letters(found)
    twice = {letter: count for letter, count in got.items() if count > 1}
    assert twice == {}, f"told twice: {twice}"
    missed = {_plain(letter) for letter in wanted} - {_plain(letter) for letter in got}
    assert missed == set(), f"never told: {missed}"
    words = [one for one in found["said"] if one != atelier.GO_ON]
    assert words == [one for one in uninterrupted["said"] if one in words], f"the person's words are {words}"


def _letters(found: Mapping[str, Any]) -> Counter[tuple[str, ...]]:
    """Return what was written to somebody by somebody with something to say: no reports, no word of the runtime's."""
    return Counter(
        tuple(letter)
        for letter in found["heard"]
        if letter[1] not in ("progress", "completion")
        and not letter[3].startswith(("My turn", "The user"))
        and letter[3] not in (atelier.GO_ON, atelier.GUIDANCE, atelier.PERSONS_QUESTION)
    )


def _plain(letter: tuple[str, ...]) -> tuple[str, ...]:
    return (*letter[:3], re.sub(r" \(\d\)$", "", letter[3]))


def _own(state: TeamState) -> set[str]:
    return {
        message.message_id or ""
        for message in state.leader_state.messages
        if message.metadata.get("visibility") == "chat" and message.role == "user"
    }


def _said(leader: AgentState, content: str) -> bool:
    return content in [item.content for item in leader.pending] + [message.content for message in leader.messages]


def _has(agent: AgentState, item: str) -> bool:
    ids = [one.id for one in agent.pending]
    ids += [str(message.metadata.get("envelope_id", message.message_id)) for message in agent.messages]
    return ids.count(item) == 1


def _from(agent: AgentState, sender: int) -> list[Message]:
    return [message for message in agent.messages if message.metadata.get("agent_id") == sender]


def _calls(state: TeamState) -> list[tuple[AgentState, Any]]:
    return [
        (agent, call) for agent in state.agents.values() for message in agent.messages for call in message.tool_calls
    ]
