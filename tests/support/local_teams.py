"""What holds for every team on the embedded model, whatever it said; and the servers that a process has started."""

from __future__ import annotations

import json

from support.processes import children

from astrion_nb.envelope import parse
from astrion_nb.state import TeamState


def servers_of(pid: int) -> list[int]:
    """Return the process groups of the servers that a process has started."""
    return children(pid, "local_child.py")


def check_conversation(state: TeamState, roles: set[str]) -> None:
    """Check that calls, envelopes and answers pair, whatever was said."""
    leader = state.leader_state
    calls = [call for message in leader.messages for call in message.tool_calls]
    assert {call.name for call in calls} == {"create_sub_agent"}
    for call in calls:
        arguments = json.loads(call.arguments)
        assert set(arguments) == {"agent_id", "role_id", "task"}
        assert arguments["role_id"] in roles
    for agent in state.agents.values():
        assert agent.open_calls == {}
        assert agent.status in ("completed", "idle")
        results = [message.tool_call_id for message in agent.messages if message.role == "tool"]
        assert sorted(results) == sorted(call.id for message in agent.messages for call in message.tool_calls)
        for message in agent.messages:
            if message.role == "user" and message.metadata["visibility"] != "chat":
                envelope = parse(message.content or "")  # raises for whatever is not one of the six
                assert envelope.id == message.metadata["envelope_id"]
    tasks = [parse(agent.messages[1].content or "") for agent in state.members()]
    assert [task.kind for task in tasks] == ["task"] * len(tasks)
    given = [json.loads(call.arguments)["task"].strip() for call in calls]
    assert {task.content.strip() for task in tasks} <= set(given)
    reported = {m.metadata.get("agent_id") for m in leader.messages if "任务完成汇报" in (m.content or "")}
    assert reported >= {agent.agent_id for agent in state.members() if agent.status == "completed"}
    assert state.open_questions() == []
