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
from ..printable import clean, one_field
from ..render.columns import aligned
from ..state import title_line
from . import stored
from .args import Help, flag, options, parse, target, usage
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
        print(session.words.no_team)
        return
    team = session.current()
    show_static(session.look(lambda: board_bundle(team.state, prices=team.prices)))


@command("agents")
def agents(session: Session, arguments: Any, rest: str) -> Rendered:
    """List the agents with status, whom they wait for, tokens, and the cost where it is known."""
    from ..render.board import agents_table

    team = session.current()
    return _Table(session.look(lambda: agents_table(team.state, prices=team.prices)))


class _Table(Rendered):
    """Rows, headings first, as aligned text and as a Markdown table."""

    _markdown: str

    def __new__(cls, rows: list[list[str]]) -> _Table:
        from ..render.rewrite import write
        from ..render.transcript import table

        made = super().__new__(cls, "\n".join(aligned(rows)))
        made._markdown = write([table(rows[0], rows[1:])])
        return made

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": str(self), "text/markdown": self._markdown}


_Wait = make_dataclass(
    "_Wait", [("timeout", float | None, flag(None, "stop the team after so many seconds", value="S"))]
)


@command("wait", "", _Wait)
def wait(session: Session, arguments: Any, rest: str) -> None:
    """Wait until the team rests. Shows the transcript of a run whose cell said --no-wait, or that a message began.

    Where the transcript stands in another cell already, it says how the run ended."""
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
        print(session.words.nobody_at_work)
        return
    session.do(team.stop(who, arguments.reason or more))
    print(session.words.stopped.format(who=who or session.words.the_team))


@command("terminate", "AGENT", None, Session.names)
def terminate(session: Session, arguments: Any, rest: str) -> None:
    """Terminate an agent for good; its files stay."""
    if not rest:
        raise ConfigError("%astrion terminate: name the agent; %astrion agents lists them")
    who = target(rest, session.known_names())[0]
    session.do(session.current().terminate(who))
    print(session.words.terminated.format(who=who))


_Approve = make_dataclass("_Approve", [("all", bool, flag(False, "all further calls of this kind by this agent, too"))])


def _approvals(session: Session) -> list[str]:
    team = session.team
    if team is None:
        return []
    return session.look(lambda: [one.question_id for one in team.questions if one.approval is not None])


@command("approve", "ID", _Approve, _approvals)
def approve(session: Session, arguments: Any, rest: str) -> None:
    """Allow a call that an agent asks for."""
    identifier = _request("approve", rest)
    behind = rest.strip()[len(identifier) :]
    lasting = arguments.all or "--all" in _behind("approve", "request", _Approve, behind)
    session.act(lambda team: team.approve(identifier, lasting=lasting))
    print(session.words.approved.format(id=identifier))


@command("deny", "ID [REASON]", None, _approvals)
def deny(session: Session, arguments: Any, rest: str) -> None:
    """Deny a call that an agent asks for; the agent reads the reason."""
    identifier = _request("deny", rest)
    reason = rest.strip()[len(identifier) :].strip()
    session.act(lambda team: team.deny(identifier, reason))
    print(session.words.denied.format(id=identifier))


def _request(name: str, rest: str) -> str:
    if not rest.strip():
        raise ConfigError(f"%astrion {name}: name the request: %astrion {name} ID; %astrion shows the open ones")
    return rest.split()[0]


@command("retry")
def retry(session: Session, arguments: Any, rest: str) -> None:
    """Let the agents that failed go on, after an endpoint's outage."""
    revived = session.act(lambda team: team.retry())
    text = session.words
    print(text.revived.format(who=", ".join(revived)) if revived else text.none_failed)


_Stored = make_dataclass("_Stored", [("archived", bool, flag(False, "archived ones too"))])


@command("conversations", "", _Stored)
def conversations(session: Session, arguments: Any, rest: str) -> Rendered:
    """List the stored conversations, newest first."""
    from ..app.shelf import conversations as listed

    text = session.words
    rows = [list(text.conversation_columns)]
    for entry in listed(session.config().home, archived=arguments.archived):
        status = entry.error or text.status.get(entry.status, entry.status)
        rows.append([entry.id, entry.title, entry.updated_at, str(entry.agent_count), status])
    return _Table(rows) if len(rows) > 1 else Rendered(text.no_conversations)


_Resume = make_dataclass(
    "_Resume",
    [
        ("read_only", bool, flag(False, "only look at it, also while another kernel works on it")),
        ("take_over", bool, flag(False, "take it from the kernel that has it open, which saves nothing afterwards")),
    ],
)


@command("resume", "ID", _Resume, stored.ids)
def resume(session: Session, arguments: Any, rest: str) -> None:
    """Open a stored conversation: says what was interrupted and who still waits."""
    identifier, behind = _stored("resume", rest)
    said = _behind("resume", "conversation", _Resume, behind)
    read_only = arguments.read_only or "--read-only" in said
    take_over = arguments.take_over or "--take-over" in said
    if read_only and take_over:
        raise ConfigError(
            "%astrion resume: --read-only leaves it where it is, and --take-over takes it: give one of them"
        )
    print(stored.resume(session, identifier, read_only=read_only, take_over=take_over))


