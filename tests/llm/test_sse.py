"""The event decoder: any cut, any line ending."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astrion_nb.llm.sse import MOST, BodyDecoder, EventDecoder, TooLong


def decode(*pieces: bytes) -> list[bytes]:
    decoder = EventDecoder()
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events + decoder.flush()


def test_comments_names_ids_and_unknown_fields_are_skipped() -> None:
    assert decode(b": ping\n\nevent: x\nid: 1\ndata: a\nfoo: b\n\n:\ndata:b\n\n") == [b"a", b"b"]


def test_several_data_lines_are_one_event_and_only_one_space_is_dropped() -> None:
    assert decode(b"data:  a\ndata\ndata: b\n\n") == [b" a\n\nb"]


def test_a_byte_order_mark_is_skipped() -> None:
    assert decode(b"\xef\xbb\xbfdata: a\n\n") == [b"a"]


def test_a_last_event_without_its_blank_line_comes_with_the_end() -> None:
    assert decode(b"data: a\n\ndata: [DO", b"NE]") == [b"a", b"[DONE]"]


def test_a_separator_that_json_allows_in_strings_ends_no_line() -> None:
    assert decode("data: \u2028\x0b\x85\n\n".encode()) == ["\u2028\x0b\x85".encode()]


@given(
    st.lists(st.lists(st.text('ab{}" 世:', max_size=6), min_size=1, max_size=2), max_size=5),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.lists(st.integers(0, 80), max_size=8),
)
@settings(max_examples=300, deadline=None)
def test_every_cut_and_every_line_ending_gives_the_same_events(
    events: list[list[str]], newline: bytes, places: list[int]
) -> None:
    whole = b"".join(b"".join(b"data: " + line.encode() + newline for line in lines) + newline for lines in events)
    cuts = sorted(min(place, len(whole)) for place in places)
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert decode(*pieces) == ["\n".join(lines).encode() for lines in events]


def test_a_line_that_comes_byte_by_byte_costs_linear_time() -> None:
    decoder = EventDecoder()
    assert not any(decoder.feed(b"x") for _ in range(200_000))
    assert decoder.feed(b"\n\n") == []


@given(st.lists(st.integers(0, 40), max_size=6), st.sampled_from([b"", b"\n", b"\r\n\r\n"]))
@settings(max_examples=100, deadline=None)
def test_a_byte_order_mark_that_comes_in_pieces_costs_no_event_and_no_document(places: list[int], blank: bytes) -> None:
    for body, wanted in ((b"data: a\n\ndata: b\n\n", [b"a", b"b"]), (b'{"a": [1, 2]}', [b'{"a": [1, 2]}'])):
        whole = b"\xef\xbb\xbf" + blank + body
        cuts = sorted(min(place, len(whole)) for place in places)
        pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
        if body.startswith(b"data"):
            assert decode(*pieces) == wanted
        decoder = BodyDecoder()
        events = [event for piece in pieces for event in decoder.feed(piece)]
        assert events + decoder.flush() == wanted
        assert decoder.head == body


@pytest.mark.parametrize("begin", [b"data: ", b"", b"{", b"data: x\n"])
@pytest.mark.parametrize("piece", [b"z" * 65_536, b"data: " + b"z" * 65_530 + b"\n"])
def test_an_event_that_never_ends_is_given_up_and_not_kept_for_ever(begin: bytes, piece: bytes) -> None:
    decoder = BodyDecoder()
    decoder.feed(begin)
    for _ in range((MOST - len(begin)) // len(piece)):
        assert decoder.feed(piece) == []
    with pytest.raises(TooLong):
        decoder.feed(piece + piece)


def test_what_is_no_event_and_events_one_by_one_may_be_any_number_of_bytes() -> None:
    decoder = BodyDecoder()
    ping, event = b": " + b"z" * 65_530 + b"\n\n", b"data: " + b"z" * 65_530 + b"\n\n"
    for _ in range(MOST // len(ping) + 2):
        assert decoder.feed(ping) == []
        assert len(decoder.feed(event)) == 1
        assert decoder.feed(event[:-1]) == []
        assert len(decoder.feed(b"\n")) == 1
