"""The extension in a shell: loading, unloading, completion, the user's variable, settings."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from IPython.core.magic import magics_class
from support.shells import AGREEABLE, Shell, loaded, scripted

from astrion_nb.errors import ConfigError, TeamBusy, TeamError
from astrion_nb.notebook.args import flag, options
from astrion_nb.notebook.commands import COMMANDS
from astrion_nb.notebook.magic import magic
from astrion_nb.notebook.magics import MAGICS, AstrionMagics

HELD = """
script = ScriptedModel({
    "Team Leader": [
        call("create_sub_agent", agent_id=1, role_id="researcher", task="Look around."),
        *[say("All is well.")] * 9,
    ],
    "Researcher_1": [until_message(say("Seen.")), *[say("Seen.")] * 9],
}, check_on_close=False)
"""
"""The researcher does not answer before somebody writes to it."""


@pytest.fixture
def shell() -> Iterator[Shell]:
    with loaded() as made:
        yield made


@pytest.fixture
def key(tmp_path: Path) -> str:
    return scripted(tmp_path / "agreeable.py", AGREEABLE)


def everything(shell: Shell) -> dict[str, list[Any]]:
    """What an extension could leave behind in a shell."""
    ip = shell.ip
    return {
        "line magics": sorted(ip.magics_manager.magics["line"]),
        "cell magics": sorted(ip.magics_manager.magics["cell"]),
        "token transformers": [item.__qualname__ for item in ip.input_transformer_manager.token_transformers],
        "cleanup transformers": [getattr(item, "__name__", "") for item in ip.input_transformers_cleanup],
        "matchers": [getattr(item, "__qualname__", "") for item in ip.Completer.matchers],
        "callbacks": [(name, len(functions)) for name, functions in sorted(ip.events.callbacks.items())],
        "configurables": [type(item).__name__ for item in ip.configurables],
        "namespace": sorted(ip.user_ns),
        "registry": sorted(ip.magics_manager.registry),
        "attributes": sorted(name for name, value in vars(ip).items() if "astrion" in name and value is not None),
    }


# ---- loading


def test_loading_prints_nothing_and_unloading_leaves_nothing(key: str, capfd: Any) -> None:
    shell = Shell()
    shell.run("%load_ext storemagic")  # what %load_ext itself leaves behind is IPython's
    before = everything(shell)
    threads = set(threading.enumerate())
    for _ in range(3):
        shell.run("%load_ext astrion_nb")
        assert everything(shell) != before
        shell.run(f"%%team --model {key}\nLook around.")
        shell.run("%unload_ext astrion_nb")
        assert everything(shell) == before
        for thread in set(threading.enumerate()) - threads:
            thread.join(5.0)
        assert set(threading.enumerate()) == threads
    shell.run("%load_ext astrion_nb\n%unload_ext astrion_nb")
    assert capfd.readouterr().err == ""


def test_loading_twice_and_reloading_double_nothing(shell: Shell, key: str, capfd: Any) -> None:
    once = everything(shell)
    shell.run("%load_ext astrion_nb")
    assert "already loaded" in capfd.readouterr().out  # IPython's own words
    assert everything(shell) == once
    for _ in range(2):
        shell.run("%reload_ext astrion_nb")
        assert everything(shell) == once
    importlib.reload(sys.modules["astrion_nb.notebook.syntax"])
    shell.run("%reload_ext astrion_nb")
    assert everything(shell) == once
    shell.run(f"%%team --model {key}\nLook around.")
    assert shell.run("%ask Researcher_1 is it done?") == "Seen."
    assert capfd.readouterr().err == ""


def test_nothing_holds_an_unloaded_extension(key: str) -> None:
    shell = Shell()
    shell.run("%load_ext astrion_nb")
    shell.run(f"%%team --model {key}\nLook around.")
    magics = weakref.ref(shell.ip._astrion_magics)
    shell.run("%unload_ext astrion_nb")
    shell.ip.displayhook.flush()
    gc.collect()
    assert magics() is None


def test_unloading_while_a_team_works_stops_it_and_frees_its_conversation(tmp_path: Path) -> None:
    held = scripted(tmp_path / "held.py", HELD)
    shell = Shell()
    shell.run("%load_ext astrion_nb")
    shell.run(f"%%team --model {held} --no-wait\nLook around.")
    conversation = shell.space["team"].conversation_id
    shell.run("%unload_ext astrion_nb")
    assert [thread for thread in threading.enumerate() if thread.name.startswith("astrion")] == []
    assert "team" not in shell.space
    with loaded() as another:
        another.run(f"%astrion resume {conversation}")
        assert another.space["team"].conversation_id == conversation


@pytest.mark.faults
def test_importing_loading_and_running_never_patches_asyncio(tmp_path: Path) -> None:
    key = scripted(tmp_path / "agreeable.py", AGREEABLE)
    code = f"""
