"""The real weights that tests of the embedded model need."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from astrion_nb.llm import weights


def smollm2() -> Path:
    """Return the file, or skip with the reason; under ``CI=true`` its absence is a failure."""
    reason = ""
    path = weights.find("smollm2")
    if importlib.util.find_spec("xllamacpp") is None:
        reason = "the extra 'local' is not installed: pip install '.[local]'"
    elif path is None:
        reason = f"smollm2 is not in {weights.cache_dir()}: {weights.lookup('smollm2').command}"
    if reason and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason or path is None:
        pytest.skip(reason)
    return path
