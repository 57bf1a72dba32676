"""A cell of the benchmark: how much work, at which pace, and what its answers must be.

Pure values shared by the server, the clients and the table; knows no socket, no clock, no subject.
The name of a cell is its script in the server's URL: ``N100K3T50L200R100``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

WORDS = (
    "lorem",
    "ipsum",
    "dolor",
    "sit",
    "amet",
    "consectetur",
    "adipiscing",
    "elit",
    "sed",
    "do",
    "eiusmod",
    "tempor",
)
HAN = ("我们", "先看", "清楚", "问题", "再来", "一起", "动手", "写出", "结果", "并且", "互相", "检查")
_NAME = re.compile(r"N(\d+)K(\d+)T(\d+)L(\d+)R(\d+)(M?)")


@dataclass(frozen=True, slots=True)
class Cell:
    """One amount of work: a leader, its fan-out, its summary.

    Parameters
    ----------
    n : int
        Tool calls in the leader's first answer: the workers.
    k : int
        Tool turns of each worker before it answers.
    t : int
        Text tokens of a final answer, of a worker and of the leader.
    lat : int
        Milliseconds before the first byte of each answer; 0 for at once.
    rate : int
        Text tokens per second after that; 0 for all at once.
    mixed : bool
        Every second token is Chinese, which is half of the bytes.
    """

    n: int
    k: int
    t: int
    lat: int = 0
    rate: int = 0
    mixed: bool = False

    @classmethod
    def parse(cls, name: str) -> Cell:
        """Read the name of a cell, wherever it stands in ``name``.

        Raises
        ------
        ValueError
            There is none in it.
        """
        found = _NAME.search(name)
        if found is None:
            raise ValueError(f"{name!r} holds no cell; one looks like N100K3T50L200R100")
        n, k, t, lat, rate = (int(part) for part in found.groups()[:5])
        return cls(n, k, t, lat, rate, bool(found.group(6)))

    def __str__(self) -> str:
        return f"N{self.n}K{self.k}T{self.t}L{self.lat}R{self.rate}{'M' if self.mixed else ''}"

    @property
    def turns(self) -> int:
        """Model turns of the work, the divisor of both sides: what a subject adds counts as its cost."""
        return self.n * (self.k + 1) + 2

    @property
    def tokens(self) -> int:
        """Text tokens of the work: one answer of each worker and one of the leader."""
        return (self.n + 1) * self.t

    @property
    def critical_path(self) -> float:
        """Seconds that nobody can go below.

        The leader's fan-out, then the slower of its answer to the tool results and a worker's chain, then one
        turn of the leader after the last completion.
        """
        first = self.lat / 1e3
        answer = first + (self.t / self.rate if self.rate else 0.0)
        return first + max(answer, self.k * first + answer) + answer

    @property
    def answer(self) -> str:
        """The text that every worker and the leader must end with."""
        return "".join(text_tokens(self.t, self.mixed))


@lru_cache(maxsize=64)
def text_tokens(t: int, mixed: bool = False) -> tuple[str, ...]:
    """Return the ``t`` tokens of a final answer."""
    out = []
    for i in range(t):
        if mixed and i % 2:
            out.append(HAN[i % len(HAN)])
        else:
            out.append(WORDS[i % len(WORDS)] if i == 0 else " " + WORDS[i % len(WORDS)])
    return tuple(out)
