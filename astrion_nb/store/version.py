"""The version of the stored layout: which one is written, which are read.

Knows no file, and nothing of what lies in one.

Source: decision 30.
"""

from __future__ import annotations

import re

from ..errors import ConversationBroken
from ..given import shown

SCHEMA_VERSION = 1
"""Version of the layout; a greater one is refused."""
_VERSION = re.compile(r"[0-9]{1,9}(\.[^\n]{0,40})?")


def is_version(found: object) -> bool:
    """Say whether a value is the number of a version: ``1`` or ``"1.0"``."""
    return _VERSION.fullmatch(str(found)) is not None


def check_version(found: object, where: object) -> None:
    """Refuse a layout of a later release (decision 30).

    Raises
    ------
    ConversationBroken
        The version is greater than this release's, or no version at all.
    """
    text = str(found)
    if not is_version(found):
        raise ConversationBroken(f"{where}: {shown(found)} is not a version; mend the file or put a copy back")
    if int(text.split(".")[0]) > SCHEMA_VERSION:
        raise ConversationBroken(
            f"{where}: written by a later release (version {text}, this one reads {SCHEMA_VERSION}): "
            "update astrion-nb to open it"
        )
