"""Wires a team: configuration, models, roles, order and conversation become the runtime's ports.

The one place where the parts meet. It knows every part's constructor and nothing of how they work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from .. import roles as role_files
from ..errors import RoleError
from ..runtime.limits import Gate
from ..runtime.names import readings
from ..runtime.order import Live
from .cassettes import LiveSession
from .config import Config, build_model

if TYPE_CHECKING:
    from ..home import Language
    from ..llm.model import Model
    from ..messages import Usage
    from ..render.words import Origin
    from ..roles import Role, RoleSet

_ORIGINS: dict[str, Origin] = {"local": "local", "scripted": "scripted"}
_GATES: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Gate]] = WeakKeyDictionary()


def shared_gate(endpoint: str) -> Gate:
    """Return the gate of an endpoint, one for all teams on the running loop (decision 24)."""
    gates = _GATES.setdefault(asyncio.get_running_loop(), {})
    gate = gates.get(endpoint)
    if gate is None:
        gate = gates[endpoint] = Gate(Live())
    return gate


class Models:
    """The models of one team, made when first needed and closed together.

    Parameters
    ----------
    config : Config
    given : Model or None
        A model object instead of a configured key.
    role_ids : callable
        The roles that may be named, for structured calls.
    session : LiveSession
        Puts a recorder or a player around a model.
    """

    def __init__(self, config: Config, given: Model | None, role_ids: Any, session: LiveSession) -> None:
        self._config = config
        self._given = given
        self._role_ids = role_ids
        self._made: dict[str, Model] = {}
        self._session = session
        self.told: Callable[[str, float], None] = lambda what, seconds: None
        """Called while a model is being loaded."""

    def default_key(self) -> str:
        """Return the key of a new conversation's model.

        Raises
        ------
        NoModelError
            None is configured; the message names the ways on.
        """
        if self._session.order.replaying:
            return str(self._session.fact("model_key", self._given.key if self._given else "replayed"))
        key = self._given.key if self._given is not None else self._config.conversation_key()
        return str(self._session.fact("model_key", key))

    def get(self, key: str) -> Model:
        """Return the model of a key.

        Raises
        ------
        ConfigError
            There is no such key, or it lacks what it needs.
        """
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = self._session.model(key, self._make)
        return found

    def _make(self, key: str) -> Model:
        if self._given is not None and key == self._given.key:
            return self._given
        return build_model(self._config.get(key), roles=self._role_ids, told=lambda *said: self.told(*said))

    def origin(self, key: str) -> Origin:
        """Return who answers behind a key: ``live``, ``local``, ``scripted`` or ``replayed``."""
        if self._session.order.replaying:
            return "replayed"
        if self._given is not None and key == self._given.key:
            from ..llm.scripted import ScriptedModel

            return "scripted" if isinstance(self._given, ScriptedModel) else "live"
        config = self._config.find(key)
        return _ORIGINS.get(config.provider, "live") if config is not None else "live"

    def choose(self, asked: str | None, role_model: str | None, conversation: str) -> tuple[str, str]:
        """Return the key of an agent's model, and a warning or an empty string (decision 26)."""
        given = self._given
        if given is not None and (asked in (None, given.key)) and (role_model in (None, given.key)):
            return given.key, ""
        if given is not None and asked is None and role_model is not None and self._config.find(role_model) is None:
            return (
                given.key,
                f"the role asks for the model {role_model!r}, which is not configured; {given.key!r} is used",
            )
        if given is not None and asked == given.key:
            return given.key, ""
        fallback = None if given is not None and conversation == given.key else conversation
        choice = self._config.resolve_model_key(tool=asked, role=role_model, conversation=fallback)
        return choice.key, choice.warning or ""

    def cost(self, key: str, usage: Usage) -> float | None:
        """Return the cost of a usage, or ``None`` where no price is known."""
        return self._config.cost(key, usage)

    async def close(self) -> None:
        """Close every model that was used; of several that fail to, the first is told."""
        made, self._made = self._made, {}
        first: Exception | None = None
        for model in made.values():
            try:
                await model.close()
            except Exception as error:
                first = first or error
        if first is not None:
            raise first


class Roles:
    """The roles a team may use: those of the agents directory, or a chosen few.

    Parameters
    ----------
    config : Config
    chosen : sequence of str or Role, or None
        Ids, or roles that are not files; ``None`` for all.
    """

    def __init__(self, config: Config, chosen: Sequence[str | Role] | None) -> None:
        self._config = config
        self._given = {role.id: role for role in chosen or () if not isinstance(role, str)}
        self._read: dict[str, tuple[tuple[int, int, int], Role]] = {}
        self._ids = None if chosen is None else tuple(role if isinstance(role, str) else role.id for role in chosen)
        self.language: Language | None = None
        """Of a recording: shipped roles that nobody changed are read in it, in whatever language this home has them."""

    @property
    def chosen(self) -> tuple[str, ...]:
        """The chosen ids; empty when none were chosen."""
        return self._ids or ()

    def prepare(self) -> None:
        """Offer the shipped roles once, and check that every chosen role can be used.

        Raises
        ------
        RoleError
            A chosen role is not there or its file is broken.
        """
        role_files.ensure_builtin(self._config.home, self._config.language)
        for role_id in self.chosen:
            self.load(role_id)

    def load(self, role_id: str) -> Role:
        """Return a role by its id.

        Raises
        ------
        RoleError
            No such role, a broken file, or one that was not chosen for this team.
        """
        if role_id in self._given:
            return self._given[role_id]
        if self._ids is not None and role_id not in self._ids:
            known = ", ".join(self._ids)
            raise RoleError(f"role_id: {role_id!r} is not among the roles of this team: {known}")
        role_files.check_id(role_id)
        path = self._config.home.agents / f"{role_id}.md"
        try:
            stat = path.stat()
        except OSError:
            return self._told(role_files.load(role_id, self._config.home))
        # A fan-out creates many agents of one role; the file is read again when it has changed.
        signature = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        found = self._read.get(role_id)
        if found is None or found[0] != signature:
            found = self._read[role_id] = (signature, role_files.load(role_id, self._config.home))
        return self._told(found[1])

    def _told(self, role: Role) -> Role:
        return role if self.language is None else role_files.in_language(role, self.language)

    def ids(self) -> tuple[str, ...]:
        """Return the ids that can be used."""
        return self.list().ids

    def list(self) -> RoleSet:
        """Return the roles of this team, and the errors of files that are none."""
        if self._ids is None:
            found = role_files.list_roles(self._config.home)
            return replace(found, roles=tuple(self._told(role) for role in found.roles))
        return role_files.RoleSet(tuple(self.load(role_id) for role_id in self._ids))

    def match(self, name: str) -> Role | None:
        """Return the role of an id or a name, any case, with or without quotes, or ``None``."""
        found = self.list().roles
        for reading in readings(name):
            for role in found:
                if reading in (role.id.casefold(), role.name.casefold()):
                    return role
        return None
