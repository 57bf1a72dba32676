"""The command line: the parser, the commands that need no Jupyter, and errors as one line.

Other commands are handed in as :class:`Command`; this module does not know them. Results go to
standard output, everything said to a person on the way goes to standard error.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import AstrionError
from ..home import extra_command, language

if TYPE_CHECKING:
    from ..render.words import Words

PROGRAM = "python -m astrion_nb"
INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Command:
    """One command of the command line.

    Parameters
    ----------
    name : str
    summary : str
        One line, for the list of commands.
    arguments : callable
        Adds the command's arguments to its parser.
    run : callable
        Does it, and returns the exit status.
    """

    name: str
    summary: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None, commands: Sequence[Command] = ()) -> int:
    """Run a command and return its exit status.

    Parameters
    ----------
    argv : sequence of str, optional
        Default: the arguments of the process.
    commands : sequence of Command
        Further commands.

    Returns
    -------
    int
        0; 1 after an error, which stands on standard error in one line; 2 when the arguments cannot
        be understood; 130 after an interrupt.
    """
    parser = _parser((*commands, LOCAL))
    argv = sys.argv[1:] if argv is None else argv
    if not argv:
        parser.print_help()
        return 0
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as end:  # argparse has said what there is to say
        return end.code if isinstance(end.code, int) else 2
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except AstrionError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(interface().interrupted, file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output wants no more of it; Python would complain once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def interface() -> Words:
    """Return the words of what is said in a terminal, in the language of the environment."""
    from ..render.words import words

    return words(language())


def _parser(commands: Sequence[Command]) -> argparse.ArgumentParser:
    from .. import __version__

    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="A team of LLM agents in a notebook: commands to be given in a terminal."
    )
    parser.add_argument("--version", action="version", version=f"astrion-nb {__version__}")
    _add(parser, commands, "command")
    return parser


def _add(parser: argparse.ArgumentParser, commands: Sequence[Command], what: str) -> None:
    subparsers = parser.add_subparsers(title=f"{what}s", metavar=what.upper(), required=True)
    for command in commands:
        inner = subparsers.add_parser(command.name, help=command.summary, description=command.summary)
        inner.set_defaults(run=command.run)
        command.arguments(inner)


# -- local ------------------------------------------------------------------------------


def _fetch_arguments(parser: argparse.ArgumentParser) -> None:
    from ..llm.weights import pins

    parser.add_argument("names", nargs="+", metavar="NAME", help=", ".join(pins()))


def _fetch(arguments: argparse.Namespace) -> int:
    from ..llm.weights_fetch import cli_fetch

    cli_fetch(arguments.names)
    if importlib.util.find_spec("xllamacpp") is None:
        print(interface().extra_too.format(command=extra_command("local")), file=sys.stderr)
    return 0


def _list(_: argparse.Namespace) -> int:
    from ..llm.weights import find, pins
    from ..render.columns import aligned

    rows = [interface().weights_columns]
    for each in pins().values():
        place = str(find(each) or each.command)
        rows.append((each.name, each.key, each.download_size, each.licence, place))
    print(*aligned(rows), sep="\n")
    return 0


_LOCAL_COMMANDS = (
    Command(
        "fetch",
        "bring the weights of a small model into the cache, checked against pinned hashes",
        _fetch_arguments,
        _fetch,
    ),
    Command(
        "list", "show the small models there are, and where those lie that have been fetched", lambda _: None, _list
    ),
)
LOCAL = Command(
    "local",
    "small models that run on this computer",
    lambda parser: _add(parser, _LOCAL_COMMANDS, "action"),
    lambda _: 2,  # never called: an action is required
)
