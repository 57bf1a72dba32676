"""That requests leave messages out is one quiet line of the view, while it happens and for a page that comes later."""

from __future__ import annotations

import json

from support.pages import pages
from support.stage import Stage

from astrion_nb.events import MessageAppended
from astrion_nb.messages import Message
from astrion_nb.widgets.feed import Feed

COMPACTION = {"from": 2, "pinned": [1], "left_out": 12}


def test_a_page_is_told_how_many_messages_were_left_out_and_not_what_stands_in_their_place() -> None:
    stage = Stage()
    feed = Feed(lambda: stage.state, now=lambda: 0.0)
    stage.watch(feed.push)
    stage.start("Work.")
    first = feed.take()
    stage.says(0, "One.")
    stage.tell(MessageAppended(0, Message("system", "The digest.", metadata={"compaction": COMPACTION})))
    stage.says(0, "Two.")
    then, later = feed.take(), Feed(lambda: stage.state, now=lambda: 0.0).snapshot()
    assert first is not None
    assert then is not None
    assert "The digest." not in json.dumps([then, later])
    with pages() as browser:
        live, anew = browser.show([first, then], [later])
        for page in (live, anew):
            bubbles = page["agents"][0]["bubbles"]
            assert [bubble.get("left") for bubble in bubbles] == [None, None, 12, None]
