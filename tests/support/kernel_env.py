"""The environment of kernels in tests: a model at the strict server, and a home."""

from __future__ import annotations

from pathlib import Path

from support.strict_server import StrictServer

KEY = "sk-canary-key-0123456789abcdef"


def environment(server: StrictServer, home: Path) -> dict[str, str]:
    """What a kernel is told: the server's model under the key ``openai``, and a home."""
    return {
        "OPENAI_BASE_URL": server.url,
        "OPENAI_API_KEY": KEY,
        "OPENAI_MODEL": "strict-1",
        "ASTRION_HOME": str(home),
        "ASTRION_LANGUAGE": "en",
    }
