"""A comm that packs every message as a kernel does, counts the bytes, and drops them.

So the cost of a live view can be measured in a plain script: what a page would get is built whole (header, metadata,
content, signature) by the Session that a kernel uses; only the socket is missing. Knows no widget and no team.
"""

from __future__ import annotations

from typing import Any

import comm
from comm.base_comm import BaseComm
from jupyter_client.session import Session


class Traffic:
    """What went to the page.

    Attributes
    ----------
    messages : int
        Messages on comms that stand.
    size : int
        Bytes of their packed contents and their buffers.
    opening : int
        The same of the messages that open comms: a widget's code and style, once a view.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget what was sent."""
        self.messages = self.size = self.opening = 0


TRAFFIC = Traffic()
_session = Session(key=b"bench", username="bench")


class RecordingComm(BaseComm):
    """The kernel's end of a comm whose messages are packed, counted and dropped."""

    def publish_msg(
        self,
        msg_type: str,
        data: Any = None,
        metadata: Any = None,
        buffers: Any = None,
        **keys: Any,
    ) -> None:
        """Pack a message and count it."""
        content = {"data": {} if data is None else data, "comm_id": self.comm_id, **keys}
        message = _session.msg(msg_type, content=content, metadata=metadata)
        frames = _session.serialize(message)
        size = len(frames[-1]) + sum(memoryview(buffer).nbytes for buffer in buffers or ())
        if msg_type == "comm_open":
            TRAFFIC.opening += size
        else:
            TRAFFIC.messages += 1
            TRAFFIC.size += size


def install() -> None:
    """Let every widget made from now on talk through recording comms."""
    comm.create_comm = RecordingComm
