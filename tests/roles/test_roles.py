"""Role files: read, written, listed, refused (data model §2, decision 32)."""

from __future__ import annotations

import dataclasses
import os
import shutil
import threading
from pathlib import Path

import frontmatter
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from astrion_nb import roles
from astrion_nb.errors import RoleError, RoleFileError
from astrion_nb.home import Home
from astrion_nb.roles import Role

DATA = Path(__file__).resolve().parents[1] / "data" / "roles"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.agents.mkdir(parents=True)
    return home


def place(home: Home, case: str, role_id: str) -> Path:
    """Put a case into the agents directory as the file of that id."""
    return Path(shutil.copyfile(DATA / f"{case}.md", home.agents / f"{role_id}.md"))


def put(home: Home, role_id: str, text: str) -> Path:
    path = home.agents / f"{role_id}.md"
    path.write_bytes(text.encode())
    return path


def everything_outside(home: Home) -> set[Path]:
    return {path for path in home.root.parent.rglob("*") if home.agents not in path.parents and path.is_file()}


# --- the format -----------------------------------------------------------------------------------------------------

EXAMPLE = """---
id: ui-operator
name: UI Operator
description: 负责前端设计、UI 还原、配色方案
model: qwen3-max
thinking_mode: fast
---

你是团队的前端设计专家...
"""


@pytest.mark.spec
def test_the_example_of_the_data_model_is_read_and_written_byte_for_byte(home: Home) -> None:
    path = put(home, "ui-operator", EXAMPLE)
    role = roles.load("ui-operator", home)
    assert role == Role(
        id="ui-operator",
        name="UI Operator",
        description="负责前端设计、UI 还原、配色方案",
        prompt="你是团队的前端设计专家...",
        model="qwen3-max",
        thinking_mode="fast",
    )
    assert role.warnings == ()
    assert role.path == path
    path.unlink()
    roles.save(dataclasses.replace(role), home=home)
    assert path.read_bytes() == EXAMPLE.encode()


@pytest.mark.spec
def test_the_system_prompt_is_the_base_then_the_roles_prompt() -> None:
    role = Role(id="r", name="R", description="d", prompt="  Indented.\n\nEnd.")
    assert role.system_prompt("Base.\n") == "Base.\n\n  Indented.\n\nEnd."
    assert dataclasses.replace(role, prompt=" \n").system_prompt("Base.\n") == "Base."


# --- the cases ------------------------------------------------------------------------------------------------------


def test_a_colon_in_a_description_is_refused_with_its_line(home: Home) -> None:
    place(home, "colon-in-description", "growth-planner")
    with pytest.raises(RoleFileError, match=r"growth-planner\.md, line 3: ") as caught:
        roles.load("growth-planner", home)
    assert (caught.value.file, caught.value.line) == ("growth-planner.md", 3)


def test_unquoted_escapes_with_a_colon_are_refused_with_their_line(home: Home) -> None:
    place(home, "escaped-newlines", "api-checker")
    with pytest.raises(RoleFileError) as caught:
        roles.load("api-checker", home)
    assert (caught.value.file, caught.value.line) == ("api-checker.md", 3)


def test_a_byte_order_mark_and_crlf_are_taken_off_and_lf_is_written(home: Home) -> None:
    path = place(home, "bom-crlf", "data-keeper")
    role = roles.load("data-keeper", home)
    assert role.description == "保管数据，负责一致性"
    assert role.prompt == "你负责数据一致性。"
    roles.save(role, overwrite=True, home=home)
    assert (
        path.read_bytes()
        == (
            "---\nid: data-keeper\nname: Data Keeper\ndescription: 保管数据，负责一致性\n---\n\n你负责数据一致性。\n"
        ).encode()
    )
    assert roles.load("data-keeper", home) == role


