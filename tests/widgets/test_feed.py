"""What goes to a page: any history, any flushes, any losses, and the page's own store shows the state."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import histories
from support.pages import Pages, pages
from support.stage import DESIGN, RESEARCH, Stage

from astrion_nb.envelope import parse
from astrion_nb.errors import EnvelopeError
from astrion_nb.events import ConversationFiled, ConversationStarted, Event, ModelLoading, Stamped, TextStreamed
from astrion_nb.ids import HUMAN_ID, LEADER_ID
from astrion_nb.messages import Message
from astrion_nb.printable import one_field
from astrion_nb.render.markdown import tree
from astrion_nb.state import AgentState, TeamState, apply
from astrion_nb.widgets import lanes
from astrion_nb.widgets.bubbles import LONGEST, against, body
from astrion_nb.widgets.feed import WARNINGS, Feed
from astrion_nb.widgets.lanes import ALL, LEAST, window_of

TICK = 0.1


@pytest.fixture(scope="module")
def browser() -> Iterator[Pages]:
    with pages() as running:
        yield running


def feed_of(stage: Stage, **options: Any) -> Feed:
    feed = Feed(lambda: stage.state, cost=lambda: stage.cost, now=lambda: 0.0, **options)
    stage.watch(feed.push)
    return feed


# -- what a page must show, by simple rules of its own -------------------------------------


def shown_messages(agent: AgentState) -> list[tuple[int, Message]]:
    return [
        (index, message)
        for index, message in enumerate(agent.messages)
        if message.role == "user"
        or (message.role == "assistant" and (message.tool_calls or (message.content or "").strip()))
    ]


def content_of(agent: AgentState, message: Message) -> str:
    if message.role == "user" and not (agent.agent_id == LEADER_ID and "envelope_id" not in message.metadata):
        try:
            return parse(message.content or "").content
        except EnvelopeError:
            pass
    return message.content or ""


def check(page: dict[str, Any], state: TeamState) -> None:
    assert not page["waiting"]
    assert {agent["id"] for agent in page["agents"]} == set(state.agents)
    team = page["team"]
    assert (team["title"], team["run"], team["status"]) == (one_field(state.title), state.run, state.run_status)
    assert len(page["warnings"]) == min(WARNINGS, len(state.warnings))
    waiting = [question for question in state.open_questions() if question.answerer == HUMAN_ID]
    assert [question["id"] for question in page["questions"]] == [question.id for question in waiting]
    for shown in page["agents"]:
        agent = state.agents[shown["id"]]
        assert (shown["status"], shown["detail"]) == (agent.status, agent.detail)
        assert (shown["tokens"], shown["inbox"]) == (agent.tokens.total, len(agent.pending))
        assert shown["waits"] == [q.answerer for q in state.open_questions() if q.asker == agent.agent_id]
        messages = shown_messages(agent)
        assert shown["count"] == len(messages)
        window = messages[-window_of(len(state.agents)) :]
        assert [bubble["n"] for bubble in shown["bubbles"]] == [index for index, _ in window]
        results = {m.tool_call_id: m.content for m in agent.messages if m.role == "tool"}
        for bubble, (_, message) in zip(shown["bubbles"], window, strict=True):
            assert bubble["nodes"] == tree(content_of(agent, message))
            calls = bubble.get("calls", [])
            assert [call["name"] for call in calls] == [call.name for call in message.tool_calls]
            for call, made in zip(calls, message.tool_calls, strict=True):
                assert ("out" in call) == (made.id in results)


# -- a conducted team ------------------------------------------------------------------------

TEXTS = st.sampled_from(
    [
        "",
        " ",
        "Hello",
        "我们先看",
        "**bold** and `code`",
        "a\n\nb",
        "x" * 50,
        "😀 smile",
        "| a |\n| - |\n| b |",
        "\x00",
        "1. one",
    ]
) | st.text(max_size=12)
ACTIONS = st.sampled_from(
    [
        *("create", "token", "token", "token", "token", "request", "says", "says_streamed", "call", "result"),
        *("queue", "read", "ask", "ask_person", "answer", "status", "warn", "run", "end"),
        *("flush", "flush", "flush", "drop", "snapshot"),
    ]
)


STEPS = st.lists(st.tuples(ACTIONS, st.integers(0, 30), TEXTS), max_size=60)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_a_page_shows_the_state_whatever_happens_and_whatever_is_lost(
    browser: Pages, actions: list[tuple[str, int, str]]
) -> None:
    conduct(browser, actions)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_so_it_does_when_its_windows_are_small_and_shrink(browser: Pages, actions: list[tuple[str, int, str]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "WINDOW", 4)
        patch.setattr(lanes, "ALL", 8)
        patch.setattr(lanes, "LEAST", 1)
        conduct(browser, actions)


@pytest.mark.parametrize("later", range(8))
def test_a_report_repeats_only_what_the_page_still_has(
    browser: Pages, monkeypatch: pytest.MonkeyPatch, later: int
) -> None:
    monkeypatch.setattr(lanes, "WINDOW", 4)
    monkeypatch.setattr(lanes, "LEAST", 1)
    stage = Stage()
    feed = feed_of(stage)
    sent = [feed.take()]
    stage.create(1, "Worker", 1, "go")
    stage.says(1, "My **report**")
    for number in range(later):
        stage.gets(1, "message", f"note {number}")
    sent.append(feed.take())
    stage.queue(0, "completion", "My **report**", sender=1)
    stage.reads(0)
    sent.append(feed.take())
    (page,) = browser.show(sent)  # type: ignore[arg-type]
    assert page["asked"] == 0
    assert page["agents"][0]["bubbles"][-1]["nodes"] == tree("My **report**")
    assert ("copy" in json.dumps(sent[-1])) == (later < 4)


def conduct(browser: Pages, actions: list[tuple[str, int, str]]) -> None:
    """Let a team do things, flush and lose at will, and hold three pages against its state."""
    stage = Stage(now=lambda: 0.0)
    feed = feed_of(stage)
    whole: list[dict[str, Any]] = []  # for a page that misses nothing
    lossy: list[dict[str, Any]] = []
    ids = itertools.count(1)
    streamed: dict[int, str] = {}

    def deliver(message: dict[str, Any] | None, *, lost: bool = False) -> None:
        if message is not None:
            message = json.loads(json.dumps(message))
            whole.append(message)
            if not lost:
                lossy.append(message)

    deliver(feed.take())
    for action, number, text in actions:
        agents = sorted(stage.state.agents)
        agent = stage.state.agents[agents[number % len(agents)]]
        who = agent.agent_id
        open_questions = stage.state.open_questions()
        if action == "create":
            stage.create(max(agents) + 1, "Worker", max(agents) + 1, text or "task")
        elif action == "token":
            stage.token(who, text, reasoning=number % 7 == 0)
            streamed[who] = streamed.get(who, "") + (text if number % 7 else "")
        elif action == "request":
            stage.request(who)
            streamed[who] = ""
        elif action == "says":
            stage.says(who, text)
            streamed[who] = ""
        elif action == "says_streamed":
            stage.says(who, streamed.get(who, "") or None, *([("f", {"a": text})] if number % 2 else []))
            streamed[who] = ""
        elif action == "call":
            stage.says(who, None, ("f", {"a": text}), ("g", {"b": number}))
        elif action == "result" and agent.open_calls:
            asked = {question.call_id for question in open_questions}
            free = [call for call in agent.open_calls if call not in asked]
            if free:
                stage.result(who, free[0], {"success": number % 2 == 0, "text": text})
        elif action == "queue":
            sender = agents[(number // 3) % len(agents)]
            said = stage.state.agents[sender].last_text if number % 2 else text
            stage.queue(who, "completion" if who == LEADER_ID else "message", said, sender=sender)
        elif action == "read":
            stage.reads(who)
        elif action == "ask":
            stage.asks(f"ask_{next(ids)}", who, agents[(number + 1) % len(agents)], text)
        elif action == "ask_person":
            stage.asks(f"ask_{next(ids)}", who, HUMAN_ID, text)
        elif action == "answer" and open_questions:
            stage.answer(open_questions[number % len(open_questions)].id, text)
        elif action == "status":
            stage.status(who, ("idle", "running", "completed", "terminated")[number % 4], error=text)  # type: ignore[arg-type]
        elif action == "warn":
            stage.warns(text)
        elif action == "run":
            stage.start(text or "go")
        elif action == "end":
            stage.end()
        elif action in ("flush", "drop"):
            deliver(feed.take(), lost=action == "drop")
        elif action == "snapshot":
            deliver(feed.take())
            deliver(feed.snapshot(), lost=number % 2 == 0)
    deliver(feed.take())
    last = json.loads(json.dumps(feed.snapshot()))
    complete, recovered, fresh = browser.show(whole, [*lossy, {"v": 1, "kind": "mark", "seq": feed.seq}, last], [last])
    check(fresh, stage.state)
    assert complete["asked"] == 0
    assert {**complete, "seq": 0} == {**fresh, "seq": 0}
    assert {**recovered, "seq": 0, "asked": 0} == {**fresh, "seq": 0}


@settings(max_examples=100, deadline=None)
@given(histories.steps, st.lists(st.integers(0, 5), min_size=1, max_size=20))
def test_any_lawful_history_is_shown_as_its_state(
    browser: Pages, choices: list[tuple[str, int, str, Any]], pauses: list[int]
) -> None:
    state = TeamState()
    feed = Feed(lambda: state, now=lambda: 0.0)
    messages = [feed.take()]
    pause = itertools.cycle(pauses)
    left = next(pause)
    for stamped in histories.build(choices):
        apply(state, stamped.event, seq=stamped.seq, t=stamped.t)
        feed.push(stamped)
        if left == 0:
            messages.append(feed.take())
            left = next(pause) + 1
        left -= 1
    messages.append(feed.take())
    sent = json.loads(json.dumps([message for message in messages if message]))
    grown, fresh = browser.show(sent, [json.loads(json.dumps(feed.snapshot()))])
    assert {**grown, "seq": 0} == {**fresh, "seq": 0}
    assert fresh["team"]["title"] == one_field(state.title)
    assert {agent["id"]: agent["status"] for agent in fresh["agents"]} == {
        number: agent.status for number, agent in state.agents.items()
    }


# -- single behaviours ------------------------------------------------------------------------


@settings(max_examples=400, deadline=None)
@given(
    st.text(alphabet=st.sampled_from("ab 我1.-*_`[]<>&#|~!\\\n\t:)(=+\u3000\xa0\x00"), max_size=14)
    | st.text(max_size=20)
)
def test_a_text_travels_as_a_string_only_when_that_is_its_tree(text: str) -> None:
    shown = body(text)
    assert (([{"t": "p", "c": [shown]}] if shown else []) if isinstance(shown, str) else shown) == tree(text)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from([*"ab \n\n我*`_|-#>1.", "**", "[x](https://a.b)", "\n\n- ", "&amp;", "```\n", "\n> ", "😀"]),
        max_size=40,
    )
)
def test_a_tree_of_pieces_is_the_tree(browser: Pages, parts: list[str]) -> None:
    text = "".join(parts)
    stage = Stage()
    feed = feed_of(stage)
    sent = [feed.take()]
    stage.create(1, "Worker", 1, "go")
    stage.token(1, text[: len(text) // 2] or "x")
    sent.append(feed.take())
    if text[: len(text) // 2]:
        stage.says(1, text)
    sent.append(feed.take())
    (page,) = browser.show([message for message in sent if message])
    if text[: len(text) // 2] and text.strip():
        assert page["agents"][1]["bubbles"][-1]["nodes"] == tree(text)
    assert json.dumps(against(tree(text), text)) is not None


def test_what_was_streamed_is_not_sent_again() -> None:
    for text in (RESEARCH["en"], RESEARCH["zh"], DESIGN["zh"], "One plain paragraph. " * 20 + "End"):
        stage = Stage()
        feed = feed_of(stage)
        feed.take()
        stage.create(1, "Worker", 1, "go")
        for at in range(0, len(text), 7):
            stage.token(1, text[at : at + 7])
            if at % 35 == 0:
                feed.take()
        stage.says(1, text)
        stage.status(1, "completed")
        stage.queue(0, "completion", text, sender=1)
        stage.reads(0)
        message = feed.take()
        assert message is not None
        said = [event for event in message["events"] if event["t"] == "say"]
        dumped = json.dumps(said, ensure_ascii=False)
        sent = text[:-40]
        assert not [sent[at : at + 12] for at in range(0, len(sent) - 12, 12) if sent[at : at + 12] in dumped]
        assert [event.get("copy") for event in said if event["a"] == 0] == [[1, 2]]


def test_nothing_of_a_finished_message_is_kept_but_the_latest_texts() -> None:
    stage = Stage()
    feed = feed_of(stage)
    stage.create(1, "Worker", 1, "go")
    for number in range(50):
        (call,) = stage.says(1, f"text {number}", ("f", {}))
        stage.token(1, "streamed")
        feed.take()
        stage.result(1, call, "done")
        stage.says(1, f"streamed {number}")
        feed.take()
    lane = feed._lanes[1]
    assert (lane.ended, lane.calls, lane.pieces, lane.thoughts, lane.sent) == ({}, {}, [], [], [])
    assert len(lane.said) <= 4


def test_a_text_beyond_measure_is_cut_and_says_so() -> None:
    shown = body("word " * LONGEST)
    assert len(json.dumps(shown)) < LONGEST + 200
    assert f"{LONGEST:,} / {5 * LONGEST:,}" in json.dumps(shown)


def test_a_larger_team_has_smaller_windows_and_the_page_stays_bounded() -> None:
    sizes = [window_of(number) for number in range(1, 1000)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 40
    assert all(size * number <= max(ALL, LEAST * number) for number, size in enumerate(sizes, 1))


def test_a_title_that_is_given_while_everybody_rests_is_shown_at_once(browser: Pages) -> None:
    stage = Stage()
    feed = feed_of(stage)
    sent = [feed.take()]
    stage.tell(ConversationFiled("Another title"))
    sent.append(feed.take())
    (page,) = browser.show([message for message in sent if message])
    assert page["team"]["title"] == "Another title"


def test_questions_to_a_human_leader_are_the_persons(browser: Pages) -> None:
    stage = Stage(leader="human")
    feed = feed_of(stage)
    stage.create(1, "Worker", 1, "go")
    stage.asks("ask_1", 1, LEADER_ID, "Which branch?")
    (page,) = browser.show([feed.take()])  # type: ignore[list-item]
    assert [question["id"] for question in page["questions"]] == ["ask_1"]


def test_a_question_that_the_leader_left_goes_to_the_person(browser: Pages) -> None:
    from astrion_nb.events import QuestionPassed

    stage = Stage()
    feed = feed_of(stage)
    sent = [feed.take()]
    stage.create(1, "Worker", 1, "go")
    stage.asks("ask_1", 1, LEADER_ID, "Which branch?")
    sent.append(feed.take())
    stage.tell(QuestionPassed("ask_1"))
    sent.append(feed.take())
    before, after = browser.show(sent[:2], sent)  # type: ignore[arg-type]
    assert (before["questions"], before["agents"][1]["waits"]) == ([], [LEADER_ID])
    assert ([q["id"] for q in after["questions"]], after["agents"][1]["waits"]) == (["ask_1"], [HUMAN_ID])


def test_a_state_that_is_another_object_is_another_beginning(browser: Pages) -> None:
    one, other = Stage(), Stage()
    one.create(1, "Old", 1, "go")
    now = one
    feed = Feed(lambda: now.state)
    sent = [feed.take()]
    now = other
    other.watch(feed.push)
    other.create(1, "New", 1, "go")
    sent.append(feed.take())
    (page,) = browser.show(sent)  # type: ignore[arg-type]
    assert page["agents"][1]["name"] == "New_1"
    check(page, other.state)


def test_an_answer_without_anything_to_show_wipes_what_was_streamed(browser: Pages) -> None:
    stage = Stage()
    feed = feed_of(stage)
    sent = [feed.take()]
    stage.token(0, " ")
    sent.append(feed.take())
    stage.says(0, " ")
    sent.append(feed.take())
    grown, fresh = browser.show(sent, [feed.snapshot()])  # type: ignore[arg-type]
    assert grown["agents"][0]["live"][1] == ""
    assert {**grown, "seq": 0} == {**fresh, "seq": 0}


def test_text_streamed_before_the_state_is_known_is_shown(browser: Pages) -> None:
    nobody = TeamState()
    stage = Stage()
    now = nobody
    feed = Feed(lambda: now)
    sent = [feed.take()]
    now = stage.state
    stage.watch(feed.push)
    stage.token(0, "early")
    sent.append(feed.take())
    (page,) = browser.show(sent)  # type: ignore[arg-type]
    assert page["agents"][0]["live"][1] == "early"


def test_the_cost_is_looked_at_once_a_second() -> None:
    stage = Stage()
    clock, looks = 0.0, 0

    def cost() -> float:
        nonlocal looks
        looks += 1
        return 0.01 * looks

    feed = Feed(lambda: stage.state, cost=cost, now=lambda: clock)
    stage.watch(feed.push)
    feed.take()
    looks = 0
    for _ in range(100):
        clock += TICK
        stage.token(0, "x")
        feed.take()
    assert 8 <= looks <= 11


def test_a_cost_that_changed_before_a_snapshot_reaches_the_pages_that_need_none(browser: Pages) -> None:
    stage = Stage()
    stage.cost = 0.0
    feed = feed_of(stage)
    sent = [feed.take()]
    stage.start("go")
    sent.append(feed.take())
    stage.cost = 0.5
    joined = len(sent)
    sent.append(feed.snapshot())  # another page asked for it
    one, two = browser.show(sent, sent[joined:])  # type: ignore[arg-type]
    assert one["cost"] == two["cost"]
    stage.end()
    sent.append(feed.take())
    one, two = browser.show(sent, sent[joined:])  # type: ignore[arg-type]
    assert one == two
    assert one["cost"] == 0.5


# -- budgets ------------------------------------------------------------------------------------


def test_twenty_agents_at_fifty_tokens_a_second_stay_within_the_budget_of_bytes_and_messages() -> None:
    from jupyter_client.session import Session

    session = Session(key=b"k")
    tokens = ["lorem" if n % 2 else "我们" if n % 4 else " ipsum" for n in range(500)]
    text = "".join(tokens)
    stage = Stage()
    feed = feed_of(stage)
    feed.take()
    stage.start("go")
    for number in range(1, 21):
        stage.create(number, "Worker", number, "Do an item")
    sent: list[dict[str, Any]] = []

    def flush() -> None:
        message = feed.take()
        if message is not None:
            sent.append(message)

    for at in range(0, 500, 5):
        for number in range(1, 21):
            for token in tokens[at : at + 5]:
                stage.token(number, token)
        flush()
    for number in range(1, 21):
        stage.says(number, text)
        stage.status(number, "completed")
        stage.queue(0, "completion", text, sender=number)
        flush()
    stage.reads(0)
    flush()
    packed = sum(
        len(
            session.serialize(
                session.msg("comm_msg", {"data": {"method": "custom", "content": m}, "comm_id": "c" * 32})
            )[-1]
        )
        for m in sent
    )
    assert packed / (20 * len(text.encode())) <= 2.5
    assert len(sent) / (500 / 50 + 21 * TICK) <= 12


def test_a_token_costs_almost_nothing() -> None:
    feed = Feed(TeamState)
    stamped = Stamped(1, 0.0, TextStreamed(1, "token"))

    def run() -> float:
        begin = time.perf_counter()
        for _ in range(5000):
            feed.push(stamped)
        return (time.perf_counter() - begin) / 5000

    assert min(run() for _ in range(7)) < 2e-6


@pytest.mark.parametrize("end", [ModelLoading("", 3.0), TextStreamed(LEADER_ID, "Hello")], ids=["loaded", "answers"])
def test_a_model_that_is_being_loaded_is_shown_until_it_is_there_or_answers(end: Event) -> None:
    state = TeamState()
    feed = Feed(lambda: state, banner=lambda: "A small model answers.", now=lambda: 0.0)
    for seq, event in enumerate((ConversationStarted("c", "", "", "m", "fast", "model", "en", ""),), start=1):
        apply(state, event, seq=seq, t=0.0)
        feed.push(Stamped(seq, 0.0, event))
    first = feed.take()
    assert first is not None
    assert first["state"]["team"]["banner"] == "A small model answers."
    feed.push(Stamped(1, 0.0, ModelLoading("loading smollm2", 2.0)))
    told = feed.take()
    assert told is not None
    assert told["event"]["loading"] == "loading smollm2 (2 s)"
    feed.push(Stamped(1, 0.0, end))
    after = feed.take()
    assert after is not None
    assert [event["loading"] for event in after.get("events") or [after["event"]]] == [""]
    feed.push(Stamped(1, 0.0, ModelLoading("", 3.0)))
    assert feed.take() is None
