"""Who says what in ``human-as-leader.ipynb``: a person leads a Researcher and a Code Reviewer.

The reviewer asks at once; the Researcher holds until it is sent a message. There is no leader to
script.
"""

from __future__ import annotations

from astrion_nb.testing import ScriptedModel, call, say, until_message

RESEARCHER = [
    until_message(
        say(
            "I begin with how money is counted in programs, and note who else is at work, so as not to review the "
            "function myself."
        )
        + call("list_active_sub_agents")
    ),
    say(
        "How a sum of money is divided so that the parts add up. From memory, with high certainty; I have no tool to "
        "open a source.\n"
        "\n"
        "1. **Count in the smallest unit, as whole numbers.** 100.00 is 10000 cents. Not every currency has "
        "hundredths: the yen has no smaller unit, the Kuwaiti dinar has thousandths.\n"
        "2. **Divide with remainder.** 10000 cents among 3 are 3333 each, and 1 is left. The remainder is always "
        "smaller than the number of people, so nobody's share is off by much.\n"
        "3. **Decide who takes the remainder.** Known are: one cent each from the first in the list; the same, but "
        "by turns or by lot; all of it by whoever paid. The last one needs no memory and no luck.\n"
        "\n"
        "**Refunds**, as you ask: in Python, the remainder of a negative number is not negative. `divmod(-10000, 3)` "
        "is `(-3334, 2)`: the parts still add up, but whoever takes the remainder gets 33.32 back and the others "
        "33.34. To treat a refund as the mirror image of a bill, divide the positive amount and put the sign back.\n"
        "\n"
        "For unequal shares the same idea is called the method of largest remainders; it was not asked for."
    ),
]

REVIEWER = [
    say(
        "The shares do not add up to the bill, and how to mend it depends on a rule that the task does not give. I "
        "ask before I write the correction."
    )
    + call(
        "ask_master",
        question=(
            "Who is to pay the cents that cannot be divided? Of 100.00 among three people one cent is left. Either the "
            "first in the list pay one more each, or whoever paid the bill takes them all. I would take the second: "
            "nobody has to explain it."
        ),
        question_id="ask_cr_001",
    ),
    say(
        "**Verdict: rework.** I read it and calculated by hand; nothing was run.\n"
        "\n"
        "- **Blocker. The shares do not add up.** `split(100, 3)` gives three times 33.33, that is 99.99. "
        "`split(0.05, 2)` gives two times 0.03, more than the bill.\n"
        "- **Major. Nobody to share with.** `split(10, 0)` fails with `ZeroDivisionError`, `split(10, -2)` returns "
        "an empty list without a word.\n"
        "- **Minor. Money as a floating-point number.** `0.1 + 0.2` is not `0.3`; sums of shares will show it.\n"
        "\n"
        "One correction for all three, with your rule that whoever paid stands first and takes the odd cents:\n"
        "\n"
        "```python\n"
        "def split(cents: int, people: int) -> list[int]:\n"
        "    if people < 1:\n"
        '        raise ValueError("split: at least one person has to pay")\n'
        "    share, rest = divmod(cents, people)\n"
        "    return [share + rest] + [share] * (people - 1)\n"
        "```\n"
        "\n"
        "Good and to be kept: the function does one thing and touches nothing else. Not covered: refunds."
    ),
    say(
        "These three; the function you sent me fails each of them:\n"
        "\n"
        "```python\n"
        "def test_the_shares_add_up():\n"
        "    assert sum(split(10_000, 3)) == 10_000\n"
        "\n"
        "\n"
        "def test_whoever_paid_takes_the_odd_cents():\n"
        "    assert split(10_000, 3) == [3_334, 3_333, 3_333]\n"
        "\n"
        "\n"
        "def test_nobody_to_share_with_is_refused():\n"
        '    with pytest.raises(ValueError, match="at least one"):\n'
        "        split(10_000, 0)\n"
        "```\n"
        "\n"
        "The first is the one that matters: try it with many amounts and numbers of people, since it must hold for "
        "all."
    ),
]

script = ScriptedModel(
    {"Researcher_1": RESEARCHER, "Code Reviewer_1": REVIEWER},
    key="scripted",
    tokens_per_second=60,
)
