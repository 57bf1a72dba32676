"""The board: how each agent of a team stands, and which questions wait for an answer.

Pure, like the transcript: the state and nothing else. Shows no message but the open questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..state import TeamState
from .columns import aligned
from .outline import Outline, Part, Prices, lay_out
from .page import board_page
from .rewrite import write
from .transcript import closing_nodes, closing_text, filled, table
from .words import price

_NUMBERS = 5
"""From this column on the cells are numbers."""
Hide = Iterable[tuple[str, str]]


def _rows(outline: Outline) -> list[list[str]]:
    def row(part: Part, number: str) -> list[str]:
        about = [number, part.name, part.status, part.waits_for, part.summary]
        return [*about, f"{part.usage.total:,}", price(part.cost)]

    members = [row(part, str(part.number)) for part in outline.agents]
    head = [*outline.words.columns, outline.words.cost_column]
    return filled([head, row(outline.leader, "leader"), *members])


def agents_table(state: TeamState, *, hide: Hide = (), prices: Prices | None = None) -> list[list[str]]:
    """Return the agents as rows of strings, headings first.

    Parameters
    ----------
    state : TeamState
    hide, prices
        As for :func:`~astrion_nb.render.outline.lay_out`.

    Returns
    -------
    list of list of str
        Number (``leader`` for the leader: both can be written where a magic wants an agent), name,
        status, whom it waits for, task, tokens, and the cost where it is known.
    """
    return _rows(lay_out(state, hide=hide, messages=False, prices=prices))


def _lines(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(aligned(rows, ruled=True, right=range(_NUMBERS, len(rows[0]))))


def board_text(state: TeamState, *, hide: Hide = (), prices: Prices | None = None) -> str:
    """Return the board as plain text.

    Parameters
    ----------
    state : TeamState
    hide, prices
        As for :func:`~astrion_nb.render.outline.lay_out`.
    """
    outline = lay_out(state, hide=hide, messages=False, prices=prices)
    return "\n\n".join([_lines(_rows(outline)), *closing_text(outline, each=True)])


def board_bundle(state: TeamState, *, hide: Hide = (), prices: Prices | None = None) -> dict[str, str]:
    """Return the board as a display bundle: HTML, Markdown and plain text.

    Parameters
    ----------
    state : TeamState
    hide, prices
        As for :func:`~astrion_nb.render.outline.lay_out`.
    """
    outline = lay_out(state, hide=hide, messages=False, prices=prices)
    rows = _rows(outline)
    return {
        "text/html": board_page(outline, table(rows[0], rows[1:])),
        "text/markdown": write([table(rows[0], rows[1:]), *closing_nodes(outline, each=True)]),
        "text/plain": "\n\n".join([_lines(rows), *closing_text(outline, each=True)]),
    }
