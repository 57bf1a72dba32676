"""What a tool may do: modes, rules with patterns, and one judgement.

Pure: a call and a policy in, a verdict out. Whoever asks the person, and remembers what was allowed,
is the runtime's matter. Nothing that a model writes is ever read as a permission; a role can narrow
what its agents may do and widen nothing, because a model can write roles.

A rule reads ``tool`` or ``tool(pattern)``: ``run_command(pytest *)``, ``write_file(docs/*)``,
``extract_webpage(docs.python.org)``, ``mcp__files__*``. ``*`` stands for any characters, also for
none. Deny wins over allow, and both over the mode.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from .. import given
from ..errors import ConfigError
from .registry import Effect, Tool

Mode = Literal["read-only", "ask", "auto"]
MODES: tuple[Mode, ...] = get_args(Mode)
"""From the strictest to the freest."""
USUAL: Mode = "ask"

_RULE = re.compile(r"(?P<tool>[A-Za-z0-9_*?-]{1,80})(?:\((?P<pattern>.*)\))?", re.DOTALL)
# What lets one line run a second command, or run it elsewhere: no pattern speaks for such a line.
_CHAINS = re.compile(r"[;&|<>`$(){}\n\r\\]")
_FREE: dict[Mode, frozenset[Effect]] = {
    "read-only": frozenset({"", "read"}),
    "ask": frozenset({"", "read"}),
    "auto": frozenset({"", "read", "write", "run", "net"}),
}
_NEVER: dict[Mode, frozenset[Effect]] = {
    "read-only": frozenset({"write", "run"}),
    "ask": frozenset(),
    "auto": frozenset(),
}


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of an allow or a deny list.

    Parameters
    ----------
    tool : str
        A tool's name; ``*`` and ``?`` stand for characters.
    pattern : str, optional
        What the call's subject (command, path, host) has to look like; ``None`` for any.
    """

    tool: str
    pattern: str | None = None

    def __str__(self) -> str:
        return self.tool if self.pattern is None else f"{self.tool}({self.pattern})"


def parse_rule(text: str, where: str = "a permission rule") -> Rule:
    """Read a rule.

    Parameters
    ----------
    text : str
        ``tool`` or ``tool(pattern)``.
    where : str
        Where it was said, for the message.

    Raises
    ------
    ConfigError
        It is no rule.
    """
    given.text(where, text)
    found = _RULE.fullmatch(text.strip())
    if found is None:
        raise ConfigError(
            f"{where}: {given.shown(text)} is no rule; write tool or tool(pattern), as run_command(git *)"
        )
    return Rule(found["tool"], found["pattern"])


@dataclass(frozen=True, slots=True)
class Policy:
    """What the tools of a team, or of one role, may do.

    Parameters
    ----------
    mode : {"read-only", "ask", "auto"}
        ``ask``: reading is free, everything else asks the person.
    allow, deny : tuple of Rule
    """

    mode: Mode = USUAL
    allow: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()

    def narrowed(self, mode: Mode | None, deny: Iterable[Rule] = ()) -> Policy:
        """Return what is left when a role says its own: the stricter mode, and further denials."""
        strict = self.mode if mode is None else min(self.mode, mode, key=MODES.index)
        return replace(self, mode=strict, deny=(*self.deny, *deny))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a policy says of a call.

    Parameters
    ----------
    action : {"allow", "ask", "deny"}
    why : str
        Of a denial: one line for the model, with the way on.
    kind : str
        What "all of this kind" means for this call.
    """

    action: Literal["allow", "ask", "deny"]
    why: str = ""
    kind: str = ""


def subject(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return what a rule's pattern is held against: the command, the path or the host of a call."""
    if isinstance(command := arguments.get("command"), str):
        return command.strip()
    if isinstance(url := arguments.get("url"), str):
        try:
            return urlsplit(url.strip()).hostname or url.strip()
        except ValueError:
            return url.strip()
    path = arguments.get("path")
    return path if isinstance(path, str) else ""


def kind_of(tool: Tool, arguments: Mapping[str, Any]) -> str:
    """Return what a person allows who allows "all of this kind": never more than was shown.

    A command stands for those that begin with the same word, one that chains commands only for itself;
    a page for its host; everything else for its tool.
    """
    what = subject(tool.name, arguments)
    if tool.effect == "run" and what:
        if _CHAINS.search(what):
            return f"{tool.name}({what})"
        return f"{tool.name}({what.split()[0]} *)"
    if tool.effect == "net" and what:
        return f"{tool.name}({what})"
    return tool.name


def judge(policy: Policy, tool: Tool, arguments: Mapping[str, Any], granted: Iterable[str] = ()) -> Verdict:
    """Say whether a call may happen.

    Parameters
    ----------
    policy : Policy
    tool : Tool
    arguments : mapping
        Validated.
    granted : iterable of str
        Kinds that the person has allowed this agent.

    Returns
    -------
    Verdict
    """
    what, kind = subject(tool.name, arguments), kind_of(tool, arguments)
    for rule in policy.deny:
        if _denies(rule, tool, what):
            return Verdict("deny", f"not allowed: the rule {rule} denies it; go on without it, or report", kind)
    if any(_allows(rule, tool, what) for rule in policy.allow):
        return Verdict("allow", kind=kind)
    if tool.effect in _NEVER[policy.mode]:
        return Verdict("deny", f"not allowed: this team is {policy.mode}; go on without it, or report", kind)
    if tool.effect in _FREE[policy.mode] or kind in granted:
        return Verdict("allow", kind=kind)
    return Verdict("ask", kind=kind)


def _named(rule: Rule, tool: Tool) -> bool:
    return fnmatch.fnmatchcase(tool.name, rule.tool)


def _allows(rule: Rule, tool: Tool, what: str) -> bool:
    if not _named(rule, tool):
        return False
    if rule.pattern is None or rule.pattern == what:
        return True
    if tool.effect == "run" and _CHAINS.search(what):
        return False
    return _like(rule.pattern, what)


def _denies(rule: Rule, tool: Tool, what: str) -> bool:
    if not _named(rule, tool):
        return False
    if rule.pattern is None:
        return True
    # Of a line that chains commands, each part is looked at.
    parts = [what, *_CHAINS.split(what)] if tool.effect == "run" else [what]
    return any(_like(rule.pattern, part.strip()) for part in parts)


def _like(pattern: str, text: str) -> bool:
    if pattern.endswith(" *") and text == pattern[:-2]:
        return True
    return fnmatch.fnmatchcase(text, pattern)
