"""The pytest plugin, run for real: pytest and nbval in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import nbformat
from support.replays import busy_model, busy_person, record
from support.teams import go

ROOT = Path(__file__).resolve().parents[2]
SHOW = (
    "import os\n"
    "from pathlib import Path\n"
    "own = Path(os.environ['ASTRION_HOME'])\n"
    "print(own.is_dir(), os.environ.get('ASTRION_OFFLINE'), *[\n"
    "    f'{name}={Path(os.environ[name]).name}'\n"
    "    for name in ('ASTRION_REPLAY', 'ASTRION_RECORD') if name in os.environ\n"
    "])"
)
HOMES = "with open(os.environ['HOMES'], 'a') as file:\n    file.write(os.environ['ASTRION_HOME'] + '\\n')"


def notebook(path: Path, *outputs: tuple[str, str]) -> None:
    """Write a notebook of cells, each with what it is expected to print."""
    book = nbformat.v4.new_notebook()
    for source, printed in outputs:
        cell = nbformat.v4.new_code_cell(source, execution_count=1)
        if printed:
            cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=printed)]
        book.cells.append(cell)
    nbformat.write(book, path)


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder; the plugin is loaded as an installed package would be."""
    installed = any(point.value == "astrion_nb.testing" for point in entry_points(group="pytest11"))
    env = {name: value for name, value in os.environ.items() if not name.startswith(("ASTRION_", "PYTEST_"))}
    env |= {"PYTHONPATH": str(ROOT), "JUPYTER_PLATFORM_DIRS": "1"} | environment
    plugin = () if installed else ("-p", "astrion_nb.testing")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, *arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60)


def test_nbval_gives_each_notebook_a_home_of_its_own_and_its_cassette(tmp_path: Path) -> None:
    data = go(lambda: record(busy_model(), busy_person)).data
    (tmp_path / "lesson.cassette.json").write_bytes(data)
    replay = (
        "from astrion_nb.testing import open_player\n"
        "player, model = open_player(os.environ['ASTRION_REPLAY'])\n"
        "print(player.facts['language'], str(player.next))"
    )
    notebook(
        tmp_path / "lesson.ipynb",
        (SHOW, "True 1 ASTRION_REPLAY=lesson.cassette.json\n"),
        (HOMES, ""),
        (replay, "en human human 1\n"),
    )
    notebook(tmp_path / "plain.ipynb", (SHOW, "True 1\n"), (HOMES, ""))
    homes = tmp_path / "homes.txt"
    done = run(tmp_path, "--nbval", "--nbval-current-env", ".", HOMES=str(homes), ASTRION_HOME="/nowhere")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout
    used = homes.read_text().splitlines()
    assert len(set(used)) == 2
    assert "/nowhere" not in used
    assert not any(Path(home).exists() for home in used)


def test_recording_under_nbval_points_at_the_notebook_s_cassette_and_brings_the_models(tmp_path: Path) -> None:
    home = tmp_path / "own"
    models = home / "mutiagents" / "astrion_nb" / "models.toml"
    models.parent.mkdir(parents=True)
    models.write_text("")
    there = "print((own / 'mutiagents' / 'astrion_nb' / 'models.toml').is_file(), str(own) == os.environ['OWN'])"
    notebook(
        tmp_path / "lesson.ipynb", (SHOW, "True None ASTRION_RECORD=lesson.cassette.json\n"), (there, "True False\n")
    )
    done = run(
        tmp_path, "--nbval", "--nbval-current-env", ".", ASTRION_RECORD="1", ASTRION_HOME=str(home), OWN=str(home)
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_tests_that_do_not_ask_for_it_see_nothing_of_the_plugin(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import os, sys\n"
        "def test_nothing_is_set_and_nothing_heavy_is_loaded():\n"
        "    assert [name for name in os.environ if name.startswith('ASTRION_')] == []\n"
        "    ours = {name for name in sys.modules if name.startswith('astrion_nb')}\n"
        "    assert ours == {'astrion_nb', 'astrion_nb.testing', 'astrion_nb.testing.plugin'}\n"
    )
    done = run(tmp_path, "-p", "no:nbval")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_marked_test_replays_its_cassette_in_a_home_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "lesson.cassette.json").write_bytes(go(lambda: record(busy_model(), busy_person)).data)
    (tmp_path / "test_lesson.py").write_text(
        "import os\n"
        "import pytest\n"
        "from astrion_nb.testing import open_player\n"
        "@pytest.mark.parametrize('again', [1, 2])\n"
        "@pytest.mark.astrion_cassette('lesson.cassette.json')\n"
        "def test_marked(again, astrion_home):\n"
        "    assert os.environ['ASTRION_HOME'] == str(astrion_home)\n"
        "    assert os.environ['ASTRION_OFFLINE'] == '1'\n"
        "    player, _ = open_player(os.environ['ASTRION_REPLAY'])\n"
        "    assert player.next == ('human', 'human', 1, player.next.at)\n"
        "@pytest.mark.astrion_cassette('none.cassette.json')\n"
        "def test_without_a_file():\n"
        "    raise AssertionError('never run')\n"
        "def test_after_it():\n"
        "    assert 'ASTRION_REPLAY' not in os.environ\n"
    )
    done = run(tmp_path, "--strict-markers", "-W", "error")
    assert "3 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "there is no cassette none.cassette.json; record it with ASTRION_RECORD=1" in done.stdout
