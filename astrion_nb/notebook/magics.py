"""The magics: ``%%team``, ``%ask``, ``%send``, ``%answer``, ``%astrion``, each defined once.

Each gets typed arguments and makes one call on the session. Text is verbatim
(``@no_var_expand``) unless ``--expand`` asks for IPython's own expansion. Settings are traitlets, so
``%config AstrionMagics`` and configuration files work.
"""

from __future__ import annotations

import atexit
import builtins
import dataclasses
import inspect
import keyword
from dataclasses import dataclass
from typing import Any

from IPython.core.magic import Magics, magics_class
from traitlets import Bool, Enum, TraitError, Unicode, validate
from traitlets.config.loader import DeferredConfig

from .. import given
from ..app.team import Team
from ..errors import ConfigError
from . import completion, logs, stored, syntax
from .args import flag, target
from .commands import COMMANDS, run_command
from .frontend import allows_input, has_kernel
from .magic import MAGICS, magic
from .output import Rendered
from .session import Session

_CURRENT = "\0current"
_NO_FRAME = 1_000_000


def _functions(session: Session) -> list[str]:
    space = session.shell.user_ns
    return sorted(name for name, value in space.items() if not name.startswith("_") and inspect.isfunction(value))


def _targets(session: Session) -> list[str]:
    return [*session.names(), "leader"]


@dataclass
class TeamArgs:
    """Start a team on the task in the cell's body.

    A new conversation begins unless --continue is given. Where somebody can act between cells the
    cell returns at once and the team works on; elsewhere (nbclient, nbval, papermill) it waits."""

    title: str | None = flag(None, "title of the conversation; default: the task's first line", value="T")
    roles: tuple[str, ...] = flag((), "only these roles, comma-separated", value="a,b", names=Session.role_ids)
    model: str | None = flag(
        None, "model of the leader and default of the agents", value="KEY", names=Session.model_keys
    )
    all_models: str | None = flag(None, "model of everybody, whatever roles say", value="KEY", names=Session.model_keys)
    mode: str = flag(
        "fast", "how much the models think; deep counts as thinking", value="M", choices=("fast", "thinking", "deep")
    )
    leader: str = flag("model", "who leads: a model, or you", value="L", choices=("model", "human"))
    wait: bool | None = flag(None, "wait until the team rests", no="show the view and return")
    timeout: float | None = flag(None, "stop the team after so many seconds", value="S")
    continue_: str | None = flag(
        None,
        "go on with the current conversation, or with the one named",
        value="[ID]",
        bare=_CURRENT,
        names=stored.ids,
    )
    permission: str = flag(
        "ask",
        "nothing yet: no tool of the team touches the world, and functions given by --with always run",
        value="P",
        choices=("ask", "read-only", "auto"),
    )
    with_: tuple[str, ...] = flag(
        (), "give the agents these functions of yours as tools", value="f,g", names=_functions
    )
    record: str | None = flag(None, "write a cassette", value="FILE")
    replay: str | None = flag(None, "play a cassette instead of asking a model", value="FILE")
    expand: bool = flag(False, "expand {…} and $… in the body as IPython does")


@dataclass
class AskArgs:
    """Ask an agent, or the leader, and wait for the answer: %ask TARGET text."""

    timeout: float | None = flag(None, "give up after so many seconds", value="S")
    expand: bool = flag(False, "expand {…} and $… in the text as IPython does")


@dataclass
class SendArgs:
    """Send a message to an agent, or the leader: %send TARGET text.

    An agent at work gets it before its next model request; one at rest begins a new task. Where the
    whole team rested, the cell shows it at work, and %astrion wait its transcript."""

    expand: bool = flag(False, "expand {…} and $… in the text as IPython does")


@dataclass
class AnswerArgs:
    """Answer an open question: %answer QUESTION_ID text."""

    expand: bool = flag(False, "expand {…} and $… in the text as IPython does")


class _Variable(Unicode[Any, Any]):
    """A name that a variable can have."""

    info_text = "the name of a variable that hides nothing of Python's"

    def validate(self, obj: Any, value: Any) -> Any:
        name = super().validate(obj, value)
        if not name.isidentifier() or keyword.iskeyword(name) or hasattr(builtins, name):
            self.error(obj, value)
        return name


