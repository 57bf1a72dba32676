"""A team without models that a test conducts: the real bus and state, and a view's way to watch them.

``play`` is a whole run, told at the pace of real models: three agents who stream at once, questions
between them and to the person, tool calls, a failure, long words, code, tables, Chinese text.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Callable
from typing import Any

from support.journals import NoJournal

from astrion_nb import envelope
from astrion_nb.approval import Approval
from astrion_nb.envelope import Kind
from astrion_nb.events import (
    AgentCreated,
    ApprovalAsked,
    ApprovalGiven,
    ConversationStarted,
    Detail,
    Event,
    MessageAppended,
    MessageQueued,
    PendingMessage,
    QuestionAnswered,
    QuestionAsked,
    RequestStarted,
    RunEnded,
    RunStarted,
    Stamped,
    Status,
    StatusChanged,
    TextStreamed,
    Warned,
)
from astrion_nb.ids import HUMAN_ID, LEADER_ID, LEADER_NAME
from astrion_nb.messages import Message, ToolCall, Usage
from astrion_nb.runtime.bus import Bus
from astrion_nb.state import TeamState, summary

PARTS = 6
"""Characters of one streamed piece."""


class Stage:
    """A team whose every event the test publishes."""

    def __init__(self, *, language: str = "en", leader: Any = "model", now: Callable[[], float] = time.time) -> None:
        self.bus = Bus(TeamState(), NoJournal(), now)
        self.cost: float | None = None
        self.commands: list[tuple[str, dict[str, Any]]] = []
        self.heard = asyncio.Event()
        self._calls = itertools.count(1)
        self._ids = itertools.count(1)
        self.tell(ConversationStarted("conv_1", "", "/work", "openai/large", "fast", leader, language, "You lead."))

    @property
    def state(self) -> TeamState:
        return self.bus.state

    def watch(self, view: Callable[[Stamped], None]) -> Callable[[], None]:
        return self.bus.subscribe(view)

    def tell(self, event: Event) -> None:
        self.bus.publish(event)

    def command(self, kind: str, payload: dict[str, Any]) -> None:
        """Take what a page asks for; an answer is given to whoever waits for it."""
        self.commands.append((kind, payload))
        if kind == "answer":
            self.answer(payload["question_id"], payload["text"])
        elif kind == "approve":
            self.settle(payload["id"], payload.get("ok") is True, payload.get("reason", ""))
        elif kind == "send":
            number = LEADER_ID if payload["target"] == "leader" else payload["target"]
            self.queue(number, "message", payload["text"], source="user")
        self.heard.set()

    # -- what agents do -----------------------------------------------------------------

    def start(self, text: str) -> None:
        self.tell(RunStarted(self.state.run + 1, summary(text)))
        self.status(LEADER_ID, "running")
        metadata = {"message_source": "user", "visibility": "chat", "starts_work": True}
        self._append(LEADER_ID, Message("user", text, self._id(LEADER_ID, "user"), metadata=metadata))

    def end(self, status: Any = "completed", error: str = "") -> None:
        self.tell(RunEnded(self.state.run, status, self.state.leader_state.last_text, error))

    def create(self, number: int, role: str, instance: int, task: str) -> None:
        name = f"{role}_{instance}"
        self.tell(
            AgentCreated(
                number,
                "role",
                role,
                name,
                instance,
                "a",
                "openai/small",
                "fast",
                "You work.",
                600.0,
                False,
                summary(task),
            )
        )
        self.gets(number, "task", task)
        self.status(number, "running")

    def status(self, number: int, status: Status, detail: Detail = "", error: str = "") -> None:
        self.tell(StatusChanged(number, status, detail, error))

    def request(self, number: int) -> None:
        self.tell(RequestStarted(number, 1))

    def token(self, number: int, text: str, *, reasoning: bool = False) -> None:
        self.tell(TextStreamed(number, text, reasoning))

    def says(self, number: int, text: str | None, *calls: tuple[str, dict[str, Any]], **metadata: Any) -> list[str]:
        made = tuple(
            ToolCall(f"call_{next(self._calls)}", name, json.dumps(arguments, ensure_ascii=False))
            for name, arguments in calls
        )
        usage = Usage(400 + 37 * len(text or ""), 20 + len(text or "") // 3)
        held = {"usage": usage.to_json(), **metadata}
        self._append(number, Message("assistant", text, self._id(number, "assistant"), made, metadata=held))
        return [call.id for call in made]

    def result(self, number: int, call_id: str, result: dict[str, Any] | str) -> None:
        content = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        self._append(number, Message("tool", content, self._id(number, "tool"), tool_call_id=call_id))

    def queue(self, number: int, kind: Kind, content: str, *, sender: int = LEADER_ID, source: Any = "") -> str:
        """Put a message into a mailbox."""
        item_id = f"{envelope.KINDS[kind].prefix}_{next(self._ids):03d}"
        name = LEADER_NAME if sender == LEADER_ID else self.state.agents[sender].display_name
        source = source or ("team_leader" if sender == LEADER_ID else "sub_agent")
        sender_id = None if sender == LEADER_ID else sender
        self.tell(MessageQueued(number, PendingMessage(item_id, kind, name, sender_id, content, 0.0, source)))
        return item_id

    def reads(self, number: int) -> None:
        """Take everything out of a mailbox, as an agent does before a request."""
        for item in tuple(self.state.agents[number].pending):
            metadata: dict[str, Any] = {
                "message_source": item.source,
                "visibility": "compact",
                "starts_work": self._begins(number, item.kind),
                "envelope_id": item.id,
            }
            if item.sender_id is not None:
                metadata["agent_id"] = item.sender_id
            if item.status:
                metadata["status"] = item.status
            text = envelope.render(envelope.Envelope(item.kind, item.sender, item.id, item.content))  # type: ignore[arg-type]
            kind: Any = "auto" if number == LEADER_ID else "user"
            self.tell(
                MessageAppended(number, Message("user", text, self._id(number, kind), metadata=metadata), item.id)
            )

    def _begins(self, number: int, kind: str) -> bool:
        at_rest = self.state.agents[number].status in ("idle", "completed")
        return number != LEADER_ID and (kind == "task" or (kind == "ask" and at_rest))

    def gets(self, number: int, kind: Kind, content: str, *, sender: int = LEADER_ID) -> str:
        item_id = self.queue(number, kind, content, sender=sender)
        self.reads(number)
        return item_id

    def asks(self, question_id: str, asker: int, target: int, content: str, tool: str = "ask_master") -> str:
        (call_id,) = self.says(asker, None, (tool, {"question": content}))
        self.tell(QuestionAsked(question_id, asker, target, content, call_id, tool))
        self.status(asker, "waiting")
        return call_id

    def answer(self, question_id: str, text: str, by: int = HUMAN_ID) -> None:
        question = self.state.questions[question_id]
        answer_id = f"ans_{next(self._ids):03d}"
        self.tell(QuestionAnswered(question_id, by, answer_id, text))
        name = "human" if by == HUMAN_ID else self.state.name_of(by)
        shown = envelope.render(envelope.Envelope("answer", name, answer_id, text, question_id))
        self.result(question.asker, question.call_id, {"success": True, "question_id": question_id, "answer": shown})
        self.status(question.asker, "running")

    def wants(self, question_id: str, asker: int, tool: str, arguments: dict[str, Any], preview: str) -> None:
        """Let an agent ask for an approval."""
        (call_id,) = self.says(asker, None, (tool, arguments))
        said = json.dumps(arguments, ensure_ascii=False)
        approval = Approval(call_id, tool, said, preview, tool, f"digest of {question_id}", self.bus._now() + 600)
        self.tell(ApprovalAsked(question_id, asker, approval))
        self.status(asker, "waiting")

    def settle(self, question_id: str, ok: bool, reason: str = "") -> None:
        question = self.state.questions[question_id]
        self.tell(ApprovalGiven(question_id, ok, reason, False))
        self.result(question.asker, question.call_id, "done" if ok else {"success": False, "error": reason})
        self.status(question.asker, "running")

    def warns(self, text: str) -> None:
        self.tell(Warned(text))

    async def stream(self, number: int, text: str, *calls: tuple[str, dict[str, Any]], rate: float = 60.0) -> list[str]:
        """Let an agent say a text piece by piece, ``rate`` pieces a second."""
        self.request(number)
        await asyncio.sleep(0.3 if rate < 1e3 else 0)
        for at in range(0, len(text), PARTS):
            self.token(number, text[at : at + PARTS])
            await asyncio.sleep(1 / rate)
        return self.says(number, text, *calls)

    def _append(self, number: int, message: Message) -> None:
        self.tell(MessageAppended(number, message))

    def _id(self, number: int, kind: Any) -> str:
        return self.state.agents[number].next_message_id(kind)


PLAN = {
    "en": "I split this in three: **research**, the *interface* and a `review`. Each gets an agent of its own.",
    "zh": "我把任务分成三部分：**调研**、*界面* 和 `评审`，各由一个智能体负责。",
}
TASKS = {
    "en": (
        "Find out how the three largest competitors let people sign up, and what stops people half way.",
        "Design the sign-up page.\n\n1. One column, at most five fields\n2. Contrast at least `4.5:1`\n"
        "3. Write the result to **design.md**",
        "Review what the others make; say what must change before it ships.",
    ),
    "zh": (
        "调研三家主要竞品的注册流程，找出用户中途放弃的原因。",
        "设计注册页面。\n\n1. 单列布局，最多五个字段\n2. 对比度不低于 `4.5:1`\n3. 结果写入 **design.md**",
        "评审其他成员的产出，说明上线前必须修改的内容。",
    ),
}
RESEARCH = {
    "en": """## What stops people

