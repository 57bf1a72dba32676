"""Files read, written and edited as a model asks for it, to the byte."""

from __future__ import annotations

import codecs
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.desks import call, context, preview

from astrion_nb.errors import ToolError
from astrion_nb.tools.comparing import compared
from astrion_nb.tools.files import MOST_LINES, MOST_SHOWN, edit_file, read_file, write_file
from astrion_nb.tools.registry import ToolContext
from astrion_nb.tools.texts import decoded, encoded


def put(root: Path, data: bytes, name: str = "f") -> None:
    (root / name).write_bytes(data)


# -- reading ----------------------------------------------------------------------------


def test_lines_come_with_their_numbers_and_nothing_else(tmp_path: Path) -> None:
    put(tmp_path, "one\n\ttwo\n\n四\n".encode())
    assert call(read_file, tmp_path, path="f") == "     1\tone\n     2\t\ttwo\n     3\t\n     4\t四"


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"a\nb", ["a", "b"]),
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\r", ["a", "b"]),
        (b"a\r\n\r\n\nb", ["a", "", "", "b"]),
        (b"\n", [""]),
        (b"a\x0bb\x0cc\x1cd", ["a\x0bb\x0cc\x1cd"]),
        ("a\u2028b\x85c".encode(), ["a\u2028b\x85c"]),
        (codecs.BOM_UTF8 + b"a\n", ["a"]),
        (b"\x1b[2J", ["\x1b[2J"]),
    ],
)
def test_a_line_is_what_editors_count_as_one(tmp_path: Path, data: bytes, lines: list[str]) -> None:
    put(tmp_path, data)
    assert call(read_file, tmp_path, path="f").split("\n") == [f"{n:6}\t{line}" for n, line in enumerate(lines, 1)]


@pytest.mark.parametrize("data", [b"", codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE])
def test_an_empty_file_is_said_to_be_empty(tmp_path: Path, data: bytes) -> None:
    put(tmp_path, data)
    assert call(read_file, tmp_path, path="f") == "[empty file]"


def test_a_part_says_which_part_it_is_and_how_to_go_on(tmp_path: Path) -> None:
    put(tmp_path, b"".join(b"%d\n" % number for number in range(1, 5_001)))
    text = call(read_file, tmp_path, path="f").split("\n")
    assert len(text) == MOST_LINES + 1
    assert text[-1] == "[lines 1 to 2000 of 5000; go on with start=2001]"
    assert call(read_file, tmp_path, path="f", start=7, lines=2) == (
        "     7\t7\n     8\t8\n[lines 7 to 8 of 5000; go on with start=9]"
    )
    assert call(read_file, tmp_path, path="f", start=5_000) == "  5000\t5000\n[lines 5000 to 5000 of 5000]"
    with pytest.raises(ToolError, match="start: 'f' has 5000 lines"):
        call(read_file, tmp_path, path="f", start=5_001)


@pytest.mark.parametrize("wrong", [{"start": 0}, {"start": -1}, {"lines": 0}, {"lines": 2_001}, {"start": "x"}])
def test_a_part_that_can_be_none_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    put(tmp_path, b"x")
    with pytest.raises(ToolError, match=r"^(start|lines): "):
        call(read_file, tmp_path, path="f", **wrong)


def test_by_going_on_as_told_a_whole_file_is_read(tmp_path: Path) -> None:
    lines = [f"{number} " + "x" * (number * 7 % 1_500) for number in range(3_000)]
    put(tmp_path, "\n".join(lines).encode())
    seen: list[str] = []
    start: int | None = 1
    while start is not None:
        text = call(read_file, tmp_path, path="f", start=start)
        assert len(text) <= MOST_SHOWN + 100
        body, _, note = text.rpartition("\n")
        seen += [line.partition("\t")[2] for line in body.split("\n")]
        start = int(note.rpartition("start=")[2][:-1]) if "start=" in note else None
    assert seen == lines


def test_of_a_long_line_the_beginning_is_shown_with_what_is_missing(tmp_path: Path) -> None:
    put(tmp_path, b"x" * 1_000_000 + b"\nshort\n")
    assert call(read_file, tmp_path, path="f") == (
        f"     1\t{'x' * 2_000} [cut: 998000 more characters]\n     2\tshort"
    )


