"""What is configured: settings by precedence, the models there are, and which one an agent gets.

A setting comes from the first place that has it: flag, ``%config AstrionMagics.…``, environment
``ASTRION_*``, IPython's configuration file, ``models.toml`` and defaults. This module knows no
Jupyter: whoever does passes the values of flags, session and profile in.

Source: decisions 25, 26.
"""

from __future__ import annotations

import difflib
import importlib.util
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ConfigError, NoModelError
from ..home import Home, Language, extra_command, language, parse_language
from ..llm.endpoint import Endpoint
from ..llm.model import LOCAL
from ..messages import Usage
from .models import (
    KEY_VARIABLE,
    OPENAI,
    SHORTEST_KEY,
    ModelConfig,
    Price,
    Secret,
    build_model,
    local_config,
    local_names,
)
from .models_file import ModelsFile, read_models_file

__all__ = ["Choice", "Config", "ModelConfig", "Price", "Secret", "build_model", "extra_command"]

DEFAULT_OPENAI_MODEL = "gpt-5.4-mini"

_SET_WHERE = "(for another endpoint also OPENAI_BASE_URL and OPENAI_MODEL) where Jupyter or the script is started"

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def in_call(name: str) -> str:
    """Return what a setting is called in messages that a script handed to ``Team``."""
    return f"Team({name}=…)"


