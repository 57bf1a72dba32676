"""Model configurations as values, and the models made from them.

Knows which providers there are and how a model of each is made. It does not know where a
configuration was read (:mod:`astrion_nb.app.models_file`), nor which model an agent gets
(:mod:`astrion_nb.app.config`). A provider's module is imported when a model of it is first made.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from ..errors import ConfigError
from ..llm.endpoint import Endpoint
from ..llm.model import LOCAL
from ..messages import Usage

if TYPE_CHECKING:
    from ..llm.model import Model

Reasoning = Literal["echo", "strip"]
RoleIds = Callable[[], Sequence[str]]
Told = Callable[[str, float], None]

SCRIPTED = "scripted/"
OPENAI = "openai"
KEY_VARIABLE = "OPENAI_API_KEY"
_SCRIPT = """    from astrion_nb.testing import call, say
    script = {"Team Leader": [say("Done.")]}"""
SHORTEST_KEY = 8
"""Characters below which a key is the placeholder of a local server; hiding it would spoil every text."""


class Secret:
    """A key that no representation shows.

    Parameters
    ----------
    value : str
        The key itself.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the key."""
        return self._value

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key is not pickled")


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs, per million tokens, in whatever currency its owner counts.

    Parameters
    ----------
    input, output : float
        Prompt and completion tokens.
    cached : float, optional
        Prompt tokens read from the provider's cache; default: the price of ``input``.
    """

    input: float
    output: float
    cached: float | None = None

    def of(self, usage: Usage) -> float:
        """Return the cost of a usage."""
        cached = self.input if self.cached is None else self.cached
        fresh = max(usage.input - usage.cached, 0)
        return (fresh * self.input + usage.cached * cached + usage.output * self.output) / 1_000_000


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model that can be named by its key.

    Parameters
    ----------
    key : str
        By which configuration, roles and tools name it.
    provider : str
        ``openai`` (any OpenAI-compatible endpoint), ``local`` or ``scripted``.
    model : str
        Its name at the endpoint; for ``local`` a name such as ``smollm2``, or the path of a GGUF file;
        for ``scripted`` the path of the script.
    base_url : str, optional
        Default: OpenAI's own endpoint. What of it nobody may see (user info, a key in its query) is taken
        out, and kept in ``address``.
    api_key_env : str, optional
        Name of the environment variable that holds the key. Default ``OPENAI_API_KEY`` for OpenAI's
        own endpoint, and none for another one, so that no key goes where it was not meant to.
    api_key : Secret, optional
        The key, when the variable is set.
    structured : bool
        Take tool calls by JSON schema instead of by the endpoint's own tool calls.
    context : int, optional
        Tokens that the model takes; those of a local model are shared by all its conversations. Where it is known,
        earlier messages are left out of requests before an endpoint has to refuse one.
    reasoning : {"strip", "echo"}
        Whether reasoning text goes back with tool calls.
    join_system : bool, optional
        Whether system messages at the beginning go out as one. Default: for a local model only.
    fast, thinking : mapping
        Body parameters of the two thinking modes.
    price : Price, optional
    address : Secret, optional
        The whole of a ``base_url`` that may not be shown.
    """

    key: str
    provider: str
    model: str
    base_url: str | None = None
    api_key_env: str | None = None
    api_key: Secret | None = None
    structured: bool = False
    context: int | None = None
    reasoning: Reasoning = "strip"
    join_system: bool | None = None
    fast: Mapping[str, Any] = field(default_factory=dict, hash=False)
    thinking: Mapping[str, Any] = field(default_factory=dict, hash=False)
    price: Price | None = None
    address: Secret | None = None

    def __post_init__(self) -> None:
        if self.base_url is not None:
            endpoint = Endpoint.parse(self.base_url, f"the base_url of {self.key!r}")
            if endpoint.secrets:
                object.__setattr__(self, "address", Secret(self.base_url))
                object.__setattr__(self, "base_url", endpoint.url)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What is hidden wherever it stands: the key, and what of the address nobody may see."""
        key = self.api_key.reveal() if self.api_key else ""
        told = () if self.address is None else Endpoint.parse(self.address.reveal(), self.key).certain
        return (*((key,) if len(key) >= SHORTEST_KEY else ()), *told)

    def cost(self, usage: Usage) -> float | None:
        """Return what a usage cost, or ``None`` when no price is known."""
        return None if self.price is None else self.price.of(usage)