CHINESE = "中文 文本，第一行\n第二行 with English\n"


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (CHINESE.encode(), ""),
        (codecs.BOM_UTF8 + CHINESE.encode(), ""),
        (CHINESE.encode("utf-16"), "utf-16-le"),
        (codecs.BOM_UTF16_BE + CHINESE.encode("utf-16-be"), "utf-16-be"),
        (CHINESE.encode("gb18030"), "gb18030"),
        (CHINESE.encode("gbk"), "gb18030"),
    ],
)
def test_an_encoding_is_found_and_named_where_it_is_not_the_usual_one(tmp_path: Path, data: bytes, name: str) -> None:
    put(tmp_path, data)
    told = f"\n[encoding {name}]" if name else ""
    assert call(read_file, tmp_path, path="f") == f"     1\t中文 文本，第一行\n     2\t第二行 with English{told}"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "is no text .*read_mediafile"),
        (b"\x7fELF\x02\x01\x01\0", "is no text"),
        (b"text with \0 in it", "is no text"),
        ("utf-16 without a mark".encode("utf-16-le"), "is no text"),
        ("utf-32".encode("utf-32"), "is no text"),
        (codecs.BOM_UTF16_LE + b"\x00\xd8x", "is no text|not known"),
        ("café façade naïve Ærøskøbing".encode("latin-1"), "encoding that is not known.*iconv"),
        ("Überraschung fällt größer aus\nStraße\n".encode("cp1252"), "encoding that is not known"),
        ("señor, ¿qué tal? ¡Adiós!".encode("latin-1"), "encoding that is not known"),
        (b"\xff", "encoding that is not known"),
        (b"ok \xc3\x28 not", "encoding that is not known"),
    ],
)
def test_what_is_no_text_is_refused_with_what_to_do(tmp_path: Path, data: bytes, told: str) -> None:
    put(tmp_path, data)
    for run in (
        lambda: call(read_file, tmp_path, path="f"),
        lambda: call(edit_file, tmp_path, path="f", edits=[{"old": "a", "new": "b"}]),
    ):
        with pytest.raises(ToolError, match=told) as caught:
            run()
        assert "\n" not in str(caught.value)
    assert (tmp_path / "f").read_bytes() == data


def test_a_huge_file_is_refused_with_what_to_do_and_without_reading_it_whole(tmp_path: Path) -> None:
    with open(tmp_path / "f", "wb") as file:
        file.truncate(200_000_000_000)
    for run in (
        lambda: call(read_file, tmp_path, path="f"),
        lambda: call(edit_file, tmp_path, path="f", edits=[{"old": "a", "new": "b"}]),
    ):
        with pytest.raises(ToolError, match=r"more than 20,000,000 bytes; .*run_command can cut"):
            run()


@given(
    st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16-le", "utf-16-be"]),
)
def test_a_text_comes_back_in_its_encoding_to_the_byte(text: str, encoding: str) -> None:
    assume(not text.startswith("\ufeff"))
    data = encoded(text, encoding, "f")
    found, name = decoded(data, "f")
    assert found == text
    assert encoded(found, name, "f") == data


@given(st.binary(max_size=60))
def test_whatever_the_bytes_they_are_a_text_or_an_error(data: bytes) -> None:
    try:
        text, name = decoded(data, "f")
    except ToolError:
        return
    assert "\0" not in text
    if name != "gb18030":
        assert encoded(text, name, "f") == data


# -- writing ------------------------------------------------------------------------------


def test_a_new_file_is_said_to_be_created(tmp_path: Path) -> None:
    assert call(write_file, tmp_path, path="new/f.py", content="a\nb\n") == {
        "success": True,
        "path": "new/f.py",
        "lines_added": 2,
        "lines_removed": 0,
        "created": True,
    }
    assert (tmp_path / "new" / "f.py").read_bytes() == b"a\nb\n"


def test_a_file_that_was_there_is_told_with_the_difference(tmp_path: Path) -> None:
    put(tmp_path, b"a\nb\nc\n")
    told = call(write_file, tmp_path, path="./f", content="a\nB\nc\nd\n")
    assert (told["path"], told["lines_added"], told["lines_removed"]) == ("f", 2, 1)
    assert told["diff"] == "--- a/f\n+++ b/f\n@@ -1,3 +1,4 @@\n a\n-b\n+B\n c\n+d"
    assert "created" not in told


@pytest.mark.parametrize("content", ["", "\n", "a\r\nb\r", "\ufeffmark", "no end", "\x00\x1b", "𝄞 中", " \t "])
def test_what_is_written_is_what_was_said(tmp_path: Path, content: str) -> None:
    put(tmp_path, b"before")
    call(write_file, tmp_path, path="f", content=content)
    assert (tmp_path / "f").read_bytes() == content.encode()


