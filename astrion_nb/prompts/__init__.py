"""The base prompts: the part of a system prompt that every leader, or every member, shares.

One versioned Markdown file per language and audience, and a brief one for models that are too small for
the whole: it names no tool, because such a model has few, and is read in a fraction of the time. They
state the duties that the message protocol puts on an agent; what is particular to a role comes after
them (:meth:`astrion_nb.roles.Role.system_prompt`). This package does not know which agent they are for.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..home import Language

Audience = Literal["leader", "member"]

_FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class BasePrompt:
    """A base prompt as it is frozen into an agent.

    Parameters
    ----------
    audience : {"leader", "member"}
    language : {"zh", "en"}
    version : int
        Rises by one with every change of the text, so that a conversation can say which it used.
    text : str
        The prompt, without outer blank lines.
    """

    audience: Audience
    language: Language
    version: int
    text: str


@functools.cache
def base_prompt(audience: Audience, language: Language, *, brief: bool = False) -> BasePrompt:
    """Return the base prompt for an audience.

    Parameters
    ----------
    audience : {"leader", "member"}
    language : {"zh", "en"}
        See :func:`astrion_nb.home.language`.
    brief : bool
        The one for small models.

    Returns
    -------
    BasePrompt

    Notes
    -----
    Data model §2 and §7, message protocol §7.3, decision 32.
    """
    from ..rolefile import parse

    path = _FOLDER / language / f"{audience}{'-brief' if brief else ''}.md"
    parts = parse(path.read_bytes(), path.name)
    return BasePrompt(audience, language, int(parts.values["version"]), parts.body.strip())