def local_config(key: str) -> ModelConfig | None:
    """Return the built-in configuration for a key; ``None`` for another key.

    Built in are ``local/NAME``, ``local/PATH.gguf`` and, for lessons and recordings,
    ``scripted/PATH.py``: a Python file that defines ``script``.
    """
    if key.startswith(SCRIPTED) and key.endswith(".py"):
        return ModelConfig(key, "scripted", key.removeprefix(SCRIPTED))
    if not key.startswith(LOCAL):
        return None
    name = key.removeprefix(LOCAL)
    if name in local_names() or (name.lower().endswith(".gguf") and len(name) > len(".gguf")):
        return ModelConfig(key, "local", name, structured=True)
    return None


def local_names() -> tuple[str, ...]:
    """Return the names of the small models that can be fetched."""
    from ..llm.weights import pins

    return tuple(pins())


def build_model(config: ModelConfig, *, roles: RoleIds | None = None, told: Told | None = None) -> Model:
    """Make the model that a configuration describes. No socket is opened and no process started.

    Parameters
    ----------
    config : ModelConfig
    roles : callable, optional
        Returns the ids of the roles that can be chosen now; a model that makes tool calls by JSON
        schema offers exactly these.
    told : callable, optional
        ``told(what, seconds)`` about once a second while a model is being loaded.

    Returns
    -------
    Model
        To be closed by whoever asked for it.

    Raises
    ------
    ConfigError
        The provider is unknown, a needed environment variable is not set, or (``local``) the extra
        or the weights are missing; the message says what to do.
    """
    try:
        build = PROVIDERS[config.provider]
    except KeyError:
        known = ", ".join(sorted(PROVIDERS))
        raise ConfigError(f"the provider {config.provider!r} of {config.key!r} is unknown; there are {known}") from None
    return build(config, roles, told)


def _build_openai(config: ModelConfig, roles: RoleIds | None, told: Told | None) -> Model:
    if config.api_key_env and config.api_key is None:
        raise ConfigError(
            f"the model {config.key!r} takes its key from the environment variable {config.api_key_env}, "
            "which is not set: set it where Jupyter is started, not in a cell that is saved"
        )
    key = config.api_key.reveal() if config.api_key else ""
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(
            f"the key in {config.api_key_env or 'the environment'} for the model {config.key!r} holds a line break or "
            "another character that no key has: set it again, without what came along when it was copied"
        )
    if not config.model:
        raise ConfigError("OPENAI_BASE_URL is set and OPENAI_MODEL is not: set it to the model's name there")
    from ..llm.openai import OpenAIModel

    model = OpenAIModel(
        config.key,
        model=config.model,
        base_url=config.address.reveal() if config.address else config.base_url,
        api_key=config.api_key.reveal() if config.api_key else None,
        context=config.context,
        reasoning=config.reasoning,
        join_system=bool(config.join_system),
        fast=config.fast,
        thinking=config.thinking,
    )
    if not config.structured:
        return model
    from ..llm.structured import StructuredModel

    return StructuredModel(model, roles=roles, join_system=bool(config.join_system))


def _build_local(config: ModelConfig, roles: RoleIds | None, told: Told | None) -> Model:
    from ..llm.local import LocalModel

    return LocalModel(
        config.key,
        config.model,
        roles=roles,
        progress=None if told is None else lambda what, done, _: told(what, float(done)),
        context=config.context,
        body=dict(config.fast),
        thinking=dict(config.thinking),
        join_system=config.join_system is not False,
    )


def _build_scripted(config: ModelConfig, roles: RoleIds | None, told: Told | None) -> Model:
    import runpy

    from ..llm.scripted import ScriptedModel

    file = config.model
    if not Path(file).is_file():
        raise ConfigError(f"the model {config.key!r} reads its script from {file!r}, and there is no such file")
    try:
        script = runpy.run_path(file).get("script")
        if script is not None:
            return script if isinstance(script, ScriptedModel) else ScriptedModel(script, key=config.key)
    except (Exception, SystemExit) as error:
        words = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
        raise ConfigError(f"{_place(file, error)}: {type(error).__name__}: {words}".removesuffix(": ")) from None
    raise ConfigError(f"{file}: the module must define a variable named script, for instance\n{_SCRIPT}")


def _place(file: str, error: BaseException) -> str:
    """Return a file and the line in it that an error comes from, if any."""
    if isinstance(error, SyntaxError):
        lines = [error.lineno] if error.filename == file else []
    else:
        lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    return f"{file}, line {lines[-1]}" if lines else file


PROVIDERS: Mapping[str, Callable[[ModelConfig, RoleIds | None, Told | None], Model]] = {
    OPENAI: _build_openai,
    "local": _build_local,
    "scripted": _build_scripted,
}
