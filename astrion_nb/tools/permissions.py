"""What a tool may do: modes, rules with patterns, and one judgement.

Pure: a call and a policy in, a verdict out. Whoever asks the person, and remembers what was allowed,
is the runtime's matter. Nothing that a model writes is ever read as a permission; a role can narrow
what its agents may do and widen nothing, because a model can write roles.

A rule reads ``tool`` or ``tool(pattern)``: ``run_command(pytest *)``, ``write_file(docs/*)``,
``extract_webpage(docs.python.org)``, ``mcp__files__*``. ``*`` stands for any characters, also for
none. Deny wins over allow, and both over the mode.

Where a pattern could be read in two ways, an allowing one is read narrowly and a denying one widely: no
pattern allows a line that runs a second command, or a path with ``..``; a denial is held against every
command of a line and every way to write a path. A shell can hide a command from any pattern, so denying
one guards against mistakes; against malice there are the modes and the sandbox.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import posixpath
import re
import shlex
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
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
# Commands that run what stands behind them.
_WRAPPERS = frozenset(
    ("!", "bash", "busybox", "chroot", "command", "dash", "do", "doas", "elif", "else", "env", "eval", "exec", "find",
     "flock", "if", "ionice", "ksh", "nice", "nohup", "parallel", "setsid", "sh", "stdbuf", "strace", "su", "sudo",
     "then", "time", "timeout", "unshare", "until", "watch", "while", "xargs", "zsh")
)  # fmt: skip
_ASSIGNS = re.compile(r"[A-Za-z_]\w*=")
_MOST_WORDS = 200
_DEEPEST = 3
_LONGEST_KIND = 300
_BY_PATH = frozenset({"write_file", "edit_file"})
_BY_COMMAND = "run_command"
_BY_HOST = "extract_webpage"
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
        """Return what is left when a role says its own: the stricter mode, and further denials.

        A role that only reads does so though the team is allowed more.
        """
        strict = self.mode if mode is None else min(self.mode, mode, key=MODES.index)
        allow = () if strict == "read-only" and strict != self.mode else self.allow
        return Policy(strict, allow, (*self.deny, *deny))


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


def subjects(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return what a rule's pattern is held against: a call's ``command``, ``path`` and the host of its ``url``."""
    found: dict[str, str] = {}
    if isinstance(command := arguments.get("command"), str):
        found["command"] = command.strip()
    if isinstance(url := arguments.get("url"), str):
        found["url"] = _host(url)
    if isinstance(path := arguments.get("path"), str):
        found["path"] = path
    return found


def _host(url: str, *, port: bool = False) -> str:
    try:
        parts = urlsplit(url.strip())
        host = unicodedata.normalize("NFKC", parts.hostname or "").replace("\u3002", ".").lower().rstrip(".")
        return f"{host}:{parts.port}" if port and host and parts.port is not None else host or url.strip()
    except ValueError:
        return url.strip()


def kind_of(tool: Tool, arguments: Mapping[str, Any]) -> str:
    """Return what a person allows who allows "all of this kind": never more than was shown.

    A command stands for itself, because the same word can begin a harmless and a harmful one (``git status``,
    ``git push``); a written file for further writing of that file; a page for its host; every other call for
    itself, with all its arguments. More than that is allowed by a rule.
    """
    if tool.effect in ("", "read"):
        return tool.name
    what = subjects(arguments)
    if tool.name == _BY_COMMAND and "command" in what:
        return f"{tool.name}({what['command']})"
    if tool.name in _BY_PATH and "path" in what:
        return f"{tool.name}({_usual(what['path']) or what['path']})"
    if tool.name == _BY_HOST and "url" in what:
        return f"{tool.name}({_host(arguments['url'], port=True)})"
    said = json.dumps(arguments, ensure_ascii=False, sort_keys=True, default=str)
    if len(said) > _LONGEST_KIND:
        digest = hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()
        said = f"{said[:_LONGEST_KIND]}… sha256:{digest}"
    return f"{tool.name}({said})"


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
    what, kind = subjects(arguments), kind_of(tool, arguments)
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


def _allows(rule: Rule, tool: Tool, what: Mapping[str, str]) -> bool:
    if not _named(rule, tool):
        return False
    if rule.pattern is None:
        return True
    if len(what) != 1:  # a pattern speaks for one thing, and of two the other could be any
        return False
    ((sort, said),) = what.items()
    if "*" not in rule.pattern and rule.pattern == said:
        return True
    if sort == "command":
        return not _CHAINS.search(said) and _like(rule.pattern, said)
    if sort == "path":
        path = _usual(said)
        return bool(path) and _like(rule.pattern.removeprefix("./"), path)
    return _like(rule.pattern.lower(), said)


def _denies(rule: Rule, tool: Tool, what: Mapping[str, str]) -> bool:
    if not _named(rule, tool):
        return False
    if rule.pattern is None:
        return True
    forms: dict[str, Callable[[str], Iterable[str]]] = {"command": _commands, "path": _paths, "url": _hosts}
    patterns = {
        "command": rule.pattern,
        "path": _folded(rule.pattern.removeprefix("./")),
        "url": rule.pattern.lower(),
    }
    return any(_like(patterns[sort], form) for sort, said in what.items() for form in forms[sort](said))


def _usual(path: str) -> str:
    """Return a path in its usual form; empty for one that could lead elsewhere than it reads."""
    if path.startswith(("/", "~")) or "\\" in path or "\0" in path or ".." in path.split("/"):
        return ""
    return posixpath.normpath(path)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


def _paths(path: str) -> Iterator[str]:
    """Yield the ways to read a path: as it is, as a folder, and of one that goes about each end of it."""
    whole = _folded(path.replace("\\", "/"))
    usual = posixpath.normpath(whole)
    for text in {whole, usual}:
        parts = [part for part in text.split("/") if part not in ("", ".")]
        for start in range(len(parts)) if not _usual(path) else (0,):
            end = "/".join(parts[start:])
            yield end
            yield end + "/"
    yield path


def _hosts(host: str) -> Iterator[str]:
    yield host
    try:
        yield host.encode("idna").decode("ascii")
        yield host.encode("ascii").decode("idna")
    except UnicodeError:
        return


def _commands(line: str, depth: int = 0) -> Iterator[str]:
    """Yield the commands of a line, each in the words that a shell makes of it."""
    yield line
    line = line.replace("\\\n", "")
    for part in {line, *_CHAINS.split(line)}:
        if not part.strip():
            continue
        try:
            words = shlex.split(part)
        except ValueError:  # a quotation that the cut has opened
            words = part.replace("'", "").replace('"', "").split()
        while words and _ASSIGNS.match(words[0]):
            words = words[1:]
        if not words:
            continue
        wraps = posixpath.basename(words[0]) in _WRAPPERS
        for start in range(min(len(words), _MOST_WORDS) if wraps else 1):
            yield " ".join((posixpath.basename(words[start]), *words[start + 1 :]))
            if " " in words[start] and depth < _DEEPEST:
                yield from _commands(words[start], depth + 1)


def _like(pattern: str, text: str) -> bool:
    """Say whether a text has the form of a pattern, in time that grows with their lengths alone."""
    if pattern.endswith(" *") and text == pattern[:-2]:
        return True
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == text
    *middle, last = rest
    at, end = len(first), len(text) - len(last)
    if end < at or not text.startswith(first) or not text.endswith(last):
        return False
    for piece in middle:
        at = text.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True
