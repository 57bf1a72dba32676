"""Whether a call may happen: by the policy, by what the person has allowed before, or by asking the person.

A request for an approval is a question of the one wait graph, so it is withdrawn, restored and shown as
every other; but no text answers it. It is bound to a digest of agent, call, tool and arguments. What
nobody allows in time is denied.

Knows no particular tool and no view.

Source: decisions 18, 20, 29, 56.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .. import given
from ..approval import Approval, digest_of
from ..errors import AstrionError, NobodyToAnswer, WouldDeadlock
from ..ids import LEADER_ID
from ..messages import ToolCall
from ..state import Question
from ..tools.permissions import judge
from ..tools.registry import Tool

if TYPE_CHECKING:
    from .agent import Agent

log = logging.getLogger(__name__)

MOST_PREVIEW = 20_000
"""Characters of a preview that are kept."""
_ALONE = (
    "not allowed: nobody can approve it here; go on without it, or report. A person allows it with "
    "--permission auto, or with a rule"
)
_BUSY = "not allowed now: the person waits for you and cannot approve it; answer first, or go on without it"


async def refusal(agent: Agent, call: ToolCall, tool: Tool, arguments: Mapping[str, Any], n: int) -> str:
    """Return why a call may not happen, or an empty text: asks the person where the policy says so.

    Parameters
    ----------
    agent : Agent
    call : ToolCall
    tool : Tool
    arguments : mapping
        Validated.
    n : int
        Number of the call's step.
    """
    team = agent.team
    role = "" if agent.id == LEADER_ID else agent.state.role_id
    verdict = judge(team.ports.policy(role), tool, arguments, team.state.grants.get(agent.id, ()))
    if verdict.action == "allow":
        return ""
    if verdict.action == "deny":
        return verdict.why
    patience = team.ports.patience
    approval = Approval(
        call.id,
        tool.name,
        call.arguments,
        _preview(agent, tool, arguments),
        verdict.kind,
        digest_of(agent.id, call),
        round(team.order.now() + patience, 6) if patience else 0.0,
    )
    try:
        question = team.waits.ask_approval(agent.id, approval)
    except NobodyToAnswer:
        return _ALONE
    except WouldDeadlock:
        return _BUSY
    return await settled(agent, question)


async def settled(agent: Agent, question: Question) -> str:
    """Wait until a request is settled; returns why the call may not happen, or an empty text."""
    team, asked = agent.team, question.approval
    timer = None
    if asked is not None and asked.expires_at and question.status == "open":
        left = max(0.0, asked.expires_at - team.order.now())
        timer = team.order.at(agent.name, agent.step("timer"), left, lambda: _late(agent, question))
    try:
        question = await team.waits.answered(question.id)
    finally:
        if timer is not None:
            timer.cancel()
    team.waits.take(question.id)
    return why_not(question)


def why_not(question: Question) -> str:
    """Return what the model reads of a request that is settled; empty when the call is allowed."""
    if question.status == "answered" and question.allowed:
        return ""
    return f"not allowed{': ' + question.reason if question.reason else ' by the person'}; go on without it, or report"


def _late(agent: Agent, question: Question) -> None:
    if question.status == "open":
        waited = given.seconds_text(agent.team.ports.patience)
        reason = f"nobody approved it within {waited}"
        agent.team.waits.approve(question.id, None, ok=False, reason=reason, lasting=False)


def _preview(agent: Agent, tool: Tool, arguments: Mapping[str, Any]) -> str:
    """Return what a person should see; a call that cannot be previewed will fail by itself, and says so here."""
    desk = agent.team.ports.desk
    if tool.preview is None or desk is None:
        return ""
    try:
        text = tool.preview(arguments, desk)
    except AstrionError as error:
        text = f"[{error}]"
    except Exception as error:
        log.info("the preview of %s failed", tool.name, exc_info=True)
        text = f"[{type(error).__name__}: {error}]"
    text = agent.team.ports.hide(text)
    return (
        text
        if len(text) <= MOST_PREVIEW
        else f"{text[:MOST_PREVIEW]}\n[cut: {len(text) - MOST_PREVIEW} more characters]"
    )
