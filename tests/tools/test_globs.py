"""Names are ignored exactly as git ignores them, and no pattern runs away."""

from __future__ import annotations

import os
import random
import subprocess
import time
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astrion_nb.tools.globs import of, rule
from astrion_nb.tools.ignoring import MOST_BYTES, Ignored
from astrion_nb.tools.workspace import Workspace

NAMED = "a b foo bar a.txt b.txt foo.md build [x] x! #h é.txt .dot -"
NAMES = [*NAMED.split(), "a b", "a "]
# Not among them: letters before ``**`` and a slash, as in ``a**/b``, which git takes for ``**/b`` behind an ``a``,
# against its own manual.
PLAIN = r"* ** *** ? a b foo bar *.txt f* build foo.* *.md é* *a* \#h x\! \[x\] a\ \* .* **a *o*o* x\\y"
SETS = (
    r"[ab] [!a] [^b] [a-f]* [b-a] [[:alpha:]] [[:foo:]] [[:digit:]-z] [ [a [] []-a] [\]a] [a/b] [!]] [-a] [a-] [[] [[:]"
)
COMPONENTS = [*PLAIN.split(), *SETS.split(), "a b", "a\\ ", ""]
LINES = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["", "", "", "!", "#", "\\!", " "]),
        st.sampled_from(["", "", "/", "**/", "//"]),
        st.lists(st.sampled_from(COMPONENTS), min_size=1, max_size=3).map("/".join),
        st.sampled_from(["", "", "/", "/**", "/*", "/**/", "\\"]),
        st.sampled_from(["", "", "", " ", "  ", "\t", "\r", " \r", "\\ "]),
    ),
)
FILES = st.lists(LINES, min_size=1, max_size=5).map("\n".join)


