"""What tools, and the person through magics, may do with a running team.

The team port of the tools: every method changes state on the spot and returns the JSON object that
the caller's model reads; only ``ask`` waits. Nothing here knows a model, a file or a view.

Source: tool definitions §1.2, §2, §3; decisions 1, 2, 4, 11, 13, 15, 16, 21, 22, 23, 26.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..envelope import KINDS, Kind
from ..errors import AgentTerminated, TeamError
from ..events import AgentCreated, Source, Warned
from ..ids import HUMAN_ID, LEADER_ID, abbreviation, display_name
from ..state import AgentState, Question, summary
from ..tools.registry import RoleLike
from .approvals import why_not
from .names import find, numbers
from .notes import note
from .waits import ADVICE, NO_PERSON, PERSON_WAITS

if TYPE_CHECKING:
    from .team import TeamRuntime


class Port:
    """The operations on a team that its tools call.

    Parameters
    ----------
    team : TeamRuntime
    """

    __slots__ = ("_team", "home")

    def __init__(self, team: TeamRuntime) -> None:
        self._team = team
        self.home = team.ports.home

    def load_role(self, role_id: str) -> RoleLike:
        """Return a role by its id; raises :class:`RoleError`."""
        return self._team.ports.load_role(role_id)

    def list_roles(self) -> Any:
        """Return the roles, and the errors of files that are none."""
        return self._team.ports.list_roles()

    def check_model_key(self, key: str) -> None:
        """Raise :class:`ConfigError` for a key that is not configured."""
        self._team.ports.choose_model(key, None, self._team.state.model_key)

    def create(
        self,
        role: RoleLike,
        instance: int | None,
        task: str,
        *,
        background: bool = False,
        timeout: float = 600.0,
        thinking_mode: str | None = None,
        model_key: str | None = None,
        source: Source = "team_leader",
    ) -> dict[str, Any]:
        """Create an agent and give it its task (tool definitions §1.2, decisions 1, 13, 26).

        Nothing is burned by a failed creation: every check comes before the first event.

        Raises
        ------
        TeamError
            The instance number is taken or none, ``max_agents`` exist already, or the team cannot go on.
        ConfigError
            No such model is configured.
        """
        state = self._team.state
        number, instance = numbers(state, role.id, role.name, instance)
        alive = sum(1 for agent in state.members() if agent.status != "terminated")
        if self._team.limits.max_agents is not None and alive >= self._team.limits.max_agents:
            raise TeamError(f"max_agents: {alive} agents exist already; terminate one or reuse one by a message")
        key, warning = self._team.ports.choose_model(model_key, role.model, state.model_key)
        self._team.ports.model(key)
        held = {agent.abbreviation: agent.role_id for agent in state.members()}
        mode = thinking_mode or role.thinking_mode or ("fast" if state.run_mode == "fast" else "thinking")
        name = display_name(role.name, instance)
        if warning:
            self._team.bus.publish(Warned(f"{name}: {warning}"))
        self._team.bus.publish(
            AgentCreated(
                number,
                role.id,
                role.name,
                name,
                instance,
                abbreviation(role.name, role.id, held),
                key,
                mode,
                self._team.shared(role.system_prompt(self._team.ports.member_prompt(key))),
                timeout,
                background,
                summary(task),
            )
        )
        self._team.post.write(
            number, "task", HUMAN_ID if source == "user" else LEADER_ID, task, source=source, starts_work=True
        )
        out: dict[str, Any] = {"success": True, "agent_id": number, "display_name": name, "status": "running"}
        if number != instance:
            out["note"] = f"use agent_id {number} in every other tool; it is instance {instance} of {role.id}"
        return out

    def find(self, reference: int | str, *, leader: bool = False) -> tuple[AgentState, str]:
        """Return an agent that can be addressed, and a note when it was guessed.

        Parameters
        ----------
        reference : int or str
        leader : bool
            Whether an error names the leader among those that can be meant.

        Raises
        ------
        AgentNotFound, AgentTerminated
        """
        agent, guessed = find(self._team.state, reference, leader=leader)
        if agent.status == "terminated":
            raise AgentTerminated(f"{agent.display_name} is terminated and cannot be addressed any more")
        if agent.agent_id != LEADER_ID:
            self._team.agent(agent.agent_id)  # a stored agent's model may be gone: then nothing has happened
        return agent, guessed

    # -- what tools call ----------------------------------------------------------------

    def send(self, caller: int, target: int | str, text: str) -> dict[str, Any]:
        """Guide a running agent, or start one at rest on a new task (decision 11).

        Raises
        ------
        AgentNotFound, AgentTerminated
        TeamError
            It is the leader.
        """
        agent, guessed = self.find(target)
        if agent.agent_id == LEADER_ID:
            todo = "write to it by its own name, leader" if caller == HUMAN_ID else "just end your turn"
            raise TeamError(f"the leader is not a sub-agent; {todo}")
        kind: Kind = "message" if self._team.agent(agent.agent_id).task is not None else "task"
        source: Source = "user" if caller == HUMAN_ID else "team_leader"
        message_id = self._team.post.write(
            agent.agent_id, kind, caller, text, source=source, starts_work=kind == "task"
        )
        if caller == HUMAN_ID and self._team.state.leader == "model":
            told = note("human_sent", self._team.language, id=message_id, text=text)
            self._team.post.inform(LEADER_ID, told, wakes=False, about=agent.agent_id)
        return _with_note({"success": True, "message_id": message_id, "delivered_as": KINDS[kind].label}, guessed)

    def notify(self, caller: int, target: int | str, text: str, message_id: str | None) -> dict[str, Any]:
        """Tell a peer something without waiting (message protocol §4.3, decision 16).

        Raises
        ------
        AgentNotFound, AgentTerminated
        TeamError
            It is the caller or the leader.
        """
        agent, guessed = self.find(target)
        if agent.agent_id == caller:
            raise TeamError("you cannot send a message to yourself")
        if agent.agent_id == LEADER_ID:
            raise TeamError("the leader reads your output as it is; just write it")
        sent = self._team.post.write(
            agent.agent_id, "message", caller, text, source="sub_agent", message_id=message_id, notice_from=caller
        )
        return _with_note({"success": True, "message_id": sent}, guessed, sent, message_id)

    async def ask(
        self, caller: int, target: int | str, text: str, question_id: str | None, *, call_id: str, tool: str
    ) -> dict[str, Any]:
        """Ask and wait; the result carries the Answer envelope (decisions 15, 17, 21).

        Raises
        ------
        AgentNotFound, AgentTerminated
        WouldDeadlock
            Everybody would wait for ever.
        NobodyToAnswer
            A person leads, and none can act here.
        TeamError
            It is the caller, or the leader by another tool than ``ask_master``.
        """
        number, guessed = LEADER_ID, ""
        if tool != "ask_master":
            agent, guessed = self.find(target)
            number = agent.agent_id
            if number == LEADER_ID and caller != LEADER_ID:
                raise TeamError("ask the leader with ask_master")
        if number == LEADER_ID and self._team.state.leader == "human":
            number = HUMAN_ID
        question = self._team.waits.ask(caller, number, text, question_id, call_id=call_id, tool=tool)
        if number == LEADER_ID and self._team.leader_is_down and question.status == "open":
            self._team.waits.pass_to_human(question)
        return _with_note(await self.answer_result(question), guessed, question.id, question_id)

    async def answer_result(self, question: Question) -> dict[str, Any]:
        """Wait for a question and return the asker's tool result."""
        return self.outcome(await self._team.waits.answered(question.id))

    def outcome(self, question: Question) -> dict[str, Any]:
        """Return the asker's tool result for a question that is answered or closed."""
        if question.approval is not None:
            told = "interrupted: the program ended when it had just been allowed; it was not run again"
            return {"success": False, "error": why_not(question) or told}
        if question.status == "answered":
            return {"success": True, "question_id": question.id, "answer": self._team.waits.envelope(question)}
        advised = question.reason.startswith((NO_PERSON, PERSON_WAITS)) and ADVICE not in question.reason
        told = f"{question.reason}; {ADVICE}" if advised else question.reason
        return {"success": False, "question_id": question.id, "error": told}

    def answer(self, caller: int, asker: int | str | None, question_id: str, text: str) -> dict[str, Any]:
        """Answer a question by its id (decision 15).

        Raises
        ------
        AgentNotFound
        QuestionError
            It is answered, has expired, or was put to somebody else; or there is none of that id to come.
        """
        number, guessed = None, ""
        if asker is not None:
            agent, guessed = find(self._team.state, asker)
            number = agent.agent_id
        how = self._team.waits.answer(caller, number, question_id, text)
        out: dict[str, Any] = {"success": True, "question_id": question_id}
        if how == "kept":
            out["note"] = "no such question yet; the answer is kept and will be given when it is asked"
        question = self._team.state.questions.get(question_id)
        if caller == HUMAN_ID and question is not None and question.target == LEADER_ID and question.asker > LEADER_ID:
            told = note("human_answered", self._team.language, id=question_id, text=text)
            self._team.post.inform(LEADER_ID, told, wakes=False, about=question.asker)
        return _with_note(out, guessed)

    def active(self, caller: int) -> list[dict[str, Any]]:
        """Return all agents but the terminated ones (tool definitions §1.2, decision 21)."""
        out = []
        for agent in self._team.state.members():
            if agent.status == "terminated":
                continue
            row: dict[str, Any] = {
                "agent_id": agent.agent_id,
                "role_id": agent.role_id,
                "display_name": agent.display_name,
                "status": agent.status,
                "summary": agent.task_summary,
            }
            if agent.detail:
                row["status_detail"] = agent.detail
            if agent.agent_id == caller:
                row["you"] = True
            out.append(row)
        return out

    def describe(self, target: int | str) -> dict[str, Any]:
        """Return an agent's status, statistics, open questions, last outputs and error (decision 21).

        Raises
        ------
        AgentNotFound
        """
        agent, guessed = find(self._team.state, target)
        outputs = [m.content for m in agent.messages if m.role == "assistant" and m.content and not m.cut][-3:]
        questions = [
            {"question_id": q.id, "waits_for": self._team.state.name_of(q.answerer), "question": q.content}
            for q in self._team.waits.waits_for(agent.agent_id)
        ]
        tokens = agent.tokens
        out: dict[str, Any] = {
            "agent_id": agent.agent_id,
            "role_id": agent.role_id,
            "display_name": agent.display_name,
            "status": agent.status,
            "status_detail": agent.detail,
            "summary": agent.task_summary,
            "model_key": agent.model_key,
            "statistics": {
                "turns": agent.requests - agent.cuts,
                "tool_calls": agent.tool_counts(),
                "tokens": {"input": tokens.input, "output": tokens.output, "total": tokens.total},
                "seconds": round(max(0.0, agent.updated_at - agent.created_at), 1),
            },
            "open_questions": questions,
            "pending_messages": len(agent.pending),
            "last_outputs": outputs,
        }
        if agent.error:
            out["error"] = agent.error
        return _with_note(out, guessed)

    def stop_agent(self, caller: int, target: int | str, reason: str) -> dict[str, Any]:
        """End an agent's turn; it stays addressable (decision 22).

        Raises
        ------
        AgentNotFound, AgentTerminated
        TeamError
            It is the leader.
        """
        agent, guessed = self.find(target)
        if agent.agent_id == LEADER_ID:
            todo = "ended by stopping the team" if caller == HUMAN_ID else "ended by an answer without tool calls"
            raise TeamError(f"the leader's turn is {todo}")
        self._team.agent(agent.agent_id).halt("stopped", reason, tell=caller == HUMAN_ID)
        return _with_note({"success": True, "agent_id": agent.agent_id, "status": agent.status}, guessed)

    def terminate(self, caller: int, target: int | str) -> dict[str, Any]:
        """End an agent for good; its files stay (decision 22).

        Raises
        ------
        AgentNotFound
        TeamError
            It is the leader or the caller.
        """
        agent, guessed = find(self._team.state, target)
        if agent.agent_id == LEADER_ID:
            todo = "; stop the team (%astrion stop, team.stop)" if caller == HUMAN_ID else ""
            raise TeamError(f"the leader cannot be terminated{todo}")
        if agent.agent_id == caller:
            raise TeamError("you cannot terminate yourself; end your turn instead")
        if agent.status != "terminated":
            running = self._team.agent(agent.agent_id)
            tell = caller == HUMAN_ID
            self._team.waits.give_up(agent.agent_id, f"{agent.display_name} was terminated")
            if running.halt("stopped", "terminated", tell=tell, terminate=True) is None:
                self._team.terminated(running, tell=tell)
        return _with_note({"success": True, "agent_id": agent.agent_id, "status": "terminated"}, guessed)


def _with_note(out: dict[str, Any], guessed: str, used: str = "", supplied: str | None = None) -> dict[str, Any]:
    """Add what the caller should know: a guessed agent, a replaced id (decisions 2, 4)."""
    notes = [text for text in (out.get("note"), guessed) if text]
    if supplied is not None and used and used != supplied:
        notes.append(f"the id {supplied!r} was taken or not well formed; {used} counts")
    if notes:
        out["note"] = "; ".join(str(text) for text in notes)
    return out