@command("rename", "ID TITLE", None, stored.ids)
def rename(session: Session, arguments: Any, rest: str) -> None:
    """Give a conversation another title, which no later task changes."""
    identifier, title = _stored("rename", rest)
    title = title.strip()
    if title[:1] in ("'", '"') and title[-1:] == title[:1]:
        title = title[1:-1]
    if not title.strip():
        raise ConfigError("%astrion rename: say the new title: %astrion rename ID TITLE")
    stored.rename(session, identifier, title)
    print(session.words.renamed.format(id=identifier, title=one_field(title_line(title))))


_Archive = make_dataclass("_Archive", [("undo", bool, flag(False, "bring it back"))])


@command("archive", "ID", _Archive, stored.ids)
def archive(session: Session, arguments: Any, rest: str) -> None:
    """Take a conversation out of the list, or bring it back with --undo; it keeps everything and can be resumed."""
    identifier, behind = _stored("archive", rest)
    undo = arguments.undo or "--undo" in _behind("archive", "conversation", _Archive, behind)
    stored.archive(session, identifier, not undo)
    text = session.words
    print((text.unarchived if undo else text.archived).format(id=identifier))


@command("delete", "ID", None, stored.ids)
def delete(session: Session, arguments: Any, rest: str) -> None:
    """Remove a conversation for good, without asking; one that is open anywhere is refused."""
    gone = stored.delete(session, _stored("delete", rest, alone=True)[0])
    text = session.words
    agents = text.count("agent", gone.agent_count)
    print(text.deleted.format(id=gone.id, title=gone.title or text.untitled, agents=agents))


def _behind(name: str, what: str, arguments: type[Any], behind: str) -> set[str]:
    """Return the flags behind an id, where they are meant as those before it."""
    said = set(behind.split())
    if odd := sorted(said - set(options(arguments))):
        raise ConfigError(f"%astrion {name}: it takes one {what}, and no {' '.join(odd)!r}")
    return said


def _stored(name: str, rest: str, *, alone: bool = False) -> tuple[str, str]:
    """Return the conversation that a line names, and what stands behind it."""
    identifier, more = target(rest, [])
    if not identifier:
        raise ConfigError(f"%astrion {name}: name the conversation; %astrion conversations --archived lists them")
    if alone and more.strip():
        raise ConfigError(f"%astrion {name}: it takes one conversation, and no {more.strip()!r}")
    return identifier, more


@command("models")
def models(session: Session, arguments: Any, rest: str) -> Rendered:
    """List the models that can be named, what each still needs, and which is used by default."""
    from ..app.shelf import models as known

    config, text = session.config(), session.words
    try:
        default = config.conversation_key()
    except ConfigError as error:
        default = ""
        print(error)
    rows = [list(text.model_columns)]
    for found in known(config, default):
        key_from = ""
        if found.config.api_key_env:
            key_from = (text.key_set if found.config.api_key else text.key_missing).format(
                name=found.config.api_key_env
            )
        needs = {
            "": text.ready,
            "key": key_from,
            "extra": text.no_extra.format(command=found.command),
            "fetch": text.fetch.format(command=found.command, size=found.size),
            "file": text.no_file,
        }
        rows.append(
            [
                found.config.key,
                found.config.provider,
                found.config.model,
                _host(found.config.base_url),
                key_from,
                needs[found.lacks],
                text.yes if found.config.key == default else "",
            ]
        )
    return _Table(rows)


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
    hide = [(str(team.config.home.root), "~")]
    text = session.look(lambda: export_markdown(team.state, hide=hide, prices=team.prices))
    path = Path(rest.strip("\"'") or f"{file_name(session.look(lambda: team.state.title))}.md")
    write_export(text, path, replace=arguments.force)
    print(session.words.written.format(path=path))


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
    """List the roles of the agents directory, what was assumed about them, and the files that cannot be read."""
    from ..app.shelf import role_set

    text, found = session.words, role_set(session.config().home)
    rows = [list(text.role_columns)]
    for role in found.roles:
        rows.append([role.id, role.name, role.description, text.preset if role.preset else text.custom])
        print(*role.warnings, sep="\n", end="\n" if role.warnings else "")
    for error in found.errors:
        print(error)
    return _Table(rows)


@command("help", "[COMMAND]", None, lambda session: [*COMMANDS])
def help_(session: Session, arguments: Any, rest: str) -> None:
    """List the commands, or explain one."""
    if rest:
        found = COMMANDS.get(rest.split()[0])
        if found is None:
            raise ConfigError(f"%astrion: there is no command {rest!r}; commands are {', '.join(COMMANDS)}")
        print(usage(found.arguments, f"%astrion {found.name} {found.synopsis}".rstrip()))
        return
    text = session.words
    print(text.help)
    rows = [
        (
            f"{item.name} {item.synopsis}".rstrip(),
            text.commands.get(item.name) or (item.arguments.__doc__ or "").split("\n")[0],
        )
        for item in COMMANDS.values()
    ]
    print(*(f"  {line}" for line in aligned(rows)), sep="\n")
    others = ", ".join(item.written for item in MAGICS.values() if item.commands is None)
    print(text.help_magics.format(names=others))