import asyncio, asyncio.base_events, asyncio.events, asyncio.tasks, asyncio.futures, sys

def vital():
    loop = asyncio.SelectorEventLoop
    base = asyncio.base_events.BaseEventLoop
    names = ("run_forever", "run_until_complete", "_run_once", "_check_running")
    return [
        asyncio.run, asyncio.Task, asyncio.Future, asyncio.tasks.Task, asyncio.futures.Future,
        asyncio.get_event_loop, asyncio.events.get_event_loop, asyncio.current_task,
        *(getattr(where, name) for where in (loop, base) for name in names),
    ]

before = vital()
import astrion_nb
assert vital() == before
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
ip = InteractiveShell(config=Config(HistoryManager={{"enabled": False}}))
ip.run_line_magic("load_ext", "astrion_nb")
ip.run_cell("%%team --model {key}\\nLook around.").raise_error()
assert ip.run_cell("%ask Researcher_1 done?").result == "Seen."
assert all(one is other for one, other in zip(vital(), before, strict=True))
assert not {{"nest_asyncio", "nest_asyncio2"}} & set(sys.modules), "no nesting library is imported"
ip.run_line_magic("unload_ext", "astrion_nb")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_kernel_s_loop_is_refused_where_the_archived_nesting_library_is_active(
    shell: Shell, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio, "_nest_patched", True, raising=False)
    shell.run("%config AstrionMagics.loop = 'kernel'")
    with pytest.raises(ConfigError, match=r"restart the kernel without it, or leave %config AstrionMagics.loop"):
        shell.run(f"%%team --model {key}\nLook around.")
    shell.run("%config AstrionMagics.loop = 'thread'")
    shell.run(f"%%team --model {key}\nLook around.")
    assert shell.run("%ask Researcher_1 is it done?") == "Seen."


# ---- the variable


def test_the_running_team_is_a_variable(shell: Shell, key: str) -> None:
    shell.run(f"%%team --model {key}\nLook around.")
    team = shell.space["team"]
    assert [agent.display_name for agent in team.agents] == ["Researcher_1"]
    assert team.result().text == "All is well."
    assert "All is well." in team.transcript
    assert team.usage.total > 0
    assert "Researcher_1" in repr(team)
    assert {"agents", "ask", "events", "run", "send", "wait"} <= set(dir(team))
    with pytest.raises(AttributeError):
        team.nothing_of_the_kind  # noqa: B018


@pytest.mark.parametrize("value", [5, None, [], "team"])
def test_the_variable_never_replaces_one_of_the_person_s(value: object, shell: Shell, key: str) -> None:
    shell.space["team"] = value
    shell.run(f"%%team --model {key}\nLook around.")
    assert shell.space["team"] is value
    assert shell.run("%ask Researcher_1 there?") == "Seen."
    shell.run("del team")
    shell.run(f"%%team --model {key}\nLook around.")
    assert shell.space["team"].conversation_id


