"""What a stream costs and shows at a real kernel: how soon, how many messages, the same on every page.

Each test runs on the installed kernel, and with the slow tests on every other one.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from support.casts import create, play, well
from support.live_kernel import Kernel
from support.pages import pages
from support.strict_server import Gate, Reply, StrictServer, calls, text

pytestmark = pytest.mark.faults

VIEW = "application/vnd.jupyter.widget-view+json"
STATIC = {"text/html", "text/markdown", "text/plain"}
AGENTS, RATE, TOKENS = 8, 200, 500


@pytest.fixture
def kernel(each_kernel: Kernel) -> Kernel:
    each_kernel.ok("%load_ext astrion_nb", timeout=60)
    return each_kernel


def everything(kernel: Kernel) -> list[dict[str, Any]]:
    """Return all that the kernel has sent, whichever cell it named, in the order of sending."""
    messages = [message for cell in kernel.cells.values() for message in cell.messages] + kernel.stray
    return sorted(messages, key=lambda message: message["header"]["date"])


def told(kernel: Kernel, view: str) -> list[dict[str, Any]]:
    """Return what a page that was there from the beginning was told."""
    sent = [m["content"] for m in everything(kernel) if m["msg_type"] == "comm_msg"]
    return [m["data"]["content"] for m in sent if m["comm_id"] == view and m["data"].get("method") == "custom"]


def word(agent: int, number: int) -> str:
    return f"w{agent}x{number}. "


def test_eight_agents_at_two_hundred_tokens_a_second_are_few_messages_and_every_word(
    kernel: Kernel, server: StrictServer
) -> None:
    begun: list[int] = []

    def speaks(request: dict[str, Any]) -> Reply:
        begun.append(len(begun))
        words = [word(begun[-1], number) for number in range(TOKENS)]
        return Reply(text(*words), pace=1 / RATE)

    play(server, leader=[calls(*(create(number) for number in range(1, AGENTS + 1))), well], member=[speaks])
    cell = kernel.ok("%%team --no-wait\nSpeak, all of you.", timeout=60)
    view = cell.displays[0][VIEW]["model_id"]
    kernel.until(
        lambda: '"t": "team", "status": "completed"' in json.dumps(told(kernel, view)[-9:]), timeout=60, what="the end"
    )
    kernel.listen(0.5)
    assert len(begun) == AGENTS
    sent = [message["header"]["date"].timestamp() for message in everything(kernel)]
    streamed = sent[-1] - sent[0]
    assert AGENTS * TOKENS / streamed > 2 * RATE, f"{AGENTS * TOKENS} tokens in {streamed:.1f} s are no test of this"
    busiest = max(sum(start <= at < start + 1 for at in sent) for start in sent)
    assert busiest <= 30, "a second holds ten messages of a view, and what its cell shows"
    with pages() as browser:
        (shown,) = browser.show(told(kernel, view))
    seen = json.dumps(shown)
    transcript = kernel.ok("%astrion wait").displays[-1]["text/plain"]
    for agent in range(AGENTS):
        words = "".join(word(agent, number) for number in range(TOKENS)).strip()
        assert " ".join(transcript.split()).count(words) >= 1
        assert words[-200:] in seen, "the view shows the end of what was said"


def test_the_first_sign_comes_within_a_second_and_more_before_the_reply(kernel: Kernel, server: StrictServer) -> None:
    gate, more = Gate(), Gate()
    play(server, leader=[[*text("One word, ", reason=None, tokens=None), gate, *text("then another. "), more]])
    sent = datetime.now(UTC)
    waiting = kernel.send("%%team --wait\nTell.")
    gate.wait_reached(60)
    kernel.until(lambda: "One word, " in json.dumps([m["content"] for m in waiting.messages]), what="the first words")
    gate.release()
    more.wait_reached()
    kernel.until(lambda: "then another. " in json.dumps([m["content"] for m in waiting.messages]), what="the next")
    assert waiting.status == ""
    shown = [m for m in waiting.messages if m["msg_type"].startswith(("comm_msg", "display_data"))]
    assert len(shown) >= 3
    first = next(m for m in waiting.messages if m["msg_type"] == "display_data")
    assert (first["header"]["date"] - sent).total_seconds() < 1.0
    more.release()
    kernel.finish(waiting)


def test_one_run_is_the_same_on_every_page_whenever_it_joins_and_after_a_reload(
    kernel: Kernel, server: StrictServer
) -> None:
    gates = [Gate() for _ in range(4)]
    parts = [part for gate in gates for part in (gate, *text("More, ", reason=None, tokens=None))]
    play(server, member=[[*text("Word, ", reason=None, tokens=None), *parts, *text("the end.")]])
    cell = kernel.ok("%%team --no-wait\nLook around.", timeout=60)
    view = cell.displays[0][VIEW]["model_id"]
    show = "get_ipython()._astrion_magics.session.shown.view"
    reload = (
        "import importlib, sys\n"
        "for name in ('astrion_nb', 'astrion_nb.widgets.team', 'astrion_nb.notebook.remote'):\n"
        "    importlib.reload(sys.modules[name])\n"
    )
    shell = kernel.subshell() if kernel.subshells else None
    joined: list[int] = []
    for number, gate in enumerate(gates):
        gate.wait_reached()
        if number == 2:
            kernel.ok(reload)
        again = kernel.ok(f"from IPython.display import display\ndisplay({show})")
        assert again.displays[0][VIEW]["model_id"] == view
        joined.append(len(told(kernel, view)))
        data = {"method": "custom", "content": {"v": 1, "kind": "hello", "since": 0, "req": f"r{number}"}}
        kernel.comm(view, data, subshell=shell)
        kernel.until(lambda n=number: f'"r{n}"' in json.dumps(told(kernel, view)), what="the page's snapshot")
        gate.release()
    kernel.ok("import time\nwhile team.running:\n    time.sleep(0.02)")
    end = "the end."
    kernel.until(lambda: end in json.dumps(told(kernel, view)[-6:]), what="the last words in the view")
    kernel.listen(0.5)
    messages = told(kernel, view)
    with pages() as browser:
        shown = browser.show(messages, *(messages[start:] for start in joined))
    assert all(one == other for one, other in pairwise([{**page, "seq": 0} for page in shown]))
    assert "Word, More, More, More, More, the end." in json.dumps(shown[0])
    waited = kernel.ok("%astrion wait")
    assert [set(data) for data in waited.displays] == [STATIC]
    shows = [kernel.ok(code).displays for code in ("%astrion show", f"{reload}%astrion show", "%astrion show")]
    assert shows == [waited.displays] * 3
    assert kernel.ok("team").displays == kernel.ok("%astrion").displays


def test_two_teams_shown_alternately_show_each_their_own(kernel: Kernel, server: StrictServer) -> None:
    conversations, shown = [], []
    for name in ("first", "second"):
        play(server, leader=[text(f"The {name} team.")])
        kernel.ok(f"%%team --wait --title {name}\nGo, {name}.", timeout=60)
        conversations.append(kernel.ok("print(team.conversation_id)").out.strip())
        shown.append(kernel.ok("%astrion show").displays)
    assert "The first team." in shown[0][0]["text/plain"]
    assert "The first team." not in shown[1][0]["text/plain"]
    for number in (0, 1, 0, 1):
        kernel.ok(f"%astrion resume {conversations[number]}")
        assert kernel.ok("%astrion show").displays == shown[number]
        assert kernel.ok("print(team.conversation_id)").out.strip() == conversations[number]
