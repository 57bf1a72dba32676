"""What the README and its neighbours say is true of this checkout."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support.environment import REPOSITORY
from support.strict_server import StrictServer, text

import astrion_nb
from astrion_nb.app.config import Config
from astrion_nb.app.models_file import read_models_file
from astrion_nb.notebook.commands import COMMANDS
from astrion_nb.notebook.magics import MAGICS
from astrion_nb.roles import builtin_ids

READMES = ["README.md", "README.zh-CN.md"]
PAGES = [*READMES, "CONTRIBUTING.md", "CHANGELOG.md"]


def page(name: str) -> str:
    return (REPOSITORY / name).read_text("utf-8")


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page(name), re.DOTALL | re.MULTILINE)


def project() -> dict[str, object]:
    table: dict[str, object] = tomllib.loads(page("pyproject.toml"))["project"]
    return table


@pytest.mark.parametrize("name", READMES)
def test_there_are_two_commands_to_set_up_each_one_line_with_an_environment_of_its_own(name: str) -> None:
    found = blocks(name, "sh")
    assert found == blocks("README.md", "sh")
    assert len(found) == 2
    for command in found:
        assert command.count("\n") == 1
        assert command.startswith("python3 -m venv .venv && .venv/bin/pip install ")
        parts = [part.strip() for part in command.split("&&")]
        assert all(part.startswith((".venv/bin/", "python3 -m venv .venv")) for part in parts)
        extras = re.search(r"'\.\[(.*)\]'", command)
        assert extras is not None
        assert set(extras[1].split(",")) <= project()["optional-dependencies"].keys()  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", PAGES)
def test_links_within_the_repository_lead_somewhere(name: str) -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", page(name)) if "://" not in link]
    assert [link for link in links if not (REPOSITORY / link).exists()] == []


@pytest.mark.parametrize("name", READMES)
def test_all_magics_and_commands_are_named_and_those_named_exist(name: str) -> None:
    table = page(name)[page(name).index("| `%%team [") : page(name).index("```python")]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `%")]
    named = [word for row in rows if "%astrion" in row for word in re.findall(r"`(?:%astrion )?([a-z]+)`", row)]
    assert sorted(named) == sorted(COMMANDS.keys() - {"board"}), "each of them in one row"
    assert {magic for row in rows for magic in re.findall(r"%{1,2}(\w+)", row)} == MAGICS.keys()


@pytest.mark.parametrize("name", PAGES)
def test_flags_of_magics_exist(name: str) -> None:
    flags = [item.arguments for item in (*MAGICS.values(), *COMMANDS.values()) if item.arguments is not None]
    fields = {field.name.rstrip("_") for arguments in flags for field in dataclasses.fields(arguments)}
    others = {"hypothesis_profile", "headless", "port", "nbval", "nbval_lax", "check", "help", "no_wait"}
    named = {flag.replace("-", "_") for flag in re.findall(r"(?<![\w-])--([a-z][a-z-]*)", page(name))}
    assert named <= fields | others


@pytest.mark.parametrize("name", READMES)
def test_the_environments_variables_are_those_that_are_read(name: str) -> None:
    source = "".join(path.read_text("utf-8") for path in sorted((REPOSITORY / "astrion_nb").rglob("*.py")))
    read = set(re.findall(r"ASTRION_[A-Z]+", source))
    read |= {f"ASTRION_{field.name.upper()}" for field in dataclasses.fields(Config)}
    named = set(re.findall(r"ASTRION_[A-Z_]+", page(name)))
    assert named - {"ASTRION_CHROMIUM"} <= read
    assert named >= {
        f"ASTRION_{word}" for word in ("HOME", "MODEL", "WAIT", "RECORD", "REPLAY", "LANGUAGE", "OFFLINE", "CACHE")
    }


@pytest.mark.parametrize("name", READMES)
def test_the_sample_of_models_toml_is_read(name: str, tmp_path: Path) -> None:
    (sample,) = blocks(name, "toml")
    (tmp_path / "models.toml").write_text(sample, "utf-8")
    found = read_models_file(tmp_path / "models.toml", {"QWEN_API_KEY": "k"})
    assert found.default == "qwen"
    price = found.models["qwen"].price
    assert price is not None
    assert price.cached == 0.3


@pytest.mark.parametrize("name", READMES)
def test_the_sample_of_a_script_runs(name: str, tmp_path: Path) -> None:
    (sample,) = blocks(name, "python")
    (tmp_path / "sample.py").write_text(sample, "utf-8")
    with StrictServer() as server:
        server.enqueue(text("Three ways: here they are."))
        server.enqueue(text("With the first."))
        endpoint = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "for-this-test", "OPENAI_MODEL": "m"}
        done = subprocess.run(
            [sys.executable, "sample.py"],
            cwd=tmp_path,
            env={**os.environ, **endpoint, "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=30,
        )
        assert server.violations == []
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "completed Three ways: here they are.\nWith the first.\n"


@pytest.mark.parametrize("name", READMES)
def test_the_piece_of_a_transcript_stands_in_the_quickstart(name: str) -> None:
    notebook = json.loads(page("notebooks/quickstart.ipynb"))
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    told = "".join("".join(output.get("data", {}).get("text/plain", "")) for output in outputs)
    (piece,) = [block for block in blocks(name, "text") if "completion report" in block]
    for paragraph in piece.strip().split("\n\n"):
        assert paragraph in told


def test_the_shipped_roles_are_counted_and_named() -> None:
    assert len(builtin_ids()) == 4
    assert all(role_id.replace("-", " ").split()[0] in page("README.md").lower() for role_id in builtin_ids())


def test_every_dependency_has_its_reason() -> None:
    (table,) = re.findall(r"^## Why each dependency.*?^## ", page("CONTRIBUTING.md"), re.DOTALL | re.MULTILINE)
    explained = set(
        re.findall(
            r"`([A-Za-z0-9-]+)(?:\[\w+\])?`",
            "\n".join(r.split("|")[1] for r in table.splitlines() if r.startswith("|")),
        )
    )
    described = project()
    extras = described["optional-dependencies"]
    assert isinstance(extras, dict)
    wanted = [*described["dependencies"], *(line for lines in extras.values() for line in lines)]  # type: ignore[misc]
    names = {re.match(r"[A-Za-z0-9-]+", str(line))[0] for line in wanted}  # type: ignore[index]
    assert names <= explained
    assert explained - names <= extras.keys()


def test_the_newest_version_in_the_changelog_is_this_one() -> None:
    newest = re.search(r"^## \[(\d[^\]]*)\]", page("CHANGELOG.md"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == astrion_nb.__version__ == project()["version"]


def test_markers_and_shared_parts_of_the_tests_are_those_there_are() -> None:
    pytest_table = tomllib.loads(page("pyproject.toml"))["tool"]["pytest"]["ini_options"]
    markers = {line.partition(":")[0] for line in pytest_table["markers"]}
    contributing = page("CONTRIBUTING.md")
    (rows,) = re.findall(r"\| Marker \|.*?\n\n", contributing, re.DOTALL)
    assert set(re.findall(r"^\| `(\w+)`", rows, re.MULTILINE)) == markers
    named = re.findall(r"^- `(\w+\.py)`", contributing, re.MULTILINE)
    assert named
    assert [name for name in named if not (REPOSITORY / "tests" / "support" / name).is_file()] == []


def test_every_promise_names_a_test_that_is_there() -> None:
    promised = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page("notebooks/promises.md"))
    assert len(promised) > 15
    for file, name in promised:
        source = page(file)
        assert not name or f"def {name}(" in source, f"{file}::{name}"