def test_a_rule_in_the_body_is_part_of_the_prompt(home: Home) -> None:
    place(home, "rule-in-body", "writer")
    role = roles.load("writer", home)
    body = (DATA / "rule-in-body.md").read_text(encoding="utf-8").split("---\n\n", 1)[1]
    assert role.prompt == body.removesuffix("\n")
    assert role.prompt.startswith("Intro\n\n---\n\nA rule")
    assert role.prompt.endswith("{braces} $dollar <tag>.")
    assert role.model is None
    assert role.thinking_mode == "fast"
    assert role.extra == {"skills": ["long-form", "tables"]}
    assert roles.save(role, overwrite=True, home=home) == role


def test_words_that_yaml_would_convert_stay_strings_through_a_round_trip(home: Home) -> None:
    path = place(home, "yes-is-an-id", "yes")
    role = roles.load("yes", home)
    assert (role.id, role.name, role.description) == ("yes", "007", "on")
    assert role.prompt == "Strings, all of them."
    assert role.warnings == ()
    again = roles.save(role, overwrite=True, home=home)
    assert again == role
    assert again.name == "007"
    # Also for readers that convert.
    assert frontmatter.load(str(path)).metadata == {"id": "yes", "name": "007", "description": "on"}


def test_a_file_without_frontmatter_is_an_error_that_names_it(home: Home) -> None:
    place(home, "no-frontmatter", "careful-reader")
    with pytest.raises(RoleFileError, match=r"careful-reader\.md, line 1: has no frontmatter"):
        roles.load("careful-reader", home)


def test_of_a_key_that_stands_twice_the_last_counts_with_a_warning_naming_both_lines(home: Home) -> None:
    place(home, "duplicate-keys", "twice")
    role = roles.load("twice", home)
    assert role.name == "Second"
    assert role.warnings == ("twice.md, line 4: 'name' stands already in line 3; the last one counts",)


def test_an_id_that_is_a_path_is_refused_and_nothing_is_written_elsewhere(home: Home) -> None:
    path = place(home, "path-id", "path-id")
    before = everything_outside(home)
    with pytest.raises(RoleFileError, match=r"path-id\.md, line 2: '\.\./\.\./etc/evil' is not a role id"):
        roles.load_file(path)
    evil = Role(id="../../etc/evil", name="Evil", description="must not become a path", prompt="Body.")
    with pytest.raises(RoleError, match="is not a role id"):
        roles.save(evil, home=home, overwrite=True)
    with pytest.raises(RoleError, match="is not a role id"):
        roles.load("../../etc/evil", home)
    assert everything_outside(home) == before
    assert [item.name for item in home.agents.iterdir()] == ["path-id.md"]


def test_a_block_that_is_never_closed_is_an_error_at_its_beginning_and_the_others_load(home: Home) -> None:
    place(home, "unclosed", "open")
    place(home, "rule-in-body", "writer")
    place(home, "yes-is-an-id", "yes")
    found = roles.list_roles(home)
    assert {"writer", "yes"} <= set(found.ids)
    assert "open" not in found.ids
    [error] = found.errors
    assert str(error).startswith("open.md, line 1: the frontmatter that begins here is never closed")
    assert found.get("writer") is not None
    assert found.get("open") is None


# --- reading --------------------------------------------------------------------------------------------------------


