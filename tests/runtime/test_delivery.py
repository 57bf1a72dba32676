"""How messages reach an agent: safe points, kinds, what is stored of them (decisions 5, 9–12, 14, 16, 54)."""

from __future__ import annotations

import asyncio

import pytest
from support.held import Held
from support.teams import go, rig
from support.virtual import Watched

from astrion_nb.envelope import parse
from astrion_nb.events import MessageAppended, MessageQueued
from astrion_nb.ids import LEADER_ID
from astrion_nb.llm.scripted import ScriptedModel, call, say, until_message
from astrion_nb.messages import Message

CREATE = call("create_sub_agent", agent_id=1, role_id="ui-operator", task="Design the page.\nIn blue.")
UI = "UI Operator_1"
LEADER = "Team Leader"


def inserted(messages: list[Message] | tuple[Message, ...]) -> list[tuple[str, str]]:
    """Return kind and content of the envelopes in a conversation."""
    found = [parse(m.content or "") for m in messages if m.role == "user" and "envelope_id" in m.metadata]
    return [(envelope.kind, envelope.content) for envelope in found]


@pytest.mark.faults
def test_messages_sent_while_tools_run_come_after_all_results_in_order_and_once() -> None:
    async def main() -> None:
        held = Held()
        model = Watched(
            ScriptedModel(
                {
                    LEADER: [CREATE, say("Started."), say("Thanks.")],
                    UI: [call("hold", tag="a") + call("hold", tag="b"), say("Done.")],
                }
            )
        )
        team = rig(model, tools=(held.tool,))
        working = asyncio.ensure_future(team.run("Go"))
        await held.wait_begun(2)
        first = team.team.port.send(LEADER_ID, 1, "first")
        second = team.team.port.send(LEADER_ID, UI, "second")
        assert first["delivered_as"] == second["delivered_as"] == "消息"
        held.release()
        await working
        _, later = model.of(UI)
        assert later.roles == ["system", "user", "assistant", "tool", "tool", "user", "user"]
        assert [m.content for m in later.messages[3:5]] == ["done a", "done b"]
        assert [(e.kind, e.id, e.content) for e in later.envelopes()[1:]] == [
            ("message", first["message_id"], "first"),
            ("message", second["message_id"], "second"),
        ]
        stored = [message.content for message in team.team.state.agents[1].messages]
        assert all(stored.count(message.content) == 1 for message in later.messages)

    go(main)


def test_the_first_message_of_an_agent_is_its_task_after_the_system_message() -> None:
    async def main() -> None:
        team = rig(ScriptedModel({LEADER: [CREATE, say("Started."), say("Thanks.")], UI: [say("Done.")]}))
        state = await team.run("Go")
        system, task, answer = state.agents[1].messages
        assert system.content == "你是智能体集群团队的一员\n\nYou do your part."
        assert task.content == (
            "来自 Team Leader 的任务发布\nid: task_001\n\n<Team Leader>\n<Task>\n"
            "Design the page.\nIn blue.\n</Task>\n</Team Leader>"
        )
        assert task.metadata == {
            "message_source": "team_leader",
            "visibility": "compact",
            "starts_work": True,
            "envelope_id": "task_001",
        }
        assert (task.message_id, answer.message_id) == ("msg_user_001", "msg_assistant_001")
        assert state.agents[1].task_summary == "Design the page."

    go(main)


@pytest.mark.spec
def test_what_an_agent_writes_reaches_the_leader_as_progress_or_completion() -> None:
    async def main() -> None:
        steps = [say("Looking.") + call("list_active_sub_agents"), call("list_active_sub_agents"), say("It is blue.")]
        model = Watched(ScriptedModel({LEADER: [CREATE, say("Started."), say("Thanks.")], UI: steps}))
        team = rig(model)
        state = await team.run("Go")
        assert inserted(state.leader_state.messages) == [("progress", "Looking."), ("completion", "It is blue.")]
        progress, completion = [m for m in state.leader_state.messages if m.metadata.get("agent_id") == 1]
        assert (progress.message_id, completion.message_id) == ("msg_auto_001", "msg_auto_002")
        assert completion.metadata == {
            "message_source": "sub_agent",
            "visibility": "compact",
            "starts_work": False,
            "agent_id": 1,
            "envelope_id": "out_uio_002",
        }
        assert state.leader_state.messages[0].metadata == {
            "message_source": "user",
            "visibility": "chat",
            "starts_work": True,
        }
        assert state.leader_state.messages[0].content == "Go", "the person's own message is not wrapped"
        assert state.agents[1].status == "completed"

    go(main)


