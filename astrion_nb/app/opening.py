"""Opens a team: conversation, models, order and runtime, from a plan.

Everything that a team is made of is put together here, once; what it is asked to do afterwards is
:mod:`~astrion_nb.app.team`'s matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ..errors import ConfigError
from ..events import ConversationStarted, ModelLoading, Stamped
from ..prompts import base_prompt
from ..runtime.limits import Limits
from ..runtime.ports import Ports
from ..runtime.team import TeamRuntime
from ..tools.permissions import USUAL, Policy
from ..tools.registry import Tool, toolbox
from .cassettes import LiveSession, attach
from .config import Config, in_call
from .restored import RestoredAgent, cut_off, restored
from .wiring import Models, Roles, shared_gate

if TYPE_CHECKING:
    from ..llm.model import Model
    from ..store.saving import Conversation


@dataclass(frozen=True, slots=True)
class Plan:
    """What a team is to be; the parameters of :class:`~astrion_nb.app.team.Team`, checked."""

    config: Config
    roles: Roles
    model: Model | None
    title: str | None
    leader: Literal["model", "human"]
    mode: str
    conversation: str | None
    durability: Literal["sync", "relaxed"]
    tools: tuple[Tool, ...]
    limits: Limits
    project_path: str
    human: bool | None
    permission: Policy
    access: Literal["own", "read", "take over"] = "own"
    """Of a stored conversation: refused when it is open elsewhere, read only, or taken from whoever has it."""


@dataclass(slots=True)
class Opened:
    """An open team."""

    runtime: TeamRuntime
    conversation: Conversation
    models: Models
    session: LiveSession
    restored: tuple[RestoredAgent, ...] = ()


def open_team(plan: Plan, observe: Callable[[Stamped], None], attended: Callable[[], bool]) -> Opened:
    """Open the team that a plan describes. Call it on the loop that the team is to live on.

    Parameters
    ----------
    plan : Plan
    observe : callable
        Called with every event.
    attended : callable
        Whether somebody looks who could answer a question.

    Raises
    ------
    ConfigError, NoModelError, RoleError
        What was asked for cannot be had.
    ConversationNotFound, ConversationLocked, ConversationBroken, StorageError
        The conversation cannot be used or made.
    """
    session = attach(plan.config)
    try:
        return _open(plan, session, observe, attended)
    except BaseException:
        session.take_back()  # else the corrected team would be the second of its recording
        raise


def _open(plan: Plan, session: LiveSession, observe: Callable[[Stamped], None], attended: Callable[[], bool]) -> Opened:
    from ..store.conversations import ConversationStore
    from ..tools.leader import LEADER_TOOLS
    from ..tools.member import MEMBER_TOOLS

    config, roles = plan.config, plan.roles
    models = Models(config, plan.model, roles.ids, session)
    order = session.order
    if plan.access != "read":
        roles.prepare()
    fresh = plan.conversation is None
    if fresh and plan.leader == "human" and not roles.chosen:
        raise ConfigError("a person leads: say which roles to create, with --roles a,b or Team(roles=[…])")
    key = ""
    if fresh:
        key = models.default_key()
        models.get(key)
    tools = session.tools(plan.tools)
    # What cannot be had is refused before anything is made.
    boxes = (*LEADER_TOOLS, *tools), (*MEMBER_TOOLS, *tools)
    toolbox("leader", boxes[0])
    toolbox("member", boxes[1])
    store = ConversationStore(config.home, durability=plan.durability, clock=order.now)
    read, take = plan.access == "read", plan.access == "take over"
    name = plan.conversation or ""
    conversation = store.create() if fresh else store.open(name, read_only=read, taking_over=take)
    cut = {} if fresh or read else cut_off(conversation.state)
    try:
        if not fresh and not read:
            _check_model(plan, conversation)
            if conversation.state.leader == "model":
                models.get(conversation.state.model_key)
        runtime = _begin(plan, conversation, key, models, session, boxes, observe, attended)
    except BaseException:
        conversation.close_now()  # else nobody could open it again in this process
        raise
    return Opened(runtime, conversation, models, session, () if fresh else restored(conversation.state, cut))


def _check_model(plan: Plan, conversation: Conversation) -> None:
    """Refuse another model for a conversation that has one: it would silently not be used."""
    config, kept = plan.config, conversation.state.model_key
    said = {"model": (plan.model.key, in_call("model"))} if plan.model is not None else {}
    for name in ("model", "all_models"):
        asked = getattr(config, name)
        if asked and config.asked(name):
            said.setdefault(name, (asked, config.places[name]))
    for key, place in said.values():
        if key != kept and config.replay is None:
            raise ConfigError(
                f"{place}: {conversation.id} was begun with the model {kept!r} and keeps it; "
                f"leave {key!r} out, or begin a new conversation with it"
            )


def _begin(
    plan: Plan,
    conversation: Conversation,
    key: str,
    models: Models,
    session: LiveSession,
    boxes: tuple[Sequence[Tool], Sequence[Tool]],
    observe: Callable[[Stamped], None],
    attended: Callable[[], bool],
) -> TeamRuntime:
    """Put the runtime together on an open conversation; ``key`` is the model of a new one, else empty."""
    config, roles, order = plan.config, plan.roles, session.order
    fresh = plan.conversation is None
    language: Literal["zh", "en"] = "zh" if config.language == "zh" else "en"
    language = session.fact("language", language if fresh else conversation.state.language)
    if config.record is not None or config.replay is not None:
        roles.language = language
    replayed_human = session.fact("human", None) if order.replaying else None

    def human_can_act() -> bool:
        if replayed_human is not None:
            return bool(replayed_human)
        return bool(session.fact("human", attended() if plan.human is None else plan.human))

    def offers(model_key: str) -> frozenset[str] | None:
        known = getattr(models.get(model_key), "offers", None)
        noted = session.fact(f"offers {model_key}", sorted(known) if known is not None else None)
        return None if noted is None else frozenset(noted)

    def brief(model_key: str) -> bool:
        return bool(session.fact(f"brief {model_key}", bool(getattr(models.get(model_key), "brief", False))))

    def context(model_key: str) -> int | None:
        known = getattr(models.get(model_key), "context", None)
        if known is not None or order.replaying:  # else a recording has nothing to say
            known = session.fact(f"context {model_key}", known)
        return known if isinstance(known, int) else None

    def hide(text: str) -> str:
        for secret in config.secrets:
            text = text.replace(secret.reveal(), "[hidden]")
        return text

    policy = plan.permission
    if order.replaying or policy.mode != USUAL:  # a recording speaks of what is not usual
        mode = session.fact("permission", USUAL if order.replaying else policy.mode)
        policy = replace(policy, mode=mode)

    ports = Ports(
        journal=conversation,
        order=order,
        model=models.get,
        choose_model=session.choose(models.choose),
        cost=models.cost,
        load_role=roles.load,
        list_roles=roles.list,
        gate=shared_gate,
        member_prompt=lambda model_key: base_prompt("member", language, brief=brief(model_key)).text,
        home=config.home,
        human_can_act=human_can_act,
        offers=offers,
        context=context,
        scrub=session.scrub,
        hide=hide,
        policy=lambda role_id: policy,
        noted=session.fact,
    )
    runtime = TeamRuntime(conversation.state, ports, leader_tools=boxes[0], member_tools=boxes[1], limits=plan.limits)

    def told(what: str, seconds: float) -> None:
        runtime.bus.publish(ModelLoading(what, seconds))

    models.told = told
    session.watch(runtime)
    runtime.bus.subscribe(observe)
    if fresh:
        system = base_prompt("leader", language, brief=plan.leader == "model" and brief(key)).text
        runtime.bus.publish(
            ConversationStarted(
                conversation.id, plan.title or "", plan.project_path, key, plan.mode, plan.leader, language, system
            )
        )
    elif plan.access != "read":
        runtime.restore()
    return runtime