def test_a_missing_id_and_description_are_assumed_with_a_warning_each(home: Home) -> None:
    put(home, "lean", "---\nname: Lean\n---\nBody")
    role = roles.load("lean", home)
    assert (role.id, role.description) == ("lean", "")
    assert len(role.warnings) == 2
    assert all(warning.startswith("lean.md: has no ") for warning in role.warnings)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("---\nid: x\ndescription: d\n---\n", 1, "has no name"),
        ("---\nid: y\nname: X\ndescription: d\n---\n", 2, "the file's name says 'x'"),
        ("---\nid: x\nname: [a]\n---\n", 3, "'name' has to be text"),
        ('---\nid: x\nname: "a\\nb"\n---\n', 3, "line break"),
        ("---\n- a\n---\n", 1, "no list of 'key: value' lines"),
        ("---\nid: x\nname: X\n\tdescription: d\n---\n", 4, "cannot be read as YAML"),
        ("---\nid: x\nname: X\nn: !!int abc\n---\n", 1, "tag that does not fit"),
        ("---\nid: x\nname: X\nn: !!python/name:os.system\n---\n", 4, "cannot be read as YAML"),
        ("---\nid: x\nname: \x07\n---\n", 3, "cannot be read as YAML"),
        ("---\nid: x\nname: X\na: &a [*a]\n---\n", 1, "refers to itself"),
        ("\n\n---\nid: x\nname: a: b\n---\n", 5, "cannot be read as YAML"),
        ("---\nid: x\nname: X\ndescription: *nothing\n---\n", 4, "cannot be read as YAML"),
    ],
)
def test_a_fault_is_named_with_file_and_line(home: Home, text: str, line: int, message: str) -> None:
    put(home, "x", text)
    with pytest.raises(RoleFileError) as caught:
        roles.load("x", home)
    assert (caught.value.file, caught.value.line) == ("x.md", line)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_utf8_is_an_error_that_names_the_line(home: Home) -> None:
    (home.agents / "x.md").write_bytes("---\nid: x\nname: 名\n---\n".encode("gbk"))
    with pytest.raises(RoleFileError, match=r"x\.md, line 3: is not UTF-8"):
        roles.load("x", home)


def test_half_a_character_in_an_escape_becomes_the_replacement_character(home: Home) -> None:
    put(home, "x", '---\nid: x\nname: X\ndescription: "a\\ud800b"\n---\n')
    assert roles.load("x", home).description == "a\ufffdb"


def test_an_expanding_web_of_aliases_is_refused_quickly(home: Home) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    put(home, "x", "---\nid: x\nname: X\n" + "\n".join(lines) + "\n---\n")
    with pytest.raises(RoleFileError, match="too large"):
        roles.load("x", home)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("fast", "fast"),
        ("thinking", "thinking"),
        ("deep", "thinking"),
        ("true", "thinking"),
        ("no", "fast"),
        ("", None),
    ],
)
def test_all_forms_of_the_thinking_mode_are_understood(home: Home, written: str, expected: str | None) -> None:
    put(home, "x", f"---\nid: x\nname: X\ndescription: d\nthinking_mode: {written}\n---\n")
    role = roles.load("x", home)
    assert role.thinking_mode == expected
    assert role.warnings == ()


def test_an_unknown_thinking_mode_is_told_and_not_lost(home: Home) -> None:
    path = put(home, "x", "---\nid: x\nname: X\ndescription: d\nthinking_mode: turbo\n---\n")
    role = roles.load("x", home)
    assert role.thinking_mode is None
    assert role.warnings == ("x.md, line 5: thinking_mode 'turbo' is neither 'fast' nor 'thinking' and is not used",)
    before = path.read_bytes()
    roles.save(role, overwrite=True, home=home)
    assert path.read_bytes() == before
    roles.save(dataclasses.replace(role, thinking_mode="fast"), overwrite=True, home=home)
    assert roles.load("x", home).thinking_mode == "fast"


def test_unknown_keys_their_order_and_their_spelling_survive(home: Home) -> None:
    text = (
        "---\n"
        "name: X\n"
        "version: 1.10\n"
        "id: x\n"
        "flag: yes\n"
        "since: 2026-01-01\n"
        "handler: content\n"
        "content: handler\n"
        "empty:\n"
        "octal: 007\n"
        "limits:\n"
        "  turns: 3\n"
        "  note: '3'\n"
        "description: d\n"
        "---\n"
        "\n"
        "Body\n"
    )
    path = put(home, "x", text)
    role = roles.load("x", home)
    assert list(role.extra) == ["version", "flag", "since", "handler", "content", "empty", "octal", "limits"]
    assert role.extra["version"] == "1.10"
    roles.save(role, overwrite=True, home=home)
    assert path.read_text(encoding="utf-8") == text


