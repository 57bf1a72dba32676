"""Clicks on every kernel: with and without subshells, between cells, while a cell waits, in a storm.

Each test runs on the installed kernel, and with the slow tests on every other one.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.casts import Cast, play, said
from support.live_kernel import Cell, Kernel
from support.strict_server import StrictServer, calls, text

pytestmark = pytest.mark.faults

VIEW = "application/vnd.jupyter.widget-view+json"
Click = Callable[..., None]


@pytest.fixture
def kernel(each_kernel: Kernel) -> Kernel:
    each_kernel.ok("%load_ext astrion_nb", timeout=60)
    return each_kernel


def ask(number: int) -> list[Any]:
    """An agent's question to the person who leads."""
    return calls(("ask_master", {"question": f"Which sea, {number}?", "question_id": f"sea-{number}"}))


def seen(kernel: Kernel, words: str) -> bool:
    """Whether the kernel has sent some words, whichever cell it named."""
    everything = [message for cell in kernel.cells.values() for message in cell.messages] + kernel.stray
    return any(words in json.dumps(message["content"]) for message in everything)


def clicks(kernel: Kernel, cell: Cell, subshell: str | None) -> Click:
    """Return what speaks as the page that shows a cell's view."""
    kernel.until(lambda: bool(cell.displays), what="the view")
    identifier = cell.displays[0][VIEW]["model_id"]

    def click(kind: str, **payload: Any) -> None:
        data = {"method": "custom", "content": {"v": 1, "kind": kind, **payload}}
        kernel.comm(identifier, data, subshell=subshell)

    return click


def rests(kernel: Kernel) -> None:
    kernel.ok("import time\nwhile team.running:\n    time.sleep(0.02)")


def test_a_click_between_cells_is_answered_on_the_main_shell(kernel: Kernel, server: StrictServer) -> None:
    cast = play(server, member=[ask(1), text("The North Sea it is.")])
    cell = kernel.ok("%%team --leader human --roles researcher\nFind a sea.", timeout=60)
    click = clicks(kernel, cell, None)
    click("hello", since=0)
    kernel.until(lambda: seen(kernel, "Which sea, 1?"), what="the question in the view")
    click("answer", question_id="sea-1", text="the North Sea")
    server.wait_for(lambda: len(cast.member_requests) == 2)
    assert "the North Sea" in said(cast.member_requests[1])
    rests(kernel)


def test_a_click_is_answered_at_once_while_the_kernel_idles_and_while_a_cell_waits(
    kernel: Kernel, server: StrictServer
) -> None:
    if not kernel.subshells:
        waits_without_subshells(kernel, server)
        return
    states = ("", "await team.wait()", "%astrion wait", "import asyncio; await asyncio.sleep(4)")
    for state in states:
        asked = len(server.requests)
        play(server, member=[*(ask(n) for n in (1, 2, 3)), text("Enough.")])
        cell = kernel.ok("%%team --leader human --roles researcher --no-wait\nFind seas.", timeout=60)
        click = clicks(kernel, cell, kernel.subshell())
        click("hello", since=0)
        waiting = kernel.send(state) if state else None
        took = []
        for number in (1, 2, 3):
            kernel.until(lambda n=number: seen(kernel, f"Which sea, {n}?"), what="the question")
            begun = time.monotonic()
            click("answer", question_id=f"sea-{number}", text=f"sea {number}")
            server.wait_for_requests(asked + number + 1)
            took.append(time.monotonic() - begun)
        assert min(took) < 0.5, f"{state or 'idle'}: {took}"
        assert max(took) < 2.0, f"{state or 'idle'}: {took}: not only when something else wakes the loop"
        if waiting is not None:
            kernel.finish(waiting)
            assert (waiting.status, waiting.prompts) == ("ok", []), "who can click is not asked for a line"
        rests(kernel)
        kernel.ok("%unload_ext astrion_nb\n%load_ext astrion_nb")
        kernel.forget()


def test_a_click_on_its_way_when_the_run_ends_still_arrives(kernel: Kernel, server: StrictServer) -> None:
    """The page has not yet heard that its view is gone: what was written there is delivered, and acknowledged."""
    for number, flag in enumerate(("", "--no-wait", "--wait")):
        cast = play(server, member=[text("Seen.")] * 3)
        cell = kernel.ok(f"%%team --leader human --roles researcher {flag}\nFind a sea.", timeout=60)
        rests(kernel)
        if flag == "--no-wait":
            kernel.ok("%astrion wait")  # which shows the transcript instead of the view
        click = clicks(kernel, cell, kernel.subshell() if kernel.subshells else None)
        click("send", target="Researcher_1", text=f"One thing more, {number}.", req=f"late-{number}")
        kernel.until(lambda n=number: seen(kernel, f"late-{n}"), what="the acknowledgement")
        server.wait_for(lambda c=cast: len(c.member_requests) == 2)
        assert f"One thing more, {number}." in said(cast.member_requests[1])
        assert not seen(kernel, "No such comm")
        rests(kernel)
        kernel.ok("%unload_ext astrion_nb\n%load_ext astrion_nb")
        kernel.forget()


