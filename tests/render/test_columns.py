"""One aligner for every table printed to people."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import astrion_nb
from astrion_nb.render.columns import aligned, width

CELLS = st.text(alphabet="ab 名称智ｗé.", max_size=8)


@pytest.mark.parametrize(
    ("text", "columns"), [("", 0), ("ab", 2), ("智能体", 6), ("ｗ", 2), ("e\u0301", 1), ("研究员_1", 8)]
)
def test_a_chinese_character_takes_two_columns_and_a_combining_one_none(text: str, columns: int) -> None:
    assert width(text) == columns


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n), min_size=1, max_size=6)))
def test_every_column_begins_at_the_same_place_in_every_line(rows: list[list[str]]) -> None:
    lines = aligned(rows)
    rows = [[cell.strip() for cell in row] for row in rows]
    assert len(lines) == len(rows)
    begins, place = [], 0
    for cells in zip(*rows, strict=True):
        begins.append(place)
        place += max(map(width, cells)) + 2
    for line, row in zip(lines, rows, strict=True):
        for begin, cell in zip(begins, row, strict=True):
            assert from_column(line, begin).startswith(cell), (line, cell)


def from_column(line: str, column: int) -> str:
    place = next((at for at in range(len(line) + 1) if width(line[:at]) >= column), len(line))
    return line[place:]


def test_numbers_end_below_each_other_and_a_rule_parts_the_heading() -> None:
    assert aligned([["名称", "Token"], ["a\nb", "7"]], ruled=True, right=(1,)) == [
        "名称  Token",
        "----  -----",
        "a b       7",
    ]


def test_no_other_module_pads_the_cells_of_a_table() -> None:
    package = Path(astrion_nb.__file__).parent
    padding = re.compile(r"\.[lr]just\(|:[<>]\{")
    found = [path.name for path in package.rglob("*.py") if padding.search(path.read_text("utf-8"))]
    assert found == []
