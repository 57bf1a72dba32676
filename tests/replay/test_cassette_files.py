"""The file: readable, comparable, without secrets, whole or not at all."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.replays import busy_model, busy_person, load, record, replayed, told
from support.teams import Rig, go

from astrion_nb.errors import ModelRefused, ReplayError, ReplayMiss, StorageError
from astrion_nb.llm.model import Finished, Model, ModelRequest, ReasoningDelta, StreamEvent, TextDelta
from astrion_nb.llm.scripted import ScriptedModel, call, fail, say
from astrion_nb.messages import Message, ToolCall, Usage
from astrion_nb.replay import player as players
from astrion_nb.replay import recorder as recorders
from astrion_nb.replay.cassette import Cassette, Chunk, Ended, Failure, Outcome, Response, Step, Tape
from astrion_nb.replay.digest import Asked, Digester, Line
from astrion_nb.replay.models import CHUNK, chunks
from astrion_nb.replay.player import Player, open_player
from astrion_nb.replay.recorder import Recorder, open_recorder
from astrion_nb.replay.scrub import Scrubber
from astrion_nb.tools.registry import tool


async def plain(made: Rig) -> None:
    await made.run("Go.")


# -- form -------------------------------------------------------------------------------


def test_two_recordings_of_the_same_scripted_run_without_timings_are_the_same_bytes() -> None:
    async def main() -> None:
        one = await record(busy_model(), busy_person, timings=False)
        other = await record(busy_model(), busy_person, timings=False)
        assert one.data == other.data
        made, player = replayed(one.cassette)
        await busy_person(made)
        assert told(made) == one.told
        player.check()

    go(main)


def test_with_timings_two_recordings_differ_in_nothing_but_times() -> None:
    def timeless(data: bytes) -> str:
        text = re.sub(rb'"started": \d+', b'"started": 0', data)
        text = re.sub(rb'(\["[^"]+", "(?:human|request|response|tool|result|timer)", \d+), \d+\]', rb"\1]", text)
        text = re.sub(rb'^( +)\[\d+, "', rb'\1["', text, flags=re.MULTILINE)
        return re.sub(rb'"end": \d+', b'"end": 0', text).decode()

    async def main() -> None:
        one = await record(busy_model(), busy_person)
        other = await record(busy_model(), busy_person)
        assert one.data != other.data
        assert timeless(one.data) == timeless(other.data)

    go(main)


def test_each_step_each_chunk_and_each_call_has_a_line_of_its_own() -> None:
    data = go(lambda: record(busy_model(), busy_person)).data
    lines = data.decode().splitlines()
    tape = load(data).teams[0]
    rows = [
        line for line in lines if re.match(r'\s+\["[^"]+", "(human|request|response|tool|result)", \d+, \d+\],?$', line)
    ]
    assert len(rows) == sum(isinstance(row, Step) for row in tape.order)
    assert sum('"arguments": ' in line for line in lines) == sum(len(item.calls) for item in tape.responses)
    assert any('"1 begins, 开始。"' in line for line in lines)
    assert data.endswith(b"}\n")


ASKED = Asked("d" * 16, "fast", "t" * 8, 1, (Line("user", "x" * 12, 3, "now"),))
TAPE = Tape(
    1_767_225_600_123,
    {"language": "zh", "nested": {"a": [1, None, True]}},
    [Step("human", "human", 1, 0), Step("规划_1", "request", 1), Ended("规划_1", "timed_out")],
    {"t" * 8: {"ask_master": "0b"}},
    [
        Response(
            "规划_1",
            1,
            "main",
            ASKED,
            [Chunk(3, "想", True), Chunk(0, "a\n\u2028b")],
            2,
            "stop",
            usage=Usage(3, 4, 1, 2),
        ),
        Response(
            "规划_1", 2, "main", ASKED, calls=(ToolCall("c1", "t", '{"a": "\\n"'),), finish="tool_calls", text="x"
        ),
        Response("规划_1", 3, "main", ASKED, finish="length", truncated=True, reasoning="r"),
        Response("规划_1", 4, "main", ASKED, failure=Failure("ModelBusy", "slow", 429, 0.5, "part")),
        Response("规划_1", 5, "main", ASKED, [Chunk(1, "cut")]),
    ],
    [Outcome(1, "c1", "write", "done"), Outcome(1, "c2", "write", None, "no"), Outcome(2, "c1", "write")],
)


def test_everything_that_a_tape_can_hold_survives_the_file(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "x.cassette.json"
    Cassette([TAPE, Tape()]).save(path)
    again = Cassette.load(path)
    assert again == Cassette([TAPE, Tape()])
    assert again.to_bytes() == path.read_bytes()
    assert [item.name for item in path.parent.iterdir()] == [path.name]


TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30)


@given(st.lists(st.tuples(TEXTS, st.booleans()), max_size=20), TEXTS)
def test_any_text_survives_the_file(pieces: list[tuple[str, bool]], arguments: str) -> None:
    tape = Tape(
        responses=[Response("A", 1, "m", ASKED, [Chunk(0, text, kind) for text, kind in pieces], finish="stop")]
    )
    tape.responses[0].calls = (ToolCall("c", "t", arguments),)
    data = Cassette([tape]).to_bytes()
    assert load(data).teams == [tape]
    assert json.loads(data)["version"] == 1


def test_a_lone_surrogate_does_not_keep_a_cassette_from_being_written() -> None:
    tape = Tape(responses=[Response("A", 1, "m", ASKED, [Chunk(0, "a\ud800b")], finish="stop")])
    assert load(Cassette([tape]).to_bytes()).teams[0].responses[0].stream[0].text == "a?b"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "not valid JSON"),
        (b"[]", "this is no cassette"),
        (b'{"format": "astrion-cassette", "version": 2, "teams": []}', "version 2 of the format, this release reads 1"),
        (b'{"format": "astrion-cassette", "version": 1}', "damaged (KeyError: 'teams')"),
        (b'{"format": "astrion-cassette", "version": 1, "teams": [{"order": 3}]}', "damaged"),
        (b'{"format": "astrion-cassette", "version": 1, "teams": ["x"]}', "damaged"),
    ],
)
def test_what_is_no_cassette_is_refused_in_one_line_that_names_the_file(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "x.cassette.json"
    path.write_bytes(content)
    with pytest.raises(ReplayError) as caught:
        Cassette.load(path)
    assert str(caught.value).startswith("x.cassette.json: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize("value", [["x"], {"x": 1}, None, True, 1.5])
@pytest.mark.parametrize("place", ["step", "ended", "response", "outcome"])
def test_a_value_of_another_type_where_an_actor_or_a_call_belongs_is_a_damaged_cassette(
    tmp_path: Path, place: str, value: Any
) -> None:
    response = Response("here", 1, "m", Asked("d", "fast", "t", 0, ()))
    tape = {
        "step": Tape(order=[Step("here", "human", 1, 0)]),
        "ended": Tape(order=[Ended("here", "stopped")]),
        "response": Tape(responses=[response]),
        "outcome": Tape(outcomes=[Outcome(0, "here", "write", "ok")]),
    }[place]
    path = tmp_path / "x.cassette.json"
    path.write_bytes(Cassette([tape]).to_bytes().replace(b'"here"', json.dumps(value).encode()))
    with pytest.raises(ReplayError, match=r"^x\.cassette\.json: the cassette is damaged .*; record it again$"):
        open_player(path)


def test_a_missing_cassette_says_how_to_record_it(tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match=r"^x.cassette.json: there is no such cassette; record it with --record"):
        open_player(tmp_path / "x.cassette.json")


def test_a_cassette_that_cannot_be_written_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x.cassette.json"
    path.mkdir()
    (path / "kept").write_text("")
    with pytest.raises(StorageError, match=r"x\.cassette\.json cannot be written"):
        Cassette([TAPE]).save(path)
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


# -- chunks -----------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 500), st.text(min_size=1, max_size=12), st.booleans()), max_size=40))
def test_joining_pieces_keeps_text_kinds_and_the_whole_time(pieces: list[tuple[int, str, bool]]) -> None:
    given_pieces = [Chunk(*piece) for piece in pieces]
    made = chunks(given_pieces, Scrubber(environment={}), timings=True)
    for kind in (True, False):
        assert "".join(c.text for c in made if c.reasoning is kind) == "".join(
            c.text for c in given_pieces if c.reasoning is kind
        )
    assert sum(chunk.after for chunk in made) == sum(chunk.after for chunk in given_pieces)
    for one, other in pairwise(made):
        assert one.reasoning is not other.reasoning or len(one.text) >= CHUNK or other.after > 0


# -- secrets ----------------------------------------------------------------------------


class Leaky:
    """A model whose words hold everything that may not be kept."""

    key, endpoint = "main", "https://user:pa55word@llm.canary.example:8443/v1"

    def __init__(self, words: list[str]) -> None:
        self.words = words

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        if request.turn == 3:
            raise ModelRefused(
                f"POST {self.endpoint} said 401: Authorization: Bearer {self.words[0]} at {self.words[2]}/x"
            )
        text = "I saw " + " and ".join(self.words) + "/notes.txt."
        yield ReasoningDelta(f"hm, {self.words[0]}")
        for letter in text:
            yield TextDelta(letter)
        calls = (ToolCall(f"c{request.turn}", "keep", json.dumps({"text": text})),)
        yield Finished(text, calls, "tool_calls", Usage(1, 1), f"hm, {self.words[0]}", "canary-model-2026-01-01")

    async def close(self) -> None:
        return


def test_no_key_host_header_or_home_path_is_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "canaryhome"
    (home / "project").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("CANARY_API_KEY", "canary-key-0123456789")
    monkeypatch.setenv("ASTRION_HOME", str(tmp_path / "canaryastrion"))
    monkeypatch.chdir(home / "project")
    words = [
        "canary-key-0123456789",
        "sk-canary0123456789abcdef",
        str(home / "project"),
        str(home),
        str(tmp_path / "canaryastrion"),
    ]

    @tool
    def keep(text: str) -> str:
        if text.count("I saw") > 1:
            raise OSError(f"{home}/full")
        return f"kept in {home}/project/a.txt with {words[0]}"

    async def act(made: Rig) -> None:
        await made.run(f"Use {words[0]} in {home}/project.")

    async def main() -> None:
        recorded = await record(Leaky(words), act, tools=(keep,))
        text = recorded.data.decode()
        for canary in (*words, "pa55word", "llm.canary.example", "Bearer canary", str(tmp_path), "canary-model"):
            assert canary not in text, canary
        assert "kept in ./a.txt with [hidden]" in text
        assert "POST https://<host>" in text
        assert '"model": "main"' in text

        # On another machine the same places have other names, and the replay holds all the same.
        elsewhere = tmp_path / "elsewhere"
        (elsewhere / "work").mkdir(parents=True)
        monkeypatch.setenv("HOME", str(elsewhere))
        monkeypatch.delenv("CANARY_API_KEY")
        monkeypatch.chdir(elsewhere / "work")
        made, player = replayed(recorded.cassette, keys=("main",), tools=(keep,))
        await made.run(f"Use [hidden] in {elsewhere}/work.")
        player.check()

    go(main)


def test_scrubbing_twice_changes_nothing_more_and_leaves_other_paths_alone(tmp_path: Path) -> None:
    scrubber = Scrubber(
        ["topsecret-value"], environment={"HOME": "/home/ann", "A_TOKEN": "tok-12345678"}, folder=Path("/home/ann/w")
    )
    text = "/home/ann/w/x /home/annabel /home/ann /home/ann/w2 topsecret-value tok-12345678 short"
    once = scrubber.text(text)
    assert once == "./x /home/annabel ~ ~/w2 [hidden] [hidden] short"
    assert scrubber.text(once) == once


# -- digests ----------------------------------------------------------------------------


def request(
    *texts: str, tools: tuple[dict[str, object], ...] = (), mode: str = "fast", actor: str = "A"
) -> ModelRequest:
    messages = [
        Message("user", text, f"msg_user_{place:03}", metadata={"t": place}) for place, text in enumerate(texts)
    ]
    return ModelRequest(actor, 1, messages, tools, mode)  # type: ignore[arg-type]


@given(st.lists(st.lists(TEXTS, max_size=5), min_size=1, max_size=5))
def test_a_digest_tells_the_request_and_not_what_was_asked_before(requests: list[list[str]]) -> None:
    digester = Digester(Scrubber(environment={}))
    for texts in requests:
        alone = Digester(Scrubber(environment={})).of(request(*texts))
        made = digester.of(request(*texts))
        assert made.digest == alone.digest
        assert len(digester.lines("A")) == len(texts)
        assert made.kept + len(made.added) == len(texts)


def test_ids_and_metadata_are_not_part_of_a_digest_and_everything_sent_is() -> None:
    def digest(message: Message, **more: object) -> str:
        return Digester(Scrubber(environment={})).of(ModelRequest("A", 1, [message], **more)).digest  # type: ignore[arg-type]

    plain_message = Message("assistant", "x", "msg_1", (ToolCall("c", "t", "{}"),), metadata={"usage": {}})
    same = Message("assistant", "x", "msg_2", (ToolCall("c", "t", "{}"),))
    assert digest(plain_message) == digest(same)
    others = [
        digest(Message("user", "x", None, (ToolCall("c", "t", "{}"),))),
        digest(Message("assistant", "y", None, (ToolCall("c", "t", "{}"),))),
        digest(Message("assistant", "x", None, (ToolCall("d", "t", "{}"),))),
        digest(Message("assistant", "x", None, (ToolCall("c", "u", "{}"),))),
        digest(Message("assistant", "x", None, (ToolCall("c", "t", "[]"),))),
        digest(Message("assistant", "x", None, (ToolCall("c", "t", "{}"),), "c")),
        digest(same, thinking_mode="thinking"),
        digest(same, tools=({"function": {"name": "a"}},)),
        digest(same, tools=({"function": {"name": "b"}},)),
    ]
    assert len({digest(same), *others}) == len(others) + 1


# -- tools ------------------------------------------------------------------------------


def test_tools_with_side_effects_are_replayed_and_the_others_run_again() -> None:
    ran: list[str] = []

    @tool
    def write(name: str) -> dict[str, object]:
        ran.append(f"write {name}")
        if name == "bad":
            raise OSError("disk full")
        return {"success": True, "n": len(ran)}

    @tool(side_effects=False)
    def look(name: str) -> str:
        ran.append(f"look {name}")
        return name.upper()

    steps = [
        call("write", name="a") + call("look", name="a") + call("write", name="b"),
        call("write", name="bad"),
        call("write", name=3),
        say("Done."),
    ]

    async def main() -> None:
        recorded = await record(ScriptedModel({"Team Leader": steps}), plain, tools=(write, look))
        assert sorted(ran) == ["look a", "write a", "write b", "write bad"]
        assert "OSError: disk full" in recorded.told
        ran.clear()
        made, player = replayed(recorded.cassette, tools=(write, look))
        await plain(made)
        assert ran == ["look a"]
        assert told(made) == recorded.told
        player.check()

    go(main)


def test_a_call_without_a_recorded_outcome_is_a_miss_and_never_runs() -> None:
    ran: list[int] = []

    @tool
    def write() -> str:
        ran.append(1)
        return "ok"

    async def main() -> None:
        recorded = await record(ScriptedModel({"Team Leader": [call("write"), say("Done.")]}), plain, tools=(write,))
        tape = recorded.cassette.teams[0]
        tape.outcomes.clear()
        player = Player(tape)
        (played,) = player.tools((write,))
        with pytest.raises(ReplayMiss, match="it holds no outcome of write, call call_team_leader_1_1 of agent 0"):
            await player.outcome(0, "call_team_leader_1_1", "write")
        assert played.definition == write.definition
        assert ran == [1]

    go(main)


# -- tempo ------------------------------------------------------------------------------


def test_at_recorded_tempo_the_pauses_are_kept_and_scaled() -> None:
    async def main() -> None:
        tape = Tape(order=[Step("Team Leader", "request", 1), Step("Team Leader", "response", 1)])
        asked = Digester(Scrubber()).of(ModelRequest("Team Leader", 1, ()))
        tape.responses.append(Response("Team Leader", 1, "m", asked, [Chunk(400, "a"), Chunk(800, "b")], 400, "stop"))
        loop = asyncio.get_running_loop()
        for speed, least, most in ((10.0, 0.15, 0.6), (None, 0.0, 0.1)):
            player = Player(tape, speed=speed)
            begin = loop.time()
            events = [event async for event in player.model("m").stream(ModelRequest("Team Leader", 1, ()))]
            assert least <= loop.time() - begin <= most
            assert events == [TextDelta("a"), TextDelta("b"), Finished("ab", finish="stop", model="m")]

    go(main)


def test_a_slow_tempo_is_no_stall() -> None:
    async def main() -> None:
        steps = {"Team Leader": [call("create_sub_agent", agent_id=1, role_id="ui-operator", task="x"), say("a")]}
        steps |= {"UI Operator_1": [say("slow")]}
        model: Model = ScriptedModel(steps, check_on_close=False)
        recorded = await record(model, plain)
        cassette = recorded.cassette
        for response in cassette.teams[0].responses:
            response.stream = [Chunk(150, chunk.text) for chunk in response.stream]
        made, player = replayed(cassette, speed=1.0, stall=0.03)
        await plain(made)
        assert player.miss is None
        assert told(made) == recorded.told

    go(main)


# -- several teams ----------------------------------------------------------------------


def test_teams_of_one_notebook_are_kept_and_replayed_in_the_order_of_their_making(tmp_path: Path) -> None:
    path = tmp_path / "lesson.cassette.json"
    recorders.start_over(path)
    one, two = open_recorder(path, {"n": 1}), open_recorder(str(path), {"n": 2})
    assert isinstance(one, Recorder)
    assert not path.exists()
    two.save()
    first = path.read_bytes()
    assert [tape.facts for tape in Cassette.load(path).teams] == [{"n": 1}, {"n": 2}]
    go(lambda: one.admit("human", "human", 1))
    one.close()
    assert path.read_bytes() != first

    players.rewind(path)
    played = [open_player(path)[0].facts["n"] for _ in range(2)]
    assert played == [1, 2]
    with pytest.raises(ReplayMiss, match=r"team 3 is asked for and 2 were recorded; restart the kernel"):
        open_player(path)
    assert open_player(path, 0)[0].facts == {"n": 1}
    players.rewind(path)
    assert open_player(path)[0].facts == {"n": 1}
    recorders.start_over(path)
    open_recorder(path, {"n": 3}).save()
    assert [tape.facts for tape in Cassette.load(path).teams] == [{"n": 3}]


def test_what_there_is_can_be_saved_in_the_middle_of_a_run(tmp_path: Path) -> None:
    path = tmp_path / "x.cassette.json"

    async def main() -> None:
        recorder = Recorder()
        model = recorder.model(ScriptedModel({"Team Leader": [say("one two three")]}))
        stream = model.stream(ModelRequest("Team Leader", 1, ()))
        assert await anext(stream) == TextDelta("one ")
        recorder.save(path)
        assert Cassette.load(path).teams[0].responses[0].finish == ""
        await stream.aclose()  # type: ignore[attr-defined]
        recorder.save(path)
        response = Cassette.load(path).teams[0].responses[0]
        assert ([chunk.text for chunk in response.stream], response.finish) == (["one "], "")

    go(main)


def test_a_failed_run_is_saved_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "x.cassette.json"

    async def main() -> None:
        recorded = await record(ScriptedModel({"Team Leader": [fail(ModelRefused("no", status=403))]}), plain)
        path.write_bytes(recorded.data)
        failure = Cassette.load(path).teams[0].responses[0].failure
        assert failure == Failure("ModelRefused", "no", 403)

    go(main)
