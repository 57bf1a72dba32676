"""What a cell shows: the live view first, one static transcript at the end.

The live view is a widget-view-only bundle under a display id and is emptied by that id; the
transcript is static and stands by itself, so a saved notebook reads without a kernel and compares
equal in nbval, which sees neither updates nor widget views.
Knows IPython's display calls and nothing of teams.
"""

from __future__ import annotations

import uuid
from typing import Any

_VIEW = "application/vnd.jupyter.widget-view+json"


class Output:
    """One output of a cell that can be changed later."""

    def __init__(self) -> None:
        self._id = uuid.uuid4().hex

    def show(self, bundle: dict[str, Any]) -> None:
        """Display a bundle as a new output of the cell at work; ``{}`` keeps the place."""
        from IPython.display import display

        display(bundle, raw=True, display_id=self._id)  # type: ignore[no-untyped-call]

    def change(self, bundle: dict[str, Any]) -> None:
        """Put another bundle in the output's place, wherever it is; ``{}`` empties it."""
        from IPython.display import update_display

        update_display(bundle, raw=True, display_id=self._id)  # type: ignore[no-untyped-call]


def view_bundle(widget: Any) -> dict[str, Any]:
    """Return the bundle that shows a widget and nothing else."""
    return {_VIEW: {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}}


def show_static(bundle: dict[str, Any]) -> None:
    """Display a bundle that will not change."""
    from IPython.display import display

    display(bundle, raw=True)  # type: ignore[no-untyped-call]


class Rendered(str):
    """Text that a cell shows as text and Markdown, and that is a plain ``str`` to everybody else."""

    __slots__ = ()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Write the text as it is where a cell shows it, and as any text within a list or a tuple.

        IPython prefers its own printer of texts to the bundle below.
        """
        alone = len(printer.stack) == 1
        printer.text(self._repr_mimebundle_()["text/plain"] if alone else repr(str(self)))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from ..render.markdown import clean, safe_markdown

        return {"text/plain": clean(str(self)), "text/markdown": safe_markdown(str(self))}