def test_an_agent_in_the_background_reports_its_end_only() -> None:
    async def main() -> None:
        create = call("create_sub_agent", agent_id=1, role_id="ui-operator", task="t", run_in_background=True)
        steps = [say("Looking.") + call("list_active_sub_agents"), say("Blue.")]
        team = rig(ScriptedModel({LEADER: [create, say("Started."), say("Thanks.")], UI: steps}))
        state = await team.run("Go")
        assert inserted(state.leader_state.messages) == [("completion", "Blue.")]

    go(main)


@pytest.mark.parametrize("text", ["", " ", "\n\t\n"])
def test_blank_text_beside_tool_calls_is_no_progress(text: str) -> None:
    async def main() -> None:
        steps = [say(text) + call("list_active_sub_agents"), say("Blue.")]
        team = rig(ScriptedModel({LEADER: [CREATE, say("Started."), say("Thanks.")], UI: steps}))
        state = await team.run("Go")
        assert inserted(state.leader_state.messages) == [("completion", "Blue.")]

    go(main)


def test_a_message_to_an_agent_at_rest_is_a_new_task_and_starts_one_run() -> None:
    async def main() -> None:
        model = Watched(
            ScriptedModel(
                {LEADER: [CREATE, say("Started."), say("Thanks."), say("Again.")], UI: [say("A."), say("B.")]}
            )
        )
        team = rig(model)
        await team.run("Go")
        sent = team.team.port.send(LEADER_ID, 1, "Now in red.")
        assert sent["delivered_as"] == "任务发布"
        await team.team.rest()
        agent = team.team.state.agents[1]
        assert inserted(agent.messages) == [("task", "Design the page.\nIn blue."), ("task", "Now in red.")]
        assert agent.task_summary == "Now in red."
        assert len(model.of(UI)) == 2

    go(main)


@pytest.mark.faults
def test_two_sends_to_an_agent_at_rest_start_one_run() -> None:
    async def main() -> None:
        leader = [CREATE, say("Started."), say("Thanks."), say("Again.")]
        model = Watched(ScriptedModel({LEADER: leader, UI: [say("A."), say("B.")]}))
        team = rig(model)
        await team.run("Go")

        async def send(text: str) -> str:
            await team.team.person.admit()
            return str(team.team.port.send(LEADER_ID, 1, text)["delivered_as"])

        kinds = await asyncio.gather(send("one"), send("two"))
        assert kinds == ["任务发布", "消息"]
        await team.team.rest()
        first, second = model.of(UI)
        assert [e.content for e in second.envelopes()][1:] == ["one", "two"]
        assert second.roles == [*first.roles, "assistant", "user", "user"]
        tasks = [m.metadata["starts_work"] for m in team.team.state.agents[1].messages if m.role == "user"]
        assert tasks == [True, True, False]

    go(main)


def test_nothing_sent_while_the_last_answer_streams_is_lost() -> None:
    async def main() -> None:
        model = Watched(
            ScriptedModel(
                {
                    LEADER: [CREATE, say("Started."), say("Thanks."), say("Thanks.")],
                    UI: [until_message(say("A.")), say("B.")],
                }
            )
        )
        team = rig(model)
        working = asyncio.ensure_future(team.run("Go"))
        await team.until(lambda state: 1 in state.agents and len(state.agents[1].messages) == 2)
        team.team.port.send(LEADER_ID, 1, "wait, also this")
        await working
        assert [e.content for e in model.of(UI)[1].envelopes()] == ["Design the page.\nIn blue.", "wait, also this"]
        assert inserted(team.team.state.leader_state.messages) == [("completion", "A."), ("completion", "B.")]

    go(main)


