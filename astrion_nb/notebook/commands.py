"""The commands of ``%astrion``: one function each, registered where it is written.

A command gets the session, its typed arguments and the rest of the line. Adding one is adding one
function here; help, completion and the list of commands follow from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any

from ..errors import ConfigError, TeamError
from ..printable import clean
from ..render.columns import aligned
from .args import Help, flag, parse, target, usage
from .magic import MAGICS, Names, nothing
from .output import Rendered, show_static
from .session import Session


@dataclass(frozen=True)
class Command:
    """A command: what it does, its arguments, what completes it."""

    name: str
    run: Callable[[Session, Any, str], Any]
    arguments: type[Any]
    synopsis: str
    candidates: Names


COMMANDS: dict[str, Command] = {}


def command(
    name: str,
    synopsis: str = "",
    arguments: type[Any] | None = None,
    complete: Names = nothing,
) -> Callable[[Callable[[Session, Any, str], Any]], Callable[[Session, Any, str], Any]]:
    """Register a command under a name."""

    def register(function: Callable[[Session, Any, str], Any]) -> Callable[[Session, Any, str], Any]:
        doc = (function.__doc__ or "").strip()
        cls = arguments or make_dataclass(f"{name.title()}Args", [])
        cls.__doc__ = doc
        if name in COMMANDS:
            raise ConfigError(f"there are two commands %astrion {name}")
        COMMANDS[name] = Command(name, function, cls, synopsis, complete)
        return function

    return register


def run_command(session: Session, line: str) -> Any:
    """Run a line of ``%astrion``; an empty one shows the board.

    Raises
    ------
    ConfigError
        There is no such command.
    """
    name, _, rest = line.strip().partition(" ")
    if name in ("", "--help", "-h"):
        name = "help" if name else "board"
    found = COMMANDS.get(name)
    if found is None:
        import difflib

        close = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean {close[0]}?" if close else f"commands are {', '.join(COMMANDS)}"
        raise ConfigError(f"%astrion: there is no command {name!r}; {hint}")
    try:
        arguments, rest = parse(found.arguments, rest, magic=f"%astrion {name}")
    except Help:
        print(usage(found.arguments, f"%astrion {name} {found.synopsis}".rstrip()))
        return None
    rest = rest.strip()
    if rest and not found.synopsis:
        raise ConfigError(f"%astrion {name}: it takes no {rest!r}; %astrion {name} --help says what it takes")
    return found.run(session, arguments, rest)


@command("board")
def board(session: Session, arguments: Any, rest: str) -> None:
    """Show how everybody stands, and the open questions. %astrion alone does the same."""
    from ..render.board import board_bundle

    if session.team is None:
        print("no team in this kernel yet: start one with %%team, or see %astrion conversations")
        return
    team = session.current()
    show_static(session.look(lambda: board_bundle(team.state)))


@command("agents")
def agents(session: Session, arguments: Any, rest: str) -> Rendered:
    """List the agents with status and whom they wait for."""
    from ..render.board import agents_table
    from ..render.transcript import table

    team = session.current()
    rows = session.look(lambda: agents_table(team.state))
    from ..render.rewrite import write

    return _Table(rows, write([table(rows[0], rows[1:])]))


class _Table(Rendered):
    """Rows as aligned text and as a Markdown table."""

    _markdown: str

    def __new__(cls, rows: list[list[str]], markdown: str) -> _Table:
        made = super().__new__(cls, "\n".join(aligned(rows)))
        made._markdown = markdown
        return made

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": str(self), "text/markdown": self._markdown}


_Wait = make_dataclass(
    "_Wait", [("timeout", float | None, flag(None, "stop the team after so many seconds", value="S"))]
)


@command("wait", "", _Wait)
def wait(session: Session, arguments: Any, rest: str) -> None:
    """Wait until the team rests. Shows the transcript of a run whose cell said --no-wait, or that a message began."""
    session.wait_again(arguments.timeout)


@command("show")
def show(session: Session, arguments: Any, rest: str) -> None:
    """Show the whole transcript of the conversation."""
    show_static(session.transcript())


_Stop = make_dataclass("_Stop", [("reason", str, flag("", "why, for the leader to read", value="TEXT"))])


@command("stop", "[AGENT]", _Stop, Session.names)
def stop(session: Session, arguments: Any, rest: str) -> None:
    """Stop the team, or one agent; everybody can be written to afterwards."""
    team = session.current()
    who, more = target(rest, session.known_names()) if rest else (None, "")
    if who is None and not session.running():
        print("nobody is at work")
        return
    session.do(team.stop(who, arguments.reason or more))
    print(f"stopped: {who or 'the team'}")


@command("terminate", "AGENT", None, Session.names)
def terminate(session: Session, arguments: Any, rest: str) -> None:
    """Terminate an agent for good; its files stay."""
    if not rest:
        raise ConfigError("%astrion terminate: name the agent; %astrion agents lists them")
    who = target(rest, session.known_names())[0]
    session.do(session.current().terminate(who))
    print(f"terminated: {who}")


@command("retry")
def retry(session: Session, arguments: Any, rest: str) -> None:
    """Let the agents that failed go on, after an endpoint's outage."""
    revived = session.act(lambda team: team.retry())
    print(f"at work again: {', '.join(revived)}" if revived else "nobody had failed")


