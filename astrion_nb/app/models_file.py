"""The file ``models.toml``: the models that a person has configured.

Reads it, checks every entry, and names file and line of what is wrong. A key never belongs in
the file, and text that looks like one is refused. What is done with the configurations is not
this module's concern.

::

    default = "qwen"

    [models.qwen]
    provider = "openai"                 # any OpenAI-compatible endpoint; the default
    model = "qwen3-max"
    base_url = "https://example.org/v1"
    api_key_env = "QWEN_API_KEY"        # the name of the variable, never the key
    fast = { temperature = 0.3 }        # body parameters of the two thinking modes
    thinking = { reasoning_effort = "high" }
    price = { input = 1.2, output = 6.0, cached = 0.3 }   # per million tokens
    context = 131072                    # tokens; requests that come near it leave earlier messages out
    join_system = true                  # the endpoint refuses a second system message
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, cast

from ..errors import ConfigError
from ..llm.endpoint import Endpoint
from ..llm.model import LOCAL
from ..llm.wire import encode
from .models import KEY_VARIABLE, OPENAI, PROVIDERS, ModelConfig, Price, Reasoning, Secret, local_config

# The shapes that providers give their keys. Text of such a shape does not belong in a file.
KEY_LIKE = re.compile(
    r"(?<![A-Za-z0-9_-])(?:(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}|gsk_[A-Za-z0-9]{20,}|xai-[A-Za-z0-9]{20,}"
    r"|hf_[A-Za-z0-9]{20,}|gh[opsu]_[A-Za-z0-9]{20,}|AIza[A-Za-z0-9_-]{30,})"
)
_KEY_FIELDS = frozenset({"apikey", "key", "token", "secret", "password", "authorization", "bearer"})
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FIELDS = (
    *("provider", "model", "base_url", "api_key_env", "structured"),
    *("context", "reasoning", "join_system", "fast", "thinking", "price"),
)


@dataclass(frozen=True, slots=True)
class ModelsFile:
    """What ``models.toml`` says.

    Parameters
    ----------
    models : mapping of str to ModelConfig
    default : str, optional
        Key to use where nothing else names one.
    """

    models: Mapping[str, ModelConfig]
    default: str | None = None


def read_models_file(path: Path, env: Mapping[str, str] | None = None) -> ModelsFile:
    """Read ``models.toml``; a missing file says nothing.

    Parameters
    ----------
    path : Path
    env : mapping, optional
        Where keys are taken from; default ``os.environ``.

    Raises
    ------
    ConfigError
        The file is not TOML, holds a literal key, or says something that cannot be meant; the file
        and, where possible, the line are named. No key is ever part of the message.
    """
    import tomllib

    env = os.environ if env is None else env
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return ModelsFile({})
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path.name} cannot be read ({error}): save it as UTF-8") from None
    if found := KEY_LIKE.search(text):
        _refuse_literal_key(path.name, text.count("\n", 0, found.start()) + 1)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path.name} is not TOML: {error}") from None
    except (ValueError, RecursionError):  # a number of thousands of digits, thousands of brackets
        raise ConfigError(f"{path.name} cannot be read: a value is too long or nested too deeply") from None
    return _Reader(path.name, text, env).read(table)


def _refuse_literal_key(file: str, line: int | None) -> NoReturn:
    place = file if line is None else f"{file}, line {line}"
    raise ConfigError(
        f"{place}: holds a literal key; put it into an environment variable, name that in api_key_env, "
        "and replace the key, since it has been in a file"
    )


class _Reader:
    """Turns the tables of one file into configurations, and names file and line when it cannot."""

    def __init__(self, file: str, text: str, env: Mapping[str, str]) -> None:
        self.file = file
        self.text = text
        self.env = env
        self.key: str | None = None  # of the table being read

    def read(self, table: Mapping[str, Any]) -> ModelsFile:
        self._refuse_literal_keys(table)
        self._refuse_unknown(table, ("default", "models"), "the file")
        tables = table.get("models", {})
        if not isinstance(tables, dict):
            self._fail("models", "has to be tables: [models.KEY]")
        models: dict[str, ModelConfig] = {}
        for key, entry in tables.items():
            self.key = key
            models[key] = self._model(key, entry)
        self.key = None
        default = table.get("default")
        if default is not None and not isinstance(default, str):
            self._fail("default", "has to be the key of a model")
        if default is not None and default not in models and local_config(default) is None:
            self._fail("default", f"{default!r} is not a model of this file; there are {_listed(models)}")
        return ModelsFile(MappingProxyType(models), default)

    def _model(self, key: str, entry: object) -> ModelConfig:
        if not key.strip() or key != key.strip() or key.startswith(LOCAL):
            self._fail(
                key, f"the key {key!r} cannot be used: it is empty, or keys that begin with {LOCAL} are built in"
            )
        if not isinstance(entry, dict):
            self._fail(key, f"models.{key} has to be a table: [models.{key}]")
        if entry and all(isinstance(value, dict) for value in entry.values()) and not set(entry) & set(_FIELDS):
            inner = next(iter(entry))
            self._fail(f"{key}.{inner}", f'put a key that holds a dot between quotes: [models."{key}.{inner}"]')
        self._refuse_unknown(entry, _FIELDS, f"the model {key!r}")
        provider = self._text(key, entry, "provider") or OPENAI
        if provider not in PROVIDERS:
            self._fail("provider", f"the provider {provider!r} of {key!r} is unknown; there are {_listed(PROVIDERS)}")
        model = self._text(key, entry, "model")
        if model is None:
            self._fail(key, f'the model {key!r} does not say its name: add model = "…"')
        base_url = self._text(key, entry, "base_url")
        if base_url is not None:
            what = f"{self.file}: the base_url of {key!r}"
            if Endpoint.parse(base_url, what).secrets:
                raise ConfigError(f"{what} holds a name, password or key: use api_key_env")
        variable = self._text(key, entry, "api_key_env")
        if variable is not None and not _VARIABLE.fullmatch(variable):
            # Perhaps it is the key itself: it is not repeated.
            self._fail("api_key_env", f"api_key_env of {key!r} has to be the name of an environment variable")
        if variable is None and base_url is None and provider == OPENAI:
            variable = KEY_VARIABLE
        reasoning = self._text(key, entry, "reasoning") or "strip"
        if reasoning not in ("echo", "strip"):
            self._fail("reasoning", f"reasoning of {key!r} is {reasoning!r}; it can be 'echo' or 'strip'")
        context = entry.get("context")
        if context is not None and (type(context) is not int or context < 1):
            self._fail("context", f"context of {key!r} has to be a number of tokens")
        structured = entry.get("structured", provider == "local")
        if not isinstance(structured, bool):
            self._fail("structured", f"structured of {key!r} has to be true or false")
        join_system = entry.get("join_system")
        if join_system is not None and not isinstance(join_system, bool):
            self._fail("join_system", f"join_system of {key!r} has to be true or false")
        secret = (self.env.get(variable) or "").strip() if variable else ""
        return ModelConfig(
            key=key,
            provider=provider,
            model=model,
            base_url=base_url,
            api_key_env=variable,
            api_key=Secret(secret) if secret else None,
            structured=structured,
            context=context,
            reasoning=cast("Reasoning", reasoning),
            join_system=join_system,
            fast=self._parameters(key, entry, "fast"),
            thinking=self._parameters(key, entry, "thinking"),
            price=self._price(key, entry),
        )

    def _price(self, key: str, entry: Mapping[str, Any]) -> Price | None:
        if "price" not in entry:
            return None
        table = self._table(key, entry, "price")
        self._refuse_unknown(table, ("input", "output", "cached"), f"the price of {key!r}")
        for name in ("input", "output", "cached"):
            value: Any = table.get(name, 0 if name == "cached" else None)
            # `not >= 0` also catches nan.
            if type(value) not in (int, float) or not value >= 0 or value == float("inf"):
                self._fail("price", f"price of {key!r} has to be {{ input = …, output = … }} per million tokens")
        return Price(**table)

    def _text(self, key: str, entry: Mapping[str, Any], name: str) -> str | None:
        value = entry.get(name)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            self._fail(name, f"{name} of {key!r} has to be text")
        return value.strip() or None

    def _table(self, key: str, entry: Mapping[str, Any], name: str) -> dict[str, Any]:
        value = entry.get(name, {})
        if not isinstance(value, dict):
            self._fail(name, f"{name} of {key!r} has to be a table: {name} = {{ … }}")
        return value

    def _parameters(self, key: str, entry: Mapping[str, Any], name: str) -> dict[str, Any]:
        table = self._table(key, entry, name)
        try:
            encode(table)
        except ConfigError:
            self._fail(name, f"{name} of {key!r} holds a value that no request can carry; use texts, numbers and lists")
        return table

    def _refuse_literal_keys(self, value: object) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                if name.lower().replace("_", "").replace("-", "") in _KEY_FIELDS and isinstance(inner, str) and inner:
                    _refuse_literal_key(self.file, self._line(name))
                self._refuse_literal_keys(inner)
        elif isinstance(value, list):
            for inner in value:
                self._refuse_literal_keys(inner)

    def _refuse_unknown(self, table: Mapping[str, Any], known: Sequence[str], what: str) -> None:
        for name in table:
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean {close[0]!r}?" if close else f"known are {_listed(known)}"
                self._fail(name, f"{what} has an unknown entry {name!r}; {hint}")

    def _line(self, name: str) -> int | None:
        """Find where a name is written, first in the table being read; ``None`` where it is written unusually."""
        lines = self.text.splitlines()
        begin, end = 0, len(lines)
        header = None if self.key is None else _find(_header(self.key), lines, 0, end)
        if header is not None:
            following = _find(re.compile(r"\s*\["), lines, header + 1, end)
            begin, end = header, end if following is None else following
        for pattern in (re.compile(rf".*(?<![\w.-]){re.escape(name)}[\"']?\s*="), _header(name)):
            for first, last in ((begin, end), (0, len(lines))):
                if (found := _find(pattern, lines, first, last)) is not None:
                    return found + 1
        return None if header is None else header + 1

    def _fail(self, name: str, message: str) -> NoReturn:
        line = self._line(name)
        raise ConfigError(f"{self.file}{'' if line is None else f', line {line}'}: {message}")


def _header(key: str) -> re.Pattern[str]:
    return re.compile(rf"\s*\[\s*models\s*\.\s*[\"']?{re.escape(key)}[\"']?\s*\]")


def _find(pattern: re.Pattern[str], lines: Sequence[str], first: int, last: int) -> int | None:
    return next((number for number in range(first, last) if pattern.match(lines[number])), None)


def _listed(names: Sequence[str] | Mapping[str, Any]) -> str:
    return ", ".join(sorted(names)) or "none"