def test_the_variable_s_name_is_a_setting(shell: Shell, key: str) -> None:
    shell.run("%config AstrionMagics.variable = 'crew'")
    shell.run(f"%%team --model {key}\nLook around.")
    assert shell.space["crew"].running is False
    assert "team" not in shell.space


def test_a_new_team_takes_the_place_of_the_last_one(shell: Shell, key: str) -> None:
    shell.run(f"%%team --model {key}\nOne.")
    first = shell.space["team"]
    shell.run(f"%%team --model {key}\nTwo.")
    assert shell.space["team"].conversation_id != first.conversation_id
    with pytest.raises(TeamError, match="closed"):
        asyncio.run(first.run("More."))


def test_coroutines_of_the_team_are_awaited_in_a_cell(shell: Shell, key: str) -> None:
    shell.run(f"%%team --model {key}\nLook around.")
    shell.run("answer = await team.ask('Researcher_1', 'there?')\nresult = await team.run('Again.')")
    shell.run("await team.send('Researcher_1', 'hello')\nawait team.wait()")
    assert shell.space["answer"] == "Seen."
    assert (shell.space["result"].status, shell.space["result"].text) == ("completed", "All is well.")
    code = "seen = []\nasync for event in team.events():\n    seen.append(type(event).__name__)\n"
    shell.run(code + "    if type(event).__name__ == 'RunEnded':\n        break")
    assert shell.space["seen"][0] == "ConversationStarted"
    assert shell.space["seen"][-1] == "RunEnded"


# ---- functions of the person's


def test_functions_of_the_notebook_become_tools(shell: Shell, tmp_path: Path) -> None:
    script = """
script = {"Team Leader": [call("price", item="tea"), say("Bought.")]}
"""
    key = scripted(tmp_path / "shopper.py", script)
    shell.run(
        'def price(item: str) -> float:\n    """Say what something costs."""\n    asked.append(item)\n    return 4.5'
    )
    shell.space["asked"] = []
    shell.run(f"%%team --model {key} --with price\nBuy.")
    assert shell.space["asked"] == ["tea"]
    assert '"result": 4.5' in shell.space["team"].transcript or "4.5" in shell.space["team"].transcript


# ---- completion


def test_tab_completes_commands_flags_agents_roles_models_and_nothing_else(shell: Shell, key: str) -> None:
    shell.run(f"%%team --model {key}\nLook around.")
    assert shell.complete("%astrion ") == sorted(COMMANDS)
    assert shell.complete("%astrion wa") == ["wait"]
    assert shell.complete("%astrion stop ") == ["Researcher_1"]
    assert shell.complete("%astrion stop --") == ["--help", "--reason"]
    assert shell.complete("%%team --") == sorted(options(MAGICS["team"].arguments))
    assert shell.complete("%%team --ro") == ["--roles"]
    assert "researcher" in shell.complete("%%team --roles ")
    assert "local/smollm2" in shell.complete("%%team --model lo")
    assert "local/smollm2" in shell.complete("%%team --title x --all-models ")
    assert shell.complete("%%team --mode ") == ["deep", "fast", "thinking"]
    assert shell.complete("%ask Res") == ["Researcher_1"]
    assert shell.complete("%ask ") == ["Researcher_1", "leader"]
    assert shell.complete("r = %ask ") == ["Researcher_1", "leader"]
    assert shell.complete("%send --") == ["--expand", "--help"]
    assert shell.complete("%ask res") == ["Researcher_1"]
    assert not {"Researcher_1", "leader"} & set(shell.complete("%ask Researcher_1 "))
    assert shell.complete("%%team --with loo") == ["loo"]
    shell.run("def look(): ...")
    assert shell.complete("%%team --with loo") == ["look"]
    conversation = shell.space["team"].conversation_id
    assert shell.complete("%astrion resume ") == [conversation]
    assert shell.complete("%%team --continue conv_") == [conversation]
    assert shell.complete("%%team --continue --wa") == ["--wait"]
    assert shell.complete("%astrion help wa") == ["wait"]