Most leave at the **password rules**, not at the number of fields:

| Product | Fields | Leave at | Share |
| --- | --: | :-- | --: |
| Alpha | 7 | password | 31 % |
| Beta | 4 | e-mail code | 18 % |
| Gamma | 5 | password | 27 % |

> A field that explains itself beats a field less.

Source: [the study](https://example.org/study), appendix B.
""",
    "zh": """## 用户为什么放弃

多数人放弃在 **密码规则**，而不是字段数量：

| 产品 | 字段数 | 放弃环节 | 比例 |
| --- | --: | :-- | --: |
| 甲 | 7 | 密码 | 31 % |
| 乙 | 4 | 邮箱验证码 | 18 % |
| 丙 | 5 | 密码 | 27 % |

> 能自我解释的字段，胜过少一个字段。

来源：[调研报告](https://example.org/study)，附录 B。
""",
}
DESIGN = {
    "en": """Here is the colour core; the rest follows from it:

```python
PRIMARY = "#1a5fb4"
WARNING = "#c64600"

def contrast(one: str, other: str) -> float:
    \"\"\"Return the contrast of two colours after WCAG 2.\"\"\"
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)
```

- The button says *Create account*, never *Submit*
- Errors stand beside their field
- Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft must wrap
""",
    "zh": """先给出配色核心，其余都由它推出：

```python
PRIMARY = "#1a5fb4"
WARNING = "#c64600"

def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)
```

- 按钮写“创建账号”，不写“提交”
- 错误提示紧跟对应字段
- 超长单词 Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft 需要换行
""",
}
QUESTION = {
    "en": "May the page ask for a **phone number**? Legal has not answered, and I need it for the layout.",
    "zh": "页面可以要求填写**手机号**吗？法务还没有回复，而布局需要确定这一点。",
}
ROLES = {"en": ("Researcher", "UI Operator", "Critical Reviewer"), "zh": ("研究员", "界面设计师", "评审员")}
GOAL = {"en": "Build a sign-up page that people finish.", "zh": "做一个用户愿意填完的注册页面。"}
LEADING = {
    "en": "The research is in and the design stands. What is open: the phone number, and the review that failed.",
    "zh": "调研已完成，设计已成型。未决事项：是否收集手机号，以及失败的评审。",
}


async def play(stage: Stage, language: str = "en", *, rate: float = 60.0, to_the_end: bool = False) -> None:
    """Tell a run up to the point where a person is asked, or, with an answer by then, to its end."""
    stage.start(GOAL[language])
    one, two, three = await stage.stream(
        0,
        PLAN[language],
        *(
            ("create_sub_agent", {"agent_id": 1, "role_id": role.lower(), "task": task})
            for role, task in zip(ROLES[language], TASKS[language], strict=True)
        ),
        rate=rate,
    )
    for number, (call, role, task) in enumerate(
        zip((one, two, three), ROLES[language], TASKS[language], strict=True), 1
    ):
        stage.create(number, role, 1, task)
        stage.result(0, call, {"success": True, "agent_id": number, "display_name": f"{role}_1"})
    stage.status(0, "idle")

    async def research() -> None:
        (call,) = await stage.stream(
            1,
            "I look at the three products first." if language == "en" else "我先查看这三个产品。",
            ("web_search", {"query": "sign-up abandonment study 2025", "limit": 5}),
            rate=rate,
        )
        await asyncio.sleep(0.4 if rate < 1e3 else 0)
        stage.result(1, call, "1. The study — https://example.org/study\n2. A talk about forms\n3. …")
        await stage.stream(1, RESEARCH[language], rate=rate)
        stage.status(1, "completed")
        stage.queue(0, "completion", RESEARCH[language], sender=1)

    async def design() -> None:
        stage.token(2, "The user wants one column. ", reasoning=True)
        (call,) = await stage.stream(
            2, DESIGN[language], ("write_file", {"path": "design.md", "content": DESIGN[language]}), rate=rate
        )
        stage.result(2, call, {"success": True, "bytes": len(DESIGN[language])})
        stage.asks("ask_uio_001", 2, HUMAN_ID, QUESTION[language])

    async def review() -> None:
        refused, listed = await stage.stream(
            3, "", ("read_file", {"path": "/etc/shadow"}), ("list_files", {"path": "."}), rate=rate
        )
        stage.result(3, refused, {"success": False, "error": "path is outside of the workspace"})
        stage.result(3, listed, {"success": True, "files": ["design.md", "notes/研究.md"]})
        stage.asks("ask_cr_001", 3, 1, "What share leaves at the password?", "ask_other_agent")
        stage.gets(1, "ask", "What share leaves at the password?", sender=3)
        await asyncio.sleep(0.8 if rate < 1e3 else 0)
        stage.answer("ask_cr_001", "Between 27 % and 31 %.", 1)
        stage.request(3)
        for piece in ("Reading ", "the ", "design", " now, ", "the ", "first "):
            stage.token(3, piece)
            await asyncio.sleep(1 / rate)
        stage.status(3, "idle", "failed", "ModelRefused: 401 from https://llm.example.org/v1: the key was refused")
        stage.queue(0, "message", "My turn failed: the key was refused (401).", sender=3)

    await asyncio.gather(research(), design(), review())
    stage.cost = 0.0412
    stage.reads(0)
    stage.status(0, "running")
    await stage.stream(0, LEADING[language], rate=rate)
    stage.status(0, "idle")
    stage.warns("roles/critical-reviewer.md, line 3: 'description' is missing")
    if to_the_end:
        while stage.state.agents[2].status == "waiting":
            stage.heard.clear()
            await stage.heard.wait()
        await stage.stream(2, "Thank you — the layout keeps one optional field for it.", rate=rate)
        stage.status(2, "completed")
        stage.status(0, "completed")
        stage.end()


async def crowd(stage: Stage, agents: int, *, seconds: float, rate: float = 50.0) -> None:
    """Let many agents stream Markdown at once, ``rate`` tokens a second each, one message after the other."""
    stage.start("Write a long report")
    text = RESEARCH["en"] + RESEARCH["zh"] + DESIGN["en"]
    pieces = [text[at : at + 4] for at in range(0, len(text), 4)]
    for number in range(1, agents + 1):
        stage.create(number, ROLES["en" if number % 2 else "zh"][number % 3], number, f"Write part {number}")
    loop = asyncio.get_running_loop()
    begun = loop.time()

    async def write(number: int) -> None:
        said: list[str] = []
        stage.request(number)
        for count in range(int(seconds * rate)):
            said.append(pieces[count % len(pieces)])
            stage.token(number, said[-1])
            if len(said) == len(pieces):
                stage.says(number, "".join(said), ("write_file", {"path": f"part{number}.md"}))
                stage.request(number)
                said.clear()
            await asyncio.sleep(max(0.0, begun + (count + 1) / rate - loop.time()))
        stage.says(number, "".join(said))
        stage.status(number, "completed")

    await asyncio.gather(*(write(number) for number in range(1, agents + 1)))
