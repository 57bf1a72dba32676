"""The sub-agents' communication tools (tool definitions §2). Schemas are exactly the specification's,
plus ``answer_master`` and ``expects_answer`` (decisions 15, 16, 21).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from ..errors import ToolError
from ..ids import LEADER_ID
from .registry import AgentRef, Tool, ToolContext, tool

MEMBER_TOOLS: list[Tool] = []


def _member(name: str, description: str) -> Callable[[Callable[..., Any]], Tool]:
    def register(function: Callable[..., Any]) -> Tool:
        made = tool(name=name, description=description, audience="member", side_effects=False, scope="team")(function)
        MEMBER_TOOLS.append(made)
        return made

    return register


@_member("ask_master", "向主智能体（Team Leader）提问。主智能体回答后会将结果返回到此工具调用中。")
async def ask_master(
    context: ToolContext,
    question: Annotated[str, "问题内容。"],
    question_id: Annotated[str, "问题唯一 ID。"],
) -> dict[str, Any]:
    """Ask the leader and wait (message protocol §3.3, decision 18)."""
    if not question.strip():
        raise ToolError("question: must not be empty")
    return await context.team.ask(
        context.agent_id, LEADER_ID, question, question_id, call_id=context.call_id, tool="ask_master"
    )


@_member(
    "ask_other_agent",
    "向其他子智能体提问或发送消息。对方回复后会将结果返回到此工具调用中。"
    "注意：向其他子智能体提问时，必须同时直接向主智能体输出汇报。",
)
async def ask_other_agent(
    context: ToolContext,
    target_agent_id: Annotated[AgentRef, "目标子智能体实例编号。"],
    content: Annotated[str, "提问或消息内容。"],
    message_id: Annotated[str, "消息唯一 ID。"],
    expects_answer: Annotated[bool, "是否需要对方回答。默认 true，会等待回答；false 表示只是通知，立即返回。"] = True,
) -> dict[str, Any]:
    """Ask a peer and wait, or notify it and go on (decisions 15, 16)."""
    if not content.strip():
        raise ToolError("content: must not be empty")
    if not expects_answer:
        return context.team.notify(context.agent_id, target_agent_id, content, message_id)
    return await context.team.ask(
        context.agent_id, target_agent_id, content, message_id, call_id=context.call_id, tool="ask_other_agent"
    )


@_member("answer_other_agent", "回答其他子智能体的问题。回答会返回到对方 ask_other_agent 工具的结果中。")
async def answer_other_agent(
    context: ToolContext,
    source_agent_id: Annotated[AgentRef, "提问方的子智能体实例编号。"],
    message_id: Annotated[str, "对方提问时的 message_id。"],
    answer: Annotated[str, "回答内容。"],
) -> dict[str, Any]:
    """Answer a peer's question by its id (message protocol §4.2)."""
    return context.team.answer(context.agent_id, source_agent_id, message_id, answer)


@_member("answer_master", "回答主智能体（Team Leader）的提问。回答会返回到主智能体 ask_sub_agent 工具的结果中。")
async def answer_master(
    context: ToolContext,
    question_id: Annotated[str, "问题 ID，与提问消息中的 id 一致。"],
    answer: Annotated[str, "回答内容。"],
) -> dict[str, Any]:
    """Answer the leader's question by its id (decision 15)."""
    return context.team.answer(context.agent_id, None, question_id, answer)


@_member("list_active_sub_agents", "查询当前多智能体会话中所有活跃或可通信的子智能体。")
async def list_active_sub_agents(context: ToolContext) -> dict[str, Any]:
    """List all agents but the terminated ones; the caller is marked (decision 21)."""
    return {"success": True, "agents": context.team.active(context.agent_id)}
