"""Names of agents as a kind: five hundred names, in two hundred teams, that may hold anything (fault 17).

Blanks, ideographs, symbols, markup, quotes, marks of direction, control characters, hundreds of letters: a name is
refused in one line, or it works end to end: found in any case and in quotes, asked, written to, stored, shown.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.safe_html import read
from support.served import configure
from support.strict_server import Response, StrictServer, calls, offers, text
from support.teams import go

from astrion_nb import Team, roles
from astrion_nb.envelope import parse
from astrion_nb.errors import AgentNotFound, RoleError
from astrion_nb.events import AgentCreated, ConversationStarted
from astrion_nb.home import Home
from astrion_nb.notebook.args import target
from astrion_nb.render.transcript import bundle, export_markdown
from astrion_nb.runtime.names import find
from astrion_nb.state import TeamState, apply
from astrion_nb.testing.invariants import faults_of

pytestmark = pytest.mark.faults

few_or_many = pytest.mark.parametrize("count", [8, pytest.param(200, marks=pytest.mark.slow)])

PIECES = (
    *("UI", "Operator", "规划", "测试员", "Ñandú", "ß", "ſ", "İ", "Σς", "é", "e\u0301", "👩‍💻", "𝒳", "ﬁ", "١", "１"),
    *(
        " ",
        "  ",
        "\u00a0",
        "\u3000",
        "\u200b",
        "_",
        "_1",
        "-",
        ".",
        "..",
        "/",
        "\\",
        "../",
        "~",
        "#",
        "%",
        "@",
        "?",
        "*",
    ),
    *("'", '"', "“", "”", "`", "``", "<QA>", "</QA>", "<b>", "<!--", "-->", "<script>alert(1)</script>", "&amp;", "&"),
    *("[a](b)", "![a](b)", "|", "$x$", ": ", " #", "- ", "{", "}", "[", "]", "null", "true", "1.5", "0", "!!str", "*a"),
    *(
        "Team Leader",
        "leader",
        "human",
        "的任务发布",
        " 的",
        "来自 ",
        "id: ",
        "C:\\",
        "con",
        "\\n",
        "\\u0000",
        "{name}",
        "%s",
    ),
)
FORBIDDEN = ("\n", "\r", "\t", "\0", "\x1b[31m", "\x7f", "\x85", "\u2028", "\u202e", "\u2066", "\ufeff", "\u200f")
"""What would break a line, steer a terminal or turn what is read."""
GOOD = st.one_of(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join),
    st.text(st.characters(exclude_categories=("Cs", "Cc", "Cf", "Zl", "Zp", "Cn", "Co")), min_size=1, max_size=12),
    st.sampled_from(PIECES).map(lambda piece: (piece * 100)[:100]),
)
NAMES = st.one_of(
    GOOD,
    GOOD,
    GOOD,
    st.tuples(GOOD, st.sampled_from(FORBIDDEN), GOOD).map("".join),
    st.sampled_from(("", " ", "\u3000", "x" * 101, "规" * 300, "\t")),
)
CASES = st.sampled_from((str, str.lower, str.upper, str.title))
QUOTES = st.sampled_from(("{}", "{}", '"{}"', "'{}'", "“{}”", " {} "))


def fit(name: str) -> bool:
    """Say whether a name can stand in the first line of an envelope: a line of at most a hundred characters."""
    return 0 < len(name) <= 100 and name == name.strip() and not any(bad in name for bad in FORBIDDEN)


@pytest.mark.parametrize(
    ("text", "name", "split"),
    [
        ("i̇: ui_1 is it done?", "İ: UI_1", ("i̇: ui_1", "is it done?")),
        ('"STRASSE_1" is it done?', "Straße_1", ("STRASSE_1", "is it done?")),
        ("straße_1 is it done?", "STRASSE_1", ("straße_1", "is it done?")),
        ("ﬁx_1 is it done?", "fix_1", ("ﬁx_1", "is it done?")),
        ("ui_12 is it done?", "UI_1", ("ui_12", "is it done?")),
    ],
)
def test_a_name_is_found_before_a_text_though_its_case_changes_its_length(
    text: str, name: str, split: tuple[str, str]
) -> None:
    assert target(text, [name]) == split


@settings(max_examples=1000)
@given(st.lists(GOOD.map(str.strip).filter(fit), min_size=1, max_size=4), CASES, QUOTES, st.data())
def test_whoever_is_named_is_found_by_exactly_that_name_in_any_case_and_in_quotes(
    names: list[str], case: Any, quotes: str, data: st.DataObject
) -> None:
    state = TeamState()
    apply(state, ConversationStarted("c", "", "", "k", "fast", "model", "en", ""), seq=1, t=0.0)
    shown = list({f"{name}_1".casefold(): f"{name}_1" for name in names}.values())
    for n, name in enumerate(shown, 1):
        created = AgentCreated(n, f"r{n}", name[:-2], name, 1, "x", "k", "fast", "", 0.0, False, "")
        apply(state, created, seq=state.seq + 1, t=0.0)
    wanted = data.draw(st.sampled_from(shown))
    written = case(wanted)
    if written.casefold() != wanted.casefold():
        written = wanted  # letters that are others in that case
    assert find(state, written)[0].display_name == wanted
    quoted = quotes.format(written)
    if quoted.strip().casefold() not in (name.casefold() for name in shown):  # else it is that one's name
        assert find(state, quoted)[0].display_name == wanted
    for said in ("is it done?", '"so" he said', ""):
        assert target(f"{written} {said}", shown) == (written, said)
        if quotes[0] in "\"'“":
            who, rest = target(f"{quoted} {said}", shown)
            assert (find(state, who)[0].display_name, rest) == (wanted, said)
    with pytest.raises(AgentNotFound) as caught:
        find(state, f"{wanted}{wanted}?")
    assert not any(bad in str(caught.value) for bad in FORBIDDEN)


@pytest.fixture(scope="module")
def server() -> Iterator[StrictServer]:
    with StrictServer() as running:
        yield running


class Story:
    """What the strict server plays: a leader makes roles of the names, then agents, and talks to them by name.

    Parameters
    ----------
    names : list of str
    case : callable
        How the leader writes a name.
    """

    def __init__(self, names: list[str], case: Any, quotes: str) -> None:
        self.names = names
        self.case = case
        self.quotes = quotes
        self.refused: dict[str, str] = {}
        self.made: dict[str, str] = {}
        self.results: list[dict[str, Any]] = []
        self.step = 0

    def __call__(self, request: dict[str, Any], _: int) -> Response:
        return self._lead(request) if offers(request, "create_sub_agent") else self._work(request)

    def _written(self, shown: str) -> str:
        written = self.case(shown)
        return self.quotes.format(written if written.casefold() == shown.casefold() else shown)

    def _lead(self, request: dict[str, Any]) -> Response:
        results = [json.loads(m["content"]) for m in request["messages"] if m["role"] == "tool"]
        messages = request["messages"]
        asks = [parse(m["content"]) for m in messages if m["role"] == "user" and "\n<Ask>\n" in m["content"]]
        answered = json.dumps([m.get("tool_calls") for m in messages])
        if open_ := [ask for ask in asks if f"for {ask.id}" not in answered]:
            return calls(
                *(
                    (
                        "answer_sub_agent_question",
                        {"agent_id": self._written(ask.sender), "question_id": ask.id, "answer": f"for {ask.id}"},
                    )
                    for ask in open_
                )
            )
        self.step += 1
        if self.step == 1:
            return calls(*(self._role(n, name) for n, name in enumerate(self.names)))
        if self.step == 2:
            for n, (name, result) in enumerate(zip(self.names, results, strict=True)):
                if result["success"]:
                    self.made[f"kind-{n}"] = f"{name}_1"
                else:
                    self.refused[name] = result["error"]
            if self.made:
                wanted = (("create_sub_agent", {"agent_id": 1, "role_id": role, "task": "t"}) for role in self.made)
                return calls(*wanted)
        if self.step == 3 and self.made:
            return calls(
                *(
                    one
                    for shown in self.made.values()
                    for one in (
                        ("get_sub_agent_status", {"agent_id": self._written(shown)}),
                        ("send_message_to_sub_agent", {"agent_id": self._written(shown), "message": f"to {shown}"}),
                    )
                )
            )
        self.results = results
        return text("Ok.")

    @staticmethod
    def _role(n: int, name: str) -> tuple[str, dict[str, Any]]:
        return "create_custom_agent", {"role_id": f"kind-{n}", "name": name, "description": "d", "prompt": "Work."}

    @staticmethod
    def _work(request: dict[str, Any]) -> Response:
        if sum(m["role"] == "assistant" for m in request["messages"]) == 0:
            return calls(("ask_master", {"question": "May I?", "question_id": "q"}))
        return text("Done.")


@few_or_many
def test_a_name_is_refused_in_one_line_or_works_end_to_end(server: StrictServer, tmp_path: Path, count: int) -> None:
    home = Home(tmp_path / "home")
    configure(home.root, server)
    seen: Counter[str] = Counter()

    @settings(max_examples=count, suppress_health_check=list(HealthCheck))
    @given(st.lists(NAMES, min_size=2, max_size=4), CASES, QUOTES)
    def check(names: list[str], case: Any, quotes: str) -> None:
        assume(len({name.casefold() for name in names}) == len(names))
        story = Story(names, case, quotes)
        server.on_request = story
        begun = len(server.requests)
        for path in home.agents.glob("kind-*.md"):
            path.unlink()

        async def main() -> None:
            async with Team(home=home.root, durability="relaxed", human=False) as team:
                outcome = await team.run("Go.")
                assert outcome.status == "completed", outcome
                shown = [agent.display_name for agent in team.agents]
                assert shown == list(story.made.values())
                assert all(agent.status == "completed" for agent in team.agents)
                for name in shown:
                    assert await team.ask(name, "There?") == "Done."
                assert faults_of(team.state) == []
                assert server.violations == []
                heard = [[m.content or "" for m in a.messages if m.role == "user"] for a in team.state.members()]
                assert all(
                    any(f"to {name}\n" in each for each in said) for name, said in zip(shown, heard, strict=True)
                )
                faults, words, _ = read(bundle(team.state)["text/html"])
                assert faults == []
                assert all(_letters(name) in _letters(words) for name in shown)
                outside = re.sub(r"(?ms)^(`{3,}|~{3,}).*?^\1", "", export_markdown(team.state))
                assert not re.search(r"(?<!\\)<(script|QA|/QA|b|!--)", re.sub(r"(?s)(`+).*?\1", "", outside))
                conversation = team.conversation_id
            async with Team(home=home.root, conversation=conversation, read_only=True) as again:
                await again.open()
                assert [agent.display_name for agent in again.agents] == shown
            folder = home.conversations / conversation
            found = [str(path.relative_to(home.root)) for path in folder.rglob("*")]
            assert all(re.fullmatch(r"[A-Za-z0-9_./-]+", path) and ".." not in path for path in found), found

        go(main)
        for request in server.requests[begun:]:
            assert not any("name" in message for message in request["messages"])
        for n, name in enumerate(names):
            assert (name in story.refused) == (not fit(name)), (name, story.refused)
            path = home.agents / f"kind-{n}.md"
            if name in story.refused:
                assert not any(bad in story.refused[name] for bad in FORBIDDEN)
                assert not path.exists()
                with pytest.raises(RoleError):
                    roles.load(f"kind-{n}", home.root)
            else:
                assert roles.load(f"kind-{n}", home.root).name == name
        assert all(result["success"] for result in story.results[len(names) :])
        assert len(story.results) == len(names) + 4 * len(story.made)
        seen.update("refused" if name in story.refused else "taken" for name in names)

    check()
    assert set(seen) == {"refused", "taken"}
    assert seen.total() > 2.5 * count


def _letters(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize(
    "written", ['"Q" Tester', '"q" tester', "'\"Q\" Tester'", '“"Q" Tester”', "quoted", '"quoted"']
)
def test_a_person_who_leads_names_a_role_that_begins_with_a_quote_as_it_stands_or_in_quotes(
    server: StrictServer, tmp_path: Path, written: str
) -> None:
    home = configure(tmp_path / "home", server)
    roles.save(roles.Role(id="quoted", name='"Q" Tester', description="d", prompt="Work."), home=home)
    server.on_request = lambda request, _: text("Done.")

    async def main() -> None:
        async with Team(home=home.root, leader="human", roles=["quoted"]) as team:
            await team.send(written, "Begin.")
            await team.wait()
            assert [(agent.display_name, agent.status) for agent in team.agents] == [('"Q" Tester_1', "completed")]

    go(main)