@magics_class
class AstrionMagics(Magics):
    """The magics of astrion-nb, and their settings."""

    model = Unicode("", help="Model key of new teams, unless %%team --model says otherwise.").tag(config=True)
    all_models = Unicode("", help="Model key of every agent, whatever roles say.").tag(config=True)
    language = Enum(["", "zh", "en"], "", help="Language of prompts and interface.").tag(config=True)
    wait = Bool(None, allow_none=True, help="Whether %%team waits; None: as the front end allows.").tag(config=True)
    record = Unicode("", help="Cassette that every team of this kernel is recorded to.").tag(config=True)
    replay = Unicode("", help="Cassette that every team of this kernel is replayed from.").tag(config=True)
    loop = Enum(
        ["thread", "kernel"],
        "thread",
        help="Where agents run: on a thread of their own, or on the kernel's loop (nest-asyncio2; agents then stop "
        "while a cell computes, and a waiting cell, its interrupt too, while an async function of theirs does).",
    ).tag(config=True)
    variable = _Variable("team", help="Name under which the running team is put into the namespace.").tag(config=True)

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        names = ("model", "all_models", "language", "wait", "record", "replay")
        self._profile = {name: _setting(getattr(self, name)) for name in names}
        self._said: dict[str, Any] = {}
        self.kernel_log: logs.KernelLog | None = None
        self.session = Session(shell, lambda: (dict(self._said), dict(self._profile)))
        self.session.variable = self.variable
        self.session.set_loop(self.loop)
        self.observe(self._changed, names=[*names, "loop", "variable"])

    @validate("loop")
    def _loop_can_change(self, proposal: Any) -> Any:
        session: Session | None = getattr(self, "session", None)
        if session is not None and proposal["value"] != session.mode and session.running():
            raise TraitError(  # of which alone traitlets takes back what it has set already
                "AstrionMagics.loop: the team at work stays on its loop; wait for it with %astrion wait, or end it "
                "with %astrion stop, and set it then"
            )
        return proposal["value"]

    def _changed(self, change: Any) -> None:
        if change.name == "loop":
            self.session.set_loop(change.new)
        elif change.name == "variable":
            self.session.variable = change.new
        else:
            self._said[change.name] = _setting(change.new)

    # -- the magics ---------------------------------------------------------------------

    @magic(TeamArgs, "cell")
    def team(self, arguments: TeamArgs, rest: str, cell: str) -> None:
        """Start a team on the task in the body."""
        if rest.strip():
            raise ConfigError(f"%%team: {rest.strip()[:40]!r} is not a flag; write the task below the %%team line")
        text = self._text(syntax.without_directives(cell), arguments.expand, "%%team: the task")
        wait = self._waits(arguments.wait)
        silent = arguments.wait is False
        team = self._team_for(arguments)
        self.session.start(team, text.strip("\n"), wait=wait, silent=silent, timeout=arguments.timeout)

    def _team_for(self, arguments: TeamArgs) -> Team:
        if arguments.continue_ == _CURRENT:
            _refuse_changes(arguments)
            return self.session.current()
        config = self.session.config(
            model=arguments.model,
            all_models=arguments.all_models,
            record=arguments.record,
            replay=arguments.replay,
        )
        functions = [self._function(name) for name in arguments.with_]
        team = Team(
            arguments.title,
            roles=arguments.roles or None,
            leader=arguments.leader,  # type: ignore[arg-type]
            mode=arguments.mode,  # type: ignore[arg-type]
            conversation=arguments.continue_,
            permission=arguments.permission,  # type: ignore[arg-type]
            tools=functions,
            config=config,
        )
        if arguments.continue_ is not None:
            self.session.refuse_while_running()
            self.session.make_way(arguments.continue_)
        return team

    def _function(self, name: str) -> Any:
        value = self.session.shell.user_ns.get(name)
        if value is None or not (callable(value) or hasattr(value, "definition")):
            raise ConfigError(f"%%team: --with names {name!r}, which is no function in this notebook")
        return value

    def _waits(self, said: bool | None) -> bool:
        if said is not None:
            return said
        configured = self.session.config().wait
        if configured is not None:
            return configured
        return not (has_kernel(self.shell) and allows_input(self.shell))

    @magic(AskArgs, "line", "cell", free=True, places=_targets)
    def ask(self, arguments: AskArgs, rest: str, cell: str | None) -> str:
        """Ask an agent or the leader and wait for the answer: %ask TARGET text."""
        who, text = self._addressed(rest, cell, arguments.expand, "%ask")
        return Rendered(self.session.ask(who, text, arguments.timeout))

    @magic(SendArgs, "line", "cell", free=True, places=_targets)
    def send(self, arguments: SendArgs, rest: str, cell: str | None) -> str:
        """Send a message to an agent or the leader: %send TARGET text."""
        who, text = self._addressed(rest, cell, arguments.expand, "%send")
        return Rendered(self.session.act(lambda team: team.send(who, text)))

    @magic(AnswerArgs, "line", "cell", free=True, places=Session.question_ids)
    def answer(self, arguments: AnswerArgs, rest: str, cell: str | None) -> None:
        """Answer an open question: %answer QUESTION_ID text."""
        question_id, _, text = rest.strip().partition(" ")
        if not question_id:
            raise ConfigError("%answer: name the question: %answer QUESTION_ID text; %astrion shows the open ones")
        text = self._text(_joined(text, cell), arguments.expand, "%answer: the answer")
        self.session.act(lambda team: team.answer(question_id, text))

    @magic(None, "line", commands=COMMANDS)
    def astrion(self, line: str) -> Any:
        """Look at the team and steer it: %astrion help lists the commands."""
        if line.split()[:1] != ["wait"]:  # which tells it by failing
            self.session.surface()
        return run_command(self.session, line)

    # -- the text ------------------------------------------------------------------------

    def _addressed(self, rest: str, cell: str | None, expand: bool, magic: str) -> tuple[str, str]:
        self.session.current()
        if expand:  # the name too: %ask --expand {team.agents[0].display_name} …
            rest, cell = self._expanded(rest), None if cell is None else self._expanded(cell)
        who, text = target(rest, self.session.known_names())
        if not who:
            raise ConfigError(f"{magic}: say to whom: {magic} TARGET text; %astrion agents lists them")
        return who, self._text(_joined(text, cell), False, f"{magic}: the text")

    def _text(self, text: str, expand: bool, what: str) -> str:
        said = self._expanded(text) if expand else text
        if not said.strip():
            raise ConfigError(f"{what} is empty")
        return said

    def _expanded(self, text: str) -> str:
        # Beyond the stack's end IPython looks at the user's names only, and not at those of this function too.
        expanded: str = self.session.shell.var_expand(text, depth=_NO_FRAME)
        return expanded


