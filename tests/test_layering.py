"""The arrows between the parts of the package, read from its source.

Every import counts, wherever in a module it stands; one under ``TYPE_CHECKING`` counts as well,
unless it stays within the module's own part.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import astrion_nb

PACKAGE = Path(astrion_nb.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

VALUES = ("approval", "errors", "given", "ids", "printable", "messages", "envelope", "events", "state", "status")
ROLES = ("role", "roles", "rolefile", "prompts")
DISK = ("disk", "lock")

# Part of the package → what it may import besides the values and itself.
ARROWS: dict[str, tuple[str, ...]] = {
    "values": (),
    "disk": (),
    "home": ("disk",),
    "roles": ("home", "disk"),
    "llm": (),
    "a2n": (),
    "runtime": ("llm.model", "tools.registry", "tools.permissions", "tools.desk", "a2n"),
    "tools": ("roles",),
    "store": ("home", "disk"),
    "replay": ("llm.model", "runtime.order", "disk"),
    "render": (),
    "widgets": ("render",),
    "app": ("home", "disk", "roles", "llm", "a2n", "runtime", "tools", "store", "replay", "render"),
    "testing": ("app", "llm", "replay"),
    "notebook": ("app", "widgets", "render"),
    "__main__": ("app", "notebook"),
    "root": ("roles", "app", "llm", "runtime", "tools", "replay", "render", "testing"),
}
# Single modules that may import more than their part.
MORE: dict[str, tuple[str, ...]] = {
    "llm.local": ("home",),
    "llm.local_server": ("home",),
    "llm.local_child": ("home",),
    "llm.weights": ("home",),
    "llm.weights_fetch": ("home",),
}
# The entry points of kernel and command line: only they may name `notebook` from outside, when they are called.
ENTRY_POINTS = {"load_ipython_extension", "unload_ipython_extension", "main"}


@dataclass(frozen=True)
class Import:
    """One import of another module of the package."""

    importer: str
    target: str
    line: int
    type_checking: bool
    function: str

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.target}"


def name_of(path: Path) -> str:
    """Return a module's name below the package; the package itself is ``root``."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts) or "root"


def part_of(module: str) -> str:
    """Return the part that a module belongs to."""
    head = module.split(".")[0]
    return "values" if head in VALUES else "roles" if head in ROLES else "disk" if head in DISK else head


def imports_of(source: str, module: str, *, is_package: bool) -> list[Import]:
    """Return the imports of the package's own modules in a source."""
    here = [] if module == "root" else module.split(".")
    package = here if is_package else here[:-1]
    found: list[Import] = []

    def add(names: list[str], line: int, checking: bool, function: str) -> None:
        for name in names:
            head = name.split(".")
            if head[0] == "astrion_nb":
                found.append(Import(module, ".".join(head[1:]) or "root", line, checking, function))

    def walk(node: ast.AST, checking: bool, function: str) -> None:
        if isinstance(node, ast.Import):
            add([alias.name for alias in node.names], node.lineno, checking, function)
        elif isinstance(node, ast.ImportFrom):
            base = node.module.split(".") if node.module else []
            if node.level:
                base = ["astrion_nb", *package[: len(package) - node.level + 1], *base]
            if base[:1] == ["astrion_nb"]:
                for alias in node.names:
                    longer = [*base, alias.name]
                    place = PACKAGE.joinpath(*longer[1:])
                    module_named = place.is_dir() or place.with_suffix(".py").is_file()
                    add([".".join(longer if module_named else base)], node.lineno, checking, function)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "import_module":
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    add([argument.value], node.lineno, checking, function)
        for child in ast.iter_child_nodes(node):
            inner = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
            guarded = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and child in node.body
            walk(child, checking or guarded, inner)

    walk(ast.parse(source), False, "")
    return found


def allowed(item: Import) -> bool:
    """Say whether an import follows an arrow."""
    mine, theirs = part_of(item.importer), part_of(item.target)
    if item.target == "root":
        return mine in ("app", "notebook", "testing")  # the version, for people
    if theirs == mine:
        return True
    if item.importer in ("root", "__main__") and theirs == "notebook":
        return item.function in ENTRY_POINTS
    if mine == "a2n":
        return item.target in ("errors", "ids")
    if theirs == "values":
        return True
    granted = (*ARROWS[mine], *MORE.get(item.importer, ()))
    return any(
        item.target == grant or item.target.startswith(grant + ".") or ("." not in grant and part_of(grant) == theirs)
        for grant in granted
    )


