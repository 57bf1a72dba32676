"""Conversations for tests of what is shown: states made by real events through the one reducer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from astrion_nb import envelope
from astrion_nb.envelope import Kind
from astrion_nb.events import (
    AgentCreated,
    ConversationStarted,
    Event,
    MessageAppended,
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
    RunStarted,
    StatusChanged,
    Warned,
)
from astrion_nb.ids import HUMAN_ID, LEADER_ID, LEADER_NAME
from astrion_nb.messages import Message, ToolCall, Usage
from astrion_nb.state import TeamState, apply, summary


class Story:
    """Tells a conversation event by event.

    Parameters
    ----------
    language, project, conversation, clock, leader
        What may differ between machines and days.
    """

    def __init__(
        self,
        *,
        language: str = "en",
        project: str = "/home/someone/project",
        conversation: str = "conv_20260102_030405_001",
        clock: float = 1_700_000_000.0,
        leader: Any = "model",
        title: str = "",
    ) -> None:
        self.state = TeamState()
        self.clock = clock
        self.calls = 0
        self.tell(ConversationStarted(conversation, title, project, "m/one", "fast", leader, language, "You lead."))

    def tell(self, event: Event) -> None:
        self.clock += 1.5
        apply(self.state, event, seq=self.state.seq + 1, t=self.clock)

    def human(self, text: str) -> None:
        metadata = {"message_source": "user", "visibility": "chat", "starts_work": True}
        self._append(LEADER_ID, Message("user", text, self._id(LEADER_ID, "user"), metadata=metadata))

    def start(self, text: str) -> None:
        self.tell(RunStarted(self.state.run + 1, summary(text)))
        self.tell(StatusChanged(LEADER_ID, "running"))
        self.human(text)

    def end(self, status: Any = "completed", error: str = "") -> None:
        self.tell(StatusChanged(LEADER_ID, "idle"))
        self.tell(RunEnded(self.state.run, status, self.state.leader_state.last_text, error))

    def agent(self, number: int, role_id: str, name: str, instance: int = 1, task: str = "") -> None:
        shown = f"{name}_{instance}"
        self.tell(
            AgentCreated(
                number, role_id, name, shown, instance, "a", "m/two", "fast", "You help.", 600.0, False, summary(task)
            )
        )
        self.tell(StatusChanged(number, "running"))

    def says(
        self,
        number: int,
        text: str | None,
        *calls: tuple[str, Mapping[str, Any] | str],
        usage: Usage | None = None,
    ) -> list[str]:
        """An agent's model answers; returns the ids of its tool calls."""
        made = []
        for name, arguments in calls:
            self.calls += 1
            raw = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            made.append(ToolCall(f"call_{self.calls}", name, raw))
        metadata = {} if usage is None else {"usage": usage.to_json()}
        message_id = self._id(number, "assistant")
        self._append(number, Message("assistant", text, message_id, tuple(made), metadata=metadata))
        return [call.id for call in made]

    def result(self, number: int, call_id: str, result: Mapping[str, Any] | str) -> None:
        content = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        self._append(number, Message("tool", content, self._id(number, "tool"), tool_call_id=call_id))

    def gets(
        self,
        number: int,
        kind: Kind,
        envelope_id: str,
        content: str,
        *,
        sender: int = LEADER_ID,
        source: str = "",
        status: str = "",
    ) -> None:
        """An envelope is inserted into an agent's conversation."""
        name = LEADER_NAME if sender == LEADER_ID else self.state.agents[sender].display_name
        metadata: dict[str, Any] = {
            "message_source": source or ("team_leader" if sender == LEADER_ID else "sub_agent"),
            "visibility": "compact",
            "starts_work": number != LEADER_ID and kind in ("task", "ask"),
            "envelope_id": envelope_id,
        }
        if sender != LEADER_ID:
            metadata["agent_id"] = sender
        if status:
            metadata["status"] = status
        text = envelope.render(envelope.Envelope(kind, name, envelope_id, content))
        which = "auto" if number == LEADER_ID else "user"
        self._append(number, Message("user", text, self._id(number, which), metadata=metadata))

    def asks(self, question_id: str, asker: int, target: int, content: str, tool: str = "ask_master") -> str:
        """A blocking question, with the tool call that asked it; returns the call's id."""
        (call_id,) = self.says(asker, None, (tool, {"question": content}))
        self.tell(QuestionAsked(question_id, asker, target, content, call_id, tool))
        self.tell(StatusChanged(asker, "waiting"))
        return call_id

    def answers(self, question_id: str, answer_id: str, by: int, answer: str) -> None:
        question = self.state.questions[question_id]
        self.tell(QuestionAnswered(question_id, by, answer_id, answer))
        name = "human" if by == HUMAN_ID else self.state.name_of(by)
        shown = envelope.render(envelope.Envelope("answer", name, answer_id, answer, question_id))
        self.result(question.asker, question.call_id, {"success": True, "question_id": question_id, "answer": shown})
        self.tell(StatusChanged(question.asker, "running"))

    def warns(self, text: str) -> None:
        self.tell(Warned(text))

    def rests(self, number: int, status: Any = "completed", detail: Any = "", error: str = "") -> None:
        self.tell(StatusChanged(number, status, detail, error))

    def _append(self, number: int, message: Message) -> None:
        self.tell(MessageAppended(number, message))

    def _id(self, number: int, kind: Any) -> str:
        return self.state.agents[number].next_message_id(kind)


