"""What can be seen of a team: the reading half of the public :class:`~astrion_nb.app.team.Team`.

Properties are plain values of this moment; read them on the team's loop. Nothing here changes a team,
or knows when it is opened, who acts on it and how it is shown.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from .. import given
from ..errors import TeamError
from ..events import Event, Stamped
from ..messages import Usage
from ..state import TeamState
from .opening import Opened, Plan
from .restored import RestoredAgent
from .result import AgentInfo, QuestionInfo, agent_info, question_infos
from .watching import Watch
from .why import request

if TYPE_CHECKING:
    from ..render.words import Origin


class Observed:
    """A team that can be looked at.

    Parameters
    ----------
    plan : Plan
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._watch = Watch()
        self._opened: Opened | None = None

    async def events(self, since: int = 0) -> AsyncIterator[Event]:
        """Yield events as they happen, after those of this process with a number above ``since``.

        Of the past the latest 10,000 are kept, and 0 begins with the oldest of them. To see all, begin with
        the state: ``team.events(team.state.seq)`` goes on from there. Ends when the team is closed.

        Raises
        ------
        TeamError
            Events that ``since`` asks for are kept no more.
        """
        given.number("events: since", since, whole=True, least=0)
        async for event in self._watch.events(since):
            yield event

    def watch(self, view: Callable[[Stamped], None]) -> Callable[[], None]:
        """Call ``view`` with every event, on the team's loop; returns what ends it.

        Raises
        ------
        ConfigError
            ``view`` cannot be called.
        """
        if not callable(view):
            raise given.refused("watch: view", view, "use a function that takes an event")
        return self._watch.add(view)

    @property
    def leader(self) -> str:
        """``model``, or ``human`` where a person leads."""
        return self.state.leader if self._opened is not None else self._plan.leader

    @property
    def origin(self) -> Origin:
        """Who answers: ``live``, ``local``, ``scripted`` or ``replayed``."""
        return self._opened.models.origin(self.state.model_key) if self._opened is not None else "live"

    @property
    def warnings(self) -> tuple[str, ...]:
        """What whoever reads the team's words should know of who says them; a small model's are often wrong."""
        if self.origin != "local":
            return ()
        banner = self._plan.config.banner(self.state.model_key)
        return () if banner is None else (banner,)

    @property
    def state(self) -> TeamState:
        """The conversation's state; read only, on the team's loop."""
        return self._opened.runtime.state if self._opened is not None else TeamState()

    @property
    def conversation_id(self) -> str:
        """Id of the conversation, empty before it is opened."""
        return self._opened.conversation.id if self._opened is not None else self._plan.conversation or ""

    @property
    def running(self) -> bool:
        """Whether a run is under way here."""
        return self.state.run_status == "running" and self._plan.access != "read"

    @property
    def restored(self) -> tuple[RestoredAgent, ...]:
        """What was found when a stored conversation was opened; empty for a new one."""
        return self._opened.restored if self._opened is not None else ()

    @property
    def agents(self) -> tuple[AgentInfo, ...]:
        """The sub-agents as they are now."""
        return tuple(agent_info(self.state, agent) for agent in self.state.members())

    @property
    def questions(self) -> tuple[QuestionInfo, ...]:
        """The open questions that wait for the person."""
        return question_infos(self.state, for_human=True)

    @property
    def open_questions(self) -> tuple[QuestionInfo, ...]:
        """Every open question, whoever is to answer it."""
        return question_infos(self.state)

    def request(self, agent: int | str, turn: int | None = None) -> dict[str, Any]:
        """Return the exact request of an agent's turn, the last by default; see :func:`~astrion_nb.app.why.request`.

        Raises
        ------
        AgentNotFound
        ConfigError
            An argument cannot be meant: it is of another type, or a turn below 1.
        TeamError
            The team has not begun, or there is no such turn.
        """
        given.agent("request: the agent", agent)
        if turn is not None:
            given.number("request: turn", turn, whole=True, least=1, none="the last")
        if self._opened is None:
            raise TeamError("this team has not begun")
        return request(self._opened, agent, turn)

    @property
    def usage(self) -> Usage:
        """All tokens of the conversation."""
        return self.state.usage()

    @property
    def cost(self) -> float | None:
        """What the conversation has cost, or ``None`` where a price is missing or a recording answers."""
        return None if self._opened is None or self.origin == "replayed" else self._opened.runtime.cost()

    def prices(self, key: str, usage: Usage) -> float | None:
        """Return what tokens of a model cost, or ``None`` where no price is known or a recording answers."""
        return None if self._opened is None or self.origin == "replayed" else self._opened.models.cost(key, usage)

    @property
    def transcript(self) -> str:
        """The conversation as plain text."""
        from ..render.transcript import transcript_text

        return transcript_text(self.state, prices=self.prices)
