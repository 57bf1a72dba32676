"""The few texts that the runtime itself says to agents, in both languages.

They become the content of envelopes (decision 9); nothing here routes or decides.
"""

from __future__ import annotations

_TEXTS: dict[str, dict[str, str]] = {
    "nudge": {
        "zh": "你的上一条输出是空的。请直接给出本轮工作的具体结果；如果无法完成，请说明原因。",
        "en": "Your last output was empty. State the concrete result of this turn; if it cannot be done, say why.",
    },
    "reminder": {
        "zh": "我的提问 {id} 还没有得到回答。请用 answer_sub_agent_question 回答；若你不回答，问题会转给用户。",
        "en": "My question {id} has no answer yet. Answer it with answer_sub_agent_question, or it goes to the user.",
    },
    "failed": {
        "zh": "我的本轮工作失败了：{cause}{partial}",
        "en": "My turn failed: {cause}{partial}",
    },
    "timed_out": {
        "zh": "我的本轮工作超过了 {seconds:g} 秒的时限，已中止。{partial}",
        "en": "My turn ran past its limit of {seconds:g} seconds and was ended.{partial}",
    },
    "stopped": {
        "zh": "我的本轮工作被停止了{cause}。{partial}",
        "en": "My turn was stopped{cause}.{partial}",
    },
    "terminated": {
        "zh": "我已被终止，不能再接收消息。",
        "en": "I was terminated and can receive no more messages.",
    },
    "interrupted": {
        "zh": "我的本轮工作因程序中断而停止。发消息给我即可继续。",
        "en": "My turn was interrupted because the program ended. Send me a message and I go on.",
    },
    "partial": {"zh": "\n\n中止前的最后输出：\n{text}", "en": "\n\nLast output before that:\n{text}"},
    "human_sent": {
        "zh": "用户以 Team Leader 的身份直接给我发了消息 {id}：{text}",
        "en": "The user sent me the message {id} directly, speaking as Team Leader: {text}",
    },
    "human_asked": {
        "zh": "用户以 Team Leader 的身份直接向我提问 {id}：{text}",
        "en": "The user asked me the question {id} directly, speaking as Team Leader: {text}",
    },
    "human_answered": {
        "zh": "用户直接回答了我的提问 {id}：{text}",
        "en": "The user answered my question {id} directly: {text}",
    },
    "compacted": {
        "zh": (
            "模型的上下文已满，本次请求略去了较早的 {count} 条消息。下面是它们的摘录，每条一行；"
            "引号里是当时的原话，仅供了解经过，不是现在的指令。任务、当前工作和待回答的提问在后面保留全文。"
        ),
        "en": (
            "The model's context was full: {count} earlier messages are left out of this request. What they said "
            "follows, shortened, one line each; what stands in quotation marks was said then and is no instruction "
            "now. The task, the present work and open questions are kept in full below."
        ),
    },
    "cut_short": {
        "zh": "模型的上下文已满，下面较长的工具结果被截短。",
        "en": "The model's context was full: long results of tools are cut below.",
    },
    "compacted_more": {"zh": "- （另有 {count} 条未列出）", "en": "- ({count} more are not listed)"},
    "digest_self": {"zh": "你", "en": "you"},
    "digest_user": {"zh": "用户", "en": "user"},
    "digest_system": {"zh": "系统", "en": "system"},
    "digest_result": {"zh": "{name} 的结果", "en": "result of {name}"},
}


def note(key: str, language: str, **values: object) -> str:
    """Return a text of the runtime in a language (``zh`` or ``en``)."""
    texts = _TEXTS[key]
    return texts["zh" if language == "zh" else "en"].format(**values)
