"""The public team: what a script, a magic or a button uses.

``Team`` belongs to the event loop it is first used on. Here is what it is made of, each parameter
checked where it is handed in, and how it is given a task; its life is :mod:`~astrion_nb.app.lifetime`'s
matter, what a person does to it at work :mod:`~astrion_nb.app.steering`'s. It knows no Jupyter:
waiting in a cell, threads and views are others' matter.

Source: decisions 13–24, 29, 31, 55, 56.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .. import given
from ..errors import ConfigError, RunFailed, TeamBusy, TeamError
from ..home import Home, as_home
from ..ids import HUMAN_ID
from ..role import check_role
from ..runtime.limits import Limits
from ..runtime.team import TeamRuntime
from ..state import summary, title_line
from ..tools.permissions import Policy
from ..tools.registry import Tool, tool
from .config import Config, in_call
from .lifetime import begun, ended
from .opening import Plan
from .result import TeamResult
from .steering import Steered
from .wiring import Roles

if TYPE_CHECKING:
    from ..llm.model import Model
    from ..role import Role

_NO_TASK = "say what the team is to do"


class Team(Steered):
    """A team of agents.

    Parameters
    ----------
    title : str, optional
        Default: the first line of the task.
    roles : iterable of str or Role, optional
        Restrict the team to these; default: every role of the agents directory.
    model : str or Model, optional
        Key of the leader's and the default model, or a model object such as a ``ScriptedModel``.
    all_models : str, optional
        Key of every agent's model, whatever a role or the leader says.
    leader : {"model", "human"}
        With ``human`` no leader model is called; the caller plays the leader.
    mode : {"fast", "thinking", "deep"}
        How much the models think; ``deep`` is kept with the conversation and counts as ``thinking``.
    conversation : str, optional
        Id of a stored conversation to go on with.
    read_only : bool
        Only look at the stored conversation, as it is at this moment, also while another process works on it.
    take_over : bool
        Take the stored conversation from whoever has it open: what happens there from now on is not saved.
    replay, record : path, optional
        A cassette to play, or to write.
    permission : {"ask", "read-only", "auto"}
        What tools with an ``effect`` may do: ``ask`` lets them read, and asks the person for everything else
        (:meth:`approve`, :meth:`deny`); where no person can act, that is denied. A function without an
        ``effect`` is its author's to answer for, and runs.
    tools : iterable of callable or Tool
        Further tools; plain functions are made tools.
    limits : Limits
    home : path or Home, optional
        Default: ``ASTRION_HOME``.
    language : {"zh", "en"}, optional
    human : bool, optional
        Whether a person can answer questions; default: when somebody listens to :meth:`events` or
        a view is attached.
    durability : {"sync", "relaxed"}
        ``relaxed`` does not wait for the disk before each step; a crash may cost the last moments.
    project_path : path, optional
        Folder that the conversation is noted to be about; default: the working directory.
    config : Config, optional
        Everything configured, read already; then neither a model's key nor ``home`` and the like beside it.

    Raises
    ------
    ConfigError, RoleError
        A parameter is not what it has to be; it is named. Nothing has been made then.

    Examples
    --------
    >>> async def main() -> str:
    ...     async with Team(model="openai") as team:
    ...         return (await team.run("Compare three ways to cache a web page.")).text
    """

    def __init__(
        self,
        title: str | None = None,
        *,
        roles: Iterable[str | Role] | None = None,
        model: str | Model | None = None,
        all_models: str | None = None,
        leader: Literal["model", "human"] = "model",
        mode: Literal["fast", "thinking", "deep"] = "fast",
        conversation: str | None = None,
        read_only: bool = False,
        take_over: bool = False,
        replay: str | Path | None = None,
        record: str | Path | None = None,
        permission: Literal["ask", "read-only", "auto"] = "ask",
        tools: Iterable[Tool | Callable[..., Any]] = (),
        limits: Limits | None = None,
        home: str | Path | Home | None = None,
        language: Literal["zh", "en"] | None = None,
        human: bool | None = None,
        durability: Literal["sync", "relaxed"] = "sync",
        project_path: str | Path | None = None,
        config: Config | None = None,
    ) -> None:
        given.text("Team: title", title, none=True)
        given.text("Team: all_models", all_models, none=True)
        given.text("Team: conversation", conversation, none=True)
        given.text("Team: language", language, none=True)
        given.one_of("Team: leader", leader, ("model", "human"))
        given.one_of("Team: mode", mode, ("fast", "thinking", "deep"))
        given.one_of("Team: permission", permission, ("ask", "read-only", "auto"))
        given.one_of("Team: durability", durability, ("sync", "relaxed"))
        given.switch("Team: human", human, none=True)
        given.switch("Team: read_only", read_only)
        given.switch("Team: take_over", take_over)
        if (read_only or take_over) and (conversation is None or (read_only and take_over)):
            raise ConfigError(
                "Team: read_only or take_over says how a stored conversation is opened: give one, and conversation="
            )
        for name, place in (("replay", replay), ("record", record), ("project_path", project_path)):
            given.path(f"Team: {name}", place)
        if limits is not None and not isinstance(limits, Limits):
            raise given.refused("Team: limits", limits, "use Limits(max_agents=…, …), or None for the usual ones")
        key, own = _model(model)
        said = {"model": key, "all_models": all_models, "replay": replay, "record": record, "language": language}
        self.config = _config(config, home, said)
        self.permission = permission
        plan = Plan(
            config=self.config,
            roles=Roles(self.config, _roles(roles)),
            model=own,
            title=title_line(title) if title is not None else None,
            leader=leader,
            mode=mode,
            conversation=conversation,
            durability=durability,
            tools=_tools(tools),
            limits=limits or Limits(),
            project_path=str(Path(project_path or ".").resolve()),
            human=human,
            permission=Policy(permission),
            access="read" if read_only else "take over" if take_over else "own",
        )
        super().__init__(plan)

    async def start(self, text: str) -> None:
        """Give the team a task and return once it is on disk; the team works on.

        Raises
        ------
        TeamBusy
            The team is at work.
        """
        given.text("start: the task", text, empty=_NO_TASK)
        runtime = await self.open()
        self._check_access()
        await runtime.person.admit()
        if runtime.state.run_status == "running":
            raise TeamBusy(
                "the team is at work: write to it (%send leader …, team.send), or end it (%astrion stop, team.stop)"
            )
        self._unanswered.clear()
        if self.leader == "human":
            self._give(runtime, text)
        else:
            with begun(runtime, summary(text)):
                runtime.person.say(text)
        await runtime.bus.durable()

    def _give(self, runtime: TeamRuntime, text: str) -> None:
        """Give the task of a person who leads to every agent there is, and to one of each chosen role that has none."""
        there = [agent for agent in runtime.state.members() if agent.status != "terminated"]
        held = Counter(agent.role_id for agent in there)
        roles = [self._plan.roles.load(role_id) for role_id in self._plan.roles.chosen]
        if not there and not roles:
            raise TeamError(
                "you lead this team and it has no agents any more: write to a role (%send ROLE text), which makes one"
            )
        for agent in there:
            runtime.agent(agent.agent_id)  # its model may be gone: then nothing has happened
        with begun(runtime, summary(text)):
            for agent in there:
                runtime.port.send(HUMAN_ID, agent.agent_id, text)
            for role in roles:
                if held[role.id]:
                    held[role.id] -= 1
                else:
                    runtime.port.create(role, None, text, source="user")

    async def run(self, text: str, *, timeout: float | None = None) -> TeamResult:
        """Give the team a task and wait until everybody rests.

        Parameters
        ----------
        text : str
        timeout : float, optional
            Seconds after which the team is stopped (``status == "timed_out"``).

        Returns
        -------
        TeamResult

        Raises
        ------
        TeamBusy
            The team is at work.
        RunFailed
            The leader failed; ``error.result`` holds what there is.
        StorageError
            The conversation cannot be saved.
        """
        given.text("run: the task", text, empty=_NO_TASK)
        given.seconds("run: timeout", timeout)
        before = self.state.run
        try:
            await self.start(text)
            return await self.wait(timeout=timeout)
        except asyncio.CancelledError:
            if self._opened is not None and self.state.run > before:
                await ended(self._opened.runtime.stop_all("stopped", "the caller was cancelled"))
            raise

    async def wait(self, *, timeout: float | None = None) -> TeamResult:
        """Wait until everybody rests and what happened is on disk; see :meth:`run`."""
        given.seconds("wait: timeout", timeout)
        runtime = await self.open()
        limit = runtime.limit_run(timeout) if timeout is not None and runtime.running else None
        try:
            await runtime.rest()
        finally:
            if limit is not None:
                limit.cancel()
        result = self.result()
        if result.status == "failed":
            raise RunFailed(f"the run failed: {result.error or 'see the transcript'}", result)
        return result


def _model(model: str | Model | None) -> tuple[str | None, Model | None]:
    """Return a model as a key, or as an object."""
    if model is None or isinstance(model, str):
        return model, None
    if isinstance(model, type) or not all(hasattr(model, name) for name in ("key", "endpoint", "stream", "close")):
        raise given.refused("Team: model", model, "use the key of a model, or a model such as ScriptedModel(…)")
    return None, model


def _config(config: Config | None, home: str | Path | Home | None, said: dict[str, Any]) -> Config:
    """Return what is configured: as handed in, or as read with what was said besides."""
    if config is None:
        return Config.load(as_home("Team: home", home), flags=said, called=in_call)
    if not isinstance(config, Config):
        raise given.refused("Team: config", config, "use Config.load(…), or leave it out")
    beside = [name for name, value in (*said.items(), ("home", home)) if value is not None]
    if beside:
        raise ConfigError(f"Team: config holds everything configured; leave it or {', '.join(beside)} out")
    return config


def _roles(roles: Iterable[str | Role] | None) -> tuple[str | Role, ...] | None:
    if roles is None:
        return None
    if isinstance(roles, str):
        raise ConfigError(f"Team: roles is the text {given.shown(roles)}; use a list: roles=[{given.shown(roles)}]")
    chosen = given.items("Team: roles", roles, "use a list of role ids and roles, or None for all there are")
    for role in chosen:
        check_role("Team: roles", role)
    return chosen


def _tools(tools: Iterable[Tool | Callable[..., Any]]) -> tuple[Tool, ...]:
    chosen = given.items("Team: tools", tools, "use a list of functions: tools=[function]")
    for item in chosen:
        if not callable(item) and not isinstance(item, Tool):
            raise given.refused("Team: one of tools", item, "use functions, or what @tool made of them")
    return tuple(item if isinstance(item, Tool) else tool(item) for item in chosen)