def test_a_role_that_does_not_exist_is_an_error_that_names_the_known_ones(home: Home) -> None:
    place(home, "rule-in-body", "writer")
    with pytest.raises(RoleError, match=r"there is no role 'writr'; did you mean 'writer'\? known roles: .*writer"):
        roles.load("writr", home)


@pytest.mark.faults
def test_what_cannot_be_loaded_is_not_offered_as_a_known_role(home: Home) -> None:
    (home.agents / "dir.md").mkdir()
    (home.agents / "bytes.md").write_bytes(b"\xff\xfe")
    place(home, "rule-in-body", "writer")
    for role_id in ("dir", "byte", "dirr"):
        with pytest.raises(RoleError, match=f"there is no role '{role_id}'; ") as caught:
            roles.load(role_id, home)
        known = str(caught.value).partition("; ")[2]
        assert "writer" in known
        assert "dir" not in known
        assert "bytes" not in known


def test_only_markdown_files_are_roles_and_bad_file_names_are_errors(home: Home) -> None:
    (home.agents / "notes.txt").write_text("no role", encoding="utf-8")
    (home.agents / ".hidden.md").write_text("no role", encoding="utf-8")
    (home.agents / "folder.md").mkdir()
    put(home, "Big Name", "---\nname: X\ndescription: d\n---\n")
    found = roles.list_roles(home)
    assert [error.file for error in found.errors] == ["Big Name.md"]
    assert "is not a role id" in str(found.errors[0])


# --- writing --------------------------------------------------------------------------------------------------------


def test_a_save_never_replaces_a_role_unless_told(home: Home) -> None:
    role = Role(id="x", name="X", description="d", prompt="one")
    assert roles.save(role, home=home) == role
    with pytest.raises(RoleError, match=r"the role 'x' exists already"):
        roles.save(dataclasses.replace(role, prompt="two"), home=home)
    assert roles.load("x", home).prompt == "one"
    assert roles.save(dataclasses.replace(role, prompt="two"), overwrite=True, home=home).prompt == "two"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": ""}, "is not a role id"),
        ({"id": "a" * 65}, "is not a role id"),
        ({"id": "Ab"}, "is not a role id"),
        ({"id": "-a"}, "is not a role id"),
        ({"id": "a\n"}, "is not a role id"),
        ({"id": "a/b"}, "is not a role id"),
        ({"name": " "}, "no name"),
        ({"name": "a\u2028b"}, "line break"),
        ({"name": " a"}, "outer spaces"),
        ({"name": "n" * 101}, "101 characters"),
        ({"description": "\n"}, "no description"),
        ({"thinking_mode": "deep"}, "thinking_mode is 'deep'"),
        ({"model": ""}, "model key"),
        ({"extra": {"name": "Y"}}, "'name' is a field"),
        ({"extra": {"k": object()}}, "cannot be written as YAML"),
        ({"prompt": "\ud800"}, "lone surrogate"),
        ({"description": "a\udfff"}, "lone surrogate"),
    ],
)
def test_a_role_that_is_not_well_formed_is_refused_and_not_written(
    home: Home, change: dict[str, object], message: str
) -> None:
    role = dataclasses.replace(Role(id="x", name="X", description="d", prompt="p"), **change)  # type: ignore[arg-type]
    with pytest.raises(RoleError, match=message):
        roles.save(role, home=home)
    assert [path.name for path in home.agents.glob("x*")] == []


def test_names_with_symbols_and_any_script_are_fine(home: Home) -> None:
    for number, name in enumerate(("规划", "C++ & <QA>", "Größe: 5%", "'quoted'", "- dash", "null", "🙂")):
        assert roles.save(Role(id=f"n{number}", name=name, description="d"), home=home).name == name


text = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)
scalars = "yes 007 1e3 2026-01-01 null ~ = << ' \" | --- {a} [a] !x &a *a %a @a `a ? :"
spaced = ["a: b", "- a", "# a", " a", "a ", "a #b", "a\n---\nb", "\ufeffa", "a\x85b", "\xa0", "a\xa0", "\r", "a\r\nb"]
awkward = st.sampled_from([*scalars.split(" "), *spaced])
anything = st.one_of(text, awkward, st.lists(st.one_of(text, awkward), max_size=4).map("\n".join))
extras = st.dictionaries(
    anything.filter(lambda key: key not in ("id", "name", "description", "model", "thinking_mode")),
    st.recursive(anything, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(anything, inner, max_size=3)),
    max_size=3,
)


def line_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


@given(description=anything.filter(str.strip), prompt=anything, extra=extras)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_survives_writing_and_reading(home: Home, description: str, prompt: str, extra: dict) -> None:  # type: ignore[type-arg]
    role = Role(id="x", name="X", description=description, prompt=prompt, extra=extra)
    saved = roles.save(role, overwrite=True, home=home)
    assert saved == dataclasses.replace(role, prompt=line_ends(prompt))
    assert saved.warnings == ()
    # An ordinary YAML reader gets the same strings.
    path = home.agents / "x.md"
    block = path.read_bytes().decode().split("---\n", 1)[1].split("\n---\n", 1)[0]
    plain = yaml.safe_load(block)
    assert plain == {"id": "x", "name": "X", "description": description, **extra}
    # What was written is settled: writing it again changes no byte.
    before = path.read_bytes()
    roles.save(saved, overwrite=True, home=home)
    assert path.read_bytes() == before


@given(body=anything)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_body_is_read_byte_for_byte(home: Home, body: str) -> None:
    body = line_ends(body)
    put(home, "x", f"---\nid: x\nname: X\ndescription: d\n---\n\n{body}\n")
    assert roles.load("x", home).prompt == body


@given(junk=st.binary(max_size=80))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_content_breaks_reading_in_any_other_way_than_by_an_error_of_its_own(home: Home, junk: bytes) -> None:
    (home.agents / "x.md").write_bytes(b"---\nid: x\nname: X\nk: " + junk)
    try:
        roles.load("x", home)
    except RoleFileError as refused:
        error = refused
    else:
        return
    assert "\n" not in str(error)
    assert error.file == "x.md"


def test_the_public_name_list_is_the_listing(home: Home) -> None:
    assert roles.list is roles.list_roles


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_among_the_roles_is_reported_and_nobody_waits_for_it(home: Home) -> None:
    os.mkfifo(home.agents / "pipe.md")
    put(home, "lean", "---\nname: Lean\n---\nBody")
    listed: list[roles.RoleSet] = []
    reader = threading.Thread(target=lambda: listed.append(roles.list_roles(home)), daemon=True)
    reader.start()
    reader.join(5)
    assert [str(error) for error in listed[0].errors] == ["pipe.md: is not a file"]
    assert "lean" in listed[0].ids


@pytest.mark.parametrize("sign", ["\u202e", "\u2066", "\u200f", "\u061c", "\ufeff"])
def test_a_name_that_turns_the_direction_of_what_is_read_is_refused(home: Home, sign: str) -> None:
    with pytest.raises(RoleError, match="control character"):
        roles.save(Role("turned", f"{sign}redaeL maeT", "Leads.", prompt="Body"), home=home)
    put(home, "turned", f"---\nname: x{sign}y\n---\nBody")
    assert [str(error).partition(":")[0] for error in roles.list_roles(home).errors] == ["turned.md, line 2"]
    assert roles.save(Role("joined", "क्\u200dष", "Joins.", prompt="Body"), home=home).name == "क्\u200dष"