TASK = "为注册页面设计配色方案。\n\n1. 主色用蓝色系\n2. 对比度不低于 `4.5:1`，输出 **design.md**"
REPORT = """配色完成。

| 用途 | 颜色 | 对比度 |
| --- | :-: | --: |
| 主色 | `#1a5fb4` | 6.3 |
| 警告 | `#c64600` | 4.9 |

> 深色模式另附一套。

```python
PRIMARY = "#1a5fb4"
print(f"$ {PRIMARY}")
```
"""


def team_at_work(language: str = "zh", **differing: Any) -> Story:
    """Two agents, progress, a question and its answer, a failure, a question still open."""
    story = Story(language=language, **differing)
    where = story.state.project_path
    story.start("Build the sign-up page: colours first, then the API." if language == "en" else "做一个注册页面")
    one, two = story.says(
        0,
        "I split this in two: *colours* and the **API**.",
        ("create_sub_agent", {"agent_id": 1, "role_id": "ui-operator", "task": TASK, "run_in_background": False}),
        ("create_sub_agent", {"agent_id": 1, "role_id": "full-stack-engineer", "task": "Write api.md"}),
        usage=Usage(1200, 80),
    )
    story.agent(1, "ui-operator", "UI Operator", task=TASK)
    story.result(0, one, {"success": True, "agent_id": 1, "display_name": "UI Operator_1"})
    story.agent(2, "full-stack-engineer", "Full-Stack Engineer", task="Write api.md")
    story.result(0, two, {"success": True, "agent_id": 2, "display_name": "Full-Stack Engineer_1"})
    story.gets(1, "task", "task_001", TASK)
    story.gets(2, "task", "task_002", "Write api.md")
    (read,) = story.says(
        1, "我现在开始分析现有设计风格...", ("read_file", {"path": f"{where}/style.css"}), usage=Usage(300, 20)
    )
    story.result(1, read, f"{where}/style.css: 12 lines\n" + "body { color: #222 }\n" * 200)
    story.gets(0, "progress", "out_uio_001", "我现在开始分析现有设计风格...", sender=1)
    story.asks("ask_fse_001", 2, 0, "Which branch strategy do we use?")
    story.gets(0, "ask", "ask_fse_001", "Which branch strategy do we use?", sender=2)
    (answer,) = story.says(
        0,
        None,
        ("answer_sub_agent_question", {"question_id": "ask_fse_001", "answer": "Trunk based."}),
        usage=Usage(1500, 30),
    )
    story.answers("ask_fse_001", "ans_tl_001", 0, "Trunk based.")
    story.result(0, answer, {"success": True, "question_id": "ask_fse_001"})
    story.says(1, REPORT, usage=Usage(900, 150))
    story.rests(1)
    story.gets(0, "completion", "out_uio_002", REPORT, sender=1)
    story.gets(2, "message", "msg_tl_001", "先不要创建 API。", source="user")
    story.says(2, None, ("web_search", '{"query": "broken'), usage=Usage(400, 10))
    story.rests(2, "idle", "failed", f"ModelRefused: 401 at {where}")
    story.gets(0, "message", "msg_fse_001", "The endpoint refused the key (401).", sender=2, status="failed")
    story.warns(f"{where}/.roles/x.md, line 3: 'description' is missing")
    story.says(0, "Colours are done; the API needs a key. " + REPORT, usage=Usage(2000, 60))
    story.end()
    return story


def team_waiting(language: str = "en") -> Story:
    """A person is asked, an agent waits for another, and nobody is done."""
    story = Story(language=language)
    story.start("Deploy it")
    story.agent(1, "ops", "Ops", task="Deploy")
    story.agent(2, "qa", "QA & <Test>", task="Check | verify")
    story.gets(1, "task", "task_001", "Deploy")
    story.gets(2, "task", "task_002", "Check | verify")
    story.asks("ask_ops_001", 1, HUMAN_ID, "Really deploy to **production**? <b>It is Friday</b>", "ask_master")
    story.asks("ask_qat_001", 2, 1, "Are you done?", "ask_other_agent")
    return story