def test_progress_that_came_after_the_leaders_end_waits_for_its_next_request() -> None:
    async def main() -> None:
        held = Held()
        leader = [CREATE, say("Started."), say("Thanks.")]
        steps = [say("Looking.") + call("hold"), say("Blue.")]
        model = Watched(ScriptedModel({LEADER: leader, UI: steps}))
        team = rig(model, tools=(held.tool,))
        working = asyncio.ensure_future(team.run("Go"))
        await held.wait_begun()
        await team.until(lambda state: state.leader_state.status == "completed")
        assert [item.kind for item in team.team.state.leader_state.pending] == ["progress"]
        held.release()
        await working
        assert [(e.kind, e.content) for e in model.of(LEADER)[-1].envelopes()] == [
            ("progress", "Looking."),
            ("completion", "Blue."),
        ]
        assert len(model.of(LEADER)) == 3

    go(main)


def test_every_queued_envelope_is_drained_once_into_one_conversation() -> None:
    async def main() -> None:
        leader = [CREATE, say("Started."), say("Thanks."), say("Ok.")]
        team = rig(ScriptedModel({LEADER: leader, UI: [say("A."), say("B.")]}))
        await team.run("Go")
        team.team.port.send(LEADER_ID, 1, "more")
        await team.team.rest()
        queued = [(event.agent_id, event.item.id) for event in team.kinds(MessageQueued)]
        drained = [(event.agent_id, event.drained) for event in team.kinds(MessageAppended) if event.drained]
        assert sorted(queued) == sorted(drained)
        assert len(set(queued)) == len(queued)

    go(main)


# -- notices --------------------------------------------------------------------------------

FSE = "Full-Stack Engineer_1"
TWO = CREATE + call("create_sub_agent", agent_id=1, role_id="full-stack-engineer", task="Build.")


@pytest.mark.spec
def test_a_notice_returns_at_once_and_its_reply_comes_as_a_message_that_wakes_nobody() -> None:
    async def main() -> None:
        notice = call(
            "ask_other_agent", target_agent_id=1, content="page is ready", message_id="n-1", expects_answer=False
        )
        script = {
            LEADER: [TWO, say("Started."), *[say("Ok.")] * 3],
            UI: [say("Blue."), say("Seen, thanks.")],
            FSE: [notice, say("Built.")],
        }
        model = Watched(ScriptedModel(script, check_on_close=False))
        team = rig(model)
        state = await team.run("Go")
        (result,) = [m.content for m in state.agents[2].messages if m.role == "tool"]
        assert result == '{"success":true,"message_id":"n-1"}'
        assert ("message", "page is ready") in inserted(state.agents[1].messages)
        replies = [e.item for e in team.kinds(MessageQueued) if e.agent_id == 2 and e.item.kind == "message"]
        assert [(item.sender, item.content, item.wakes) for item in replies] == [(UI, "Seen, thanks.", False)]
        assert state.agents[2].status == "completed"

    go(main)


def test_two_notices_read_in_one_turn_get_one_reply() -> None:
    async def main() -> None:
        held = Held()
        team = rig(
            ScriptedModel(
                {
                    LEADER: [TWO, say("Started."), *[say("Ok.")] * 3],
                    UI: [call("hold"), say("Seen.")],
                    FSE: [say("Built.")],
                },
                check_on_close=False,
            ),
            tools=(held.tool,),
        )
        working = asyncio.ensure_future(team.run("Go"))
        await held.wait_begun()
        await team.until(lambda state: state.agents[2].status == "completed")
        for text in ("one", "two"):
            team.team.port.notify(2, 1, text, None)
        held.release()
        await working
        replies = [e.item.content for e in team.kinds(MessageQueued) if e.agent_id == 2 and e.item.kind == "message"]
        assert replies == ["Seen."]

    go(main)


def test_a_notice_to_an_agent_at_rest_starts_a_turn_that_begins_with_it() -> None:
    async def main() -> None:
        leader = [TWO, say("Started."), *[say("Ok.")] * 4]
        team = rig(
            ScriptedModel(
                {LEADER: leader, UI: [say("Blue."), say("Seen.")], FSE: [say("Built.")]}, check_on_close=False
            )
        )
        await team.run("Go")
        team.team.port.notify(2, UI, "ready", "n-2")
        await team.team.rest()
        notice = next(m for m in team.team.state.agents[1].messages if m.metadata.get("envelope_id") == "n-2")
        assert notice.metadata == {
            "message_source": "sub_agent",
            "visibility": "compact",
            "starts_work": True,
            "agent_id": 2,
            "envelope_id": "n-2",
        }

    go(main)


