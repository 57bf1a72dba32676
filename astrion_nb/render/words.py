"""The words of transcript and board, in the two languages of the interface.

The words of the envelopes are Chinese in both (they are what the models read); English readers get a
gloss beside the id. Knows no conversation and no output form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..envelope import Kind

Origin = Literal["live", "local", "scripted", "replayed"]
"""Who answered: a configured model, the small one of this machine, a script, a recording."""


@dataclass(frozen=True, slots=True)
class Words:
    """One language."""

    tag: str
    you: str
    system: str
    by_you: str
    agents: str
    questions: str
    warnings: str
    error: str
    ended: dict[str, str]
    broke_off: str
    compacted: tuple[str, str, str]
    """What a compaction did: it cut results only, left one message out, left several out."""
    arguments: str
    result: str
    no_result: str
    refused: str
    cut: str
    tokens: str
    tokens_split: str
    asks: str
    reply: str
    reply_text: str
    nobody: str
    origin: dict[str, str]
    status: dict[str, str]
    run: dict[str, str]
    gloss: dict[Kind, str]
    columns: tuple[str, ...]
    models: str


ENGLISH = Words(
    tag="en",
    you="You",
    system="System",
    by_you="sent by you",
    agents="Agents",
    questions="Open questions",
    warnings="Warnings",
    error="Error",
    ended={"stopped": "Stopped", "timed_out": "Timed out", "interrupted": "Interrupted"},
    broke_off="broke off",
    compacted=(
        "Long results were cut in the requests: the model's context was full",
        "1 earlier message left out of the requests: the model's context was full",
        "{count:,} earlier messages left out of the requests: the model's context was full",
    ),
    arguments="arguments",
    result="result",
    no_result="no result yet",
    refused="refused",
    cut="… [cut: {shown:,} of {total:,} characters shown]",
    tokens="{total:,} tokens",
    tokens_split="{total:,} tokens ({input:,} in, {output:,} out)",
    asks="{asker} asks {target}",
    reply="Answer with",
    reply_text="your answer",
    nobody="There are no agents yet.",
    origin={
        "local": "A small model on this machine answers here; it makes more mistakes than a large one.",
        "scripted": "Scripted answers: no model was asked.",
        "replayed": "Replayed from a recording: no model was asked.",
    },
    status={
        "running": "running",
        "waiting": "waiting",
        "idle": "idle",
        "completed": "completed",
        "terminated": "terminated",
        "failed": "failed",
        "timed_out": "timed out",
        "stopped": "stopped",
        "interrupted": "interrupted",
    },
    run={
        "running": "The team is at work.",
        "completed": "The team is done.",
        "failed": "The run failed.",
        "stopped": "The run was stopped.",
        "timed_out": "The run took too long and was stopped.",
        "interrupted": "The run was interrupted.",
    },
    gloss={
        "task": "task",
        "progress": "progress report",
        "completion": "completion report",
        "ask": "question",
        "message": "message",
        "answer": "answer",
    },
    columns=("No.", "Name", "Status", "Waits for", "Task", "Tokens"),
    models="Models",
)

CHINESE = Words(
    tag="zh-CN",
    you="你",
    system="系统",
    by_you="由你发送",
    agents="智能体",
    questions="待回答的问题",
    warnings="警告",
    error="错误",
    ended={"stopped": "已停止", "timed_out": "超时", "interrupted": "已中断"},
    broke_off="输出中断",
    compacted=(
        "请求里截短了较长的结果：模型的上下文已满",
        "请求里略去了 1 条较早的消息：模型的上下文已满",
        "请求里略去了 {count:,} 条较早的消息：模型的上下文已满",
    ),
    arguments="参数",
    result="结果",
    no_result="尚无结果",
    refused="被拒绝",
    cut="… [已截断：共 {total:,} 个字符，显示前 {shown:,} 个]",
    tokens="{total:,} 个 token",
    tokens_split="{total:,} 个 token（输入 {input:,}，输出 {output:,}）",
    asks="{asker} 问 {target}",
    reply="回答方式",
    reply_text="你的回答",
    nobody="还没有智能体。",
    origin={
        "local": "这里由本机上的小模型作答，它比大模型更容易出错。",
        "scripted": "脚本作答：没有调用任何模型。",
        "replayed": "录制回放：没有调用任何模型。",
    },
    status={
        "running": "运行中",
        "waiting": "等待中",
        "idle": "空闲",
        "completed": "已完成",
        "terminated": "已终止",
        "failed": "失败",
        "timed_out": "超时",
        "stopped": "已停止",
        "interrupted": "已中断",
    },
    run={
        "running": "团队正在工作。",
        "completed": "团队已完成。",
        "failed": "本次运行失败。",
        "stopped": "本次运行已停止。",
        "timed_out": "本次运行超时，已停止。",
        "interrupted": "本次运行被中断。",
    },
    gloss={},
    columns=("编号", "名称", "状态", "等待对象", "任务", "Token"),
    models="模型",
)


def words(language: str) -> Words:
    """Return the words of a language; anything but Chinese is English."""
    return CHINESE if language.lower().startswith("zh") else ENGLISH
