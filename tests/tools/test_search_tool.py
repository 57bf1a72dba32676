"""A search finds what is there, the same with ripgrep and without, and comes to an end."""

from __future__ import annotations

import codecs
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.desks import call, descriptors

from astrion_nb.errors import ToolError
from astrion_nb.tools import searching
from astrion_nb.tools.searching import search_workspace

containment = pytest.mark.containment


def search(root: Path, pattern: str = "", **arguments: Any) -> list[str]:
    text: str = call(search_workspace, root, pattern=pattern, **arguments)
    return text.split("\n")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small project."""
    files = {
        "README.md": "# Title\nSee src.\n",
        "src/main.py": "import os\n\ndef main():\n    return os.sep\n",
        "src/util/text.py": "def shorten(text):\n    return text[:10]\n",
        "src/data.json": '{"def": 1}\n',
        "build/out.py": "def built(): pass\n",
        ".hidden/conf": "def hidden\n",
        ".git/config": "def config\n",
        ".gitignore": "build/\n*.log\n",
        "x.log": "def logged\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


# -- what is found ------------------------------------------------------------------------


def test_lines_are_found_with_path_and_number(tree: Path) -> None:
    assert search(tree, r"^def (\w+)\(") == [
        "src/main.py:3:def main():",
        "src/util/text.py:1:def shorten(text):",
    ]


def test_a_folder_or_a_file_narrows_the_search(tree: Path) -> None:
    assert search(tree, "def", path="src/util") == ["src/util/text.py:1:def shorten(text):"]
    assert search(tree, "def", path="src/main.py") == ["src/main.py:3:def main():"]
    assert search(tree, "def", path=f"{tree}/src/main.py") == ["src/main.py:3:def main():"]
    for path, told in (
        ("none", "there is no"),
        ("..", "leads out"),
        ("/etc", "leads out"),
        ("src/main.py/x", "is a file"),
    ):
        with pytest.raises(ToolError, match=told):
            search(tree, "def", path=path)


def test_who_names_what_is_ignored_means_it(tree: Path) -> None:
    assert search(tree, "def", path="build") == ["build/out.py:1:def built(): pass"]
    assert search(tree, "def", path="x.log") == ["x.log:1:def logged"]
    assert search(tree, path="build") == ["build/out.py"]


def test_without_a_pattern_files_are_listed(tree: Path) -> None:
    assert search(tree) == [
        ".gitignore",
        ".hidden/conf",
        "README.md",
        "src/data.json",
        "src/main.py",
        "src/util/text.py",
    ]


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("*.py", ["src/main.py", "src/util/text.py"]),
        ("main.*", ["src/main.py"]),
        ("src/*.py", ["src/main.py"]),
        ("./src/*.py", ["src/main.py"]),
        ("/src/*.py", ["src/main.py"]),
        ("src/**/*.py", ["src/main.py", "src/util/text.py"]),
        ("**/util/*", ["src/util/text.py"]),
        ("util", ["src/util/text.py"]),
        ("src/", ["src/data.json", "src/main.py", "src/util/text.py"]),
        ("*.{py,json}", ["src/data.json", "src/main.py", "src/util/text.py"]),
        ("{src,.hidden}/{main.py,conf}", [".hidden/conf", "src/main.py"]),
        ("[mt]*.py", ["src/main.py", "src/util/text.py"]),
        ("*.md/", ["[no file matches '*.md/']"]),
        ("!*.py", ["[no file matches '!*.py']"]),
        ("#", ["[no file matches '#']"]),
        ("build/*", ["[no file matches 'build/*']"]),
    ],
)
def test_a_glob_names_files(tree: Path, glob: str, found: list[str]) -> None:
    assert search(tree, glob=glob) == found


def test_a_glob_that_is_none_and_one_of_too_many_are_refused(tree: Path) -> None:
    with pytest.raises(ToolError, match="stands for more than 100 patterns"):
        search(tree, glob="{a,b}" * 20)
    for glob in ("[", " ", "{,}", "a\\"):
        with pytest.raises(ToolError, match="is no pattern of names"):
            search(tree, glob=glob)


def test_case_can_be_ignored(tree: Path) -> None:
    assert search(tree, "TITLE") == ["[no match in 6 files]"]
    assert search(tree, "TITLE", ignore_case=True) == ["README.md:1:# Title"]


def test_beyond_the_limit_is_counted(tree: Path) -> None:
    (tree / "many").write_text("needle\n" * 500, "utf-8")
    assert search(tree, "needle", limit=2) == [
        "many:1:needle",
        "many:2:needle",
        "[498 more matches; narrow pattern, glob or path]",
    ]
    assert search(tree, limit=2) == [
        ".gitignore",
        ".hidden/conf",
        "[5 more files; narrow glob or path, or raise limit]",
    ]


def test_of_a_long_line_the_part_around_the_match_is_shown(tree: Path) -> None:
    (tree / "long").write_text("x" * 3_000 + "needle" + "y" * 3_000, "utf-8")
    (line,) = search(tree, "needle")
    assert line.startswith("long:1:…x")
    assert "needle" in line
    assert line.endswith("y…")
    assert len(line) < 320


def test_a_line_longer_than_is_searched_at_once_is_searched_in_parts(tree: Path) -> None:
    (tree / "long").write_text("x" * 1_000_000 + "needle" + "y" * 1_500_000 + "thread", "utf-8")
    (tree / "cut").write_text("x" * 999_997 + "needle", "utf-8")
    assert [line[:6] for line in search(tree, "needle")] == ["cut:1:", "long:1"]
    assert search(tree, "thread")[0].endswith("thread")


def test_all_encodings_that_are_read_are_searched(tree: Path) -> None:
    for name, mark, codec in (
        ("8", codecs.BOM_UTF8, "utf-8"),
        ("16l", codecs.BOM_UTF16_LE, "utf-16-le"),
        ("16b", codecs.BOM_UTF16_BE, "utf-16-be"),
        ("gb", b"", "gb18030"),
    ):
        (tree / name).write_bytes(mark + "第一 needle 行\n".encode(codec))
    (tree / "binary").write_bytes(b"\0needle\n")
    assert search(tree, "needle") == [f"{name}:1:第一 needle 行" for name in ("16b", "16l", "8", "gb")]
    assert search(tree, "第一") == [f"{name}:1:第一 needle 行" for name in ("16b", "16l", "8", "gb")]


def test_a_file_too_long_to_be_searched_is_said_to_be_left_out(tree: Path) -> None:
    with open(tree / "huge", "wb") as file:
        file.write(b"needle\n")
        file.truncate(searching.MOST_BYTES + 1)
    assert search(tree, "needle") == ["[no match in 6 files; 1 files of more than 5,000,000 bytes were not searched]"]


def test_names_cannot_pass_for_lines_of_a_result(tree: Path) -> None:
    (tree / "a\nsrc.py:1:fake").write_text("needle\n", "utf-8")
    (tree / "b\x1b[2J").write_text("needle\n", "utf-8")
    os.close(os.open(os.fsencode(tree) + b"/caf\xe9", os.O_CREAT))
    assert [line for line in search(tree) if "src.py" in line or "b\ufffd" in line or "caf" in line] == [
        "a\ufffdsrc.py:1:fake",
        "b\ufffd[2J",
        "caf\ufffd",
    ]
    assert search(tree, "needle") == ["[no match in 9 files]"], "what read_file cannot name is not read"


@containment
def test_links_lead_a_search_nowhere(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret").write_text("def secret\n", "utf-8")
    (tree / "out").symlink_to(outside)
    (tree / "file").symlink_to(outside / "secret")
    (tree / "loop").symlink_to(".")
    os.mkfifo(tree / "pipe")
    held = descriptors()
    assert not [line for line in search(tree, "def|secret") if "secret" in line or "loop" in line]
    for path in ("out", "file", "out/secret"):
        with pytest.raises(ToolError, match="leads out"):
            search(tree, "secret", path=path)
    assert descriptors() <= held


# -- what is no pattern, and what never ends ---------------------------------------------------


@pytest.mark.parametrize(
    "pattern", ["(", "[", "*", "a{2,1}", r"\Q(", "(?P<x", r"(?P=none)", "(?<!", "\\", "(" * 3_000, r"\L<none>"]
)
def test_what_is_no_pattern_is_said_to_be_none(tree: Path, pattern: str) -> None:
    with pytest.raises(ToolError, match="pattern: is no regular expression") as caught:
        search(tree, pattern)
    assert "\n" not in str(caught.value)


FOREVER = [
    r"(a+)+$",
    r"(a|a)*b",
    r"(a|aa)+c",
    r"(.*)*d",
    r"^(([a-z])+.)+[A-Z]([a-z])+$",
    r"(a?){50}a{50}[bc]",
    r"(?:a+){2,}[bc]",
    r"(?=(a+))\1{1,}[bc]",
    r"(?:aa){e<=3}[bc]",
    r"(a)+[cd]",
    r"((a|b|ab)*)*\1\1[cd]",
    r"(?<=a{1,50}b?)c|(a*)*[cd]",
]


@containment
@pytest.mark.parametrize("pattern", FOREVER)
def test_a_pattern_that_runs_away_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    monkeypatch.setattr(searching, "SECONDS", 0.5)
    (tmp_path / "f").write_text("a" * 20_000 + "!\n" + "a" * 40 + "b\n", "utf-8")
    began = time.process_time()
    try:
        text = "\n".join(search(tmp_path, pattern))
    except ToolError as error:
        text = str(error)
    assert time.process_time() - began < 5
    assert "\n" not in text or text.startswith("f:")


EXHAUSTING = [
    r"(?R)",
    r"(?:a|(?R))*b",
    r"(?1)(a(?1)?b)",
    r"(?<a>(?&a)a|b)",
    r"(?P<a>(?P>a)a|b)",
    r"(?:(?R)a|b)",
    r"\\(?R)",
    r"(a)(?-1)",
    r"(?:a{10000}){10000}",
    r"(?:(?:a?){65535}){65535}",
    r"((a{1,1000}){1,1000}){1,1000}",
    r"(?:(?:(?:a{0,99}){0,99}){0,99}){0,99}",
    r"(?:a{1000}) {1000}(?:b){1000}",
    r"(?:a{9}){99999999999999999999}",
    r"(?:(?:a){300}+){300}",
]


@containment
@pytest.mark.parametrize("pattern", EXHAUSTING)
def test_a_pattern_whose_memory_nothing_bounds_is_refused(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "f").write_text("a" * 100, "utf-8")
    with pytest.raises(ToolError, match="recursion and repeats of repeats"):
        search(tmp_path, pattern)


@pytest.mark.parametrize(
    "pattern",
    [r"(\d{1,3}\.){3}\d{1,3}", r"\d{4}-\d{2}-\d{2}", r"([0-9a-f]{2}:){5}", r"\(\?1", r"a{1,5000}", r"(?i:x)|(?-i:y)"],
)
def test_plain_repeats_and_groups_are_patterns(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "f").write_text("10.0.0.1 2026-01-01 aa:bb:cc:dd:ee:ff (?1 aaa x", "utf-8")
    assert len(search(tmp_path, pattern)) == 1


@containment
def test_what_was_found_before_the_time_was_over_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "SECONDS", 0.5)
    (tmp_path / "a").write_text("aab\n", "utf-8")
    (tmp_path / "b").write_text("a" * 100_000 + "!\n", "utf-8")
    monkeypatch.setattr(searching, "SECONDS", 2.0)
    found = search(tmp_path, r"(a)+[bc]")
    assert found[0] == "a:1:aab"
    assert found[1:] == ["[not all was searched: 2 s were over at b:1; narrow path]"]


@containment
def test_fifty_thousand_files_are_searched_and_listed(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.log\nf4*/\n", "utf-8")
    for folder in range(50):
        (tmp_path / f"f{folder:02}").mkdir()
        for number in range(1_000):
            handle = os.open(
                tmp_path / f"f{folder:02}" / f"{number:03}.{'log' if number % 2 else 'txt'}", os.O_CREAT | os.O_WRONLY
            )
            if number == 998:
                os.write(handle, b"needle\n")
            os.close(handle)
    held = descriptors()
    found = search(tmp_path, glob="*.txt")
    assert found[-1] == "[19900 more files; narrow glob or path, or raise limit]"
    assert search(tmp_path, "needle", path="f01") == ["f01/998.txt:1:needle"]
    assert len(search(tmp_path, "needle", glob="f0[0-4]/*")) == 5
    assert descriptors() <= held


# -- with ripgrep and without ------------------------------------------------------------------

RIPGREP = shutil.which("rg")


CONTENTS = st.lists(
    st.sampled_from(
        [
            "needle",
            "Needle",
            "NEEDLE",
            "kilo",
            "\u212ailo",
            "Kilo",
            "ſoft",
            "soft",
            "İndex",
            "index",
            "x",
            " ",
            "\n",
            "é",
            "中",
        ]
    ),
    max_size=12,
).map("".join)
CODECS = st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "gb18030", "latin-1", "utf-16-be"])


@pytest.mark.skipif(RIPGREP is None, reason="ripgrep is not installed")
@settings(max_examples=60)
@given(
    files=st.lists(st.tuples(CONTENTS, CODECS), min_size=1, max_size=6),
    pattern=st.sampled_from(["needle", "kilo", "soft", "index", "eed", "nee_dle", "need.e", "x"]),
    ignore_case=st.booleans(),
)
def test_results_are_the_same_with_ripgrep_and_without(
    tmp_path_factory: pytest.TempPathFactory, files: list[tuple[str, str]], pattern: str, ignore_case: bool
) -> None:
    root = tmp_path_factory.mktemp("both")
    (root / ".gitignore").write_text("f1*\n", "utf-8")
    (root / ".hidden").mkdir()
    for number, (text, codec) in enumerate(files):
        (root / (".hidden" if number % 3 == 2 else "") / f"f{number}").write_bytes(text.encode(codec, "ignore"))
    (root / "binary").write_bytes(b"\0needle\0")
    asked = []
    real = searching._program

    def program(workspace: Any) -> str | None:
        asked.append(found := real(workspace))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "_program", program)
        there = search(root, pattern, ignore_case=ignore_case)
        patch.setattr(searching, "_program", lambda workspace: None)
        assert there == search(root, pattern, ignore_case=ignore_case)
    assert asked == [RIPGREP]


@pytest.mark.skipif(RIPGREP is None, reason="ripgrep is not installed")
def test_ripgrep_leaves_out_what_cannot_match(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tree / "pipe")
    read: list[str] = []
    real = searching._lines
    monkeypatch.setattr(searching, "_lines", lambda workspace, name: read.append(name) or real(workspace, name))
    assert search(tree, "shorten") == ["src/util/text.py:1:def shorten(text):"]
    assert read == ["src/util/text.py"]
    monkeypatch.setattr(searching, "_program", lambda workspace: None)
    assert search(tree, "shorten") == ["src/util/text.py:1:def shorten(text):"]
    assert len(read) == 7


@containment
@pytest.mark.parametrize("way", ["in the workspace", "linked to from outside", "by a relative name"])
def test_a_program_that_agents_may_have_written_is_not_run(
    tree: Path, monkeypatch: pytest.MonkeyPatch, way: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    planted = tree / "bin" / "rg"
    planted.parent.mkdir()
    planted.write_text(f"#!/bin/sh\ntouch {tree}/ran\n", "utf-8")
    planted.chmod(0o755)
    if way == "in the workspace":
        monkeypatch.setenv("PATH", f"{planted.parent}:{os.environ['PATH']}")
    elif way == "by a relative name":
        monkeypatch.chdir(tree)
        monkeypatch.setenv("PATH", f"bin:{os.environ['PATH']}")
    else:
        elsewhere = tmp_path_factory.mktemp("bin")
        (elsewhere / "rg").symlink_to(planted)
        monkeypatch.setenv("PATH", f"{elsewhere}:{os.environ['PATH']}")
    assert shutil.which("rg") is not None
    assert search(tree, "shorten") == ["src/util/text.py:1:def shorten(text):"]
    assert not (tree / "ran").exists()
