"""Numbers and names of agents, and what creating one checks (decisions 1, 2, 21, 26; fault 17)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.teams import ROLES, PlainRole, Rig, go, rig
from support.virtual import VirtualOrder, Watched

from astrion_nb.errors import AgentNotFound, AstrionError, ConfigError, RoleError, TeamError
from astrion_nb.events import AgentCreated, ConversationStarted
from astrion_nb.llm.scripted import ScriptedModel, Step, call, say
from astrion_nb.runtime.names import LARGEST_INSTANCE, find, numbers
from astrion_nb.state import TeamState, apply
from astrion_nb.tools.leader import LEADER_TOOLS
from astrion_nb.tools.registry import ToolContext

LEADER = "Team Leader"


def state_with(*agents: tuple[int, str, str, int]) -> TeamState:
    """Return a state with agents of (number, role id, role name, instance)."""
    state = TeamState()
    apply(state, ConversationStarted("c", "", "", "k", "fast", "model", "en", ""), seq=1, t=0.0)
    for number, role_id, name, instance in agents:
        shown = f"{name}_{instance}"
        event = AgentCreated(number, role_id, name, shown, instance, "x", "k", "fast", "", 0.0, False, "")
        apply(state, event, seq=state.seq + 1, t=0.0)
    return state


def create(agent_id: object, role_id: str = "ui-operator", **more: object) -> Step:
    return call("create_sub_agent", agent_id=agent_id, role_id=role_id, task="t", **more)


def results(team: Rig) -> list[dict[str, Any]]:
    messages = team.team.state.leader_state.messages
    by_id = {m.tool_call_id: m.content or "" for m in messages if m.role == "tool"}
    return [json.loads(by_id[c.id]) for m in messages for c in m.tool_calls]


async def led(*steps: Step, agents: int = 0, **more: Any) -> Rig:
    """Run a leader that takes the steps in one response."""
    script: dict[str, list[Any]] = {LEADER: [sum(steps[1:], steps[0]), *[say("Ok.")] * 9], "*": [say("Done.")] * agents}
    team = rig(Watched(ScriptedModel(script, check_on_close=False)), order=VirtualOrder(), **more)
    await team.run("Go")
    return team


# -- numbers --------------------------------------------------------------------------------


@pytest.mark.spec
def test_the_example_of_the_specification_is_as_printed() -> None:
    async def main() -> None:
        team = await led(create(1), create(1, "full-stack-engineer"), call("list_active_sub_agents"), agents=2)
        first, second, listed = results(team)
        assert first == {"success": True, "agent_id": 1, "display_name": "UI Operator_1", "status": "running"}
        assert (second["agent_id"], second["display_name"]) == (2, "Full-Stack Engineer_1")
        assert second["note"] == "use agent_id 2 in every other tool; it is instance 1 of full-stack-engineer"
        assert [list(row) for row in listed["agents"]] == [
            ["agent_id", "role_id", "display_name", "status", "summary"]
        ] * 2
        assert [(row["agent_id"], row["role_id"], row["display_name"]) for row in listed["agents"]] == [
            (1, "ui-operator", "UI Operator_1"),
            (2, "full-stack-engineer", "Full-Stack Engineer_1"),
        ]

    go(main)


def test_an_instance_may_leave_a_gap_and_keeps_its_number_when_it_is_free() -> None:
    state = state_with((1, "a", "A", 1))
    assert numbers(state, "a", "A", 7) == (7, 7)
    assert numbers(state, "b", "B", 1) == (2, 1)
    assert numbers(state, "a", "A", None) == (2, 2)
    assert numbers(state_with((1, "a", "A", 1), (2, "b", "B", 1)), "b", "B", 2) == (3, 2)


@pytest.mark.parametrize(
    ("instance", "said"),
    [
        (1, "agent_id: A_1 exists already; the next free number of a is 3"),
        (0, "agent_id: 0 is below 1; the next free number of a is 3"),
        (-5, "below 1"),
        (LARGEST_INSTANCE + 1, f"agent_id: {LARGEST_INSTANCE} is the largest; the next free number of a is 3"),
        (10**30, "is the largest"),
    ],
)
def test_a_number_that_cannot_be_names_the_next_free_one(instance: int, said: str) -> None:
    with pytest.raises(TeamError, match=said):
        numbers(state_with((1, "a", "A", 1), (2, "a", "A", 2)), "a", "A", instance)


def test_two_roles_of_one_name_never_show_the_same_name() -> None:
    state = state_with((1, "a", "Worker", 1))
    with pytest.raises(TeamError, match=r"(?i)worker_1 exists already; the next free number of b is 2"):
        numbers(state, "b", "worker", 1)
    assert numbers(state, "b", "Worker", None) == (2, 2)


agents = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5)), max_size=12)


@settings(deadline=None)
@given(agents)
def test_numbers_and_names_are_unique_whatever_is_asked_for(wanted: list[tuple[str, int]]) -> None:
    state = state_with()
    for role_id, instance in wanted:
        try:
            number, taken = numbers(state, role_id, role_id.upper(), instance)
        except TeamError:
            assert any(a.role_id == role_id and a.instance == instance for a in state.members())
            continue
        assert taken == instance
        assert number not in state.agents
        assert number >= 1
        event = AgentCreated(
            number, role_id, role_id.upper(), f"{role_id}_{taken}", taken, "x", "k", "fast", "", 0, False, ""
        )
        apply(state, event, seq=state.seq + 1, t=0.0)
    names = [agent.display_name for agent in state.members()]
    assert len(names) == len(set(names))


def test_a_terminated_agents_number_stays_used() -> None:
    async def main() -> None:
        team = await led(create(1), call("terminate_sub_agent", agent_id=1), create(1), create(2), agents=2)
        made, ended, again, other = results(team)
        assert (made["agent_id"], ended["status"]) == (1, "terminated")
        assert again == {
            "success": False,
            "error": "agent_id: UI Operator_1 exists already; the next free number of ui-operator is 2",
        }
        assert other["agent_id"] == 2

    go(main)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (create(1, "nobody"), "there is no role 'nobody'; known are ui-operator"),
        (create(1, model_key="gpt-99"), "unknown model 'gpt-99'; known are scripted"),
        (create(0), "agent_id: 0 is below 1"),
        (create(1, timeout_seconds=-1), "timeout_seconds: must be from 0 (no limit) to 31536000"),
        (create(1, timeout_seconds=10**400), "timeout_seconds"),
        (create(10**25), "agent_id"),
        (call("create_sub_agent", agent_id=1, role_id="ui-operator", task=" \n"), "task: must not be empty"),
        (create("x"), "agent_id: input should be a valid integer"),
    ],
)
def test_a_creation_that_fails_burns_no_number_and_changes_nothing(step: Step, said: str) -> None:
    async def main() -> None:
        team = await led(step, create(1), agents=1)
        failed, made = results(team)
        assert failed["success"] is False
        assert said in failed["error"]
        assert (made["success"], made["agent_id"]) == (True, 1)
        assert len(team.kinds(AgentCreated)) == 1

    go(main)


@pytest.mark.parametrize(
    ("role_model", "argument", "used"), [(None, None, "main"), ("b", None, "b"), ("b", "c", "c"), (None, "c", "c")]
)
def test_the_model_is_the_arguments_then_the_roles_then_the_conversations(
    role_model: str | None, argument: str | None, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        monkeypatch.setitem(ROLES, "ui-operator", PlainRole("ui-operator", "UI Operator", model=role_model))
        more = {} if argument is None else {"model_key": argument}
        script: dict[str, list[Any]] = {
            LEADER: [create(1, **more), say("."), say(".")],
            "UI Operator_1": [say("Done.")],
        }
        models = {key: Watched(ScriptedModel(script, key=key, check_on_close=False)) for key in ("main", "b", "c")}
        team = rig(models)
        state = await team.run("Go")
        assert state.agents[1].model_key == used
        assert [key for key, model in models.items() if model.of("UI Operator_1")] == [used]

    go(main)


@pytest.mark.parametrize(
    ("role_mode", "argument", "used"),
    [(None, None, "fast"), ("thinking", None, "thinking"), ("thinking", "fast", "fast")],
)
def test_the_thinking_mode_goes_the_same_way(
    role_mode: str | None, argument: str | None, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        monkeypatch.setitem(ROLES, "ui-operator", PlainRole("ui-operator", "UI Operator", thinking_mode=role_mode))
        more = {} if argument is None else {"thinking_mode": argument}
        model = Watched(
            ScriptedModel({LEADER: [create(1, **more), say("."), say(".")], "UI Operator_1": [say("Done.")]})
        )
        await rig(model).run("Go")
        assert [asked.thinking_mode for asked in model.of("UI Operator_1")] == [used]

    go(main)


# -- references -----------------------------------------------------------------------------

STATE = state_with(
    (1, "ui-operator", "UI Operator", 1),
    (2, "full-stack-engineer", "Full-Stack Engineer", 1),
    (5, "planner-zh", "规划", 3),
    (6, "odd", "C++ & <QA>", 4),
    (7, "x", "Σ", 9),
)


@pytest.mark.faults
@pytest.mark.parametrize(
    ("reference", "number"),
    [
        (1, 1),
        ("2", 2),
        (" 5 ", 5),
        ("UI Operator_1", 1),
        ("ui operator_1", 1),
        ('"UI Operator_1"', 1),
        ("“UI Operator_1”", 1),
        ("'full-stack engineer_1'", 2),
        ("规划_3", 5),
        ("C++ & <QA>_4", 6),
        ("c++ & <qa>_4", 6),
        ("σ_9", 7),
        ("leader", 0),
        ("Team Leader", 0),
        ("TEAM LEADER", 0),
    ],
)
def test_an_agent_is_found_by_number_or_name_in_any_case(reference: int | str, number: int) -> None:
    agent, note = find(STATE, reference)
    assert (agent.agent_id, note) == (number, "")


def test_an_instance_number_that_only_one_agent_has_is_taken_with_a_note() -> None:
    agent, note = find(STATE, 4)
    assert agent.agent_id == 6
    assert note == "4 is nobody's agent_id; taken as instance 4: C++ & <QA>_4, agent_id 6"


@pytest.mark.parametrize(
    "reference", ["", "0", 0, -1, "--1", "1.0", "8", 99, "UI Operator", "UI Operator_2", "9" * 5000, "１", "²", "human"]
)
def test_who_is_nobody_is_an_error_that_names_the_candidates(reference: int | str) -> None:
    with pytest.raises(
        AgentNotFound, match=r"agents are: UI Operator_1 \(agent_id 1\), Full-Stack Engineer_1 \(agent_id 2\)"
    ):
        find(STATE, reference)


def test_an_ambiguous_instance_and_an_empty_team_are_errors() -> None:
    with pytest.raises(AgentNotFound):
        find(state_with((4, "a", "A", 3), (5, "b", "B", 3)), 3)
    with pytest.raises(AgentNotFound, match="no agent has been created yet"):
        find(state_with(), 1)


@settings(deadline=None)
@given(st.integers() | st.text(max_size=20))
def test_any_reference_is_an_agent_or_an_agent_not_found(reference: int | str) -> None:
    try:
        agent, _ = find(STATE, reference)
    except AgentNotFound:
        return
    assert agent.agent_id in STATE.agents


@pytest.mark.faults
@pytest.mark.parametrize(
    "tool", ["send_message_to_sub_agent", "terminate_sub_agent", "get_sub_agent_status", "stop_sub_agent"]
)
def test_every_tool_takes_names_and_says_what_it_guessed(tool: str) -> None:
    async def main() -> None:
        extra = {"message": "hi"} if tool == "send_message_to_sub_agent" else {}
        team = await led(create(4, "odd"), create(4, "planner-zh"), agents=3)
        assert [a.display_name for a in team.team.state.members()] == ["规划_4", "C++ & <QA>_4"]
        made = next(t for t in LEADER_TOOLS if t.name == tool)
        for reference in ("规划_4", "c++ & <qa>_4"):
            arguments = made.parse(json.dumps({"agent_id": reference, **extra}))
            result = await made.call(arguments, ToolContext(0, "c", team.team.port))
            assert result["success"] is True
        await team.team.rest()

    go(main)


def test_the_list_marks_the_caller_and_leaves_out_the_terminated() -> None:
    async def main() -> None:
        team = await led(create(1), create(2), agents=2)
        port = team.team.port
        assert [row.get("you") for row in port.active(2)] == [None, True]
        port.terminate(0, 1)
        assert [row["agent_id"] for row in port.active(0)] == [2]
        assert port.describe(2) == {
            "agent_id": 2,
            "role_id": "ui-operator",
            "display_name": "UI Operator_2",
            "status": "completed",
            "status_detail": "",
            "summary": "t",
            "model_key": "scripted",
            "statistics": {
                "turns": 1,
                "tool_calls": {},
                "tokens": {"input": 20, "output": 1, "total": 21},
                "seconds": 0.0,
            },
            "open_questions": [],
            "pending_messages": 0,
            "last_outputs": ["Done."],
        }

    go(main)


def test_roles_are_listed_as_preset_or_custom_and_a_wrong_model_is_refused() -> None:
    async def main() -> None:
        wrong = call("create_custom_agent", role_id="x", name="X", description="d", prompt="p", model="gpt-99")
        team = await led(call("list_agents"), wrong)
        listed, refused = results(team)
        assert [(row["role_id"], row["type"]) for row in listed["agents"]] == [(role_id, "custom") for role_id in ROLES]
        assert "unknown model 'gpt-99'" in refused["error"]

    go(main)


def test_the_port_raises_nothing_but_the_errors_of_the_package() -> None:
    async def main() -> None:
        team = await led(create(1), agents=1)
        port = team.team.port
        for attempt in (
            lambda: port.load_role("nobody"),
            lambda: port.check_model_key("gpt-99"),
            lambda: port.send(0, "leader", "x"),
            lambda: port.notify(1, 1, "x", None),
            lambda: port.notify(1, "leader", "x", None),
            lambda: port.stop_agent(0, "leader", ""),
            lambda: port.describe("nobody"),
            lambda: port.answer(0, "nobody", "q", "a"),
        ):
            with pytest.raises((TeamError, RoleError, ConfigError)) as caught:
                attempt()  # type: ignore[no-untyped-call]
            assert isinstance(caught.value, AstrionError)
            assert "\n" not in str(caught.value)

    go(main)