def test_the_same_content_and_other_line_ends_are_said_to_be_that(tmp_path: Path) -> None:
    put(tmp_path, b"a\nb\n")
    assert call(write_file, tmp_path, path="f", content="a\nb\n")["note"] == "the file held exactly this already"
    assert call(write_file, tmp_path, path="f", content="a\r\nb")["note"] == "only the ends of lines differ"
    assert (tmp_path / "f").read_bytes() == b"a\r\nb"


def test_what_was_no_text_is_replaced_and_said_to_have_been_none(tmp_path: Path) -> None:
    put(tmp_path, b"\0\1\2")
    told = call(write_file, tmp_path, path="f", content="text\n")
    assert (told["note"], told["lines_added"]) == ("what was there before was no text", 1)


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    with pytest.raises(ToolError, match="is a folder, not a file"):
        call(write_file, tmp_path, path="d", content="x")


def test_a_long_difference_is_cut(tmp_path: Path) -> None:
    put(tmp_path, b"".join(b"line %d\n" % number for number in range(2_000)))
    told = call(write_file, tmp_path, path="f", content="".join(f"other {number}\n" for number in range(2_000)))
    assert len(told["diff"]) < 8_100
    assert "more characters]" in told["diff"][-40:]
    assert (told["lines_added"], told["lines_removed"]) == (2_000, 2_000)


def test_a_team_without_a_workspace_says_so() -> None:
    with pytest.raises(ToolError, match="no workspace"):
        read_file.function(ToolContext(1, "c", None), "f")  # type: ignore[arg-type]


# -- editing ------------------------------------------------------------------------------


def edited(root: Path, data: bytes, *edits: dict[str, Any]) -> bytes:
    put(root, data)
    told = call(edit_file, root, path="f", edits=list(edits))
    assert told["success"] is True
    return (root / "f").read_bytes()


def test_edits_are_made_in_order_each_on_what_the_ones_before_left(tmp_path: Path) -> None:
    assert edited(tmp_path, b"one two\n", {"old": "one", "new": "two"}, {"old": "two two", "new": "2"}) == b"2\n"
    assert edited(tmp_path, b"a a a\n", {"old": "a", "new": "b", "all": True}) == b"b b b\n"
    assert edited(tmp_path, b"x = 1\n", {"old": "x = 1\n", "new": ""}) == b""


@pytest.mark.parametrize(
    ("edits", "told"),
    [
        ([{"old": "missing", "new": ""}], r"old: is not in 'f'; nothing was changed"),
        ([{"old": "a", "new": "b"}], r"old: occurs 3 times in 'f', in lines 1, 1, 3: give more"),
        ([{"old": "", "new": "b"}], r"old: must not be empty; write_file"),
        ([{"old": "alpha", "new": "x"}, {"old": "none", "new": "y"}], r"edits\[1\]\.old: is not in"),
        ([{"old": "alpha", "new": "x"}, {"old": "alpha", "new": "y"}], r"edits\[1\]\.old: is not in"),
        ([{"old": "two", "new": "two"}], r"edits: they change nothing"),
        ([], r"^edits: "),
        ([{"old": "a"}], r"edits\.0\.new: is required"),
        ([{"old": "two", "new": "2", "count": 1}], r"edits\.0\.count: no such argument|edits\.0\.count: "),
        ("two", r"^edits: "),
        ([{"old": "two", "new": "2"}] * 101, r"^edits: "),
        ([{"old": "  two", "new": "2"}], r"line 2 differs only in spaces"),
        ([{"old": "TWO and more", "new": "2"}], r"is not in"),
        ([{"old": "gemmma", "new": "g"}], r"line 3 is like it: 'gemma'"),
    ],
)
def test_an_edit_that_cannot_be_made_changes_nothing_and_says_why(tmp_path: Path, edits: Any, told: str) -> None:
    data = b"alpha\ntwo\ngemma\n"
    put(tmp_path, data)
    with pytest.raises(ToolError, match=told) as caught:
        call(edit_file, tmp_path, path="f", edits=edits)
    assert "\n" not in str(caught.value)
    assert (tmp_path / "f").read_bytes() == data


def test_places_that_overlap_are_not_one_place(tmp_path: Path) -> None:
    put(tmp_path, b"aaa\n")
    with pytest.raises(ToolError, match="occurs 2 times"):
        call(edit_file, tmp_path, path="f", edits=[{"old": "aa", "new": "b"}])
    assert edited(tmp_path, b"aaa\n", {"old": "aa", "new": "b", "all": True}) == b"ba\n"