def git(root: Path, *arguments: str) -> bytes:
    kept = {**os.environ, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    return subprocess.run(["git", *arguments], cwd=root, env=kept, capture_output=True, check=True, timeout=60).stdout


def listed_by_git(root: Path) -> set[str]:
    out = git(root, "ls-files", "-z", "--others", "--exclude-standard")
    return {os.fsdecode(name) for name in out.split(b"\0") if name}


def listed(root: Path) -> set[str]:
    made = Workspace(root)
    return {entry.path for entry in made.entries(skip=Ignored(made)) if not entry.folder}


def grow(folder: Path, dice: random.Random, depth: int = 0) -> list[Path]:
    """Make a random tree; returns its folders."""
    out = [folder]
    for name in dice.sample(NAMES, dice.randint(1, 4)):
        if depth < 3 and dice.random() < 0.5:
            (folder / name).mkdir()
            out += grow(folder / name, dice, depth + 1)
        else:
            (folder / name).write_bytes(b"x")
    return out


@settings(max_examples=250)
@given(seed=st.integers(0, 10**9), texts=st.lists(FILES, min_size=1, max_size=3), mark=st.booleans())
def test_over_random_trees_what_is_left_is_what_git_leaves(
    tmp_path_factory: pytest.TempPathFactory, seed: int, texts: list[str], mark: bool
) -> None:
    root = tmp_path_factory.mktemp("tree")
    dice = random.Random(seed)
    folders = grow(root, dice)
    for text, folder in zip(texts, [root, *dice.choices(folders, k=2)], strict=False):
        (folder / ".gitignore").write_bytes(b"\xef\xbb\xbf" * mark + text.encode())
    git(root, "init", "-q")
    assert listed(root) == listed_by_git(root)


@settings(max_examples=150)
@given(text=FILES)
def test_of_every_path_git_says_the_same(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """``git check-ignore`` over one tree of every name three deep, whose folders hold no rules of their own."""
    root = tmp_path_factory.getbasetemp() / "every"
    if not root.exists():
        for one in NAMES[:8]:
            for other in NAMES[3:11]:
                (root / one / "mid" / other).mkdir(parents=True)
        git(root, "init", "-q")
    (root / ".gitignore").write_bytes(text.encode())
    paths = [path.relative_to(root).as_posix() for path in root.rglob("*") if ".git" not in path.parts]
    paths = [path for path in paths if not path.startswith(".git/")]
    done = subprocess.run(
        ["git", "check-ignore", "-z", "--stdin", "--no-index"],
        cwd=root,
        input="\0".join(paths).encode(),
        capture_output=True,
        timeout=60,
    )
    assert done.returncode in (0, 1)
    theirs = {os.fsdecode(name) for name in done.stdout.split(b"\0") if name}
    ignored = Ignored(Workspace(root))
    ours = set()
    for path in paths:
        if any(ignored(one, (root / one).is_dir()) for one in accumulate(path.split("/"), "{}/{}".format)):
            ours.add(path)
    assert ours == theirs


def test_a_list_behind_a_link_and_one_too_long_are_not_heeded(tmp_path: Path) -> None:
    (tmp_path / "rules").write_bytes(b"a\n")
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / ".gitignore").symlink_to("rules")
    git(tmp_path, "init", "-q")
    assert "a" in listed(tmp_path)
    assert "a" in listed_by_git(tmp_path)
    (tmp_path / ".gitignore").unlink()
    (tmp_path / ".gitignore").write_bytes(b"a\n" * MOST_BYTES)
    assert "a" in listed(tmp_path)
    (tmp_path / ".gitignore").write_bytes(b"a\n")
    assert "a" not in listed(tmp_path)


@pytest.mark.parametrize("odd", ["directory", "pipe", "bytes"])
def test_a_list_that_is_none_says_nothing(tmp_path: Path, odd: str) -> None:
    (tmp_path / "a").write_bytes(b"x")
    if odd == "directory":
        (tmp_path / ".gitignore").mkdir()
    elif odd == "pipe":
        os.mkfifo(tmp_path / ".gitignore")
    else:
        (tmp_path / ".gitignore").write_bytes(b"\xff\xfe\0[\\")
    assert "a" in listed(tmp_path)


def test_names_and_rules_of_other_bytes_meet(tmp_path: Path) -> None:
    os.close(os.open(os.fsencode(tmp_path) + b"/caf\xe9", os.O_CREAT))
    os.close(os.open(os.fsencode(tmp_path) + b"/caf\xe8", os.O_CREAT))
    (tmp_path / ".gitignore").write_bytes(b"caf\xe9\n")
    git(tmp_path, "init", "-q")
    assert listed(tmp_path) == listed_by_git(tmp_path) == {".gitignore", "caf\udce8"}


def test_a_folder_within_an_ignored_one_is_within_it(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_bytes(b"build/\n!build/kept\n")
    (tmp_path / "build" / "kept").mkdir(parents=True)
    (tmp_path / "src" / "build").mkdir(parents=True)
    ignored = Ignored(Workspace(tmp_path))
    assert [ignored.within(path) for path in ("build", "build/kept", "src", "src/build", "src/build/x")] == [
        True,
        True,
        False,
        True,
        True,
    ]


LIMITS = ["", " ", "#", "# x", "/", "a\\", "[", "[a", "[[:none:]]", "[[:alpha:]", "!"]


@pytest.mark.parametrize("line", LIMITS)
def test_a_line_that_can_match_nothing_is_no_rule(line: str) -> None:
    made = rule(line)
    assert made is None or not any(made.says(path, True) for path in ("a", " ", "[", "#", "a/b", "\\"))


RUNNING_AWAY = [
    "*a" * 100 + "b",
    "*" * 1_000 + "b",
    "**/" * 300 + "b",
    "**/a/" * 100 + "b",
    "**/*a*a*/" * 50 + "b",
    "[!b]*" * 200 + "b",
    "?*" * 200 + "b",
    "*a*" * 200 + "/**/" + "*a*" * 200 + "b",
    "[" * 1_000,
    "[" + "a-z" * 500 + "]" * 3,
    "\\" * 999,
]


@pytest.mark.containment
@pytest.mark.parametrize("pattern", RUNNING_AWAY, ids=lambda pattern: f"{pattern[:12]}…{len(pattern)}")
def test_no_pattern_runs_away(pattern: str) -> None:
    began = time.process_time()
    made = of(pattern)
    for path in ("a" * 255, "/".join(["a"] * 100), "/".join(["a" * 250] * 100), "a/" * 100 + "a" * 250):
        assert made is None or not made.says(path, False)
    assert time.process_time() - began < 5


@pytest.mark.containment
@given(st.text(max_size=30), st.text(max_size=30))
def test_whatever_is_written_is_a_rule_or_none(line: str, path: str) -> None:
    for made in (rule(line), of(line)):
        assert made is None or made.says(path, True) in (True, False)
