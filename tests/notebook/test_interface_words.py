"""What the magics say to a person: in the language that is configured, about what it costs and what is missing."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.shells import AGREEABLE, Shell, loaded, scripted

from astrion_nb.errors import AgentNotFound, RunFailed
from astrion_nb.home import Home
from astrion_nb.notebook.commands import COMMANDS
from astrion_nb.notebook.magics import MAGICS
from astrion_nb.render.columns import width
from astrion_nb.render.words import words

PRICED = """
script = ScriptedModel({
    "Team Leader": [
        call("create_sub_agent", agent_id=1, role_id="researcher", task="Look around.") + say("", usage=(900_000, 0)),
        say("I wait.", usage=(50_000, 50_000)), *[say("All is well.")] * 9,
    ],
    "Researcher_1": [say("Seen.", usage=(500_000, 0))],
}, check_on_close=False)
"""
FAILING = "script = ScriptedModel([fail(ModelRefused('out of order'))], check_on_close=False)"


@pytest.fixture
def shell() -> Iterator[Shell]:
    with loaded() as made:
        yield made


@pytest.fixture
def key(tmp_path: Path) -> str:
    return scripted(tmp_path / "agreeable.py", AGREEABLE)


def test_in_chinese_nothing_that_a_person_reads_is_english(
    shell: Shell, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ASTRION_LANGUAGE", "zh")
    shell.run("%astrion")
    shell.run("%astrion conversations")
    shell.run(f"%%team --model {key}\n看一看。")
    tables = [shell.run(f"%astrion {name}") for name in ("agents", "conversations", "models", "roles")]
    for line in ("help", "stop", "wait", "retry", f"export {tmp_path / 'out.md'}", "terminate Researcher_1", "wait"):
        shell.run(f"%astrion {line}")
    conversation = shell.run("%astrion conversations").split("\n")[1].split()[0]
    shell.run(f"%astrion resume {conversation}")
    said = capsys.readouterr().out + "\n".join(tables) + (tmp_path / "out.md").read_text("utf-8")
    english, chinese = words("en"), words("zh")
    for field in dataclasses.fields(english):
        one, other = getattr(english, field.name), getattr(chinese, field.name)
        if isinstance(one, str) and one != other:
            for part in re.split(r"\{.*?\}|%astrion \w+|%\w+|--\w+", one):
                letters = part.strip(" ():·%")
                assert len(letters) < 6 or letters not in said, field.name
    for doc in (command.arguments.__doc__ for command in COMMANDS.values()):
        assert doc is not None
        assert doc.split("\n")[0] not in said
    assert not re.search(r"\b(role|model|title|updated|description|preset|completed|Status)\b", "\n".join(tables))
    for table in tables:
        starts = [re.match(r"\S+(?: \S+)*\s{2,}", line) for line in table.split("\n")]
        assert len({width(found.group()) for found in starts if found}) == 1


def test_each_command_has_a_line_in_chinese() -> None:
    assert words("zh").commands.keys() == COMMANDS.keys()


def test_a_language_that_is_none_leaves_the_commands_their_words(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ASTRION_LANGUAGE", "tlh")
    shell.run("%astrion")
    assert capsys.readouterr().out.startswith("no team in this kernel yet")


def test_what_roles_are_assumed_to_be_is_said(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run("%astrion roles")
    assert capsys.readouterr().out.startswith("Out[")
    head = "---\nid: odd\nname: Odd\nthinking_mode: hard\n---\n"
    (Home().agents / "odd.md").write_text(head, "utf-8")
    listed = shell.run("%astrion roles")
    told = capsys.readouterr().out
    assert "odd.md" in told
    assert "'hard'" in told
    assert "has no description" in told
    assert "\nodd " in listed


def test_a_model_says_what_it_still_needs_and_the_default_is_in_the_list(
    shell: Shell, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASTRION_CACHE", str(tmp_path / "none"))
    shell.run(f"%config AstrionMagics.model = {key!r}")
    rows = shell.run("%astrion models").split("\n")
    (default,) = [row for row in rows if row.endswith(" yes")]
    assert default.startswith(key)
    assert " ready " in default
    local = next(row for row in rows if row.startswith("local/smollm2"))
    assert "fetch it (93 MB): python -m astrion_nb local fetch smollm2" in local
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "xllamacpp" else real(name, *rest)
    )
    local = next(row for row in shell.run("%astrion models").split("\n") if row.startswith("local/smollm2"))
    assert "extra missing: pip install " in local
    os.unlink(key.removeprefix("scripted/"))
    assert "there is no such file" in next(
        row for row in shell.run("%astrion models").split("\n") if row.startswith(key)
    )


def test_the_cost_is_on_the_board_and_in_every_sum(
    shell: Shell, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = scripted(tmp_path / "priced.py", PRICED).removeprefix("scripted/")
    home = Home()
    home.models_file.parent.mkdir(parents=True, exist_ok=True)
    price = "price = { input = 2.0, output = 4.0 }"
    home.models_file.write_text(f'[models.p]\nprovider = "scripted"\nmodel = "{path}"\n{price}\n', "utf-8")
    shell.run("%%team\nLook around.")
    rows = [row.split() for row in shell.run("%astrion agents").split("\n")]
    assert (rows[0][-1], rows[1][-1], rows[2][-1]) == ("Cost", "2.10", "1.00")
    shell.run("%astrion show")
    assert "cost 3.10" in capsys.readouterr().out
    shell.run(f"%astrion export {tmp_path / 'out.md'}")
    assert "cost 3.10" in (tmp_path / "out.md").read_text("utf-8")
    assert shell.run("team.result().cost") == pytest.approx(3.1, abs=0.01)
    assert "3.10" in repr(shell.space["team"]) or "Cost" in repr(shell.space["team"])


def test_a_failed_run_is_shown_to_whoever_waits_for_it_before_it_fails(
    shell: Shell, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = scripted(tmp_path / "failing.py", FAILING)
    shell.run(f"%%team --no-wait --model {broken}\nLook at the sea.")
    for _ in range(2):
        with pytest.raises(RunFailed, match="out of order"):
            shell.run("%astrion wait")
        assert "Look at the sea." in capsys.readouterr().out


def test_waiting_at_rest_says_so_and_how_the_run_ended(
    shell: Shell, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run(f"%%team --model {key}\nLook around.")
    capsys.readouterr()
    shell.run("%astrion wait")
    assert capsys.readouterr().out == "Everybody rests. The team is done.\n"


def test_an_answer_is_quoted_within_other_values_and_shown_as_text_alone(shell: Shell, key: str) -> None:
    shell.run(f"%%team --model {key}\nLook around.")
    answer = shell.run("r = %ask leader Well?\nr")
    formatted = shell.ip.display_formatter.format
    assert formatted(answer)[0]["text/plain"] == str(answer)
    assert formatted((type(answer), answer))[0]["text/plain"].endswith(f", {str(answer)!r})")
    assert repr([answer]) == repr([str(answer)])


def test_a_misspelt_agent_is_recognised_and_the_leader_is_among_those_there_are(shell: Shell, key: str) -> None:
    shell.run(f"%%team --model {key}\nLook around.")
    for line, meant in (
        ("%ask Resercher_1 hm?", "Researcher_1"),
        ("%send leadre hm", "leader"),
        ("%astrion stop Researcher1", "Researcher_1"),
    ):
        with pytest.raises(
            AgentNotFound, match=rf"did you mean {meant}\? agents are: leader, Researcher_1 \(agent_id 1\)"
        ):
            shell.run(line)


def test_what_a_magic_is_says_how_to_see_its_flags(shell: Shell) -> None:
    for item in MAGICS.values():
        kind = "line" if "line" in item.kinds else "cell"
        doc = shell.ip.magics_manager.magics[kind][item.name].__doc__
        assert f"{item.written} --help lists its flags" in doc or item.arguments is None