_All = make_dataclass("_All", [("all", bool, flag(False, "archived ones too"))])


@command("conversations", "", _All)
def conversations(session: Session, arguments: Any, rest: str) -> Rendered:
    """List the stored conversations, newest first."""
    from ..app.shelf import conversations as stored
    from ..render.rewrite import write
    from ..render.transcript import table

    rows = [["id", "title", "updated", "agents", "status"]]
    for entry in stored(session.config().home, archived=arguments.all):
        rows.append([entry.id, entry.title, entry.updated_at, str(entry.agent_count), entry.error or entry.status])
    if len(rows) == 1:
        return Rendered("no stored conversations")
    return _Table(rows, write([table(rows[0], rows[1:])]))


@command("resume", "ID", None, Session.conversation_ids)
def resume(session: Session, arguments: Any, rest: str) -> None:
    """Open a stored conversation: says what was interrupted and who still waits."""
    if not rest:
        raise ConfigError("%astrion resume: name the conversation; %astrion conversations lists them")
    print(session.resume(rest))


@command("models")
def models(session: Session, arguments: Any, rest: str) -> Rendered:
    """List the models that can be named, and which is used by default."""
    from ..render.rewrite import write
    from ..render.transcript import table

    config = session.config()
    try:
        default = config.conversation_key()
    except ConfigError as error:
        default = ""
        print(error)
    rows = [["key", "provider", "model", "endpoint", "key from", "default"]]
    for key in config.keys:
        found = config.get(key)
        variable = found.api_key_env or ""
        state = f"{variable} ({'set' if found.api_key else 'not set'})" if variable else ""
        rows.append([key, found.provider, found.model, _host(found.base_url), state, "yes" if key == default else ""])
    return _Table(rows, write([table(rows[0], rows[1:])]))


def _host(url: str | None) -> str:
    from urllib.parse import urlsplit

    return urlsplit(url).hostname or "" if url else ""


_Export = make_dataclass("_Export", [("force", bool, flag(False, "replace a file that is there"))])


@command("export", "[FILE]", _Export)
def export(session: Session, arguments: Any, rest: str) -> None:
    """Write the transcript as Markdown, to FILE or to the conversation's title."""
    from ..app.shelf import file_name, write_export
    from ..render.transcript import export_markdown

    team = session.current()
    text = session.look(lambda: export_markdown(team.state, hide=[(str(team.config.home.root), "~")]))
    path = Path(rest.strip("\"'") or f"{file_name(session.look(lambda: team.state.title))}.md")
    write_export(text, path, replace=arguments.force)
    print(f"written: {path}")


@command("why", "AGENT [TURN]", None, lambda session: [*session.known_names(), "leader"])
def why(session: Session, arguments: Any, rest: str) -> Rendered:
    """Show the exact request of an agent's turn (default: its last)."""
    import json

    if not rest:
        raise ConfigError("%astrion why: name the agent; %astrion agents lists them")
    who, number = target(rest, session.known_names())
    if number and not (number.strip().isascii() and number.strip().isdigit()):
        raise TeamError(f"%astrion why: {number.strip()!r} is not a turn; turns count from 1")
    team = session.current()
    body = session.look(lambda: team.request(who, int(number) if number else None))
    text = json.dumps(body, ensure_ascii=False, indent=2)
    return _Verbatim(text)


class _Verbatim(Rendered):
    """Text that is shown as it is."""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": clean(str(self))}


@command("roles")
def roles(session: Session, arguments: Any, rest: str) -> Rendered:
    """List the roles of the agents directory, and the files that cannot be read."""
    from ..app.shelf import role_set
    from ..render.rewrite import write
    from ..render.transcript import table

    found = role_set(session.config().home)
    rows = [["id", "name", "description", "kind"]]
    rows += [[role.id, role.name, role.description, "preset" if role.preset else "custom"] for role in found.roles]
    for error in found.errors:
        print(error)
    return _Table(rows, write([table(rows[0], rows[1:])]))


@command("help", "[COMMAND]", None, lambda session: [*COMMANDS])
def help_(session: Session, arguments: Any, rest: str) -> None:
    """List the commands, or explain one."""
    if rest:
        found = COMMANDS.get(rest.split()[0])
        if found is None:
            raise ConfigError(f"%astrion: there is no command {rest!r}; commands are {', '.join(COMMANDS)}")
        print(usage(found.arguments, f"%astrion {found.name} {found.synopsis}".rstrip()))
        return
    print("%astrion [COMMAND] — look at the team and steer it; %astrion alone shows the board")
    rows = [
        (f"{item.name} {item.synopsis}".rstrip(), (item.arguments.__doc__ or "").split("\n")[0])
        for item in COMMANDS.values()
    ]
    print(*(f"  {line}" for line in aligned(rows)), sep="\n")
    others = ", ".join(item.written for item in MAGICS.values() if item.commands is None)
    print(f"Magics: {others}; each explains itself with --help.")