def _joined(text: str, cell: str | None) -> str:
    """Return the text of a line and the body below it."""
    body = "" if cell is None else syntax.without_directives(cell).strip("\n")
    return "\n".join(part for part in (text, body) if part.strip())


def _refuse_changes(arguments: TeamArgs) -> None:
    """Refuse flags that a team at hand cannot take any more; nothing is dropped in silence."""
    free = ("continue_", "wait", "timeout", "expand")
    for item in dataclasses.fields(arguments):
        if item.name not in free and getattr(arguments, item.name) != item.default:
            name = "--" + item.name.rstrip("_").replace("_", "-")
            raise ConfigError(f"%%team: --continue goes on with the team as it is; {name} is for a new one")


def _setting(value: Any) -> Any:
    return None if value == "" else value


def _check_settings(config: Any) -> None:
    """Refuse a setting that is none, and forget it: the next loading goes without.

    Raises
    ------
    ConfigError
        The setting and what it can be are named.
    """
    said = config.get(AstrionMagics.__name__, {})
    for name, trait in AstrionMagics.class_traits(config=True).items():
        value = said.get(name)
        if value is None or isinstance(value, DeferredConfig):  # not said; or a text that is read as it is needed
            continue
        try:
            trait.validate(None, value)  # type: ignore[attr-defined]
        except TraitError:
            del said[name]
            todo = f"use {trait.info()}; the setting is dropped, so %load_ext astrion_nb works now"
            raise given.refused(f"AstrionMagics.{name}", value, todo) from None


def load(shell: Any) -> None:
    """Add the magics to a shell; loading twice changes nothing."""
    if getattr(shell, _ATTRIBUTE, None) is not None:
        return
    _check_settings(shell.config)
    magics = AstrionMagics(shell)
    shell.register_magics(magics)
    syntax.install(shell)
    completion.install(shell, magics.session)
    setattr(shell, _ATTRIBUTE, magics)
    magics.kernel_log = logs.attach(shell)
    atexit.register(magics.session.put_away)


def unload(shell: Any) -> None:
    """Take everything out again; a running team is put away."""
    magics = getattr(shell, _ATTRIBUTE, None)
    if magics is None:
        return
    setattr(shell, _ATTRIBUTE, None)
    atexit.unregister(magics.session.put_away)
    completion.remove(shell)
    syntax.remove(shell)
    try:
        magics.session.close()
    finally:  # an interrupt must not leave half of it behind
        logs.detach(magics.kernel_log)
        for item in MAGICS.values():
            for kind in item.kinds:
                shell.magics_manager.magics[kind].pop(item.name, None)
    shell.magics_manager.registry.pop(type(magics).__name__, None)
    with_config = getattr(shell, "configurables", [])
    if magics in with_config:
        with_config.remove(magics)


_ATTRIBUTE = "_astrion_magics"