def test_a_thousand_places_are_not_counted_one_by_one(tmp_path: Path) -> None:
    put(tmp_path, b"a" * 5_000_000)
    began = time.process_time()
    with pytest.raises(ToolError, match="occurs 1000 times or more in 'f', in lines 1, 1, 1"):
        call(edit_file, tmp_path, path="f", edits=[{"old": "a", "new": "b"}])
    assert time.process_time() - began < 5


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_in_a_file_of_one_kind_of_line_ends_that_kind_stays(tmp_path: Path, end: str) -> None:
    data = end.join(["one", "two", "three", ""]).encode()
    after = edited(tmp_path, data, {"old": "one\ntwo", "new": "1\n2\n2b"}, {"old": "three", "new": "3\r\n4"})
    assert after == end.join(["1", "2", "2b", "3", "4", ""]).encode()


def test_in_a_file_of_mixed_line_ends_only_what_is_meant_changes(tmp_path: Path) -> None:
    data = b"one\r\ntwo\nthree\r\nfour\n"
    assert edited(tmp_path, data, {"old": "two\nthree", "new": "2\n3"}) == b"one\r\n2\n3\r\nfour\n"
    assert edited(tmp_path, data, {"old": "one\ntwo", "new": "1\n2"}) == b"1\r\n2\nthree\r\nfour\n"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16-le", "utf-16-be", "gb18030"])
def test_the_encoding_and_its_mark_stay(tmp_path: Path, encoding: str) -> None:
    data, wanted = (encoded(text, encoding, "f") for text in ("中文\r\n第二行\r\n", "中文\r\n新行\r\n尾\r\n"))
    assert edited(tmp_path, data, {"old": "第二行", "new": "新行\n尾"}) == wanted


def test_a_character_that_the_encoding_lacks_changes_nothing(tmp_path: Path) -> None:
    data = "中文文本".encode("gb18030")
    put(tmp_path, data)
    with pytest.raises(ToolError):
        call(edit_file, tmp_path, path="f", edits=[{"old": "中文", "new": "\ud800"}])
    assert (tmp_path / "f").read_bytes() == data


def test_what_is_read_as_gb18030_is_written_as_it_was() -> None:
    """Every pair of bytes, and every tenth of the characters of four: an edit elsewhere leaves them alone."""
    pairs = [bytes([lead, trail]) for lead in range(0x81, 0xFF) for trail in range(0x40, 0xFF)]
    fours = [
        bytes([first, second, third, 0x30 + (first + third) % 10])
        for first in range(0x81, 0xFF)
        for second in range(0x30, 0x3A)
        for third in range(0x81, 0xFF)
    ]
    known = 0
    for data in (*pairs, *fours):
        text = data.decode("gb18030", "ignore")
        if len(text) == 1 and not text.isascii():
            assert text.encode("gb18030") == data
            known += 1
    assert known > 100_000


@pytest.mark.containment
def test_an_edit_cannot_make_a_file_that_fills_the_memory(tmp_path: Path) -> None:
    put(tmp_path, b"a" * 1_000_000)
    edits = [{"old": "a", "new": "a" * 1_000, "all": True}] * 5
    with pytest.raises(ToolError, match=r"edits\[0\]\.old: the file would have more than 20,000,000"):
        call(edit_file, tmp_path, path="f", edits=edits)
    assert (tmp_path / "f").stat().st_size == 1_000_000


def test_a_file_that_changes_between_reading_and_writing_is_not_overwritten(tmp_path: Path) -> None:
    put(tmp_path, b"one\n")
    made = context(tmp_path)
    assert made.desk is not None
    workspace = made.desk.workspace
    seen = workspace.read("f", 100)
    call(edit_file, tmp_path, path="f", edits=[{"old": "one", "new": "1"}])
    with pytest.raises(ToolError, match="was changed meanwhile"):
        workspace.write("f", b"two\n", over=seen)
    assert (tmp_path / "f").read_bytes() == b"1\n"


ALPHABET = st.sampled_from(["a", "b", "ab", "aa", "\n", " ", "中", "x"])
TEXTS = st.lists(ALPHABET, max_size=12).map("".join)
EDITS = st.lists(st.tuples(TEXTS, TEXTS, st.booleans()), min_size=1, max_size=4)


