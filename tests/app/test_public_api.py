"""What `import astrion_nb` gives: names, errors, examples, types, and how little it costs."""

from __future__ import annotations

import doctest
import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from importlib.resources import files
from types import ModuleType

import pytest

import astrion_nb
from astrion_nb import errors

PUBLIC = [
    "AgentInfo",
    "AstrionError",
    "Limits",
    "QuestionInfo",
    "Role",
    "ScriptedModel",
    "Team",
    "TeamResult",
    "Tool",
    "ToolContext",
    "__version__",
    "conversations",
    "load_ipython_extension",
    "roles",
    "tool",
    "unload_ipython_extension",
]
HEAVY = [
    "IPython",
    "aiohttp",
    "anywidget",
    "asyncio",
    "frontmatter",
    "httpx",
    "httpx2",
    "ipywidgets",
    "markdown_it",
    "nest_asyncio2",
    "openai",
    "orjson",
    "pydantic",
    "pytest",
    "xllamacpp",
    "yaml",
]


def in_a_fresh_process(code: str) -> object:
    """Return what a program prints as JSON, run by an interpreter that has imported nothing yet."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def documented_tree() -> dict[str, str]:
    """Return class → parent as the tree in the docstring of ``errors`` draws them."""
    parents: dict[str, str] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"(?P<lead>[│├└─ ]*)(?P<name>[A-Z]\w+)", line.removeprefix("    "))
        if found is None or not line.startswith("    "):
            continue
        depth = len(found["lead"]) // 4
        above[depth:] = [found["name"]]
        parents[found["name"]] = above[depth - 1] if depth else "Exception"
    return parents


def modules() -> list[str]:
    """Return every module of the package that may be imported anywhere."""
    names = [item.name for item in pkgutil.walk_packages(astrion_nb.__path__, "astrion_nb.")]
    # These two run as programs.
    return [name for name in names if not name.endswith(("__main__", "local_child"))]


def test_the_exported_names_are_exactly_these_and_sorted() -> None:
    assert astrion_nb.__all__ == PUBLIC
    assert sorted(PUBLIC) == PUBLIC
    assert dir(astrion_nb) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_every_exported_name_can_be_had_and_says_what_it_is(name: str) -> None:
    value = getattr(astrion_nb, name)
    if name == "__version__":
        assert re.fullmatch(r"\d+\.\d+\.\d+", value)
        return
    assert (inspect.getdoc(value) or "").strip()
    if not isinstance(value, ModuleType):
        assert value.__module__.startswith("astrion_nb.") or value.__module__ == "astrion_nb"


def test_a_star_import_brings_the_public_names_and_nothing_else() -> None:
    space: dict[str, object] = {}
    exec("from astrion_nb import *", space)
    assert sorted(space.keys() - {"__builtins__"}) == sorted(PUBLIC)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Squad'"):
        astrion_nb.Squad  # noqa: B018
    with pytest.raises(ImportError):
        exec("from astrion_nb import Squad")


def test_the_version_is_that_of_the_distribution() -> None:
    from importlib.metadata import version

    assert astrion_nb.__version__ == version("astrion-nb")


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, json, astrion_nb; print(json.dumps(sorted(sys.modules)))"
    loaded = in_a_fresh_process(code)
    assert isinstance(loaded, list)
    assert [name for name in HEAVY if name in loaded] == []
    assert [name for name in loaded if name.startswith("astrion_nb.")] == []


def test_a_team_that_was_made_and_not_used_has_imported_no_sdk_and_no_front_end() -> None:
    code = (
        "import sys, json, astrion_nb; astrion_nb.Team(title='t'); "
        "print(json.dumps(sorted(name for name in sys.modules if '.' not in name)))"
    )
    loaded = in_a_fresh_process(code)
    assert isinstance(loaded, list)
    never = set(HEAVY) - {"asyncio", "orjson"}
    assert sorted(never & set(loaded)) == []


def test_the_error_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    classes = {
        name: value
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, Exception) and value.__module__ == errors.__name__
    }
    assert documented_tree() == {name: value.__base__.__name__ for name, value in classes.items()}
    assert len(classes) > 30


def test_every_error_shows_itself_in_one_line() -> None:
    for name in documented_tree():
        kind = getattr(errors, name)
        more = {"file": "role.md", "line": 3} if name == "RoleFileError" else {}
        shown = kind("what; where; what to do", **more)._render_traceback_()
        place = "role.md, line 3: " if more else ""
        assert shown == [f"{name}: {place}what; where; what to do"]


def test_no_error_is_defined_outside_the_tree() -> None:
    known = documented_tree()
    strays = []
    for name in modules():
        module = importlib.import_module(name)
        for value in vars(module).values():
            if inspect.isclass(value) and issubclass(value, errors.AstrionError) and value.__name__ not in known:
                strays.append(f"{name}.{value.__name__}")
    assert strays == []


def test_every_module_says_what_it_is_and_every_public_name_it_lists_exists() -> None:
    for name in modules():
        module = importlib.import_module(name)
        assert (module.__doc__ or "").strip(), name
        for listed in getattr(module, "__all__", ()):
            assert hasattr(module, listed), f"{name}.{listed}"


def test_the_examples_in_the_docstrings_are_true() -> None:
    tried = 0
    for name in ("astrion_nb", *modules()):
        outcome = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
        assert outcome.failed == 0, name
        tried += outcome.attempted
    assert tried >= 1


def test_the_package_says_that_it_is_typed() -> None:
    assert files("astrion_nb").joinpath("py.typed").is_file()