def waits_without_subshells(kernel: Kernel, server: StrictServer) -> None:
    """No click arrives while a cell waits: the cell asks in its own line, and the click is late and harmless."""
    cast = play(server, member=[ask(1), text("The North Sea it is.")])
    kernel.answers.append("the North Sea")
    waiting = kernel.send("%%team --leader human --roles researcher --wait\nFind a sea.")
    click = clicks(kernel, waiting, None)
    click("answer", question_id="sea-1", text="too late", req="r1")
    kernel.finish(waiting, timeout=60)
    assert waiting.prompts == ["Researcher_1 asks (sea-1): Which sea, 1?\n> "]
    assert "the North Sea" in said(cast.member_requests[1])
    assert "too late" not in kernel.ok("%astrion show").text


def test_a_waiting_cell_is_answered_by_a_magic_on_a_subshell(kernel: Kernel, server: StrictServer) -> None:
    if not kernel.subshells:
        return  # there the cell asks in its own line, as above
    cast = play(server, member=[ask(1), text("The North Sea it is.")])
    waiting = kernel.send("%%team --leader human --roles researcher --wait\nFind a sea.")
    console = kernel.subshell()
    kernel.until(lambda: seen(kernel, "Which sea, 1?"), timeout=60, what="the question in the view")
    answered = kernel.finish(kernel.send("%answer sea-1 the North Sea", subshell=console))
    assert answered.status == "ok"
    kernel.finish(waiting)
    assert (waiting.status, waiting.prompts) == ("ok", [])
    assert "the North Sea" in said(cast.member_requests[1])


QUESTIONS, EACH, SENDS, CELLS = 5, 20, 100, 30


def test_two_hundred_clicks_beside_a_working_cell_lose_and_double_no_answer_and_no_message(
    kernel: Kernel, server: StrictServer, home: Path
) -> None:
    cast = play(server, member=[*(ask(n) for n in range(QUESTIONS)), text("Seen.")])
    roles = ",".join(["researcher"] * QUESTIONS)
    cell = kernel.ok(f"%%team --leader human --roles {roles}\nFind seas.", timeout=60)
    click = clicks(kernel, cell, kernel.subshell() if kernel.subshells else None)
    click("hello", since=0)
    for number in range(QUESTIONS):
        kernel.until(lambda n=number: seen(kernel, f"Which sea, {n}?"), what="the questions")
    busy = kernel.send(
        f"for n in range({CELLS}):\n"
        f"    await team.send(f'Researcher_{{1 + n % {QUESTIONS}}}', f'cell {{n}}.')\n    sum(range(20000))"
    )
    for number in range(QUESTIONS * EACH):
        question, try_ = number % QUESTIONS, number // QUESTIONS
        click("answer", question_id=f"sea-{question}", text=f"try {try_} at {question}.", req=f"a{question}-{try_}")
        click("send", target=f"Researcher_{1 + question}", text=f"click {number}.", req=f"s{number}")
    kernel.finish(busy)
    assert busy.status == "ok", busy.error
    acknowledged: dict[str, list[str]] = {}

    def take() -> bool:
        acknowledged.clear()
        for message in [m for each in kernel.cells.values() for m in each.messages] + kernel.stray:
            data = message["content"].get("data") or {}
            if message["msg_type"] == "comm_msg" and (data.get("content") or {}).get("kind") == "ack":
                acknowledged.setdefault(data["content"]["req"], []).append(data["content"].get("error", ""))
        return len(acknowledged) == 2 * QUESTIONS * EACH

    kernel.until(take, what="an acknowledgement of every click")
    assert all(len(errors) == 1 for errors in acknowledged.values())
    assert [req for req, errors in acknowledged.items() if req.startswith("s") and errors != [""]] == []
    taken = sorted(req.split("-")[0] for req, errors in acknowledged.items() if req.startswith("a") and errors == [""])
    assert taken == [f"a{n}" for n in range(QUESTIONS)], "each question is answered once"
    late = [errors[0] for req, errors in acknowledged.items() if req.startswith("a") and errors != [""]]
    assert all("already answered" in error for error in late)
    rests(kernel)
    kernel.ok("%unload_ext astrion_nb")
    check_documents(home, acknowledged, cast)


def check_documents(home: Path, acknowledged: dict[str, list[str]], cast: Cast) -> None:
    """What lies in every agent's messages.json: each message once, each call with one result."""
    (conversation,) = (home / "mutiagents" / "conversations").glob("conv_*")
    documents = [json.loads(path.read_text("utf-8")) for path in conversation.rglob("messages.json")]
    histories = [found["messages"] for found in documents if any(m["role"] == "system" for m in found["messages"])]
    assert len(histories) == QUESTIONS
    heard: Counter[str] = Counter()
    answers: list[str] = []
    for history in histories:
        ids = [message["message_id"] for message in history if message["role"] != "system"]
        assert len(ids) == len(set(ids))
        asked = [call["id"] for message in history for call in message.get("tool_calls") or ()]
        got = [message["tool_call_id"] for message in history if message["role"] == "tool"]
        assert sorted(asked) == sorted(got)
        answers += [message["content"] for message in history if message["role"] == "tool"]
        for message in history:
            if message["role"] == "user":
                heard.update(line for line in message["content"].split("\n") if line.startswith(("click ", "cell ")))
    expected = [*(f"click {n}." for n in range(QUESTIONS * EACH)), *(f"cell {n}." for n in range(CELLS))]
    assert heard == Counter(expected)
    first = [req for req, errors in acknowledged.items() if req.startswith("a") and errors == [""]]
    for req in first:
        question, try_ = req[1:].split("-")
        assert sum(f"try {try_} at {question}." in answer for answer in answers) == 1
    assert len(answers) == QUESTIONS
    assert cast.leader_requests == []
