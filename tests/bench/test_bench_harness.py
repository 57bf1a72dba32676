"""The harness of the benches: the fake server and the reference understand each other, wrong answers are found, and
the table says so when a budget is broken. Nothing here is timed.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import Bench, MeasurementFailed, runs
from cells import Cell
from client import WrongAnswer, check
from table import ROWS, Measured, Row, as_json, as_text, exit_code, failed, judge, not_there, pick

SMALL = Cell(3, 2, 5)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench(1) as running:
        yield running


def ask(bench: Bench, tools: list[dict[str, Any]], messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Send one streamed request; return the deltas of the answer."""
    body = json.dumps({"model": "m", "stream": True, "messages": messages, "tools": tools}).encode()
    with urllib.request.urlopen(f"{bench.url}/v1/chat/completions", body, timeout=5) as answer:
        events = [line[6:] for line in answer.read().decode().splitlines() if line.startswith("data: {")]
    return [choice["delta"] for event in events for choice in json.loads(event)["choices"]]


def tool(name: str, **properties: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}}
    return {"type": "function", "function": {"name": name, "parameters": schema | {"required": list(properties)}}}


def calls(deltas: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    for delta in deltas:
        for call in delta.get("tool_calls") or ():
            names.setdefault(call["index"], call["function"].get("name", ""))
            arguments[call["index"]] = arguments.get(call["index"], "") + call["function"]["arguments"]
    return [(names[i], json.loads(arguments[i])) for i in sorted(names)]


def text(deltas: list[dict[str, Any]]) -> str:
    return "".join(delta.get("content") or "" for delta in deltas)


@pytest.mark.parametrize("side", ["reference", "lean"])
def test_a_loop_on_the_bare_sdk_does_the_work_of_a_cell(bench: Bench, side: str) -> None:
    record = bench.client(side, SMALL, Cell(2, 0, 4, lat=5, rate=500, mixed=True))
    (run,) = runs(record, SMALL)
    assert run["requests"] == SMALL.turns == 11
    assert run["kinds"] == {"leader_fanout": 1, "worker_tool": 6, "worker_final": 3, "leader_final": 1}
    assert run["cpu"] > 0
    assert run["peak_kib"] > 1000


def test_a_client_that_fails_gives_no_figures(bench: Bench) -> None:
    with pytest.raises(MeasurementFailed, match="reference on the warm-up: no result, exit status 2"):
        bench.client("reference", more=["--no-such-argument"])


def test_the_leader_calls_the_named_delegate_with_a_role_and_numbers_from_one(bench: Bench) -> None:
    bench.get("/set/N3K1T2L0R0?delegate=create_sub_agent&role=scribe")
    offered = [tool("list_agents"), tool("create_sub_agent", agent_id="integer", role_id="string", task="string")]
    for _ in range(2):  # each fan-out counts anew
        made = calls(ask(bench, offered, [{"role": "user", "content": "go"}]))
        assert [name for name, _ in made] == ["create_sub_agent"] * 3
        assert [given["agent_id"] for _, given in made] == [1, 2, 3]
        assert {given["role_id"] for _, given in made} == {"scribe"}
        assert [given["task"] for _, given in made] == ["work item 0", "work item 1", "work item 2"]


def test_the_leader_answers_with_text_on_every_request_after_its_fan_out(bench: Bench) -> None:
    cell = Cell(2, 1, 3)
    bench.get(f"/set/{cell}?delegate=delegate")
    history: list[dict[str, Any]] = [{"role": "user", "content": "go"}, {"role": "assistant", "content": None}]
    offered = [tool("delegate", task="string")]
    assert text(ask(bench, offered, history)) == cell.answer
    assert bench.get("/stats")["answers_seen"] == 0
    history += [{"role": "user", "content": f"<Output>\n{cell.answer}\n</Output>"}] * 2
    assert text(ask(bench, offered, history)) == cell.answer
    assert bench.get("/stats")["answers_seen"] == 2


def test_a_worker_is_known_by_its_echo_whatever_else_it_is_offered(bench: Bench) -> None:
    cell = Cell(1, 1, 4, mixed=True)
    bench.get(f"/set/{cell}?delegate=create_sub_agent")
    offered = [tool("ask_master", question="string"), tool("echo", text="string")]
    history: list[dict[str, Any]] = [{"role": "user", "content": "work"}]
    assert calls(ask(bench, offered, history)) == [("echo", {"text": "ping 0 of a worker"})]
    assert text(ask(bench, offered, [*history, {"role": "assistant", "content": None}])) == cell.answer
    assert bench.get("/stats")["kinds"] == {"worker_tool": 1, "worker_final": 1}


def test_a_worker_may_be_known_by_another_tool(bench: Bench) -> None:
    cell = Cell(1, 0, 3)
    bench.get(f"/set/{cell}?delegate=create_sub_agent&worker=ask_master")
    assert (
        text(ask(bench, [tool("ask_master", question="string")], [{"role": "user", "content": "work"}])) == cell.answer
    )
    assert bench.get("/stats")["kinds"] == {"worker_final": 1}


def test_a_request_that_the_script_cannot_answer_is_refused_and_counted(bench: Bench) -> None:
    bench.get("/set/N1K1T1L0R0?delegate=create_sub_agent")
    with pytest.raises(urllib.error.HTTPError, match="400") as refused:
        ask(bench, [tool("another")], [{"role": "user", "content": "go"}])
    refused.value.close()
    assert bench.get("/stats")["bad"] == 1


def test_half_of_a_mixed_text_is_chinese() -> None:
    answer = Cell(1, 0, 500, mixed=True).answer
    chinese = "".join(letter for letter in answer if "\u4e00" <= letter <= "\u9fff")
    assert len(chinese.encode()) / len(answer.encode()) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("name", ["N100K3T50L200R100", "N1K0T1L0R0M"])
def test_a_cell_is_its_name(name: str) -> None:
    assert str(Cell.parse(f"/set/{name}?role=x")) == name


def test_what_is_no_cell_is_refused() -> None:
    with pytest.raises(ValueError, match="N100K3T50L200R100"):
        Cell.parse("N1K2")


def test_the_critical_path_is_the_fan_out_the_longest_chain_and_one_turn_of_the_leader() -> None:
    assert Cell(100, 3, 50, lat=200, rate=100).critical_path == pytest.approx(0.2 + (3 * 0.2 + 0.7) + 0.7)
    assert Cell(100, 0, 50, lat=200, rate=100).critical_path == pytest.approx(0.2 + 0.7 + 0.7)


SERVED = {"answers_seen": 3, "bad": 0, "dropped": 0, "last_bad": ""}


@pytest.mark.parametrize(
    ("answers", "final", "server", "complaint"),
    [
        ([SMALL.answer] * 2, SMALL.answer, SERVED, "2 of 3 workers' answers are right"),
        ([*[SMALL.answer] * 2, "lorem"], SMALL.answer, SERVED, "2 of 3 workers' answers are right"),
        ([SMALL.answer] * 4, SMALL.answer, SERVED, r"4 given"),
        ([SMALL.answer] * 3, "", SERVED, "the leader's answer is ''"),
        ([SMALL.answer] * 3, SMALL.answer, SERVED | {"answers_seen": 2}, "held 2 answers, not 3"),
        ([SMALL.answer] * 3, SMALL.answer, SERVED | {"bad": 1, "last_bad": "404"}, "1 requests refused.*404"),
        ([SMALL.answer] * 3, SMALL.answer, SERVED | {"dropped": 1}, "1 dropped"),
    ],
)
def test_work_that_was_not_done_is_no_measurement(
    answers: list[str], final: str, server: dict[str, Any], complaint: str
) -> None:
    check(SMALL, [SMALL.answer] * 3, SMALL.answer, SERVED)
    with pytest.raises(WrongAnswer, match=complaint):
        check(SMALL, answers, final, server)


def a_row(*, budget: float = 0.4, at_least: bool = False, needs: tuple[str, ...] = ()) -> Row:
    return Row("cpu", "team", "CPU", budget, "x", at_least, needs, lambda bench: Measured(0.0, ""))


def test_the_table_ends_with_one_when_a_budget_is_broken() -> None:
    kept, broken = judge(a_row(), Measured(0.4, "2 ms")), judge(a_row(), Measured(0.41, "2.1 ms"))
    assert (kept.verdict, broken.verdict) == ("ok", "BROKEN")
    assert exit_code([kept]) == 0
    assert exit_code([kept, broken]) == 1


def test_a_budget_that_must_be_reached_is_broken_from_below() -> None:
    assert judge(a_row(budget=1.0, at_least=True), Measured(1.0, "")).verdict == "ok"
    assert judge(a_row(budget=1.0, at_least=True), Measured(0.99, "")).verdict == "BROKEN"


@pytest.mark.parametrize("at_least", [True, False])
def test_what_is_no_number_keeps_no_budget(at_least: bool) -> None:
    assert judge(a_row(at_least=at_least), Measured(float("nan"), "")).verdict == "BROKEN"


def test_what_was_not_measured_is_not_in_order_and_shows_no_figure() -> None:
    for outcome in (not_there(a_row(), ["astrion_nb.later"]), failed(a_row(), "stuck")):
        assert outcome.value is None
        assert exit_code([outcome]) == 1
    assert exit_code([]) == 1


def test_a_row_waits_for_modules_that_do_not_exist() -> None:
    needs = ("json", "astrion_nb.no_such_part", "no_such_package.part")
    assert a_row(needs=needs).missing() == ["astrion_nb.no_such_part", "no_such_package.part"]


def test_the_table_prints_measured_value_budget_verdict_and_figures() -> None:
    outcomes = [judge(a_row(), Measured(0.412, "2.1 | 5 ms")), not_there(a_row(), ["x"])]
    lines = as_text(outcomes, "note").splitlines()
    assert lines[0] == "note"
    assert lines[-2] == "| cpu | 0.412 × | ≤ 0.4 × | BROKEN | 2.1 \\| 5 ms | CPU |"
    assert lines[-1] == "| cpu | – | ≤ 0.4 × | not there yet | waits for x | CPU |"
    data = json.loads(json.dumps(as_json(outcomes, "note")))
    assert data["ok"] is False
    assert [row["verdict"] for row in data["rows"]] == ["BROKEN", "not there yet"]


def test_rows_are_picked_by_name_and_by_mark_in_the_order_of_the_table() -> None:
    import rows

    assert rows.WORK.turns == 402
    assert pick([]) == list(ROWS.values())
    assert [row.name for row in pick(["wall", "cpu-per-turn"])] == ["cpu-per-turn", "wall"]
    assert {row.mark for row in pick(["team"])} == {"team"}
    with pytest.raises(LookupError, match="no row or mark nothing"):
        pick(["nothing", "wall"])


def test_a_real_kernel_returns_values_and_tells_failing_from_stuck_cells(bench: Bench) -> None:
    with bench.kernel() as kernel:
        assert kernel.execute("import asyncio\nx = ['任务']", timeout=20, value="x + [1]") == ["任务", 1]
        with pytest.raises(MeasurementFailed, match="ZeroDivisionError"):
            kernel.execute("1 / 0", timeout=20)
        with pytest.raises(TimeoutError, match="did not end"):
            kernel.execute("await asyncio.Event().wait()", timeout=0.5)


@pytest.mark.parametrize("barriers", [True, False])
def test_the_work_of_the_keeping_rows_is_kept_whole_and_every_byte_of_it_is_counted(
    tmp_path: Path, barriers: bool
) -> None:
    import asyncio

    import keeping

    taken = asyncio.run(keeping.kept(keeping.Work(90, 3, barriers=barriers), tmp_path))
    stored = sum(path.stat().st_size for path in tmp_path.rglob("conv_*/**/*.json"))
    lengths = [len(json.dumps(m, separators=(",", ":"))) for m in messages_in(tmp_path)]
    assert stored == taken.size
    assert 89 <= len(lengths) <= 93
    assert {keeping.SIZE} <= set(lengths) <= {keeping.SIZE, keeping.SIZE + 4}, "each message has the named size"
    # a line of the journal and a place in the document for each message, at the least
    assert taken.written > taken.size + len(lengths) * keeping.SIZE
    assert taken.syncs >= (45 if barriers else 3)
    assert taken.cpu > 0
    assert taken.sync_cpu > 0


def messages_in(home: Path) -> list[dict[str, Any]]:
    (path,) = home.rglob("conv_*/messages.json")
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["messages"]
    return found


def test_a_script_that_fails_gives_no_figures(bench: Bench) -> None:
    with pytest.raises(MeasurementFailed, match=r"keeping\.py nonsense: no result, exit status 2"):
        bench.script("keeping.py", "nonsense")


def test_homes_of_measurements_are_in_the_checkout_and_are_removed() -> None:
    with Bench(1) as bench:
        home: Path = bench.home()
        assert home.is_dir()
        assert Path(__file__).parents[2] in home.parents
    assert not home.exists()