ALL = [
    item
    for path in MODULES
    for item in imports_of(path.read_text("utf-8"), name_of(path), is_package=path.name == "__init__.py")
]


def test_every_module_belongs_to_a_part_with_known_arrows() -> None:
    unknown = {name_of(path) for path in MODULES if part_of(name_of(path)) not in ARROWS}
    assert not unknown, f"add the part to ARROWS, with what it may import: {sorted(unknown)}"


def test_imports_follow_the_arrows() -> None:
    assert [str(item) for item in ALL if not allowed(item)] == []


def test_nothing_but_the_extension_entry_points_imports_notebook() -> None:
    outside = [item for item in ALL if part_of(item.target) == "notebook" and part_of(item.importer) != "notebook"]
    assert [str(item) for item in outside if item.function not in ENTRY_POINTS] == []


def test_runtime_store_and_widgets_do_not_know_each_other() -> None:
    three = {"runtime", "store", "widgets"}
    across = [
        str(item)
        for item in ALL
        if {part_of(item.importer), part_of(item.target)} <= three and part_of(item.importer) != part_of(item.target)
    ]
    assert across == []


@pytest.mark.parametrize(
    ("module", "source", "ok"),
    [
        ("runtime.agent", "from ..store.journal import Journal", False),
        ("runtime.agent", "def f():\n    from ..store import files", False),
        ("runtime.agent", "if TYPE_CHECKING:\n    from ..store.journal import Journal", False),
        ("runtime.agent", "if TYPE_CHECKING:\n    from .team import TeamRuntime", True),
        ("runtime.agent", "from ..llm.openai import OpenAIModel", False),
        ("runtime.agent", "from ..llm import model", True),
        ("runtime.agent", "from .. import state", True),
        ("state", "import astrion_nb.runtime.bus", False),
        ("state", "import importlib\nimportlib.import_module('astrion_nb.runtime.bus')", False),
        ("tools.leader", "from .. import roles", True),
        ("tools.leader", "from ..home import Home", False),
        ("llm.openai", "from ..home import Home", False),
        ("llm.local", "from ..home import Home", True),
        ("a2n.votes", "from ..state import TeamState", False),
        ("app.team", "from ..notebook.magics import load", False),
        ("root", "from .notebook import magics", False),
        ("root", "def load_ipython_extension(shell):\n    from .notebook.magics import load", True),
        ("__main__", "from .notebook.demo import COMMAND", False),
        ("__main__", "def main():\n    from .notebook.demo import COMMAND", True),
        ("app.cli", "def main():\n    from ..notebook.demo import COMMAND", False),
        ("render.board", "import astrion_nb", False),
    ],
)
def test_the_reader_of_imports_sees(module: str, source: str, ok: bool) -> None:
    (found,) = imports_of(source, module, is_package=module == "root")
    assert allowed(found) is ok


def test_every_module_says_what_it_does() -> None:
    silent = [name_of(path) for path in MODULES if not ast.get_docstring(ast.parse(path.read_text("utf-8")))]
    assert silent == []


def test_no_module_is_longer_than_five_hundred_lines() -> None:
    lengths = {name_of(path): len(path.read_text("utf-8").splitlines()) for path in MODULES}
    assert {name: lines for name, lines in lengths.items() if lines > 500} == {}


def test_values_and_runtime_load_nothing_heavy() -> None:
    code = """if True:
        import sys
        import astrion_nb.state, astrion_nb.runtime.team, astrion_nb.tools.leader, astrion_nb.tools.member
        import astrion_nb.llm.scripted, astrion_nb.roles
        heavy = {"openai", "pydantic", "yaml", "frontmatter", "ipywidgets", "IPython", "aiohttp", "httpx", "xllamacpp"}
        print(*sorted(heavy & sys.modules.keys()))
    """
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True, cwd=PACKAGE.parent
    )
    assert done.stdout.split() == []
