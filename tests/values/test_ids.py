"""Ids and names come from counters (message protocol §5, decisions 1, 3, 4)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astrion_nb.ids import IdBook, abbreviation, display_name, initials, well_formed

pytestmark = pytest.mark.spec

stems = st.tuples(
    st.sampled_from(["task", "out", "ask", "ans", "msg"]), st.sampled_from(["", "uio", "fse", "tl", "user", "a_1"])
)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("UI Operator", "uio"),
        ("Full-Stack Engineer", "fse"),
        ("Team Leader", "tl"),
        ("Code Reviewer", "cr"),
        ("Researcher", "r"),
        ("QA", "qa"),
        ("C++ & <QA>", "cqa"),
        ("规划", ""),
        ("规划 A", "a"),
        ("123", ""),
        ("_-_", ""),
    ],
)
def test_initials_keep_words_in_capitals_whole(name: str, short: str) -> None:
    assert initials(name) == short


def test_the_role_id_stands_in_where_initials_are_missing_or_taken() -> None:
    assert abbreviation("规划", "planner-zh", {}) == "planner-zh"
    assert abbreviation("规划", "p" * 40, {}) == "p" * 32
    assert abbreviation("UI Owner", "ui-owner", {"uio": "ui-operator"}) == "ui-owner"
    assert abbreviation("UI Operator", "ui-operator", {"uio": "ui-operator"}) == "uio"


def test_no_role_takes_the_leaders_abbreviation() -> None:
    assert abbreviation("Test Lead", "test-lead", {}) == "test-lead"


@settings(deadline=None)
@given(st.text(max_size=20), st.from_regex(r"[a-z0-9][a-z0-9_-]{0,63}", fullmatch=True))
def test_an_abbreviation_always_makes_well_formed_ids(name: str, role_id: str) -> None:
    short = abbreviation(name, role_id, {})
    assert 1 <= len(short) <= 32
    assert well_formed(IdBook().free("task", short))


def test_ids_count_per_prefix_and_abbreviation_with_three_digits() -> None:
    book = IdBook()
    minted = []
    for prefix, short in [("task", ""), ("out", "uio"), ("out", "uio"), ("ask", "fse"), ("msg", "tl"), ("task", "")]:
        minted.append(book.free(prefix, short))
        book.take(minted[-1])
    assert minted == ["task_001", "out_uio_001", "out_uio_002", "ask_fse_001", "msg_tl_001", "task_002"]


def test_after_999_the_number_grows() -> None:
    book = IdBook()
    for number in range(1, 1000):
        book.take(f"task_{number:03d}")
    assert book.free("task") == "task_1000"


def test_minting_skips_ids_that_a_model_brought() -> None:
    book = IdBook()
    book.take("ask_uio_001")
    book.take("ask_uio_003")
    assert book.free("ask", "uio") == "ask_uio_002"
    book.take("ask_uio_002")
    assert book.free("ask", "uio") == "ask_uio_004"


def test_an_id_that_is_not_taken_is_offered_again() -> None:
    book = IdBook()
    assert book.free("out", "uio") == book.free("out", "uio") == "out_uio_001"
    assert "out_uio_001" not in book


@settings(deadline=None)
@given(st.lists(st.tuples(stems, st.booleans() | st.integers(1, 12)), max_size=60), stems)
def test_a_book_rebuilt_from_taken_ids_mints_the_same(
    steps: list[tuple[tuple[str, str], int]], last: tuple[str, str]
) -> None:
    book, taken = IdBook(), []
    for (prefix, short), how in steps:
        minted = book.free(prefix, short)
        assert minted not in book
        if how is False:
            continue  # offered, and not used
        used = minted if how is True else f"{prefix}_{short}_{how:03d}" if short else f"{prefix}_{how:03d}"
        book.take(used)
        taken.append(used)
    rebuilt = IdBook()
    for used in sorted(taken):
        rebuilt.take(used)
    assert rebuilt.free(*last) == book.free(*last)


@pytest.mark.parametrize("supplied", ["", "x" * 65, "a b", "a\n", "ask_1\u2028", "é", None, 7, ["a"], "１"])
def test_what_is_not_well_formed_is_replaced(supplied: object) -> None:
    assert not well_formed(supplied)


@pytest.mark.parametrize("supplied", ["a", "x" * 64, "ask_uio_001", "-", "Q-7"])
def test_what_is_well_formed_is_kept(supplied: str) -> None:
    assert well_formed(supplied)


def test_a_display_name_is_the_roles_name_and_the_instance() -> None:
    assert display_name("Full-Stack Engineer", 1) == "Full-Stack Engineer_1"
