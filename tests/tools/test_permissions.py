"""What a tool may do: rules read, modes judged, kinds that cover no more than was shown."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from typing import Annotated, Any, get_args

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from astrion_nb.errors import ConfigError
from astrion_nb.tools.permissions import MODES, Mode, Policy, Rule, judge, kind_of, parse_rule
from astrion_nb.tools.registry import Effect, Tool, tool


def made(name: str, effect: str, *parameters: str) -> Tool:
    """Return a tool of a kind; what it would do is of no matter here."""

    @tool(name=name, effect=effect)  # type: ignore[arg-type]
    def function(text: Annotated[str, "Text."]) -> str:
        """Do something."""
        return text

    return function


RUN = made("run_command", "run")
WRITE = made("write_file", "write")
EDIT = made("edit_file", "write")
READ = made("read_file", "read")
PAGE = made("extract_webpage", "net")
OTHER = made("mcp__files__move", "write")
OWN = made("word_count", "")
TOOLS = (RUN, WRITE, EDIT, READ, PAGE, OTHER, OWN)
ORDER = ("deny", "ask", "allow")


def call(item: Tool, said: str) -> dict[str, Any]:
    """Return arguments of a call whose subject is a text."""
    name = {"run_command": "command", "extract_webpage": "url"}.get(item.name, "path")
    return {name: said}


def rules(*texts: str) -> tuple[Rule, ...]:
    return tuple(parse_rule(text) for text in texts)


def action(item: Tool, said: str, mode: Mode = "ask", allow: tuple[str, ...] = (), deny: tuple[str, ...] = ()) -> str:
    return judge(Policy(mode, rules(*allow), rules(*deny)), item, call(item, said)).action


# -- rules ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "pattern"),
    [
        ("run_command", "run_command", None),
        ("run_command(git *)", "run_command", "git *"),
        ("  mcp__files__*  ", "mcp__files__*", None),
        ("write_file(docs/*)", "write_file", "docs/*"),
        ("run_command(f(x))", "run_command", "f(x)"),
        ("run_command()", "run_command", ""),
        ("*", "*", None),
        ("run_command(a\nb)", "run_command", "a\nb"),
    ],
)
def test_a_rule_is_a_tool_and_perhaps_a_pattern(text: str, name: str, pattern: str | None) -> None:
    assert parse_rule(text) == Rule(name, pattern)


@pytest.mark.parametrize(
    "text", ["", " ", "run command", "run_command(", "run_command)x", "run_command(x) y", "(x)", "é", "a" * 81]
)
def test_what_is_no_rule_is_told_where_it_was_said(text: str) -> None:
    with pytest.raises(ConfigError, match=r"\Amodels\.toml: .* is no rule; write tool or tool\(pattern\)") as caught:
        parse_rule(text, "models.toml")
    assert "\n" not in str(caught.value)


@given(st.from_regex(r"[A-Za-z0-9_*?-]{1,80}", fullmatch=True), st.none() | st.text(max_size=40))
def test_a_rule_that_is_written_down_is_read_as_it_was(name: str, pattern: str | None) -> None:
    assert parse_rule(str(Rule(name, pattern))) == Rule(name, pattern)


# -- modes ------------------------------------------------------------------------------

TABLE = {
    ("read-only", ""): "allow", ("read-only", "read"): "allow", ("read-only", "write"): "deny",
    ("read-only", "run"): "deny", ("read-only", "net"): "ask",
    ("ask", ""): "allow", ("ask", "read"): "allow", ("ask", "write"): "ask", ("ask", "run"): "ask",
    ("ask", "net"): "ask",
    ("auto", ""): "allow", ("auto", "read"): "allow", ("auto", "write"): "allow", ("auto", "run"): "allow",
    ("auto", "net"): "allow",
}  # fmt: skip


@pytest.mark.parametrize(("mode", "effect"), list(itertools.product(MODES, get_args(Effect))))
def test_a_mode_says_what_is_free_what_is_asked_and_what_is_not(mode: Mode, effect: str) -> None:
    verdict = judge(Policy(mode), made("some_tool", effect), {"path": "x"})
    assert verdict.action == TABLE[mode, effect]
    assert bool(verdict.why) is (verdict.action == "deny")
    assert "\n" not in verdict.why


def test_the_modes_stand_from_the_strictest_to_the_freest() -> None:
    for effect in get_args(Effect):
        found = [ORDER.index(TABLE[mode, effect]) for mode in MODES]
        assert found == sorted(found)


# -- properties -------------------------------------------------------------------------

SAID = st.sampled_from(
    ["git status", "git push", "git push; rm -rf /", "pytest -q", "rm x", "docs/a.md", "docs/../a", "/etc/passwd",
     "http://docs.python.org/3", "https://evil.com/", "src/a.py", "", "git", "sudo git push", "a\nb"]
)  # fmt: skip
PATTERNS = st.sampled_from(
    [
        None,
        "*",
        "git *",
        "git push*",
        "pytest *",
        "rm *",
        "docs/*",
        "src/*",
        "docs.python.org",
        "*.com",
        "",
        "git status",
    ]
)
RULES = st.lists(
    st.builds(Rule, st.sampled_from([*(item.name for item in TOOLS), "*", "mcp__*", "*_file"]), PATTERNS), max_size=4
).map(tuple)
POLICIES = st.builds(Policy, st.sampled_from(MODES), RULES, RULES)
CALLS = st.builds(lambda item, said: (item, call(item, said)), st.sampled_from(TOOLS), SAID)


@given(POLICIES, CALLS, st.booleans())
def test_deny_wins_over_allow_over_the_mode_and_over_what_was_granted(
    policy: Policy, asked: tuple[Tool, Any], granted: bool
) -> None:
    item, arguments = asked
    grants = [kind_of(item, arguments)] if granted else []
    if judge(Policy("auto", (), policy.deny), item, arguments).action == "deny":
        assert judge(policy, item, arguments, grants).action == "deny"


@pytest.mark.containment
@given(POLICIES, st.none() | st.sampled_from(MODES), RULES, CALLS, st.booleans())
def test_the_policy_of_a_role_is_never_freer_than_the_teams(
    policy: Policy, mode: Mode | None, deny: tuple[Rule, ...], asked: tuple[Tool, Any], granted: bool
) -> None:
    item, arguments = asked
    grants = [kind_of(item, arguments)] if granted else []
    narrow, wide = (judge(one, item, arguments, grants).action for one in (policy.narrowed(mode, deny), policy))
    assert ORDER.index(narrow) <= ORDER.index(wide)


@given(POLICIES, st.lists(st.tuples(st.none() | st.sampled_from(MODES), RULES), max_size=4), CALLS)
def test_narrowing_again_and_again_never_widens(policy: Policy, steps: list[Any], asked: tuple[Tool, Any]) -> None:
    before = ORDER.index(judge(policy, *asked).action)
    for mode, deny in steps:
        policy = policy.narrowed(mode, deny)
        after = ORDER.index(judge(policy, *asked).action)
        assert after <= before
        before = after


def test_a_role_that_only_reads_writes_nothing_though_the_team_is_allowed_to() -> None:
    team = Policy("ask", rules("run_command(pytest *)", "write_file"))
    assert judge(team, RUN, {"command": "pytest -q"}).action == "allow"
    role = team.narrowed("read-only")
    assert judge(role, RUN, {"command": "pytest -q"}).action == "deny"
    assert judge(role, WRITE, {"path": "a"}).action == "deny"
    assert judge(team.narrowed("auto"), RUN, {"command": "ls"}).action == "ask"


@given(POLICIES, CALLS, st.text(max_size=30))
def test_a_grant_allows_what_would_be_asked_and_nothing_else(
    policy: Policy, asked: tuple[Tool, Any], other: str
) -> None:
    item, arguments = asked
    plain = judge(policy, item, arguments)
    kind = plain.kind
    assert kind == kind_of(item, arguments)
    assert judge(policy, item, arguments, [kind]).action == ("allow" if plain.action == "ask" else plain.action)
    assume(other != kind)
    assert judge(policy, item, arguments, [other]).action == plain.action


# -- what a command pattern allows ------------------------------------------------------

CHAINS = (
    "; rm x", " && rm x", " || rm x", " | sh", " & rm x", "\nrm x", "\r\nrm x", " $(rm x)", " `rm x`", " > ~/.bashrc",
    " < /etc/passwd", " <(rm x)", " >(sh)", " ${X}", " $X", " {a,b}", " \\\nrm x", ";rm x", "&rm x", "\n", " 2>&1",
    " <<< x", " (rm x)", " $'\\x3b'",
)  # fmt: skip


@pytest.mark.containment
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("pattern", ["*", "git *", "git status*", "git*", "*status*", "git status *"])
def test_no_pattern_with_a_wildcard_allows_a_command_that_chains(pattern: str, chain: str) -> None:
    line = "git status" + chain
    if line.strip() == "git status":
        line += "true"
    assert action(RUN, line, allow=(f"run_command({pattern})",)) == "ask"
    assert action(RUN, "x " + line, allow=("run_command(*)",)) == "ask"


@pytest.mark.containment
@given(st.text(max_size=20), st.text(max_size=20), st.text(max_size=10), st.sampled_from(";&|<>`$(){}\n\r\\"))
def test_no_wildcard_at_any_place_allows_a_command_that_chains(first: str, last: str, more: str, sign: str) -> None:
    line = first + more + sign + more + last
    assume(any(char in line.strip() for char in ";&|<>`$(){}\n\r\\"))
    for pattern in (f"{first}*{last}", f"{first}*", f"*{last}", "*", line[:-1] + "*"):
        policy = Policy("ask", (Rule("run_command", pattern),))
        assert judge(policy, RUN, {"command": line}).action == "ask"


def test_a_line_that_is_said_whole_is_allowed_though_it_chains() -> None:
    assert action(RUN, "cd src && make", allow=("run_command(cd src && make)",)) == "allow"
    assert action(RUN, "cd src && make x", allow=("run_command(cd src && make)",)) == "ask"
    assert action(RUN, "echo a; *", allow=("run_command(echo a; *)",)) == "ask"


@pytest.mark.parametrize(
    ("pattern", "said", "allowed"),
    [
        ("git *", "git", True),
        ("git *", "git status", True),
        ("git *", "gitk", False),
        ("git *", "git\tpush", False),
        ("git *", "  git status ", True),
        ("git*", "gitk", True),
        ("pytest *", "PATH=. pytest x", False),
        ("pytest *", "sudo pytest x", False),
        ("pytest *", "./pytest x", False),
        ("ls", "ls", True),
        ("ls", "ls -l", False),
        ("a[bc]", "ab", False),
        ("a[bc]", "a[bc]", True),
        ("a?", "ab", False),
        ("", "ls", False),
        ("GIT *", "git status", False),
    ],
)
def test_a_pattern_of_a_command_is_read_to_the_letter(pattern: str, said: str, allowed: bool) -> None:
    assert action(RUN, said, allow=(f"run_command({pattern})",)) == ("allow" if allowed else "ask")


@pytest.mark.parametrize(
    ("pattern", "said", "allowed"),
    [
        ("docs/*", "docs/a.md", True),
        ("docs/*", "./docs/a.md", True),
        ("./docs/*", "docs/a.md", True),
        ("docs/*", "docs//b/a.md", True),
        ("docs/*", "docs/../a.py", False),
        ("docs/*", "docs/b/../../a.py", False),
        ("docs/*", "docs/b/../a.md", False),
        ("docs/*", "docs/..", False),
        ("docs/*", "/docs/a.md", False),
        ("docs/*", "DOCS/a.md", False),
        ("docs/*", "docs\\..\\a.py", False),
        ("docs/*", "docs/a\0b", False),
        ("*", "/etc/passwd", False),
        ("*", "~/x", False),
        ("*", "..", False),
        ("*", "a..b", True),
        ("*.md", "docs/a.md", True),
        ("docs/a.md", "docs/a.md", True),
    ],
)
def test_a_pattern_of_a_path_allows_no_path_that_leads_elsewhere(pattern: str, said: str, allowed: bool) -> None:
    assert action(WRITE, said, allow=(f"write_file({pattern})",)) == ("allow" if allowed else "ask")


@pytest.mark.parametrize(
    ("pattern", "said", "allowed"),
    [
        ("docs.python.org", "https://docs.python.org/3/library", True),
        ("docs.python.org", "https://DOCS.python.org./x", True),
        ("Docs.Python.org", "https://docs.python.org/", True),
        ("*.python.org", "https://docs.python.org/", True),
        ("*.python.org", "https://python.org.evil.com/", False),
        ("*.python.org", "https://evil.com/docs.python.org", False),
        ("*.python.org", "https://evil.com/?docs.python.org", False),
        ("*.python.org", "https://evil.com#.python.org", False),
        ("*.python.org", "https://docs.python.org@evil.com/", False),
        ("*.python.org", "https://evil.com\\.python.org/", False),
        ("docs.python.org", "docs.python.org", True),
        ("*", "https://[::1", True),
    ],
)
def test_a_pattern_of_a_page_is_held_against_its_host(pattern: str, said: str, allowed: bool) -> None:
    found = action(PAGE, said, allow=(f"extract_webpage({pattern})",))
    # A text that is no address is refused by the tool itself; a backslash is one of those.
    assert (found == "allow") is allowed or "\\" in said


@pytest.mark.containment
def test_of_a_call_with_two_subjects_no_pattern_speaks() -> None:
    policy = Policy("ask", rules("mcp__files__move(docs/*)"))
    assert judge(policy, OTHER, {"path": "docs/a"}).action == "allow"
    assert judge(policy, OTHER, {"path": "docs/a", "command": "docs/x"}).action == "ask"
    assert judge(policy, OTHER, {"target": "docs/a"}).action == "ask"
    assert (
        judge(replace(policy, mode="auto", deny=rules("*(docs/*)")), OTHER, {"url": "x", "path": "docs/a"}).action
        == "deny"
    )


# -- what a denial holds ----------------------------------------------------------------


@pytest.mark.containment
@pytest.mark.parametrize(
    "line",
    [
        "git push", "git push -f origin", "  git   push", "git\tpush", "'git' push", 'g""it push', "g''it pu'sh'",
        "\\git push", "/usr/bin/git push", "../bin/git push", "true; git push", "true && git push", "true|git push",
        "(git push)", "{ git push; }", "true\ngit push", "echo $(git push)", "echo `git push`", "X=1 git push",
        "A=1 B=2 git push", "sudo git push", "sudo -u me git push", "env X=1 git push", "nohup git push &",
        "timeout 5 git push", "nice -n 5 git push", "xargs git push", "xargs -n 1 git push", "sh -c 'git push'",
        'bash -lc "git push -f"', "sh -c 'cd x; git push'", "sh -c 'cd x && sudo git push'",
        "find . -exec git push {} +",
        "exec git push", "command git push", "eval git push", "eval 'git push'", "if true; then git push; fi",
        "git pu\\\nsh", "sh -c \"sh -c 'git push'\"", "time git push", "! git push", "while git push; do :; done",
    ],
)  # fmt: skip
def test_a_denied_command_is_denied_wherever_it_stands_in_a_line(line: str) -> None:
    assert action(RUN, line, "auto", deny=("run_command(git push*)",)) == "deny"
    assert action(RUN, line, "auto", allow=("run_command",), deny=("run_command(git push*)",)) == "deny"


@pytest.mark.parametrize(
    "line", ["git status", "git pull", "echo git push", "grep -r 'git push' .", "ls git", "pushd git"]
)
def test_a_denial_leaves_other_commands_alone(line: str) -> None:
    assert action(RUN, line, "auto", deny=("run_command(git push*)",)) == "allow"


@pytest.mark.containment
@pytest.mark.parametrize(
    "path",
    [
        "secrets/a", "./secrets/a", "secrets//a", "secrets/./a", "x/../secrets/a", "x/y/../../secrets/a",
        "/ws/secrets/a", "/secrets/a", "../ws/secrets/a", "Secrets/a", "SECRETS/a", "secrets/b/../a", "secrets\\a",
        "secrets", "secrets/",
        "x/link/../../secrets/a", "./x/.././secrets/a",
    ],
)  # fmt: skip
def test_a_denied_path_is_denied_however_it_is_written(path: str) -> None:
    for item in (READ, WRITE, EDIT):
        assert action(item, path, "auto", deny=("*(secrets/*)",)) == "deny"


def test_a_denied_path_is_denied_in_either_form_of_its_letters() -> None:
    assert action(WRITE, "cafe\u0301/a", "auto", deny=("write_file(caf\u00e9/*)",)) == "deny"
    assert action(WRITE, "caf\u00e9/a", "auto", deny=("write_file(cafe\u0301/*)",)) == "deny"


@pytest.mark.parametrize("path", ["secret/a", "secretsx/a", "docs/secrets.md", "x/secrets_a"])
def test_a_denial_leaves_other_paths_alone(path: str) -> None:
    assert action(WRITE, path, "auto", deny=("write_file(secrets/*)",)) == "allow"


@pytest.mark.containment
@pytest.mark.parametrize(
    "url",
    [
        "http://evil.com/", "https://EVIL.com:8443/x", "http://evil.com./", "http://user@evil.com/", "http://evil。com/",
        "http://ｅvil.com/", "  http://evil.com", "http://evil.com?x", "http://evil.com#x",
    ],
)  # fmt: skip
def test_a_denied_host_is_denied_however_it_is_written(url: str) -> None:
    assert action(PAGE, url, "auto", deny=("extract_webpage(evil.com)",)) == "deny"


def test_an_international_host_is_denied_in_both_of_its_forms() -> None:
    for said in ("http://bücher.test/", "http://xn--bcher-kva.test/", "http://BÜCHER.test/"):
        for pattern in ("bücher.test", "xn--bcher-kva.test"):
            assert action(PAGE, said, "auto", deny=(f"extract_webpage({pattern})",)) == "deny"


def test_a_denial_names_the_rule_and_the_way_on() -> None:
    verdict = judge(Policy("auto", (), rules("run_command(rm *)")), RUN, {"command": "rm x"})
    assert verdict.why == "not allowed: the rule run_command(rm *) denies it; go on without it, or report"


@pytest.mark.parametrize(
    "line",
    ["a" * 130_000, "a;" * 65_000, "sh -c '" + "a b " * 30_000 + "'", "sudo " * 26_000, "'" * 130_001,
     "sh 'sh \"" * 14_000, "x/" * 60_000],
)  # fmt: skip
def test_judging_takes_time_that_a_line_cannot_blow_up(line: str) -> None:
    began = time.process_time()
    pattern = "run_command(" + "*a" * 20 + "*z)"
    assert action(RUN, line, "auto", deny=(pattern,)) == "allow"
    assert action(RUN, line, "ask", allow=(pattern,)) == "ask"
    assert action(WRITE, line, "auto", deny=("write_file(" + "*a" * 20 + "*z)",)) == "allow"
    assert time.process_time() - began < 2.0


# -- what "all of this kind" means ------------------------------------------------------


def test_a_kind_is_what_was_shown() -> None:
    assert kind_of(RUN, {"command": " git status ", "timeout": 5}) == "run_command(git status)"
    assert kind_of(WRITE, {"path": "./src//a.py", "content": "x"}) == "write_file(src/a.py)"
    assert kind_of(EDIT, {"path": "../a.py", "edits": []}) == "edit_file(../a.py)"
    assert kind_of(PAGE, {"url": "https://Docs.python.org/3"}) == "extract_webpage(docs.python.org)"
    assert kind_of(PAGE, {"url": "http://x.test:8080/3"}) == "extract_webpage(x.test:8080)"
    assert kind_of(OTHER, {"path": "a", "to": "b"}) == 'mcp__files__move({"path": "a", "to": "b"})'
    assert kind_of(READ, {"path": "a"}) == "read_file"


@pytest.mark.containment
@pytest.mark.parametrize(
    ("shown", "further"),
    [
        ("git status", "git push --force"), ("git push", "git push --force"), ("rm a", "rm -rf /"), ("ls", "ls; rm x"),
        ("python a.py", "python -c 'evil'"), ("find . -name x", "find . -delete"), ("sudo ls", "sudo rm -rf /"),
        ("env", "env rm x"), ("sh build.sh", "sh -c 'rm x'"), ("pytest", "pytest && rm x"), ("make *", "make clean"),
        ("npm test", "npm publish"), ("*", "rm x"),
    ],
)  # fmt: skip
def test_who_allows_a_command_allows_no_other_one(shown: str, further: str) -> None:
    grants = [kind_of(RUN, {"command": shown})]
    assert judge(Policy(), RUN, {"command": shown, "timeout": 9}, grants).action == "allow"
    assert judge(Policy(), RUN, {"command": further}, grants).action == "ask"


@pytest.mark.containment
@given(
    st.sampled_from([RUN, OTHER, made("other", "run"), made("third", "net")]),
    st.dictionaries(st.sampled_from(["command", "path", "to", "n"]), st.text(max_size=400) | st.integers(), max_size=4),
    st.dictionaries(st.sampled_from(["command", "path", "to", "n"]), st.text(max_size=400) | st.integers(), max_size=4),
)
@example(RUN, {"command": "a"}, {"command": "a", "path": "b"})
def test_a_kind_never_covers_a_call_that_says_something_else(item: Tool, one: Any, other: Any) -> None:
    if kind_of(item, one) == kind_of(item, other):
        if item is RUN and isinstance(one.get("command"), str):
            assert one["command"].strip() == other["command"].strip()
        else:
            assert one == other


@given(st.sampled_from(TOOLS), st.sampled_from(TOOLS), SAID, SAID)
def test_a_kind_of_one_tool_is_never_one_of_another(one: Tool, other: Tool, said: str, more: str) -> None:
    if one.name != other.name:
        assert kind_of(one, call(one, said)) != kind_of(other, call(other, more))


def test_a_kind_that_would_be_long_is_bound_by_its_digest() -> None:
    one, other = (kind_of(OTHER, {"data": "x" * 5000 + end}) for end in "ab")
    assert one != other
    assert len(one) < 500
