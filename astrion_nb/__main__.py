"""``python -m astrion_nb``: the outermost entry, and the one place where command line and Jupyter meet.

Knows which commands there are besides those of :mod:`astrion_nb.app.cli`, and nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .app import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Parameters
    ----------
    argv : sequence of str, optional
        Default: the arguments of the process.
    """
    from .notebook.demo import COMMAND

    return cli.main(argv, (COMMAND,))


if __name__ == "__main__":
    sys.exit(main())
