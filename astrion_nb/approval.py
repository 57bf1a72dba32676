"""What a person is asked to allow: a plain value, and what it is bound to.

Source: decisions 20, 29, 30.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from .messages import ToolCall


@dataclass(frozen=True, slots=True)
class Approval:
    """What a person is asked to allow: one call, as it stands.

    Parameters
    ----------
    call_id : str
    tool : str
    arguments : str
        JSON text, as it will be used.
    preview : str
        What the person should see beside it: a diff, a command line.
    kind : str
        What "all of this kind" means.
    digest : str
        Of agent, call, tool and arguments: who allows something says what.
    expires_at : float
        Seconds since the epoch, after which it counts as denied; 0 for never.
    """

    call_id: str
    tool: str
    arguments: str
    preview: str
    kind: str
    digest: str
    expires_at: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the stored form."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Approval:
        """Read the stored form."""
        call_id, tool, arguments = str(data["call_id"]), str(data["tool"]), str(data["arguments"])
        preview, kind, digest = str(data["preview"]), str(data["kind"]), str(data["digest"])
        return cls(call_id, tool, arguments, preview, kind, digest, float(data.get("expires_at") or 0.0))


def digest_of(agent_id: int, call: ToolCall) -> str:
    """Return what an approval is bound to: agent, call, tool and arguments, as hexadecimal SHA-256."""
    said = json.dumps([agent_id, call.id, call.name, call.arguments], ensure_ascii=True)
    return hashlib.sha256(said.encode()).hexdigest()
