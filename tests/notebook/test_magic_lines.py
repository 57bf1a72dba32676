"""Lines and bodies of the magics: what reaches an agent, what is help, what is an error."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager
from support.shells import AGREEABLE, Shell, loaded, scripted

from astrion_nb.errors import AgentNotFound, AstrionError, ConfigError, NoModelError, RoleError, TeamError
from astrion_nb.notebook import syntax
from astrion_nb.notebook.args import Help, options, parse, target
from astrion_nb.notebook.commands import COMMANDS
from astrion_nb.notebook.magics import MAGICS, AskArgs, TeamArgs

NAMES = ["UI Operator_1", "UI Operator_12", "研究员_1", "Researcher_1"]
TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp"), exclude_characters="\x85"), max_size=60)


@pytest.fixture
def shell() -> Iterator[Shell]:
    with loaded() as made:
        yield made


@pytest.fixture
def team(shell: Shell, tmp_path: Path) -> Shell:
    """A shell with a team at rest: the leader and Researcher_1."""
    key = scripted(tmp_path / "agreeable.py", AGREEABLE)
    shell.run(f"%%team --model {key}\nLook around.")
    return shell


def heard(shell: Shell, agent: str = "Researcher_1") -> str:
    """Return the last thing that an agent was told by its request."""
    messages = shell.space["team"].request(agent)["messages"]
    return str([message["content"] for message in messages if message["role"] == "user"][-1])


def transformed(code: str) -> str:
    manager = TransformerManager()
    manager.token_transformers.append(syntax.FreeText)
    manager.cleanup_transforms.append(syntax.keep_body)
    return manager.transform_cell(code)


# ---- flags


def test_flags_stand_first_and_the_rest_stays_as_it_is() -> None:
    arguments, rest = parse(AskArgs, ' --timeout 5  bob don\'t say --timeout "7" {x} $y  ', magic="%ask")
    assert arguments.timeout == 5.0
    assert rest == 'bob don\'t say --timeout "7" {x} $y  '


@pytest.mark.parametrize("line", ["--title=Sea", "--title Sea", "--title 'Sea'", '--title "Sea"', '--title="Sea"'])
def test_a_value_may_follow_in_any_usual_form(line: str) -> None:
    assert parse(TeamArgs, line, magic="%%team")[0].title == "Sea"


@pytest.mark.parametrize("word", ["don't", 'a"b', "it's", "5'", 'say"'])
def test_an_apostrophe_within_a_word_is_part_of_it(word: str) -> None:
    assert parse(TeamArgs, f"--title {word}", magic="%%team")[0].title == word


def test_every_flag_of_the_team_can_be_given_at_once() -> None:
    line = (
        "--title 'Two words' --roles researcher,ui-operator --model a --all-models b --mode deep --leader human "
        "--no-wait --timeout 2.5 --continue conv_1 --permission auto --with f,g --record r.json --replay p.json "
        "--expand"
    )
    arguments, rest = parse(TeamArgs, line, magic="%%team")
    assert rest == ""
    assert vars(arguments) == {
        "title": "Two words",
        "roles": ("researcher", "ui-operator"),
        "model": "a",
        "all_models": "b",
        "mode": "deep",
        "leader": "human",
        "wait": False,
        "timeout": 2.5,
        "continue_": "conv_1",
        "permission": "auto",
        "with_": ("f", "g"),
        "record": "r.json",
        "replay": "p.json",
        "expand": True,
    }


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--titel x", "there is no flag --titel; did you mean --title?"),
        ("--no-expand", "there is no flag --no-expand"),
        ("--title", "--title needs a value"),
        ("--title --wait", "--title needs a value"),
        ("--mode slow", "--mode is 'slow'; use one of fast, thinking, deep"),
        ("--timeout soon", "--timeout is 'soon'; it must be a number"),
        ("--timeout 0", "--timeout is 0.0; use a number above 0"),
        ("--timeout -5", "--timeout is -5.0; use a number above 0"),
        ("--timeout nan", "--timeout is nan; use a number above 0"),
        ('--title "unclosed', '--title begins with " and has no second one; close the quote'),
        ("--title 'tis", "--title begins with ' and has no second one; close the quote"),
        ('--title="a b', '--title begins with " and has no second one'),
        ("--model 'a --mode slow", "--model begins with ' and has no second one"),
        ("--wait=yes", "--wait takes no value"),
        ("--xyzzy", "%%team --help lists the flags"),
    ],
)
def test_a_wrong_flag_is_named_with_what_to_do(line: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(TeamArgs, line, magic="%%team")
    assert said in str(raised.value)
    assert str(raised.value).startswith("%%team: ")


@pytest.mark.parametrize("name", sorted(name for name, item in MAGICS.items() if item.arguments))
def test_help_is_made_from_the_flags_and_names_each_of_them(name: str, shell: Shell, capsys: Any) -> None:
    with pytest.raises(Help) as raised:
        parse(MAGICS[name].arguments, "--help", magic=name)
    text = str(raised.value)
    assert all(option in text for option in options(MAGICS[name].arguments) if not option.startswith("--no-"))
    percent = "%%team --help\nx" if name == "team" else f"%{name} --help"
    shell.run(percent)
    printed = capsys.readouterr().out
    assert [line.strip() for line in printed.splitlines()[1:]] == [line.strip() for line in text.splitlines()[1:]]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_explains_itself(name: str, shell: Shell, capsys: Any) -> None:
    shell.run(f"%astrion {name} --help")
    by_flag = capsys.readouterr().out
    shell.run(f"%astrion help {name}")
    assert capsys.readouterr().out == by_flag
    assert by_flag.startswith(f"%astrion {name}")
    shell.run("%astrion help")
    assert f"  {name} " in capsys.readouterr().out


# ---- targets


@pytest.mark.parametrize(
    ("text", "who", "rest"),
    [
        ("UI Operator_1 go on", "UI Operator_1", "go on"),
        ("ui operator_12 go on", "ui operator_12", "go on"),
        ('"UI Operator_1" go on', "UI Operator_1", "go on"),
        ("“研究员_1” 继续", "研究员_1", "继续"),
        ("研究员_1 继续？", "研究员_1", "继续？"),
        ("leader don't", "leader", "don't"),
        ('" leader " hi', " leader ", "hi"),
        ("leader 'tis so", "leader", "'tis so"),
        ('leader "unclosed', "leader", '"unclosed'),
        ("Team Leader x", "Team Leader", "x"),
        ("2 x", "2", "x"),
        ("leadership matters", "leadership", "matters"),
        ("bob\nbody", "bob", "body"),
        ("bob   'quoted' text", "bob", "'quoted' text"),
        ("bob", "bob", ""),
        ("ß_1 hi", "ß_1", "hi"),
        ("", "", ""),
    ],
)
def test_a_target_is_the_quoted_the_longest_known_or_the_first_word(text: str, who: str, rest: str) -> None:
    assert target(text, NAMES) == (who, rest)


# ---- question marks


@given(TEXT)
@settings(max_examples=150, deadline=None)
def test_any_text_behind_a_magic_becomes_that_text_in_a_call(text: str) -> None:
    line = f"bob {text}".strip()
    code = transformed(f"%ask {line} \n")
    if line.endswith("\\"):
        return  # a continuation, IPython's own
    call = ast.parse(code).body[0].value  # type: ignore[attr-defined]
    assert [argument.value for argument in call.args] == ["ask", line]


@pytest.mark.faults
@pytest.mark.parametrize("place", ["{}", "r = {}", "if True:\n    {}", "x = 1\n{}\ny = 2", "d = {{}}\nd['k'] = {}"])
@pytest.mark.parametrize("magic", ["%ask", "%send", "%answer"])
@pytest.mark.parametrize(
    "text",
    [
        "bob is it done?",
        "bob done??",
        "bob 好了吗？",
        "bob why? ",
        "bob don't you?",
        'bob "is it?',
        "bob (a?",
        "bob {'a': 1}?",
    ],
)
def test_a_question_mark_at_the_end_is_text_and_not_a_request_for_help(place: str, magic: str, text: str) -> None:
    tree = ast.parse(transformed(place.format(f"{magic} {text}") + "\n"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) == 2]
    assert [[argument.value for argument in call.args] for call in calls] == [[magic[1:], text.strip()]]  # type: ignore[attr-defined]


def test_a_continued_line_is_one_text() -> None:
    code = transformed("%ask bob one \\\n  two?\nx = 1\n")
    assert code == "get_ipython().run_line_magic('ask', 'bob one    two?')\nx = 1\n"


@pytest.mark.parametrize("line", ["%ask?", "?%ask", "%send??", "%%team?", "%astrion?"])
def test_a_magic_with_nothing_but_a_question_mark_shows_help(line: str) -> None:
    assert "pinfo" in transformed(line)


@pytest.mark.faults
def test_text_inside_a_string_is_left_alone(shell: Shell) -> None:
    shell.run('text = """\n%ask bob is it done?\n%%team\n"""\nquote = "%send bob why?"')
    assert shell.space["text"] == "\n%ask bob is it done?\n%%team\n"
    assert shell.space["quote"] == "%send bob why?"


def test_two_magics_that_break_python_each_get_their_own_line() -> None:
    code = transformed("%ask bob it's (one\n%ask carl \"two?\nz = 1\n")
    calls = [node.value for node in ast.parse(code).body[:2]]  # type: ignore[attr-defined]
    assert [call.args[1].value for call in calls] == ["bob it's (one", 'carl "two?']


# ---- what an agent hears

HARD = [
    "is it done?",
    "是否完成？",
    '{"a": 1, "b": [2]}',
    "{x} {x:>5} {{x}} { } }",
    "$x and $$5 and ${x}",
    "don't stop, it's \"fine\" and `code`",
    "r'\\d+' \\frac{1}{2} 50% %d %(x)s",
    "<b>&amp;</b> </Ask> 来自 Team Leader 的消息",
    "“全角引号”——破折号…",
    "-- not a flag",
]


@pytest.mark.faults
@pytest.mark.parametrize("text", HARD)
def test_a_line_reaches_the_agent_verbatim(text: str, team: Shell) -> None:
    team.space["x"] = 7
    team.run(f"%ask Researcher_1 {text}")
    assert f"<Ask>\n{text}\n</Ask>" in heard(team)


@pytest.mark.faults
def test_a_body_reaches_the_leader_verbatim(team: Shell) -> None:
    team.space["x"] = 7
    body = "\n".join(HARD) + "\n\n    indented\n\ttab  \n# a comment\n%ask bob no magic?\n"
    team.run(f"%%team --continue\n{body}")
    assert heard(team, "leader") == body.strip("\n")


def test_a_body_below_a_line_joins_its_text(team: Shell) -> None:
    team.run("%%ask Researcher_1\none\n\ntwo?")
    assert "<Ask>\none\n\ntwo?\n</Ask>" in heard(team)
    team.run("%%ask Researcher_1 first:\nsecond")
    assert "<Ask>\nfirst:\nsecond\n</Ask>" in heard(team)
    team.run("%%ask Researcher_1 alone?")
    assert "<Ask>\nalone?\n</Ask>" in heard(team)


@pytest.mark.parametrize("who", ['" leader "', "' Team Leader '", '"LEADER"', "“ leader ”"])
def test_the_leader_is_understood_however_it_is_quoted(who: str, team: Shell) -> None:
    assert team.run(f"%ask {who} don't you think so?") == "All is well."
    assert heard(team, "leader") == "don't you think so?"


def test_expansion_is_there_for_who_asks_for_it(team: Shell) -> None:
    team.space["x"] = 7
    team.run("%ask --expand Researcher_1 {x + 1} and $x")
    assert "<Ask>\n8 and 7\n</Ask>" in heard(team)
    team.run("%%team --continue --expand\nIt is {x}.")
    assert heard(team, "leader") == "It is 7."


@pytest.mark.faults
def test_marks_for_nbval_are_not_part_of_a_task(team: Shell) -> None:
    team.run("%%team --continue\n# NBVAL_IGNORE_OUTPUT\n# NBVAL_RAISES_EXCEPTION\nThe task.\n# NBVAL_SKIP stays")
    assert heard(team, "leader") == "The task.\n# NBVAL_SKIP stays"


def test_an_answer_is_a_str_that_shows_as_markdown(team: Shell) -> None:
    team.run("r = %ask Researcher_1 what did you see?")
    answer = team.space["r"]
    assert isinstance(answer, str)
    assert (answer, repr(answer), answer.upper(), answer == "Seen.") == ("Seen.", "'Seen.'", "SEEN.", True)
    shown = team.ip.display_formatter.format(answer)[0]
    assert shown == {"text/plain": "Seen.", "text/markdown": "Seen."}


# ---- errors


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        ("%ask bob hello", TeamError, "there is no team in this kernel: start one with %%team"),
        ("%send bob hello", TeamError, "there is no team"),
        ("%answer q yes", TeamError, "there is no team"),
        ("%astrion wait", TeamError, "there is no team"),
        ("%astrion agents", TeamError, "there is no team"),
        ("%%team --continue\nx", TeamError, "there is no team"),
        ("%%team do it\nx", ConfigError, "'do it' is not a flag; write the task below the %%team line"),
        ("%%team", ConfigError, "the task is empty"),
        ("%%team\n  \n", ConfigError, "the task is empty"),
        ("%%team --modle x\nx", ConfigError, "did you mean --mode"),
        ("%%team --model nope\nx", ConfigError, "there is no model 'nope'"),
        ("%%team --roles nobody --model local/smollm2\nx", RoleError, "nobody"),
        ("%%team --leader human --model local/smollm2\nx", ConfigError, "which roles to create"),
        ("%%team --with missing --model local/smollm2\nx", ConfigError, "'missing', which is no function"),
        ("%%team --continue conv_20200101_000000_001\nx", AstrionError, "conv_20200101_000000_001"),
        ("%astrion wiat", ConfigError, "did you mean wait?"),
        ("%astrion resume", ConfigError, "name the conversation"),
        ("%astrion resume conv_20200101_000000_001", AstrionError, "conv_20200101_000000_001"),
        ("%astrion stop --reson x", ConfigError, "did you mean --reason?"),
    ],
)
def test_a_person_s_error_is_one_line_that_says_what_to_do(code: str, error: type, said: str, shell: Shell) -> None:
    with pytest.raises(error) as raised:
        shell.run(code)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert raised.value._render_traceback_() == [f"{type(raised.value).__name__}: {raised.value}"]


def test_without_any_model_the_error_names_the_ways_on(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("astrion_nb.app.config._fallback", lambda: None)
    with pytest.raises(NoModelError, match=r"OPENAI_API_KEY.*fetch smollm2"):
        shell.run("%%team\nx")


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        ("%ask", ConfigError, "say to whom: %ask TARGET text"),
        ("%ask Researcher_1", ConfigError, "the text is empty"),
        ("%%ask Researcher_1", ConfigError, "the text is empty"),
        ("%ask nobody hello", AgentNotFound, "Researcher_1"),
        ("%send nobody hello", AgentNotFound, "Researcher_1"),
        ("%answer", ConfigError, "name the question"),
        ("%answer ask_x", ConfigError, "the answer is empty"),
        ("%answer ask_x yes", AstrionError, "there is no question 'ask_x'; no question is open"),
        ("%astrion terminate", ConfigError, "name the agent"),
        ("%astrion terminate leader", TeamError, "the leader cannot be terminated"),
        ("%astrion why", ConfigError, "name the agent"),
        ("%astrion why Researcher_1 9", TeamError, "there is no turn 9"),
        ("%astrion why Researcher_1 first", TeamError, "'first' is not a turn"),
        ("%%team --continue --model local/smollm2\nx", ConfigError, "--model is for a new one"),
        ("%%team --continue --title T\nx", ConfigError, "--title is for a new one"),
    ],
)
def test_errors_with_a_team_at_hand_leave_it_as_it_is(code: str, error: type, said: str, team: Shell) -> None:
    before = team.space["team"].transcript
    with pytest.raises(error) as raised:
        team.run(code)
    assert said in str(raised.value)
    assert team.space["team"].transcript == before
    assert team.run("%ask Researcher_1 still there?") == "Seen."


def test_a_conversation_that_cannot_be_opened_leaves_the_team_at_hand(team: Shell) -> None:
    for code in ("%astrion resume conv_20200101_000000_001", "%%team --continue conv_20200101_000000_001\nx"):
        with pytest.raises(AstrionError):
            team.run(code)
        assert team.run("%ask Researcher_1 still there?") == "Seen."


@pytest.mark.parametrize(
    "line", ["show nobody", "wait Researcher_1", "board all", "agents Researcher_1", "retry now", "roles zh"]
)
def test_a_command_that_takes_nothing_says_so_instead_of_doing_something_else(team: Shell, line: str) -> None:
    name, _, rest = line.partition(" ")
    with pytest.raises(ConfigError, match=f"%astrion {name}: it takes no '{rest}'"):
        team.run(f"%astrion {line}")