@dataclass(frozen=True, slots=True)
class Choice:
    """Which model an agent gets.

    Parameters
    ----------
    key : str
    warning : str, optional
        What had to be assumed.
    """

    key: str
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that is configured, at one moment.

    Parameters
    ----------
    home : Home
    models : mapping of str to ModelConfig
        Configured models; the built-in ``local/…`` keys come on top.
    model : str, optional
        The conversation's model as asked for (``--model`` and what stands in for it).
    all_models : str, optional
        Key for every agent, whatever else is said.
    default : str, optional
        Default of ``models.toml`` or of the environment.
    wait : bool, optional
        Whether a cell waits for its team; ``None``: as the front end allows.
    record, replay : Path, optional
        Cassette to write, or to play.
    language : {"zh", "en"}
        Of base prompts, role set and interface.
    secrets : tuple of Secret
        Keys that must never be written anywhere.
    places : mapping
        Where ``model`` and ``all_models`` were said, for messages.

    Notes
    -----
    A key of a model is looked up when it is needed, not when it is read: a replay needs none.
    """

    home: Home
    models: Mapping[str, ModelConfig] = field(default_factory=dict, hash=False)
    model: str | None = None
    all_models: str | None = None
    default: str | None = None
    wait: bool | None = None
    record: Path | None = None
    replay: Path | None = None
    language: Language = "en"
    secrets: tuple[Secret, ...] = ()
    places: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def load(
        cls,
        home: Home | None = None,
        *,
        flags: Mapping[str, Any] | None = None,
        session: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        profile: Mapping[str, Any] | None = None,
        called: Callable[[str], str] = _flag,
    ) -> Config:
        """Read what is configured now.

        Parameters
        ----------
        home : Home, optional
            Default: the home of the environment.
        flags : mapping, optional
            From a magic's line or a call: ``model``, ``all_models``, ``wait``, ``record``,
            ``replay``, ``language``. ``None`` and ``""`` stand for "not said".
        session : mapping, optional
            The same names, from ``%config``.
        env : mapping, optional
            Default ``os.environ``.
        profile : mapping, optional
            The same names, from IPython's configuration file.
        called : callable
            What the caller's own ``flags`` are called in messages; default: as flags, ``--model``.

        Raises
        ------
        ConfigError
            A value or ``models.toml`` is wrong; the place is named.
        """
        home = home or Home()
        env = os.environ if env is None else env
        layers = _Layers(flags or {}, session or {}, env, profile or {}, called)
        file = read_models_file(home.models_file, env)
        if not file.models:
            file = _from_environment(env, file.default)
        record, replay = layers.paths()
        return cls(
            home=home,
            models=file.models,
            model=layers.text("model"),
            all_models=layers.text("all_models"),
            places={name: layers.place(name) for name in ("model", "all_models")} | {"default": "the default"},
            default=file.default,
            wait=layers.switch("wait"),
            record=record,
            replay=replay,
            language=layers.language(),
            secrets=_secrets(file.models.values(), env),
        )

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys that can be named, sorted; any GGUF file comes on top as ``local/PATH.gguf``."""
        return (*sorted(self.models), *(LOCAL + name for name in local_names()))

    def get(self, key: str, where: str = "the model") -> ModelConfig:
        """Return the configuration of a key that a person or a model named.

        Raises
        ------
        ConfigError
            There is no such key; the known ones are named.
        """
        found = self.find(key)
        if found is None:
            if key == OPENAI and not self.models:
                raise ConfigError(f"{where}: the model {OPENAI!r} needs a key: set {KEY_VARIABLE} {_SET_WHERE}")
            close = difflib.get_close_matches(key, self.keys, 1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise ConfigError(f"{where}: there is no model {key!r}; {hint}known models: {', '.join(self.keys)}")
        return found

    def find(self, key: str) -> ModelConfig | None:
        """Return the configuration of a key, or ``None``."""
        return self.models.get(key) or local_config(key)

    def resolve_model_key(
        self, *, tool: str | None = None, role: str | None = None, conversation: str | None = None
    ) -> Choice:
        """Choose the model of an agent: ``--all-models`` > tool > role > ``--model`` > default.

        Parameters
        ----------
        tool : str, optional
            ``model_key`` as the creating model gave it.
        role : str, optional
            ``model`` of the role file.
        conversation : str, optional
            The conversation's model when it is known already (the leader's); default: as configured.

        Raises
        ------
        ConfigError
            A person or a model named an unknown key. One in a role file only gives a warning,
            because role files are shared with applications that know other models.
        NoModelError
            Nothing is configured.

        Notes
        -----
        Decision 26.
        """
        if self.all_models:
            return Choice(self.get(self.all_models, self._place("all_models")).key)
        if tool:
            return Choice(self.get(tool, "model_key").key)
        if role and self.find(role):
            return Choice(role)
        key = self.get(conversation).key if conversation else self.conversation_key()
        if role:
            return Choice(key, f"the role asks for the model {role!r}, which is not configured; {key!r} is used")
        return Choice(key)

    def conversation_key(self) -> str:
        """Return the key of a new conversation's model: as asked for, else the default.

        With nothing configured, a small local model that has been fetched is used when the extra
        ``local`` is installed (show its :meth:`banner`). Nothing is ever downloaded here.

        Raises
        ------
        NoModelError
            Nothing is configured and no local model is there; the message names the ways on.
        ConfigError
            Several models are configured and none is the default.
        """
        for name in ("all_models", "model", "default"):
            if key := getattr(self, name):
                return self.get(key, self._place(name)).key
        if len(self.models) == 1:
            return next(iter(self.models))
        if self.models:
            raise ConfigError(
                "several models are configured and none is the default: name one (%%team --model KEY, "
                f'Team(model="KEY"), ASTRION_MODEL), or write default = "KEY" into {self.home.models_file.name}; '
                f"known models: {', '.join(sorted(self.models))}"
            )
        if fetched := _fallback():
            return fetched
        install = "" if importlib.util.find_spec("xllamacpp") else f"{extra_command('local')} and "
        raise NoModelError(
            f"no model is configured: set {KEY_VARIABLE} (for another endpoint also OPENAI_BASE_URL and OPENAI_MODEL) "
            f"or write models.toml, or try a small model on this computer: {install}"
            "python -m astrion_nb local fetch smollm2"
        )

    @property
    def by_default(self) -> bool:
        """Whether nobody has named or configured a model, so that a small one on this computer is used."""
        return not (self.all_models or self.model or self.default or self.models)

    def asked(self, name: str) -> bool:
        """Whether a setting was said for this very team, by a flag or in the call."""
        return self._place(name) in (_flag(name), in_call(name))

    def _place(self, name: str) -> str:
        return self.places.get(name, _flag(name))

    def banner(self, key: str) -> str | None:
        """Return what has to be said in view and transcript when this model works, or ``None``."""
        config = self.find(key)
        if config is None or config.provider != "local" or config.model not in local_names():
            return None
        from ..llm.local import BANNER_EN, BANNER_ZH, NO_KEY_EN, NO_KEY_ZH

        zh = self.language == "zh"
        told = NO_KEY_ZH if zh else NO_KEY_EN
        return f"{key}: {told if self.by_default else ''}{BANNER_ZH if zh else BANNER_EN}"

    def cost(self, key: str, usage: Usage) -> float | None:
        """Return what a usage of a model cost, or ``None`` when no price is known."""
        config = self.find(key)
        return None if config is None else config.cost(usage)


class _Layers:
    """Settings in the order of their precedence, each knowing what it is called."""

    def __init__(
        self,
        flags: Mapping[str, Any],
        session: Mapping[str, Any],
        env: Mapping[str, str],
        profile: Mapping[str, Any],
        called: Callable[[str], str],
    ) -> None:
        self.env = env
        self.layers: tuple[tuple[Any, Any], ...] = (
            (flags.get, called),
            (session.get, lambda name: f"%config AstrionMagics.{name}"),
            (lambda name: env.get(f"ASTRION_{name.upper()}"), lambda name: f"ASTRION_{name.upper()}"),
            (profile.get, lambda name: f"c.AstrionMagics.{name}"),
        )

    def find(self, name: str) -> tuple[Any, int]:
        for rank, (get, _) in enumerate(self.layers):
            value = get(name)
            if isinstance(value, str):
                value = value.strip()
            if value is not None and value != "":
                return value, rank
        return None, len(self.layers)

    def place(self, name: str) -> str:
        _, rank = self.find(name)
        return str(self.layers[rank][1](name)) if rank < len(self.layers) else name

    def text(self, name: str) -> str | None:
        value, _ = self.find(name)
        if value is not None and not isinstance(value, str):
            raise ConfigError(f"{self.place(name)} is {value!r}; it has to be text")
        return value

    def switch(self, name: str) -> bool | None:
        value, _ = self.find(name)
        if value is None or isinstance(value, bool):
            return value
        word = str(value).lower()
        if word in _TRUE:
            return True
        if word in _FALSE:
            return False
        raise ConfigError(f"{self.place(name)} is {value!r}; it can be 1 or 0, true or false")

    def language(self) -> Language:
        value, rank = self.find("language")
        # The environment's own order (setting, then locale) stands above nothing but the default.
        return language(self.env) if rank == len(self.layers) else parse_language(str(value), self.place("language"))

    def paths(self) -> tuple[Path | None, Path | None]:
        """Return the cassettes to record and to replay; of both, the one said in the nearer place."""
        record, record_rank = self.find("record")
        replay, replay_rank = self.find("replay")
        if record is not None and replay is not None:
            if record_rank == replay_rank:
                raise ConfigError(f"{self.place('record')} and {self.place('replay')} are both set: use one of them")
            record, replay = (record, None) if record_rank < replay_rank else (None, replay)
        return (
            None if record is None else Path(record).expanduser(),
            None if replay is None else Path(replay).expanduser(),
        )


def _from_environment(env: Mapping[str, str], default: str | None) -> ModelsFile:
    """Define the key ``openai`` by OpenAI's own variables, where they are set."""
    secret, base_url, model = (env.get(f"OPENAI_{name}", "").strip() for name in ("API_KEY", "BASE_URL", "MODEL"))
    if not secret and not base_url:
        return ModelsFile({}, default)
    if base_url:
        Endpoint.parse(base_url, "OPENAI_BASE_URL")
    config = ModelConfig(
        key=OPENAI,
        provider=OPENAI,
        # Which models another endpoint has is not ours to guess; making the model asks for the name.
        model=model or ("" if base_url else DEFAULT_OPENAI_MODEL),
        base_url=base_url or None,
        api_key_env=KEY_VARIABLE if secret else None,
        api_key=Secret(secret) if secret else None,
    )
    return ModelsFile({OPENAI: config}, default or OPENAI)


def _secrets(models: Iterable[ModelConfig], env: Mapping[str, str]) -> tuple[Secret, ...]:
    """Collect what must never be written: keys of models, and every other API key of the environment."""
    found = {word for config in models for word in config.secrets}
    others = (value.strip() for name, value in env.items() if name.upper().endswith("_API_KEY"))
    found.update(value for value in others if len(value) >= SHORTEST_KEY)
    # The longest first: one may be a part of another.
    return tuple(Secret(word) for word in sorted(found, key=lambda word: (-len(word), word)))


def _fallback() -> str | None:
    """Return the key of the largest small model that has been fetched and can be run."""
    if importlib.util.find_spec("xllamacpp") is None:
        return None
    from ..llm.weights import available, pins

    fetched = available()
    weights = [weights for name, weights in pins().items() if name in fetched]
    return max(weights, key=lambda one: one.size).key if weights else None
