"""Chromium for the tests: found, or installed where that can be done without asking.

In this order: ``ASTRION_CHROMIUM``, the ``PATH``, playwright's own download, and as root on a Debian
system the package ``chromium``, unless ``ASTRION_OFFLINE`` forbids it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from . import environment

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserType

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "microsoft-edge")
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


def launch(kind: BrowserType) -> Browser:
    """Start a headless Chromium that fetches nothing for itself."""
    return kind.launch(executable_path=chromium(kind), args=FLAGS)


def chromium(kind: BrowserType) -> str:
    """Return the path of a Chromium; skips when there is none, and fails instead under ``CI=true``."""
    named = environment.OUTER.get("ASTRION_CHROMIUM")
    if named:
        if not shutil.which(named):
            environment.missing(f"ASTRION_CHROMIUM is {named!r}, which is no program")
        return named
    found = _on_path() or _of_playwright(kind)
    if found is None and _may_install():
        _install()
        found = _on_path()
    if found is None:
        environment.missing(
            "there is no Chromium: install one (apt-get install chromium, or python -m playwright install chromium), "
            "or name it in ASTRION_CHROMIUM"
        )
    assert found is not None
    return found


def _on_path() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def _of_playwright(kind: BrowserType) -> str | None:
    """Return playwright's own Chromium, which it keeps in the person's home and not in the tests'."""
    path = Path(kind.executable_path)
    home = environment.OUTER.get("HOME") or environment.OUTER.get("USERPROFILE")
    if home and path.is_relative_to(Path.home()):
        path = Path(home) / path.relative_to(Path.home())
    return str(path) if path.is_file() else None


def _may_install() -> bool:
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    return root and shutil.which("apt-get") is not None and not environment.offline()


def _install() -> None:
    print("installing Debian's chromium and fonts-noto-cjk for the browser tests", file=sys.stderr, flush=True)
    settings = {**environment.OUTER, "DEBIAN_FRONTEND": "noninteractive"}
    packages = ["chromium", "fonts-noto-cjk"]
    for command in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        subprocess.run(
            ["apt-get", "-qq", *command],
            env=settings,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=600,
            check=False,  # what counts is whether there is a Chromium afterwards
        )