def test_tab_completes_names_with_blanks_ideographs_and_several_roles(shell: Shell, tmp_path: Path) -> None:
    home = Path(os.environ["ASTRION_HOME"])
    script = """
script = ScriptedModel({
    "Team Leader": [
        call("create_sub_agent", agent_id=1, role_id="ui-operator", task="a")
        + call("create_sub_agent", agent_id=1, role_id="analyst", task="b"),
        *[say("Done.")] * 9,
    ],
    "*": [say("ok")] * 9,
}, check_on_close=False)
"""
    shell.run("%astrion roles")
    (home / "mutiagents" / "agents" / "analyst.md").write_text(
        "---\nid: analyst\nname: 分析员\ndescription: d\n---\nYou analyse.\n", encoding="utf-8"
    )
    shell.run(f"%%team --model {scripted(tmp_path / 'two.py', script)}\nGo.")
    assert shell.complete("%ask 分") == ["分析员_1"]
    assert shell.complete("%ask ") == ["UI Operator_1", "leader", "分析员_1"]
    assert shell.complete('%ask "UI O') == ['"UI Operator_1"']
    assert shell.complete("%ask UI O") == ["UI Operator_1"]
    assert shell.complete("%astrion why ui") == ["UI Operator_1"]
    assert shell.complete("%%team --roles researcher,ui-") == ["researcher,ui-operator"]


NOISE = {"import", "is", "if", "in", "id", "print", "pow", "property", "pass", "imported_by_me"}


@pytest.mark.parametrize(
    "line",
    [
        "%ask i", "%ask nobody", "%ask Researcher_1 i", "%ask --timeout ", "%ask --timeout i", "r = %ask p", "%send p",
        "%answer ", "%answer p", "%%team ", "%%team --title i", "%%team --title ", "%%team --model i", "%%team p",
        "%%team --with im", "%astrion p", "%astrion stop p", "%astrion show ", "%astrion show p", "%astrion nothing ",
        "%astrion nothing i", "%astrion resume i", "%astrion stop --reason ", "%%ask i", "%send Researcher_1 ",
    ],
)  # fmt: skip
def test_where_nothing_of_ours_fits_no_name_of_python_is_offered(shell: Shell, key: str, line: str) -> None:
    shell.run(f"%%team --model {key}\nLook around.")
    shell.space["imported_by_me"] = 1
    offered = shell.complete(line)
    assert not [text for text in offered if text.split()[-1:] and text.split()[-1] in NOISE]
    assert len(offered) < 20


@dataclass
class EchoArgs:
    """Say it again: %echo text."""

    loud: bool = flag(False, "say it loudly", no="say it softly")
    tone: str | None = flag(None, "how", value="TONE", names=lambda session: ["dark", "bright"])


