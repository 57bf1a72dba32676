"""The leader's tools (tool definitions §1.2). Schemas are exactly the specification's.

Each function checks what only it knows and hands over to the team; blocking, routing and ids are
the team's. Adding a tool is one decorated function here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from .. import roles
from ..errors import AstrionError, ToolError
from .registry import AgentRef, Tool, ToolContext, tool

LEADER_TOOLS: list[Tool] = []
LONGEST_TIMEOUT = 31_536_000
"""Seconds: a year."""


def _leader(name: str, description: str, *, side_effects: bool = False) -> Callable[[Callable[..., Any]], Tool]:
    def register(function: Callable[..., Any]) -> Tool:
        made = tool(name=name, description=description, audience="leader", side_effects=side_effects, scope="team")(
            function
        )
        LEADER_TOOLS.append(made)
        return made

    return register


@_leader("create_sub_agent", "创建一个子智能体实例并启动它。一个角色可以有多个实例，如 UI Operator_1、UI Operator_2。")
async def create_sub_agent(
    context: ToolContext,
    agent_id: Annotated[int, "这个角色的第几个实例，从 1 开始。同一 role_id 下每个编号只能用一次。"],
    role_id: Annotated[str, "角色 ID，如 ui-operator、full-stack-engineer。"],
    task: Annotated[str, "任务描述，会作为给子智能体的首条任务发布消息。"],
    run_in_background: Annotated[bool, "是否后台运行。多智能体模式下通常直接运行（false），因为需要观察输出。"] = False,
    timeout_seconds: Annotated[int, "超时时间，默认 600 秒。"] = 600,
    thinking_mode: Annotated[Literal["fast", "thinking"] | None, "思考模式，不指定则使用角色配置。"] = None,
    model_key: Annotated[str | None, "模型 key，不指定则使用角色配置。"] = None,
) -> dict[str, Any]:
    """Create an agent and start it (decisions 1, 13, 20, 26)."""
    if not task.strip():
        raise ToolError("task: must not be empty")
    if not 0 <= timeout_seconds <= LONGEST_TIMEOUT:
        raise ToolError(f"timeout_seconds: must be from 0 (no limit) to {LONGEST_TIMEOUT}")
    role = context.team.load_role(role_id)
    return context.team.create(
        role,
        agent_id,
        task,
        background=run_in_background,
        timeout=float(timeout_seconds),
        thinking_mode=thinking_mode,
        model_key=model_key,
    )


@_leader("terminate_sub_agent", "强制终止指定子智能体实例。终止后无法恢复，但已生成的文件保留。")
async def terminate_sub_agent(
    context: ToolContext, agent_id: Annotated[AgentRef, "要终止的子智能体实例编号。"]
) -> dict[str, Any]:
    """Terminate an agent for good (decision 22)."""
    return context.team.terminate(context.agent_id, agent_id)


@_leader(
    "send_message_to_sub_agent",
    "向指定子智能体发送消息。如果子智能体正在运行，消息会插入到当前输出流中作为引导；"
    "如果子智能体空闲，消息会触发新一轮运行。用于运行中纠正、补充上下文、追加指令。",
)
async def send_message_to_sub_agent(
    context: ToolContext,
    agent_id: Annotated[AgentRef, "目标子智能体实例编号。"],
    message: Annotated[str, "要发送的消息内容。"],
) -> dict[str, Any]:
    """Guide a running agent, or give one at rest a new task (decision 11)."""
    if not message.strip():
        raise ToolError("message: must not be empty")
    return context.team.send(context.agent_id, agent_id, message)


@_leader("ask_sub_agent", "向指定子智能体提问并等待其回答。适用于需要子智能体给出明确答复的场景。")
async def ask_sub_agent(
    context: ToolContext,
    agent_id: Annotated[AgentRef, "目标子智能体实例编号。"],
    question: Annotated[str, "问题内容。"],
    question_id: Annotated[str, "问题唯一 ID，子智能体回答时会引用。"],
) -> dict[str, Any]:
    """Ask an agent and wait (decisions 15, 17)."""
    if not question.strip():
        raise ToolError("question: must not be empty")
    return await context.team.ask(
        context.agent_id, agent_id, question, question_id, call_id=context.call_id, tool="ask_sub_agent"
    )


@_leader("answer_sub_agent_question", "回答子智能体提出的问题。回答会返回到子智能体 ask_master 工具的结果中。")
async def answer_sub_agent_question(
    context: ToolContext,
    agent_id: Annotated[AgentRef, "提问的子智能体实例编号。"],
    question_id: Annotated[str, "问题 ID，与 ask_master 时一致。"],
    answer: Annotated[str, "回答内容。"],
) -> dict[str, Any]:
    """Answer a question by its id (decision 15)."""
    return context.team.answer(context.agent_id, agent_id, question_id, answer)


@_leader(
    "list_active_sub_agents",
    "查询当前多智能体会话中所有活跃或可通信的子智能体列表，包括运行中和空闲的实例。",
)
async def list_active_sub_agents(context: ToolContext) -> dict[str, Any]:
    """List all agents but the terminated ones (decision 21)."""
    return {"success": True, "agents": context.team.active(context.agent_id)}


@_leader("get_sub_agent_status", "查询指定子智能体实例的详细状态、统计和最近输出。")
async def get_sub_agent_status(
    context: ToolContext, agent_id: Annotated[AgentRef, "子智能体实例编号。"]
) -> dict[str, Any]:
    """Describe an agent: status, statistics, questions, last outputs, error (decision 21)."""
    return {"success": True, **context.team.describe(agent_id)}


@_leader("create_custom_agent", "创建一个自定义角色并保存到本地，后续可通过 role_id 调用。", side_effects=True)
async def create_custom_agent(
    context: ToolContext,
    *,
    role_id: Annotated[str, "角色 ID，唯一标识。"],
    name: Annotated[str, "角色显示名。"],
    description: Annotated[str, "角色简短描述。"],
    model: Annotated[str | None, "默认使用的模型。"] = None,
    thinking_mode: Annotated[Literal["fast", "thinking"] | None, "默认思考模式。"] = None,
    prompt: Annotated[str, "角色专属 prompt。"],
) -> dict[str, Any]:
    """Save a role to the shared agents directory; never over an existing one (decision 32)."""
    if model is not None:
        context.team.check_model_key(model)
    role = roles.Role(
        id=role_id, name=name, description=description, model=model, thinking_mode=thinking_mode, prompt=prompt
    )
    try:
        roles.save(role, home=context.team.home)
    except AstrionError as error:
        raise ToolError(str(error)) from None
    return {"success": True, "role_id": role_id, "name": name}


@_leader("list_agents", "列出所有可用的预置和自定义角色。")
async def list_agents(context: ToolContext) -> dict[str, Any]:
    """List the roles, preset and custom (decision 21)."""
    found = context.team.list_roles()
    out: dict[str, Any] = {
        "success": True,
        "agents": [
            {
                "role_id": role.id,
                "name": role.name,
                "description": role.description,
                "type": "preset" if role.preset else "custom",
            }
            for role in found.roles
        ],
    }
    if found.errors:
        out["unreadable"] = [str(error) for error in found.errors]
    return out


@_leader(
    "stop_sub_agent",
    "停止指定子智能体的当前一轮工作。未完成的工具调用会被关闭；子智能体保留，之后仍可通过消息继续使用。",
)
async def stop_sub_agent(
    context: ToolContext,
    agent_id: Annotated[AgentRef, "要停止的子智能体实例编号。"],
    reason: Annotated[str, "停止原因。"] = "",
) -> dict[str, Any]:
    """End an agent's turn; it stays addressable (decision 22)."""
    return context.team.stop_agent(context.agent_id, agent_id, reason)
