"""Which agent a number or a name means (decision 2), and the numbers of a new one (decision 1).

Pure: reads a state, changes nothing.
"""

from __future__ import annotations

import difflib
import re

from .. import given
from ..errors import AgentNotFound, TeamError
from ..ids import HUMAN_ID, LEADER_ID, LEADER_NAME
from ..state import AgentState, TeamState

_LEADER_WORDS = {"leader", "team leader", LEADER_NAME.lower()}
_NUMBER = re.compile(r"-?[0-9]{1,9}")
_QUOTES = "\"'“”"
LARGEST_INSTANCE = 999_999
"""A number is part of a name and of a folder's name; models count from 1."""


def find(state: TeamState, reference: int | str, *, leader: bool = False) -> tuple[AgentState, str]:
    """Return the agent that a reference means, and a note when it was guessed.

    Parameters
    ----------
    state : TeamState
    reference : int or str
        Number, number as text, display name (any case, with or without quotes), or ``leader``.
    leader : bool
        Whether the leader is one of the candidates, as for a person.

    Raises
    ------
    AgentNotFound
        Nobody, or more than one, is meant; the candidates are named.
    """
    text = plain(reference)
    if is_leader(text):
        return state.leader_state, ""
    folded = text.casefold()
    for wanted in readings(reference):
        for agent in state.members():
            if agent.display_name.casefold() == wanted:
                return agent, ""
    if _NUMBER.fullmatch(text):
        number = int(text)
        if number != LEADER_ID and number in state.agents:
            return state.agents[number], ""
        instances = [agent for agent in state.members() if agent.instance == number]
        if len(instances) == 1:
            agent = instances[0]
            taken = f"{agent.display_name}, agent_id {agent.agent_id}"
            return agent, f"{number} is nobody's agent_id; taken as instance {number}: {taken}"
    names = {agent.display_name.casefold(): agent.display_name for agent in _addressable(state)}
    close = difflib.get_close_matches(folded, {**names, **({"leader": "leader"} if leader else {})}, 1)
    hint = f"did you mean {names.get(close[0], close[0])}? " if close else ""
    raise AgentNotFound(f"there is no agent {given.shown(text)}; {hint}{candidates(state, leader=leader)}")


def plain(reference: int | str) -> str:
    """Return what a reference says without the quotes and blanks around it."""
    return str(reference).strip().strip(_QUOTES).strip()


def readings(reference: int | str) -> list[str]:
    """Return what a reference may name, in lower case: as it stands, out of one pair of quotes, without any.

    A name may begin with a quote of its own.
    """
    whole = str(reference).strip()
    inner = whole[1:-1].strip() if len(whole) > 1 and whole[0] in _QUOTES and whole[-1] in _QUOTES else whole
    return [reading.casefold() for reading in dict.fromkeys((whole, inner, plain(whole)))]


def is_leader(reference: int | str) -> bool:
    """Say whether a reference means the leader by a name of his."""
    return plain(reference).casefold() in _LEADER_WORDS


def _addressable(state: TeamState) -> list[AgentState]:
    return [agent for agent in state.members() if agent.status != "terminated"]


def candidates(state: TeamState, *, leader: bool = False) -> str:
    """Return the agents that can be named, in words, and with ``leader`` the leader."""
    names = [f"{agent.display_name} (agent_id {agent.agent_id})" for agent in _addressable(state)]
    if not names:
        return "no agent has been created yet" + (", there is only: leader" if leader else "")
    return "agents are: " + ", ".join(["leader", *names] if leader else names)


def numbers(state: TeamState, role_id: str, role_name: str, instance: int | None) -> tuple[int, int]:
    """Return the agent id and the instance number of a new agent (decision 1).

    Parameters
    ----------
    instance : int or None
        What the model asked for; ``None`` for the next free one.

    Raises
    ------
    TeamError
        The instance number is below 1 or used; the next free one is named.
    """
    used = {agent.instance for agent in state.members() if agent.role_id == role_id}
    names = {agent.display_name.casefold() for agent in state.members()}
    free = 1
    while free in used or f"{role_name}_{free}".casefold() in names:
        free += 1
    if instance is None:
        instance = free
    if instance < 1:
        raise TeamError(f"agent_id: {instance} is below 1; the next free number of {role_id} is {free}")
    if instance > LARGEST_INSTANCE:
        raise TeamError(f"agent_id: {LARGEST_INSTANCE} is the largest; the next free number of {role_id} is {free}")
    if instance in used or f"{role_name}_{instance}".casefold() in names:
        raise TeamError(f"agent_id: {role_name}_{instance} exists already; the next free number of {role_id} is {free}")
    number = instance
    if number in state.agents:
        number = 1
        while number in state.agents:
            number += 1
    return number, instance


def title_of(state: TeamState, number: int) -> str:
    """Return how an envelope names a party: the person speaks as Team Leader (decision 23)."""
    return LEADER_NAME if number in (HUMAN_ID, LEADER_ID) else state.name_of(number)