@given(TEXTS, EDITS, st.sampled_from(["\n", "\r\n", "\r"]))
def test_edits_are_what_replace_does_or_nothing_happens(
    tmp_path_factory: pytest.TempPathFactory, text: str, edits: list[tuple[str, str, bool]], end: str
) -> None:
    root = tmp_path_factory.getbasetemp() / "edits"
    root.mkdir(exist_ok=True)
    data = text.replace("\n", end).encode()
    put(root, data)
    wanted: str | None = text
    for old, new, every in edits:
        at = wanted.find(old) if wanted is not None and old else -1
        if wanted is None or at < 0 or (not every and wanted.find(old, at + 1) >= 0):
            wanted = None
            break
        wanted = wanted.replace(old, new)
    try:
        call(edit_file, root, path="f", edits=[{"old": o, "new": n, "all": every} for o, n, every in edits])
    except ToolError:
        assert (root / "f").read_bytes() == data
        assert wanted is None or wanted == text
    else:
        assert wanted is not None
        # A file of one line has no line ends to keep: what is put in stays as it was said.
        assert (root / "f").read_bytes() == (wanted.replace("\n", end) if "\n" in text else wanted).encode()


# -- what a person is shown before --------------------------------------------------------------


def test_a_preview_is_the_difference_that_the_call_would_make(tmp_path: Path) -> None:
    put(tmp_path, b"a\nb\n")
    shown = preview(write_file, tmp_path, path="f", content="a\nc\n")
    assert shown == call(write_file, tmp_path, path="f", content="a\nc\n")["diff"]
    shown = preview(edit_file, tmp_path, path="f", edits=[{"old": "c", "new": "d"}])
    assert (tmp_path / "f").read_bytes() == b"a\nc\n", "looking changes nothing"
    assert shown == call(edit_file, tmp_path, path="f", edits=[{"old": "c", "new": "d"}])["diff"]
    assert preview(write_file, tmp_path, path="new", content="x\n").endswith("@@ -0,0 +1 @@\n+x")
    with pytest.raises(ToolError, match="is not in"):
        preview(edit_file, tmp_path, path="f", edits=[{"old": "none", "new": "d"}])
    with pytest.raises(ToolError, match="there is no"):
        preview(edit_file, tmp_path, path="none", edits=[{"old": "none", "new": "d"}])


LINES = st.lists(st.sampled_from(["a", "b", "c", "d", "", "-x", "+y"]), max_size=30)


@given(LINES, LINES)
def test_a_difference_is_the_one_that_difflib_gives_and_counts_it(before: list[str], after: list[str]) -> None:
    old, new = ("".join(f"{line}\n" for line in lines) for lines in (before, after))
    told = compared("f", old, new)
    assert _applied(before, told.diff) == after
    assert len(after) - len(before) == told.added - told.removed
    if before == after:
        assert told == compared("f", "", "")
    body = told.diff.split("\n")[2:]
    assert told.added == sum(line.startswith("+") for line in body)
    assert told.removed == sum(line.startswith("-") for line in body)


def _applied(lines: list[str], diff: str) -> list[str]:
    """Return lines with a unified difference applied, every hunk where it says."""
    out: list[str] = []
    at = 0
    for line in diff.split("\n")[2:]:
        if line.startswith("@@"):
            first, _, count = line.split()[1][1:].partition(",")
            start = int(first) - (count != "0")
            out += lines[at:start]
            at = start
        elif line[0] == "+":
            out.append(line[1:])
        else:
            assert lines[at] == line[1:]
            at += 1
            if line[0] == " ":
                out.append(line[1:])
    return out + lines[at:]


@pytest.mark.containment
@pytest.mark.parametrize("kind", ["shuffled", "every other", "few kinds", "long", "one character"])
def test_no_two_texts_take_long_to_compare(kind: str) -> None:
    if kind == "shuffled":
        old, new = [str(n) for n in range(100_000)], [str(n * 7 % 100_000) for n in range(100_000)]
    elif kind == "every other":
        old, new = [str(n) for n in range(4_900)], [str(n) if n % 2 else "x" * n for n in range(4_900)]
    elif kind == "few kinds":
        old, new = ["ab"[n % 2] for n in range(9_000)], ["abc"[n % 3] for n in range(9_000)]
    elif kind == "long":
        old, new = ["x" * 5_000_000, "y"], ["x" * 4_999_999, "y"]
    else:
        old, new = ["}"] * 20_000, ["}", "x"] * 10_000
    began = time.process_time()
    told = compared("f", "\n".join(old), "\n".join(new))
    assert time.process_time() - began < 15
    assert len(told.diff) < 8_200
    assert told.added > 0
    assert told.removed > 0


def test_results_name_files_by_their_place_in_the_workspace(tmp_path: Path) -> None:
    put(tmp_path, b"a\n")
    told = call(write_file, tmp_path, path=f"{tmp_path}/./f", content="b\n")
    assert told["path"] == "f"
    assert os.fspath(tmp_path) not in str(told)