@pytest.fixture
def echoing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One more magic, as one definition adds it."""
    try:

        @magics_class
        class More(AstrionMagics):
            @magic(EchoArgs, "line", "cell", free=True, places=lambda session: ["hello", "help"])
            def echo(
                self, arguments: EchoArgs, rest: str, cell: str | None
            ) -> tuple[bool, str | None, str, str | None]:
                return arguments.loud, arguments.tone, rest, cell

        # A subclass registers what is its own; the magics would be methods of the one class.
        More.magics = {kind: {**AstrionMagics.magics[kind], **More.magics[kind]} for kind in ("line", "cell")}
        monkeypatch.setattr("astrion_nb.notebook.magics.AstrionMagics", More)
        yield
    finally:
        MAGICS.pop("echo", None)


def test_a_magic_is_one_definition_from_which_all_else_follows(echoing: None, capsys: Any) -> None:
    shell = Shell()
    before = everything(shell)
    shell.run("%load_ext astrion_nb")
    assert shell.run("%echo is it so?") == (False, None, "is it so?", None), "its text is text"
    assert shell.run("%echo --loud --tone=dark don't") == (True, "dark", "don't", None)
    assert shell.run("%echo --no-loud x")[0] is False
    assert shell.run("%%echo")[3] is not None, "a missing body is its own matter"
    assert shell.run("%%echo a\nb?")[2:] == ("a", "b?\n")
    assert shell.complete("%echo ") == ["hello", "help"]
    assert shell.complete("%echo --") == ["--help", "--loud", "--no-loud", "--tone"]
    assert shell.complete("%echo --tone ") == ["bright", "dark"]
    capsys.readouterr()
    shell.run("%echo --help")
    told = capsys.readouterr().out
    assert told.startswith("%echo — Say it again: %echo text.")
    assert "say it loudly (--no-loud: say it softly)" in told
    shell.run("%astrion help")
    assert "%%team, %ask, %send, %answer, %echo; each explains itself" in capsys.readouterr().out
    shell.run("%unload_ext astrion_nb")
    left = everything(shell)
    assert (left["line magics"], left["cell magics"]) == (before["line magics"], before["cell magics"])
    with pytest.raises(ConfigError, match="there are two magics %ask"):
        magic(EchoArgs, "line")(AstrionMagics.ask)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("loop", "x"),
        ("loop", 3),
        ("wait", 3),
        ("language", "fr"),
        ("variable", "3 x"),
        ("variable", "class"),
        ("model", 5),
    ],
)
def test_a_wrong_setting_is_one_line_at_loading_and_the_next_loading_works(name: str, value: Any, capfd: Any) -> None:
    with loaded() as shell:
        shell.run(f"%config AstrionMagics.{name} = {value!r}")  # IPython itself says that it is wrong
        with pytest.raises(ConfigError) as raised:
            shell.run("%reload_ext astrion_nb")
        assert str(raised.value).startswith(f"AstrionMagics.{name} is {value!r}; use ")
        assert len(str(raised.value).splitlines()) == 1
        shell.run("%load_ext astrion_nb")
        assert getattr(shell.ip._astrion_magics, name) == AstrionMagics.class_traits()[name].default_value
        assert [type(item).__name__ for item in shell.ip.configurables].count("AstrionMagics") == 1
    wrong = Shell({"AstrionMagics": {name: value}})
    with pytest.raises(ConfigError, match=f"AstrionMagics.{name} is"):
        wrong.run("%load_ext astrion_nb")


def test_other_lines_complete_as_before(shell: Shell, key: str) -> None:
    shell.run(f"%%team --model {key}\nLook around.")
    shell.space["researcher_count"] = 1
    assert "researcher_count" in shell.complete("x = researcher_c")
    assert "%astrion" in shell.complete("%ast")
    assert "%%team" in shell.complete("%%te")
    body = "%%team\nresearcher_c"
    assert "leader" not in shell.complete(body)
    assert shell.complete("print('%ask ') or rese") != ["Researcher_1", "leader"]


def test_open_questions_complete_for_answer(shell: Shell, tmp_path: Path) -> None:
    script = """
script = {
    "Researcher_1": [call("ask_master", question="Which sea?", question_id="sea-1"), say("The North Sea it is.")],
}
"""
    key = scripted(tmp_path / "asks.py", script)
    shell.ip._astrion_magics.session.shell = Attended(shell.ip)
    shell.run(f"%%team --model {key} --leader human --roles researcher --no-wait\nFind a sea.")
    shell.run(
        "import asyncio\nasync for e in team.events():\n    if type(e).__name__ == 'QuestionAsked':\n        break"
    )
    assert shell.complete("%answer ") == ["sea-1"]
    shell.run("%answer sea-1 the North Sea?")
    shell.run("%astrion wait")
    assert "the North Sea?" in shell.space["team"].transcript
    assert "sea-1" not in shell.complete("%answer ")


class Attended:
    """A shell whose front end can ask its person for a line, as a notebook's can."""

    def __init__(self, ip: Any) -> None:
        self._ip = ip

    def __getattr__(self, name: str) -> Any:
        if name == "kernel":
            return self
        return getattr(self._ip, name)

    def get_parent(self, channel: str) -> dict[str, Any]:
        return {"content": {"allow_stdin": True}}


