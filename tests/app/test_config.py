"""Configuration: precedence, models.toml, keys that stay secret, the choice of a model."""

from __future__ import annotations

import asyncio
import base64
import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from astrion_nb.app import config as config_module
from astrion_nb.app.config import Config, build_model
from astrion_nb.app.models_file import read_models_file
from astrion_nb.errors import ConfigError, NoModelError
from astrion_nb.home import Home
from astrion_nb.messages import Usage

KEY = "sk-proj-" + "a1B2c3D4" * 4

TWO = """
default = "qwen"

[models.qwen]
model = "qwen3-max"
base_url = "https://models.example.org/v1"
api_key_env = "QWEN_API_KEY"
context = 131072
reasoning = "echo"
join_system = true
fast = { temperature = 0.3 }
thinking = { reasoning_effort = "high" }
price = { input = 2, output = 6.0, cached = 0.5 }

[models."small.one"]
provider = "openai"
model = "small"
structured = true
"""

WRONG_URLS = (
    *("example.org/v1", "ftp://host", "http://", "http://[::1", "http://127.0.0.1:abc/v1", "http://h:99999/v1"),
    *("http://a..b/v1", "http://.../v1", f"http://{'a' * 300}/v1", f"http://{'a.' * 200}b/v1", "http://a b/v1"),
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.own.mkdir(parents=True)
    return home


def load(home: Home, toml: str | None = None, env: dict[str, str] | None = None, **layers: Any) -> Config:
    if toml is not None:
        home.models_file.write_text(toml, encoding="utf-8")
    return Config.load(home, env=env or {}, **layers)


# --- models.toml ----------------------------------------------------------------------------------------------------


def test_a_models_file_is_read_as_written(home: Home) -> None:
    config = load(home, TWO, {"QWEN_API_KEY": f" {KEY}\n", "OPENAI_API_KEY": "sk-other-0123456789abcdef"})
    qwen = config.get("qwen")
    assert (qwen.provider, qwen.model, qwen.base_url) == ("openai", "qwen3-max", "https://models.example.org/v1")
    assert (qwen.context, qwen.reasoning, qwen.structured, qwen.join_system) == (131072, "echo", False, True)
    assert qwen.fast == {"temperature": 0.3}
    assert qwen.thinking == {"reasoning_effort": "high"}
    assert qwen.api_key is not None
    assert qwen.api_key.reveal() == KEY
    small = config.get("small.one")
    assert small.structured
    assert small.api_key_env == "OPENAI_API_KEY"
    assert config.conversation_key() == "qwen"
    assert set(config.models) == {"qwen", "small.one"}  # the environment defines no key beside the file's


def test_a_missing_file_says_nothing(home: Home) -> None:
    assert read_models_file(home.models_file, {}).models == {}


def test_no_key_goes_to_another_endpoint_unless_the_file_says_so(home: Home) -> None:
    config = load(home, '[models.a]\nmodel = "m"\nbase_url = "http://other/v1"\n', {"OPENAI_API_KEY": KEY})
    assert config.get("a").api_key is None
    assert config.get("a").api_key_env is None


@pytest.mark.parametrize(
    ("toml", "line", "message"),
    [
        ("default = 1", 1, "has to be the key of a model"),
        ('default = "x"\n[models.a]\nmodel = "m"', 1, "'x' is not a model of this file; there are a"),
        ('[models.a]\nmodel = "m"\nbase-url = "http://h"', 3, "unknown entry 'base-url'; did you mean 'base_url'?"),
        ("modls = 3", 1, "the file has an unknown entry 'modls'; did you mean 'models'?"),
        ("models = 3", 1, "has to be tables"),
        ('[models]\na = "m"', 2, "has to be a table: [models.a]"),
        ('[models.gpt-4.1]\nmodel = "m"', 1, 'between quotes: [models."gpt-4.1"]'),
        ("[models.a]\ncontext = 3", 1, "does not say its name"),
        (
            '[models.a]\nmodel = "m"\nprovider = "bedrock"',
            3,
            "the provider 'bedrock' of 'a' is unknown; there are local, openai",
        ),
        ('[models.a]\nmodel = "m"\ncontext = "8k"', 3, "number of tokens"),
        ('[models.a]\nmodel = "m"\ncontext = true', 3, "number of tokens"),
        ('[models.a]\nmodel = "m"\nreasoning = "keep"', 3, "it can be 'echo' or 'strip'"),
        ('[models.a]\nmodel = "m"\nstructured = "yes"', 3, "true or false"),
        ('[models.a]\nmodel = "m"\njoin_system = "yes"', 3, "true or false"),
        ('[models.a]\nmodel = "m"\nfast = 3', 3, "has to be a table"),
        ('[models.a]\nmodel = "m"\nprice = { input = 3 }', 3, "per million tokens"),
        ('[models.a]\nmodel = "m"\nprice = { input = -1, output = 1 }', 3, "per million tokens"),
        ('[models.a]\nmodel = "m"\nprice = { input = nan, output = 1 }', 3, "per million tokens"),
        ('[models.a]\nmodel = "m"\nprice = { input = 1, output = 1, cache = 1 }', 3, "did you mean 'cached'?"),
        ('[models.a]\nmodel = "m"\ncontext = 8\n[models.b]\nmodel = "m"\ncontext = "8k"', 6, "context of 'b'"),
        ('[models.a]\nmodel = "m"\n[models.b]\ncontext = 3', 3, "the model 'b' does not say its name"),
        ('[models."local/x"]\nmodel = "m"', 1, "built in"),
    ],
)
def test_a_wrong_entry_is_named_with_its_line(home: Home, toml: str, line: int, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(home, toml)
    assert str(caught.value).startswith(f"models.toml, line {line}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_text_that_is_not_toml_or_not_utf8_is_an_error_that_names_the_place(home: Home) -> None:
    with pytest.raises(ConfigError, match=r"models\.toml is not TOML: .*line 2"):
        load(home, "[models.a]\nmodel = m\n")
    home.models_file.write_bytes(b"# \xff")
    with pytest.raises(ConfigError, match=r"models\.toml cannot be read"):
        load(home)


@pytest.mark.parametrize("value", ["[" * 5000, "[" * 5000 + "]" * 5000, "1" * 5000])
def test_a_value_beyond_all_measure_is_an_error_that_names_the_file(home: Home, value: str) -> None:
    with pytest.raises(ConfigError, match=r"models\.toml cannot be read: a value is too long or nested too deeply"):
        load(home, f"x = {value}")


@pytest.mark.parametrize("value", ["9" * 30, "[" * 400 + "]" * 400])
def test_a_parameter_that_no_request_can_carry_is_named_with_its_line(home: Home, value: str) -> None:
    with pytest.raises(ConfigError, match=r"models\.toml, line 3: fast of 'a' holds a value that no request can carry"):
        load(home, f'[models.a]\nmodel = "m"\nfast = {{ seed = {value} }}\n')


def test_a_base_url_has_to_be_an_address_without_a_password(home: Home) -> None:
    for url in WRONG_URLS:
        with pytest.raises(ConfigError, match="has to be like https"):
            load(home, f'[models.a]\nmodel = "m"\nbase_url = "{url}"')
    with pytest.raises(ConfigError, match="holds a name, password or key") as caught:
        load(home, '[models.a]\nmodel = "m"\nbase_url = "https://me:hunter2@host/v1"')
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", WRONG_URLS)
def test_a_wrong_base_url_of_the_environment_is_refused_like_one_in_the_file(home: Home, url: str) -> None:
    with pytest.raises(ConfigError, match=r"^OPENAI_BASE_URL is .* it has to be like https"):
        load(home, env={"OPENAI_BASE_URL": url, "OPENAI_MODEL": "m"})


@pytest.mark.parametrize(
    "url",
    ["http://[::1]:8080/v1", "http://例子.测试/v1", "https://h.example./v1/", "http://my_host:1/v1?api-version=1"],
)
def test_an_unusual_base_url_is_taken(home: Home, url: str) -> None:
    assert load(home, env={"OPENAI_BASE_URL": url, "OPENAI_MODEL": "m"}).get("openai").base_url == url


# --- secrets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("toml", "line"),
    [
        ('[models.a]\nmodel = "m"\napi_key = "anything"', 3),
        ('[models.a]\nmodel = "m"\nfast = { "Api-Key" = "anything" }', 3),
        ('[models.a]\nmodel = "m"\nfast = { headers = [{ Authorization = "Bearer x" }] }', 3),
        (f'[models.a]\nmodel = "m"\napi_key_env = "{KEY}"', 3),
        (f'# {KEY}\n[models.a]\nmodel = "m"', 1),
        (f'[models.a]\nmodel = "m"\nbase_url = "https://h/v1?k={KEY}"', 3),
        ('[models.a]\nmodel = "m"\nfast = { user = "gsk_0123456789abcdefghijkl" }', 3),
    ],
)
def test_a_literal_key_in_the_file_is_refused_by_place_and_never_repeated(home: Home, toml: str, line: int) -> None:
    with pytest.raises(ConfigError) as caught:
        load(home, toml)
    assert str(caught.value).startswith(f"models.toml, line {line}: holds a literal key")
    for secret in (KEY, "anything", "Bearer", "gsk_"):
        assert secret not in str(caught.value)


def test_a_key_pasted_in_place_of_its_variables_name_is_not_repeated(home: Home) -> None:
    with pytest.raises(ConfigError, match=r"models\.toml, line 3: .*name of an environment variable") as caught:
        load(home, '[models.a]\nmodel = "m"\napi_key_env = "9f8e7d6c-very-secret"')
    assert "very-secret" not in str(caught.value)


def test_names_that_only_resemble_keys_are_fine(home: Home) -> None:
    toml = (
        '[models.task-sk]\nmodel = "risk-averse-model-of-great-length"\n[models.gpt-4o-mini-2024-07-18]\nmodel = "m"\n'
    )
    assert len(load(home, toml).models) == 2


def test_no_representation_shows_a_key(home: Home) -> None:
    config = load(home, TWO, {"QWEN_API_KEY": KEY, "SOME_API_KEY": "another-secret-value"})
    shown = (
        f"{config!r} {config} {config.get('qwen')!r} {config.models} {config.secrets} {copy.deepcopy(config.secrets)}"
    )
    assert KEY not in shown
    assert "another-secret-value" not in shown
    assert KEY not in repr(build_model(config.get("qwen")))
    with pytest.raises(TypeError):
        pickle.dumps(config.get("qwen"))


# --- settings -------------------------------------------------------------------------------------------------------


def test_what_a_base_url_holds_beside_the_address_is_shown_by_nothing_and_known_as_secret(home: Home) -> None:
    user, password = "canaryuser", "canaryp@ss/w0rd%1"
    written = quote(password, safe="")
    env = {"OPENAI_BASE_URL": f"http://{user}:{written}@host.example/v1?x=1&key=canaryquery", "OPENAI_MODEL": "m"}
    config = load(home, env=env)
    found = config.get("openai")
    assert found.base_url == "http://host.example/v1"
    for said in (repr(found), repr(config), repr(config.models), str(found), repr(build_model(found))):
        assert "canary" not in said
    secrets = {item.reveal() for item in config.secrets}
    token = base64.b64encode(f"{user}:{password}".encode()).decode()
    assert {password, written, token, user, "canaryquery"} <= secrets
    assert replace(found).secrets == found.secrets


def test_a_placeholder_or_a_plain_name_is_no_secret_that_spoils_every_text(home: Home) -> None:
    env = {"OPENAI_BASE_URL": "http://user:correct-horse@h/v1", "OPENAI_API_KEY": "ollama", "X_API_KEY": "none"}
    assert [item.reveal() for item in load(home, env=env).secrets] == ["dXNlcjpjb3JyZWN0LWhvcnNl", "correct-horse"]


def test_a_setting_comes_from_the_nearest_place_that_has_it(home: Home) -> None:
    env = {"ASTRION_MODEL": "from-env", "ASTRION_WAIT": "0"}
    layers: dict[str, Any] = {"profile": {"model": "from-profile", "wait": True, "language": "zh"}}
    assert (load(home, env={}, **layers).model, load(home, env={}, **layers).wait) == ("from-profile", True)
    assert (load(home, env=env, **layers).model, load(home, env=env, **layers).wait) == ("from-env", False)
    layers["session"] = {"model": "from-session", "wait": None}
    assert (load(home, env=env, **layers).model, load(home, env=env, **layers).wait) == ("from-session", False)
    layers["flags"] = {"model": "from-flag", "wait": True, "language": ""}
    config = load(home, env=env, **layers)
    assert (config.model, config.wait, config.language) == ("from-flag", True, "zh")


def test_without_any_setting_nothing_is_assumed(home: Home) -> None:
    config = load(home)
    assert (config.model, config.all_models, config.default, config.wait) == (None, None, None, None)
    assert (config.record, config.replay, config.language) == (None, None, "en")


def test_the_environments_settings_are_understood(home: Home) -> None:
    env = {"ASTRION_WAIT": "Yes", "ASTRION_RECORD": "~/a.json", "ASTRION_LANGUAGE": "zh"}
    config = load(home, env=env)
    assert config.wait is True
    assert config.record == Path("~/a.json").expanduser()
    assert config.language == "zh"


@pytest.mark.parametrize(
    ("env", "flags", "message"),
    [
        ({"ASTRION_WAIT": "maybe"}, {}, "ASTRION_WAIT is 'maybe'"),
        ({"ASTRION_LANGUAGE": "fr"}, {}, "ASTRION_LANGUAGE is 'fr'"),
        ({}, {"language": "fr"}, "--language is 'fr'"),
        ({}, {"all_models": 3}, "--all-models is 3"),
        ({"ASTRION_RECORD": "a", "ASTRION_REPLAY": "b"}, {}, "ASTRION_RECORD and ASTRION_REPLAY are both set"),
    ],
)
def test_a_wrong_setting_is_named_by_its_place(
    home: Home, env: dict[str, str], flags: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load(home, env=env, flags=flags)


def test_of_record_and_replay_the_nearer_place_counts(home: Home) -> None:
    config = load(home, env={"ASTRION_REPLAY": "played.json"}, flags={"record": "new.json"})
    assert (config.record, config.replay) == (Path("new.json"), None)
    config = load(home, env={"ASTRION_REPLAY": "played.json"}, profile={"record": "new.json"})
    assert (config.record, config.replay) == (None, Path("played.json"))


# --- the choice of a model ------------------------------------------------------------------------------------------


def test_the_model_of_an_agent_is_chosen_by_precedence(home: Home) -> None:
    models = "".join(f'[models.{name}]\nmodel = "m"\n' for name in ("all", "tool", "role", "flag", "leader", "default"))
    toml = f'default = "default"\n{models}'
    config = load(home, toml, flags={"model": "flag", "all_models": "all"})
    assert config.resolve_model_key(tool="tool", role="role").key == "all"
    config = load(home, toml, flags={"model": "flag"})
    assert config.resolve_model_key(tool="tool", role="role").key == "tool"
    assert config.resolve_model_key(role="role").key == "role"
    assert config.resolve_model_key(conversation="leader").key == "leader"
    assert config.resolve_model_key().key == "flag"
    assert load(home, toml).resolve_model_key().key == "default"


def test_an_unknown_key_is_an_error_when_a_person_or_model_names_it_and_a_warning_in_a_role(home: Home) -> None:
    config = load(home, TWO)
    with pytest.raises(
        ConfigError, match=r"model_key: there is no model 'qwem'; did you mean 'qwen'\? known models: .*qwen"
    ):
        config.resolve_model_key(tool="qwem", role="sonnet")
    choice = config.resolve_model_key(role="sonnet", conversation="small.one")
    assert choice.key == "small.one"
    assert choice.warning == "the role asks for the model 'sonnet', which is not configured; 'small.one' is used"
    assert config.resolve_model_key(role="qwen").warning is None
    for flags in ({"model": "nope"}, {"all_models": "nope"}):
        [place] = flags
        with pytest.raises(ConfigError, match=f"--{place.replace('_', '-')}: there is no model 'nope'; known models"):
            load(home, TWO, flags=flags).resolve_model_key()
    with pytest.raises(ConfigError, match="ASTRION_MODEL: there is no model 'nope'"):
        load(home, TWO, {"ASTRION_MODEL": "nope"}).conversation_key()


def test_a_single_model_is_the_default_and_several_without_one_are_an_error(home: Home) -> None:
    assert load(home, '[models.only]\nmodel = "m"').conversation_key() == "only"
    config = load(home, '[models.a]\nmodel = "m"\n[models.b]\nmodel = "m"')
    with pytest.raises(ConfigError, match=r"none is the default: .* known models: a, b"):
        config.conversation_key()


def test_openais_variables_define_the_key_openai(home: Home) -> None:
    config = load(home, env={"OPENAI_API_KEY": KEY})
    assert config.conversation_key() == "openai"
    assert config.get("openai").base_url is None
    assert config.get("openai").model
    env = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "OPENAI_MODEL": "m"}
    openai = load(home, env=env).get("openai")
    assert (openai.base_url, openai.model) == ("http://127.0.0.1:1/v1", "m")
    without_key = load(home, env={"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "OPENAI_MODEL": "m"}).get("openai")
    assert without_key.api_key is None
    assert build_model(without_key).key == "openai"
    nameless = load(home, env={"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"})
    with pytest.raises(ConfigError, match="OPENAI_MODEL"):
        build_model(nameless.get(nameless.conversation_key()))


@pytest.mark.parametrize("flags", [{"model": "openai"}, {"all_models": "openai"}])
def test_the_model_openai_without_its_key_says_what_to_set(home: Home, flags: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"^--(all-)?model(s)?: the model 'openai' needs a key: set OPENAI_API_KEY"):
        load(home, flags=flags).conversation_key()
    with pytest.raises(ConfigError, match=r"^ASTRION_MODEL: the model 'openai' needs a key: set OPENAI_API_KEY"):
        load(home, env={"ASTRION_MODEL": "openai"}).conversation_key()
    with pytest.raises(ConfigError, match=r"there is no model 'openai'.* known models: "):
        load(home, TWO, flags=flags).conversation_key()


def test_the_built_in_local_models_are_always_known(home: Home) -> None:
    config = load(home, TWO)
    assert {"local/smollm2", "local/qwen-1.5b"} <= set(config.keys)
    local = config.get("local/smollm2")
    assert (local.provider, local.model, local.structured) == ("local", "smollm2", True)
    assert config.get("local//models/my.gguf").model == "/models/my.gguf"
    assert config.resolve_model_key(role="local/smollm2").key == "local/smollm2"
    for unknown in ("local/", "local/gpt", "local/.gguf", "smollm2"):
        with pytest.raises(ConfigError, match="there is no model"):
            config.get(unknown)
    assert load(home, 'default = "local/smollm2"').conversation_key() == "local/smollm2"


def test_with_nothing_configured_the_error_names_both_ways_on(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASTRION_CACHE", str(home.root / "no-cache"))
    config = load(home)
    with pytest.raises(NoModelError) as caught:
        config.conversation_key()
    for way in ("OPENAI_API_KEY", "models.toml", "python -m astrion_nb local fetch smollm2"):
        assert way in str(caught.value)
    monkeypatch.setattr(config_module.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(NoModelError, match=r"pip install 'xllamacpp==.*' and python -m astrion_nb local fetch"):
        config.conversation_key()


def test_with_nothing_configured_a_fetched_model_is_used_only_where_the_extra_is(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    from astrion_nb.llm import weights

    both = {"smollm2": Path("a"), "qwen-1.5b": Path("b")}
    monkeypatch.setattr(weights, "available", lambda: both)
    monkeypatch.setattr(config_module.importlib.util, "find_spec", lambda _: object())
    config = load(home)
    assert config.conversation_key() == "local/qwen-1.5b"  # the one that shows something believable
    del both["qwen-1.5b"]
    assert config.conversation_key() == "local/smollm2"
    assert load(home, env={"OPENAI_API_KEY": KEY}).conversation_key() == "openai"
    monkeypatch.setattr(config_module.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(NoModelError):
        config.conversation_key()


def test_a_small_model_is_announced_in_the_language_of_the_interface(home: Home) -> None:
    chinese, english = load(home, env={"ASTRION_LANGUAGE": "zh"}), load(home, TWO)
    assert "small model" in (english.banner("local/smollm2") or "")
    assert "小模型" in (chinese.banner("local/smollm2") or "")
    # Who named a model knows why it answers.
    assert "is not set" not in (english.banner("local/smollm2") or "")
    assert "没有设置 OPENAI_API_KEY" in (chinese.banner("local/smollm2") or "")
    assert "OPENAI_API_KEY is not set" in (load(home, "").banner("local/smollm2") or "")
    assert english.banner("qwen") is None
    assert english.banner("local/my.gguf") is None


# --- cost -----------------------------------------------------------------------------------------------------------


def test_cost_counts_fresh_cached_and_output_tokens_by_their_prices(home: Home) -> None:
    config = load(home, TWO)
    usage = Usage(input=1_000_000, output=500_000, cached=400_000)
    assert config.cost("qwen", usage) == pytest.approx(0.6 * 2 + 0.4 * 0.5 + 0.5 * 6)
    assert config.cost("small.one", usage) is None
    assert config.cost("gone", usage) is None
    plain = load(home, '[models.a]\nmodel = "m"\nprice = { input = 2, output = 6 }')
    assert plain.cost("a", usage) == pytest.approx(2 + 3)


# --- from configuration to model ------------------------------------------------------------------------------------


def test_a_model_is_made_as_configured(home: Home) -> None:
    config = load(home, TWO, {"QWEN_API_KEY": KEY, "OPENAI_API_KEY": KEY})
    model = build_model(config.get("qwen"))
    assert (model.key, model.endpoint) == ("qwen", "https://models.example.org/v1")
    structured = build_model(config.get("small.one"), roles=lambda: ["writer"])
    assert structured.key == "small.one"
    assert type(structured).__name__ == "StructuredModel"
    asyncio.run(model.close())
    asyncio.run(structured.close())


def test_a_needed_variable_that_is_not_set_is_named(home: Home) -> None:
    config = load(home, TWO)
    with pytest.raises(ConfigError, match=r"'qwen' takes its key from the environment variable QWEN_API_KEY"):
        build_model(config.get("qwen"))


def test_a_local_model_that_is_not_there_says_what_to_run(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASTRION_CACHE", str(home.root / "no-cache"))
    with pytest.raises(ConfigError, match="local fetch smollm2"):
        build_model(load(home).get("local/smollm2"))
