"""A configured model asks its endpoint with the key, the name and the parameters that were configured."""

from __future__ import annotations

import asyncio
import textwrap
from pathlib import Path

import pytest
from support.strict_server import StrictServer, text

from astrion_nb.app.config import Config, ModelConfig, build_model
from astrion_nb.errors import ConfigError
from astrion_nb.home import Home
from astrion_nb.llm.model import Finished, ModelRequest
from astrion_nb.messages import Message
from astrion_nb.testing import ScriptedModel


def ask(config: Config, key: str, request: ModelRequest) -> str:
    async def run() -> str:
        model = build_model(config.get(key), roles=lambda: ["writer"])
        try:
            async for event in model.stream(request):
                if isinstance(event, Finished):
                    return event.text
            raise AssertionError("the stream had no end")
        finally:
            await model.close()

    return asyncio.run(asyncio.wait_for(run(), 5))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.own.mkdir(parents=True)
    return home


@pytest.mark.parametrize("key", ["sk-one\nsk-two", "sk-\u200babc", "钥匙", "sk-a\x00b"])
def test_a_key_that_no_header_can_hold_is_refused_by_its_variable_and_not_shown(home: Home, key: str) -> None:
    config = Config.load(home, env={"OPENAI_API_KEY": key, "OPENAI_MODEL": "m"})
    with pytest.raises(
        ConfigError, match=r"the key in OPENAI_API_KEY .* holds a line break or another character"
    ) as error:
        build_model(config.get("openai"))
    assert key not in str(error.value)


def test_key_name_and_parameters_of_the_mode_go_out_as_configured(home: Home) -> None:
    with StrictServer() as server:
        server.enqueue(text("quick"))
        server.enqueue(text("deep"))
        home.models_file.write_text(
            f'[models.mine]\nmodel = "the-model"\nbase_url = "{server.url}"\napi_key_env = "MINE"\n'
            "fast = { temperature = 0.25 }\nthinking = { temperature = 0.75 }\n",
            encoding="utf-8",
        )
        config = Config.load(home, env={"MINE": "the-key-of-mine", "OPENAI_API_KEY": "another-key-entirely"})
        messages = [Message("system", "s"), Message("user", "u")]
        assert ask(config, "mine", ModelRequest("A", 1, messages)) == "quick"
        assert ask(config, "mine", ModelRequest("A", 1, messages, thinking_mode="thinking")) == "deep"
        assert server.violations == []
        assert [request["temperature"] for request in server.requests] == [0.25, 0.75]
        assert {request["model"] for request in server.requests} == {"the-model"}
        sent = [{name.lower(): value for name, value in headers.items()} for headers in server.headers]
        assert {headers["authorization"] for headers in sent} == {"Bearer the-key-of-mine"}


def test_the_key_of_openai_is_not_sent_to_another_endpoint(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-belongs-to-openai-0123456789")
    with StrictServer() as server:
        server.enqueue(text("hello"))
        home.models_file.write_text(f'[models.other]\nmodel = "m"\nbase_url = "{server.url}"\n', encoding="utf-8")
        config = Config.load(home)
        assert ask(config, "other", ModelRequest("A", 1, [Message("system", "s"), Message("user", "u")])) == "hello"
        assert "belongs-to-openai" not in str(server.headers)


def test_a_structured_model_asks_for_json_instead_of_tool_calls(home: Home) -> None:
    tool = {
        "type": "function",
        "function": {"name": "list_agents", "description": "d", "parameters": {"type": "object"}},
    }
    with StrictServer() as server:
        server.enqueue(text('{"say": "hello"}'))
        home.models_file.write_text(
            f'[models.weak]\nmodel = "m"\nbase_url = "{server.url}"\nstructured = true\n', encoding="utf-8"
        )
        config = Config.load(home, env={})
        request = ModelRequest("A", 1, [Message("system", "s"), Message("user", "u")], tools=[tool])
        assert ask(config, "weak", request) == "hello"
        assert "tools" not in server.requests[0]
        assert server.requests[0]["response_format"]["type"] == "json_schema"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\nscript = [", "line 2: SyntaxError: "),
        ("def f():\n    return {}['no']\n\nf()\n", "line 2: KeyError: 'no'"),
        ("import sys\nsys.exit('enough')", "line 2: SystemExit: enough"),
        ("import no_such_module", "line 1: ModuleNotFoundError: "),
        ("raise ValueError('a\\nb')", "line 1: ValueError: a b"),
        ("script = 7", "ScriptError: "),
        ("from astrion_nb.testing import say\nscript = [say(3)]", "line 2: ScriptError: say: the text is 3"),
        ("script = \0", "null bytes"),
        ("raise SystemExit", "line 1: SystemExit"),
    ],
)
def test_a_script_that_cannot_be_run_is_told_in_one_line_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "lesson.py"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        build_model(ModelConfig("scripted/lesson.py", "scripted", str(path)))
    assert str(caught.value).startswith(str(path))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_script_without_its_variable_is_told_what_to_write_and_that_works(tmp_path: Path) -> None:
    path = tmp_path / "lesson.py"
    path.write_text("steps = []\n")
    config = ModelConfig("scripted/lesson.py", "scripted", str(path))
    with pytest.raises(ConfigError, match="must define a variable named script") as caught:
        build_model(config)
    path.write_text(textwrap.dedent(str(caught.value).partition("\n")[2]))
    made = build_model(config)
    assert isinstance(made, ScriptedModel)
    assert made.unused() == {"Team Leader": 1}