# ---- settings


def test_every_setting_has_help_and_shows_in_config(shell: Shell, capsys: Any) -> None:
    shell.run("%config AstrionMagics")
    printed = capsys.readouterr().out
    for name, trait in AstrionMagics.class_own_traits(config=True).items():
        assert f"AstrionMagics.{name}" in printed
        assert trait.help


@pytest.mark.parametrize(
    ("flag", "session", "env", "profile", "used"),
    [
        ("flag", "session", "env", "profile", "flag"),
        ("", "session", "env", "profile", "session"),
        ("", "", "env", "profile", "env"),
        ("", "", "", "profile", "profile"),
    ],
)
def test_a_setting_comes_from_the_nearest_place(
    flag: str, session: str, env: str, profile: str, used: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {
        name: scripted(tmp_path / f"{name}.py", f'script = [say("I am {name}.")]')
        for name in ("flag", "session", "env", "profile")
    }
    if env:
        monkeypatch.setenv("ASTRION_MODEL", keys[env])
    with loaded({"AstrionMagics": {"model": keys[profile]}}) as shell:
        if session:
            shell.run(f"%config AstrionMagics.model = {keys[session]!r}")
        said = f"--model {keys[flag]}" if flag else ""
        shell.run(f"%%team {said}\nWho are you?")
        assert shell.space["team"].result().text == f"I am {used}."


def test_a_setting_taken_back_lets_the_next_place_speak(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASTRION_MODEL", key)
    with loaded() as shell:
        shell.run("%config AstrionMagics.model = 'local/none'")
        with pytest.raises(ConfigError, match=r"%config AstrionMagics.model: there is no model"):
            shell.run("%%team\nx")
        shell.run("%config AstrionMagics.model = ''")
        shell.run("%%team\nx")
        assert shell.space["team"].result().text == "All is well."


@pytest.mark.parametrize(
    ("line", "setting", "env", "waits"),
    [
        ("", "", "", True),
        ("--no-wait", "True", "1", False),
        ("--wait", "False", "0", True),
        ("", "False", "1", False),
        ("", "", "0", False),
        ("", "None", "0", False),
    ],
)
def test_whether_a_cell_waits_is_said_in_the_nearest_place(
    line: str, setting: str, env: str, waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = scripted(tmp_path / "held.py", HELD if not waits else 'script = [say("Done.")]')
    if env:
        monkeypatch.setenv("ASTRION_WAIT", env)
    with loaded() as shell:
        if setting:
            shell.run(f"%config AstrionMagics.wait = {setting}")
        shell.run(f"%%team --model {held} {line}\nx")
        assert shell.space["team"].running is not waits
        if not waits:
            with pytest.raises(TeamBusy, match=r"%send leader .* --continue.* %astrion stop"):
                shell.run(f"%%team --model {held}\nagain")
            with pytest.raises(TeamBusy):
                shell.run("%%team --continue\nagain")
            shell.run("async for e in team.events():\n    if type(e).__name__ == 'AgentCreated':\n        break")
            shell.run("%send Researcher_1 go on")
            shell.run("%astrion wait")


def test_the_language_and_the_record_can_be_settings(key: str, tmp_path: Path) -> None:
    cassette = tmp_path / "run.cassette.json"
    with loaded({"AstrionMagics": {"language": "zh"}}) as shell:
        shell.run(f"%config AstrionMagics.record = {str(cassette)!r}")
        shell.run(f"%%team --model {key}\n看一看。")
        recorded = shell.space["team"].transcript
        assert "子智能体" in recorded or "智能体" in recorded
        shell.run("%config AstrionMagics.record = ''")
        shell.run(f"%config AstrionMagics.replay = {str(cassette)!r}")
        shell.run("%%team\n看一看。")
        assert shell.space["team"].origin == "replayed"
        assert shell.space["team"].result().text == "All is well."