def test_a_reply_that_waits_in_the_mailbox_does_not_begin_the_next_piece_of_work() -> None:
    async def main() -> None:
        leader = [TWO, say("Started."), *[say("Ok.")] * 5]
        script = {LEADER: leader, UI: [say("Blue."), say("Seen.")], FSE: [say("Built."), say("Rebuilt.")]}
        team = rig(ScriptedModel(script, check_on_close=False))
        await team.run("Go")
        team.team.port.notify(2, 1, "ready", "n-3")
        await team.team.rest()
        team.team.port.send(LEADER_ID, 2, "Build again.")
        await team.team.rest()
        user = [m for m in team.team.state.agents[2].messages if m.role == "user"]
        assert [(parse(m.content or "").content, m.metadata["starts_work"]) for m in user] == [
            ("Build.", True),
            ("Seen.", False),
            ("Build again.", True),
        ]

    go(main)


# -- the person -----------------------------------------------------------------------------


@pytest.mark.parametrize("running", [True, False])
def test_a_person_who_sends_speaks_as_team_leader_and_the_leader_is_told(running: bool) -> None:
    async def main() -> None:
        held = Held()
        leader = [CREATE, say("Started."), *[say("Ok.")] * 3]
        script = {LEADER: leader, UI: [call("hold"), say("A."), say("B.")]}
        team = rig(ScriptedModel(script, check_on_close=False), tools=(held.tool,))
        working = asyncio.ensure_future(team.run("Go"))
        await held.wait_begun()
        if not running:
            held.release()
            await working
        sent = team.team.port.send(-1, 1, "In green!")
        held.release()
        await team.team.rest()
        await working
        message = next(
            m for m in team.team.state.agents[1].messages if m.metadata.get("envelope_id") == sent["message_id"]
        )
        envelope = parse(message.content or "")
        assert (envelope.sender, envelope.kind, envelope.content) == (
            LEADER,
            "message" if running else "task",
            "In green!",
        )
        assert message.metadata["message_source"] == "user"
        told = [e.item for e in team.kinds(MessageQueued) if e.agent_id == 0 and e.item.source == "runtime"]
        assert [(item.sender, item.wakes) for item in told] == [(UI, False)]
        assert sent["message_id"] in told[0].content
        assert "In green!" in told[0].content

    go(main)


@pytest.mark.spec
@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_stored_user_message_is_an_envelope_but_the_persons_own(language: str) -> None:
    """A run with everything the runtime inserts by itself: nudge, reminder, failure, what a person did."""

    async def main() -> None:
        held = Held()
        ask = call("ask_master", question="which?", question_id="q-1")
        script = {
            LEADER: [TWO, say(""), say("Started."), *[say("Ok.")] * 12],
            UI: [ask, say(""), say("Blue.")],
            FSE: [call("hold"), say("never")],
        }
        team = rig(ScriptedModel(script, check_on_close=False), tools=(held.tool,), language=language)
        working = asyncio.ensure_future(team.run("Go"))
        await team.until(lambda state: "q-1" in state.questions and state.questions["q-1"].passed)
        team.team.port.send(-1, 2, "quick")
        team.team.port.answer(-1, None, "q-1", "blue")
        team.team.port.stop_agent(-1, 2, "enough")
        await working
        state = team.team.state
        sources = set()
        for agent in state.agents.values():
            for message in agent.messages:
                if message.role != "user":
                    continue
                sources.add(message.metadata["message_source"])
                if agent.agent_id == LEADER_ID and message.metadata["message_source"] == "user":
                    assert message.content == "Go"
                    continue
                envelope = parse(message.content or "")
                assert envelope.id == message.metadata["envelope_id"]
                assert "系统通知" not in (message.content or "")
        assert sources == {"user", "team_leader", "sub_agent", "runtime"}

    go(main)
