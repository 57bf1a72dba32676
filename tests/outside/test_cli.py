"""The command line: what it prints where, and how it ends."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.local_weights import smollm2

import astrion_nb
from astrion_nb import __main__
from astrion_nb.app import cli
from astrion_nb.errors import StorageError
from astrion_nb.llm import weights


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASTRION_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


def test_without_arguments_it_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main([]) == 0
    said = capsys.readouterr()
    assert {"demo", "local"} <= set(said.out.split())
    assert said.err == ""


def test_an_unknown_command_is_named_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["remote"]) == 2
    said = capsys.readouterr()
    assert "'remote'" in said.err
    assert "demo" in said.err
    assert "local" in said.err
    assert said.out == ""


def test_the_version_is_the_installed_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["--version"]) == 0
    assert capsys.readouterr().out == f"astrion-nb {astrion_nb.__version__}\n"
    assert importlib.metadata.version("astrion-nb") == astrion_nb.__version__


def test_the_installed_script_is_the_same_command_line() -> None:
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="astrion-nb")
    assert script.load() is __main__.main


def test_the_list_says_how_to_get_what_is_not_there(empty_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["local", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(weights.pins())
    for line, pin in zip(lines[1:], weights.pins().values(), strict=True):
        assert line.split()[:2] == [pin.name, pin.key]
        assert line.endswith(pin.command)
    assert not empty_cache.exists()


@pytest.mark.local_model
def test_the_list_says_where_a_fetched_model_is(capsys: pytest.CaptureFixture[str]) -> None:
    path = smollm2()
    assert __main__.main(["local", "list"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("smollm2 ")]
    assert line.endswith(f" {path}")


@pytest.mark.local_model
def test_fetching_what_is_there_needs_no_network_and_prints_the_path_alone(capsys: pytest.CaptureFixture[str]) -> None:
    path = smollm2()
    assert __main__.main(["local", "fetch", "smollm2"]) == 0
    assert capsys.readouterr().out == f"{path}\n"


def test_offline_nothing_is_fetched_and_one_line_says_why(
    empty_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert __main__.main(["local", "fetch", "smollm2"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[-1].startswith("ConfigError: smollm2 is not in ")
    assert "ASTRION_OFFLINE" in said.err
    assert not empty_cache.exists()


def test_an_unknown_model_is_one_line_that_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["local", "fetch", "llama"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "'llama'" in line
    assert all(name in line for name in weights.pins())


@pytest.mark.parametrize(
    ("ends_with", "status", "said"),
    [
        (StorageError("the disk is full: make room"), 1, "StorageError: the disk is full: make room\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_a_command_that_ends_badly_says_so_in_one_line(
    ends_with: BaseException, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_: object) -> int:
        raise ends_with

    assert cli.main(["try"], [cli.Command("try", "", lambda _: None, run)]) == status
    assert capsys.readouterr().err == said


def test_a_reader_that_leaves_early_gets_no_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "astrion_nb", "local", "list"], stdout=writer, stderr=subprocess.PIPE, timeout=30
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_the_command_line_loads_neither_jupyter_nor_a_model_sdk() -> None:
    code = """if True:
        import sys
        from astrion_nb.__main__ import main
        main(["local", "list"])
        heavy = {"openai", "pydantic", "IPython", "ipykernel", "nbclient", "nbformat", "ipywidgets", "xllamacpp"}
        print(*sorted(heavy & sys.modules.keys()), sep=",")
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.splitlines()[-1] == ""
