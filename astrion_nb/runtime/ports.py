"""What a team needs from outside, handed to it by whoever wires it.

Knows no implementation of any of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..llm.model import Model
from ..messages import Usage
from ..tools.desk import Desk
from ..tools.permissions import Policy
from ..tools.registry import RoleLike
from .bus import Journal
from .compaction import as_it_is
from .limits import Gate
from .order import Order


@dataclass(frozen=True, slots=True)
class Ports:
    """What a team needs from outside.

    Parameters
    ----------
    journal : Journal
    order : Order
    model : callable
        ``model(key)`` returns the :class:`Model`; raises :class:`ConfigError` for an unknown key.
    choose_model : callable
        ``choose_model(asked, role_model, conversation)`` returns the key to use and a warning or ``""``.
    cost : callable
        ``cost(model_key, usage)`` returns the cost, or ``None`` where no price is known.
    load_role, list_roles : callable
    gate : callable
        ``gate(endpoint)`` returns the endpoint's gate, shared in the process.
    member_prompt : callable
        ``member_prompt(model_key)``: the base prompt of sub-agents, in the conversation's language.
    home : object
    human_can_act : callable
        Whether a person could answer a question now.
    offers : callable
        ``offers(model_key)``: the team tools that a small model is offered; ``None`` for all.
    context : callable
        ``context(model_key)``: the tokens that a model takes, ``None`` where nobody knows.
    scrub : callable
        ``scrub(text)``: how a recording holds a text, where there is one.
    hide : callable
        ``hide(text)`` returns what a tool returned or raised without the keys that are configured.
    desk : Desk, optional
        What the base tools work on.
    policy : callable
        ``policy(role_id)``: what the tools of a role's agents may do; of the leader's for an empty text.
    patience : float
        Seconds that a person has to allow a call; 0 for no limit.
    noted : callable
        ``noted(name, value)`` returns the value; a recording keeps it, and a replay returns the one that was kept.
    """

    journal: Journal
    order: Order
    model: Callable[[str], Model]
    choose_model: Callable[[str | None, str | None, str], tuple[str, str]]
    cost: Callable[[str, Usage], float | None]
    load_role: Callable[[str], RoleLike]
    list_roles: Callable[[], Any]
    gate: Callable[[str], Gate]
    member_prompt: Callable[[str], str]
    home: Any
    human_can_act: Callable[[], bool]
    offers: Callable[[str], frozenset[str] | None] = lambda key: None
    context: Callable[[str], int | None] = lambda key: None
    scrub: Callable[[str], str] = as_it_is
    hide: Callable[[str], str] = lambda text: text
    desk: Desk | None = None
    policy: Callable[[str], Policy] = lambda role_id: Policy("auto")
    patience: float = 600.0
    noted: Callable[[str, Any], Any] = lambda name, value: value
