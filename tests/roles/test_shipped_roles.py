"""The roles and base prompts that come with the package, and how roles get into the shared folder."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from astrion_nb import home as home_module
from astrion_nb import roles
from astrion_nb.errors import RoleError, StorageError
from astrion_nb.home import Home, Language, builtin_roles
from astrion_nb.prompts import Audience, base_prompt

NAMES = {
    "code-reviewer": "Code Reviewer",
    "full-stack-engineer": "Full-Stack Engineer",
    "researcher": "Researcher",
    "ui-operator": "UI Operator",
}
CJK = re.compile("[\u4e00-\u9fff]")
TOOL = re.compile("`([a-z_]+)(?:=[a-z]+)?`")
LEADER_TOOLS = {
    "create_sub_agent",
    "terminate_sub_agent",
    "send_message_to_sub_agent",
    "ask_sub_agent",
    "answer_sub_agent_question",
    "list_active_sub_agents",
    "get_sub_agent_status",
    "create_custom_agent",
    "list_agents",
}
MEMBER_TOOLS = {"ask_master", "ask_other_agent", "answer_other_agent", "answer_master", "list_active_sub_agents"}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


# --- shipped files --------------------------------------------------------------------------------------------------


@pytest.mark.spec
@pytest.mark.parametrize("lang", ["zh", "en"])
def test_the_four_roles_of_the_data_model_are_shipped_well_formed_and_without_a_model(lang: str) -> None:
    shipped = {path.stem: roles.load_file(path) for path in (builtin_roles() / lang).glob("*.md")}
    assert {role_id: role.name for role_id, role in shipped.items()} == NAMES
    for role in shipped.values():
        assert roles.validate(role) == ()
        assert role.warnings == ()
        assert role.model is None
        assert role.thinking_mode is None
        assert role.extra == {}
        assert role.preset
        assert bool(CJK.search(role.description)) == bool(CJK.search(role.prompt)) == (lang == "zh")


def test_the_shipped_files_are_what_saving_them_would_write(home: Home) -> None:
    for path in builtin_roles().glob("*/*.md"):
        saved = roles.save(roles.load_file(path), overwrite=True, home=home)
        assert saved.path is not None
        assert saved.path.read_bytes() == path.read_bytes()


@pytest.mark.spec
def test_the_chinese_member_prompt_begins_with_the_words_of_the_data_model() -> None:
    assert base_prompt("member", "zh").text.startswith("你是智能体集群团队的一员")


@pytest.mark.spec
@pytest.mark.parametrize("lang", ["zh", "en"])
@pytest.mark.parametrize(("audience", "tools"), [("leader", LEADER_TOOLS), ("member", MEMBER_TOOLS)])
def test_a_base_prompt_names_every_team_tool_that_its_reader_has_and_no_other(
    audience: Audience, tools: set[str], lang: Language
) -> None:
    named = set(TOOL.findall(base_prompt(audience, lang).text)) - {"agent_id", "expects_answer"}
    assert named == tools


@pytest.mark.spec
@pytest.mark.parametrize("lang", ["zh", "en"])
def test_the_base_prompts_show_the_envelopes_words_and_form(lang: Language) -> None:
    leader, member = base_prompt("leader", lang).text, base_prompt("member", lang).text
    for label in ("任务进度输出", "任务完成汇报", "提问", "消息"):
        assert label in leader
    for label in ("任务发布", "提问", "消息"):
        assert label in member
    assert "\n来自 Researcher_1 的任务完成汇报\nid: out_r_001\n\n<Researcher_1>\n<Output>\n" in leader
    assert "\n来自 Team Leader 的任务发布\nid: task_001\n\n<Team Leader>\n<Task>\n" in member
    assert "[系统通知" not in leader + member


def test_a_changed_base_prompt_has_a_new_version() -> None:
    # On a change of wording: raise `version:` in the file, then note version and digest here.
    noted = json.loads((Path(__file__).parents[1] / "data" / "prompts.json").read_text(encoding="utf-8"))
    for name, (version, digest) in noted.items():
        lang, file = name.split("/")
        audience, _, form = file.partition("-")
        prompt = base_prompt(audience, lang, brief=form == "brief")  # type: ignore[arg-type]
        assert (prompt.version, hashlib.sha256(prompt.text.encode()).hexdigest()[:16]) == (version, digest), name
    files = ("leader", "leader-brief", "member", "member-brief")
    assert sorted(noted) == [f"{lang}/{file}" for lang in ("en", "zh") for file in files]


@pytest.mark.spec
@pytest.mark.parametrize("lang", ["zh", "en"])
@pytest.mark.parametrize("audience", ["leader", "member"])
def test_a_brief_prompt_is_a_fraction_of_the_whole_and_promises_no_tool(lang: Language, audience: Audience) -> None:
    whole, brief = base_prompt(audience, lang).text, base_prompt(audience, lang, brief=True).text
    assert len(brief) < len(whole) / 3
    assert TOOL.findall(brief) == []
    assert bool(CJK.search(brief[:20])) == (lang == "zh")
    assert brief.startswith(
        ("你是智能体集群团队的", "You are the Team Leader of a team", "You are one member of a team")
    )


# --- into the shared folder -----------------------------------------------------------------------------------------


def test_the_first_use_copies_the_roles_of_the_language(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASTRION_LANGUAGE", "zh")
    assert roles.list_roles(home).ids == tuple(sorted(NAMES))
    for role_id in NAMES:
        copied = (home.agents / f"{role_id}.md").read_bytes()
        assert copied == (builtin_roles() / "zh" / f"{role_id}.md").read_bytes()
    assert sorted(path.name for path in home.agents.iterdir()) == [f"{role_id}.md" for role_id in sorted(NAMES)]


def test_a_users_file_is_never_replaced(home: Home) -> None:
    home.agents.mkdir(parents=True)
    mine = home.agents / "researcher.md"
    mine.write_text("---\nid: researcher\nname: Mine\ndescription: d\n---\n", encoding="utf-8")
    assert roles.ensure_builtin(home, "en") == ("code-reviewer", "full-stack-engineer", "ui-operator")
    assert roles.load("researcher", home).name == "Mine"


def test_a_deleted_role_stays_deleted_and_a_new_shipped_one_is_offered(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roles.ensure_builtin(home, "en")
    (home.agents / "researcher.md").unlink()
    assert roles.ensure_builtin(home, "en") == ()
    with pytest.raises(RoleError, match="there is no role 'researcher'"):
        roles.load("researcher", home)
    # A later version of the package ships one role more.
    package = tmp_path / "astrion_nb"
    for lang in ("zh", "en"):
        folder = package / "_builtin_roles" / lang
        folder.mkdir(parents=True)
        for role_id in (*NAMES, "new-one"):
            (folder / f"{role_id}.md").write_bytes(b"---\nname: N\n---\n")
    monkeypatch.setattr(home_module, "_PACKAGE", package)
    roles.builtin_ids.cache_clear()
    try:
        assert roles.ensure_builtin(home, "en") == ("new-one",)
        assert not (home.agents / "researcher.md").exists()
    finally:
        roles.builtin_ids.cache_clear()


def test_a_memory_with_half_a_character_in_it_is_kept_and_written(home: Home) -> None:
    home.offered_file.parent.mkdir(parents=True, exist_ok=True)
    home.offered_file.write_bytes(b'{"offered": ["\\ud800"]}')
    assert set(roles.ensure_builtin(home)) == set(NAMES)
    assert json.loads(home.offered_file.read_bytes()) == {"offered": sorted([*NAMES, "\ud800"])}
    assert roles.ensure_builtin(home) == ()


def test_a_broken_memory_of_what_was_offered_costs_no_users_file(home: Home) -> None:
    roles.ensure_builtin(home, "en")
    mine = home.agents / "researcher.md"
    mine.write_bytes(b"mine")
    (home.agents / "ui-operator.md").unlink()
    for broken in (b"", b"[1]", b'{"offered": 3}', b'{"offered": [3]}', b"\xff"):
        home.offered_file.write_bytes(broken)
        roles.ensure_builtin(home, "en")
        assert mine.read_bytes() == b"mine"
        assert json.loads(home.offered_file.read_bytes()) == {"offered": sorted(NAMES)}


def test_a_failed_copy_is_told_and_made_good_the_next_time(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes, **_: object) -> None:
        raise StorageError(f"{path.name} cannot be written (No space left on device)")

    with monkeypatch.context() as patch:
        patch.setattr(roles, "write_atomic", full)
        with pytest.raises(StorageError, match="No space left"):
            roles.list_roles(home)
    assert len(roles.list_roles(home)) == 4


ENSURE = """
import sys
from pathlib import Path
from astrion_nb import roles
from astrion_nb.home import Home
sys.stdin.readline()
print(",".join(roles.ensure_builtin(Home(Path(sys.argv[1])), "en")))
print(len(roles.list_roles(Home(Path(sys.argv[1])))))
"""


def test_processes_that_start_at_once_copy_each_role_once_and_whole(home: Home) -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-c", ENSURE, str(home.root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=30)[0].splitlines() for process in running]
    assert [process.returncode for process in running] == [0, 0, 0, 0]
    copied = [role_id for answer in answers for role_id in answer[0].split(",") if role_id]
    assert sorted(copied) == sorted(NAMES)
    assert [answer[1] for answer in answers] == ["4", "4", "4", "4"]
    assert sorted(path.name for path in home.agents.iterdir()) == [f"{role_id}.md" for role_id in sorted(NAMES)]


def test_of_two_saves_of_a_new_role_at_once_one_is_refused(home: Home) -> None:
    roles.ensure_builtin(home)
    start = threading.Barrier(4)
    outcomes: list[str] = []

    def save(number: int) -> None:
        role = roles.Role(id="new", name="New", description="d", prompt=f"prompt of {number}")
        start.wait(5)
        try:
            outcomes.append(roles.save(role, home=home).prompt)
        except RoleError:
            outcomes.append("refused")

    threads = [threading.Thread(target=save, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert outcomes.count("refused") == 3
    [written] = [outcome for outcome in outcomes if outcome != "refused"]
    assert roles.load("new", home).prompt == written
