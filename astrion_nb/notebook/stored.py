"""Stored conversations as a kernel sees them: listed, opened, renamed, archived, deleted.

The one that is open here is reached through its team, every other through its files. Returns words
and plain values; knows no line of a magic, no cell and no view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..app.shelf import conversations
from ..app.team import Team
from ..errors import ConversationLocked
from ..ids import HUMAN_ID
from ..printable import one_field
from ..render.columns import aligned
from ..render.words import Words
from .frontend import allows_input
from .keeping import Kept

if TYPE_CHECKING:
    from ..app.conversations import Entry


def ids(kept: Kept) -> list[str]:
    """Return the stored conversations, newest first."""
    return [entry.id for entry in conversations(kept.config().home)]


def resume(kept: Kept, conversation_id: str, *, read_only: bool = False, take_over: bool = False) -> str:
    """Open a stored conversation; returns what was found, in words.

    Parameters
    ----------
    kept : Kept
    conversation_id : str
    read_only, take_over : bool
        As for :class:`~astrion_nb.app.team.Team`.

    Raises
    ------
    TeamBusy
        A run is under way here.
    ConversationNotFound, ConversationLocked, ConversationBroken
        It cannot be opened.
    """
    kept.refuse_while_running()
    team = Team(conversation=conversation_id, config=kept.config(), read_only=read_only, take_over=take_over)
    kept.make_way(conversation_id)
    team.attended = allows_input(kept.shell)
    kept.take(team)
    text = kept.words
    told = kept.look(lambda: _told(team, text))
    return f"{told}\n  {text.reads_only}" if read_only else told


def rename(kept: Kept, conversation_id: str, title: str) -> None:
    """Give a stored conversation another title, the open one too.

    Raises
    ------
    ConversationNotFound, ConversationLocked, ConversationBroken
    StorageError
        It cannot be written.
    """
    from ..app import conversations as stored

    team = _holding(kept, conversation_id)
    if team is not None:
        kept.do(team.rename(title))
    else:
        stored.rename(conversation_id, title, home=kept.config().home)


def archive(kept: Kept, conversation_id: str, archived: bool) -> None:
    """Archive a stored conversation or bring it back, the open one too.

    Raises
    ------
    ConversationNotFound, ConversationLocked, ConversationBroken
    StorageError
        It cannot be written.
    """
    from ..app import conversations as stored

    team = _holding(kept, conversation_id)
    if team is not None:
        kept.do(team.archive(archived))
    else:
        stored.archive(conversation_id, archived, home=kept.config().home)


def delete(kept: Kept, conversation_id: str) -> Entry:
    """Remove a stored conversation for good.

    Raises
    ------
    ConversationLocked
        It is open, in this kernel or elsewhere.
    """
    from ..app import conversations as stored

    if _holding(kept, conversation_id) is not None:
        raise ConversationLocked(
            f"{conversation_id} is the team of this kernel: start or resume another one first, or %unload_ext "
            "astrion_nb"
        )
    return stored.delete(conversation_id, home=kept.config().home)


def _holding(kept: Kept, conversation_id: str) -> Team | None:
    team = kept.team
    return team if team is not None and team.conversation_id == conversation_id else None


def _told(team: Team, text: Words) -> str:
    """Say what a resumed conversation holds."""
    state = team.state
    agents = text.count("agent", len(team.agents))
    messages = text.count("message", len(state.leader_state.messages))
    lines = [f"{state.title or text.untitled}{text.colon}{agents}, {messages}"]
    if state.archived:
        lines.append("  " + text.is_archived.format(id=team.conversation_id))
    for agent in team.agents:
        if agent.detail == "interrupted":
            lines.append("  " + text.was_interrupted.format(name=agent.display_name))
    human = state.name_of(HUMAN_ID)
    for question in team.open_questions:
        asker, answerer = (text.you if name == human else name for name in (question.asker, question.answerer))
        told = text.waits_for.format(asker=asker, answerer=answerer, text=question.text, id=question.question_id)
        lines.append("  " + told)
    table = [text.restored_columns] if team.agents else []
    for one in team.restored if table else ():
        status = text.status[one.detail or one.status]
        waits = ", ".join(text.you if name == human else name for name in one.waits_for)
        row = (one.display_name, status, waits, str(one.queued or ""), ", ".join(one.interrupted))
        table.append(row)
    return "\n".join([*map(one_field, lines), *(f"  {line}" for line in (aligned(table) if table else ()))])
