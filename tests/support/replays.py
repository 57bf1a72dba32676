"""Records and replays the rig's teams: a busy team, delays that differ each time, and what to compare."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from astrion_nb.events import FLEETING, to_json
from astrion_nb.ids import HUMAN_ID
from astrion_nb.llm.model import Model, ModelRequest, StreamEvent
from astrion_nb.llm.scripted import ScriptedModel, Step, call, say
from astrion_nb.messages import Message
from astrion_nb.replay.cassette import Cassette
from astrion_nb.replay.player import Player
from astrion_nb.replay.recorder import Recorder
from astrion_nb.runtime.order import Order, StepKind
from astrion_nb.tools.registry import result_text

from .teams import BOUND, Rig, rig

MEMBERS = 4


class Jittery:
    """A model that takes its time, another one each time."""

    def __init__(self, inner: Model, dice: random.Random, longest: float = 0.002) -> None:
        self.inner, self.dice, self.longest = inner, dice, longest
        self.key, self.endpoint = inner.key, inner.endpoint

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        async for event in self.inner.stream(request):
            for _ in range(self.dice.randrange(4)):
                await asyncio.sleep(0)
            if self.dice.random() < 0.2:
                await asyncio.sleep(self.dice.random() * self.longest)
            yield event

    async def close(self) -> None:
        await self.inner.close()


class Unruly:
    """An order around another one, before which everybody yields as the dice say."""

    def __init__(self, inner: Player | Recorder, dice: random.Random) -> None:
        self.inner, self.dice = inner, dice

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def admit(self, actor: str, kind: StepKind, n: int) -> None:
        for _ in range(self.dice.randrange(6)):
            await asyncio.sleep(0)
        await self.inner.admit(actor, kind, n)


def news(request: ModelRequest) -> list[Message]:
    """Return the user messages that came with this request."""
    found: list[Message] = []
    for message in reversed(request.messages):
        if message.role == "assistant":
            break
        if message.role == "user":
            found.insert(0, message)
    return found


def turns(request: ModelRequest) -> int:
    """Return how many responses the actor has given."""
    return sum(message.role == "assistant" for message in request.messages)


def leader(request: ModelRequest) -> Step:
    """Create everybody, answer every question, look around now and then."""
    done = turns(request)
    if done == 0:
        step = say("Four helpers.")
        for number in range(1, MEMBERS + 1):
            step += call("create_sub_agent", agent_id=number, role_id="ui-operator", task=f"Look at page {number}.")
        return step
    out = say(f"Reading {done}.")
    for message in news(request):
        asked = re.search(r"^id: (ask_\S+)$", message.content or "", re.MULTILINE)
        if asked and message.metadata.get("agent_id"):
            out += call(
                "answer_sub_agent_question",
                agent_id=message.metadata["agent_id"],
                question_id=asked.group(1),
                answer=f"Go on with {asked.group(1)}.",
            )
    if not out.calls and done < 12:
        if done % 3 == 0:
            return out + call("get_sub_agent_status", agent_id=1 + done % MEMBERS)
        if done % 5 == 0:
            return out + call("send_message_to_sub_agent", agent_id=1 + done % MEMBERS, message=f"Hint {done}.")
    return out


def member(request: ModelRequest) -> Step:
    """Ask the neighbour, ask the leader, count, report."""
    number = int(request.actor.rsplit("_", 1)[1])
    done = turns(request)
    neighbour = 1 + number % MEMBERS
    if done == 0:
        return say(f"{number} begins, 开始。") + call(
            "ask_other_agent", target_agent_id=neighbour, content=f"What is on page {neighbour}?", message_id="q"
        )
    if done == 1:
        return call("ask_master", question=f"May {number} go on?", question_id="q") + call("list_active_sub_agents")
    if done == 2:
        return call("ask_other_agent", target_agent_id=neighbour, content="FYI", message_id="n", expects_answer=False)
    return say(f"Page {number} holds {done} things; that is all that there is to say about it.")


def busy_model(dice: random.Random | None = None) -> Model:
    """Return a scripted model that plays the busy team for as long as it goes on."""
    model = ScriptedModel({"Team Leader": [leader] * 200, "UI Operator_*": [member] * 400}, check_on_close=False)
    return model if dice is None else Jittery(model, dice)


async def busy_person(made: Rig, dice: random.Random | None = None) -> None:
    """Set the team to work, and send, ask and stop while it works."""
    team = made.team

    async def pause() -> None:
        for _ in range(dice.randrange(40) if dice is not None else 0):
            await asyncio.sleep(0)

    await team.person.admit()
    team.begin_run("Look at the pages.")
    team.person.say("Look at the pages.")
    if not team.order.replaying:
        await made.until(lambda state: len(state.agents) > MEMBERS)
    await pause()
    await team.person.admit()
    team.port.send(HUMAN_ID, 2, "Hurry up.")
    await pause()
    await team.person.admit()
    team.port.stop_agent(HUMAN_ID, 3, "enough")
    await pause()
    await team.person.admit()
    team.person.say("And tell me how far you are.")
    await asyncio.wait_for(team.rest(), BOUND)


def told(made: Rig) -> str:
    """Return everything that was published and is kept, as text: what two runs must have in common."""
    return "\n".join(
        json.dumps([item.seq, item.t, to_json(item.event)], ensure_ascii=False)
        for item in made.events
        if not isinstance(item.event, FLEETING)
    )


@dataclass
class Recorded:
    """A recorded run: the cassette's bytes and what was published."""

    data: bytes
    told: str
    rig: Rig

    @property
    def cassette(self) -> Cassette:
        return load(self.data)


def load(data: bytes) -> Cassette:
    """Read a cassette from bytes, as from a file."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lesson.cassette.json"
        path.write_bytes(data)
        return Cassette.load(path)


async def record(
    model: Model | Mapping[str, Model],
    act: Callable[[Rig], Awaitable[Any]],
    *,
    timings: bool = True,
    inner: Order | None = None,
    **options: Any,
) -> Recorded:
    """Run a team on a model while it is recorded."""
    recorder = Recorder({"language": "en"}, inner=inner, timings=timings)
    models = model if isinstance(model, Mapping) else {model.key: model}
    options["tools"] = recorder.tools(options.get("tools", ()), result_text)
    made = rig({key: recorder.model(item) for key, item in models.items()}, order=recorder, **options)
    recorder.watch(made.team.bus)
    await act(made)
    for item in models.values():
        await item.close()
    return Recorded(Cassette([recorder.tape]).to_bytes(), told(made), made)


def replayed(
    cassette: Cassette, *, dice: random.Random | None = None, keys: tuple[str, ...] = ("scripted",), **options: Any
) -> tuple[Rig, Player]:
    """Make a team that is replayed; player options are ``stall``, ``human_stall``, ``speed``."""
    chosen = {name: options.pop(name) for name in ("stall", "result_stall", "human_stall", "speed") if name in options}
    player = Player(cassette.teams[0], **chosen)
    models: dict[str, Model] = {key: player.model(key) for key in keys}
    if dice is not None:
        models = {key: Jittery(model, dice, 0.0005) for key, model in models.items()}
    order: Any = player if dice is None else Unruly(player, dice)
    options["tools"] = player.tools(options.get("tools", ()))
    made = rig(models, order=order, **options)
    player.on_miss = lambda miss: made.team.stop_all("failed", str(miss)) and None
    return made, player
